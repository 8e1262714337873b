"""One default for the classic-control suite: how many seeds are solved, how fast, at what size.

Every agent has its package defaults, including the discount factor, in real Gymnasium environments.
A seed is solved if the delivered policy's mean return over 100 greedy episodes reaches the
threshold. Seeds chose no setting: from 51,000,000 on, of the baselines from 50,000,000 on, of the
model agent from 54,000,000 on.

DQN, PPO and (for continuous actions) SAC of Stable-Baselines3, with rl-zoo's tuned
hyperparameters, learn in the same environments for the same number of steps: --baselines 3 gives
them three seeds. Rules by hand and dynamic programming are listed beside them.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from common.dynamic_programming import KNOWN, best_rule
from common.experiment import FIRST_SEEDS, RESULTS, Experiment, MethodSelection, chosen, seconds
from common.hand_rules import RULES
from common.learning import EVALUATION_EPISODES, FITTED, HAND, MODEL, learn, play, side_by_side
from common.suite_tasks import TASKS, Task, goal, make
from common.summaries import Column, Row, Rows, Table, Text, count, draw_quartiles, of, the

from oda_rl._types import FloatArray
from oda_rl.agents import Agent
from oda_rl.agents.sb3.settings import settings_for
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.runs.results import read_rows

EXPERIMENT = Experiment("benchmark_suite")
DRAWN_STEPS = (100, 10**6)
GRID, ONLINE = "dynamic programming", "TwoTimescaleAgent"
PLAYED = (HAND, GRID)  # which do not learn
CHOOSING, CONTINUOUS = ("DQN", "PPO"), ("SAC",)
BASELINES = (*CHOOSING, *CONTINUOUS)
CART_POLES = {"BartoCartPole": "oda_rl/BartoCartPole-v0", "CartPole-v1": "CartPole-v1"}
COMPARED_STEPS = 50_000
BY_HAND_SEEDS = 20
SEEDS_OF = {**dict.fromkeys(BASELINES, "baselines"), MODEL: "suite_model"}
FRONT = (
    ("CartPole-v1", MODEL, 250),
    ("BartoCartPole", MODEL, 250),
    ("MountainCar-v0", MODEL, 5_000),
    ("Acrobot-v1", MODEL, 20_000),
    ("Pendulum-v1", MODEL, 5_000),
    ("MountainCarContinuous-v0", MODEL, 5_000),
    ("LunarLander-v3", FITTED, 300_000),
    ("Taxi-v4", MODEL, 20_000),
    ("FrozenLake8x8-v1", MODEL, 50_000),
    ("Hopper-v5", MODEL, 500_000),
)  # what the front page says: of each task the agent that one would take


def measure(method: str, task: str, seed: int) -> list[Row]:
    about = TASKS[task]
    if method in PLAYED:
        decide = RULES[task] if method == HAND else best_rule(task)
        rows: Iterable[Row] = [play(decide, make(about), seed)]
    else:
        rows = (run_sb3 if method in BASELINES else run_ours)(method, about, seed)
    return [{**row, "solved": int(row["mean"] >= about.solved)} for row in rows]


def run_ours(method: str, task: Task, seed: int) -> Iterator[Row]:
    """Train one of our agents, pausing at the checkpoints."""
    from oda_rl import agents

    agent: Agent = getattr(agents, method)(make(task), seed=seed)
    place = make(task)

    def evaluated(steps: int) -> FloatArray:
        return agent.evaluate(EVALUATION_EPISODES, env=place, seed=seed + 10**8)

    checkpoints = task.model_steps if method == MODEL else task.checkpoints
    for row in learn(agent, checkpoints, evaluated):
        yield row if method == MODEL else {**row, "seconds": agent.training_seconds}


def run_sb3(method: str, task: Task, seed: int) -> Iterator[Row]:
    """Train an algorithm of Stable-Baselines3 with rl-zoo's hyperparameters."""
    from oda_rl.agents.sb3.baselines import make_model

    model, normalizer = make_model(method, task.env_id, lambda: make(task), seed)

    def predict(seen: Any) -> Any:
        points = seen if normalizer is None else normalizer.normalize_obs(seen)
        return model.predict(points, deterministic=True)

    taken = 0.0
    for steps in task.baseline_steps:
        further = partial(model.learn, steps - model.num_timesteps, reset_num_timesteps=taken == 0)
        taken += seconds(further)
        returns = side_by_side(predict, lambda: make(task), seed)
        with TemporaryDirectory() as folder:
            model.policy.save(f"{folder}/policy")
            size = os.path.getsize(f"{folder}/policy")
        yield {
            "steps": steps,
            "mean": float(np.mean(returns)),
            "least": float(np.min(returns)),
            "cells": sum(parameter.numel() for parameter in model.policy.parameters()),
            "seconds": taken,
            "bytes": size,
        }


