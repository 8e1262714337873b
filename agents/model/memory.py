"""All steps that were taken, as arrays that grow."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._types import BoolArray, FloatArray
from oda_rl.agents.worlds.learning import CodedSteps
from oda_rl.files.schema import Member, flags, real, whole

_FIRST_CAPACITY = 256
SCHEMA: dict[str, Member] = {
    "before": real("steps, d"),
    "codes": real("steps, C"),
    "rewards": real("steps"),
    "after": real("steps, d"),
    "ended": flags("steps"),
    "first": flags("steps"),
    "since": whole("1", "[0, steps]"),
}
"""What a file has of a :class:`Memory`."""
_FIELDS = ("before", "codes", "rewards", "after", "ended", "first")


class Memory:
    """Transitions, the oldest first.

    Parameters
    ----------
    n_features, n_codes : int
        Components of an observation, and codes of an action.

    Attributes
    ----------
    n : int
        Transitions so far.
    since : int
        The first of those that are of the present world.
    """

    def __init__(self, n_features: int, n_codes: int) -> None:
        self.before: FloatArray = np.zeros((_FIRST_CAPACITY, n_features))
        self.codes: FloatArray = np.zeros((_FIRST_CAPACITY, n_codes))
        self.rewards: FloatArray = np.zeros(_FIRST_CAPACITY)
        self.after: FloatArray = np.zeros((_FIRST_CAPACITY, n_features))
        self.ended: BoolArray = np.zeros(_FIRST_CAPACITY, dtype=np.bool_)
        self.first: BoolArray = np.zeros(_FIRST_CAPACITY, dtype=np.bool_)
        self.n = 0
        self.since = 0

    def append(
        self, before: Any, code: Any, reward: float, after: Any, ended: bool, first: bool
    ) -> None:
        """Remember a step, and whether it was the first one of an episode."""
        n = self.n
        if n == len(self.rewards):
            for name in _FIELDS:
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        self.before[n], self.codes[n], self.after[n] = before, code, after
        self.rewards[n], self.ended[n], self.first[n] = reward, ended, first
        self.n += 1

    @property
    def transitions(self) -> CodedSteps:
        """All of them."""
        return CodedSteps(*(getattr(self, name)[: self.n] for name in _FIELDS[:-1]))

    @property
    def present(self) -> CodedSteps:
        """Those of the present world."""
        return CodedSteps(*(getattr(self, name)[self.since : self.n] for name in _FIELDS[:-1]))

    @property
    def present_first(self) -> BoolArray:
        """Which of these began an episode, shape (n,)."""
        return self.first[self.since : self.n]

    @property
    def starts(self) -> FloatArray:
        """Observations in which episodes of the present world began, shape (m, d)."""
        return self.present.before[self.present_first]

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return all that has to be saved."""
        fields = {name: getattr(self, name)[: self.n] for name in _FIELDS}
        return {**fields, "since": np.array([self.since])}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take over what :meth:`state` returned."""
        self.n = len(state["rewards"])
        self.since = int(state["since"][0])
        for name in _FIELDS:
            array = np.zeros((max(self.n, _FIRST_CAPACITY), *state[name].shape[1:]),
                             state[name].dtype)  # fmt: skip
            array[: self.n] = state[name]
            setattr(self, name, array)
