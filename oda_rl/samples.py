"""Tables of samples with weights and missing values.

Weights are relative: a common factor makes no difference. Rows are sorted and equal ones merged, so
that neither their order nor whether a row is repeated or weighs twice as much makes a difference.
Where a rule has a number of samples it is the effective one, (Σw)²/Σw² (:func:`relative`), which
repetition does raise. Learners that take one sample after another are given each as often as it
weighs.

Missing values are NaN. A sample with o observed features has the partial distance
Σ_observed (x_j - μ_j)² from a codevector. Times d/o it is the expected distance if values are
missing at random (Dixon, 1979); the nearest codevector does not depend on that factor.

References
----------
L. Kish, "Survey sampling", Wiley, 1965: the effective sample size.
J. K. Dixon, "Pattern recognition with partly missing data", IEEE Transactions on Systems, Man, and
Cybernetics 9, 1979.
R. J. Hathaway, J. C. Bezdek, "Fuzzy c-means clustering of incomplete data", IEEE Transactions on
Systems, Man, and Cybernetics B 31, 2001: the partial distance strategy.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from oda_rl._types import Array, BoolArray, FloatArray, IntArray

_TINY = 1e-300
_CHUNK = 4096
_ROUNDING = 1e-9  # samples: less is missing by rounding
_MAX_TIMES = 100  # a row of a stream is shown: time hardly depends on weights


def holes(points: Array) -> BoolArray | None:
    """Mask of missing values, shape (n, d); None if there are none."""
    smallest = points.min(initial=0.0)  # NaN if any value is, and needs no memory
    return None if smallest == smallest else np.isnan(points)


def means_of(points: Array, weights: FloatArray | None) -> Array:
    """Weighted means of the observed values of each feature, shape (d,)."""
    missing = holes(points)
    if missing is None:
        return np.average(points, axis=0, weights=weights)
    counted = np.ma.masked_array(points, missing)
    return np.asarray(np.ma.average(counted, axis=0, weights=weights))


def deviations_of(points: Array, weights: FloatArray | None) -> FloatArray:
    """Compute standard deviations, shape (d,): 0 if constant; NaN is missing."""
    low, high = (
        extreme.reduce(points, axis=0).astype(np.float64) for extreme in (np.fmin, np.fmax)
    )
    widths = np.where(high > low, high - low, 1.0)
    places = (points - low) / widths  # whose squares are numbers, and 0 where all are equal
    gaps = places - means_of(places, weights)
    deviations = widths * np.sqrt(means_of(gaps * gaps, weights))
    sizes = np.maximum(np.abs(low), np.abs(high))
    return beyond_rounding(deviations, sizes, float(np.finfo(points.dtype).eps))


def units_of(points: Array, weights: FloatArray | None) -> FloatArray:
    """Return standard deviations of observed values, shape (d,); 1 for constants."""
    deviations = deviations_of(points, weights)
    return np.where(deviations > 0.0, deviations, 1.0)


def beyond_rounding(deviations: FloatArray, sizes: FloatArray, precision: float) -> FloatArray:
    """Set deviations, shape (d,), to 0 that rounding of values of these sizes explains."""
    return np.where(deviations > 8.0 * precision * sizes, deviations, 0.0)  # less is rounding


def filled(points: Array, values: Array) -> Array:
    """Return points with missing values replaced by ``values``, which broadcast."""
    missing = holes(points)
    return points if missing is None else np.where(missing, values, points)


def rows_with_values(points: Array) -> BoolArray | slice:
    """Rows of points of which something is observed; a slice of all, if it is of all of them."""
    missing = holes(points)
    if missing is None or not missing.all(axis=1).any():
        return slice(None)
    return np.asarray(~missing.all(axis=1))


def observed_shares(points: Array) -> FloatArray | float:
    """Share of the features of each point that is observed, shape (n, 1); 1 if all are."""
    missing = holes(points)
    return 1.0 if missing is None else 1.0 - missing.mean(axis=1, keepdims=True)


def partial_squares(points: FloatArray, codevectors: FloatArray, missing: BoolArray) -> FloatArray:
    """Squared distances of points, shape (n, d), from codevectors, (m, d), expected of the whole.

    Shape (n, m).
    """
    middle = codevectors.mean(axis=0)
    known, about = np.where(missing, 0.0, points - middle), codevectors - middle
    squares = (known**2).sum(axis=1, keepdims=True) - 2.0 * known @ about.T
    squares += ~missing @ (about**2).T
    return np.asarray(np.maximum(squares, 0.0) / (1.0 - missing.mean(axis=1, keepdims=True)))


def cell_means(
    points: FloatArray, weights: FloatArray, cells: IntArray, otherwise: FloatArray
) -> FloatArray:
    """Weighted means of the observed values of each feature in each cell, shape (K, d).

    ``cells``, shape (n,), are from 0 to K - 1; ``otherwise``, shape (K, d), are defaults.
    """
    shape, missing = otherwise.shape, holes(points)
    known = slice(None) if missing is None else ~missing
    places = (cells[:, None] * shape[1] + np.arange(shape[1]))[known].ravel()
    shares = weights.repeat(shape[1]).reshape(points.shape)[known].ravel()
    sums, counts = (
        np.bincount(places, one, otherwise.size).reshape(shape)
        for one in (shares * points[known].ravel(), shares)
    )
    return np.where(counts > 0.0, sums / np.maximum(counts, _TINY), otherwise)


def canonical_order(
    points: FloatArray, classes: IntArray, n_features: int
) -> tuple[IntArray, BoolArray]:
    """Order of the rows, by class and then by value, and which differ from the one before; (n,).

    The order is that of a random projection of the first ``n_features`` columns, which a common
    factor does not change; ties are ordered column by column. Rows with the same missing features
    (NaN) are adjacent.
    """
    missing = holes(points)
    if missing is not None:
        patterns = np.unique(missing, axis=0, return_inverse=True)[1].reshape(-1)
        classes = classes * len(points) + patterns
        points = np.where(missing, 0.0, points)
    keys = np.empty(len(points))
    for begin in range(0, len(points), _CHUNK):  # sums row by row: equal rows have equal keys
        rows = slice(begin, begin + _CHUNK)
        block = points[rows, :n_features].astype(np.float64, copy=False)
        keys[rows] = np.einsum("ij,j->i", block, _direction(n_features))
    order = np.argsort(keys)
    order = order[np.argsort(classes[order], kind="stable")]
    ranks, groups, new = keys[order], classes[order], np.ones(len(order), dtype=bool)
    new[1:] = (ranks[1:] != ranks[:-1]) | (groups[1:] != groups[:-1])
    again = np.flatnonzero(~new)
    if not (points[order[again]] == points[order[again - 1]]).all():
        order = np.lexsort((*points.T[::-1], keys, classes))
        new[1:] = (np.diff(classes[order]) != 0) | (np.diff(points[order], axis=0) != 0).any(axis=1)
    return order, new


@cache
def _direction(n_features: int) -> FloatArray:
    return np.random.default_rng(0).uniform(0.5, 1.0, size=n_features)


def counted(points: Array, classes: Array, weights: FloatArray) -> tuple[Array, Array, FloatArray]:
    """Return the samples of positive weight."""
    positive = weights > 0.0
    if positive.all():
        return points, classes, weights
    return points[positive], classes[positive], weights[positive]


def relative(weights: FloatArray) -> FloatArray:
    """Scale weights, shape (n,), to the sum (Σw)²/Σw², the effective sample size.

    Equal ones become 1.
    """
    shares = weights / weights.max()
    return np.asarray(shares * (shares.sum() / (shares @ shares)))


def relative_in_stream(weights: FloatArray, before: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights of a stream, shape (n,), over the mean of those above 0 up to each.

    ``before``, shape (2,), are the sum and the number of earlier ones; they are returned for later
    ones, too. The size of blocks makes no difference.
    """
    totals = np.cumsum(np.append(before[0], weights))[1:]
    counts = before[1] + np.cumsum(weights > 0.0)
    products, zeros = counts * weights, np.zeros(len(weights))
    shares = np.divide(products, totals, out=zeros, where=weights > 0.0)  # equal ones: exactly 1
    return shares, np.array([totals[-1], counts[-1]])


