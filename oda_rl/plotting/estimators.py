"""Figures of estimators: annealing, decision regions, clusters, densities."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Ellipse

from oda_rl._types import FloatArray
from oda_rl.plotting.axes import (
    COLORS,
    GRID,
    checked,
    class_colors,
    draw_codevectors,
    draw_points,
    draw_regions,
    grid,
    name_classes,
    neighbours_apart,
    new_axes,
    padded_range,
    window_of,
)

_GREY = "#777777"
_LABEL_WIDTH = 0.65  # inches
_MARGIN, _MIN_MARGIN = 0.08, 0.1  # beside temperatures: share of their log range; at least
_THIN = 6.0  # square root of the number of cells from which on lines and dots are thinner
_CONTOURS = 12
_DEPTH = 8.0  # range of log-densities that have colours of their own, below the maximum

History = Sequence[Any]
"""Levels: ``temperature``, ``codevectors`` (K, d), and ``parents`` (K,) or ``lineage`` (K, K of
the level before)."""


def plot_bifurcation(history: History, *, ax: Axes | None = None) -> Axes:
    """Draw how cells split as the temperature fell, since the last start.

    Levels that are not colder than all before are left out, such as those after reheating.
    The height of a cell is the first principal component of its codevector (in standardised
    observations). A dotted line is at the critical temperature of the first codevectors, if that
    was measured.

    Parameters
    ----------
    history : sequence of Level
        As in ``agent.history``, or in ``history_`` of an estimator.
    """
    ax = ax or new_axes()[0]
    levels = _draw_lineage(history, ax)
    ax.set_title("Bifurcation of the cells")
    if not levels:
        return ax
    last = history[-1]
    if last is not levels[-1]:
        n_cells = len(last.codevectors)
        later = f"at step {last.step:,}: {last.temperature:.3g}, with {n_cells} cells"
        ax.set_xlabel(f"temperature until step {levels[-1].step:,}, when it was lowest\n({later})")
    for i in _not_overlapping(levels, ax):
        n_cells = len(levels[i].codevectors)
        text = f"{n_cells} cell{'s' * (n_cells > 1)}\nstep {levels[i].step:,}"
        ax.annotate(text, (levels[i].temperature, 1.0), xycoords=("data", "axes fraction"),
                    xytext=(0, -2), textcoords="offset points", ha="center", va="top",
                    fontsize=7, color="0.3")  # fmt: skip
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.125 * (high - low))
    return ax


def _draw_lineage(history: History, ax: Axes) -> list[Any]:
    """Draw the cells since the last start, coloured by class; return the levels drawn."""
    starts = [i for i, level in enumerate(history) if _link(level) is None]
    levels = list(history[starts[-1] :]) if starts else []
    ax.set(xlabel="temperature", ylabel="codevector, first principal component")
    if not levels or not levels[-1].temperature > 0.0:
        text = "annealing has not begun"
        if levels and np.isnan(levels[-1].temperature):
            text = "these cells have no temperature"
        ax.text(0.5, 0.5, text, ha="center", va="center", transform=ax.transAxes)
        return []
    levels, links = _ever_colder(levels)
    temperatures = [level.temperature for level in levels]
    points = np.concatenate([level.codevectors for level in levels])
    spread = points.std(axis=0)
    scaled = (points - points.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    direction = np.linalg.svd(scaled, full_matrices=False)[2][0]
    ends = np.cumsum([len(level.codevectors) for level in levels])[:-1]
    heights = np.split(scaled @ direction, ends)
    thickness = min(1.0, 12.0 / len(levels), _THIN / max(map(len, heights)) ** 0.5)
    for i, level in enumerate(levels):
        labels = getattr(level, "labels", np.zeros(len(heights[i]), dtype=np.int64))
        colors = class_colors(np.asarray(labels))
        if i:
            children, parents = np.nonzero(links[i])
            lines = np.empty((len(children), 2, 2))
            lines[:, :, 0] = temperatures[i - 1 : i + 1]
            lines[:, :, 1] = np.column_stack([heights[i - 1][parents], heights[i][children]])
            tints, width = colors[children], 1.2 * thickness
            ax.add_collection(LineCollection(list(lines), colors=tints, linewidths=width))
        for color in np.unique(colors):
            shown = heights[i][colors == color]
            at = np.full(len(shown), level.temperature)
            ax.plot(at, shown, "o", color=color, markersize=4 * thickness)
    critical = [level.critical for level in levels if getattr(level, "critical", None)]
    if critical:  # of the first codevectors
        ax.axvline(critical[0], color=_GREY, linestyle=":", label="critical temperature")
        ax.legend(loc="lower left", frameon=False, fontsize=7)
    ax.set_ylim(padded_range(np.concatenate(heights)))
    ax.set_xscale("log")
    logs = np.log([*temperatures, *critical])
    margin = max(_MARGIN * np.ptp(logs), _MIN_MARGIN)
    ax.set_xlim(math.exp(logs.max() + margin), math.exp(logs.min() - margin))
    ticks = [temperatures[i] for i in _not_overlapping(levels, ax)]
    ax.set_xticks(ticks, [f"{temperature:.3g}" for temperature in ticks])
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
    return levels


def _link(level: Any) -> FloatArray | None:
    """Return how much each cell comes from each of the level before; None where cells start."""
    parents = getattr(level, "parents", None)
    return getattr(level, "lineage", None) if parents is None else np.eye(1 + max(parents))[parents]


def _ever_colder(history: History) -> tuple[list[Any], list[FloatArray]]:
    """Return the levels colder than all before, and how each comes from the one before it."""
    link = np.eye(len(history[0].codevectors))
    levels, links = list(history[:1]), [link]
    for level in history[1:]:
        step = np.asarray(_link(level))
        link = step @ link[: step.shape[1]]
        if level.temperature < levels[-1].temperature:
            levels.append(level)
            links.append(link)
            link = np.eye(len(level.codevectors))
    return levels, links


def _not_overlapping(levels: History, ax: Axes) -> list[int]:
    """Return the indices of levels with room for a label: the last, the first, and some between."""
    first, last = np.log(ax.get_xlim())
    places = np.log([level.temperature for level in levels]) / abs(last - first)
    width = _LABEL_WIDTH * ax.figure.dpi / ax.get_window_extent().width
    labelled = [len(levels) - 1]
    for i in range(len(levels) - 1):
        if np.abs(places[i] - places[labelled]).min() >= width:
            labelled.append(i)
    return sorted(labelled)


def plot_decision_regions(
    model: Any, X: npt.ArrayLike, y: npt.ArrayLike, *, ax: Axes | None = None
) -> Axes:
    """Draw the regions in which a classifier of two features predicts each class, and samples.

    Codevectors far outside the samples' range are not shown.

    Parameters
    ----------
    model : classifier
        Any fitted classifier; its ``codevectors_`` are drawn if they have ``codevector_labels_``.
    X : array-like, shape (n, 2)
        Samples; at most 3,000 are drawn.
    y : array-like, shape (n,)
        Their classes.
    """
    ax = ax or new_axes(5.6, 5.0)[0]
    points, labels = checked("X", X, 2), np.asarray(y)
    if labels.shape != (len(points),):
        raise ValueError(f"y has shape {labels.shape}: it must be ({len(points)},), as X has rows")
    names = np.unique(np.concatenate([labels, getattr(model, "classes_", labels)]))
    labelled = hasattr(model, "codevector_labels_")  # those of a tree have no class
    codevectors = np.asarray(model.codevectors_ if labelled else np.empty((0, 2)))
    ranges = window_of(points, codevectors)
    regions = np.searchsorted(names, model.predict(grid(ranges)))
    draw_regions(ax, ranges, regions, class_colors(np.arange(len(names))))
    draw_points(ax, points, class_colors(np.searchsorted(names, labels)))
    if len(codevectors):
        colors = class_colors(np.searchsorted(names, model.codevector_labels_))
        draw_codevectors(ax, codevectors, _weights(model, codevectors), colors)
    name_classes(ax, names)
    return ax


def plot_clusters(model: Any, X: npt.ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw the cells and codevectors of a clusterer of two features, and samples.

    Colours only tell neighbouring cells apart.

    Parameters
    ----------
    model : clusterer
        Any fitted clusterer with ``predict`` and ``cluster_centers_``.
    X : array-like, shape (n, 2)
        Samples; at most 3,000 are drawn.
    """
    ax = ax or new_axes(5.6, 5.0)[0]
    points = checked("X", X, 2)
    codevectors = np.asarray(model.cluster_centers_)
    ranges = window_of(points, codevectors)
    cells = np.asarray(model.predict(grid(ranges)), dtype=np.int64)
    colors = neighbours_apart(cells.reshape(GRID, GRID), len(codevectors))
    draw_regions(ax, ranges, cells, colors)
    draw_points(ax, points, colors[np.asarray(model.predict(points), dtype=np.int64)])
    draw_codevectors(ax, codevectors, _weights(model, codevectors), colors)
    ax.set_title(f"{len(codevectors)} clusters", loc="left")
    return ax


