"""The arrays of an online agent, and the slow timescale: splits, cooling, and the metric."""

import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl import metric
from oda_rl._compile import plain
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.axes import informative
from oda_rl.agents.base.engine import Engine, VectorStep
from oda_rl.agents.base.history import Level
from oda_rl.agents.base.memory import ACTION, COMPONENTS, GOES_ON, MARK
from oda_rl.agents.base.state import EPISODE_END, UNIFORMS, EnvState, with_env_states
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import BAD_STEP
from oda_rl.agents.partitions.base import Lineage, Partition
from oda_rl.agents.policies import joint
from oda_rl.agents.policies.contract import SLOPE_RATE
from oda_rl.agents.two_timescale import cells
from oda_rl.agents.two_timescale import contest as contests
from oda_rl.agents.two_timescale import qlearning as ql
from oda_rl.agents.two_timescale.settings import TwoTimescaleConfig
from oda_rl.diagram import LARGEST
from oda_rl.files.schema import Member, check, real, require, within

NEAREST, JOINT_NEAREST = 6, 10  # cells that are blended; of states and actions
JOINT_SLOPE_RATE = 1.0  # SLOPE_RATE is that of cells of states
HOLD, LONG_HOLD = 8, 20  # the latter of continuous actions: shorter pushes get no car uphill
RECENT = 1_000  # observations that the metric is learned from
QUIET_ROUND = 500  # steps to the next slow step, unless it is due after ql.ROUND
CENTRED_BELOW, BEGUN_ABOVE = -5.0, 2.0  # deviations of rewards, from 0 and from their mean
SHORT, OPTIMISM = 10, 3  # steps of short episodes; mean rewards, the first value where all had one
FIRST_ROOM, ROOM_GROWTH = 64, 1.1  # maximum number of cells at first, and its factor
FULL = 0.9  # share of the cells that ends cooling
MIN_DISAGREEMENT = 0.5  # squared difference of neighbours' values, in mean δ², to raise it
MIN_VISITS = 3.0  # of an action in a cell, above which its value there is compared
COLDEST = 1e-5  # a component varies by 1: colder cells of few states would differ by rounding alone
SPLIT_SAMPLES = 30.0  # of a cell since its last split: with fewer its covariance says little
MERGED_SHARE = 1 / 16  # of max_cells: about the most that a slow step merges for later births
HEATING = 1.005  # where there is no such cell
IDLE, GRACE = 0.01, 3_000  # share of the mean mass of max_cells; steps after birth
METRIC_EVERY, METRIC_SHARE = 2_000, 0.1  # steps, or share of all steps so far
METRIC_POWER, METRIC_RIDGE = 0.25, 0.02  # less than half: it trusts the metric less (metric.root)
DISTINCT = 1e-3  # of the squared distance of fixed cells: a temperature at which they are hard
EXACT = 0.9  # R² of some changes in random play, without which it tells nothing of axes
OWN_SHARE = 0.15  # of log precisions; the rest is their mean: broad cells learn ill beside narrow
NEGLIGIBLE = 1e-2  # change of means, in standard deviations, and of the metric
PEAK = 0.1  # units of the box within which the value falls where one action is always taken
LESS = 1e-3  # of the highest value: where one action is always taken
NOTED = 1.25  # growth of the number of cells from one level of the history to the next
_SETTINGS = (
    "gamma", "trace_decay", "step_size", "step_size_steps", "step_exponent", "min_step_size",
    "slow_exponent", "min_slow_step", "exploration", "exploration_decay", "observe_every",
    "warmup_steps",
)  # fmt: skip
_WHOLE = ("frames", "heads", "vectors", "points", "starts", "recent")
_BOUNDED = ("places", "models", "frames", "mixtures", "starts", "luck")  # by LARGEST

SCHEMA: dict[str, Member] = {
    "places": real("3, d+p, K"),
    "models": real("3, K, d+p+2*A"),
    "frames": real("3, d+1+2*p, d+p"),
    "heads": real("3, 2", "(0, inf)"),
    "mixtures": real("3, R, K"),
    "statistics": real("4, K", "[0, inf)"),
    "covariances": real("K, d+p, d+p"),
    "traces": real("env_states, K, 1+d+p+A"),
    "vectors": real("7, d+p"),
    "points": real("env_states, d+p"),
    "starts": real("env_states, d"),
    "luck": real("d+2, d+1"),
    "recent": real("rows, d+p+1"),
    "uniforms": real("uniforms", "[0, 1)"),
    "metric": real("m, m"),
    "covariance": real("w, w"),
    "state": Member(ql.OnlineState, "1"),
    "contest": Member(contests.Contest, "1"),
    "returns": Member(contests.Returns, "returns"),
    "env_states": Member(EnvState, "env_states"),
    "running": Member(ql.Running, "env_states"),
}  # arrays in a file, of A actions, or p components; those of a partition are apart


