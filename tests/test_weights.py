"""Weights of samples: relative, and the same as rows that stand there so often."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_numbers import ESTIMATORS, estimator, samples

import oda_rl
from oda_rl.annealing.regressor import fit_local_models
from oda_rl.exemplars.weights import best_proportions
from oda_rl.samples import relative, relative_in_stream, repeated, weighted

POINTS, LABELS = make_blobs(150, centers=4, cluster_std=1.5, random_state=5)
LABELS = LABELS % 2
WEIGHTS = np.random.default_rng(0).integers(0, 4, 150)

LEARNERS = [
    oda_rl.BatchDeterministicAnnealing(4, random_state=0),
    *(oda_rl.LVQ(2, algorithm=name, random_state=0) for name in ("lvq1", "rslvq")),
    *(oda_rl.SOM((2, 3), init=name, random_state=0) for name in ("pca", "random")),
    oda_rl.SGDGaussianMixture(4, random_state=0),
    oda_rl.SGDGaussianMixture(3, batch_size=8, covariance_type="full", random_state=0),
    oda_rl.StochasticEMGaussianMixture(4, random_state=0),
    oda_rl.DistributedGaussianMixture(4, random_state=0),
    oda_rl.StochasticVQ(4, random_state=0),
    oda_rl.INFEX(bandwidth=1.0, random_state=0),
    oda_rl.INFEX("mean_variance", bandwidth=2.0, kernel="epanechnikov", C=0.3, random_state=0),
    oda_rl.INFEX("margin_variance", bandwidth=3.0, C=3.0, random_state=0),
    oda_rl.ConvexClustering(1.0),
    oda_rl.KernelVectorQuantization(4.0),
]
STREAMS = [one for one in LEARNERS if hasattr(one, "partial_fit")]

pytestmark = [pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]


def places(model):
    for name in ("codevectors_", "means_", "exemplars_"):
        if hasattr(model, name):
            return getattr(model, name)
    raise AssertionError


@pytest.mark.parametrize("learner", LEARNERS)
def test_weights_are_repetitions_in_any_order(learner):
    plain = clone(learner).fit(POINTS.repeat(WEIGHTS, axis=0), LABELS.repeat(WEIGHTS))
    order = np.random.default_rng(1).permutation(150)
    weighed = clone(learner).fit(POINTS[order], LABELS[order], sample_weight=WEIGHTS[order])
    if getattr(learner, "objective", None) == "margin_variance":  # of many exemplars, nearly equal
        assert weighed.objective_value_ == pytest.approx(plain.objective_value_, rel=1e-5)
        return
    np.testing.assert_allclose(places(weighed), places(plain), rtol=1e-6)
    np.testing.assert_array_equal(weighed.predict(POINTS), plain.predict(POINTS))
    other, found = places(clone(learner).fit(POINTS, LABELS)), places(plain)
    assert other.shape != found.shape or not np.allclose(other, found)  # they matter


def test_weights_of_a_regressor_are_repetitions_too():
    # A codebook of the same cells, for the models in these: annealing draws its own order.
    places = POINTS[:6]
    cells = ((POINTS[:, None] - places) ** 2).sum(axis=2).argmin(axis=1)
    for d in (1, 2):
        rest = POINTS[:, :d], POINTS.sum(axis=1, keepdims=True)
        found = fit_local_models(*rest, WEIGHTS, cells, np.zeros((6, 1)), linear=True)
        rows = np.arange(150).repeat(WEIGHTS)
        rest = POINTS[rows, :d], POINTS[rows].sum(axis=1, keepdims=True)
        ones = np.ones(len(rows))
        again = fit_local_models(*rest, ones, cells[rows], np.zeros((6, 1)), linear=True)
        for one, other in zip(found, again, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


OBJECTIVES = ("log_likelihood", "mean_variance", "margin", "margin_variance")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_masses_are_repetitions_in_the_best_proportions(objective):
    rng = np.random.default_rng(2)
    responses, times = rng.uniform(0.01, 1.0, (30, 8)), rng.integers(1, 5, 30)
    repeated = best_proportions(responses.repeat(times, axis=0), objective, penalty=2.0)
    found = best_proportions(responses, objective, penalty=2.0, masses=times / times.sum())
    assert found.value == pytest.approx(repeated.value, abs=1e-9)
    assert found.bound == pytest.approx(repeated.bound, abs=1e-6)
    np.testing.assert_allclose(found.weights, repeated.weights, atol=1e-4)
    if objective != "margin":  # where only their sum over equal rows is known
        each = found.prices.repeat(times) / times.repeat(times)
        np.testing.assert_allclose(repeated.prices, each, atol=1e-5)


def test_exemplars_of_weighted_samples_have_a_certificate():
    # Columns are made of rows that stand there once: the sum over repeated ones is not made here.
    rows, weights = POINTS[:40], np.random.default_rng(3).exponential(size=40)
    model = oda_rl.INFEX(bandwidth=1.5, random_state=0)
    model.fit(rows, sample_weight=weights)
    masses = weights / weights.sum()

    def value(positions, shares):
        squares = ((rows[:, None] - positions) ** 2).sum(axis=2) / 1.5**2
        return masses @ np.log(np.exp(-0.5 * squares) @ shares)

    found = value(model.exemplars_, model.weights_)
    assert found == pytest.approx(model.objective_value_, abs=1e-9)
    plain = clone(model).fit(rows)
    assert value(plain.exemplars_, plain.weights_) < found  # which has another aim
    rng = np.random.default_rng(4)
    for _ in range(20):
        moved = model.exemplars_ + rng.normal(scale=0.3, size=model.exemplars_.shape)
        assert value(moved, model.weights_) <= found + model.duality_gap_
    everywhere = oda_rl.ConvexClustering(bandwidth=1.5).fit(rows, sample_weight=weights)
    assert everywhere.objective_value_ <= found + model.duality_gap_


@pytest.mark.parametrize("learner", [one for one in STREAMS if not isinstance(one, oda_rl.INFEX)])
def test_in_a_stream_they_are_over_the_mean_so_far_in_blocks_of_any_size(learner):
    once, twice = clone(learner), clone(learner)
    once.partial_fit(POINTS, sample_weight=WEIGHTS)
    for rows in (slice(0, 110), slice(110, 150)):
        twice.partial_fit(POINTS[rows], sample_weight=WEIGHTS[rows])
    from_one_block = oda_rl.StochasticVQ | oda_rl.SOM | oda_rl.StochasticEMGaussianMixture
    if not isinstance(learner, from_one_block):
        np.testing.assert_array_equal(places(twice), places(once))
    np.testing.assert_array_equal(twice._weighed, [WEIGHTS.sum(), np.count_nonzero(WEIGHTS)])
    found, _ = relative_in_stream(WEIGHTS * 3.0, np.array([6.0, 2.0]))
    for i, weight in enumerate(WEIGHTS):
        before = WEIGHTS[: i + 1]
        mean = (2.0 + before.sum()) / (2 + np.count_nonzero(before))
        assert found[i] == pytest.approx(weight / mean, rel=1e-12)


def said(model, X):
    names = ("predict", "predict_proba", "transform", "decision_function", "score_samples")
    return [getattr(model, name)(X) for name in names if hasattr(model, name)]


STREAMING = [name for name in ESTIMATORS if hasattr(getattr(oda_rl, name), "partial_fit")]
# Powers of 2, and their roots, are exact.
FACTORS = [(2.0**-27, 0), (2.0**27, 0), *((f, 1e-6) for f in (1e-8, 3e-5, 0.3, 7.0, 1e8))]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_common_factor_changes_nothing(name):
    blobs, _ = make_blobs(100, centers=4, cluster_std=1.5, random_state=0)
    slack = 100.0 if name == "INFEX" else 1.0  # its tol, where the optimum is flat
    for i, X in enumerate([blobs, np.random.default_rng(1).random((100, 3))]):
        data = X, X[:, 0] if name.endswith("Regressor") else X[:, 0] > X[:, 1]
        weights = np.random.default_rng(i).exponential(size=len(X))
        plain = said(estimator(name).fit(*data, sample_weight=weights), X)
        for factor, error in FACTORS[i::2]:
            model = estimator(name).fit(*data, sample_weight=factor * weights)
            for found, wanted in zip(said(model, X), plain, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=slack * error, atol=slack * error)
    equal = estimator(name).fit(*data, sample_weight=np.full(100, 1e-8))
    for found, wanted in zip(said(equal, X), said(estimator(name).fit(*data), X), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("name", STREAMING)
def test_a_common_factor_changes_no_stream(name):
    data, models = [part[::2] for part in samples(name)], []
    weights = np.random.default_rng(2).exponential(size=len(data[0]))
    for factor, _ in FACTORS[:2]:
        model = estimator(name).partial_fit(*data, sample_weight=factor * weights)
        models.append(model.partial_fit(*data, sample_weight=factor * weights[::-1]))
    for found, wanted in zip(*(said(model, data[0]) for model in models), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", [oda_rl.ODAClassifier, oda_rl.ODARegressor])
def test_weights_count_in_the_choice_of_a_size(kind):
    one, other = (
        kind("auto", random_state=0).fit(POINTS, LABELS, sample_weight=factor * WEIGHTS)
        for factor in (1.0, 2.0**26)
    )
    assert one.best_params_ == other.best_params_
    np.testing.assert_array_equal(one.predict(POINTS), other.predict(POINTS))


def test_the_effective_sample_size_is_kishs():
    weights = np.random.default_rng(0).exponential(size=40)
    assert relative(weights).sum() == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    np.testing.assert_array_equal(relative(np.full(9, 1.8e5)), np.ones(9))
    one, other = (oda_rl.INFEX("margin").fit(POINTS, sample_weight=w) for w in (None, WEIGHTS))
    sizes = [len(POINTS), WEIGHTS.sum() ** 2 / (WEIGHTS**2).sum()]
    deviation = np.sqrt(np.cov(POINTS.T, aweights=WEIGHTS, ddof=0).trace() / 2.0)
    assert other.bandwidth_ == pytest.approx(sizes[1] ** (-1.0 / 6.0) * deviation)
    assert one.bandwidth_ == pytest.approx(sizes[0] ** (-1.0 / 6.0) * np.sqrt(POINTS.var(0).mean()))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_arrays_that_are_read_only_are_learned_from_and_go_on_learning(name):
    data, frozen = samples(name), samples(name)
    for part in frozen:
        part.flags.writeable = False
    models = [estimator(name).fit(*part) for part in (data, frozen)]
    buffers = []
    written = pickle.dumps(models[1], protocol=5, buffer_callback=buffers.append)
    read = pickle.loads(written, buffers=[bytes(buffer.raw()) for buffer in buffers])
    models = [models[0], read]
    if hasattr(read, "partial_fit"):
        for model, part in zip(models, (data, frozen), strict=True):
            model.partial_fit(*part)
    for found, wanted in zip(*(said(model, frozen[0]) for model in models), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_rows_are_shown_as_often_as_they_weigh():
    weights = np.random.default_rng(0).exponential(2.0, 50)
    data = weighted(np.arange(50.0)[:, None], weights)
    rng = np.random.RandomState(0)
    for _ in range(20):
        order = data.shown(rng)
        assert len(order) == 100  # at least
        times = np.bincount(order, minlength=50)
        assert abs(times - weights * 100 / weights.sum()).max() < 1.0
    many = weighted(np.arange(200.0)[:, None], np.full(200, 0.2))
    assert sorted(many.shown(rng)) == list(range(200))


def test_what_weighs_nothing_is_not_scored():
    far = np.array([[0.0, 0.0], [1.0, 1.0], [1e3, 1e3]])
    density = oda_rl.INFEX("mean_variance", kernel="epanechnikov", bandwidth=3.0).fit(far[:2])
    expected = np.average(density.score_samples(far[:2]), weights=[1, 2])
    assert density.score(far, sample_weight=[1, 2, 0]) == pytest.approx(expected, rel=1e-12)
    assert density.score(far) == -np.inf


def test_a_row_is_shown_at_most_a_hundred_times():
    model = oda_rl.StochasticVQ(1, random_state=0).partial_fit(POINTS)
    model._weighed = np.array([1e-300, 1e150])  # as a file may say
    model.partial_fit(POINTS[:1], sample_weight=[1e100])
    assert model.history_[-1][0] == 250
    rows, _ = repeated(relative_in_stream(np.full(3_000, 1.8e5), np.zeros(2))[0], 0.0)
    np.testing.assert_array_equal(rows, np.arange(3_000))
    rows, owed = repeated(np.array([0.3, 0.3]), 0.5)
    assert rows.tolist() == [1]
    assert owed == pytest.approx(0.1)


def searched(learner):
    """Two settings of what decides how fine a learner is; kernels reach all samples."""
    counts = ("n_clusters", "n_prototypes", "n_components", "shape")
    widths = ("bandwidth", "max_distortion")
    grids = {one: [2, 3] for one in counts} | {one: [30.0, 40.0] for one in widths}
    return {name: grid for name, grid in grids.items() if name in learner.get_params()}


@pytest.mark.parametrize("learner", [*LEARNERS, oda_rl.ODAClusterer(4, random_state=0)])
def test_they_are_routed_through_pipelines_and_searches(learner):
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        own = clone(learner).set_fit_request(sample_weight=True)
        own = own.set_score_request(sample_weight=True)
        line = make_pipeline(scaler, own).fit(POINTS, LABELS, sample_weight=WEIGHTS)
        scaled = line[0].transform(POINTS)
        alone = clone(learner).fit(scaled, LABELS, sample_weight=WEIGHTS)
        np.testing.assert_array_equal(line.predict(POINTS), alone.predict(scaled))
        search = GridSearchCV(own, searched(learner), cv=2)
        search.fit(POINTS, LABELS, sample_weight=WEIGHTS)
        repeats = POINTS.repeat(WEIGHTS, axis=0), LABELS.repeat(WEIGHTS)
        score = search.best_estimator_.score(POINTS, LABELS, sample_weight=WEIGHTS)
        assert score == pytest.approx(search.best_estimator_.score(*repeats))
