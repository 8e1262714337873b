"""Vector environments: the share of seeds solved with copies, and the speed of actors.

CartPole-v1 with 1, 8 and 64 copies: the share of seeds whose delivered policy reaches a mean of 475
in 100 greedy episodes after the same number of steps, counted over all copies (evaluated when the
first episode after that ends).

Then actors, each with its own environment in its own process, and none, where the agent plays
itself: steps per second of a CartPole that takes 10 ms a step (the first four seeds), and the share
of seeds that are solved after the first number of steps above.
"""

import time
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from common.experiment import Experiment, Selection, chosen, say
from common.summaries import Column, Row, Rows, Table, among, of, the
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from oda_rl.agents import Actors, FittedQAgent, TwoTimescaleAgent
from oda_rl.runs.parallel import dask_client

EXPERIMENT = Experiment("benchmark_vector", leave_out=("checkpoints",))
ACTED = Experiment("benchmark_vector_actors")
PARTS = "copies", "actors"
ENV_ID, SOLVED = "CartPole-v1", 475.0
COPIES = (1, 8, 64)
CHECKPOINTS = (20_000, 50_000, 100_000, 200_000)
EVALUATION_EPISODES = 100
ACTORS = (0, 1, 2, 4)
PAUSE, PACED_STEPS, N_PACED = 0.01, 5_000, 4  # seconds, steps, seeds
KINDS = {"TwoTimescaleAgent": TwoTimescaleAgent, "FittedQAgent": FittedQAgent}


def train(agent: str, copies: int, seed: int, checkpoints: list[int]) -> list[Row]:
    envs = gym.make_vec(ENV_ID, copies, "vector_entry_point") if copies > 1 else ENV_ID
    rows = looks(KINDS[agent](envs, seed=seed), seed, checkpoints)
    return [{**row, "solved": int(row["mean"] >= SOLVED)} for row in rows]


def looks(learner: Any, seed: int, checkpoints: list[int]) -> list[Row]:
    rows: list[Row] = []

    def look(one: Any) -> None:
        while len(rows) < len(checkpoints) and one.num_timesteps >= checkpoints[len(rows)]:
            returns = one.evaluate(EVALUATION_EPISODES, seed=seed + 10**8)
            rows.append({"steps": checkpoints[len(rows)], "mean": float(returns.mean())})

    learner.learn(checkpoints[-1], callback=look)
    look(learner)
    return rows


class SlowCartPole(CartPoleEnv):
    """A cart-pole whose steps take at least ``pause`` seconds."""

    def __init__(self, pause: float = 0.0) -> None:
        super().__init__()
        self._pause = pause

    def step(self, action: Any) -> Any:
        time.sleep(self._pause)
        return super().step(action)


gym.register("SlowCartPole-v0", SlowCartPole, max_episode_steps=500)


def act(seed: int, steps: int, paced: bool) -> list[Row]:
    rows: list[Row] = []
    with dask_client(max(ACTORS), None) as client:
        address = client.scheduler.address
        for count in ACTORS:
            actors = Actors(count, address) if count else None
            # Each process loads what is compiled.
            FittedQAgent("SlowCartPole-v0", seed=seed).learn(500, actors=actors)
            pace = np.nan
            if paced:
                slow = FittedQAgent(gym.make("SlowCartPole-v0", pause=PAUSE), seed=seed)
                pace = PACED_STEPS / slow.learn(PACED_STEPS, actors=actors).training_seconds
            agent = FittedQAgent("SlowCartPole-v0", seed=seed).learn(steps, actors=actors)
            mean = float(agent.evaluate(EVALUATION_EPISODES, seed=seed + 10**8).mean())
            row: Row = {"actors": count, "seed": seed, "steps": steps}
            rows.append({**row, "pace": pace, "mean": mean, "solved": int(mean >= SOLVED)})
    return rows


def acted(rows: Rows) -> dict[str, Table]:
    columns = [
        Column("actors", lambda line: str(line[0]["actors"] or "none")),
        Column("seeds", Rows.count_seeds),
        Column("steps a second", of(np.nanmedian, "pace", ".0f")),
        *at_steps(rows),
    ]
    lines = [rows.where(actors=count) for count in ACTORS]
    title = f"{1000 * PAUSE:.0f} ms a step, and {ENV_ID} after so many steps: solved (mean)"
    return {"actors": Table(title, columns, lines)}


def at_steps(rows: Rows) -> list[Column]:
    """Return a column for each number of steps."""
    steps = sorted(rows.values("steps"))
    return [Column(f"{n:,}", among(Rows.solved_and_mean, steps=n)) for n in steps]


def tables(rows: Rows) -> dict[str, Table]:
    columns = [
        Column("agent", lambda line: f"`{line[0]['agent']}`", once=True),
        Column("copies", the("copies")),
        Column("seeds", Rows.count_seeds),
        *at_steps(rows),
    ]
    lines = [rows.where(agent=name, copies=copies) for name in KINDS for copies in COPIES]
    title = f"{ENV_ID} after so many steps of all copies: solved (mean)"
    return {"vector": Table(title, columns, lines)}


@dataclass(frozen=True)
class Options(Selection):
    seeds: int = 100  # Seeds of each agent and number of copies
    checkpoints: tuple[int, ...] = CHECKPOINTS
    """Steps after which policies are evaluated, the fewest first."""


def main(options: Options) -> None:
    parts = chosen(options.only, PARTS)
    if "copies" in parts:
        settings = [
            {"agent": name, "copies": copies, "seed": seed, "checkpoints": [*options.checkpoints]}
            for name in KINDS
            for copies in COPIES
            for seed in EXPERIMENT.seeds(options)
        ]
        rows = EXPERIMENT.run(train, settings, options)
        say(*tables(rows).values())
    if "actors" in parts:
        for i, seed in enumerate(ACTED.seeds(options)):  # rows are there when each has ended
            found = act(seed, options.checkpoints[0], i < N_PACED)
            rows = ACTED.write(found, ("actors", "seed", "steps"))
        say(*acted(rows).values())
