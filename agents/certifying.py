"""Certificates: no episode from a box terminates within a number of steps.

Sets of states are propagated in affine arithmetic, in coordinates of the motion that is left where
actions hold the rule's scores equal (sliding motion).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np

from oda_rl._threads import one_thread
from oda_rl._types import BoolArray, FloatArray
from oda_rl.agents.base.settings import checked_count
from oda_rl.agents.policies.rules import RulePolicy

ROUNDING = 1e-12  # relative
_BINS = (32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
_SINGLE = 2.0**-23  # relative: the rule sees the state in single precision
_HALVINGS = 7
_PARTS = 0.25  # share of the sets into which the first box is divided


@dataclass(frozen=True, eq=False)
class Affine:
    """n affine forms over m shared noise symbols, each symbol in [-1, 1]."""

    centre: FloatArray  # shape (n,)
    shared: FloatArray  # coefficients of the noise symbols, shape (n, m)
    remainder: FloatArray  # radius of each form's independent noise, shape (n,)

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
        remainder = self.remainder + other.remainder
        return Affine(self.centre + other.centre, self.shared + other.shared, remainder)

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

    def __truediv__(self, other: "Affine") -> "Affine":
        """Divide; where the other can be 0 the remainder is infinite."""
        lower = np.abs(other.centre) - other.radius
        safe = lower > 0.0
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            bend = np.where(safe, 2.0 / np.where(safe, lower, 1.0) ** 3, np.inf)
            value = np.where(safe, 1.0 / np.where(safe, other.centre, 1.0), 0.0)
            return self * _by_tangent(other, value, -(value**2), bend)


def _by_tangent(x: Affine, value: FloatArray, slope: FloatArray, bend: FloatArray) -> Affine:
    """Enclose a function by its tangent at the centre and a bound on its second derivative."""
    remainder = np.abs(slope) * x.remainder + 0.5 * bend * x.radius**2
    return Affine(value, slope[:, None] * x.shared, remainder)


def sine_and_cosine(x: Any) -> tuple[Any, Any]:
    """Return sine and cosine of affine forms, or of numbers."""
    if not isinstance(x, Affine):
        return np.sin(x), np.cos(x)
    sine, cosine = np.sin(x.centre), np.cos(x.centre)
    bend = np.minimum(1.0, np.abs(x.centre) + x.radius)
    return _by_tangent(x, sine, cosine, bend), _by_tangent(x, cosine, -sine, np.ones_like(sine))


@dataclass(frozen=True)
class CartPole:
    """Dynamics of Gymnasium's CartPole-v1, whose constants are the defaults."""

    gravity: float = 9.8
    cart_mass: float = 1.0
    pole_mass: float = 0.1
    half_length: float = 0.5
    push: float = 10.0
    tau: float = 0.02
    limits: tuple[float, float] = (2.4, 12 * 2 * math.pi / 360)  # of position (m) and angle (rad)

    def __str__(self) -> str:
        """Return what differs from CartPole-v1."""
        pairs = [(one.name, getattr(self, one.name), one.default) for one in fields(self)]
        changed = ", ".join(f"{name}={value!r}" for name, value, usual in pairs if value != usual)
        return f"CartPole-v1 with {changed}" if changed else "CartPole-v1"

    def step(self, state: Sequence[Any], output: FloatArray) -> list[Any]:
        """Return the next state.

        Parameters
        ----------
        state : sequence of 4 affine forms, or arrays
            Position, velocity, angle and angular velocity.
        output : ndarray, shape (2, 1)
            One for the push that is taken, left or right, and zero for the other.
        """
        x, speed, angle, turning = state
        force = self.push if output[1, 0] > 0.0 else -self.push
        mass = self.cart_mass + self.pole_mass
        moment = self.pole_mass * self.half_length
        sine, cosine = sine_and_cosine(angle)
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


