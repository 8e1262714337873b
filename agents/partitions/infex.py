"""Exemplars of the visited states, refitted on the slow timescale."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import numpy as np
import numpy.typing as npt

from oda_rl._types import Array, FloatArray
from oda_rl.agents.base.settings import POSITIVE, Checked, at_least
from oda_rl.agents.partitions.base import BuiltIn, Lineage, Scaling, interpreted_learner
from oda_rl.divergences import quadratic_diagram
from oda_rl.files.schema import MAX, Member, Sizes, real, require, whole_floats

_GROWTH = 1.5  # of the states seen, from one refit to the next
_REFITS = 8  # then the cells rest
_ROUNDS = 2
_TOLERANCE = 1e-2  # of the log-likelihood
_SEEN, _NEXT, _MADE = range(3)


@dataclass(frozen=True)
class InfexSettings(Checked):
    """Settings of :class:`oda_rl.agents.InfexPartition`, each with its default."""

    infex_bandwidth: Annotated[float, POSITIVE] = 0.7
    """Of exemplars of the visited states: bandwidth, in units of the scaled observation;
    positive."""

    infex_reservoir: Annotated[int, at_least(1)] = 2000
    """Of exemplars: visited states that are remembered."""

    infex_first_refit: Annotated[int, at_least(1)] = 100
    """Of exemplars: states seen before the first fit; each later one waits for half as many
    again."""

    infex_max_cells: Annotated[int, at_least(1)] = 64
    """Of exemplars: at most so many are cells, those of the largest weights."""


class InfexPartition(BuiltIn):
    """Cells of the exemplars of a mixture density that is refitted to the states visited.

    A reservoir holds a fair sample of the states seen. Each time that they have grown by half, at
    first after ``infex_first_refit`` samples, the mixture of the highest likelihood is
    fitted to it by two rounds of column generation (``oda_rl.exemplars``)
    that begin with the exemplars there are. After eight refits the cells rest. A state belongs to
    the exemplar with the highest weighted response. Exemplars keep the numbers of those they are
    matched with, and their values.

    Parameters
    ----------
    **settings
        Of :class:`InfexSettings`.

    Attributes
    ----------
    n_cells : int
        Number of exemplars.
    codevectors : ndarray, shape (n_cells, d)
        The exemplars, relative to the agent's origin.
    weights : ndarray, shape (n_cells,)
        Of the exemplars in the mixture, of sum 1.

    References
    ----------
    S. Nowozin, G. Bakir, "A decoupled approach to exemplar-based unsupervised learning",
    International Conference on Machine Learning, 2008.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cells = InfexPartition(infex_first_refit=50).prepare(2, rng)
    >>> cells.start(Scaling(np.eye(2), origin=np.zeros(2), deviations=np.ones(2)))
    >>> while cells.active:
    ...     lineage = cells.observe(rng.choice([-2.0, 2.0]) + rng.normal(0.0, 0.3, size=2))
    >>> np.sort(cells.codevectors[:, 0]).round(0)
    array([-2.,  2.])
    """

    Settings = InfexSettings
    schema: ClassVar[dict[str, Member]] = {
        "codevectors": real("K, d"),
        "weights": real("K", "[0, 2]"),
        "diagram": real("capacity, 1+d", "(-inf, inf]"),
        "transform": real("d, d"),
        "reservoir": real("n, d"),
        "counts": whole_floats("3", "[0, inf)"),
    }
    settings: InfexSettings

    def prepare(self, n_features: int, rng: np.random.Generator) -> Self:
        self.n_cells = 1
        self.diagram = np.zeros((self.settings.infex_max_cells, 1 + n_features))
        self.learner = interpreted_learner(n_features)
        self.codevectors: FloatArray = np.zeros((1, n_features))
        self.weights: FloatArray = np.ones(1)
        self._transform: FloatArray = np.eye(n_features)
        self._reservoir: FloatArray = np.zeros((self.settings.infex_reservoir, n_features))
        self._counts: FloatArray = np.zeros(3)
        self._rng = rng
        return self

    @property
    def active(self) -> bool:
        """Whether there are refits to come."""
        return bool(self._counts[_MADE] < _REFITS)

    def start(self, scaling: Scaling) -> None:
        """Begin with one cell."""
        self.n_cells = 1
        self.codevectors = np.zeros((1, self.diagram.shape[1] - 1))
        self.weights = np.ones(1)
        self._counts[:] = 0.0
        self._counts[_NEXT] = self.settings.infex_first_refit
        self.rescale(scaling)

    def rescale(self, scaling: Scaling) -> None:
        self._transform[:] = scaling.transform
        self._draw()

    def observe(self, point: FloatArray) -> Lineage | None:
        seen = int(self._counts[_SEEN])
        size = len(self._reservoir)
        place = seen if seen < size else int(self._rng.integers(seen + 1))
        if place < size:
            self._reservoir[place] = point
        self._counts[_SEEN] += 1.0
        return self.reshape() if self._counts[_SEEN] >= self._counts[_NEXT] else None

    def reshape(self) -> Lineage:
        """Refit to the reservoir, and match the exemplars with those of before."""
        from oda_rl.exemplars.column_generation import Problem, Search

        self._counts[_NEXT] = math.ceil(_GROWTH * self._counts[_SEEN])
        self._counts[_MADE] += 1.0
        n_points = min(int(self._counts[_SEEN]), len(self._reservoir))
        to_units = self._transform.T / self.settings.infex_bandwidth
        points = self._reservoir[:n_points] @ to_units
        before = self.codevectors @ to_units
        search = Search(points, Problem(), self._rng, _TOLERANCE, certified=False)
        search.begin(before)
        search.run(_ROUNDS)  # two rounds are enough for cells
        found = search.solution()
        heaviest = np.argsort(-found.weights)[: len(self.diagram)]
        after, weights = found.positions[heaviest], found.weights[heaviest]
        order, lineage = match(before, self.weights, after)
        self.weights = weights[order] / weights.sum()
        # The metric may leave out directions: there an exemplar is the mean of its states.
        shares = np.exp(-0.5 * _squares(points, after[order])) * self.weights + 1e-300
        shares /= shares.sum(axis=0)
        self.codevectors = shares.T @ self._reservoir[:n_points]
        self.n_cells = len(order)
        self._draw()
        return lineage

    def _arrays(self) -> dict[str, Array]:
        return {
            "codevectors": self.codevectors,
            "weights": self.weights,
            "diagram": self.diagram,
            "transform": self._transform,
            "reservoir": self._reservoir,
            "counts": self._counts,
        }

    def _sizes(self) -> Sizes:
        return {**super()._sizes(), "capacity": len(self.diagram), "n": len(self._reservoir)}

    def restore(self, state: Mapping[str, Array]) -> None:
        capacity, width = self.diagram.shape
        self.n_cells = n = len(state["codevectors"])
        require(1 <= n <= capacity, f"codevectors has {n} rows: it must have 1 to {capacity}")
        self.codevectors, self.weights = np.zeros((n, width - 1)), np.zeros(n)
        super().restore(state)
        require(state["counts"].max() < MAX, f"counts is {state['counts']}")

    def _draw(self) -> None:
        """Write the diagram: a power diagram, by the weighted responses of a common bandwidth."""
        metric = self._transform.T @ self._transform
        self.diagram[: self.n_cells] = quadratic_diagram(metric, self.codevectors)
        offsets = 2.0 * self.settings.infex_bandwidth**2 * np.log(self.weights)
        self.diagram[: self.n_cells, 0] -= offsets


def match(
    before: FloatArray, weights: FloatArray, after: FloatArray
) -> tuple[npt.NDArray[np.int64], Lineage]:
    """Give new exemplars the numbers of those that they continue, and say what came from what.

    Partners are nearer than a bandwidth, and their squared distances sum to the least. An old
    exemplar without a partner goes into the nearest new one; a new one without comes from the
    nearest old one.

    Parameters
    ----------
    before : ndarray, shape (n, d)
        In bandwidths.
    weights : ndarray, shape (n,)
        Of the old exemplars; positive.
    after : ndarray, shape (m, d)

    Returns
    -------
    order : ndarray, shape (m,)
        New exemplars in the order of their numbers.
    lineage : ndarray, shape (m, n)
        Row after row in that order; rows sum to 1.

    Examples
    --------
    >>> order, lineage = match(
    ...     np.array([[0.0], [9.0]]), np.ones(2), np.array([[5.0], [9.1], [0.2]])
    ... )
    >>> order, lineage
    (array([2, 1, 0]), array([[1., 0.],
           [0., 1.],
           [0., 1.]]))
    """
    from scipy.optimize import linear_sum_assignment

    squares = _squares(after, before)
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


def _squares(points: FloatArray, others: FloatArray) -> FloatArray:
    """Squared distances, shape (n, m)."""
    return np.asarray(((points[:, None] - others) ** 2).sum(axis=2))
