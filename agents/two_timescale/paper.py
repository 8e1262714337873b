"""Algorithms 1 and 2 of Mavridis and Baras: ``TwoTimescaleAgent(paper=True)``.

Algorithm 2 is one-step Q-learning over the cells of codevectors that Algorithm 1, online
deterministic annealing, places meanwhile, on a slower timescale. The action part of a codevector is
exact where actions are discrete, so that there is one value for each action and codevector of
states; values of a continuous action's components are discrete here, too. Corrected are the
misprints of the temperature, which falls as T ← γT, of thresholds, d/T < ε_n for T d < ε_n, and of
the mass of halves. All differences are listed in ``docs/method.md``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from oda_rl._types import Array, FloatArray
from oda_rl.agents.partitions.base import Lineage
from oda_rl.agents.two_timescale.settings import TwoTimescaleConfig
from oda_rl.files.schema import check, real

SETTINGS: dict[str, Any] = {
    "trace_decay": 0.0,
    "step_size": 0.5,
    "step_size_steps": 2_000.0,
    "step_exponent": 2.0 / 3.0,
    "min_step_size": 0.0,
    "slow_exponent": 1.0,
    "min_slow_step": 0.0,
    "observe_every": 4,
    "cooling": 0.5,
    "hold": 1,
}  # defaults in place of the agent's: steps fall as n^(-2/3) and 1/n, as the paper suggests

SAMPLES, MIN_SAMPLES = 10, 300  # of a level: for each codevector, and at least
CONVERGED = 1e-4  # ε_c, in sums of variances: no squared move by a sample is greater
SHIFT = 0.1  # δ, in √T
MERGED, IDLE = 0.3, 1e-4  # ε_n, in T, and ε_r


class Annealed:
    """Codevectors of states by Algorithm 1, as a :class:`~oda_rl.agents.Partition`.

    ``max_cells`` is K_max: once more than half as many are left at the end of a level, or T is
    below ε_c, there are no more levels. ``cooling`` is γ, and ``observe_every`` N.
    """

    def __init__(self, config: TwoTimescaleConfig) -> None:
        self.capacity, self.config = config.max_cells, config

    def prepare(self, n_features: int, rng: np.random.Generator) -> None:
        """Make its arrays."""
        self._rng = rng
        self._placed: FloatArray = np.zeros((self.capacity, n_features))
        self._masses: FloatArray = np.zeros(self.capacity)
        # Number of codevectors, T, samples at it, and squared ε_c, or 0 after the last level.
        self._level: FloatArray = np.zeros(4)

    @property
    def codevectors(self) -> FloatArray:
        """The codevectors, shape (n_cells, d)."""
        return self._placed[: int(self._level[0])].copy()

    @property
    def temperature(self) -> float:
        """Temperature T of the level; 0 before the first."""
        return float(self._level[1])

    def start(self, observations: FloatArray) -> None:
        """Begin with one codevector, far above the first critical temperature."""
        variance = observations.var(axis=0).sum()
        self._level[:] = 1, 4.0 * variance, 0, CONVERGED * variance
        self._placed[0], self._masses[0] = observations.mean(axis=0), 1.0

    def observe(self, observations: FloatArray) -> Lineage | None:
        """Learn from every N-th observation; at the end of a level merge, drop, cool and split."""
        n = int(self._level[0])
        placed, masses = self._placed[:n], self._masses[:n]
        for x in observations[:: self.config.observe_every]:
            offsets = x - placed
            distances = (offsets**2).sum(axis=1)
            shares = masses * np.exp((distances.min() - distances) / max(self._level[1], 1e-300))
            shares /= shares.sum()
            self._level[2] += 1
            rate = (self._level[2] + 1.0) ** -self.config.slow_exponent
            rate = max(rate, self.config.min_slow_step)
            masses += rate * (shares - masses)
            moves = (rate * shares / np.maximum(masses, 1e-300))[:, None] * offsets
            placed += moves  # = σ / p
            seen_enough = self._level[2] >= max(MIN_SAMPLES, SAMPLES * n)
            if seen_enough and (moves**2).sum(axis=1).max() < self._level[3]:
                return self._end_level(n)
        return np.eye(n)

    def _end_level(self, n: int) -> Lineage:
        placed, masses, temperature = self._placed[:n].copy(), self._masses[:n], self._level[1]
        effective: list[int] = []
        for k in np.argsort(-masses, kind="stable"):
            gaps = ((placed[effective] - placed[k]) ** 2).sum(axis=1)
            if not effective or (masses[k] >= IDLE and gaps.min() >= MERGED * temperature):
                effective.append(k)
            elif gaps.min() < MERGED * temperature:
                masses[effective[int(gaps.argmin())]] += masses[k]
        placed, masses, lineage = placed[effective], masses[effective], np.eye(n)[effective]
        temperature *= self.config.cooling
        if 2 * len(placed) > self.capacity or temperature < self._level[3]:
            self._level[3] = 0.0  # so that codevectors converge
        else:
            self._level[2] = 0
            size = SHIFT * np.sqrt(temperature / placed.shape[1])
            shift = size * self._rng.normal(size=placed.shape)
            placed = np.concatenate([placed + shift, placed - shift])
            masses, lineage = np.tile(masses, 2), np.tile(lineage, (2, 1))
        n = len(placed)
        self._placed[:n], self._masses[:n] = placed, masses / masses.sum()
        self._level[:2] = n, temperature
        return lineage

    def state(self) -> Mapping[str, Array]:
        return {"placed": self._placed, "masses": self._masses, "level": self._level}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take over what :meth:`state` returned, or raise InvalidFileError."""
        k, d = self._placed.shape
        schema = {"placed": real("K, d"), "masses": real("K", "[0, 1]")}
        check(state, {**schema, "level": real("4", "[0, inf)")}, {"K": k, "d": d})
        for name, array in self.state().items():
            array[:] = state[name]
