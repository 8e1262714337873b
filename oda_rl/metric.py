"""Learned metrics: which directions of the state change the value.

The metric is the average outer product of the gradients of a function that was learned before
(AGOP): distances grow along the directions in which the function changes, and vanish along those in
which it does not. It is a Mahalanobis matrix, so the cells of a partition in it are an affine
diagram like any other (:mod:`oda_rl.diagram`).

References
----------
S. Trivedi, J. Wang, S. Kpotufe, G. Shakhnarovich, "A consistent estimator of the expected gradient
outerproduct", UAI 2014.
A. Radhakrishnan, D. Beaglehole, P. Pandit, M. Belkin, "Mechanism for feature learning in neural
networks and backpropagation-free machine learning models", Science 383 (2024), 1461-1467.
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray, IntArray

RIDGE = 1e-2
REGULARISATION = 0.02
_MIN = 1e-6  # of the moments: keeps a direction without points from dividing by zero
_MIN_VARIANCE = 1e-9  # of the largest, that a direction must have to be whitened
_NEGLIGIBLE = 1e-7  # beside a component's mean: its variation is rounding
SMALLEST = 1e-150  # deviation of a component that varies: the inverse of its square is finite


@one_thread()
def covariance(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean, shape (d,), and covariance, shape (d, d), of at least one point, shape (n, d)."""
    n = len(points)
    mean = np.full(n, 1.0 / n) @ points  # much faster than points.mean(axis=0)
    centred = points - mean
    return mean, centred.T @ centred / n


def scales(mean: FloatArray, covariance: FloatArray) -> FloatArray:
    """Inverse standard deviation of each component; 0 for one that only rounding varies.

    Examples
    --------
    >>> scales(*covariance(np.array([[0.0, 5.0], [4.0, 5.0]])))
    array([0.5, 0. ])
    """
    deviations = np.sqrt(covariance.diagonal())
    varying = deviations > np.maximum(_NEGLIGIBLE * np.abs(mean), SMALLEST)
    return np.where(varying, 1.0 / np.where(varying, deviations, 1.0), 0.0)


@one_thread()
def gradient_outer_product(
    points: FloatArray, scale: FloatArray, groups: IntArray, targets: FloatArray
) -> FloatArray:
    """Sum of n g gᵀ over groups, g the gradient of the targets there, by ridge regression.

    A group of fewer than 2 (d + 1) points says nothing about a gradient and is left out.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        In any units.
    scale : ndarray, shape (d,)
        Makes them points of about unit variance; gradients are with respect to those.
    groups : ndarray of int64, shape (n,)
        Group of each point, its cell and its action. Negative: none.
    targets : ndarray, shape (n,)
        Values of the function.

    Returns
    -------
    ndarray, shape (d, d)
        Symmetric, positive semi-definite; 0 if no group is large enough.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(500, 2))
    >>> groups, targets = np.zeros(500, np.int64), 3.0 * points[:, 0]
    >>> outer = gradient_outer_product(points, np.ones(2), groups, targets)
    >>> (outer / outer.trace()).round(2)
    array([[1., 0.],
           [0., 0.]])
    """
    d = points.shape[1]
    known = np.flatnonzero(groups >= 0)
    order = known[groups[known].argsort(kind="stable")]
    # Points are standardised before they are multiplied: squares in other units may not be finite.
    rows = np.column_stack([points[order] * scale, targets[order]])
    parts = np.split(rows, np.bincount(groups[known]).cumsum()[:-1])
    centred = [part - part.sum(axis=0) / len(part) for part in parts if len(part) >= 2 * (d + 1)]
    if not centred:
        return np.zeros((d, d))
    moments = np.array([part.T @ part for part in centred])
    system, right = moments[:, :d, :d], moments[:, :d, d:]
    ridge = RIDGE * system.trace(axis1=1, axis2=2) / d + _MIN
    gradients = np.linalg.solve(system + ridge[:, None, None] * np.eye(d), right)[:, :, 0]
    counts = np.array([len(part) for part in centred])
    return (counts[:, None] * gradients).T @ gradients


def average(old: FloatArray | None, outer: FloatArray) -> FloatArray | None:
    """Half the old metric and half a new outer product, made to have trace d.

    An outer product without a trace leaves the old metric as it is.
    """
    trace = float(outer.trace())
    if not 0.0 < trace < math.inf:
        return old
    new = outer * (len(outer) / trace)
    return new if old is None else 0.5 * (old + new)


@one_thread()
def root(metric: FloatArray, power: float, regularisation: float = REGULARISATION) -> FloatArray:
    """(M + .02 I) to a power, for a symmetric positive semi-definite M, shape (d, d).

    Power ½ gives L with |L (x - y)|² = (x - y)ᵀ M (x - y), but for the regularisation, which keeps
    every direction in sight; a smaller power trusts the metric less.
    """
    eigenvalues, vectors = np.linalg.eigh(metric + regularisation * np.eye(len(metric)))
    powers = np.maximum(eigenvalues, 0.0) ** power
    return np.asarray((vectors * powers) @ vectors.T)


