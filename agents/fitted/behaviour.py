"""Who has logged: how often each action was taken where.

Cells lie in a metric that is learned for the actions: that of the gradients of their shares. Where
somebody keeps to a rule, cells are thin along the direction in which what is done changes.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.base.memory import GOES_ON, MARK
from oda_rl.agents.fitting.nearest import Search, assign_three
from oda_rl.agents.fitting.placement import Assigned, Cells, Experience, assign, place_cells
from oda_rl.agents.fitting.settings import FittedQConfig

_FITS = 3  # one after the other, each in the metric of those before
_CELLS_PER_ROOT = 1.0  # wide ones, so that also what is seldom done has been done in them
_LEAST_SHARE = 0.1


class Behaviour(NamedTuple):
    """How often each action was taken in K cells."""

    at: Cells
    shares: FloatArray
    """As :func:`shares_of` returns them, shape (K, A)."""

    @classmethod
    def of(
        cls,
        seen: Experience,
        learned: FloatArray | None,
        config: FittedQConfig,
        rng: np.random.Generator,
    ) -> "Behaviour":
        """Count actions in cells that are placed in a learned metric, shape (d, d)."""
        own = replace(config, cells_per_root=_CELLS_PER_ROOT)
        at = place_cells(seen, learned, own, rng)
        rows, _ = assign(seen, at)
        return cls(at, shares_of(rows, len(at.codevectors), seen.n_actions))

    def allows(self, observations: FloatArray, actions: IntArray) -> BoolArray:
        """Whether actions, shape (n,), are done often enough in such states, shape (n, d).

        That is a tenth as often as the most frequent, in one of the cells that are near.
        """
        at, n = self.at, len(observations)
        points = (observations - at.origin) @ at.transform.T
        cells, weights = np.empty((n, 3), dtype=np.uint16), np.empty((n, 3), dtype=np.float32)
        search = Search.among(at.codevectors, at.width)
        assign_three(points, search, np.arange(n), cells, weights)
        shares = np.where(weights > 0.0, self.shares[cells, actions[:, None]], 0.0)
        return np.asarray(shares.max(axis=1) >= _LEAST_SHARE)


def metric_of_actions(
    seen: Experience, config: FittedQConfig, rng: np.random.Generator
) -> FloatArray | None:
    """Learn the metric in which the shares of actions change, shape (d, d).

    In standard deviations of the observation; None where too little is known.
    """
    learned = None
    for _ in range(_FITS):
        at = place_cells(seen, learned, config, rng)
        rows, _ = assign(seen, at)
        taken = rows.steps[:, MARK] == GOES_ON
        groups = np.where(taken, rows.cells[:, 0].astype(np.int64), -1)
        points = seen.observations - at.origin
        outer = np.zeros((points.shape[1], points.shape[1]))
        for action in range(seen.n_actions):
            done = (rows.labels[:, 0] == action).astype(np.float64)
            outer += at.units.outer(points, groups, done)
        learned = at.units.average(learned, outer)
    return learned


def shares_of(rows: Assigned, n_cells: int, n_actions: int) -> FloatArray:
    """Return how often each action was taken in each cell, shape (K, A).

    Of the most frequent one there, so that this has a share of 1; 0 where nothing was done.
    """
    counts = np.zeros((n_cells, n_actions))
    taken = rows.steps[:, MARK] == GOES_ON
    np.add.at(counts, (rows.cells[taken], rows.labels[taken]), rows.weights[taken])
    most = counts.max(axis=1, keepdims=True)
    return np.asarray(counts / np.where(most > 0.0, most, 1.0))
