"""The figure of what has changed between policies. It draws on a matplotlib Axes and returns it."""

import textwrap
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from oda_rl.plotting.axes import COLORS, new_axes, padded_range

if TYPE_CHECKING:
    from oda_rl.agents.reviewing.diff import Difference

_LABEL = 70  # letters in a line of a label


def plot_difference(difference: "Difference", *, ax: Axes | None = None) -> Axes:
    """Draw the states in which two policies decide differently among those in which they do not.

    In the plane of the two components that tell most, with the region that the words name, as far
    as that is bounded in them.

    Parameters
    ----------
    difference : oda_rl.agents.reviewing.diff.Difference
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.
    """
    axes = new_axes(6.0, 4.4)[0] if ax is None else ax
    states, differs = difference.states, difference.differs
    first, second = _plane(difference)
    for rows, color, label in (
        (~differs, "0.8", "decide alike"),
        (differs, COLORS[5], f"decide differently ({difference.share:.1%})"),
    ):
        axes.scatter(
            states[rows, first], states[rows, second], s=6, color=color, label=label, linewidths=0
        )
    low_x, high_x = padded_range(states[:, first])
    low_y, high_y = padded_range(states[:, second])
    ends = {first: [low_x, high_x], second: [low_y, high_y]}
    shown = [bound for bound in difference.region.bounds if bound[0] in ends]
    for j, side, value in shown:
        ends[j][int(side == "<")] = value
    if shown:
        (left, right), (bottom, top) = ends[first], ends[second]
        frame = Rectangle(
            (left, bottom), right - left, top - bottom, fill=False, edgecolor="0.2", linewidth=1.2,
            label=textwrap.fill(difference.region.said(difference.names), _LABEL),
        )  # fmt: skip
        axes.add_patch(frame)
    axes.set(
        xlim=(low_x, high_x), ylim=(low_y, high_y),
        xlabel=difference.names[first], ylabel=difference.names[second],
    )  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=1,
        borderaxespad=0.2,
    )  # fmt: skip
    if ax is None:
        axes.figure.subplots_adjust(top=0.82)
    return axes


def _plane(difference: "Difference") -> tuple[int, int]:
    """Return the two components to draw: those of the region, then those that tell most."""
    states, differs = difference.states, difference.differs
    named = list(dict.fromkeys(j for j, _, _ in difference.region.bounds))
    if differs.any() and not differs.all():
        gap = np.abs(states[differs].mean(axis=0) - states[~differs].mean(axis=0))
    else:
        gap = np.zeros(states.shape[1])
    order = np.argsort(-gap / np.maximum(states.std(axis=0), 1e-300), kind="stable").tolist()
    first, second, *_ = [*dict.fromkeys([*named, *order]), 0, 0]
    return first, second
