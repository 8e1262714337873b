"""Affine forms, which stand for sets of numbers, and dynamics written with them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oda_rl._types import BoolArray, FloatArray

ROUNDING = 1e-12  # relative


@dataclass(frozen=True, eq=False)
class Affine:
    """n affine forms over m shared noise symbols, each symbol in [-1, 1].

    Examples
    --------
    >>> x = Affine(np.array([1.0]), np.array([[0.5]]), np.zeros(1))
    >>> [end.round(9).tolist() for end in (x * x - 2.0 * x).ends]
    [[-1.0], [-0.75]]
    """

    centre: FloatArray
    """Shape (n,)."""
    shared: FloatArray
    """Coefficients of the noise symbols, shape (n, m)."""
    remainder: FloatArray
    """Radius of each form's independent noise, shape (n,)."""

    __array_ufunc__ = None

    @property
    def radius(self) -> FloatArray:
        """Largest distance from the centre, shape (n,)."""
        return np.asarray(np.abs(self.shared).sum(axis=1) + self.remainder)

    @property
    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds, shape (n,) each."""
        radius = self.radius
        radius = radius + ROUNDING * (np.abs(self.centre) + radius)
        return self.centre - radius, self.centre + radius

    def __add__(self, other: Any) -> "Affine":
        if not isinstance(other, Affine):
            return Affine(self.centre + other, self.shared, self.remainder)
        return Affine(
            self.centre + other.centre,
            self.shared + other.shared,
            self.remainder + other.remainder,
        )

    __radd__ = __add__

    def __neg__(self) -> "Affine":
        return Affine(-self.centre, -self.shared, self.remainder)

    def __sub__(self, other: Any) -> "Affine":
        return self.__add__(-other)

    def __rsub__(self, other: Any) -> "Affine":
        return (-self).__add__(other)

    def __mul__(self, other: Any) -> "Affine":
        if not isinstance(other, Affine):
            return Affine(self.centre * other, self.shared * other, self.remainder * abs(other))
        remainder = np.abs(self.centre) * other.remainder + np.abs(other.centre) * self.remainder
        shared = self.centre[:, None] * other.shared + other.centre[:, None] * self.shared
        squares = self.shared * other.shared  # a squared symbol is in [0, 1], not in [-1, 1]
        middle = 0.5 * squares.sum(axis=1)
        remainder = remainder + self.radius * other.radius - 0.5 * np.abs(squares).sum(axis=1)
        return Affine(self.centre * other.centre + middle, shared, remainder)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Affine":
        return self * (inverse(other) if isinstance(other, Affine) else 1.0 / other)

    def __rtruediv__(self, other: Any) -> "Affine":
        return inverse(self).__mul__(other)


def _by_tangent(x: Affine, value: FloatArray, slope: FloatArray, bend: FloatArray) -> Affine:
    """Enclose a function by its tangent at the centre and a bound on its second derivative."""
    remainder = np.abs(slope) * x.remainder + 0.5 * bend * x.radius**2
    return Affine(value, slope[:, None] * x.shared, remainder)


def sin(x: Any) -> Any:
    """Return the sine of affine forms, or of numbers."""
    if not isinstance(x, Affine):
        return np.sin(x)
    bend = np.minimum(1.0, np.abs(x.centre) + x.radius)
    return _by_tangent(x, np.sin(x.centre), np.cos(x.centre), bend)


def cos(x: Any) -> Any:
    """Return the cosine of affine forms, or of numbers."""
    if not isinstance(x, Affine):
        return np.cos(x)
    return _by_tangent(x, np.cos(x.centre), -np.sin(x.centre), np.ones(len(x.centre)))


def inverse(x: Affine) -> Affine:
    """Return 1 / x; where x can be 0 the remainder is infinite."""
    lower = np.abs(x.centre) - x.radius
    safe = lower > 0.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bend = np.where(safe, 2.0 / np.where(safe, lower, 1.0) ** 3, np.inf)
        value = np.where(safe, 1.0 / np.where(safe, x.centre, 1.0), 0.0)
        return _by_tangent(x, value, -(value**2), bend)


@dataclass(frozen=True)
class CartPole:
    """Dynamics of Gymnasium's CartPole-v1, whose constants are the defaults."""

    gravity: float = 9.8
    cart_mass: float = 1.0
    pole_mass: float = 0.1
    half_length: float = 0.5
    push: float = 10.0
    tau: float = 0.02
    limits: tuple[float, float] = (2.4, 12 * 2 * math.pi / 360)
    """Of position (m) and angle (rad)."""

    description = "the dynamics of CartPole-v1, exact but for rounding"

    def step(self, state: Sequence[Any], output: FloatArray) -> list[Any]:
        """Return the next state: d affine forms or arrays of numbers, of shape (n,) each.

        ``output`` is a one-hot column, shape (2, 1): push left or push right.
        """
        x, speed, angle, turning = state
        force = self.push if output[1, 0] > 0.0 else -self.push
        mass = self.cart_mass + self.pole_mass
        moment = self.pole_mass * self.half_length
        sine, cosine = sin(angle), cos(angle)
        pull = (turning * turning * sine * moment + force) * (1.0 / mass)
        below = (4.0 / 3.0 - cosine * cosine * (self.pole_mass / mass)) * self.half_length
        swing = (sine * self.gravity - cosine * pull) / below
        push = pull - swing * cosine * (moment / mass)
        return [
            x + speed * self.tau,
            speed + push * self.tau,
            angle + turning * self.tau,
            turning + swing * self.tau,
        ]

    def may_end(self, state: Sequence[Affine]) -> BoolArray:
        """Whether position or angle may be beyond their limits, shape (n,)."""
        beyond = np.zeros(len(state[0].centre), dtype=np.bool_)
        for component, limit in zip((state[0], state[2]), self.limits, strict=True):
            low, high = component.ends
            beyond |= (low < -limit) | (high > limit)
        return beyond
