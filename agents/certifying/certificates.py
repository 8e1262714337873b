"""Certificates: from no state of a box does an episode end within so many steps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._threads import one_thread
from oda_rl._types import BoolArray, FloatArray
from oda_rl.agents.base.settings import checked_count
from oda_rl.agents.certifying.dynamics import ROUNDING, Affine, LearnedLaw, Moving
from oda_rl.agents.policies.export_tables import decisive
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.worlds.learning import CodedSteps, Learned
from oda_rl.agents.worlds.quality import held_out

_BINS = (32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
_SINGLE = 2.0**-23  # relative: observations are in single precision, states are not
_WORST_FRAME = 1e4  # condition number
_MAX_FRAMES = 3  # beside the components themselves
_HALVINGS = 7
_SETS = 400
_PARTS = 0.25  # of the sets, that a box is divided into to begin with


@dataclass(frozen=True, eq=False)
class Sets:
    """n sets, each of which is within a box in the coordinates of each of F frames."""

    low: FloatArray
    """Shape (n, F, d)."""
    high: FloatArray

    def __len__(self) -> int:
        return len(self.low)

    def some(self, chosen: BoolArray) -> "Sets":
        """Return some of them."""
        return Sets(self.low[chosen], self.high[chosen])

    def merged(self, n_max: int) -> "Sets":
        """Return at most so many that contain them, each that of near ones."""
        if len(self) <= n_max:
            return self
        middle = 0.5 * (self.low + self.high)[:, 0]
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
        return Sets(
            np.minimum.reduceat(self.low[order], begins),
            np.maximum.reduceat(self.high[order], begins),
        )


@dataclass(frozen=True, eq=False)
class Reach:
    """Follows a rule in a world."""

    world: Moving
    pieces: Sequence[tuple[FloatArray, FloatArray]]
    """(rows, output): where the rule does what; rows are affine functions, not negative there."""
    frames: FloatArray
    """Rows are coordinates in which sets are boxes, shape (F, d, d); sets are merged in those of
    the first."""

    def start(self, low: FloatArray, high: FloatArray, parts: int) -> Sets:
        """Enclose a box in about so many sets."""
        d = len(low)
        each = _shares(parts, d)
        grid = np.indices(each).reshape(d, -1).T
        width = (high - low) / np.array(each)
        first = low + grid * width
        last = first + width
        middle, half, none = 0.5 * (first + last), 0.5 * (last - first), np.zeros(len(first))
        return self._boxed(
            [Affine(middle[:, j], half[:, j : j + 1] * np.eye(d)[j], none) for j in range(d)]
        )

    def step(self, sets: Sets) -> tuple[Sets, bool]:
        """Return what follows, and whether an episode may have ended."""
        found = []
        for rows, output in self.pieces:
            part = self._cut(sets, rows)
            if len(part) == 0:
                continue
            ended, boxes = np.ones(len(part), dtype=np.bool_), []
            for f, back in enumerate(self._backs):
                state = self.world.step(_affine(part.low[:, f], part.high[:, f], back), output)
                moved = [one.widened(e) for one, e in zip(state, self.world.error, strict=True)]
                ended &= self.world.may_end(moved)
                boxes.append(self._boxed(moved))
            low = np.maximum.reduce([one.low for one in boxes])
            high = np.minimum.reduce([one.high for one in boxes])
            if ended.any() or not np.isfinite(high - low).all():
                return sets, True
            found.append(Sets(low, high).some((low <= high).all(axis=(1, 2))))
        low, high = (np.concatenate([vars(one)[end] for one in found]) for end in ("low", "high"))
        return Sets(low, high), False

    def steps_without_end(self, sets: Sets, steps: int, n_max: int) -> int:
        """Return after how many steps, at most so many, no episode can have ended."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite may have ended
            for t in range(steps):
                sets, ended = self.step(sets.merged(n_max))
                if ended:
                    return t
        return steps

    @cached_property
    def _backs(self) -> FloatArray:
        return np.asarray(np.linalg.inv(self.frames), dtype=np.float64)

    def _boxed(self, state: Sequence[Affine]) -> Sets:
        """Enclose components in boxes of the frames' coordinates."""
        n, d = len(state[0].centre), len(state)
        rows = self.frames.reshape(-1, d)
        centre = np.column_stack([one.centre for one in state]) @ rows.T
        shared = np.tensordot(np.array([one.shared for one in state]), rows.T, axes=(0, 0))
        remainder = np.column_stack([one.remainder for one in state]) @ np.abs(rows).T
        radius = np.asarray(np.abs(shared).sum(axis=1) + remainder)
        size = np.column_stack([np.abs(one.centre) + one.radius for one in state])
        radius += ROUNDING * (size @ np.abs(rows).T)
        shape = n, len(self.frames), d
        return Sets((centre - radius).reshape(shape), (centre + radius).reshape(shape))

    def _cut(self, sets: Sets, rows: FloatArray) -> Sets:
        """Return parts of sets outside of which no row is positive."""
        for row in rows:
            slack = self._slack(sets, row)
            for f, back in enumerate(self._backs):
                total, low, high = _tightened(sets, f, row, back, slack)
                sets = Sets(sets.low.copy(), sets.high.copy())
                sets.low[:, f], sets.high[:, f] = low, high
                sets, slack = sets.some(total >= 0.0), slack[total >= 0.0]
        return sets

    def _slack(self, sets: Sets, row: FloatArray) -> FloatArray:
        """Return by how much a row may seem greater: observations are in single precision."""
        back = np.abs(self._backs[-1])
        reach = np.maximum(np.abs(sets.low[:, -1]), np.abs(sets.high[:, -1])) @ back.T
        return np.asarray(_SINGLE * (reach @ np.abs(row[1:]) + abs(float(row[0]))))