class Weighted(NamedTuple):
    """Distinct rows of a table, sorted by class."""

    points: FloatArray  # shape (m, d)
    classes: IntArray  # shape (m,)
    weights: FloatArray  # sums of the weights of equal rows, shape (m,), positive

    @property
    def n_shown(self) -> int:
        """Samples of a pass: as many as distinct rows, but at least 100."""
        return max(len(self.weights), 100)

    def shown(self, rng: np.random.RandomState) -> IntArray:
        """Rows of a pass, shape (n_shown,), in random order, each as often as it weighs.

        Fractions of weights are rounded up or down at random.
        """
        ends = np.cumsum(self.weights * (self.n_shown / self.weights.sum())) + rng.random_sample()
        times = np.diff(np.floor(ends), prepend=0.0).astype(np.int64)
        return np.asarray(rng.permutation(np.repeat(np.arange(len(times)), times)))

    def draw(self, n: int, rng: np.random.RandomState) -> IntArray:
        """Draw n rows by their weights, shape (n,), without replacement if there are enough."""
        if n > len(self.weights):
            return np.asarray(rng.choice(len(self.weights), n, p=self.weights / self.weights.sum()))
        return drawn(self.weights, n, rng)


def drawn(weights: FloatArray, n: int, rng: np.random.RandomState) -> IntArray:
    """Draw n rows by their weights, shape (n,), without replacement, by the Gumbel-top-k trick."""
    keys = rng.gumbel(size=len(weights)) + np.log(weights)
    return np.argsort(-keys, kind="stable")[:n]


def weighted(
    points: FloatArray,
    weights: FloatArray,
    classes: IntArray | None = None,
    n_features: int | None = None,
) -> Weighted:
    """Return the distinct rows of points, shape (n, d), of positive weight.

    ``classes``, shape (n,), are all 0 by default. Rows are sorted by the first ``n_features``
    columns, by default all.
    """
    owners = np.zeros(len(points), dtype=np.int64) if classes is None else classes
    width = points.shape[1] if n_features is None else n_features
    points, owners, weights = counted(points, owners, weights)
    order, new = canonical_order(points, owners, width)
    sums = np.add.reduceat(weights[order], np.flatnonzero(new))
    firsts = order[new]
    return Weighted(points.take(firsts, axis=0), owners[firsts], sums)  # faster than points[firsts]


def repeated(weights: FloatArray, owed: float) -> tuple[IntArray, float]:
    """Rows of a stream, shape (m,), each as often as it weighs, and the remaining fraction.

    Each is shown at most 100 times. Fractions add up: ``owed`` is that of the rows before.
    """
    ends = np.cumsum(np.minimum(weights, _MAX_TIMES)) + owed
    shown = np.floor(ends + _ROUNDING)
    times = np.diff(shown, prepend=0.0).astype(np.int64)
    return np.repeat(np.arange(len(weights)), times), max(float(ends[-1] - shown[-1]), 0.0)
