"""Temperature levels: their schedule, their samples and their records."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.files.schema import Maybe, Member, flags, real, require, whole
from oda_rl.samples import weighted

LEVEL_SAMPLES = 100  # at least, at each temperature
_OVERGROWTH = 2  # a codebook grows to twice its size and is merged down to it
FAST_COOLING = 0.6  # factor of the temperature where the codebook is refined afterwards
FEW_POINTS = 20  # a codevector: with fewer, a codebook that is refined grows in proportion less


@dataclass(frozen=True)
class Schedule:
    """When the annealing cools and when it ends."""

    SCHEMA: ClassVar[dict[str, Member]] = {
        "max_codevectors": whole("", "[1, inf)"),
        "min_temperature": real("", "[0, inf)"),
        "cooling": real("", "(0, 1)"),
        "samples_per_codevector": real("", "[0, inf)"),
        "max_samples": real("", "[0, inf]"),
        "target_distortion": real("", "[0, inf)"),
        "target_error": real("", "[-1, 1]"),
        "ends_full": flags(),
        "forgetting": real("", "[0, 1]"),
    }

    max_codevectors: int
    """Over all classes."""
    min_temperature: float
    """Relative to the mean divergence of the data from their class means."""
    cooling: float
    """Factor of the temperature from one level to the next."""
    samples_per_codevector: float
    """Samples of a level for each codevector."""
    max_samples: float
    """Annealing ends after this many."""
    target_distortion: float
    """Annealing ends when a level's mean divergence is at most this."""
    target_error: float
    """Annealing ends when a level's accuracy is at least one minus this."""
    ends_full: bool
    """Whether annealing ends as soon as a full codebook no longer splits."""
    forgetting: float
    """Minimal step size of a codevector."""

    def grown(self, n_points: float) -> float:
        """Return the number of codevectors at which a codebook of ``n_points`` points is full."""
        growth = float(_OVERGROWTH)
        if self.ends_full:
            few = min(n_points / (self.max_codevectors * FEW_POINTS), 1.0)
            growth = max(1.0, few * _OVERGROWTH)
        return self.max_codevectors * growth


@dataclass(frozen=True)
class Level:
    """The codebook as it was when a temperature level ended."""

    SCHEMA: ClassVar[dict[str, Any]] = {
        "temperature": real("", "[0, inf)"),
        "distortion": real("", "[0, inf)"),
        "n_samples_seen": whole(),
        "codevectors": real("L, d"),
        "averages": real("L, q"),
        "weights": real("L", "[0, inf)"),
        "labels": whole("L", "[0, L)"),
        "lineage": Maybe(real("L, before", "[0, inf)")),
        "accuracy": Maybe(real("", "[0, 1]")),
    }

    temperature: float
    """Temperature of the level, in units of the divergence."""
    distortion: float
    """Mean divergence of samples from the nearest codevector of their class, before it moved."""
    n_samples_seen: int
    """Samples learned from, earlier levels included."""
    codevectors: FloatArray
    """Shape (K, d), in the units of the data."""
    averages: FloatArray
    """Shape (K, q): averages of the columns after the features."""
    weights: FloatArray
    """Shape (K,): share of the data of each."""
    labels: IntArray
    """Shape (K,): the class of each, as an index."""
    lineage: FloatArray | None
    """Shape (K, K of the level before): shares in which each comes from those; None at first."""
    accuracy: float | None = None
    """Share of recent samples whose nearest codevector is of their class; None with one class."""

    def _check_contents(self, sizes: Any, where: str) -> None:
        """Raise InvalidFileError if labels are not sorted."""
        check_rising(self.labels, where)

    @property
    def n_clusters(self) -> int:
        """Number K of codevectors."""
        return len(self.codevectors)

    @property
    def step(self) -> int:
        """Another name of ``n_samples_seen``, as the history of an agent has it."""
        return self.n_samples_seen


