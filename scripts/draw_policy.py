"""The README's pictures of a policy: cells of the online agent, and a metric that was learned.

Run: python scripts/draw_policy.py
Writes results/partition.png (online agent, BartoCartPole, 50 000 steps) and results/metric.png
(fitted agent, 20 000 steps), both of seed 0.
"""

from pathlib import Path

from rich.console import Console

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent
from oda_rl.command.report import names_for, save_figure
from oda_rl.plotting.agents import plot_metric, plot_partition

BARTO = "oda_rl/BartoCartPole-v0"
RESULTS = Path("results")


def main() -> None:
    """Train both, and draw."""
    online = TwoTimescaleAgent(BARTO, seed=0).learn(50_000)
    fitted = FittedQAgent(BARTO, seed=0).learn(20_000)
    names, action_names = names_for(online)
    visited = online.visited_states(2_000, seed=0)
    cells = plot_partition(online, visited=visited, names=names, action_names=action_names)
    metric = plot_metric(fitted, names=names)
    written = [
        save_figure(cells, RESULTS / "partition.png"),
        save_figure(metric, RESULTS / "metric.png"),
    ]
    Console().print("written:", *map(str, written))


if __name__ == "__main__":
    main()
