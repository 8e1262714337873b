"""Every figure of the package: one function each, drawing on a matplotlib Axes and returning it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from oda_rl.metric import directions

if TYPE_CHECKING:
    from oda_rl.agents.base import Agent
    from oda_rl.agents.history import Level

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Okabe and Ito's colours, which people with colour-blindness can tell apart.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
_GRID = 500
_NUMBERED = 24  # cells that have room for their number
_DIRECTIONS = 6  # shown of a metric
_WRITTEN = 60  # numbers that are written into a picture of it, at most
_WINDOW = 20
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


def new_axes(
    width: float = 6.4, height: float = 4.2, columns: int = 1, rows: int = 1
) -> list[Axes]:
    """Axes beside one another in a new figure that no window shows.

    The margins, in inches, are fixed: a layout engine would draw everything twice.
    """
    figure = Figure(figsize=(width, height))
    figure.subplots_adjust(
        left=0.8 / width,
        right=1.0 - (0.2 if columns == 1 else 0.8) / width,
        bottom=0.6 / height,
        top=1.0 - 0.4 / height,
        wspace=0.3,
    )
    return list(figure.subplots(rows, columns, squeeze=False).ravel())


def plot_learning_curve(
    episodes: FloatArray, *, solved_return: float | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the return of every training episode over environment steps, and a running mean.

    Parameters
    ----------
    episodes : ndarray, shape (n, >= 2)
        Return and length of each episode, as in ``agent.episodes.rows``.
    solved_return : float, optional
        Drawn as a line.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.
    """
    ax = ax or new_axes()[0]
    if len(episodes) == 0:
        ax.text(0.5, 0.5, "no episode was finished", ha="center", transform=ax.transAxes)
    else:
        steps = np.cumsum(episodes[:, 1])
        ax.plot(steps, episodes[:, 0], ".", color="0.65", markersize=3, label="episode")
        width = min(_WINDOW, len(episodes))
        mean = np.convolve(episodes[:, 0], np.full(width, 1.0 / width), mode="valid")
        label = f"mean of {width} episodes"
        ax.plot(steps[width - 1 :], mean, color=COLORS[0], label=label)
        if solved_return is not None and np.isfinite(solved_return):
            ax.axhline(solved_return, color=COLORS[2], linestyle="--", linewidth=1, label="solved")
        ax.legend(frameon=False, loc="best")
    ax.set(xlabel="environment steps", ylabel="return", title="Training episodes")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_partition(
    agent: "Agent",
    dimensions: tuple[int, int] | None = None,
    *,
    visited: FloatArray | None = None,
    names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the cells in a plane of the observation space, coloured by their greedy action.

    Parameters
    ----------
    agent : FittedQAgent or TwoTimescaleAgent
        The policy to draw.
    dimensions : (int, int), optional
        Components on the horizontal and the vertical axis; by default the last two.
    visited : ndarray, shape (n, d), optional
        Observations to draw on top; the plane goes through their median.
    names : sequence of str, optional
        Names of all components of the observation.
    action_names : sequence of str, optional
        Names of the actions.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    ValueError
        If the observation has fewer than two components.
    """
    d = agent.interface.n_features
    if d < 2:
        raise ValueError(f"the observation has {d} component: a plane takes at least 2")
    first, second = (d - 2, d - 1) if dimensions is None else dimensions
    ax = ax or new_axes(6.4, 5.0)[0]
    codevectors = agent.codevectors
    seen = codevectors if visited is None or len(visited) == 0 else visited
    middle = np.median(seen, axis=0)
    ranges = [_range(np.concatenate([seen[:, j], codevectors[:, j]])) for j in (first, second)]
    cells, actions = _plane(agent, middle, (first, second), ranges)
    n_actions = agent.interface.n_actions
    colors = [COLORS[a % len(COLORS)] for a in range(n_actions)]
    ax.imshow(
        _picture(cells, np.array([_tint(color) for color in colors])[actions]),
        origin="lower",
        extent=(*ranges[0], *ranges[1]),
        aspect="auto",
        interpolation="nearest",
    )
    if visited is not None:
        ax.plot(visited[:, first], visited[:, second], ".", color="black", markersize=1, alpha=0.4)
    for k, codevector in enumerate(codevectors):
        if len(codevectors) > _NUMBERED:
            ax.plot(codevector[first], codevector[second], "o", color="white", markersize=3,
                    markeredgecolor="0.3", markeredgewidth=0.5)  # fmt: skip
            continue
        ax.annotate(
            str(k),
            (codevector[first], codevector[second]),
            ha="center",
            va="center",
            fontsize=8,
            bbox={"boxstyle": "circle,pad=0.2", "facecolor": "white", "edgecolor": "0.3"},
        )
    labels = action_names or [
        f"action {agent.interface.first_action + a}" for a in range(n_actions)
    ]
    ax.legend(
        handles=[
            Patch(color="#{:02x}{:02x}{:02x}".format(*_tint(color)), label=label)
            for color, label in zip(colors, labels, strict=True)
        ],
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=n_actions,
        frameon=False,
    )
    names = names or [f"observation[{j}]" for j in range(d)]
    ax.set(
        xlabel=names[first],
        ylabel=names[second],
        xlim=ranges[0],
        ylim=ranges[1],
    )
    cut = "" if d == 2 else ", cut at the others' median"
    ax.set_title(f"{len(codevectors)} cells{cut}", loc="left")
    return ax


def plot_metric(
    agent: "Agent", *, names: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw which directions of the state matter: the metric's eigenvectors and their shares.

    Parameters
    ----------
    agent : FittedQAgent or TwoTimescaleAgent
        One that has a metric.
    names : sequence of str, optional
        Names of all components of the observation.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    ValueError
        If the agent has not learned a metric yet.
    """
    matrix, scale = agent.metric_, agent.scale_
    if matrix is None or scale is None:
        raise ValueError("agent.metric_ is None: the agent has to learn for some steps first")
    shares, vectors = directions(matrix, scale)
    shown = min(len(shares), _DIRECTIONS)
    names = names or [f"observation[{j}]" for j in range(len(scale))]
    if ax is None:
        ax = new_axes(7.4, 0.42 * len(names) + 1.9)[0]
        ax.figure.subplots_adjust(left=0.32, right=0.99)  # long names
    image = ax.imshow(vectors[:shown].T, cmap="RdBu_r", vmin=-1.0, vmax=1.0, aspect="auto")
    if len(names) * shown <= _WRITTEN:
        for i, j in np.ndindex(shown, len(names)):
            color = "white" if abs(vectors[i, j]) > 0.6 else "black"
            ax.text(i, j, f"{vectors[i, j]:.2f}", ha="center", va="center", color=color, fontsize=8)
    ax.set_xticks(range(shown), [f"{100.0 * share:.1f} %" for share in shares[:shown]])
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel("directions, by their share of the metric")
    ax.set_title("What the value depends on", loc="left")
    ax.figure.colorbar(image, ax=ax, label="per standard deviation", shrink=0.9)
    return ax


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
    if not levels or levels[-1].temperature <= 0.0:
        ax.text(0.5, 0.5, "annealing has not begun", ha="center", transform=ax.transAxes)
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


def _plane(
    agent: "Agent",
    middle: FloatArray,
    dimensions: tuple[int, int],
    ranges: Sequence[tuple[float, float]],
) -> tuple[IntArray, IntArray]:
    """Cells and actions of a grid of points through ``middle``, both (grid, grid); rows go up."""
    across, up = (np.linspace(low, high, _GRID) for low, high in ranges)
    cells, actions = np.empty((2, _GRID, _GRID), dtype=np.int64)
    row = np.tile(middle, (_GRID, 1))
    row[:, dimensions[0]] = across
    for i, height in enumerate(up):
        row[:, dimensions[1]] = height
        observations = row.reshape(_GRID, *agent.interface.observation_shape)
        cells[i], actions[i] = agent.cell(observations), agent.predict(observations)[0]
    return cells, actions - agent.interface.first_action


def _tint(color: str) -> npt.NDArray[np.uint8]:
    """Return a light version of a colour, as RGB from 0 to 255."""
    rgb = 0.5 * np.array(to_rgb(color)) + 0.5
    return np.round(255.0 * rgb).astype(np.uint8)


def _picture(cells: IntArray, colors: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Draw white lines between cells into a picture, shape (grid, grid, 3)."""
    picture = colors
    for shift in (1, 2):  # lines of two pixels
        picture[:, shift:][cells[:, shift:] != cells[:, :-shift]] = 255
        picture[shift:][cells[shift:] != cells[:-shift]] = 255
    return picture


def _range(values: FloatArray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.1 * (high - low) if high > low else max(abs(low), 1.0) * 0.1
    return low - margin, high + margin


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