def _tightened(
    sets: Sets, f: int, row: FloatArray, back: FloatArray, slack: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the maximum of a row, and bounds in frame f where it is not negative.

    They are exact where the row is one of the frame's coordinates.
    """
    low, high = sets.low[:, f].copy(), sets.high[:, f].copy()
    slopes = row[1:] @ back
    slopes = np.where(np.abs(slopes) > 1e-13 * np.abs(row[1:]) @ np.abs(back), slopes, 0.0)
    loss = ROUNDING * (np.maximum(np.abs(low), np.abs(high)) @ (np.abs(row[1:]) @ np.abs(back)))
    upper = np.maximum(low * slopes, high * slopes)
    total = row[0] + upper.sum(axis=1) + slack + loss
    for j in np.flatnonzero(slopes):
        bound = (upper[:, j] - total) / slopes[j]
        if slopes[j] > 0.0:
            low[:, j] = np.maximum(low[:, j], np.minimum(bound, high[:, j]))
        else:
            high[:, j] = np.minimum(high[:, j], np.maximum(bound, low[:, j]))
    return total, low, high


def _shares(parts: int, d: int) -> tuple[int, ...]:
    """Return numbers of parts along each of d sides, whose product is at most so many."""
    each, j = [1] * d, 0
    while np.prod(each) // each[j % d] * (each[j % d] + 1) <= parts:
        each[j % d] += 1
        j += 1
    return tuple(each)


def _affine(low: FloatArray, high: FloatArray, back: FloatArray) -> list[Affine]:
    """Return the state's components over boxes in a frame's coordinates."""
    middle, half = 0.5 * (low + high), 0.5 * np.maximum(high - low, 0.0)
    centres = middle @ back.T
    remainder = ROUNDING * (np.abs(middle) + half) @ np.abs(back).T
    return [Affine(centres[:, j], half * back[j], remainder[:, j]) for j in range(len(back))]


def frames(
    world: Moving,
    pieces: Sequence[tuple[FloatArray, FloatArray]],
    centre: FloatArray,
    scale: FloatArray,
) -> FloatArray:
    """Return coordinates, shape (F, d, d): those of sliding motions, and the components.

    The world's motion is taken for linear at ``centre``, shape (d,); sizes of ``scale``, shape
    (d,), count as equal.
    """
    found: list[FloatArray] = []
    outputs = [output for _, output in pieces]
    for rows, output in pieces:
        for other in outputs:
            if output is other or np.array_equal(output, other):
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
    world: Moving, output: FloatArray, centre: FloatArray, scale: FloatArray, slopes: FloatArray,
    effect: FloatArray,
) -> list[FloatArray]:  # fmt: skip
    """Return frames of the motion that is left where the action keeps ``slopes @ x`` at 0."""
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
    """Return the first row, and rows that the action has no effect on, with most zeros."""
    pivot = int(np.abs(effect).argmax())
    rows = [first]
    for j in range(len(effect)):
        if j != pivot:
            row = np.eye(len(effect))[j]
            row[pivot] = -effect[j] / effect[pivot]
            rows.append(row)
    return np.array(rows)


def _moved(world: Moving, point: FloatArray, output: FloatArray) -> FloatArray:
    """Return what follows a state without error, shape (d,)."""
    return np.array([float(one[0]) for one in world.step(list(point[:, None]), output)])


@dataclass(frozen=True, eq=False)
class Certificate:
    """What has been proved of a rule in a world; ``print`` it."""

    low: FloatArray
    """Of the box in which episodes begin, shape (d,)."""
    high: FloatArray
    steps: int
    """Within which none ends."""
    share: float
    """Of the box that was asked for, along each side; 0 if nothing has been proved."""
    world: str
    """In which world, and with what error."""
    error: FloatArray
    """How far each component may be off after each step, shape (d,)."""
    names: tuple[str, ...]
    """Of the components."""
    policy: dict[str, npt.NDArray[Any]]
    """Arrays of the rule."""

    @property
    def lines(self) -> list[str]:
        """What it says."""
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
        """The same for JSON."""
        return {
            "low": self.low.tolist(), "high": self.high.tolist(), "steps": self.steps,
            "share": self.share, "world": self.world, "error": self.error.tolist(),
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self.lines)


@one_thread()
def certify(
    policy: RulePolicy,
    worlds: Sequence[Moving],
    low: FloatArray,
    high: FloatArray,
    steps: int,
    names: Sequence[str] | None = None,
    sets: int = _SETS,
) -> Certificate:
    """Find the largest box, scaled about its centre, from which no episode ends.

    Sets of states are followed in affine arithmetic; what the rule decides divides them. The proof
    holds in each of the worlds, with an error of each step, up to the rounding that is allowed for.

    Parameters
    ----------
    policy : RulePolicy
    worlds : sequence of Moving
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
        centre - share * half, centre + share * half, count, share, worlds[0].error_text,
        np.max([one.error for one in worlds], axis=0),
        tuple(names or (f"observation[{j}]" for j in range(d))), decisive(policy),
    )  # fmt: skip


