"""Figures of annealing."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture

from oda_rl import ODAClassifier, ODAClusterer, plotting
from oda_rl.command.reporting import save_figure
from oda_rl.plotting import estimators as annealing_plots


@pytest.fixture(scope="module")
def moons():
    return make_moons(300, noise=0.1, random_state=0)


@pytest.fixture(scope="module")
def classifier(moons):
    return ODAClassifier(12, random_state=0).fit(*moons)


@pytest.fixture(scope="module")
def clusterer(moons):
    return ODAClusterer(5, refine=False, random_state=0).fit(moons[0])


def test_annealing(classifier):
    ax = annealing_plots.plot_bifurcation(classifier.history_)
    dots = [line for line in ax.get_lines() if line.get_marker() == "o"]
    first, *colder = classifier.history_[1:]  # the initial level is as warm as the next
    assert first.temperature == classifier.history_[0].temperature
    sizes = [level.n_clusters for level in (classifier.history_[0], *colder)]
    assert sum(len(line.get_xdata()) for line in dots) == sum(sizes)
    assert {to_hex(line.get_color()).upper() for line in dots} == {*plotting.COLORS[:2]}
    branches = [ends for lines in ax.collections for ends in lines.get_segments()]
    parents = sum(np.count_nonzero(level.lineage) for level in colder)
    assert len(branches) == parents
    (critical,) = [line for line in ax.get_lines() if line.get_linestyle() == ":"]
    first = next(level.critical for level in classifier.history_ if level.critical)
    assert critical.get_xdata()[0] == first


def test_labels_of_many_levels_do_not_overlap(clusterer, tmp_path):
    assert len(clusterer.history_) > 12
    ax = plotting.plot_bifurcation(clusterer.history_)
    save_figure(ax, tmp_path / "bifurcation.png")  # a figure that is drawn knows its places
    boxes = sorted(text.get_window_extent().x0 for text in ax.texts)
    width = max(text.get_window_extent().width for text in ax.texts)
    assert 3 <= len(boxes) < len(clusterer.history_)
    assert np.diff(boxes).min() > width
    assert f"{clusterer.history_[-1].n_clusters} cells" in ax.texts[-1].get_text()


def test_annealing_of_equal_points_and_of_nothing():
    model = ODAClusterer(1).fit(np.ones((3, 2)))
    for history in (model.history_, []):
        assert annealing_plots.plot_bifurcation(history).texts[0].get_text() != ""


def test_decision_regions_have_the_colours_of_the_predictions(classifier, moons):
    ax = annealing_plots.plot_decision_regions(classifier, *moons)
    image = ax.get_images()[0]
    shown = np.asarray(image.get_array())
    left, right, bottom, top = image.get_extent()
    n = len(shown)
    rng = np.random.default_rng(0)
    colors = {}
    for i, j in rng.integers(n, size=(300, 2)):
        point = [left + (right - left) * j / (n - 1), bottom + (top - bottom) * i / (n - 1)]
        if not (shown[i, j] == 255).all():  # a line
            colors.setdefault(int(classifier.predict([point])[0]), set()).add(tuple(shown[i, j]))
    assert len(colors) == 2
    assert all(len(shades) == 1 for shades in colors.values())
    assert colors[0] != colors[1]
    discs = max(ax.collections, key=lambda drawn: drawn.get_zorder())  # they lie on top
    assert len(discs.get_sizes()) == len(classifier.codevectors_)


def test_decision_regions_of_any_classifier_with_any_labels(moons):
    points, classes = moons
    names = np.array(["low", "high"])[classes]
    model = LogisticRegression().fit(points, names)
    ax = annealing_plots.plot_decision_regions(model, points, names)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["high", "low"]
    assert ax.get_images()


@pytest.mark.parametrize("divergence", ["i_divergence", "itakura_saito"])
def test_pictures_stay_in_the_domain_of_the_divergence(divergence, moons):
    points = np.exp(moons[0])
    model = ODAClusterer(3, divergence=divergence, random_state=0).fit(points)
    ax = annealing_plots.plot_clusters(model, points)
    assert min(ax.get_xlim()[0], ax.get_ylim()[0]) > 0.0


def test_other_than_two_features(classifier, clusterer):
    solid = np.zeros((50, 3))
    with pytest.raises(ValueError, match=r"\(50, 3\)"):
        annealing_plots.plot_decision_regions(classifier, solid, np.zeros(50))
    with pytest.raises(ValueError, match=r"\(50, 3\)"):
        annealing_plots.plot_clusters(clusterer, solid)


@pytest.mark.parametrize("model", [GaussianMixture(2), ODAClusterer(6, random_state=0)], ids=str)
def test_a_density_of_any_model(model, moons):
    X = moons[0]
    ax = annealing_plots.plot_density(model.fit(X), X)
    assert ax.get_xlim()[0] < X[:, 0].min() < X[:, 0].max() < ax.get_xlim()[1]
    with pytest.raises(TypeError, match="it must have score_samples"):
        annealing_plots.plot_density(object(), X)
