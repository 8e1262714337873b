"""The model agent on Gymnasium's MuJoCo tasks of few components.

InvertedPendulum, InvertedDoublePendulum and Reacher with continuous actions and package defaults.
Means are over seeds of 100 greedy episodes each; the seeds, from 51 400 000 on, tuned nothing.

Run: pip install ".[mujoco]"
     python scripts/benchmark.py mujoco [--only Reacher-v5 ...] [--seeds 5] [--longest 50000]
     [--workers 2 | --backend dask --address tcp://...:8786]
Runs are stored in results/benchmark_mujoco.jsonl, and not repeated; writes
results/benchmark_mujoco.csv.
"""

import os
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from common.experiment import Experiment, SharedOptions, chosen, say
from common.learning import MODEL, learn, side_by_side
from common.summaries import Column, Row, Rows, Table, count, of, the

EXPERIMENT = Experiment("benchmark_mujoco", leave_out=("longest",))
CHECKPOINTS = (5_000, 20_000, 50_000)
AIMS = {"InvertedPendulum-v5": 1000.0, "InvertedDoublePendulum-v5": 9000.0, "Reacher-v5": -5.0}


def train(task: str, seed: int, longest: int) -> list[Row]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from oda_rl.agents import ModelAgent

    agent = ModelAgent(gym.make(task), seed=seed)
    steps = [n for n in CHECKPOINTS if n < longest] + [longest]
    rows: list[Row] = []
    for row in learn(agent, steps, lambda _: side_by_side(agent, lambda: gym.make(task), seed)):
        rows.append({**row, "trusted": int(agent.models_laws and bool(agent.world.trust))})
    return rows


def tables(rows: Rows) -> dict[str, Table]:
    def aim(line: Rows) -> str:
        return f"{line[0]['task']} ≥ {AIMS[line[0]['task']]:g}"

    def reached(line: Rows) -> str:
        return f"{np.mean(line.column('mean') >= AIMS[line[0]['task']]):.2f}"

    columns = [
        Column(f"`{MODEL}`", aim, once=True),
        Column("steps", the("steps", ",")),
        Column("seeds", count),
        Column("reached", reached),
        Column("mean", of(np.mean, "mean", ".1f")),
        Column("median", of(np.median, "mean", ".1f")),
        Column("least", of(np.min, "mean", ".1f")),
        Column("trusts its model", of(np.mean, "trusted", ".2f")),
        Column("cells", of(np.mean, "cells", ".1f")),
        Column("processor s", of(np.median, "seconds", ".2g")),
    ]
    lines = [at for task in AIMS for at in rows.where(task=task).by_steps()]
    return {"mujoco": Table("delivered rule, 100 episodes a seed", columns, lines)}


@dataclass(frozen=True)
class Options(SharedOptions):
    seeds: int = 5
    """Runs of each environment."""
    only: tuple[str, ...] = ()
    """Ids of the environments to do; all by default."""
    longest: int = CHECKPOINTS[-1]
    """Steps to train for."""


def main(options: Options) -> None:
    settings = [
        {"task": task, "seed": seed, "longest": options.longest}
        for task in chosen(options.only, AIMS)
        for seed in EXPERIMENT.seeds(options)
    ]
    rows = EXPERIMENT.run(train, settings, options.execution)
    say(*tables(rows).values())
