"""Real episodes: how long they are, and what is known of whatever was played in them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray, IntArray
from oda_rl.files.schema import Member, flags, real, whole

_GROWTH, _MAX_GUESS = 2, 1000  # a guess is so many times the longest episode, but no more steps

OUTCOMES: dict[str, Member] = {
    "returns": real("returns"),
    "lengths": whole("returns", "[1, 1000000000]"),
    "terminated": flags("returns"),
}
"""What a file has of :class:`Outcomes`."""
SCHEMA: dict[str, Member] = {
    "counts": whole("R", "[0, 1000000000]"),
    "returns": real("episodes"),
    "lengths": whole("episodes", "[1, 1000000000]"),
    "terminated": flags("episodes"),
    "imagined": real("episodes"),
    "promised": real("R", "[-inf, inf)"),
}
"""What a file has of several :class:`Tried`, but where their episodes began."""


@dataclass
class Outcomes:
    """All real episodes that have ended, and how many steps are imagined.

    Parameters
    ----------
    guess : int
        Steps to imagine, at least, while no time limit is known.
    limit : int, optional
        The environment's time limit.
    """

    guess: int
    limit: int | None = None
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)
    _longest: int = 0
    _truncates: bool = False

    def append(self, episode_return: float, length: int, terminated: bool) -> None:
        """Note an episode that has terminated, or was truncated."""
        self.returns.append(episode_return)
        self.lengths.append(length)
        self.terminated.append(terminated)
        self._longest = max(self._longest, length)
        self._truncates |= not terminated

    @property
    def horizon(self) -> int:
        """Steps of an imagined episode, at most.

        The environment's time limit. Where it tells none, the longest episode so far, if any was
        truncated; else a guess, which grows with the episodes that terminate.

        >>> outcomes = Outcomes(guess=200)
        >>> outcomes.append(1.0, 150, terminated=True)
        >>> first = outcomes.horizon
        >>> outcomes.append(1.0, 250, terminated=False)
        >>> first, outcomes.horizon
        (300, 250)
        """
        if self.limit is not None:
            return self.limit
        if self._truncates:
            return self._longest
        return max(self.guess, min(_GROWTH * self._longest, _MAX_GUESS))

    @property
    def latest(self) -> tuple[float, int, bool]:
        """Return, length, and whether it terminated, of the latest episode."""
        return self.returns[-1], self.lengths[-1], self.terminated[-1]

    @property
    def comparable(self) -> list[float]:
        """Returns that stand beside imagined ones: those of episodes truncated earlier do not."""
        horizon = self.horizon
        return [
            episode_return
            for episode_return, length, terminated in zip(
                self.returns, self.lengths, self.terminated, strict=True
            )
            if terminated or length >= horizon
        ]

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all episodes as arrays, for a file."""
        return {
            "returns": np.array(self.returns),
            "lengths": np.array(self.lengths, dtype=np.int64),
            "terminated": np.array(self.terminated, dtype=np.bool_),
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take over what :meth:`to_arrays` returned."""
        columns = (arrays[name].tolist() for name in OUTCOMES)
        for outcome in zip(*columns, strict=True):
            self.append(*outcome)


@dataclass(eq=False, kw_only=True)
class Tried:
    """What was, or may be, played from the start of an episode to its end."""

    starts: list[Any] = field(default_factory=list)
    """Where the episodes began that were played with it,"""
    returns: list[float] = field(default_factory=list)
    """their returns,"""
    lengths: list[int] = field(default_factory=list)
    """their steps,"""
    terminated: list[bool] = field(default_factory=list)
    """and whether they terminated, or were truncated."""
    promised: float = -math.inf
    """Mean return in the present model."""
    imagined: list[float] = field(default_factory=list)
    """Mean returns there from the episodes' starts, in as many steps."""

    latest: ClassVar[int | None] = None
    """Episodes that count; None: all."""

    @property
    def surprises(self) -> FloatArray:
        """Real minus imagined returns of the episodes that count."""
        n = len(self.returns)
        first = 0 if self.latest is None else max(n - self.latest, 0)
        return np.subtract(self.returns[first:], self.imagined[first:])

    def compared(self, horizon: int) -> IntArray:
        """Return the steps over which real and imagined returns are compared, shape (n,).

        What has terminated returns the same over more steps; what was truncated does not.

        >>> Tried(lengths=[30, 30], terminated=[True, False]).compared(100)
        array([100,  30])
        """
        lengths = np.array(self.lengths, dtype=np.int64)
        return np.where(self.terminated, np.maximum(lengths, horizon), lengths)

    def note(self, start: Any, episode_return: float, length: int, terminated: bool) -> None:
        """Note a real episode, which has yet to be imagined."""
        self.starts.append(start)
        self.returns.append(episode_return)
        self.lengths.append(length)
        self.terminated.append(terminated)

    def keep(self, kept: Sequence[bool]) -> None:
        """Forget all other real episodes: they were of another world."""
        for name in ("starts", "returns", "lengths", "terminated", "imagined"):
            own = getattr(self, name)
            setattr(self, name, [value for value, stays in zip(own, kept, strict=True) if stays])


def to_arrays(known: Sequence[Tried]) -> dict[str, npt.NDArray[Any]]:
    """Return what is known of each, but where its episodes began, as arrays for a file."""
    return {
        "counts": np.array([len(one.returns) for one in known]),
        "returns": np.concatenate([*(one.returns for one in known), []]),
        "lengths": np.array([length for one in known for length in one.lengths], dtype=np.int64),
        "terminated": np.array(
            [ended for one in known for ended in one.terminated], dtype=np.bool_
        ),
        "imagined": np.concatenate([*(one.imagined for one in known), []]),
        "promised": np.array([one.promised for one in known]),
    }


def from_arrays(arrays: dict[str, npt.NDArray[Any]]) -> list[dict[str, Any]]:
    """Return the fields of each :class:`Tried`, of what :func:`to_arrays` returned and ``starts``.

    >>> one = Tried(promised=2.5, imagined=[2.0])
    >>> one.note(7, 3.0, 40, terminated=True)
    >>> back = from_arrays({"starts": np.array([7]), **to_arrays([one, Tried()])})
    >>> [Tried(**fields).returns for fields in back], Tried(**back[0]).surprises
    ([[3.0], []], array([1.]))
    """
    ends = np.cumsum(arrays["counts"])[:-1]
    names = "starts", "returns", "lengths", "terminated", "imagined"
    each = zip(*(np.split(arrays[name], ends) for name in names), strict=True)
    return [
        {"starts": list(began), "returns": real.tolist(), "lengths": steps.tolist(),
         "terminated": over.tolist(), "promised": float(promised), "imagined": model.tolist()}
        for (began, real, steps, over, model), promised in zip(
            each, arrays["promised"], strict=True
        )
    ]  # fmt: skip
