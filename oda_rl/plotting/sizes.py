"""The figure of what rules of more and fewer cells return. It draws on a matplotlib Axes."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from oda_rl.plotting.axes import COLORS, new_axes

if TYPE_CHECKING:
    from oda_rl._types import FloatArray
    from oda_rl.agents.distilling.distil import Distilled

_ERRORS = 1.96  # standard errors to either side: 95 %


def plot_sizes(found: "Distilled", *, ax: Axes | None = None) -> Axes:
    """Draw what rules return over the number of their cells, beside their teacher.

    Means of episodes from common starts, with intervals of 95 %.

    Parameters
    ----------
    found : Distilled
        With a curve: no number of cells was given.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    ValueError
        If there is no curve.
    """
    shown = [one for one in found.curve if len(one.returns)]
    if not shown:
        raise ValueError("found.curve is empty: distill without n_cells, with more steps")
    ax = ax or new_axes()[0]
    if len(found.taught):
        mean, error = _interval(found.taught)
        ax.axhspan(mean - error, mean + error, color="0.9", linewidth=0)
        ax.axhline(mean, color="0.5", linewidth=1, linestyle="--", label="its teacher")
    sizes = [one.n_cells for one in shown]
    means, errors = np.array([_interval(one.returns) for one in shown]).T
    ax.errorbar(sizes, means, errors, color=COLORS[0], marker="o", markersize=4, capsize=3,
                linewidth=1.2, label="rule")  # fmt: skip
    for one, mean in zip(shown, means, strict=True):
        if one.policy is found.policy:
            ax.plot(one.n_cells, mean, "o", markersize=11, markerfacecolor="none",
                    markeredgecolor=COLORS[5], markeredgewidth=1.5, label="taken")  # fmt: skip
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(sizes))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.set(xlabel="cells, at most", ylabel="return")
    ax.set_title("What a rule of so many cells returns", loc="left")
    ax.legend(frameon=False, loc="best")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _interval(returns: "FloatArray") -> tuple[float, float]:
    """Return mean, and half the width of its interval; 0 of fewer than two."""
    n = len(returns)
    spread = float(returns.std(ddof=1)) if n > 1 else 0.0
    return float(returns.mean()), _ERRORS * spread / n**0.5
