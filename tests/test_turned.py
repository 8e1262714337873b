"""Missing values under a Mahalanobis distance: what is known of it, and what is learned by that."""

import numpy as np
import oracles
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from oda_rl import ODAClassifier, ODAClusterer, ODARegressor
from oda_rl.annealing.codebook import Seen
from oda_rl.annealing.missing import class_means
from oda_rl.annealing.turned import Information, check_known, first_known, known_of, learn_turned
from oda_rl.divergences import Mahalanobis, SquaredEuclidean
from oda_rl.files.schema import InvalidFileError
from oda_rl.quantization.missing import KNOWN, TURNED, lloyd
from oda_rl.samples import turned

D = 4
TURN = np.random.default_rng(0).normal(size=(D, D))
METRIC = Mahalanobis(np.linalg.inv(TURN @ TURN.T + 0.1 * np.eye(D)))
SIZES = np.array([1.0, 2.0, 5.0, 0.1])


def holed(n, seed, share=0.4, shift=0.0, d=D):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, d)) * 3.0 + shift
    holes = rng.random(points.shape) < share
    holes[np.arange(n), rng.integers(d, size=n)] = False
    return np.where(holes, np.nan, points)


@pytest.mark.parametrize("shift", [0.0, 1e5])
def test_distances_are_those_of_what_is_observed(shift):
    points, codevectors = holed(60, 1, shift=shift), holed(3, 2, 0.0, shift)
    embedded, own = METRIC.embed(points), METRIC.embed(codevectors)
    found = METRIC.between(embedded, own)
    whole = [METRIC.restore(METRIC.completed(embedded, one)) for one in own]
    for i, x in enumerate(points):
        share = (~np.isnan(x)).mean()
        for k, codevector in enumerate(codevectors):
            distance, expected = oracles.partial_mahalanobis(x, codevector, METRIC.matrix)
            assert found[i, k] * share == pytest.approx(distance, rel=1e-6, abs=1e-6)
            np.testing.assert_allclose(whole[k][i], expected, rtol=1e-9, atol=1e-9)
    rows = METRIC.rowwise(embedded, np.repeat(own[:1], 60, axis=0))
    np.testing.assert_allclose(rows, found[:, 0])
    np.testing.assert_array_equal(np.isnan(embedded), np.isnan(points))


def test_what_is_observed_is_the_least_over_what_is_missing():
    x, codevector = np.array([1.0, np.nan, -2.0, np.nan]), np.array([0.3, 0.1, 0.2, -1.0])
    least = minimize(
        lambda rest: oracles.divergence(
            METRIC.matrix, np.array([x[0], rest[0], x[2], rest[1]]), codevector
        ),
        np.zeros(2),
        tol=1e-12,
    )
    embedded, own = METRIC.embed(x[None]), METRIC.embed(codevector[None])
    assert METRIC.between(embedded, own)[0, 0] / 2.0 == pytest.approx(least.fun)
    whole = METRIC.restore(METRIC.completed(embedded, own))[0]
    np.testing.assert_allclose(whole[[1, 3]], least.x, atol=1e-5)


def test_a_diagonal_metric_is_the_squared_distance_of_scaled_features():
    points, plain = holed(50, 3), SquaredEuclidean()
    metric = Mahalanobis(np.diag(SIZES**2))
    embedded = metric.embed(points)
    np.testing.assert_allclose(embedded, points * SIZES)
    own = holed(3, 4, 0.0)
    np.testing.assert_allclose(metric.between(embedded, own), plain.between(points * SIZES, own))
    whole = plain.completed(points * SIZES, own[:1])
    np.testing.assert_allclose(metric.completed(embedded, own[:1]), whole)


def test_few_vectors_are_kept_and_others_made_again(monkeypatch):
    points, own = METRIC.embed(holed(80, 5)), holed(3, 6, 0.0)
    expected = METRIC.between(points, own)
    monkeypatch.setattr(turned, "_ROOM", 2 * D * D)
    assert len(turned.turned(points, METRIC._root).owners) == 2
    np.testing.assert_array_equal(METRIC.between(points, own), expected)


def test_a_metric_that_is_almost_singular_still_has_orthonormal_vectors():
    points = holed(40, 7, d=6)
    directions = np.linalg.qr(np.random.default_rng(8).normal(size=(6, 6)))[0]
    metric = Mahalanobis(directions @ np.diag([1.0, 1.0, 1e-10, 1.0, 1e-10, 1e4]) @ directions.T)
    seen = metric.seen_in(points)
    for i in range(40):
        vectors = seen.vectors[turned.slot_of(seen, i)]
        np.testing.assert_allclose(vectors @ vectors.T, np.eye(6), atol=1e-12)


