"""Trees of codebooks: the way down against a slow walk, growth, cuts, files, bad input."""

import copy
import itertools

import numpy as np
import oracles
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs, make_moons
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from oda_rl import ODAClusterer
from oda_rl.divergences import NAMED, BregmanDivergence, Mahalanobis
from oda_rl.trees.estimators import ODATreeClassifier, ODATreeClusterer, ODATreeRegressor

BOTH = pytest.mark.parametrize("kind", [ODATreeClusterer, ODATreeClassifier])


def positive(n=600, d=4, seed=0):
    """Points that every divergence is defined for, in a few groups."""
    rng = np.random.default_rng(seed)
    middles = rng.uniform(1.0, 20.0, size=(7, d))
    return middles[rng.integers(0, 7, n)] * rng.gamma(20.0, 1 / 20.0, size=(n, d))


def halves(points):
    return np.column_stack([points[:, :2].sum(axis=1), points[:, 2:].sum(axis=1)])


DIVERGENCES = {
    **{name: name for name in NAMED},
    "mahalanobis": Mahalanobis(np.diag([1.0, 2.0, 0.1, 1.0])),
    "cubic": BregmanDivergence(lambda x: (x**3).sum(axis=1), lambda x: 3 * x**2),
}


# The way down.


@pytest.mark.parametrize("name", DIVERGENCES)
def test_routing_is_that_of_a_slow_walk_by_divergences(name):
    points = positive(150)
    model = ODATreeClusterer(max_depth=3, divergence=DIVERGENCES[name], random_state=0)
    model.fit(points)
    embedded = model._tree.plan.divergence.embed(points)
    paths = [oracles.descend(model._tree, lambda _: embedded, i) for i in range(150)]
    assert model.n_leaves_ == len(set(paths)) > 10
    ordered = sorted(set(paths), key=lambda path: (len(path), path))
    np.testing.assert_array_equal(model.labels_, [ordered.index(path) for path in paths])


def test_codevectors_are_means_and_weights_shares_of_leaves():
    points = positive()
    model = ODATreeClusterer(random_state=0).fit(points)
    assert model.n_leaves_ == len(model.codevectors_) == model.labels_.max() + 1
    for leaf, (mean, weight) in enumerate(zip(model.codevectors_, model.weights_, strict=True)):
        own = points[model.labels_ == leaf]
        np.testing.assert_allclose(own.mean(axis=0), mean)
        assert weight == pytest.approx(len(own) / 600)


@pytest.mark.parametrize(
    ("name", "streamed"),
    [(name, False) for name in DIVERGENCES if name != "cubic"] + [("squared_euclidean", True)],
)
def test_history_has_the_distortion_of_each_depth(name, streamed):
    points = positive(5000 if streamed else 600)
    model = ODATreeClusterer(divergence=DIVERGENCES[name], random_state=0)
    if streamed:
        model.partial_fit(points)
    else:
        model.fit(points)
    assert [level.depth for level in model.history_] == list(range(model.depth_ + 1))
    assert model.history_[-1].n_clusters == model.n_leaves_
    for level in model.history_:
        cut = model.at_level(level.depth)
        assert (cut.n_leaves_, cut.depth_) == (level.n_clusters, level.depth)
        tolerance = 0.25 if streamed else 1e-9  # leaves go on learning while cells stay
        assert -cut.score(points) == pytest.approx(level.distortion, rel=tolerance)
    assert model.history_[0].n_samples == pytest.approx(len(points))
    assert model.history_[1].distortion < 0.6 * model.history_[0].distortion


# Resolutions.


def test_each_level_sees_its_own_features_only():
    points = positive()
    model = ODATreeClusterer(max_depth=3, resolutions=[[0], [1, 2]], random_state=0).fit(points)
    assert model.depth_ == 3
    for features, depth in [((1, 2, 3), 1), ((3,), 3)]:
        shuffled = points.copy()
        shuffled[:, features] = np.random.default_rng(0).random((600, len(features))) * 1e3
        cut = model.at_level(depth)
        np.testing.assert_array_equal(cut.predict(shuffled), cut.predict(points))
        again = clone(model).fit(shuffled).at_level(depth)
        np.testing.assert_array_equal(again.predict(shuffled), cut.predict(points))
    assert (model.predict(points[:, [0, 2, 1, 3]]) != model.labels_).any()
    ordered = model.at_level(1).predict(points)[np.argsort(points[:, 0])]
    assert (np.diff(ordered) != 0).sum() == model.history_[1].n_clusters - 1  # intervals


