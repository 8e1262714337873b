"""Policies distilled into rules of a few cells: what the rules return, beside their teachers.

Teachers learn in the environment, each with a seed of its own; every step of the search that
follows is counted, those of the teacher's demonstrations, too, but not those it has learned by
(``taught_steps``). Rule and teacher then play 100 fresh episodes, from the same starts, which chose
nothing. Numbers are those left after pruning: of scores, and what each cell does. The rule is
written in C, in single precision, and asked for its decisions on what it sees (processor time, the
least of ten); bytes are those of its tables. Teachers of Stable-Baselines3 have rl-zoo's
hyper-parameters; of their return above that of random play a share is aimed at. Seeds are those
from 51 700 000 on. Needs gcc.

Run: python scripts/benchmark.py distil [--only CartPole-v1 ...] [--teachers PPO ...] [--seeds 20]
     [--workers 2 | --backend dask --address tcp://...:8786]
With --curve other numbers of cells are tried, too: for the figure, return over cells.

Runs are kept in results/benchmark_distil.jsonl as they end, and not repeated; writes
results/benchmark_distil.csv and results/benchmark_distil.png.
"""

import math
import os
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from common.experiment import Experiment, SharedOptions, chosen, say
from common.learning import EVALUATION_EPISODES, FITTED, MODEL
from common.suite_tasks import BARTO, CARTPOLE
from common.summaries import Column, Row, Rows, Table, count, of, open_axes, the

from benchmarks.export import decide
from oda_rl._types import FloatArray
from oda_rl.agents import distill, export_policy
from oda_rl.agents.distilling.distil import SIZES, Distilled
from oda_rl.agents.distilling.playing import Deciding, Ground
from oda_rl.agents.distilling.teachers import teacher_of
from oda_rl.agents.policies.contract import Extent
from oda_rl.agents.sb3.settings import settings_for
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.runs.results import read_rows

EXPERIMENT = Experiment("benchmark_distil")
BASELINES = ("PPO", "DQN")
BOLD = {"exploration": 4.0, "longest_hold": 8}
SHARE = 0.95  # of a baseline's return above random play
SEEN = 10_000  # observations that a rule is asked about in C


@dataclass(frozen=True)
class Aim:
    """A task, who is imitated there, and what is aimed at."""

    env_id: str
    teachers: dict[str, int]
    """Who, and for how many steps each has learned."""
    cells: int
    """At most."""
    steps: int
    """Of the search, at most."""
    mean: float = -math.inf
    """Of the seeds' mean returns."""
    least: float = -math.inf
    """Of them."""
    solved: tuple[float, float] | None = None
    """A share of the seeds, and what they return."""
    digits: int = 1
    """Of returns, behind the point."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the teacher, where it is ours."""

    def __str__(self) -> str:
        aimed = f"≥ {self.mean if self.solved is None else self.solved[1]:g}"
        return f"{self.env_id.split('/')[-1].removesuffix('-v0')} {aimed}"


AIMS = {
    "BartoCartPole": Aim(BARTO, {FITTED: 10_000}, 2, 40_000, solved=(0.95, 950.0), digits=0),
    CARTPOLE: Aim(CARTPOLE, {FITTED: 10_000, "PPO": 50_000, "DQN": 50_000}, 2, 40_000,
                  solved=(0.95, 475.0), digits=0),
    "MountainCar-v0": Aim("MountainCar-v0", {FITTED: 100_000}, 4, 300_000, -101.0),
    "MountainCarContinuous-v0": Aim("MountainCarContinuous-v0", {MODEL: 5_000, FITTED: 50_000}, 2,
                                    100_000, 93.0),
    "Acrobot-v1": Aim("Acrobot-v1", {FITTED: 100_000, "PPO": 100_000, "DQN": 50_000}, 4, 1_000_000,
                      -80.0),
    "Pendulum-v1": Aim("Pendulum-v1", {MODEL: 5_000}, 4, 300_000, -145.0),
    "LunarLander-v3": Aim("LunarLander-v3", {FITTED: 300_000, "PPO": 300_000, "DQN": 100_000}, 16,
                          500_000, 245.0, 200.0, digits=0, settings=BOLD),
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """A model of Stable-Baselines3 that sees normalized observations."""

    model: Any
    normalized: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]

    def predict(self, batch: npt.NDArray[Any], deterministic: bool) -> Any:
        """Return actions, and no state."""
        return self.model.predict(self.normalized(batch), deterministic=deterministic)


@dataclass(frozen=True)
class Delivered:
    """What an export asks about a rule."""

    policy: Any
    interface: Any
    env: gym.Env[Any, Any]
    env_id: str | None
    num_timesteps: int
    scale_: FloatArray
    visits: FloatArray
    extent: Extent


