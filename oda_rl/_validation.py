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

_CHUNK = 4096


def chunks(n: int) -> list[slice]:
    """Slices of at most 4096 rows that make up n."""
    return [slice(begin, begin + _CHUNK) for begin in range(0, n, _CHUNK)]


def checked_points(estimator: BaseEstimator, X: Any, *, reset: bool) -> FloatArray:
    """Return X as float64, shape (n, d), or raise scikit-learn's exceptions."""
    return np.asarray(validate_data(estimator, X, reset=reset, dtype=np.float64, order="C"))


def checked_labels(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    *,
    reset: bool,
) -> tuple[FloatArray, Array]:
    """Return X likewise, and y as the labels of classes, shape (n,)."""
    points, labels = validate_data(estimator, X, y, reset=reset, dtype=np.float64, order="C")
    check_classification_targets(labels)
    return points, np.asarray(column_or_1d(labels, warn=True))


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
    return np.asarray(weights)
