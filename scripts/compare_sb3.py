"""Our agents against DQN, PPO and A2C of Stable-Baselines3 on the two cart-poles.

Ours have their package defaults, theirs rl-zoo's tuned hyperparameters. What is measured, and how,
says oda_rl/agents/comparison.py; ``oda-rl compare --env-id ...`` does it for any environment.

One run is made at a time, because they are timed. Writes results/compare_sb3.csv and
results/compare_sb3.png, and a folder for each environment with its figure and table.
"""

import numpy as np
import tyro
from benchmarks.suite import CART_POLES, stored
from common.experiment import Experiment, say
from common.summaries import Rows

from oda_rl.agents.comparison import OWN, Plan, compare, headline, origin_of_settings, solved_at
from oda_rl.command.comparison import plot_comparison, write_comparison
from oda_rl.runs.results import markdown_table, store_rows

EXPERIMENT = Experiment("compare_sb3")


def tables(rows: Rows) -> dict[str, str]:
    suite, lines = stored("benchmark_suite"), []  # which has further seeds of baselines
    for label, env_id in CART_POLES.items():
        group = rows.where(env_id=env_id)
        steps = max(group.values("steps"))
        counts = {of[0]["algorithm"]: len(of.groups("seed")) for of in group.groups("algorithm")}
        solved = solved_at(group, counts)
        for i, (name, when) in enumerate(solved.items()):
            at = group.where(algorithm=name, steps=steps)
            found = "never" if when is None else f"{when.seconds:.3g} ({when.steps:,} steps)"
            if when is not None and name in OWN:
                found = f"{when.seconds:.3g}, {when.loop_seconds:.3g} ({when.steps:,} steps)"
            more = suite.where(task=label, method=name, steps=steps) if name not in OWN else []
            everyone = Rows([*at, *more])
            lines.append(["" if i else label, *_line(name, env_id, everyone), found, *_sizes(at)])
    heads = ["after 50,000 steps", "", "seeds", "solved", "median (min)",
             "seconds to 95 % of seeds solved", "seconds", "numbers", "peak MB", "bytes",
             "µs a decision"]  # fmt: skip
    return {"compare": markdown_table(heads, lines)}


def _line(name: str, env_id: str, at: Rows) -> list[str]:
    """Return what a line begins with."""
    means = at.column("mean")
    borrowed = name not in OWN and origin_of_settings(name, env_id) != "rl-zoo's"
    shown = f"`{name}`" if name in OWN else name + ("\\*" if borrowed else "")
    share = np.mean(at.column("solved"))
    return [shown, str(len(at)), f"{share:.2f}", f"{np.median(means):.0f} ({min(means):.0f})"]


def _sizes(at: Rows) -> list[str]:
    """Return what a line ends with: medians."""
    keys = ("seconds", "loop_seconds", "parameters", "peak_mb", "policy_bytes", "predict_us")
    middle = {key: float(np.median(at.column(key))) for key in keys}
    looped = middle["loop_seconds"] != middle["seconds"]
    return [
        f"{middle['seconds']:.3g}" + (f", {middle['loop_seconds']:.3g}" if looped else ""),
        f"{middle['parameters']:,.0f}", f"{middle['peak_mb']:.0f}",
        f"{middle['policy_bytes']:,.0f}", f"{middle['predict_us']:.0f}",
    ]  # fmt: skip


def main() -> None:
    comparisons = []
    for name, env_id in CART_POLES.items():
        found = compare(Plan(env_id), EXPERIMENT.path(".jsonl"))
        say(*headline(found), *found.failed)
        written = write_comparison(found, EXPERIMENT.path(f"_{name}"))
        say(f"written: {', '.join(map(str, written))}")
        comparisons.append(found)
        key = ("env_id", "algorithm", "seed")
        store_rows(EXPERIMENT.path(".csv"), found.rows, key, found.origins)
    EXPERIMENT.save(plot_comparison(comparisons)[0])


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
