"""Figures of estimators as scikit-learn has them: displays, made by ``from_estimator``.

A display keeps what it drew from and where: ``ax_`` and ``figure_``. ``plot`` draws it again.

References
----------
scikit-learn, "Developing with the plotting API".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oda_rl._types import Array, FloatArray
from oda_rl.plotting.annealing import MeasuredLevel, plot_annealing, plot_trade_off
from oda_rl.plotting.axes import new_axes
from oda_rl.plotting.lineage import TemperatureLevel
from oda_rl.plotting.plane import GRID, draw_points, grid, in_plane, window_of

_GREY = "#777777"
_LEVELS = 12
_DEPTH = 8.0  # below the greatest log-density: what is less likely is not told apart


@dataclass
class _Display:
    """What all displays have."""

    ax_: Axes = field(init=False, repr=False)
    """Where it was drawn last."""

    @property
    def figure_(self) -> Figure:
        """The figure that it was drawn on last."""
        figure = self.ax_.figure
        assert isinstance(figure, Figure)
        return figure


@dataclass
class BifurcationDisplay(_Display):
    """How a codebook branched as the temperature fell, and below it the number of codevectors.

    Parameters
    ----------
    history : sequence of Level
        As in ``history_`` of an annealed estimator.

    Examples
    --------
    >>> from oda_rl import ODAClusterer
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> display = BifurcationDisplay.from_estimator(ODAClusterer(4, random_state=0).fit(X))
    >>> display.ax_.get_title()
    'Annealing'
    """

    history: Sequence[TemperatureLevel]

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw what a fitted estimator has in ``history_``.

        Parameters
        ----------
        estimator : ODAClusterer, ODAClassifier or ODARegressor
        ax : matplotlib Axes, optional
            Where to draw; by default on a new figure.

        Raises
        ------
        ValueError
            If it has no history: it was not fitted, or is no annealed estimator.
        """
        return cls(_history(estimator)).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw, on a new figure by default."""
        self.ax_ = plot_annealing(self.history, ax=ax)
        return self


@dataclass
class TradeOffDisplay(_Display):
    """What more codevectors, or more samples, bought during annealing: accuracy, or distortion.

    Parameters
    ----------
    history : sequence of Level
        As in ``history_`` of an annealed estimator.
    by : {"clusters", "samples"}, default="clusters"
        What is on the horizontal axis.

    Examples
    --------
    >>> from oda_rl import ODAClusterer
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> display = TradeOffDisplay.from_estimator(ODAClusterer(4, random_state=0).fit(X))
    >>> display.ax_.get_xlabel()
    'codevectors K'
    """

    history: Sequence[MeasuredLevel]
    by: Literal["clusters", "samples"] = "clusters"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        by: Literal["clusters", "samples"] = "clusters",
        ax: Axes | None = None,
    ) -> Self:
        """Draw what a fitted estimator has in ``history_``.

        Parameters
        ----------
        estimator : ODAClusterer, ODAClassifier or ODARegressor
        by : {"clusters", "samples"}, default="clusters"
        ax : matplotlib Axes, optional
            Where to draw; by default on a new figure.

        Raises
        ------
        ValueError
            If it has no history, or ``by`` is anything else.
        """
        return cls(_history(estimator), by).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw, on a new figure by default."""
        self.ax_ = plot_trade_off(self.history, ax=ax, by=self.by)
        return self


@dataclass
class DensityDisplay(_Display):
    """Log-density of a model of the plane, and points.

    Parameters
    ----------
    across, up : ndarray, shape (n, n)
        Places.
    log_density : ndarray, shape (n, n)
        There.
    points : ndarray, shape (m, 2)
        Drawn on top, at most 3000 of them.

    Examples
    --------
    >>> from oda_rl import SGDGaussianMixture
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> model = SGDGaussianMixture(4, random_state=0).fit(X)
    >>> display = DensityDisplay.from_estimator(model, X)
    >>> bool(display.log_density.max() < 0.0)
    True
    """

    across: FloatArray
    up: FloatArray
    log_density: FloatArray
    points: FloatArray

    @classmethod
    def from_estimator(cls, estimator: Any, X: npt.ArrayLike, *, ax: Axes | None = None) -> Self:
        """Draw ``score_samples`` of a fitted estimator, wherever X is.

        Parameters
        ----------
        estimator : estimator with ``score_samples``
            A mixture, exemplars, an annealed estimator, or one of scikit-learn's densities.
        X : array-like, shape (n, 2)
            Points, which also say what part of the plane is drawn.
        ax : matplotlib Axes, optional
            Where to draw; by default on a new figure.

        Raises
        ------
        ValueError
            If there are not two features.
        TypeError
            If the estimator has no density.
        """
        if not hasattr(estimator, "score_samples"):
            raise TypeError(
                f"estimator is {estimator!r}: it must have score_samples, as mixtures, exemplars "
                "and annealed estimators have"
            )
        points = in_plane(X)
        places = grid(window_of(points, points))
        logs: Array = np.asarray(estimator.score_samples(places), dtype=np.float64)
        shape = GRID, GRID
        across, up = (places[:, i].reshape(shape) for i in range(2))
        return cls(across, up, logs.reshape(shape), points).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw, on a new figure by default."""
        ax = ax or new_axes(5.6, 4.8)[0]
        highest = float(self.log_density.max())
        levels = np.linspace(highest - _DEPTH, highest, _LEVELS)
        ax.contourf(
            self.across, self.up, self.log_density, levels=levels, cmap="Blues", extend="min"
        )
        draw_points(ax, self.points, np.full(len(self.points), _GREY))
        ax.set(xlim=(self.across.min(), self.across.max()), ylim=(self.up.min(), self.up.max()))
        ax.set_title("Log-density", loc="left")
        self.ax_ = ax
        return self


def _history(estimator: Any) -> Any:
    if not getattr(estimator, "history_", None):
        raise ValueError(
            f"estimator is {estimator!r}, which has no history: it must be an annealed estimator "
            "(ODAClusterer, ODAClassifier, ODARegressor) that was fitted"
        )
    return estimator.history_
