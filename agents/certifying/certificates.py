"""Certificates: no episode that begins in a box ends within a number of steps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray
from oda_rl.agents.base.settings import checked_count
from oda_rl.agents.certifying.dynamics import ROUNDING, Affine, CartPole
from oda_rl.agents.policies.export_tables import decisive
from oda_rl.agents.policies.rules import RulePolicy

_BINS = (32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
_SINGLE = 2.0**-23  # relative: the rule sees the state in single precision
_WORST_FRAME = 1e4  # condition number
_MAX_FRAMES = 3  # beside the components
_HALVINGS = 7
_SETS = 400
_PARTS = 0.25  # share of the sets into which the first box is divided


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
    pieces: Sequence[tuple[FloatArray, FloatArray]]
    """(rows, output): the rule's output where all rows, affine functions, are not negative."""
    frames: FloatArray
    """Shape (F, d, d); the first decides which sets are merged."""

    def start(self, low: FloatArray, high: FloatArray, parts: int) -> FloatArray:
        """Divide a box into about ``parts`` sets."""
        d = len(low)
        each = _shares(parts, d)
        grid = np.indices(each).reshape(d, -1).T
        width = (high - low) / np.array(each)
        first = low + grid * width
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

    def steps_without_end(self, sets: FloatArray, steps: int, n_max: int) -> int:
        """Return the number of steps, at most ``steps``, after which no episode can have ended."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite may have ended
            for t in range(steps):
                sets, ended = self.step(merged(sets, n_max))
                if ended:
                    return t
        return steps

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


def _shares(parts: int, d: int) -> tuple[int, ...]:
    """Return the number of parts along each of d sides; their product is at most ``parts``."""
    each, j = [1] * d, 0
    while np.prod(each) // each[j % d] * (each[j % d] + 1) <= parts:
        each[j % d] += 1
        j += 1
    return tuple(each)


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
    found: list[FloatArray] = []
    for rows, output in pieces:
        for _, other in pieces:
            if np.array_equal(output, other):
                continue
            effect = _moved(world, centre, output) - _moved(world, centre, other)
            for row in rows:
                through = float(row[1:] @ effect)
                if abs(through) > 1e-9 * np.abs(row[1:]) @ np.abs(effect):
                    found += _sliding(world, output, centre, scale, row[1:], effect / through)
    unlike: list[FloatArray] = []
    for frame in found:
        if np.linalg.cond(frame * scale) < _WORST_FRAME and not any(
            np.allclose(np.abs(frame), np.abs(one), rtol=1e-3, atol=1e-6) for one in unlike
        ):
            unlike.append(frame)
    return np.array([*unlike[:_MAX_FRAMES], np.diag(1.0 / scale)])


def _sliding(
    world: CartPole, output: FloatArray, centre: FloatArray, scale: FloatArray, slopes: FloatArray,
    effect: FloatArray,
) -> list[FloatArray]:  # fmt: skip
    """Return frames of the motion that is left where the action holds ``slopes @ x`` at 0."""
    from scipy.linalg import eig, schur

    d = len(centre)
    step = 1e-4 * scale
    jacobian = np.column_stack([
        (_moved(world, centre + step[j] * e, output) - _moved(world, centre - step[j] * e, output))
        / (2.0 * step[j])
        for j, e in enumerate(np.eye(d))
    ])  # fmt: skip
    held = (np.eye(d) - np.outer(effect, slopes)) @ jacobian
    unit = held * scale / scale[:, None]
    first = slopes * scale / np.linalg.norm(slopes * scale)
    values, left, _ = eig(unit, left=True)
    rows, done = [first], np.zeros(d, dtype=np.bool_)
    done[np.abs(values).argmin()] = True
    for k in np.argsort(np.abs(values)):
        if done[k]:
            continue
        done[k] = True
        rows.append(left[:, k].real)
        if abs(values[k].imag) > 0.0:
            done[np.abs(values - values[k].conj()).argmin()] = True
            rows.append(left[:, k].imag)
    by_vectors = np.array(rows[:d])
    _, rotated, _ = schur(unit.T, sort=lambda re, im=0.0: abs(complex(re, im)) < 0.5)
    by_schur = rotated.T.copy()
    by_schur[np.abs(by_schur @ first).argmax()] = first
    complete = [
        one for one in (by_vectors, by_schur, _apart(first, effect / scale)) if len(one) == d
    ]
    return [one / np.linalg.norm(one, axis=1, keepdims=True) / scale for one in complete]


def _apart(first: FloatArray, effect: FloatArray) -> FloatArray:
    """Return the first row, and sparse rows that the action does not change."""
    pivot = int(np.abs(effect).argmax())
    rows = [first]
    for j in range(len(effect)):
        if j != pivot:
            row = np.eye(len(effect))[j]
            row[pivot] = -effect[j] / effect[pivot]
            rows.append(row)
    return np.array(rows)


def _moved(world: CartPole, point: FloatArray, output: FloatArray) -> FloatArray:
    """Return the state after one step, shape (d,)."""
    return np.array([float(one[0]) for one in world.step(list(point[:, None]), output)])


@dataclass(frozen=True, eq=False)
class Certificate:
    """A proof about a rule under known dynamics; ``print`` it."""

    low: FloatArray
    """Lower bounds of the box in which episodes begin, shape (d,)."""
    high: FloatArray
    steps: int
    """Number of steps within which no episode ends."""
    share: float
    """Size of the box relative to the requested one, per side; 0 if nothing is proved."""
    world: str
    """Description of the dynamics."""
    names: tuple[str, ...]
    """Of the components."""
    policy: dict[str, npt.NDArray[Any]]
    """Arrays of the rule."""

    @property
    def lines(self) -> list[str]:
        """The certificate in words."""
        if self.share == 0.0:
            text = f"from no box that was tried does it stay up {self.steps} steps."
            return [f"Not certified: {text}"]
        ends = zip(self.names, self.low.tolist(), self.high.tolist(), strict=True)
        return [
            f"Certified: no episode that begins in this box ends within {self.steps} steps",
            *(f"    {name} from {a:.6g} to {b:.6g}" for name, a, b in ends),
            f"in {self.world}.",
            "It is a proof about that world, and not about any other.",
        ]

    @property
    def document(self) -> dict[str, Any]:
        """The certificate for JSON."""
        return {
            "low": self.low.tolist(), "high": self.high.tolist(), "steps": self.steps,
            "share": self.share, "world": self.world,
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self.lines)


@one_thread()
def certify(
    policy: RulePolicy,
    worlds: Sequence[CartPole],
    low: FloatArray,
    high: FloatArray,
    steps: int,
    names: Sequence[str] | None = None,
    sets: int = _SETS,
) -> Certificate:
    """Find the largest box, scaled about its centre, from which no episode ends.

    Sets of states are propagated in affine arithmetic and divided where the rule's decision
    changes. The proof holds for all given dynamics, rounding included.

    Parameters
    ----------
    policy : RulePolicy
    worlds : sequence of CartPole
        As :class:`~oda_rl.agents.certifying.dynamics.CartPole`.
    low, high : array_like, shape (d,)
        The box that is asked for.
    steps : int
        Within which no episode ends, at least 1.
    names : sequence of str, optional
        Names of the components.
    sets : int
        Number of sets that are followed at once: more prove more, and take longer.

    Raises
    ------
    ValueError
        For bounds that are not finite or not in order, or numbers below 1.

    Examples
    --------
    >>> from oda_rl.agents.certifying.dynamics import CartPole
    >>> scores = np.array([[0.0] * 5, [0.0, 0.0, 0.0, 6.0, 1.0]])
    >>> rule = RulePolicy(scores, np.eye(2)[:, :, None], np.zeros((2, 4)))
    >>> found = certify(rule, [CartPole()], [-0.05] * 4, [0.05] * 4, steps=50, sets=50)
    >>> print(found.lines[0])
    Certified: no episode that begins in this box ends within 50 steps
    """
    first, last = (np.array(end, dtype=np.float64) for end in (low, high))
    d = policy.scores.shape[1] - 1
    if first.shape != (d,) or last.shape != (d,) or not (first <= last).all():
        raise ValueError(f"low is {low!r} and high {high!r}: they must be {d} numbers, in order")
    if not np.isfinite([first, last]).all():
        raise ValueError(f"low is {low!r} and high {high!r}: they must be finite")
    count, n_max = checked_count("steps", steps), checked_count("sets", sets)
    output = policy.all_outputs
    pieces = [(one.rows, output[one.cell]) for one in policy.pieces]
    centre, half = 0.5 * (first + last), 0.5 * (last - first)
    scale = np.where(half > 0.0, half, 1.0)
    follow = [Reach(one, pieces, frames(one, pieces, centre, scale)) for one in worlds]

    def proved(share: float) -> bool:
        box = centre - share * half, centre + share * half
        parts = max(int(_PARTS * n_max), 1)
        return all(
            one.steps_without_end(one.start(*box, parts), count, n_max) == count for one in follow
        )

    share = _greatest(proved)
    return Certificate(
        centre - share * half, centre + share * half, count, share, worlds[0].description,
        tuple(names or (f"observation[{j}]" for j in range(d))), decisive(policy),
    )  # fmt: skip


def _greatest(proved: Callable[[float], bool]) -> float:
    """Return the largest share that is proved, to within 1 %; 0 if none is."""
    if proved(1.0):
        return 1.0
    share, beyond = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * beyond if share == 0.0 else math.sqrt(share * beyond)
        if proved(middle):
            share = middle
        else:
            beyond = middle
    return share
