"""Sets of numbers, and dynamics in which sets of states can be followed: known and learned."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from oda_rl._types import BoolArray, FloatArray
from oda_rl.agents.worlds.coordinates import HIGH, LEVELS, LOW, MEAN, SCALE, WorldArrays

ROUNDING = 1e-12  # relative
_NEGLIGIBLE = 1e-3  # weight of a cell, as in simulated steps
_WAVE_ERROR = 2e-3


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
    remainder: FloatArray
    """Not negative, shape (n,)."""

    __array_ufunc__ = None

    @property
    def radius(self) -> FloatArray:
        """How far from the centre it may be, shape (n,)."""
        return np.asarray(np.abs(self.shared).sum(axis=1) + self.remainder)

    @property
    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Bounds, shape (n,) each."""
        radius = self.radius
        radius = radius + ROUNDING * (np.abs(self.centre) + radius)
        return self.centre - radius, self.centre + radius

    def __add__(self, other: Any) -> "Affine":
        if isinstance(other, Affine):
            return Affine(
                self.centre + other.centre,
                self.shared + other.shared,
                self.remainder + other.remainder,
            )
        return Affine(self.centre + other, self.shared, self.remainder)

    __radd__ = __add__

    def __neg__(self) -> "Affine":
        return Affine(-self.centre, -self.shared, self.remainder)

    def __sub__(self, other: Any) -> "Affine":
        return self.__add__(-other)

    def __rsub__(self, other: Any) -> "Affine":
        return (-self).__add__(other)

    def __mul__(self, other: Any) -> "Affine":
        if not isinstance(other, Affine):
            size = np.asarray(other)
            return Affine(
                self.centre * size, self.shared * size[..., None], self.remainder * np.abs(size)
            )
        remainder = np.abs(self.centre) * other.remainder + np.abs(other.centre) * self.remainder
        shared = self.centre[:, None] * other.shared + other.centre[:, None] * self.shared
        squares = self.shared * other.shared  # of the same noise: in [0, 1], not in [-1, 1]
        middle = 0.5 * squares.sum(axis=1)
        remainder = remainder + self.radius * other.radius - 0.5 * np.abs(squares).sum(axis=1)
        return Affine(self.centre * other.centre + middle, shared, remainder)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Affine":
        return self.__mul__(inverse(other) if isinstance(other, Affine) else 1.0 / other)

    def __rtruediv__(self, other: Any) -> "Affine":
        return inverse(self).__mul__(other)

    def widened(self, by: FloatArray | float) -> "Affine":
        """Return forms that may be that much farther off."""
        return Affine(self.centre, self.shared, self.remainder + by)

    def clipped(self, low: Any, high: Any) -> "Affine":
        """Return forms within bounds; those that go beyond forget the shared noise."""
        first, last = self.ends
        inside = (first >= low) & (last <= high)
        a, b = np.clip(first, low, high), np.clip(last, low, high)
        return Affine(
            np.where(inside, self.centre, 0.5 * (a + b)),
            np.where(inside[:, None], self.shared, 0.0),
            np.where(inside, self.remainder, 0.5 * (b - a) * (1.0 + ROUNDING)),
        )


def _curved(x: Affine, value: FloatArray, slope: FloatArray, bend: FloatArray) -> Affine:
    """Return a function by its tangent at the centre; its second derivative is at most ``bend``."""
    remainder = np.abs(slope) * x.remainder + 0.5 * bend * x.radius**2
    return Affine(value, slope[:, None] * x.shared, remainder)


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
    """Return 1 / x; where x may be 0 the remainder is not finite."""
    least = np.abs(x.centre) - x.radius
    safe = least > 0.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bend = np.where(safe, 2.0 / np.where(safe, least, 1.0) ** 3, np.inf)
        value = np.where(safe, 1.0 / np.where(safe, x.centre, 1.0), 0.0)
        return _curved(x, value, -(value**2), bend)


State = Sequence[Any]
"""d affine forms, or arrays of numbers, of shape (n,) each."""


