"""Exported policies in C: bytes of their tables, nanoseconds a decision, and agreement.

The agents learn BartoCartPole for 50,000 steps, the model agent for 1000. Their policies are
exported as C99 headers in single precision and in 16-bit fixed point, compiled with gcc -O2, and
evaluated on observations of real episodes, a fifth each with 0, 5, 20, 50 and 100 % random actions.
Times are processor time per decision (20 passes, minimum of ten), and that of one ``predict`` in
Python. Seeds, from 61,000,000 on, chose no setting. Needs gcc.
"""

import re
import subprocess
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
import numpy as np
from common.experiment import Experiment, SharedOptions
from common.summaries import Column, Row, Rows, Table, of, the

from oda_rl import agents
from oda_rl._types import Float32Array

EXPERIMENT = Experiment("benchmark_export", timed=True)
PROGRAMS = Path(__file__).parents[1] / "c"
BARTO = "oda_rl/BartoCartPole-v0"
STEPS, EPISODES = 50_000, 100
SHARES = (0.0, 0.05, 0.2, 0.5, 1.0)  # of random actions
N_OBSERVATIONS = 10_000
MAX_STEPS = {"ModelAgent": 1_000, "TwoTimescaleAgent": np.inf, "FittedQAgent": np.inf}
TABLES = {"float": False, "fixed point": True}


class Exploring(gym.Wrapper[Any, Any, Any, Any]):
    """Takes a random action instead of the given one in a share of the steps."""

    def __init__(self, env: gym.Env[Any, Any], share: float, seed: int) -> None:
        super().__init__(env)
        self.share, self.rng = share, np.random.default_rng(seed)

    def step(self, action: Any) -> Any:
        if self.rng.random() < self.share:
            action = int(self.rng.integers(2))
        return self.env.step(action)


def export(learner: Any, folder: Path, **options: bool) -> int:
    """Write policy.h; return the bytes of its tables."""
    text = agents.export_policy(learner, folder / "policy.h", **options).read_text()
    size = re.search(r"Tables: (\d+) bytes", text)
    assert size is not None
    return int(size[1])


def program(source: str, folder: Path) -> Path:
    command = ["gcc", "-std=c99", "-O2", "-I", str(folder), str(PROGRAMS / source), "-o"]
    subprocess.run([*command, str(folder / "program"), "-lm"], check=True)
    return folder / "program"


def decide(folder: Path, observations: Float32Array) -> tuple[Any, float]:
    command = [program("decisions.c", folder), str(len(observations))]
    done = subprocess.run(command, input=observations.tobytes(), capture_output=True, check=True)
    return np.frombuffer(done.stdout, dtype=np.intc), float(done.stderr)


def measure(agent: str, seed: int, steps: int) -> list[Row]:
    learner = getattr(agents, agent)(BARTO, seed=seed).learn(steps)
    n, worlds = N_OBSERVATIONS // len(SHARES), (gym.make(BARTO) for _ in SHARES)
    envs = (Exploring(env, share, seed) for env, share in zip(worlds, SHARES, strict=True))
    parts = [learner.visited_states(n, env=env, seed=seed) for env in envs]
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
            size = export(learner, folder, fixed_point=fixed_point)
            actions, nanoseconds = decide(folder, observations)
            command = [program("cartpole.c", folder)]
            played = subprocess.run(command, capture_output=True, check=True, text=True)
        rows.append({
            "tables": name, "cells": learner.n_cells, "bytes": size, "ns": nanoseconds,
            "python_ns": python, "observations": len(observations),
            "same": int((actions == expected).sum()), "mean": float(returns.mean()),
            "mean_in_c": float(np.mean([int(line) for line in played.stdout.split()])),
        })  # fmt: skip
    return rows


def bytes_of(group: Rows) -> str:
    """Median of the tables' bytes, and the largest."""
    return f"{np.median(group.column('bytes')):,.0f} ({max(group.column('bytes')):,.0f})"


def differing(group: Rows) -> str:
    asked = sum(row["observations"] for row in group)
    return f"{asked - sum(row['same'] for row in group):,} of {asked:,}"


def tables(rows: Rows) -> dict[str, Table]:
    def ratio_of_times(group: Rows) -> str:
        return f"{np.median(group.column('python_ns')) / np.median(group.column('ns')):,.0f}"

    lines = [rows.where(agent=agent, tables=kind) for agent in MAX_STEPS for kind in TABLES]
    columns = [
        Column("", lambda group: f"`{group[0]['agent']}`"),
        Column("cells", of(np.median, "cells", "g")),
        Column("tables", the("tables")),
        Column("bytes (max)", bytes_of),
        Column("ns a decision", of(np.median, "ns", ".3g")),
        Column("times as fast as `predict`", ratio_of_times),
        Column("decisions that differ", differing),
        Column("steps of 1000 in C (min)", partial(Rows.mean_and_least, key="mean_in_c")),
        Column("in Python", Rows.mean_and_least),
    ]
    return {"export": Table("BartoCartPole, medians of seeds", columns, lines)}


@dataclass(frozen=True)
class Options(SharedOptions):
    seeds: int = 10  # Seeds of each agent


def settings(options: Options) -> list[Row]:
    return [
        {"agent": agent, "seed": seed, "steps": min(STEPS, most)}
        for seed in EXPERIMENT.seeds(options)
        for agent, most in MAX_STEPS.items()
    ]
