"""Figures of agents: learning curve, partition, metric.

They draw on a matplotlib Axes and return it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize, to_hex
from matplotlib.patches import Patch

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.environments.names import matching_parts
from oda_rl.metric import directions
from oda_rl.plotting.axes import COLORS, bordered, new_axes, padded_range, tint

if TYPE_CHECKING:
    from oda_rl.agents.training.agent import Agent


_GRID = 500
_NUMBERED = 24  # cells that have room for their number
_DIRECTIONS = 6  # shown of a metric
_WRITTEN = 60  # numbers that are written into a picture of it, at most
_WINDOW = 20
_MANY = 200  # episodes, which are drawn as small dots
_SEEN = 1.05  # as many steps as until the last end: what is beyond can be seen


def plot_learning_curve(
    episodes: FloatArray,
    *,
    solved_return: float | None = None,
    num_timesteps: int | None = None,
    delivered: FloatArray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the return of every training episode over environment steps, and a running mean.

    The mean is of 20 episodes, or of a third of them where there are few.

    Parameters
    ----------
    episodes : ndarray, shape (n, >= 2)
        Return and length of each episode, as in ``agent.episodes.curve``.
    solved_return : float, optional
        Drawn as a line.
    num_timesteps : int, optional
        Of the training: what follows the last episode's end is shown as one that has not ended.
    delivered : ndarray, shape (m,), optional
        Returns of the policy that training delivered: their mean is marked at the end, for no
        episode of training need have been played by that policy.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.
    """
    ax = ax or new_axes()[0]
    if len(episodes) == 0:
        ax.text(0.5, 0.5, "no episode was finished", ha="center", transform=ax.transAxes)
    else:
        steps = np.cumsum(episodes[:, 1])
        size = 3 if len(episodes) >= _MANY else 7
        ax.plot(steps, episodes[:, 0], ".", color="0.65", markersize=size, label="episode")
        width = min(_WINDOW, len(episodes) // 3)
        if width > 1:
            mean = np.convolve(episodes[:, 0], np.full(width, 1.0 / width), mode="valid")
            label = f"mean of {width} episodes"
            ax.plot(steps[width - 1 :], mean, color=COLORS[0], label=label)
        if num_timesteps is not None and num_timesteps > _SEEN * steps[-1]:
            ax.axvspan(steps[-1], num_timesteps, color="0.93", label="not ended", linewidth=0)
        if solved_return is not None and np.isfinite(solved_return):
            ax.axhline(solved_return, color=COLORS[2], linestyle="--", linewidth=1, label="solved")
        if delivered is not None and len(delivered):
            end = steps[-1] if num_timesteps is None else num_timesteps
            label = f"delivered policy, {len(delivered)} episodes: {delivered.mean():.4g}"
            ax.plot(end, delivered.mean(), "*", color=COLORS[1], markersize=14, label=label,
                    clip_on=False, zorder=3)  # fmt: skip
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
    """Draw the cells in a plane of the observation space, coloured by the action taken there.

    Parameters
    ----------
    agent : Agent
        The policy to draw.
    dimensions : (int, int), optional
        Components on the horizontal and the vertical axis; by default the last two.
    visited : ndarray, shape (n, d), optional
        Observations to draw on top; the plane goes through their median.
    names : sequence of str, optional
        Names of all components of the observation.
    action_names : sequence of str, optional
        Names of the actions; unused where these are one continuous component, of which a bar shows
        the values.
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
    n_actions = agent.policy.n_actions
    shaded = agent.interface.n_components == 1
    beside = n_actions > 3 and not shaded  # names of more actions do not fit above
    if ax is None:
        ax = new_axes(8.0 if beside else 6.4, 5.0)[0]
        ax.figure.subplots_adjust(bottom=0.2)  # for what is said below
        if beside:
            ax.figure.subplots_adjust(right=1.0 - 1.7 / 8.0)
    codevectors = agent.codevectors
    seen = codevectors if visited is None or len(visited) == 0 else visited
    middle = np.median(seen, axis=0)
    ranges = [_shown_range(seen[:, j], codevectors[:, j]) for j in (first, second)]
    cells, actions = _plane(agent, middle, (first, second), ranges, shaded)
    colors = _colors(n_actions)
    if shaded:
        picture = _bar(agent, ax).to_rgba(actions, bytes=True)[:, :, :3].copy()
    else:
        picture = np.array([tint(color) for color in colors])[actions]
        _name_actions(ax, agent, action_names, colors, beside)
    ax.imshow(
        bordered(cells, picture),
        origin="lower",
        extent=(*ranges[0], *ranges[1]),
        aspect="auto",
        interpolation="nearest",
    )
    if visited is not None:
        ax.plot(visited[:, first], visited[:, second], ".", color="black", markersize=1, alpha=0.4)
    places = codevectors[:, [first, second]]
    _draw_places(places, ax)
    names = names or [f"observation[{j}]" for j in range(d)]
    ax.set(
        xlabel=names[first],
        ylabel=names[second],
        xlim=ranges[0],
        ylim=ranges[1],
    )
    plural = "s" * (len(codevectors) > 1)
    ax.set_title(f"{len(codevectors)} cell{plural}", loc="left")
    low, high = np.array(ranges).T
    beyond = int(((places < low) | (places > high)).any(axis=1).sum())
    _say_what_is_drawn(ax, len(places), beyond, visited is not None, plane=d > 2)
    return ax


def _shown_range(seen: FloatArray, codevectors: FloatArray) -> tuple[float, float]:
    """Return an axis' range: what is there but for outliers; of few codevectors all."""
    ends = (0.05, 0.95) if len(codevectors) > _NUMBERED else (0.0, 1.0)
    usual = [*np.quantile(seen, (0.005, 0.995)), *np.quantile(codevectors, ends)]
    return padded_range(np.array(usual))


def _say_what_is_drawn(ax: Axes, n_cells: int, beyond: int, visited: bool, plane: bool) -> None:
    """Say below the picture what dots are, and which plane it is."""
    many = n_cells > _NUMBERED
    outside = f" ({beyond} beyond the picture)" if beyond else ""
    told = f"{'white dots' if many else 'numbers'}: centres of the cells{outside}"
    if visited:
        told += "; black: states visited"
    if plane:
        told += "\ncolours: what is done where all other components are at their median"
    ax.annotate(told, (0.0, 0.0), xycoords="axes fraction", xytext=(0, -34),
                textcoords="offset points", fontsize=8, color="0.35", va="top")  # fmt: skip


def _colors(n_actions: int) -> list[str]:
    """Return a colour for each action."""
    if n_actions <= len(COLORS):
        return list(COLORS)
    return [to_hex(color) for color in colormaps["viridis"](np.linspace(0, 1, n_actions))]


def _name_actions(
    ax: Axes, agent: "Agent", names: Sequence[str] | None, colors: Sequence[str], beside: bool
) -> None:
    """Draw the actions' names with their colours, above the picture or beside it."""
    policy, first = agent.policy, agent.interface.first_action
    labels = names or [f"{policy.choice_name} {first + a}" for a in range(policy.n_actions)]
    ax.legend(
        handles=[
            Patch(color="#{:02x}{:02x}{:02x}".format(*tint(color)), label=label)
            for color, label in zip(colors, labels, strict=False)
        ],
        loc="upper left" if beside else "lower right",
        bbox_to_anchor=(1.01, 1.0) if beside else (1.0, 1.0),
        ncols=1 if beside else policy.n_actions,
        frameon=False,
    )


def _bar(agent: "Agent", ax: Axes) -> ScalarMappable:
    """Draw the values of an action's one component as a bar beside the picture."""
    box = agent.interface.box
    assert box is not None
    light = 0.5 + 0.5 * colormaps["RdBu_r"](np.linspace(0.1, 0.9, 256))
    shades = ScalarMappable(Normalize(box.low[0], box.high[0]), ListedColormap(light))
    (label,) = matching_parts(agent.env_id, agent.interface) or ["action"]
    ax.figure.colorbar(shades, ax=ax, label=label)
    return shades


def _draw_places(places: FloatArray, ax: Axes) -> None:
    """Draw the codevectors' numbers, or dots if there are many."""
    for k, place in enumerate(places):
        if len(places) > _NUMBERED:
            ax.plot(*place, "o", color="white", markersize=3, markeredgecolor="0.3",
                    markeredgewidth=0.5)  # fmt: skip
            continue
        ax.annotate(
            str(k),
            (place[0], place[1]),
            ha="center",
            va="center",
            fontsize=8,
            bbox={"boxstyle": "circle,pad=0.2", "facecolor": "white", "edgecolor": "0.3"},
        )


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
        raise ValueError(
            "agent.metric_ is None: the agent has to learn for some steps first, or is of a kind "
            "that learns no metric; plot_policy(overview(agent)) shows what it does"
        )
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


def _plane(
    agent: "Agent",
    middle: FloatArray,
    dimensions: tuple[int, int],
    ranges: Sequence[tuple[float, float]],
    shaded: bool,
) -> tuple[IntArray, npt.NDArray[Any]]:
    """Return cells and choices of a grid of points through ``middle``, both (grid, grid).

    Rows go up. If shaded, not choices, but the one component of the action.
    """
    across, up = (np.linspace(low, high, _GRID) for low, high in ranges)
    cells = np.empty((_GRID, _GRID), dtype=np.int64)
    actions = np.empty((_GRID, _GRID), dtype=np.float64 if shaded else np.int64)
    row, policy = np.tile(middle, (_GRID, 1)), agent.policy
    row[:, dimensions[0]] = across
    for i, height in enumerate(up):
        row[:, dimensions[1]] = height
        cells[i] = policy.cells(row)
        if shaded:
            actions[i] = agent.interface.actions(policy.act(row)).ravel()
        else:
            actions[i] = policy.choices(row)
    return cells, actions
