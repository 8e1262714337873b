"""What estimators of all rooms check: points and weights."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from oda_rl._types import FloatArray

_CHUNK = 4096


def chunks(n: int) -> list[slice]:
    """Slices of at most 4096 rows that make up n."""
    return [slice(begin, begin + _CHUNK) for begin in range(0, n, _CHUNK)]


def checked_points(estimator: BaseEstimator, X: Any, *, reset: bool) -> FloatArray:  # noqa: N803
    """Return X as float64, shape (n, d), or raise scikit-learn's exceptions."""
    return np.asarray(validate_data(estimator, X, reset=reset, dtype=np.float64, order="C"))


def fitted_points(estimator: BaseEstimator, X: Any) -> FloatArray:  # noqa: N803
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
