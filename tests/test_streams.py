"""Classes of streams, densities where many features vary, and the precision of mixtures."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal
from sklearn.datasets import make_blobs

import oda_rl

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(120, 2))
LABELS = (POINTS[:, 0] > 0).astype(int)
classifiers = pytest.mark.parametrize("kind", [oda_rl.ODAClassifier, oda_rl.ODATreeClassifier])


@classifiers
def test_classes_of_the_first_call_are_kept(kind, reloaded):
    one = LABELS == 0
    model = kind(random_state=0).partial_fit(POINTS[one], LABELS[one], classes=[2, 0, 1])
    assert model.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(model.predict_proba(POINTS)[:, 1:], 0.0)
    model = reloaded(model)
    model.partial_fit(POINTS, LABELS, classes=[0, 1, 2]).partial_fit(POINTS, LABELS)
    assert model.score(POINTS, LABELS) > 0.8
    assert model.predict_proba(POINTS).shape == (120, 3)
    with pytest.raises(ValueError, match=r"y holds 7: it must be one of classes, \[0, 1, 2\]"):
        model.partial_fit(POINTS[:1], [7])
    fitted = kind(random_state=0).fit(POINTS, LABELS).partial_fit(POINTS, LABELS, classes=[1, 0])
    for own, known in ((model, "0, 1, 2"), (fitted, "0, 1")):
        with pytest.raises(ValueError, match=rf"it must be \[{known}\], as before"):
            own.partial_fit(POINTS, LABELS, classes=[0, 2])


@classifiers
def test_numbers_and_text_do_not_mix(kind):
    model = kind(random_state=0).partial_fit(POINTS, LABELS)
    before = model.predict(POINTS)
    with pytest.raises(ValueError, match="y holds 'a' beside .: labels must be all text or all"):
        model.partial_fit(POINTS[:1], ["a"])
    np.testing.assert_array_equal(model.predict(POINTS), before)
    assert model.partial_fit(POINTS[:1], [5]).classes_.tolist() == [0, 1, 5]


def test_the_density_of_many_features_is_normal_about_the_codevectors():
    points = RNG.normal(size=(300, 14)) + 3.0
    blobs, labels = make_blobs(400, centers=4, n_features=20, random_state=0)
    classifier = oda_rl.ODAClassifier(random_state=0)  # it learns a metric, as the last regressor
    for model, X, y in (
        (oda_rl.ODAClusterer(1, random_state=0), points, None),
        (oda_rl.ODATreeClusterer(min_samples_split=1000, random_state=0), points, None),
        (oda_rl.ODARegressor(random_state=0), points, points[:, 0]),  # merged down to one
        (oda_rl.ODARegressor(random_state=0), points, abs(points[:, 0] - 3.0)),
        (classifier, blobs, labels),
    ):
        found, centres = model.fit(X, y).score_samples(X), model.codevectors_
        variance = cdist(X, centres, "sqeuclidean").min(axis=1).mean() / X.shape[1]
        peaks = [multivariate_normal(centre, variance).pdf(X) for centre in centres]
        np.testing.assert_allclose(found, np.log(model.weights_ @ peaks), rtol=1e-6)
        assert model.score_samples(X + 50.0).mean() < found.mean() - 5000.0
    assert classifier.score(blobs, labels) == 1.0
    old, model = classifier.prediction_temperature_, classifier.partial_fit(blobs[:2], labels[:2])
    assert model.prediction_temperature_ == pytest.approx(old, rel=0.05)


def test_a_mixture_has_the_precision_of_its_samples_and_says_how_it_ended():
    points = POINTS.astype(np.float32)
    model = oda_rl.StochasticEMGaussianMixture(2, max_iter=30, random_state=0)
    np.testing.assert_array_equal(model.fit_predict(points), model.predict(points))
    for name in ("weights_", "means_", "covariances_", "precisions_"):
        assert getattr(model, name).dtype == np.float32
    assert (model.predict_proba(points).dtype, model.score_samples(points).dtype) == ("f4", "f8")
    assert model.converged_
    assert model.lower_bound_ == pytest.approx(model.score(points), abs=0.1)
