"""Proofs about rules by linear programs: which actions occur in a box, and where.

A rule with clauses is a set of polyhedra; in each, one cell or one clause decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import Any, NamedTuple

import numpy as np

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.environments.names import number_text, scales_between

_TINY = 1e-9
_ZOOM = 1e-5  # share of the scale at which a small interior is looked for
_HUGE = 1e10  # a component counts as unbounded from this half width
_ROUNDING = 1e-15  # relative
_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def point_in(
    rows: FloatArray, strict: BoolArray | None = None, box: FloatArray | None = None
) -> FloatArray | None:
    """Return a point of a polyhedron, deep in its interior if there is one; None if it is empty.

    Its rows, shape (m, 1 + d), are affine functions that are positive in it, or not negative where
    ``strict``, shape (m,), is False. ``box``, shape (2, d), are bounds.
    """
    d = rows.shape[1] - 1
    hard = np.ones(len(rows), dtype=np.bool_) if strict is None else strict
    box = np.outer([-np.inf, np.inf], np.ones(d)) if box is None else box
    centre, scale = _centre_and_scale(rows, box)
    unit, flat, _ = _scaled(rows, box, centre, scale)
    if np.where(hard, unit[:, 0] <= 0.0, unit[:, 0] < 0.0)[flat].any():
        return None
    for need in (np.ones(len(rows)), hard.astype(np.float64)):
        point = centre
        for size, reach in ((scale, np.inf), (_ZOOM * scale, 1.0)):
            unit, _, ends = _scaled(rows, box, point, size, reach)
            unit, ends = np.column_stack([unit, -need])[~flat], np.vstack([ends, (0.0, 1.0)])
            found = _solved(np.append(np.zeros(d), -1.0), unit, ends)
            if found is None:
                break
            point = np.clip(point + size * found[:-1], *box)
            if found[-1] > _TINY or not need.any():
                return np.asarray(point)
    return None


def range_in(row: FloatArray, rows: FloatArray, box: FloatArray) -> list[float]:
    """Return infimum and supremum of an affine function in a polyhedron that is not empty.

    ``row`` has shape (1 + d,); ``rows`` and ``box`` are those of :func:`point_in`.
    """
    centre, scale = _centre_and_scale(rows, box)
    largest = np.abs(scale * row[1:]).max(initial=0.0) or 1.0
    wide = (0.5 * box[1] - 0.5 * box[0] >= _HUGE) & (row[1:] != 0.0)
    scale[wide] = np.minimum(largest / np.abs(row[1:][wide]), 1e100)  # or no change is noticed
    unit, flat, ends = _scaled(rows, box, centre, scale)
    slopes, found = scale * row[1:], []
    for sign in (1.0, -1.0):
        best = _solved(sign * slopes / largest, unit[~flat], ends)
        change = -sign * np.inf if best is None else slopes @ best
        found.append(float(row[0] + row[1:] @ centre + change))
    return found


def _solved(cost: FloatArray, rows: FloatArray, ends: FloatArray) -> FloatArray | None:
    """Return where a cost is least; None if nowhere, or if it has no bound."""
    from scipy.optimize import linprog

    matrix, offsets = -rows[:, 1:], rows[:, 0]
    found = linprog(cost, matrix, offsets, bounds=ends, method="highs", options=_OPTIONS)
    return np.asarray(found.x) if found.status == 0 else None


def _centre_and_scale(rows: FloatArray, box: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return centre and scale of each component, (d,): linear programs need numbers near 1.

    The scale is half the width of the box. Of an unbounded component it is the shortest way on
    which a row changes as much as by its offset, or in what is scaled already.
    """
    scale = 0.5 * box[1] - 0.5 * box[0]
    known = scale < _HUGE
    near = np.where(np.abs(box) < _HUGE, box, 0.0)
    centre = np.clip(np.where(near[0] != 0.0, near[0], near[1]), box[0], box[1])
    centre[known] = 0.5 * box[:, known].sum(axis=0)
    offsets, slopes = np.abs(rows[:, 0] + rows[:, 1:] @ centre), np.abs(rows[:, 1:])
    while not known.all():
        sizes = offsets + slopes[:, known] @ scale[known]
        steep = (slopes[sizes > 0.0] / sizes[sizes > 0.0, None]).max(axis=0, initial=0.0)
        if not steep[~known].any():  # any scale will do
            steep[np.argmin(known)] = 1.0
        reached = ~known & (steep > 0.0)
        scale[reached] = np.clip(1.0 / steep[reached], 1e-100, 1e100)
        known = known | reached
    return centre, scale


