"""Cells around codevectors that online deterministic annealing places."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import numpy as np

from oda_rl._threads import one_thread
from oda_rl._types import Array, FloatArray
from oda_rl.agents.base.settings import NOT_NEGATIVE, POSITIVE, Checked, at_least, within
from oda_rl.agents.partitions.base import (
    ANNEALING,
    RESTING,
    BuiltIn,
    Learner,
    Lineage,
    Scaling,
    Schedule,
    check_kind,
    new_schedule,
    observe,
)
from oda_rl.annealing import cells as annealing
from oda_rl.divergences import quadratic_diagram
from oda_rl.files.schema import Member, real, require


@dataclass(frozen=True)
class ODASettings(Checked):
    """Settings of :class:`oda_rl.agents.ODAPartition`, each with its default.

    Temperatures and distances are in units of the scaled observation, whose total variance is 2.
    """

    max_cells: Annotated[int, at_least(1)] = 8
    """Annealing stops once there are this many cells (there may be up to twice as many)."""

    initial_temperature: Annotated[float, POSITIVE] = 4.0
    """Temperature of the first level; positive."""

    cooling: Annotated[float, within("(0, 1)")] = 0.2
    """Factor from one temperature level to the next, in (0, 1)."""

    min_temperature: Annotated[float, POSITIVE] = 0.03
    """Annealing stops below this temperature; positive."""

    samples_per_level: Annotated[int, at_least(1)] = 200
    """Minimum number of samples seen at a temperature level."""

    samples_per_cell: Annotated[float, NOT_NEGATIVE] = 10.0
    """Minimum number of samples for each cell at a temperature level."""

    perturbation: Annotated[float, POSITIVE] = 0.05
    """Standard deviation of the shifts by which a codevector is split; positive."""

    merge_threshold: Annotated[float, NOT_NEGATIVE] = 0.001
    """Codevectors merge if their squared distance is below merge_threshold times temperature."""

    min_mass: Annotated[float, within("[0, 1)")] = 1e-4
    """Cells with a smaller share of the samples are dropped; in [0, 1)."""


class ODAPartition(BuiltIn):
    """Cells around codevectors that online deterministic annealing places.

    Two codevectors start at the origin; after each temperature level they are pruned, merged,
    cooled and split, until there are ``max_cells`` or the temperature is below
    ``min_temperature``.

    Parameters
    ----------
    **settings
        Of :class:`ODASettings`.

    Attributes
    ----------
    n_cells : int
        Number of cells.
    codevectors : ndarray, shape (n_cells, d)
        Relative to the agent's origin.

    References
    ----------
    C. N. Mavridis, J. S. Baras, "Annealing optimization for progressive learning with stochastic
    approximation", algorithm 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cells = ODAPartition(max_cells=4).prepare(2, rng)
    >>> cells.start(Scaling(np.eye(2), origin=np.zeros(2), deviations=np.ones(2)))
    >>> while cells.active:
    ...     lineage = cells.observe(rng.uniform(-1.0, 1.0, size=2))
    >>> cells.n_cells
    4
    """

    Settings = ODASettings
    schema: ClassVar[dict[str, Member]] = {
        "cells": real("K, 1+d"),
        "diagram": real("K, 1+d"),
        "metric": real("d, d"),
        "schedule": Member(Schedule, "1"),
        "spread": real("d, d"),
    }
    settings: ODASettings

    def prepare(self, n_features: int, rng: np.random.Generator) -> Self:
        capacity = 2 * self.settings.max_cells
        self.diagram = np.zeros((capacity, 1 + n_features))
        cells, schedule = np.zeros((capacity, 1 + n_features)), new_schedule(ANNEALING)
        self.learner = Learner(cells, np.eye(n_features), schedule)
        self._schedule = Schedule(schedule)
        self._schedule.temperature = self.settings.initial_temperature
        self.n_cells = 1
        self._inverse: FloatArray = np.eye(n_features)  # of the scaling's transform
        self._rng = rng
        self._scratch = np.zeros((2, max(capacity, n_features)))
        return self

    @property
    def active(self) -> bool:
        """Whether annealing goes on."""
        return self._schedule.kind != RESTING

    @property
    def temperature(self) -> float:
        return self._schedule.temperature

    @property
    def codevectors(self) -> FloatArray:
        return self.learner.cells[: self.n_cells, 1:]

    def start(self, scaling: Scaling) -> None:
        """Begin with a pair of codevectors at the origin, at the initial temperature."""
        cells, schedule = self.learner.cells, self._schedule
        self.n_cells = 1
        cells[0] = 0.0
        cells[0, 0] = 1.0
        schedule.kind = ANNEALING
        schedule.temperature = self.settings.initial_temperature
        self._measure(scaling)
        self._split()
        self._draw()
        self._begin_level()

    def rescale(self, scaling: Scaling) -> None:
        self._measure(scaling)
        self._draw()

    def observe(self, point: FloatArray) -> Lineage | None:
        due = observe(self.diagram, self.learner, self.n_cells, point, *self._scratch)
        if not due:
            return None
        lineage = self.reshape()
        self._draw()
        return lineage

    def reshape(self) -> Lineage:
        """End a temperature level: prune, merge, cool, and split unless annealing is over.

        The diagram is drawn when the agent says in which scaling.
        """
        learner, schedule, settings = self.learner, self._schedule, self.settings
        radius = settings.merge_threshold * schedule.temperature
        lineage = annealing.prune_and_merge(
            learner.cells, learner.metric, self.n_cells, settings.min_mass, radius
        )
        self.n_cells = len(lineage)
        schedule.temperature *= settings.cooling
        if schedule.temperature < settings.min_temperature or self.n_cells >= settings.max_cells:
            schedule.kind = RESTING
        else:
            self._split()
            lineage = np.concatenate([lineage, lineage])
        self._begin_level()
        return np.asarray(lineage / lineage.sum(axis=1, keepdims=True))

    def _arrays(self) -> dict[str, Array]:
        return {
            "cells": self.learner.cells[: self.n_cells],
            "diagram": self.diagram[: self.n_cells],
            "metric": self.learner.metric,
            "schedule": self._schedule.record,
            "spread": self._inverse,
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        capacity = len(self.diagram)
        self.n_cells = n_cells = len(state["cells"])
        require(1 <= n_cells <= capacity, f"cells has {n_cells} rows: at most {capacity}")
        super().restore(state)
        require((state["cells"][:, 0] >= 0.0).all(), "cells[:, 0], masses, must be at least 0")
        check_kind(self._schedule, ANNEALING)
        require(self.temperature > 0.0, f"schedule.temperature is {self.temperature}")

    @one_thread()
    def _measure(self, scaling: Scaling) -> None:
        self.learner.metric[:] = scaling.transform.T @ scaling.transform
        # Inverted in standard deviations: in other units directions of small extent would be lost.
        deviations = scaling.deviations
        self._inverse[:] = deviations[:, None] * np.linalg.pinv(scaling.transform * deviations)

    def _split(self) -> None:
        shape = self.n_cells, len(self._inverse)
        shifts = self._rng.normal(scale=self.settings.perturbation, size=shape)
        annealing.split(self.learner.cells, self.n_cells, shifts @ self._inverse.T)
        self.n_cells *= 2

    def _begin_level(self) -> None:
        self._schedule.samples = 0
        self._schedule.samples_needed = max(
            self.settings.samples_per_level, self.settings.samples_per_cell * self.n_cells
        )

    def _draw(self) -> None:
        rows = quadratic_diagram(self.learner.metric, self.codevectors)
        self.diagram[: self.n_cells] = rows
