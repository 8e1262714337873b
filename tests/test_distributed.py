"""Clusters and classes of data in blocks: sums, samples, lost workers, lazy answers, errors."""

import os
import signal
import threading
from functools import partial

import dask
import dask.array as da
import dask.dataframe as frames
import numpy as np
import pandas
import pytest
from distributed import Client
from sklearn.base import clone
from sklearn.datasets import load_iris, make_moons

from oda_rl import (
    DistributedGaussianMixture,
    DistributedODAClassifier,
    DistributedODAClusterer,
    ODAClassifier,
    ODAClusterer,
)
from oda_rl.distributed.blocks import DaskBlocks, Reader, Survey
from oda_rl.distributed.estimators import nearest_sums
from oda_rl.divergences import IDivergence, Mahalanobis, SquaredEuclidean


@pytest.fixture(autouse=True)
def here():
    with dask.config.set(scheduler="synchronous"):
        yield


def mixture(n, seed, n_components=20, d=3):
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=3.0, size=(n_components, d))
    return centres[rng.integers(n_components, size=n)] + rng.normal(size=(n, d))


def lazy(*columns, n_blocks=4):
    size = -(-len(columns[0]) // n_blocks)
    arrays = [da.from_array(one, chunks=(size, *one.shape[1:])) for one in columns]
    return arrays if len(arrays) > 1 else arrays[0]


@pytest.mark.parametrize(
    "divergence", [SquaredEuclidean(), Mahalanobis([[2.0, 0.5], [0.5, 1.0]]), IDivergence()]
)
def test_sums_are_those_of_an_obvious_loop(divergence):
    rng = np.random.default_rng(0)
    points, codevectors = rng.gamma(2.0, size=(300, 2)) + 0.1, rng.gamma(2.0, size=(7, 2)) + 0.1
    weights = rng.integers(3, size=300) / 2.0
    codevectors = divergence.embed(codevectors)
    question = partial(nearest_sums, divergence=divergence, codevectors=codevectors)
    blocks = DaskBlocks(lazy(points, n_blocks=7), weights=lazy(weights, n_blocks=7))
    masses, moves, error = blocks.total(question)
    expected_masses, expected_moves, expected_error = np.zeros(7), np.zeros((7, 2)), 0.0
    for x, weight in zip(divergence.embed(points), weights, strict=True):
        distances = divergence.between(x[None], codevectors)[0]
        k = distances.argmin()
        expected_masses[k] += weight
        expected_moves[k] += weight * (x - codevectors[k])
        expected_error += weight * distances[k]
    np.testing.assert_allclose(masses, expected_masses)
    np.testing.assert_allclose(moves, expected_moves, atol=1e-12)
    assert error == pytest.approx(expected_error)


SETS = [
    ("Gaussians", mixture(1000, 0, 12), 12),
    ("uniform", np.random.default_rng(0).random((800, 2)), 8),
    ("heavy tails", np.random.default_rng(0).standard_t(3, size=(800, 4)), 6),
    ("iris", load_iris().data, 3),
]


def test_the_distortion_is_that_of_one_machine():
    for name, points, n_clusters in SETS:
        one = ODAClusterer(n_clusters, random_state=0).fit(points)
        many = DistributedODAClusterer(n_clusters, random_state=0).fit(lazy(points))
        assert many.inertia_ <= 1.01 * one.inertia_, name
        assert many.inertia_ == pytest.approx(-len(points) * many.score(points), rel=1e-9)
        assert len(many.cluster_centers_) == n_clusters
        assert many.weights_.sum() == pytest.approx(1.0)
        if name in ("Gaussians", "uniform"):
            annealed = one.set_params(refine=False).fit(points).inertia_
            assert many.set_params(refine=False).fit(lazy(points)).inertia_ <= 1.05 * annealed


def test_rows_beyond_the_sample_are_refined_by_sums():
    points = mixture(80_000, 3, n_components=12, d=2).astype(np.float32)
    one = ODAClusterer(12, random_state=0).fit(points)
    blocks = lazy(points, n_blocks=5)
    many = DistributedODAClusterer(12, random_state=0).fit(blocks)
    assert many.inertia_ <= 1.01 * one.inertia_
    nearest_ones = np.bincount(many.predict(points), minlength=12) / len(points)
    np.testing.assert_allclose(many.weights_, nearest_ones, atol=1e-12)
    centres = [points[many.predict(points) == k].mean(axis=0, dtype=float) for k in range(12)]
    # Lloyd's iteration has ended when the error fell by less than 1e-4 of it.
    np.testing.assert_allclose(many.cluster_centers_, centres, atol=0.05)


def test_who_computes_makes_no_difference_and_chunks_next_to_none():
    points = mixture(1500, 4)
    first = DistributedODAClusterer(9, random_state=7).fit(lazy(points, n_blocks=6))
    with dask.config.set(scheduler="threads", num_workers=3):
        second = DistributedODAClusterer(9, random_state=7).fit(lazy(points, n_blocks=6))
    np.testing.assert_array_equal(first.cluster_centers_, second.cluster_centers_)
    assert first.inertia_ == second.inertia_
    for n_blocks in (1, 11):
        other = DistributedODAClusterer(9, random_state=7).fit(lazy(points, n_blocks=n_blocks))
        assert other.inertia_ == pytest.approx(first.inertia_, rel=0.01)


def test_weights_are_repetitions():
    points, weights = mixture(800, 5), np.random.default_rng(0).integers(3, size=800)
    model = DistributedODAClusterer(6, random_state=0)
    inertia = model.fit(lazy(points), sample_weight=lazy(weights)).inertia_
    repeated = model.fit(lazy(np.repeat(points, weights, axis=0))).inertia_
    assert inertia == pytest.approx(repeated, rel=1e-2)
    kept = points[weights > 0]
    assert model.fit(lazy(points), sample_weight=lazy((weights > 0) * 1.0)).inertia_ == (
        pytest.approx(model.fit(lazy(kept)).inertia_, rel=1e-2)
    )


@pytest.mark.parametrize(("factor", "origin"), [(1e-120, 0.0), (1e120, 0.0), (1.0, 1e9)])
def test_scale_and_origin_make_no_difference(factor, origin):
    points = mixture(1000, 6)
    plain = DistributedODAClusterer(5, random_state=0).fit(lazy(points))
    moved = DistributedODAClusterer(5, random_state=0).fit(lazy(factor * points + origin))
    assert moved.inertia_ / factor**2 == pytest.approx(plain.inertia_, rel=1e-3)


def test_blocks_of_unknown_or_no_rows():
    points = mixture(1000, 7)
    array = lazy(points, n_blocks=5)
    some = array[array[:, 0] > np.sort(points[:, 0])[150]]
    assert np.isnan(some.shape[0])
    none_first = da.concatenate([array[:200][array[:200, 0] > 1e9], array[200:]])
    for blocks, kept in ((some, some.compute()), (none_first, points[200:])):
        model = DistributedODAClusterer(4, random_state=0).fit(blocks)
        np.testing.assert_array_equal(model.predict(blocks).compute(), model.predict(kept))
        assert model.score(blocks) == pytest.approx(model.score(kept))


def test_answers_to_collections_are_lazy_and_the_same(reloaded):
    points = mixture(500, 8, d=2)
    array = lazy(points)
    model = DistributedODAClusterer(6, random_state=0).fit(array.rechunk((125, 1)))
    assert not hasattr(model, "labels_")
    loaded = reloaded(model)
    for name in ("predict", "predict_proba", "transform", "score_samples"):
        answer = getattr(loaded, name)(array)
        here = getattr(model, name)(points)
        assert isinstance(answer, da.Array)
        assert (answer.dtype, answer.shape) == (here.dtype, here.shape)
        np.testing.assert_array_equal(answer.compute(), here)
    assert model.fit_predict(array).chunks == ((125,) * 4,)
    assert model.fit_predict(points).shape == (500,)
    assert len(model.at_level(n_clusters=3).codevectors_) <= 3


def test_classes_by_sums():
    points, labels = make_moons(3000, noise=0.2, random_state=0)
    names = np.array(["lower", "upper"])[labels]
    X, y = lazy(points[:2000], names[:2000])
    model = DistributedODAClassifier(12, random_state=0).fit(X, y)
    one = ODAClassifier(12, random_state=0).fit(points[:2000], names[:2000])
    test, wanted = lazy(points[2000:], names[2000:], n_blocks=3)
    assert model.score(test, wanted) > one.score(points[2000:], names[2000:]) - 0.01
    assert model.score(test, wanted) == pytest.approx(model.score(points[2000:], names[2000:]))
    np.testing.assert_array_equal(model.predict(test).compute(), model.predict(points[2000:]))
    np.testing.assert_array_equal(
        model.predict_proba(test).compute(), model.predict_proba(points[2000:])
    )
    np.testing.assert_allclose(model.class_prior_, np.bincount(labels[:2000]) / 2000)
    assert model.history_[-1].accuracy > 0.9


def test_a_rare_class_is_in_the_sample_by_its_weight():
    rng = np.random.default_rng(0)
    labels = (rng.random(200_000) < 0.002).astype(int)
    points = rng.normal(size=(200_000, 1)) + 4.0 * labels[:, None]
    blocks = DaskBlocks(*lazy(points, labels, n_blocks=3))
    reader = Reader(classes=np.array([0, 1]))
    sample, complete = Survey.of(blocks, reader, 1).sample(blocks, reader, 10, 0)
    assert not complete
    assert (sample.classes == 1).sum() == labels.sum()  # fewer than 2500: all
    assert 48_000 < len(sample.points) < 53_000  # 50,000, and those; a deviation is 200
    weights = np.bincount(sample.classes, sample.weights)
    np.testing.assert_allclose(weights, np.bincount(labels), rtol=0.02)
    model = DistributedODAClassifier(8, random_state=0)
    assert model.fit(*lazy(points, labels, n_blocks=3)).score(points, labels) > 0.997


def test_annealing_ends_as_on_one_machine():
    array = lazy(mixture(2000, 9))
    scale = DistributedODAClusterer(1).fit(array).inertia_ / 2000
    make = DistributedODAClusterer
    assert make(50, min_temperature=0.5, random_state=0).fit(array).temperature_ >= 0.25 * scale
    target = make(50, target_distortion=0.3 * scale, refine=False, random_state=0).fit(array)
    assert target.history_[-1].distortion <= 0.3 * scale < target.history_[-2].distortion
    few = make(50, max_samples=2000, random_state=0).fit(array)
    assert len(few.codevectors_) < 50
    assert few.n_samples_seen_ <= 2000
    constant = make(3, random_state=0).fit(lazy(np.ones((40, 2))))
    assert constant.inertia_ == 0.0
    np.testing.assert_array_equal(constant.codevectors_, np.ones((1, 2)))


def test_what_cannot_be_learned_from_is_refused():
    points = mixture(100, 10)
    array, model, mixed = lazy(points), DistributedODAClusterer(3), DistributedGaussianMixture(3)
    holed = points.copy()
    holed[60, 1] = np.nan
    for rows, weights, message in [
        (lazy(holed), None, "block 2: Input X contains NaN"),
        (lazy(points + 1e200), None, "block .*: X holds 1e\\+200"),
        (array[:2], None, "n_samples=2 should be >= n_clusters=3"),
        (array[:, 0], None, "has shape"),
        (array.astype(str), None, "dtype <U"),
        (array, np.ones(100), "sample_weight is ndarray"),
        (array, da.ones(99), "sample_weight has 99 rows in 1 blocks, X has 100 in 4"),
        (array, -da.ones(100), "block .*: sample_weight holds -1"),
        (array, da.zeros(100), "no row of a weight above 0"),
    ]:
        for learner in (model, *[mixed] * (weights is not None)):
            with pytest.raises(ValueError, match=message):
                learner.fit(rows, sample_weight=weights)
    for learner in (model, mixed):
        with pytest.raises(ValueError, match="X has 2 features, but .* is expecting 3"):
            learner.fit(array).predict(array[:, :2])
    for labels, message in [
        (None, "y is None"), (da.zeros(100), "only one class"), (lazy(points[:, 0]), "continuous")
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            DistributedODAClassifier().fit(array, labels)


def test_a_frame_has_names():
    table = pandas.DataFrame(mixture(300, 11, d=2), columns=["east", "north"])
    frame = frames.from_pandas(table, npartitions=3)
    model = DistributedODAClusterer(4, random_state=0).fit(frame)
    assert model.feature_names_in_.tolist() == ["east", "north"]
    np.testing.assert_array_equal(model.predict(frame).compute(), model.predict(table))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["north", "east"]])
    labels = frame["east"] > 0.0
    classifier = DistributedODAClassifier(6, random_state=0).fit(frame, labels)
    assert classifier.score(frame, labels) > 0.95
    lazy = labels.astype(int).astype("category")  # whose categories are unknown until computed
    assert classifier.fit(frame, lazy).classes_.tolist() == [0, 1]
    assert classifier.score(frame, lazy) > 0.95


def kill_when(scheduler, transitions, pid, ended):
    """End a worker in the middle of what the cluster does, or never if that ends before."""
    while scheduler.transition_counter < transitions:
        if ended.wait(0.01):
            return
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_comes_to_the_same_bits(cluster, victim):
    model = DistributedODAClusterer(4, random_state=0)
    points = mixture(4_000, 4, d=2)
    wanted = clone(model).fit(lazy(points, n_blocks=4))
    with dask.config.set(scheduler=None), Client(cluster) as client:
        array = client.persist(lazy(points, n_blocks=4))
        ended, transitions = threading.Event(), cluster.scheduler.transition_counter + 60
        arguments = cluster.scheduler, transitions, victim, ended
        killer = threading.Thread(target=kill_when, args=arguments)
        killer.start()
        model.fit(array)
        ended.set()
        killer.join()
        assert victim not in client.run(os.getpid).values()
        labels = model.predict(array).compute()
    with pytest.raises(ProcessLookupError):
        os.kill(victim, 0)
    for name in ("cluster_centers_", "weights_", "inertia_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(wanted, name))
    np.testing.assert_array_equal(labels, wanted.predict(points))
