"""A rule within clauses as polyhedra: in each piece one cell, or one clause, decides."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.proving.polyhedra import point_in


class Piece(NamedTuple):
    """Where one cell, or clause, decides; or a part of that."""

    rows: FloatArray
    """Not negative in the piece, shape (m, 1 + d)."""
    strict: BoolArray
    """Which of them are positive, shape (m,)."""
    cell: int
    """The cell, from 0, or the clause that decides, from K."""
    inside: FloatArray
    """A point of the piece."""


@dataclass(frozen=True)
class Splitter:
    """Takes a rule apart, within bounds.

    Parameters
    ----------
    scores : ndarray, shape (K, 1 + d)
    actions : ndarray of int64, shape (K,)
        Of the cells.
    forbids : list of (rows, action)
    says : list of (rows, action)
        In the order in which they decide.
    low, high : ndarray, shape (d,)
    """

    scores: FloatArray
    actions: IntArray
    forbids: list[tuple[FloatArray, int]]
    says: list[tuple[FloatArray, int]]
    low: FloatArray
    high: FloatArray

    def pieces(self) -> list[Piece]:
        """Return all pieces that are not empty; no two of them overlap.

        >>> scores = np.array([[0.0, 0.0], [0.0, 1.0]])
        >>> high = [(np.array([[-2.0, 1.0]]), 0)]
        >>> all_x = np.full(1, np.inf)
        >>> split = Splitter(scores, np.array([0, 1]), [], high, -all_x, all_x)
        >>> [piece.cell for piece in split.pieces()]
        [2, 0, 1]
        """
        whole = self._piece(np.zeros((0, self.scores.shape[1])), np.zeros(0, dtype=np.bool_), -1)
        return [] if whole is None else self._forbidding(whole, 0, frozenset())

    def _piece(self, rows: FloatArray, strict: BoolArray, cell: int) -> Piece | None:
        inside = point_in(rows, strict, self.low, self.high)
        return None if inside is None else Piece(rows, strict, cell, inside)

    def _cut(self, piece: Piece, rows: FloatArray) -> tuple[Piece | None, list[Piece]]:
        """Return the part of a piece where a clause holds, and those where it does not."""
        without = []
        for r in range(len(rows)):
            more = np.concatenate([rows[:r], -rows[r : r + 1]])
            strict = np.append(np.ones(r, dtype=np.bool_), False)
            without.append(self._more(piece, more, strict))
        within = self._more(piece, rows, np.ones(len(rows), dtype=np.bool_))
        return within, [part for part in without if part is not None]

    def _more(self, piece: Piece, rows: FloatArray, strict: BoolArray) -> Piece | None:
        return self._piece(
            np.concatenate([piece.rows, rows]), np.concatenate([piece.strict, strict]), piece.cell
        )

    def _forbidding(self, piece: Piece, c: int, barred: frozenset[int]) -> list[Piece]:
        if c == len(self.forbids):
            return self._saying(piece, 0, barred)
        rows, action = self.forbids[c]
        within, without = self._cut(piece, rows)
        found = [] if within is None else self._forbidding(within, c + 1, barred | {action})
        return found + [one for part in without for one in self._forbidding(part, c + 1, barred)]

    def _saying(self, piece: Piece, c: int, barred: frozenset[int]) -> list[Piece]:
        if c == len(self.says):
            return self._by_cells(piece, barred)
        rows, action = self.says[c]
        if action in barred:
            return self._saying(piece, c + 1, barred)
        within, without = self._cut(piece, rows)
        found = [] if within is None else [within._replace(cell=len(self.scores) + c)]
        return found + [one for part in without for one in self._saying(part, c + 1, barred)]

    def _by_cells(self, piece: Piece, barred: frozenset[int]) -> list[Piece]:
        left = [k for k in range(len(self.scores)) if int(self.actions[k]) not in barred]
        found = []
        for k in left:
            others = [j for j in left if j != k]
            rows = self.scores[k] - self.scores[others]
            part = self._more(piece, rows, np.array(others, dtype=np.int64) < k)
            if part is not None:
                found.append(part._replace(cell=k))
        return found