class Moving(Protocol):
    """How a world moves, written with +, -, *, / and the functions of ``affine``."""

    @property
    def error(self) -> FloatArray:
        """How far each component may be off after a step, shape (d,)."""

    @property
    def error_text(self) -> str:
        """Where that is from."""

    def step(self, state: State, output: FloatArray) -> list[Any]:
        """Return what follows where a rule does ``output``, a row of its outputs."""

    def may_end(self, state: Sequence[Affine]) -> BoolArray:
        """Whether an episode may end at some number of each set, shape (n,)."""


@dataclass(frozen=True)
class CartPole:
    """Gymnasium's CartPole-v1, whose constants these are; actions push to the left and right."""

    gravity: float = 9.8
    cart_mass: float = 1.0
    pole_mass: float = 0.1
    half_length: float = 0.5
    push: float = 10.0
    tau: float = 0.02
    limits: tuple[float, float] = (2.4, 12 * 2 * math.pi / 360)
    """Of position and angle."""

    @property
    def error(self) -> FloatArray:
        """None."""
        return np.zeros(4)

    @property
    def error_text(self) -> str:
        """Where that is from."""
        return "the dynamics of CartPole-v1, exact but for rounding"

    def step(self, state: State, output: FloatArray) -> list[Any]:
        """Return what follows a push: output (2, 1), a one among zeros."""
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
        """Whether position or angle may be beyond their limits."""
        beyond = np.zeros(len(state[0].centre), dtype=np.bool_)
        for component, limit in zip((state[0], state[2]), self.limits, strict=True):
            low, high = component.ends
            beyond |= (low < -limit) | (high > limit)
        return beyond


