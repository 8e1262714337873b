"""Exemplars among given candidates: convex clustering, kernel vector quantisation."""

import math
from dataclasses import KW_ONLY
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils._param_validation import StrOptions

from oda_rl._types import BoolArray, FloatArray
from oda_rl._validation import checked_points, chunks
from oda_rl.exemplars.base import ExemplarMixture, checked_exemplars, distinct, rule_of_thumb
from oda_rl.exemplars.column_generation import Problem, select
from oda_rl.exemplars.pricing import KERNELS, Kernel, squared_distances
from oda_rl.files.estimators import POSITIVE, estimator, validated

_TOLERANCE = 1e-8  # of the margin
_SHOWN = 5  # samples in a message


@estimator
class ConvexClustering(ExemplarMixture):
    """Convex clustering: the most likely mixture whose exemplars are samples.

    Maximises mean_i log Σ_j q_j k((x_i - x_j)/h) over q on the simplex: convex, and sparse at the
    optimum. :class:`INFEX` is never worse.

    Parameters
    ----------
    bandwidth : float or {"scott", "silverman"}, default="scott"
        h > 0, or by :func:`rule_of_thumb`. Lashkari and Golland's β is 1/(2 h²) with d the squared
        distance.
    kernel : {"gaussian", "epanechnikov", "disc"}, default="gaussian"
        See :class:`INFEX`.
    candidates : array-like, shape (n, n_features), or None, default=None
        Possible exemplars; None: the samples.
    tol : float, default=1e-8
        Duality gap at which to stop, positive.

    Attributes
    ----------
    exemplars_, cluster_centers_ : ndarray, shape (n_exemplars, n_features)
        Candidates of positive weight.
    duality_gap_ : float
        No weights of the candidates are better by more.
    certificate_ : str
        "exact": all candidates are priced.
    weights_, bandwidth_, objective_value_, labels_, n_features_in_
        As for :class:`INFEX`.

    References
    ----------
    D. Lashkari, P. Golland, "Convex clustering with exemplar-based models", Advances in Neural
    Information Processing Systems 20, 2007.

    Examples
    --------
    >>> X = [[0.0], [0.3], [0.5], [5.0], [5.3]]
    >>> ConvexClustering(bandwidth=1.0).fit(X).exemplars_
    array([[0.3],
           [5. ],
           [5.3]])
    """

    bandwidth: Annotated[float | str, POSITIVE, StrOptions({"scott", "silverman"})] = "scott"
    _: KW_ONLY
    kernel: Annotated[str, StrOptions(set(KERNELS))] = "gaussian"
    candidates: Annotated[npt.ArrayLike | None, "array-like", None] = None
    tol: Annotated[float, POSITIVE] = 1e-8

    @validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        """Weight the candidates; parameters are those of :meth:`INFEX.fit`.

        Raises
        ------
        ValueError
            If ``candidates`` do not fit the data, or a sample has no response to any of them.
        NotConvergedError
            If the weights do not converge.
        """
        everything = checked_points(self, X, reset=True)
        points, weights, used = distinct(everything, sample_weight)
        bandwidth = self.bandwidth
        if isinstance(bandwidth, str):
            bandwidth = rule_of_thumb(points, bandwidth, weights)
        candidates = _candidates(self.candidates, points)
        kernel, tolerance = KERNELS[self.kernel], float(self.tol)
        _check_covered(everything, used, candidates, bandwidth, kernel)
        masses = None if weights is None else weights / weights.sum()
        scaled, problem = (points / bandwidth, candidates / bandwidth), Problem(kernel=kernel)
        find = partial(select, *scaled, problem, tolerance, masses)
        self._learn(everything, float(bandwidth), find)
        return self


@estimator
class KernelVectorQuantization(ExemplarMixture):
    """Kernel vector quantization: few codevectors within a given distance of every sample.

    Maximises the smallest total weight of the balls that cover a sample; the balls of positive
    weight cover all samples, and few suffice at a corner of the optimal face.

    Parameters
    ----------
    max_distortion : float, default=1.0
        Radius of the balls, > 0.
    candidates : array-like, shape (n, n_features), or None, default=None
        Possible codevectors; None: the samples.

    Attributes
    ----------
    objective_value_ : float
        The margin ρ: each sample is covered by balls of at least this weight.
    exemplars_, weights_, bandwidth_, duality_gap_, certificate_, labels_, n_features_in_
        As for :class:`ConvexClustering`.

    References
    ----------
    M. Tipping, B. Schölkopf, "A kernel approach for vector quantization with guaranteed distortion
    bounds", AISTATS, 2001, in the form of equation 1 of Nowozin and Bakir (see :class:`INFEX`).

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [7.0]]
    >>> KernelVectorQuantization(max_distortion=1.0).fit(X).exemplars_
    array([[1.],
           [7.]])
    """

    max_distortion: Annotated[float, POSITIVE] = 1.0
    _: KW_ONLY
    candidates: Annotated[npt.ArrayLike | None, "array-like", None] = None

    @validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        """Choose codevectors; parameters are those of :meth:`INFEX.fit`.

        Samples of weight 0 need not be covered.

        Raises
        ------
        ValueError
            If ``candidates`` do not fit the data, or a sample is too far from all of them.
        """
        everything = checked_points(self, X, reset=True)
        points, _, used = distinct(everything, sample_weight)
        candidates = _candidates(self.candidates, points)
        kernel, radius = KERNELS["disc"], float(self.max_distortion)
        _check_covered(everything, used, candidates, radius, kernel)
        scaled = points / radius, candidates / radius
        find = partial(select, *scaled, Problem("margin", kernel), _TOLERANCE)
        self._learn(everything, radius, find)
        return self


def _candidates(given: npt.ArrayLike | None, points: FloatArray) -> FloatArray:
    """Return the candidates, which are the samples if none are given."""
    candidates = checked_exemplars(given, points.shape[1], "candidates")
    return np.unique(points, axis=0) if candidates is None else candidates


def _check_covered(
    points: FloatArray, used: BoolArray, candidates: FloatArray, bandwidth: float, kernel: Kernel
) -> None:
    """Raise ValueError if no candidate responds to a sample, and say which bandwidth suffices."""
    origin = candidates.mean(axis=0)
    squares = np.concatenate(
        [
            squared_distances(points[rows] - origin, candidates - origin).min(axis=1)
            for rows in chunks(len(points))
        ]
    )
    covered = ~used | (kernel.response(squares / bandwidth**2) > 0.0)
    if covered.all():
        return
    alone = np.flatnonzero(~covered)
    shown = ", ".join(map(str, alone[:_SHOWN])) + (", ..." if len(alone) > _SHOWN else "")
    farthest = math.sqrt(float(squares[used].max()))
    bound = "above" if kernel.name == "epanechnikov" else "of at least"
    if kernel.name == "gaussian":  # where responses underflow
        farthest /= 38.0
    raise ValueError(
        f"{len(alone)} of {len(points)} samples (rows {shown}) have no candidate within reach of "
        f"bandwidth={bandwidth:g}: a bandwidth {bound} {farthest:.6g} reaches all"
    )
