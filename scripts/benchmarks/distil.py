"""Policies distilled into rules of a few cells: returns of the rules and of their teachers.

Each seed has its own teacher. Every step of the search is counted, including demonstrations of the
teacher, but not the teacher's training (``taught_steps``). Rule and teacher then play 100 fresh
episodes from the same starts, which tuned nothing. The rule is exported to C in single precision
and timed on visited observations (processor time, minimum of ten). Teachers of Stable-Baselines3
have rl-zoo's hyperparameters. Seeds start at 51,800,000. Needs gcc.
"""

import time
import warnings
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from common.experiment import Experiment, Selection, chosen
from common.learning import EVALUATION_EPISODES, FITTED, MODEL
from common.suite_tasks import BARTO, CARTPOLE
from common.summaries import Column, Row, Rows, Table, count, of, the

from benchmarks.export import decide, export
from oda_rl._types import FloatArray
from oda_rl.agents import distill
from oda_rl.agents.distilling.distil import Distilled
from oda_rl.agents.distilling.imitation import teacher_of
from oda_rl.agents.distilling.playing import BudgetedEnv
from oda_rl.agents.policies.contract import Extent

EXPERIMENT = Experiment("benchmark_distil")
BASELINES = ("PPO", "DQN")
BOLD = {"exploration": 4.0, "longest_hold": 8}
SEEN = 10_000  # observations that a rule is asked about in C


@dataclass(frozen=True)
class Aim:
    """A task, its teachers and its goal."""

    env_id: str
    teachers: dict[str, int]  # Training steps of each teacher
    cells: int  # Maximum number of cells
    steps: int  # Maximum steps of the search
    goal: float  # Mean return to reach
    of_each: bool = False  # Whether to report the share of seeds that reach it
    digits: int = 1  # Decimal places of returns
    settings: dict[str, Any] = field(default_factory=dict)  # Settings of our teacher

    def __str__(self) -> str:
        return f"{self.env_id.split('/')[-1].removesuffix('-v0')} ≥ {self.goal:g}"


AIMS = {
    "BartoCartPole": Aim(BARTO, {FITTED: 10_000}, 2, 40_000, 950.0, True, digits=0),
    CARTPOLE: Aim(CARTPOLE, {FITTED: 10_000, "PPO": 50_000, "DQN": 50_000}, 2, 40_000, 475.0, True,
                  digits=0),
    "MountainCar-v0": Aim("MountainCar-v0", {FITTED: 100_000}, 4, 300_000, -101.0),
    "MountainCarContinuous-v0": Aim("MountainCarContinuous-v0", {MODEL: 5_000, FITTED: 50_000}, 2,
                                    100_000, 93.0),
    "Acrobot-v1": Aim("Acrobot-v1", {FITTED: 100_000, "PPO": 100_000, "DQN": 50_000}, 4, 1_000_000,
                      -80.0),
    "Pendulum-v1": Aim("Pendulum-v1", {MODEL: 5_000}, 4, 300_000, -145.0),
    "LunarLander-v3": Aim("LunarLander-v3", {FITTED: 300_000, "PPO": 300_000, "DQN": 100_000}, 16,
                          500_000, 245.0, digits=0, settings=BOLD),
}  # fmt: skip


def measure(task: str, teacher: str, cells: int, seed: int) -> Row:
    about = AIMS[task]
    taught_steps = about.teachers[teacher]
    begun = time.process_time()
    master = trained(about, teacher, taught_steps, seed)
    learned = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it is in the row: worse
        found = distill(master, gym.make(about.env_id), cells, steps=about.steps, seed=seed)
    distilled = time.process_time()
    budgeted = BudgetedEnv(gym.make(about.env_id), cells, 10**9)
    begin = seed * EVALUATION_EPISODES  # each seed has starts of its own
    seeds = list(range(begin, begin + EVALUATION_EPISODES))
    seen = np.full((SEEN, budgeted.interface.n_features), np.nan)
    ours = budgeted.play(found.policy, seeds, seen)
    theirs = budgeted.play(teacher_of(master, budgeted.interface), seeds)
    random = budgeted.play(at_random(budgeted, seed), seeds)
    rule = found.policy
    says = (rule.outputs != 0.0).sum() if rule.continuous else len(rule.scores)
    return {
        "taught_steps": taught_steps, "steps": found.steps, "taught": float(theirs.mean()),
        "random": float(random.mean()), "mean": float(ours.mean()), "least": float(ours.min()),
        "worse": int(found.worse is not False), "left": rule.n_cells,
        "numbers": int((rule.scores != 0.0).sum() + says),
        **in_c(found, budgeted, seen[~np.isnan(seen[:, 0])]),
        "taught_seconds": learned - begun, "seconds": distilled - learned,
    }  # fmt: skip


