"""One default for the classic-control suite: how many seeds are solved, how fast, at what size.

Every agent has its package defaults, discount factor included, in real Gymnasium environments.
Every training step is counted. A seed is solved if the delivered policy's mean return over 100
greedy episodes reaches the threshold. Seeds are those from 51 000 000 on (of the baselines from
50 000 000 on), which chose nothing.

DQN and PPO of Stable-Baselines3, with rl-zoo's tuned hyper-parameters for each environment, learn
in the same environments for the same number of steps: --baselines 3 gives them three seeds.

Run: python scripts/benchmark_suite.py [--only CartPole-v1 ...] [--baselines 3]
     [--workers 2 | --backend dask --address tcp://...:8786]
Runs are kept in results/benchmark_suite.jsonl as they end, and not repeated; writes
results/benchmark_suite.csv and results/benchmark_suite.png.
"""

import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from suite_tasks import BARTO, CARTPOLE, TASKS, Task, make

from oda_rl.agents.sb3.settings import settings_for
from oda_rl.experiments import Execution, failures, run_all, store_runs
from oda_rl.results import markdown_table, read_rows
from oda_rl.statistics import summarize

RESULTS = Path("results")
FIRST_SEED, FIRST_BASELINE_SEED = 51_000_000, 50_000_000
EVALUATION_EPISODES = 100
FITTED, ONLINE = "FittedQAgent", "TwoTimescaleAgent"
ONLINE_CHECKPOINTS = (10_000, 20_000, 50_000, 100_000, 200_000)
ONLINE_SEEDS = 300  # a training takes milliseconds
ONLINE_TARGETS = {BARTO: {50_000: 0.95, 100_000: 0.99}, CARTPOLE: {50_000: 0.98}}

Row = dict[str, Any]


def train(method: str, task: str, seed: int) -> list[Row]:
    """Train once; a row for each checkpoint."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    known = next(one for one in TASKS if one.name == task)
    learn = run_ours if method in (FITTED, ONLINE) else run_sb3
    return [{**row, "solved": solved(known, row["mean"])} for row in learn(method, known, seed)]


def solved(task: Task, mean: float) -> int:
    """Return 1 if the task counts as solved."""
    return int(task.solved is not None and mean >= task.solved)


def run_ours(method: str, task: Task, seed: int) -> Iterator[Row]:
    """Train one of our agents, pausing at the checkpoints."""
    from oda_rl.agents import FittedQAgent, TwoTimescaleAgent

    kind = FittedQAgent if method == FITTED else TwoTimescaleAgent
    agent = kind(make(task), seed=seed)
    place = make(task)
    for steps in checkpoints(method, task):
        agent.learn(steps - agent.num_timesteps)
        returns = agent.evaluate(EVALUATION_EPISODES, env=place, seed=seed + 10**8)
        yield {
            "steps": steps,
            "mean": float(returns.mean()),
            "least": float(returns.min()),
            "cells": agent.n_cells,
            "seconds": agent.training_seconds,
            "bytes": policy_bytes(agent),
        }


def policy_bytes(agent: Any) -> int:
    """Size of the arrays that the delivered policy consists of."""
    if hasattr(agent, "policy"):
        policy = agent.policy
        return int(policy.diagram.nbytes + policy.models.nbytes + policy.origin.nbytes + 8)
    d, n_actions = agent.interface.n_features, agent.interface.n_actions
    return int(8 * (agent.n_cells * (1 + d + n_actions) + d))


def checkpoints(method: str, task: Task) -> tuple[int, ...]:
    """Numbers of steps after which an agent is evaluated."""
    return ONLINE_CHECKPOINTS if method == ONLINE else task.checkpoints


def run_sb3(method: str, task: Task, seed: int) -> Iterator[Row]:
    """Train DQN or PPO with rl-zoo's hyper-parameters."""
    import stable_baselines3 as sb3
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    settings = settings_for(method, task.env_id).parameters
    n_envs, normalize = settings.pop("n_envs", 1), settings.pop("normalize", False)
    envs: Any = make_vec_env(lambda: make(task), n_envs=n_envs, seed=seed)
    if normalize:
        envs = VecNormalize(envs, gamma=settings["gamma"])
    model = getattr(sb3, method)("MlpPolicy", envs, seed=seed, device="cpu", **settings)
    assert task.baseline_steps is not None
    begun = time.perf_counter()
    model.learn(task.baseline_steps)
    seconds = time.perf_counter() - begun
    place: Any = make_vec_env(lambda: make(task), n_envs=1, seed=seed + 10**8)
    if normalize:
        place = VecNormalize(place, training=False, norm_reward=False)
        place.obs_rms = envs.obs_rms
    returns, _ = evaluate_policy(
        model, place, EVALUATION_EPISODES, return_episode_rewards=True, warn=False
    )
    with TemporaryDirectory() as folder:
        model.policy.save(f"{folder}/policy")
        size = os.path.getsize(f"{folder}/policy")
    yield {
        "steps": task.baseline_steps,
        "mean": float(np.mean(returns)),
        "least": float(np.min(returns)),
        "cells": sum(parameter.numel() for parameter in model.policy.parameters()),
        "seconds": seconds,
        "bytes": size,
    }


