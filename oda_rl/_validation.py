"""What estimators of all rooms check: points and weights."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from oda_rl._types import Array, FloatArray
from oda_rl.diagram import LARGEST_DATA

_CHUNK = 4096
_HEAVIEST = 1e15  # weight of a sample


def chunks(n: int) -> list[slice]:
    """Slices of at most 4096 rows that make up n."""
    return [slice(begin, begin + _CHUNK) for begin in range(0, n, _CHUNK)]


def checked_points(estimator: BaseEstimator, X: Any, *, reset: bool) -> FloatArray:
    """Return X as float64, shape (n, d), or raise scikit-learn's exceptions."""
    with np.errstate(over="ignore", invalid="ignore"):  # in the sum of what is refused here
        points = validate_data(estimator, X, reset=reset, dtype=np.float64, order="C")
    return bounded(np.asarray(points), "X")


def bounded(values: Array, name: str, largest: float = LARGEST_DATA) -> Array:
    """Return numbers as they are, or raise ValueError if sums of their squares might be infinite.

    >>> bounded(np.array([1.0, -1e300]), "y")
    Traceback (most recent call last):
    ValueError: y holds -1e+300: its values must be from -1e+140 to 1e+140
    """
    for extreme in (values.min(initial=0.0), values.max(initial=0.0)):
        if abs(extreme) > largest:
            raise ValueError(
                f"{name} holds {extreme:g}: its values must be from {-largest:g} to {largest:g}"
            )
    return values


def checked_labels(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    *,
    reset: bool,
) -> tuple[FloatArray, Array]:
    """Return X likewise, and y as the labels of classes, shape (n,)."""
    with np.errstate(over="ignore", invalid="ignore"):
        points, labels = validate_data(estimator, X, y, reset=reset, dtype=np.float64, order="C")
    check_classification_targets(labels)
    return bounded(np.asarray(points), "X"), np.asarray(column_or_1d(labels, warn=True))


def fitted_points(estimator: BaseEstimator, X: Any) -> FloatArray:
    """Return X likewise, for an estimator that must have been fitted."""
    check_is_fitted(estimator)
    return checked_points(estimator, X, reset=False)


def checked_weights(sample_weight: Any, points: FloatArray) -> FloatArray:
    """Return the weights of points, shape (n,); ones if there are none."""
    weights = _check_sample_weight(
        sample_weight, points, dtype=np.float64, ensure_non_negative=True
    )
    if not (weights > 0.0).any():
        raise ValueError("Sample weights must contain at least one non-zero number.")
    if weights.max() > _HEAVIEST:
        raise ValueError(
            f"sample_weight holds {weights.max():g}: weights must be at most {_HEAVIEST:g}"
        )
    return np.asarray(weights)