def train(task: str, teacher: str, cells: int, seed: int) -> Row:
    """Train a teacher, distil a rule, and play by both."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    about = AIMS[task]
    taught_steps = about.teachers[teacher]
    begun = time.process_time()
    master = trained(about, teacher, taught_steps, seed)
    learned = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it is in the row: worse
        found = distill(master, gym.make(about.env_id), cells, steps=about.steps, seed=seed)
    distilled = time.process_time()
    ground = Ground(gym.make(about.env_id), cells, 10**9)
    begin = seed * EVALUATION_EPISODES  # each seed has starts of its own
    seeds = list(range(begin, begin + EVALUATION_EPISODES))
    seen = np.full((SEEN, ground.interface.n_features), np.nan)
    ours = ground.play(found.policy, seeds, seen)
    theirs = ground.play(teacher_of(master, ground.interface), seeds)
    random = ground.play(at_random(ground, seed), seeds)
    rule = found.policy
    says = (rule.outputs != 0.0).sum() if rule.continuous else len(rule.scores)
    return {
        "taught_steps": taught_steps, "steps": found.steps, "taught": float(theirs.mean()),
        "random": float(random.mean()), "mean": float(ours.mean()), "least": float(ours.min()),
        "worse": int(found.worse is not False), "left": rule.n_cells,
        "numbers": int((rule.scores != 0.0).sum() + says),
        **in_c(found, ground, seen[~np.isnan(seen[:, 0])]),
        "taught_seconds": learned - begun, "seconds": distilled - learned,
    }  # fmt: skip


def trained(about: Aim, teacher: str, steps: int, seed: int) -> Any:
    """Train whoever is imitated."""
    if teacher not in BASELINES:
        from oda_rl import agents

        return getattr(agents, teacher)(about.env_id, seed=seed, **about.settings).learn(steps)
    import stable_baselines3 as sb3
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    settings = settings_for(teacher, about.env_id).parameters
    n_envs, normalize = settings.pop("n_envs", 1), settings.pop("normalize", False)
    envs: Any = make_vec_env(about.env_id, n_envs=n_envs, seed=seed)
    if normalize:
        envs = VecNormalize(envs, gamma=settings["gamma"])
    model = getattr(sb3, teacher)("MlpPolicy", envs, seed=seed, device="cpu", **settings)
    model.learn(steps)
    return Model(model, envs.normalize_obs) if normalize else model


def at_random(ground: Ground, seed: int) -> Deciding:
    """Return who plays at random."""
    interface, rng = ground.interface, np.random.default_rng(seed)

    def act(points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if interface.box is not None:
            return rng.uniform(-1.0, 1.0, (len(points), interface.n_components))
        return rng.integers(interface.n_actions, size=len(points))

    return Acting(act)


@dataclass(frozen=True)
class Acting:
    """Whoever acts by a function."""

    act: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    in_loops: None = None


def in_c(found: Distilled, ground: Ground, seen: FloatArray) -> Row:
    """Return bytes of the rule's tables in C, and nanoseconds a decision."""
    centre, rule = seen.mean(axis=0), found.policy
    delivered = Delivered(
        rule, found.interface, ground.env, found.env_id, found.steps, 1.0 / (seen.std(axis=0)),
        np.ones((rule.n_cells, rule.n_actions)), Extent(centre, np.abs(seen - centre).max(axis=0)),
    )  # fmt: skip
    with TemporaryDirectory() as place:
        text = export_policy(delivered, Path(place) / "policy.h", "c").read_text()
        size = re.search(r"Tables: (\d+) bytes", text)
        assert size is not None
        _, nanoseconds = decide(Path(place), seen.astype(np.float32))
    return {"bytes": int(size[1]), "ns": nanoseconds}


def at_aim(rows: Rows) -> list[Rows]:
    """Return the rows of each task and teacher, with as many cells as are aimed at."""
    return [
        own
        for task, about in AIMS.items()
        for teacher in about.teachers
        if (own := rows.where(task=task, teacher=teacher, cells=about.cells))
    ]


def returns(own: Rows, key: str) -> str:
    """Mean of the seeds, and the least."""
    digits, found = AIMS[own[0]["task"]].digits, own.column(key)
    return f"{found.mean():.{digits}f} ({found.min():.{digits}f})"


def above_random(own: Rows) -> float:
    """Return what rules return above random play, as a share of what their teachers do."""
    random = own.column("random").mean()
    return float((own.column("mean").mean() - random) / (own.column("taught").mean() - random))


def solved(own: Rows) -> float:
    """Share of the seeds that return what is aimed at, if there is such a share."""
    about = AIMS[own[0]["task"]].solved
    return np.nan if about is None else float((own.column("mean") >= about[1]).mean())


