"""Online learning over soft annealed cells beside Sarsa(λ) with tile coding, on seven tasks.

Both learn with one setting for all tasks, but tile coding is given the state, its bounds and grids,
and has no continuous actions. Where these are continuous, cells are of state and action together.
Steps of trials count. A seed solves a task if the delivered policy's mean return over
20 greedy episodes is what the table says; seeds are those from 150 000 000 on, which chose nothing,
and from 190 000 000 on for continuous actions.

Run: python scripts/benchmark.py soft_cells [--only CartPole-v1 ...] [--seeds 20] [--episodes 20]
Runs are kept in results/benchmark_soft_cells.jsonl as they end, and not repeated; writes
results/benchmark_soft_cells.csv.
"""

import time
from dataclasses import dataclass

import numpy as np
from common import joint_cells, soft_learner, tile_coding
from common.compiled_tasks import compiled_task
from common.experiment import Experiment, SharedOptions, chosen, say
from common.suite_tasks import TASKS, make
from common.summaries import Column, Row, Rows, Table, among

EXPERIMENT = Experiment("benchmark_soft_cells")
CHECKPOINTS = (100_000, 200_000)
LEARNERS = {"soft cells": soft_learner.train, "tile coding": tile_coding.train}
NAMES = (
    "CartPole-v1", "BartoCartPole", "MountainCar-v0", "Acrobot-v1", "Pendulum-v1, 5 torques",
    "Pendulum-v1", "MountainCarContinuous-v0",
)  # fmt: skip
KNOWN = {task.name: task for task in TASKS if task.name in NAMES}


def train(method: str, task: str, seed: int, checkpoints: list[int], episodes: int) -> list[Row]:
    about = KNOWN[task]
    arguments = compiled_task(make(about), seed, checkpoints[-1], episodes)
    learner = joint_cells.train if about.boxed else LEARNERS[method]
    learner(arguments, seed, (10,), 1)  # compiles
    begun = time.process_time()
    returns, features = learner(arguments, seed, tuple(checkpoints), episodes)
    used = time.process_time() - begun  # for all steps, and the evaluations
    assert about.solved is not None
    return [
        {
            "steps": steps,
            "mean": float(own.mean()),
            "least": float(own.min()),
            "solved": int(own.mean() >= about.solved),
            "features": features,
            "seconds": used,
        }
        for steps, own in zip(checkpoints, returns, strict=True)
    ]


def outcome(own: Rows) -> str:
    means = own.column("mean")
    digits = 0 if means.max() > 100 else 1
    texts = [f"{f(means):.{digits}f}" for f in (np.mean, np.median, np.min)]
    return f"{np.mean(own.column('solved')):.2f} ({', '.join(texts)})"


def tables(rows: Rows) -> dict[str, Table]:
    def goal(own: Rows) -> str:
        return f"{own[0]['task']} ≥ {KNOWN[own[0]['task']].solved:g}"

    def microseconds(own: Rows) -> str:
        longest = max(own.values("steps"))
        return f"{np.median(own.column('seconds')) / longest * 1e6:.1f}"

    columns = [
        Column("", goal),
        *(
            Column(f"{method}, {steps:,} steps", among(outcome, method=method, steps=steps))
            for method in LEARNERS
            for steps in sorted(rows.values("steps"))
        ),
        *(
            Column(f"{method}, µs a step", among(microseconds, method=method))
            for method in LEARNERS
        ),
    ]
    lines = [own for name in NAMES if (own := rows.where(task=name))]
    title = "share of seeds that solve the task (mean, median and minimum return)"
    return {"soft cells": Table(title, columns, lines)}


@dataclass(frozen=True)
class Options(SharedOptions):
    only: tuple[str, ...] = ()
    """Names of the tasks; all by default."""
    methods: tuple[str, ...] = ()
    """Names of the learners; all by default."""
    checkpoints: tuple[int, ...] = CHECKPOINTS
    """Steps after which the delivered policy is evaluated."""
    episodes: int = 20
    """Greedy episodes of an evaluation."""


def main(options: Options) -> None:
    settings = [
        {"method": method, "task": task, "seed": seed,
         "checkpoints": [*options.checkpoints], "episodes": options.episodes}
        for task in chosen(options.only, NAMES)
        for method in chosen(options.methods, LEARNERS)
        if method == "soft cells" or not KNOWN[task].boxed
        for seed in EXPERIMENT.seeds(options)
    ]  # fmt: skip
    rows = EXPERIMENT.run(train, settings, options.execution)
    say(*tables(rows).values())
