"""Figures of agents and policies: learning curves, cells, differences, rollouts."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize, to_hex
from matplotlib.patches import Patch, Rectangle

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.policies.explaining import choice_names
from oda_rl.metric import directions
from oda_rl.plotting.axes import (
    COLORS,
    INK,
    as_label,
    bordered,
    checked,
    draw_picture,
    new_axes,
    padded_range,
    tint,
)
from oda_rl.runs.statistics import mean_interval

if TYPE_CHECKING:
    from oda_rl.agents.base.agent import Agent
    from oda_rl.agents.policies.explaining import Overview
    from oda_rl.agents.review import Difference
    from oda_rl.agents.worlds.world import World


MAX_ROWS = 40  # cells in a table of a policy
MAX_COMPONENTS = 12  # components of the observation shown
MAX_ACTIONS = 8  # with more actions only the best is shown
_MAX_DIRECTIONS = 6  # of a metric
_MAX_NUMBERS = 60  # written into the picture of a metric
_MAX_NUMBERED = 24  # with more cells dots replace numbers
_GRID = 500
_COARSE, _MAX_PLANES, _MAX_LEVELS, _TIE = 24, 6, 8, 1e-6  # of planes to choose among
_VARIED = 0.5  # share of the maximum entropy of the actions in a picture
_WINDOW = 20  # episodes in a running mean
_MANY = 200  # episodes; from there on dots are small
_VISIBLE = 1.05  # an unfinished episode is shown if training was longer by this factor
_COLUMNS = 2  # of panels of a rollout
_MAX_LINES = 6  # components in a drawing of an episode
_AROUND = 0.5  # margin around the real line, as a share of its height


def shown_components(policy: "Overview", n: int | None = None) -> list[int]:
    """Return the indices of components to show: those in which codevectors vary most."""
    spread = policy.codevectors.std(axis=0) * policy.scale
    return sorted(np.argsort(-spread, kind="stable")[: MAX_COMPONENTS if n is None else n].tolist())


def plot_learning_curve(
    episodes: FloatArray,
    *,
    solved_return: float | None = None,
    num_timesteps: int | None = None,
    delivered: FloatArray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the return of every training episode over environment steps, and a running mean.

    The mean is of 20 episodes, or of a third of them if there are fewer than 60.

    Parameters
    ----------
    episodes : ndarray, shape (n, >= 2)
        Return and length of each episode, as in ``agent.episodes.curve``, which also says which
        were cut short.
    solved_return : float, optional
        Drawn as a line.
    num_timesteps : int, optional
        Steps of the training; those after the last episode are shown as an unfinished one.
    delivered : ndarray, shape (m,), optional
        Returns of the delivered policy; their mean is marked at the end, with its 95 % interval.
    """
    episodes = checked("episodes", episodes, 2, more=True)
    if ax is None:
        ax = new_axes(height=4.8)[0]
        ax.figure.subplots_adjust(bottom=0.24)
    if len(episodes) == 0:
        ax.text(0.5, 0.5, "no episode was finished", ha="center", transform=ax.transAxes)
    else:
        steps = np.cumsum(episodes[:, 1])
        size = 3 if len(episodes) >= _MANY else 7
        whole = episodes[:, 3] > 0.0 if episodes.shape[1] > 3 else np.ones(len(episodes), np.bool_)
        for rows, color, label in ((whole, "0.65", "episode"), (~whole, "0.8", "cut short")):
            if rows.any():
                ax.plot(steps[rows], episodes[rows, 0], ".", c=color, markersize=size, label=label)
        width = min(_WINDOW, len(episodes) // 3)
        if width > 1:
            mean = np.convolve(episodes[:, 0], np.full(width, 1.0 / width), mode="valid")
            ax.plot(steps[width - 1 :], mean, color=COLORS[0], label=f"mean of {width} episodes")
        if num_timesteps is not None and num_timesteps > _VISIBLE * steps[-1]:
            ax.axvspan(steps[-1], num_timesteps, fc="0.93", ec="0.8", label="unfinished episode")
        if solved_return is not None and np.isfinite(solved_return):
            ax.axhline(solved_return, color=COLORS[2], linestyle="--", linewidth=1, label="solved")
        if delivered is not None and len(delivered):
            end = steps[-1] if num_timesteps is None else num_timesteps
            label = f"delivered policy, {len(delivered)} episodes: {delivered.mean():.4g}"
            ax.plot(end, delivered.mean(), "*", color=COLORS[1], markersize=14, label=label,
                    clip_on=False, zorder=3)  # fmt: skip
            low, high = mean_interval(delivered)
            ax.vlines(end, low, high, color=COLORS[1], clip_on=False)
        below = (0.0, -0.15)  # where it hides no episode
        ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper left", bbox_to_anchor=below)
    ax.set(xlabel="environment steps", ylabel="return", title="Training episodes")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_partition(
    agent: "Agent",
    dimensions: tuple[int, int] | None = None,
    *,
    visited: FloatArray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the cells in a plane of the observation space, coloured by the action taken there.

    Parameters
    ----------
    agent : Agent
    dimensions : (int, int), optional
        Components on the horizontal and the vertical axis; by default those that tell the actions
        in the states visited apart.
    visited : ndarray, shape (n, d), optional
        Observations to draw on top; the plane goes through their median, and shows all but the
        outermost hundredth of them on each side. By default the codevectors.

    Raises
    ------
    ValueError
        If the observation has fewer than two components, or an argument is wrong.
    """
    d = agent.interface.n_features
    if d < 2:
        raise ValueError(f"the observation has {d} component: a plane needs at least 2")
    both = (0, 1) if dimensions is None else tuple(dimensions)
    if len(set(both)) != 2 or not set(both) <= set(range(d)):
        raise ValueError(f"dimensions is {dimensions!r}: it must be two different ones below {d}")
    visited = None if visited is None else checked("visited", visited, d)
    n_actions = agent.policy.n_actions
    shaded = agent.interface.n_components == 1
    beside = n_actions > 3 and not shaded  # names of more actions do not fit above
    if ax is None:
        ax = new_axes(8.0 if beside else 6.4, 5.0)[0]
        ax.figure.subplots_adjust(bottom=0.2)  # for what is said below
        if beside:
            ax.figure.subplots_adjust(right=1.0 - 1.7 / 8.0)
    codevectors = agent.codevectors
    points = codevectors if visited is None or len(visited) == 0 else visited
    first, second = telling_plane(agent, points) if dimensions is None else dimensions
    ranges = [padded_range(np.quantile(points[:, j], (0.01, 0.99))) for j in (first, second)]
    cells, actions = _plane(agent, np.median(points, axis=0), (first, second), ranges, shaded)
    if shaded:
        box = agent.interface.box
        assert box is not None
        light = 0.5 + 0.5 * colormaps["RdBu_r"](np.linspace(0.1, 0.9, 256))
        shades = ScalarMappable(Normalize(box.low[0], box.high[0]), ListedColormap(light))
        ax.figure.colorbar(shades, ax=ax, label=as_label(agent.action_names[0]))
        picture = shades.to_rgba(actions, bytes=True)[:, :, :3].copy()
    else:
        colors = list(COLORS)
        if n_actions > len(COLORS):
            colors = [to_hex(color) for color in colormaps["viridis"](np.linspace(0, 1, n_actions))]
        picture = np.array([tint(color) for color in colors])[actions]
        labels = choice_names(agent)
        patches = [
            Patch(color=tuple(tint(color) / 255.0), label=as_label(label))
            for color, label in zip(colors, labels, strict=False)
        ]
        at, columns = (1.01 if beside else 1.0, 1.0), 1 if beside else len(labels)
        ax.legend(handles=patches, loc="upper left" if beside else "lower right", frameon=False,
                  bbox_to_anchor=at, ncols=columns)  # fmt: skip
    draw_picture(ax, (ranges[0], ranges[1]), bordered(cells, picture))
    if visited is not None:
        ax.plot(visited[:, first], visited[:, second], ".", color=INK, markersize=1, alpha=0.4)
    places = codevectors[:, [first, second]]
    numbered = len(places) <= _MAX_NUMBERED
    disc = {"boxstyle": "circle,pad=0.2", "facecolor": "white", "edgecolor": INK}
    for k, (x, y) in enumerate(places.tolist() if numbered else ()):
        ax.annotate(str(k), (x, y), ha="center", va="center", fontsize=8, bbox=disc, color=INK)
    if not numbered:
        ax.plot(*places.T, "o", c="white", ms=3, markeredgecolor=INK, markeredgewidth=0.5)
    ax.set(xlabel=as_label(agent.names[first]), ylabel=as_label(agent.names[second]))
    ax.set_title(f"{len(codevectors)} cell{'s' * (len(codevectors) > 1)}", loc="left")
    low, high = np.array(ranges).T
    beyond = int(((places < low) | (places > high)).any(axis=1).sum())
    caption = f"{'numbers' if numbered else 'white dots'}: centres of the cells"
    if beyond:
        caption += f" ({beyond} beyond the picture)"
    if visited is not None:
        caption += "; black: states visited"
    if d > 2:
        caption += "\ncolours: the action where all other components are at their median"
    ax.annotate(caption, (0.0, 0.0), xycoords="axes fraction", xytext=(0, -34),
                textcoords="offset points", fontsize=8, color="0.35", va="top")  # fmt: skip
    return ax


def telling_plane(agent: "Agent", points: FloatArray) -> tuple[int, int]:
    """Return the two components that tell the actions at points, shape (n, d), best apart."""
    from sklearn.metrics import mutual_info_score

    shaded = agent.interface.n_components == 1
    acts = agent.policy.act(points).ravel() if shaded else agent.policy.choices(points)
    labels = _levels(acts, _MAX_LEVELS) if shaded else np.unique(acts, return_inverse=True)[1]
    levels = np.array([_levels(column, _MAX_LEVELS) for column in points.T])
    # Of components that tell nothing those with more values come first.
    alone = [mutual_info_score(row, labels) + _TIE * mutual_info_score(row, row) for row in levels]
    kept = sorted(np.argsort(alone, kind="stable")[::-1][:_MAX_PLANES].tolist())
    pairs = [(i, j) for i in kept for j in kept if i < j]
    joint = [_MAX_LEVELS * levels[i] + levels[j] for i, j in pairs]
    both = [mutual_info_score(row, labels) + _TIE * mutual_info_score(row, row) for row in joint]
    order = np.argsort(both, kind="stable")[::-1][:_MAX_PLANES]
    best: list[tuple[int, int]] = [pairs[k] for k in order.tolist()]
    varied, middle = [], np.median(points, axis=0)
    for pair in best:
        ranges = [padded_range(np.quantile(points[:, j], (0.01, 0.99))) for j in pair]
        shown = _plane(agent, middle, pair, ranges, shaded, _COARSE)[1].ravel()
        shown = _levels(shown, _MAX_LEVELS) if shaded else shown
        varied.append(mutual_info_score(shown, shown))
    return best[int(np.argmax(np.array(varied) >= _VARIED * max(varied)))]


def _levels(values: npt.NDArray[Any], count: int) -> IntArray:
    """Return in which of ``count`` quantiles each value lies."""
    ends = np.quantile(values, np.linspace(0.0, 1.0, count + 1)[1:-1])
    return np.asarray(np.searchsorted(ends, values))


def plot_metric(agent: "Agent", *, ax: Axes | None = None) -> Axes:
    """Draw the eigenvectors of the learned metric and their shares: the directions that matter.

    Parameters
    ----------
    agent : FittedQAgent or TwoTimescaleAgent

    Raises
    ------
    ValueError
        If the agent has not learned a metric yet.
    """
    matrix, scale = agent.metric_, agent.scale_
    if matrix is None or scale is None:
        raise ValueError(
            "agent.metric_ is None: the agent has to learn for some steps first, or is of a kind "
            "that learns no metric"
        )
    shares, vectors = directions(matrix, scale)
    shown = min(len(shares), _MAX_DIRECTIONS)
    names = [as_label(name) for name in agent.names]
    if ax is None:
        ax = new_axes(7.4, 0.42 * len(names) + 1.9)[0]
        ax.figure.subplots_adjust(left=0.32, right=0.94)  # long names
    image = ax.imshow(vectors[:shown].T, cmap="RdBu_r", vmin=-1.0, vmax=1.0, aspect="auto")
    if len(names) * shown <= _MAX_NUMBERS:
        for i, j in np.ndindex(shown, len(names)):
            color = "white" if abs(vectors[i, j]) > 0.6 else INK
            ax.text(i, j, f"{vectors[i, j]:.2f}", ha="center", va="center", color=color, fontsize=8)
    ax.set_xticks(range(shown), [f"{100.0 * share:.1f} %" for share in shares[:shown]])
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel("directions, by their share of the metric")
    ax.set_title("What the value depends on", loc="left")
    ax.figure.colorbar(image, ax=ax, label="per standard deviation", shrink=0.9)
    return ax


def plot_episode(
    agent: "Agent", *, seed: int | None = None, ax: Sequence[Axes] | None = None
) -> list[Axes]:
    """Draw a greedy episode: the components that change most, and the actions taken.

    Components that are called x and y are drawn as a path, too.

    Parameters
    ----------
    agent : Agent
    seed : int, optional
        Seed of the environment's reset.
    ax : sequence of matplotlib Axes, optional
        Where to draw, as many as are returned; by default on a new figure.
    """
    states, acts, rewards = agent.episode(seed=seed)
    scale = 1.0 if agent.scale_ is None else agent.scale_
    spread = np.ptp(states, axis=0) * scale
    shown = sorted(np.argsort(-spread, kind="stable")[:_MAX_LINES].tolist())
    path = [agent.names.index(name) for name in ("x", "y") if name in agent.names]
    box = agent.interface.box
    bounds = [(0.0, 0.0)] if box is None else list(zip(box.low, box.high, strict=True))
    kinds = list(dict.fromkeys(bounds))  # components with equal bounds share a panel
    panels = _panels(len(shown) + len(kinds) + (len(path) == 2), ax)
    colors, labels = [COLORS[0]] * len(acts), [as_label(name) for name in agent.action_names]
    steps = np.arange(len(states))
    for panel, j in zip(panels, shown, strict=False):
        panel.plot(steps, states[:, j], color=COLORS[0], linewidth=1.2)
        panel.set_ylabel(textwrap.fill(as_label(agent.names[j]), 24), fontsize=9)
    of_actions = panels[len(shown) : len(shown) + len(kinds)]
    if acts.ndim == 1:
        colors = [COLORS[act % len(COLORS)] for act in acts.tolist()]
        of_actions[0].scatter(steps, acts, s=8, c=colors, linewidths=0)
        of_actions[0].set_yticks(range(len(labels)), labels, fontsize=8)
    else:
        for i, (label, ends) in enumerate(zip(labels, bounds, strict=True)):
            color, panel = COLORS[i % len(COLORS)], of_actions[kinds.index(ends)]
            panel.plot(steps, acts[:, i], color=color, label=label)
            panel.legend(frameon=False, fontsize=8)
            panel.set_ylim(padded_range(np.array(ends)))
    if len(path) == 2:
        x, y = states[:, path].T
        panels[-1].plot(x, y, color="0.65", linewidth=1.0, zorder=1)
        panels[-1].scatter(x, y, s=8, c=colors, linewidths=0, zorder=2)
        panels[-1].set(xlabel="x", ylabel="y")
    for panel in panels[: len(shown) + len(kinds)]:
        panel.set(xlim=(0, len(states)), xlabel="steps")
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_title(f"return {rewards.sum():.4g}, {len(states)} steps", loc="left", fontsize=10)
    return panels


def _plane(
    agent: "Agent", middle: FloatArray, dimensions: tuple[int, int],
    ranges: Sequence[tuple[float, float]], shaded: bool, size: int = _GRID,
) -> tuple[IntArray, npt.NDArray[Any]]:  # fmt: skip
    """Return cells and choices (shaded: actions) on a grid through ``middle``, rows upwards."""
    across, up = (np.linspace(low, high, size) for low, high in ranges)
    cells = np.empty((size, size), dtype=np.int64)
    actions = np.empty((size, size), dtype=np.float64 if shaded else np.int64)
    row, policy = np.tile(middle, (size, 1)), agent.policy
    row[:, dimensions[0]] = across
    for i, height in enumerate(up):
        row[:, dimensions[1]] = height
        cells[i] = policy.cells(row)
        acts = agent.interface.actions(policy.act(row)) if shaded else policy.choices(row)
        actions[i] = acts.ravel()
    return cells, actions


def plot_difference(difference: "Difference", *, ax: Axes | None = None) -> Axes:
    """Draw the states in which two policies decide differently, and those in which they agree.

    The plane is that of the two most telling components; a frame marks the region that the
    difference names, as far as it is bounded in them.

    Parameters
    ----------
    difference : oda_rl.agents.review.Difference
    """
    states, differs = difference.states, difference.differs
    axes = new_axes(6.0, 4.4)[0] if ax is None else ax
    gap = np.zeros(states.shape[1])
    if differs.any() and not differs.all():
        gap = np.abs(states[differs].mean(axis=0) - states[~differs].mean(axis=0))
    order = np.argsort(-gap / np.maximum(states.std(axis=0), 1e-300), kind="stable").tolist()
    named = [j for j, _, _ in difference.region.bounds]  # come before those that differ most
    first, second, *_ = [*dict.fromkeys(named + order), 0, 0]
    for rows, color, label in (
        (~differs, "0.8", "decide alike"),
        (differs, COLORS[5], f"decide differently ({difference.share:.1%})"),
    ):
        x, y = states[rows, first], states[rows, second]
        axes.scatter(x, y, s=6, color=color, label=label, linewidths=0)
    low_x, high_x = padded_range(states[:, first])
    low_y, high_y = padded_range(states[:, second])
    ends = {first: [low_x, high_x], second: [low_y, high_y]}
    shown = [bound for bound in difference.region.bounds if bound[0] in ends]
    for j, side, value in shown:
        ends[j][int(side == "<")] = value
    if shown:
        (left, right), (bottom, top) = ends[first], ends[second]
        label = textwrap.fill(difference.region.said(difference.names), 70)
        size = (right - left, top - bottom)
        axes.add_patch(Rectangle((left, bottom), *size, fill=False, ec="0.2", lw=1.2, label=label))
    axes.set(xlim=(low_x, high_x), ylim=(low_y, high_y))
    axes.set(xlabel=difference.names[first], ylabel=difference.names[second])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    if ax is None:
        axes.figure.subplots_adjust(top=0.82)
    return axes


def plot_world(world: "World", *, ax: Sequence[Axes] | None = None) -> list[Axes]:
    """Draw a real episode, and the rollout of a model not trained on it with the same actions.

    Parameters
    ----------
    world : oda_rl.agents.worlds.world.World
        ``agent.world``.
    ax : sequence of matplotlib Axes, optional
        Where to draw, one for each component; by default on a new figure. At most 12 components
        are drawn: those that change most.

    Raises
    ------
    ValueError
        If the number of axes is wrong.
    """
    real, imagined = world.replayed()
    spread = np.ptp(real, axis=0) / world.learned.at.scale
    shown = sorted(np.argsort(-spread, kind="stable")[:MAX_COMPONENTS].tolist())
    axes = _panels(len(shown), ax)
    label = "imagined, with the same actions"
    for panel, j in zip(axes, shown, strict=True):
        low, high = real[:, j].min(), real[:, j].max()
        near = np.clip(imagined[:, j], low - _AROUND * (high - low), high + _AROUND * (high - low))
        ends = padded_range(np.append(real[:, j], near))
        panel.plot(real[:, j], color="0.75", linewidth=4.0, label="real")
        panel.plot(imagined[:, j], color=COLORS[0], linewidth=1.2, label=label)
        panel.set_ylabel(textwrap.fill(as_label(world.names[j]), 24), fontsize=9)
        panel.set(xlim=(0, len(real) - 1), ylim=ends)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes[-_COLUMNS:]:
        panel.set_xlabel("steps")
    axes[0].legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    return axes


def _panels(count: int, ax: Sequence[Axes] | None) -> list[Axes]:
    """Return the axes given, or new ones; raise ValueError if their number is wrong."""
    if ax is not None and len(ax) != count:
        raise ValueError(f"ax has {len(ax)} axes: it must have {count}")
    if ax is not None:
        return list(ax)
    rows = -(-count // _COLUMNS)
    columns = min(count, _COLUMNS)
    axes = new_axes(4.2 * columns, 1.9 * rows + 0.9, columns, rows)
    axes[0].figure.subplots_adjust(hspace=0.35, wspace=0.35)
    for panel in axes[count:]:
        panel.remove()
    return axes[:count]
