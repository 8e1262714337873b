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
class AnnealingConstants:
    """Constants of the slow timescale, with the papers' symbols.

    Examples
    --------
    >>> from oda_rl import ODAClusterer
    >>> model = ODAClusterer(constants=AnnealingConstants(movement=0.01))
    """

    SCHEMA: ClassVar[dict[str, Member]] = {
        "max_temperature": real("", "(0, inf)"),
        "movement": real("", "[0, inf]"),
        "merge_below": real("", "[0, inf)"),
        "min_mass": real("", "[0, 1)"),
        "shift": real("", "(0, inf)"),
        "step_offset": real("", "[0, inf)"),
        "step_slope": real("", "(0, inf)"),
    }

    max_temperature: float = 2.0
    """T_max, over the largest mean divergence of a class from its mean; > 0."""
    movement: float = np.inf
    """ε_c: a level takes another pass, at most 20, while a codevector moved farther in the last
    one; a divergence, in temperatures. Infinite: one pass."""
    merge_below: float = 0.3
    """ε_n: codevectors of a class whose divergence is below this, in temperatures, are one; below
    1/300 of it, where it was measured which codevectors split."""
    min_mass: float = 1e-5
    """ε_r: a codevector with a smaller share of its class is idle, and dropped; in [0, 1)."""
    shift: float = 0.1
    """δ: length of the shift either way when a codevector splits, in square roots of the
    temperature. Where critical temperatures are measured it is 0.7 standard deviations along the
    direction in which the codevector splits."""
    step_offset: float = 1.0
    """a of the step size 1/(1 + b (n + a K)), at sample n of a class with K codevectors."""
    step_slope: float = 0.9
    """b of the step size."""

    def __post_init__(self) -> None:
        for name, member in self.SCHEMA.items():
            value = float(getattr(self, name))
            member.check(name, np.array(value), {})
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Schedule:
    """When the annealing cools and when it ends."""

    SCHEMA: ClassVar[dict[str, Any]] = {
        "max_codevectors": whole("", "[1, inf)"),
        "min_temperature": real("", "[0, inf)"),
        "cooling": real("", "(0, 1)"),
        "samples_per_codevector": real("", "[0, inf)"),
        "max_samples": real("", "[0, inf]"),
        "target_distortion": real("", "[0, inf)"),
        "target_error": real("", "[-1, 1]"),
        "ends_full": flags(),
        "forgetting": real("", "[0, 1]"),
        "constants": AnnealingConstants,
        "class_competition": flags(),
        "measures": flags(),
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
    constants: AnnealingConstants = AnnealingConstants()
    """Of the slow timescale."""
    class_competition: bool = True
    """Whether codevectors compete with those of their class only."""
    measures: bool = False
    """Whether codevectors split at measured critical temperatures where that is possible."""

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
        "critical": Maybe(real("", "[0, inf)")),
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
    critical: float | None = None
    """Highest critical temperature of its codevectors; None where none was measured."""

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

    def some(self, n: int) -> tuple[FloatArray, IntArray, FloatArray]:
        """Points, classes and weights of all rows, or of n that are spread over them."""
        if len(self.points) <= n:
            return self.points, self.classes, self.weights
        rows = self.spread(n)
        return self.points[rows], self.classes[rows], np.ones(n)

    def stratified(self, n: int, fewest: int) -> tuple[FloatArray, IntArray, FloatArray]:
        """Like :meth:`some`, with ``fewest`` of each class if it has so many."""
        if len(self.points) <= n:
            return self.points, self.classes, self.weights
        sizes, totals = np.diff(self._bounds), self.class_weights
        wanted = np.maximum(n * totals / totals.sum(), fewest).astype(np.int64)
        wanted = np.minimum(wanted, sizes)
        rows = np.concatenate([self.draw(c, size) for c, size in enumerate(wanted)])
        return self.points[rows], self.classes[rows], np.repeat(totals / wanted, wanted)

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
