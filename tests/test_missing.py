"""Samples of which values are missing: likelihoods, steps, what is learned of them, what is not."""

import numpy as np
import oracles
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import get_tags

import oda_rl
from oda_rl.annealing.kernels import Codevectors, Pace, learn
from oda_rl.annealing.refinement import refine
from oda_rl.divergences import BregmanDivergence, Mahalanobis, SquaredEuclidean
from oda_rl.mixtures import kernels, learning
from oda_rl.mixtures.kernels import Progress, Room
from oda_rl.quantization.kernels import Grid, learn_map, lloyd

COVARIANCES = ["diag", "full", "tied_spherical"]
MIXTURES = [oda_rl.SGDGaussianMixture, oda_rl.StochasticEMGaussianMixture]
CENTRES = np.random.default_rng(40).normal(scale=4.0, size=(6, 5))
TURN = np.random.default_rng(41).normal(size=(5, 5)) / np.sqrt(5.0)
METRIC = Mahalanobis(np.linalg.inv(TURN.T @ TURN))

pytestmark = [pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]


def blobs(n, seed, turn=None, centres=CENTRES):
    """Samples of a mixture, and the component of each."""
    rng = np.random.default_rng(seed)
    labels, d = rng.integers(len(centres), size=n), centres.shape[1]
    noise = rng.normal(size=(n, d))
    return centres[labels] + (noise if turn is None else noise @ turn), labels


def with_holes(points, share, seed):
    """Leave out values at random, but not all of a sample."""
    rng = np.random.default_rng(seed)
    holes = rng.random(points.shape) < share
    holes[np.arange(len(points)), rng.integers(points.shape[1], size=len(points))] = False
    return np.where(holes, np.nan, points)


def imputed(points):
    return SimpleImputer().fit_transform(points)


def full_covariances(mixture):
    d, found = mixture.n_features_in_, mixture.covariances_
    if mixture.covariance_type == "full":
        return found
    return np.array([np.diag(np.broadcast_to(one, d)) for one in found])


# Mixtures: likelihoods and steps.


@pytest.mark.parametrize("covariance_type", COVARIANCES)
@pytest.mark.parametrize("kind", MIXTURES)
def test_log_likelihoods_are_those_of_what_is_observed(kind, covariance_type):
    points = blobs(300, 8, TURN)[0] * [1.0, 10.0, 1.0, 0.1, 1.0]
    mixture = kind(4, covariance_type=covariance_type, random_state=0).fit(points)
    holed = with_holes(points[:60], 0.5, 9)
    expected = np.empty((60, 4))
    for i, x in enumerate(holed):
        seen = ~np.isnan(x)
        for k, covariance in enumerate(full_covariances(mixture)):
            part = multivariate_normal(mixture.means_[k, seen], covariance[np.ix_(seen, seen)])
            expected[i, k] = np.log(mixture.weights_[k]) + part.logpdf(x[seen])
    total = logsumexp(expected, axis=1)
    np.testing.assert_allclose(mixture.score_samples(holed), total, rtol=1e-8, atol=1e-8)
    shares = np.exp(expected - total[:, None])
    np.testing.assert_allclose(mixture.predict_proba(holed), shares, atol=1e-8)
    np.testing.assert_array_equal(mixture.predict(holed), expected.argmax(axis=1))
    assert mixture.score(holed) == pytest.approx(total.mean())


def released(means, covariances, covariance_type):
    """A mixture of which the compiled functions are to take steps."""
    mixture = learning.new_mixture(means.copy(), covariance_type, 1e6, 1.0, 1e-6)
    Progress(mixture.progress).phase = kernels.RELEASED
    values, vectors = np.linalg.eigh(covariances)
    mixture.precisions[:] = 1.0 / values
    if mixture.axes is None:
        mixture.precisions[:] = 1.0 / np.diagonal(covariances, axis1=1, axis2=2)
    else:
        mixture.axes[:-1] = vectors.transpose(0, 2, 1)
    mixture.half_log_dets[:] = 0.5 * np.log(mixture.precisions).sum(axis=1)
    return mixture


def covariances_of(mixture):
    values, axes = learning.covariance_parts(mixture)
    if axes is None:
        return np.array([np.diag(1.0 / row) for row in values])
    return np.einsum("kui,ku,kuj->kij", axes, 1.0 / values, axes)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
