"""The model agent on bodies of several joints: Gymnasium's MuJoCo and Box2D tasks.

Continuous actions; each number of steps is a training of its own, because the agent divides what it
is given. Stable-Baselines3's PPO has as many, in whole rollouts, and its SAC at most 200,000; all
have package defaults. Means are over seeds of 100 greedy episodes each; docs/suite.md says which of
the seeds, from 51,450,000 on, were known before.
"""

import time
from dataclasses import dataclass
from functools import partial

import gymnasium as gym
import numpy as np
from common.experiment import Experiment, MethodSelection, chosen
from common.learning import MODEL, learn, sb3_learner, side_by_side
from common.summaries import Column, Row, Rows, Table, among, count, of, the

EXPERIMENT = Experiment("benchmark_bodies")
METHODS = MODEL, "PPO", "SAC"
SAC_STEPS = 200_000


@dataclass(frozen=True)
class Task:
    aim: float  # Mean return, of which the share of seeds that reach it is reported
    steps: tuple[int, ...]
    published: str = ""  # results of rl-zoo after a million steps (see suite_tasks)


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


def measure(task: str, method: str, steps: int, seed: int) -> list[Row]:
    from oda_rl.agents import ModelAgent

    make = partial(gym.make, task)
    if method == MODEL:
        agent = ModelAgent(make(), seed=seed)
        (row,) = learn(agent, [steps], lambda _: side_by_side(agent.predict, make, seed))
        numbers = sum(int(np.count_nonzero(one)) for one in agent.policy.parameters)
        return [{**row, "numbers": numbers, "trusted": int(agent.distrust is None)}]
    model, used, rows = sb3_learner(method, make(), 0, seed), 0.0, []
    for stage in sorted({one for one in TASKS[task].steps if one < steps} | {steps}):
        begun = time.process_time()
        model.learn(stage - model.num_timesteps, reset_num_timesteps=False)
        used += time.process_time() - begun
        returns = side_by_side(partial(model.predict, deterministic=True), make, seed)
        numbers = sum(one.numel() for one in model.policy.parameters())
        rows.append({"steps": stage, "mean": float(returns.mean()), "least": float(returns.min()),
                     "seconds": used, "numbers": numbers, "bytes": 4 * numbers})  # fmt: skip
    return rows


def tables(rows: Rows) -> dict[str, Table]:
    columns = [
        Column("task", the("task"), once=True),
        Column("aim", lambda line: f"{TASKS[line[0]['task']].aim:g}", once=True),
        Column("steps", the("steps", ",")),
        Column("learner", the("method")),
        Column("seeds", count),
        Column("reached", lambda line: line.share_from(TASKS[line[0]["task"]].aim)),
        *(Column(f.__name__, of(f, "mean", ",.1f")) for f in (np.mean, np.median, np.min)),
        Column("trusts its model", among(of(np.mean, "trusted", ".2f"), method=MODEL)),
        Column("numbers", of(np.median, "numbers", ",.0f")),
        Column("processor s", of(np.median, "seconds", ",.0f")),
        Column("rl-zoo, a million", lambda line: TASKS[line[0]["task"]].published, once=True),
    ]
    at = [line for task in TASKS for line in rows.where(task=task).by_steps()]
    lines = [line.where(method=method) for line in at for method in METHODS]
    return {"bodies": Table("delivered policy, 100 episodes a seed", columns, lines)}


Options = MethodSelection


def steps_of(task: str, method: str) -> tuple[int, ...]:
    """Return the steps of each training; those that need not divide their steps pause at fewer."""
    steps = TASKS[task].steps
    if method == MODEL:
        return steps
    return (min(steps[-1], SAC_STEPS if method == "SAC" else steps[-1]),)


def settings(options: MethodSelection) -> list[Row]:
    return [
        {"task": task, "method": method, "steps": steps, "seed": seed}
        for task in chosen(options.only, TASKS)
        for method in chosen(options.methods, METHODS)
        for steps in steps_of(task, method)
        for seed in EXPERIMENT.seeds(options)
    ]
