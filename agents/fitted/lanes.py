"""Several environments of a fitted agent: their running trajectories, and the policies they play.

An environment plays an episode to its end with the policy that was the newest when the episode
began: the refits that go on meanwhile would leave no episode whole that says how good a policy is.
Running trajectories are kept apart from the memory, which takes them over when they end.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled
from oda_rl.agents.engine.lanes import Lanes, VectorStep, enter, leave
from oda_rl.agents.engine.memory import FRESH, LAST_ROW, Observations
from oda_rl.agents.engine.records import Record
from oda_rl.agents.fitted import replay
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.agents.two_timescale.qlearning import (
    EPISODE_END,
    HELD,
    LAST_LENGTH,
    LAST_RETURN,
    NOT_FINITE,
    SETTINGS,
)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_FIRST_ROWS = 256


@dataclass(frozen=True, eq=False)
class Playing:
    """A policy that is played, and how."""

    policy: CellPolicy
    record: Record | None
    """To which the returns count; None if they are not those of this policy alone."""
    epsilon: float
    """Probability of a random decision."""
    fits: int
    """Number of fits before."""


@compiled
def record_lanes(
    after: Observations,
    rewards: FloatArray,
    terminated: BoolArray,
    truncated: BoolArray,
    learns: BoolArray,
    ended: FloatArray,
    clocks: IntArray,
    returns: FloatArray,
    own: Observations,
    own_steps: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
) -> int:
    """Remember a step of all environments; returns events.

    ``ended``, shape (n, 2), takes return and length of episodes that end. Nothing is remembered if
    a value is bad.
    """
    n_features = own.shape[2]
    for lane in range(rewards.shape[0]):
        if learns[lane]:
            event = replay.load(after[lane], own[lane], vectors, n_features)
            if rewards[lane] - rewards[lane] != 0.0:
                event = NOT_FINITE
            if event:
                return event
    events = 0
    last_row, fresh = clock[LAST_ROW], clock[FRESH]  # of the memory
    for lane in range(rewards.shape[0]):
        if not learns[lane]:
            continue
        enter(lane, clocks, returns, clock, vectors)
        found = replay.record(
            own[lane],
            own_steps[lane],
            clock,
            vectors,
            after[lane],
            rewards[lane],
            terminated[lane],
            truncated[lane],
        )
        if found & EPISODE_END:
            ended[lane, 0] = vectors[SETTINGS, LAST_RETURN]
            ended[lane, 1] = clock[LAST_LENGTH]
        events |= found
        leave(lane, clocks, returns, clock, vectors)
    clock[LAST_ROW], clock[FRESH] = last_row, fresh
    return events


@compiled
def choose_lanes(
    first: int,
    lanes: IntArray,
    observations: Observations,
    diagram: FloatArray,
    models: FloatArray,
    actions: IntArray,
    clocks: IntArray,
    returns: FloatArray,
    own: Observations,
    own_steps: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
) -> tuple[int, int]:
    """Choose actions in the environments ``lanes``, from the first-th on, by one policy.

    Returns an event to attend to and how far it came, or 0 and the number of lanes.
    """
    last_row, fresh = clock[LAST_ROW], clock[FRESH]  # of the memory
    event = 0
    i = first
    while i < lanes.shape[0] and event == 0:
        lane = lanes[i]
        enter(lane, clocks, returns, clock, vectors)
        code = replay.act(
            observations[lane], own[lane], own_steps[lane], diagram, models, clock, vectors
        )
        leave(lane, clocks, returns, clock, vectors)
        if code < 0:
            event = -code
        else:
            actions[lane] = code
            i += 1
    clock[LAST_ROW], clock[FRESH] = last_row, fresh
    return event, i


class RunningTrajectories:
    """What n environments have of their own.

    Parameters
    ----------
    count, n_features : int
        Environments, components of an observation.
    dtype : str
        Of the observations.
    playing : Playing
        With what all begin.

    Attributes
    ----------
    lanes : Lanes
        Counters and returns of the running episodes.
    playing : list of Playing
        With what each environment plays.
    """

    def __init__(self, count: int, n_features: int, dtype: str, playing: Playing) -> None:
        self.playing = [playing] * count
        self.lanes = Lanes.of(count)
        # A memory (oda_rl.agents.engine.memory) for each environment.
        self._observations: Observations = np.zeros((count, _FIRST_ROWS, n_features), dtype)
        self._steps: FloatArray = np.zeros((count, _FIRST_ROWS, 3))

    def make_room(self) -> None:
        """Double the rows."""
        old, old_steps = self._observations, self._steps
        self._observations = np.concatenate([old, np.zeros_like(old)], axis=1)
        self._steps = np.concatenate([old_steps, np.zeros_like(old_steps)], axis=1)

    def rows(self, lane: int) -> tuple[Observations, FloatArray]:
        """Return the observations and steps of a trajectory so far."""
        n = self.lanes.clocks[lane, LAST_ROW] + 1
        return self._observations[lane, :n], self._steps[lane, :n]

    def forget(self, lane: int) -> None:
        """Begin a trajectory anew."""
        self.lanes.clocks[lane, [LAST_ROW, FRESH, HELD]] = -1, 0, 0

    def players(self, acts: BoolArray) -> Iterable[tuple[Playing, IntArray]]:
        """Return the policies that are played, and in which of the environments that act."""
        lanes: dict[Playing, list[int]] = {}
        for lane in acts.nonzero()[0].tolist():
            lanes.setdefault(self.playing[lane], []).append(lane)
        return [(playing, np.array(own)) for playing, own in lanes.items()]

    def record(
        self, step: VectorStep, ended: FloatArray, clock: IntArray, vectors: FloatArray
    ) -> int:
        """Do what :func:`record_lanes` does."""
        return record_lanes(
            step.after,
            step.rewards,
            step.terminated,
            step.truncated,
            step.learns,
            ended,
            *self.lanes,
            self._observations,
            self._steps,
            clock,
            vectors,
        )

    def choose(
        self,
        first: int,
        lanes: IntArray,
        observations: Observations,
        policy: CellPolicy,
        actions: IntArray,
        clock: IntArray,
        vectors: FloatArray,
    ) -> tuple[int, int]:
        """Do what :func:`choose_lanes` does."""
        return choose_lanes(
            first,
            lanes,
            observations,
            policy.diagram,
            policy.models,
            actions,
            *self.lanes,
            self._observations,
            self._steps,
            clock,
            vectors,
        )
