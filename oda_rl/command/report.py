"""What a run looks like: its figures and its table."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.plotting.shown import MOST_ACTIONS, MOST_ROWS, shown_components

if TYPE_CHECKING:
    from rich.table import Table

    from oda_rl.agents import Agent
    from oda_rl.agents.policies.explaining import Overview


_DPI = 110
_VISITED_STEPS = 2000
_DIRECTIONS = 6
_LEAST_SHARE = 0.005  # of a direction worth a column


def write_figures(
    agent: "Agent", folder: Path, seed: int = 0, returns: FloatArray | None = None
) -> list[Path]:
    """Draw learning curve, partition, metric and bifurcation into a folder; return the files.

    The states drawn over the partition are those that the greedy policy visits. An agent that
    anneals anew at each fit has no bifurcation to show, and a table of states of more than two
    components no plane in which they lie. ``returns`` are those of the evaluation, if there was
    one: the learning curve ends with their mean.
    """
    from matplotlib.axes import Axes

    from oda_rl import plotting

    axes: dict[str, Axes] = {
        "learning_curve": plotting.plot_learning_curve(
            agent.episodes.curve,
            solved_return=agent.solved_return,
            num_timesteps=agent.num_timesteps,
            delivered=returns,
        )
    }
    names, action_names = names_for(agent)
    d = agent.interface.n_features
    if d == 2 or (d > 2 and not tells_states_apart(agent)):
        axes["partition"] = plotting.plot_partition(
            agent,
            visited=agent.visited_states(_VISITED_STEPS, seed=seed),
            names=names,
            action_names=action_names,
        )
    if agent.metric_ is not None:
        axes["metric"] = plotting.plot_metric(agent, names=names)
    if any(level.temperature > 0.0 for level in agent.history):
        left, right = plotting.new_axes(11.0, 4.2, columns=2)
        axes["bifurcation"] = plotting.plot_bifurcation(agent.history, ax=left)
        plotting.plot_cells_over_time(agent.history, agent.num_timesteps, ax=right)
    return [save_figure(ax, folder / f"{name}.png") for name, ax in axes.items()]


def tells_states_apart(agent: "Agent") -> bool:
    """Whether an agent has learned a table of states, each of which it tells from all others."""
    from oda_rl.agents import ModelAgent
    from oda_rl.agents.policies import TablePolicy

    return isinstance(agent, ModelAgent) and isinstance(agent.policy, TablePolicy)


def names_for(agent: "Agent") -> tuple["Sequence[str] | None", "Sequence[str] | None"]:
    """Names of the observation's components and of the actions, where they are known."""
    from oda_rl.agents.environments.names import matching_names

    return matching_names(agent.env_id, agent.interface)


def metric_table(agent: "Agent") -> "Table | None":
    """Return a table of the directions of the state that matter, or None if none are known yet.

    Columns: share of the metric, and how much each component counts in that direction, in standard
    deviations of the component.
    """
    from rich.table import Table

    from oda_rl.metric import directions

    if agent.metric_ is None or agent.scale_ is None:
        return None
    shares, vectors = directions(agent.metric_, agent.scale_)
    d = len(shares)
    names = names_for(agent)[0] or [f"observation[{j}]" for j in range(d)]
    table = Table(
        "component", title="what the value depends on, by direction", title_justify="left"
    )
    shown = [i for i in range(d) if shares[i] >= _LEAST_SHARE][:_DIRECTIONS]
    for i in shown:
        table.add_column(f"{100.0 * shares[i]:.1f} %", justify="right")
    for j, name in enumerate(names):
        table.add_row(name, *(f"{vectors[i, j]:.2f}" for i in shown))
    return table


def policy_table(policy: "Overview") -> "Table":
    """Return a table of a policy: a row for each cell, those that are visited most first.

    Columns: number of the cell, share of the states visited, how often the agent has learned from
    it, its codevector, the value of each action there, by how much the best is worth more than the
    next, and which that is. There are at most 40 rows, and as many components as are shown.
    """
    from rich import box
    from rich.table import Table

    from oda_rl.agents.policies.explaining import value_text

    actions = range(len(policy.action_names) if len(policy.action_names) <= MOST_ACTIONS else 0)
    components = shown_components(policy)
    headings = ["cell", "visited, %", "learned from", *(policy.names[j] for j in components)]
    value = policy.value_name
    headings += [f"{value} of {policy.action_names[a]}" for a in actions] or [value]
    rows = []
    for i in range(min(len(policy.cells), MOST_ROWS)):
        values = [policy.q_values[i, a] for a in actions or policy.actions[i : i + 1]]
        row = [
            str(policy.cells[i]),
            "" if np.isnan(policy.shares[i]) else f"{100.0 * policy.shares[i]:.1f}",
            f"{policy.visits[i]:,.0f}",
            *(f"{policy.codevectors[i, j]:.3g}" for j in components),
            *map(value_text, values),
            "" if np.isinf(policy.margins[i]) else f"{policy.margins[i]:.2g}",
            policy.labels[i],
        ]
        rows.append(row)
    title = "what the policy does, by cell"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    for heading, *cells in zip([*headings, "margin", "action"], *rows, strict=True):
        longest = max(map(len, [*heading.split(), *cells]))
        table.add_column(
            heading, justify="left" if heading == "action" else "right", min_width=longest
        )
    for row in rows:
        table.add_row(*row)
    return table


def policy_remarks(policy: "Overview") -> list[str]:
    """Return what a reader of :func:`policy_table` should know: what is left out, what blends."""
    remarks = []
    n, rest = len(policy.cells), policy.shares[MOST_ROWS:].sum()
    if n > MOST_ROWS:
        share = "" if np.isnan(rest) else f", where {100.0 * rest:.1f} % of the states visited are"
        remarks.append(f"{n - MOST_ROWS} more cells are left out{share}")
    if policy.nowhere:
        remarks.append(f"{policy.nowhere} more cells decide nowhere that is known")
    left_out = len(policy.names) - len(shown_components(policy))
    if left_out:
        remarks.append(f"{left_out} more components differ less between the cells")
    if policy.agreement < 1.0:
        remarks.append(
            f"neighbouring cells are blended: in {100.0 * policy.agreement:.1f} % of the states "
            "visited the action is that of the cell's row"
        )
    return remarks


def save_figure(axes: "object", path: Path) -> Path:
    """Write the figure that the axes are part of as a PNG, whole or not at all."""
    from oda_rl.persistence import replacing

    figure = axes.figure  # type: ignore[attr-defined]
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=_DPI)
    return path


def summary(agent: "Agent", returns: FloatArray | None) -> "Table":
    """Return the table that ends a training: steps, cells, evaluation, time."""
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    rows = [
        ("environment", str(agent.env_id)),
        ("environment steps", f"{agent.num_timesteps:,}"),
        ("cells", str(agent.n_cells)),
    ]
    if returns is not None:
        rows.append((f"return over {len(returns)} greedy episodes", evaluation_line(returns)))
    rows.append(("training time", f"{agent.training_seconds:.3f} s"))
    for name, value in rows:
        table.add_row(name, value)
    return table


def evaluation_line(returns: FloatArray) -> str:
    """Mean, median and minimum of evaluation returns."""
    mean, median, least = returns.mean(), np.median(returns), returns.min()
    return f"mean {mean:.1f}, median {median:.1f}, min {least:.1f}"
