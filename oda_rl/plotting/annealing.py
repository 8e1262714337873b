"""Figures of annealing: bifurcations, lineages, results, and the price of accuracy."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import NullLocator, StrMethodFormatter
from mpl_toolkits.axes_grid1 import make_axes_locatable  # type: ignore[import-untyped]

from oda_rl._types import Array, FloatArray
from oda_rl.files.archive import replacing
from oda_rl.plotting.axes import (
    COLORS,
    GRID,
    Ranges,
    class_colors,
    draw_codevectors,
    draw_points,
    draw_regions,
    grid,
    in_plane,
    name_classes,
    neighbours_apart,
    new_axes,
    window_of,
)

if TYPE_CHECKING:
    from oda_rl.agents.base.history import Level
    from oda_rl.annealing.base import BaseODA


_LABEL_WIDTH = 0.12  # of the axis


class TemperatureLevel(Protocol):
    """What the bifurcation is drawn from: a level of an agent's or of an estimator's history."""

    @property
    def temperature(self) -> float:
        """Temperature of the level."""

    @property
    def codevectors(self) -> FloatArray:
        """Shape (K, d)."""

    @property
    def lineage(self) -> FloatArray | None:
        """Shape (K, K of the level before); None where it all began."""

    @property
    def step(self) -> int:
        """Steps or samples until then."""


def plot_bifurcation(history: Sequence[TemperatureLevel], *, ax: Axes | None = None) -> Axes:
    """Draw how cells came from cells as the temperature fell, since the last start.

    The height of a cell is its codevector's first principal component (each component of the
    observation in units of its spread over all cells).

    Parameters
    ----------
    history : sequence of Level
        As in ``agent.history``, or in ``history_`` of an estimator.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.
    """
    ax = ax or new_axes()[0]
    levels = draw_lineage(history, ax)
    ax.set_title("Bifurcation of the cells")
    if not levels:
        return ax
    for i in _not_overlapping(levels, ax):
        ax.annotate(
            f"{len(levels[i].codevectors)} cells\nstep {levels[i].step:,}",
            (levels[i].temperature, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, -2),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=7,
            color="0.3",
        )
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.125 * (high - low))
    return ax


def draw_lineage(history: Sequence[TemperatureLevel], ax: Axes) -> list[TemperatureLevel]:
    """Draw the cells since the last start, without a title; return the levels that are shown.

    Cells whose level knows their classes (``labels``) have the colours of those.
    """
    starts = [i for i, level in enumerate(history) if level.lineage is None]
    levels = list(history[starts[-1] :]) if starts else []
    ax.set(xlabel="temperature", ylabel="codevector, first principal component")
    if not levels or not levels[-1].temperature > 0.0:
        text = "annealing has not begun"
        if levels and np.isnan(levels[-1].temperature):
            text = "cells have no temperatures here:\nplot_cells_over_time shows their number"
        ax.text(0.5, 0.5, text, ha="center", va="center", transform=ax.transAxes)
        return []
    heights = _principal_component([level.codevectors for level in levels])
    thickness = min(1.0, 12.0 / len(levels))
    for i, level in enumerate(levels):
        labels = getattr(level, "labels", np.zeros(len(heights[i]), dtype=np.int64))
        colors = [COLORS[label % len(COLORS)] for label in labels]
        parents = np.zeros((0, 0)) if level.lineage is None else level.lineage
        for child, parent in zip(*np.nonzero(parents), strict=True):
            ax.plot(
                [levels[i - 1].temperature, level.temperature],
                [heights[i - 1][parent], heights[i][child]],
                color=colors[child],
                linewidth=1.2 * thickness,
            )
        for label in np.unique(labels):
            own = heights[i][labels == label]
            at = np.full(len(own), level.temperature)
            color = COLORS[label % len(COLORS)]
            ax.plot(at, own, "o", color=color, markersize=4 * thickness)
    low, high = min(map(min, heights)), max(map(max, heights))
    margin = 0.1 * max(high - low, 1e-9)
    ax.set_ylim(low - margin, high + margin)
    ax.set_xscale("log")
    temperatures = [level.temperature for level in levels]
    ax.set_xlim(2.0 * max(temperatures), 0.5 * min(temperatures))
    ticks = [temperatures[i] for i in _not_overlapping(levels, ax)]
    ax.set_xticks(ticks, [f"{temperature:.3g}" for temperature in ticks])
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
    return levels


def plot_cells_over_time(
    history: "Sequence[Level]", total_steps: int, *, ax: Axes | None = None
) -> Axes:
    """Draw the number of cells and the temperature over environment steps, restarts included.

    Parameters
    ----------
    history : sequence of Level
        As in ``agent.history``.
    total_steps : int
        Where the lines end.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.
    """
    ax = ax or new_axes()[0]
    ax.set(xlabel="environment steps", ylabel="cells", title="Cells and temperature")
    if not history:
        ax.text(0.5, 0.5, "annealing has not begun", ha="center", transform=ax.transAxes)
        return ax
    steps = [*(level.step for level in history), max(total_steps, history[-1].step + 1)]
    cells = [len(level.codevectors) for level in history]
    ax.step(steps, [*cells, cells[-1]], where="post", color=COLORS[0])
    ax.set_ylim(0, 1.25 * max(cells))
    ax.yaxis.label.set_color(COLORS[0])
    temperatures = [level.temperature for level in history]
    right = ax.twinx()
    right.step(
        steps, [*temperatures, temperatures[-1]], where="post", color=COLORS[5], linestyle="--"
    )
    right.set_yscale("log")
    right.set_ylabel("temperature", color=COLORS[5])
    restarts = [level.step for level in history[1:] if level.lineage is None]
    for step in restarts:
        ax.axvline(step, color="0.7", linewidth=0.8, zorder=0)
    if restarts:
        ax.set_title(f"Cells and temperature (restarts: {len(restarts)}, grey)")
    ax.spines["top"].set_visible(False)
    right.spines["top"].set_visible(False)
    return ax


def _not_overlapping(levels: Sequence[TemperatureLevel], ax: Axes) -> list[int]:
    """Levels with room for a label each: the last one, and those far enough from the next."""
    first, last = np.log(ax.get_xlim())
    kept: list[int] = []
    free_until = np.inf
    for i in range(len(levels) - 1, -1, -1):
        place = (np.log(levels[i].temperature) - first) / (last - first)
        if place <= free_until:
            kept.insert(0, i)
            free_until = place - _LABEL_WIDTH
    return kept


def _principal_component(levels: Sequence[FloatArray]) -> list[FloatArray]:
    points = np.concatenate(levels)
    spread = points.std(axis=0)
    scaled = (points - points.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    direction = np.linalg.svd(scaled, full_matrices=False)[2][0]
    bounds = np.cumsum([len(level) for level in levels])[:-1]
    return np.split(scaled @ direction, bounds)


_DPI = 110
_GREY = "#777777"


class Predictor(Protocol):
    """Anything that predicts."""

    def predict(self, X: npt.ArrayLike) -> Array:
        """Class or cluster of each point."""


class MeasuredLevel(Protocol):
    """A level of an estimator's history."""

    @property
    def n_clusters(self) -> int:
        """Number K of codevectors."""

    @property
    def distortion(self) -> float:
        """Mean divergence of the level's samples."""

    @property
    def n_samples_seen(self) -> int:
        """Samples learned from until then."""


