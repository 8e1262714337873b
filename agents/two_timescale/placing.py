"""Where cells are when a temperature level begins, and what becomes of the table, in compiled code.

It is what :class:`oda_rl.agents.partitions.oda.ODAPartition` and the engine do with numpy where the
metric is not learned, or points are whitened, to the same bits but where three cells and more have
become one.
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import boolean, brief, integer, spliced
from oda_rl._types import FloatArray
from oda_rl.agents.partitions.contract import Lineage
from oda_rl.agents.partitions.oda import ODAPartition
from oda_rl.agents.two_timescale.qlearning import TRACES, VALUES, VISITS
from oda_rl.agents.two_timescale.ring import Ring
from oda_rl.linear.matrices import (
    IntegerArray,
    added,
    eigenvectors,
    fused,
    invert,
    matrix_of,
    multiply,
    multiply_second,
    multiply_square,
    room_for,
    square,
    trace,
)
from oda_rl.linear.routines import calling
from oda_rl.metric import REGULARISATION

METRIC_POWER = 0.25
TOTAL_VARIANCE = 2.0


class Room(NamedTuple):
    """Arrays to work in."""

    numbers: FloatArray
    """Three matrices, and room for LAPACK."""
    whole: IntegerArray
    """The same for LAPACK's integers."""
    before: FloatArray
    """Values and updates that there were, shape (2, capacity, A)."""
    slopes: FloatArray
    """Shape (2, capacity, d)."""


def new_room(capacity: int, n_features: int, n_actions: int) -> Room:
    """Return them for at most so many cells."""
    before, slopes = np.zeros((2, capacity, n_actions)), np.zeros((2, capacity, n_features))
    return Room(*room_for(n_features, 3), before, slopes)


@spliced
def _split(cells: FloatArray, shifts: FloatArray, inverse: FloatArray, scaled: FloatArray) -> None:
    """Split cells as :func:`oda_rl.annealing.cells.split` does, by shifts in scaled units."""
    n = shifts.shape[0]
    multiply_second(shifts, inverse, scaled)
    for k in range(n):
        cells[k, 0] *= 0.5
        cells[n + k, 0] = cells[k, 0]
        for j in range(shifts.shape[1]):
            mean, shift = cells[k, 1 + j], scaled[k, j]
            cells[k, 1 + j], cells[n + k, 1 + j] = mean + shift, mean - shift


@spliced
def _carry(table: FloatArray, lineage: FloatArray, before: FloatArray) -> None:
    """Do what :func:`oda_rl.agents.two_timescale.qlearning.carry_table` does."""
    n_new, n_old = lineage.shape
    for j in range(n_old):
        for b in range(table.shape[2]):
            before[0, j, b], before[1, j, b] = table[VALUES, j, b], table[VISITS, j, b]
    for k in range(n_new):
        for b in range(table.shape[2]):
            mean, shares, total, visits, kept = 0.0, 0.0, 0.0, 0.0, 0.0
            for j in range(n_old):
                share = lineage[k, j]
                if share > 0.0:
                    value, count, children = before[0, j, b], before[1, j, b], integer(0)
                    mean, shares = fused(share, value, mean), shares + share
                    total, visits = total + count * value, visits + count
                    for other in range(n_new):
                        children += lineage[other, j] > 0.0
                    if children == 1:
                        kept += count
            table[VALUES, k, b] = total / visits if visits > 0.0 else mean / shares
            table[VISITS, k, b] = kept
    for layer in range(TRACES, table.shape[0]):
        for k in range(table.shape[1]):
            for b in range(table.shape[2]):
                table[layer, k, b] = 0.0


@spliced
def _transform(
    learned: FloatArray, scale: FloatArray, covariance: FloatArray, power: float,
    variance: float, out: FloatArray, numbers: FloatArray, whole: IntegerArray,
) -> None:  # fmt: skip
    """Write the root of a metric (:func:`oda_rl.metric.root`), of a total variance."""
    d = out.shape[0]
    a, b, rest = matrix_of(numbers, 0, d), matrix_of(numbers, 1, d), numbers[3 * d * d :]
    for i in range(d):
        for j in range(d):
            a[j, i] = learned[i, j]
        a[i, i] += REGULARISATION
    values = rest[:d]
    eigenvectors(a, values, rest[d:], whole)
    for i in range(d):
        share = values[i] ** power if values[i] > 0.0 else 0.0
        for j in range(d):
            b[j, i] = a[i, j] * share
    multiply_square(b, a, out)
    for i in range(d):
        for j in range(d):
            out[i, j] *= scale[j]
    multiply_square(out, covariance, a)
    multiply_second(a, out, b)
    found = trace(b)
    if found > 0.0:
        factor = math.sqrt(variance / found)
        for i in range(d):
            for j in range(d):
                out[i, j] *= factor


