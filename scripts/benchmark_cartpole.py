"""How well and how fast the online agent learns the two cart-poles.

Learning is measured on seeds that were never used to choose settings; every environment step is
counted, restarts included. Solved is a seed whose greedy policy has a mean return of at least 95 %
of the longest episode over 100 episodes. Times are medians of repetitions, each beside the time of
its competitor in the same run.

Run: python scripts/benchmark_cartpole.py [--workers 2]
Trainings are kept in results/benchmark_cartpole.jsonl as they end, and not repeated. Writes
results/benchmark_cartpole.csv (every run) and results/benchmark_cartpole.png.
"""

import csv
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from numba import njit
from rich.console import Console
from rich.table import Table

from oda_rl.agents import TwoTimescaleAgent
from oda_rl.envs.cartpole import BartoCartPoleEnv, cartpole_parameters, cartpole_step
from oda_rl.experiments import Execution, failures, rows_of, run_all
from oda_rl.persistence import write_text
from oda_rl.plotting import COLORS, new_axes
from oda_rl.report import save_figure
from oda_rl.statistics import summarize

BARTO, CARTPOLE = "oda_rl/BartoCartPole-v0", "CartPole-v1"
FIRST_SEED = 40_000_000
CHECKPOINTS = (2_000, 5_000, 10_000, 20_000, 50_000, 60_000, 100_000, 200_000)
SHOWN = (10_000, 20_000, 50_000, 60_000, 100_000, 200_000)
EVALUATION_EPISODES = 100
RESULTS = Path("results")

# One-step Q-learning, algorithm 2 of the paper: without traces a shorter horizon learns faster.
ONE_STEP: dict[str, Any] = {"trace_decay": 0.0, "discount": 0.85}


@dataclass(frozen=True)
class Experiment:
    """One row of the table."""

    name: str
    env_id: str
    n_seeds: int
    config: dict[str, Any] = field(default_factory=dict)


EXPERIMENTS = (
    Experiment("BartoCartPole, defaults", BARTO, 200),
    Experiment("BartoCartPole, one-step Q", BARTO, 200, ONE_STEP),
    Experiment("CartPole-v1, defaults", CARTPOLE, 200),
)


def learn(
    experiment: str, env_id: str, config: dict[str, Any], seed: int, checkpoints: list[int]
) -> list[dict[str, Any]]:
    """Train once; evaluate at every checkpoint in an environment of its own."""
    longest = gym.spec(env_id).max_episode_steps
    assert longest is not None
    agent = TwoTimescaleAgent(env_id, seed=seed, **config)
    rows = []
    for steps in checkpoints:
        agent.learn(steps - agent.num_timesteps)
        returns = agent.evaluate(EVALUATION_EPISODES, seed=seed + 10**8)
        rows.append(
            {
                "steps": agent.num_timesteps,
                "mean": returns.mean(),
                "solved": int(returns.mean() >= 0.95 * longest),
                "min": returns.min(),
                "cells": agent.n_cells,
                "training_seconds": agent.training_seconds,
            }
        )
    return rows


def benchmark_learning(console: Console, execution: Execution) -> list[dict[str, Any]]:
    """Run all experiments and print their table."""
    settings = [
        {
            "experiment": experiment.name, "env_id": experiment.env_id,
            "config": experiment.config, "seed": FIRST_SEED + i, "checkpoints": CHECKPOINTS,
        }
        for experiment in EXPERIMENTS
        for i in range(experiment.n_seeds)
    ]  # fmt: skip
    runs = run_all(learn, settings, RESULTS / "benchmark_cartpole.jsonl", execution)
    console.print(*failures(runs), sep="\n")
    rows = [
        {key: value for key, value in row.items() if key not in ("config", "checkpoints")}
        for row in rows_of(runs)
    ]
    for experiment in EXPERIMENTS:
        table = Table(title=f"{experiment.name}, {experiment.n_seeds} seeds", box=None)
        for column in ("steps", "solved", "mean", "IQM (95 %)", "median", "min", "cells"):
            table.add_column(column, justify="right")
        for steps in SHOWN:
            at = [r for r in rows if (r["experiment"], r["steps"]) == (experiment.name, steps)]
            found = summarize([row["mean"] for row in at])
            low, high = found.interval
            table.add_row(
                f"{steps:,}",
                f"{np.mean([row['solved'] for row in at]):.3f}",
                f"{found.mean:.1f}",
                f"{found.interquartile_mean:.1f} ({low:.1f} to {high:.1f})",
                f"{found.median:.1f}",
                f"{found.least:.1f}",
                f"{np.mean([row['cells'] for row in at]):.1f}",
            )
        console.print(table, "")
    return rows


@njit
def bare_dynamics(parameters: Any, actions: Any, steps: int) -> float:
    """Step a cart-pole without an agent, from near its middle after each failure."""
    state = np.zeros(4)
    for i in range(steps):
        if cartpole_step(parameters, state, actions[i % actions.shape[0]]):
            state[:] = 0.01
    return state[0]


