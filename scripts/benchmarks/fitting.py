"""What fitting costs: microseconds a step and megabytes, from 50 000 to a million steps.

FittedQAgent learns BartoCartPole with all transitions, and with a bound on them; times include the
compiled environment, whose own cost is measured beside them, and the ratio to it is what compares
between machines. Memory is the growth of the process since the first fits, temporaries included.
After each stretch the delivered policy plays 100 episodes.

Run: python scripts/benchmark.py fitting
Trainings are kept in results/benchmark_fitting.jsonl as they end, and not repeated. Writes
results/benchmark_fitting.csv and results/benchmark_fitting.png.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common.experiment import ALONE, Experiment, SharedOptions, say, seconds
from common.summaries import Column, Row, Rows, Table, among, of, open_axes, the
from numba import njit

from oda_rl.agents import FittedQAgent
from oda_rl.agents.comparison.memory import peak_megabytes
from oda_rl.envs.cartpole import BartoCartPoleEnv, cartpole_parameters, cartpole_step
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.runs.parallel import Execution

EXPERIMENT = Experiment("benchmark_fitting", leave_out=("checkpoints",))
BARTO = "oda_rl/BartoCartPole-v0"
SHOWN = (50_000, 200_000, 1_000_000)  # on the page
CHECKPOINTS = (10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
BOUND = 20_000
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


def measure(**arguments: Any) -> list[Row]:
    """Train in a process of its own, so that memory is measured from the start."""
    code = "import json; from benchmarks.fitting import learn; "
    code += f"print(json.dumps(learn(**{arguments!r})))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True)
    rows: list[Row] = json.loads(done.stdout)
    return rows


def learn(seed: int, checkpoints: list[int], bound: int | None) -> list[Row]:
    """Train once, with a row for each checkpoint."""
    FittedQAgent(BARTO, seed=0).learn(3000)  # compiles
    parameters = cartpole_parameters(BartoCartPoleEnv())
    bare_dynamics(parameters, 10)
    bare = 1e6 * seconds(lambda: bare_dynamics(parameters, BARE_STEPS)) / BARE_STEPS
    before = peak_megabytes()
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
                "megabytes": peak_megabytes() - before,
                "cells": agent.newest.n_cells,
                "fits": len(agent.history),
                "mean": float(agent.evaluate(100, seed=seed + 1).mean()),
            }
        )
    return rows


def cost(own: Rows) -> str:
    """Microseconds a step."""
    return f"{np.median(own.column('us_per_step')):.1f}"


def beside_bare(own: Rows) -> str:
    """How many times the cost of the environment alone."""
    return f"{np.median(own.column('us_per_step')) / np.median(own.column('bare_us')):.0f}"


def size(own: Rows) -> str:
    """Growth of memory."""
    return f"{np.median(own.column('megabytes')):.0f} MB"


def tables(rows: Rows) -> dict[str, Table]:
    """Return medians over seeds after each number of steps, with all transitions and fewer."""
    columns = [Column("BartoCartPole, steps", the("steps", ","))]
    for memory in rows.values("memory"):
        bound = "" if memory == "all" else f" with `max_transitions={memory.replace(',', '_')}`"
        columns += [
            Column(f"µs a step{bound}", among(cost, memory=memory)),
            Column("times the bare dynamics", among(beside_bare, memory=memory)),
            Column("memory", among(size, memory=memory)),
            Column("least mean return", among(of(np.min, "mean", ".0f"), memory=memory)),
            Column("cells", among(of(np.median, "cells", ".0f"), memory=memory), printed_only=True),
        ]
    table = Table(
        "medians over seeds", columns, rows.by_steps(), lambda own: own[0]["steps"] in SHOWN
    )
    return {"fitting": table}


def missed(rows: Rows) -> list[str]:
    """Say where a target is missed."""
    found = []
    for steps, target in TARGETS.items():
        at = rows.where(memory="all", steps=steps)
        if at and np.median(at.column("us_per_step")) > target:
            found.append(f"{steps:,} steps: {cost(at)} µs a step > {target}")
    return found


def draw(rows: Rows) -> Any:
    """Draw cost and memory over steps."""
    left, right = panels = new_axes(9.5, 4.0, columns=2)
    for color, memory in zip(COLORS, rows.values("memory"), strict=False):
        at = rows.where(memory=memory).by_steps()
        steps = [own[0]["steps"] for own in at]
        for ax, key in ((left, "us_per_step"), (right, "megabytes")):
            middle = [np.median(own.column(key)) for own in at]
            label = f"{memory} transitions remembered"
            ax.plot(steps, middle, "o-", color=color, markersize=4, label=label)
    for ax, label in ((left, "µs a step, environment included"), (right, "MB")):
        ax.set(xscale="log", xlabel="environment steps", ylabel=label)
        ax.set_ylim(bottom=0.0)
    open_axes(*panels)
    left.legend(frameon=False)
    return left


@dataclass(frozen=True)
class Options(SharedOptions):
    """How much to run, and where."""

    seeds: int = 3
    """Trainings of each kind, each in a process of its own."""
    longest: int = CHECKPOINTS[-1]
    """Steps of each training."""
    bound: int = BOUND
    """Transitions that the bounded agent remembers."""
    execution: Execution = ALONE


def main(options: Options) -> None:
    """Measure what fitting costs."""
    checkpoints = [n for n in CHECKPOINTS if n <= options.longest]
    settings = [
        {"seed": seed, "checkpoints": checkpoints, "bound": limit}
        for limit in (None, options.bound)
        for seed in EXPERIMENT.seeds(options)
    ]
    rows = EXPERIMENT.run(measure, settings, options.execution)
    say(*missed(rows), *tables(rows).values())
    EXPERIMENT.save(draw(rows))