class Units(NamedTuple):
    """What distances are measured in until a metric has been learned, and that metric with it."""

    scale: FloatArray
    """Inverse standard deviations of the components, shape (d,); 0 for a constant one."""
    whitening: FloatArray | None = None
    """Makes components of unit variance uncorrelated, shape (d, d); None: distances are in standard
    deviations of the components."""

    @classmethod
    @one_thread()
    def of(cls, mean: FloatArray, covariance: FloatArray, axes: bool) -> "Units":
        """Return units of points with such moments; ``axes``: components mean something.

        Examples
        --------
        >>> points = np.random.default_rng(0).normal(size=(500, 2)) @ [[1.0, 3.0], [0.0, 0.1]]
        >>> units = Units.of(*covariance(points), axes=False)
        >>> np.cov(points @ units.transform(None, 0.5).T, rowvar=False, bias=True).round(6) + 0.0
        array([[1., 0.],
               [0., 1.]])
        """
        scale = scales(mean, covariance)
        if axes:
            return cls(scale)
        variances, vectors = np.linalg.eigh(covariance * np.outer(scale, scale))
        kept = variances > _MIN_VARIANCE * variances.max()
        roots = np.where(kept, 1.0 / np.sqrt(np.where(kept, variances, 1.0)), 0.0)
        return cls(scale, (vectors * roots) @ vectors.T)

    def transform(self, learned: FloatArray | None, power: float) -> FloatArray:
        """Return L, shape (d, d): distances are Euclidean in L @ point, and L is M to a power.

        ``learned``, M, is in standard deviations of the components; None: it is the unit.
        """
        if self.whitening is None:
            return np.diag(self.scale) if learned is None else root(learned, power) * self.scale
        whitened = self.whitening * self.scale
        return whitened if learned is None else root(self._whitened(learned), power) @ whitened

    def outer(self, points: FloatArray, groups: IntArray, targets: FloatArray) -> FloatArray:
        """Return :func:`gradient_outer_product` in these units."""
        if self.whitening is None:
            return gradient_outer_product(points, self.scale, groups, targets)
        whitened = points @ (self.whitening * self.scale).T
        return gradient_outer_product(whitened, np.ones(len(self.scale)), groups, targets)

    def average(self, old: FloatArray | None, outer: FloatArray) -> FloatArray | None:
        """Return half the old metric and half a new one of :meth:`outer`.

        Both metrics are in standard deviations of the components, whatever these units are.
        """
        if self.whitening is None:
            return average(old, outer)
        found = average(None if old is None else self._whitened(old), outer)
        return None if found is None else self.whitening.T @ found @ self.whitening

    def metric(self, learned: FloatArray | None) -> FloatArray:
        """Return the metric in the units of the points, shape (d, d)."""
        if learned is None:
            whitening = self.whitening
            learned = np.eye(len(self.scale)) if whitening is None else whitening.T @ whitening
        return np.asarray(learned * np.outer(self.scale, self.scale))

    def _whitened(self, learned: FloatArray) -> FloatArray:
        """Return a metric in standard deviations in whitened units, of trace d."""
        back = np.linalg.pinv(self.whitening, hermitian=True)  # type: ignore[arg-type]
        matrix = back.T @ learned @ back
        trace = float(matrix.trace())
        return matrix * (len(matrix) / trace) if trace > 0.0 else matrix


@one_thread()
def directions(metric: FloatArray, scale: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return which directions of the state matter, the weightiest first.

    Parameters
    ----------
    metric : ndarray, shape (d, d)
        Mahalanobis matrix.
    scale : ndarray, shape (d,)
        Inverse standard deviations; 0 for a constant component.

    Returns
    -------
    shares : ndarray, shape (d,)
        Of the metric's trace, in standard deviations; they sum to 1.
    vectors : ndarray, shape (d, d)
        Row i: the i-th direction, of length 1, in standard deviations of the components; its
        largest entry is positive.

    Examples
    --------
    >>> shares, vectors = directions(np.diag([1.0, 0.0, 300.0]), np.array([1.0, 1.0, 10.0]))
    >>> shares.round(2), vectors[0].round(2)
    (array([0.75, 0.25, 0.  ]), array([0., 0., 1.]))
    """
    inverse = np.where(scale > 0.0, 1.0 / np.where(scale > 0.0, scale, 1.0), 0.0)
    eigenvalues, vectors = np.linalg.eigh(metric * np.outer(inverse, inverse))
    shares = np.maximum(eigenvalues[::-1], 0.0)
    rows = vectors.T[::-1]
    signs = np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])
    return shares / max(float(shares.sum()), 1e-300), rows * signs[:, None]