@pytest.mark.parametrize("n_missing", [1, 3])
def test_a_step_of_em_takes_in_what_is_expected(covariance_type, n_missing):
    rng = np.random.default_rng(n_missing)
    means, turns = rng.normal(size=(3, 4)), rng.normal(size=(3, 4, 4))
    covariances = turns @ turns.transpose(0, 2, 1) + 0.5 * np.eye(4)
    full = covariance_type == "full"
    if not full:
        covariances *= np.eye(4)
    point = rng.normal(size=4)
    point[rng.permutation(4)[:n_missing]] = np.nan
    mixture = released(means, covariances, covariance_type)
    weights = rng.dirichlet(np.ones(3))
    mixture.weights[:] = weights
    steps, ones = np.array([0.05]), np.ones(1)
    kernels.follow_em(
        point[None], np.arange(1), 1, steps, ones, 1e9, mixture, mixture, np.empty((2, 3)),
        Room.of(point[None], mixture),
    )  # fmt: skip
    expected = oracles.holed_em_step(point, weights, means, covariances, 0.05, full)
    np.testing.assert_allclose(mixture.weights, expected[0], rtol=1e-9)
    np.testing.assert_allclose(mixture.means, expected[1], atol=1e-9)
    np.testing.assert_allclose(covariances_of(mixture), expected[2], atol=1e-8)


def test_gradients_are_those_of_what_is_observed():
    rng = np.random.default_rng(11)
    d, rate = 4, 1e-6
    means, covariances = rng.normal(size=(1, d)), np.diag(rng.uniform(0.5, 2.0, d))[None]
    point = rng.normal(size=d)
    point[[0, 2]] = np.nan
    mixture = released(means, covariances, "diag")
    roots = np.sqrt(mixture.precisions)

    def log_likelihood(mean, root):
        return oracles.conditional_normal(point, mean, np.diag(1.0 / root**2))[0]

    def slopes(of, at):
        ways = 1e-5 * np.eye(d)
        return np.array([(of(at + way) - of(at - way)) / 2e-5 for way in ways])

    rules = kernels.Rules(rate, rate, 100, 1e6, 10, 0, 0.0)
    learning.learn(mixture, rules, point[None], np.arange(1), 1, plain=True)
    for found, slope in [
        ((mixture.means - means)[0], slopes(lambda mean: log_likelihood(mean, roots[0]), means[0])),
        (
            (np.sqrt(mixture.precisions) - roots)[0],
            slopes(lambda root: log_likelihood(means[0], root), roots[0]),
        ),
    ]:
        np.testing.assert_allclose(found / rate, slope, rtol=1e-3, atol=1e-3)


# Mixtures: what is learned.


@pytest.mark.parametrize(
    ("model", "covariance_type"),
    [(oda_rl.SGDGaussianMixture(6, batch_size=4), "diag"), (oda_rl.SGDGaussianMixture(6), "full"),
     (oda_rl.StochasticEMGaussianMixture(6), "full"),
     (oda_rl.StochasticEMGaussianMixture(6), "tied_spherical"),
     (oda_rl.SGDGaussianMixture(6, forgetting=0.02), "diag")],
    ids=["sgd in batches", "sgd", "em", "em, spherical", "forgetting"],
)  # fmt: skip
def test_a_mixture_loses_little_by_holes_and_much_by_means_in_them(model, covariance_type):
    points, _ = blobs(1500, 14, TURN)
    fresh, _ = blobs(1500, 15, TURN)
    holed = with_holes(points, 0.25, 16)
    model = clone(model).set_params(covariance_type=covariance_type, random_state=0)
    whole, known, filled = (
        clone(model).fit(one).score(fresh) for one in (points, holed, imputed(holed))
    )
    assert known > whole - 0.15
    assert filled < known - 0.5


def test_the_lower_bound_is_the_mean_log_likelihood_of_what_is_observed():
    points = with_holes(blobs(1000, 19)[0] * 100.0, 0.3, 20)
    for changed in ({}, {"update": "sgd", "max_iter": 30, "learning_rate": 0.01}):
        model = oda_rl.SGDGaussianMixture(6, random_state=0, **changed).fit(points)
        assert model.lower_bound_ == pytest.approx(model.score(points), abs=0.2)


@pytest.mark.parametrize(
    ("covariance_type", "batch_size"), [("diag", 1), ("full", 7), ("tied_spherical", 7)]
)
def test_a_stream_with_holes_is_the_same_in_blocks(covariance_type, batch_size):
    points = blobs(2500, 21)[0]
    points[::2] = with_holes(points[::2], 0.3, 22)  # some are whole, some are not
    points[0] = CENTRES[0]
    once = oda_rl.SGDGaussianMixture(3, covariance_type=covariance_type, batch_size=batch_size)
    once.set_params(random_state=0)
    parts = clone(once)
    once.partial_fit(points)
    for rows in np.split(points, [1, 50, 333, 1500]):
        parts.partial_fit(rows)
    np.testing.assert_array_equal(parts.means_, once.means_)
    np.testing.assert_array_equal(parts.covariances_, once.covariances_)


