"""CMA-ES: climbing by a cloud of candidates that takes the shape of the slope.

Kept libraries (cmaes, pycma) load scipy.stats, which takes as long as a whole training, and four to
ten times as long for a generation: so it is written out here.

References
----------
N. Hansen, "The CMA evolution strategy: a tutorial", arXiv 1604.00772 (2016).
"""

import math

import numpy as np

from oda_rl._types import FloatArray


class Climber:
    """Maximises by :meth:`ask` and :meth:`tell`; names are those of the tutorial.

    Parameters
    ----------
    mean : ndarray, shape (n,)
        Where to begin.
    sigma : float
        Step size.
    population : int
        Candidates a generation, at least 4.
    rng : numpy.random.Generator

    Examples
    --------
    >>> climber = Climber(np.ones(3), 0.5, 10, np.random.default_rng(0))
    >>> for _ in range(100):
    ...     candidates = climber.ask()
    ...     climber.tell(-(candidates**2).sum(axis=1))
    >>> bool(np.abs(climber.mean).max() < 1e-6)
    True
    """

    def __init__(
        self, mean: FloatArray, sigma: float, population: int, rng: np.random.Generator
    ) -> None:
        n = len(mean)
        self.mean, self.sigma = mean.copy(), sigma
        self._population, self._rng = population, rng
        weights = math.log((population + 1) / 2) - np.log(np.arange(1, population // 2 + 1))
        self._weights = weights / weights.sum()
        mass = self._mass = 1.0 / (self._weights**2).sum()
        self._c_sigma = (mass + 2.0) / (n + mass + 5.0)
        self._c_path = (4.0 + mass / n) / (n + 4.0 + 2.0 * mass / n)
        self._c_one = 2.0 / ((n + 1.3) ** 2 + mass)
        c_mu = 2.0 * (mass - 2.0 + 1.0 / mass) / ((n + 2.0) ** 2 + mass)
        self._c_mu = min(1.0 - self._c_one, c_mu)
        excess = max(0.0, math.sqrt((mass - 1.0) / (n + 1.0)) - 1.0)
        self._damping = 1.0 + 2.0 * excess + self._c_sigma
        self._expected = math.sqrt(n) * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n))
        self._covariance, self._axes, self._lengths = np.eye(n), np.eye(n), np.ones(n)
        self._path, self._path_sigma = np.zeros(n), np.zeros(n)
        self._generation = 0
        self._steps = np.zeros((0, n))

    def ask(self) -> FloatArray:
        """Draw candidates, shape (population, n)."""
        draws = self._rng.standard_normal((self._population, len(self.mean)))
        self._steps = (draws * self._lengths) @ self._axes.T
        return self.mean + self.sigma * self._steps

    def tell(self, worth: FloatArray) -> None:
        """Take note of what the candidates are worth, shape (population,)."""
        n = len(self.mean)
        self._generation += 1
        best = self._steps[np.argsort(-worth, kind="stable")[: len(self._weights)]]
        step = self._weights @ best
        self.mean = self.mean + self.sigma * step
        white = self._axes @ ((self._axes.T @ step) / self._lengths)
        c = self._c_sigma
        self._path_sigma *= 1.0 - c
        self._path_sigma += math.sqrt(c * (2.0 - c) * self._mass) * white
        length = float(np.linalg.norm(self._path_sigma))
        settled = length / math.sqrt(1.0 - (1.0 - c) ** (2 * self._generation))
        goes_on = float(settled < (1.4 + 2.0 / (n + 1.0)) * self._expected)
        c = self._c_path
        self._path *= 1.0 - c
        self._path += goes_on * math.sqrt(c * (2.0 - c) * self._mass) * step
        self._covariance *= (
            1.0 - self._c_one - self._c_mu + (1.0 - goes_on) * self._c_one * c * (2.0 - c)
        )
        self._covariance += self._c_one * np.outer(self._path, self._path)
        self._covariance += self._c_mu * (best.T * self._weights) @ best
        self.sigma *= math.exp(
            min(1.0, self._c_sigma / self._damping * (length / self._expected - 1.0))
        )
        every = max(1, int(1.0 / (10.0 * n * (self._c_one + self._c_mu))))
        if self._generation % every == 0:
            squares, self._axes = np.linalg.eigh(0.5 * (self._covariance + self._covariance.T))
            self._lengths = np.sqrt(np.maximum(squares, 1e-20))