@dataclass(frozen=True)
class Options(MethodSelection):
    seeds: int = 100  # Maximum number of seeds of each; 20 where nothing is aimed at
    baselines: int = 0  # Seeds of DQN, PPO and SAC


def settings(options: Options) -> list[Row]:
    runs: list[Row] = []
    for task in (TASKS[name] for name in chosen(options.only, TASKS)):
        learns, baselines = bool(task.model_steps), CONTINUOUS if task.boxed else CHOOSING
        counts = {
            FITTED: task.n_seeds,
            MODEL: task.model_seeds * learns,
            HAND: BY_HAND_SEEDS * (task.name in RULES),
            GRID: BY_HAND_SEEDS * (learns and task.env_id in KNOWN),
            **dict.fromkeys(baselines, options.baselines * bool(task.baseline_steps)),
        }
        for method, most in counts.items():
            if not options.methods or method in options.methods:
                first = FIRST_SEEDS[SEEDS_OF.get(method, EXPERIMENT.name)]
                seeds = range(first, first + min(most, options.seeds))
                runs += [{"method": method, "task": task.name, "seed": seed} for seed in seeds]
    return runs


def of_task(line: Rows) -> Task:
    return TASKS[line[0]["task"]]


def returns(summary: Any) -> Text:
    return lambda line: f"{summary(line.column('mean')):.{of_task(line).digits}f}"


outcome = (
    Column("seeds", count, once=True),
    Column("steps", the("steps", ",")),
    Column("solved", lambda line: line.share_from(of_task(line).solved)),
    *(Column(f.__name__, returns(f)) for f in (np.mean, np.median, np.min)),
)


def rules_found(rows: Rows) -> Table:
    def played(line: Rows, method: str) -> str:
        other = rows.where(method=method, task=line[0]["task"])
        return returns(np.mean)(other) if other else "-"

    columns = [
        Column(f"`{MODEL}`", goal, once=True),
        *(Column(method, partial(played, method=method), once=True) for method in PLAYED),
        *outcome,
        Column("cells", of(np.mean, "cells", ".1f")),
        Column("processor s", of(np.median, "seconds", ".3g")),
    ]
    of_tasks = [rows.where(method=MODEL, task=task) for task in TASKS]
    return Table("delivered rule, 100 episodes a seed", columns,
                 [at for line in of_tasks for at in line.by_steps()])  # fmt: skip


def shares(rows: Rows) -> Table:
    of_tasks = [rows.where(method=FITTED, task=task) for task in TASKS]
    lines = [at for line in of_tasks for at in line.by_steps()[1:]]
    columns = [Column(f"`{FITTED}`", goal, once=True), *outcome]
    return Table("delivered policy, 100 greedy episodes a seed", columns, lines)


def beside(rows: Rows) -> Table:
    columns = [
        Column(
            "after the same steps",
            lambda line: f"{line[0]['task']}, {line[0]['steps']:,}",
            once=True,
        ),
        Column("", label),
        Column("seeds", count),
        Column("mean (min)", mean_and_least),
        Column("seconds", of(np.median, "seconds", ".3g")),
        Column("bytes", of(np.median, "bytes", ",.0f")),
        Column("rl-zoo publishes", lambda line: of_task(line).published, once=True),
    ]
    lines = [
        line
        for name, task in TASKS.items()
        if name not in CART_POLES
        for steps in task.baseline_steps
        for line in rows.where(task=name, steps=steps).groups("method")
    ]
    return Table("*: with hyperparameters of another task", columns, lines)