def test_names_indices_and_functions_are_the_same():
    table = pd.DataFrame(positive(), columns=list("abcd"))
    by_name = ODATreeClusterer(resolutions=[["c"], ["a", "d"]], random_state=0).fit(table)
    with pytest.raises(ValueError, match="must have names of features, or indices .*'e'"):
        ODATreeClusterer(resolutions=[["e"]]).fit(table)
    points = table.to_numpy()
    for resolutions in (
        [[2], np.array([0, 3])], [lambda x: x[:, [2]], (0, 3)], ([2], lambda x: x[:, [0, 3]])
    ):  # fmt: skip
        model = ODATreeClusterer(resolutions=resolutions, random_state=0).fit(points)
        np.testing.assert_array_equal(model.labels_, by_name.labels_)


def test_a_function_is_called_once_for_a_batch_and_may_spoil_its_argument():
    calls = []

    def spoil(points):
        calls.append(len(points))
        sums = halves(points)
        points[:] = np.nan
        return sums

    points = positive()
    model = ODATreeClusterer(resolutions=[spoil, range(4)], random_state=0).fit(points)
    calls.clear()
    labels = model.predict(points)
    assert calls == [600]
    plain = ODATreeClusterer(resolutions=[halves, range(4)], random_state=0).fit(points)
    np.testing.assert_array_equal(labels, plain.labels_)


# Learning.


def test_of_uneven_weights_a_node_has_fewer_samples():
    weights = np.random.default_rng(1).integers(0, 4, 300)
    model = ODATreeClusterer(random_state=0).fit(positive(300), sample_weight=weights)
    assert model.history_[0].n_samples == pytest.approx(weights.sum() ** 2 / (weights**2).sum())


def states(model, points):
    return model.codevectors_, model.weights_, model.apply(points), model.history_


def stream(kind, n, resolutions=None):
    points = positive(n)
    labels = (points[:, 0] > 8).astype(int) + (points[:, 1] > 8)
    resolutions = [[0, 1], range(4)] if resolutions is None else resolutions
    options = {"min_samples_split": 5, "resolutions": resolutions, "random_state": 0}
    return kind(**options), points, labels


@pytest.mark.parametrize(
    ("kind", "divergence"),
    [(ODATreeClusterer, "itakura_saito"), (ODATreeClassifier, "squared_euclidean")],
)
def test_sample_by_sample_is_the_same_as_blocks(kind, divergence):
    model, points, labels = stream(kind, 1000)
    model.set_params(divergence=divergence)
    labels[-500:][points[-500:, 2] > 10] = 3  # a new class on the way
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(points))
    whole = clone(model).partial_fit(points, labels, sample_weight=weights)
    edges = np.r_[0:40, 40:400:21, 400:440, 440:1000:50, 1000]
    for begin, end in itertools.pairwise(edges):
        rows = slice(begin, end)
        model.partial_fit(points[rows], labels[rows], sample_weight=weights[rows])
        if begin % 9 == 0:
            model.predict(points[:1])  # to look changes nothing
    assert whole.n_leaves_ > 4
    np.testing.assert_array_equal(whole.predict(points), model.predict(points))
    np.testing.assert_array_equal(whole.apply(points), model.apply(points))
    np.testing.assert_allclose(whole.codevectors_, model.codevectors_, rtol=1e-9)
    np.testing.assert_allclose(whole.weights_, model.weights_, rtol=1e-9)
    if kind is ODATreeClassifier:
        ours, theirs = whole.predict_proba(points), model.predict_proba(points)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_a_stream_learns_while_it_grows():
    points, labels = make_moons(12000, noise=0.15, random_state=0)
    model, distortions, accuracies = ODATreeClassifier(random_state=0), [], []
    clusterer = ODATreeClusterer(random_state=0)
    for begin in range(0, 12000, 2000):
        rows = slice(begin, begin + 2000)
        accuracies.append(model.partial_fit(points[rows], labels[rows]).score(points, labels))
        distortions.append(-clusterer.partial_fit(points[rows]).score(points))
    order = np.argsort(labels[:4000], kind="stable")  # a leaf waits for a second class
    model = ODATreeClassifier(random_state=0).partial_fit(points[order], labels[order])
    assert model.score(points, labels) > 0.97
    assert accuracies[0] > 0.8
    assert accuracies[-1] > 0.97
    assert clusterer.depth_ >= 2
    assert distortions[-1] < 0.5 * distortions[0]
    assert clusterer.weights_.sum() == pytest.approx(1.0)


