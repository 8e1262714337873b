"""A Gaussian mixture led by sums over blocks: where it starts, and how it climbs.

References
----------
A. P. Dempster, N. M. Laird, D. B. Rubin, "Maximum likelihood from incomplete data via the EM
algorithm", Journal of the Royal Statistical Society B 39, 1977.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.distributed.blocks import Blocks, OneBlock, Rows
from oda_rl.distributed.expectations import Expectation, Statistics
from oda_rl.distributed.reading import Reader
from oda_rl.mixtures import learning
from oda_rl.mixtures.state import MIN_PRECISION, RELEASED, Mixture, Progress

_LEAST_MASS = 1e-12  # of all: a component of less stays where it is
_LEAST_WEIGHT = 1e-30
_TEMPERED = 19  # passes


class Reached(NamedTuple):
    """Where a climb ends."""

    mixture: Mixture
    score: float
    """Mean log-likelihood when it was last measured, as :class:`Statistics` has it."""
    passes: int
    converged: bool


@dataclass(frozen=True)
class Climb:
    """Rows to learn from, and how."""

    blocks: Blocks
    reader: Reader
    covariance_type: str
    max_precision: float

    def start(self, means: FloatArray) -> Mixture:
        """Give each row to the nearest mean, shape (K, d)."""
        first = learning.new_mixture(means, self.covariance_type, self.max_precision, 1.0, 0.0)
        Progress(first.progress).phase = RELEASED
        return self.step(first)

    def ask(self, mixture: Mixture, beta: float = 1.0) -> Statistics:
        """Add up over all blocks."""
        return self.blocks.total(Expectation(self.reader, mixture, beta))

    def step(self, mixture: Mixture, beta: float = 1.0) -> Mixture:
        """Expect, and maximize."""
        return maximized(mixture, self.ask(mixture, beta), self.max_precision)

    def tempered(self, mixture: Mixture, beta: float) -> Mixture:
        """Follow responsibilities that are tempered, less and less."""
        for power in np.linspace(1.0, 0.0, _TEMPERED, endpoint=False):
            mixture = self.step(mixture, float(beta**power))
        return mixture

    def climb(self, mixture: Mixture, max_iter: int, tol: float) -> Reached:
        """Go on until a pass raises the mean log-likelihood by less than ``tol``."""
        before = -np.inf
        for i in range(max_iter):
            sums = self.ask(mixture)
            score = sums.score
            if score - before < tol:
                return Reached(mixture, score, i + 1, True)
            before = score
            mixture = maximized(mixture, sums, self.max_precision)
        return Reached(mixture, before, max_iter, False)

    def here(self, points: FloatArray, weights: FloatArray) -> "Climb":
        """Return the same for some rows that are here."""
        return replace(self, blocks=OneBlock(Rows(points, None, weights)))


def maximized(mixture: Mixture, sums: Statistics, max_precision: float) -> Mixture:
    """Return the mixture of these statistics: the M step.

    Eigenvalues of the precisions are bounded. A component that takes next to nothing stays where it
    is, with next to no weight.
    """
    d, total = mixture.means.shape[1], float(sums.weight[0])
    alive = sums.masses > _LEAST_MASS * total
    masses = np.where(alive, sums.masses, 1.0)
    steps = np.where(alive[:, None], sums.moves / masses[:, None], 0.0)
    weights = np.maximum(sums.masses / total, _LEAST_WEIGHT)
    moved = mixture._replace(means=mixture.means + steps, weights=weights)
    if mixture.axes is None:
        spreads = sums.spreads[:, 0] / masses[:, None] - steps**2
        if mixture.spherical:
            variance = float((sums.masses @ np.where(alive[:, None], spreads, 0.0)).sum())
            progress = mixture.progress.copy()
            Progress(progress).variance = max(variance / (d * total), 1.0 / max_precision)
            return moved._replace(progress=progress)
        values, axes = spreads, None
    else:
        upper = np.triu(sums.spreads)
        spreads = upper + np.triu(upper, 1).transpose(0, 2, 1)
        spreads = spreads / masses[:, None, None] - steps[:, :, None] * steps[:, None, :]
        values, vectors = np.linalg.eigh(spreads)
        axes = mixture.axes.copy()
        axes[:-1][alive] = vectors.transpose(0, 2, 1)[alive]
    precisions = 1.0 / np.clip(values, 1.0 / max_precision, 1.0 / MIN_PRECISION)
    precisions = np.where(alive[:, None], precisions, mixture.precisions)
    half_log_dets = 0.5 * np.log(precisions).sum(axis=1)
    return moved._replace(precisions=precisions, axes=axes, half_log_dets=half_log_dets)
