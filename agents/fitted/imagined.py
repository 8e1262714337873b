"""The world of a log, as far as that supports it: policies are learned and judged there.

Laws of motion, rewards and ends are learned from the log (:mod:`oda_rl.agents.worlds`). Where they
lead too far from all that was seen, an episode is over, and the least that rewards allow follows.
An action that was hardly ever taken in such a state costs as much as rewards differ, because laws
have not been tried there. So what a policy returns is rather too little than too much.

References
----------
R. Kidambi, A. Rajeswaran, P. Netrapalli, T. Joachims, "MOReL: model-based offline reinforcement
learning", NeurIPS 2020.
T. Yu et al., "MOPO: model-based offline policy optimization", NeurIPS 2020.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.base.engine import VectorStep
from oda_rl.agents.base.memory import ACTION, GOES_ON, MARK, REWARD, TERMINAL
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.fitted.behaviour import Behaviour
from oda_rl.agents.fitting.placement import Experience
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.agents.worlds.coordinates import WorldArrays
from oda_rl.agents.worlds.laws import codes_of
from oda_rl.agents.worlds.learning import CodedSteps, learn_world, predict
from oda_rl.agents.worlds.quality import judge, judged

_LAWS = 4
_MOST_ERROR = 1.0  # of a replay, in standard deviations: policies correct their course
_FEWEST, _MOST = 200, 20_000  # steps that a world is learned from
_MOST_COMPONENTS = 12  # of an observation: laws have products of them
_MOST_FEATURES = 2_000  # of a law: these products, for each action
_COPIES = 16  # of the world that a policy is learned in
_SHARE, _STEPS = 16, 80_000  # in them: so many for each of the log's, at most
_EPISODE, _JUDGED = 2.0, 3.0  # horizons of the discounted return that are learned from, and judged
_STARTS = 200


class Imagining(Protocol):
    """What learns in copies of the world: the engine of an agent."""

    interface: Interface
    state: Any
    metric: FloatArray | None
    scale: FloatArray | None

    @property
    def policy(self) -> CellPolicy:
        """The policy that did best."""

    def set_lanes(self, count: int) -> None:
        """Get ready for so many copies."""

    def advance(self, step: VectorStep) -> tuple[IntArray, FloatArray]:
        """Learn from a step of all of them, and choose the next actions."""


@dataclass(frozen=True)
class SupportedWorld:
    """A learned world, and what the log supports of it."""

    arrays: WorldArrays
    codes: FloatArray
    """Of the actions, shape (A, C)."""
    behaviour: Behaviour
    bounds: tuple[float, float]
    """Least and greatest discounted return that rewards allow."""
    discount: float
    states: FloatArray
    """In which steps were taken, shape (n, d)."""
    starts: FloatArray
    """In which episodes began, shape (m, d)."""

    def step(
        self, points: FloatArray, actions: IntArray
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Return what steps from points, shape (n, d), lead to, rewards, and what is over."""
        after, rewards, over, gaps = predict(self.arrays, points, self.codes[actions])
        lost = gaps > self.arrays.bounds[3]
        low, high = self.bounds
        dear = (1.0 - self.discount) * (high - low)
        rewards = rewards - dear * ~self.behaviour.allows(points, actions)
        return after, np.where(lost, low, rewards), over | lost

    def learn(self, engine: Imagining, rng: np.random.Generator) -> None:
        """Let an agent learn here, in episodes from anywhere where a step was taken."""
        horizon, dtype = _EPISODE / (1.0 - self.discount), engine.interface.dtype
        steps = min(_SHARE * len(self.states), _STEPS)
        yes, no = np.ones(_COPIES, dtype=np.bool_), np.zeros(_COPIES, dtype=np.bool_)
        points, ages = _drawn(self.states, _COPIES, rng), np.zeros(_COPIES)
        engine.set_lanes(_COPIES)
        shown = points.astype(dtype)
        first = VectorStep(shown, shown, np.zeros(_COPIES), no, no, learns=no, acts=yes, begins=yes)
        actions, _ = engine.advance(first)
        while engine.state.steps < steps:
            after, rewards, over = self.step(points, actions)
            ages += 1.0
            cut = (ages >= horizon) & ~over
            begins = over | cut
            points = np.where(begins[:, None], _drawn(self.states, _COPIES, rng), after)
            ages[begins] = 0.0
            acts = yes if engine.state.steps + _COPIES < steps else no
            led_to, shown = after.astype(dtype), points.astype(dtype)
            step = VectorStep(
                led_to, shown, rewards, over, cut, learns=yes, acts=acts, begins=begins
            )
            actions, _ = engine.advance(step)

    def returns(self, policy: CellPolicy, rng: np.random.Generator) -> FloatArray:
        """Return discounted returns of episodes that begin as those of the log did, shape (n,)."""
        points = _drawn(self.starts, _STARTS, rng)
        total, weight = np.zeros(_STARTS), 1.0
        running = np.ones(_STARTS, dtype=np.bool_)
        for _ in range(math.ceil(_JUDGED / (1.0 - self.discount))):
            after, rewards, over = self.step(points, policy.choices(points))
            total[running] += weight * rewards[running]
            weight *= self.discount
            running &= ~over
            points = np.where(running[:, None], after, points)
        total[running] += weight * self.bounds[0]
        return total


