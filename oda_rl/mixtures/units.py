"""Units of length in which a mixture learns, and the bound of its precisions in these.

The paper clips D, with P = D², at D_max: no variance falls below 1/D_max². Pixels that hardly vary
would otherwise get precisions without bound. Here that floor is a share of the mean variance of all
features, in which scaling the data changes nothing, unless it is given.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._types import Array, FloatArray
from oda_rl.files.estimators import within
from oda_rl.samples.missing import means_of

_ROUNDED = 8.0  # times the precision of numbers: what differs by less is equal
_WIDEST = 1e15  # root of the largest ratio of a variance to a floor: its inverse is a precision

VarianceFloor = Annotated[float | npt.ArrayLike | None, within("(0, inf)"), "array-like", None]


class Units(NamedTuple):
    """Units of a mixture's features, and its bound."""

    lengths: FloatArray
    """Of each feature, shape (d,)."""
    max_precision: float
    """Largest eigenvalue of the precisions in these units: D_max²."""


def deviations_of(points: Array, weights: FloatArray | None) -> FloatArray:
    """Return the standard deviations of features, shape (d,): 0 of those that are constant.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        NaN where values are missing, of which some must be observed of each feature.
    weights : ndarray, shape (n,), or None
        Of sum above 0.

    Examples
    --------
    >>> deviations_of(np.array([[0.0, 0.0, 0.1], [4.0, 2.0, 0.1]]), None)
    array([2., 1., 0.])
    """
    low, high = (
        extreme.reduce(points, axis=0).astype(np.float64) for extreme in (np.fmin, np.fmax)
    )
    widths = np.where(high > low, high - low, 1.0)
    places = (points - low) / widths  # whose squares are numbers, and 0 where all are equal
    gaps = places - means_of(places, weights)
    deviations = widths * np.sqrt(means_of(gaps * gaps, weights))
    sizes = np.maximum(np.abs(low), np.abs(high))
    return beyond_rounding(deviations, sizes, float(np.finfo(points.dtype).eps))


def beyond_rounding(deviations: FloatArray, sizes: FloatArray, precision: float) -> FloatArray:
    """Return deviations, shape (d,), with 0 for those that rounding explains.

    Parameters
    ----------
    deviations : ndarray, shape (d,)
    sizes : ndarray, shape (d,)
        Largest absolute values of the features.
    precision : float
        Of the numbers.
    """
    return np.where(deviations > _ROUNDED * precision * sizes, deviations, 0.0)


def units_from(
    deviations: FloatArray, size: float, floor: FloatArray | None, share: float, bound: float | None
) -> Units:
    """Choose units by standard deviations and the variance floor.

    A floor for each feature makes units proportional to the floors' roots; otherwise all features
    have one unit.

    Parameters
    ----------
    deviations : ndarray, shape (d,)
        0 of constant features, which have no part in the mean.
    size : float
        Stands for the deviations if all features are constant; 0 stands for 1.
    floor : ndarray of shape () or (d,), or None
        None: the share of the mean variance.
    share : float
        In (0, 1].
    bound : float or None
        Largest precision, by which units follow from the floor; None: the mean variance is 1.

    Examples
    --------
    >>> units_from(np.array([3.0, 1.0, 0.0]), 5.0, None, 0.01, None)
    Units(lengths=array([2.23606798, 2.23606798, 2.23606798]), max_precision=100.0)
    >>> units_from(np.array([3.0, 1.0, 0.0]), 5.0, np.array([0.09, 0.01, 1.0]), 0.01, None)
    Units(lengths=array([ 3.,  1., 10.]), max_precision=100.0)
    """
    if floor is None:
        scale = _mean_deviation(deviations) or size or 1.0
        roots, precision = np.full(len(deviations), scale * math.sqrt(share)), 1.0 / share
    else:
        roots = np.broadcast_to(np.sqrt(floor), deviations.shape)
        width = _mean_deviation(deviations / roots) or 1.0 / math.sqrt(share)
        if width > _WIDEST:
            raise ValueError(
                f"variance_floor is {floor.tolist()}: it must be at least {_WIDEST**-2:g} times "
                "the mean variance of the features; scale X, or raise the floor"
            )
        precision = max(width * width, _WIDEST**-2)
    precision = precision if bound is None else bound
    return Units(roots * math.sqrt(precision), precision)


def _mean_deviation(deviations: FloatArray) -> float:
    """Return the root of the mean variance of the features that vary; 0 if none does."""
    varying = deviations[deviations > 0.0]
    if len(varying) == 0:
        return 0.0
    largest = float(varying.max())
    return largest * float(np.sqrt(np.mean((varying / largest) ** 2)))
