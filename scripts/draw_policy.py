"""The README's pictures of a policy: cells of the online agent, and a metric that was learned.

Run: python scripts/draw_policy.py
Writes results/partition.png (online agent, BartoCartPole, 50 000 steps) and results/metric.png
(fitted agent, 20 000 steps), both of seed 0.
"""

from common.experiment import Experiment

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent
from oda_rl.plotting.agents import plot_metric, plot_partition

BARTO = "oda_rl/BartoCartPole-v0"


def main() -> None:
    online = TwoTimescaleAgent(BARTO, seed=0).learn(50_000)
    fitted = FittedQAgent(BARTO, seed=0).learn(20_000)
    visited = online.visited_states(2_000, seed=0)
    cells = plot_partition(online, (2, 3), visited=visited)
    Experiment("partition").save(cells)
    Experiment("metric").save(plot_metric(fitted))


if __name__ == "__main__":
    main()