# Annealing and maps: steps.


def test_annealing_is_by_what_is_observed_and_keeps_its_mean():
    rng = np.random.default_rng(23)
    points = with_holes(rng.normal(size=(400, 4)), 0.35, 24)
    start, n = rng.normal(size=(5, 4)), 5
    codevectors, masses, seen = start.copy(), np.full(n, 1.0 / n), np.zeros(2)
    observed, starts = np.repeat(masses[:, None], 4, axis=1), np.array([0, n])
    learned = Codevectors(codevectors, masses, starts, np.zeros(1), seen)
    classes, weights = np.zeros(400, np.int64), np.ones(400)
    learn(SquaredEuclidean(), 4, points, classes, weights, learned, Pace(0.7, 0.0), observed)
    expected = oracles.partial_anneal(points, start, 0.7)
    np.testing.assert_allclose(masses, expected[0], rtol=1e-4)
    np.testing.assert_allclose(codevectors, expected[1], atol=1e-4)
    assert seen[0] / seen[1] == pytest.approx(expected[2], rel=1e-4)


def test_lloyds_iteration_lowers_what_it_should():
    points = with_holes(blobs(300, 63)[0], 0.3, 64)
    start = imputed(points)[:6]
    found = lloyd(points, np.ones(300), start)

    def error(codevectors):
        gaps = points[:, None] - codevectors
        return np.nansum(gaps**2, axis=2).min(axis=1).sum()

    assert error(found) < error(start)
    labels = np.nansum((points[:, None] - found) ** 2, axis=2).argmin(axis=1)
    for k, codevector in enumerate(found):
        np.testing.assert_allclose(codevector, np.nanmean(points[labels == k], axis=0))
    refined = refine(points, np.ones(300), start, np.random.default_rng(0))  # goes on from there
    assert error(refined) < 0.9 * error(found)
    np.testing.assert_allclose(lloyd(points, np.ones(300), refined), refined)


def test_a_map_is_pulled_in_what_is_observed():
    rng = np.random.default_rng(29)
    points, start = with_holes(rng.normal(size=(60, 3)), 0.4, 30), rng.normal(size=(6, 3))
    rates, widths = np.linspace(0.5, 0.1, 60), np.linspace(2.0, 0.5, 60)
    codevectors, hits = start.copy(), np.zeros(6, np.int64)
    shares, grid = (~np.isnan(points)).mean(axis=1), Grid(2, 3, False)
    learn_map(
        codevectors, hits, points, shares, np.arange(60), grid, rates, widths, np.empty(6)
    )  # fmt: skip
    expected, winners = oracles.partial_som(points, start, (2, 3), rates, widths)
    np.testing.assert_allclose(codevectors, expected, atol=1e-6)
    np.testing.assert_array_equal(hits, np.bincount(winners, minlength=6))


# Annealing and maps: what is learned.


@pytest.mark.parametrize(
    "model",
    [oda_rl.ODAClusterer(6), oda_rl.ODAClusterer(6, refine=False), oda_rl.SOM((2, 3))],
    ids=["annealing", "not refined", "map"],
)
def test_codevectors_lose_little_by_holes_and_much_by_means_in_them(model):
    points, _ = blobs(900, 31)
    fresh, labels = blobs(900, 32)
    holed = with_holes(points, 0.25, 33)
    models = [
        clone(model).set_params(random_state=0).fit(one) for one in (points, holed, imputed(holed))
    ]
    whole, known, filled = (one.score(fresh) for one in models)
    assert known > 1.2 * whole
    assert filled < 1.2 * known
    seen = with_holes(fresh, 0.25, 34)
    found = [adjusted_rand_score(labels, one.predict(seen)) for one in models]
    assert found[1] > found[0] - 0.1
    # What distances are expected to be is what they are, on average.
    assert models[1].score(seen) == pytest.approx(known, rel=0.2)


@pytest.mark.parametrize("fine_tuning", ["rslvq", "glvq", "lvq1"])
def test_classes_are_told_apart_in_spite_of_holes(fine_tuning):
    points, labels = blobs(900, 35)
    fresh, wanted = blobs(900, 36)
    holed = with_holes(points, 0.3, 37)
    scores = []
    for one in (points, holed, imputed(holed)):
        model = oda_rl.ODAClassifier(12, fine_tuning=fine_tuning, random_state=0)
        scores.append(model.fit(one, labels % 2).score(fresh, wanted % 2))
    assert scores[1] > scores[0] - 0.02
    assert scores[1] >= scores[2]
    hidden = with_holes(fresh, 0.3, 38)
    assert model.score(hidden, wanted % 2) > 0.75
    np.testing.assert_allclose(model.predict_proba(hidden).sum(axis=1), 1.0)


