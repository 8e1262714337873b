"""Every figure of the package: one function each, drawing on a matplotlib Axes and returning it."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from oda_rl.command.report import MOST_ACTIONS, MOST_ROWS, shown_components
from oda_rl.metric import directions

if TYPE_CHECKING:
    from oda_rl.agents.engine.agent import Agent
    from oda_rl.agents.engine.history import Level
    from oda_rl.agents.policies.explaining import Overview

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
_GAP = 0.3  # between the parts of a picture of a policy, in columns
_BARS = 2.4  # columns that bars take
_HEADING = 12  # letters in a line of a heading
_MOST_DEVIATIONS = 3.0  # that have a colour of their own


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
    n_actions = agent.interface.n_actions
    beside = n_actions > 3  # names of more actions do not fit above
    if ax is None:
        ax = new_axes(8.0 if beside else 6.4, 5.0)[0]
        if beside:
            ax.figure.subplots_adjust(right=1.0 - 1.7 / 8.0)
    codevectors = agent.codevectors
    seen = codevectors if visited is None or len(visited) == 0 else visited
    middle = np.median(seen, axis=0)
    ranges = [_range(np.concatenate([seen[:, j], codevectors[:, j]])) for j in (first, second)]
    cells, actions = _plane(agent, middle, (first, second), ranges)
    colors = list(COLORS)
    if n_actions > len(COLORS):
        colors = [to_hex(color) for color in colormaps["viridis"](np.linspace(0, 1, n_actions))]
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
            for color, label in zip(colors, labels, strict=False)
        ],
        loc="upper left" if beside else "lower right",
        bbox_to_anchor=(1.01, 1.0) if beside else (1.0, 1.0),
        ncols=1 if beside else n_actions,
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


def plot_policy(policy: "Overview", *, ax: Axes | None = None) -> Axes:
    """Draw a policy as a table: a row for each cell, those that are visited most first.

    From left to right: codevectors, coloured by how many standard deviations they are from the mean
    of the states visited; the value of each action, the best in the action's colour; and the share
    of the states visited, or if none were given, how often the agent has learned from the cell.

    Parameters
    ----------
    policy : oda_rl.agents.policies.explaining.Overview
        As ``oda_rl.agents.policies.explaining.overview`` returns it. At most 40 cells are drawn.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.
    """
    n, components = min(len(policy.cells), MOST_ROWS), shown_components(policy)
    n_values = len(policy.action_names) if len(policy.action_names) <= MOST_ACTIONS else 1
    first_value = len(components) + _GAP
    first_bar = first_value + n_values + _GAP
    if ax is None:
        width, height = 0.9 + 0.85 * (first_bar + _BARS), 0.27 * n + 1.9
        ax = new_axes(width, height)[0]
        ax.figure.subplots_adjust(
            left=0.8 / width, right=1 - 0.1 / width, bottom=0.85 / height, top=1 - 1.05 / height
        )
    _draw_codevectors(policy, n, components, ax)
    _draw_values(policy, n, first_value, ax)
    unit = _draw_bars(policy, n, first_bar, ax)
    headings = [policy.names[j] for j in components]
    if len(policy.action_names) > MOST_ACTIONS:
        headings.append("best action")
    else:
        headings += [f"value of {name}" for name in policy.action_names]
    places = [j + 0.5 for j in range(len(components))]
    places += [first_value + a + 0.5 for a in range(n_values)]
    ax.set_xticks(places, [_wrapped(heading) for heading in headings], fontsize=8)
    ax.annotate(
        unit,
        (first_bar, 1.0),
        xycoords=ax.get_xaxis_transform(),
        xytext=(0, 4),
        textcoords="offset points",
        fontsize=8,
    )
    ax.set_yticks(np.arange(n) + 0.5, [f"cell {cell}" for cell in policy.cells[:n]], fontsize=8)
    ax.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    ax.set(xlim=(0.0, first_bar + _BARS), ylim=(n, 0.0), aspect="auto")
    ax.spines[:].set_visible(False)
    title = f"Policy: {n} cell{'s' * (n > 1)}"
    if len(policy.cells) > n:
        title = f"Policy: the {n} of {len(policy.cells)} cells that are visited most"
    ax.annotate(
        title,
        (0.0, 1.0),
        xycoords="axes fraction",
        xytext=(0, 56),
        textcoords="offset points",
        fontsize=12,
    )
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


def _draw_codevectors(policy: "Overview", n: int, components: Sequence[int], ax: Axes) -> None:
    """Draw a square for each cell and component, and the colours' bar below."""
    codevectors = policy.codevectors[:n, components]
    deviations = (codevectors - policy.mean[components]) * policy.scale[components]
    limit = float(np.clip(np.abs(deviations).max(), 1.0, _MOST_DEVIATIONS))
    image = ax.imshow(
        deviations,
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        extent=(0.0, len(components), n, 0.0),
        aspect="auto",
    )
    for i, j in np.ndindex(*codevectors.shape):
        color = "white" if abs(deviations[i, j]) > 0.6 * limit else "black"
        _write(ax, j + 0.5, i, f"{codevectors[i, j]:.3g}", color)
    box = ax.get_position()
    figure = ax.figure
    inch = 1.0 / figure.get_figheight()  # type: ignore[union-attr]
    length = max(2.2, 0.6 * len(components)) / figure.get_figwidth()  # type: ignore[union-attr]
    place = figure.add_axes((box.x0, box.y0 - 0.3 * inch, length, 0.12 * inch))
    ends = "both" if np.abs(deviations).max() > limit else "neither"
    bar = figure.colorbar(image, cax=place, orientation="horizontal", extend=ends)
    bar.set_label("codevector, standard deviations from the mean state", fontsize=8, loc="left")
    bar.ax.tick_params(labelsize=7)


