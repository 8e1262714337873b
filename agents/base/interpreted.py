"""Engines whose rule is two methods in Python, for an agent of one's own."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from oda_rl import metric
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.engine import Engine
from oda_rl.agents.base.lanes import VectorStep
from oda_rl.agents.base.state import (
    EPISODE_END,
    Counters,
    Lane,
    end_episode,
    new_lanes,
    with_lanes,
)
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import (
    BAD_SHAPE,
    BAD_STEP,
    LARGEST_REWARD,
    NOT_FINITE,
    refuse,
)
from oda_rl.agents.policies.contract import Extent
from oda_rl.diagram import LARGEST


class InterpretedEngine(Engine):
    """Base of engines that say in Python what they do and what they learn.

    In several environments it goes from one to the next; where the dynamics are compiled, too, it
    learns step by step. It counts steps and episodes, and knows where the observations were.

    Parameters
    ----------
    interface : Interface
        Of the environment.
    explore : numpy.random.Generator
        Decides on exploration: ``self._explore``.
    """

    saved: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays, of a shape that does not change, that it learns."""
    epsilon: float = 0.0
    """Present probability of a random action."""
    arrays = ()
    fuses = False

    def __init__(self, interface: Interface, explore: np.random.Generator) -> None:
        super().__init__(interface, 1, explore)
        self.raw, self._lanes = with_lanes(Counters, 1)
        self.state = Counters(self.raw)
        self._acted_on = np.zeros((1, interface.n_features))  # in each environment
        self._moments = np.zeros((4, interface.n_features))  # mean, variance, lowest, highest

    @abstractmethod
    def decide(self, point: FloatArray) -> int:
        """Choose an action, from 0, in a state, exploring as training asks for."""

    @abstractmethod
    def learn(
        self, point: FloatArray, action: int, reward: float, after: FloatArray, terminated: bool
    ) -> None:
        """Learn from one step; where it ``terminated``, nothing comes after it."""

    @property
    def extent(self) -> Extent:
        """Where the observations were that it learned from."""
        mean, _, low, high = self._moments
        return Extent(mean.copy(), np.maximum(high - mean, mean - low))

    @property
    def scale(self) -> FloatArray | None:
        """Inverse standard deviations of those; None before learning."""
        mean, variance = self._moments[:2]
        return metric.scales(mean, np.diag(variance)) if self.state.steps else None

    @property
    def loop_arrays(self) -> tuple[Any, ...]:
        """None: it does not learn in compiled loops."""
        return ()

    @property
    def lanes(self) -> list[Lane]:
        """What belongs to each environment."""
        return self._lanes

    @property
    def n_lanes(self) -> int:
        """Number of environments learned from at once."""
        return len(self._lanes)

    def set_lanes(self, count: int) -> None:
        """Get ready to learn from so many environments at once, none of which has begun yet."""
        self._lanes = new_lanes(np.zeros(count * Lane.size, dtype=np.uint8))
        self._acted_on = np.zeros((count, self.interface.n_features))

    def leave_lanes(self) -> None:
        """Go back to learning along one trajectory."""
        if self.n_lanes > 1:
            self.set_lanes(1)

    def begin_episode(self) -> None:
        """Forget episodes that were not finished."""
        for lane in self.lanes:
            lane.assign({"episode_return": 0.0, "episode_length": 0})

    def withdraw_choice(self) -> None:
        """Let the last choice be: it cost nothing but random numbers."""

    def act(self, vector: npt.NDArray[Any]) -> int:
        """Choose an action (from 0) for a flattened observation."""
        return self._decide(self.lanes[0], vector, "observation")

    def step(
        self, vector: npt.NDArray[Any], reward: float, terminated: bool, truncated: bool
    ) -> int:
        """Learn from the last action's outcome; choose the next action, or return minus events."""
        events = self._learn(self.lanes[0], vector, reward, terminated, truncated)
        return -events if events else self._decide(self.lanes[0], vector, BAD_STEP)

    def update(
        self,
        vector: npt.NDArray[Any],
        action: int,
        reward: float,
        after: npt.NDArray[Any],
        terminated: bool,
        truncated: bool,
    ) -> int:
        """Learn from one transition; returns events."""
        events = badness(vector, self.interface)
        if not events:
            self._acted_on[0], self.lanes[0].action = vector, action
            events = self._learn(self.lanes[0], after, reward, terminated, truncated)
        return events

    def advance(self, step: VectorStep) -> tuple[IntArray, FloatArray]:
        """Learn from a step of all environments and choose the next actions.

        Returns the actions (from 0), shape (n,), and the episodes that have ended, shape (m, 2), as
        (return, length).
        """
        actions, ended = np.zeros(self.n_lanes, dtype=np.int64), [np.empty((0, 2))]
        outcomes = zip(*(own.tolist() for own in step[2:5]), strict=True)
        for i, (lane, outcome) in enumerate(zip(self.lanes, outcomes, strict=True)):
            if step.learns[i]:
                events = self._learn(lane, step.after[i], *outcome)
                refuse(events, BAD_STEP, self.interface)
                if events:
                    ended.append(np.array([[self.state.last_return, self.state.last_length]]))
            if step.acts[i]:
                actions[i] = self._decide(lane, step.observations[i], BAD_STEP)
        return actions, np.concatenate(ended)

    def state_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays that have to be saved, the history apart."""
        return {
            "state": self.state.record,
            "lanes": np.concatenate([lane.record for lane in self.lanes]),
            **{name: getattr(self, name) for name in ("_acted_on", "_moments", *self.saved)},
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take over what :meth:`state_arrays` returned."""
        self.set_lanes(len(arrays["lanes"]))
        self.state.restore(arrays["state"])
        for i, lane in enumerate(self.lanes):
            lane.restore(arrays["lanes"][i : i + 1])
        for name in ("_acted_on", "_moments", *self.saved):
            getattr(self, name)[:] = arrays[name]

    def _attend(self, events: int) -> None:
        """Do nothing: what there was to do is done."""

    def _decide(self, lane: Lane, vector: npt.NDArray[Any], what: str) -> int:
        refuse(badness(vector, self.interface), what, self.interface)
        self._acted_on[lane.number] = vector
        lane.action = self.decide(self._acted_on[lane.number])
        return lane.action

    def _learn(
        self, lane: Lane, vector: npt.NDArray[Any], reward: float, terminated: bool, truncated: bool
    ) -> int:
        """Learn from what the last action led to; returns events."""
        events = badness(vector, self.interface)
        if events or not abs(reward) <= LARGEST_REWARD:
            return events or NOT_FINITE
        point, after = self._acted_on[lane.number], np.array(vector, dtype=np.float64)
        self._note(point)
        self.learn(point, lane.action, reward, after, terminated)
        lane.episode_return += reward
        lane.episode_length += 1
        if not (terminated or truncated):
            return 0
        end_episode.py_func(self.state, lane)  # type: ignore[attr-defined]
        return EPISODE_END

    def _note(self, point: FloatArray) -> None:
        """Count a step from there."""
        self.state.steps += 1
        if self.state.steps == 1:
            self._moments[[0, 2, 3]] = point
        mean, variance, low, high = self._moments
        step, before = 1.0 / self.state.steps, point - mean
        mean += step * before
        variance += step * (before * (point - mean) - variance)
        np.minimum(low, point, out=low)
        np.maximum(high, point, out=high)


def badness(vector: npt.NDArray[Any], interface: Interface) -> int:
    """Return the event of an observation that is bad; 0 of a good one."""
    if vector.shape != (interface.n_features,):
        return BAD_SHAPE
    largest = np.abs(vector.astype(np.float64)).max()
    return 0 if largest <= LARGEST else NOT_FINITE
