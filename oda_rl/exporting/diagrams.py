"""Parts of exported estimators: diagrams in units of the input, and labels of classes."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.annealing.base import BaseODA
from oda_rl.divergences import Divergence
from oda_rl.trees.tree import Cells

_MAX_INT = 2**31 - 1
_INTEGERS = (np.uint8, np.int8, np.uint16, np.int16, np.int32)


def fitting(array: npt.ArrayLike, dtype: Any) -> npt.NDArray[Any]:
    """Cast to a type; raise ValueError if the largest number does not fit.

    >>> fitting([0.5, 2.0], np.float32)
    array([0.5, 2. ], dtype=float32)
    """
    numbers = np.asarray(array, dtype=np.float64)
    largest = float(np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0))
    info = np.finfo(dtype)
    if largest > float(info.max) or 0.0 < largest < float(info.tiny):
        raise ValueError(
            f"the estimator has learned numbers as large as {largest:g}, beyond the range of "
            "single precision: scale its input before fitting"
        )
    return numbers.astype(dtype)


@dataclass(frozen=True)
class Diagram:
    """Scores of codevectors: unit (offset_k + <slope_k, x − centre>) is d(x, μ_k) − φ(x).

    The unit, a power of two, keeps scores small enough for single precision. Shapes: centre (d,),
    offsets (K,), slopes (K, d).
    """

    centre: FloatArray
    offsets: FloatArray
    slopes: FloatArray
    unit: float

    @property
    def parts(self) -> FloatArray:
        """Part of each feature in the offsets of squared Euclidean distances, shape (K, d).

        Of ``rounded`` diagrams they are without what the codevectors have in common.
        """
        return np.asarray(0.25 * self.unit * self.slopes**2)

    @classmethod
    def of(cls, cells: Cells, divergence: Divergence) -> Self:
        """Convert cells from the divergence's coordinates to those of the input.

        >>> from oda_rl.divergences import Mahalanobis
        >>> divergence = Mahalanobis([[4.0]])
        >>> cells = Cells.of(divergence.embed(np.array([[1.0], [3.0]])), divergence)
        >>> diagram = Diagram.of(cells, divergence)
        >>> diagram.centre, diagram.unit * diagram.slopes  # -8 and -24, less the centre's
        (array([2.]), array([[ 8.],
               [-8.]]))
        """
        root = divergence.embed(np.eye(len(cells.centre)))  # linear, whatever the divergence
        centre = divergence.restore(cells.centre[None])[0]
        return cls.scaled(centre, cells.offsets, cells.gradients @ root.T)

    @classmethod
    def scaled(cls, centre: FloatArray, offsets: FloatArray, slopes: FloatArray) -> Self:
        """Choose the unit."""
        unit = math.ldexp(1.0, int(np.frexp(np.abs(offsets).max())[1])) if offsets.any() else 1.0
        return cls(centre, offsets / unit, slopes / unit, unit)

    @classmethod
    def nearest(cls, codevectors: FloatArray, divergence: Divergence) -> Self:
        """Return the diagram of codevectors, shape (K, d), in the divergence's coordinates."""
        return cls.of(Cells.of(codevectors, divergence), divergence)

    @classmethod
    def annealed(cls, model: BaseODA) -> Self:
        """Return the diagram of an annealed codebook."""
        return cls.nearest(model._embedded_codevectors(), model._annealer.divergence)

    def rounded(self, dtype: Any) -> "Diagram":
        """Cast to a type; offsets make up for the rounding of the centre."""
        centre = fitting(self.centre, dtype)
        offsets = self.offsets + self.slopes @ (centre.astype(np.float64) - self.centre)
        return Diagram(centre, fitting(offsets, dtype), fitting(self.slopes, dtype), self.unit)


def log_weights(weights: FloatArray) -> FloatArray:
    """Return log weights, with a finite value for a weight of 0."""
    with np.errstate(divide="ignore"):
        logs: FloatArray = np.maximum(np.log(weights), -1e4)
    return logs


def is_text(labels: npt.NDArray[Any]) -> bool:
    """Return whether all labels are strings."""
    return all(isinstance(label, str) for label in labels.tolist())


def whole_numbers(labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return labels as integers; raise ValueError if they are not whole numbers."""
    try:
        numbers = np.array([int(label) for label in labels.tolist()], dtype=np.int64)
        whole = bool((numbers == labels).all())
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise ValueError(
            f"labels are {labels.tolist()!r:.80}: to be exported they must be strings or integers"
        )
    return numbers


def numbered(labels: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the number of each label in C, and comment lines that explain it.

    Raises ValueError if labels are neither strings nor integers of 32 bits.

    >>> numbered(np.array(["a", "b"]))
    (array([0, 1]), ['and returns the number of a label:', '    0  a', '    1  b'])
    """
    if is_text(labels):
        names = (f"    {i}  {label}" for i, label in enumerate(labels.tolist()))
        return np.arange(len(labels)), ["and returns the number of a label:", *names]
    numbers = whole_numbers(labels)
    if np.abs(numbers).max() > _MAX_INT:
        raise ValueError(f"labels reach {np.abs(numbers).max()}: they must fit 32 bits")
    return numbers, ["and returns a label."]


def narrowest(numbers: Any) -> npt.NDArray[Any]:
    """Cast integers of 32 bits to the smallest type that holds them.

    >>> narrowest([0, 300])
    array([  0, 300], dtype=uint16)
    """
    array = np.asarray(numbers)
    return next(array.astype(kind) for kind in _INTEGERS if (array.astype(kind) == array).all())