class Measured(Protocol):
    """An annealed estimator."""

    history_: Any


def plot_annealing(history: Sequence[TemperatureLevel], ax: Axes | None = None) -> Axes:
    """Draw how the codebook branched as the temperature fell, and below it the number K.

    The height of a codevector is its first principal component; its colour is that of its class.

    Parameters
    ----------
    history : sequence of Level
        As in ``history_`` of an estimator.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure. The lower third of it becomes Axes of its own.

    Returns
    -------
    matplotlib Axes
        Those of the upper part.

    Examples
    --------
    >>> import numpy as np
    >>> from oda_rl import ODAClusterer
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> ax = plot_annealing(ODAClusterer(4, random_state=0).fit(X).history_)
    """
    ax = ax or new_axes(6.4, 5.0)[0]
    levels = draw_lineage(history, ax)
    ax.set_title("Annealing")
    if not levels:
        return ax
    lower = cast(
        Axes, make_axes_locatable(ax).append_axes("bottom", size="40%", pad=0.15, sharex=ax)
    )
    temperatures = [level.temperature for level in levels]
    sizes = [len(level.codevectors) for level in levels]
    lower.plot(temperatures, sizes, "o-", color=COLORS[0], markersize=3, linewidth=1.2)
    lower.set(xlabel=ax.get_xlabel(), ylabel="codevectors K", yscale="log")
    _plain_ticks(lower.yaxis, sizes)
    lower.spines[["top", "right"]].set_visible(False)
    ax.set(xlabel="", ylabel="first principal component")
    ax.tick_params(labelbottom=False)
    return ax