def _scaled(
    rows: FloatArray, box: FloatArray, centre: FloatArray, scale: FloatArray, reach: float = np.inf
) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Return rows in scaled components, with slopes of norm 1, which are constant, and bounds.

    Bounds, shape (d, 2), are at most ``reach`` from the centre.
    """
    unit = np.column_stack([rows[:, 0] + rows[:, 1:] @ centre, rows[:, 1:] * scale])
    norms = np.linalg.norm(unit[:, 1:], axis=1)
    rounding = _ROUNDING * (np.abs(rows[:, 0]) + np.abs(rows[:, 1:]) @ np.abs(centre))
    flat = norms <= rounding
    unit[flat & (np.abs(unit[:, 0]) <= rounding), 0] = 0.0
    ends = np.clip((box - centre) / np.where(scale > 0.0, scale, 1.0), -reach, reach)
    return unit / np.where(flat, 1.0, norms)[:, None], flat, ends.T


class Piece(NamedTuple):
    """A polyhedron in which one cell or clause decides."""

    rows: FloatArray  # not negative in the piece, shape (m, 1 + d)
    strict: BoolArray  # which of them are positive, shape (m,)
    cell: int  # the cell, from 0, or the clause, from K; -1 while undecided
    inside: FloatArray  # a point of the piece


def split(
    scores: FloatArray,
    actions: IntArray,
    forbids: Sequence[tuple[FloatArray, int]],
    says: Sequence[tuple[FloatArray, int]],
    box: FloatArray,
) -> list[Piece]:
    """Split a rule into polyhedra within bounds, (2, d); return those that are not empty.

    ``forbids`` and ``says``, clauses in order of precedence, are (rows, action).
    """

    def within(piece: Piece, rows: FloatArray, cell: int = -1, strict: Any = True) -> list[Piece]:
        """Return the part of a piece where rows are positive, if it is not empty."""
        strict = np.append(piece.strict, np.full(len(rows), strict))
        rows = np.concatenate([piece.rows, rows])
        inside = point_in(rows, strict, box)
        return [] if inside is None else [Piece(rows, strict, cell, inside)]

    def without(piece: Piece, rows: FloatArray) -> list[Piece]:
        """Return the parts where a clause does not hold."""
        outside: list[Piece] = []
        for r in range(len(rows)):  # where row r is the first that does not hold
            first = np.concatenate([rows[:r], -rows[r : r + 1]])
            outside += within(piece, first, strict=np.arange(r + 1) < r)
        return outside

    no_rows = np.zeros((0, scores.shape[1]))
    everywhere = Piece(no_rows, np.zeros(0, dtype=np.bool_), -1, no_rows[:, 0])
    parts: list[tuple[Piece, frozenset[int]]]
    parts = [(piece, frozenset()) for piece in within(everywhere, no_rows)]
    for rows, action in forbids:
        before, parts = parts, []
        for piece, barred in before:
            parts += [(part, barred | {action}) for part in within(piece, rows)]
            parts += [(part, barred) for part in without(piece, rows)]
    found: list[Piece] = []
    for cell, (rows, action) in enumerate(says, len(scores)):
        undecided = []
        for piece, barred in parts:
            if action in barred:
                undecided.append((piece, barred))
            else:
                found += within(piece, rows, cell)
                undecided += [(part, barred) for part in without(piece, rows)]
        parts = undecided
    for piece, barred in parts:
        allowed = np.array([k for k in range(len(scores)) if actions[k] not in barred])
        for k in allowed.tolist():
            others = allowed[allowed != k]
            found += within(piece, scores[k] - scores[others], k, others < k)
    return found


@dataclass(frozen=True, eq=False)
class Proof:
    """Which choices a rule makes in a box; ``print`` it.

    A choice is an action, or where actions are continuous a cell.
    """

    low: FloatArray  # lower bounds of the box, shape (d,)
    high: FloatArray
    occurs: tuple[int, ...]  # choices that are made somewhere in the box
    never: tuple[int, ...]  # choices that are made nowhere in it
    at_most: tuple[int, ...]  # those made on a boundary at most, up to rounding: no state was found
    states: dict[int, FloatArray]  # a state of the box, shape (d,), for each choice that occurs
    names: tuple[str, ...]  # names of the components
    choice_names: tuple[str, ...]
    ranges: dict[str, tuple[float, float]]  # minimum and maximum of each action component, by name
    bounds: FloatArray  # of continuous actions, shape (2, p)

    def __str__(self) -> str:
        scale = scales_between(self.low, self.high)
        ends = zip(self.names, self.low.tolist(), self.high.tolist(), scale, strict=True)
        box = [
            f"{name} from {number_text(a, s)} to {number_text(b, s)}"
            for name, a, b, s in ends
            if np.isfinite([a, b]).any()
        ]
        lines = [f"where {', '.join(box) or 'anything'}:"]
        for choice in self.occurs if len(self.choice_names) > 1 else ():
            state = ", ".join(map(number_text, self.states[choice], scale))
            lines.append(f"  {self.choice_names[choice]}: occurs, as at ({state})")
        lines += [f"  {self.choice_names[a]}: on a boundary, if at all" for a in self.at_most]
        lines += [f"  {self.choice_names[choice]}: never" for choice in self.never]
        ranges = zip(self.ranges.items(), scales_between(*self.bounds), strict=False)
        for (name, (a, b)), s in ranges:
            lower = number_text(a, s, rounding=ROUND_FLOOR)
            lines.append(f"  {name} from {lower} to {number_text(b, s, rounding=ROUND_CEILING)}")
        return "\n".join(lines)


def checked_box(
    box: Mapping[Any, tuple[float, float]],
    calls: Sequence[Sequence[str]],
    space: tuple[FloatArray, FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of all components, shape (d,) each."""
    d, outer = len(calls[0]), space or (-np.inf, np.inf)
    low, high = (np.full(d, np.ravel(end), dtype=np.float64) for end in outer)
    numbers: dict[Any, int] = {name: j for names in calls for j, name in enumerate(names)}
    numbers |= {j: j for j in range(d)} | {f"x[{j}]": j for j in range(d)}
    for name, ends in box.items():
        if np.shape(ends) != (2,) or not ends[0] <= ends[1]:
            raise ValueError(f"box[{name!r}] is {ends!r}: it must be (lower, upper)")
        if name not in numbers:
            raise ValueError(
                f"component is {name!r}: it must be one of {list(calls[0])}, or a number below {d}"
            )
        low[numbers[name]], high[numbers[name]] = ends
    return low, high