def merged(sets: FloatArray, n_max: int) -> FloatArray:
    """Merge neighbouring sets until at most ``n_max`` are left."""
    if len(sets) <= n_max:
        return sets
    middle = sets[:, :, 0].mean(axis=1)
    first, spread = middle.min(axis=0), np.ptp(middle, axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)
    for bins in _BINS:
        places = np.minimum((middle - first) / spread * bins, bins - 1).astype(np.int64)
        keys = np.ravel_multi_index(list(places.T), (bins,) * len(first))
        _, groups = np.unique(keys, return_inverse=True)
        if groups.max() < n_max:
            break
    order = np.argsort(groups, kind="stable")
    begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
    low, high = sets[order, 0], sets[order, 1]
    return np.stack([np.minimum.reduceat(low, begins), np.maximum.reduceat(high, begins)], axis=1)


@dataclass(frozen=True, eq=False)
class Reach:
    """Propagates n sets of states under a rule.

    Each set is the intersection of boxes in the coordinates of F frames: lower and upper bounds,
    shape (n, 2, F, d).
    """

    world: CartPole
    pieces: Sequence[tuple[FloatArray, FloatArray]]  # (rows, output): where all rows are >= 0
    frames: FloatArray  # shape (F, d, d); the first decides which sets are merged

    def start(self, low: FloatArray, high: FloatArray, parts: int) -> FloatArray:
        """Divide a box into at most ``parts`` sets."""
        d = len(low)
        each, j = [1] * d, 0
        while np.prod(each) // each[j % d] * (each[j % d] + 1) <= parts:
            each[j % d] += 1
            j += 1
        width = (high - low) / np.array(each)
        first = low + np.indices(each).reshape(d, -1).T * width
        return self._boxed(_affine(first, first + width, np.eye(d), 0.0))

    def step(self, sets: FloatArray) -> tuple[FloatArray, bool]:
        """Return the sets after a step, and whether an episode may have ended."""
        after = []
        for rows, output in self.pieces:
            part = self._cut(sets, rows)
            if len(part) == 0:
                continue
            states = [
                self.world.step(_affine(part[:, 0, f], part[:, 1, f], back), output)
                for f, back in enumerate(self._backs)
            ]
            boxes = np.array([self._boxed(state) for state in states])
            low, high = boxes[:, :, 0].max(axis=0), boxes[:, :, 1].min(axis=0)
            ended = np.logical_and.reduce([self.world.may_end(state) for state in states])
            if ended.any() or not np.isfinite(high - low).all():
                return sets, True
            after.append(np.stack([low, high], axis=1)[(low <= high).all(axis=(1, 2))])
        return np.concatenate(after), False

    def goes_on(self, sets: FloatArray, steps: int, n_max: int) -> bool:
        """Whether no episode ends within some steps."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite may have ended
            for _ in range(steps):
                sets, ended = self.step(merged(sets, n_max))
                if ended:
                    return False
        return True

    @cached_property
    def _backs(self) -> FloatArray:
        return np.asarray(np.linalg.inv(self.frames), dtype=np.float64)

    def _boxed(self, state: Sequence[Affine]) -> FloatArray:
        """Enclose components in boxes of the frames' coordinates."""
        n, d = len(state[0].centre), len(state)
        rows = self.frames.reshape(-1, d)
        centre = np.column_stack([one.centre for one in state]) @ rows.T
        shared = np.tensordot(np.array([one.shared for one in state]), rows.T, axes=(0, 0))
        remainder = np.column_stack([one.remainder for one in state]) @ np.abs(rows).T
        radius = np.abs(shared).sum(axis=1) + remainder
        size = np.column_stack([np.abs(one.centre) + one.radius for one in state])
        radius += ROUNDING * (size @ np.abs(rows).T)
        return np.stack([centre - radius, centre + radius], axis=1).reshape(n, 2, -1, d)

    def _cut(self, sets: FloatArray, rows: FloatArray) -> FloatArray:
        """Shrink sets to where the rows are not negative; drop those that are empty."""
        for row in rows:
            slopes, back = np.abs(row[1:]), np.abs(self._backs[-1])
            reach = np.abs(sets[:, :, -1]).max(axis=1) @ back.T
            slack = _SINGLE * (reach @ slopes + abs(float(row[0])))
            for f, back in enumerate(self._backs):
                sets = sets.copy()
                positive = _tighten(sets[:, 0, f], sets[:, 1, f], row, back, slack) >= 0.0
                sets, slack = sets[positive], slack[positive]
        return sets


