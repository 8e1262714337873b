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
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._compile import integer, seldom, sized, spliced
from oda_rl._sizes import held, of_sizes, of_width
from oda_rl._threads import one_thread
from oda_rl._types import FloatArray, IntArray
from oda_rl.linear.matrices import (
    IntegerArray,
    matrix_of,
    multiply_first,
    room_for,
    solve,
    trace,
)
from oda_rl.linear.routines import calling

RIDGE = 1e-2
REGULARISATION = 0.02
_LEAST = 1e-6  # of the moments: keeps a direction without points from dividing by zero
_LEAST_VARIANCE = 1e-9  # of the largest, that a direction must have to be whitened
_NEGLIGIBLE = 1e-7  # beside a component's mean: its variation is rounding

n_features = n_terms = 0  # of points, and with their target: constants in the loops below


def less(points: npt.NDArray[Any], origin: FloatArray) -> FloatArray:
    """Return points, shape (n, d), less an origin, (d,): an array as large takes half the time.

    >>> less(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 0.0]))
    array([[0., 2.],
           [2., 4.]])
    """
    return np.asarray(points - origin[None].repeat(len(points), axis=0), dtype=np.float64)


@one_thread()
def covariance(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean, shape (d,), and covariance, shape (d, d), of at least one point, shape (n, d)."""
    n = len(points)
    mean = np.full(n, 1.0 / n) @ points  # much faster than points.mean(axis=0)
    centred = less(points, mean)
    return mean, centred.T @ centred / n


def scales(mean: FloatArray, covariance: FloatArray) -> FloatArray:
    """Inverse standard deviation of each component; 0 for one that only rounding varies.

    Examples
    --------
    >>> scales(*covariance(np.array([[0.0, 5.0], [4.0, 5.0]])))
    array([0.5, 0. ])
    """
    deviations = np.sqrt(covariance.diagonal())
    varying = deviations > _NEGLIGIBLE * np.abs(mean)
    if varying.all():
        return np.asarray(1.0 / deviations)
    return np.where(varying, 1.0 / np.where(varying, deviations, 1.0), 0.0)


@spliced
def inverse_deviation(mean: float, variance: float) -> float:
    """Return what :func:`scales` says of one component, in compiled code."""
    deviation = math.sqrt(variance)
    return 1.0 / deviation if deviation > _NEGLIGIBLE * abs(mean) else 0.0


@partial(sized, made=lambda function: calling(seldom(function)))
def _outer_product(
    points: FloatArray,
    scale: FloatArray,
    groups: IntArray,
    targets: FloatArray,
    counts: IntArray,
    means: FloatArray,
    moments: FloatArray,
    gradients: FloatArray,
    numbers: FloatArray,
    whole: IntegerArray,
    out: FloatArray,
) -> None:
    """Write the outer product; sizes, means and moments of groups begin as 0, the rest is scratch.

    Moments are sums of products of deviations from the means, the last component being the target.
    """
    d, n_large = n_features, integer(0)
    points, means = of_width(points, n_features), of_width(means, n_terms)
    moments, centred = of_sizes(moments, n_terms, n_terms), held(numbers, n_terms)
    for i in range(points.shape[0]):
        group = groups[i]
        if group >= 0:
            counts[group] += 1
            for j in range(d):
                means[group, j] += points[i, j]
            means[group, d] += targets[i]
    for group in range(counts.shape[0]):
        if counts[group] > 0:
            for j in range(n_terms):
                means[group, j] /= counts[group]
    for i in range(points.shape[0]):
        group = groups[i]
        if group >= 0:
            for j in range(d):
                centred[j] = points[i, j] - means[group, j]
            centred[d] = targets[i] - means[group, d]
            for j in range(n_terms):
                for k in range(n_terms):
                    moments[group, j, k] += centred[j] * centred[k]
    system, right = matrix_of(numbers, 0, d), numbers[d * d :]
    for group in range(counts.shape[0]):
        if counts[group] >= 2 * (d + 1):
            for i in range(d):
                for j in range(d):
                    system[i, j] = moments[group, i, j] * (scale[i] * scale[j])
                right[i] = moments[group, i, d] * scale[i]
            more = RIDGE * trace(system) / d + _LEAST
            for i in range(d):
                system[i, i] += more
            if solve(system, right, whole) == 0:
                for i in range(d):
                    gradients[0, n_large, i] = right[i]
                    gradients[1, n_large, i] = counts[group] * right[i]
                n_large += 1
    multiply_first(gradients[1, :n_large], gradients[0, :n_large], out)


@one_thread()
def gradient_outer_product(
    points: FloatArray, scale: FloatArray, groups: IntArray, targets: FloatArray, n_groups: int
) -> FloatArray:
    """Sum of n g gᵀ over groups, g the gradient of the targets there, by ridge regression.

    A group of fewer than 2 (d + 1) points says nothing about a gradient and is left out, as is one
    whose system is singular.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        In any units.
    scale : ndarray, shape (d,)
        Makes them points of about unit variance; gradients are with respect to those.
    groups : ndarray of int64, shape (n,)
        Group of each point, below ``n_groups``: its cell and its action. Negative: none.
    targets : ndarray, shape (n,)
        Values of the function.
    n_groups : int
        How many groups there are.

    Returns
    -------
    ndarray, shape (d, d)
        Symmetric, positive semi-definite; 0 if no group is large enough.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(500, 2))
    >>> groups, targets = np.zeros(500, np.int64), 3.0 * points[:, 0]
    >>> outer = gradient_outer_product(points, np.ones(2), groups, targets, 1)
    >>> (outer / outer.trace()).round(2)
    array([[1., 0.],
           [0., 0.]])
    """
    d = points.shape[1]
    counts, means = np.zeros(n_groups, dtype=np.int64), np.zeros((n_groups, 1 + d))
    moments, gradients = np.zeros((n_groups, 1 + d, 1 + d)), np.empty((2, n_groups, d))
    found, write = np.empty((d, d)), _outer_product(n_features=d, n_terms=1 + d)
    sums, room = (counts, means, moments, gradients), room_for(d, 1)
    write(np.ascontiguousarray(points), scale, groups, targets, *sums, *room, found)
    return found


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
        kept = variances > _LEAST_VARIANCE * variances.max()
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

    def outer(
        self, points: FloatArray, groups: IntArray, targets: FloatArray, n_groups: int
    ) -> FloatArray:
        """Return :func:`gradient_outer_product` in these units."""
        if self.whitening is None:
            return gradient_outer_product(points, self.scale, groups, targets, n_groups)
        whitened = points @ (self.whitening * self.scale).T
        return gradient_outer_product(whitened, np.ones(len(self.scale)), groups, targets, n_groups)

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