@dataclass(frozen=True)
class LearnedLaw:
    """One law of a learned world."""

    world: WorldArrays
    law: int
    error: FloatArray
    error_text: str

    def __post_init__(self) -> None:
        wrong = {
            "noise": len(self.world.residuals) > 0,
            "components of few values": len(self.world.frame) > LEVELS,
            "angles": len(self.world.circles) > 0,
        }
        found = [name for name, is_there in wrong.items() if is_there]
        if found:
            raise ValueError(
                f"the learned world has {' and '.join(found)}: certificates are for worlds without"
            )

    def step(self, state: State, output: FloatArray) -> list[Any]:
        """Return what the law says where a rule does ``output``."""
        frame, d, x = self.world.frame, len(state), self._standardised(state)
        terms: list[Any] = [1.0, *x]
        if self.world.laws.shape[2] > 1 + d:
            terms += [x[i] * x[k] for i in range(d) for k in range(i, d)]
        weights = enumerate(self._codes(state, output))
        codes = [(c, w) for c, w in weights if not np.isscalar(w) or w]
        waves = self._waves(x)
        near = self._near(x)
        following = []
        for j in range(d):
            shares = self.world.waves[self.law][d + 1 + j].astype(np.float64)
            total = _summed(waves, shares)
            for c, weight in codes:
                total = _summed(terms, self.world.laws[self.law][c, :, j]) * weight + total
                if near is not None:
                    total = near.says(c, j) * weight + total
            moved = state[j] + total * float(frame[SCALE, j])
            following.append(_clipped(moved, frame[LOW, j], frame[HIGH, j]))
        return following

    def _standardised(self, state: State) -> list[Any]:
        frame = self.world.frame
        return [(s - frame[MEAN, j]) * (1.0 / frame[SCALE, j]) for j, s in enumerate(state)]

    def _codes(self, state: State, output: FloatArray) -> list[Any]:
        """Return the code of the action: numbers, or where it is continuous sets of them."""
        if not self.world.boxed:
            return [float(value) for value in output[:, 0]]
        units = [_clipped(_summed([1.0, *state], row), -1.0, 1.0) for row in output]
        return [1.0, *units]

    def may_end(self, state: Sequence[Affine]) -> BoolArray:
        """Whether it may be beyond a wall, or where the classifier sees an end."""
        world, x = self.world, self._standardised(state)
        ends = np.zeros(len(x[0].centre), dtype=np.bool_)
        for component, sign, threshold in world.walls:
            ends |= ((x[int(component)] - threshold) * sign).ends[1] > 0.0
        if len(world.terms):
            hazards = world.hazards[self.law]
            total: Any = -float(hazards[-1])
            for (i, k), weight in zip(world.terms.tolist(), hazards, strict=False):
                one: Any = 1.0 if i == 0 else x[i - 1]
                other: Any = 1.0 if k == 0 else x[k - 1]
                total = one * other * float(weight) + total
            ends |= total.ends[1] > 0.0 if isinstance(total, Affine) else total > 0.0
        return ends

    def _waves(self, x: State) -> list[Any]:
        """Return the heights of sinusoids, as imagined steps compute them, to within 0.2 %."""
        waves = self.world.waves[self.law].astype(np.float64)
        d = len(x)
        found = []
        for column in waves.T:
            turns = _summed([*x, 1.0], column[: d + 1])
            height = sin(turns * (2.0 * math.pi))
            found.append(height.widened(_WAVE_ERROR) if isinstance(height, Affine) else height)
        return found

    def _near(self, x: State) -> "Near | None":
        """Return the three nearest cells, or all that may be; None where there are none."""
        codevectors, laws = self.world.codevectors[self.law], self.world.locals[self.law]
        if len(laws) == 0:
            return None
        if not isinstance(x[0], Affine):
            gaps = ((np.array(x).T[:, :, None] - codevectors) ** 2).sum(axis=1)
            nearest = np.argsort(gaps, axis=1, kind="stable")[:, :3]
            width = float(self.world.widths[self.law])
            shares = np.exp((gaps.min(axis=1, keepdims=True) - gaps) / width)
            weights = np.zeros(gaps.shape)
            np.put_along_axis(weights, nearest, np.take_along_axis(shares, nearest, 1), 1)
            weights /= weights.sum(axis=1, keepdims=True)
            return Near(codevectors, laws, x, np.where(weights < _NEGLIGIBLE, 0.0, weights))
        low, high = (np.column_stack(ends) for ends in zip(*(s.ends for s in x), strict=True))
        below, above = low[:, :, None] - codevectors, codevectors - high[:, :, None]
        nearest_square = (np.maximum(np.maximum(below, above), 0.0) ** 2).sum(axis=1)
        farthest_square = (np.maximum(-below, -above) ** 2).sum(axis=1)
        third = np.sort(farthest_square, axis=1)[:, min(2, len(laws) - 1)]
        possible = nearest_square <= third[:, None] * (1.0 + ROUNDING)
        return Near(codevectors, laws, x, possible / possible.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Near:
    """Cells near to states, with weights; near sets of them those that may be, with equal ones."""

    codevectors: FloatArray
    """Shape (d, K)."""
    laws: FloatArray
    """On (1, x - codevector), shape (K, C, 1 + d, d)."""
    x: State
    weights: FloatArray
    """Shape (n, K)."""

    def says(self, code: int, j: int) -> Any:
        """Return what they say of component j's change for one code of an action."""
        own = self.laws[:, code, :, j]
        offsets = own[:, 0] - (own[:, 1:] * self.codevectors.T).sum(axis=1)
        if not isinstance(self.x[0], Affine):
            return (self.weights * (offsets + np.array(self.x).T @ own[:, 1:].T)).sum(axis=1)
        centres = offsets + np.column_stack([one.centre for one in self.x]) @ own[:, 1:].T
        shared = np.einsum("ki,inm->nkm", own[:, 1:], np.array([one.shared for one in self.x]))
        remainder = np.column_stack([one.remainder for one in self.x]) @ np.abs(own[:, 1:]).T
        centre = (self.weights * centres).sum(axis=1)
        common = (self.weights[:, :, None] * shared).sum(axis=1)
        off = (
            np.abs(centres - centre[:, None])
            + np.abs(shared - common[:, None]).sum(axis=2)
            + remainder
        )
        size = np.abs(centres) + np.abs(shared).sum(axis=2) + remainder
        off += 3.0 * _NEGLIGIBLE * size  # of weights that are left out
        return Affine(centre, common, np.where(self.weights > 0.0, off, 0.0).max(axis=1))


def _summed(terms: Sequence[Any], weights: FloatArray) -> Any:
    total: Any = 0.0
    for term, weight in zip(terms, weights.tolist(), strict=True):
        if weight != 0.0:
            total = term * weight + total
    return total


def _clipped(value: Any, low: float, high: float) -> Any:
    return value.clipped(low, high) if isinstance(value, Affine) else np.clip(value, low, high)
