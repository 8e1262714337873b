"""Uniform cells: the baseline that knows nothing of where the states are."""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.base.settings import POSITIVE, Checked, Range, are_counts, or_none
from oda_rl.agents.partitions.base import BuiltIn

MAX_CELLS = 65_536

_BINS = Range("an integer of at least 1, or a list of one for each component", are_counts)
_INTERVALS = Range(
    "pairs of finite numbers, the lower first",
    lambda pairs: all(
        len(pair) == 2 and -math.inf < pair[0] < pair[1] < math.inf for pair in pairs
    ),
)


@dataclass(frozen=True)
class GridSettings(Checked):
    """Settings of :class:`oda_rl.agents.GridPartition`, each with its default."""

    bins: Annotated[int | tuple[int, ...], _BINS] = 3
    """Grid: bins of every component of the observation, or of each."""

    ranges: Annotated[tuple[tuple[float, float], ...] | None, or_none(_INTERVALS)] = None
    """Grid: low and high of each component, in its units. None: by ``spread``."""

    spread: Annotated[float, POSITIVE] = 2.0
    """Without ranges a grid reaches this many standard deviations of random play
    to either side of its mean; positive."""


class GridPartition(BuiltIn):
    """A uniform grid of ``bins`` bins a component, within ``ranges``.

    Without ranges, ``spread`` standard deviations of the random play to either side of its mean.
    The codevectors are the centres of the boxes, of which the last component varies fastest; they
    never move.

    ``settings`` are those of :class:`GridSettings`.

    Raises
    ------
    ValueError
        If there are not as many bins or ranges as components, or more than 65,536 cells.

    Examples
    --------
    >>> grid = GridPartition(bins=2, ranges=((0.0, 4.0),)).prepare(1, np.random.default_rng(0))
    >>> grid.start(np.array([[1.0], [2.0]]))
    >>> grid.codevectors
    array([[1.],
           [3.]])
    """

    Settings = GridSettings
    settings: GridSettings

    def _allocate(self, n_features: int) -> None:
        settings = self.settings
        bins = settings.bins if isinstance(settings.bins, tuple) else (settings.bins,) * n_features
        for name, given in (("bins", bins), ("ranges", settings.ranges)):
            if given is not None and len(given) != n_features:
                raise ValueError(
                    f"{name} is {getattr(settings, name)!r}: it must have {n_features} entries, "
                    "one for each component of the observation"
                )
        self.capacity = math.prod(bins)
        if self.capacity > MAX_CELLS:
            raise ValueError(
                f"bins is {settings.bins!r}, which makes {self.capacity:,} cells of {n_features} "
                f"components: it must make at most {MAX_CELLS:,}"
            )
        self.bins = bins
        self.placed = np.zeros((self.capacity, n_features))

    def start(self, observations: FloatArray) -> None:
        super().start(observations)
        spread = self.settings.spread
        ranges = np.tile([-spread, spread], (len(self.bins), 1))
        if self.settings.ranges is not None:
            ranges = self.standardised(np.array(self.settings.ranges).T).T
        axes = [
            low + (high - low) / n * (np.arange(n) + 0.5)
            for (low, high), n in zip(ranges, self.bins, strict=True)
        ]
        centres = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        self.placed[:] = centres.reshape(self.capacity, -1)
