"""Settings of the fitted agent."""

from dataclasses import dataclass
from typing import Annotated, Literal

from oda_rl.agents.base.settings import (
    NOT_NEGATIVE,
    POSITIVE,
    Checked,
    at_least,
    one_of,
    or_none,
    within,
)


@dataclass(frozen=True)
class FittedQConfig(Checked):
    """Settings of :class:`oda_rl.agents.FittedQAgent`, each with its default."""

    gamma: Annotated[float, within("(0, 1)")] = 0.99
    """Discount factor gamma of the return, in (0, 1)."""

    trace_decay: Annotated[float, within("[0, 1]")] = 0.8
    """Decay lambda of Watkins' returns, in [0, 1]. 0 looks one step ahead."""

    metric: Annotated[Literal["learned", "std"], one_of("learned", "std")] = "learned"
    """Distances between states: learned from the gradients of Q (in the first fit in standard
    deviations of the observation; whitened, if its components are no axes of the world), or in
    standard deviations throughout."""

    max_cells: Annotated[int, within("[1, 65535]")] = 256
    """Upper bound of the number of cells; at most 65535."""

    cells_per_root: Annotated[float, POSITIVE] = 0.4
    """There are so many cells for each square root of the number of transitions, in up to four
    dimensions; up to twice as many in eight or more; positive."""

    optimism: Annotated[float, POSITIVE] = 0.03
    """Weight, in transitions, of the belief that what was not seen is worth the best return: an
    action, where states are numbered or actions have codevectors, and else a state; positive."""

    refit_every: Annotated[float, POSITIVE] = 0.1
    """Refit when the transitions have grown by this share; by half of it, as soon as that is five
    episodes, or one of each environment; positive."""

    min_refit: Annotated[int, at_least(1)] = 100
    """But not before so many new transitions."""

    exploration: Annotated[float | None, or_none(NOT_NEGATIVE)] = None
    """Random decisions in an episode, on average; at least 0. None: schemes of exploration take
    turns, by the returns of their episodes."""

    longest_hold: Annotated[int, at_least(1)] = 100
    """A random action is held for 1/U steps, U uniform in (0, 1), but no longer than this. Where
    schemes take turns it holds while all is random; each has its own."""

    action_bins: Annotated[int, at_least(2)] = 5
    """Values of each component of a continuous action, least to greatest; of a CodevectorAgent so
    many action codevectors in each cell for each component; at least 2."""

    kept_policies: Annotated[int, at_least(2)] = 40
    """Number of policies that compete to be delivered, the newest included; at least 2."""

    confirm_episodes: Annotated[int, at_least(0)] = 100
    """The policy to be delivered is played again, without exploration, until it has been played in
    so many episodes; 0 trusts what was seen when it was new."""

    confirm_share: Annotated[float, within("[0, 1]")] = 0.2
    """Most of the steps that go into that, in [0, 1]."""

    max_transitions: Annotated[int | None, or_none(at_least(1))] = 1_000_000
    """Bound of the memory: of more transitions a fair sample of whole episodes is kept. None keeps
    all of them, at some 130 bytes each, and refits to all."""
