"""Exported policies in C: bytes of their tables, nanoseconds a decision, and how many are right.

Both agents learn BartoCartPole for 50 000 steps; their policies are written as C99 headers, in
single precision and in 16-bit fixed point, compiled with gcc -O2 and asked for their decisions on
observations of real episodes, of which a fifth each were played with 0, 5, 20, 50 and 100 % random
actions. Time is processor time of 20 passes over them, divided, beside that of one ``predict`` of
the same observations in Python. The last program plays 100 episodes of the cart-pole in C. Seeds
are those from 61 000 000 on, which chose nothing. Needs gcc.

Run: python scripts/benchmark_export.py [--seeds 10]
Runs are kept in results/benchmark_export.jsonl as they end, and not repeated; writes
results/benchmark_export.csv.
"""

import dataclasses
import re
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import tyro
from rich.console import Console
from rich.table import Table

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent, export_policy
from oda_rl.experiments import Execution, failures, run_all, store_runs
from oda_rl.results import markdown_table, read_rows

RESULTS, PROGRAMS = Path("results"), Path(__file__).parent / "c"
BARTO = "oda_rl/BartoCartPole-v0"
FIRST_SEED, STEPS, EPISODES = 61_000_000, 50_000, 100
SHARES = (0.0, 0.05, 0.2, 0.5, 1.0)  # of random actions
N_OBSERVATIONS = 10_000
AGENTS = {"TwoTimescaleAgent": TwoTimescaleAgent, "FittedQAgent": FittedQAgent}
TABLES = {"float": False, "fixed point": True}

Row = dict[str, Any]


class Exploring(gym.Wrapper[Any, Any, Any, Any]):
    """Takes a random action instead of the given one in a share of the steps."""

    def __init__(self, env: gym.Env[Any, Any], share: float, seed: int) -> None:
        super().__init__(env)
        self.share, self.rng = share, np.random.default_rng(seed)

    def step(self, action: Any) -> Any:
        """Step, now and then at random."""
        if self.rng.random() < self.share:
            action = int(self.rng.integers(2))
        return self.env.step(action)


def program(source: str, folder: Path) -> Path:
    """Compile a program with the policy.h that lies in a folder."""
    command = ["gcc", "-std=c99", "-O2", "-I", str(folder), str(PROGRAMS / source), "-o"]
    subprocess.run([*command, str(folder / "program"), "-lm"], check=True)
    return folder / "program"


def decide(folder: Path, observations: npt.NDArray[np.float32]) -> tuple[Any, float]:
    """Return the actions, and nanoseconds a decision."""
    command = [program("decisions.c", folder), str(len(observations))]
    done = subprocess.run(command, input=observations.tobytes(), capture_output=True, check=True)
    return np.frombuffer(done.stdout, dtype=np.intc), float(done.stderr)


def measure(agent: str, seed: int, steps: int) -> list[Row]:
    """Train once, and export with both kinds of tables."""
    learner = AGENTS[agent](BARTO, seed=seed).learn(steps)
    parts = [
        learner.visited_states(
            N_OBSERVATIONS // len(SHARES), env=Exploring(gym.make(BARTO), share, seed), seed=seed
        )
        for share in SHARES
    ]
    observations = np.concatenate(parts).astype(np.float32)
    expected = learner.predict(observations)[0]
    begun = time.process_time()
    for observation in observations[:1000]:
        learner.predict(observation)
    python = 1e6 * (time.process_time() - begun)
    returns = learner.evaluate(EPISODES, seed=seed + 10**8)
    rows = []
    for name, fixed_point in TABLES.items():
        with TemporaryDirectory() as place:
            folder = Path(place)
            text = export_policy(learner, folder / "policy.h", "c", fixed_point).read_text()
            size = re.search(r"Tables: (\d+) bytes", text)
            assert size is not None
            actions, nanoseconds = decide(folder, observations)
            played = subprocess.run(
                [program("cartpole.c", folder)], capture_output=True, check=True, text=True
            )
        rows.append({
            "tables": name, "cells": learner.n_cells, "bytes": int(size[1]), "ns": nanoseconds,
            "python_ns": python, "observations": len(observations),
            "same": int((actions == expected).sum()), "mean": float(returns.mean()),
            "mean_in_c": float(np.mean([int(line) for line in played.stdout.split()])),
        })  # fmt: skip
    return rows


def lines(rows: list[Row]) -> list[list[str]]:
    """Medians over the seeds for each agent and kind of tables."""
    found = []
    for agent in AGENTS:
        for tables in TABLES:
            own = [row for row in rows if (row["agent"], row["tables"]) == (agent, tables)]
            middle = {key: np.median([row[key] for row in own])
                      for key in ("cells", "bytes", "ns", "python_ns")}  # fmt: skip
            different = sum(row["observations"] - row["same"] for row in own)
            found.append([
                f"`{agent}`", f"{middle['cells']:g}", tables, f"{middle['bytes']:,.0f}",
                f"{middle['ns']:.3g}", f"{middle['python_ns'] / middle['ns']:,.0f}",
                f"{different:,} of {sum(row['observations'] for row in own):,}",
                *(f"{np.mean([row[key] for row in own]):.0f} "
                  f"({min(row[key] for row in own):.0f})" for key in ("mean_in_c", "mean")),
            ])  # fmt: skip
    return found


HEADS = ["", "cells", "tables", "bytes", "ns a decision", "times as fast as `predict`",
         "decisions that differ", "steps of 1000 in C (least seed)", "in Python"]  # fmt: skip


def tables(results: Path) -> dict[str, str]:
    """Return the table of the README."""
    return {"export": markdown_table(HEADS, lines(read_rows(results / "benchmark_export.csv")))}


@dataclasses.dataclass(frozen=True)
class Options:
    """How much to run, and where."""

    seeds: int = 10
    """Of each agent."""
    steps: int = STEPS
    """Of each training."""
    execution: Execution = dataclasses.field(default_factory=lambda: Execution(workers=1))
    """Where to run; by default nothing runs beside what is timed."""


def main(options: Options) -> None:
    """Measure both agents and both kinds of tables."""
    console = Console(highlight=False, width=max(Console().width, 150))
    settings = [
        {"agent": agent, "seed": FIRST_SEED + i, "steps": options.steps}
        for i in range(options.seeds)
        for agent in AGENTS
    ]
    runs = run_all(measure, settings, RESULTS / "benchmark_export.jsonl", options.execution)
    console.print(*failures(runs), sep="\n")
    rows = store_runs(RESULTS / "benchmark_export.csv", runs)
    table = Table(*HEADS, title=f"BartoCartPole, {options.steps:,} steps, medians of seeds")
    for line in lines(rows):
        table.add_row(*line)
    console.print(table)
    console.print(f"written: {RESULTS / 'benchmark_export.csv'}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__, config=(tyro.conf.OmitArgPrefixes,)))
