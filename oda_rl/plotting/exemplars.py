"""Figures of weighted exemplars: their density, what they look like, and how they were found.

Like those of :mod:`oda_rl.plotting.agents` they draw on a matplotlib Axes and return it.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from oda_rl.exemplars.column_generation import Round
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.plotting.plane import draw_codevectors, draw_points, grid, in_plane, mosaic, window_of

if TYPE_CHECKING:
    from oda_rl.exemplars.base import ExemplarMixture

_GREY = "#777777"
_LEVELS = 12
_MOST_IMAGES = 40
_IMAGES_A_ROW = 10


def plot_density(model: "ExemplarMixture", X: npt.ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw the density of a model of the plane, its exemplars, and points.

    Parameters
    ----------
    model : INFEX, ConvexClustering or KernelVectorQuantization
        Fitted to two features. The area of an exemplar's disc grows with its weight.
    X : array-like, shape (n, 2)
        Points; at most 3000 of them are drawn.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    ValueError
        If X has not two features.

    Examples
    --------
    >>> from oda_rl import INFEX
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> ax = plot_density(INFEX(random_state=0).fit(X), X)
    """
    ax = ax or new_axes(5.6, 5.0)[0]
    points = in_plane(X)
    window = window_of(points, model.exemplars_)
    places = grid(window)
    side = math.isqrt(len(places))
    heights = np.exp(model.score_samples(places)).reshape(side, side)
    across, up = places[:, 0].reshape(side, side), places[:, 1].reshape(side, side)
    ax.contourf(across, up, heights, levels=_LEVELS, cmap="Blues")
    draw_points(ax, points, np.full(len(points), _GREY))
    draw_codevectors(ax, model.exemplars_, model.weights_, np.full(len(model.weights_), COLORS[1]))
    ax.set(xlim=window[0], ylim=window[1])
    ax.set_title(f"{len(model.weights_)} exemplars", loc="left")
    return ax


def plot_images(model: "ExemplarMixture", shape: tuple[int, int], ax: Axes | None = None) -> Axes:
    """Draw exemplars as images, the heaviest first, ten a row and at most 40.

    Parameters
    ----------
    model : INFEX, ConvexClustering or KernelVectorQuantization
        Fitted to images.
    shape : tuple of int
        Rows and columns of an image; their product is the number of features.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    ValueError
        If ``shape`` does not fit the exemplars.
    """
    n_rows, n_columns = shape
    if n_rows * n_columns != model.exemplars_.shape[1]:
        raise ValueError(
            f"shape is {shape}, which has {n_rows * n_columns} pixels: the exemplars have "
            f"{model.exemplars_.shape[1]}"
        )
    heaviest = np.argsort(-model.weights_, kind="stable")[:_MOST_IMAGES]
    width = min(len(heaviest), _IMAGES_A_ROW)
    height = -(-len(heaviest) // width)
    ax = ax or new_axes(0.8 * width + 1.0, 0.8 * height + 1.0)[0]
    ax.imshow(mosaic(model.exemplars_[heaviest].reshape(-1, *shape), width), cmap="gray_r")
    ax.set_axis_off()
    share = float(model.weights_[heaviest].sum())
    ax.set_title(
        f"{len(heaviest)} of {len(model.weights_)} exemplars, weight {share:.2f}", loc="left"
    )
    return ax


def plot_rounds(history: Sequence[Round], ax: Axes | None = None) -> Axes:
    """Draw objective and duality gap by round.

    Parameters
    ----------
    history : sequence of Round
        As in ``history_`` of an estimator; not empty.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure. The gap has an axis at the right.

    Returns
    -------
    matplotlib Axes
        Those of the objective.
    """
    ax = ax or new_axes(6.4, 4.2, columns=1)[0]
    rounds = np.arange(1, len(history) + 1)
    ax.plot(rounds, [entry.objective for entry in history], "o-", color=COLORS[0], markersize=3)
    ax.set_xlabel("round")
    ax.set_ylabel("objective", color=COLORS[0])
    right = ax.twinx()
    gaps = np.array([entry.gap for entry in history])
    positive = gaps > 0.0
    right.plot(rounds[positive], gaps[positive], "s--", color=COLORS[5], markersize=3)
    if positive.any():
        right.set_yscale("log")
    right.set_ylabel("duality gap", color=COLORS[5])
    ax.figure.subplots_adjust(right=0.86)
    return ax
