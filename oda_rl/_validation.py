"""Validation of samples, targets and weights, for all estimators."""

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.diagram import LARGEST_DATA
from oda_rl.files.estimators import writable
from oda_rl.files.schema import printable, real
from oda_rl.samples import holes, relative, relative_in_stream, repeated

_CHUNK, _MAX_VALUES = 4096, 2**20
HEAVIEST = 1e100  # weight of a sample
ROUNDING = 2.0**-23  # relative: more than float32 moves a number


def chunks(n: int, width: int = 1) -> list[slice]:
    """Slices of at most 4,096 rows, and about a million values, that make up n rows."""
    size = max(min(_CHUNK, _MAX_VALUES // width), 1)
    return [slice(begin, begin + size) for begin in range(0, n, size)]


class TakesMissing(BaseEstimator):
    """An estimator that takes missing values, which are NaN."""

    def _takes_missing(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_missing()
        return tags


class TakesSingle(BaseEstimator):
    """An estimator that learns in single precision from samples that have it."""

    def _takes_single(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = [kind.__name__ for kind in precisions(self)]
        return tags


def precisions(estimator: BaseEstimator) -> list[type]:
    """Return the types that samples may have; others are converted to the first."""
    single = isinstance(estimator, TakesSingle) and estimator._takes_single()
    return [np.float64, np.float32] if single else [np.float64]


def finite(estimator: BaseEstimator) -> bool | str:
    """Return scikit-learn's ``ensure_all_finite``."""
    missing = isinstance(estimator, TakesMissing) and estimator._takes_missing()
    return "allow-nan" if missing else True


def unmasked(values: Any) -> Any:
    """Return values, with NaN where a masked array hides one."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        return np.where(values.mask, np.nan, values.data)
    return values


def validated_data(estimator: BaseEstimator, X: Any, **options: Any) -> Any:
    """Call scikit-learn's ``validate_data``."""
    X, options = unmasked(X), {name: unmasked(option) for name, option in options.items()}
    with np.errstate(over="ignore", invalid="ignore"):  # in sums of infinite values
        checked = validate_data(
            estimator, X, order="C", ensure_all_finite=finite(estimator), **options
        )
    if isinstance(checked, tuple):
        return writable(checked[0]), checked[1]
    return writable(checked)


def observed(points: Array) -> Array:
    """Return points, or raise ValueError if one has no observed value."""
    missing = holes(points)
    if missing is not None and missing.all(axis=1).any():
        raise ValueError(
            f"X has no value in row {missing.all(axis=1).argmax()}: each sample must have at "
            "least one"
        )
    return points


def check_columns(estimator: BaseEstimator, points: Array) -> None:
    """Raise ValueError if a feature of points, shape (n, d), n > 0, has no observed value."""
    missing = holes(points)
    if missing is not None and missing.all(axis=0).any():
        j = int(missing.all(axis=0).argmax())
        name = getattr(estimator, "feature_names_in_", range(len(missing[0])))[j]
        raise ValueError(
            f"X has no value of feature {printable(str(name))}: what learning begins with must "
            "have at least one of each"
        )


def checked_points(estimator: BaseEstimator, X: Any, *, reset: bool) -> FloatArray:
    """Return X as float64, shape (n, d), or raise scikit-learn's exceptions.

    float32 and NaN remain if the estimator takes them.
    """
    points = validated_data(estimator, X, reset=reset, dtype=precisions(estimator))
    return observed(bounded(np.asarray(points), "X"))


def bounded(values: Array, name: str, largest: float = LARGEST_DATA) -> Array:
    """Return values, or raise ValueError if sums of their squares might overflow."""
    for extreme_of in (np.fmin, np.fmax):  # which ignore NaN
        extreme = extreme_of.reduce(values, axis=None, initial=0.0)
        if abs(float(extreme)) > largest:
            column = int(np.argwhere(values == extreme)[0, -1])
            raise ValueError(
                f"{name} holds {extreme:g}: its values must be from {-largest:g} to {largest:g}"
                + f" (in feature {column})" * (values.ndim == 2)
            )
    return values


def check_enough(estimator: Any, n_samples: int) -> None:
    """Raise ValueError if there are fewer samples than ``n_clusters``, if the estimator has any."""
    n_clusters = getattr(estimator, "n_clusters", "auto")
    if n_clusters != "auto" and n_samples < int(n_clusters):
        raise ValueError(f"n_samples={n_samples} should be >= n_clusters={n_clusters} to begin.")


def checked_labels(
    estimator: BaseEstimator, X: Any, y: Any, *, reset: bool
) -> tuple[FloatArray, Array]:
    """Return X likewise, and y as class labels, shape (n,)."""
    points, labels = validated_data(estimator, X, y=y, reset=reset, dtype=precisions(estimator))
    unknown = [i for i, label in enumerate(labels) if label is None]
    if unknown:
        raise ValueError(f"y is None in row {unknown[0]}: leave out samples without a label")
    check_classification_targets(labels)
    return observed(bounded(np.asarray(points), "X")), np.asarray(column_or_1d(labels, warn=True))


def stream_labels(seen: list[Any], labels: Array, promised: list[Any]) -> IntArray:
    """Return labels, shape (n,), as indices into ``seen``, which new ones are appended to.

    Raises ValueError if some labels are text and others numbers, or not among those ``promised``.
    """
    indices = {label: i for i, label in enumerate(seen)}
    for label in labels.tolist():
        if promised and label not in promised:
            raise ValueError(f"y holds {label!r}: it must be one of classes, {promised!r:.80}")
        for other in (promised or seen)[:1]:
            if isinstance(label, str) != isinstance(other, str):
                raise ValueError(
                    f"y holds {label!r} beside {other!r}: labels must be all text or all numbers"
                )
        if label not in indices:
            indices[label] = len(seen)
            seen.append(label)
    return np.array([indices[label] for label in labels.tolist()], dtype=np.int64)


def promised_classes(estimator: Any, classes: Any, *, first: bool) -> list[Any]:
    """Return the classes that the first ``partial_fit`` was given, sorted; none by default.

    Raises ValueError if later ones differ, or those after ``fit`` from the classes seen.
    """
    given = [] if classes is None else np.unique(np.asarray(classes)).tolist()
    if first:
        estimator._promised = given
    elif classes is not None:
        known = estimator._promised or estimator.classes_.tolist()
        if given != known:
            raise ValueError(f"classes is {classes!r:.80}: it must be {known!r:.80}, as before")
    return list(estimator._promised)


def checked_targets(
    estimator: BaseEstimator, X: Any, y: Any, *, reset: bool
) -> tuple[FloatArray, FloatArray]:
    """Return X likewise, and y as numbers, shape (n,) or (n, q)."""
    points, targets = validated_data(
        estimator, X, y=y, reset=reset, dtype=np.float64, y_numeric=True, multi_output=True
    )
    values = bounded(np.asarray(targets, dtype=np.float64), "y")
    return observed(bounded(np.asarray(points), "X")), values


def fitted_points(estimator: BaseEstimator, X: Any) -> FloatArray:
    """Return X likewise, if the estimator has been fitted."""
    check_is_fitted(estimator)
    return checked_points(estimator, X, reset=False)


def given_weights(sample_weight: Any, points: FloatArray) -> FloatArray:
    """Return the weights of points, shape (n,), in their own unit; by default ones."""
    if sample_weight is None:
        return np.ones(len(points))
    weights = _check_sample_weight(
        unmasked(sample_weight), points, dtype=np.float64, ensure_non_negative=True
    )
    if not (weights > 0.0).any():
        raise ValueError("Sample weights must contain at least one non-zero number.")
    if weights.max() > HEAVIEST:
        raise ValueError(
            f"sample_weight holds {weights.max():g}: weights must be at most {HEAVIEST:g}"
        )
    return np.asarray(weights)


def checked_weights(sample_weight: Any, points: FloatArray) -> FloatArray:
    """Return the weights of points, shape (n,), in effective samples; by default ones."""
    return relative(given_weights(sample_weight, points))


WEIGHED = real("2", "[0, 1e150]")  # times HEAVIEST is finite
"""Schema of ``_weighed``: the sum and the number of the weights that an estimator has learned."""


def fit_weights(estimator: Any, sample_weight: Any, points: FloatArray) -> FloatArray:
    """Return :func:`checked_weights`, of which those of a later stream are multiples."""
    weights = given_weights(sample_weight, points)
    estimator._weighed = np.array([weights.sum(), np.count_nonzero(weights)])
    return relative(weights)


def stream_weights(
    estimator: Any, sample_weight: Any, points: FloatArray, *, first: bool
) -> FloatArray:
    """Return the weights of a stream, shape (n,), over the mean of those that were learned."""
    before = np.zeros(2) if first else estimator._weighed
    weights = given_weights(sample_weight, points)
    weights, estimator._weighed = relative_in_stream(weights, before)
    return weights


def seed_of(random_state: Any) -> int:
    """Return an integer itself, or a seed that is drawn from another ``random_state``."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def mean_score(scores: FloatArray, sample_weight: Any) -> float:
    """Return the weighted mean of scores, shape (n,), which may be minus infinity."""
    weights = checked_weights(sample_weight, scores[:, None])
    counted = weights > 0.0  # 0 times minus infinity is NaN
    return float(np.average(scores[counted], weights=weights[counted]))


def stream_rows(estimator: Any, sample_weight: Any, points: FloatArray, *, first: bool) -> IntArray:
    """Return the rows of a stream, shape (m,), each as often as it weighs; fractions add up."""
    weights = stream_weights(estimator, sample_weight, points, first=first)
    order, estimator._owed = repeated(weights, 0.0 if first else estimator._owed)
    return order
