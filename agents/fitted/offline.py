"""Fitted Q-iteration from logged transitions alone, with pessimism.

Untried actions have the lowest return that rewards allow, and an action that was taken much less
often in a cell than another is barred there, as by Fujimoto et al. The most cautious fit, the
clone, takes the most frequent action, in cells that lie in a metric learned for the actions. It is
delivered unless another policy is better with confidence:

- Where a world learned from the log predicts held-out steps, an agent learns there, and all are
  judged there. An episode that leads too far from all observations ends with the lowest return,
  and an action that was hardly ever taken in such a state costs the range of rewards. So returns
  are rather too low than too high.
- Elsewhere less cautious fits compete, judged by the lower bounds of :func:`estimate`.

:func:`estimate` fits the values of one policy, with two actions in each cell, the policy's and all
others, of which only the first goes on. Fits to bootstrapped episodes give its uncertainty; where
the policy's actions were not taken, values are the lowest that rewards allow for the lower bound of
the interval, and the highest for the upper one.

References
----------
S. Fujimoto, D. Meger, D. Precup, "Off-policy deep reinforcement learning without exploration",
ICML 2019.
P. Rashidinejad, B. Zhu, C. Ma, J. Jiao, S. Russell, "Bridging offline reinforcement learning and
imitation learning: a tale of pessimism", NeurIPS 2021.
R. Laroche, P. Trichelair, R. Tachet des Combes, "Safe policy improvement with baseline
bootstrapping", ICML 2019.
B. Hao, X. Ji, Y. Duan, H. Lu, C. Szepesvári, M. Wang, "Bootstrapping fitted Q-evaluation for
off-policy inference", ICML 2021.
R. Kidambi, A. Rajeswaran, P. Netrapalli, T. Joachims, "MOReL: model-based offline reinforcement
learning", NeurIPS 2020.
T. Yu et al., "MOPO: model-based offline policy optimization", NeurIPS 2020.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from gymnasium import spaces

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.base.engine import VectorStep
from oda_rl.agents.base.memory import ACTION, GOES_ON, MARK, REWARD, TERMINAL
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.fitting import regression
from oda_rl.agents.fitting.cells import (
    Assigned,
    Cells,
    Experience,
    assign,
    assign_three,
    label,
    place_cells,
)
from oda_rl.agents.fitting.regression import FIRST_SWEEPS, Belief, Fit
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.agents.policies.cells import CellPolicy, CodevectorPolicy
from oda_rl.agents.worlds.coordinates import WorldArrays
from oda_rl.agents.worlds.learning import CodedSteps, learn_world
from oda_rl.agents.worlds.quality import judge, judged
from oda_rl.agents.worlds.simulation import predict

if TYPE_CHECKING:
    from oda_rl.agents.fitted.engine import FittedEngine

_FITS = 3  # one after the other, each in the metric of those before
_SWEEPS = 300  # of an estimate: nothing is known to begin with
_ERRORS = 2.0  # standard errors in an interval
_UNKNOWN = 1.0  # weight of the prior value of untried actions, in transitions
_TINY = 1e-300
_MIN_SHARE = 0.1  # of the most frequent action, that an action must have

_LAWS = 4
_MAX_ERROR = 1.0  # of a replay, in standard deviations: policies correct their course
_MIN_STEPS, _MAX_STEPS = 200, 20_000  # that a world is learned from
_MAX_COMPONENTS = 12  # of an observation: laws have products of them
_MAX_FEATURES = 2_000  # of a law: these products, for each action
_COPIES = 16  # of the world that a policy is learned in
_STEPS_PER_STEP, _MAX_IMAGINED = 16, 80_000  # steps in them, for each of the log's, and at most
_EPISODE, _JUDGED = 2.0, 3.0  # horizons of the discounted return that are learned from, and judged
_STARTS = 200


class Caution(NamedTuple):
    """Pessimism of a fit."""

    share: float  # bars actions taken less often than this share of the most frequent
    weight: float  # weight of the lowest return as prior value, in transitions
    of_actions: float  # share of the actions' metric in that of cells; the rest: of values


CLONES = (Caution(1.0, 0.3, 1.0), Caution(1.0, 0.3, 0.5))
BOLDER = (Caution(0.6, 0.3, 0.0), Caution(0.1, 3.0, 0.0))


class Estimate(NamedTuple):
    """Discounted return of a policy from where logged episodes began."""

    mean: float  # mean of the estimates with the lowest and the highest prior values
    low: float  # lower bound of the interval
    high: float  # upper bound
    gamma: float  # discount factor of the return, which goes on beyond time limits

    def __str__(self) -> str:
        return f"{self.mean:.4g} ({self.low:.4g} to {self.high:.4g}), discounted by {self.gamma:g}"


def fit_logged(
    seen: Experience,
    interface: Interface,
    config: FittedQConfig,
    rng: np.random.Generator,
    make_engine: "Callable[..., FittedEngine]",
) -> Fit:
    """Fit a clone of the behaviour policy, or a better one; ``make_engine`` learns in a world."""
    of_actions = metric_of_actions(seen, config, rng)
    fits = [fit_cautiously(seen, caution, of_actions, config, rng) for caution in CLONES]
    bounds = bounds_of(seen.steps, config.gamma)
    behaviour = Behaviour.of(seen, of_actions, config, rng)
    world = believed_world(seen, interface, behaviour, bounds, config.gamma, rng)
    seed = rng.bit_generator.random_raw() >> 1
    if world is None:
        fits += [fit_cautiously(seen, caution, of_actions, config, rng) for caution in BOLDER]
        found = [
            estimate(seen, one.policy, fits[0].metric, config, np.random.default_rng(seed), True)
            for one in fits
        ]
        gains = [one.low - found[0].low for one in found]
    else:
        own = replace(config, n_fits=config.n_fits or 1)
        engine = make_engine(interface, own, *np.random.default_rng(seed).spawn(3))
        world.learn(engine, rng)
        assert engine.scale is not None  # it has been fitted there
        fits.append(Fit(engine.policy, np.empty(0), engine.metric, engine.scale))
        returns = [world.returns(one.policy, np.random.default_rng(seed)) for one in fits]
        differences = np.array([one - returns[0] for one in returns])
        errors = differences.std(axis=1) / np.sqrt(differences.shape[1])
        gains = (differences.mean(axis=1) - _ERRORS * errors).tolist()
    return fits[int(np.argmax(gains))]  # the clone where none is greater than 0


def fit_cautiously(
    seen: Experience,
    caution: Caution,
    of_actions: FloatArray | None,
    config: FittedQConfig,
    rng: np.random.Generator,
) -> Fit:
    """Fit cells and models to trajectories with pessimism."""
    own, share = replace(config, cells_per_root=4.0), caution.of_actions
    low, high = bounds_of(seen.steps, config.gamma)
    learned, found = None, None
    for _ in range(1 if share == 1.0 else _FITS):
        mixed = learned
        if of_actions is not None and share > 0.0:
            mixed = of_actions
            if learned is not None:
                mixed = share * of_actions + (1.0 - share) * learned
        at = place_cells(seen, mixed, own, rng)
        rows, parts = assign(seen, at)
        shares = shares_of(rows, len(at.codevectors), seen.n_actions)
        barred = ((high - low) or 1.0) * np.maximum(1.0 - shares / caution.share, 0.0)
        belief = Belief(low, high, low, caution.weight, barred)
        done = regression.iterate(rows, at, None, belief, seen.n_actions, FIRST_SWEEPS, own)
        learned = regression.averaged_metric(seen, rows, at, done, learned, rng)
        found = Fit(regression.policy_of(at, parts, done), done.values, learned, at.units.scale)
    assert found is not None
    return found


def bounds_of(steps: FloatArray, gamma: float) -> tuple[float, float]:
    """Minimum and maximum discounted return that rewards allow; the last one is paid once."""
    taken = np.flatnonzero(steps[:, MARK] == GOES_ON)
    ends, rewards = steps[taken + 1, MARK] == TERMINAL, steps[taken, REWARD]
    values = np.where(ends, rewards, rewards / (1.0 - gamma))
    return min(0.0, float(values.min())), max(0.0, float(values.max()))


def estimate(
    seen: Experience,
    policy: CellPolicy,
    learned: FloatArray | None,
    config: FittedQConfig,
    rng: np.random.Generator,
    roughly: bool = False,
) -> Estimate:
    """Estimate the discounted return of a policy from where episodes began.

    Cells lie in the ``learned`` metric, (d, d); ``roughly`` finds only the lower bound.
    """
    ends = np.flatnonzero(seen.steps[:, MARK] != GOES_ON) + 1
    begins = np.concatenate([[0], ends[:-1]])
    steps = seen.steps.copy()
    steps[:, ACTION] = ~_agrees(seen, policy)  # 0 for the policy's actions, 1 for others
    two_actions = seen._replace(steps=steps, n_actions=2, taken=None)
    low, high = bounds_of(steps, config.gamma)
    lowest: list[float] = []
    highest: list[float] = []
    for i in range(3 if roughly else 20):  # bootstrapped fits
        drawn = rng.integers(len(ends), size=len(ends)) if i else np.arange(len(ends))
        rows = np.concatenate([np.arange(begins[k], ends[k]) for k in drawn])
        lengths = (ends - begins)[drawn]
        starts = np.cumsum(lengths) - lengths
        again = two_actions._replace(observations=seen.observations[rows], steps=steps[rows])
        at = place_cells(again, learned, config, rng)
        assigned, _ = assign(again, at)
        others = np.zeros((len(at.codevectors), 2))
        others[:, 1] = 1e3 * max(high - low, 1e-9)  # so that they are never the best
        for prior, means in ((low, lowest), (high, highest)):
            if not (roughly and means is highest):
                belief = Belief(low, high, prior, _UNKNOWN, others)
                values = regression.iterate(assigned, at, None, belief, 2, _SWEEPS, config).values
                means.append(float(values[starts].mean()))
    lower, upper = np.array(lowest), np.array(highest or lowest)
    return Estimate(
        float(0.5 * (lower.mean() + upper.mean())),
        max(low, float(lower.mean() - _ERRORS * lower.std())),
        min(high, float(upper.mean() + _ERRORS * upper.std())),
        config.gamma,
    )


def _agrees(seen: Experience, policy: CellPolicy) -> BoolArray:
    """Whether the policy does what was done, for each row."""
    chosen = policy.choices(seen.observations)
    if seen.taken is None or not isinstance(policy, CodevectorPolicy):
        return np.asarray(seen.steps[:, ACTION] == chosen)
    cells = policy.cells(seen.observations)[:, None].astype(np.uint16)
    labels = np.zeros(cells.shape, dtype=np.int16)
    label(seen.taken.actions, cells, policy.parts, labels)
    return np.asarray(labels[:, 0] == chosen)


class Behaviour(NamedTuple):
    """Frequencies of actions in K cells."""

    at: Cells
    shares: FloatArray  # frequencies relative to the most frequent action, shape (K, A)

    @classmethod
    def of(
        cls,
        seen: Experience,
        learned: FloatArray | None,
        config: FittedQConfig,
        rng: np.random.Generator,
    ) -> "Behaviour":
        """Count actions in cells that are placed in a learned metric, shape (d, d)."""
        own = replace(config, cells_per_root=1.0)  # wide, so that also rare actions occur in them
        at = place_cells(seen, learned, own, rng)
        rows, _ = assign(seen, at)
        return cls(at, shares_of(rows, len(at.codevectors), seen.n_actions))

    def allows(self, observations: FloatArray, actions: IntArray) -> BoolArray:
        """Whether actions, (n,), were taken a tenth as often as the most frequent one nearby."""
        _, cells, weights = assign_three(observations, self.at)
        shares = np.where(weights > 0.0, self.shares[cells, actions[:, None]], 0.0)
        return np.asarray(shares.max(axis=1) >= _MIN_SHARE)


def metric_of_actions(
    seen: Experience, config: FittedQConfig, rng: np.random.Generator
) -> FloatArray | None:
    """Learn the metric in which the frequencies of actions change, shape (d, d)."""
    learned = None
    for _ in range(_FITS):
        at = place_cells(seen, learned, config, rng)
        rows, _ = assign(seen, at)
        taken = rows.steps[:, MARK] == GOES_ON
        groups = np.where(taken, rows.cells[:, 0].astype(np.int64), -1)
        points = seen.observations - at.origin
        outer = np.zeros((points.shape[1], points.shape[1]))
        for action in range(seen.n_actions):
            done = (rows.labels[:, 0] == action).astype(np.float64)
            outer += at.units.outer(points, groups, done)
        learned = at.units.average(learned, outer)
    return learned


def shares_of(rows: Assigned, n_cells: int, n_actions: int) -> FloatArray:
    """Return frequencies of actions, relative to the most frequent one in each cell, (K, A)."""
    counts = np.zeros((n_cells, n_actions))
    taken = rows.steps[:, MARK] == GOES_ON
    np.add.at(counts, (rows.cells[taken], rows.labels[taken]), rows.weights[taken])
    return np.asarray(counts / np.maximum(counts.max(axis=1, keepdims=True), _TINY))


@dataclass(frozen=True)
class SupportedWorld:
    """A learned world, restricted to what the log supports."""

    arrays: WorldArrays
    codes: FloatArray  # codes of the actions, shape (A, C)
    behaviour: Behaviour
    bounds: tuple[float, float]  # least and greatest discounted return that rewards allow
    gamma: float
    states: FloatArray  # states in which steps were taken, shape (n, d)
    starts: FloatArray  # first states of episodes, shape (m, d)

    def step(
        self, points: FloatArray, actions: IntArray
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Return next points, rewards and whether episodes are over, for points of shape (n, d)."""
        after, rewards, over, gaps = predict(self.arrays, points, self.codes[actions])
        lost = gaps > self.arrays.bounds[3]
        low, high = self.bounds
        dear = (1.0 - self.gamma) * (high - low)
        rewards = rewards - dear * ~self.behaviour.allows(points, actions)
        return after, np.where(lost, low, rewards), over | lost

    def learn(self, engine: "FittedEngine", rng: np.random.Generator) -> None:
        """Let an agent learn here, in episodes from any state of the log."""
        horizon, dtype = _EPISODE / (1.0 - self.gamma), engine.interface.dtype
        steps = min(_STEPS_PER_STEP * len(self.states), _MAX_IMAGINED)
        yes, no = np.ones(_COPIES, dtype=np.bool_), np.zeros(_COPIES, dtype=np.bool_)
        points, ages = rng.choice(self.states, _COPIES), np.zeros(_COPIES)
        engine.set_n_envs(_COPIES)
        shown = points.astype(dtype)
        first = shown, shown, np.zeros(_COPIES), no, no
        actions, _ = engine.advance(VectorStep(*first, learns=no, acts=yes, begins=yes))
        while engine.state.steps < steps:
            after, rewards, over = self.step(points, actions)
            ages += 1.0
            cut = (ages >= horizon) & ~over
            begins = over | cut
            points = np.where(begins[:, None], rng.choice(self.states, _COPIES), after)
            ages[begins] = 0.0
            acts = yes if engine.state.steps + _COPIES < steps else no
            seen = after.astype(dtype), points.astype(dtype)
            actions, _ = engine.advance(VectorStep(*seen, rewards, over, cut, yes, acts, begins))

    def returns(self, policy: CellPolicy, rng: np.random.Generator) -> FloatArray:
        """Return discounted returns of episodes from first states of the log, shape (n,)."""
        points = rng.choice(self.starts, _STARTS)
        total, weight = np.zeros(_STARTS), 1.0
        running = np.ones(_STARTS, dtype=np.bool_)
        for _ in range(math.ceil(_JUDGED / (1.0 - self.gamma))):
            after, rewards, over = self.step(points, policy.choices(points))
            total[running] += weight * rewards[running]
            weight *= self.gamma
            running &= ~over
            points = np.where(running[:, None], after, points)
        total[running] += weight * self.bounds[0]
        return total


