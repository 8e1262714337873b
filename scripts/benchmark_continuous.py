"""Continuous actions: codevectors of states and actions, and a grid of five values.

Both agents have their package defaults, discount factor included, in real Gymnasium environments,
and learn in the same run. Every training step is counted. Measured is the delivered policy's mean
return over 100 greedy episodes. Seeds are those from 53 000 000 on, which chose nothing.

Beside them stands what rl-baselines3-zoo (github.com/DLR-RM/rl-baselines3-zoo) has published:
benchmark.md at commit 0088472b, one run of each algorithm, not made here.

Run: python scripts/benchmark_continuous.py [--only Pendulum-v1 ...] [--seeds 20] [--longest 200000]
     [--workers 2 | --backend dask --address tcp://...:8786]
Runs are kept in results/benchmark_continuous.jsonl as they end, and not repeated; writes
results/benchmark_continuous.csv and results/benchmark_continuous.png.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from oda_rl.experiments import Execution, failures, run_all, store_runs
from oda_rl.results import markdown_table, read_rows
from oda_rl.statistics import summarize

RESULTS = Path("results")
FIRST_SEED = 53_000_000
EVALUATION_EPISODES = 100
CHECKPOINTS = (20_000, 50_000, 100_000, 200_000)
GRID, CODEVECTORS = "grid", "codevectors"

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment, and what is known of it."""

    env_id: str
    levels: tuple[float, ...]
    """Mean returns, of which the shares of seeds that reach them are reported."""
    published: tuple[tuple[str, float, int], ...]
    """What rl-zoo reports: algorithm, mean return, steps."""


TASKS = (
    Task("Pendulum-v1", (-400.0, -200.0),
         (("SAC", -157.0, 20_000), ("TD3", -151.9, 20_000), ("PPO", -172.2, 100_000))),
    Task("MountainCarContinuous-v0", (90.0,),
         (("SAC", 94.7, 50_000), ("TD3", 93.5, 300_000), ("PPO", 88.3, 20_000))),
)  # fmt: skip