def check_rising(labels: IntArray, where: str) -> None:
    """Raise InvalidFileError unless labels rise from 0 by steps of at most 1."""
    steps = np.diff(labels, prepend=0)
    right = len(labels) > 0 and ((steps == 0) | (steps == 1)).all() and labels[0] == 0
    require(right, f"{where}.labels must rise from 0, one class after the other")


class Codebook(NamedTuple):
    """What predictions are made with; codevectors in the divergence's coordinates."""

    codevectors: FloatArray
    """Shape (K, d + q)."""
    weights: FloatArray
    """Shape (K,): share of the data of each."""
    labels: IntArray
    """Shape (K,): the class of each, as an index, rising."""

    def _check_contents(self, sizes: Any, where: str) -> None:
        """Raise InvalidFileError if labels are not sorted."""
        check_rising(self.labels, where)


Codebook.SCHEMA = {  # type: ignore[attr-defined]  # of a tuple it cannot stand inside
    "codevectors": real("M, D"),
    "weights": real("M", "[0, inf)"),
    "labels": whole("M", "[0, classes)"),
}


class Distribution:
    """Distinct weighted points of each class, to draw samples from.

    The order of the rows makes no difference, nor whether a row is repeated or has a weight of 2.
    Samples are drawn by strata of the cumulative weight.

    ``points``, ``classes`` (0 to C - 1, none empty) and ``weights`` are the rows of positive
    weight, sorted by class. The first ``n_features`` columns are features.
    """

    def __init__(
        self,
        points: FloatArray,
        classes: IntArray,
        weights: FloatArray,
        rng: np.random.Generator,
        n_features: int | None = None,
    ) -> None:
        self.points, self.classes, self.weights = weighted(points, weights, classes, n_features)
        n_classes = int(self.classes.max()) + 1
        self._bounds = np.searchsorted(self.classes, np.arange(n_classes + 1))
        self._shown = [np.zeros(0, dtype=np.int64) for _ in range(n_classes)]
        self._rng = rng

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self._shown)

    @property
    def class_weights(self) -> FloatArray:
        """Sum of the weights of each class, shape (C,)."""
        return np.add.reduceat(self.weights, self._bounds[:-1])

    def draw(self, c: int, n: int) -> IntArray:
        """Draw rows of class ``c`` by their weights, shape (n,).

        A pass draws each stratum once, and there are as many as distinct rows: rows of equal weight
        are drawn once each.
        """
        rows = [self._shown[c]]
        while sum(map(len, rows)) < n:
            rows.append(self._pass(c))
        drawn = np.concatenate(rows)
        self._shown[c] = drawn[n:]
        return drawn[:n]

    def max_draw(self, largest: int, budget: int | None) -> list[int]:
        """Return how many rows of each class to draw: at most ``largest``, ``budget`` in total."""
        sizes = np.minimum(np.diff(self._bounds), largest)
        if budget is not None:
            sizes = np.minimum(sizes, max(budget // self.n_classes, 1))
        return [int(size) for size in sizes]

    def spread(self, n: int) -> IntArray:
        """Return n rows of all classes, evenly in proportion to their weights."""
        return self._at((np.arange(n) + 0.5) / n)

    def shuffled(self) -> IntArray:
        """Rows by their weights in random order, as many as there are distinct ones."""
        n = len(self.points)
        return self._at((self._rng.permutation(n) + 0.5) / n)

    def _at(self, quantiles: FloatArray) -> IntArray:
        shares = np.cumsum(self.weights) / self.weights.sum()
        return np.minimum(np.searchsorted(shares, quantiles), len(shares) - 1)

    def _pass(self, c: int) -> IntArray:
        first, last = self._bounds[c : c + 2]
        strata = self._rng.permutation(last - first)
        weights = self.weights[first:last]
        if (weights == weights[0]).all():
            return np.asarray(strata + first)
        shares = np.cumsum(weights) / weights.sum()
        at = (strata + self._rng.random(len(strata))) / len(strata)
        rows = np.searchsorted(shares, at, side="right")
        return np.asarray(first + np.minimum(rows, len(strata) - 1))
