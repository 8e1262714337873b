"""``oda-rl simplify``: a trained agent's policy as a rule of a few cells."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro
from rich.console import Console

from oda_rl.agents import load_agent
from oda_rl.agents.distilling.distil import STEPS, Simplifiable
from oda_rl.command.report import save_figure
from oda_rl.files.archive import write_text

if TYPE_CHECKING:
    from rich.table import Table

    from oda_rl.agents.distilling.distil import Distilled


@dataclass(frozen=True)
class Simplify:
    """Make a rule of a few cells of a trained agent; print it, and what more cells return.

    Writes rule.txt, and if --cells is not given cells.png, to the run folder.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""

    cells: int | None = None
    """Of the rule, at most; by default the fewest that return as much as more of them."""

    steps: int = STEPS
    """In the environment, at most."""

    seed: int = 0
    """Of all randomness."""


def simplify(options: Simplify, console: Console) -> int:
    """Load, distill, print, write, draw."""
    if not options.run.is_dir():
        raise FileNotFoundError(f"run is {str(options.run)!r}: it must be a run folder")
    agent = load_agent(options.run)
    assert isinstance(agent, Simplifiable)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it is printed
        found = agent.distilled(options.cells, options.steps, options.seed, progress_bar=True)
    console.print(f"the rule: {found.rules()}")
    console.print(f"{found.comparison}{': worse' if found.worse else ''}")
    write_text(options.run / "rule.txt", f"{found}\n")
    console.print(str(options.run / "rule.txt"))
    if any(len(one.returns) for one in found.curve):
        from oda_rl.plotting.agents import plot_sizes

        console.print(sizes_table(found))
        console.print(str(save_figure(plot_sizes(found), options.run / "cells.png")))
    return 0


def sizes_table(found: "Distilled") -> "Table":
    """Return what rules of so many cells returned, and their teacher."""
    from rich import box
    from rich.table import Table

    from oda_rl.agents.distilling.simplifying import standard_error

    table = Table(title="what rules return", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("cells")
    for heading in ("left after pruning", "return", "standard error", "episodes"):
        table.add_column(heading, justify="right")
    rows = [
        (f"{one.n_cells}{' <-' if one.policy is found.policy else ''}", str(one.policy.n_cells),
         one.returns)
        for one in found.curve
    ]  # fmt: skip
    for name, left, returns in [*rows, ("the agent", "", found.taught)]:
        mean, error = (returns.mean(), standard_error(returns)) if len(returns) else (np.nan,) * 2
        table.add_row(name, left, f"{mean:.4g}", f"{error:.2g}", str(len(returns)))
    return table
