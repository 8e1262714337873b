"""Train an agent on the cart-pole, see how good it is, keep it, and say its rule.

Run: python scripts/train_cartpole.py
"""

from pathlib import Path

from rich.console import Console

from oda_rl.agents import ModelAgent
from oda_rl.command.reporting import summary, write_figures

RUN = Path("runs/cartpole")


def main() -> None:
    agent = ModelAgent("oda_rl/BartoCartPole-v0", seed=0)
    agent.learn(500, progress_bar=True)

    # 100 episodes, in an environment of their own.
    returns = agent.evaluate(100, seed=1)

    # The agent is a few arrays: save them, load them, and the policy is the same.
    agent.save(RUN)
    again = ModelAgent.load(RUN)
    assert (again.evaluate(100, seed=1) == returns).all()

    write_figures(agent, RUN)
    console = Console()
    console.print(summary(agent, returns))
    console.print(f"files in {RUN}: {', '.join(sorted(path.name for path in RUN.iterdir()))}")
    console.print(f"the rule: {agent.rules()}", highlight=False)


if __name__ == "__main__":
    main()
