"""Proofs about rules by linear programs: which actions occur in a box, and where.

A rule with clauses is a set of polyhedra; in each, one cell or one clause decides.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from oda_rl._types import BoolArray, FloatArray, IntArray

_INDEXED = re.compile(r"^(?:x|observation)\[(\d+)\]$")
_TINY = 1e-9
_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def component_number(name: str | int, calls: Sequence[Sequence[str]]) -> int:
    """Return the index of a component given by its name, ``x[2]`` or its index.

    >>> component_number("speed", [["angle", "speed"]]), component_number("x[0]", [["angle"]])
    (1, 0)
    """
    d = len(calls[0])
    if isinstance(name, str):
        for names in calls:
            if name in names:
                return list(names).index(name)
        indexed = _INDEXED.match(name.strip())
        number = int(indexed.group(1)) if indexed else d
    else:
        number = int(name)
    if not 0 <= number < d:
        raise ValueError(
            f"component is {name!r}: it must be one of {list(calls[0])}, or a number below {d}"
        )
    return number


def point_in(
    rows: FloatArray,
    strict: BoolArray | None = None,
    low: FloatArray | None = None,
    high: FloatArray | None = None,
) -> FloatArray | None:
    """Return a point of a polyhedron, deep in its interior if there is one; None if it is empty.

    Its rows, shape (m, 1 + d), are affine functions that are positive in it, or not negative where
    ``strict``, shape (m,), is False. Bounds ``low`` and ``high`` have shape (d,).

    >>> above = np.array([[-1.0, 1.0], [2.0, -1.0]])  # 1 < x < 2
    >>> point_in(above)
    array([1.5])
    >>> point_in(np.array([[-1.0, 1.0], [1.0, -1.0]])) is None
    True
    """
    d = rows.shape[1] - 1
    hard = np.ones(len(rows), dtype=np.bool_) if strict is None else strict
    norms = np.linalg.norm(rows[:, 1:], axis=1)
    flat = norms <= _TINY * np.abs(rows[:, 0]).max(initial=1.0) * 1e-3
    if np.where(hard, rows[:, 0] <= 0.0, rows[:, 0] < 0.0)[flat].any():
        return None
    unit, hard = rows[~flat] / norms[~flat, None], hard[~flat]
    ends = _ends(low, high, d)
    for slack in (np.ones(len(unit)), hard.astype(np.float64)):
        matrix = np.column_stack([-unit[:, 1:], slack])
        found = _solved(np.append(np.zeros(d), -1.0), matrix, unit[:, 0], [*ends, (0.0, 1.0)])
        if found is None:
            return None
        if found[-1] > _TINY or not slack.any():
            return np.asarray(np.clip(found[:-1], *np.array(ends, dtype=np.float64).T))
    return None


def range_over(
    row: FloatArray, rows: FloatArray, low: FloatArray | None, high: FloatArray | None
) -> tuple[float, float]:
    """Return the minimum and maximum of an affine function over a polyhedron's closure.

    >>> range_over(np.array([1.0, 2.0]), np.array([[0.0, 1.0]]), None, np.array([3.0]))
    (1.0, 7.0)
    """
    ends = _ends(low, high, len(row) - 1)
    values = []
    for sign in (1.0, -1.0):
        found = _solved(sign * row[1:], -rows[:, 1:], rows[:, 0], ends)
        values.append(-sign * np.inf if found is None else float(row[0] + row[1:] @ found))
    return values[0], values[1]


def _ends(low: FloatArray | None, high: FloatArray | None, d: int) -> list[tuple[float, float]]:
    first = np.full(d, -np.inf) if low is None else low
    last = np.full(d, np.inf) if high is None else high
    return list(zip(first.tolist(), last.tolist(), strict=True))


def _solved(cost: FloatArray, matrix: FloatArray, upper: FloatArray, ends: Any) -> Any:
    """Return the x that minimises cost @ x where ``matrix @ x <= upper``; None without one."""
    from scipy.optimize import linprog

    found = linprog(cost, matrix, upper, bounds=ends, method="highs", options=_OPTIONS)
    return found.x if found.status == 0 else None


class Piece(NamedTuple):
    """A polyhedron in which one cell or clause decides."""

    rows: FloatArray
    """Not negative in the piece, shape (m, 1 + d)."""
    strict: BoolArray
    """Which of them are positive, shape (m,)."""
    cell: int
    """The cell, from 0, or the clause, from K; -1 while undecided."""
    inside: FloatArray
    """A point of the piece."""


@dataclass(frozen=True)
class Splitter:
    """Splits a rule into polyhedra, within bounds."""

    scores: FloatArray
    """Shape (K, 1 + d)."""
    actions: IntArray
    """Of the cells, shape (K,)."""
    forbids: list[tuple[FloatArray, int]]
    """Clauses that forbid: (rows, action)."""
    says: list[tuple[FloatArray, int]]
    """Clauses that fix an action, in order of precedence."""
    low: FloatArray
    """Shape (d,)."""
    high: FloatArray

    def pieces(self) -> list[Piece]:
        """Return all pieces that are not empty; they do not overlap.

        >>> scores = np.array([[0.0, 0.0], [0.0, 1.0]])
        >>> high = [(np.array([[-2.0, 1.0]]), 0)]
        >>> all_x = np.full(1, np.inf)
        >>> split = Splitter(scores, np.array([0, 1]), [], high, -all_x, all_x)
        >>> [piece.cell for piece in split.pieces()]
        [2, 0, 1]
        """
        no_rows, d = np.zeros((0, self.scores.shape[1])), self.scores.shape[1] - 1
        piece = Piece(no_rows, np.zeros(0, dtype=np.bool_), -1, np.zeros(d))
        parts: list[tuple[Piece, frozenset[int]]]
        parts = [(whole, frozenset()) for whole, _ in self._cut(piece, no_rows)]
        for rows, action in self.forbids:
            parts = [
                (part, barred | {action} if holds else barred)
                for piece, barred in parts
                for part, holds in self._cut(piece, rows)
            ]
        for cell, (rows, action) in enumerate(self.says, len(self.scores)):
            parts = [
                (part._replace(cell=cell) if holds else part, barred)
                for piece, barred in parts
                for part, holds in (
                    [(piece, False)]
                    if piece.cell >= 0 or action in barred
                    else self._cut(piece, rows)
                )
            ]
        return [
            one
            for piece, barred in parts
            for one in ([piece] if piece.cell >= 0 else self._by_cells(piece, barred))
        ]

    def _cut(self, piece: Piece, rows: FloatArray) -> Iterator[tuple[Piece, bool]]:
        """Yield the part of a piece where a clause holds, then those where it does not."""
        within = self._restricted(piece, rows, np.ones(len(rows), dtype=np.bool_))
        if within is not None:
            yield within, True
        for r in range(len(rows)):
            more = np.concatenate([rows[:r], -rows[r : r + 1]])
            part = self._restricted(piece, more, np.arange(r + 1) < r)
            if part is not None:
                yield part, False

    def _restricted(self, piece: Piece, rows: FloatArray, strict: BoolArray) -> Piece | None:
        rows, strict = np.concatenate([piece.rows, rows]), np.concatenate([piece.strict, strict])
        inside = point_in(rows, strict, self.low, self.high)
        return None if inside is None else Piece(rows, strict, piece.cell, inside)

    def _by_cells(self, piece: Piece, barred: frozenset[int]) -> Iterator[Piece]:
        allowed = [k for k in range(len(self.scores)) if int(self.actions[k]) not in barred]
        for k in allowed:
            others = np.array([j for j in allowed if j != k], dtype=np.int64)
            part = self._restricted(piece, self.scores[k] - self.scores[others], others < k)
            if part is not None:
                yield part._replace(cell=k)


@dataclass(frozen=True, eq=False)
class Proof:
    """Which choices a rule makes in a box; ``print`` it.

    A choice is an action, or where actions are continuous a cell.
    """

    low: FloatArray
    """Lower bounds of the box, shape (d,)."""
    high: FloatArray
    occurs: tuple[int, ...]
    """Choices that are made somewhere in the box."""
    never: tuple[int, ...]
    """Choices that are made nowhere in it."""
    at_most: tuple[int, ...]
    """Choices that are made on a boundary at most, up to rounding: no state was found."""
    states: dict[int, FloatArray]
    """A state of the box, shape (d,), for each choice that occurs."""
    names: tuple[str, ...]
    """Of the components."""
    choice_names: tuple[str, ...]

    @property
    def always(self) -> int | None:
        """The only choice; None if there are several."""
        return self.occurs[0] if len(self.occurs) == 1 and not self.at_most else None

    def __str__(self) -> str:
        lines = [f"where {_where(self.low, self.high, self.names)}:"]
        for choice in self.occurs:
            state = ", ".join(f"{value:.4g}" for value in self.states[choice])
            lines.append(f"  {self.choice_names[choice]}: occurs, as at ({state})")
        lines += [f"  {self.choice_names[a]}: on a boundary, if at all" for a in self.at_most]
        lines += [f"  {self.choice_names[choice]}: never" for choice in self.never]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Region:
    """A polyhedron in which one cell or clause decides."""

    cell: int
    """Index of the cell, or of the clause, counted from the number of cells."""
    choice: int
    """Its action, or where actions are continuous its index."""
    rows: FloatArray
    """Affine functions that are not negative in it, shape (m, 1 + d)."""
    low: FloatArray
    """Lower bounds of its bounding box, shape (d,)."""
    high: FloatArray
    inside: FloatArray
    """A point in it, shape (d,)."""


def proof(
    pieces: Sequence[Piece],
    actions: IntArray,
    choices: Callable[[FloatArray], IntArray],
    box: tuple[FloatArray, FloatArray],
    names: Sequence[str],
    choice_names: Sequence[str],
) -> Proof:
    """Prove which choices are made in the pieces of a rule within a box.

    ``actions`` are those of cells and clauses; ``choices`` maps points to choices.
    """
    states: dict[int, FloatArray] = {}
    for piece in pieces:
        choice = int(actions[piece.cell])
        if choice not in states and choices(piece.inside[None])[0] == choice:
            states[choice] = piece.inside
    possible = {int(actions[piece.cell]) for piece in pieces}
    occurs, at_most = tuple(sorted(states)), tuple(sorted(possible - states.keys()))
    never = tuple(a for a in range(len(choice_names)) if a not in possible)
    return Proof(*box, occurs, never, at_most, states, tuple(names), tuple(choice_names))


def regions(
    pieces: Sequence[Piece],
    actions: IntArray,
    cells: Callable[[FloatArray], IntArray],
    low: FloatArray,
    high: FloatArray,
) -> list[Region]:
    """Return the pieces that are more than a boundary, with bounding boxes, sorted by cell."""
    found = []
    for rows, _, cell, inside in sorted(pieces, key=lambda one: one.cell):
        if cells(inside[None])[0] == cell:
            ends = [range_over(row, rows, low, high) for row in np.eye(len(low) + 1)[1:]]
            first, last = np.array(ends).T
            found.append(Region(cell, int(actions[cell]), rows, first, last, inside))
    return found


def checked_box(
    box: Mapping[Any, tuple[float, float]],
    calls: Sequence[Sequence[str]],
    space: tuple[FloatArray, FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of all components, shape (d,) each.

    >>> checked_box({"speed": (-1, 1)}, [["place", "speed"]])
    (array([-inf,  -1.]), array([inf,  1.]))
    """
    d = len(calls[0])
    low, high = np.full(d, -np.inf), np.full(d, np.inf)
    if space is not None:
        low, high = (np.array(end, dtype=np.float64).ravel() for end in space)
    for name, (first, last) in box.items():
        if not first <= last:
            raise ValueError(f"box[{name!r}] is {(first, last)!r}: it must be (lower, upper)")
        j = component_number(name, calls)
        low[j], high[j] = first, last
    return low, high


def _where(low: FloatArray, high: FloatArray, names: Sequence[str]) -> str:
    ends = zip(names, low.tolist(), high.tolist(), strict=True)
    bounds = [f"{name} from {a:.4g} to {b:.4g}" for name, a, b in ends if np.isfinite([a, b]).any()]
    return ", ".join(bounds) or "anything"
