"""Temperature levels: when annealing cools and ends, what it draws, what a level leaves behind."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.files.schema import Maybe, Member, flags, real, require, whole
from oda_rl.samples import weighted

LEVEL_SAMPLES = 100  # at least, at each temperature
_FROZEN_RANGE = 0.01  # a codebook that no longer splits is cooled to this share of a temperature
_OVERGROWTH = 2  # a codebook grows to twice its size and is merged down to it
FEW_POINTS = 20  # a codevector: where it is refined, a codebook of fewer grows in proportion less
_NEGLIGIBLE = 1e-14  # of the data's scale: nothing is left to be told apart


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
    """As many as there may be, over all classes."""
    min_temperature: float
    """Relative to the mean divergence of the data from their class means."""
    cooling: float
    """Factor of the temperature from one level to the next."""
    samples_per_codevector: float
    """Samples of a level for each codevector."""
    max_samples: float
    """Annealing ends when this many have been seen."""
    target_distortion: float
    """Annealing ends when a level's mean divergence is at most this."""
    target_error: float
    """Annealing ends when a level's accuracy is at least one minus this."""
    ends_full: bool
    """Whether annealing ends when a full codebook no longer splits, and is not cooled on."""
    forgetting: float
    """Least share of the way to a sample of its own that a codevector goes."""

    def room(self, n_codevectors: int, level_samples: int, n_samples_seen: int) -> int:
        """Return how many samples a level still takes that has had so many, of so many in all."""
        wanted = self.samples_per_codevector * n_codevectors
        left = np.ceil(max(wanted, LEVEL_SAMPLES)) - level_samples
        return int(min(left, max(self.max_samples - n_samples_seen, 0)))

    def grown(self, n_points: float) -> float:
        """Return from how many codevectors on a codebook of so many points is full."""
        most = float(self.max_codevectors)
        if self.ends_full:
            return most * max(1.0, min(n_points / (most * FEW_POINTS), 1.0) * _OVERGROWTH)
        return _OVERGROWTH * most

    def is_over(
        self, temperature: float, distortion: float, accuracy: float | None,
        n_samples_seen: int, scale: float, frozen_at: float,
    ) -> bool:  # fmt: skip
        """Whether annealing ends with a level.

        ``scale`` is the mean divergence of the data from their class means; ``frozen_at`` the
        temperature at which a full codebook no longer split, inf while it does.
        """
        least = max(self.min_temperature, _NEGLIGIBLE) * scale
        if np.isfinite(frozen_at):
            least = max(least, _FROZEN_RANGE * frozen_at)
        return (
            temperature <= least
            or distortion <= max(self.target_distortion, _NEGLIGIBLE * scale)
            or n_samples_seen >= self.max_samples
            or (self.ends_full and np.isfinite(frozen_at))
            or (accuracy is not None and 1.0 - accuracy <= self.target_error)
        )


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
    """Mean divergence of the level's samples from the nearest codevector of their class, each
    measured before the sample was learned from."""
    n_samples_seen: int
    """Samples learned from until then."""
    codevectors: FloatArray
    """Shape (K, d), in the units of the data."""
    averages: FloatArray
    """Shape (K, q): averages of what came along with the features."""
    weights: FloatArray
    """Shape (K,): the share of the data that each stands for."""
    labels: IntArray
    """Shape (K,): the class of each, as an index."""
    lineage: FloatArray | None
    """Shape (K, K of the level before): by which shares each comes from the ones before; None for
    the first level."""
    accuracy: float | None = None
    """Share of recent samples whose nearest codevector is of their class; None with one class."""

    def check_contents(self, sizes: Any, where: str) -> None:
        """Raise InvalidFileError if labels are not those of one class after the other."""
        check_labels(self.labels, where)

    @property
    def n_clusters(self) -> int:
        """Number K of codevectors."""
        return len(self.codevectors)

    @property
    def step(self) -> int:
        """The samples seen, by the name that the figures know."""
        return self.n_samples_seen


def check_labels(labels: IntArray, where: str) -> None:
    """Raise InvalidFileError unless labels rise from 0 by steps of at most 1."""
    steps = np.diff(labels, prepend=0)
    right = len(labels) > 0 and ((steps == 0) | (steps == 1)).all() and labels[0] == 0
    require(right, f"{where}.labels must rise from 0, one class after the other")


class Codebook(NamedTuple):
    """What predictions are made with; codevectors in the divergence's own coordinates."""

    codevectors: FloatArray
    """Shape (K, d + q)."""
    weights: FloatArray
    """Shape (K,): the share of the data that each stands for."""
    labels: IntArray
    """Shape (K,): the class of each, as an index, rising."""

    def check_contents(self, sizes: Any, where: str) -> None:
        """Raise InvalidFileError if labels are not those of one class after the other."""
        check_labels(self.labels, where)


Codebook.SCHEMA = {  # type: ignore[attr-defined]  # of a tuple it cannot stand inside
    "codevectors": real("M, D"),
    "weights": real("M", "[0, inf)"),
    "labels": whole("M", "[0, classes)"),
}


class Distribution:
    """Distinct weighted points of each class, to be drawn from without end.

    Only the distribution matters, not the table: a row that stands there twice and a row of weight
    2 are the same, and so are two orders of one table. Rows are drawn by strata of the cumulative
    weight.

    Rows of weight 0 are left out; ``points``, ``classes`` (from 0 on, each there) and ``weights``
    are what is left, class after class. The first ``n_features`` columns are features.

    Examples
    --------
    >>> points = np.array([[1.0], [2.0], [1.0]])
    >>> data = Distribution(points, np.zeros(3, int), np.ones(3), np.random.default_rng(0))
    >>> data.points.ravel(), data.weights
    (array([1., 2.]), array([2., 1.]))
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
        """Rows of ``points`` of class ``c``, shape (n,), each drawn by its weight.

        The strata of a pass, as many as there are distinct rows, are drawn without replacement: a
        pass over rows of equal weight shows each of them once.
        """
        rows = [self._shown[c]]
        while sum(map(len, rows)) < n:
            rows.append(self._pass(c))
        drawn = np.concatenate(rows)
        self._shown[c] = drawn[n:]
        return drawn[:n]

    def max_draw(self, largest: int, budget: int | None) -> list[int]:
        """How many rows of each class to draw: all, but at most so many, and in all a budget."""
        sizes = np.minimum(np.diff(self._bounds), largest)
        if budget is not None:
            sizes = np.minimum(sizes, max(budget // self.n_classes, 1))
        return [int(size) for size in sizes]

    def spread(self, n: int) -> IntArray:
        """Return n rows of all classes, evenly in proportion to their weights."""
        return self._at((np.arange(n) + 0.5) / n)

    def shuffled(self) -> IntArray:
        """As many rows of all classes as are distinct, by their weights, in random order."""
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
