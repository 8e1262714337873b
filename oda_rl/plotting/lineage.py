"""Figures of an annealing: how cells came from cells, and how many there were when.

They draw on a matplotlib Axes and return it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from matplotlib.axes import Axes

from oda_rl._types import FloatArray
from oda_rl.plotting.axes import COLORS, new_axes

if TYPE_CHECKING:
    from oda_rl.agents.engine.history import Level


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
