"""Clauses beside a rule: where something is forbidden, and where something is done whatever else.

A clause holds where all of its rows, affine functions of the observation, are positive. The first
ones forbid an action there. Each of the others says what is done there, unless that is forbidden;
the first that holds decides. Where none does, the rule decides, without the cells whose action is
forbidden.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._schema import Member, check, real, require, whole
from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.proving.polyhedra import point_in

SCHEMA: dict[str, Member] = {
    "conditions": real("rows, 1+d"),
    "ends": whole("clauses", "[0, rows]"),
    "forbidden": whole("bans", "[0, n)"),
    "outputs": real("says, n, m"),
    "locks": whole("says", "[0, 1]"),
}
"""What a file has of them."""


@dataclass(frozen=True, eq=False)
class Clauses:
    """C clauses, of which the first F forbid and the others say what is done.

    Examples
    --------
    >>> high = np.array([[-0.1, 1.0]])  # where x - 0.1 > 0
    >>> clauses = Clauses.of([(high, 0)], [(-high, np.eye(2)[:, 1:], False)], np.eye(2)[:, :, None])
    >>> clauses.at(np.array([[0.0], [0.2]]))[0].tolist()
    [[False, False], [True, False]]
    >>> clauses.at(np.array([[0.0], [0.2]]))[1].tolist()
    [0, -1]
    """

    conditions: FloatArray
    """Rows of all clauses, offsets and slopes, shape (R, 1 + d)."""
    ends: IntArray
    """Number of rows of each clause and those before it, shape (C,)."""
    forbidden: IntArray
    """Actions that the first ones forbid, shape (F,)."""
    outputs: FloatArray
    """What the others do, as outputs of a :class:`~oda_rl.agents.policies.rules.RulePolicy`, shape
    (C - F, A, 1) or (C - F, p, 1 + d)."""
    locks: IntArray
    """1 for what was a cell's and is locked, else 0; shape (C - F,)."""

    @classmethod
    def of(
        cls,
        forbids: list[tuple[FloatArray, int]],
        says: list[tuple[FloatArray, FloatArray, bool]],
        like: FloatArray,
    ) -> "Clauses":
        """Put clauses together.

        Parameters
        ----------
        forbids : list of (rows, action)
        says : list of (rows, output, whether it is locked)
        like : ndarray
            Outputs of the rule, shape (K, A, 1) or (K, p, 1 + d).
        """
        rows = [one for one, _ in forbids] + [one for one, _, _ in says]
        width = rows[0].shape[1] if rows else like.shape[2]
        return cls(
            np.concatenate([np.zeros((0, width)), *rows]),
            np.cumsum([len(one) for one in rows], dtype=np.int64),
            np.array([action for _, action in forbids], dtype=np.int64),
            np.array([one[1] for one in says]).reshape(-1, *like.shape[1:]),
            np.array([one[2] for one in says], dtype=np.int64),
        )

    @property
    def rows(self) -> list[FloatArray]:
        """Rows of each clause, shape (m, 1 + d)."""
        return np.split(self.conditions, self.ends[:-1]) if len(self.ends) else []

    @property
    def forbids(self) -> list[tuple[FloatArray, int]]:
        """Those that forbid: (rows, action)."""
        return list(zip(self.rows, self.forbidden.tolist(), strict=False))

    @property
    def says(self) -> list[tuple[FloatArray, FloatArray, bool]]:
        """The others: (rows, output, whether it is locked)."""
        later = self.rows[len(self.forbidden) :]
        return list(zip(later, self.outputs, self.locks.astype(bool).tolist(), strict=True))

    @property
    def actions(self) -> IntArray:
        """Actions that the others say, where these are discrete, shape (C - F,)."""
        return np.asarray(self.outputs[:, :, 0].argmax(axis=1), dtype=np.int64)

    def holds(self, points: npt.NDArray[Any]) -> BoolArray:
        """Whether each clause holds at each of n points, shape (n, C)."""
        above = self.conditions[:, 0] + points @ self.conditions[:, 1:].T > 0.0
        parts = np.split(above, self.ends[:-1], axis=1)
        return np.column_stack([part.all(axis=1) for part in parts])

    def at(self, points: npt.NDArray[Any]) -> tuple[BoolArray, IntArray]:
        """Return what is forbidden at n points, shape (n, A), and which of the others decides.

        That is its number, shape (n,), or -1 where none does.
        """
        holding = self.holds(points)
        n, count = len(self.forbidden), self.outputs.shape[1]
        barred = holding[:, :n] @ (self.forbidden[:, None] == np.arange(count))
        says = holding[:, n:]
        if self.outputs.shape[2] == 1:
            says = says & ~barred[:, self.actions]
        some = says.any(axis=1) if says.shape[1] else np.zeros(len(points), dtype=np.bool_)
        first = says.argmax(axis=1) if says.shape[1] else np.zeros(len(points), dtype=np.int64)
        return barred, np.where(some, first, -1)

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All of it, for a file."""
        return dict(vars(self))

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, npt.NDArray[Any]], d: int, size: tuple[int, ...]
    ) -> "Clauses":
        """Make some of what :attr:`arrays` returned, or raise InvalidFileError.

        ``size`` is (A, 1) or (p, 1 + d), of what a cell of the rule does.
        """
        sizes = {"d": d, "n": size[0], "m": size[1]}
        check(arrays, SCHEMA, sizes)
        clauses = cls(**arrays)
        ends, outputs = clauses.ends, clauses.outputs
        rise = (np.diff(ends, prepend=0) >= 0).all()
        require(rise and (ends[-1:] == sizes["rows"]).all(), f"ends is {ends.tolist()}")
        told = len(ends) == sizes["bans"] + sizes["says"] and (len(ends) or not sizes["rows"])
        require(told, f"ends has {len(ends)} clauses: {sizes['bans']} forbid, {sizes['says']} say")
        check_outputs(outputs, 1 + d)
        require(size[1] == 1 or sizes["bans"] == 0, "forbidden is of discrete actions alone")
        return clauses


def check_outputs(outputs: FloatArray, width: int) -> None:
    """Raise InvalidFileError unless cells, or clauses, do what can be done; width is 1 + d."""
    require(outputs.shape[1] >= 1, f"outputs has shape {outputs.shape}: nothing is done")
    if outputs.shape[2] == 1:
        numbers = outputs[:, :, 0]
        one_hot = np.isin(numbers, (0.0, 1.0)).all() and (numbers.sum(axis=1) == 1.0).all()
        require(one_hot, "outputs of discrete actions must be a one among zeros")
    else:
        require(outputs.shape[2] == width, f"outputs has {outputs.shape[2]} columns, not {width}")


def decisions(
    scores: FloatArray, outputs: FloatArray, clauses: Clauses | None, points: npt.NDArray[Any]
) -> IntArray:
    """Return which cell of a rule (from 0), or clause (from K) decides at points, shape (n,).

    Where no cell is left it is the first action that is not forbidden: A of them follow the C - F
    clauses that say something.
    """
    found = scores[:, 0] + np.asarray(points) @ scores[:, 1:].T
    if clauses is None:
        return np.asarray(found.argmax(axis=1))
    barred, said = clauses.at(points)
    if len(clauses.forbidden):
        own = outputs[:, :, 0].argmax(axis=1)
        found = np.where(barred[:, own], -np.inf, found)
    cells = found.argmax(axis=1)
    last = len(scores) + len(clauses.outputs) + (~barred).argmax(axis=1)
    cells = np.where(found.max(axis=1) == -np.inf, last, cells)
    return np.asarray(np.where(said >= 0, len(scores) + said, cells))


def done_at(
    scores: FloatArray, outputs: FloatArray, clauses: Clauses | None, points: npt.NDArray[Any]
) -> FloatArray:
    """Return what a rule within clauses does at points: rows of outputs, shape (n, ...)."""
    rows = decisions(scores, outputs, clauses, points)
    if clauses is None:
        return np.asarray(outputs[rows])
    last = np.eye(outputs.shape[1])[:, :, None] if outputs.shape[2] == 1 else outputs[:0]
    return np.asarray(np.concatenate([outputs, clauses.outputs, last])[rows])


def completed(clauses: Clauses, outputs: FloatArray) -> Clauses:
    """Return clauses that also say what is done where all cells of a rule are forbidden.

    Raises
    ------
    ValueError
        If all actions are forbidden somewhere.
    """
    n_actions = outputs.shape[1]
    if len(clauses.forbidden) == 0:
        return clauses
    for rows in _together(clauses, range(n_actions)):
        where = point_in(rows)
        assert where is not None
        raise ValueError(
            f"every action is forbidden at {where.round(4).tolist()}: one must be left"
        )
    own = np.unique(outputs[:, :, 0].argmax(axis=1)).tolist()
    rest = [a for a in range(n_actions) if a not in own]
    more = [
        (rows, np.eye(n_actions)[:, a : a + 1], False)
        for rows in _together(clauses, own)
        for a in rest
    ]
    return Clauses.of(clauses.forbids, [*clauses.says, *more], outputs) if more else clauses


def _together(clauses: Clauses, actions: Any) -> list[FloatArray]:
    """Return rows that say where some actions are all forbidden, if that is anywhere."""
    each = [[rows for rows, b in clauses.forbids if b == a] for a in actions]
    joined = [np.concatenate(some) for some in product(*each)]
    return [rows for rows in joined if point_in(rows) is not None]