def _weights(model: Any, codevectors: FloatArray) -> FloatArray:
    """Return the weights of the codevectors; equal ones if the model has none."""
    n = len(codevectors)
    return np.asarray(getattr(model, "weights_", np.full(n, 1.0 / n)))


def plot_density(model: Any, X: npt.ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw the log-density of a model of two features, its components or exemplars, and samples.

    A component's ellipse shows one standard deviation, and is darker for a larger weight; the area
    of an exemplar's disc grows with its weight.

    Parameters
    ----------
    model : estimator with ``score_samples``
        Fitted: a mixture, an exemplar model, an annealed estimator, or a density of scikit-learn.
    X : array-like, shape (n, 2)
        Samples, whose range is drawn; at most 3,000 are drawn.

    Raises
    ------
    TypeError
        If the model has no density.

    Examples
    --------
    >>> from oda_rl import SGDGaussianMixture
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> ax = plot_density(SGDGaussianMixture(4, random_state=0).fit(X), X)
    """
    if not hasattr(model, "score_samples"):
        raise TypeError(
            f"model is {model!r}: it must have score_samples, as mixtures, exemplars and annealed "
            "estimators have"
        )
    ax = ax or new_axes(5.6, 4.8)[0]
    points = checked("X", X, 2)
    exemplars = np.asarray(getattr(model, "exemplars_", np.empty((0, 2))))
    window = window_of(points, exemplars)
    places = grid(window)
    log_density = np.asarray(model.score_samples(places), dtype=np.float64).reshape(GRID, GRID)
    highest = float(log_density.max())
    levels = np.linspace(highest - _DEPTH, highest, _CONTOURS)
    across, up = places.T.reshape(2, GRID, GRID)
    shown = np.maximum(log_density, levels[0] - 1.0)  # it may be infinite
    ax.contourf(across, up, shown, levels=levels, cmap="Blues", extend="min")
    draw_points(ax, points, np.full(len(points), _GREY))
    if len(exemplars):
        draw_codevectors(ax, exemplars, model.weights_, np.full(len(exemplars), COLORS[1]))
    elif hasattr(model, "covariances_"):
        _draw_ellipses(ax, model)
    ax.set(xlim=window[0], ylim=window[1])
    ax.set_title("Log-density", loc="left")
    return ax


def _draw_ellipses(ax: Axes, mixture: Any) -> None:
    for mean, covariance, weight in zip(
        mixture.means_, mixture.covariances_, mixture.weights_, strict=True
    ):
        matrix = np.asarray(covariance)
        matrix = matrix if matrix.ndim == 2 else np.diag(np.broadcast_to(matrix, 2))
        values, vectors = np.linalg.eigh(matrix)
        centre, axes = (float(mean[0]), float(mean[1])), 2.0 * np.sqrt(values)
        angle = math.degrees(math.atan2(vectors[1, 0], vectors[0, 0]))
        alpha = 0.3 + 0.7 * float(weight / mixture.weights_.max())
        ellipse = Ellipse(centre, *axes, angle=angle, fill=False, edgecolor=COLORS[1], alpha=alpha)
        ax.add_patch(ellipse)
