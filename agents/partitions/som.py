"""A self-organising map of the states that the agent visits."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.settings import Checked, Range, are_counts, at_least
from oda_rl.agents.partitions.base import BuiltIn, Lineage
from oda_rl.files.schema import whole
from oda_rl.quantization.kernels import Grid, learn_map

_FIRST_RATE, _LAST_RATE, _LAST_WIDTH = 0.3, 0.01, 0.5

_SHAPE = Range(
    "one or two integers of at least 1",
    lambda shape: isinstance(shape, tuple) and len(shape) <= 2 and are_counts(shape),
)


@dataclass(frozen=True)
class SOMSettings(Checked):
    """Settings of :class:`oda_rl.agents.SOMPartition`, each with its default."""

    map_shape: Annotated[tuple[int, ...], _SHAPE] = (5, 5)
    """Self-organising map: codevectors of a chain, or rows and columns of a grid."""

    map_samples_per_cell: Annotated[int, at_least(1)] = 50
    """Self-organising map: samples for each codevector until it rests."""


class SOMPartition(BuiltIn):
    """Cells around the codevectors of a self-organising map, which learns along with the agent.

    The codevectors, row after row of the map, start at random, as far apart as the states of the
    random play. Rate and width of the neighbourhood fall exponentially, while the map follows the
    states that the policy visits, during ``map_samples_per_cell`` samples for each codevector; then
    it rests.

    ``settings`` are those of :class:`SOMSettings`.

    References
    ----------
    C. N. Mavridis, J. S. Baras, "Vector quantization for adaptive state aggregation in
    reinforcement learning", American Control Conference 2021, 2187-2192.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cells = SOMPartition(map_shape=(3, 3)).prepare(2, rng)
    >>> cells.start(rng.normal(size=(500, 2)))
    >>> cells.observe(rng.normal(size=(100, 2))).shape
    (9, 9)
    """

    Settings = SOMSettings
    settings: SOMSettings
    _shown: Annotated[IntArray, whole("1")]

    def _allocate(self, n_features: int) -> None:
        n_rows, n_columns = (1, *self.settings.map_shape)[-2:]
        self._grid = Grid(n_rows, n_columns, False)
        self.capacity = n_rows * n_columns
        self.placed = np.zeros((self.capacity, n_features))
        self._shown = np.zeros(1, dtype=np.int64)

    def start(self, observations: FloatArray) -> None:
        super().start(observations)
        self.placed[:] = self._rng.normal(size=self.placed.shape)
        self._shown[:] = 0

    def observe(self, observations: FloatArray) -> Lineage | None:
        samples = self.settings.map_samples_per_cell * self.capacity
        first = int(self._shown[0])
        n = min(len(observations), samples - first)
        if n <= 0:
            return None
        self._shown += n
        share = np.arange(first, first + n) / samples
        width = max(self._grid.n_rows, self._grid.n_columns) / 2.0
        learn_map(
            self.placed, np.zeros(self.capacity, dtype=np.int64), self.standardised(observations),
            np.ones(n), np.arange(n), self._grid,
            _FIRST_RATE * (_LAST_RATE / _FIRST_RATE) ** share,
            width * (_LAST_WIDTH / width) ** share, np.zeros(self.capacity),
        )  # fmt: skip
        return np.eye(self.capacity)
