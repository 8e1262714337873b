"""The state of a fitted agent: memory, and policies that compete, fitted anew again and again."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.history import Level
from oda_rl.agents.base.memory import GOES_ON, MARK, REWARD, Memory
from oda_rl.agents.base.state import EPISODE_END, with_lanes
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.fitted import changes, competing, replay, schemes
from oda_rl.agents.fitted.conservative import fit_logged
from oda_rl.agents.fitted.contents import check_contents
from oda_rl.agents.fitted.fused import RULE
from oda_rl.agents.fitted.laned import LanedEngine
from oda_rl.agents.fitted.lanes import Playing
from oda_rl.agents.fitted.records import Record
from oda_rl.agents.fitted.timing import Timing
from oda_rl.agents.fitting.action_codevectors import TakenActions
from oda_rl.agents.fitting.advantages import fit_advantages
from oda_rl.agents.fitting.delivery import Fit
from oda_rl.agents.fitting.one_piece import fit
from oda_rl.agents.fitting.placed import NOWHERE, Placed, Since
from oda_rl.agents.fitting.placement import Experience
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.files.schema import within

_LATEST = 3  # policies that are too new to be confirmed
_CONFIRMING = 0.5  # as many steps as before a refit
_NEVER = 2**62  # steps
_PATIENCE = 10  # times as many steps as a refit needs, without an episode's end


class FittedEngine(LanedEngine):
    """The arrays of a fitted agent, and what is done when compiled code reports an event.

    Parameters
    ----------
    interface : Interface
        Of the environment.
    config : FittedQConfig
        Settings of the agent.
    explore, fitting, reservoir : numpy.random.Generator
        Decide on exploration, on samples that are fitted to, on episodes that are kept.
    """

    state: replay.FittedState
    scale: FloatArray | None = None
    rule = RULE
    choose = staticmethod(replay.act)
    step = staticmethod(replay.step)
    update = staticmethod(replay.update)

    def __init__(
        self,
        interface: Interface,
        config: FittedQConfig,
        explore: np.random.Generator,
        fitting: np.random.Generator,
        reservoir: np.random.Generator,
    ) -> None:
        super().__init__(interface, max(interface.n_features, interface.n_actions), explore)
        self.config = config
        self.metric: FloatArray | None = None
        self.newest = self._blank()
        self.records: list[Record] = []
        self._latest = Record(self.newest)
        self._fitting, d = fitting, interface.n_features
        self.memory = Memory(
            d, interface.dtype, config.max_transitions, reservoir, interface.n_components
        )
        self.raw, (self.lane,) = with_lanes(replay.FittedState, 1)
        self.state = replay.FittedState(self.raw)
        self._values: FloatArray | None  # of rows, at the last fit
        self._n_over: int  # of those, how many are of trajectories that were over
        self._forget_values()
        self._placed: Placed | None = None
        self._placed_at = 0  # of the steps that have not been forgotten
        self.exploration = schemes.Exploration(config)
        self._curious: CellPolicy | None = None  # looks for what is new
        self._whole = True  # the running episode has been played with one policy
        self._confirming: Record | None = None
        self._confirmed = 0  # steps spent on that
        self._doubted: changes.Returns | None = None  # a record's before it is put to the proof
        self._forgotten = 0  # steps that were taken before all that is remembered
        self._set_due()
        self._open()

    @property
    def bytes_per_step(self) -> int:
        """What each step adds to a file, at most: its row of the memory, and its value."""
        memory = self.memory
        return int(memory.observations[0].nbytes + memory.steps[0].nbytes + 8)

    @property
    def policy(self) -> CellPolicy:
        """The policy with the best lower bound of its training returns, or the newest."""
        if not self.records:
            return self.newest
        return competing.best_of(self.records, self._spread()).policy

    @property
    def epsilon(self) -> float:
        """Present probability of a random decision."""
        return 0.0 if self._confirming else self.exploration.epsilon

    def begin_episode(self) -> None:
        """Forget episodes that were not finished; their steps are remembered."""
        self.lane.assign({"episode_return": 0.0, "episode_length": 0, "held": 0})
        self._whole = True
        self.leave_lanes()

    def play_by(
        self, policy: CellPolicy, epsilon: float, scheme: int, explore: np.random.Generator
    ) -> None:
        """Begin an episode for another engine: play by its policy, remember it, never fit."""
        self.newest, self._latest, self._explore = policy, Record(policy), explore
        self.exploration.epsilon, self.exploration.scheme = epsilon, scheme
        self.state.assign({"needed": _NEVER, "latest": _NEVER})
        self.lane.assign({"last_row": -1, "fresh": False})
        self.begin_episode()
        self._draw()
        self._open()

    def withdraw_choice(self) -> None:
        """Give back the random number of the last choice, or the step that it held an action."""
        if self.state.drew:
            self.state.next_uniform -= 1
            self.lane.held = 0
        else:
            self.lane.held += 1
        self.state.drew = False

    def _attend(self, events: int) -> None:
        if events & EPISODE_END:
            self._note_episode(self.state.last_return, self.state.last_length)
        if events & replay.TURN:
            self.take_turns()
        if events & replay.REFIT:
            self.refit_or_confirm()
        if self.memory.make_room(self.lane):
            self._open()

    def refit_or_confirm(self) -> None:
        """Fit anew, or first make sure of the policy that would be delivered.

        Where neither newest returns nor newest steps go with older ones, the best policy is put to
        the proof, by playing it again; if it fails, what is older is forgotten.
        """
        if self._confirming:
            self._confirmed += self.state.new_steps
        doubtful = None
        if self._doubted is not None:
            self._judge(self._doubted)
        elif self.records:
            spread = self._spread()
            best = competing.best_of(self.records, spread)
            if self._suspicious(best, spread):
                doubtful, self._doubted = best, changes.Returns.of(best)
            elif not self._confirming and self._is_doubtful(best):
                doubtful = best
        if doubtful is None:
            self._confirming = None
            self.refit()
        else:
            self._confirm(doubtful)
        if self._running is not None:
            self._replace_stale(self._running)

    def _suspicious(self, best: Record, spread: float) -> bool:
        """Whether the latest returns are far below the best, and memory contradicts itself."""
        rows = self.memory.steps[: self.memory.rows(self.lane)]
        now = changes.Returns.latest(
            self.exploration.returns, changes.ended_in(rows, self.state.new_steps)
        )
        below = changes.far_below(now, changes.Returns.of(best), spread)
        return below and self._agreeing() > 0

    def _judge(self, before: changes.Returns) -> None:
        """Forget what is older than the newest steps if the policy is no longer what it was."""
        assert self._confirming is not None
        now, agreeing = changes.Returns.of(self._confirming).since(before), self._agreeing()
        if agreeing and changes.far_below(now, before, self._spread()):
            self._forget(agreeing)
        self._doubted = None

    def _agreeing(self) -> int:
        return changes.steps_that_agree(self.seen, self.state.new_steps // 2)

    def _forget(self, kept: int) -> None:
        """Forget policies, their returns, and all but about so many of the newest steps."""
        episodes, steps = self.memory.forget(kept, self.lane)
        self.exploration.forget_all_but(episodes)
        self.records, self._confirming, self._confirmed = [], None, 0
        self.metric, self._curious, self._placed = None, None, None
        self._forget_values()
        self._forgotten = self.state.steps - steps
        if self._running is not None:
            self._running.give_no_credit()
            self._running.moves.forget()

    @property
    def loop_arrays(self) -> tuple[Any, ...]:
        """The arrays that the rule opens in a compiled loop."""
        return self.arrays

    def note_episodes(self, episodes: FloatArray) -> None:
        """Note episodes that compiled code played, shape (n, 3): return, length, and more."""
        for episode_return, length, _ in episodes.tolist():
            self._note_episode(episode_return, int(length))

    def _note_episode(self, episode_return: float, length: int) -> None:
        """Note an episode of the only environment."""
        whole, self._whole = self._whole, True
        counts = (self._playing.record, self._playing.scheme) if whole else (None, schemes.NONE)
        self._credit(episode_return, length, *counts)

    def _credit(self, total: float, length: int, record: Record | None, scheme: int) -> None:
        """Note an episode, to the credit of a policy if it was played with that alone."""
        self._ended_since_fit = True
        self.exploration.add(total, length, scheme)
        if record is not None:
            if record not in self.records:
                self.records = [*self.records, record]
                if len(self.records) > self.config.kept_policies:
                    most = self.config.kept_policies
                    self.records = competing.without_worst(self.records, most, self._spread())
            record.add(total)

    def _spread(self) -> float:
        return competing.spread_of(self.records, self.exploration.returns)

    def _is_doubtful(self, best: Record) -> bool:
        """Whether the policy that would be delivered has been played too little.

        Not while it is one of the latest: learning goes on then, and soon there may be better.
        """
        spent = self._confirmed > self.config.confirm_share * self._timing.steps
        too_few = best.n < self.config.confirm_episodes
        return not spent and too_few and best not in self.records[-_LATEST:]

    def _confirm(self, record: Record) -> None:
        """Play a policy again, without exploration, to be surer of its return."""
        self._confirming = record
        self._whole = self.lane.episode_length == 0
        self._set_due(_CONFIRMING)
        self._open()

    def remember(self, observations: FloatArray, steps: FloatArray) -> None:
        """Take over a trajectory that another agent has been through, as the memory has them."""
        self.memory.append(observations, steps, self.lane)
        self.state.steps += int((steps[:, MARK] == GOES_ON).sum())

    def remember_logged(
        self, observations: FloatArray, steps: FloatArray, whole: Sequence[tuple[float, int]]
    ) -> None:
        """Take over logged trajectories, and the returns and lengths of whole episodes in them."""
        self.remember(observations, steps)
        self.state.new_steps += int((steps[:, MARK] == GOES_ON).sum())
        for episode_return, length in whole:
            self._credit(episode_return, length, None, schemes.NONE)

    @property
    def seen(self) -> Experience:
        """All that is remembered."""
        rows = self.memory.rows(self.lane)
        numbered = self.interface.n_values > 0
        observations, steps = self.memory.observations[:rows], self.memory.steps[:rows]
        return Experience(
            observations, steps, self.interface.n_actions, numbered, self._taken(rows)
        )

    @one_thread()
    def fit_logged(self) -> None:
        """Fit to what is remembered, and believe nothing else; that policy is delivered."""
        self.memory.thin_out(self.lane)
        self.records, self._confirming, self._doubted, self._placed = [], None, None, None
        self._install(fit_logged(self.seen, self.interface, self.config, self._fitting, type(self)))
        self._forget_values()  # learning begins with hopes again

    def _install(self, found: Fit) -> None:
        """Go on with a new policy."""
        self.newest, self.metric, self.scale = found.policy, found.metric, found.scale
        self._latest = Record(self.newest)
        self._whole = self.lane.episode_length == 0
        self.lane.held = 0
        self._explore_on(anew=False)
        self._set_due()
        self._open()
        step = self.state.steps
        self.note_level(Level(step, np.nan, self.newest.codevectors, None))

    @one_thread()
    def refit(self) -> None:
        """Fit partition and values to all that is remembered."""
        ended = self._where_ended_were(self._n_over)
        parts = self._known_values(ended)
        kept = self.memory.thin_out(self.lane)
        if kept is not None:
            ended = ended[:0]
            parts = [np.concatenate(parts)[kept]] if parts else []
            if self._placed is not None:
                self._placed.forget_rows()
        n = self._append_running()
        running = self._where_running_were(n)
        values = np.concatenate([*parts, self._valued(n, running)]) if parts else None
        parts, self._values = [], None  # frees memory while it is needed
        seen, known = self.seen, (values, self.metric)
        # The last row goes on if the next step is taken from there.
        if seen.numbered or seen.taken is not None:
            found = fit(seen, *known, self.config, self._fitting)
        else:
            since = Since(max(n - 1, 0), np.concatenate([ended, running]))
            cells, config = self._placed_among(seen), self._timing.settings
            found = fit_advantages(seen, cells, since, *known, config, self._fitting)
        self._values, self._n_over = found.values, n
        if self.interface.n_values > 0 and self.config.exploration is None:
            last = self._curious
            self._curious = schemes.led_by_novelty(self.seen, last, self.config, self._fitting)
        self._install(found)
        self.lane.last_row = n - 1

    def _placed_among(self, seen: Experience) -> Placed:
        """Return cells for a fit: those of the last one, unless much has been seen since."""
        timing = self._timing
        last = self._placed
        if last is not None and not timing.is_to_place(self._placed_at):
            return last
        placed = Placed.among(seen, self.metric, self.config, self._fitting)
        if last is not None:
            placed.take_room(last)
        self._placed, self._placed_at = placed, timing.steps
        return placed

    def _blank(self) -> CellPolicy:
        """Return the policy before the first fit."""
        return CellPolicy.blank(self.interface.n_features, self.interface.n_actions)

    def _taken(self, n: int) -> TakenActions | None:
        """Return the actions of the first n rows if they are continuous."""
        return None

    def _known_values(self, ended: IntArray) -> list[FloatArray]:
        """Values of the rows of trajectories that are over, the last of which were there."""
        if self._values is None:
            return []
        return [self._values[: self._n_over], self._valued(self._n_over, ended)]

    def _forget_values(self) -> None:
        self._values, self._n_over = None, 0

    def _valued(self, begin: int, were: IntArray) -> FloatArray:
        """Values of rows: from the last fit if they were in it, else by its policy."""
        assert self._values is not None
        new = (were == NOWHERE).nonzero()[0]
        values = self._values.take(were, mode="clip") if len(self._values) else np.empty(len(were))
        rows = self.memory.observations[begin : begin + len(were)]
        values[new] = self.newest.evaluate(rows.take(new, axis=0))[2]
        return values

    def _rewards(self) -> FloatArray:
        steps = self.memory.steps[: self.memory.rows(self.lane)]
        return np.asarray(steps[steps[:, MARK] == GOES_ON, REWARD])

    def take_turns(self) -> None:
        """Let perhaps another scheme of exploration have the next episode."""
        if self._confirming is None and self.exploration.scheme != schemes.NONE:
            self._explore_on(anew=True)
            self._open()

    def _explore_on(self, anew: bool) -> None:
        """Say how much is explored from now on, perhaps by another scheme."""
        novelty = self._curious is not None
        self.exploration.go_on(self._rewards, self._explore, anew, novelty)

    @property
    def _timing(self) -> Timing:
        return Timing(self.config, self.state.steps - self._forgotten, self.n_lanes)

    def _set_due(self, part: float = 1.0) -> None:
        needed = self._timing.needed(self.exploration.mean_length, part)
        self.state.assign({"needed": needed, "latest": _PATIENCE * needed, "new_steps": 0})

    def _open(self) -> None:
        """Let compiled code work on the present memory and policy."""
        self._set_playing()
        policy = self._playing.policy
        self.arrays = (
            self.memory.observations,
            self.memory.steps,
            policy.diagram,
            policy.models,
            self.raw,
            self.room,
        )

    def _set_playing(self) -> None:
        """Say which policy is played from now on, and how."""
        chosen = self._confirming or self._latest
        # While all decisions are random, a return says nothing about the policy.
        record = chosen if self.epsilon < 1.0 else None
        scheme = schemes.NONE if self._confirming else self.exploration.scheme
        how = self.epsilon, self.exploration.longest_hold, scheme
        policy = chosen.policy
        # An actor has none: there the latest is the one that it was sent.
        if scheme == schemes.NOVELTY and self._curious is not None:
            policy, record = self._curious, None
        self._playing = Playing(policy, record, *how, self._n_levels)
        self._play(self._playing)

    def _play(self, playing: Playing) -> None:
        """Let compiled code choose actions by a policy, and explore."""
        policy = playing.policy
        self._workspace.origin[: len(policy.origin)] = policy.origin
        self.state.width = policy.width
        self.state.epsilon, self.state.longest_hold = playing.epsilon, playing.longest_hold

    def state_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays that have to be saved, the history apart.

        Running trajectories of several environments are saved as if they were over.
        """
        self._play(self._playing)  # several environments have played others since
        rows = self._append_running()
        arrays: dict[str, npt.NDArray[Any]] = {
            "room": self.room,
            "state": self.state.record,
            "lane": self.lane.record.copy(),
            **self.exploration.arrays(),
            "whole": np.array(self._whole),
            "confirmed": np.array(self._confirmed),
            **changes.arrays_of(self._doubted, self._forgotten),
            **competing.record_arrays(self.newest, self.records, self._latest, self._confirming),
            **{f"memory_{name}": array for name, array in self.memory.state(self.lane).items()},
        }
        for name in ("metric", "scale"):
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        if self._values is not None:
            arrays["_values"] = self._values[: self._n_over]
        if self._curious is not None:
            arrays |= {f"curious_{name}": array for name, array in self._curious.arrays.items()}
        if self._placed is not None:
            arrays |= {f"placed_cells_{name}": array for name, array in self._placed.arrays.items()}
            arrays["placed_at"] = np.array(self._placed_at)
        self.lane.last_row = rows - 1
        return arrays

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take over what :meth:`state_arrays` returned, or raise InvalidFileError."""
        check_contents(
            arrays, self.interface, self.config, self.room.shape[1], type(self.newest).SCHEMA
        )
        self.room[:] = arrays["room"]
        self.state.restore(arrays["state"])
        self.lane.restore(arrays["lane"])
        self._whole = bool(arrays["whole"])
        for name in ("metric", "scale", "_values"):
            setattr(self, name, arrays.get(name))
        self._n_over = len(arrays.get("_values", ()))
        self.memory.restore(within(arrays, "memory_"))
        read = competing.read_records(arrays, type(self.newest))
        self.newest, self.records, self._latest, self._confirming = read
        curious = within(arrays, "curious_")
        self._curious = type(self.newest).from_arrays(curious) if curious else None
        self._placed = Placed.read(arrays, "placed_cells_")
        self._placed_at = int(arrays.get("placed_at", 0))
        self.exploration.restore(arrays, self.state.epsilon)
        self._ended_since_fit = True
        self._confirmed = int(arrays["confirmed"])
        self._doubted, self._forgotten = changes.read(arrays)
        self._open()