def _tighten(
    low: FloatArray, high: FloatArray, row: FloatArray, back: FloatArray, slack: FloatArray
) -> FloatArray:
    """Tighten bounds in place to where a row is not negative; return the row's maximum."""
    slopes = row[1:] @ back
    slopes = np.where(np.abs(slopes) > 1e-13 * np.abs(row[1:]) @ np.abs(back), slopes, 0.0)
    loss = ROUNDING * (np.maximum(np.abs(low), np.abs(high)) @ (np.abs(row[1:]) @ np.abs(back)))
    upper = np.maximum(low * slopes, high * slopes)
    total = np.asarray(row[0] + upper.sum(axis=1) + slack + loss)
    for j in np.flatnonzero(slopes):
        bound = (upper[:, j] - total) / slopes[j]
        if slopes[j] > 0.0:
            low[:, j] = np.maximum(low[:, j], np.minimum(bound, high[:, j]))
        else:
            high[:, j] = np.minimum(high[:, j], np.maximum(bound, low[:, j]))
    return total


def _affine(
    low: FloatArray, high: FloatArray, back: FloatArray, rounding: float = ROUNDING
) -> list[Affine]:
    """Return the state's components as affine forms over boxes in a frame's coordinates."""
    middle, half = 0.5 * (low + high), 0.5 * np.maximum(high - low, 0.0)
    centres = middle @ back.T
    remainder = rounding * (np.abs(middle) + half) @ np.abs(back).T
    return [Affine(centres[:, j], half * back[j], remainder[:, j]) for j in range(len(back))]


def frames(
    world: CartPole,
    pieces: Sequence[tuple[FloatArray, FloatArray]],
    centre: FloatArray,
    scale: FloatArray,
) -> FloatArray:
    """Return coordinates, shape (F, d, d): those of sliding motions, and the components.

    The motion is linearised at ``centre``, shape (d,), in units of ``scale``, shape (d,).
    """

    def moved(point: FloatArray, output: FloatArray) -> FloatArray:
        return np.array([float(one[0]) for one in world.step(list(point[:, None]), output)])

    found: list[FloatArray] = []
    for (rows, output), (_, other) in permutations(pieces, 2):
        effect = moved(centre, output) - moved(centre, other)
        jacobian = np.column_stack([
            (moved(centre + step, output) - moved(centre - step, output)) / (2.0 * step.max())
            for step in np.diag(1e-4 * scale)
        ])  # fmt: skip
        for slopes in rows[:, 1:]:
            through = float(slopes @ effect)
            if abs(through) > 1e-9 * np.abs(slopes) @ np.abs(effect):
                sliding = (np.eye(len(centre)) - np.outer(effect / through, slopes)) @ jacobian
                frame = _schur_frame(sliding * scale / scale[:, None], slopes * scale) / scale
                if np.linalg.cond(frame * scale) < 1e4 and not any(
                    np.allclose(np.abs(frame), np.abs(one), rtol=1e-3, atol=1e-6) for one in found
                ):
                    found.append(frame)
    return np.array([*found[:3], np.diag(1.0 / scale)])  # beside the components


def _schur_frame(motion: FloatArray, slopes: FloatArray) -> FloatArray:
    """Return Schur vectors of a motion's transpose, one of which is replaced by the slopes."""
    from scipy.linalg import schur

    first = slopes / np.linalg.norm(slopes)
    _, rotated, _ = schur(motion.T, sort=lambda re, im=0.0: abs(complex(re, im)) < 0.5)
    frame = rotated.T.copy()
    frame[np.abs(frame @ first).argmax()] = first
    return np.asarray(frame)


