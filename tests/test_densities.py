"""Classes and outliers by densities."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_blobs, make_moons
from sklearn.ensemble import IsolationForest
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB

from oda_rl import (
    INFEX,
    DensityClassifier,
    DensityOutlierDetector,
    InvalidFileError,
    ODAClusterer,
    ODATreeClusterer,
    SGDGaussianMixture,
)
from oda_rl.files.archive import load_archive, save_archive

MOONS, LABELS = make_moons(400, noise=0.15, random_state=0)
DENSITIES = [
    None,
    SGDGaussianMixture(3, covariance_type="full"),
    INFEX(bandwidth=0.3, tol=1e-3),
    ODAClusterer(12),
    ODATreeClusterer(),
]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("density", DENSITIES)
def test_it_is_bayes_rule(density):
    names = np.array(["left", "right"])[LABELS]
    weights = np.random.default_rng(0).integers(1, 4, 400)
    takes = not isinstance(density, INFEX)
    given = weights if takes else None
    model = DensityClassifier(density, random_state=0).fit(MOONS, names, sample_weight=given)
    shares = np.array([weights[c == LABELS].sum() if takes else 200 for c in range(2)])
    np.testing.assert_allclose(model.class_prior_, shares / shares.sum())
    each = [one.score_samples(MOONS) for one in model.densities_]
    powers = model.class_prior_ * np.exp(np.transpose(each) / model.temperature_)
    some = powers.sum(axis=1) > 0.0  # beyond the box of a histogram there is nothing
    expected = powers[some] / powers[some].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(MOONS)[some], expected, atol=1e-9)
    assert (model.predict(MOONS) == names).mean() > 0.8  # histograms are coarse


def test_one_component_is_naive_bayes():
    points, labels = load_iris(return_X_y=True)
    ours = DensityClassifier(SGDGaussianMixture(1, tol=1e-4), random_state=0)
    theirs = cross_val_score(GaussianNB(), points, labels, cv=5).mean()
    assert cross_val_score(ours, points, labels, cv=5).mean() == pytest.approx(theirs, abs=0.03)


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_probabilities_are_calibrated(load):
    points, labels = load(return_X_y=True)
    shares, sure = np.empty((2, len(labels), labels.max() + 1))
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(points, labels):
        model = DensityClassifier(random_state=0).fit(points[train], labels[train])
        shares[test] = model.predict_proba(points[test])
        assert model.temperature_ > 1.0
        model.temperature_ = 1.0
        sure[test] = model.predict_proba(points[test])
    assert log_loss(labels, shares) < 0.9 * log_loss(labels, sure)
    confidence, right = shares.max(axis=1), shares.argmax(axis=1) == labels
    assert abs(confidence.mean() - right.mean()) < 0.04  # of a standard error of .02
    assert right.mean() > 0.9


@pytest.mark.parametrize("density", [None, SGDGaussianMixture(2)])
def test_it_does_not_matter_what_features_are_measured_in(density):
    points, labels = load_wine(return_X_y=True)
    factors = 10.0 ** np.arange(-6, 7)
    model = DensityClassifier(density, random_state=0).fit(points, labels)
    other = DensityClassifier(density, random_state=0).fit(points * factors, labels)
    floors = [one.variance_floor_ for one in model.densities_]  # of all data, once
    np.testing.assert_allclose(floors, [floors[0]] * 3, rtol=1e-9)
    np.testing.assert_array_equal(other.predict(points * factors), model.predict(points))
    usual = DensityOutlierDetector(random_state=0).fit(points).predict(points)
    other = DensityOutlierDetector(random_state=0).fit(points * factors).predict(points * factors)
    np.testing.assert_array_equal(other, usual)


@pytest.mark.parametrize("kind", [DensityClassifier, DensityOutlierDetector])
def test_values_may_be_missing_where_the_density_is_a_mixture(kind):
    holed = np.where(np.random.default_rng(0).random(MOONS.shape) < 0.1, np.nan, MOONS)
    holed[np.isnan(holed).all(axis=1)] = 0.0
    predicted = kind(random_state=0).fit(MOONS, LABELS).predict(MOONS)
    assert (kind(random_state=0).fit(holed, LABELS).predict(MOONS) == predicted).mean() > 0.9
    holed[LABELS == 0, 0] = np.nan  # a class without a value
    holed[np.isnan(holed).all(axis=1), 1] = 0.0
    assert DensityClassifier(random_state=0).fit(holed, LABELS).score(MOONS, LABELS) > 0.75
    with pytest.raises(ValueError, match="Input X contains NaN"):
        kind(ODAClusterer(3)).fit(holed, LABELS)


@pytest.mark.parametrize("kind", [DensityClassifier, DensityOutlierDetector])
def test_weights_are_repetitions(kind):
    weights = np.random.default_rng(0).integers(0, 3, 400)
    one = kind(random_state=0).fit(MOONS.repeat(weights, axis=0), LABELS.repeat(weights))
    if kind is DensityClassifier:
        other = kind(random_state=0).fit(MOONS, LABELS, sample_weight=weights)
        np.testing.assert_allclose(other.predict_proba(MOONS), one.predict_proba(MOONS))
    else:
        other = kind(random_state=0).fit(MOONS, sample_weight=weights)
        np.testing.assert_allclose(other.score_samples(MOONS), one.score_samples(MOONS))
        assert other.offset_ == pytest.approx(one.offset_)
    with pytest.raises(TypeError, match="GaussianMixture takes no weights: those of"):
        kind(GaussianMixture(2)).fit(MOONS, LABELS, sample_weight=weights + 0.3)


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("contamination", [0.05, 0.3])
def test_as_many_are_outliers_as_was_said(density, contamination):
    model = DensityOutlierDetector(density, contamination=contamination, random_state=0)
    outliers = model.fit_predict(MOONS) == -1
    scores = model.score_samples(MOONS)
    np.testing.assert_array_equal(outliers, scores < model.offset_)
    ties = (scores == scores[outliers].max()).sum() if outliers.any() else 400
    assert abs(outliers.sum() - 400 * contamination) <= max(ties, 0 if density is None else 40)


def test_what_lies_apart_is_found():
    rng = np.random.default_rng(0)
    usual, _ = make_blobs(500, n_features=4, centers=3, random_state=1)
    unusual = rng.uniform(usual.min(axis=0), usual.max(axis=0), size=(50, 4))
    points, truth = np.concatenate([usual, unusual]), np.repeat([0, 1], [500, 50])
    model = DensityOutlierDetector(random_state=0).fit(usual)
    forest = IsolationForest(random_state=0).fit(usual)
    ours = roc_auc_score(truth, -model.decision_function(points))
    assert ours > roc_auc_score(truth, -forest.decision_function(points))
    assert ours > 0.98
    clump = np.concatenate([rng.normal(size=(400, 5)), rng.normal(4.0, 0.3, (20, 5))])
    model = DensityOutlierDetector(random_state=0).fit(clump)  # a component settles on these
    assert roc_auc_score(np.arange(420) >= 400, -model.score_samples(clump)) > 0.99
    usual = rng.normal(np.repeat([-5.0, 5.0], 250)[:, None], 1.0, (500, 2))
    unusual = rng.normal(0.0, 0.5, (15, 2))
    points = np.concatenate([usual, unusual, [[1000.0, 1000.0]]])
    model = DensityOutlierDetector(random_state=0).fit(points)  # one is much farther away
    assert roc_auc_score(np.arange(516) >= 500, -model.score_samples(points)) > 0.99
    model = DensityOutlierDetector(contamination=0.05, random_state=0)
    model.fit(rng.normal(size=(60, 10)))
    assert (model.predict(rng.normal(size=(1000, 10))) < 0).mean() < 0.15  # of four parts 0.3


def test_one_mistyped_value_hardly_matters():
    points, labels = make_moons(1000, noise=0.2, random_state=1)
    points[0, 0] = 20.0
    model = DensityClassifier(random_state=0).fit(points[:600], labels[:600])
    assert model.score(points[600:], labels[600:]) > 0.95  # with its loss unbounded 0.88


def test_components_are_as_few_and_probabilities_as_unsure_as_held_out_samples_say():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(1200, 10))
    labels = (points**2).sum(axis=1) > 9.34  # a shell about a ball
    model = DensityClassifier(random_state=0).fit(points[:600], labels[:600])
    assert model.score(points[600:], labels[600:]) > 0.87  # with four components 0.83
    points, labels = 1.0 * (rng.random((600, 20)) < 0.05), rng.random(600) < 0.2
    model = DensityClassifier(random_state=0).fit(points[:300], labels[:300])
    shares = np.tile(model.class_prior_, (300, 1))  # features tell nothing else
    loss = log_loss(labels[300:], model.predict_proba(points[300:]))
    assert loss < log_loss(labels[300:], shares) + 0.01


def test_only_densities_will_do():
    for wrong in (3, GaussianNB(), "mixture"):
        with pytest.raises(ValueError, match="'estimator' parameter"):
            DensityClassifier(wrong).fit(MOONS, LABELS)
    theirs = DensityClassifier(GaussianMixture(2)).fit(MOONS, LABELS)
    assert theirs.score(MOONS, LABELS) > 0.85
    rare = np.r_[np.zeros(398, int), 1, 1]
    assert DensityClassifier(random_state=0).fit(MOONS, rare).predict(MOONS[-1:]) in (0, 1)


def test_files_have_densities_of_the_package_alone(tmp_path):
    path = tmp_path / "model.zip"
    for density in (None, INFEX(bandwidth=0.3, tol=1e-3), ODATreeClusterer()):
        model = DensityClassifier(density and clone(density), random_state=0)
        model.fit(MOONS[::4], LABELS[::4])
        model.save(path)
        loaded = DensityClassifier.load(path)
        np.testing.assert_array_equal(loaded.predict_proba(MOONS), model.predict_proba(MOONS))
    with pytest.raises(TypeError, match="can't be saved: it holds GaussianMixture"):
        DensityClassifier(GaussianMixture()).save(path)
    DensityClassifier(SGDGaussianMixture(4), random_state=0).fit(MOONS, LABELS).save(path)
    metadata, arrays = load_archive(path)
    for name in [name for name in arrays if arrays[name].shape == (4, 2)][:3]:
        others = {**arrays, name: arrays[name][:3]}
        save_archive(tmp_path / "other.zip", metadata, others)
        with pytest.raises(InvalidFileError, match=r"densities_\[[01]\].* has shape"):
            DensityClassifier.load(tmp_path / "other.zip")