def planned(
    only: tuple[str, ...], methods_only: tuple[str, ...], seeds: int | None, baselines: int
) -> list[Row]:
    """All runs: method, task, seed."""
    runs: list[Row] = []
    for task in TASKS:
        if only and task.name not in only:
            continue
        methods = {FITTED: task.n_seeds}
        if task.env_id in ONLINE_TARGETS:
            methods[ONLINE] = ONLINE_SEEDS
        if task.baseline_steps is not None:
            methods |= {"DQN": baselines, "PPO": baselines}
        for method, count in methods.items():
            if methods_only and method not in methods_only:
                continue
            n = count if seeds is None else min(count, seeds)
            first = FIRST_BASELINE_SEED if method in ("DQN", "PPO") else FIRST_SEED
            runs += [{"method": method, "task": task.name, "seed": first + i} for i in range(n)]
    return runs


def report(console: Console, rows: list[Row]) -> None:
    """Print a table for our agents, one with the baselines, and the targets that are missed."""
    table = Table(title="delivered policy, 100 greedy episodes a seed")
    for column in ("task", "agent", "steps", "seeds", "solved", "mean", "IQM (95 %)", "median",
                   "least", "cells", "µs/step"):  # fmt: skip
        table.add_column(column, justify="left" if column in ("task", "agent") else "right")
    missed: list[str] = []
    for task in TASKS:
        for method in (FITTED, ONLINE):
            own = [row for row in rows if (row["method"], row["task"]) == (method, task.name)]
            for steps in sorted({row["steps"] for row in own}):
                at = [row for row in own if row["steps"] == steps]
                found = summarize([row["mean"] for row in at])
                share = float(np.mean([row["solved"] for row in at]))
                low, high = found.interval
                table.add_row(
                    task.name, method.removesuffix("Agent"), f"{steps:,}", str(found.n),
                    f"{share:.3f}", f"{found.mean:.1f}",
                    f"{found.interquartile_mean:.1f} ({low:.1f} to {high:.1f})",
                    f"{found.median:.1f}", f"{found.least:.1f}",
                    f"{np.mean([row['cells'] for row in at]):.0f}",
                    f"{1e6 * np.mean([row['seconds'] / steps for row in at]):.1f}",
                )  # fmt: skip
                goals = task.targets if method == FITTED else ONLINE_TARGETS[task.env_id]
                if share < goals.get(steps, 0.0):
                    missed.append(
                        f"{method}, {task.name}, {steps:,} steps: {share:.3f} of the seeds are "
                        f"solved, {goals[steps] - share:.3f} below the target"
                    )
                goal = task.least_mean if method == FITTED else None
                if goal is not None and goal[0] == steps and found.mean < goal[1]:
                    missed.append(
                        f"{method}, {task.name}, {steps:,} steps: the mean is {found.mean:.1f}, "
                        f"{goal[1] - found.mean:.1f} below the target"
                    )
    console.print(table)
    compare(console, rows)
    for line in missed:
        console.print(line)


