"""The annealing estimators: what scikit-learn asks of them, and what they promise beyond it."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn import datasets
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, make_blobs, make_circles, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.metrics import adjusted_rand_score, f1_score, log_loss
from sklearn.model_selection import train_test_split

from oda_rl import ODAClassifier, ODAClusterer, ODARegressor, ODATreeRegressor
from oda_rl.divergences import BregmanDivergence, Mahalanobis, resolve

PLACES = np.array([[0, 0], [6, 0], [0, 6], [6, 6], [3, 12], [14, 3]], dtype=float)
BLOBS, BLOB_LABELS = make_blobs(600, centers=PLACES, cluster_std=0.7, random_state=3)
MOONS, MOON_LABELS = make_moons(600, noise=0.15, random_state=0)
EVERY = [ODAClusterer, ODAClassifier, ODARegressor]


def target(kind):
    return MOON_LABELS if kind is ODAClassifier else np.sin(3 * MOONS[:, 0])


def fitted(kind):
    size = {} if kind is ODAClusterer else {"n_clusters": 40}
    return kind(random_state=0, **size).fit(MOONS, target(kind))


# Clustering.


def test_clusters_are_found():
    model = ODAClusterer(6, random_state=0)
    assert adjusted_rand_score(BLOB_LABELS, model.fit_predict(BLOBS)) > 0.95
    assert model.inertia_ == pytest.approx(
        ((BLOBS - model.cluster_centers_[model.labels_]) ** 2).sum()
    )
    assert model.score(BLOBS) == pytest.approx(-model.inertia_ / len(BLOBS))
    np.testing.assert_allclose(model.weights_, np.bincount(model.labels_) / 600)
    assert model.transform(BLOBS).argmin(axis=1).tolist() == model.labels_.tolist()
    np.testing.assert_allclose(model.predict_proba(BLOBS).sum(axis=1), 1.0)
    assert model.get_feature_names_out().tolist() == [f"odaclusterer{k}" for k in range(6)]


@pytest.mark.parametrize("n_clusters", [20, 60])
def test_distortion_is_no_worse_than_that_of_k_means(n_clusters):
    points = np.random.default_rng(1).normal(size=(1500, 3))
    ratios = []
    for seed in range(3):
        ours = ODAClusterer(n_clusters, random_state=seed).fit(points).inertia_
        ratios.append(ours / KMeans(n_clusters, n_init=10, random_state=seed).fit(points).inertia_)
    assert np.median(ratios) <= 1.0
    assert max(ratios) < 1.01


@pytest.mark.parametrize(
    "divergence",
    ["i_divergence", "itakura_saito", Mahalanobis([[1.0, 0.2], [0.2, 3.0]]),
     BregmanDivergence(lambda x: (x**2).sum(axis=1), lambda x: 2.0 * x)],
    ids=["i_divergence", "itakura_saito", "Mahalanobis", "one's own"],
)  # fmt: skip
def test_other_divergences_find_the_clusters(divergence):
    points = BLOBS - BLOBS.min(axis=0) + 5.0
    model = ODAClusterer(6, divergence=divergence, samples_per_cluster=40, random_state=1)
    assert adjusted_rand_score(BLOB_LABELS, model.fit(points).labels_) > 0.75
    low, high, centres = points.min(axis=0), points.max(axis=0), model.cluster_centers_
    assert ((centres > low) & (centres < high)).all()


@pytest.mark.parametrize(("kind", "message"), [("i_divergence", ">= 0"), ("itakura_saito", "> 0")])
def test_points_outside_the_domain_are_refused(kind, message):
    model = ODAClusterer(2, divergence=kind)
    with pytest.raises(ValueError, match=message):
        model.fit(BLOBS)
    model.fit(np.abs(BLOBS) + 1.0)
    with pytest.raises(ValueError, match=message):
        model.predict(-np.abs(BLOBS))


def test_density_is_that_of_a_histogram():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.uniform(0, 1, (3000, 2)), rng.uniform([2, 0], [4, 1], (3000, 2))])
    model = ODAClusterer(60, random_state=0).fit(points)
    inner = np.array([[0.5, 0.5], [3.0, 0.5]])
    # Half of the mass on an area of 1, half on one of 2; a cell holds about 100 points, so 10 %.
    np.testing.assert_allclose(np.exp(model.score_samples(inner)), [0.5, 0.25], rtol=0.35)
    assert model.score_samples([[5.0, 0.5]]) == -np.inf
    grid = np.stack(np.meshgrid(np.linspace(0, 4, 200), np.linspace(0, 1, 50)), -1).reshape(-1, 2)
    assert np.exp(model.score_samples(grid)).mean() * 4.0 == pytest.approx(1.0, abs=0.1)


def test_density_in_many_dimensions_is_refused_of_other_divergences():
    points = np.random.default_rng(0).exponential(size=(50, 13))
    model = ODAClusterer(3, divergence="i_divergence", random_state=0).fit(points)
    with pytest.raises(ValueError, match="13 dimensions: at most 12"):
        model.score_samples(points)


# The number of clusters as a result.


@pytest.mark.parametrize("divergence", ["squared_euclidean", "i_divergence", "itakura_saito"])
def test_the_number_that_persists_longest_is_found(divergence):
    places = np.array([[1.0, 1.0], [4.0, 1.0], [1.0, 4.0], [4.0, 4.0]])
    points, labels = make_blobs(400, centers=places, cluster_std=0.15, random_state=0)
    for seed in range(3):
        model = ODAClusterer("auto", divergence=divergence, random_state=seed).fit(points)
        assert adjusted_rand_score(labels, model.labels_) == 1.0
        assert max(model.persistence_, key=model.persistence_.get) == len(model.codevectors_) == 4
    model.partial_fit(points)
    assert len(model.codevectors_) == 4
    assert len(ODAClusterer("auto", random_state=0).partial_fit(points).codevectors_) <= 8
    with pytest.warns(ConvergenceWarning, match="may have no clusters"):
        ODAClusterer("auto", random_state=0).fit(points[labels == 0])


def test_distinct_points_are_clusters():
    points = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 5.0], [9.0, 9.0]], 9, axis=0)
    assert len(ODAClusterer("auto", random_state=0).fit(points).codevectors_) == 4
    assert len(ODAClusterer("auto", random_state=0).fit(points[:9]).codevectors_) == 1


# Levels, and when annealing ends.


@pytest.mark.parametrize("kind", EVERY)
def test_history_tells_the_annealing(kind):
    model = fitted(kind)
    levels = model.history_
    temperatures = [level.temperature for level in levels]
    assert all(a >= b for a, b in pairwise(temperatures))
    seen = [level.n_samples_seen for level in levels]
    assert all(a < b for a, b in pairwise(seen))
    assert levels[0].lineage is None
    for before, level in pairwise(levels):
        assert level.lineage.shape == (level.n_clusters, before.n_clusters)
        np.testing.assert_allclose(level.lineage.sum(axis=1), 1.0)
        assert level.weights.sum() == pytest.approx(1.0, abs=1e-6)
    assert levels[-1].distortion < 0.2 * levels[0].distortion
    assert (levels[-1].accuracy is not None) == (kind is ODAClassifier)


@pytest.mark.parametrize("kind", EVERY)
def test_every_level_can_be_returned_to(kind):
    model = fitted(kind)
    before = model.predict(MOONS)
    for i, level in enumerate(model.history_):
        earlier = model.at_level(i)
        np.testing.assert_allclose(earlier.codevectors_, level.codevectors, rtol=1e-12)
        assert earlier.temperature_ == level.temperature
        assert len(earlier.history_) == i + 1
        assert earlier.predict(MOONS).shape == (600,)
    np.testing.assert_array_equal(model.predict(MOONS), before)
    small = model.at_level(n_clusters=5)
    assert 2 <= len(small.codevectors_) <= 5
    assert len(model.at_level(-1).codevectors_) == model.history_[-1].n_clusters
    for given, words in (({"level": 1000}, "below"), ({"n_clusters": 0}, "least"), ({}, "either")):
        with pytest.raises(ValueError, match=words):
            model.at_level(**given)


def test_annealing_goes_on_from_an_earlier_level():
    model = ODAClassifier(30, random_state=0).fit(MOONS, MOON_LABELS)
    early = model.at_level(3)
    for _ in range(20):
        early.partial_fit(MOONS, MOON_LABELS)
    assert early.temperature_ < model.history_[3].temperature
    assert early.score(MOONS, MOON_LABELS) > 0.9
    assert len(model.history_) > 4


@pytest.mark.parametrize("kind", EVERY)
def test_a_stream_after_a_fit_goes_on_from_its_samples(kind):
    labels = target(kind)
    model = kind(8, random_state=0).fit(MOONS, labels)
    before, n = model.codevectors_.copy(), len(MOONS)
    model.partial_fit(MOONS[:1] + 10.0, labels[:1])
    # One sample among so many, of its class at least an eighth of them: α = 1 / (1 + .9 (n + K)).
    assert 0.0 < np.abs(model.codevectors_ - before).max() < 10.0 * 16.0 / (0.9 * n)
    assert (model.codevectors_ != before).any(axis=1).sum() <= 2


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("kind", "missing"), [(ODAClusterer, False), (ODAClassifier, True), (ODAClassifier, False)]
)
def test_single_precision_stays_and_is_computed_in_double(kind, streamed, missing, reloaded):
    points, labels = MOONS.astype(np.float32), target(kind)
    if missing:
        points[::7, 0] = np.nan
    double, single = (
        stream(kind(6, random_state=0), data, labels, 150) if streamed
        else kind(6, random_state=0).fit(data, labels)
        for data in (points.astype(np.float64), points)
    )  # fmt: skip
    assert single.cluster_centers_.dtype == np.float32
    np.testing.assert_array_equal(single.codevectors_, double.codevectors_.astype(np.float32))
    single = reloaded(single)
    np.testing.assert_array_equal(single.predict(points), double.predict(points))
    for method in ("transform", "predict_proba"):
        found = getattr(single, method)(points)
        assert found.dtype == np.float32
        expected = getattr(double, method)(points.astype(np.float64))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-30)
    assert single.codevectors_.dtype == np.float32
    assert single.transform(points.astype(np.float64)).dtype == np.float64


def test_far_from_0_a_learned_metric_has_double_precision():
    points = (10.0 * MOONS + 5e6).astype(np.float32)
    model = clone(LEARNING).fit(points, MOON_LABELS)
    assert model.codevectors_.dtype == np.float32
    for compute in (model.transform, model.predict_proba):
        assert compute(points).dtype == np.float32
        np.testing.assert_allclose(compute(points), compute(points.astype(float)), atol=1e-6)


def test_annealing_ends_where_it_is_told_to():
    full = ODAClusterer(30, refine=False, random_state=0).fit(MOONS)
    scale = full.history_[0].distortion
    warm = ODAClusterer(30, min_temperature=0.1, random_state=0).fit(MOONS)
    assert 0.06 * scale < warm.temperature_ <= 0.1 * scale
    assert len(warm.codevectors_) < 30
    coarse = ODAClusterer(30, target_distortion=0.2 * scale, random_state=0).fit(MOONS)
    assert coarse.history_[-1].distortion <= 0.2 * scale < coarse.history_[-2].distortion
    brief = ODAClusterer(30, max_samples=1500, random_state=0).fit(MOONS)
    assert brief.n_samples_seen_ <= 1500


# Classification.


def test_classes_get_the_codevectors_that_they_need():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(0, 0.2, (300, 2)), make_circles(600, factor=0.99)[0] * 3])
    labels = np.repeat(["dot", "ring"], [300, 600])
    model = ODAClassifier(12, min_temperature=0.02, fine_tuning=None, random_state=0)
    model.fit(points, labels)
    counts = {name: int((model.codevector_labels_ == name).sum()) for name in ("dot", "ring")}
    assert counts["ring"] > 2 * counts["dot"]
    assert model.score(points, labels) == 1.0
    np.testing.assert_allclose(model.class_prior_, [1 / 3, 2 / 3])


@pytest.mark.parametrize("prediction", ["density", "nearest"])
@pytest.mark.parametrize("fine_tuning", [None, "rslvq", "mrslvq", "glvq", "lvq1"])
def test_classification(prediction, fine_tuning):
    points, labels = load_iris(return_X_y=True)
    train, test, own, hidden = train_test_split(points, labels, random_state=1, stratify=labels)
    model = ODAClassifier(9, prediction=prediction, fine_tuning=fine_tuning, random_state=0)
    assert model.fit(train, own).score(test, hidden) > 0.9
    probabilities = model.predict_proba(test)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), model.predict(test))


def test_fine_tuning_pays():
    points, labels = load_digits(return_X_y=True)
    train, test, own, hidden = train_test_split(points, labels, random_state=0)
    plain = ODAClassifier(10, fine_tuning=None, random_state=0).fit(train, own)
    tuned = ODAClassifier(10, random_state=0).fit(train, own)
    # METHODS' figure for USPS is .776 to .944; here the classes are easier.
    assert tuned.score(test, hidden) > plain.score(test, hidden) + 0.02


@pytest.mark.slow
def test_the_number_is_chosen_when_asked():
    points, labels = make_moons(300, noise=0.2, random_state=1)
    model = ODAClassifier("auto", random_state=0).fit(points, labels)
    assert set(model.best_params_) == {"n_clusters", "fine_tuning", "rate", "penalty"}
    alike = clone(model).set_params(**model.best_params_).fit(points, labels)
    assert len(model.codevectors_) <= model.best_params_["n_clusters"]
    fresh, hidden = make_moons(1000, noise=0.2, random_state=2)
    assert min(model.score(fresh, hidden), alike.score(fresh, hidden)) > 0.94


def hidden_moons(n, seed):
    """Half moons in two of eight features: the others only add to distances."""
    points, labels = make_moons(n, noise=0.15, random_state=seed)
    noise = np.random.default_rng(seed).normal(size=(n, 6))
    return np.column_stack([2.0 * points, noise]), labels


LEARNING = ODAClassifier(24, fine_tuning="mrslvq", random_state=0)


def test_a_metric_is_learned_that_leaves_out_what_tells_no_classes_apart(reloaded):
    shown, hidden = hidden_moons(600, 1), hidden_moons(2000, 2)
    model = clone(LEARNING).fit(*shown)
    fixed = clone(LEARNING).set_params(fine_tuning="rslvq").fit(*shown)
    assert model.score(*hidden) > 0.97 > 0.95 > fixed.score(*hidden)
    entries = model._annealer.divergence.matrix.diagonal()
    assert entries[:2].min() > 20.0 * entries[2:].max()
    chosen = ODAClassifier("auto", random_state=0).fit(*shown)
    assert chosen.best_params_["fine_tuning"] == "mrslvq"
    assert chosen.score(*hidden) > 0.95
    # What is missing might be anything, in a metric to which most of it does not matter.
    holed = np.where(shown[0] > 2.0, np.nan, shown[0])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        chosen.predict(holed)
    assert chosen.fit(holed, shown[1]).best_params_["fine_tuning"] == "rslvq"
    chosen.predict(holed)
    loaded = reloaded(model)
    fresh, names = hidden_moons(1000, 3)
    np.testing.assert_array_equal(loaded.predict_proba(fresh), model.predict_proba(fresh))
    np.testing.assert_allclose(model.transform(model.codevectors_).diagonal(), 0.0, atol=1e-6)
    # The stream goes on in the metric, from after all samples.
    assert loaded.partial_fit(fresh, names).score(*hidden_moons(1000, 4)) > 0.95
    model.partial_fit(fresh, names)
    np.testing.assert_array_equal(loaded.codevectors_, model.codevectors_)
    # Earlier levels are from before there was one.
    plain = clone(LEARNING).set_params(fine_tuning=None).fit(*shown)
    then, before = model.at_level(3), plain.at_level(3)
    np.testing.assert_allclose(then.transform(fresh), before.transform(fresh))
    np.testing.assert_allclose(then.codevectors_, before.codevectors_)


def test_units_do_not_matter_where_a_value_is_missing(tmp_path):
    points, labels = datasets.load_wine(return_X_y=True)  # proline is in hundreds
    points[0, 0] = np.nan
    model = ODAClassifier(random_state=0).fit(points[::2], labels[::2])
    assert model.score(points[1::2], labels[1::2]) > 0.93
    model.save(tmp_path / "model")


def test_a_learned_metric_is_the_same_for_equal_data():
    points, labels = hidden_moons(300, 1)
    fresh = hidden_moons(100, 2)[0]
    model = clone(LEARNING).fit(points, labels, np.repeat([2.0, 1.0], 150))
    rows = np.r_[np.arange(300), np.arange(150)]
    again = clone(LEARNING).fit(points[rows], labels[rows])
    np.testing.assert_allclose(again.predict_proba(fresh), model.predict_proba(fresh), rtol=1e-6)


def test_of_labels_that_follow_from_nothing_the_frequencies_are_learned():
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(400, 5)), (rng.random(400) < 0.3).astype(int)
    model = ODAClassifier(20, fine_tuning="mrslvq", penalty=10.0, random_state=0)
    found = model.fit(points, labels).predict_proba(points)
    np.testing.assert_allclose(found[:, 1], labels.mean(), atol=1e-3)
    constant = np.column_stack([labels, np.zeros(400)])
    assert clone(LEARNING).fit(constant, labels).score(constant, labels) == 1.0
    far = np.abs(rng.standard_cauchy((400, 4)))  # few far points must not make it overconfident
    labels = (rng.random(400) < 1.0 / (1.0 + (far[:, 0] * far[:, 1]) ** -3.0)).astype(int)
    found = ODAClassifier(40, random_state=0).fit(far, labels).predict_proba(far)
    assert log_loss(labels, found) < log_loss(labels, np.full(400, labels.mean()))
    with pytest.raises(ValueError, match="y is None in row 1: leave out"):
        ODAClassifier().fit(far[:3], np.array(["a", None, "b"], dtype=object))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        clone(LEARNING).fit(np.where(points > 2.0, np.nan, points), labels)


@pytest.mark.parametrize("seed", range(5))
def test_codevectors_of_all_classes_may_compete(reloaded, seed):
    # A tenth of the samples in the middle has the label of the ring: its codevectors there become
    # idle, where they compete with those of the dot.
    ring = make_circles(600, factor=0.99, random_state=seed)[0] * 4
    points = np.concatenate([np.random.default_rng(seed).normal(0, 0.3, (900, 2)), ring])
    labels = np.repeat([0, 1], [900, 600])
    labels[:90] = 1
    counts = []
    for class_competition in (True, False):
        model = ODAClassifier(24, fine_tuning=None, min_temperature=0.003, random_state=seed)
        model.set_params(class_competition=class_competition).fit(points, labels)
        near = (model.codevectors_**2).sum(axis=1) < 4.0
        counts.append(int((model.codevector_labels_[near] == 1).sum()))
        assert model.score(points, labels) > 0.93  # at most 0.94
        model.prediction = "nearest"
        assert (model.score(points, labels) > 0.9) != class_competition
    assert counts[1] < counts[0]
    loaded = reloaded(model)
    np.testing.assert_array_equal(loaded.predict(points[:9]), model.predict(points[:9]))


@pytest.mark.parametrize("prediction", ["density", "nearest"])
def test_under_noise_of_labels_the_default_prediction_is_the_better_one(prediction):
    points, labels = make_blobs(900, centers=PLACES[:3], cluster_std=0.7, random_state=0)
    noisy, rng = labels.copy(), np.random.default_rng(0)
    wrong = rng.random(900) < 0.15
    noisy[wrong] = rng.integers(3, size=wrong.sum())
    model = ODAClassifier(30, prediction=prediction, random_state=0).fit(points, noisy)
    assert (model.score(points, labels) > 0.97) == (prediction == ODAClassifier().prediction)


def test_probabilities_are_no_surer_than_they_are_right():
    points, labels = load_iris(return_X_y=True)
    train, test, own, hidden = train_test_split(points, labels, random_state=1, stratify=labels)
    guessing = np.log(3)
    assert log_loss(hidden, ODAClassifier(random_state=0).fit(train, own).predict_proba(test)) < 0.2
    many = ODAClassifier(40, random_state=0).fit(train, own)
    assert log_loss(hidden, many.predict_proba(test)) < 0.5 * guessing
    many = ODAClassifier(200, random_state=0).fit(train, own)  # codevectors that lie on samples
    assert log_loss(hidden, many.predict_proba(test)) < 0.5 * guessing
    many.partial_fit(test[:1], hidden[:1])
    assert log_loss(hidden, many.predict_proba(test)) < 0.5 * guessing
    # Labels that follow from nothing: the frequencies are about the best prediction.
    rng = np.random.default_rng(0)
    noise, coin = rng.normal(size=(60, 3)), rng.integers(2, size=60)
    model = ODAClassifier(random_state=0).fit(noise, coin)
    fresh = rng.integers(2, size=500)
    assert log_loss(fresh, model.predict_proba(rng.normal(size=(500, 3)))) < 1.1 * np.log(2)
    losses = []  # of 25 samples; those of logistic regression are 0.55, by heart 0.76
    for rng in map(np.random.default_rng, range(10)):
        points = rng.normal(size=(525, 3))
        labels = (rng.random(525) < 1.0 / (1.0 + np.exp(-2.0 * points[:, 0]))).astype(int)
        model.fit(points[:25], labels[:25])
        losses.append(log_loss(labels[25:], model.predict_proba(points[25:])))
    assert np.mean(losses) < 0.65


@pytest.mark.parametrize(("fine_tuning", "place"), [(None, [3, 3]), ("mrslvq", [2, 2])])
def test_rare_classes_are_found(fine_tuning, place):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(4000, 2))
    labels = np.zeros(4000, int)
    points[:24], labels[:24] = rng.normal(place, 0.2, (24, 2)), 1
    model = ODAClassifier(20, fine_tuning=fine_tuning, random_state=0).fit(points, labels)
    assert f1_score(labels, model.predict(points)) > 0.8
    assert model.class_prior_[1] == pytest.approx(0.006)


@pytest.mark.parametrize("kind", [str, object])
def test_labels_are_given_back_as_they_came(kind):
    names = np.array(["a", "bb", "ccc", "d", "e", "f"], dtype=kind)[BLOB_LABELS]
    model = ODAClassifier(12, random_state=0).fit(BLOBS, names)
    assert model.predict(BLOBS).dtype == names.dtype
    assert model.score(BLOBS, names) > 0.95
    assert set(model.codevector_labels_) == set(names)


def test_poor_initial_conditions_do_not_matter():
    far = np.array([[50.0, 50.0], [50.0, 51.0]])
    model = ODAClassifier(20, init=far, random_state=0).fit(MOONS, MOON_LABELS)
    assert model.score(MOONS, MOON_LABELS) > 0.95


# Regression.


@pytest.mark.parametrize(("local_model", "least"), [("constant", 0.9), ("linear", 0.99)])
def test_regression(local_model, least):
    rng = np.random.default_rng(0)
    points = rng.uniform(-2, 2, (3000, 2))
    values = np.sin(2 * points[:, 0]) + points[:, 1] ** 2
    model = ODARegressor(60, local_model=local_model, random_state=0)
    model.fit(points[:2000], values[:2000])
    assert model.score(points[2000:], values[2000:]) > least
    assert (model.slopes_ == 0.0).all() == (local_model == "constant")


@pytest.mark.parametrize("model", [ODARegressor(12), ODATreeRegressor(max_depth=2)])
def test_a_fit_and_a_stream_outlast_later_samples_until_the_target_changes(model, reloaded):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 2))
    X[:, 0].sort()
    y = np.sin(2.0 * X[:, 0])
    model = clone(model).set_params(random_state=0).fit(X, y)
    before = model.score(X, y)
    assert model.at_level(-1).score(X, y) > before - 0.02
    assert model.partial_fit(X[:1], y[:1]).score(X, y) > before - 0.02
    for part in np.split(np.arange(6000), 4):
        model.partial_fit(X[part], y[part])
    assert model.score(X, y) > before - 0.02
    again = reloaded(model)
    for part in rng.integers(6000, size=(4, 2500)):
        again.partial_fit(X[part], -y[part])
    assert again.score(X, -y) > 0.9


@pytest.mark.parametrize("kind", [ODARegressor, ODATreeRegressor])
def test_several_targets_share_their_cells(kind, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.column_stack([np.abs(X[:, 0]), 1e3 * X[:, 1] * X[:, 0]])
    settings = {"n_clusters": 8} if kind is ODARegressor else {}
    model = kind(**settings, random_state=0).fit(X, y)
    if kind is ODATreeRegressor:  # whose cells do not depend on targets
        alone = kind(random_state=0).fit(X, y[:, 1])
        np.testing.assert_allclose(model.predict(X)[:, 1], alone.predict(X), rtol=1e-9, atol=1e-9)
    assert model.slopes_.shape == (*model.codevector_labels_.shape, 2)
    assert model.score(X, y) > 0.8
    model.save(tmp_path / "model.zip")
    again = kind.load(tmp_path / "model.zip").partial_fit(X, y)
    assert again.predict(X[:5]).shape == (5, 2)
    with pytest.raises(ValueError, match="y has 1 targets: it must have 2, as before"):
        again.partial_fit(X, y[:, 0])


def test_features_that_are_constant_in_each_cell_do_not_explode():
    X = np.repeat(np.arange(6.0)[:, None] * [0.1, 0.3], 20, axis=0)
    y = X[:, 0] ** 2 + np.random.default_rng(0).normal(0.0, 0.01, 120)
    model = ODARegressor(6, random_state=0).fit(X, y)
    assert np.abs(model.predict(X + 0.01) - y).max() < 0.1


def test_one_cell_is_the_linear_model():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 4)) * [1.0, 0.1, 10.0, 1.0]
    values = points @ [1.0, 5.0, 0.2, 0.0] + rng.normal(size=40)
    linear = LinearRegression().fit(points, values)
    one = ODARegressor(1, random_state=0).fit(points, values)
    np.testing.assert_allclose(one.predict(points), linear.predict(points))
    chosen = ODARegressor(random_state=0).fit(points, values)
    assert chosen.best_params_["n_clusters"] == 1
    np.testing.assert_allclose(chosen.predict(points), one.predict(points))
    # With hardly more samples than features least squares are worse than the mean.
    points = rng.normal(size=(366, 60))
    values = points[:, :3].sum(axis=1) + rng.normal(size=366)
    wide = ODARegressor(random_state=0).fit(points[:66], values[:66])
    ridge = RidgeCV(np.geomspace(0.01, 1000, 6)).fit(points[:66], values[:66])
    assert wide.score(points[66:], values[66:]) > ridge.score(points[66:], values[66:]) - 0.1


def test_cells_and_metric_are_chosen_where_they_help(reloaded):
    rng = np.random.default_rng(0)
    points = rng.uniform(-2, 2, (800, 6))
    values = np.abs(2.0 * points[:, 0]) + 0.1 * rng.normal(size=800)
    model = ODARegressor(random_state=0).fit(points[:400], values[:400])
    assert model.best_params_["n_clusters"] >= 3
    assert model.best_params_["metric"] == "learned"
    assert model.score(points[400:], values[400:]) > 0.9
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.predict(np.full((1, 6), np.nan))
    loaded = reloaded(model)
    np.testing.assert_array_equal(loaded.predict(points), model.predict(points))
    assert model.at_level(-1).score(points, values) > 0.5
    holed = np.where(rng.random(points.shape) < 0.1, np.nan, points)
    assert model.fit(holed[:400], values[:400]).best_params_["metric"] == "learned"
    assert model.score(points[400:], values[400:]) > 0.9
    model.predict(holed)


def test_values_of_an_early_level_are_those_of_its_cells():
    points = np.linspace(0, 1, 400)[:, None]
    model = ODARegressor(16, local_model="constant", random_state=0).fit(points, 5.0 * points[:, 0])
    early = model.at_level(n_clusters=2)
    assert 1 <= len(early.codevectors_) <= 2
    cells = early.transform(points).argmin(axis=1)
    means = [5.0 * points[cells == k].mean() for k in range(len(early.codevectors_))]
    np.testing.assert_allclose(early.codevector_labels_, means)


# Streams.


def stream(model, points, labels, width):
    for begin in range(0, len(points), width):
        model.partial_fit(points[begin : begin + width], labels[begin : begin + width])
    return model


@pytest.mark.parametrize("kind", EVERY)
def test_one_by_one_is_the_same_as_in_blocks(kind):
    labels = target(kind)
    models = [stream(kind(8, random_state=0), MOONS, labels, width) for width in (1, 7, 250, 600)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.codevectors_, models[0].codevectors_)
        np.testing.assert_array_equal(model.predict(MOONS), models[0].predict(MOONS))
        assert [v.accuracy for v in model.history_] == [v.accuracy for v in models[0].history_]


def test_a_stream_is_learned():
    rng = np.random.default_rng(0)
    order = rng.integers(600, size=12_000)
    model = stream(ODAClassifier(20, random_state=0), MOONS[order], MOON_LABELS[order], 100)
    assert model.score(MOONS, MOON_LABELS) > 0.95
    assert len(model.codevectors_) <= 20
    clusterer = stream(ODAClusterer(6, random_state=0), BLOBS[order], order, 100)
    assert adjusted_rand_score(BLOB_LABELS, clusterer.predict(BLOBS)) > 0.9


def test_classes_may_appear_later():
    order = np.argsort(BLOB_LABELS, kind="stable")
    model = ODAClassifier(18, random_state=0)
    names = np.array(list("fedcba"))
    for k in range(6):
        own = order[k * 100 : (k + 1) * 100]
        for _ in range(5):
            model.partial_fit(BLOBS[own], names[BLOB_LABELS[own]])
        assert model.classes_.tolist() == sorted(names[: k + 1])
    assert model.score(BLOBS, names[BLOB_LABELS]) > 0.95
    np.testing.assert_allclose(model.class_prior_, 1 / 6)
    assert model.at_level(0).classes_.tolist() == ["f"]


def test_a_class_that_appears_when_annealing_has_ended_is_annealed():
    rng = np.random.default_rng(0)
    model = ODAClassifier(60, min_temperature=0.2, random_state=0)
    for _ in range(60):
        model.partial_fit(rng.normal(0, 0.5, (50, 2)), ["dot"] * 50)
    assert not model._annealer.active
    ring = make_circles(2000, factor=0.99, random_state=0)[0] * 4
    for begin in range(0, 4000, 50):
        model.partial_fit(ring[np.arange(begin, begin + 50) % 2000], ["ring"] * 50)
    assert (model.codevector_labels_ == "ring").sum() >= 4
    assert model.score(ring, ["ring"] * 2000) > 0.95


def test_one_sample_is_enough_to_begin_and_clusters_are_no_more_than_samples():
    with pytest.raises(ValueError, match="n_samples=5 should be >= n_clusters=6"):
        ODAClusterer(6).fit(BLOBS[:5])
    assert len(ODAClassifier(50, random_state=0).fit(BLOBS[:9], BLOB_LABELS[:9]).codevectors_) <= 9
    model = ODAClusterer(3).partial_fit([[1.0, 2.0]])
    assert model.predict([[5.0, 5.0]]).tolist() == [0]
    classifier = ODAClassifier().partial_fit([[1.0, 2.0]], ["only"])
    assert classifier.predict([[5.0, 5.0]]).tolist() == ["only"]
    assert ODARegressor().partial_fit([[1.0]], [4.0]).predict([[2.0]]) == pytest.approx([4.0])


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("place", [0.0, 0.1])
def test_samples_that_are_all_equal_give_no_scale(place):
    rng = np.random.default_rng(0)
    equal, points = np.full((300, 1), place), rng.normal(size=(5000, 1))
    points += 10.0 * rng.integers(0, 2, (5000, 1))
    for model in (ODAClusterer(2, random_state=0), ODAClusterer(2, random_state=0).fit(equal)):
        begun = model.n_samples_seen_ if hasattr(model, "_annealer") else 0
        for block in np.split(np.concatenate([equal, points]), [100, 250, 301, 1000]):
            model.partial_fit(block)
        np.testing.assert_allclose(np.sort(model.codevectors_[:, 0]), [0.0, 10.0], atol=0.1)
        assert model.n_samples_seen_ == begun + 5300
    values = np.append(rng.normal(size=300), np.sin(points))
    regressor = ODARegressor(random_state=0).partial_fit(np.concatenate([equal, points]), values)
    assert regressor.score(points, np.sin(points)) > 0.95


def test_forgetting_follows_a_cluster_that_moves():
    rng = np.random.default_rng(0)
    places = np.array([[0.0, 0.0], [10.0, 0.0]])
    model = ODAClusterer(2, forgetting=0.05, random_state=0)
    for t in range(200):
        moved = places + np.array([[0.0, 0.0], [0.0, 0.05 * t]])
        model.partial_fit(moved[rng.integers(2, size=50)] + rng.normal(0, 0.3, (50, 2)))
    # The lag of an average over 1/forgetting own samples: 20 of 25 a block, so under one block.
    assert np.abs(model.cluster_centers_ - moved[1]).sum(axis=1).min() < 0.5


@pytest.mark.parametrize("divergence", ["squared_euclidean", "itakura_saito"])
def test_forgetting_follows_clusters_that_are_replaced(divergence):
    rng = np.random.default_rng(4)
    places = rng.uniform(10.0, 60.0, (2, 6, 2)).repeat(2500, axis=0)
    points = places[np.arange(5000), rng.integers(6, size=5000)]
    points *= rng.uniform(0.97, 1.03, (5000, 2))
    model = ODAClusterer(6, divergence=divergence, cooling=0.5, forgetting=0.02, random_state=0)
    models = [stream(clone(model), points, points, width) for width in (7, 1000)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.codevectors_, models[0].codevectors_)
    k_means = KMeans(6, n_init=3, random_state=0).fit(points[4500:]).cluster_centers_
    best = resolve(divergence).between(points[4500:], k_means).min(axis=1).mean()
    assert -model.score(points[4500:]) < 1.1 * best


# Files, names, copies.


def test_a_fitted_model_is_saved_with_its_divergence(tmp_path):
    divergence = Mahalanobis([[2.0, 0.0], [0.0, 1.0]])
    model = ODAClusterer(4, divergence=divergence, random_state=0).fit(BLOBS)
    model.save(tmp_path / "model.zip")
    loaded = ODAClusterer.load(tmp_path / "model.zip")
    np.testing.assert_array_equal(loaded.transform(BLOBS), model.transform(BLOBS))
    np.testing.assert_array_equal(loaded.labels_, model.labels_)
    with pytest.raises(ValueError, match="holds ODAClusterer, not ODAClassifier"):
        ODAClassifier.load(tmp_path / "model.zip")
    own = BregmanDivergence(lambda x: (x**2).sum(axis=1), lambda x: 2.0 * x)
    with pytest.raises(TypeError, match="divergence"):
        ODAClusterer(2, divergence=own).fit(BLOBS).save(tmp_path / "own.zip")
    assert not (tmp_path / "own.zip").exists()


# Bad input, and scales.


def test_points_that_are_all_equal():
    equal = np.ones((20, 2))
    with pytest.warns(ConvergenceWarning, match="distinct clusters \\(1\\)"):
        model = ODAClusterer(3, random_state=0).fit(equal)
    assert not model.predict(equal).any()
    np.testing.assert_array_equal(model.codevectors_, [[1.0, 1.0]])
    classifier = ODAClassifier(6, random_state=0).fit(equal, [0, 1] * 10)
    np.testing.assert_allclose(classifier.predict_proba(equal), 0.5)
    assert ODARegressor().fit(equal, np.arange(20.0)).predict(equal) == pytest.approx(9.5)


@pytest.mark.parametrize("kind", EVERY)
def test_bad_input_is_refused_in_scikit_learns_words(kind):
    labels = target(kind)
    model = kind(random_state=0)
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        model.fit(MOONS, labels, sample_weight=-np.ones(600))
    with pytest.raises(ValueError, match="at least one non-zero number"):
        model.fit(MOONS, labels, sample_weight=np.zeros(600))
    with pytest.raises(ValueError, match="init must have shape"):
        kind(init=np.zeros((2, 5))).fit(MOONS, labels)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(ODAClusterer, "cooling", 1.0), (ODAClassifier, "n_clusters", "many"),
     (ODARegressor, "local_model", "cubic"), (ODAClusterer, "divergence", "cosine")],
)  # fmt: skip
def test_parameters_that_make_no_sense(kind, name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of {kind.__name__} must be"):
        kind(**{name: value}).fit(MOONS, target(kind))


def test_fine_tuning_needs_a_quadratic_divergence():
    model = ODAClassifier(divergence="i_divergence", fine_tuning="rslvq")
    with pytest.raises(ValueError, match="set fine_tuning=None"):
        model.fit(np.abs(BLOBS), BLOB_LABELS)
    points = BLOBS - BLOBS.min(axis=0) + 1.0
    model.set_params(fine_tuning="auto", random_state=0)
    for n_clusters in (12, "auto"):
        model.set_params(n_clusters=n_clusters)
        assert model.fit(points, BLOB_LABELS).score(points, BLOB_LABELS) > 0.9
    assert model.best_params_["fine_tuning"] is None


@pytest.mark.parametrize(("n", "d", "k"), [(4_000, 64, 60), (300, 8, 50), (200, 8, 20)])
def test_no_well_separated_cluster_is_missed(n, d, k):
    points, _, centres = make_blobs(n, d, centers=k, random_state=31, return_centers=True)
    model = ODAClusterer(k, random_state=0).fit(points)
    gaps = ((centres[:, None] - centres) ** 2).sum(axis=2) + np.diag(np.full(k, np.inf))
    nearest = ((centres[:, None] - model.codevectors_) ** 2).sum(axis=2).min(axis=1)
    assert np.count_nonzero(nearest > gaps.min(axis=1) / 4) == 0
    best = KMeans(k, n_init=3, random_state=0).fit(points).inertia_
    assert model.inertia_ <= 1.01 * best
