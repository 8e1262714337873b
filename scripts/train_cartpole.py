"""Train the online agent on the cart-pole with three kinds of cells, and find a rule.

The two-timescale agent learns with cells that annealing places, with a uniform grid and with a
self-organising map, 256 cells each; ModelAgent then finds a short rule, in 250 steps.

Run: python scripts/train_cartpole.py
"""

from pathlib import Path

import tyro
from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

from oda_rl import plotting
from oda_rl.agents import ModelAgent, TwoTimescaleAgent
from oda_rl.command.reporting import evaluation_line, write_figures

ENV, RUN = "CartPole-v1", Path("runs/cartpole")


def main() -> None:
    rule = ModelAgent(ENV, seed=3)
    agents = {
        "oda": TwoTimescaleAgent(ENV, seed=0),
        "grid": TwoTimescaleAgent(ENV, seed=0, partition="grid", bins=4),
        "som": TwoTimescaleAgent(ENV, seed=0, partition="som", map_shape=(16, 16)),
        "rule": rule,
    }
    table = Table("cells", "return over 20 greedy episodes", "steps", "seconds", box=None)
    figure, axes = plt.subplots(2, 2, figsize=(11.0, 8.0), sharey=True, layout="constrained")
    for ax, (name, agent) in zip(axes.ravel(), agents.items(), strict=True):
        agent.learn(250 if agent is rule else 30_000, progress_bar=True)
        returns = agent.evaluate(20, seed=1)
        agent.save(RUN / name)
        write_figures(agent, RUN / name, returns=returns)
        curve = agent.episodes.curve
        plotting.plot_learning_curve(curve, solved_return=475.0, delivered=returns, ax=ax)
        ax.set_title(f"{name}: {agent.n_cells} cells")
        seconds = f"{agent.training_seconds:.1f}"
        table.add_row(name, evaluation_line(returns), f"{agent.num_timesteps:,}", seconds)
    figure.suptitle("Training episodes explore; the star is the policy that is delivered")
    figure.savefig(RUN / "learning_curves.png", dpi=110)

    console = Console()
    console.print(table)
    console.print(f"the rule:\n{rule.rules()}", highlight=False, soft_wrap=True)
    console.print(f"learning curves and figures of the cells: {RUN}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