def tables(rows: Rows) -> dict[str, Table]:
    """Return what rules and teachers return, and what rules cost."""

    def share(own: Rows) -> str:
        return "-" if np.isnan(solved(own)) else f"{solved(own):.2f}"

    columns = [
        Column("", lambda own: str(AIMS[own[0]["task"]]), once=True),
        Column("teacher, steps", lambda own: f"`{own[0]['teacher']}`, {own[0]['taught_steps']:,}"),
        Column("seeds", count),
        Column("its return (least seed)", partial(returns, key="taught")),
        Column("the rule's", partial(returns, key="mean")),
        Column("solved", share),
        Column("above random, of the teacher's", lambda own: f"{100.0 * above_random(own):.0f} %"),
        Column("cells, at most", the("cells")),
        Column("left", of(np.mean, "left", ".1f")),
        Column("numbers", of(np.mean, "numbers", ".0f")),
        Column("steps of the search, at most", of(np.max, "steps", ",")),
        Column("bytes in C", of(np.median, "bytes", ",.0f")),
        Column("ns a decision", of(np.median, "ns", ".2g")),
        Column("processor s", of(np.median, "seconds", ".2g")),
    ]
    return {"distil": Table("rules distilled, 100 episodes a seed", columns, at_aim(rows))}


def missed(rows: Rows) -> list[str]:
    """Say where a target is missed."""
    found = []
    for own in at_aim(rows):
        about, teacher, mean = AIMS[own[0]["task"]], own[0]["teacher"], own.column("mean")
        if teacher in BASELINES:
            reached, aimed = {"share of the teacher's return": above_random(own)}, {}
            aimed["share of the teacher's return"] = SHARE
        else:
            reached = {"mean": mean.mean(), "least": mean.min(), "share solved": solved(own)}
            aimed = {"mean": about.mean, "least": about.least}
            if about.solved is not None:
                aimed["share solved"] = about.solved[0]
        found += [
            f"{own[0]['task']}, {teacher}: the {what} is {reached[what]:.4g}, not {least}"
            for what, least in aimed.items()
            if reached[what] < least
        ]
    return found


def draw(rows: Rows) -> Any:
    """Draw what rules return over their cells: the mean of all seeds, and each."""
    tasks = [task for task in AIMS if rows.where(task=task)]
    columns = min(len(tasks), 4)
    n_rows = -(-len(tasks) // columns)
    panels = new_axes(3.2 * columns + 0.6, 2.8 * n_rows + 0.5, columns, n_rows)
    figure = panels[0].figure
    figure.subplots_adjust(
        left=0.75 / (3.2 * columns), right=0.99, top=1.0 - 0.65 / (2.8 * n_rows),
        bottom=0.5 / (2.8 * n_rows), hspace=0.5, wspace=0.28,
    )  # fmt: skip
    for ax in panels[len(tasks) :]:
        ax.remove()
    for ax, task in zip(panels, tasks, strict=False):
        about = AIMS[task]
        own = next(found for one in about.teachers if (found := rows.where(task=task, teacher=one)))
        sizes = sorted(own.values("cells"))
        for size in sizes:
            at = own.where(cells=size).column("mean")
            ax.plot([size] * len(at), at, ".", color=COLORS[0], alpha=0.35, markersize=5)
        means = [own.where(cells=size).column("mean").mean() for size in sizes]
        ax.plot(sizes, means, "o-", color=COLORS[0], markersize=4, label="rules, mean of seeds")
        taught = own.column("taught").mean()
        ax.axhline(taught, color="0.4", linestyle="--", linewidth=1, label="their teachers")
        aimed = about.mean if about.solved is None else about.solved[1]
        ax.axhline(aimed, color=COLORS[5], linestyle=":", linewidth=1, label="aimed at")
        ax.set(xscale="log", xlim=(SIZES[0] / 1.2, SIZES[-1] * 1.2))
        ax.set_xticks(SIZES, [str(size) for size in SIZES])
        ax.minorticks_off()
        ax.set_title(task, loc="left")
        open_axes(ax)
    panels[0].set_ylabel("return")
    panels[0].set_xlabel("cells, at most")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=3, loc="upper right")
    return panels[0]


@dataclass(frozen=True)
class Options(SharedOptions):
    """What to run, and where."""

    only: tuple[str, ...] = ()
    """Names of the tasks to do; all by default."""
    teachers: tuple[str, ...] = ()
    """Names of those who are imitated; all by default."""
    curve: bool = False
    """Other numbers of cells, too, with the first of each task's teachers."""


def planned(options: Options) -> list[Row]:
    """All runs: task, teacher, number of cells, seed."""
    runs: list[Row] = []
    for task in chosen(options.only, AIMS):
        about = AIMS[task]
        for i, teacher in enumerate(about.teachers):
            if options.teachers and teacher not in options.teachers:
                continue
            sizes = SIZES if options.curve and i == 0 else (about.cells,)
            runs += [
                {"task": task, "teacher": teacher, "cells": size, "seed": seed}
                for size in sizes
                for seed in EXPERIMENT.seeds(options)
            ]
    return runs


def main(options: Options) -> None:
    """Distil, play and time."""
    rows = EXPERIMENT.run(train, planned(options), options.execution)
    say(*tables(rows).values(), *missed(rows))
    EXPERIMENT.save(draw(Rows(read_rows(EXPERIMENT.path(".csv")))))
