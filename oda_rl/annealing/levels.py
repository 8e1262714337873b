"""Temperature levels: when the annealing cools and ends, and what each level leaves behind."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.files.schema import Maybe, Member, flags, real, require, whole

LEVEL_SAMPLES = 100  # at least, at each temperature
_FROZEN_RANGE = 0.01  # a codebook that no longer splits is cooled to this share of a temperature
_OVERGROWTH = 2  # a codebook grows to twice its size and is merged down to it
FEW_POINTS = 20  # a codevector: where it is refined, a codebook of fewer grows in proportion less
_LEAST = 1e-14  # of the data's scale: nothing is left to be told apart


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
        least = max(self.min_temperature, _LEAST) * scale
        if np.isfinite(frozen_at):
            least = max(least, _FROZEN_RANGE * frozen_at)
        return (
            temperature <= least
            or distortion <= max(self.target_distortion, _LEAST * scale)
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