@one_thread()
def certify_learned(
    policy: RulePolicy,
    learned: Learned,
    seen: CodedSteps,
    first: BoolArray | None,
    box: tuple[FloatArray, FloatArray],
    steps: int,
    names: Sequence[str],
    sets: int = _SETS,
) -> Certificate:
    """Certify a rule in each law of a learned world; see :func:`certify`.

    The world was learned from the steps ``seen``; ``first``, shape (n,), says which of them begin
    an episode. The error of a step is the largest of all held-out residuals, of laws that were
    fitted without the steps that they are asked about.
    """
    expected = held_out(learned, seen, first, np.random.default_rng(0))
    on = ~seen.ended
    error = np.abs(seen.after - expected)[on].max(axis=0)
    size = ", ".join(f"{value:.3g}" for value in error)
    text = (
        f"each of the {len(learned.arrays.laws)} learned laws, if no step is off by more than "
        f"({size}), the largest of {int(on.sum())} held-out residuals"
    )
    worlds = [LearnedLaw(learned.arrays, e, error, text) for e in range(len(learned.arrays.laws))]
    return certify(policy, worlds, *box, steps, names, sets)


def _greatest(proved: Callable[[float], bool]) -> float:
    """Return the greatest share that is proved, to within a hundredth of it; 0 if none is."""
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
