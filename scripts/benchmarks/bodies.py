"""The model agent on bodies of several joints: Gymnasium's MuJoCo and Box2D tasks.

Continuous actions and package defaults; each number of steps is a training of its own, because the
agent divides what it is given. Means are over seeds of 100 greedy episodes each; the seeds, from
51,450,000 on, tuned nothing.
"""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from common.experiment import Experiment, Selection, chosen
from common.learning import MODEL, learn, side_by_side
from common.summaries import Column, Row, Rows, Table, count, of, the

EXPERIMENT = Experiment("benchmark_bodies")


@dataclass(frozen=True)
class Task:
    aim: float
    """Mean return, of which the share of seeds that reach it is reported."""
    steps: tuple[int, ...]
    published: str = ""
    """Results of rl-zoo after a million steps, one run of each algorithm (see suite_tasks)."""


TASKS = {
    "InvertedPendulum-v5": Task(1000.0, (5_000,)),
    "InvertedDoublePendulum-v5": Task(9000.0, (50_000,)),
    "Reacher-v5": Task(-6.0, (50_000, 200_000)),
    "Swimmer-v5": Task(340.0, (500_000,), "PPO 282, SAC 346, TD3 359"),
    "Hopper-v5": Task(2500.0, (500_000, 1_000_000), "A2C 733, SAC 2,326, PPO 2,410, TD3 3,606"),
    "HalfCheetah-v5": Task(4000.0, (200_000, 1_000_000), "A2C 3,041, PPO 5,819, SAC 9,535"),
    "Walker2d-v5": Task(2500.0, (1_000_000,)),
    "LunarLanderContinuous-v3": Task(250.0, (300_000,)),
    "BipedalWalker-v3": Task(250.0, (1_000_000,)),
}


def measure(task: str, steps: int, seed: int) -> list[Row]:
    from oda_rl.agents import ModelAgent

    agent = ModelAgent(gym.make(task), seed=seed)
    (row,) = learn(agent, [steps], lambda _: side_by_side(agent, lambda: gym.make(task), seed))
    numbers = sum(int(np.count_nonzero(one)) for one in agent.policy.parameters)
    return [{**row, "numbers": numbers, "trusted": int(agent.distrust is None)}]


def tables(rows: Rows) -> dict[str, Table]:
    columns = [
        Column(f"`{MODEL}`", the("task"), once=True),
        Column("aim", lambda line: f"{TASKS[line[0]['task']].aim:g}", once=True),
        Column("steps", the("steps", ",")),
        Column("seeds", count),
        Column("reached", lambda line: line.share_from(TASKS[line[0]["task"]].aim)),
        Column("mean", of(np.mean, "mean", ",.1f")),
        Column("median", of(np.median, "mean", ",.1f")),
        Column("min", of(np.min, "mean", ",.1f")),
        Column("trusts its model", of(np.mean, "trusted", ".2f")),
        Column("numbers", of(np.median, "numbers", ".0f")),
        Column("processor s", of(np.median, "seconds", ",.0f")),
        Column("rl-zoo, a million", lambda line: TASKS[line[0]["task"]].published, once=True),
    ]
    lines = [at for task in TASKS for at in rows.where(task=task).by_steps()]
    return {"bodies": Table("delivered rule, 100 episodes a seed", columns, lines)}


Options = Selection


def settings(options: Selection) -> list[Row]:
    return [
        {"task": task, "steps": steps, "seed": seed}
        for task in chosen(options.only, TASKS)
        for steps in TASKS[task].steps
        for seed in EXPERIMENT.seeds(options)
    ]
