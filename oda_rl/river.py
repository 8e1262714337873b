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

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
from river import base
from sklearn.base import BaseEstimator, clone, is_classifier, is_clusterer, is_regressor

from oda_rl._types import FloatArray


class _Streamed(base.Estimator):
    """What all adapters share: a copy of the estimator that learns, and the order of features.

    Features are those of the first sample. Later ones that are missing count as 0, and others are
    left out.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self._learner = clone(estimator)
        self._features: tuple[Hashable, ...] | None = None

    def _learned(self) -> bool:
        return self._features is not None

    def _row(self, x: Mapping[Any, Any]) -> FloatArray:
        if self._features is None:
            return np.array([[float(value) for _, value in sorted(x.items(), key=_by_name)]])
        return np.array([[float(x.get(name, 0.0)) for name in self._features]])

    def _note(self, x: Mapping[Any, Any]) -> FloatArray:
        row = self._row(x)
        if self._features is None:
            self._features = tuple(name for name, _ in sorted(x.items(), key=_by_name))
        return row


class RiverClusterer(_Streamed, base.Clusterer):
    """A clusterer, a mixture or a map that learns from a stream of dictionaries.

    Parameters
    ----------
    estimator : estimator with ``partial_fit`` and ``predict``
        ODAClusterer, SGDGaussianMixture or SOM, for example; it is copied, and stays as it is.

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
        self._learner.partial_fit(self._note(x))

    def predict_one(self, x: Mapping[Any, Any]) -> int:
        """Return the number of a sample's cluster; 0 as long as nothing was learned."""
        return int(self._learner.predict(self._row(x))[0]) if self._learned() else 0

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from oda_rl.annealing.clusterer import ODAClusterer

        yield {"estimator": ODAClusterer(4, random_state=0)}


class RiverClassifier(_Streamed, base.Classifier):
    """A classifier that learns from a stream of dictionaries.

    Parameters
    ----------
    estimator : estimator with ``partial_fit`` and ``predict_proba``
        ODAClassifier or ODATreeClassifier; it is copied, and stays as it is.
    """

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:
        """Learn from a sample and its class; new classes are welcome."""
        self._learner.partial_fit(self._note(x), np.array([y]))

    def predict_proba_one(self, x: Mapping[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Return the probability of each class that was seen; River's ``kwargs`` say nothing."""
        if not self._learned():
            return {}
        shares = self._learner.predict_proba(self._row(x))[0].tolist()
        return dict(zip(self._learner.classes_.tolist(), shares, strict=True))

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from oda_rl.annealing.classifier import ODAClassifier

        yield {"estimator": ODAClassifier(8, random_state=0)}


class RiverRegressor(_Streamed, base.Regressor):
    """A regressor that learns from a stream of dictionaries.

    Parameters
    ----------
    estimator : estimator with ``partial_fit`` and ``predict``
        ODARegressor; it is copied, and stays as it is.
    """

    def learn_one(self, x: Mapping[Any, Any], y: float) -> None:
        """Learn from a sample and its target."""
        self._learner.partial_fit(self._note(x), np.array([y], dtype=np.float64))

    def predict_one(self, x: Mapping[Any, Any]) -> float:
        """Return the target that is expected; 0 as long as nothing was learned."""
        return float(self._learner.predict(self._row(x))[0]) if self._learned() else 0.0

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from oda_rl.annealing.regressor import ODARegressor

        yield {"estimator": ODARegressor(8, random_state=0)}


def to_river(estimator: BaseEstimator) -> Any:
    """Make one of River's estimators of one that learns by ``partial_fit``.

    Parameters
    ----------
    estimator : clusterer, mixture, map, classifier or regressor of this package
        It is copied, and stays as it is.

    Returns
    -------
    RiverClusterer, RiverClassifier or RiverRegressor

    Raises
    ------
    TypeError
        If it cannot learn from a stream.

    Examples
    --------
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


def _by_name(item: tuple[Any, Any]) -> str:
    return str(item[0])
