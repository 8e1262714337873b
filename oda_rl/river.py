"""Estimators as River has them: ``learn_one`` and ``predict_one`` of dictionaries.

>>> from river import datasets, metrics
>>> from oda_rl import ODAClassifier
>>> from oda_rl.river import to_river
>>> model, metric = to_river(ODAClassifier(20, random_state=0)), metrics.Accuracy()
>>> for x, y in datasets.Phishing().take(500):
...     metric.update(y, model.predict_one(x))
...     model.learn_one(x, y)
>>> metric.get() > 0.8
True

It needs river: ``pip install "oda-rl[river]"``.
"""

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
from river import base
from sklearn.base import BaseEstimator, clone, is_classifier, is_clusterer, is_regressor

import oda_rl
from oda_rl._types import FloatArray

_KEPT = 1000  # samples that are learned again when a feature appears
_BEGIN = {"StochasticVQ": "n_clusters", "StochasticEMGaussianMixture": "n_components"}  # with these


def _numbers(x: Mapping[Any, Any]) -> dict[Any, float]:
    """Return the features of a sample that have a value; ValueError names one that is no number."""
    numbers: dict[Any, float] = {}
    for name, value in x.items():
        try:
            numbers |= {} if value is None else {name: float(value)}
        except (TypeError, ValueError):
            raise ValueError(f"x[{name!r}] is {value!r:.80}: it must be a number") from None
    return numbers


class _Streamed(base.Estimator):
    """Adapter: a copy of the estimator that learns, and the order of features.

    Features that a sample lacks count as 0, as do those that are None. When a new one appears, a
    new copy learns the last 1,000 samples again. Samples before the first feature are ignored.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self._learner = clone(estimator)
        self._features: tuple[Hashable, ...] | None = None
        self._needed = getattr(estimator, _BEGIN.get(type(estimator).__name__, ""), 1)
        kept = max(_KEPT, self._needed)
        self._recent: deque[tuple[dict[Any, Any], tuple[Any, ...]]] = deque(maxlen=kept)

    def _row(self, numbers: Mapping[Any, float]) -> FloatArray:
        return np.array([[numbers.get(name, 0.0) for name in self._features or ()]])

    def _partial_fit(self, x: Mapping[Any, Any], *y: Any) -> None:
        x = _numbers(x)
        if not (x or self._recent):
            return
        self._recent.append((x, y))
        if len(self._recent) < self._needed:
            return
        rows = list(self._recent)[-1:]
        if self._features is None or not x.keys() <= set(self._features):
            named = {name for row, _ in self._recent for name in row}
            self._features = tuple(sorted({*(self._features or ()), *named}, key=str))
            self._learner, rows = clone(self.estimator), list(self._recent)
        table = np.concatenate([self._row(row) for row, _ in rows])
        columns = zip(*(targets for _, targets in rows), strict=True)
        self._learner.partial_fit(table, *(np.concatenate(column) for column in columns))

    def _predict(self, x: Mapping[Any, Any], default: Any) -> Any:
        if self._features is None:
            return default
        return self._learner.predict(self._row(_numbers(x)))[0]


class RiverClusterer(_Streamed, base.Clusterer):
    """A copy of a clusterer, a mixture or a map that learns from a stream of dictionaries.

    Examples
    --------
    >>> from oda_rl import ODAClusterer
    >>> model = RiverClusterer(ODAClusterer(2, random_state=0))
    >>> for value in (0.0, 1.0) * 50:
    ...     model.learn_one({"place": value})
    >>> model.predict_one({"place": 0.1}) != model.predict_one({"place": 0.9})
    True
    """

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Learn from a sample."""
        self._partial_fit(x)

    def predict_one(self, x: Mapping[Any, Any]) -> int:
        """Return the number of a sample's cluster; 0 before the first sample."""
        return int(self._predict(x, 0))

    @property
    def centers(self) -> dict[int, dict[Hashable, float]]:
        """Codevector, mean or exemplar of each cluster; none before the first sample."""
        names = ("codevectors_", "means_", "exemplars_")
        rows = next((getattr(self._learner, n) for n in names if hasattr(self._learner, n)), ())
        pairs = ((k, zip(self._features or (), row, strict=True)) for k, row in enumerate(rows))
        return {k: {name: float(value) for name, value in pair} for k, pair in pairs}

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"estimator": oda_rl.ODAClusterer(4, random_state=0)}


class RiverClassifier(_Streamed, base.Classifier):
    """A copy of a classifier that learns from a stream of dictionaries."""

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:
        """Learn from a sample and its class, which may be new."""
        self._partial_fit(x, np.array([y]))

    def predict_proba_one(self, x: Mapping[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Return the probability of each known class; River's ``kwargs`` are ignored."""
        if self._features is None:
            return {}
        shares = self._learner.predict_proba(self._row(_numbers(x)))[0].tolist()
        return dict(zip(self._learner.classes_.tolist(), shares, strict=True))

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"estimator": oda_rl.ODAClassifier(8, random_state=0)}


class RiverRegressor(_Streamed, base.Regressor):
    """A copy of a regressor that learns from a stream of dictionaries."""

    def learn_one(self, x: Mapping[Any, Any], y: float) -> None:
        """Learn from a sample and its target."""
        self._partial_fit(x, np.array([y], dtype=np.float64))

    def predict_one(self, x: Mapping[Any, Any]) -> float:
        """Return the expected target; 0 before the first sample."""
        return float(self._predict(x, 0.0))

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"estimator": oda_rl.ODARegressor(8, random_state=0)}


def to_river(estimator: BaseEstimator) -> Any:
    """Wrap a copy of an estimator with ``partial_fit`` as one of River's; TypeError without it.

    >>> from oda_rl import SGDGaussianMixture
    >>> type(to_river(SGDGaussianMixture(4))).__name__
    'RiverClusterer'
    """
    if not hasattr(estimator, "partial_fit"):
        raise TypeError(
            f"estimator is {estimator!r}: it must have partial_fit, to learn from one sample at a "
            "time"
        )
    if is_classifier(estimator):
        return RiverClassifier(estimator)
    if is_regressor(estimator):
        return RiverRegressor(estimator)
    if is_clusterer(estimator) or hasattr(estimator, "predict"):
        return RiverClusterer(estimator)
    raise TypeError(f"estimator is {estimator!r}: it must have predict")