def test_codevectors_are_where_the_sum_of_distances_is_least():
    points, cells = holed(90, 9), np.arange(90) % 2
    points[cells == 1, 2] = np.nan  # of which this cell knows nothing
    weights = np.random.default_rng(10).random(90)
    otherwise = np.repeat(holed(1, 11, 0.0), 3, axis=0)
    found = METRIC.restore(
        METRIC.cell_means(METRIC.embed(points), weights, cells, METRIC.embed(otherwise))
    )
    np.testing.assert_allclose(found[2], otherwise[2], rtol=1e-9)  # which has no points
    for k in range(2):
        own = cells == k
        metrics = np.array([oracles.partial_metric(x, METRIC.matrix) for x in points[own]])
        total = np.einsum("n,nij->ij", weights[own], metrics)
        sums = np.einsum("n,nij,nj->i", weights[own], metrics, np.nan_to_num(points[own]))
        np.testing.assert_allclose(total @ found[k], sums, atol=1e-5 * np.abs(sums).max())
    # What is not known follows from the rest.
    gap = found[1] - otherwise[1]
    seen = [0, 1, 3]
    covariance = np.linalg.inv(METRIC.matrix)
    expected = covariance[2, seen] @ np.linalg.inv(covariance[np.ix_(seen, seen)]) @ gap[seen]
    assert gap[2] == pytest.approx(expected, rel=1e-5)


def test_a_class_that_knows_nothing_of_a_feature_takes_it_from_all():
    points, classes = holed(60, 12), np.arange(60) % 2
    points[classes == 1, 0] = np.nan
    pairs = np.column_stack([METRIC.embed(points), np.arange(60.0)])
    means = class_means(METRIC, D, pairs, classes, np.ones(60))
    np.testing.assert_allclose(means[:, D], [29.0, 30.0])
    common = METRIC.cell_means(pairs[:, :D], np.ones(60), np.zeros(60, int), np.zeros((1, D)))
    whole = METRIC.restore(np.concatenate([means[:, :D], common]))
    gap, seen, covariance = whole[1] - whole[2], [1, 2, 3], np.linalg.inv(METRIC.matrix)
    expected = covariance[0, seen] @ np.linalg.inv(covariance[np.ix_(seen, seen)]) @ gap[seen]
    assert gap[0] == pytest.approx(expected, rel=1e-5)


def test_annealing_keeps_codevectors_where_the_sum_of_distances_is_least():
    points, start, n = holed(400, 13, 0.35), holed(5, 14, 0.0), 5
    columns, masses, scales = METRIC.embed(start).T.copy(), np.full(n, 1.0 / n), np.ones(1)
    matrices = first_known(METRIC, D, masses).T.reshape(n, D, D).copy()
    raw = np.zeros(Seen.size, np.uint8)
    learn_turned(
        D, METRIC.seen_in(METRIC.embed(points)), np.zeros(400, np.int64), np.ones(400), columns,
        masses, Information(matrices, np.empty((D, D)), np.empty(D)), np.array([0, n], np.uint64),
        np.array([0, 1], np.uint64), 0.7, 0.0, scales, np.zeros(1), raw, np.empty(n),
    )  # fmt: skip
    expected = oracles.partial_metric_anneal(points, start, 0.7, METRIC.matrix)
    np.testing.assert_allclose(masses * scales[0], expected[0], rtol=1e-4)
    np.testing.assert_allclose(METRIC.restore(columns.T), expected[1], atol=1e-3)
    assert Seen(raw).distortion / Seen(raw).weight == pytest.approx(expected[2], rel=1e-4)


def test_a_feature_that_is_no_longer_observed_breaks_nothing():
    points = holed(6000, 15, 0.2)
    points[1000:, 1] = np.nan
    points[1000:, 0] = np.where(np.isnan(points[1000:]).all(axis=1), 1.0, points[1000:, 0])
    model = ODAClusterer(
        4, divergence=METRIC, forgetting=0.2, max_samples=1000, min_temperature=0.1, random_state=0
    ).partial_fit(points)
    assert np.isfinite(model.codevectors_).all()
    assert np.abs(model.codevectors_).max() < 30.0


@pytest.mark.parametrize("algorithm", ["rslvq", "glvq", "lvq1"])
def test_fine_tuning_by_a_diagonal_metric_is_that_of_scaled_features(algorithm):
    points, targets = holed(80, 16), np.arange(80) % 2
    metric = Mahalanobis(np.diag(SIZES**2))
    start, labels = holed(4, 17, 0.0), np.array([0, 0, 1, 1])
    more = (np.full(4, 0.25), labels, 2.0) if algorithm == "rslvq" else (labels,)
    found, expected = start.copy(), start.copy()
    order = np.random.default_rng(18).permutation(80)
    embedded = metric.embed(points)
    getattr(TURNED, algorithm)(found, *more, metric.seen_in(embedded), targets, order, 0.1)
    getattr(KNOWN, algorithm)(expected, *more, embedded, targets, order, 0.1)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert np.abs(found - start).max() > 0.01


