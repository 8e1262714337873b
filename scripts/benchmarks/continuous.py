"""Continuous actions: codevectors of states and actions, and a grid of five values.

Both agents have their package defaults, including the discount factor, in real Gymnasium
environments. Measured is the delivered policy's mean return over 100 greedy episodes. Seeds, from
53,000,000 on, chose no setting.

Beside them stand published results of rl-baselines3-zoo (github.com/DLR-RM/rl-baselines3-zoo):
benchmark.md at commit 0088472b, one run of each algorithm, not made here.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from common.experiment import Experiment, Selection, chosen
from common.learning import EVALUATION_EPISODES, learn
from common.summaries import Column, Row, Rows, Table, count, draw_quartiles, of, the

from oda_rl.plotting.axes import COLORS, new_axes

EXPERIMENT = Experiment("benchmark_continuous")
CHECKPOINTS = (20_000, 50_000, 100_000, 200_000)
GRID, CODEVECTORS = "grid", "codevectors"


@dataclass(frozen=True)
class Task:
    env_id: str
    levels: tuple[float, ...]  # mean returns, of which shares of seeds are reported
    published: tuple[tuple[str, float, int], ...]  # of rl-zoo: algorithm, return, steps


TASKS = (
    Task("Pendulum-v1", (-400.0, -200.0),
         (("SAC", -157.0, 20_000), ("TD3", -151.9, 20_000), ("PPO", -172.2, 100_000))),
    Task("MountainCarContinuous-v0", (90.0,),
         (("SAC", 94.7, 50_000), ("TD3", 93.5, 300_000), ("PPO", 88.3, 20_000))),
)  # fmt: skip


def measure(actions: str, task: str, seed: int) -> list[Row]:
    from oda_rl.agents import CodevectorAgent, FittedQAgent

    agent = (CodevectorAgent if actions == CODEVECTORS else FittedQAgent)(task, seed=seed)
    evaluated = partial(agent.evaluate, EVALUATION_EPISODES, seed=seed + 10**8)
    return [*learn(agent, CHECKPOINTS, lambda _: evaluated())]


def tables(rows: Rows) -> dict[str, Table]:
    found = {}
    for task in TASKS:
        of_task = rows.where(task=task.env_id)
        columns = [
            Column(task.env_id, the("actions"), once=True),
            Column("seeds", count, once=True),
            Column("steps", the("steps", ",")),
            *(
                Column(f"≥ {level:g}", partial(Rows.share_from, level=level))
                for level in task.levels
            ),
            *(Column(f.__name__, of(f, "mean", ".1f")) for f in (np.mean, np.median, np.min)),
            Column("numbers", of(np.median, "numbers", ",.0f")),
            Column("bytes", of(np.median, "bytes", ",.0f")),
            Column("seconds", of(np.median, "seconds", ".1f")),
        ]
        lines = [
            at for kind in (CODEVECTORS, GRID) for at in of_task.where(actions=kind).by_steps()
        ]
        published = ", ".join(
            f"{name} {mean:.1f} ({steps // 1000}k)" for name, mean, steps in task.published
        )
        note = f"rl-zoo publishes {published}."
        if of_task:
            title = "delivered policy, 100 greedy episodes a seed"
            found[f"continuous {task.env_id}"] = Table(title, columns, lines, note=note)
    return found


def draw(rows: Rows) -> Any:
    tasks = [task for task in TASKS if rows.where(task=task.env_id)]
    panels = new_axes(4.6 * len(tasks) + 0.6, 3.8, len(tasks))
    for ax, task in zip(panels, tasks, strict=True):
        of_task = rows.where(task=task.env_id)
        for color, actions in zip(COLORS, (CODEVECTORS, GRID), strict=False):
            draw_quartiles(ax, of_task.where(actions=actions), color=color, label=actions)
        for name, mean, steps in task.published:
            ax.plot(steps, mean, "x", color="0.3", markersize=5)
            ax.annotate(name, (steps, mean), xytext=(5, 0), textcoords="offset points",
                        va="center", fontsize=7, color="0.3")  # fmt: skip
        steps = sorted(of_task.values("steps"))
        ax.set(xlabel="environment steps", xscale="log")
        ax.set_xticks(steps, [f"{n / 1000:g}k" for n in steps])
        ax.minorticks_off()
        ax.set_title(task.env_id, loc="left")
    panels[0].set_ylabel("return: median and quartiles of seeds")
    panels[0].legend(frameon=False, fontsize=8, loc="lower right")
    return panels[0]


Options = Selection


def settings(options: Selection) -> list[Row]:
    return [
        {"actions": actions, "task": env_id, "seed": seed}
        for env_id in chosen(options.only, [task.env_id for task in TASKS])
        for seed in EXPERIMENT.seeds(options)
        for actions in (CODEVECTORS, GRID)
    ]
