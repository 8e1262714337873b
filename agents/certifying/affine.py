"""Affine arithmetic: numbers that are known up to some noise, and functions of them.

An affine form is c + sum of g_i e_i + r e, where the e_i, in [-1, 1], are shared by all forms, and
e is its own. Results enclose what the functions of all numbers can be, up to rounding, for which
:data:`ROUNDING` is added to what is read off.

References
----------
L. H. de Figueiredo, J. Stolfi, "Affine arithmetic: concepts and applications", Numerical Algorithms
37 (2004).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from oda_rl._types import FloatArray

ROUNDING = 1e-12  # relative


@dataclass(frozen=True, eq=False)
class Affine:
    """n affine forms of m shared kinds of noise.

    Examples
    --------
    >>> x = Affine(np.array([1.0]), np.array([[0.5]]), np.zeros(1))
    >>> [end.round(9).tolist() for end in (x * x - 2.0 * x).ends]
    [[-1.0], [-0.75]]
    """

    centre: FloatArray
    """Shape (n,)."""
    shared: FloatArray
    """Shape (n, m)."""
    rest: FloatArray
    """Not negative, shape (n,)."""

    __array_ufunc__ = None

    @property
    def radius(self) -> FloatArray:
        """How far from the centre it may be, shape (n,)."""
        return np.asarray(np.abs(self.shared).sum(axis=1) + self.rest)

    @property
    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Bounds, shape (n,) each."""
        radius = self.radius
        radius = radius + ROUNDING * (np.abs(self.centre) + radius)
        return self.centre - radius, self.centre + radius

    def __add__(self, other: Any) -> "Affine":
        if isinstance(other, Affine):
            return Affine(
                self.centre + other.centre, self.shared + other.shared, self.rest + other.rest
            )
        return Affine(self.centre + other, self.shared, self.rest)

    __radd__ = __add__

    def __neg__(self) -> "Affine":
        return Affine(-self.centre, -self.shared, self.rest)

    def __sub__(self, other: Any) -> "Affine":
        return self.__add__(-other)

    def __rsub__(self, other: Any) -> "Affine":
        return (-self).__add__(other)

    def __mul__(self, other: Any) -> "Affine":
        if not isinstance(other, Affine):
            size = np.asarray(other)
            return Affine(
                self.centre * size, self.shared * size[..., None], self.rest * np.abs(size)
            )
        rest = np.abs(self.centre) * other.rest + np.abs(other.centre) * self.rest
        shared = self.centre[:, None] * other.shared + other.centre[:, None] * self.shared
        squares = self.shared * other.shared  # of the same noise: in [0, 1], not in [-1, 1]
        middle = 0.5 * squares.sum(axis=1)
        rest = rest + self.radius * other.radius - 0.5 * np.abs(squares).sum(axis=1)
        return Affine(self.centre * other.centre + middle, shared, rest)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Affine":
        return self.__mul__(inverse(other) if isinstance(other, Affine) else 1.0 / other)

    def __rtruediv__(self, other: Any) -> "Affine":
        return inverse(self).__mul__(other)

    def widened(self, by: FloatArray | float) -> "Affine":
        """Return forms that may be that much farther off."""
        return Affine(self.centre, self.shared, self.rest + by)

    def clipped(self, low: Any, high: Any) -> "Affine":
        """Return forms within bounds; those that go beyond forget the shared noise."""
        first, last = self.ends
        inside = (first >= low) & (last <= high)
        a, b = np.clip(first, low, high), np.clip(last, low, high)
        return Affine(
            np.where(inside, self.centre, 0.5 * (a + b)),
            np.where(inside[:, None], self.shared, 0.0),
            np.where(inside, self.rest, 0.5 * (b - a) * (1.0 + ROUNDING)),
        )


def _curved(x: Affine, value: FloatArray, slope: FloatArray, bend: FloatArray) -> Affine:
    """Return a function by its tangent at the centre; its second derivative is at most ``bend``."""
    rest = np.abs(slope) * x.rest + 0.5 * bend * x.radius**2
    return Affine(value, slope[:, None] * x.shared, rest)


def sin(x: Any) -> Any:
    """Return the sine of affine forms, or of numbers."""
    if not isinstance(x, Affine):
        return np.sin(x)
    bend = np.minimum(1.0, np.abs(x.centre) + x.radius)
    return _curved(x, np.sin(x.centre), np.cos(x.centre), bend)


def cos(x: Any) -> Any:
    """Return the cosine of affine forms, or of numbers."""
    if not isinstance(x, Affine):
        return np.cos(x)
    return _curved(x, np.cos(x.centre), -np.sin(x.centre), np.ones(len(x.centre)))


def inverse(x: Affine) -> Affine:
    """Return 1 / x; where x may be 0 the rest is not finite."""
    least = np.abs(x.centre) - x.radius
    safe = least > 0.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bend = np.where(safe, 2.0 / np.where(safe, least, 1.0) ** 3, np.inf)
        value = np.where(safe, 1.0 / np.where(safe, x.centre, 1.0), 0.0)
        return _curved(x, value, -(value**2), bend)
