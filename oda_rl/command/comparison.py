"""A comparison as a figure, as a table in Markdown, and as rows in CSV."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from oda_rl.agents.comparison import Comparison, headline, origin_of_settings, solved_at
from oda_rl.command.reporting import save_figure
from oda_rl.files.archive import write_text
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.runs.results import markdown_table, store_rows

FILES = ("comparison.png", "comparison.csv", "comparison.md")
_NOTES = """\
Return, seconds, numbers, memory, bytes and µs are medians over the seeds; "minimum" is the return
of the worst seed. A seed is solved if the mean return of 100 greedy episodes reaches the threshold.
Seconds are training time, without evaluations and without the start of the process (imports,
loading code, first calls), which has its own column; `FittedQAgent` and `TwoTimescaleAgent` train
in one compiled loop where the environment has compiled dynamics, and are timed in a Python loop as
well. Numbers are the entries of the delivered policy's tables, or the parameters of all networks of
a model (without target copies). Bytes are those of the policy, and of the file that `save` writes,
which for `FittedQAgent` and `ModelAgent` includes all remembered transitions. µs is the time of
`predict` for one observation. rl-zoo's hyperparameters are those of rl-baselines3-zoo's dqn.yml at
commit ce95481b, ppo.yml at 208b6fdf and a2c.yml at c6c209e7. Every run was a process of its own,
with one thread.
"""
_HEADINGS = (
    "", "hyperparameters", "seeds", "steps", "return", "minimum", "solved", "s to 95 % solved",
    "in a Python loop", "s for all steps", "in a Python loop", "numbers", "peak MB", "policy bytes",
    "saved bytes", "start, s", "µs a decision",
)  # fmt: skip


def write_comparison(comparison: Comparison, folder: str | Path) -> list[Path]:
    """Write :data:`FILES`; ValueError if no run succeeded."""
    if not comparison.rows:
        reasons = "; ".join(comparison.failed[:3])
        raise ValueError(f"no run succeeded, so there is nothing to compare: {reasons}")
    paths = [Path(folder) / name for name in FILES]
    save_figure(plot_comparison([comparison])[0], paths[0])
    store_rows(paths[1], comparison.rows, (), comparison.origins)
    write_text(paths[2], markdown(comparison))
    return paths


def markdown(comparison: Comparison) -> str:
    """Return headline, table and notes as Markdown."""
    first, *lines = headline(comparison)
    origins = [
        f"Made by `{origin.command}`, commit {origin.commit or 'unknown'}: "
        + ", ".join(f"{name} {number}" for name, number in origin.versions.items())
        for origin in comparison.origins
    ]
    table = markdown_table(_HEADINGS, [_cells(comparison, n) for n in comparison.plan.counts()])
    parts = [f"# {comparison.plan.env_id}", first, "\n".join(f"- {line}" for line in lines),
             table, _NOTES.rstrip(), "\n".join(origins)]  # fmt: skip
    if comparison.failed:
        failed = "\n".join(f"- {line}" for line in comparison.failed)
        parts.append(f"Failed runs, which count as not solved:\n\n{failed}")
    return "\n\n".join(part for part in parts if part) + "\n"


def _cells(comparison: Comparison, name: str) -> list[str]:
    plan = comparison.plan
    count = plan.counts()[name]
    rows = [row for row in comparison.rows if row["algorithm"] == name]
    last = [row for row in rows if row["steps"] == plan.total_timesteps]
    begin = [name, origin_of_settings(name, plan.env_id), str(count), f"{plan.total_timesteps:,}"]
    if not last:
        return [*begin, "failed", *("" for _ in _HEADINGS[5:])]
    middle = {key: float(np.median([row[key] for row in last])) for key in last[0]
              if key not in ("env_id", "algorithm", "made")}  # fmt: skip
    when = solved_at(rows, {name: count})[name]
    known = comparison.threshold is not None
    return [
        *begin,
        f"{middle['mean']:.1f}",
        f"{min(row['mean'] for row in last):.1f}",
        f"{sum(row['solved'] for row in last) / count:.2f}" if known else "-",
        (f"{when.seconds:.3g} ({when.steps:,} steps)" if when else "not") if known else "-",
        f"{when.loop_seconds:.3g}" if when and known else "-",
        f"{middle['seconds']:.3g}",
        f"{middle['loop_seconds']:.3g}",
        f"{middle['parameters']:,.0f}",
        f"{middle['peak_mb']:.0f}",
        f"{middle['policy_bytes']:,.0f}",
        f"{middle['saved_bytes']:,.0f}",
        f"{middle['startup']:.2g}",
        f"{middle['predict_us']:.0f}",
    ]


def plot_comparison(comparisons: Sequence[Comparison]) -> list[Axes]:
    """Draw returns over steps and over seconds of training: median and quartiles of the seeds."""
    height = 3.6 * len(comparisons) + 0.5
    axes = new_axes(9.6, height, columns=2, rows=len(comparisons))
    axes[0].figure.subplots_adjust(
        top=1.0 - 0.75 / height, hspace=0.5, wspace=0.12, right=0.98, left=0.085
    )
    for comparison, left, right in zip(comparisons, axes[::2], axes[1::2], strict=True):
        _draw(comparison, left, right)
    handles, labels = axes[0].get_legend_handles_labels()
    axes[0].figure.legend(handles, labels, loc="upper center", ncols=len(labels), frameon=False)
    return axes


def _draw(comparison: Comparison, left: Axes, right: Axes) -> None:
    for color, name in zip(COLORS, comparison.plan.counts(), strict=False):
        mine = [row for row in comparison.rows if row["algorithm"] == name]
        steps = sorted({row["steps"] for row in mine})
        at = [[row for row in mine if row["steps"] == n] for n in steps]
        if not at:
            continue
        low, middle, high = np.transpose(
            [np.percentile([row["mean"] for row in rows], (25, 50, 75)) for rows in at]
        )
        seconds = [np.median([row["seconds"] for row in rows]) for rows in at]
        for ax, x in ((left, steps), (right, seconds)):
            ax.plot(x, middle, "o-", color=color, markersize=3.5, label=name)
            ax.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)
    for ax, label in ((left, "environment steps"), (right, "seconds of training")):
        if comparison.threshold is not None:
            ax.axhline(comparison.threshold, color="0.5", ls="--", lw=1, label="reward threshold")
        ax.set(xscale="log", xlabel=label)
        ax.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("mean return, 100 greedy episodes")
    right.set_yticklabels([])
    right.set_ylim(left.get_ylim())
    left.set_title(comparison.plan.env_id, loc="left")