def test_regression_takes_a_cells_mean_for_what_is_missing():
    points, labels = blobs(900, 39)
    fresh, wanted = blobs(900, 42)
    targets, truth = np.sin(labels) + 0.05 * points[:, 0], np.sin(wanted) + 0.05 * fresh[:, 0]
    holed = with_holes(points, 0.25, 43)
    models = [oda_rl.ODARegressor(12, random_state=state) for state in range(4)]
    whole, holes, filled = (
        np.mean([model.fit(one, targets).score(fresh, truth) for model in models])
        for one in (points, holed, imputed(holed))
    )
    assert whole > 0.9
    assert whole - holes < 0.5 * (whole - filled)  # cells lose less than half as much


@pytest.mark.parametrize("kind", [oda_rl.ODAClusterer, oda_rl.ODAClassifier, oda_rl.ODARegressor])
def test_annealing_a_stream_with_holes_is_the_same_in_blocks(kind, tmp_path):
    points, labels = blobs(700, 44)
    points[50:] = with_holes(points[50:], 0.3, 45)
    labels[:300] = np.minimum(labels[:300], 4)  # a class appears later
    parts = kind(8, random_state=0)
    once = clone(parts).partial_fit(points, labels)
    for begin in range(0, 700, 70):
        parts.partial_fit(points[begin : begin + 70], labels[begin : begin + 70])
        path = tmp_path / "model.zip"
        parts.save(path)  # also in the middle of a level
        parts = kind.load(path)
    np.testing.assert_array_equal(parts.codevectors_, once.codevectors_)
    np.testing.assert_array_equal(parts.predict(points), once.predict(points))


def test_temperatures_of_associations_are_those_of_what_is_observed():
    model = oda_rl.ODAClusterer(3, refine=False, random_state=0).fit(blobs(300, 46)[0])
    x = np.array([[1.0, np.nan, 2.0, np.nan, np.nan]])
    squares = ((x - model.codevectors_)[:, [0, 2]] ** 2).sum(axis=1)
    np.testing.assert_allclose(model.transform(x)[0] ** 2, squares * 5 / 2)
    shares = model.weights_ * np.exp(-(squares - squares.min()) / model.temperature_)
    np.testing.assert_allclose(model.predict_proba(x)[0], shares / shares.sum(), atol=1e-12)


# All of them.


def named(model):
    """What a case is called: the text of an object would have its address."""
    return type(model).__name__


LEARNERS = [
    oda_rl.SGDGaussianMixture(3, batch_size=5),
    oda_rl.SGDGaussianMixture(3, covariance_type="full"),
    oda_rl.StochasticEMGaussianMixture(3, batch_size=5),
    oda_rl.StochasticEMGaussianMixture(3, init="random", covariance_type="full"),
    oda_rl.SOM((2, 3)),
    oda_rl.SOM((2, 3), init="random"),
    oda_rl.ODAClusterer(3),
    oda_rl.ODAClassifier(4),
    oda_rl.ODARegressor(4),
    # Repetition raises the effective number of samples, by which nodes are divided.
    oda_rl.ODATreeClusterer(3, max_depth=2, min_samples_split=0),
    oda_rl.ODATreeClassifier(3, max_depth=2, min_samples_split=0),
    oda_rl.ODATreeRegressor(3, max_depth=2, min_samples_split=0),
]


@pytest.mark.parametrize("model", LEARNERS, ids=named)
def test_weights_are_repetitions_of_rows_with_holes(model):
    points, labels = blobs(80, 47)
    points, weights = with_holes(points, 0.3, 48), np.random.default_rng(49).integers(0, 4, 80)
    labels = labels % 2
    model = clone(model).set_params(random_state=0)
    first = clone(model).fit(points, labels, sample_weight=weights)
    order = np.random.default_rng(50).permutation(int(weights.sum()))
    again = np.repeat(np.arange(80), weights)[order]
    second = clone(model).fit(points[again], labels[again])
    name = "means_" if hasattr(first, "means_") else "codevectors_"
    np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", LEARNERS[:1] + LEARNERS[1::2], ids=named)
def test_files_hold_what_was_learned_from_holes(model, reloaded):
    points, labels = blobs(120, 51)
    points = with_holes(points, 0.3, 52)
    model = clone(model).set_params(random_state=0)
    model.partial_fit(points[:63], labels[:63] % 2)
    read = reloaded(model)
    for one in (model, read):
        one.partial_fit(points[63:], labels[63:] % 2)
    np.testing.assert_array_equal(read.predict(points), model.predict(points))