def plot_decision_regions(
    model: Predictor, X: npt.ArrayLike, y: npt.ArrayLike, ax: Axes | None = None
) -> Axes:
    """Draw which class a classifier of the plane predicts where, and points of known classes.

    Codevectors that are farther away than the points' own range are out of the picture.

    Parameters
    ----------
    model : classifier
        Anything fitted that has ``predict``; its codevectors are drawn if it has any.
    X : array-like, shape (n, 2)
        Points; at most 3000 of them are drawn.
    y : array-like, shape (n,)
        Their classes.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    ValueError
        If X has not two features.
    """
    ax = ax or new_axes(5.6, 5.0)[0]
    points, labels = in_plane(X), np.asarray(y)
    names = np.unique(np.concatenate([labels, getattr(model, "classes_", labels)]))
    codevectors = _codevectors(model)
    ranges = window_of(points, points if codevectors is None else codevectors)
    regions = np.searchsorted(names, model.predict(grid(ranges)))
    draw_regions(ax, ranges, regions, class_colors(np.arange(len(names))))
    draw_points(ax, points, class_colors(np.searchsorted(names, labels)))
    if codevectors is not None:
        own = np.searchsorted(names, cast(Any, model).codevector_labels_)
        draw_codevectors(ax, codevectors, _weights(model, codevectors), class_colors(own))
    name_classes(ax, names)
    return ax


