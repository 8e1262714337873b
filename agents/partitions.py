"""What an agent needs of a partition, and online deterministic annealing behind it."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from oda_rl import annealing
from oda_rl._compile import compiled
from oda_rl.agents.config import TwoTimescaleConfig
from oda_rl.divergences import quadratic_diagram

FloatArray = npt.NDArray[np.float64]

Lineage = FloatArray
"""Shape (new cells, old cells): row k says with which weights (summing to 1) new cell k comes from
the old ones. An old cell in several rows was split; several old cells in one row were merged."""

# Slots of a learner's schedule, and the kinds of learner.
KIND, TEMPERATURE, SAMPLES, SAMPLES_NEEDED = range(4)
RESTING, INTERPRETED, ANNEALING = 0.0, 1.0, 2.0


class Learner(NamedTuple):
    """The arrays by which compiled loops run a partition's learner themselves."""

    cells: FloatArray
    metric: FloatArray
    schedule: FloatArray


class Partition(Protocol):
    """A partition of the observation space that may change while the agent learns.

    Points are observations in their own units, flattened, shape (d,), minus a fixed origin that the
    agent chose. ``transform``, shape (d, d), scales them: distances are Euclidean in
    ``transform @ point``, whose total variance is of order 1.
    """

    diagram: FloatArray
    """Affine diagram, shape (capacity, 1 + d); the first ``n_cells`` rows count. The agent keeps
    a reference: change it in place."""

    learner: Learner
    """The learner's arrays; ``interpreted_learner(d)`` for one whose ``observe`` is Python."""

    n_cells: int

    @property
    def active(self) -> bool:
        """Whether it still wants to observe."""

    @property
    def temperature(self) -> float:
        """Temperature of the current level; NaN if the partition knows none."""

    def start(self, transform: FloatArray) -> None:
        """Place the first cells, at the beginning and when the agent starts again from nothing."""

    @property
    def codevectors(self) -> FloatArray:
        """A representative point of each cell, shape (n_cells, d)."""

    def observe(self, point: FloatArray) -> Lineage | None:
        """Learn from one point; return the lineage if cells were renumbered, split or merged."""

    def reshape(self) -> Lineage:
        """Reshape the cells when a compiled learner says that they are due."""

    def rescale(self, transform: FloatArray) -> None:
        """Take over a new scaling; the codevectors stay where they are."""

    def state(self) -> Mapping[str, FloatArray]:
        """Return all that has to be saved, as arrays."""

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Take over what ``state`` returned."""


def interpreted_learner(n_features: int) -> Learner:
    """Arrays of a learner without compiled code: every sample is given to ``observe``."""
    schedule = np.array([INTERPRETED, np.nan, 0.0, 0.0])
    return Learner(np.zeros((1, 1 + n_features)), np.eye(n_features), schedule)


@compiled
def observe_compiled(
    diagram: FloatArray,
    cells: FloatArray,
    metric: FloatArray,
    schedule: FloatArray,
    n_cells: int,
    point: FloatArray,
    weights: FloatArray,
    gradient: FloatArray,
) -> bool:
    """Let the learner see one point; returns whether its cells are now due to be reshaped.

    At a temperature level the m-th sample has step size 1/(m + 1).
    """
    schedule[SAMPLES] += 1.0
    annealing.observe(
        diagram,
        cells,
        metric,
        n_cells,
        point,
        schedule[TEMPERATURE],
        1.0 / (schedule[SAMPLES] + 1.0),
        weights,
        gradient,
    )
    return bool(schedule[SAMPLES] >= schedule[SAMPLES_NEEDED])


class ODAPartition:
    """Cells around codevectors that online deterministic annealing places.

    Two codevectors start at the origin; after each temperature level they are pruned, merged,
    cooled and split, until there are ``config.max_cells`` or the temperature is below
    ``config.min_temperature``.

    Parameters
    ----------
    n_features : int
        Dimension d of the points.
    config : TwoTimescaleConfig
        Its annealing settings.
    rng : numpy.random.Generator
        Draws the shifts by which cells are split.

    Attributes
    ----------
    n_cells : int
        Number of cells.
    codevectors : ndarray, shape (n_cells, d)
        Relative to the agent's origin.

    References
    ----------
    C. N. Mavridis, J. S. Baras, "Progressive learning and reinforcement learning by online
    deterministic annealing", algorithm 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cells = ODAPartition(2, TwoTimescaleConfig(max_cells=4), rng)
    >>> cells.start(transform=np.eye(2))
    >>> while cells.active:
    ...     lineage = cells.observe(rng.uniform(-1.0, 1.0, size=2))
    >>> cells.n_cells
    4
    """

    def __init__(
        self, n_features: int, config: TwoTimescaleConfig, rng: np.random.Generator
    ) -> None:
        capacity = 2 * config.max_cells
        self.config = config
        self.diagram: FloatArray = np.zeros((capacity, 1 + n_features))
        self.learner = Learner(
            np.zeros((capacity, 1 + n_features)),
            np.eye(n_features),
            np.array([ANNEALING, config.initial_temperature, 0.0, 0.0]),
        )
        self.n_cells = 1
        self._spread: FloatArray = np.eye(n_features)
        self._rng = rng
        self._scratch = np.zeros(capacity), np.zeros(n_features)

    @property
    def active(self) -> bool:
        """Whether annealing goes on."""
        return bool(self.learner.schedule[KIND] != RESTING)

    @property
    def temperature(self) -> float:
        """Temperature of the current level."""
        return float(self.learner.schedule[TEMPERATURE])

    @property
    def codevectors(self) -> FloatArray:
        """The codevectors, shape (n_cells, d)."""
        return self.learner.cells[: self.n_cells, 1:]

    def start(self, transform: FloatArray) -> None:
        """Begin with a pair of codevectors at the origin, at the initial temperature."""
        cells, _, schedule = self.learner
        self.n_cells = 1
        cells[0] = 0.0
        cells[0, 0] = 1.0
        schedule[KIND] = ANNEALING
        schedule[TEMPERATURE] = self.config.initial_temperature
        self.rescale(transform)
        self._split()
        self._begin_level()

    def rescale(self, transform: FloatArray) -> None:
        """Measure distances as |transform @ (x - y)| from now on."""
        metric = transform.T @ transform
        if not np.array_equal(metric, self.learner.metric):  # the inverse takes a while
            self.learner.metric[:] = metric
            self._spread = np.asarray(np.linalg.pinv(transform), dtype=np.float64)
        self._draw()

    def observe(self, point: FloatArray) -> Lineage | None:
        """Learn from one point; see :class:`Partition`."""
        cells, metric, schedule = self.learner
        due = observe_compiled(
            self.diagram, cells, metric, schedule, self.n_cells, point, *self._scratch
        )
        return self.reshape() if due else None

    def reshape(self) -> Lineage:
        """End a temperature level: prune, merge, cool, and split unless annealing is over."""
        cells, metric, schedule = self.learner
        lineage = annealing.prune_and_merge(
            cells,
            metric,
            self.n_cells,
            self.config.min_mass,
            self.config.merge_threshold * schedule[TEMPERATURE],
        )
        self.n_cells = len(lineage)
        schedule[TEMPERATURE] *= self.config.cooling
        if (
            schedule[TEMPERATURE] < self.config.min_temperature
            or self.n_cells >= self.config.max_cells
        ):
            schedule[KIND] = RESTING
        else:
            self._split()
            lineage = np.concatenate([lineage, lineage])
        self._begin_level()
        lineage /= lineage.sum(axis=1, keepdims=True)
        return lineage

    def state(self) -> dict[str, FloatArray]:
        """Return all that has to be saved."""
        return {
            "cells": self.learner.cells[: self.n_cells],
            "diagram": self.diagram[: self.n_cells],
            "metric": self.learner.metric,
            "schedule": self.learner.schedule,
            "spread": self._spread,
        }

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Take over what :meth:`state` returned."""
        self.n_cells = len(state["cells"])
        self.learner.cells[: self.n_cells] = state["cells"]
        self.learner.metric[:] = state["metric"]
        self.learner.schedule[:] = state["schedule"]
        self._spread = np.array(state["spread"])
        self.diagram[: self.n_cells] = state["diagram"]

    def _split(self) -> None:
        cells = self.learner.cells
        shape = (self.n_cells, cells.shape[1] - 1)
        noise = self._rng.normal(scale=self.config.perturbation, size=shape)
        annealing.split(cells, self.n_cells, noise @ self._spread.T)
        self.n_cells *= 2

    def _begin_level(self) -> None:
        schedule = self.learner.schedule
        schedule[SAMPLES] = 0.0
        schedule[SAMPLES_NEEDED] = max(
            self.config.samples_per_level, self.config.samples_per_cell * self.n_cells
        )
        self._draw()

    def _draw(self) -> None:
        rows = quadratic_diagram(self.learner.metric, self.codevectors)
        self.diagram[: self.n_cells] = rows
