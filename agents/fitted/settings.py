"""What can be set about the fitted agent."""

import math
from dataclasses import dataclass
from typing import Literal

from oda_rl.agents.engine.settings import require


@dataclass(frozen=True)
class FittedQConfig:
    """Settings of :class:`oda_rl.agents.FittedQAgent`, each with its default."""

    discount: float = 0.99
    """Discount factor gamma of the return, in (0, 1)."""

    trace_decay: float = 0.8
    """Decay lambda of Watkins' returns, in [0, 1]. 0 looks one step ahead."""

    metric: Literal["learned", "std"] = "learned"
    """Distances between states: learned from the gradients of Q, or in standard deviations."""

    max_cells: int = 256
    """Upper bound of the number of cells; at most 65535."""

    cells_per_root: float = 0.4
    """There are so many cells for each square root of the number of transitions; positive."""

    optimism: float = 0.3
    """Weight, in transitions, of the belief that an action is worth the best return seen;
    positive."""

    sweeps: int = 20
    """Most sweeps of fitted Q-iteration at a refit."""

    first_sweeps: int = 100
    """Most sweeps at the first fit."""

    tolerance: float = 1e-3
    """Sweeps end when values change by less than this share of (1 - discount) of their range."""

    refit_every: float = 0.1
    """Refit when the transitions have grown by this share; positive."""

    least_refit: int = 100
    """But not before so many new transitions."""

    exploration: float = 0.4
    """Random decisions in an episode, on average; at least 0."""

    longest_hold: int = 100
    """A random action is held for 1/U steps, U uniform in (0, 1), but no longer than this."""

    action_bins: int = 5
    """Values of each component of a continuous action, least to greatest; of a CodevectorAgent so
    many action codevectors in each cell for each component; at least 2."""

    kept_policies: int = 40
    """How many policies compete to be delivered, the newest included; at least 2."""

    confirm_episodes: int = 100
    """The policy to be delivered is played again, without exploration, until it has been played in
    so many episodes; 0 trusts what was seen when it was new."""

    confirm_share: float = 0.2
    """Most of the steps that go into that, in [0, 1]."""

    max_transitions: int | None = None
    """Bound of the memory: a fair sample of whole episodes is kept. None keeps all transitions."""

    def __post_init__(self) -> None:
        """Check every range; raise ValueError naming the setting, its value and what is right."""
        require(self, "discount", 0.0 < self.discount < 1.0, "in (0, 1)")
        require(self, "trace_decay", 0.0 <= self.trace_decay <= 1.0, "in [0, 1]")
        known = isinstance(self.metric, str) and self.metric in ("learned", "std")
        require(self, "metric", known, "'learned' or 'std'")
        require(self, "confirm_share", 0.0 <= self.confirm_share <= 1.0, "in [0, 1]")
        require(self, "max_cells", 1 <= self.max_cells <= 65_535, "in [1, 65535]")
        for name in ("cells_per_root", "optimism", "refit_every"):
            value = getattr(self, name)
            require(self, name, math.isfinite(value) and value > 0.0, "positive and finite")
        for name in ("tolerance", "exploration"):
            value = getattr(self, name)
            require(self, name, math.isfinite(value) and value >= 0.0, "finite and at least 0")
        for name, least in (
            ("sweeps", 1),
            ("first_sweeps", 1),
            ("least_refit", 1),
            ("longest_hold", 1),
            ("kept_policies", 2),
            ("confirm_episodes", 0),
            ("action_bins", 2),
        ):
            require(self, name, getattr(self, name) >= least, f"at least {least}")
        if self.max_transitions is not None:
            require(self, "max_transitions", self.max_transitions >= 1, "at least 1, or None")
