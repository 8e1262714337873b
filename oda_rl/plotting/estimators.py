"""Figures of estimators: annealing, decision regions, clusters, densities, components."""

import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
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
    padded_range,
    window_of,
)

if TYPE_CHECKING:
    from oda_rl.annealing.base import BaseODA
    from oda_rl.exemplars.base import ExemplarMixture
    from oda_rl.mixtures.base import StreamingMixture
    from oda_rl.mixtures.sgd import SGDGaussianMixture

_DPI = 110
_GREY = "#777777"
_LABEL_WIDTH = 0.12  # of the axis
_THIN = 6.0  # square root of the number of cells from which on lines and dots are thinner
_CONTOURS = 12
_DEPTH = 8.0  # range of log-densities that have colours of their own, below the maximum

History = Sequence[Any]
"""Levels: ``temperature``, ``codevectors`` (K, d) and ``lineage`` (K, K of the level before)."""


def plot_bifurcation(history: History, *, ax: Axes | None = None) -> Axes:
    """Draw how cells split as the temperature fell, since the last start, until it was lowest.

    The height of a cell is the first principal component of its codevector (in standardised
    observations). A dotted line is at the critical temperature of the first codevectors, if that
    was measured.

    Parameters
    ----------
    history : sequence of Level
        As in ``agent.history``, or in ``history_`` of an estimator.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.
    """
    ax = ax or new_axes()[0]
    levels = _draw_lineage(history, ax)
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


def _draw_lineage(history: History, ax: Axes) -> list[Any]:
    """Draw the cells since the last start, coloured by class; return the levels drawn."""
    starts = [i for i, level in enumerate(history) if level.lineage is None]
    levels = list(history[starts[-1] :]) if starts else []
    ax.set(xlabel="temperature", ylabel="codevector, first principal component")
    if not levels or not levels[-1].temperature > 0.0:
        text = "annealing has not begun"
        if levels and np.isnan(levels[-1].temperature):
            text = "these cells have no temperature:\nplot_cells_over_time shows their number"
        ax.text(0.5, 0.5, text, ha="center", va="center", transform=ax.transAxes)
        return []
    temperatures = [level.temperature for level in levels]
    coldest = int(np.nanargmin(temperatures))
    levels, temperatures = levels[: coldest + 1], temperatures[: coldest + 1]
    heights = _principal_component([level.codevectors for level in levels])
    thickness = min(1.0, 12.0 / len(levels), _THIN / max(map(len, heights)) ** 0.5)
    for i, level in enumerate(levels):
        labels = getattr(level, "labels", np.zeros(len(heights[i]), dtype=np.int64))
        colors = class_colors(np.asarray(labels))
        if i:
            children, parents = np.nonzero(level.lineage)
            ends = np.empty((len(children), 2, 2))
            ends[:, :, 0] = temperatures[i - 1 : i + 1]
            ends[:, :, 1] = np.column_stack([heights[i - 1][parents], heights[i][children]])
            ax.add_collection(
                LineCollection(list(ends), colors=colors[children], linewidths=1.2 * thickness)
            )
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
    ax.set_xlim(2.0 * max(temperatures), 0.5 * min(temperatures))
    ticks = [temperatures[i] for i in _not_overlapping(levels, ax)]
    ax.set_xticks(ticks, [f"{temperature:.3g}" for temperature in ticks])
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
    return levels


def _not_overlapping(levels: History, ax: Axes) -> list[int]:
    """Return the indices of levels with room for a label: the last, and those far enough apart."""
    first, last = np.log(ax.get_xlim())
    labelled: list[int] = []
    free_until = np.inf
    for i in range(len(levels) - 1, -1, -1):
        place = (np.log(levels[i].temperature) - first) / (last - first)
        if place <= free_until:
            labelled.insert(0, i)
            free_until = place - _LABEL_WIDTH
    return labelled