def plot_clusters(model: Predictor, X: npt.ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw the cells of a clusterer of the plane, its codevectors, and points.

    Neighbouring cells have different colours, which mean nothing else.

    Parameters
    ----------
    model : clusterer
        Anything fitted that has ``predict`` and ``cluster_centers_``.
    X : array-like, shape (n, 2)
        Points; at most 3000 of them are drawn.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    ValueError
        If X has not two features.
    """
    ax = ax or new_axes(5.6, 5.0)[0]
    points = in_plane(X)
    codevectors = np.asarray(cast(Any, model).cluster_centers_)
    ranges = window_of(points, codevectors)
    cells = np.asarray(model.predict(grid(ranges)), dtype=np.int64)
    colors = neighbours_apart(cells.reshape(GRID, GRID), len(codevectors))
    draw_regions(ax, ranges, cells, colors)
    draw_points(ax, points, colors[np.asarray(model.predict(points), dtype=np.int64)])
    draw_codevectors(ax, codevectors, _weights(model, codevectors), colors)
    ax.set_title(f"{len(codevectors)} clusters", loc="left")
    return ax


def plot_trade_off(
    models: "Measured | Sequence[MeasuredLevel] | Mapping[str, Measured | Sequence[MeasuredLevel]]",
    ax: Axes | None = None,
    by: Literal["clusters", "samples"] = "clusters",
) -> Axes:
    """Draw what more codevectors or more samples bought during annealing.

    That is accuracy, as measured on training samples, where every level has one, and distortion
    otherwise. A level whose codebook was merged down has the distortion of before, and is left out.

    Parameters
    ----------
    models : estimator, history, or mapping of names to either
        What has ``history_``, or that itself.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.
    by : {"clusters", "samples"}, default="clusters"
        What is on the horizontal axis: the number K of codevectors, or the samples seen.

    Raises
    ------
    ValueError
        If ``by`` is anything else, or there is no level to draw.
    """
    if by not in ("clusters", "samples"):
        raise ValueError(f'by must be "clusters" or "samples", got {by!r}')
    named = models if isinstance(models, Mapping) else {"": models}
    histories = {
        name: cast(Sequence[MeasuredLevel], getattr(entry, "history_", entry))
        for name, entry in named.items()
    }
    levels = [level for history in histories.values() for level in history]
    if not histories or not all(map(len, histories.values())):
        raise ValueError("there is no level to draw: has the model been fitted?")
    ax = ax or new_axes()[0]
    accurate = all(getattr(level, "accuracy", None) is not None for level in levels)
    bought = "accuracy" if accurate else "distortion"
    paid = "n_clusters" if by == "clusters" else "n_samples_seen"
    for i, (name, history) in enumerate(histories.items()):
        shown = history if accurate else _not_merged(history)
        points = np.array([(getattr(level, paid), getattr(level, bought)) for level in shown])
        color = COLORS[i % len(COLORS)]
        ax.plot(*points.T, "o-", color=color, markersize=4, linewidth=1.2, label=name)
    ax.set(xscale="log", xlabel="codevectors K" if by == "clusters" else "samples seen")
    if accurate:
        ax.set_ylabel("accuracy on training samples")
    else:
        ax.set(yscale="log", ylabel="mean distortion")
    if by == "clusters":
        _plain_ticks(ax.xaxis, [level.n_clusters for level in levels])
    if isinstance(models, Mapping):
        ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def animate_annealing(
    model: "BaseODA",
    points: npt.ArrayLike,
    path: str | os.PathLike[str],
    classes: npt.ArrayLike | None = None,
    fps: float = 4.0,
) -> Path:
    """Write a GIF of the annealing in the plane, with a frame for each temperature level.

    A codevector's area grows with the share of the data that it stands for. Lines divide the cells
    of the codevectors; a classifier's have the colours of their classes.

    Parameters
    ----------
    model : ODAClusterer, ODAClassifier or ODARegressor
        Fitted to two features.
    points : array-like, shape (n, 2)
        Points to draw; at most 3000 of them are.
    path : path
        Where to write; the file is written whole or not at all.
    classes : array-like, shape (n,), optional
        Classes of the points, for their colours.
    fps : float, default=4
        Frames a second.

    Returns
    -------
    Path
        That of the file.

    Raises
    ------
    ValueError
        If the points or the model are not of the plane.
    """
    plane = in_plane(points)
    if model.n_features_in_ != 2:
        raise ValueError(
            f"the picture is of a plane: the model must have 2 features, not {model.n_features_in_}"
        )
    names = _known_classes(model, classes)
    window = window_of(plane, np.concatenate([level.codevectors for level in model.history_]))
    ax = new_axes(5.6, 5.0)[0]
    grey = np.full(len(plane), _GREY)
    colors = grey if classes is None else class_colors(np.searchsorted(names, np.asarray(classes)))
    draw_points(ax, plane, colors)
    name_classes(ax, names)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "annealing.gif"
        writer = PillowWriter(fps=fps)  # type: ignore[arg-type]  # Pillow takes milliseconds
        writer.setup(cast(Figure, ax.figure), str(file), _DPI)
        for level in range(len(model.history_)):
            drawn = _draw_stage(ax, model.at_level(level), window, names)
            with rc_context({"savefig.bbox": None}):  # a cropped frame has a size of its own
                writer.grab_frame()
            for artist in drawn:
                artist.remove()
        writer.finish()
        with replacing(path) as target:
            target.write(file.read_bytes())
    return Path(path)


def _draw_stage(
    ax: Axes, stage: "BaseODA", window: Ranges, names: Array
) -> tuple[AxesImage, PathCollection]:
    """Draw the codevectors of one level and their cells."""
    codevectors = stage.codevectors_
    colors, regions = np.full(len(codevectors), COLORS[1]), np.full(len(codevectors), _GREY)
    if hasattr(stage, "classes_"):
        labels = cast(Any, stage).codevector_labels_
        colors = regions = class_colors(np.searchsorted(names, labels))
    cells = stage.transform(grid(window)).argmin(axis=1)
    image = draw_regions(ax, window, cells, regions)
    marks = draw_codevectors(ax, codevectors, stage.weights_, colors)
    ax.set_title(f"T = {stage.temperature_:.3g}, K = {len(codevectors)}", loc="left")
    return image, marks


def _known_classes(model: "BaseODA", classes: npt.ArrayLike | None) -> Array:
    """Sorted classes of the model and of the points; none if neither has any."""
    known = [getattr(model, "classes_", None), classes]
    arrays = [np.asarray(array) for array in known if array is not None]
    return np.unique(np.concatenate(arrays)) if arrays else np.zeros(0)


def _codevectors(model: Predictor) -> FloatArray | None:
    found = getattr(model, "codevectors_", None)
    return None if found is None else np.asarray(found)


def _weights(model: Predictor, codevectors: FloatArray) -> FloatArray:
    """Weights of the codevectors, equal ones if the model knows none."""
    n = len(codevectors)
    return np.asarray(getattr(model, "weights_", np.full(n, 1.0 / n)))


def _not_merged(history: Sequence[MeasuredLevel]) -> list[MeasuredLevel]:
    sizes = [0, *(level.n_clusters for level in history)]
    return [level for i, level in enumerate(history) if level.n_clusters >= sizes[i]]


def _plain_ticks(axis: Any, values: Sequence[float]) -> None:
    """Ticks 1, 2, 5, 10, ... on a log axis."""
    decades = 10.0 ** np.arange(np.floor(np.log10(max(values))) + 1.0)
    ticks = np.outer(decades, [1.0, 2.0, 5.0]).ravel()
    low, high = 0.8 * min(values), 1.25 * max(values)
    axis.set_view_interval(low, high, ignore=True)
    axis.set_ticks(ticks[(ticks >= low) & (ticks <= high)])
    axis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
    axis.set_minor_locator(NullLocator())
