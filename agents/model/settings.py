"""Settings of the model agent."""

from dataclasses import dataclass
from typing import Annotated

from oda_rl.agents.base.settings import POSITIVE, Checked, at_least, or_none, within


@dataclass(frozen=True)
class ModelConfig(Checked):
    """Settings of :class:`oda_rl.agents.ModelAgent`, each with its default."""

    random_steps: Annotated[int, at_least(1)] = 200
    """Steps with random actions before the world is learned for the first time; at least 1."""

    plan_every: Annotated[float, POSITIVE] = 0.15
    """Learn the world anew when steps have grown by this share, and by 100; positive."""

    generations: Annotated[int, within("[1, 10000]")] = 25
    """Generations of a search, from 1 to 10,000."""

    population: Annotated[int, within("[4, 1000]")] = 24
    """Rules in each generation, from 4 to 1000."""

    starts: Annotated[int, within("[1, 1000]")] = 12
    """Imagined episodes of each rule in each generation, from 1 to 1000."""

    confirm_share: Annotated[float, within("[0, 1]")] = 0.15
    """Maximum share of the steps that go into playing the best rule again, in [0, 1]."""

    confirm_episodes: Annotated[int, at_least(0)] = 10
    """Maximum number of episodes of a rule that is played again; at least 0."""

    simplify: bool = True
    """Drop cells, numbers and digits of a rule that do not matter in imagination."""

    horizon: Annotated[int, within("[1, 1000000]")] = 200
    """Steps to imagine, from 1 to 1,000,000, while no time limit is known from the environment or
    from truncated episodes: at most ten times the longest episode, and at least twice (to 400)."""

    continuous_cells: Annotated[int, within("[1, 100]")] = 4
    """Cells of a rule for each component of a continuous action, which is affine in each;
    from 1 to 100."""

    action_bins: Annotated[int | None, or_none(within("[2, 1000]"))] = None
    """Values of each component of a continuous action, if discretised; from 2 to 1000."""
