"""The figure of a policy: a row for each cell. It draws on a matplotlib Axes and returns it."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from oda_rl.agents.policies.explaining import value_text
from oda_rl.plotting.axes import COLORS, new_axes, tint
from oda_rl.plotting.shown import MOST_ACTIONS, shown_components

if TYPE_CHECKING:
    from oda_rl.agents.policies.explaining import Overview

_ROWS = 10  # what people read
_GAP = 0.3  # between the parts of a picture of a policy, in columns
_BARS = 2.4  # columns that bars take
_HEADING = 12  # letters in a line of a heading
_MOST_DEVIATIONS = 3.0  # that have a colour of their own


def plot_policy(policy: "Overview", *, ax: Axes | None = None) -> Axes:
    """Draw a policy as a table: a row for each cell, those that are visited most first.

    From left to right: codevectors, coloured by how many standard deviations they are from the mean
    of the states visited; the value of each action, the best in the action's colour, and by how
    much that is better than the next (the margin); and the share of the states visited, or if none
    were given, how often the agent has learned from the cell.

    Parameters
    ----------
    policy : oda_rl.agents.policies.explaining.Overview
        As ``oda_rl.agents.policies.explaining.overview`` returns it. At most 10 cells are drawn.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.
    """
    n, components = min(len(policy.cells), _ROWS), shown_components(policy)
    n_values = len(policy.action_names) if len(policy.action_names) <= MOST_ACTIONS else 1
    first_value = len(components) + _GAP
    has_margins = bool(np.isfinite(policy.margins[:n]).any())
    first_bar = first_value + n_values + has_margins + _GAP
    if ax is None:
        width, height = 0.9 + 0.85 * (first_bar + _BARS), 0.27 * n + 1.9
        ax = new_axes(width, height)[0]
        ax.figure.subplots_adjust(
            left=0.8 / width, right=1 - 0.1 / width, bottom=0.85 / height, top=1 - 1.05 / height
        )
    _draw_codevectors(policy, n, components, ax)
    _draw_values(policy, n, first_value, ax)
    if has_margins:
        for i in range(n):
            margin = policy.margins[i]
            text = f"{margin:.2g}" if np.isfinite(margin) else ""
            _write(ax, first_value + n_values + 0.5, i, text, "black")
    unit = _draw_bars(policy, n, first_bar, ax)
    headings = [policy.names[j] for j in components]
    if len(policy.action_names) > MOST_ACTIONS:
        headings.append("best action")
    else:
        headings += [f"{policy.value_name} of {name}" for name in policy.action_names]
    places = [j + 0.5 for j in range(len(components))]
    headings += ["margin"] * has_margins
    places += [first_value + a + 0.5 for a in range(n_values + has_margins)]
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
    bar = figure.colorbar(
        image, cax=place, orientation="horizontal", extend=ends, ticks=MaxNLocator(5)
    )
    bar.set_label("codevector, standard deviations from the mean state", fontsize=8, loc="left")
    bar.ax.tick_params(labelsize=7)


def _draw_values(policy: "Overview", n: int, left: float, ax: Axes) -> None:
    """Write the value of each action, or the best action's name where there are many."""
    for i in range(n):
        best = int(policy.actions[i])
        if len(policy.action_names) > MOST_ACTIONS:
            texts = {best: policy.action_names[best]}
        else:
            texts = dict(enumerate(map(value_text, policy.q_values[i])))
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
    return "#{:02x}{:02x}{:02x}".format(*tint(color))