@dataclass(frozen=True, eq=False)
class Certificate:
    """A proof about a rule under known dynamics; ``print`` it."""

    low: FloatArray  # lower bounds of the box in which episodes begin, shape (d,)
    high: FloatArray
    steps: int  # number of steps within which no episode ends
    share: float  # size of the box relative to the requested one, per side; 0 if nothing is proved
    worlds: tuple[CartPole, ...]
    names: tuple[str, ...]  # names of the components

    def __str__(self) -> str:
        if self.share == 0.0:
            return f"Not certified: no box was found from which it stays up {self.steps} steps"
        ends = zip(self.names, self.low.tolist(), self.high.tolist(), strict=True)
        return "\n".join([
            f"Certified: no episode that begins in this box ends within {self.steps} steps",
            *(f"    {name} from {a:.6g} to {b:.6g}" for name, a, b in ends),
            f"in the dynamics of {' and of '.join(map(str, self.worlds))}, exact but for rounding.",
            "It is a proof about no other world.",
        ])  # fmt: skip


@one_thread()
def certify(
    policy: Any,
    worlds: Sequence[CartPole],
    low: FloatArray,
    high: FloatArray,
    steps: int,
    sets: int = 400,
) -> Certificate:
    """Find the largest box, scaled about its centre, from which no episode ends.

    Sets of states are propagated in affine arithmetic and divided where the rule's decision
    changes. The proof holds for all given dynamics, rounding included.

    Parameters
    ----------
    policy : RulePolicy or agent
        A rule of two actions on four components, or an agent whose policy is one.
    worlds : sequence of CartPole
        Dynamics, with the constants of each.
    low, high : array_like, shape (4,)
        The box that is asked for.
    steps : int
        Within which no episode ends, at least 1.
    sets : int
        Number of sets that are followed at once: more prove more, and take longer.

    Raises
    ------
    ValueError
        For a policy that is no such rule, worlds that are not a sequence of CartPole, bounds that
        are not finite or not in order, or numbers below 1.

    Examples
    --------
    >>> scores = np.array([[0.0] * 5, [0.0, 0.0, 0.0, 6.0, 1.0]])
    >>> rule = RulePolicy(scores, np.eye(2)[:, :, None], np.zeros((2, 4)))
    >>> found = certify(rule, [CartPole()], [-0.05] * 4, [0.05] * 4, steps=50, sets=50)
    >>> print(str(found).splitlines()[0])
    Certified: no episode that begins in this box ends within 50 steps
    """
    policy = getattr(policy, "policy", policy)
    rule = isinstance(policy, RulePolicy)
    if not rule or policy.outputs.shape[1:] != (2, 1) or policy.scores.shape[1] != 5:
        raise ValueError(
            f"policy is of type {type(policy).__name__}: it must be a rule of two discrete actions "
            "on four components, as those that ModelAgent and agent.simplify() make for CartPole"
        )
    given = tuple(worlds) if isinstance(worlds, Sequence) else ()
    if not given or not all(isinstance(one, CartPole) for one in given):
        raise ValueError(f"worlds is {worlds!r}: it must be a list of CartPole, at least one")
    first, last = (np.array(end, dtype=np.float64) for end in (low, high))
    if first.shape != (4,) or last.shape != (4,) or not (first <= last).all():
        raise ValueError(f"low is {low!r} and high {high!r}: they must be 4 numbers, in order")
    if not np.isfinite([first, last]).all():
        raise ValueError(f"low is {low!r} and high {high!r}: they must be finite")
    count, n_max = checked_count("steps", steps), checked_count("sets", sets)
    pieces = [(one.rows, policy.all_outputs[one.cell]) for one in policy.pieces]
    centre, half = 0.5 * (first + last), 0.5 * (last - first)
    scale = np.where(half > 0.0, half, 1.0)
    follow = [Reach(one, pieces, frames(one, pieces, centre, scale)) for one in given]

    def proved(share: float) -> bool:
        box = centre - share * half, centre + share * half
        parts = max(int(_PARTS * n_max), 1)
        return all(one.goes_on(one.start(*box, parts), count, n_max) for one in follow)

    share, beyond = (1.0, 1.0) if proved(1.0) else (0.0, 1.0)
    for _ in range(_HALVINGS if share == 0.0 else 0):  # to within 1 %
        middle = 0.5 * beyond if share == 0.0 else math.sqrt(share * beyond)
        share, beyond = (middle, beyond) if proved(middle) else (share, middle)
    return Certificate(
        centre - share * half, centre + share * half, count, share, given,
        tuple(policy.names or (f"observation[{j}]" for j in range(4))),
    )  # fmt: skip
