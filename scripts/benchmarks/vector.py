"""Many copies at once: what training costs beside stepping, and what a step teaches.

First the time: copies of an environment, 64 cart-poles in Gymnasium's own implementation and 16
acrobots one by one, are merely stepped by Gymnasium, with actions drawn beforehand, and then
trained in for as many steps, in turns in the same process. Then, of CartPole-v1 and for 1, 8 and 64
copies, the share of seeds whose delivered policy reaches a mean of 475 in 100 greedy
episodes after the same number of steps, counted over all copies (looked at when the first episode
after that ends, for training goes on). Seeds are those from 59 000 000 on. Then the fitted agent
alone, on tasks whose episodes are long, with seeds from 59 200 000 on.

Then actors, of which each plays in a copy of its own in a process of its own, and none, where the
agent plays itself: steps per second of a CartPole that takes 10 ms a step, and the share of seeds,
those from 59 500 000 on, that are solved after the first number of steps above. The pace, which
takes minutes a seed, is that of the first four.

Run: python scripts/benchmark.py vector [--seeds 100] [--workers 2] [--only times copies]
     python scripts/benchmark.py vector --only worlds --seeds 40
     python scripts/benchmark.py vector --only actors --seeds 20
Trainings in copies are kept in results/benchmark_vector.jsonl and benchmark_vector_worlds.jsonl as
they end, and not repeated. It writes results/benchmark_vector.csv, benchmark_vector_times.csv,
benchmark_vector_worlds.csv and benchmark_vector_actors.csv, and results/benchmark_vector.png.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from common.experiment import (
    FIRST_SEEDS,
    Experiment,
    SharedOptions,
    chosen,
    say,
    seconds,
)
from common.summaries import Column, Row, Rows, Table, Text, among, mark_steps, of, open_axes, the
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from oda_rl.agents import Actors, FittedQAgent, TwoTimescaleAgent
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.runs.parallel import dask_client

EXPERIMENT = Experiment("benchmark_vector", leave_out=("checkpoints",))
TIMES = Experiment("benchmark_vector_times")
WORLDS = Experiment("benchmark_vector_worlds", leave_out=("checkpoints",))
ACTED = Experiment("benchmark_vector_actors")
PARTS = ("times", "copies", "worlds", "actors")
ENV_ID, SOLVED = "CartPole-v1", 475.0
COPIES = (1, 8, 64)
CHECKPOINTS = (20_000, 50_000, 100_000, 200_000)
EVALUATION_EPISODES = 100
TIMED = (  # environment, copies, how Gymnasium steps them, steps
    (ENV_ID, 64, "vector_entry_point", 200_000),
    ("Acrobot-v1", 16, "sync", 50_000),
)
# Episodes of which are long.
WORLD_IDS = ("MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1")
WORLD_COPIES, WORLD_CHECKPOINTS = (1, 16, 64), (50_000, 100_000)
ACTORS = (0, 1, 2, 4)
PAUSE, PACED_STEPS = 0.01, 5_000
KINDS = {"TwoTimescaleAgent": TwoTimescaleAgent, "FittedQAgent": FittedQAgent}


def copies_of(count: int, env_id: str = ENV_ID, mode: str = "vector_entry_point") -> Any:
    """Gymnasium's vector implementation, or the environment itself."""
    if count == 1:
        return gym.make(env_id)
    return gym.make_vec(env_id, count, vectorization_mode=mode)


def train(agent: str, copies: int, seed: int, checkpoints: list[int]) -> list[Row]:
    """Train once; a row for each checkpoint."""
    rows = looks(KINDS[agent](copies_of(copies), seed=seed), seed, checkpoints)
    return [{**row, "solved": int(row["mean"] >= SOLVED)} for row in rows]


def looks(learner: Any, seed: int, checkpoints: list[int]) -> list[Row]:
    """Train, and evaluate the delivered policy at each checkpoint."""
    rows: list[Row] = []

    def look(one: Any) -> None:
        while len(rows) < len(checkpoints) and one.num_timesteps >= checkpoints[len(rows)]:
            returns = one.evaluate(EVALUATION_EPISODES, seed=seed + 10**8)
            rows.append({"steps": checkpoints[len(rows)], "mean": float(returns.mean())})

    learner.learn(checkpoints[-1], callback=look)
    look(learner)
    return rows