def test_fine_tuning_moves_along_what_is_known():
    x = METRIC.embed(np.array([[1.0, np.nan, 2.0, np.nan]]))
    start = METRIC.embed(np.zeros((1, D)))
    moved, zeros = start.copy(), np.zeros(1, np.int64)
    TURNED.lvq1(moved, zeros, METRIC.seen_in(x), zeros, zeros, 0.25)
    np.testing.assert_allclose(moved, 0.25 * METRIC.completed(x, start))


def test_lloyds_iteration_lowers_what_it_should():
    points = METRIC.embed(holed(200, 19))
    start = METRIC.embed(holed(5, 20, 0.0))
    found = lloyd(points, np.ones(200), start, METRIC)
    shares = 1.0 - np.isnan(points).mean(axis=1)

    def error(codevectors):
        return float(METRIC.between(points, codevectors).min(axis=1) @ shares)

    assert error(found) < 0.9 * error(start)
    rng = np.random.default_rng(21)
    for _ in range(20):
        assert error(found + 1e-3 * rng.normal(size=found.shape)) > error(found) - 1e-6


@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
@pytest.mark.parametrize("kind", [ODAClusterer, ODAClassifier, ODARegressor])
def test_estimators_by_a_diagonal_metric_are_those_of_scaled_features(kind, learn):
    points, labels = holed(300, 22, 0.25), np.arange(300) % 3
    plain = kind(6, random_state=0)
    metric = clone(plain).set_params(divergence=Mahalanobis(np.diag(SIZES**2)))
    getattr(plain, learn)(points * SIZES, labels)
    getattr(metric, learn)(points, labels)
    np.testing.assert_allclose(metric.codevectors_ * SIZES, plain.codevectors_, atol=1e-6)
    np.testing.assert_allclose(metric.predict(points), plain.predict(points * SIZES), atol=1e-6)


REAL = {"iris": (load_iris, 6), "wine": (load_wine, 6)}


@pytest.mark.parametrize("share", [0.2, 0.3])
@pytest.mark.parametrize("name", REAL)
def test_holes_are_no_worse_than_means_in_them(name, share):
    load, n_clusters = REAL[name]
    points, labels = load(return_X_y=True)
    points = StandardScaler().fit_transform(points)
    within = points - np.array([points[labels == c].mean(axis=0) for c in range(3)])[labels]
    metric = Mahalanobis(np.linalg.inv(within.T @ within / len(points)))
    clusterer = ODAClusterer(3, divergence=metric, random_state=0)
    classifier = ODAClassifier(n_clusters, divergence=metric, random_state=0)
    gaps = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        holes = rng.random(points.shape) < share
        holes[np.arange(len(points)), rng.integers(points.shape[1], size=len(points))] = False
        hidden = np.where(holes, np.nan, points)
        scores = []
        for data in (hidden, SimpleImputer().fit_transform(hidden)):
            model = clone(clusterer).fit(data)
            told = clone(classifier).fit(data, labels)
            scores.append(
                [model.score(points), adjusted_rand_score(labels, model.predict(points)),
                 adjusted_rand_score(labels, model.labels_), told.score(points, labels),
                 told.score(data, labels)]
            )  # fmt: skip
        gaps.append(np.subtract(*scores))
    score, found, own, right, right_of_holed = np.median(gaps, axis=0)
    assert score > 0.0
    assert found > -0.02
    assert own > 0.05
    assert right > -0.01  # two samples
    assert right_of_holed >= 0.0


def test_what_cannot_have_been_known_is_refused():
    known = first_known(METRIC, D, np.array([0.5, 0.5]))
    check_known(METRIC, D, known, "it")
    bent = known.copy()
    bent[1] += 1.0
    for wrong in (known[:-1], bent, -known, 0.0 * known):
        with pytest.raises(InvalidFileError, match="it._known has"):
            check_known(METRIC, D, wrong, "it")
    masses = first_known(SquaredEuclidean(), D, np.array([0.5, 0.5]))
    check_known(SquaredEuclidean(), D, masses, "it")
    for wrong in (masses[:-1], -masses):
        with pytest.raises(InvalidFileError, match="it._known has"):
            check_known(SquaredEuclidean(), D, wrong, "it")


def test_what_is_known_of_one_sample():
    x = np.array([1.0, np.nan, 2.0, np.nan])
    np.testing.assert_array_equal(known_of(SquaredEuclidean(), x), [1.0, 0.0, 1.0, 0.0])
    root = METRIC._root
    turned_back = root @ known_of(METRIC, METRIC.embed(x[None])[0]).reshape(D, D) @ root.T
    np.testing.assert_allclose(turned_back, oracles.partial_metric(x, METRIC.matrix), atol=1e-9)
