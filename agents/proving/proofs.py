"""What pieces of a rule prove: which actions occur in a box, and where which cell decides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.proving.names import component_number
from oda_rl.agents.proving.pieces import Piece
from oda_rl.agents.proving.polyhedra import range_over


@dataclass(frozen=True, eq=False)
class Proof:
    """Which choices a rule makes in a box; ``print`` it."""

    low: FloatArray
    """Of the box, shape (d,)."""
    high: FloatArray
    occurs: tuple[int, ...]
    """Choices (actions, or of continuous ones cells) that are made somewhere in the box."""
    never: tuple[int, ...]
    """Those that are made nowhere in it."""
    at_most: tuple[int, ...]
    """Those that are made at most where a boundary is met, up to rounding: no state was found."""
    states: dict[int, FloatArray]
    """For each choice that is made a state of the box in which it is, shape (d,)."""
    names: tuple[str, ...]
    """Of the components."""
    choice_names: tuple[str, ...]

    @property
    def always(self) -> int | None:
        """The only choice, if there is but one."""
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
    """A polyhedron in which one cell decides, or one clause."""

    cell: int
    """Its number; those of clauses follow those of the rule's cells."""
    choice: int
    """What it chooses: its action, or where actions are continuous its own number."""
    rows: FloatArray
    """Affine functions that are not negative in it, shape (m, 1 + d)."""
    low: FloatArray
    """Of its bounding box, shape (d,)."""
    high: FloatArray
    inside: FloatArray
    """One of its points."""


def proof(
    pieces: Sequence[Piece],
    actions: IntArray,
    choices: Callable[[FloatArray], IntArray],
    box: tuple[FloatArray, FloatArray],
    names: Sequence[str],
    choice_names: Sequence[str],
) -> Proof:
    """Say which choices are made in the pieces of a rule within a box.

    Parameters
    ----------
    pieces : sequence of Piece
    actions : ndarray of int64
        Choices of cells and clauses.
    choices : callable
        What the rule chooses at points, shape (n, d).
    box : (low, high)
    names, choice_names : sequence of str
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
    """Return pieces with their bounding boxes, by the numbers of their cells.

    Without those that are but a boundary of others.
    """
    found = []
    for piece in sorted(pieces, key=lambda one: one.cell):
        if cells(piece.inside[None])[0] != piece.cell:
            continue
        ends = np.array(
            [range_over(row, piece.rows, low, high) for row in np.eye(len(low) + 1)[1:]]
        )
        choice = int(actions[piece.cell])
        found.append(Region(piece.cell, choice, piece.rows, ends[:, 0], ends[:, 1], piece.inside))
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
            raise ValueError(f"box[{name!r}] is {(first, last)!r}: it must be (least, greatest)")
        j = component_number(name, calls)
        low[j], high[j] = first, last
    return low, high


def _where(low: FloatArray, high: FloatArray, names: Sequence[str]) -> str:
    ends = zip(names, low.tolist(), high.tolist(), strict=True)
    said = [f"{name} from {a:.4g} to {b:.4g}" for name, a, b in ends if np.isfinite([a, b]).any()]
    return ", ".join(said) or "anything"
