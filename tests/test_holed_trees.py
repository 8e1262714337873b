"""Trees of samples of which values are missing: ways down, sums, growth, and what is learned."""

from functools import partial

import numpy as np
import pytest
import test_missing
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler
from test_missing import with_holes

from oda_rl import ODATreeClassifier, ODATreeClusterer, ODATreeRegressor

CENTRES = np.random.default_rng(0).normal(scale=4.0, size=(6, 5))
blobs = partial(test_missing.blobs, centres=CENTRES)


def descend(tree, levels, i):
    """Leaf that sample i comes to by the distances from codevectors in what is observed."""
    node, depth = tree.nodes[0], 0
    while node.children:
        x = levels[min(depth, len(levels) - 1)][i]
        codevectors = node.cells.centre - 0.5 * node.cells.gradients
        children = [tree.nodes[child] for child in node.children]
        if np.isnan(x).all():
            k = np.argmax([child.statistics.weight for child in children])
        else:
            k = np.nansum((x - codevectors) ** 2, axis=1).argmin()
        node, depth = children[k], depth + 1
    return node.path


@pytest.mark.parametrize(
    ("resolutions", "shift"), [(None, 1e4), ([[0], [1, 3], range(5)], 0.0)], ids=["all", "some"]
)
def test_ways_down_are_by_what_is_observed(resolutions, shift):
    points = with_holes(blobs(400, 1)[0], 0.3, 2) + shift
    model = ODATreeClusterer(3, resolutions=resolutions, random_state=0).fit(points)
    asked = with_holes(blobs(200, 3)[0], 0.4, 4) + shift
    asked[:50] = blobs(50, 5)[0] + shift
    levels = [asked[:, list(one)] for one in resolutions or [range(5)]]
    nodes = [model._tree.nodes[0]]
    for node in nodes:
        nodes += [model._tree.nodes[child] for child in node.children]
    paths = [node.path for node in nodes if not node.children]
    expected = [paths.index(descend(model._tree, levels, i)) for i in range(200)]
    assert len(paths) > 9
    np.testing.assert_array_equal(model.apply(asked), expected)
    for one in (slice(0, 1), slice(0, 30), slice(40, 60), slice(199, 200)):
        np.testing.assert_array_equal(model.apply(asked[one]), expected[one])


def test_the_distortion_is_what_is_scored():
    points = with_holes(blobs(500, 13)[0], 0.3, 14)
    model = ODATreeClusterer(3, max_depth=2, random_state=0).fit(points)
    assert model.history_[-1].distortion == pytest.approx(-model.score(points))
    model = clone(model).partial_fit(points)
    assert model.history_[0].distortion == pytest.approx(-model.at_level(0).score(points))


def test_a_level_does_not_learn_from_what_it_does_not_see():
    points, _ = blobs(300, 15)
    points[:120, 0] = np.nan
    model = ODATreeClusterer(2, max_depth=1, resolutions=[[0]], random_state=0)
    model.fit(points)
    seen = clone(model).fit(points[120:])
    np.testing.assert_allclose(model.codevectors_, seen.codevectors_)
    assert set(model.labels_[:120]) == {int(model.weights_.argmax())}
    nothing = clone(model).set_params(resolutions=[lambda x: np.full((len(x), 1), np.nan)])
    holed = points[:120].copy()
    holed[0, 0], holed[0, 1] = 1.0, np.nan  # of every sample something is missing
    assert nothing.fit(holed).n_leaves_ == 1
    assert nothing.partial_fit(holed).n_leaves_ == 1
    with pytest.raises(ValueError, match="NaN is for samples with missing values only"):
        nothing.fit(points)


@pytest.mark.parametrize(
    ("kind", "resolutions"),
    [(ODATreeClusterer, None), (ODATreeClassifier, [[0, 1], range(5)]), (ODATreeRegressor, None)],
)
def test_a_stream_with_holes_is_the_same_in_blocks(kind, resolutions, tmp_path):
    points, labels = blobs(450, 16)
    points[150:] = with_holes(points[150:], 0.3, 17)
    labels[:200] = np.minimum(labels[:200], 3)  # classes appear later
    parts = kind(3, resolutions=resolutions, samples_per_cluster=5, cooling=0.6, random_state=0)
    once = clone(parts).partial_fit(points, labels)
    for begin in range(0, 450, 130):
        parts.partial_fit(points[begin : begin + 130], labels[begin : begin + 130])
        parts.save(tmp_path / "model.zip")  # also in the middle of a level
        parts = kind.load(tmp_path / "model.zip")
    assert once.n_leaves_ > 4
    np.testing.assert_array_equal(parts.codevectors_, once.codevectors_)
    np.testing.assert_array_equal(parts.predict(points), once.predict(points))
    assert parts.history_ == once.history_


def test_a_stream_learns_in_spite_of_missing_values():
    points, _ = blobs(6000, 18)
    fresh, _ = blobs(1000, 19)
    model = ODATreeClusterer(6, max_depth=1, random_state=0)
    whole = clone(model).partial_fit(points)
    holed = clone(model).partial_fit(with_holes(points, 0.25, 20))
    filled = clone(model).partial_fit(SimpleImputer().fit_transform(with_holes(points, 0.25, 20)))
    assert holed.score(fresh) > 1.2 * whole.score(fresh)
    assert holed.score(fresh) > filled.score(fresh)
    # Children begin with sums that are expected of whole samples.
    assert holed.history_[-1].distortion == pytest.approx(whole.history_[-1].distortion, rel=0.2)


def test_a_stream_goes_on_where_a_feature_is_observed_later():
    points = np.concatenate([blobs(1500, 21)[0], blobs(1500, 22)[0] + 1e3])
    points = points[np.random.default_rng(23).permutation(3000)]
    high = points[:, 0] > 500.0
    points[high, 3] = np.nan
    model = ODATreeClusterer(2, max_depth=2, random_state=0)
    model.set_params(samples_per_cluster=5, cooling=0.6).partial_fit(points)
    far = model.codevectors_[:, 0] > 500.0
    assert np.abs(model.codevectors_[far, 3]).max() < 10.0  # what is known of a node above
    assert far[model.predict(blobs(500, 24)[0] + 1e3)].all()
    model.partial_fit(blobs(500, 24)[0] + 1e3)
    assert model.score(blobs(500, 25)[0] + 1e3) > -200.0


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_missing_values_are_no_worse_than_means_in_their_place(load):
    points, labels = load(return_X_y=True)
    points, gaps = StandardScaler().fit_transform(points), []
    clusterer = ODATreeClusterer(3, max_depth=2, random_state=0)
    classifier = ODATreeClassifier(random_state=0)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rows = rng.permutation(len(points))
        train, test = rows[::2], rows[1::2]
        hidden = with_holes(points, 0.3, seed)
        imputer = SimpleImputer(keep_empty_features=True).fit(hidden[train])
        scores = []
        for data in (hidden, imputer.transform(hidden)):
            told = clone(classifier).fit(data[train], labels[train])
            scores.append(
                [clone(clusterer).fit(data[train]).score(points[test]),
                 told.score(points[test], labels[test]), told.score(data[test], labels[test])]
            )  # fmt: skip
        known, filled = scores
        gaps.append([known[0] / filled[0] - 1.0, known[1] - filled[1], known[2] - filled[2]])
    distortion, right, right_of_holed = np.median(gaps, axis=0)
    assert distortion < 0.03  # with other seeds trees of whole data differ by up to as much
    assert right > -0.03  # two of 89 samples of wine
    assert right_of_holed > -0.02