@spliced
def _take_over(transform: FloatArray, metric: FloatArray, found: FloatArray) -> bool:
    """Write the metric of a transform; returns whether it is another one."""
    d, changed = metric.shape[0], boolean(False)
    square(d, transform, found)
    for i in range(d):
        for j in range(d):
            entry = found[i, j] if i < j else found[j, i]
            changed |= entry != metric[i, j]
            metric[i, j] = entry
    return changed


@spliced
def _draw(
    cells: FloatArray, n_cells: int, metric: FloatArray, diagram: FloatArray, slopes: FloatArray
) -> None:
    """Draw the diagram (:func:`oda_rl.divergences.quadratic_diagram`)."""
    twice, gradients, d = slopes[0, :n_cells], slopes[1], metric.shape[0]
    for k in range(n_cells):
        for j in range(d):
            twice[k, j] = -2.0 * cells[k, 1 + j]
    multiply(twice, metric, gradients)
    for k in range(n_cells):
        for j in range(d):
            diagram[k, 1 + j] = gradients[k, j]
            gradients[k, j] *= cells[k, 1 + j]
        diagram[k, 0] = -0.5 * added(gradients, k)


@calling
@brief
def _place(
    cells: FloatArray,
    metric: FloatArray,
    diagram: FloatArray,
    transform: FloatArray,
    inverse: FloatArray,
    inverted: bool,
    shifts: FloatArray,
    lineage: FloatArray,
    table: FloatArray,
    learned: FloatArray,
    scale: FloatArray,
    covariance: FloatArray,
    power: float,
    variance: float,
    room: Room,
) -> bool:
    """Split cells, move the table along, and measure distances anew.

    Parameters
    ----------
    cells, metric, diagram : ndarray
        Of the partition, whose cells have been thinned out.
    transform, inverse : ndarray, shape (d, d)
        In which distances are Euclidean, and its inverse, which is not right if not ``inverted``.
    shifts : ndarray, shape (cells, d) or (0, d)
        In scaled units, by which cells are split, if they are.
    lineage : ndarray, shape (new cells, old cells)
        Weights from the old cells.
    table : ndarray
        See :mod:`oda_rl.agents.two_timescale.qlearning`.
    learned : ndarray, shape (d, d)
        The learned metric, in standard deviations of the components.
    scale : ndarray, shape (d,)
        Their inverse.
    covariance : ndarray, shape (d, d)
        Of the latest points.
    power, variance : float
        The transform is the metric's root to that power, scaled to a total variance.

    Returns
    -------
    bool
        Whether the transform is another one now.
    """
    numbers, whole, before, slopes = room
    d = metric.shape[0]
    if shifts.shape[0] > 0:
        if not inverted:
            a, b, c = matrix_of(numbers, 0, d), matrix_of(numbers, 1, d), matrix_of(numbers, 2, d)
            for i in range(d):
                for j in range(d):
                    a[j, i] = transform[i, j]
            invert(a, b, c, inverse, numbers[3 * d * d :], whole)
        _split(cells, shifts, inverse, slopes[0])
    _carry(table, lineage, before)
    _transform(learned, scale, covariance, power, variance, transform, numbers, whole)
    changed = _take_over(transform, metric, matrix_of(numbers, 0, d))
    _draw(cells, lineage.shape[0], metric, diagram, slopes)
    return changed


def place(
    cells: ODAPartition,
    table: FloatArray,
    learned: FloatArray | None,
    ring: Ring,
    room: Room,
    lineage: Lineage,
    shifts: FloatArray,
) -> None:
    """Split cells by shifts, move the table along a lineage, and measure distances anew.

    They are measured by the metric that has been learned, or in standard deviations as long as none
    has been.
    """
    power = METRIC_POWER
    if learned is None:  # the power 0 of any metric is the unit
        learned, power = np.eye(len(ring.scale)), 0.0
    changed = _place(
        cells.learner.cells, cells.learner.metric, cells.diagram, cells.transform, cells.inverse,
        cells.inverted, shifts, lineage, table, learned, ring.scale, ring.covariance, power,
        TOTAL_VARIANCE, room,
    )  # fmt: skip
    cells.n_cells = len(lineage)
    cells.inverted = not changed and (cells.inverted or len(shifts) > 0)
