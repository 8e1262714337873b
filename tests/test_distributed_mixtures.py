"""Gaussian mixtures by sums over blocks: sums, EM, starts, bits, lazy answers, errors."""

from functools import partial

import dask
import dask.array as da
import numpy as np
import oracles
import pytest
from sklearn.datasets import load_iris, load_wine, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler
from test_distributed import lazy, mixture
from test_missing import with_holes

from oda_rl import DistributedGaussianMixture, StochasticEMGaussianMixture
from oda_rl.distributed import blocks as block_module
from oda_rl.distributed.blocks import DaskBlocks, OneBlock, Rows
from oda_rl.distributed.mixture import Statistics, expected, maximized
from oda_rl.mixtures import learning
from oda_rl.mixtures.kernels import RELEASED, Progress

KINDS = ["diag", "full", "tied_spherical"]


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def holed(points, share=0.2):
    return with_holes(points, share, len(points))


def parts(climbed):
    """Weights, means and full covariances of a mixture."""
    model = DistributedGaussianMixture(covariance_type="full", variance_floor=1.0)
    if climbed.axes is None:
        model.covariance_type = "tied_spherical" if climbed.spherical else "diag"
    model._mixture, model._units = climbed, np.ones(climbed.means.shape[1])
    model._origin = np.zeros(climbed.means.shape[1])
    covariances = model.covariances_
    if climbed.axes is None:
        one = np.eye(climbed.means.shape[1])
        covariances = np.array([one * variances for variances in covariances])
    return model.weights_, model.means_, covariances


def ask(blocks, model):
    """Statistics of a mixture in the data's own units."""
    units = np.ones(model.means.shape[1])
    return Statistics(*blocks.total(partial(expected, units=units, mixture=model)))


def in_memory(points, weights=None):
    return OneBlock(Rows(points, None, weights))