def believed_world(
    seen: Experience,
    interface: Interface,
    behaviour: Behaviour,
    bounds: tuple[float, float],
    gamma: float,
    rng: np.random.Generator,
) -> SupportedWorld | None:
    """Learn a world from trajectories; None unless it predicts held-out steps.

    None, too, for discrete states, few steps, or many components or actions.
    """
    taken = np.flatnonzero(seen.steps[:, MARK] == GOES_ON)
    codes, boxed = _codes(interface)
    d = seen.observations.shape[1]
    wide = d > _MAX_COMPONENTS or (1 + d) * (2 + d) // 2 * len(codes.T) > _MAX_FEATURES
    if seen.numbered or wide or seen.taken is not None or len(taken) < _MIN_STEPS:
        return None
    begins = np.append(0, np.flatnonzero(seen.steps[:-1, MARK] != GOES_ON) + 1)
    latest = taken[-_MAX_STEPS:]
    ended = seen.steps[latest + 1, MARK] == TERMINAL
    if ended.all():
        return None
    observations = seen.observations.astype(np.float64)
    steps = CodedSteps(
        observations[latest],
        codes[seen.steps[latest, ACTION].astype(np.int64)],
        seen.steps[latest, REWARD],
        observations[latest + 1],
        ended,
    )
    learned = learn_world(steps, -math.inf, boxed, _LAWS, None, rng)
    told = judge(learned, steps, None, [""] * d, rng)
    quality = told.replay_error, told.replay_steps, told.precision, told.recall, told.reward_r2
    if not judged(*quality, max_error=_MAX_ERROR):
        return None
    return SupportedWorld(
        learned.arrays, codes, behaviour, bounds, gamma, steps.before, observations[begins]
    )


def _codes(interface: Interface) -> tuple[FloatArray, bool]:
    """Return the codes of all actions, shape (A, C), and whether these are continuous."""
    n, native, offered = interface.n_actions, interface.native, interface.combinations
    if native is None or offered is None or not isinstance(native.action_space, spaces.Box):
        return np.eye(n), False
    actions = offered.astype(np.float64)
    middle, half = 0.5 * (actions.max(axis=0) + actions.min(axis=0)), 0.5 * np.ptp(actions, axis=0)
    units = (actions - middle) / np.where(half > 0.0, half, 1.0)
    return np.column_stack([np.ones(n), units]), True
