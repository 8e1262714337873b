"""The state of a fitted agent: memory, and policies that compete, refitted again and again.

Each of several environments plays an episode to its end with the policy that was the newest when it
began: otherwise refits would leave no uninterrupted episode, by which policies are compared.
Completed trajectories are appended to the memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oda_rl._state import Raw
from oda_rl._threads import one_thread
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.agents.base.engine import Engine, VectorStep
from oda_rl.agents.base.history import Level
from oda_rl.agents.base.memory import COMPONENTS, GOES_ON, MARK, REWARD, Memory, check_steps
from oda_rl.agents.base.memory import SCHEMA as MEMORY
from oda_rl.agents.base.state import (
    EPISODE_END,
    EnvState,
    Observations,
    new_env_states,
    with_env_states,
)
from oda_rl.agents.base.state import ROOM as WORKSPACE
from oda_rl.agents.environments.spaces import Interface, n_elements
from oda_rl.agents.environments.validation import BAD_STEP, refuse
from oda_rl.agents.fitted import changes, exploration, steps
from oda_rl.agents.fitted.changes import Record, Returns
from oda_rl.agents.fitted.offline import fit_logged
from oda_rl.agents.fitting import advantages
from oda_rl.agents.fitting.advantages import Placed, averaged, fit_advantages, n_fits
from oda_rl.agents.fitting.cells import N_NEAREST, Experience, TakenActions
from oda_rl.agents.fitting.regression import Fit, fit, reward_origin
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.files.schema import MAX, Member, check, flags, prefixed, real, require, whole, within

_MIN_EPISODES = 5  # with a policy after which the next may be fitted
_SOONER = 0.5  # of the steps after which it is fitted at the latest,
_MANY = 30_000  # but not for means after so many, which take long and differ less
_TABLE_SOONER = 0.25  # of the minimum number of steps, for a table
_PATIENCE = 10  # times as many steps as a refit needs, without an episode's end
_CONFIRMING = 0.5  # as many steps as before a refit
_NOISY = 0.3  # share of random decisions
_CONSTANT_SHARE, _MAX_CONSTANTS = 0.05, 17  # of the steps; actions that are held for an episode
_MAX_VALUES = 10_000  # for states of several components, each of which is a cell
_NEVER = 2**62  # steps
_FIRST_ROWS = 256  # of each of several environments
_LONGEST = 1_000  # steps without an end, after which episodes are taken to have none
_SEGMENT = 300  # steps, at least, that count as an episode then; returns are for so many

_COUNTED = "n", "mean", "m2", "action"  # of a record

SCHEMA: dict[str, Member] = {
    "room": real("5, width", "[-inf, inf] or nan"),
    "state": Member(steps.FittedState, "1"),
    "env_state": Member(EnvState, "1"),
    "returns": real("returns"),
    "lengths": whole("lengths", "[1, inf)"),
    "explored": whole("returns", "[-1, schemes)"),
    "scheme": whole("", "[-1, schemes)"),
    "uninterrupted": flags(),
    "endless": flags(),
    "latest": whole("", "[-1, records)"),
    "confirming": whole("", "[-1, records)"),
    "confirmed": whole(),
    "constant": whole("", "[-1, actions)"),
    "tried": whole(),
    "record_n": whole("records", "[1, inf)"),
    "record_mean": real("records"),
    "record_m2": real("records", "[0, inf)"),
    "record_action": whole("records", "[-1, actions)"),
    "epsilon": real("", "[0, 1]"),
    **MEMORY,
    "metric": real("d, d", f"[{-MAX:.0f}, {MAX:.0f}]", optional=True),
    "scale": real("d", "[0, inf)", optional=True),
    "_values": real("values", optional=True),
    "placed_at": whole("", "[0, steps]"),
    "n_fits": whole("", "[1, inf)"),
    "forgotten": whole("", "[0, steps]"),
    "under_review": real("2", optional=True),
}
"""Arrays in a file besides policies (policy0, the newest, one for each record, perhaps novelty) and
placed_cells."""


@dataclass(frozen=True, eq=False)
class Playing:
    """Policy and exploration of an episode."""

    policy: CellPolicy
    record: Record | None  # record of the returns; None if they are not those of this policy alone
    epsilon: float  # probability of a random decision
    longest_hold: int  # maximum number of steps for which one is held
    scheme: int  # scheme of exploration, or ``exploration.NONE``
    fits: int  # number of fits before


class RunningEpisodes:
    """Running episodes of ``count`` environments: their ``env_states`` in bytes, and memories."""

    def __init__(self, count: int, interface: Interface) -> None:
        self.playing: list[Playing] = []
        env_states: Raw = np.zeros(count * EnvState.size, dtype=np.uint8)
        self.env_states = new_env_states(env_states)
        d, wide = interface.n_features, COMPONENTS + interface.n_components
        observations: Observations = np.zeros((count, _FIRST_ROWS, d), interface.dtype)
        steps: FloatArray = np.zeros((count, _FIRST_ROWS, wide))
        self.arrays = env_states, observations, steps

    def make_room(self) -> None:
        """Double the rows."""
        env_states, *memory = self.arrays
        observations, steps = (np.concatenate([a, np.zeros_like(a)], axis=1) for a in memory)
        self.arrays = env_states, observations, steps

    def rows(self, env: int) -> tuple[Observations, FloatArray]:
        """Return the observations and steps of a trajectory so far."""
        n = self.env_states[env].last_row + 1
        return self.arrays[1][env, :n], self.arrays[2][env, :n]

    def forget(self, env: int) -> None:
        """Begin a trajectory anew."""
        self.env_states[env].assign({"last_row": -1, "fresh": False, "held": 0})


class FittedEngine(Engine):
    """The arrays of a fitted agent, and its reactions to events of compiled code."""

    state: steps.FittedState
    scale: FloatArray | None = None
    rule = steps.RULE
    choose = staticmethod(steps.act)
    step = staticmethod(steps.step)

    def __init__(
        self,
        interface: Interface,
        config: FittedQConfig,
        explore: np.random.Generator,
        fitting: np.random.Generator,
        reservoir: np.random.Generator,
    ) -> None:
        super().__init__(interface, max(interface.n_features, interface.n_actions), explore)
        self.config, self._fitting = config, fitting
        n = 0 if interface.native is None else n_elements(interface.native.observation_space)
        few = 0 < n <= config.max_cells and n * interface.n_actions <= _MAX_VALUES
        self._numbered = few or interface.n_values > 0  # states are discrete: each is a cell
        self.metric: FloatArray | None = None
        self.newest = self._blank()
        self.records: list[Record] = []
        self._latest = Record(self.newest)
        n_components = interface.n_components
        self.memory = Memory(
            interface.n_features, interface.dtype, config.max_transitions, reservoir, n_components
        )
        self.raw, (self.env_state,) = with_env_states(steps.FittedState, 1)
        self.state = steps.FittedState(self.raw)
        self._near = np.zeros(N_NEAREST, dtype=np.int64)
        self._values: FloatArray | None = None  # of the first rows, at the last fit
        self._placed: Placed | None = None
        self._n_fits = 1  # partitions, whose values are averaged
        self._placed_at = 0  # of the steps that have not been forgotten
        self.exploration = exploration.Exploration(config)
        self._novelty: CellPolicy | None = None  # seeks what has seldom been done
        self._uninterrupted = True  # the running episode has been played with one policy
        self._endless = False  # no episode ends: the steps between two fits count as one
        self._confirming: Record | None = None
        self._confirmed = 0  # steps spent on that
        self._constant: Record | None = None  # plays one action for the present episode
        self._tried = 0  # steps spent on that
        self._under_review: Returns | None = None  # a record's, before it is played again
        self._forgotten = 0  # steps that were taken before all that is remembered
        self._ended_since_fit = False
        self._several = RunningEpisodes(0, interface)  # along one trajectory there are none
        self._set_due()
        self._open()

    # What is asked of an engine.

    @property
    def policy(self) -> CellPolicy:
        """The policy with the best lower bound of its training returns, or the newest."""
        return self._best().policy if self.records else self.newest

    @property
    def delivered_return(self) -> float:
        return self._best().mean if self.records else np.nan

    @property
    def epsilon(self) -> float:
        return 0.0 if self._confirming or self._constant else self.exploration.epsilon

    @property
    def loop_arrays(self) -> tuple[Any, ...]:
        return self.arrays

    @property
    def n_envs(self) -> int:
        return len(self._several.playing)

    @property
    def env_states(self) -> list[EnvState]:
        return self._several.env_states or [self.env_state]

    def begin_episode(self) -> None:
        """Abandon running episodes; their steps stay in the memory."""
        self.env_state.assign({"episode_return": 0.0, "episode_length": 0, "held": 0})
        self._uninterrupted, self._constant = not self._endless, None
        self._open()
        self.leave_envs()

    def withdraw_choice(self) -> None:
        """Undo the last choice: its random number, or one step of a held action."""
        if self.state.drew:
            self.state.next_uniform -= 1
            self.env_state.held = 0
        else:
            self.env_state.held += 1
        self.state.drew = False

    def update(self, observation: Any, action: int, *outcome: Any) -> int:
        """Remember one transition; an episode with another action says nothing of its policy."""
        self._uninterrupted &= action == self.env_state.action
        return steps.update(observation, action, *outcome)

    def note_episodes(self, episodes: FloatArray) -> None:
        for episode_return, length, _ in episodes.tolist():
            self._note_episode(episode_return, int(length))

    def _attend(self, events: int) -> None:
        if events & EPISODE_END:
            self._note_episode(self.state.last_return, self.state.last_length)
        if events & steps.NEXT_SCHEME:
            self._draw_scheme()
        if events & steps.REFIT:
            self.refit_or_confirm()
        if self.memory.make_room(self.env_state):
            self._open()

    def _note_episode(self, episode_return: float, length: int) -> None:
        playing, uninterrupted = self._playing, self._uninterrupted
        if not uninterrupted:
            playing = replace(playing, record=None, scheme=exploration.NONE)
        self._uninterrupted = True
        self._credit(episode_return, length, playing)

    def _credit(self, total: float, length: int, playing: Playing) -> None:
        """Note an episode, to the credit of a policy if it was played with that alone."""
        self._ended_since_fit = True
        if self._endless and length != _SEGMENT:  # some do end, whose returns are of other lengths
            self._endless, self._latest = False, Record(self.newest)
            self._forget_policies()
            self.exploration.forget_all_but(0)
            self.exploration.lengths, playing = [], replace(playing, record=None)
        self.exploration.add(total, length, playing.scheme)
        record, max_records = playing.record, self.config.kept_policies
        if record is None:
            return
        if record.constant:
            if self._confirming is None:
                self._tried += length
            if record not in self.records:
                self.records = [record, *self.records]
        elif record not in self.records:
            constants = [one for one in self.records if one.constant]
            others = [*(one for one in self.records if not one.constant), record]
            if len(others) > max_records:
                others = changes.without_worst(others, max_records, self._spread())
            self.records = [*constants, *others]
        record.add(total)

    def _best(self) -> Record:
        return changes.best_of(self.records, self._spread(), self._n_fits > 1)

    def _spread(self) -> float:
        return changes.spread_of(self.records, self.exploration.returns)

    # Several environments, and episodes that are played elsewhere.

    def set_n_envs(self, count: int) -> None:
        """Prepare to learn from ``count`` environments at once; running trajectories end."""
        self.leave_envs()
        self._several = RunningEpisodes(count, self.interface)
        self._several.playing = [self._playing] * count

    def leave_envs(self) -> None:
        if self.n_envs:
            for env in range(self.n_envs):
                self._commit(env)
            self._several = RunningEpisodes(0, self.interface)
            self._open()

    def advance(self, step: VectorStep) -> tuple[IntArray, FloatArray]:
        running, n = self._several, self.n_envs
        assert len(step.rewards) == n  # else compiled code would write past the ends
        ended = np.zeros((n, 2))
        events = steps.record_all(step, ended, (*running.arrays, self.raw, self.room))
        refuse(events, BAD_STEP, self.interface)
        over = ended[:, 1].nonzero()[0]
        for env in over.tolist():
            episode_return, length = ended[env].tolist()
            self._credit(episode_return, int(length), running.playing[env])
            self._commit(env)
        if events & steps.REFIT:
            self.refit_or_confirm()
        if events & steps.ROOM:
            running.make_room()
        for env in step.begins.nonzero()[0].tolist():
            self.begin_env(env)
        actions = np.zeros(n, dtype=np.int64)
        for env in step.acts.nonzero()[0].tolist():
            actions[env] = self._act_in(env, step.observations)
        return actions, ended[over]

    def _act_in(self, env: int, seen: Array) -> int:
        playing = self._several.playing[env]
        policy, how = playing.policy, (playing.epsilon, playing.longest_hold)
        tables = policy.diagram, policy.models, policy.origin, policy.width
        while True:
            arrays = *self._several.arrays, self.raw, self.room, self._near
            action = steps.act_in(env, seen, tables, how, arrays)
            if action >= 0:
                return action
            refuse(-action, BAD_STEP, self.interface)
            self._draw()

    def begin_env(self, env: int) -> Playing:
        """Set and return how the next episode of an environment is played."""
        self._draw_scheme()
        self._several.playing[env] = self._playing
        return self._playing

    def credit(self, env: int, episode_return: float, length: int) -> None:
        self._credit(episode_return, length, self._several.playing[env])

    def _replace_stale(self) -> None:
        """Let environments play the present policy if theirs is old, or no episode seems to end.

        At random every other one goes on: a goal may be farther away than the steps of a first fit.
        """
        playing = replace(self._playing, record=None)
        for env, other in enumerate(self._several.playing):
            waits = other.epsilon >= 1.0 and env % 2 == 1
            endless = not self._ended_since_fit and not waits
            if endless or self._playing.fits - other.fits > 10:  # it is old
                self._commit(env)
                self._several.playing[env] = playing
        self._ended_since_fit = False

    def _commit(self, env: int) -> None:
        self.memory.append(*self._several.rows(env), self.env_state)
        self._several.forget(env)

    def _append_running(self) -> int:
        """Append running trajectories to the memory; return the number of rows before."""
        n = self.memory.rows(self.env_state)
        for env in range(self.n_envs):
            self.memory.append(*self._several.rows(env), self.env_state)
        return n

    def play_by(
        self, policy: CellPolicy, epsilon: float, scheme: int, explore: np.random.Generator
    ) -> None:
        """Begin an episode for another engine: play its policy, without fits."""
        self.newest, self._latest, self._explore = policy, Record(policy), explore
        self.exploration.epsilon, self.exploration.scheme = epsilon, scheme
        self.state.assign({"needed": _NEVER, "latest": _NEVER})
        self.env_state.assign({"last_row": -1, "fresh": False})
        self.begin_episode()
        self._draw()
        self._open()

    def remember(self, observations: FloatArray, rows: FloatArray) -> int:
        """Append trajectories from elsewhere, as rows of a memory; return the number of steps."""
        self.memory.append(observations, rows, self.env_state)
        n = int((rows[:, MARK] == GOES_ON).sum())
        self.state.steps += n
        return n

    def remember_logged(
        self, observations: FloatArray, rows: FloatArray, episodes: Sequence[tuple[float, int]]
    ) -> None:
        """Append logged trajectories, with return and length of each complete episode."""
        self.state.new_steps += self.remember(observations, rows)
        playing = replace(self._playing, record=None, scheme=exploration.NONE)
        for episode_return, length in episodes:
            self._credit(episode_return, length, playing)

    # Fits.

    def refit_or_confirm(self) -> None:
        """Refit, or first re-evaluate the policy that would be delivered.

        Also where newest returns and steps contradict older ones, which are forgotten if it fails.
        """
        self._end_segment()
        if self._confirming:
            self._confirmed += self.state.new_steps
        doubtful = None
        if self._under_review is not None:
            self._judge(self._under_review)
        elif self.records:
            spread = self._spread()
            best = self._best()
            if self._suspicious(best, spread):
                doubtful, self._under_review = best, best.returns
            elif not self._confirming and best not in self.records[-3:]:  # not the latest
                spent = self._confirmed > self.config.confirm_share * self._steps
                if best.n < self.config.confirm_episodes and not spent:
                    doubtful = best
        if doubtful is None:
            self._confirming = None
            self.refit()
        else:  # play it again, without exploration
            self._confirming = doubtful
            self._uninterrupted = self._endless or self.env_state.episode_length == 0
            self._set_due(_CONFIRMING)
            self._open()
        if self._endless:
            self._draw_scheme()
            self._several.playing = [self._playing] * self.n_envs
        self._replace_stale()

    def _end_segment(self) -> None:
        """Where no episode ends, count the steps since the last fit as one."""
        lengths = [env_state.episode_length for env_state in self.env_states]
        self._endless |= not self.exploration.lengths and max(lengths) >= _LONGEST
        if not self._endless or max(lengths) == 0:
            return
        for env in range(self.n_envs):
            self._commit(env)
        last = slice(self.env_state.last_row, self.env_state.last_row + 1)
        self.memory.append(self.memory.observations[last], self.memory.steps[last], self.env_state)
        mean = float(self._rewards()[-self.state.new_steps :].mean())
        self._note_episode(_SEGMENT * mean, _SEGMENT)

    def _suspicious(self, best: Record, spread: float) -> bool:
        """Whether the latest returns are far below the best, and new steps contradict old ones."""
        rows, newest = self.memory.rows(self.env_state), self.state.new_steps
        going_on = self.memory.steps[:rows, MARK][-2 * newest :] == GOES_ON  # two rows each at most
        begin = int(np.flatnonzero(going_on)[-newest:][0])
        ended = 1 if self._endless else int((~going_on[begin:]).sum())
        now = Returns.latest(self.exploration.returns, ended)
        return changes.far_below(now, best.returns, spread) and self._agreeing() > 0

    def _judge(self, before: Returns) -> None:
        assert self._confirming is not None
        now, agreeing = self._confirming.returns.since(before), self._agreeing()
        if agreeing and changes.far_below(now, before, self._spread()):
            self._forget(agreeing)
        self._under_review = None

    def _agreeing(self) -> int:
        return changes.steps_that_agree(self.seen, self.state.new_steps // 2)

    def _forget(self, kept: int) -> None:
        """Forget policies, their returns, and all but about ``kept`` of the newest steps."""
        n_episodes, n_steps = self.memory.forget(kept, self.env_state)
        self.exploration.forget_all_but(n_episodes)
        self._forget_policies()
        self.metric, self._novelty, self._placed = None, None, None
        self._values = None
        self._forgotten = self.state.steps - n_steps

    def _forget_policies(self) -> None:
        self.records, self._confirming, self._confirmed = [], None, 0
        self._constant, self._tried, self._under_review = None, 0, None
        several = self._several  # whose running episodes are of policies that are forgotten
        several.playing = [replace(playing, record=None) for playing in several.playing]

    @property
    def seen(self) -> Experience:
        """The data in the memory."""
        n = self.memory.rows(self.env_state)
        observations, rows = self.memory.observations[:n], self.memory.steps[:n]
        n_actions = self.interface.n_actions
        return Experience(observations, rows, n_actions, self._numbered, self._taken(n))

    @one_thread()
    def refit(self) -> None:
        """Fit partition and values to the memory."""
        values = self._values
        kept = self.memory.thin_out(self.env_state)
        if kept is not None:
            if values is not None:
                values = values[kept[: len(values)]]
            if self._placed is not None:
                self._placed.forget_rows()
        n = self._append_running()
        seen = self.seen
        if values is not None:
            new = seen.observations[len(values) :]
            values = np.concatenate([values, self.newest.evaluate(new)[2]])
        self._n_fits, learned, rng = n_fits(seen, self.config), self.metric, self._fitting
        config = replace(self.config, n_fits=self._n_fits)
        level = (origin := reward_origin(seen.steps)) / (1.0 - config.gamma)
        if origin != 0.0:
            steps = seen.steps.copy()
            steps[steps[:, MARK] == GOES_ON, REWARD] -= origin
            seen, values = seen._replace(steps=steps), None if values is None else values - level
        if seen.numbered or seen.taken is not None:
            found = fit(seen, values, learned, config, rng)
        else:
            settled = max(n - 1, 0)  # the last row goes on if the next step is taken from there
            if self._placed is None or self._steps - self._placed_at >= self._share(0.2):  # new
                self._placed = Placed.among(seen, learned, config, rng)
                self._placed_at = self._steps
            cells = self._placed
            found = fit_advantages(seen, cells, settled, values, learned, config, rng)
            found = averaged(found, seen, cells, settled, config, rng)
        if self._numbered and self.config.exploration is None:
            last = self._novelty
            self._novelty = exploration.fit_novelty_policy(seen, last, self.config, self._fitting)
        found.policy.models[:, 1 + seen.observations.shape[1] :] += level
        self._install(found)
        self._values, self.env_state.last_row = found.values[:n] + level, n - 1

    @one_thread()
    def fit_logged(self) -> None:
        """Fit to the memory with pessimism, and deliver that policy."""
        self.memory.thin_out(self.env_state)
        self.records, self._confirming, self._under_review, self._placed = [], None, None, None
        self._install(fit_logged(self.seen, self.interface, self.config, self._fitting, type(self)))
        self._values = None  # learning begins with optimism again

    def _install(self, found: Fit) -> None:
        self.newest, self.metric, self.scale = found.policy, found.metric, found.scale
        self._latest, self._constant = Record(self.newest), None
        self._uninterrupted = self._endless or self.env_state.episode_length == 0
        self.env_state.held = 0
        self._explore_on(anew=False)
        self._set_due()
        self._open()
        self.note_level(Level(self.state.steps, np.nan, self.newest.codevectors, None))

    @property
    def _steps(self) -> int:
        """Number of steps, without forgotten ones."""
        return self.state.steps - self._forgotten

    def _share(self, share: float) -> float:
        bound = self.config.max_transitions
        return share * (self._steps if bound is None else min(self._steps, bound))

    def _set_due(self, part: float = 1.0) -> None:
        """Set the number of steps until the next fit, times ``part``: fewer if episodes end."""
        share = self._share(self.config.refit_every)
        episodes = max(_MIN_EPISODES, self.n_envs)  # of several environments none is ahead
        soonest = (1.0 if self._n_fits > 1 and self._steps > _MANY else _SOONER) * share
        played = min(max(episodes * self.exploration.mean_length, soonest), share)
        needed = max(int(part * max(self.config.min_refit, played)), 1)
        latest = _PATIENCE * needed
        soon = max(int(part * max(_TABLE_SOONER * self.config.min_refit, _SOONER * share)), 1)
        if self._numbered and soon < self.exploration.mean_length:
            needed = latest = soon  # it then tries, within an episode, what it has not tried
        latest = max(needed, _SEGMENT) if self._endless else latest
        self.state.assign({"needed": needed, "latest": latest, "new_steps": 0})

    # What is played.

    def _draw_scheme(self) -> None:
        self._constant = None
        drawn = self.exploration.scheme != exploration.NONE
        if self._confirming is None and (drawn or self.exploration.epsilon < 1.0):
            if drawn:
                self._explore_on(anew=True)
            self._constant = self._next_constant()
            self._open()

    def _next_constant(self) -> Record | None:
        """Return a policy of one action to play: each once, and while it could be the best."""
        budget, n = _CONSTANT_SHARE * self._steps, self.interface.n_actions
        if self._tried + self.exploration.mean_length > budget or not self.records:
            return None
        known = {one.action: one for one in self.records if one.constant}
        new = set(np.linspace(0, n - 1, min(n, _MAX_CONSTANTS)).astype(int).tolist()) - set(known)
        if new:  # of a box, whose ends may do harm, the middle first
            middle = 0.5 * (n - 1) if self.interface.boxed else 0.0
            return self._always(min(new, key=lambda action: abs(action - middle)))
        spread = self._spread()
        best = self._best()
        rival = max(known.values(), key=lambda one: one.lower_bound(-spread))
        hopeful = rival.lower_bound(-spread) > best.lower_bound(spread)
        return rival if hopeful and rival is not best else None

    def _always(self, action: int) -> Record:
        """Return a policy that takes one action everywhere."""
        blank = self._blank()
        models = blank.models.copy()
        models[0, 1 + self.interface.n_features + action] = 1.0
        return Record(replace(blank, models=models), action=action)

    def _explore_on(self, anew: bool) -> None:
        novelty = self._novelty is not None
        self.exploration.set_epsilon(self._rewards, self._explore, anew, novelty)

    def _rewards(self) -> FloatArray:
        rows = self.memory.steps[: self.memory.rows(self.env_state)]
        return np.asarray(rows[rows[:, MARK] == GOES_ON, REWARD])

    def _open(self) -> None:
        chosen = self._confirming or self._constant or self._latest
        # Where many decisions are random, a return says nothing about the policy.
        record, policy = chosen if self.epsilon < _NOISY else None, chosen.policy
        scheme = self.exploration.scheme if chosen is self._latest else exploration.NONE
        # An actor has no such policy: there the latest is the one that it was sent.
        if scheme == exploration.NOVELTY and self._novelty is not None:
            policy, record = self._novelty, None
        how = self.epsilon, self.exploration.longest_hold, scheme
        n_levels = len(self.history) + self._levels_dropped
        self._playing = Playing(policy, record, *how, n_levels)
        self._set_playing()
        memory, scratch = (self.memory.observations, self.memory.steps), (self.room, self._near)
        self.arrays = *memory, policy.diagram, policy.models, self.raw, *scratch

    def _set_playing(self) -> None:
        """Set policy and exploration in the state of compiled code."""
        playing = self._playing
        self._workspace.origin[: len(playing.policy.origin)] = playing.policy.origin
        self.state.width = playing.policy.width
        self.state.epsilon, self.state.longest_hold = playing.epsilon, playing.longest_hold

    def _blank(self) -> CellPolicy:
        return CellPolicy.blank(self.interface.n_features, self.interface.n_actions, N_NEAREST)

    def _taken(self, n: int) -> TakenActions | None:
        """Return the actions of the first n rows if they are continuous."""
        return None

    # Files.

    def state_arrays(self) -> dict[str, Array]:
        """Return all arrays to save but the history; running trajectories count as completed."""
        self._set_playing()  # several environments have played others since
        rows, records = self._append_running(), self.records
        arrays: dict[str, Array] = {
            "room": self.room,
            "state": self.state.record,
            "env_state": self.env_state.record.copy(),
            **self.exploration.arrays(),
            "uninterrupted": np.array(self._uninterrupted),
            "endless": np.array(self._endless),
            "confirmed": np.array(self._confirmed),
            "constant": np.array(-1 if self._constant is None else self._constant.action),
            "tried": np.array(self._tried),
            "forgotten": np.array(self._forgotten),
            "placed_at": np.array(self._placed_at),
            "n_fits": np.array(self._n_fits),
            "latest": np.array(records.index(self._latest) if self._latest in records else -1),
            "confirming": np.array(records.index(self._confirming) if self._confirming else -1),
            **{f"record_{k}": np.array([getattr(r, k) for r in records]) for k in _COUNTED},
            **prefixed("memory_", self.memory.state(self.env_state)),
        }
        for i, policy in enumerate([self.newest, *(record.policy for record in records)]):
            arrays |= prefixed(f"policy{i}_", policy.arrays)
        if self._novelty is not None:
            arrays |= prefixed("novelty_", self._novelty.arrays)
        if self._placed is not None:
            arrays |= prefixed("placed_cells_", self._placed.arrays)
        for name in ("metric", "scale", "_values"):
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        if self._under_review is not None:
            arrays["under_review"] = np.array(self._under_review)
        self.env_state.last_row = rows - 1
        return arrays

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore what :meth:`state_arrays` returned, or raise InvalidFileError."""
        self._check(arrays)
        kind = type(self.newest)
        self.room[:] = arrays["room"]
        self.state.restore(arrays["state"])
        self.env_state.restore(arrays["env_state"])
        self.memory.restore(within(arrays, "memory_"))
        for name in ("metric", "scale", "_values"):
            setattr(self, name, arrays.get(name))
        counts = [arrays[f"record_{name}"].tolist() for name in _COUNTED]
        self.newest, *policies = (
            kind.from_arrays(within(arrays, f"policy{i}_")) for i in range(len(counts[0]) + 1)
        )
        self.records = [Record(*own) for own in zip(policies, *counts, strict=True)]
        latest, confirming = int(arrays["latest"]), int(arrays["confirming"])
        self._latest = self.records[latest] if latest >= 0 else Record(self.newest)
        self._latest.policy = self.newest
        self._confirming = self.records[confirming] if confirming >= 0 else None
        novelty, cells = within(arrays, "novelty_"), within(arrays, "placed_cells_")
        self._novelty = kind.from_arrays(novelty) if novelty else None
        self._placed = Placed.from_arrays(cells) if cells else None
        self.exploration.restore(arrays)
        self._uninterrupted, self._ended_since_fit = bool(arrays["uninterrupted"]), True
        self._endless = bool(arrays["endless"])
        for name in ("_confirmed", "_tried", "_forgotten", "_placed_at", "_n_fits"):
            setattr(self, name, int(arrays[name[1:]]))
        constant = int(arrays["constant"])
        if constant >= 0:
            same = (one for one in self.records if one.constant and one.action == constant)
            self._constant = next(same, None) or self._always(constant)
        self._under_review = None
        if "under_review" in arrays:
            n_episodes, mean = arrays["under_review"].tolist()
            self._under_review = Returns(int(n_episodes), mean)
        self._open()

    def _check(self, arrays: Mapping[str, Array]) -> None:
        """Raise InvalidFileError unless arrays are those of an agent."""
        width, policy = self.room.shape[1], dict(type(self.newest).SCHEMA)
        policy["n_nearest"] = whole("", f"[{N_NEAREST}, {N_NEAREST}]")
        n_records, n_actions = arrays["record_n"].size, self.interface.n_actions
        max_records = self.config.kept_policies + min(n_actions, _MAX_CONSTANTS)
        require(n_records <= max_records, f"record_n has {n_records} records")
        novelty, fixed = "novelty_codevectors" in arrays, self.config.exploration is not None
        seeks = self._numbered and not fixed
        require(seeks or not novelty, "novelty_codevectors are of no policy that seeks what is new")
        sizes = {
            "d": self.interface.n_features, "p": self.interface.n_components, "A": n_actions,
            "actions": n_actions, "width": width, "uniforms": width, "records": n_records,
            "schemes": 0 if fixed else exploration.NOVELTY + novelty, "env_states": 1,
            "steps": int(arrays["state"][0]["steps"]), "rows": len(arrays["memory_steps"]),
            "cells": 65_536,
        }  # fmt: skip
        checked: set[str] = set()

        def check_part(prefix: str, schema: Mapping[str, Member]) -> None:
            members = prefixed(prefix, schema)
            check({name: arrays[name] for name in members if name in arrays}, members, sizes)
            checked.update(members)

        for name in [f"policy{i}" for i in range(n_records + 1)] + ["novelty"] * novelty:
            sizes["K"] = sum(arrays[f"{name}_codevectors"].shape[:1])
            require(sizes["K"] >= 1, f"{name} has no cells")
            check_part(f"{name}_", policy)
        if any(name.startswith("placed_cells_") for name in arrays):
            check_part("placed_cells_", advantages.SCHEMA)
            require(max(sizes["C"], sizes["F"]) <= 65_535, "placed_cells_ are more than 65,535")
        single = self.interface.dtype == "float32"
        observations = Member(np.float32 if single else float, MEMORY["memory_observations"].shape)
        members = {**SCHEMA, "memory_observations": observations}
        check({name: arrays[name] for name in arrays if name not in checked}, members, sizes)
        for (name, member), row in zip(WORKSPACE.items(), arrays["room"], strict=True):
            member.check(f"room, row {name}", row, sizes)
        if "under_review" in arrays:
            at, n = int(arrays["confirming"]), arrays["under_review"][0]
            require(at >= 0, "under_review is of no policy that is played again")
            legal = n == int(n) and 1 <= n <= arrays["record_n"][at]
            require(legal, f"under_review[0] is {n}: from 1 to {arrays['record_n'][at]} episodes")
        rows, n_rows = arrays["memory_steps"], int(arrays["env_state"]["last_row"][0]) + 1
        require(len(rows) == n_rows + 1, f"memory_steps has {len(rows)} rows, not {n_rows + 1}")
        check_steps("memory_steps", rows, n_actions)
        n_ended = int((rows[: max(n_rows - 1, 0), MARK] != GOES_ON).sum())
        n_keys = len(arrays["memory_keys"])
        require(n_keys <= n_ended, f"memory_keys has {n_keys} keys for {n_ended} trajectories")
        require(sizes.get("values", 0) <= n_rows, "_values has more than memory_steps has")
