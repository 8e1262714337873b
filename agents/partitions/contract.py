"""What an agent needs of a partition."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from oda_rl._types import Array, FloatArray
from oda_rl.agents.partitions.schedule import Learner

Lineage = FloatArray
"""Shape (new cells, old cells): row k says with which weights (summing to 1) new cell k comes from
the old ones. An old cell in several rows was split; several old cells in one row were merged."""


class Scaling(NamedTuple):
    """How an agent measures its observations at present."""

    transform: FloatArray
    """Shape (d, d): distances are Euclidean in ``transform @ point``, of total variance 2."""
    origin: FloatArray
    """Shape (d,): points are observations minus it. It never changes."""
    deviations: FloatArray
    """Standard deviation of each component in the latest transitions, shape (d,)."""


class Partition(Protocol):
    """A partition of the observation space that may change while the agent learns.

    Points are observations in their own units, flattened, shape (d,), minus a fixed origin that the
    agent chose. A partition may have a method ``prepare(n_features, rng)``, in which it makes its
    arrays: an agent that is made with it calls that with d and with a generator.
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

    def start(self, scaling: Scaling) -> None:
        """Place the first cells, at the beginning and when the agent starts again from nothing."""

    @property
    def codevectors(self) -> FloatArray:
        """A representative point of each cell, shape (n_cells, d)."""

    def observe(self, point: FloatArray) -> Lineage | None:
        """Learn from one point; return the lineage if cells were renumbered, split or merged."""

    def reshape(self) -> Lineage:
        """Reshape the cells when a compiled learner says that they are due."""

    def rescale(self, scaling: Scaling) -> None:
        """Take over a new scaling; the codevectors stay where they are."""

    def state(self) -> Mapping[str, Array]:
        """Return all that has to be saved, as arrays."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take over what ``state`` returned."""
