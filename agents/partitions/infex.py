"""Exemplars of the visited states, refitted on the slow timescale."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.agents.base.settings import POSITIVE, Checked, at_least
from oda_rl.agents.partitions.base import BuiltIn, Lineage
from oda_rl.files.schema import Sizes, real, require, whole

_RESERVOIR = 2000  # states that are remembered
_FIRST_REFIT = 100  # states
_GROWTH = 1.5  # of the states seen, from one refit to the next
_ROUNDS = 2
_TOLERANCE = 1e-2  # of the log-likelihood
_SEEN, _NEXT, _MADE = range(3)


@dataclass(frozen=True)
class InfexSettings(Checked):
    """Settings of :class:`oda_rl.agents.InfexPartition`, each with its default."""

    infex_bandwidth: Annotated[float, POSITIVE] = 0.7
    """Bandwidth of exemplars of the visited states, in standard deviations of random play;
    positive."""

    infex_max_cells: Annotated[int, at_least(1)] = 64
    """Maximum number of cells: the exemplars with the largest weights."""


class InfexPartition(BuiltIn):
    """Cells around the exemplars of a mixture density that is refitted to the states visited.

    A reservoir holds a fair sample of the states seen. Each time that they have grown by half, at
    first after 100 samples, the mixture of the highest likelihood is fitted to it, as by
    :class:`oda_rl.INFEX`, by two rounds of column generation that begin with the exemplars there
    are. After eight refits the cells rest. Exemplars keep the numbers of those they are matched
    with, and their values.

    ``settings`` are those of :class:`InfexSettings`.

    Attributes
    ----------
    weights : ndarray, shape (n_cells,)
        Weights of the exemplars in the mixture; they sum to 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cells = InfexPartition().prepare(1, rng)
    >>> points = rng.choice([-2.0, 2.0], size=(500, 1)) + rng.normal(0.0, 0.1, size=(500, 1))
    >>> cells.start(points)
    >>> for row in range(0, 500, 100):
    ...     lineage = cells.observe(points[row : row + 100])
    >>> np.sort(cells.codevectors[:, 0]).round(0)
    array([-2.,  2.])
    """

    Settings = InfexSettings
    settings: InfexSettings
    weights: Annotated[FloatArray, real("K", "(0, 2]")]
    _reservoir: Annotated[FloatArray, real("n, d")]
    _counts: Annotated[IntArray, whole("3")]

    def _allocate(self, n_features: int) -> None:
        self.capacity = self.settings.infex_max_cells
        self.placed = np.zeros((1, n_features))
        self.weights = np.ones(1)
        self._reservoir = np.zeros((_RESERVOIR, n_features))
        self._counts = np.array([0, _FIRST_REFIT, 0])

    def observe(self, observations: FloatArray) -> Lineage | None:
        if self._counts[_MADE] == 8:  # then the cells rest
            return None
        size = len(self._reservoir)
        for point in self.standardised(observations):
            n_seen = int(self._counts[_SEEN])
            place = n_seen if n_seen < size else int(self._rng.integers(n_seen + 1))
            if place < size:
                self._reservoir[place] = point
            self._counts[_SEEN] += 1
        return self._refit() if self._counts[_SEEN] >= self._counts[_NEXT] else None

    def _refit(self) -> Lineage:
        """Refit to the reservoir, and match the exemplars with those of before."""
        from oda_rl.exemplars.column_generation import Problem, Search

        self._counts[_NEXT] = math.ceil(_GROWTH * self._counts[_SEEN])
        self._counts[_MADE] += 1
        bandwidth = self.settings.infex_bandwidth
        n_points = min(int(self._counts[_SEEN]), len(self._reservoir))
        points, before = self._reservoir[:n_points] / bandwidth, self.placed / bandwidth
        search = Search(points, Problem(), self._rng, _TOLERANCE, certified=False)
        search.begin(before)
        search.run(_ROUNDS)  # two rounds are enough for cells
        solution = search.solution()
        heaviest = np.argsort(-solution.weights)[: self.capacity]
        after, weights = solution.positions[heaviest], solution.weights[heaviest]
        order, lineage = match(before, self.weights, after)
        self.weights = weights[order] / weights.sum()
        self.placed = after[order] * bandwidth
        return lineage

    def _sizes(self) -> Sizes:
        return {**super()._sizes(), "n": len(self._reservoir)}

    def restore(self, state: Mapping[str, Array]) -> None:
        n = len(state["placed"])
        require(1 <= n <= self.capacity, f"placed has {n} rows: from 1 to {self.capacity}")
        self.placed, self.weights = np.zeros((n, self.units.shape[1])), np.zeros(n)
        super().restore(state)


def match(before: FloatArray, weights: FloatArray, after: FloatArray) -> tuple[IntArray, Lineage]:
    """Give new exemplars the numbers of those that they continue, and return the lineage.

    Partners are nearer than a bandwidth, and their squared distances sum to the least. An old
    exemplar without a partner goes into the nearest new one; a new one without comes from the
    nearest old one. Exemplars before, shape (n, d), and after, (m, d), are in bandwidths; the
    ``weights`` of the old ones are positive.

    Returns the new exemplars in the order of their numbers, shape (m,), and the lineage, shape
    (m, n), in that order.
    """
    from scipy.optimize import linear_sum_assignment

    squares = np.asarray(((after[:, None] - before) ** 2).sum(axis=2))
    new, old = linear_sum_assignment(np.minimum(squares, 1.0))  # what is far is no partner at all
    near = squares[new, old] < 1.0
    new, old = new[near], old[near]
    matched = new[np.argsort(old)]
    order = np.concatenate([matched, np.setdiff1d(np.arange(len(after)), matched)])
    squares = squares[order]
    lineage = np.zeros(squares.shape)
    lineage[np.arange(len(matched)), np.sort(old)] = weights[np.sort(old)]
    for lost in np.setdiff1d(np.arange(len(before)), old):
        lineage[squares[:, lost].argmin(), lost] = weights[lost]
    orphans = np.flatnonzero(lineage.sum(axis=1) == 0.0)
    lineage[orphans, squares[orphans].argmin(axis=1)] = 1.0
    return order, lineage / lineage.sum(axis=1, keepdims=True)
