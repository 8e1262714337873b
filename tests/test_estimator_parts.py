"""Small parts of the estimators: density, local models, selection, files, critical temperature."""

import numpy as np
import oracles
import pytest
from sklearn.base import clone

from oda_rl import ODAClusterer
from oda_rl.annealing.annealer import AnnealingConstants
from oda_rl.annealing.base import log_cell_volumes
from oda_rl.annealing.bifurcation import critical_temperature
from oda_rl.annealing.classifier import best_temperature, cross_entropy, learn_metric
from oda_rl.annealing.regressor import fit_local_models
from oda_rl.divergences import BregmanDivergence
from oda_rl.files.archive import load_archive, save_archive
from oda_rl.files.estimators import Filed
from oda_rl.files.schema import ANYTHING


@pytest.mark.parametrize(
    ("divergence", "seed"),
    [*(("squared_euclidean", seed) for seed in range(20)), ("i_divergence", 2),
     ("itakura_saito", 3)],
)  # fmt: skip
def test_a_codevector_splits_at_its_critical_temperature(divergence, seed):
    points = np.random.default_rng(seed).normal(size=(1000, 3)) * [1.0, 0.98, 0.1]
    points = points if divergence == "squared_euclidean" else np.exp(0.3 * points)
    critical = critical_temperature(points, divergence=divergence)
    model = ODAClusterer(
        4, divergence=divergence, cooling=0.97, refine=False, min_temperature=0.9, random_state=seed
    ).fit(points)
    split = next(level.temperature for level in model.history_ if level.n_clusters > 1)
    assert 0.95 * critical < split < 1.001 * critical


def test_the_critical_temperature_is_that_of_the_weighted_covariance():
    points, weights = np.array([[0.0, 1.0], [4.0, 1.0], [2.0, 5.0]]), np.array([1.0, 3.0, 2.0])
    covariance = np.cov(points.T, aweights=weights, bias=True)
    expected = 2.0 * np.linalg.eigvalsh(covariance)[-1]
    assert critical_temperature(points, sample_weight=weights) == pytest.approx(expected)
    repeated = np.repeat(points, weights.astype(int), axis=0)
    assert critical_temperature(repeated) == pytest.approx(expected)
    # The largest eigenvalue of diag(1/mean) C, and of a divergence known by its gradient alone.
    mean = np.average(points, axis=0, weights=weights)
    expected = np.linalg.eigvals(covariance / mean[:, None]).real.max()
    own = BregmanDivergence(lambda x: (x * np.log(x + 1e-9)).sum(axis=1), lambda x: np.log(x) + 1.0)
    shifted = critical_temperature(points + 1e-9, sample_weight=weights, divergence=own)
    found = critical_temperature(points, sample_weight=weights, divergence="i_divergence")
    assert found == pytest.approx(expected)
    assert shifted == pytest.approx(expected, rel=1e-4)


def test_a_level_lasts_until_codevectors_have_settled():
    points = np.random.default_rng(0).normal(size=(1000, 2))
    brief, long = (
        ODAClusterer(4, refine=False, constants=AnnealingConstants(movement=eps), random_state=0)
        for eps in (np.inf, 1e-4)
    )
    assert long.fit(points).n_samples_seen_ > 3 * brief.fit(points).n_samples_seen_
    streamed = long.fit(points[:9]).partial_fit(np.tile(points, (3, 1)))
    blocks = clone(long).fit(points[:9])
    for block in np.array_split(np.tile(points, (3, 1)), 7):
        blocks.partial_fit(block)
    np.testing.assert_array_equal(streamed.codevectors_, blocks.codevectors_)


@pytest.mark.parametrize(
    ("name", "value"), [("max_temperature", 0.0), ("movement", -1.0), ("min_mass", np.nan)]
)
def test_constants_have_their_ranges(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}: it must be a number in") as raised:
        AnnealingConstants(**{name: value})
    assert raised.type is ValueError  # and no error of a file


def test_constants_are_those_of_the_annealing(tmp_path):
    points = np.random.default_rng(0).normal(size=(400, 2))
    constants = AnnealingConstants(max_temperature=0.5, merge_below=1e6, step_offset=3.0)
    model = ODAClusterer(
        4, refine=False, constants=constants, min_temperature=0.1, random_state=0
    ).fit(points)
    assert model.history_[1].temperature == pytest.approx(0.5 * model.history_[0].distortion)
    assert len(model.codevectors_) == 1  # all that is nearer than 1000 √T merges
    model.save(tmp_path / "model")
    assert ODAClusterer.load(tmp_path / "model").constants == constants


@pytest.mark.parametrize(
    ("k", "n", "refine", "factor"),
    [(21, 420, 1, 0.6), (21, 419, 1, 0.5), (20, 420, 1, 0.25), (21, 419, 0, 0.8)],
)
def test_few_clusters_are_cooled_faster(k, n, refine, factor):
    # Distinct ones: a table in which each stands three times is the same data.
    points = np.random.default_rng(0).normal(size=(n, 2))
    for table in (points, np.repeat(points, 3, axis=0)):
        levels = ODAClusterer(k, refine=bool(refine), random_state=0).fit(table).history_[1:]
        temperatures = np.array([level.temperature for level in levels if level.n_clusters < k])
        np.testing.assert_allclose(temperatures[1:] / temperatures[:-1], factor)
        if refine:  # no level above the critical temperature, which is neared from below
            share = temperatures[0] / (factor * critical_temperature(points))
            assert 0.95 < share < 1.0 + 1e-9