def train_in_world(environment: str, copies: int, seed: int, checkpoints: list[int]) -> list[Row]:
    """Train the fitted agent once in an environment with long episodes; a row a checkpoint."""
    learner = FittedQAgent(copies_of(copies, environment, "sync"), seed=seed)
    return looks(learner, seed, checkpoints)


def measure(times: int) -> list[Row]:
    """Microseconds a step of stepping and of training, in turns."""
    rows: list[Row] = []
    for env_id, copies, mode, steps in TIMED:
        make = partial(copies_of, copies, env_id, mode)
        for kind in KINDS.values():
            kind(make(), seed=0).learn(steps)  # compiles
        for turn in range(times):
            row = {"stepping": stepped(make(), steps, turn)}
            for name, kind in KINDS.items():
                agent = kind(make(), seed=FIRST_SEEDS[EXPERIMENT.name] + turn)
                row[name] = seconds(partial(agent.learn, steps))
            taken = {key: 1e6 * value / steps for key, value in row.items()}
            rows.append({"environment": env_id, "copies": copies, "steps": steps, **taken})
    return rows


def stepped(env: Any, steps: int, seed: int) -> float:
    """Return the seconds that so many steps take, by actions that were drawn before."""
    env.reset(seed=seed)
    env.action_space.seed(seed)
    actions = [env.action_space.sample() for _ in range(1000)]
    begun = time.perf_counter()
    for i in range(steps // env.num_envs):
        env.step(actions[i % len(actions)])
    return time.perf_counter() - begun


class SlowCartPole(CartPoleEnv):
    """A cart-pole whose steps take at least so many seconds."""

    def __init__(self, pause: float = 0.0) -> None:
        super().__init__()
        self._pause = pause

    def step(self, action: Any) -> Any:
        """Wait, and step."""
        time.sleep(self._pause)
        return super().step(action)


gym.register("SlowCartPole-v0", SlowCartPole, max_episode_steps=500)


def act(seed: int, steps: int, paced: bool) -> list[Row]:
    """Train with each number of actors, before that in slow steps if their pace is measured."""
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
    """Return pace, shares and means of each number of actors."""
    columns = [
        Column("actors", lambda own: str(own[0]["actors"] or "none")),
        Column("seeds", lambda own: str(len(own.groups("seed")))),
        Column("steps a second", of(np.nanmedian, "pace", ".0f")),
        *(Column(f"{steps:,}", solved(steps)) for steps in sorted(rows.values("steps"))),
    ]
    lines = [rows.where(actors=count) for count in ACTORS]
    title = f"{1000 * PAUSE:.0f} ms a step, and {ENV_ID} after so many steps: solved (mean)"
    return {"actors": Table(title, columns, [own for own in lines if own])}


def times(rows: Rows) -> dict[str, Table]:
    """Return what training costs beside stepping."""
    columns = [
        Column("environment", the("environment")),
        Column("copies", the("copies")),
        Column("Gymnasium alone", of(np.median, "stepping", ".2f")),
        *(Column(f"`{name}`", beside_stepping(name)) for name in KINDS),
    ]
    title = "µs a step, and how many times as long as merely stepping"
    return {"vector times": Table(title, columns, rows.groups("environment"))}


def beside_stepping(name: str) -> Text:
    """Make a text of the median time of trainings, and of its ratio to that of stepping."""

    def text(own: Rows) -> str:
        ratios = own.column(name) / own.column("stepping")
        span = f"{ratios.min():.2f} to {ratios.max():.2f}"
        return f"{np.median(own.column(name)):.2f}: {np.median(ratios):.2f} times ({span})"

    return text


def solved(steps: int) -> Text:
    """Make a text of the share of solved seeds after so many steps, and their mean."""
    return among(
        lambda at: f"{np.mean(at.column('solved')):.2f} ({np.mean(at.column('mean')):.0f})",
        steps=steps,
    )


def tables(rows: Rows) -> dict[str, Table]:
    """Return shares and means of each agent with each number of copies."""
    columns = [
        Column("agent", lambda own: f"`{own[0]['agent']}`", once=True),
        Column("copies", the("copies")),
        Column("seeds", lambda own: str(len(own.groups("seed")))),
        *(Column(f"{steps:,}", solved(steps)) for steps in sorted(rows.values("steps"))),
    ]
    lines = [rows.where(agent=name, copies=copies) for name in KINDS for copies in COPIES]
    title = f"{ENV_ID} after so many steps of all copies: solved (mean)"
    return {"vector": Table(title, columns, [own for own in lines if own])}


def worlds(rows: Rows) -> dict[str, Table]:
    """Return means and leasts of the fitted agent where episodes are long."""
    columns = [
        Column("environment", the("environment"), once=True),
        Column("copies", the("copies")),
        Column("seeds", lambda own: str(len(own.groups("seed")))),
        *(Column(f"{n:,}", among(mean_and_least, steps=n)) for n in sorted(rows.values("steps"))),
    ]
    lines = [rows.where(environment=name, copies=n) for name in WORLD_IDS for n in WORLD_COPIES]
    title = "`FittedQAgent` after so many steps of all copies: mean (least of the seeds)"
    return {"vector worlds": Table(title, columns, [own for own in lines if own])}


def mean_and_least(own: Rows) -> str:
    """Return the mean of all seeds, and the least."""
    means = own.column("mean")
    return f"{means.mean():.1f} ({means.min():.1f})"


def draw(rows: Rows) -> Any:
    """Draw the share of solved seeds over steps, a panel for each agent."""
    panels, checkpoints = new_axes(9.0, 3.6, columns=2), sorted(rows.values("steps"))
    for ax, name in zip(panels, KINDS, strict=True):
        for color, copies in zip(COLORS, COPIES, strict=False):
            own = rows.where(agent=name, copies=copies)
            shares = [np.mean(at.column("solved")) for at in own.by_steps()]
            label = "one environment" if copies == 1 else f"{copies} copies"
            ax.plot(checkpoints, shares, "o-", color=color, label=label)
        ax.set(ylim=(-0.03, 1.03), title=name, xlabel="steps of all copies together")
        mark_steps(ax, checkpoints)
    open_axes(*panels)
    panels[0].set_ylabel(f"share of seeds with a mean of {SOLVED:.0f}")
    panels[1].legend(frameon=False, loc="lower right")
    return panels[0]


@dataclass(frozen=True)
class Options(SharedOptions):
    """How much to run, and where."""

    seeds: int = 100
    """Of each agent and number of copies."""
    checkpoints: tuple[int, ...] = CHECKPOINTS
    """Steps after which policies are evaluated, the fewest first."""
    times: int = 7
    """How often to take the time."""
    paced: int = 4
    """Of how many seeds, the first ones, the pace of actors is measured."""
    only: tuple[str, ...] = ()
    """Of times, copies, worlds and actors; by default all."""


def main(options: Options) -> None:
    """Time stepping and training, then train many seeds, in copies and by actors."""
    parts = chosen(options.only, PARTS)
    if "times" in parts:
        say(*times(TIMES.write(measure(options.times), ())).values())
    if "copies" in parts:
        settings = [
            {
                "agent": name,
                "copies": copies,
                "seed": seed,
                "checkpoints": list(options.checkpoints),
            }
            for name in KINDS
            for copies in COPIES
            for seed in EXPERIMENT.seeds(options)
        ]
        rows = EXPERIMENT.run(train, settings, options.execution)
        say(*tables(rows).values())
        EXPERIMENT.save(draw(rows))
    if "worlds" in parts:
        settings = [
            {
                "environment": name,
                "copies": copies,
                "seed": seed,
                "checkpoints": list(WORLD_CHECKPOINTS),
            }
            for name in WORLD_IDS
            for copies in WORLD_COPIES
            for seed in WORLDS.seeds(options)
        ]
        say(*worlds(WORLDS.run(train_in_world, settings, options.execution)).values())
    if "actors" in parts:
        for i, seed in enumerate(ACTED.seeds(options)):  # rows are there when each has ended
            found = act(seed, options.checkpoints[0], i < options.paced)
            rows = ACTED.write(found, ("actors", "seed", "steps"))
        say(*acted(rows).values())
