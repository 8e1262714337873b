"""Rewards in other units, and no threshold from which a task is solved: does the online agent care.

CartPole-v1 with rewards multiplied with 1e-6 to 1e6, with 5 added to each, and without the reward
threshold of its specification; beside them BartoCartPole as it is. A seed solves the task if the
mean return of 100 greedy episodes in the plain environment is what the table says. Agents have
their package defaults; seeds are those from 51 900 000 on, which chose nothing.

Run: python scripts/benchmark.py threshold [--only x1e-06 ...] [--seeds 20]
     [--workers 2 | --backend dask --address tcp://...:8786]
Runs are kept in results/benchmark_threshold.jsonl as they end, and not repeated; writes
results/benchmark_threshold.csv.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from common.experiment import Experiment, SharedOptions, chosen, say
from common.learning import EVALUATION_EPISODES, learn
from common.summaries import Column, Row, Rows, Table, among, count, the

import oda_rl.envs  # noqa: F401  (registers its environments)

EXPERIMENT = Experiment("benchmark_threshold")
STEPS = (50_000, 100_000)
SHARE = 0.95  # of seeds, which is aimed at after the most steps
CARTPOLE, BARTO = "CartPole-v1", "oda_rl/BartoCartPole-v0"
SOLVED = {CARTPOLE: 475.0, BARTO: 950.0}
Reward = Callable[[float], float]


def _times(factor: float) -> Reward:
    return lambda reward: factor * reward


REWARDS: dict[str, Reward | None] = {
    **{f"x{factor:g}": _times(factor) for factor in (1e-6, 1e-3, 1.0, 1e3, 1e6)},
    "+5": lambda reward: reward + 5.0,
    "no threshold": None,
}
BARTO_ITSELF = "BartoCartPole"


def made(case: str) -> gym.Env[Any, Any]:
    """Make the environment of a case.

    >>> made("+5").reset(seed=0)[0].shape
    (4,)
    """
    if case == BARTO_ITSELF:
        return gym.make(BARTO)
    env, reward = gym.make(CARTPOLE), REWARDS[case]
    if reward is not None:
        return gym.wrappers.TransformReward(env, reward)
    assert env.spec is not None
    env.spec.reward_threshold = None
    return env


def train(case: str, seed: int) -> list[Row]:
    """Train once; a row for each checkpoint."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from oda_rl.agents import TwoTimescaleAgent

    env_id = BARTO if case == BARTO_ITSELF else CARTPOLE
    plain = gym.make(env_id)
    agent = TwoTimescaleAgent(made(case), seed=seed)
    return [
        {**row, "solved": int(row["mean"] >= SOLVED[env_id])}
        for row in learn(
            agent, STEPS, lambda _: agent.evaluate(EVALUATION_EPISODES, env=plain, seed=seed)
        )
    ]


def share(own: Rows) -> str:
    """Share of seeds that solve the task, the mean, and that of the least seed."""
    means = own.column("mean")
    return f"{np.mean(own.column('solved')):.2f} ({np.mean(means):.0f}, {np.min(means):.0f})"


def tables(rows: Rows) -> dict[str, Table]:
    """Return the shares of seeds that solve the task."""
    columns = [
        Column("rewards", the("case")),
        Column("seeds", lambda own: count(own.where(steps=STEPS[0]))),
        *(Column(f"{steps:,} steps", among(share, steps=steps)) for steps in STEPS),
    ]
    title = "share of seeds solved (mean return, that of the least seed)"
    return {"threshold": Table(title, columns, rows.groups("case"))}


def missed(rows: Rows) -> list[str]:
    """Say where the target is missed."""
    found = []
    for own in rows.where(steps=STEPS[-1]).groups("case"):
        solved = np.mean(own.column("solved"))
        if solved < SHARE:
            found.append(f"{own[0]['case']}: {solved:.2f} of the seeds solve it, not {SHARE}")
    return found


@dataclass(frozen=True)
class Options(SharedOptions):
    """What to run, and where."""

    only: tuple[str, ...] = ()
    """Names of the cases to do; all by default."""


def main(options: Options) -> None:
    """Benchmark other rewards."""
    settings = [
        {"case": case, "seed": seed}
        for case in chosen(options.only, (*REWARDS, BARTO_ITSELF))
        for seed in EXPERIMENT.seeds(options)
    ]
    rows = EXPERIMENT.run(train, settings, options.execution)
    say(*tables(rows).values(), *missed(rows))