def train(actions: str, task: str, seed: int, longest: int) -> list[Row]:
    """Train once; a row for each checkpoint."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from oda_rl.agents import CodevectorAgent, FittedQAgent

    agent = (CodevectorAgent if actions == CODEVECTORS else FittedQAgent)(task, seed=seed)
    rows = []
    for steps in checkpoints(longest):
        agent.learn(steps - agent.num_timesteps)
        returns = agent.evaluate(EVALUATION_EPISODES, seed=seed + 10**8)
        arrays = [a for name, a in agent.policy.arrays.items() if name != "codevectors"]
        rows.append({
            "steps": steps,
            "mean": float(returns.mean()),
            "least": float(returns.min()),
            "cells": agent.n_cells,
            "seconds": agent.training_seconds,
            "numbers": sum(array.size for array in arrays),
            "bytes": sum(array.nbytes for array in arrays),
        })  # fmt: skip
    return rows


def checkpoints(longest: int) -> list[int]:
    """Numbers of steps after which an agent is evaluated."""
    return [steps for steps in CHECKPOINTS if steps < longest] + [longest]


def report(console: Console, rows: list[Row]) -> None:
    """Print a table for each environment."""
    for task in TASKS:
        own = [row for row in rows if row["task"] == task.env_id]
        if not own:
            continue
        table = Table(title=f"{task.env_id}: delivered policy, 100 greedy episodes a seed")
        shares = [f"≥ {level:g}" for level in task.levels]
        for column in ("actions", "steps", "seeds", *shares, "mean", "IQM (95 %)", "median",
                       "least seed", "cells", "numbers", "bytes", "seconds"):  # fmt: skip
            table.add_column(column, justify="left" if column == "actions" else "right")
        for actions in (CODEVECTORS, GRID):
            for steps in sorted({row["steps"] for row in own}):
                at = [row for row in own if (row["actions"], row["steps"]) == (actions, steps)]
                if not at:
                    continue
                means = np.array([row["mean"] for row in at])
                found = summarize(means)
                low, high = found.interval
                medians = {
                    name: np.median([row[name] for row in at])
                    for name in ("cells", "numbers", "bytes", "seconds")
                }
                table.add_row(
                    actions, f"{steps:,}", str(found.n),
                    *(f"{(means >= level).mean():.2f}" for level in task.levels),
                    f"{found.mean:.1f}",
                    f"{found.interquartile_mean:.1f} ({low:.1f} to {high:.1f})",
                    f"{found.median:.1f}", f"{found.least:.1f}", f"{medians['cells']:.0f}",
                    f"{medians['numbers']:,.0f}", f"{medians['bytes']:,.0f}",
                    f"{medians['seconds']:.1f}",
                )  # fmt: skip
        console.print(table)
        known = ", ".join(
            f"{name} {mean:g} ({steps:,} steps)" for name, mean, steps in task.published
        )
        console.print(f"published by rl-zoo, one run each: {known}")


def tables(results: Path) -> dict[str, str]:
    """Return the tables of the README, one for each environment."""
    rows = read_rows(results / "benchmark_continuous.csv")
    found = {}
    for task in TASKS:
        lines = []
        for actions in (CODEVECTORS, GRID):
            own = [row for row in rows if (row["task"], row["actions"]) == (task.env_id, actions)]
            for i, steps in enumerate(sorted({row["steps"] for row in own})):
                at = [row for row in own if row["steps"] == steps]
                means = np.array([row["mean"] for row in at])
                numbers, size, seconds = (
                    np.median([row[name] for row in at]) for name in ("numbers", "bytes", "seconds")
                )
                lines.append([
                    "" if i else actions, "" if i else str(len(at)), f"{steps:,}",
                    *(f"{(means >= level).mean():.2f}" for level in task.levels),
                    f"{means.mean():.1f}", f"{np.median(means):.1f}", f"{means.min():.1f}",
                    f"{numbers:,.0f}", f"{size:,.0f}", f"{seconds:.1f}",
                ])  # fmt: skip
        heads = [task.env_id, "seeds", "steps", *(f"≥ {level:g}" for level in task.levels), "mean",
                 "median", "least", "numbers", "bytes", "seconds"]  # fmt: skip
        published = ", ".join(
            f"{name} {mean:.1f} ({steps // 1000}k)" for name, mean, steps in task.published
        )
        text = f"{markdown_table(heads, lines)}\n\nrl-zoo publishes {published}."
        found[f"continuous {task.env_id}"] = text
    return found


def draw(rows: list[Row]) -> Path:
    """Draw medians and quartiles of the seeds over steps; crosses are what rl-zoo published."""
    from oda_rl.command.report import save_figure
    from oda_rl.plotting.axes import COLORS, new_axes

    tasks = [task for task in TASKS if any(row["task"] == task.env_id for row in rows)]
    panels = new_axes(4.6 * len(tasks) + 0.6, 3.8, len(tasks))
    for ax, task in zip(panels, tasks, strict=True):
        for color, actions in zip(COLORS, (CODEVECTORS, GRID), strict=False):
            own = [row for row in rows if (row["actions"], row["task"]) == (actions, task.env_id)]
            steps = sorted({row["steps"] for row in own})
            quartiles = np.array([
                np.percentile([row["mean"] for row in own if row["steps"] == n], (25, 50, 75))
                for n in steps
            ])  # fmt: skip
            ax.plot(steps, quartiles[:, 1], "o-", color=color, markersize=4, label=actions)
            ax.fill_between(steps, quartiles[:, 0], quartiles[:, 2], color=color, alpha=0.2)
        for name, mean, steps in task.published:
            ax.plot(steps, mean, "x", color="0.3", markersize=5)
            ax.annotate(name, (steps, mean), xytext=(5, 0), textcoords="offset points",
                        va="center", fontsize=7, color="0.3")  # fmt: skip
        shown = sorted({row["steps"] for row in rows if row["task"] == task.env_id})
        ax.set(xscale="log", xlabel="environment steps")
        ax.set_xticks(shown, [f"{n / 1000:g}k" for n in shown])
        ax.minorticks_off()
        ax.set_title(task.env_id, loc="left")
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("return: median and quartiles of seeds")
    panels[0].legend(frameon=False, fontsize=8, loc="lower right")
    return save_figure(panels[0], RESULTS / "benchmark_continuous.png")


@dataclasses.dataclass(frozen=True)
class Options:
    """What to run, and where."""

    only: tuple[str, ...] = ()
    """Ids of the environments to do; all by default."""
    seeds: int = 20
    """Seeds of each."""
    longest: int = CHECKPOINTS[-1]
    """Steps to train for."""
    execution: Execution = dataclasses.field(default_factory=Execution)
    """Where to run."""


def main(options: Options) -> None:
    """Benchmark both kinds of actions."""
    console = Console(highlight=False, width=max(Console().width, 150))
    settings = [
        {"actions": actions, "task": task.env_id, "seed": seed, "longest": options.longest}
        for task in TASKS
        if not options.only or task.env_id in options.only
        for seed in range(FIRST_SEED, FIRST_SEED + options.seeds)
        for actions in (CODEVECTORS, GRID)
    ]
    runs = run_all(train, settings, RESULTS / "benchmark_continuous.jsonl", options.execution)
    rows = store_runs(RESULTS / "benchmark_continuous.csv", runs, ("longest",))
    report(console, rows)
    console.print(*failures(runs), sep="\n")
    console.print(f"written: {draw(rows)}, {RESULTS / 'benchmark_continuous.csv'}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__, config=(tyro.conf.OmitArgPrefixes,)))
