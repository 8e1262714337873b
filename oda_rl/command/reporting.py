"""Figures and tables that the commands write and print."""

import re
import warnings
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from rich import box
from rich.table import Table

from oda_rl._types import FloatArray
from oda_rl.agents import Agent
from oda_rl.agents.distilling.distil import Distilled
from oda_rl.agents.distilling.simplifying import standard_error
from oda_rl.agents.policies.explaining import Overview
from oda_rl.files.archive import replacing
from oda_rl.reporting.page import draw_figures, policy_rows

_DPI = 110


def write_figures(
    agent: Agent, folder: Path, seed: int = 0, returns: FloatArray | None = None
) -> list[Path]:
    """Write the figures of :func:`~oda_rl.reporting.page.draw_figures` to a folder."""
    axes = draw_figures(agent, seed, returns)
    return [save_figure(ax, folder / f"{name}.png") for name, ax in axes.items()]


def save_figure(axes: Axes, path: Path) -> Path:
    """Write the figure of the axes as a PNG, atomically."""
    with replacing(path) as file:
        axes.figure.savefig(file, format="png", dpi=_DPI)  # type: ignore[union-attr]
    return path


def summary(agent: Agent, returns: FloatArray | None, seed: int) -> Table:
    """Return the table that ends a training: steps, cells, evaluation, time."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("environment", str(agent.env_id))
    table.add_row("environment steps", f"{agent.num_timesteps:,}")
    table.add_row("cells", str(agent.n_cells))
    if returns is not None:
        title = f"return over {len(returns)} greedy episodes, seed {seed}"
        table.add_row(title, evaluation_line(returns))
    table.add_row("training time", f"{agent.training_seconds:.3f} s")
    return table


Evaluation = tuple[FloatArray, str | None]
"""Returns of greedy episodes, and what to say if they are not better than random ones."""


def evaluated(agent: Agent, episodes: int, seed: int) -> Evaluation:
    """Play greedy episodes, and random ones to compare."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it is returned
        returns = agent.evaluate(episodes, seed=seed, progress_bar=True)
    return returns, agent.doubt(returns, seed)


def evaluation_line(returns: FloatArray) -> str:
    """Return mean, median and minimum of evaluation returns."""
    mean, median, minimum = returns.mean(), np.median(returns), returns.min()
    return f"mean {mean:.1f}, median {median:.1f}, min {minimum:.1f}"


def policy_table(policy: Overview, n_components: int | None = None) -> Table:
    """Return :func:`~oda_rl.reporting.page.policy_rows` as a table."""
    headings, rows = policy_rows(policy, n_components)
    title = "what the policy does, by cell"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.pad_edge, table.collapse_padding = False, True
    for heading, *cells in zip(headings, *rows, strict=True):
        parts = re.split(r"\n|, ", "\n".join(cells))  # of actions, which may take lines
        width = max(map(len, [*heading.split(), *parts]))
        justify = "left" if heading == "action" else "right"
        table.add_column(heading, justify=justify, min_width=width)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row)
    return table


def sizes_table(distilled: Distilled) -> Table:
    """Return a table of the returns of rules by their number of cells, and of their teacher."""
    table = Table("cells", title="what rules return", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("after pruning", "return", "standard error", "episodes"):
        table.add_column(heading, justify="right")
    rows = [
        (f"{size.n_cells}{' <-' * (size.policy is distilled.policy)}", str(size.policy.n_cells),
         size.returns)
        for size in distilled.curve
    ]  # fmt: skip
    taught = distilled.taught[: len(distilled.returns) or None]  # from the starts compared
    for name, left, returns in [*rows, ("the agent", "", taught)]:
        mean = f"{returns.mean():.4g}" if len(returns) else "unknown"
        error = f"{standard_error(returns):.2g}" if len(returns) > 1 else "unknown"
        table.add_row(name, left, mean, error, str(len(returns)))
    return table
