"""Many copies of CartPole-v1 at once: what training costs beside stepping, and what a step teaches.

First the time: 64 copies of Gymnasium's own vector implementation are merely stepped, with actions
drawn beforehand, and then trained in for as many steps, in turns in the same process. Then, for 1,
8 and 64 copies, the share of seeds whose delivered policy reaches a mean of 475 in 100 greedy
episodes after the same number of steps, counted over all copies (looked at when the first episode
after that ends, for training goes on). Seeds are those from 59 000 000 on.

Run: python scripts/benchmark.py vector [--seeds 100] [--workers 2]
Trainings are kept in results/benchmark_vector.jsonl as they end, and not repeated; writes
results/benchmark_vector.csv, results/benchmark_vector_times.csv and results/benchmark_vector.png.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from common.experiment import FIRST_SEEDS, Experiment, SharedOptions, say, seconds
from common.summaries import Column, Row, Rows, Table, Text, among, mark_steps, open_axes, the

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent
from oda_rl.plotting.axes import COLORS, new_axes

EXPERIMENT = Experiment("benchmark_vector", leave_out=("checkpoints",))
TIMES = Experiment("benchmark_vector_times")
ENV_ID, SOLVED = "CartPole-v1", 475.0
COPIES = (1, 8, 64)
CHECKPOINTS = (20_000, 50_000, 100_000, 200_000)
EVALUATION_EPISODES = 100
TIMED_COPIES, TIMED_STEPS = 64, 200_000
KINDS = {"TwoTimescaleAgent": TwoTimescaleAgent, "FittedQAgent": FittedQAgent}


def copies_of(count: int) -> Any:
    """Gymnasium's vector implementation, or the environment itself."""
    if count == 1:
        return gym.make(ENV_ID)
    return gym.make_vec(ENV_ID, count, vectorization_mode="vector_entry_point")


def train(agent: str, copies: int, seed: int, checkpoints: list[int]) -> list[Row]:
    """Train once; a row for each checkpoint."""
    learner = KINDS[agent](copies_of(copies), seed=seed)
    rows: list[Row] = []

    def look(one: Any) -> None:
        while len(rows) < len(checkpoints) and one.num_timesteps >= checkpoints[len(rows)]:
            returns = one.evaluate(EVALUATION_EPISODES, seed=seed + 10**8)
            mean = float(returns.mean())
            steps = checkpoints[len(rows)]
            rows.append({"steps": steps, "mean": mean, "solved": int(mean >= SOLVED)})

    learner.learn(checkpoints[-1], callback=look)
    look(learner)
    return rows


def measure(times: int) -> list[Row]:
    """Microseconds a step of stepping and of training, in turns."""
    rows: list[Row] = []
    for kind in KINDS.values():
        kind(copies_of(TIMED_COPIES), seed=0).learn(TIMED_STEPS)  # compiles
    for turn in range(times):
        env = copies_of(TIMED_COPIES)
        env.reset(seed=turn)
        env.action_space.seed(turn)
        actions = [env.action_space.sample() for _ in range(1000)]
        begun = time.perf_counter()
        for i in range(TIMED_STEPS // TIMED_COPIES):
            env.step(actions[i % len(actions)])
        row = {"stepping": time.perf_counter() - begun}
        for name, kind in KINDS.items():
            agent = kind(copies_of(TIMED_COPIES), seed=FIRST_SEEDS[EXPERIMENT.name] + turn)
            row[name] = seconds(partial(agent.learn, TIMED_STEPS))
        rows.append({key: 1e6 * taken / TIMED_STEPS for key, taken in row.items()})
    return rows


def times(rows: Rows) -> dict[str, str]:
    """Say what training costs beside stepping."""
    stepping = rows.column("stepping")
    said = []
    for name in KINDS:
        ratios = rows.column(name) / stepping
        said.append(
            f"`{name}` takes {np.median(ratios):.1f} times ({ratios.min():.1f} to "
            f"{ratios.max():.1f}) as long as merely stepping {TIMED_COPIES} copies, "
            f"{np.median(rows.column(name)):.2f} against {np.median(stepping):.2f} µs a step"
        )
    text = f"Medians of {len(rows)} trainings of {TIMED_STEPS:,} steps: {', and '.join(said)}."
    return {"vector times": text}


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


def main(options: Options) -> None:
    """Time stepping and training, then train many seeds."""
    say(*times(TIMES.write(measure(options.times), ())).values())
    settings = [
        {"agent": name, "copies": copies, "seed": seed, "checkpoints": list(options.checkpoints)}
        for name in KINDS
        for copies in COPIES
        for seed in EXPERIMENT.seeds(options)
    ]
    rows = EXPERIMENT.run(train, settings, options.execution)
    say(*tables(rows).values())
    EXPERIMENT.save(draw(rows))
