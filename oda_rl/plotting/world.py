"""The figure of a learned world: what it makes of a real episode. It draws on a matplotlib Axes."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from oda_rl._types import FloatArray
from oda_rl.plotting.axes import COLORS, new_axes, padded_range
from oda_rl.plotting.shown import MOST_COMPONENTS

if TYPE_CHECKING:
    from oda_rl.agents.worlds.world import World

_COLUMNS = 2
_LABEL = 24  # letters in a line of a label
_AROUND = 0.5  # of the real line's height, which is shown above and below it


def plot_world(
    world: "World",
    *,
    steps: int = 100,
    names: Sequence[str] | None = None,
    seed: int | None = 0,
    ax: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draw a real episode, and what a model that has not seen it makes of the same actions.

    Parameters
    ----------
    world : oda_rl.agents.worlds.world.World
        ``agent.world``.
    steps : int
        Of the episode, at most.
    names : sequence of str, optional
        Names of all components of the observation; by default those of known environments.
    seed : int, optional
        Of the model without the episode.
    ax : sequence of matplotlib Axes, optional
        Where to draw, one for each component; by default on a new figure. At most 12 are drawn:
        those that change most.

    Returns
    -------
    list of matplotlib Axes

    Raises
    ------
    ValueError
        If there are not as many names, or axes, as there should be.
    """
    real, imagined = world.replayed(steps, seed)
    labels = world.checked_names(names)
    spread = np.ptp(real, axis=0) / world.learned.at.scale
    shown = sorted(np.argsort(-spread, kind="stable")[:MOST_COMPONENTS].tolist())
    axes = _panels(len(shown)) if ax is None else list(ax)
    if len(axes) != len(shown):
        raise ValueError(f"ax has {len(axes)} axes: there must be {len(shown)}, one a component")
    label = "imagined, with the same actions"
    for panel, j in zip(axes, shown, strict=True):
        panel.plot(real[:, j], color="0.75", linewidth=4.0, label="real")
        panel.plot(imagined[:, j], color=COLORS[0], linewidth=1.2, label=label)
        panel.set_ylabel(textwrap.fill(labels[j], _LABEL), fontsize=9)
        panel.set(xlim=(0, len(real) - 1), ylim=_range(real[:, j], imagined[:, j]))
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes[-_COLUMNS:]:
        panel.set_xlabel("steps")
    axes[0].legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    return axes


def _range(real: FloatArray, imagined: FloatArray) -> tuple[float, float]:
    """Return what is shown: all of the real line, and of the imagined one what is near."""
    low, high = float(real.min()), float(real.max())
    near = np.clip(imagined, low - _AROUND * (high - low), high + _AROUND * (high - low))
    return padded_range(np.concatenate([real, near]))


def _panels(count: int) -> list[Axes]:
    """Return so many axes in two columns; what is left over is taken away."""
    rows = -(-count // _COLUMNS)
    columns = min(count, _COLUMNS)
    height = 1.9 * rows + 0.9
    axes = new_axes(4.2 * columns, height, columns, rows)
    axes[0].figure.subplots_adjust(hspace=0.35, wspace=0.35)
    for panel in axes[count:]:
        panel.remove()
    return axes[:count]
