"""Displays of estimators."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity

from oda_rl import INFEX, ODAClusterer
from oda_rl.plotting import BifurcationDisplay, DensityDisplay, TradeOffDisplay


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).normal(size=(300, 2)) * [1.0, 3.0] + [5.0, -2.0]


@pytest.fixture(scope="module")
def clusterer(X):
    return ODAClusterer(6, random_state=0).fit(X)


@pytest.mark.parametrize("kind", [BifurcationDisplay, TradeOffDisplay])
def test_displays_of_a_history(kind, clusterer):
    ax = Figure().add_subplot()
    display = kind.from_estimator(clusterer, ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert display.history is clusterer.history_
    lines = len(ax.lines)
    assert lines > 0
    again = display.plot()
    assert again is display
    assert display.ax_ is not ax
    assert len(display.ax_.lines) == lines


def test_trade_off_over_samples(clusterer):
    display = TradeOffDisplay.from_estimator(clusterer, by="samples")
    assert display.ax_.lines[0].get_xdata()[-1] <= clusterer.history_[-1].n_samples_seen
    assert display.ax_.get_xlabel() == "samples seen"
    with pytest.raises(ValueError, match='by must be "clusters" or "samples"'):
        TradeOffDisplay.from_estimator(clusterer, by="time")


@pytest.mark.parametrize(
    "model",
    [
        GaussianMixture(2, random_state=0),
        KernelDensity(bandwidth=0.5),
        INFEX(bandwidth=1.0, random_state=0),
        ODAClusterer(6, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_density(model, X):
    model.fit(X)
    display = DensityDisplay.from_estimator(model, X)
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(len(display.across), size=(2, 50))
    places = np.column_stack([display.across[rows, columns], display.up[rows, columns]])
    assert np.allclose(display.log_density[rows, columns], model.score_samples(places))
    low, high = display.ax_.get_xlim()
    assert low < X[:, 0].min()
    assert X[:, 0].max() < high


def test_errors(clusterer):
    with pytest.raises(ValueError, match="which has no history"):
        BifurcationDisplay.from_estimator(ODAClusterer(3))
    with pytest.raises(ValueError, match="points have shape"):
        DensityDisplay.from_estimator(clusterer, np.zeros((5, 3)))
    with pytest.raises(TypeError, match="it must have score_samples"):
        DensityDisplay.from_estimator(object(), np.zeros((5, 2)))
