"""What can be set about the model agent."""

from dataclasses import dataclass
from typing import Annotated

from oda_rl.agents.base.settings import POSITIVE, Checked, at_least, or_none, within


@dataclass(frozen=True)
class ModelConfig(Checked):
    """Settings of :class:`oda_rl.agents.ModelAgent`, each with its default."""

    random_steps: Annotated[int, at_least(1)] = 200
    """Steps with random actions, before the world is learned for the first time."""

    plan_every: Annotated[float, POSITIVE] = 0.15
    """The world is learned anew when steps have grown by this share; positive."""

    min_steps: Annotated[int, at_least(1)] = 100
    """But not before so many new steps."""

    generations: Annotated[int, within("[1, 10000]")] = 25
    """Of a search; at most 10,000."""

    population: Annotated[int, within("[4, 1000]")] = 24
    """Rules in each generation; from 4 to 1000."""

    starts: Annotated[int, within("[1, 1000]")] = 12
    """Imagined episodes of each rule in each generation; at most 1000."""

    confirm_share: Annotated[float, within("[0, 1]")] = 0.15
    """Most of the steps that go into playing the best rule again, in [0, 1]."""

    confirm_episodes: Annotated[int, at_least(0)] = 10
    """A rule that has been played in so many episodes is not confirmed any further."""

    simplify: bool = True
    """Drop cells, numbers and digits of a rule that do not matter in imagination, before it is
    played."""

    horizon: Annotated[int, within("[1, 1000000]")] = 200
    """Steps to imagine, at least, while no time limit is known: from the environment, or from
    episodes that were truncated; at most a million."""

    continuous_cells: Annotated[int, within("[1, 100]")] = 4
    """Cells of a rule for each component of a continuous action, which is affine in each; at most
    100."""

    action_bins: Annotated[int | None, or_none(at_least(2))] = None
    """Offer so many values of each component of a continuous action, least to greatest, instead of
    all of them; at least 2, or None."""