def compare(console: Console, rows: list[Row]) -> None:
    """Print our fitted agent beside DQN and PPO after the same number of steps."""
    if not any(row["method"] in ("DQN", "PPO") for row in rows):
        return
    table = Table(title="after the same number of steps (* hyper-parameters of another task)")
    for column in ("task", "steps", "method", "seeds", "solved", "mean", "least seed", "seconds",
                   "bytes", "rl-zoo's own"):  # fmt: skip
        table.add_column(column)
    for task in TASKS:
        steps = task.baseline_steps
        for method in (FITTED, ONLINE, "DQN", "PPO"):
            at = [
                row for row in rows
                if (row["method"], row["task"], row["steps"]) == (method, task.name, steps)
            ]  # fmt: skip
            if not at:
                continue
            baseline = method in ("DQN", "PPO")
            same = not baseline or settings_for(method, task.env_id).source == task.env_id
            label = method.removesuffix("Agent") + ("" if same else "*")
            means = [row["mean"] for row in at]
            table.add_row(
                task.name, f"{steps:,}", label, str(len(at)),
                f"{np.mean([row['solved'] for row in at]):.2f}", f"{np.mean(means):.1f}",
                f"{min(means):.1f}", f"{np.median([row['seconds'] for row in at]):.2f}",
                f"{np.median([row['bytes'] for row in at]):,.0f}", task.published,
            )  # fmt: skip
    console.print(table)


def tables(results: Path) -> dict[str, str]:
    """Return the tables of the README."""
    rows = read_rows(results / "benchmark_suite.csv")
    heads = ["seeds", "steps", "solved", "mean", "median", "least"]
    beside = ["after the same steps", "", "seeds", "mean (least seed)", "seconds", "bytes",
              "rl-zoo publishes"]  # fmt: skip
    return {
        "suite fitted": markdown_table([f"`{FITTED}`", *heads], _shares(rows, FITTED)),
        "suite online": markdown_table([f"`{ONLINE}`", *heads, "cells"], _shares(rows, ONLINE)),
        "suite baselines": markdown_table(beside, _beside(rows)),
    }


def _shares(rows: list[Row], method: str) -> list[list[str]]:
    """Return a line for each task and checkpoint, but for the first, where little is expected."""
    lines = []
    for task in TASKS:
        own = [row for row in rows if (row["method"], row["task"]) == (method, task.name)]
        for i, steps in enumerate(sorted({row["steps"] for row in own})[method == FITTED :]):
            at = [row for row in own if row["steps"] == steps]
            found = summarize([row["mean"] for row in at])
            line = [
                "" if i else f"{task.name} ≥ {task.solved:g}", "" if i else str(found.n),
                f"{steps:,}", f"{np.mean([row['solved'] for row in at]):.2f}",
                *(f"{x:.{task.digits}f}" for x in (found.mean, found.median, found.least)),
            ]  # fmt: skip
            if method == ONLINE:
                line.append(f"{np.mean([row['cells'] for row in at]):.1f}")
            lines.append(line)
    return lines


def _beside(rows: list[Row]) -> list[list[str]]:
    """Return a line for each method after the same steps, for each task with baselines."""
    lines = []
    for task in TASKS:
        steps = task.baseline_steps
        own = [row for row in rows if (row["task"], row["steps"]) == (task.name, steps)]
        for i, method in enumerate(dict.fromkeys(row["method"] for row in own)):
            at = [row for row in own if row["method"] == method]
            means = [row["mean"] for row in at]
            lines.append([
                "" if i else f"{task.name}, {steps:,}", _label(method, task), str(len(at)),
                f"{np.mean(means):.{task.digits}f} ({min(means):.{task.digits}f})",
                f"{np.median([row['seconds'] for row in at]):.3g}",
                f"{np.median([row['bytes'] for row in at]):,.0f}", "" if i else task.published,
            ])  # fmt: skip
    return lines


