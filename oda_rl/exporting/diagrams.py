"""Which codevector is nearest, in the estimator's input: what is left when units are gone."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.divergences import Divergence
from oda_rl.trees.nodes import Cells


def fitting(array: npt.ArrayLike, dtype: Any) -> npt.NDArray[Any]:
    """Return an array of a type that holds its numbers.

    Raises
    ------
    ValueError
        If the largest is too large for it, or too small.

    Examples
    --------
    >>> fitting([0.5, 2.0], np.float32)
    array([0.5, 2. ], dtype=float32)
    """
    numbers = np.asarray(array, dtype=np.float64)
    largest = float(np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0))
    most, least = float(np.finfo(dtype).max), float(np.finfo(dtype).tiny)
    if largest > most or 0.0 < largest < least:
        raise ValueError(
            f"the estimator has learned numbers of the size of {largest:g}, which single precision "
            "does not hold: scale its input before it is fitted"
        )
    return numbers.astype(dtype)


@dataclass(frozen=True)
class Diagram:
    """Scores of codevectors: unit (offset_k + <slope_k, x − centre>) is d(x, μ_k), less φ(x).

    Scores are small numbers, whatever the data are measured in, so that single precision holds
    them.
    """

    centre: FloatArray
    """Shape (d,)."""
    offsets: FloatArray
    """Shape (K,), in units: at most 1 about the centre."""
    slopes: FloatArray
    """Shape (K, d)."""
    unit: float
    """A power of two."""

    @classmethod
    def of(cls, cells: Cells, divergence: Divergence) -> Self:
        """Take cells out of the divergence's coordinates.

        Examples
        --------
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
        """Find the unit of scores."""
        unit = math.ldexp(1.0, int(np.frexp(np.abs(offsets).max())[1])) if offsets.any() else 1.0
        return cls(centre, offsets / unit, slopes / unit, unit)

    @classmethod
    def nearest(cls, codevectors: FloatArray, divergence: Divergence) -> Self:
        """Make one of codevectors, shape (K, d), in the divergence's coordinates."""
        return cls.of(Cells.of(codevectors, divergence), divergence)

    def rounded(self, dtype: Any) -> "Diagram":
        """Round the numbers to those of a type, so that scores change as little as may be."""
        centre = fitting(self.centre, dtype)
        offsets = self.offsets + self.slopes @ (centre.astype(np.float64) - self.centre)
        return Diagram(centre, fitting(offsets, dtype), fitting(self.slopes, dtype), self.unit)