def believed_world(
    seen: Experience,
    interface: Interface,
    behaviour: Behaviour,
    bounds: tuple[float, float],
    discount: float,
    rng: np.random.Generator,
) -> SupportedWorld | None:
    """Learn a world from trajectories; None unless it predicts what it has not seen.

    Nor is there one of numbered states, of many components or actions, of actions that have no
    numbers, or of few steps.
    """
    taken = np.flatnonzero(seen.steps[:, MARK] == GOES_ON)
    codes, boxed = _codes(interface)
    d = seen.observations.shape[1]
    wide = d > _MOST_COMPONENTS or (1 + d) * (2 + d) // 2 * len(codes.T) > _MOST_FEATURES
    if seen.numbered or wide or seen.taken is not None or len(taken) < _FEWEST:
        return None
    begins = np.append(0, np.flatnonzero(seen.steps[:-1, MARK] != GOES_ON) + 1)
    latest = taken[-_MOST:]
    observations = seen.observations.astype(np.float64)
    steps = CodedSteps(
        observations[latest],
        codes[seen.steps[latest, ACTION].astype(np.int64)],
        seen.steps[latest, REWARD],
        observations[latest + 1],
        seen.steps[latest + 1, MARK] == TERMINAL,
    )
    learned = learn_world(steps, -math.inf, boxed, _LAWS, None, rng)
    names = [""] * observations.shape[1]
    told = judge(learned, steps, None, names, rng)
    quality = told.replay_error, told.replay_steps, told.precision, told.recall, told.reward_r2
    if not judged(*quality, most_error=_MOST_ERROR):
        return None
    return SupportedWorld(
        learned.arrays, codes, behaviour, bounds, discount, steps.before, observations[begins]
    )


def _codes(interface: Interface) -> tuple[FloatArray, bool]:
    """Return the codes of all actions, shape (A, C), and whether they are of continuous ones."""
    n, native = interface.n_actions, interface.native
    if native is None or native.grid is None:
        return codes_of(np.arange(n), n), False
    actions = np.asarray(interface.performed(np.arange(n)), dtype=np.float64).reshape(n, -1)
    middle, half = 0.5 * (actions.max(axis=0) + actions.min(axis=0)), 0.5 * np.ptp(actions, axis=0)
    units = (actions - middle) / np.where(half > 0.0, half, 1.0)
    return np.column_stack([np.ones(n), units]), True


def _drawn(points: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    return points[rng.integers(len(points), size=n)]
