"""What is known of anything that can be played: its real episodes, and what the model says."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray


@dataclass(eq=False, kw_only=True)
class Tried:
    """What was, or may be, played from the start of an episode to its end."""

    starts: list[Any] = field(default_factory=list)
    """Where the episodes began that were played with it,"""
    returns: list[float] = field(default_factory=list)
    """and their returns."""
    promised: float = -math.inf
    """Mean return in the present model."""
    imagined: list[float] = field(default_factory=list)
    """Mean returns there from the episodes' starts."""

    latest: ClassVar[int | None] = None
    """Episodes that count; None: all."""

    @property
    def surprises(self) -> FloatArray:
        """Real minus imagined returns of the episodes that count."""
        n = len(self.returns)
        first = 0 if self.latest is None else max(n - self.latest, 0)
        return np.subtract(self.returns[first:], self.imagined[first:])

    def keep(self, kept: Sequence[bool]) -> None:
        """Forget all other real episodes: they were of another world."""
        for name in ("starts", "returns", "imagined"):
            own = getattr(self, name)
            setattr(self, name, [value for value, stays in zip(own, kept, strict=True) if stays])


def to_arrays(known: Sequence[Tried]) -> dict[str, npt.NDArray[Any]]:
    """Return what is known of each, but where its episodes began, as arrays for a file."""
    return {
        "counts": np.array([len(one.returns) for one in known]),
        "returns": np.concatenate([*(one.returns for one in known), []]),
        "imagined": np.concatenate([*(one.imagined for one in known), []]),
        "promised": np.array([one.promised for one in known]),
    }


def from_arrays(arrays: dict[str, npt.NDArray[Any]]) -> list[dict[str, Any]]:
    """Return the fields of each :class:`Tried`, of what :func:`to_arrays` returned and ``starts``.

    >>> one = Tried(starts=[7], returns=[3.0], promised=2.5, imagined=[2.0])
    >>> back = from_arrays({"starts": np.array([7]), **to_arrays([one, Tried()])})
    >>> [Tried(**fields).returns for fields in back], Tried(**back[0]).surprises
    ([[3.0], []], array([1.]))
    """
    ends = np.cumsum(arrays["counts"])[:-1]
    starts, returns, imagined = (
        np.split(arrays[name], ends) for name in ("starts", "returns", "imagined")
    )
    return [
        {"starts": list(began), "returns": real.tolist(), "promised": float(promised),
         "imagined": model.tolist()}
        for began, real, promised, model in zip(
            starts, returns, arrays["promised"], imagined, strict=True
        )
    ]  # fmt: skip
