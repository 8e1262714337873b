"""What an online agent remembers of the latest steps, and how it measures distances by that."""

from typing import NamedTuple

import numpy as np

from oda_rl import metric
from oda_rl._compile import brief, integer
from oda_rl._state import Raw
from oda_rl._threads import one_thread
from oda_rl._types import FloatArray
from oda_rl.agents.engine.memory import CUT, GOES_ON, MARK, UNUSED
from oda_rl.agents.two_timescale.qlearning import lane_of
from oda_rl.linear.matrices import add_rows, copy, dot, square
from oda_rl.linear.routines import calling

_ROWS = 2000  # latest transitions, and what they led to, that the metric is learned from
_LEAST_ROWS = 100  # of that for each of several environments


class Room(NamedTuple):
    """Arrays to work in, for as many rows as all rings have."""

    points: FloatArray
    """Shape (n, d)."""
    steps: FloatArray
    """Shape (n, 3)."""
    centred: FloatArray
    """Shape (n, d)."""
    shares: FloatArray
    """Shape (n,)."""
    mean: FloatArray
    """Shape (d,)."""
    scale: FloatArray
    """Shape (d,)."""
    covariance: FloatArray
    """Shape (d, d)."""


def new_room(n_rows: int, n_features: int) -> Room:
    """Return them."""
    (points, centred), (mean, scale) = np.zeros((2, n_rows, n_features)), np.zeros((2, n_features))
    covariance = np.zeros((n_features, n_features))
    return Room(points, np.zeros((n_rows, 3)), centred, np.zeros(n_rows), mean, scale, covariance)


@calling
@brief
def _latest(observations: FloatArray, steps: FloatArray, raw: Raw, room: Room) -> int:
    """Write what rings hold, and its moments; returns how many rows that are.

    The oldest row may have been the second of two: a step leads on to the row after it all the
    same.
    """
    n, rows, d = integer(0), steps.shape[1], observations.shape[2]
    for i in range(steps.shape[0]):
        latest = lane_of(raw, i).last_row + 1
        if steps[i, rows - 1, MARK] != UNUSED:
            copy((rows - latest) * d, observations[i, latest:], room.points[n:])
            copy((rows - latest) * 3, steps[i, latest:], room.steps[n:])
            n += rows - latest
        copy(latest * d, observations[i], room.points[n:])
        copy(latest * 3, steps[i], room.steps[n:])
        n += latest
    points, _, centred, shares, mean, scale, covariance = room
    for k in range(n):
        shares[k] = 1.0 / n
    if d == 1:  # numpy's order of sums is another one then
        mean[0] = dot(n, shares, points)
    else:
        add_rows(n, shares, points, mean)
    for k in range(n):
        for j in range(d):
            centred[k, j] = points[k, j] - mean[j]
    if d == 1:
        covariance[0, 0] = dot(n, centred, centred)
    else:
        square(n, centred, covariance)
    for i in range(d):
        for j in range(i, d):
            covariance[i, j] /= n
            covariance[j, i] = covariance[i, j]
        scale[i] = metric.inverse_deviation(mean[i], covariance[i, i])
    return n


class Ring(NamedTuple):
    """The latest transitions, each environment's oldest first, in arrays that are used again."""

    points: FloatArray
    """Shape (n, d)."""
    steps: FloatArray
    """Shape (n, 3), as in :mod:`oda_rl.agents.engine.memory`."""
    mean: FloatArray
    """Of the points, shape (d,)."""
    scale: FloatArray
    """Inverse standard deviations of the components, shape (d,): :func:`oda_rl.metric.scales`."""
    covariance: FloatArray
    """Shape (d, d)."""

    @classmethod
    @one_thread()
    def of(cls, observations: FloatArray, steps: FloatArray, raw: Raw, room: Room) -> "Ring":
        """Return what all environments' rings hold, shape (lanes, rows, d) and (lanes, rows, 3)."""
        n = _latest(observations, steps, raw, room)
        return cls(room.points[:n], room.steps[:n], room.mean, room.scale, room.covariance)

    def units(self, whitened: bool) -> metric.Units:
        """Return what distances are measured in; ``whitened``: not along the axes."""
        if whitened:
            return metric.Units.of(self.mean, self.covariance, axes=False)
        return metric.Units(self.scale)


def rows_for(count: int) -> int:
    """Return how many rows each of so many environments has."""
    return max(_ROWS // count, _LEAST_ROWS)


def spread(ring: Ring, count: int) -> tuple[FloatArray, FloatArray, list[int]]:
    """Spread what rings hold, as far as there is room, over those of so many environments.

    Returns points and steps, shape (count, rows, d) and (count, rows, 3), and the last row of each
    ring that is not empty.
    """
    rows, last_rows = rows_for(count), []
    points = np.zeros((count, rows, ring.points.shape[1]))
    steps = np.zeros((count, rows, 3))
    for lane, begin in enumerate(range(0, min(len(ring.points), count * rows), rows)):
        n = len(ring.points[begin : begin + rows])
        points[lane, :n] = ring.points[begin : begin + n]
        steps[lane, :n] = ring.steps[begin : begin + n]
        if steps[lane, n - 1, MARK] == GOES_ON:
            steps[lane, n - 1] = -1.0, 0.0, CUT
        last_rows.append(n - 1)
    return points, steps, last_rows