@pytest.mark.parametrize("model", LEARNERS, ids=named)
def test_what_says_nothing_is_refused_by_name(model):
    points, labels = blobs(100, 53)
    labels = labels % 2
    assert get_tags(model).input_tags.allow_nan
    empty = points.copy()
    empty[[7, 9]] = np.nan
    model = clone(model).set_params(random_state=0)
    for fit in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="X has no value in row 7"):
            fit(empty, labels)
    column = points.copy()
    column[:, 3] = np.nan
    for fit in (clone(model).fit, clone(model).partial_fit):
        with pytest.raises(ValueError, match="X has no value of feature 3"):
            fit(column, labels)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(np.where(np.arange(5) == 2, np.inf, points), labels)
    with pytest.raises(ValueError, match=r"X holds 1e\+200"):
        model.fit(np.where(points == points[0, 0], 1e200, with_holes(points, 0.2, 54)), labels)
    model.fit(points, labels)
    with pytest.raises(ValueError, match="X has no value in row 7"):
        model.predict(empty[:9])
    assert np.isfinite(model.predict(column)).all()


def test_masked_values_are_missing():
    points, labels = blobs(100, 54)
    holed, model = with_holes(points, 0.2, 54), oda_rl.ODATreeRegressor(random_state=0)
    masked = np.ma.masked_array(points, np.isnan(holed))
    expected = model.fit(holed, labels).predict(holed)
    np.testing.assert_array_equal(model.fit(masked, labels).predict(masked), expected)
    hidden = np.ma.masked_array(labels, labels == 1)
    for y, weights in ((labels, hidden), (hidden, None)):
        with pytest.raises(ValueError, match="NaN"):
            model.fit(masked, y, sample_weight=weights)


def test_features_without_a_value_are_named():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(blobs(50, 55)[0], columns=["a", "b", "c", "d", "e"])
    frame["d"] = np.nan
    with pytest.raises(ValueError, match=r"X has no value of feature d"):
        oda_rl.ODAClusterer(2).fit(frame)
    frame.loc[4, "d"] = 1.0
    with pytest.raises(ValueError, match="feature d"):  # what weighs nothing says nothing
        oda_rl.ODAClusterer(2).fit(frame, sample_weight=np.arange(50) != 4)
    oda_rl.ODAClusterer(2, random_state=0).fit(frame)


@pytest.mark.parametrize(
    "model",
    [oda_rl.ODAClusterer(2, divergence="i_divergence"),
     oda_rl.ODAClusterer(2, divergence=BregmanDivergence(lambda x: (x**2).sum(1), lambda x: 2 * x)),
     oda_rl.ODATreeClusterer(divergence=METRIC), oda_rl.StochasticVQ(2)],
    ids=["i-divergence", "own", "tree", "vq"],
)  # fmt: skip
def test_others_refuse_holes(model):
    points = np.abs(blobs(50, 56)[0]) + 1.0
    assert not get_tags(model).input_tags.allow_nan
    with pytest.raises(ValueError, match="NaN"):
        model.fit(with_holes(points, 0.2, 57))


def test_a_metric_that_mixes_features_takes_no_holes():
    points, labels = blobs(60, 56)
    holed = with_holes(points, 0.2, 57)
    for model in (
        oda_rl.ODAClusterer(2, divergence=METRIC), oda_rl.ODARegressor(2, divergence=METRIC),
        oda_rl.ODAClassifier(4, divergence=METRIC), oda_rl.ODAClassifier(4, fine_tuning="mrslvq")
    ):  # fmt: skip
        message = "Input X contains NaN"
        assert not get_tags(model).input_tags.allow_nan
        for fit in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match=message):
                fit(holed, labels % 2)
        with pytest.raises(ValueError, match=message):
            model.fit(points, labels % 2).predict(holed)


def test_histograms_have_no_holes():
    points, _ = blobs(60, 58)
    holed = with_holes(points, 0.2, 59)
    model = oda_rl.ODAClusterer(2, random_state=0).fit(holed)
    low, high = np.nanmin(holed, axis=0), np.nanmax(holed, axis=0)
    inside = ((points >= low) & (points <= high)).all(axis=1)
    np.testing.assert_array_equal(np.isfinite(model.score_samples(points)), inside)
    for one in (model, oda_rl.ODATreeClusterer(random_state=0).fit(points)):
        with pytest.raises(ValueError, match="X has missing values"):
            one.score_samples(with_holes(points, 0.2, 60))