def test_streaming_after_fit_refines_the_fitted_leaves():
    points = positive(8000)
    model = ODATreeClusterer(max_depth=2, random_state=0).fit(points[:100])
    before = model.n_leaves_
    model.partial_fit(points[100:])
    assert model.n_leaves_ > before
    assert -model.score(points) < -model.at_level(1).score(points)
    assert not hasattr(model, "labels_")


def test_pure_and_small_cells_are_not_divided():
    points, labels = make_blobs(400, centers=[[0, 0], [50, 0]], random_state=0)
    assert ODATreeClassifier(2, random_state=0).fit(points, labels).n_leaves_ == 2
    assert ODATreeClassifier(random_state=0).fit(points, np.zeros(400)).n_leaves_ == 1
    few = ODATreeClusterer(min_samples_split=100, random_state=0).fit(points)
    table = few._tree.table
    assert (table.weights[~table.is_leaf] >= 100).all()
    assert (table.weights[table.is_leaf & (table.depths < 4)] < 100).all()


def test_leaf_probabilities_lean_on_the_parent():
    points = np.repeat([[0.0], [1.0], [10.0]], [4, 2, 6], axis=0)
    labels = np.repeat(["a", "b", "a"], [4, 2, 6])
    model = ODATreeClassifier(2, random_state=0).fit(points, labels)
    prior = np.array([10, 2]) / 12
    near = (np.array([4, 2]) + prior) / 7
    expected = [(np.array([4, 0]) + near) / 5, (np.array([0, 2]) + near) / 3]
    far = (np.array([6, 0]) + prior) / 7
    found = model.predict_proba([[0.0], [1.0], [10.0]])
    np.testing.assert_allclose(found, [*expected, far])
    assert model.predict([[0.1], [0.9], [11.0]]).tolist() == ["a", "b", "a"]


def test_probabilities_of_chance_are_nearly_the_shares():
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(800, 4)), rng.random(800) < 0.3
    model = ODATreeClassifier(random_state=0).fit(points[:400], labels[:400])
    assert log_loss(labels[400:], model.predict_proba(points[400:])) < 0.66  # of the shares 0.61


def pool(images):
    return images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)


def test_digits_are_learned_coarse_to_fine():
    points, labels = load_digits(return_X_y=True)
    train, test, y_train, y_test = train_test_split(points, labels, random_state=0)
    model = ODATreeClassifier(random_state=0).fit(train, y_train)
    assert model.score(test, y_test) > 0.91
    coarse = [model.at_level(depth).score(test, y_test) for depth in range(model.depth_ + 1)]
    assert coarse == sorted(coarse)
    pooled = ODATreeClassifier(resolutions=[pool, pool, range(64)])
    fits = (clone(pooled).set_params(random_state=i).fit(train, y_train) for i in range(5))
    assert np.median([fit.score(test, y_test) for fit in fits]) > 0.915


@pytest.mark.parametrize(
    ("points", "factor"),
    [(load_digits().data, 1.15),
     (make_blobs(2000, n_features=4, centers=30, random_state=0)[0], 1.25),
     (np.random.default_rng(0).random((3000, 2)), 1.25)],
)  # fmt: skip
def test_distortion_is_near_that_of_the_flat_codebook(points, factor):
    model = ODATreeClusterer(max_depth=3, random_state=0).fit(points)
    flat = ODAClusterer(model.n_leaves_, random_state=0).fit(points)
    assert model.score(points) > factor * flat.score(points)


# Cuts and files.