def _draw_values(policy: "Overview", n: int, left: float, ax: Axes) -> None:
    """Write the value of each action, or the best action's name where there are many."""
    for i in range(n):
        best = int(policy.actions[i])
        if len(policy.action_names) > MOST_ACTIONS:
            texts = {best: policy.action_names[best]}
        else:
            texts = {a: f"{value:.4g}" for a, value in enumerate(policy.q_values[i])}
        for column, (action, text) in enumerate(texts.items()):
            color = COLORS[action % len(COLORS)] if action == best else "white"
            corner, fill = (left + column, i), _light(color)
            ax.add_patch(Rectangle(corner, 1.0, 1.0, facecolor=fill, edgecolor="white"))
            weight = "bold" if action == best else "normal"
            _write(ax, left + column + 0.5, i, text, "black" if action == best else "0.45", weight)


def _draw_bars(policy: "Overview", n: int, left: float, ax: Axes) -> str:
    """Draw how often the cells are visited, in their actions' colours; return what of."""
    known = not np.isnan(policy.shares).any()
    numbers = policy.shares if known else policy.visits
    longest = max(float(numbers[:n].max()), 1e-300)
    for i in range(n):
        length = (_BARS - 0.8) * numbers[i] / longest
        color = COLORS[policy.actions[i] % len(COLORS)]
        ax.add_patch(Rectangle((left, i + 0.15), length, 0.7, facecolor=color, linewidth=0))
        text = f"{100.0 * numbers[i]:.1f} %" if known else f"{numbers[i]:,.0f}"
        ax.text(left + length + 0.06, i + 0.5, text, va="center", fontsize=8)
    return "states visited" if known else "learned from"


def _write(ax: Axes, x: float, row: int, text: str, color: str, weight: str = "normal") -> None:
    ax.text(x, row + 0.5, text, ha="center", va="center", color=color, fontsize=8, weight=weight)


def _wrapped(heading: str) -> str:
    """Break a heading into lines, ``observation[10]`` too."""
    return textwrap.fill(heading.replace("[", " ["), _HEADING, break_long_words=False)


def _light(color: str) -> str:
    """Return the light version of a colour that partitions are drawn with."""
    return "#{:02x}{:02x}{:02x}".format(*_tint(color))


def _plane(
    agent: "Agent",
    middle: FloatArray,
    dimensions: tuple[int, int],
    ranges: Sequence[tuple[float, float]],
) -> tuple[IntArray, IntArray]:
    """Cells and actions of a grid of points through ``middle``, both (grid, grid); rows go up."""
    across, up = (np.linspace(low, high, _GRID) for low, high in ranges)
    cells, actions = np.empty((2, _GRID, _GRID), dtype=np.int64)
    row, policy = np.tile(middle, (_GRID, 1)), agent.policy
    row[:, dimensions[0]] = across
    for i, height in enumerate(up):
        row[:, dimensions[1]] = height
        cells[i], actions[i] = policy.cells(row), policy.choices(row)
    return cells, actions


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
