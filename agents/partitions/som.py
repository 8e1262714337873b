"""A self-organising map of the states that the agent visits."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import numpy as np

from oda_rl._types import Array, FloatArray
from oda_rl.agents.base.settings import Checked, Range, are_counts, at_least, within
from oda_rl.agents.partitions.base import (
    MAPPING,
    RESTING,
    BuiltIn,
    Learner,
    Lineage,
    MapSchedule,
    Scaling,
    check_kind,
    new_schedule,
    observe,
)
from oda_rl.divergences import quadratic_diagram
from oda_rl.files.schema import Member, real, require

_STAGES = 10  # after each the metric is learned anew
_LAST_RATE, _LAST_WIDTH = 0.01, 0.5

_SHAPE = Range(
    "one or two integers of at least 1",
    lambda shape: isinstance(shape, tuple) and len(shape) <= 2 and are_counts(shape),
)


@dataclass(frozen=True)
class SOMSettings(Checked):
    """Settings of :class:`oda_rl.agents.SOMPartition`, each with its default."""

    map_shape: Annotated[tuple[int, ...], _SHAPE] = (5, 5)
    """Of a self-organising map: codevectors of a chain, or rows and columns of a grid."""

    map_periodic: bool = False
    """Whether the sides of the map are glued together."""

    map_rate: Annotated[float, within("(0, 1]")] = 0.3
    """Of a map: first rate, in (0, 1]; it falls to .01."""

    map_samples_per_cell: Annotated[int, at_least(1)] = 50
    """Of a map: samples for each codevector until it rests."""


class SOMPartition(BuiltIn):
    """Cells around the codevectors of a self-organising map, which learns along with the agent.

    The codevectors start at random, as far apart as the states of the random play. Rate and width
    of the neighbourhood fall exponentially on the slow timescale, while the map follows the states
    that the policy visits, during ``map_samples_per_cell`` samples for each codevector;
    then it rests. In ten stages of that time the agent learns its metric anew.

    Parameters
    ----------
    **settings
        Of :class:`SOMSettings`.

    Attributes
    ----------
    n_cells : int
        Number of codevectors.
    codevectors : ndarray, shape (n_cells, d)
        Row after row of the map, relative to the agent's origin.

    References
    ----------
    C. N. Mavridis, J. S. Baras, "Vector quantization for adaptive state aggregation in
    reinforcement learning", American Control Conference 2021, 2187-2192.

    Examples
    --------
    >>> cells = SOMPartition(map_shape=(3, 3)).prepare(2, np.random.default_rng(0))
    >>> cells.start(Scaling(np.eye(2), origin=np.zeros(2), deviations=np.ones(2)))
    >>> cells.n_cells, cells.active
    (9, True)
    """

    Settings = SOMSettings
    schema: ClassVar[dict[str, Member]] = {
        "cells": real("K, 1+d"),
        "diagram": real("K, 1+d"),
        "metric": real("d, d"),
        "schedule": Member(MapSchedule, "1"),
    }
    settings: SOMSettings

    def prepare(self, n_features: int, rng: np.random.Generator) -> Self:
        shape = (1, *self.settings.map_shape)[-2:]
        self.n_cells = math.prod(shape)
        self.diagram = np.zeros((self.n_cells, 1 + n_features))
        raw = new_schedule(MAPPING, MapSchedule)
        cells = np.zeros((self.n_cells, 1 + n_features))
        self.learner = Learner(cells, np.eye(n_features), raw)
        schedule = self._schedule = MapSchedule(raw)
        schedule.rows, schedule.columns = shape
        schedule.periodic = self.settings.map_periodic
        self._samples = self.settings.map_samples_per_cell * self.n_cells
        schedule.samples_needed = math.ceil(self._samples / _STAGES)
        self._first_width = max(shape) / 2.0
        schedule.rate_decay = (_LAST_RATE / self.settings.map_rate) ** (1.0 / self._samples)
        schedule.width_decay = (_LAST_WIDTH / self._first_width) ** (1.0 / self._samples)
        self._rng = rng
        self._scratch = np.zeros((2, max(self.n_cells, n_features)))
        return self

    @property
    def active(self) -> bool:
        """Whether the map still learns."""
        return self._schedule.kind != RESTING

    @property
    def codevectors(self) -> FloatArray:
        return self.learner.cells[:, 1:]

    def start(self, scaling: Scaling) -> None:
        """Begin with codevectors at random."""
        cells, schedule = self.learner.cells, self._schedule
        cells[:, 0] = 0.0
        cells[:, 1:] = scaling.deviations * self._rng.normal(size=self.codevectors.shape)
        schedule.kind, schedule.samples = MAPPING, 0
        schedule.rate, schedule.width = self.settings.map_rate, self._first_width
        self.rescale(scaling)

    def rescale(self, scaling: Scaling) -> None:
        self.learner.metric[:] = scaling.transform.T @ scaling.transform
        self.diagram[:] = quadratic_diagram(self.learner.metric, self.codevectors)

    def observe(self, point: FloatArray) -> Lineage | None:
        due = observe(self.diagram, self.learner, self.n_cells, point, *self._scratch)
        return self.reshape() if due else None

    def reshape(self) -> Lineage:
        """End a stage; the cells remain as they are."""
        self._schedule.samples = 0
        if self._schedule.width <= _LAST_WIDTH * (1.0 + 1e-6):  # but for rounding
            self._schedule.kind = RESTING
        return np.eye(self.n_cells)

    def _arrays(self) -> dict[str, Array]:
        cells, metric = self.learner.cells, self.learner.metric
        record = self._schedule.record
        return {"cells": cells, "diagram": self.diagram, "metric": metric, "schedule": record}

    def restore(self, state: Mapping[str, Array]) -> None:
        given, schedule = self._schedule.record.copy(), self._schedule
        super().restore(state)
        for name in ("rows", "columns", "periodic", "rate_decay", "width_decay"):
            right = schedule.record[name][0] == given[name][0]
            require(right, f"schedule.{name} is not that of the settings")
        check_kind(schedule, MAPPING)
        wide = schedule.width > 0.0 or not self.active or schedule.samples == 0
        require(wide, f"schedule.width is {schedule.width}")
