"""Many copies of CartPole-v1 at once: what training costs beside stepping, and what a step teaches.

First the time: 64 copies of Gymnasium's own vector implementation are merely stepped, with actions
drawn beforehand, and then trained in for as many steps, in turns in the same process. Then, for 1,
8 and 64 copies, the share of seeds whose delivered policy reaches a mean of 475 in 100 greedy
episodes after the same number of steps, counted over all copies (looked at when the first episode
after that ends, for training goes on). Seeds are those from 59 000 000 on.

Run: python scripts/benchmark_vector.py [--seeds 100] [--workers 2]
Trainings are kept in results/benchmark_vector.jsonl as they end, and not repeated; writes
results/benchmark_vector.csv, results/benchmark_vector_times.csv and results/benchmark_vector.png.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent
from oda_rl.command.report import save_figure
from oda_rl.experiments import Execution, failures, run_all, store_runs
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.results import markdown_table, read_rows, store_rows

RESULTS = Path("results")
ENV_ID, SOLVED = "CartPole-v1", 475.0
COPIES = (1, 8, 64)
CHECKPOINTS = (20_000, 50_000, 100_000, 200_000)
FIRST_SEED = 59_000_000
EVALUATION_EPISODES = 100
TIMED_COPIES, TIMED_STEPS = 64, 200_000
KINDS = {"TwoTimescaleAgent": TwoTimescaleAgent, "FittedQAgent": FittedQAgent}

Row = dict[str, Any]


def copies_of(count: int) -> Any:
    """Gymnasium's vector implementation, or the environment itself."""
    if count == 1:
        return gym.make(ENV_ID)
    return gym.make_vec(ENV_ID, count, vectorization_mode="vector_entry_point")


def train(agent: str, copies: int, seed: int) -> list[Row]:
    """Train once; a row for each checkpoint."""
    learner = KINDS[agent](copies_of(copies), seed=seed)
    rows: list[Row] = []

    def look(one: Any) -> None:
        while len(rows) < len(CHECKPOINTS) and one.num_timesteps >= CHECKPOINTS[len(rows)]:
            returns = one.evaluate(EVALUATION_EPISODES, seed=seed + 10**8)
            mean = float(returns.mean())
            steps = CHECKPOINTS[len(rows)]
            rows.append({"steps": steps, "mean": mean, "solved": int(mean >= SOLVED)})

    learner.learn(CHECKPOINTS[-1], callback=look)
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
            agent = kind(copies_of(TIMED_COPIES), seed=FIRST_SEED + turn)
            begun = time.perf_counter()
            agent.learn(TIMED_STEPS)
            row[name] = time.perf_counter() - begun
        rows.append({key: 1e6 * seconds / TIMED_STEPS for key, seconds in row.items()})
    return rows


def times_text(rows: list[Row]) -> str:
    """Say what training costs beside stepping."""
    stepping = np.array([row["stepping"] for row in rows])
    said = []
    for name in KINDS:
        times = np.array([row[name] for row in rows])
        ratios = times / stepping
        said.append(
            f"`{name}` takes {np.median(ratios):.1f} times ({ratios.min():.1f} to "
            f"{ratios.max():.1f}) as long as merely stepping {TIMED_COPIES} copies, "
            f"{np.median(times):.2f} against {np.median(stepping):.2f} µs a step"
        )
    return f"Medians of {len(rows)} trainings of {TIMED_STEPS:,} steps: {', and '.join(said)}."


def tables(results: Path) -> dict[str, str]:
    """Return the table and the sentence of the README."""
    rows = read_rows(results / "benchmark_vector.csv")
    lines = []
    for name in KINDS:
        for i, copies in enumerate(COPIES):
            own = [row for row in rows if (row["agent"], row["copies"]) == (name, copies)]
            cells = []
            for steps in CHECKPOINTS:
                at = [row for row in own if row["steps"] == steps]
                share = np.mean([row["solved"] for row in at])
                cells.append(f"{share:.2f} ({np.mean([row['mean'] for row in at]):.0f})")
            seeds = len({row["seed"] for row in own})
            lines.append(["" if i else f"`{name}`", str(copies), str(seeds), *cells])
    heads = ["agent", "copies", "seeds", *(f"{steps:,}" for steps in CHECKPOINTS)]
    times = read_rows(results / "benchmark_vector_times.csv")
    return {"vector": markdown_table(heads, lines), "vector times": times_text(times)}


def report_learning(console: Console, rows: list[Row]) -> None:
    """Print shares and means."""
    table = Table(title=f"{ENV_ID} after so many steps of all copies: solved (mean, median, least)")
    for column in ("agent", "copies", "seeds", *(f"{steps:,}" for steps in CHECKPOINTS)):
        table.add_column(column, justify="left" if column == "agent" else "right")
    for name in KINDS:
        for copies in COPIES:
            own = [row for row in rows if (row["agent"], row["copies"]) == (name, copies)]
            shown = []
            for steps in CHECKPOINTS:
                at = [row for row in own if row["steps"] == steps]
                means = [row["mean"] for row in at]
                shown.append(
                    f"{np.mean([row['solved'] for row in at]):.2f} ({np.mean(means):.0f}, "
                    f"{np.median(means):.0f}, {np.min(means):.0f})"
                    if at
                    else "-"
                )
            table.add_row(name, str(copies), str(len({row["seed"] for row in own})), *shown)
    console.print(table)


def draw(rows: list[Row]) -> Path:
    """Draw the share of solved seeds over steps, a panel for each agent."""
    panels = new_axes(9.0, 3.6, columns=2)
    for ax, name in zip(panels, KINDS, strict=True):
        for color, copies in zip(COLORS, COPIES, strict=False):
            own = [row for row in rows if (row["agent"], row["copies"]) == (name, copies)]
            shares = [
                np.mean([row["solved"] for row in own if row["steps"] == steps])
                for steps in CHECKPOINTS
            ]
            label = "one environment" if copies == 1 else f"{copies} copies"
            ax.plot(CHECKPOINTS, shares, "o-", color=color, label=label)
        ax.set(xscale="log", ylim=(-0.03, 1.03), title=name, xlabel="steps of all copies together")
        ax.set_xticks(CHECKPOINTS, [f"{steps // 1000}k" for steps in CHECKPOINTS])
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(f"share of seeds with a mean of {SOLVED:.0f}")
    panels[1].legend(frameon=False, loc="lower right")
    return save_figure(panels[0], RESULTS / "benchmark_vector.png")


@dataclasses.dataclass(frozen=True)
class Options:
    """How much to run, and where."""

    seeds: int = 100
    """Of each agent and number of copies."""
    times: int = 7
    """How often to take the time."""
    execution: Execution = dataclasses.field(default_factory=Execution)
    """Where to run."""


def main(options: Options) -> None:
    """Time stepping and training, then train many seeds."""
    console = Console(highlight=False, width=max(Console().width, 130))
    times = store_rows(RESULTS / "benchmark_vector_times.csv", measure(options.times), ())
    console.print(times_text(times), soft_wrap=True)
    settings = [
        {"agent": name, "copies": copies, "seed": FIRST_SEED + i}
        for name in KINDS
        for copies in COPIES
        for i in range(options.seeds)
    ]
    runs = run_all(train, settings, RESULTS / "benchmark_vector.jsonl", options.execution)
    rows = store_runs(RESULTS / "benchmark_vector.csv", runs)
    report_learning(console, rows)
    console.print(*failures(runs), sep="\n")
    console.print(f"written: {draw(rows)}, {RESULTS / 'benchmark_vector.csv'}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__, config=(tyro.conf.OmitArgPrefixes,)))