def _label(method: str, task: Task) -> str:
    """Return a method's name, starred if its hyper-parameters are those of another task."""
    if method in (FITTED, ONLINE):
        return f"`{method}`"
    return method + ("" if settings_for(method, task.env_id).source == task.env_id else "\\*")


def draw(rows: list[Row]) -> Path:
    """Draw the mean return of every seed over steps, a panel for each task."""
    from oda_rl.command.report import save_figure
    from oda_rl.plotting.axes import COLORS, new_axes

    names = [task for task in TASKS if any(row["task"] == task.name for row in rows)]
    columns = min(len(names), 3)
    n_rows = -(-len(names) // columns)
    panels = new_axes(3.9 * columns + 0.6, 3.1 * n_rows + 0.6, columns, n_rows)
    panels[0].figure.subplots_adjust(
        left=0.9 / (3.9 * columns), right=0.98, top=1.0 - 0.2 / n_rows, bottom=0.2 / n_rows,
        hspace=0.45, wspace=0.25,
    )  # fmt: skip
    for ax in panels[len(names) :]:
        ax.remove()
    for ax, task in zip(panels, names, strict=False):
        for color, method in zip(COLORS, (FITTED, ONLINE, "DQN", "PPO"), strict=False):
            own = [row for row in rows if (row["method"], row["task"]) == (method, task.name)]
            steps = sorted({row["steps"] for row in own})
            if not steps:
                continue
            quartiles = np.array([
                np.percentile([row["mean"] for row in own if row["steps"] == n], (25, 50, 75))
                for n in steps
            ])  # fmt: skip
            ax.plot(steps, quartiles[:, 1], "o-", color=color, markersize=4,
                    label=method.removesuffix("Agent"))  # fmt: skip
            ax.fill_between(steps, quartiles[:, 0], quartiles[:, 2], color=color, alpha=0.2)
        if task.solved is not None:
            ax.axhline(task.solved, color="0.5", linestyle="--", linewidth=1)
        ax.set(xscale="log")
        shown = sorted({row["steps"] for row in rows if row["task"] == task.name})
        ax.set_xticks(shown, [f"{n // 1000}k" for n in shown])
        ax.minorticks_off()
        ax.set_title(task.name, loc="left")
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("return")
    figure = panels[0].figure
    figure.suptitle(
        "Delivered policies over environment steps: median and quartiles", x=0.08, ha="left"
    )
    shown_by: dict[str, Any] = {}
    for ax in panels[: len(names)]:
        handles, labels = ax.get_legend_handles_labels()
        shown_by |= dict(zip(labels, handles, strict=True))
    figure.legend(
        shown_by.values(), shown_by, frameon=False, ncols=len(shown_by), loc="upper right"
    )
    return save_figure(panels[0], RESULTS / "benchmark_suite.png")


@dataclasses.dataclass(frozen=True)
class Options:
    """What to run, and where."""

    only: tuple[str, ...] = ()
    """Names of the tasks to do; all by default."""
    methods: tuple[str, ...] = ()
    """Names of the agents to train; all by default."""
    seeds: int | None = None
    """Most seeds of each; by default 100, or 20 where nothing is aimed at."""
    baselines: int = 0
    """Seeds of DQN and PPO."""
    execution: Execution = dataclasses.field(default_factory=Execution)
    """Where to run."""


def main(options: Options) -> None:
    """Benchmark both agents on the suite."""
    console = Console(highlight=False, width=max(Console().width, 150))
    settings = planned(options.only, options.methods, options.seeds, options.baselines)
    runs = run_all(train, settings, RESULTS / "benchmark_suite.jsonl", options.execution)
    rows = store_runs(RESULTS / "benchmark_suite.csv", runs)
    report(console, rows)
    console.print(*failures(runs), sep="\n")
    console.print(f"written: {draw(rows)}, {RESULTS / 'benchmark_suite.csv'}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__, config=(tyro.conf.OmitArgPrefixes,)))
