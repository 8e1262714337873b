"""Annealing of a codebook by sums over blocks, and the base class of its estimators."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.utils import check_random_state

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.annealing.annealer import Annealer
from oda_rl.annealing.base import BaseODA
from oda_rl.annealing.levels import LEVEL_SAMPLES
from oda_rl.annealing.refinement import FINISH, refine
from oda_rl.distributed.blocks import Blocks, Draw, Reader, by_blocks
from oda_rl.distributed.sums import Attraction, Moments, Sample, Sums, sampling, survey
from oda_rl.divergences import resolve
from oda_rl.samples import weighted

_MAX_ROUNDS = 6  # at a temperature
_SETTLED = 1e-3  # temperatures: codevectors that move less have settled
_MIN_SPREAD = 1e-140
_MIN_MASS = 1e-200  # of a codevector without samples: it may get some again
_MAX_SAMPLED = 50_000  # rows that leave their blocks, unless 10 a codevector are more
_PER_CODEVECTOR = 10
_RARE = 10  # a class has at least a tenth of an equal share of the sample
_LEVELS, _SAMPLES = 0, 1  # parts of seeds


@dataclass(frozen=True)
class BlockAnnealing:
    """Annealing of a codebook on blocks."""

    blocks: Blocks
    reader: Reader
    moments: Moments
    rows: int
    """Rows of a round for each codevector."""
    seed: int

    def begin(self, current: Annealer, init: FloatArray | None) -> None:
        """Begin with the means of the classes."""
        means, weights = self.moments.means, self.moments.weights
        sums = self.blocks.total(nearest(self.reader, means, np.arange(len(means))))
        spreads = sums.distortions / weights
        effective = weights * (weights.sum() / self.moments.squares)
        current.begin_at(means, spreads, effective, int(sums.counts.sum()), init)

    def ask(self, current: Annealer, temperature: float, draw: Draw | None = None) -> Sums:
        """Add up over all blocks."""
        current.masses = np.maximum(current.masses, _MIN_MASS)
        codebook = current.codevectors, current.masses, current.labels
        return self.blocks.total(Attraction(self.reader, *codebook, temperature, draw))

    def anneal(self, current: Annealer) -> None:
        """Settle, cool and split until the schedule ends."""
        while current.active:
            current.end_level(self._settle(current))

    def _settle(self, current: Annealer) -> float:
        """Move to about the fixed point of a temperature; return the last round's distortion."""
        temperature, draw = current.temperature, self._draw(current)
        for _ in range(_MAX_ROUNDS):
            sums = self.ask(current, temperature, draw)
            current.n_samples_seen += int(sums.counts.sum())
            before = current.codevectors
            follow(current, sums)
            shift = current.divergence.rowwise(current.codevectors, before).max()
            if shift <= _SETTLED * temperature:
                break
            if current.n_samples_seen >= current.schedule.max_samples:
                break
        priors = current.class_weights / current.class_weights.sum()
        return float(priors @ (sums.distortions / sums.weights))

    def _draw(self, current: Annealer) -> Draw:
        """Draw the rows of a level: of each class as many as its codevectors need."""
        n_classes = len(current.class_weights)
        wanted = self.rows * np.bincount(current.labels, minlength=n_classes)
        wanted = np.maximum(wanted, LEVEL_SAMPLES)
        left = max(current.schedule.max_samples - current.n_samples_seen, 1.0)
        wanted = np.minimum(wanted, np.ceil(left / n_classes))
        return Draw(wanted / self.moments.counts, (self.seed, _LEVELS, len(current.history)))

    def sample(self, n_codevectors: int) -> tuple[Sample, bool]:
        """Fetch a sample of bounded size; return whether it is all rows, too.

        Rare classes have more than their shares, with lower weights.
        """
        counts = self.moments.counts
        size = max(_MAX_SAMPLED, _PER_CODEVECTOR * n_codevectors)
        shares = np.maximum(size / counts.sum(), size / (_RARE * len(counts) * counts))
        draw = Draw(shares, (self.seed, _SAMPLES))
        d = self.moments.means.shape[1]
        question = partial(sampling, reader=self.reader, n_features=d, draw=draw)
        return self.blocks.total(question), bool((shares >= 1.0).all())

    def refine(self, current: Annealer) -> Sums:
        """Refine on a sample, then on all rows, unless the result is worse; return its sums."""
        sample, complete = self.sample(len(current.codevectors))
        data = weighted(sample.points, sample.weights)
        before = self.ask(current, 0.0)
        start, masses = current.codevectors, current.masses
        rng = np.random.default_rng(len(data.points))
        refined = refine(data.points, data.weights, start, rng)
        current.replace(refined, np.full(len(refined), 1.0 / len(refined)))
        after = self._lloyd(current, 0 if complete else FINISH[0])
        if after.distortions.sum() >= before.distortions.sum():
            current.replace(start, masses)
            after = self.ask(current, 0.0)
        current.masses = after.masses / after.masses.sum()
        return after

    def _lloyd(self, current: Annealer, max_iter: int) -> Sums:
        """Take steps of Lloyd's iteration; return the sums of the last codevectors."""
        before = np.inf
        for _ in range(max_iter):
            sums = self.ask(current, 0.0)
            error = float(sums.distortions.sum())
            if error >= before * (1.0 - FINISH[1]):
                return sums
            before = error
            follow(current, sums)
        return self.ask(current, 0.0)


