"""When a fitted agent fits anew, when it places cells anew, and how far sweeps go.

All of it by shares of the steps that fits are made to. Many environments take them fast: by the
time that they have taken many, fits take most of the time and change little, so that these are
rarer, and less precise.
"""

from dataclasses import replace
from typing import NamedTuple

from oda_rl.agents.fitting.settings import FittedQConfig

_PLAYED = 5  # episodes with a policy after which the next may be fitted
_SOONER = 0.5  # of the steps after which it is fitted at the latest
_PLACED_ANEW = 0.2  # more steps, after which cells are placed anew
_MANY = 64 * 50_000  # steps times environments, from which on fits are rarer
_RARELY = 4.0  # times as rare at most, as after the longest trainings that decided it
_ROUGHLY, _ROUGH_FROM = 0.08, 0.5  # tolerance of sweeps, from that part of so many on


class Timing(NamedTuple):
    """What says when."""

    config: FittedQConfig
    """Settings of the agent."""
    steps: int
    """That were taken, without those that have been forgotten."""
    n_lanes: int
    """Environments that are learned from at once; 0 along one trajectory."""

    def is_to_place(self, placed_at: int) -> bool:
        """Whether cells are placed anew, that were placed after so many steps."""
        return self.steps - placed_at >= self._share(_PLACED_ANEW)

    def needed(self, mean_length: float, part: float) -> int:
        """Return after how many steps is fitted, or a part of it, by the mean length of episodes.

        That is a share of the steps, or sooner, when some episodes will have been played.
        """
        most = self._share(self.config.refit_every)
        episodes = max(_PLAYED, self.n_lanes)  # of several environments none is ahead
        played = min(max(episodes * mean_length, _SOONER * most), most)
        return max(int(part * max(self.config.least_refit, played)), 1)

    @property
    def settings(self) -> FittedQConfig:
        """Settings of a fit of advantages: unless told when, sweeps end sooner after many steps."""
        if self._many < _ROUGH_FROM or self.config.tolerance is not None:
            return self.config
        return replace(self.config, tolerance=_ROUGHLY)

    @property
    def _many(self) -> float:
        """How many steps of how many environments there are; from 1 on it is many."""
        return self.steps * self.n_lanes / _MANY

    def _share(self, share: float) -> float:
        """Return a share of the steps that fits are made to, about; more of them of many."""
        most = self.config.max_transitions
        fitted_to = self.steps if most is None else min(self.steps, most)
        return share * fitted_to * min(max(self._many, 1.0), _RARELY)