@BOTH
def test_a_cut_tree_is_independent_and_grows_again(kind):
    model, points, labels = stream(kind, 1500)
    model.partial_fit(points, labels)
    before = states(model, points)
    cut = model.at_level(1)
    assert cut.n_leaves_ == model.history_[1].n_clusters
    np.testing.assert_array_equal(model.at_level(model.depth_).apply(points), before[2])
    cut.partial_fit(points, labels)
    assert cut.depth_ > 1
    copy.copy(model).partial_fit(2.0 * points, labels)
    for now, then in zip(states(model, points), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert model.at_level(0).n_leaves_ == 1
    with pytest.raises(ValueError, match="level must be below"):
        model.at_level(model.depth_ + 1)


@BOTH
def test_levels_distances_and_densities_are_those_of_the_leaves(kind):
    points = positive()[:, :2]
    labels = (points[:, 0] > np.median(points[:, 0])).astype(int)
    model = kind(random_state=0).fit(points, labels)
    squares = ((points[:, None] - model.codevectors_) ** 2).sum(axis=2)
    np.testing.assert_allclose(model.transform(points) ** 2, squares, rtol=1e-9, atol=1e-9)
    # The histogram's masses are the leaves', and its integral over the box is 1.
    low, high = points.min(axis=0), points.max(axis=0)
    grid = np.stack(np.meshgrid(*np.linspace(low, high, 200).T), axis=-1).reshape(-1, 2)
    logs = model.score_samples(grid)
    assert np.exp(logs).mean() * np.prod(high - low) == pytest.approx(1.0, abs=0.03)
    leaves = model.apply(grid)
    assert all(np.ptp(logs[leaves == leaf]) == 0.0 for leaf in np.unique(leaves))
    assert model.score_samples(high[None] * (1.0 + 1e-6)) == -np.inf
    assert np.isfinite(model.score_samples(points.astype(np.float32))).all()
    for level in model.history_:
        cut = model.at_level(level.depth)
        same = model.at_level(n_clusters=level.n_clusters)
        assert cut.n_leaves_ == same.n_leaves_ == level.n_clusters
        assert model.at_level(n_clusters=level.n_clusters + 1).depth_ >= level.depth
    for wrong in ({}, {"level": 0, "n_clusters": 2}, {"n_clusters": 0}, {"level": 99}):
        with pytest.raises(ValueError, match="level|n_clusters|depth"):
            model.at_level(**wrong)


@pytest.mark.parametrize(
    ("kind", "divergence"),
    [(ODATreeClusterer, "squared_euclidean"), (ODATreeClassifier, "i_divergence"),
     (ODATreeClusterer, "mahalanobis")],
)  # fmt: skip
def test_a_file_goes_on_learning_as_the_model_would(kind, divergence, tmp_path):
    resolutions = None if divergence == "mahalanobis" else [range(2), np.array([1, 2, 3])]
    model, points, labels = stream(kind, 1500, resolutions or [range(4)])
    model.set_params(divergence=DIVERGENCES[divergence])
    labels = np.array(["no", "maybe", "yes"])[labels]
    model.partial_fit(points[:800], labels[:800])
    model.save(tmp_path / "tree.oda")
    loaded = kind.load(tmp_path / "tree.oda")
    for _ in range(2):
        for ours, theirs in zip(states(model, points), states(loaded, points), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(model.predict(points), loaded.predict(points))
        for either in (model, loaded):
            either.partial_fit(points[800:], labels[800:])
    kind().save(tmp_path / "new.oda")
    assert kind.load(tmp_path / "new.oda").get_params() == kind().get_params()


def test_files_refuse_code(tmp_path):
    model = ODATreeClusterer(resolutions=[halves]).fit(positive())
    with pytest.raises(TypeError, match="resolutions can't be saved: it holds <function halves"):
        model.save(tmp_path / "tree.oda")


# Bad and odd input.


@pytest.mark.parametrize(
    ("resolutions", "error", "message"),
    [([[0], [4]], ValueError, r"resolutions\[1\] must have .* indices from 0 to 3, got \[4\]"),
     ([[0.0]], ValueError, r"resolutions\[0\] must have names of features, or indices"),
     (["ab"], TypeError, "must be a function or a sequence of features, got 'ab'"),
     ([[]], ValueError, "must have names of features"),
     ([lambda x: x[:-1]], ValueError, r"must return shape \(600, d'\), got \(599, 4\)"),
     ([lambda x: x * np.nan], ValueError, r"resolutions\[0\] must return finite numbers")],
)  # fmt: skip
def test_resolutions_that_can_not_be(resolutions, error, message):
    model, points = ODATreeClusterer(resolutions=resolutions, random_state=0), positive()
    with pytest.raises(error, match=message):
        model.fit(points)
    with pytest.raises(error, match=message):
        model.partial_fit(points)


def test_views_that_do_not_fit_are_refused():
    model = ODATreeClusterer(resolutions=[lambda x: x[:, : 4 if len(x) > 9 else 3]], random_state=0)
    with pytest.raises(ValueError, match="must return 4 features as before, got 3"):
        model.fit(positive()).predict(positive(5))
    model = ODATreeClusterer(divergence=DIVERGENCES["mahalanobis"], resolutions=[[0]])
    with pytest.raises(ValueError, match="the matrix .* is for 4 features"):
        model.fit(positive())


@pytest.mark.parametrize("resolutions", [None, [[0, 1], range(4)]])
def test_points_outside_the_domain_are_refused(resolutions):
    options = {"divergence": "i_divergence", "resolutions": resolutions, "random_state": 0}
    points = positive()
    model = ODATreeClusterer(**options).fit(points)
    points[3, 1] = -1.0
    for call in (ODATreeClusterer(**options).fit, model.predict, model.partial_fit, model.score):
        with pytest.raises(ValueError, match="I-divergence takes X >= 0"):
            call(points)


@BOTH
@pytest.mark.parametrize(
    "points", [np.ones((1, 3)), np.ones((50, 3)), np.full((50, 3), 1e-200), np.zeros((200, 1))]
)
def test_points_that_are_all_equal_make_one_leaf(kind, points):
    labels = np.arange(len(points)) % 2
    for model in (kind().fit(points, labels), kind().partial_fit(points, labels)):
        assert (model.n_leaves_, model.depth_) == (1, 0)
        np.testing.assert_array_equal(model.codevectors_, points[:1])
        assert model.apply(points).tolist() == [0] * len(points)


def test_constant_features_and_few_distinct_points_do_no_harm():
    points = np.column_stack([np.ones(300), np.arange(300) % 5, np.zeros(300)])
    model = ODATreeClusterer(min_samples_split=2, random_state=0).fit(points)
    assert model.n_leaves_ == 5
    assert model.score(points) == 0.0
    model = ODATreeClusterer(resolutions=[[0], range(3)], random_state=0).fit(points)
    assert model.n_leaves_ == 1  # nothing to divide by at the first level


# Regression.


def waves(n, seed=0):
    points = np.random.default_rng(seed).uniform(-3.0, 3.0, (n, 2))
    return points, np.sin(2.0 * points[:, 0]) + 0.5 * np.abs(points[:, 1])


@pytest.mark.parametrize(
    ("local_model", "least", "streamed"), [("linear", 0.98, 0.98), ("constant", 0.93, 0.9)]
)
def test_a_function_is_learned_at_once_or_from_a_stream(local_model, least, streamed, reloaded):
    points, targets = waves(3000)
    fresh, truth = waves(500, seed=1)
    settings = {"local_model": local_model, "random_state": 0}
    model = ODATreeRegressor(**settings).fit(points, targets)
    assert model.score(fresh, truth) > least
    stream = ODATreeRegressor(**settings)
    for rows in np.array_split(np.arange(3000), 3):
        stream.partial_fit(points[rows], targets[rows])
        stream = reloaded(stream)
    assert stream.score(fresh, truth) > streamed


def test_a_constant_model_is_the_mean_of_its_leaf_also_where_a_tree_is_cut():
    points, targets = waves(600)
    weights = np.random.default_rng(2).integers(0, 4, 600)
    model = ODATreeRegressor(3, local_model="constant", random_state=0)
    model.fit(points, targets, sample_weight=weights)
    for one in (model, model.at_level(1)):
        leaves = one.apply(points)
        for leaf in range(one.n_leaves_):
            mean = np.average(targets[leaves == leaf], weights=weights[leaves == leaf])
            assert one.codevector_labels_[leaf] == pytest.approx(mean, rel=1e-12)
        np.testing.assert_array_equal(one.predict(points), one.codevector_labels_[leaves])
        assert (one.slopes_ == 0.0).all()
    assert model.at_level(1).n_leaves_ == 3 < model.n_leaves_