def nearest(reader: Reader, codevectors: FloatArray, labels: IntArray) -> Attraction:
    """Return the question for sums by nearest codevectors, of the sorted classes ``labels``."""
    masses = np.full(len(codevectors), 1.0 / len(codevectors))
    return Attraction(reader, codevectors, masses, labels, 0.0)


def follow(current: Annealer, sums: Sums) -> None:
    """Move codevectors to the means of their samples; those without samples stay."""
    masses = sums.masses[:, None]
    steps = np.divide(sums.moves, masses, out=np.zeros_like(sums.moves), where=masses > 0.0)
    totals = np.bincount(current.labels, sums.masses)
    current.codevectors = current.codevectors + steps
    current.masses = sums.masses / totals[current.labels]


class Distributed(BaseODA):
    """An annealing estimator that learns from blocks."""

    transform = by_blocks(BaseODA.transform, lambda self: np.empty((0, len(self.codevectors_))))
    score_samples = by_blocks(BaseODA.score_samples, lambda self: np.empty(0))

    _missing_needs = ""

    def _takes_missing(self) -> bool:
        return False

    def _takes_single(self) -> bool:
        return False

    def _survey(self, blocks: Blocks, classes: Array | None) -> BlockAnnealing:
        """Check the rows, and measure their moments."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        reader = Reader(resolve(self.divergence), classes)
        moments = blocks.total(partial(survey, reader=reader, n_features=self.n_features_in_))
        if not moments.counts.any():
            raise ValueError("X has no row of a weight above 0: it must have at least one")
        spread = float((moments.high - moments.low).max())
        if 0.0 < spread < _MIN_SPREAD:
            raise ValueError(
                f"X varies by {spread:g}: it must vary by {_MIN_SPREAD:g}, or squares vanish"
            )
        return BlockAnnealing(blocks, reader, moments, int(self.samples_per_cluster), seed)

    def _grow(
        self,
        training: BlockAnnealing,
        *,
        refined: bool,
        probe: tuple[FloatArray, IntArray] | None = None,
    ) -> None:
        """Anneal a new codebook; its accuracy is measured on ``probe``."""
        n_classes = training.reader.n_classes
        current = self._new_annealer(n_classes, training.seed, refined)
        current.probe = probe
        training.begin(current, self._checked_init(current.divergence, n_classes))
        training.anneal(current)
        self._annealer, self._waiting = current, None
        self._weighed = np.array([training.moments.weights.sum(), training.moments.counts.sum()])
        self._low, self._high = training.moments.low, training.moments.high

    def _measured(self, blocks: Blocks) -> Sums:
        """Check rows, and return the sums of nearest codevectors, as for predictions."""
        reader, own = Reader(self._annealer.divergence, None), self._embedded_codevectors()
        blocks.total(partial(survey, reader=reader, n_features=self.n_features_in_))
        return blocks.total(nearest(reader, own, np.zeros(len(own), dtype=np.int64)))