def _principal_component(levels: Sequence[FloatArray]) -> list[FloatArray]:
    points = np.concatenate(levels)
    spread = points.std(axis=0)
    scaled = (points - points.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    direction = np.linalg.svd(scaled, full_matrices=False)[2][0]
    bounds = np.cumsum([len(level) for level in levels])[:-1]
    return np.split(scaled @ direction, bounds)


def plot_cells_over_time(history: History, total_steps: int, *, ax: Axes | None = None) -> Axes:
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
    temperatures = [level.temperature for level in history]
    temperatures.append(temperatures[-1])
    ax.step(steps, [*cells, cells[-1]], where="post", color=COLORS[0])
    ax.set_ylim(0, 1.25 * max(cells))
    ax.yaxis.label.set_color(COLORS[0])
    right = ax.twinx()
    right.step(steps, temperatures, where="post", color=COLORS[5], linestyle="--")
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


def plot_annealing(history: History, ax: Axes | None = None) -> Axes:
    """Draw how the codebook branched as the temperature fell, and below it the number K.

    The height of a codevector is its first principal component; its colour shows its class.

    Parameters
    ----------
    history : sequence of Level
        As in ``history_`` of an estimator.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure. K is drawn in new axes in its lower third.

    Returns
    -------
    matplotlib Axes
        The upper axes.

    Examples
    --------
    >>> import numpy as np
    >>> from oda_rl import ODAClusterer
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> ax = plot_annealing(ODAClusterer(4, random_state=0).fit(X).history_)
    """
    ax = ax or new_axes(6.4, 5.0)[0]
    levels = _draw_lineage(history, ax)
    ax.set_title("Annealing")
    if not levels:
        return ax
    below = make_axes_locatable(ax).append_axes("bottom", size="40%", pad=0.15, sharex=ax)
    temperatures = [level.temperature for level in levels]
    sizes = [len(level.codevectors) for level in levels]
    below.plot(temperatures, sizes, "o-", color=COLORS[0], markersize=3, linewidth=1.2)
    below.set(xlabel=ax.get_xlabel(), ylabel="codevectors K", yscale="log")
    _plain_ticks(below.yaxis, sizes)
    below.spines[["top", "right"]].set_visible(False)
    ax.set(xlabel="", ylabel="first principal component")
    ax.tick_params(labelbottom=False)
    return ax


def plot_decision_regions(
    model: Any, X: npt.ArrayLike, y: npt.ArrayLike, ax: Axes | None = None
) -> Axes:
    """Draw the regions in which a classifier of two features predicts each class, and samples.

    Codevectors far outside the samples' range are not shown.

    Parameters
    ----------
    model : classifier
        Any fitted classifier; its ``codevectors_`` are drawn if it has them.
    X : array-like, shape (n, 2)
        Samples; at most 3000 are drawn.
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
    codevectors = np.asarray(getattr(model, "codevectors_", np.empty((0, 2))))
    ranges = window_of(points, codevectors)
    regions = np.searchsorted(names, model.predict(grid(ranges)))
    draw_regions(ax, ranges, regions, class_colors(np.arange(len(names))))
    draw_points(ax, points, class_colors(np.searchsorted(names, labels)))
    if len(codevectors):
        colors = class_colors(np.searchsorted(names, model.codevector_labels_))
        draw_codevectors(ax, codevectors, _weights(model, codevectors), colors)
    name_classes(ax, names)
    return ax


def plot_clusters(model: Any, X: npt.ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw the cells and codevectors of a clusterer of two features, and samples.

    Colours only tell neighbouring cells apart.

    Parameters
    ----------
    model : clusterer
        Any fitted clusterer with ``predict`` and ``cluster_centers_``.
    X : array-like, shape (n, 2)
        Samples; at most 3000 are drawn.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    ValueError
        If X has not two features.
    """
    ax = ax or new_axes(5.6, 5.0)[0]
    points = in_plane(X)
    codevectors = np.asarray(model.cluster_centers_)
    ranges = window_of(points, codevectors)
    cells = np.asarray(model.predict(grid(ranges)), dtype=np.int64)
    colors = neighbours_apart(cells.reshape(GRID, GRID), len(codevectors))
    draw_regions(ax, ranges, cells, colors)
    draw_points(ax, points, colors[np.asarray(model.predict(points), dtype=np.int64)])
    draw_codevectors(ax, codevectors, _weights(model, codevectors), colors)
    ax.set_title(f"{len(codevectors)} clusters", loc="left")
    return ax


def plot_trade_off(
    models: Any, ax: Axes | None = None, by: Literal["clusters", "samples"] = "clusters"
) -> Axes:
    """Draw accuracy or distortion over the number of codevectors, or of samples, during annealing.

    Accuracy on training samples is drawn if every level has it, else distortion. Levels at which
    codevectors were merged have the distortion of the level before, and are left out.

    Parameters
    ----------
    models : estimator, history, or mapping of names to either
        Annealed estimators, or their ``history_``.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.
    by : {"clusters", "samples"}, default="clusters"
        The horizontal axis: the number K of codevectors, or the samples seen.

    Raises
    ------
    ValueError
        If ``by`` is anything else, or there is no level to draw.
    """
    if by not in ("clusters", "samples"):
        raise ValueError(f'by must be "clusters" or "samples", got {by!r}')
    named = models if isinstance(models, Mapping) else {"": models}
    histories = {name: getattr(model, "history_", model) for name, model in named.items()}
    if not histories or not all(map(len, histories.values())):
        raise ValueError("there is no level to draw: has the model been fitted?")
    ax = ax or new_axes()[0]
    levels = [level for history in histories.values() for level in history]
    accurate = all(getattr(level, "accuracy", None) is not None for level in levels)
    x = {"clusters": "n_clusters", "samples": "n_samples_seen"}[by]
    y = "accuracy" if accurate else "distortion"
    for i, (name, history) in enumerate(histories.items()):
        shown = history if accurate else _not_merged(history)
        points = np.array([(getattr(level, x), getattr(level, y)) for level in shown])
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
    """Write a GIF of the annealing of two features, with a frame for each temperature level.

    A codevector's area grows with its weight. Lines separate the cells; a classifier's have the
    colours of their classes.

    Parameters
    ----------
    model : ODAClusterer, ODAClassifier or ODARegressor
        Fitted to two features.
    points : array-like, shape (n, 2)
        Samples; at most 3000 are drawn.
    path : path
        File to write, atomically.
    classes : array-like, shape (n,), optional
        Classes of the samples, for their colours.
    fps : float, default=4
        Frames per second.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        If the points or the model do not have two features.
    """
    from matplotlib.animation import PillowWriter

    plane = in_plane(points)
    if model.n_features_in_ != 2:
        raise ValueError(
            f"the picture is of a plane: the model must have 2 features, not {model.n_features_in_}"
        )
    labels = [getattr(model, "classes_", []), [] if classes is None else classes]
    arrays = [row for row in map(np.asarray, labels) if len(row)]
    names = np.unique(np.concatenate(arrays or [np.zeros(0)]))
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
            artists = _draw_level(ax, model.at_level(level), window, names)
            with rc_context({"savefig.bbox": None}):  # a cropped frame has a size of its own
                writer.grab_frame()
            for artist in artists:
                artist.remove()
        writer.finish()
        with replacing(path) as target:
            target.write(file.read_bytes())
    return Path(path)


def _draw_level(ax: Axes, model: "BaseODA", window: Ranges, names: Array) -> tuple[Any, Any]:
    """Draw the codevectors of one level and their cells; return what to remove again."""
    codevectors = model.codevectors_
    colors, regions = np.full(len(codevectors), COLORS[1]), np.full(len(codevectors), _GREY)
    if hasattr(model, "classes_"):
        labels = cast(Any, model).codevector_labels_
        colors = regions = class_colors(np.searchsorted(names, labels))
    cells = model.transform(grid(window)).argmin(axis=1)
    image = draw_regions(ax, window, cells, regions)
    discs = draw_codevectors(ax, codevectors, model.weights_, colors)
    ax.set_title(f"T = {model.temperature_:.3g}, K = {len(codevectors)}", loc="left")
    return image, discs


def _weights(model: Any, codevectors: FloatArray) -> FloatArray:
    """Return the weights of the codevectors; equal ones if the model has none."""
    n = len(codevectors)
    return np.asarray(getattr(model, "weights_", np.full(n, 1.0 / n)))


def _not_merged(history: History) -> list[Any]:
    sizes = [0, *(level.n_clusters for level in history)]
    return [level for i, level in enumerate(history) if level.n_clusters >= sizes[i]]


def _plain_ticks(axis: Any, values: Sequence[float]) -> None:
    """Put ticks 1, 2, 5, 10, ... on a log axis."""
    decades = 10.0 ** np.arange(np.floor(np.log10(max(values))) + 1.0)
    ticks = np.outer(decades, [1.0, 2.0, 5.0]).ravel()
    low, high = 0.8 * min(values), 1.25 * max(values)
    axis.set_view_interval(low, high, ignore=True)
    axis.set_ticks(ticks[(ticks >= low) & (ticks <= high)])
    axis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
    axis.set_minor_locator(NullLocator())


def plot_density(model: Any, X: npt.ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw the log-density of a model of two features, and samples.

    Parameters
    ----------
    model : estimator with ``score_samples``
        Fitted: a mixture, an exemplar model, an annealed estimator, or a density of scikit-learn.
    X : array-like, shape (n, 2)
        Samples, whose range is drawn; at most 3000 are drawn.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    ValueError
        If X has not two features.
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
    points = in_plane(X)
    window = window_of(points, points)
    across, up, log_density = _log_density(model, window)
    ax = ax or new_axes(5.6, 4.8)[0]
    highest = float(log_density.max())
    levels = np.linspace(highest - _DEPTH, highest, _CONTOURS)
    ax.contourf(across, up, log_density, levels=levels, cmap="Blues", extend="min")
    draw_points(ax, points, np.full(len(points), _GREY))
    ax.set(xlim=window[0], ylim=window[1])
    ax.set_title("Log-density", loc="left")
    return ax


def _log_density(model: Any, window: Ranges) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the coordinates of a grid and the log-density there, each (GRID, GRID)."""
    places = grid(window)
    log_density = np.asarray(model.score_samples(places), dtype=np.float64)
    across, up = places.T.reshape(2, GRID, GRID)
    return across, up, log_density.reshape(GRID, GRID)


def plot_exemplar_density(
    model: "ExemplarMixture", X: npt.ArrayLike, ax: Axes | None = None
) -> Axes:
    """Draw the density and the exemplars of a model of two features, and samples.

    Parameters
    ----------
    model : INFEX, ConvexClustering or KernelVectorQuantization
        Fitted. The area of an exemplar's disc grows with its weight.
    X : array-like, shape (n, 2)
        Samples; at most 3000 are drawn.
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
    >>> ax = plot_exemplar_density(INFEX(random_state=0).fit(X), X)
    """
    ax = ax or new_axes(5.6, 5.0)[0]
    points = in_plane(X)
    window = window_of(points, model.exemplars_)
    across, up, log_density = _log_density(model, window)
    ax.contourf(across, up, np.exp(log_density), levels=_CONTOURS, cmap="Blues")
    draw_points(ax, points, np.full(len(points), _GREY))
    draw_codevectors(ax, model.exemplars_, model.weights_, np.full(len(model.weights_), COLORS[1]))
    ax.set(xlim=window[0], ylim=window[1])
    ax.set_title(f"{len(model.weights_)} exemplars", loc="left")
    return ax


def plot_component_grid(
    mixture: "SGDGaussianMixture", shape: tuple[int, int] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the mean of each component at its place on the components' grid.

    Parameters
    ----------
    mixture : SGDGaussianMixture
        Fitted.
    shape : tuple of int, optional
        Rows and columns of each mean as an image; by default a square, or one row.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    ValueError
        If ``shape`` does not fit the number of features.

    Examples
    --------
    >>> from oda_rl import SGDGaussianMixture
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data / 16.0
    >>> mixture = SGDGaussianMixture(9, batch_size=10, random_state=0)
    >>> ax = plot_component_grid(mixture.partial_fit(X))
    """
    means = np.asarray(mixture.means_, dtype=np.float64)
    side = math.isqrt(means.shape[1])
    square = (side, side) if side * side == means.shape[1] else (1, means.shape[1])
    height, width = shape or square
    if height * width != means.shape[1]:
        raise ValueError(
            f"shape is {shape}: its product must be the number of features, {means.shape[1]}"
        )
    rows, columns = mixture.grid_shape_
    picture = np.full((rows * (height + 1) - 1, columns * (width + 1) - 1), np.nan)
    for k, image in enumerate(means.reshape(-1, height, width)):
        top, left = k // columns * (height + 1), k % columns * (width + 1)
        picture[top : top + height, left : left + width] = image
    if ax is None:
        ax = new_axes(4.8, 4.8 * rows / columns + 0.4)[0]
        ax.figure.subplots_adjust(left=0.02, bottom=0.02, right=0.98, top=0.92)  # no labels
    ax.imshow(picture, cmap="gray_r", vmin=means.min(), vmax=means.max(), interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.set_title(f"Means of {len(means)} components on their grid", loc="left")
    return ax


def plot_mixture_density(
    mixture: "StreamingMixture", X: npt.ArrayLike, ax: Axes | None = None
) -> Axes:
    """Draw the log-density of a mixture of two features, samples, and an ellipse per component.

    An ellipse shows one standard deviation; it is darker for a larger weight.

    Parameters
    ----------
    mixture : SGDGaussianMixture, StochasticEMGaussianMixture or DistributedGaussianMixture
        Fitted.
    X : array-like, shape (n_samples, 2)
        Samples, whose range is drawn.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    ValueError
        If there are not two features.

    Examples
    --------
    >>> from oda_rl import SGDGaussianMixture
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> ax = plot_mixture_density(SGDGaussianMixture(4, random_state=0).fit(X), X)
    """
    ax = plot_density(mixture, X, ax)
    for mean, covariance, weight in zip(
        mixture.means_, mixture.covariances_, mixture.weights_, strict=True
    ):
        matrix = np.asarray(covariance)
        matrix = matrix if matrix.ndim == 2 else np.diag(np.broadcast_to(matrix, 2))
        values, vectors = np.linalg.eigh(matrix)
        ax.add_patch(
            Ellipse(
                (float(mean[0]), float(mean[1])),
                *(2.0 * np.sqrt(values)),
                angle=math.degrees(math.atan2(vectors[1, 0], vectors[0, 0])),
                fill=False,
                edgecolor=COLORS[1],
                alpha=0.3 + 0.7 * float(weight / mixture.weights_.max()),
            )
        )
    ax.set_title(f"Log-density of {len(mixture.weights_)} components", loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
