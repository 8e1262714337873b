"""Both agents against DQN, PPO and A2C of Stable-Baselines3 on the two cart-poles.

Ours have their package defaults, theirs rl-zoo's tuned hyper-parameters. What is measured, and how,
says oda_rl/agents/comparison.py; ``oda-rl compare --env-id ...`` does it for any environment.

Run: python scripts/compare_sb3.py [--seeds 5] [--own-seeds 20] [--total-timesteps 50000]
Runs are kept in results/compare_sb3.jsonl as they end, and not repeated; one is made at a time,
because they are timed. Writes results/compare_sb3.csv and results/compare_sb3.png, and a folder for
each environment with its figure and its table (comparison.md).
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console

from oda_rl.agents.comparison.contest import (
    OWN,
    Plan,
    compare,
    headline,
    origin_of_settings,
    solved_at,
)
from oda_rl.command.comparison import plot_comparison, write_comparison
from oda_rl.command.report import save_figure
from oda_rl.experiments import Execution
from oda_rl.results import markdown_table, read_rows, store_rows

RESULTS = Path("results")
SHARES = (0.5, 0.95)  # of the seeds
CART_POLES = {"BartoCartPole": "oda_rl/BartoCartPole-v0", "CartPole-v1": "CartPole-v1"}


def tables(results: Path) -> dict[str, str]:
    """Return the table of the README, and how many times as long PPO takes."""
    rows = read_rows(results / "compare_sb3.csv")
    lines, ratios = [], []
    for label, env_id in CART_POLES.items():
        own = [row for row in rows if row["env_id"] == env_id]
        steps = max(row["steps"] for row in own)
        names = list(dict.fromkeys(row["algorithm"] for row in own))
        counts = {
            name: len({row["seed"] for row in own if row["algorithm"] == name}) for name in names
        }
        solved = solved_at(own, counts)
        ratios += _ratios(label, own, counts)
        for i, name in enumerate(names):
            at = [row for row in own if (row["algorithm"], row["steps"]) == (name, steps)]
            when = solved[name]
            found = "never"
            if when is not None:
                found = f"{when.seconds:.3g} ({when.steps:,} steps)"
                if name in OWN:
                    found = f"{when.seconds:.3g}, {when.loop_seconds:.3g} ({when.steps:,} steps)"
            lines.append(["" if i else label, *_line(name, env_id, at), found, *_sizes(at)])
    heads = ["after 50,000 steps", "", "seeds", "solved", "median (least seed)",
             "seconds to 95 % of seeds solved", "seconds", "numbers", "peak MB", "bytes",
             "µs a decision"]  # fmt: skip
    about = ["", "", "seeds solved", "PPO's seconds / ours", "ours in a Python loop",
             "steps: PPO, ours"]  # fmt: skip
    return {
        "compare": markdown_table(heads, lines), "compare ratios": markdown_table(about, ratios)
    }  # fmt: skip


def _line(name: str, env_id: str, at: list[dict[str, Any]]) -> list[str]:
    """Return what a line begins with."""
    means = [row["mean"] for row in at]
    borrowed = name not in OWN and origin_of_settings(name, env_id) != "rl-zoo's"
    shown = f"`{name}`" if name in OWN else name + ("\\*" if borrowed else "")
    share = np.mean([row["solved"] for row in at])
    return [shown, str(len(at)), f"{share:.2f}", f"{np.median(means):.0f} ({min(means):.0f})"]


def _sizes(at: list[dict[str, Any]]) -> list[str]:
    """Return what a line ends with: medians."""
    keys = ("seconds", "loop_seconds", "parameters", "peak_mb", "policy_bytes", "predict_us")
    middle = {key: float(np.median([row[key] for row in at])) for key in keys}
    looped = middle["loop_seconds"] != middle["seconds"]
    return [
        f"{middle['seconds']:.3g}" + (f", {middle['loop_seconds']:.3g}" if looped else ""),
        f"{middle['parameters']:,.0f}", f"{middle['peak_mb']:.0f}",
        f"{middle['policy_bytes']:,.0f}", f"{middle['predict_us']:.0f}",
    ]  # fmt: skip


def _ratios(label: str, rows: list[dict[str, Any]], counts: dict[str, int]) -> list[list[str]]:
    """Say how many times as long PPO takes until half and nearly all of the seeds are solved."""
    lines = []
    for name in OWN:
        for share in SHARES:
            found = solved_at(rows, counts, share)
            own, other = found[name], found["PPO"]
            line = [label, f"`{name}`", f"{100 * share:.0f} %"]
            if own is None or other is None:
                line += ["never"] * 3
            else:
                line += [f"{other.seconds / own.seconds:.0f}"]
                line += [f"{other.seconds / own.loop_seconds:.0f}"]
                line += [f"{other.steps:,}, {own.steps:,}"]
            lines.append(line)
    return lines


@dataclasses.dataclass(frozen=True)
class Options:
    """What to run, and where."""

    seeds: int = Plan.seeds
    """Runs of DQN and of A2C."""
    own_seeds: int = Plan.own_seeds
    """Runs of each of our agents, and of PPO."""
    total_timesteps: int = Plan.total_timesteps
    """Environment steps of each run."""
    execution: Execution = dataclasses.field(default_factory=lambda: Execution(workers=1))
    """Where to run."""


def main(options: Options) -> None:
    """Compare on both cart-poles."""
    console = Console(highlight=False, soft_wrap=True)
    comparisons = []
    for name, env_id in CART_POLES.items():
        plan = Plan(env_id, options.seeds, options.own_seeds, options.total_timesteps)
        found = compare(plan, RESULTS / "compare_sb3.jsonl", options.execution)
        console.print(*headline(found), *found.failed, sep="\n")
        written = write_comparison(found, RESULTS / f"compare_sb3_{name}")
        console.print("written:", ", ".join(map(str, written)))
        comparisons.append(found)
        key = ("env_id", "algorithm", "seed")
        store_rows(RESULTS / "compare_sb3.csv", found.rows, key, found.origins)
    path = save_figure(plot_comparison(comparisons)[0], RESULTS / "compare_sb3.png")
    console.print(f"written: {path}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