def front(rows: Rows) -> Table:
    def others(line: Rows) -> str:
        found = Rows(row for row in rows.where(task=line[0]["task"]) if row["method"] in BASELINES)
        if not found:
            return "-"
        best = max(found.groups("method", "steps"), key=lambda group: group.column("mean").mean())
        return f"{best[0]['method']} {mean_and_least(best)}, {best[0]['steps']:,}"

    columns = [
        Column("", the("task")),
        Column("agent", lambda line: f"`{line[0]['method']}`"),
        Column("steps", the("steps", ",")),
        Column("seeds", count),
        Column("mean (min)", mean_and_least),
        Column("seconds", of(np.median, "seconds", ".3g")),
        Column("bytes", of(np.median, "bytes", ",.0f")),
        Column("best of DQN, PPO, SAC here", others),
        Column("published", lambda line: of_task(line).published),
    ]
    lines = [rows.where(task=task, method=name, steps=steps) for task, name, steps in FRONT]
    return Table("mean of 100 greedy episodes a seed", columns, lines)


def mean_and_least(line: Rows) -> str:
    return line.mean_and_least(of_task(line).digits)


def label(line: Rows) -> str:
    method, env_id = line[0]["method"], of_task(line).env_id
    if method not in BASELINES:
        return f"`{method}`"
    return method + ("" if settings_for(method, env_id).source == env_id else "\\*")


def tables(rows: Rows) -> dict[str, Table]:
    return {
        "suite fitted": shares(rows),
        "suite model": rules_found(rows),
        "suite baselines": beside(rows),
        "suite front": front(Rows([*rows, *compared(), *stored("benchmark_bodies")])),
    }


def stored(name: str) -> Rows:
    path = RESULTS / f"{name}.csv"
    return Rows(read_rows(path)) if path.is_file() else Rows()


def compared() -> Rows:
    """Return rows of the baselines on the cart-poles, as compare_sb3.py has more of them."""
    rows = stored("compare_sb3")
    return Rows(
        {**row, "method": name, "task": task, "bytes": row["policy_bytes"]}
        for task, env_id in CART_POLES.items()
        for name in CHOOSING
        for row in rows.where(env_id=env_id, algorithm=name, steps=COMPARED_STEPS)
    )


def draw(rows: Rows) -> Any:
    names = [task for task in TASKS if rows.where(task=task)]
    online = stored("benchmark_online").where(method="oda")
    rows = Rows([*rows, *compared(), *({**row, "method": ONLINE} for row in online)])
    columns = min(len(names), 3)
    n_rows = -(-len(names) // columns)
    panels = new_axes(3.9 * columns + 0.6, 3.1 * n_rows + 0.6, columns, n_rows)
    figure = panels[0].figure
    figure.subplots_adjust(
        left=0.9 / (3.9 * columns), right=0.98, top=1.0 - 0.3 / n_rows, bottom=0.2 / n_rows,
        hspace=0.45, wspace=0.25,
    )  # fmt: skip
    for ax in panels[len(names) :]:
        ax.remove()
    shown: dict[str, Any] = {}
    for ax, task in zip(panels, names, strict=False):
        results = rows.where(task=task)
        learners = zip((MODEL, FITTED, ONLINE, *BASELINES), "ooosD^", COLORS, strict=False)
        for method, marker, color in learners:  # hollow markers: some lie at the same place
            draw_quartiles(ax, results.where(method=method), marker, color=color, label=method)
        ax.axhline(TASKS[task].solved, color="0.5", linestyle="--", linewidth=1, label="solved")
        for method, style in zip(PLAYED, (":", "-."), strict=True):
            if played := results.where(method=method):
                mean = np.mean(played.column("mean"))
                ax.axhline(mean, color="0.2", linestyle=style, linewidth=1, label=method)
        ax.set(xscale="log", xlim=DRAWN_STEPS, xticks=[10**k for k in range(2, 7)])
        ax.set_xticklabels(["100", "1k", "10k", "100k", "1M"])
        ax.minorticks_off()
        ax.set_title(task, loc="left")
        handles, labels = ax.get_legend_handles_labels()
        shown |= dict(zip(labels, handles, strict=True))
    figure.supxlabel("environment steps")
    figure.supylabel("return")
    figure.suptitle("Delivered policies: median and quartiles", x=0.08, ha="left")
    figure.legend(shown.values(), shown, frameon=False, ncols=3, loc="upper right")
    return panels[0]
