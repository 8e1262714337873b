"""Train an agent on the cart-pole, see how good it is, keep it, and look at it.

Run: python scripts/train_cartpole.py
"""

from pathlib import Path

from rich.console import Console

from oda_rl.agents import FittedQAgent
from oda_rl.command.report import metric_table, summary, write_figures

RUN = Path("runs/cartpole")


def main() -> None:
    """Train for 20 000 steps of the 1983 cart-pole; an episode lasts 1000 steps at most."""
    agent = FittedQAgent("oda_rl/BartoCartPole-v0", seed=0)
    agent.learn(20_000, progress_bar=True)

    # 100 episodes without exploration, in an environment of their own.
    returns = agent.evaluate(100, seed=1)

    # The agent is a few arrays: save them, load them, and the policy is the same.
    agent.save(RUN)
    again = FittedQAgent.load(RUN)
    assert (again.evaluate(100, seed=1) == returns).all()

    # The whole policy: for each cell where it lies, and what pushing left or right is worth there.
    console = Console()
    console.print("\ncell  codevector (x, x_dot, theta, theta_dot)   Q(left)  Q(right)")
    for k, (codevector, values) in enumerate(zip(agent.codevectors, agent.q_values, strict=True)):
        place = "".join(f"{value:9.3f}" for value in codevector)
        console.print(f"{k:4d} {place}    {values[0]:9.2f} {values[1]:9.2f}", highlight=False)

    # Which directions of the state the value depends on: the agent found out by itself.
    console.print()
    console.print(metric_table(agent))

    write_figures(agent, RUN)
    console.print()
    console.print(summary(agent, returns))
    console.print(f"files in {RUN}: {', '.join(sorted(path.name for path in RUN.iterdir()))}")


if __name__ == "__main__":
    main()
