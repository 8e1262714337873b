"""What an online agent remembers of the latest steps, and how it measures distances by that."""

from typing import NamedTuple

import numpy as np

from oda_rl import metric
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.engine.memory import MARK, UNUSED, in_order


class Ring(NamedTuple):
    """The latest transitions, each environment's oldest first."""

    points: FloatArray
    """Shape (n, d)."""
    steps: FloatArray
    """Shape (n, 3), as in :mod:`oda_rl.agents.engine.memory`."""

    @classmethod
    def of(cls, observations: FloatArray, steps: FloatArray, last_rows: IntArray) -> "Ring":
        """Return what all environments' rings hold, shape (lanes, rows, d) and (lanes, rows, 3)."""
        points: list[FloatArray] = []
        outcomes: list[FloatArray] = []
        for seen, taken, last in zip(observations, steps, last_rows.tolist(), strict=True):
            full = taken[-1, MARK] != UNUSED
            points += in_order(seen, last, full)
            outcomes += in_order(taken, last, full)
        return cls(np.concatenate(points), np.concatenate(outcomes))

    @property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of the points."""
        return metric.covariance(self.points)

    def measured(self, whitened: bool) -> "Measured":
        """Return it with what distances are measured in; ``whitened``: not along the axes."""
        mean, covariance = self.moments
        return Measured(self, covariance, metric.Units.of(mean, covariance, axes=not whitened))


class Measured(NamedTuple):
    """A ring, and what takes a while to find out about it."""

    ring: Ring
    covariance: FloatArray
    """Of its points, shape (d, d)."""
    units: metric.Units
