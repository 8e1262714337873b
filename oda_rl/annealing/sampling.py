"""Drawing samples from weighted data so that only the distribution matters, not the table.

A row that stands there twice and a row with weight 2 are the same data, and so are two orders of
one table: the distinct rows of each class are put into an order of their own, and drawn by strata
of the cumulative weight.
"""

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.samples.weights import weighted


class Distribution:
    """Distinct weighted points of each class, to be drawn from without end.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        Finite.
    classes : ndarray, shape (n,)
        From 0 to C - 1; none is missing.
    weights : ndarray, shape (n,)
        At least 0; rows of weight 0 are left out.
    rng : numpy.random.Generator
        Draws.
    n_features : int, optional
        How many columns are features; all by default.

    Attributes
    ----------
    points, classes, weights : ndarray
        The distinct rows, class after class, with the sums of their weights.

    Examples
    --------
    >>> points = np.array([[1.0], [2.0], [1.0]])
    >>> data = Distribution(points, np.zeros(3, int), np.ones(3), np.random.default_rng(0))
    >>> data.points.ravel(), data.weights
    (array([1., 2.]), array([2., 1.]))
    """

    def __init__(
        self,
        points: FloatArray,
        classes: IntArray,
        weights: FloatArray,
        rng: np.random.Generator,
        n_features: int | None = None,
    ) -> None:
        self.points, self.classes, self.weights = weighted(points, weights, classes, n_features)
        n_classes = int(self.classes.max()) + 1
        self._bounds = np.searchsorted(self.classes, np.arange(n_classes + 1))
        self._shown = [np.zeros(0, dtype=np.int64) for _ in range(n_classes)]
        self._rng = rng

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self._shown)

    @property
    def class_weights(self) -> FloatArray:
        """Sum of the weights of each class, shape (C,)."""
        return np.add.reduceat(self.weights, self._bounds[:-1])

    def draw(self, c: int, n: int) -> IntArray:
        """Rows of ``points`` of class ``c``, shape (n,), each drawn by its weight.

        The strata of a pass, as many as there are distinct rows, are drawn without replacement: a
        pass over rows of equal weight shows each of them once.
        """
        rows = [self._shown[c]]
        while sum(map(len, rows)) < n:
            rows.append(self._pass(c))
        drawn = np.concatenate(rows)
        self._shown[c] = drawn[n:]
        return drawn[:n]

    def max_draw(self, most: int, budget: int | None) -> list[int]:
        """How many rows of each class to draw: all, but at most so many, and in all a budget."""
        sizes = np.minimum(np.diff(self._bounds), most)
        if budget is not None:
            sizes = np.minimum(sizes, max(budget // self.n_classes, 1))
        return [int(size) for size in sizes]

    def spread(self, most: int) -> IntArray:
        """At most so many rows of all classes, evenly in proportion to their weights."""
        return self._at((np.arange(most) + 0.5) / most)

    def shuffled(self) -> IntArray:
        """As many rows of all classes as are distinct, by their weights, in random order."""
        n = len(self.points)
        return self._at((self._rng.permutation(n) + 0.5) / n)

    def _at(self, quantiles: FloatArray) -> IntArray:
        shares = np.cumsum(self.weights) / self.weights.sum()
        return np.minimum(np.searchsorted(shares, quantiles), len(shares) - 1)

    def _pass(self, c: int) -> IntArray:
        first, last = self._bounds[c : c + 2]
        strata = self._rng.permutation(last - first)
        weights = self.weights[first:last]
        if (weights == weights[0]).all():
            return np.asarray(strata + first)
        shares = np.cumsum(weights) / weights.sum()
        at = (strata + self._rng.random(len(strata))) / len(strata)
        rows = np.searchsorted(shares, at, side="right")
        return np.asarray(first + np.minimum(rows, len(strata) - 1))