def test_volumes_are_those_of_the_cells():
    corners = np.zeros(3), np.array([2.0, 3.0, 1.0])
    volumes = log_cell_volumes(lambda x: (x[:, 0] + x[:, 1] > 2.0).astype(int), 2, *corners)
    # Below the diagonal lies a triangle of area 2 out of 6. Sobol points err by less than 1e-3.
    np.testing.assert_allclose(np.exp(volumes), [2.0, 4.0], rtol=1e-3)


def test_local_models_are_least_squares_where_points_are_many():
    rng = np.random.default_rng(0)
    points, cells = rng.normal(size=(4000, 2)), np.repeat([0, 1], 2000)
    slopes = np.array([[1.0, -2.0], [5.0, 0.5]])
    targets = (points * slopes[cells]).sum(axis=1, keepdims=True) + 3.0 * cells[:, None]
    start = np.zeros((2, 1))
    models = fit_local_models(points, targets, np.ones(4000), cells, start, linear=True)
    # 4 points of 2004 follow the common slopes, which lie 4 away.
    np.testing.assert_allclose(models.slopes[:, 0], slopes, atol=4 * 4 / 2000 + 0.01)
    assert np.abs(models.predict(points, cells) - targets).max() < 0.1


def test_a_cell_without_points_keeps_its_value_and_takes_the_common_slopes():
    points = np.linspace(0, 1, 50)[:, None]
    start = np.array([[0.0], [9.0]])
    models = fit_local_models(
        points, 2 * points, np.ones(50), np.zeros(50, int), start, linear=True
    )
    assert models.values[1] == 9.0
    assert models.slopes[0] == pytest.approx(2.0)


def test_the_temperature_of_prediction_is_the_most_likely_one():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(-1, 1, 2000), rng.normal(1, 1, 2000)])
    classes = np.repeat([0, 1], 2000)
    divergences = (points[:, None] - [[-1.0, 1.0]]) ** 2
    found = best_temperature(divergences, np.full(2, 0.5), np.array([0, 1]), classes, 1)
    assert found == pytest.approx(2.0, rel=0.1)  # the truth is exp(-d/2)


def test_the_cost_of_a_metric_is_its_formula_and_its_gradient_that_of_finite_differences():
    rng = np.random.default_rng(0)
    labels, classes = np.array([0, 0, 1, 1, 2]), rng.integers(0, 3, 30)
    shares = rng.dirichlet(np.ones(30))
    places, weights = rng.normal(size=(5, 3)), rng.dirichlet(np.ones(5))
    fixed = places, weights, labels, rng.normal(size=(30, 3)), classes, shares, 0.1
    parameters = rng.normal(size=3 * (3 + 5))
    loss, found = cross_entropy(parameters, *fixed)
    assert loss == pytest.approx(oracles.matrix_rslvq_cost(parameters, *fixed), rel=1e-9)
    for i, step in enumerate(1e-6 * np.eye(len(parameters))):
        rise = cross_entropy(parameters + step, *fixed)[0]
        rise -= cross_entropy(parameters - step, *fixed)[0]
        assert found[i] == pytest.approx(rise / 2e-6, rel=1e-5, abs=1e-8)


def test_a_metric_is_learned_where_points_are_and_in_their_units():
    rng = np.random.default_rng(1)
    points = rng.normal(size=(200, 3))
    classes = (points[:, 0] + 0.5 * rng.normal(size=200) > 0.0).astype(int)
    start, halves = np.array([[-1.0, 0, 0], [1.0, 0, 0]]), (np.full(2, 0.5), np.array([0, 1]))

    def learned(factor, shift, weights):
        moved = factor * points + shift, classes, weights
        place = factor * start + shift
        return learn_metric(place, *halves, factor**2, *moved, 0.01)

    codevectors, matrix = learned(1.0, 0.0, np.ones(200))
    others, same_matrix = learned(8.0, 100.0, np.full(200, 3.0))
    np.testing.assert_allclose(others, 8.0 * codevectors + 100.0, atol=1e-3)
    np.testing.assert_allclose(same_matrix, matrix, atol=1e-3)
    assert matrix[0, 0] > 10.0 * max(matrix[1, 1], matrix[2, 2])


class Thing(Filed):
    """Holds anything."""

    SCHEMA = dict.fromkeys(("numbers", "words", "rng"), ANYTHING)


Thing._stored = {"Thing": Thing}


def test_classes_that_are_not_listed_do_not_come_out_of_a_file(tmp_path):
    metadata, arrays = {"estimator": "Thing", "content": {"object": "Popen", "content": {}}}, {}
    save_archive(tmp_path / "evil.zip", metadata, arrays)
    assert load_archive(tmp_path / "evil.zip")[0] == metadata
    with pytest.raises(ValueError, match="damaged"):
        Thing.load(tmp_path / "evil.zip")
