"""Both agents against DQN, PPO and A2C of Stable-Baselines3 on the two cart-poles.

Ours have their package defaults, theirs rl-zoo's tuned hyper-parameters. What is measured, and how,
says oda_rl/agents/comparison.py; ``oda-rl compare --env-id ...`` does it for any environment.

Run: python scripts/compare_sb3.py [--seeds 5] [--own-seeds 20] [--total-timesteps 50000]
Runs are kept in results/compare_sb3.jsonl as they end, and not repeated; one is made at a time,
because they are timed. Writes results/compare_sb3.png, and a folder for each environment with its
figure, its table (comparison.md) and all rows (comparison.csv).
"""

import dataclasses
from pathlib import Path

import tyro
from rich.console import Console

from oda_rl.agents.comparison import Plan, compare, headline
from oda_rl.comparison_report import plot_comparison, write_comparison
from oda_rl.experiments import Execution
from oda_rl.report import save_figure

RESULTS = Path("results")
CART_POLES = {"BartoCartPole": "oda_rl/BartoCartPole-v0", "CartPole-v1": "CartPole-v1"}


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
    path = save_figure(plot_comparison(comparisons)[0], RESULTS / "compare_sb3.png")
    console.print(f"written: {path}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
