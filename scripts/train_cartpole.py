"""Train the online agent on the cart-pole with three kinds of cells, and find a rule.

The two-timescale agent learns with cells that annealing places, with a uniform grid and with a
self-organising map, 256 cells each; ModelAgent then says in 250 steps what to do, in one sentence.

Run: python scripts/train_cartpole.py
"""

from pathlib import Path

from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

from oda_rl import plotting
from oda_rl.agents import ModelAgent, TwoTimescaleAgent
from oda_rl.command.reporting import evaluation_line, write_figures

RUN = Path("runs/cartpole")
CELLS = {"oda": {}, "grid": {"bins": 4}, "som": {"map_shape": (16, 16)}}


def main() -> None:
    table = Table("cells", "return over 20 greedy episodes", "steps", "seconds", box=None)
    figure, axes = plt.subplots(1, 3, figsize=(13.0, 4.0), sharey=True, layout="constrained")
    for ax, (partition, settings) in zip(axes, CELLS.items(), strict=True):
        agent = TwoTimescaleAgent("CartPole-v1", partition=partition, seed=0, **settings)
        agent.learn(30_000, progress_bar=True)
        returns = agent.evaluate(20, seed=1)
        agent.save(RUN / partition)
        if partition == "oda":
            write_figures(agent, RUN / partition, returns=returns)
        curve = agent.episodes.curve
        plotting.plot_learning_curve(curve, solved_return=475.0, delivered=returns, ax=ax)
        ax.set_title(f"{agent.n_cells} cells of {partition}")
        seconds = f"{agent.training_seconds:.1f}"
        table.add_row(partition, evaluation_line(returns), f"{agent.num_timesteps:,}", seconds)
    figure.savefig(RUN / "learning_curves.png", dpi=110)

    model = ModelAgent("CartPole-v1", seed=3).learn(250, progress_bar=True)
    returns = model.evaluate(20, seed=1)
    seconds = f"{model.training_seconds:.1f}"
    table.add_row("a rule", evaluation_line(returns), f"{model.num_timesteps:,}", seconds)
    model.save(RUN / "rule")

    console = Console()
    console.print(table)
    console.print(f"the rule: {model.rules()}", highlight=False)
    console.print(f"figures: {RUN}/learning_curves.png, and cells and bifurcation in {RUN}/oda")


if __name__ == "__main__":
    main()
