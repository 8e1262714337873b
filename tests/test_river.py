"""Estimators as River has them: River's own checks, and the same bits as ``partial_fit``."""

import numpy as np
import pytest
from river import checks, stream
from sklearn.cluster import DBSCAN

from oda_rl import (
    SOM,
    ODAClassifier,
    ODAClusterer,
    ODARegressor,
    ODATreeClassifier,
    SGDGaussianMixture,
    StochasticEMGaussianMixture,
    StochasticVQ,
)
from oda_rl.river import RiverClassifier, RiverClusterer, RiverRegressor, to_river

STREAMED = [
    (ODAClusterer(4, random_state=0), RiverClusterer),
    (ODAClassifier(4, random_state=0), RiverClassifier),
    (ODARegressor(4, random_state=0), RiverRegressor),
]


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "kind"), STREAMED)
def test_rivers_checks_pass(estimator, kind):
    model = to_river(estimator)
    long = checks.common.check_bounded_memory_growth.__name__  # of streams ten times as long
    of_all = {check.__name__: check for check in reversed([*checks.yield_checks(model)])}
    for name, check in of_all.items():  # each with the first of its streams
        if kind is RiverClusterer or name != long:
            check(model.clone())


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    return rng.normal(size=(200, 3)) + 4.0 * y[:, None], y


@pytest.mark.parametrize(
    ("estimator", "kind"),
    [
        *STREAMED,
        (ODATreeClassifier(random_state=0), RiverClassifier),
        (SGDGaussianMixture(4, random_state=0), RiverClusterer),
        (SOM((2, 3), random_state=0), RiverClusterer),
        (StochasticVQ(4, random_state=0), RiverClusterer),  # which wait for their first samples
        (StochasticEMGaussianMixture(4, random_state=0), RiverClusterer),
    ],
    ids=lambda value: type(value).__name__,
)
def test_it_learns_what_partial_fit_learns(estimator, kind, data):
    X, y = data
    model = to_river(estimator)
    assert type(model) is kind
    targets = () if kind is RiverClusterer else (y,)
    for i, row in enumerate(X):
        x = {"b": row[0], "c": row[1], "d": row[2]}
        model.learn_one(x, *(column.tolist()[i] for column in targets))
    for rows in (slice(model._needed), slice(model._needed, None)):  # one by one equals blocks
        estimator.partial_fit(X[rows], *(column[rows] for column in targets))
    for name in ("codevectors_", "means_", "hits_"):
        if hasattr(estimator, name):
            np.testing.assert_array_equal(getattr(model._learner, name), getattr(estimator, name))
    said = [model.predict_one({"d": row[2], "b": row[0], "c": row[1]}) for row in X[:20]]
    assert said == estimator.predict(X[:20]).tolist()


def test_features_that_come_late_count(data):
    X, y = data
    model, clusters = to_river(ODAClassifier(8, random_state=0)), to_river(ODAClusterer(2))
    assert clusters.predict_one({"a": 1.0, "b": 2.0}) == 0
    assert clusters.centers == {}
    for i, (row, label) in enumerate(zip(X, y.tolist(), strict=True)):
        x = {"noise": float(row[0] - 4.0 * label)} | ({"late": float(row[1])} if i > 30 else {})
        model.learn_one(x, label)
        clusters.learn_one(x)
    assert model.predict_one({"noise": 0.0}) == model.predict_one({"noise": 0.0, "late": 0.0}) == 0
    assert model.predict_one({"noise": 0.0, "late": 4.0}) == 1
    assert [set(center) for center in clusters.centers.values()] == [{"noise", "late"}] * 2


def test_a_feature_without_a_value_is_absent_and_text_is_refused():
    models = [to_river(ODAClusterer(2, random_state=0)) for _ in range(2)]
    models[0].learn_one({})
    for i in range(60):
        models[0].learn_one({"a": i % 7} | ({"b": 1.0} if i % 2 else {}))
        models[1].learn_one({"a": i % 7, "b": 1.0 if i % 2 else None})
        with pytest.raises(ValueError, match=r"x\['b'\] is 'red': it must be a number"):
            models[1].learn_one({"a": 1.0, "b": "red"})
    assert models[0].centers == models[1].centers


def test_classes_may_come_late():
    model = to_river(ODAClassifier(8, random_state=0))
    assert model.predict_one({"x": 0.0}) is None
    for x, y in stream.iter_array(np.array([[0.0], [1.0], [5.0]] * 40), ["a", "b", "late"] * 40):
        model.learn_one(x, y)
    shares = model.predict_proba_one({0: 5.0})
    assert set(shares) == {"a", "b", "late"}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert model.predict_one({0: 5.0}) == "late"


def test_what_learns_from_no_stream_is_refused():
    with pytest.raises(TypeError, match="it must have partial_fit"):
        to_river(DBSCAN())
