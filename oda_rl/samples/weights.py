"""Weights of samples: a weight of 2 is the same as a row that stands there twice.

Rows are put into an order of their own, and equal ones made one, so that a table and its weights
are the same as the table with rows repeated, in whatever order. A learner that is shown one sample
after another is shown each as often as it weighs.
"""

from typing import NamedTuple

import numpy as np

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.samples.missing import holes

_CHUNK = 4096
_MOST_SHOWN = 10_000_000  # in a pass, unless there are more distinct rows


def canonical_order(points: FloatArray, classes: IntArray, n_features: int) -> IntArray:
    """Order of the rows, shape (n,), by class and then by value, whatever order they came in.

    The order is that of a random projection of the first ``n_features`` columns, which a common
    factor leaves as it is; rows whose projections are equal are ordered column by column. Rows of
    which the same features are missing (NaN) stand together.
    """
    missing = holes(points)
    if missing is not None:
        patterns = np.unique(missing, axis=0, return_inverse=True)[1].reshape(-1)
        classes = classes * len(points) + patterns
        points = np.where(missing, 0.0, points)
    direction = np.zeros(points.shape[1])
    direction[:n_features] = np.random.default_rng(0).uniform(0.5, 1.0, size=n_features)
    keys = np.empty(len(points))
    for begin in range(0, len(points), _CHUNK):  # row by row the same sum: equal rows, equal keys
        keys[begin : begin + _CHUNK] = (points[begin : begin + _CHUNK] * direction).sum(axis=1)
    order = np.lexsort((keys, classes))
    same_key = (np.diff(keys[order]) == 0.0) & (np.diff(classes[order]) == 0)
    if not (points[order[1:][same_key]] == points[order[:-1][same_key]]).all():
        order = np.lexsort((*points.T[::-1], keys, classes))
    return order


def counted(points: Array, classes: Array, weights: FloatArray) -> tuple[Array, Array, FloatArray]:
    """Return the samples of weights above 0: what was given, if they are all.

    >>> counted(np.array([[2.0], [7.0]]), np.array([0, 1]), np.array([0.0, 3.0]))
    (array([[7.]]), array([1]), array([3.]))
    """
    kept = weights > 0.0
    whole = bool(kept.all())
    return (points, classes, weights) if whole else (points[kept], classes[kept], weights[kept])


class Weighted(NamedTuple):
    """Distinct rows of a table, class after class."""

    points: FloatArray
    """Shape (m, d)."""
    classes: IntArray
    """Shape (m,)."""
    weights: FloatArray
    """Sums of the weights of equal rows, shape (m,), positive."""

    @property
    def size(self) -> int:
        """How many samples a pass shows: the sum of the weights, but no fewer than rows."""
        total = min(float(self.weights.sum()), float(_MOST_SHOWN))
        return max(len(self.weights), round(total))

    def shown(self, rng: np.random.RandomState) -> IntArray:
        """Rows of a pass, shape (size,), in random order: each as often as it weighs.

        Of weights that are not whole, fractions are rounded up or down such that sums are right.
        """
        ends = np.cumsum(self.weights * (self.size / self.weights.sum())) + rng.random_sample()
        times = np.diff(np.floor(ends), prepend=0.0).astype(np.int64)
        order: IntArray = rng.permutation(np.repeat(np.arange(len(times)), times))
        return order

    def draw(self, n: int, rng: np.random.RandomState) -> IntArray:
        """Draw n rows by their weights, shape (n,), each once if there are enough of them."""
        if n > len(self.weights):
            return np.asarray(rng.choice(len(self.weights), n, p=self.weights / self.weights.sum()))
        return drawn(self.weights, n, rng)


def drawn(weights: FloatArray, n: int, rng: np.random.RandomState) -> IntArray:
    """Draw n rows by their weights, shape (n,), without replacement.

    The n largest of their logarithms with noise of Gumbel's distribution are that.
    """
    keys = rng.gumbel(size=len(weights)) + np.log(weights)
    return np.argsort(-keys, kind="stable")[:n]


def weighted(
    points: FloatArray,
    weights: FloatArray,
    classes: IntArray | None = None,
    n_features: int | None = None,
) -> Weighted:
    """Return the distinct rows of points, shape (n, d), of weights above 0.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        Finite, or NaN where values are missing.
    weights : ndarray, shape (n,)
        At least 0.
    classes : ndarray, shape (n,), optional
        All one by default.
    n_features : int, optional
        How many columns the order goes by; all by default.

    Examples
    --------
    >>> points = np.array([[2.0], [1.0], [2.0], [7.0]])
    >>> data = weighted(points, np.array([1.0, 1.0, 1.0, 0.0]))
    >>> data.points.ravel(), data.weights, data.size
    (array([1., 2.]), array([1., 2.]), 3)
    """
    owners = np.zeros(len(points), dtype=np.int64) if classes is None else classes
    width = points.shape[1] if n_features is None else n_features
    points, owners, weights = counted(points, owners, weights)
    order = canonical_order(points, owners, width)
    points, owners = points[order], owners[order]
    new = np.ones(len(order), dtype=bool)
    missing = holes(points)
    marked = points if missing is None else np.where(missing, np.inf, points)  # NaN is not NaN
    new[1:] = (marked[1:] != marked[:-1]).any(axis=1) | (owners[1:] != owners[:-1])
    return Weighted(
        np.ascontiguousarray(points if new.all() else points[new]),
        owners[new],
        np.add.reduceat(weights[order], np.flatnonzero(new)),
    )


def repeated(weights: FloatArray, owed: float) -> tuple[IntArray, float]:
    """Rows of a stream, shape (m,), each as often as it weighs, in their order.

    Fractions add up: ``owed`` is what is left of those before, and the second of what is returned
    is what is left now.

    Raises
    ------
    ValueError
        If that would be more than 10,000,000 rows.

    Examples
    --------
    >>> repeated(np.array([1.0, 0.5, 2.0, 0.5]), 0.0)
    (array([0, 2, 2, 3]), 0.0)
    """
    ends = np.cumsum(weights) + owed
    if ends[-1] > _MOST_SHOWN:
        raise ValueError(
            f"sample_weight adds up to {ends[-1]:g}: a stream shows each sample as often as it "
            f"weighs, and at most {_MOST_SHOWN:,} at once"
        )
    times = np.diff(np.floor(ends), prepend=0.0).astype(np.int64)
    return np.repeat(np.arange(len(weights)), times), float(ends[-1] - np.floor(ends[-1]))
