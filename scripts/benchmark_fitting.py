"""What fitting costs: microseconds a step and megabytes, from 50 000 to a million steps.

FittedQAgent learns BartoCartPole with all transitions, and with a bound on them; times include the
compiled environment, whose own cost is measured beside them, and the ratio to it is what compares
between machines. Memory is the growth of the process since the first fits, temporaries included.
After each stretch the delivered policy plays 100 episodes.

Run: python scripts/benchmark_fitting.py
Trainings are kept in results/benchmark_fitting.jsonl as they end, and not repeated. Writes
results/benchmark_fitting.csv and results/benchmark_fitting.png.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numba import njit
from rich.console import Console
from rich.table import Table

from oda_rl.agents import FittedQAgent
from oda_rl.command.report import save_figure
from oda_rl.envs.cartpole import BartoCartPoleEnv, cartpole_parameters, cartpole_step
from oda_rl.experiments import Execution, failures, run_all, store_runs
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.results import markdown_table, read_rows

RESULTS = Path("results")
BARTO = "oda_rl/BartoCartPole-v0"
CHECKPOINTS = (10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
BOUND = 20_000
FIRST_SEED = 60_000_000
BARE_STEPS = 1_000_000
TARGETS = {50_000: 10.0, 1_000_000: 20.0}  # µs a step


@njit
def bare_dynamics(parameters: Any, steps: int) -> float:
    """Step a cart-pole without an agent, from near its middle after each failure."""
    state = np.zeros(4)
    for i in range(steps):
        if cartpole_step(parameters, state, i % 2)[1]:
            state[:] = 0.01
    return state[0]


def megabytes() -> float:
    """Most memory that the process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def measure(**arguments: Any) -> list[dict[str, Any]]:
    """Train in a process of its own, so that memory is measured from the start."""
    code = f"import json, benchmark_fitting as b; print(json.dumps(b.learn(**{arguments!r})))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=Path(__file__).parent, check=True, capture_output=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def learn(seed: int, checkpoints: list[int], bound: int | None) -> list[dict[str, Any]]:
    """Train once, with a row for each checkpoint."""
    FittedQAgent(BARTO, seed=0).learn(3000)  # compiles
    parameters = cartpole_parameters(BartoCartPoleEnv())
    bare_dynamics(parameters, 10)
    begun = time.perf_counter()
    bare_dynamics(parameters, BARE_STEPS)
    bare = 1e6 * (time.perf_counter() - begun) / BARE_STEPS
    before = megabytes()
    agent = FittedQAgent(BARTO, seed=seed, max_transitions=bound)
    rows = []
    for steps in checkpoints:
        agent.learn(steps - agent.num_timesteps)
        rows.append(
            {
                "memory": "all" if bound is None else f"{bound:,}",
                "steps": steps,
                "us_per_step": 1e6 * agent.training_seconds / steps,
                "bare_us": bare,
                "megabytes": megabytes() - before,
                "cells": agent.newest.n_cells,
                "fits": len(agent.history),
                "mean": float(agent.evaluate(100, seed=seed + 1).mean()),
            }
        )
    return rows


def report(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print medians over seeds, and the targets that are missed."""
    table = Table(title="BartoCartPole, medians over seeds")
    for column in ("memory", "steps", "µs/step", "/ bare dynamics", "MB", "cells", "fits",
                   "solved", "mean"):  # fmt: skip
        table.add_column(column, justify="right")
    for memory, steps in dict.fromkeys((row["memory"], row["steps"]) for row in rows):
        at = [row for row in rows if (row["memory"], row["steps"]) == (memory, steps)]
        middle = {key: float(np.median([row[key] for row in at])) for key in at[0]
                  if key not in ("memory", "bound", "seed", "steps", "made")}  # fmt: skip
        solved = np.mean([row["mean"] >= 950.0 for row in at])
        table.add_row(
            memory, f"{steps:,}", f"{middle['us_per_step']:.1f}",
            f"{middle['us_per_step'] / middle['bare_us']:.0f}", f"{middle['megabytes']:.0f}",
            f"{middle['cells']:.0f}", f"{middle['fits']:.0f}", f"{solved:.2f}",
            f"{np.mean([row['mean'] for row in at]):.1f}",
        )  # fmt: skip
        target = TARGETS.get(steps, np.inf)
        if memory == "all" and middle["us_per_step"] > target:
            console.print(f"{steps:,} steps: {middle['us_per_step']:.1f} µs a step > {target}")
    console.print(table)


def tables(results: Path) -> dict[str, str]:
    """Return the table of the README."""
    rows = read_rows(results / "benchmark_fitting.csv")
    lines = []
    for steps in (50_000, 200_000, 1_000_000):
        line = [f"{steps:,}"]
        for bounded in (False, True):
            at = [row for row in rows
                  if row["steps"] == steps and (row["bound"] is not None) == bounded]  # fmt: skip
            cost, bare, size = (
                np.median([row[key] for row in at])
                for key in ("us_per_step", "bare_us", "megabytes")
            )
            line += [f"{cost:.1f}", f"{cost / bare:.0f}", f"{size:.0f} MB",
                     f"{min(row['mean'] for row in at):.0f}"]  # fmt: skip
        lines.append(line)
    heads = ["µs a step", "times the bare dynamics", "memory", "least mean return"]
    bound = f"with `max_transitions={BOUND:_}`"
    return {"fitting": markdown_table(
        ["BartoCartPole, steps", *heads, f"{heads[0]} {bound}", *heads[1:]], lines
    )}  # fmt: skip


def draw(rows: list[dict[str, Any]]) -> Path:
    """Draw cost and memory over steps."""
    left, right = new_axes(9.5, 4.0, columns=2)
    for color, memory in zip(COLORS, dict.fromkeys(row["memory"] for row in rows), strict=False):
        own = [row for row in rows if row["memory"] == memory]
        steps = sorted({row["steps"] for row in own})
        for ax, key in ((left, "us_per_step"), (right, "megabytes")):
            middle = [np.median([row[key] for row in own if row["steps"] == n]) for n in steps]
            label = f"{memory} transitions remembered"
            ax.plot(steps, middle, "o-", color=color, markersize=4, label=label)
    for ax, label in ((left, "µs a step, environment included"), (right, "MB")):
        ax.set(xscale="log", xlabel="environment steps", ylabel=label)
        ax.set_ylim(bottom=0.0)
        ax.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False)
    return save_figure(left, RESULTS / "benchmark_fitting.png")


def main(seeds: int = 3, longest: int = CHECKPOINTS[-1], bound: int = BOUND) -> None:
    """Measure what fitting costs.

    Parameters
    ----------
    seeds
        Trainings of each kind, one after another, each in a process of its own.
    longest
        Steps of each training.
    bound
        Transitions that the bounded agent remembers.
    """
    console = Console(highlight=False)
    checkpoints = [n for n in CHECKPOINTS if n <= longest]
    settings = [
        {"seed": FIRST_SEED + i, "checkpoints": checkpoints, "bound": limit}
        for limit in (None, bound)
        for i in range(seeds)
    ]
    path = RESULTS / "benchmark_fitting.jsonl"
    runs = run_all(measure, settings, path, Execution(1))  # one at a time: it is timed
    console.print(*failures(runs), sep="\n")
    rows = store_runs(RESULTS / "benchmark_fitting.csv", runs, ("checkpoints",))
    report(console, rows)
    console.print(f"written: {draw(rows)}, {RESULTS / 'benchmark_fitting.csv'}")


if __name__ == "__main__":
    tyro.cli(main)
