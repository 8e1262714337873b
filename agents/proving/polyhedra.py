"""Polyhedra, and what linear programs say of them.

One is all x within bounds with ``rows[:, 0] + rows[:, 1:] @ x >= 0``; rows that are strict have to
be positive. Programs are solved to within 1e-9 of what scales the rows to slopes of length 1.
"""

from typing import Any

import numpy as np

from oda_rl._types import BoolArray, FloatArray

_LEAST = 1e-9
_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def point_in(
    rows: FloatArray,
    strict: BoolArray | None = None,
    low: FloatArray | None = None,
    high: FloatArray | None = None,
) -> FloatArray | None:
    """Return a point of a polyhedron, deep inside if it has an inside; None if it is empty.

    Parameters
    ----------
    rows : ndarray, shape (m, 1 + d)
    strict : ndarray of bool, shape (m,), optional
        By default all are.
    low, high : ndarray, shape (d,), optional
        Bounds; by default there are none.

    Examples
    --------
    >>> above = np.array([[-1.0, 1.0], [2.0, -1.0]])  # 1 < x < 2
    >>> point_in(above)
    array([1.5])
    >>> point_in(np.array([[-1.0, 1.0], [1.0, -1.0]])) is None
    True
    """
    d = rows.shape[1] - 1
    hard = np.ones(len(rows), dtype=np.bool_) if strict is None else strict
    norms = np.linalg.norm(rows[:, 1:], axis=1)
    flat = norms <= _LEAST * np.abs(rows[:, 0]).max(initial=1.0) * 1e-3
    if np.where(hard, rows[:, 0] <= 0.0, rows[:, 0] < 0.0)[flat].any():
        return None
    unit, hard = rows[~flat] / norms[~flat, None], hard[~flat]
    ends = _ends(low, high, d)
    for slack in (np.ones(len(unit)), hard.astype(np.float64)):
        matrix = np.column_stack([-unit[:, 1:], slack])
        found = _solved(np.append(np.zeros(d), -1.0), matrix, unit[:, 0], [*ends, (0.0, 1.0)])
        if found is None:
            return None
        if found[-1] > _LEAST or not slack.any():
            return np.asarray(np.clip(found[:-1], *np.array(ends, dtype=np.float64).T))
    return None


def range_over(
    row: FloatArray, rows: FloatArray, low: FloatArray | None, high: FloatArray | None
) -> tuple[float, float]:
    """Return the least and the greatest value of an affine function over a polyhedron's closure.

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


def _solved(cost: FloatArray, matrix: FloatArray, most: FloatArray, ends: Any) -> Any:
    """Return where the cost is least, of x with ``matrix @ x <= most``; None if nowhere."""
    from scipy.optimize import linprog

    found = linprog(cost, matrix, most, bounds=ends, method="highs", options=_OPTIONS)
    return found.x if found.status == 0 else None