def seconds(function: Callable[[], Any]) -> float:
    """Wall time of a call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def benchmark_fused(console: Console, steps: int = 200_000, repetitions: int = 20) -> None:
    """Time fused trainings, each beside the bare dynamics."""
    parameters = cartpole_parameters(BartoCartPoleEnv())
    actions = np.random.default_rng(0).integers(2, size=1024)
    bare_dynamics(parameters, actions, 10)
    TwoTimescaleAgent(BARTO, seed=0).learn(steps)
    agents = [TwoTimescaleAgent(BARTO, seed=FIRST_SEED + i) for i in range(repetitions)]
    pairs = np.array(
        [
            (
                seconds(lambda: bare_dynamics(parameters, actions, steps)),
                seconds(lambda agent=agent: agent.learn(steps)),
            )
            for agent in agents
        ]
    )
    bare, training = 1e9 * np.median(pairs, axis=0) / steps
    worst = 1e9 * pairs[:, 1].max() / steps
    ratio = np.median(pairs[:, 1] / pairs[:, 0])
    console.print(
        f"fused training, {steps:,} steps: {training:.0f} ns a step (median of {repetitions} "
        f"seeds; most {worst:.0f}), bare dynamics {bare:.0f} ns: {ratio:.1f} times"
    )


class Recording(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper, so that training takes the Python loop, that keeps what was done."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.actions: list[int] = []
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Keep the seed."""
        self.seeds.append(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: int) -> Any:
        """Keep the action."""
        self.actions.append(action)
        return self.env.step(action)


class Plain(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that does nothing, so that training takes the Python loop."""


def replay(env: gym.Env[Any, Any], seeds: list[int | None], actions: list[int]) -> None:
    """Step an environment through the same episodes without an agent."""
    resets = iter(seeds)
    env.reset(seed=next(resets))
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset(seed=next(resets))


def benchmark_python_loop(
    console: Console, steps: int = 50_000, n_seeds: int = 5, repetitions: int = 5
) -> None:
    """Time what the agent adds to the steps of Gymnasium's CartPole, over the same episodes.

    The figure is a small difference of two times, so each is the least of a few repetitions.
    """
    pairs = []
    for seed in range(FIRST_SEED, FIRST_SEED + n_seeds):
        recording = Recording(gym.make(CARTPOLE))
        TwoTimescaleAgent(recording, seed=seed).learn(steps)
        alone, together = [], []
        for _ in range(repetitions):
            env, seeds, actions = Plain(gym.make(CARTPOLE)), recording.seeds, recording.actions
            agent = TwoTimescaleAgent(Plain(gym.make(CARTPOLE)), seed=seed)
            alone.append(seconds(partial(replay, env, seeds, actions)))
            together.append(seconds(partial(agent.learn, steps)))
        pairs.append((1e6 * min(alone) / steps, 1e6 * min(together) / steps))
    alone_us, together_us = np.median(pairs, axis=0)
    added = np.median([after - before for before, after in pairs])
    console.print(
        f"Python loop, {steps:,} steps of {CARTPOLE}: env.step {alone_us:.2f} µs, with the agent "
        f"{together_us:.2f} µs: it adds {added:.2f} µs ({added / alone_us:.0%}; median of "
        f"{n_seeds} seeds)"
    )


def benchmark_process(console: Console, repetitions: int = 5) -> None:
    """Time the whole command with each algorithm, caches warm."""
    for algorithm in ("fitted", "two-timescale"):
        times, memory = [], []
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "oda_rl.cli", "train", "--env-id", CARTPOLE]
            command += ["--algo", algorithm]
            command += ["--total-timesteps", "50000", "--out", f"{folder}/run"]
            for _ in range(repetitions + 1):
                start = time.perf_counter()
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                if process.returncode != 0:
                    raise subprocess.CalledProcessError(process.returncode, command)
                times.append(time.perf_counter() - start)
                memory.append(usage.ru_maxrss / 1024)
        console.print(
            f"oda-rl train --algo {algorithm}, 50,000 steps of {CARTPOLE}, 100 evaluation "
            f"episodes, figures: {np.median(times[1:]):.2f} s wall, {np.median(memory[1:]):.0f} MiB"
        )


def write_results(rows: list[dict[str, Any]]) -> None:
    """Write every run, and the figure."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_text(RESULTS / "benchmark_cartpole.csv", text.getvalue())
    ax = new_axes()[0]
    for color, experiment in zip(COLORS, EXPERIMENTS, strict=False):
        shares = [
            np.mean([
                row["solved"]
                for row in rows
                if (row["experiment"], row["steps"]) == (experiment.name, steps)
            ])
            for steps in CHECKPOINTS
        ]  # fmt: skip
        label = f"{experiment.name} ({experiment.n_seeds} seeds)"
        ax.plot(CHECKPOINTS, shares, "o-", color=color, markersize=4, label=label)
    ax.set(xscale="log", xlabel="environment steps", ylabel="share of seeds solved", ylim=(0, 1.03))
    ax.set_xticks(CHECKPOINTS, [f"{n // 1000}k" if n != 60_000 else "" for n in CHECKPOINTS])
    ax.minorticks_off()
    ax.set_title("Cart-pole, greedy policy over 100 episodes ≥ 95 % of the longest")
    ax.legend(frameon=False, loc="lower right")
    ax.spines[["top", "right"]].set_visible(False)
    save_figure(ax, RESULTS / "benchmark_cartpole.png")


def main(execution: Execution) -> None:
    """Print all tables; ``execution`` says where to train, what is timed runs alone."""
    console = Console(highlight=False, soft_wrap=True)
    write_results(benchmark_learning(console, execution))
    benchmark_fused(console)
    benchmark_python_loop(console)
    benchmark_process(console)


if __name__ == "__main__":
    main(tyro.cli(Execution, description=__doc__))