def trained(about: Aim, teacher: str, steps: int, seed: int) -> Any:
    if teacher not in BASELINES:
        from oda_rl import agents

        return getattr(agents, teacher)(about.env_id, seed=seed, **about.settings).learn(steps)
    from oda_rl.agents.sb3.baselines import make_model

    model, normalizer = make_model(teacher, about.env_id, lambda: gym.make(about.env_id), seed)
    model.learn(steps)
    if normalizer is None:
        return model
    return SimpleNamespace(
        predict=lambda batch, **how: model.predict(normalizer.normalize_obs(batch), **how)
    )


def at_random(budgeted: BudgetedEnv, seed: int) -> Any:
    """Return a random policy."""
    interface, rng = budgeted.interface, np.random.default_rng(seed)

    def act(points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if interface.box is not None:
            return rng.uniform(-1.0, 1.0, (len(points), interface.n_components))
        return rng.integers(interface.n_actions, size=len(points))

    return SimpleNamespace(act=act, in_loops=None)


def in_c(found: Distilled, budgeted: BudgetedEnv, seen: FloatArray) -> Row:
    """Return bytes of the rule's tables in C, and nanoseconds a decision."""
    centre, rule = seen.mean(axis=0), found.policy
    delivered = SimpleNamespace(
        policy=rule, interface=found.interface, env=budgeted.env, env_id=found.env_id,
        num_timesteps=found.steps, scale_=1.0 / (seen.std(axis=0)),
        visits=np.ones((rule.n_cells, rule.n_actions)),
        extent=Extent(centre, np.abs(seen - centre).max(axis=0)),
    )  # fmt: skip
    with TemporaryDirectory() as place:
        size = export(delivered, Path(place))
        _, nanoseconds = decide(Path(place), seen.astype(np.float32))
    return {"bytes": size, "ns": nanoseconds}


def returns(line: Rows, key: str) -> str:
    return line.mean_and_least(AIMS[line[0]["task"]].digits, key)


def above_random(line: Rows) -> float:
    """Return what rules return above random play, as a share of what their teachers do."""
    random = line.column("random").mean()
    return float((line.column("mean").mean() - random) / (line.column("taught").mean() - random))


def tables(rows: Rows) -> dict[str, Table]:
    def share(line: Rows) -> str:
        about = AIMS[line[0]["task"]]
        return line.share_from(about.goal) if about.of_each else "-"

    columns = [
        Column("", lambda line: str(AIMS[line[0]["task"]]), once=True),
        Column(
            "teacher, steps", lambda line: f"`{line[0]['teacher']}`, {line[0]['taught_steps']:,}"
        ),
        Column("seeds", count),
        Column("its return (min)", partial(returns, key="taught")),
        Column("the rule's", partial(returns, key="mean")),
        Column("solved", share),
        Column(
            "above random, of the teacher's", lambda line: f"{100.0 * above_random(line):.0f} %"
        ),
        Column("max cells", the("cells")),
        Column("left", of(np.mean, "left", ".1f")),
        Column("numbers", of(np.mean, "numbers", ".0f")),
        Column("max steps of the search", of(np.max, "steps", ",")),
        Column("bytes in C", of(np.median, "bytes", ",.0f")),
        Column("ns a decision", of(np.median, "ns", ".2g")),
        Column("processor s", of(np.median, "seconds", ".2g")),
    ]
    lines = [
        rows.where(task=task, teacher=teacher, cells=about.cells)
        for task, about in AIMS.items()
        for teacher in about.teachers
    ]
    return {"distil": Table("rules distilled, 100 episodes a seed", columns, lines)}


@dataclass(frozen=True)
class Options(Selection):
    teachers: tuple[str, ...] = ()  # Names of the teachers; all by default


def settings(options: Options) -> list[Row]:
    return [
        {"task": task, "teacher": teacher, "cells": AIMS[task].cells, "seed": seed}
        for task in chosen(options.only, AIMS)
        for teacher in AIMS[task].teachers
        if not options.teachers or teacher in options.teachers
        for seed in EXPERIMENT.seeds(options)
    ]
