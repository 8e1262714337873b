"""Worlds whose reward is hard to find: how many seeds find it.

A deep sea of 20 by 20 numbered cells, as in bsuite, with actions permuted by the seed; two rooms
with a reward in the far corner, observed as the cell's number or as two numbers; MiniGrid's
DoorKey-5x5 in nine numbers (envs/sparse.py). The fitted agent also has a deep sea of 10 by 10 and
Taxi-v4, and up to 100,000 steps. A seed succeeds if the delivered policy's mean return over 100
greedy episodes reaches the value in the table. Agents have their package defaults; the seeds, from
51,300,000 on, chose no setting.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from common.experiment import Experiment, MethodSelection, chosen
from common.learning import FITTED, MODEL, learn, side_by_side
from common.summaries import Column, Row, Rows, Table, among, count, of, the

import oda_rl.envs  # noqa: F401  (registers its environments)

EXPERIMENT = Experiment("benchmark_sparse")
METHODS = (MODEL, FITTED)
LONG = (50_000, 100_000)


@dataclass(frozen=True)
class World:
    env_id: str
    solved: float  # Least mean return
    steps: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    drawn: bool = False  # Meanings of the actions are drawn by the seed
    fitted: tuple[int, ...] = ()  # Further steps, after which the fitted agent is looked at alone

    def steps_of(self, method: str) -> tuple[int, ...]:
        """After how many steps an agent is looked at."""
        return (*self.steps, *self.fitted) if method == FITTED else self.steps

    def make(self, seed: int) -> gym.Env[Any, Any]:
        drawn = {"swap": seed} if self.drawn else {}
        return gym.make(self.env_id, **self.options, **drawn)


WORLDS = {
    "DeepSea, 20 by 20": World("oda_rl/DeepSea-v0", 0.98, (10_000, 20_000), drawn=True),
    "DeepSea, 10 by 10": World("oda_rl/DeepSea-v0", 0.98, (), {"size": 10}, True, LONG),
    "two rooms, numbered": World("oda_rl/TwoRooms-v0", 1.0, (2_000, 5_000), fitted=LONG),
    "two rooms, two numbers": World(
        "oda_rl/TwoRooms-v0", 1.0, (2_000, 5_000), {"numbers": 2}, fitted=LONG
    ),
    "Taxi-v4": World("Taxi-v4", 8.0, (), fitted=LONG),
    "DoorKey-5x5, nine numbers": World("oda_rl/DoorKey-v0", 0.9, (10_000, 20_000)),
}


def measure(method: str, world: str, seed: int) -> list[Row]:
    from oda_rl import agents

    about = WORLDS[world]
    agent = getattr(agents, method)(about.make(seed), seed=seed)
    make = partial(about.make, seed)
    rows = learn(agent, about.steps_of(method), lambda _: side_by_side(agent.predict, make, seed))
    return [{**row, "solved": int(row["mean"] >= about.solved)} for row in rows]


def tables(rows: Rows) -> dict[str, Table]:
    def share(line: Rows) -> str:
        least, mean = WORLDS[line[0]["world"]].solved, line.column("mean").mean()
        return f"{line.share_from(least)} ({mean:.2f})"

    def goal(line: Rows) -> str:
        return f"{line[0]['world']} ≥ {WORLDS[line[0]['world']].solved:g}"

    columns = [
        Column("", goal, once=True),
        Column("steps", the("steps", ",")),
        Column("seeds", lambda line: count(line.where(method=line[0]["method"]))),
        *(Column(f"`{method}`", among(share, method=method)) for method in METHODS),
        *(
            Column(f"{method}, processor s", among(of(np.median, "seconds", ".2g"), method=method))
            for method in METHODS
        ),
    ]
    lines = [at for world in WORLDS for at in rows.where(world=world).by_steps()]
    return {"sparse": Table("share of seeds that succeed (mean return)", columns, lines)}


Options = MethodSelection


def settings(options: MethodSelection) -> list[Row]:
    return [
        {"method": method, "world": world, "seed": seed}
        for world in chosen(options.only, WORLDS)
        for method in chosen(options.methods, METHODS)
        if WORLDS[world].steps_of(method)
        for seed in EXPERIMENT.seeds(options)
    ]
