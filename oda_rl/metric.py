"""Learned metrics: which directions of the state change the value.

The metric is the average gradient outer product (AGOP) of a learned function: distances grow along
the directions in which the function changes. It is a Mahalanobis matrix, so a partition in it is an
affine diagram (:mod:`oda_rl.diagram`).

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
from numpy.typing import DTypeLike

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray, IntArray

RIDGE = 1e-2
REGULARISATION = 0.02
_MIN_VARIANCE = 1e-9  # relative to the largest: a direction with less is not whitened
_ROUNDING = {"float32": 1e-7, "float64": 1e-12}  # relative to a component's mean
SMALLEST = 1e-150  # standard deviation of a component that varies: its inverse square is finite


@one_thread()
def covariance(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean, shape (d,), and covariance, shape (d, d), of at least one point, shape (n, d)."""
    n = len(points)
    mean = np.full(n, 1.0 / n) @ points  # much faster than points.mean(axis=0)
    centred = points - mean
    return mean, centred.T @ centred / n


def scales(mean: FloatArray, covariance: FloatArray, dtype: DTypeLike = np.float32) -> FloatArray:
    """Inverse standard deviation of each component; 0 for one that only rounding varies."""
    deviations = np.sqrt(covariance.diagonal())
    varying = deviations > np.maximum(_ROUNDING[np.dtype(dtype).name] * np.abs(mean), SMALLEST)
    return np.where(varying, 1.0 / np.where(varying, deviations, 1.0), 0.0)


@one_thread()
def gradient_outer_product(
    points: FloatArray, scale: FloatArray, groups: IntArray, targets: FloatArray
) -> FloatArray:
    """Sum of n g gᵀ over groups, shape (d, d), g the gradient of the targets by ridge regression.

    Gradients are for points, shape (n, d), times ``scale``, shape (d,), which should have about
    unit variance. ``groups``, shape (n,), are negative for points to ignore; a group of fewer than
    2 (d + 1) points is left out.
    """
    d = points.shape[1]
    grouped = np.flatnonzero(groups >= 0)
    order = grouped[groups[grouped].argsort(kind="stable")]
    # Standardised first: squares in other units may overflow.
    rows = np.column_stack([points[order] * scale, targets[order]])
    parts = np.split(rows, np.bincount(groups[grouped]).cumsum()[:-1])
    centred = [part - part.sum(axis=0) / len(part) for part in parts if len(part) >= 2 * (d + 1)]
    if not centred:
        return np.zeros((d, d))
    moments = np.array([part.T @ part for part in centred])
    system, right = moments[:, :d, :d], moments[:, :d, d:]
    ridge = RIDGE * system.trace(axis1=1, axis2=2) / d + 1e-6  # no division by zero
    gradients = np.linalg.solve(system + ridge[:, None, None] * np.eye(d), right)[:, :, 0]
    counts = np.array([len(part) for part in centred])
    return (counts[:, None] * gradients).T @ gradients


def average(old: FloatArray | None, outer: FloatArray) -> FloatArray | None:
    """Half the old metric and half a new outer product of trace d, if that has a trace."""
    trace = float(outer.trace())
    if not 0.0 < trace < math.inf:
        return old
    new = outer * (len(outer) / trace)
    return new if old is None else 0.5 * (old + new)


@one_thread()
def root(metric: FloatArray, power: float, regularisation: float = REGULARISATION) -> FloatArray:
    """(M + 0.02 I) to a power, for a symmetric positive semi-definite M, shape (d, d).

    Power ½ gives L with |L (x - y)|² = (x - y)ᵀ M (x - y), but for the regularisation; a smaller
    power trusts the metric less.
    """
    eigenvalues, vectors = np.linalg.eigh(metric + regularisation * np.eye(len(metric)))
    powers = np.maximum(eigenvalues, 0.0) ** power
    return np.asarray((vectors * powers) @ vectors.T)


class Units(NamedTuple):
    """Units of distances, with or without a learned metric."""

    scale: FloatArray  # inverse standard deviations, shape (d,); 0 for a constant component
    whitening: FloatArray | None = None  # decorrelates components, (d, d)

    @classmethod
    @one_thread()
    def of(
        cls, mean: FloatArray, covariance: FloatArray, axes: bool, dtype: DTypeLike = np.float32
    ) -> "Units":
        """Return units of points with such moments, whitened unless the ``axes`` have a meaning."""
        scale = scales(mean, covariance, dtype)
        if axes:
            return cls(scale)
        variances, vectors = np.linalg.eigh(covariance * np.outer(scale, scale))
        kept = variances > _MIN_VARIANCE * variances.max()
        roots = np.where(kept, 1.0 / np.sqrt(np.where(kept, variances, 1.0)), 0.0)
        return cls(scale, (vectors * roots) @ vectors.T)

    def transform(self, learned: FloatArray | None, power: float) -> FloatArray:
        """Return L, shape (d, d): distances are Euclidean in L @ point.

        L is the metric to a power; ``learned`` is for standardised components, None: the identity.
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
        """Return :func:`average` of metrics for standardised components, ``outer`` from here."""
        if self.whitening is None:
            return average(old, outer)
        mixed = average(None if old is None else self._whitened(old), outer)
        return None if mixed is None else self.whitening.T @ mixed @ self.whitening

    def metric(self, learned: FloatArray | None) -> FloatArray:
        """Return the metric in the units of the points, shape (d, d)."""
        if learned is None:
            whitening = self.whitening
            learned = np.eye(len(self.scale)) if whitening is None else whitening.T @ whitening
        return np.asarray(learned * np.outer(self.scale, self.scale))

    def _whitened(self, learned: FloatArray) -> FloatArray:
        """Return a metric for standardised components in whitened units, of trace d."""
        back = np.linalg.pinv(self.whitening, hermitian=True)  # type: ignore[arg-type]
        matrix = back.T @ learned @ back
        trace = float(matrix.trace())
        return matrix * (len(matrix) / trace) if trace > 0.0 else matrix


@one_thread()
def directions(metric: FloatArray, scale: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the directions of the state that matter, in order of importance.

    ``metric``, shape (d, d), is a Mahalanobis matrix; ``scale``, shape (d,), are inverse standard
    deviations, 0 for a constant component.

    Returns
    -------
    shares : ndarray, shape (d,)
        Shares of the metric's trace, for standardised components; they sum to 1.
    vectors : ndarray, shape (d, d)
        Rows of length 1, for standardised components, each with a positive largest entry.
    """
    inverse = np.where(scale > 0.0, 1.0 / np.where(scale > 0.0, scale, 1.0), 0.0)
    eigenvalues, vectors = np.linalg.eigh(metric * np.outer(inverse, inverse))
    shares = np.maximum(eigenvalues[::-1], 0.0)
    rows = vectors.T[::-1]
    signs = np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])
    return shares / max(float(shares.sum()), 1e-300), rows * signs[:, None]
