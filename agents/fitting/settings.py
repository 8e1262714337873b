"""Settings of the fitted agent."""

from dataclasses import dataclass
from typing import Annotated, Literal

from oda_rl.agents.base import settings


@dataclass(frozen=True)
class FittedQConfig(settings.Checked):
    """Settings of :class:`oda_rl.agents.FittedQAgent`, each with its default."""

    gamma: Annotated[float, settings.within("(0, 1)")] = 0.99
    """Discount factor gamma of the return, in (0, 1)."""

    trace_decay: Annotated[float, settings.within("[0, 1]")] = 0.8
    """Decay lambda of Watkins' returns, in [0, 1]. 0 looks one step ahead."""

    metric: Annotated[Literal["learned", "std"], settings.one_of("learned", "std")] = "learned"
    """Distances between states: learned from the gradients of Q, or standard deviations.
    The first fit has standard deviations of the observation;
    they are whitened if its components are not natural axes."""

    max_cells: Annotated[int, settings.within("[1, 65535]")] = 256
    """Upper bound of the number of cells; at most 65535."""

    cells_per_root: Annotated[float, settings.POSITIVE] = 0.4
    """Number of cells over the square root of the number of transitions, in up to four dimensions;
    up to twice as many cells in eight or more, or where values are averaged; positive."""

    n_fits: Annotated[int | None, settings.or_none(settings.at_least(1))] = None
    """Number of partitions whose values are averaged in each fit, in twice as many cells, unless
    states are discrete or actions continuous; at least 1. With more than one, the latest policy
    of two or more episodes is delivered whose mean return is within a standard error of the best.
    None: five where rewards differ within episodes of at most six components; else one."""

    optimism: Annotated[float, settings.POSITIVE] = 0.03
    """Weight, in transitions, of a prior that gives the best return to unseen states,
    or to unseen actions with discrete states or action codevectors; positive."""

    refit_every: Annotated[float, settings.POSITIVE] = 0.1
    """Refit when the number of transitions has grown by this share; positive.
    Half of it is enough if that is five episodes, or one for each environment, and for discrete
    states in the middle of a long episode; not for means of partitions after 30,000 steps."""

    min_refit: Annotated[int, settings.at_least(1)] = 100
    """Minimum number of new transitions for a refit; a quarter of it for discrete states in the
    middle of a long episode."""

    exploration: Annotated[float | None, settings.or_none(settings.NOT_NEGATIVE)] = None
    """Random decisions in an episode, on average; at least 0.
    None: schemes of exploration take turns, by the returns of their episodes."""

    longest_hold: Annotated[int, settings.at_least(1)] = 100
    """Maximum number of steps for which a random action is held: 1/U steps, U uniform in (0, 1).
    While schemes of exploration take turns, each has its own maximum."""

    action_bins: Annotated[int, settings.within("[2, 1000]")] = 5
    """Number of values of each component of a continuous action, evenly from lower to upper bound;
    for a CodevectorAgent, number of action codevectors in each cell for each component;
    from 2 to 1000."""

    kept_policies: Annotated[int, settings.at_least(2)] = 40
    """Number of policies that compete to be delivered, the newest included; at least 2."""

    confirm_episodes: Annotated[int, settings.at_least(0)] = 100
    """The delivered policy is evaluated without exploration until it has played this many episodes;
    0 trusts its first returns."""

    confirm_share: Annotated[float, settings.within("[0, 1]")] = 0.2
    """Maximum share of the steps spent on that, in [0, 1]."""

    max_transitions: Annotated[int | None, settings.or_none(settings.at_least(1))] = 1_000_000
    """Maximum number of transitions in memory; of more, a uniform sample of whole episodes is kept.
    None keeps all, at about 130 bytes each, and refits to all."""
