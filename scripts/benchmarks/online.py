"""The online agent with all kinds of cells beside the fitted agent, and Sarsa(λ) with tile coding.

One setting for all tasks; tile coding is given the state, its bounds and a grid for each task.
Where actions are continuous, cells are of states and actions. Every step counts. A seed solves a
task if the mean return of 100 greedy episodes is what the table says; the seeds chose nothing.
"""

import time
from functools import partial
from typing import Any

import numpy as np
from common import tile_coding
from common.experiment import Experiment, MethodSelection, chosen
from common.learning import FITTED
from common.suite_tasks import TASKS, goal, make
from common.summaries import Column, Row, Rows, Table, among, of, the

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent

EXPERIMENT = Experiment("benchmark_online")
CHECKPOINTS, EPISODES = (100_000, 200_000), 100  # greedy episodes at each
LANDER, LATER = "LunarLander-v3", (200_000, 500_000)
TILES = "tile coding"
# 256 cells each, or as near as a grid comes to that; "paper" is Algorithm 2, misprints corrected.
CELLS: dict[str, dict[str, Any]] = {
    "oda": {},
    "paper": {"paper": True},
    "grid": {},
    "som": {"map_shape": (16, 16)},
    "gmm": {"mixture_components": 256},
    "infex": {"infex_max_cells": 256},
}
METHODS = (*CELLS, FITTED, TILES)
NAMES = (
    "CartPole-v1", "BartoCartPole", "MountainCar-v0", "Acrobot-v1", "Pendulum-v1, 5 torques",
    "Pendulum-v1", "MountainCarContinuous-v0", "Inventory", "Admission", "DelayedCart", LANDER,
)  # fmt: skip


def measure(method: str, task: str, seed: int, checkpoints: list[int], episodes: int) -> list[Row]:
    about, begun = TASKS[task], time.process_time()
    if method == TILES:
        returns, cells = tile_coding.train(lambda: make(about), seed, checkpoints, episodes)
    else:
        env, bins = make(about), {}
        if method == "grid":
            bins = {"bins": int(256 ** (1.0 / env.observation_space.shape[0]) + 1e-9)}  # type: ignore[index]
        partition = "oda" if method == "paper" else method
        agent: FittedQAgent | TwoTimescaleAgent = (
            FittedQAgent(env, seed=seed)
            if method == FITTED
            else TwoTimescaleAgent(env, partition=partition, seed=seed, **CELLS[method], **bins)
        )
        returns = np.empty((len(checkpoints), episodes))
        for i, steps in enumerate(checkpoints):
            agent.learn(steps - agent.num_timesteps)
            returns[i] = agent.evaluate(episodes, seed=seed)
        cells = agent.n_cells
    used = time.process_time() - begun  # for all steps, and the evaluations
    return [
        {"steps": steps, "mean": float(own.mean()), "least": float(own.min()),
         "solved": int(own.mean() >= about.solved), "cells": cells, "seconds": used}
        for steps, own in zip(checkpoints, returns, strict=True)
    ]  # fmt: skip


def outcome(own: Rows) -> str:
    means = own.column("mean")
    digits = 0 if means.max() > 100 else 1
    texts = [f"{f(means):.{digits}f}" for f in (np.mean, np.median, np.min)]
    return f"{np.mean(own.column('solved')):.2f} ({', '.join(texts)})"


def tables(rows: Rows) -> dict[str, Table]:
    def microseconds(own: Rows) -> str:
        return f"{np.median(own.column('seconds')) / max(own.values('steps')) * 1e6:.1f}"

    def task(own: Rows) -> str:
        return goal(own) + "; {:,}, {:,} steps".format(*LATER) * (own[0]["task"] == LANDER)

    def after(own: Rows, method: str, k: int) -> str:
        return outcome(found[k]) if (found := own.where(method=method).by_steps()) else ""

    cells = of(np.median, "cells", ",.0f")  # at the end
    present = [method for method in ("oda", FITTED, TILES) if rows.where(method=method)]
    columns = [
        Column("", task),
        *(
            Column(f"{method}, {steps:,} steps", partial(after, method=method, k=k))
            for method in present
            for k, steps in enumerate(CHECKPOINTS)
        ),
        *(Column(f"{name}, µs a step", among(microseconds, method=name)) for name in present),
        *(Column(f"{name}, cells", among(cells, method=name)) for name in present if name != TILES),
    ]
    title = "share of seeds that solve the task (mean, median and minimum return)"
    online = Table(title, columns, [rows.where(task=name) for name in NAMES])
    names = [name for name in NAMES if rows.where(method="grid", task=name)]
    kinds = [Column("cells", the("method")), *(Column(n, among(outcome, task=n)) for n in names)]
    last = [rows.where(method=method, steps=CHECKPOINTS[-1]) for method in CELLS]
    return {"online": online, "cells": Table(title, kinds, [own for own in last if own])}


Options = MethodSelection


def settings(options: MethodSelection) -> list[Row]:
    return [
        {"method": method, "task": task, "seed": seed,
         "checkpoints": [*(LATER if task == LANDER else CHECKPOINTS)], "episodes": EPISODES}
        for task in chosen(options.only, NAMES)
        for method in chosen(options.methods, METHODS)
        if method not in ("paper", TILES) or task in NAMES[:5]  # Gymnasium's, discrete actions
        for seed in EXPERIMENT.seeds(options)
    ]  # fmt: skip