class OnlineEngine(Engine):
    """The state of an online agent.

    Where actions are continuous (``interface.box``), cells are of states and actions: all arrays
    have the components of an action behind those of an observation, in d dimensions together.
    Without a partition, cells are born and split as needed.
    """

    state: ql.OnlineState
    rule = ql.RULE
    acts_together = True
    steps_before_loop = 25_000  # compiling a loop takes as long as 200,000 of them
    arrays = ()
    own_events = UNIFORMS | ql.WARM | ql.SLOW | ql.JUDGE

    def __init__(
        self,
        interface: Interface,
        config: TwoTimescaleConfig,
        partition: Partition | None,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(interface, 1, rng)
        self.config, self.partition = config, partition
        k = config.max_cells if partition is None else partition.capacity
        n, p, a = interface.n_features, interface.n_components, interface.n_actions
        d = n + p
        self.capacity = k
        self.places: FloatArray = np.zeros((3, d, k))
        self.models: FloatArray = np.zeros((3, k, d + 2 * a))
        self.slopes = self.models[:, :, :d]
        self.values, self.visits = np.split(self.models[:, :, d:], 2, axis=2)
        self.frames: FloatArray = np.zeros((3, d + 1 + p, d))
        self.transforms, self.means = self.frames[:, :d], self.frames[:, d]
        self.inverses = self.frames[:, d + 1 :]
        self.transforms[:], self.inverses[:] = np.eye(d), np.eye(d)[n:]
        self.heads = np.tile([1.0, 0.5 * d], (3, 1))
        self.curved = hasattr(partition, "precisions")
        self.mixtures: FloatArray = np.zeros((3, 1 + d * self.curved, k))
        self._books = self.places, self.models, self.frames, self.heads, self.mixtures
        self.statistics: FloatArray = np.zeros((4, k))
        self.covariances: FloatArray = np.zeros((k, d, d))
        self.moments = cells.Moments(self.statistics, self.covariances)
        self.statistics[cells.MASS, 0] = 1.0
        self.recent: FloatArray = np.zeros((RECENT, d + 1))
        self.vectors: FloatArray = np.zeros((ql.POINTS + 2, d))
        self.running_moments = self.vectors[ql.MEAN : ql.SQUARES + 1]
        self.units = self.vectors[ql.ORIGIN : ql.INVERSE_UNITS + 1]
        self.units[1] = 1.0
        self.metric: FloatArray = np.zeros((0, 0))
        self.covariance: FloatArray = np.zeros((0, 0))  # of points, if they are whitened by it
        self._rooted: tuple[FloatArray, FloatArray] = self.metric, np.eye(d)
        self.n_nearest = JOINT_NEAREST if p else NEAREST
        self._scratch = (
            np.zeros((2, self.n_nearest + 1), dtype=np.int64), np.zeros((2, self.n_nearest)),
            np.zeros((2, self.n_nearest, d)), np.zeros(k), np.zeros((3, a)),
        )  # fmt: skip
        self._search = joint.new_search(d, k, joint.levels_of(p), self.n_nearest) if p else None
        self._always = np.zeros((0, p))  # units of continuous actions that are tried always
        if interface.box is not None and 1 + 2 * p <= min(k, joint.SHORTLIST):
            self._always = interface.box.constants
        self.contest = contests.Contest(a if interface.box is None else len(self._always), n)
        self._make_envs(1)
        self.state.assign({name: getattr(config, name) for name in _SETTINGS})
        rate = 0.0 if config.paper else JOINT_SLOPE_RATE if p else SLOPE_RATE
        self.state.assign({"grows": partition is None, "n_features": n, "slope_rate": rate})
        self.state.numbered = interface.n_values > 0 and not config.paper
        self.state.hold = config.hold or (LONG_HOLD if interface.boxed else HOLD)
        self.state.paper, self.state.continuing = config.paper, not config.paper
        self.state.room = min(k, FIRST_ROOM) if partition is None else k
        self.state.first_action = int(rng.integers(a))
        self._open()

    def _make_envs(self, count: int) -> None:
        self.raw, self._env_states = with_env_states(ql.OnlineState, count)
        self.state = ql.OnlineState(self.raw)
        self._raw_running = np.zeros(count * ql.Running.size, dtype=np.uint8)
        self.running = ql.Running.each(self._raw_running)
        for running in self.running:
            running.bold = True
        _, d, k = self.places.shape
        self.traces: FloatArray = np.zeros((count, k, 1 + d + self.interface.n_actions))
        self.traces[:, :, cells.LAST] = -1.0
        self.trace_slopes = self.traces[:, :, cells.TRACE : cells.TRACE + d]
        self.points: FloatArray = np.zeros((count, d))
        self.starts: FloatArray = np.zeros((count, self.interface.n_features))

    def _open(self) -> None:
        """Pass the present arrays to compiled code: a tuple, as names compile 15 % more slowly."""
        self.live = joint.Codebook(*(array[ql.LIVE] for array in self._books))
        continuous, box = None, self.interface.box
        self._next_actions: npt.NDArray[Any] = np.zeros(0)  # shape (n_envs, p)
        self._given: FloatArray = np.zeros(self.interface.n_components)  # one done instead
        if box is not None and self._search is not None:
            self._next_actions = np.zeros((self.n_envs, len(box.low)), box.dtype)
            continuous = ql.Continuous(self._search, box.bounds, self._next_actions)
            self._refresh_next_actions()
        self._views = (
            self.raw, self._workspace.uniforms, self._raw_running, *self._books, *self.moments,
            self.traces, *self._scratch, self.vectors, self.points, self.starts, self.recent,
            continuous,
        )  # fmt: skip

    def _refresh_next_actions(self) -> None:
        box = self.interface.box
        if box is not None:
            self._next_actions[:] = box.actions(self._planned).reshape(self._next_actions.shape)

    @property
    def _planned(self) -> FloatArray:
        """The environments' next actions, in units of the box, shape (n, p)."""
        return self.points[:, self.interface.n_features :]

    def act(self, vector: npt.NDArray[Any]) -> int:
        while (code := self._advance(vector, 0.0, False, False, False)) < 0:
            self.attend(-code, "observation")
        return code

    def step(
        self, vector: npt.NDArray[Any], reward: float, terminated: bool, truncated: bool
    ) -> int:
        return self._advance(vector, reward, terminated, truncated, True)

    def update(
        self, vector: npt.NDArray[Any], action: int, reward: float, after: npt.NDArray[Any],
        terminated: bool, truncated: bool,
    ) -> int:  # fmt: skip
        code = self._advance(vector, 0.0, False, False, False)
        if code == -UNIFORMS:
            self._draw()
            code = self._advance(vector, 0.0, False, False, False)
        if code < 0:
            return -code
        units = self._planned[0]
        if code != action or (units != self._given).any():
            running = self.running[0]
            running.begins = True  # what the planned action was worth says nothing,
            self.traces[0], self.traces[0, :, cells.LAST] = 0.0, -1.0  # nor what earlier ones were
            if running.trial and running.trial == self.contest.trials:
                self.contest.end(self.state.steps - self.state.changed)
            running.trial = 0  # nor does the return of its policy
        self.env_states[0].action, units[:] = action, self._given
        return max(-self._advance(after, reward, terminated, truncated, True), 0)

    def _advance(
        self, vector: npt.NDArray[Any], reward: float, terminated: bool, truncated: bool,
        learns: bool,
    ) -> int:  # fmt: skip
        point = np.array(vector, dtype=np.float64)  # compiled for one type
        return ql.advance(point, reward, terminated, truncated, self._views, 0, learns)

    @property
    def next_actions(self) -> npt.NDArray[Any]:
        """The environments' next actions, shape (n_envs, ...), a view of ``_next_actions``."""
        assert self.interface.box is not None
        return self._next_actions.reshape(-1, *self.interface.box.shape)

    def perform(self, number: Any) -> npt.NDArray[Any]:
        return np.array(self.next_actions[number])

    def replace(self, action: npt.ArrayLike) -> None:
        box = self.interface.box
        assert box is not None
        own = np.array_equal(self._next_actions[0].reshape(box.shape), action)  # rounded, maybe
        self._given[:] = self._planned[0] if own else box.units(action)

    @property
    def loop_arrays(self) -> tuple[Any, ...]:
        return self._views

    @property
    def env_states(self) -> list[EnvState]:
        return self._env_states

    @property
    def n_envs(self) -> int:
        return len(self.points)

    def set_n_envs(self, count: int) -> None:
        if count != self.n_envs:
            before = self.state
            self._make_envs(count)
            self.state.record[:] = before.record
            self._open()
            # The trial's running episodes are lost.
            self.contest.kind, self.state.ended = contests.NONE, 0
            for running in self.running:
                running.trial = 0

    def begin_episode(self) -> None:
        for env_state, running in zip(self.env_states, self.running, strict=True):
            env_state.episode_return, env_state.episode_length = 0.0, 0
            running.planned = False

    def advance(self, step: VectorStep) -> tuple[IntArray, FloatArray]:
        n = len(step.rewards)
        assert n == self.n_envs  # else compiled code would write past the ends of arrays
        actions, ended = np.zeros(n, dtype=np.int64), np.zeros((0, 2))
        flags = np.array([step.terminated, step.truncated, step.learns, step.acts])
        after, observations = step.after.astype(np.float64), step.observations.astype(np.float64)
        env, learned = 0, False
        while env < n:
            events, env, learned = ql.step_together(
                env, learned, after, observations, step.rewards, flags, actions, self._views
            )
            if events & EPISODE_END:
                ended = np.vstack([ended, [self.state.last_return, self.state.last_length]])
            if events:
                self.attend(events, BAD_STEP)
        if self.interface.box is not None:
            actions = np.arange(n)  # rows of next_actions
        return actions, ended

    @property
    def delivered_return(self) -> float:
        return self.contest.best.mean if self.contest.best.n else np.nan

    @property
    def epsilon(self) -> float:
        return float(plain(ql.epsilon_of)(self.state))

    @property
    def n_cells(self) -> int:
        """Number of cells that learn."""
        return int(self.live.head[joint.N_CELLS])

    @property
    def temperature(self) -> float:
        """Temperature T_o, in units of the metric, or the partition's own; NaN if it has none."""
        if self.partition is not None:
            return float(getattr(self.partition, "temperature", np.nan))
        return float(self.live.head[joint.TEMPERATURE]) / cells.BLEND

    @property
    def latest(self) -> FloatArray:
        """The latest points, in units, shape (n, d)."""
        return self.recent[: min(self.state.seen, RECENT), :-1]

    def _raw(self, points: FloatArray) -> FloatArray:
        """Return points, in units, as observations, without actions."""
        origin, inverse_units = self.units
        return np.asarray((origin + points / inverse_units)[:, : self.interface.n_features])

    @property
    def scale(self) -> FloatArray | None:
        """Inverse standard deviations of the latest observations, shape (d,)."""
        if self.state.phase == ql.WARMUP:
            return None
        mean, covariance = metric.covariance(self.latest)
        scales = metric.scales(mean, covariance) * self.units[1]
        return np.asarray(scales[: self.interface.n_features])

    def _attend(self, events: int) -> None:
        if events & ql.JUDGE:
            self._judge()
        if events & ql.WARM:
            self._begin()
        if events & ql.SLOW:
            self._slow_step()

    def _begin(self) -> None:
        """Take units from random play, and begin with one cell of optimistic values."""
        raw, n = self.latest.copy(), self.interface.n_features
        mean, covariance = metric.covariance(raw)
        scale = metric.scales(mean, covariance)
        exponents = np.floor(np.log2(np.where(scale > 0.0, scale, 1.0)))
        self.units[:, :n] = mean[:n], np.exp2(exponents)[:n]  # powers of 2, which round nothing
        points = (raw - self.units[0]) * self.units[1]
        self.latest[:] = points
        if self._learns_metric and not self._axes_matter():
            self.covariance = metric.covariance(points)[1]
        moments = points.mean(axis=0), self.state.seen * points.var(axis=0)
        self.running_moments[:, :n] = np.array(moments)[:, :n]
        state = self.state
        state.phase = ql.LEARNING
        state.next_metric = state.steps + METRIC_EVERY // 2
        state.next_slow = state.steps + ql.ROUND
        self._measure()
        spread = math.sqrt(state.reward_variance)
        if state.continuing and state.mean_reward < CENTRED_BELOW * spread < 0.0:
            state.min_centre = state.mean_reward + BEGUN_ABOVE * spread
        if not state.continuing:
            value = plain(ql.mean_value)(state)
            if self.contest.longest == 1:  # a bandit, where no reward follows
                value = OPTIMISM * max(state.mean_reward, 0.0)
            elif self.contest.longest <= SHORT:  # else waiting for the limit would look best
                value = min(value, 0.0)
            self.values[ql.LIVE, 0] = value
        if self.partition is not None:
            self.partition.start(raw)
            self._place(None)
        self.points[:] = (self.points - self.units[0]) * self.units[1]
        self.starts[:] = (self.starts - self.units[0, :n]) * self.units[1, :n]
        for running in self.running:
            running.planned, running.begins = False, True
        self._note(None)
        self._deliver()

    def _slow_step(self) -> None:
        """Learn the metric, and merge, drop, cool and split cells."""
        state = self.state
        state.next_slow = state.steps + ql.ROUND
        self._end_endless_trials()
        if self._learns_metric and state.steps >= state.next_metric:
            state.next_metric = state.steps + max(METRIC_EVERY, int(METRIC_SHARE * state.steps))
            self._learn_metric()
        self._measure()
        moved = True
        if self.partition is None:
            if self.n_cells >= FULL * state.room and self._neighbours_differ():
                state.room = min(math.ceil(ROOM_GROWTH * state.room), self.capacity)
            if self.n_cells < FULL * state.room:
                colder = self.config.cooling * self.live.head[joint.TEMPERATURE]
                self.live.head[joint.TEMPERATURE] = max(colder, COLDEST)
            else:
                state.next_slow = state.steps + QUIET_ROUND
            self._split()
            self._prune()  # after splits, which would take the room from births
        else:
            rows = np.arange(state.seen - ql.ROUND, state.seen) % RECENT
            lineage = self.partition.observe(self._raw(self.recent[rows, :-1]))
            moved = lineage is not None
            if moved:
                self._place(lineage)
        last = self.history[-1]
        grown = self.n_cells >= NOTED * len(last.codevectors)
        colder = self.temperature < 0.5 * last.temperature
        if moved and (grown or colder or state.steps >= 2 * last.step):
            self._note(self.statistics[cells.ANCESTOR, : self.n_cells].astype(np.int64))
        if self.contest.best.n == 0:
            self._deliver()

    def _deliver(self) -> None:
        """Deliver the policy that learns, until a snapshot has won a trial."""
        self._copy(ql.BEST, ql.LIVE)
        self.contest.version += 1

    def _copy(self, target: int, source: int) -> None:
        for array in self._books:
            array[target] = array[source]
        if source == ql.LIVE:
            self.values[target, : self.n_cells] += self.mean_value

    @property
    def mean_value(self) -> float:
        """Number that learned values lack, because rewards are centred; else 0."""
        return float(plain(ql.mean_value)(self.state)) if self.state.continuing else 0.0

    def _judge(self) -> None:
        """Note the return of the episode that has ended, and what follows from it."""
        state, contest, running = self.state, self.contest, self.running[self.state.ended]
        uniform = self._workspace.uniforms[state.next_uniform]
        state.next_uniform += 1
        elapsed = state.steps - state.changed
        contest.longest = max(contest.longest, state.last_length)
        if state.phase == ql.WARMUP or self.config.paper:
            return
        start = self.starts[state.ended]
        episode_return = contest.without_luck(state.last_return, start, running.trial)
        if running.trial == 0:
            if contest.note_learning(episode_return, running.bold):
                self._copy(ql.BEST, ql.LIVE)
            kind = contest.begin(elapsed)
            if kind == contests.CONSTANT:
                self._take_always(contest.actions[contest.constant])
            elif kind != contests.NONE:
                self._copy(ql.CANDIDATE, ql.LIVE if kind == contests.SNAPSHOT else ql.BEST)
        elif contest.note_trial(running.trial, episode_return, state.last_length, elapsed):
            self._copy(ql.BEST, ql.CANDIDATE)
        if contest.failures == contests.FAILURES:
            contest.begin_anew()
            state.changed = state.steps
            self.visits[ql.LIVE] *= not state.numbered  # on which step sizes depend
        bold = uniform < (contests.BOLD if contest.may_be_bold else contests.TIMID_SHARE)
        running.bold = bold or self.interface.box is not None  # whose actions are always held
        running.trial = contest.next_episode()

    def _take_always(self, action: int) -> None:
        """Make the candidate a policy that always takes one action, told by its number."""
        self._copy(ql.CANDIDATE, ql.LIVE)
        if self.interface.box is not None:
            self._peak_at(self._always[action])
            return
        values = self.values[ql.CANDIDATE]
        chosen, margin = values[:, [action]].copy(), LESS * (np.abs(values).max() or 1.0)
        np.minimum(values, chosen - margin, out=values)
        values[:, [action]] = chosen

    def _peak_at(self, action: FloatArray) -> None:
        """Place the candidate's cells at one state: one has the action, in units, and value 1."""
        p, which = len(action), ql.CANDIDATE
        points = np.repeat(self.means[which][None], 1 + 2 * p, axis=0)
        points[:, -p:] = action + PEAK * np.concatenate([np.zeros((1, p)), np.eye(p), -np.eye(p)])
        self.transforms[which] = np.diag(1.0 / self._deviations())
        self.inverses[which] = np.linalg.pinv(self.transforms[which][:, -p:])
        n = len(points)
        self.places[which, :, :n] = self.transforms[which] @ (points - self.means[which]).T
        self.models[which, :n] = 0.0
        self.values[which, 0] = 1.0
        self.heads[which] = n, PEAK**3  # so cold that the nearest cell decides

    def _end_endless_trials(self) -> None:
        for env_state, running in zip(self.env_states, self.running, strict=True):
            length = env_state.episode_length
            if running.trial and length > 2 * self.contest.longest + contests.ENDLESS:
                if running.trial == self.contest.trials:
                    elapsed = self.state.steps - self.state.changed
                    self.contest.give_up(env_state.episode_return, length, elapsed)
                running.trial = 0

    def _note(self, parents: IntArray | None) -> None:
        """Add the present cells to the history."""
        codevectors = self._raw(self.in_units(ql.LIVE))
        self.note_level(Level(self.state.steps, self.temperature, codevectors, parents))
        self.statistics[cells.ANCESTOR, : self.n_cells] = np.arange(self.n_cells)

    def in_units(self, which: int) -> FloatArray:
        """Return the codevectors of a policy in units, shape (n_cells, d)."""
        n = int(self.heads[which, joint.N_CELLS])
        inverse = np.linalg.pinv(self.transforms[which])
        return np.asarray((inverse @ self.places[which, :, :n]).T + self.means[which])

    @property
    def _learns_metric(self) -> bool:
        return self.config.metric == "learned" and not self.curved

    def _axes_matter(self) -> bool:
        """Whether components are natural axes, or random play is too short to tell."""
        rows = np.arange(max(self.state.seen - RECENT, 0), self.state.seen) % RECENT
        points, came_by = self.recent[rows, : self.interface.n_features], self.recent[rows, -1]
        steps = np.zeros((len(rows), COMPONENTS))
        steps[:-1, MARK], steps[:-1, ACTION] = GOES_ON * (came_by[1:] >= 0.0), came_by[1:]
        return self.interface.n_values > 0 or informative(points, steps, EXACT)

    @property
    def _whitening(self) -> FloatArray | None:
        """A map that makes components uncorrelated, shape (d, d); None: they are natural axes."""
        if not len(self.covariance):
            return None
        units = metric.Units.of(self.running_moments[0], self.covariance, axes=False)
        return units.transform(None, 0.5)

    def _deviations(self) -> FloatArray:
        """Return standard deviations of points so far; 1 for components that never varied."""
        mean, squares = self.running_moments
        variances = squares / max(self.state.seen, 1)
        scale = metric.scales(mean, np.diag(variances))
        return np.where(scale > 0.0, np.sqrt(variances), 1.0)

    def _measure(self) -> None:
        """Measure in the present metric, of total variance d; cells and values stay in place."""
        d, n = len(self.units[0]), self.n_cells
        mean, deviations = self.running_moments[0], self._deviations()
        if not (self.curved or isinstance(self.config.metric, str)):
            matrix = np.array(self.config.metric) / np.outer(self.units[1], self.units[1])
            root = metric.root(matrix, 0.5, 0.0) * deviations  # never whitened
        else:
            if len(self.metric) and self._rooted[0] is not self.metric:
                self._rooted = self.metric, metric.root(self.metric, METRIC_POWER, METRIC_RIDGE)
            root = self._rooted[1]
        transform = root * np.sqrt(d / np.sum(root * root))
        whitening = self._whitening
        transform = transform / deviations if whitening is None else transform @ whitening
        moved = np.abs(mean - self.means[ql.LIVE]) > NEGLIGIBLE * deviations
        old = self.transforms[ql.LIVE]
        allowed = NEGLIGIBLE * np.abs(transform).max() + NEGLIGIBLE * np.abs(old)
        if not moved.any() and (np.abs(transform - old) <= allowed).all():
            return
        change = transform @ np.linalg.pinv(old)
        placed, slopes = self.live.places[:, :n], self.slopes[ql.LIVE, :n]
        placed[:] = change @ placed + (transform @ (self.means[ql.LIVE] - mean))[:, None]
        slopes[:] = slopes @ np.linalg.pinv(change)
        self.trace_slopes[:, :n] = self.trace_slopes[:, :n] @ change.T
        self.covariances[:n] = change @ self.covariances[:n] @ change.T
        self.transforms[ql.LIVE], self.means[ql.LIVE] = transform, mean
        self.inverses[ql.LIVE] = np.linalg.pinv(transform[:, self.interface.n_features :])
        if self.partition is not None:
            self._set_temperature(placed.T)

    def _learn_metric(self) -> None:
        """Average the metric with the gradients' outer product at the latest observations."""
        slopes = self.gradients((self.latest - self.means[ql.LIVE]) @ self.transforms[ql.LIVE].T)
        parts = slopes.reshape(-1, slopes.shape[2]) @ self.transforms[ql.LIVE]
        whitening = self._whitening
        if whitening is None:
            parts *= self._deviations()
        else:
            parts = parts @ np.linalg.pinv(whitening)
            self.covariance = 0.5 * (self.covariance + metric.covariance(self.latest)[1])
        total = parts.T @ parts
        if (trace := np.trace(total)) > 0.0:
            new = total * len(total) / trace
            self.metric = 0.5 * (self.metric + new) if len(self.metric) else new

    def gradients(self, points: FloatArray) -> FloatArray:
        """Return ∇Q = Σ w_k (g_k - 2/T (Q_k - Q) (x - m_k)) of all actions, shape (n, A, d)."""
        placed = self.live.places[:, : self.n_cells].T
        n, temperature = min(self.n_nearest, len(placed)), self.live.head[joint.TEMPERATURE]
        biases = self.live.mixture[0, : len(placed)]
        scores = (placed**2).sum(axis=1) + biases - 2.0 * points @ placed.T
        near = np.argpartition(scores, n - 1, axis=1)[:, :n]
        scores = np.take_along_axis(scores, near, axis=1)
        weights = np.exp((scores.min(axis=1, keepdims=True) - scores) / temperature)[:, None]
        weights /= weights.sum(axis=2, keepdims=True)
        offsets, slopes = points[:, None] - placed[near], self.slopes[ql.LIVE, near]
        values = self.values[ql.LIVE, near] + (slopes * offsets).sum(axis=2, keepdims=True)
        excess = weights * (values - weights @ values).swapaxes(1, 2)
        return np.asarray(weights @ slopes - 2.0 / temperature * excess @ offsets)

    def _prune(self) -> None:
        """Drop idle cells, and merge cheap pairs where births need room."""
        state, masses, born = self.state, *self.statistics[[cells.MASS, cells.BORN], : self.n_cells]
        idle = (masses < IDLE / self.capacity) & (state.steps - born > GRACE)
        idle[masses.argmax()] = False
        self._drop(np.flatnonzero(idle))
        refused, state.refused = state.refused, 0
        if refused == 0:
            return
        wanted = min(refused, int(MERGED_SHARE * self.capacity) + 1)
        pairs: list[list[int]] = []
        for pair in self._cheap_pairs().tolist():
            if len(pairs) < wanted and set(pair).isdisjoint(chain(*pairs)):
                pairs.append(pair)
        if pairs:
            self._merge(*np.array(pairs).T)
        if len(pairs) < wanted:  # cells are too few for so small a temperature
            self.live.head[joint.TEMPERATURE] *= HEATING ** (refused - len(pairs))

    def _cheap_pairs(self) -> IntArray:
        """Return pairs of cells to merge, shape (n, 2), the cheapest first.

        That is the smallest squared distance, in T_o, which grows as values disagree.
        """
        gaps, n = self._gaps(), self.n_cells
        near = np.flatnonzero(gaps < cells.BIRTH)
        k, other = near // n, near % n
        k, other = k[k > other], other[k > other]
        factors = 1.0 + self._disagreement(k, other).mean(axis=1)
        costs = gaps[k, other] * factors
        order = np.argsort(costs)[: np.count_nonzero(costs < cells.BIRTH)]
        return np.column_stack([k, other])[order]

    def _neighbours_differ(self) -> bool:
        """Whether most cells have learned values that differ from those of the nearest."""
        gaps, visits = self._gaps(), self.visits[ql.LIVE]
        np.fill_diagonal(gaps, np.inf)
        k, nearest = np.arange(len(gaps)), gaps.argmin(axis=1)
        visited = np.minimum(visits[k], visits[nearest]) > MIN_VISITS
        disagreement = self._disagreement(k, nearest)[visited]
        return len(disagreement) > 0 and float(np.median(disagreement)) > MIN_DISAGREEMENT

    def _gaps(self) -> FloatArray:
        """Return squared distances of all cells from each other, in T_o."""
        placed = self.live.places[:, : self.n_cells].T
        squares = (placed**2).sum(axis=1)
        gaps = squares[:, None] + squares - 2.0 * placed @ placed.T
        return np.asarray(gaps / self.temperature)

    def _disagreement(self, k: IntArray, other: IntArray) -> FloatArray:
        """Return squared differences of cells' values between them, in mean δ², shape (n, A)."""
        values, slopes, placed = self.values[ql.LIVE], self.slopes[ql.LIVE], self.live.places.T
        along = 0.5 * ((slopes[k] + slopes[other]) * (placed[k] - placed[other])).sum(axis=1)
        squares = (values[k] - values[other] - along[:, None]) ** 2
        with np.errstate(over="ignore"):
            return np.asarray(squares / max(self.state.squared_error, np.finfo(float).tiny))

    def _merge(self, gone: IntArray, into: IntArray) -> None:
        """Merge cells into others, by masses; planes are carried to the new codevectors."""
        placed, slopes = self.live.places.T, self.slopes[ql.LIVE]
        values, visits, traces = self.values[ql.LIVE], self.visits[ql.LIVE], self.traces
        masses = self.statistics[cells.MASS]
        share = ((masses[gone] + 1e-9) / (masses[gone] + masses[into] + 2e-9))[:, None]
        gap = placed[into] - placed[gone]
        rise = ((1.0 - share) * slopes[gone] * gap).sum(axis=1, keepdims=True)
        fall = (share * slopes[into] * gap).sum(axis=1, keepdims=True)
        values[into] += share * (values[gone] + rise - values[into]) - (1.0 - share) * fall
        slopes[into] += share * (slopes[gone] - slopes[into])
        placed[into] -= share * gap
        differences = self.covariances[gone] - self.covariances[into]
        self.covariances[into] += share[:, :, None] * differences
        visits[into] += visits[gone]
        self.statistics[: cells.COUNT + 1, into] += self.statistics[: cells.COUNT + 1, gone]
        last = np.maximum(traces[:, gone, cells.LAST], traces[:, into, cells.LAST])
        traces[:, into] += traces[:, gone]
        traces[:, into, cells.LAST] = last
        self._drop(gone)

    def _drop(self, gone: IntArray) -> None:
        """Remove cells; the last ones take their numbers."""
        if not len(gone):
            return
        n = self.n_cells
        m = n - len(gone)
        self._copy_cells(np.setdiff1d(np.arange(m, n), gone), gone[gone < m])
        self._clear(m, n)
        self.live.head[joint.N_CELLS] = m

    def _clear(self, start: int, stop: int) -> None:
        """Leave nothing of cells that are no more: new ones take their numbers."""
        for rows in self._rows:
            rows[start:stop] = 0.0
        self.traces[:, start:stop, cells.LAST] = -1.0

    def _copy_cells(self, sources: IntArray, targets: IntArray) -> None:
        for rows in self._rows:
            rows[targets] = rows[sources]

    @property
    def _rows(self) -> tuple[FloatArray, ...]:
        """All that cells have, each along the first axis."""
        live, traces = self.live, self.traces.swapaxes(0, 1)
        return live.places.T, live.models, self.statistics.T, self.covariances, traces

    def _split(self) -> None:
        """Split cells at their critical temperature, along the direction of greatest variance."""
        live, statistics, n = self.live, self.statistics, self.n_cells
        if n >= self.state.room:
            return
        due = np.flatnonzero(statistics[cells.COUNT, :n] >= SPLIT_SAMPLES)
        variances, directions = np.linalg.eigh(self.covariances[due])
        over = np.flatnonzero(2.0 * variances[:, -1] > self.temperature)[: self.state.room - n]
        split, new = due[over], np.arange(n, n + len(over))
        offsets = 0.7 * np.sqrt(variances[over, -1:]) * directions[over, :, -1]
        live.head[joint.N_CELLS] += len(over)
        self.covariances[split] -= offsets[:, :, None] * offsets[:, None]
        statistics[cells.MASS, split] *= 0.5
        statistics[cells.COUNT, split], statistics[cells.BORN, split] = 0.0, self.state.steps
        self.visits[ql.LIVE, split] *= 0.5
        self.traces[:, split, cells.TRACE :] *= 0.5
        self._copy_cells(split, new)
        for own, shifts in ((new, offsets), (split, -offsets)):
            live.places[:, own] += shifts.T
            rises = (self.slopes[ql.LIVE, own] * shifts).sum(axis=1)
            self.values[ql.LIVE, own] += rises[:, None]

    def _place(self, lineage: Lineage | None) -> None:
        """Take over the cells of the partition, with values along the lineage."""
        assert self.partition is not None
        live, old = self.live, self.n_cells
        placed = (self.partition.codevectors - self.units[0]) * self.units[1]
        codevectors = (placed - self.means[ql.LIVE]) @ self.transforms[ql.LIVE].T
        n = len(codevectors)
        shares = np.ones((n, 1)) if lineage is None else lineage / lineage.sum(1, keepdims=True)
        own, ancestors = live.models, shares.argmax(axis=1)
        own[:n] = shares @ own[:old]
        self.covariances[:n] = np.tensordot(shares, self.covariances[:old], axes=1)
        statistics = self.statistics[:, :old] @ shares.T
        statistics[cells.ANCESTOR] = self.statistics[cells.ANCESTOR, ancestors]
        self.statistics[:, :n] = statistics
        traces = np.einsum("kl,nla->nka", shares, self.traces[:, :old])
        traces[:, :, cells.LAST] = self.traces[:, ancestors, cells.LAST]
        self.traces[:, :n] = traces
        live.places[:, :n] = codevectors.T
        self._clear(n, old)
        live.head[joint.N_CELLS] = n
        self._set_temperature(codevectors)

    def _set_temperature(self, codevectors: FloatArray) -> None:
        """Set a mixture's biases and precisions, and the temperature.

        At that, cells are critical, or memberships are the responsibilities of components with
        precisions. Cells that stand for values of a Discrete observation are hard, as those of the
        paper are.
        """
        temperature = 0.5 * codevectors.shape[1]
        hard = self.interface.n_values > 0 or self.config.paper
        precisions = getattr(self.partition, "precisions", np.ones((1, 1)))
        if self.curved:
            logs = np.log(precisions / (np.diag(self.transforms[ql.LIVE]) * self.units[1]) ** 2)
            precisions = np.exp(logs.mean() + OWN_SHARE * (logs - logs.mean()))
            temperature = 2.0 / np.exp(logs.mean())
        elif len(codevectors) > 1:
            from scipy.spatial import KDTree

            gaps = KDTree(codevectors).query(codevectors, k=2)[0][:, 1]
            share = DISTINCT if hard else cells.BLEND / cells.BIRTH
            temperature = max(share * float(np.median(gaps)) ** 2, float(np.finfo(float).tiny))
        self.live.head[joint.TEMPERATURE] = temperature
        if (weights := getattr(self.partition, "weights", None)) is not None:
            mixture, n = self.live.mixture, len(weights)
            mixture[:] = 0.0
            logs = np.log(weights) + 0.5 * np.log(precisions).sum(axis=1)
            mixture[0, :n] = -temperature * logs
            mixture[1:, :n] = 0.5 * temperature * precisions.T[: len(mixture) - 1]
            if self.curved and hard:
                self.live.head[joint.TEMPERATURE] *= DISTINCT

    @property
    def _saved(self) -> dict[str, FloatArray]:
        """Arrays of cells, by name, as far as they are in use."""
        k = int(self.heads[:, joint.N_CELLS].max())
        return {name: getattr(self, name) for name in _WHOLE} | {
            "places": self.places[:, :, :k],
            "models": self.models[:, :k],
            "mixtures": self.mixtures[:, :, :k],
            "statistics": self.statistics[:, :k],
            "covariances": self.covariances[:k],
            "traces": self.traces[:, :k],
            "luck": self.contest.luck,
            "uniforms": self._workspace.uniforms,
        }

    def state_arrays(self) -> dict[str, npt.NDArray[Any]]:
        placed = {} if self.partition is None else self.partition.state()
        return {
            **self._saved,
            "metric": self.metric,
            "covariance": self.covariance,
            "state": self.state.record,
            "contest": self.contest.record,
            "returns": self.contest.raw_returns.view(contests.Returns.dtype),
            "env_states": self.raw[ql.OnlineState.size :].view(EnvState.dtype).copy(),
            "running": self._raw_running.view(ql.Running.dtype).copy(),
            **{f"partition_{name}": array for name, array in placed.items()},
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        own = {name: arrays[name] for name in arrays if not name.startswith("partition_")}
        self._check(own)
        placed = within(arrays, "partition_")
        if self.partition is None:
            require(not placed, f"{sorted(placed)[:1]} is of a partition: the agent has none")
        else:
            self.partition.restore(placed)
        self.set_n_envs(len(own["env_states"]))
        self.heads[:] = own["heads"]
        for name, array in self._saved.items():
            array[:] = own[name]
        self.metric, self.covariance = np.array(own["metric"]), np.array(own["covariance"])
        self.state.restore(own["state"])
        self.contest.restore(own["contest"])
        self.contest.raw_returns.view(contests.Returns.dtype)[:] = own["returns"]
        for i, (env_state, running) in enumerate(zip(self.env_states, self.running, strict=True)):
            env_state.restore(own["env_states"][i : i + 1])
            running.restore(own["running"][i : i + 1])
        self._refresh_next_actions()

    def _check(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Raise InvalidFileError unless arrays, the partition's apart, are those of an agent."""
        counts = arrays["heads"][:, joint.N_CELLS] if arrays["heads"].ndim == 2 else np.zeros(1)
        right = (counts >= 1) & (counts <= self.capacity) & (counts == np.floor(counts))
        require(right.all(), f"heads has {counts} cells: from 1 to {self.capacity}")
        count = len(arrays["env_states"])
        require(count >= 1, "env_states is empty")
        d, k = self.interface.n_features, int(counts.max())
        p = self.interface.n_components
        sizes = {
            "env_states": count, "A": self.interface.n_actions, "d": d, "p": p, "K": k,
            "actions": self.interface.n_actions, "rows": RECENT,
            "uniforms": len(self._workspace.uniforms), "returns": len(self.contest.returns),
            "constants": max(len(self.contest.constants), 1), "R": len(self.live.mixture),
        }  # fmt: skip
        check(arrays, SCHEMA, sizes)
        require(sizes["m"] in (0, d + p), f"metric has {sizes['m']} rows")
        require(sizes["w"] in (0, d + p), f"covariance has {sizes['w']} rows")
        bounded = {name: arrays[name] for name in _BOUNDED}
        bounded["vectors"] = np.delete(arrays["vectors"], ql.SQUARES, axis=0)
        for name, array in bounded.items():
            require((np.abs(array) <= LARGEST).all(), f"{name} has numbers beyond {LARGEST:g}")
        units = arrays["vectors"][ql.INVERSE_UNITS]
        require((units > 0.0).all(), "vectors has inverse units that are not positive")
        came_by = arrays["recent"][:, -1]
        known = (came_by >= -1.0) & (came_by < sizes["A"])
        require(known.all(), "recent has actions that do not exist")
        visits = arrays["models"][:, :, d + p + sizes["A"] :]
        require((visits >= 0.0).all(), "models has visits that are negative")
        require(arrays["luck"][-1, -1] >= 0.0, "luck has a negative number of episodes")
        state = arrays["state"][0]
        room = f"state.room is {state['room']}: it must be at most {self.capacity}"
        require(state["room"] <= self.capacity, room)
        needed = ql.UNIFORMS_PER_STEP + ql.UNIFORMS_PER_COMPONENT * p - 1
        enough = state["next_uniform"] + needed <= sizes["uniforms"]
        require(enough, f"state.next_uniform is {state['next_uniform']}: it must leave {needed}")
        for name in (*_SETTINGS, "hold", "n_features", "slope_rate", "grows", "numbered", "paper"):
            value = getattr(self.state, name)
            require(state[name] == value, f"state.{name} is {state[name]}: it must be {value}")
        numbers = arrays["env_states"]["number"]
        require((numbers == np.arange(count)).all(), "env_states are not numbered from 0")
        if state["phase"] == ql.LEARNING:
            begun = state["steps"] >= state["warmup_steps"]
            require(begun, "state.phase is wrong: warm-up goes on")