def started(points, means, kind, max_precision):
    """Take one EM step from means."""
    first = learning.new_mixture(means, kind, max_precision, 1.0, 0.0)
    Progress(first.progress).phase = RELEASED
    return maximized(first, ask(in_memory(points), first), max_precision)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_an_obvious_loop(kind, missing):
    points = mixture(300, 0, n_components=3)
    weights = np.random.default_rng(1).integers(3, size=300) / 2.0
    shown = holed(points) if missing else points
    start = started(points, points[:4], kind, 1e3)  # of which nothing is equal any more
    sums = ask(DaskBlocks(lazy(shown, n_blocks=3), weights=lazy(weights, n_blocks=3)), start)
    masses, moves, spreads, total = oracles.mixture_sums(shown, weights, *parts(start))
    np.testing.assert_allclose(sums.masses, masses, rtol=1e-7)
    np.testing.assert_allclose(sums.moves, moves, rtol=1e-6, atol=1e-6)
    upper = np.array([np.triu(one) if kind == "full" else np.diag(one)[None] for one in spreads])
    np.testing.assert_allclose(np.triu(sums.spreads) if kind == "full" else sums.spreads, upper,
                               rtol=1e-6, atol=1e-6)  # fmt: skip
    known = (~np.isnan(shown)).sum(axis=1) @ weights
    constant = 0.5 * known * np.log(2.0 * np.pi)
    assert sums.log_likelihood - constant == pytest.approx(total, rel=1e-9)
    assert sums.weight == weights.sum()


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_the_obvious_em(kind, missing):
    points = mixture(200, 2, n_components=3)
    weights = np.random.default_rng(1).integers(1, 4, size=200).astype(float)
    shown = holed(points) if missing else points
    blocks = in_memory(shown, weights)
    found = start = started(points, points[:3], kind, 1e9)
    scores = [ask(blocks, start).score]
    for _ in range(8):
        found = maximized(found, ask(blocks, found), 1e9)
        scores.append(ask(blocks, found).score)
    assert (np.diff(scores) > -1e-12).all()
    wanted = oracles.mixture_em(shown, weights, *parts(start), 8, kind)
    for one, other in zip(parts(found), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


SETS = [
    ("iris", load_iris().data, "full", 3),
    ("wine", load_wine().data, "diag", 3),
    ("moons", make_moons(600, noise=0.1, random_state=0)[0], "full", 8),
    ("clouds", mixture(1000, 0, 10), "diag", 10),
]


def test_the_likelihood_is_that_of_the_best_of_several_starts():
    for name, data, kind, n in SETS:
        points = StandardScaler().fit_transform(data)
        settings = {"n_init": 5, "tol": 1e-4, "max_iter": 300, "random_state": 0}
        theirs = GaussianMixture(n, covariance_type=kind, **settings).fit(points).score(points)
        ours = DistributedGaussianMixture(n, covariance_type=kind, random_state=0)
        ours.fit(lazy(points))
        assert ours.score(points) > theirs - 0.02, name
        after = 1e-9 if kind != "full" else 1e-3  # little is added to full covariances
        assert ours.lower_bound_ == pytest.approx(ours.score(points), abs=after)
        assert ours.converged_


def test_rows_beyond_the_sample_are_learned_by_sums(monkeypatch):
    monkeypatch.setattr(block_module, "_MAX_SAMPLED", 1000)
    points = mixture(20_000, 4, 6)
    one = GaussianMixture(6, n_init=5, tol=1e-4, random_state=0).fit(points)
    many = DistributedGaussianMixture(6, covariance_type="full", random_state=0)
    assert many.fit(lazy(points)).score(points) > one.score(points) - 0.02
    assert many.n_iter_ > 2


def assert_equal(first, second):
    for name in ("weights_", "means_", "covariances_", "lower_bound_", "n_iter_"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize("kind", KINDS)
def test_who_computes_makes_no_difference_and_chunks_next_to_none(kind):
    points = holed(mixture(800, 5, 4), 0.1)
    first, second, other = (
        DistributedGaussianMixture(4, covariance_type=kind, random_state=7) for _ in range(3)
    )
    first.fit(lazy(points, n_blocks=6))
    with dask.config.set(scheduler="threads", num_workers=4):
        assert_equal(first, second.fit(lazy(points, n_blocks=6)))
    other.fit(lazy(points, n_blocks=11))
    assert other.lower_bound_ == pytest.approx(first.lower_bound_, abs=0.01)


def test_weights_are_repetitions():
    points, weights = mixture(800, 6, 5), np.random.default_rng(0).integers(3, size=800)
    model = DistributedGaussianMixture(5, covariance_type="full", random_state=0)
    weighed = model.fit(points, sample_weight=weights).means_
    repeated = model.fit(np.repeat(points, weights, axis=0)).means_
    np.testing.assert_allclose(weighed, repeated, rtol=1e-9)
    found = model.fit(lazy(points), sample_weight=lazy(weights))
    bound, score = found.lower_bound_, found.score(lazy(points), sample_weight=lazy(weights))
    assert score == pytest.approx(bound, abs=1e-4)  # before a sample is added to covariances
    assert score == pytest.approx(found.score(points, sample_weight=weights), abs=1e-9)
    again = model.fit(lazy(np.repeat(points, weights, axis=0))).lower_bound_
    assert bound == pytest.approx(again, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "factor", "origin"),
    [("full", 1e-300, 0.0), ("diag", 1e-140, 0.0), ("tied_spherical", 1e120, 0.0),
     ("full", 1.0, 1e9)],
)  # fmt: skip
def test_scale_and_origin_make_no_difference(kind, factor, origin):
    points = mixture(300, 7, 4)
    model = DistributedGaussianMixture(4, covariance_type=kind, random_state=0)
    plain = model.fit(lazy(points)).lower_bound_
    moved = model.fit(lazy(factor * points + origin)).lower_bound_
    assert moved + 3.0 * np.log(factor) == pytest.approx(plain, abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_features_that_say_nothing_and_points_that_are_few(kind):
    model = DistributedGaussianMixture(3, covariance_type=kind, random_state=0)
    points = mixture(200, 8, 3)
    shapes = {
        "constant feature": np.column_stack([points, np.full(200, 0.1)]),
        "collinear": np.column_stack([points, points @ [1.0, 2.0, -1.0]]),
        "constant": np.full((20, 2), 0.3),
        "two places": np.repeat([[0.0, 1.0], [2.0, 3.0]], 10, axis=0),
        "as many as components": points[:3],
        "one far away": np.concatenate([points, [[1e9, 0.0, 0.0]]]),
    }
    for name, shown in shapes.items():
        model.fit(lazy(shown, n_blocks=2))
        assert np.isfinite(model.score_samples(shown)).all(), name
        assert model.weights_.sum() == pytest.approx(1.0)
        average = model.weights_ @ model.means_
        np.testing.assert_allclose(average, shown.mean(axis=0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_values_are_integrated_out(kind):
    points = mixture(1000, 9, 3)
    shown = holed(points, 0.3)
    model = DistributedGaussianMixture(3, covariance_type=kind, random_state=0)
    whole = model.fit(lazy(points)).score(points)
    model.fit(lazy(shown))
    assert model.score(points) > whole - 0.02
    assert model.lower_bound_ == pytest.approx(model.score(lazy(shown)), abs=1e-6)
    one = StochasticEMGaussianMixture(3, covariance_type=kind, random_state=0).fit(shown)
    assert model.score(shown) > one.score(shown) - 0.005
    np.testing.assert_array_equal(model.predict(lazy(shown)).compute(), model.predict(shown))


def test_answers_to_collections_are_lazy_and_the_same(reloaded):
    points = mixture(500, 10, 5, d=2)
    array = lazy(points)
    model = DistributedGaussianMixture(4, random_state=0).fit(array.rechunk((125, 1)))
    loaded = reloaded(model)
    assert_equal(model, loaded)
    for name in ("predict", "predict_proba", "score_samples"):
        answer, here = getattr(loaded, name)(array), getattr(model, name)(points)
        assert isinstance(answer, da.Array)
        assert (answer.dtype, answer.shape) == (here.dtype, here.shape)
        np.testing.assert_array_equal(answer.compute(), here)
    some = array[array[:, 0] > 0.0]  # nobody knows how many
    for name in ("score", "aic", "bic"):
        here = getattr(model, name)(some.compute())
        assert getattr(loaded, name)(some) == pytest.approx(here, rel=1e-12)
    assert model.fit_predict(array).chunks == ((125,) * 4,)
    assert model.fit_predict(points).shape == (500,)
    rows, labels = model.sample(50)
    assert rows.shape == (50, 2)
    assert set(labels) <= set(range(4))


def test_what_cannot_be_learned_from_is_refused():
    points = mixture(100, 12)
    array, model = lazy(points), DistributedGaussianMixture(3)
    infinite, empty, far = np.stack([points] * 3)
    infinite[60, 0], empty[60], far[60, 0] = np.inf, np.nan, 1e200
    for rows, message in [
        (lazy(infinite), "block 2: Input X contains infinity"),
        (lazy(empty), "block 2: X has no value in row 10: each sample must"),
        (lazy(far), r"block 2: X holds 1e\+200: its values must be from -1e\+140"),
        (lazy(np.where(np.arange(3) == 1, np.nan, points)), "X has no value of feature 1"),
        (array[:2], "n_components = 3, n_samples = 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(rows)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 passes over 100 rows were too few"):
        assert not model.set_params(max_iter=1).fit(array).converged_
