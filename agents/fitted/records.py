"""Returns of training episodes, by the policy that was played from their beginning."""

import math

from oda_rl.agents.policies.cells import CellPolicy


class Record:
    """A policy and the returns of the training episodes that were played with it."""

    def __init__(self, policy: CellPolicy, n: int = 0, mean: float = 0.0, m2: float = 0.0) -> None:
        self.policy = policy
        self.n, self.mean = n, mean
        self.m2 = m2
        """Sum of squared deviations from the mean."""

    def add(self, episode_return: float) -> None:
        """Count one more episode (Welford's recursion)."""
        self.n += 1
        change = episode_return - self.mean
        self.mean += change / self.n
        self.m2 += change * (episode_return - self.mean)

    def lower_bound(self, spread: float) -> float:
        """Mean return minus its standard error."""
        return self.mean - spread / math.sqrt(self.n)
