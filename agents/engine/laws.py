"""The linear law by which components of observations change, in compiled code.

With x and Δ in standard deviations, less what the actions explain, Δ = B x. Why anybody asks is
said in :mod:`oda_rl.agents.engine.axes`.
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import brief, integer, larger, smaller, spliced
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.engine.memory import ACTION, COMPONENTS, MARK
from oda_rl.agents.engine.state import Observations
from oda_rl.linear.matrices import IntegerArray, eigenvectors, matrix_of, room_for, square
from oda_rl.linear.routines import calling
from oda_rl.metric import inverse_deviation

UNKNOWN = -1.0  # instead of a density
LEAST_STEPS = 40  # for each number in a row of it
_NOISE = 0.01  # of a change's variance, that is not told from none
_LEAST_VARIANCE = 1e-9  # of the largest, that a direction must have
_LEAST_CAUSE = 1e-12  # of a cause's square, that others must leave of it
_TINY = 1e-300  # keeps what is 0 from dividing 0


class Room(NamedTuple):
    """Arrays to work in."""

    table: FloatArray
    """Points, their changes and what may cause them, shape (n, width = 2d + causes)."""
    moments: FloatArray
    """Sums of products of these, shape (width, width)."""
    means: FloatArray
    """Shape (d,)."""
    scale: FloatArray
    """Shape (d,)."""
    kept: IntArray
    """Shape (d,)."""
    numbers: FloatArray
    """Five matrices, and room for LAPACK."""
    whole: IntegerArray
    """The same for LAPACK's integers."""


def new_room(n: int, d: int, n_causes: int) -> Room:
    """Return them for so many rows."""
    width, (means, scale) = 2 * d + n_causes, np.empty((2, d))
    table, moments = np.empty((n, width)), np.empty((width, width))
    return Room(table, moments, means, scale, np.empty(d, np.int64), *room_for(d, 5))


@spliced
def _density(law: FloatArray, points: FloatArray, variances: FloatArray) -> float:
    weighed, total, d = 0.0, 0.0, law.shape[0]
    for i in range(d):
        explained, sizes, squares = 0.0, 0.0, 0.0
        for j in range(d):
            caused = 0.0
            for k in range(d):
                caused += law[i, k] * points[k, j]
            explained += caused * law[i, j]
            of_one = law[i, j] * law[i, j] * larger(points[j, j], 0.0)
            sizes, squares = sizes + math.sqrt(of_one), squares + of_one
        share = smaller(explained / larger(variances[i], _TINY), 1.0)
        weight = share / (1.0 + _NOISE - share)
        weighed += weight * sizes / math.sqrt(larger(squares, _TINY))
        total += weight
    return (weighed / larger(total, _TINY) - 1.0) / (math.sqrt(d) - 1.0)


@brief
def densities(laws: FloatArray, points: FloatArray, variances: FloatArray, out: FloatArray) -> None:
    """Write how dense laws are, shape (m,), from 0 to 1; each has axes of its own.

    Laws and the moments of points have shape (m, d, d), the variances of changes (m, d).
    """
    for m in range(laws.shape[0]):
        out[m] = _density(laws[m], points[m], variances[m])


@spliced
def _gather(observations: Observations, steps: FloatArray, rows: IntArray, room: Room) -> None:
    """Fill the table; points are less their mean."""
    table, means, n, d = room.table, room.means, rows.shape[0], observations.shape[1]
    for j in range(d):
        means[j] = 0.0
    for k in range(n):
        row = rows[k]
        for j in range(d):
            here = 1.0 * observations[row, j]  # also if that is of single precision
            table[k, j], table[k, d + j] = here, observations[row + 1, j] - here
            means[j] += here / n
        for c in range(2 * d, table.shape[1]):
            table[k, c] = steps[row, ACTION] == c - 2 * d
            if steps.shape[1] > COMPONENTS:
                table[k, c] = steps[row, MARK + c - 2 * d]  # the first is 1
    for k in range(n):
        for j in range(d):
            table[k, j] -= means[j]


@spliced
def _leave_out(moments: FloatArray, first: int) -> None:
    """Take what causes explain, the columns from the first on, out of all that is before them.

    They are left out one after the other, but those that the others say all about. Moments count
    on and above the diagonal.
    """
    for c in range(first, moments.shape[0]):
        moments[c, 0] = moments[c, c]
    for c in range(moments.shape[0] - 1, first - 1, -1):
        own = moments[c, c]
        if own > _LEAST_CAUSE * moments[c, 0]:
            for i in range(c):
                share = moments[i, c] / own
                for j in range(i, c):
                    moments[i, j] -= share * moments[j, c]


@spliced
def _law(room: Room, n: int, width: int, d: int) -> float:
    """Write the law, the moments of points and of changes; returns how dense it is."""
    moments, scale, kept, numbers = room.moments, room.scale, room.kept, room.numbers
    law, points, left = matrix_of(numbers, 0, d), matrix_of(numbers, 1, d), matrix_of(numbers, 2, d)
    vectors, mixed, rest = matrix_of(numbers, 3, d), matrix_of(numbers, 4, d), numbers[5 * d * d :]
    total = 0.0
    for i in range(d):
        for j in range(d):
            unit, a, b = scale[i] * scale[j] / n, kept[i], kept[j]
            mixed[i, j], law[i, j] = moments[b, width + a] * unit, 0.0
            if a > b:
                a, b = b, a
            points[i, j] = vectors[i, j] = moments[a, b] * unit
            left[i, j] = moments[width + a, width + b] * unit
        total += points[i, i] + left[i, i]
    if not total < math.inf:  # sums of huge numbers
        return UNKNOWN
    eigenvectors(vectors, rest, rest[d:], room.whole)
    known = integer(0)
    for k in range(d):
        if rest[k] > _LEAST_VARIANCE * rest[d - 1]:
            known += 1
            for i in range(d):
                slope = 0.0
                for j in range(d):
                    slope += mixed[i, j] * vectors[k, j]
                for j in range(d):
                    law[i, j] += slope / rest[k] * vectors[k, j]
    if known < 2:
        return UNKNOWN
    for i in range(d):
        rest[i] = left[i, i]
    return _density(law, points, rest)


@calling
@brief
def law_of_changes(
    observations: Observations, steps: FloatArray, rows: IntArray, room: Room
) -> tuple[float, int]:
    """Write the law of changes, and the moments that it was learned from.

    Parameters
    ----------
    observations : ndarray, shape (n, d)
        Rows of trajectories, as in :mod:`oda_rl.agents.engine.memory`.
    steps : ndarray, shape (n, 3 or more)
        Their steps.
    rows : ndarray of int64, shape (m,)
        From which ones steps were taken.
    room : Room
        To its numbers are written, of d components that vary: the law, the moments of points, and
        those of changes less what causes explain, each of shape (d, d), in standard deviations of
        the points.

    Returns
    -------
    density : float
        Of the law, from 0 to 1; ``UNKNOWN`` if that cannot be told.
    d : int
        How many components vary.
    """
    n, width, d = rows.shape[0], observations.shape[1], integer(0)
    _gather(observations, steps, rows, room)
    square(n, room.table, room.moments)
    for j in range(width):
        scale = inverse_deviation(room.means[j], room.moments[j, j] / n)
        if scale > 0.0:
            room.kept[d], room.scale[d] = j, scale
            d += 1
    if d < 2 or n < LEAST_STEPS * (d + room.table.shape[1] - 2 * width):
        return UNKNOWN, d
    _leave_out(room.moments, 2 * width)
    return _law(room, n, width, d), d
