"""Protocol of partitions, which place the cells of an online agent."""

from collections.abc import Mapping
from dataclasses import fields
from inspect import Parameter, Signature
from typing import Annotated, Any, ClassVar, Protocol, Self

import numpy as np

from oda_rl import metric
from oda_rl._types import Array, FloatArray
from oda_rl.agents.base.settings import Checked, made_settings
from oda_rl.files.schema import Sizes, check, members_of, real

Lineage = FloatArray
"""Shape (new cells, old cells): row k says with which weights (summing to 1) new cell k comes from
the old ones. An old cell in several rows was split; several old cells in one row were merged."""


class Partition(Protocol):
    """Places the cells of an agent while it learns.

    A cell is a codevector; how values are blended between neighbouring cells, and in which metric,
    is the agent's part. A mixture also has ``weights``, positive, shape (n_cells,): its cells are
    where ``π_k exp(-|x - m_k|²/T)`` is greatest. With positive ``precisions``, shape (n_cells, d),
    in the observation's units, these weight the squares. A partition may have a method
    ``prepare(n_features, rng)``, in which it makes its arrays: an agent that is made with it calls
    that with d and with a generator. One that anneals has a ``temperature``, for the history.
    """

    capacity: int  #: Maximum number of cells.

    @property
    def codevectors(self) -> FloatArray:
        """A representative observation of each cell, shape (n_cells, d)."""

    def start(self, observations: FloatArray) -> None:
        """Place the first cells by the observations of random play, shape (n, d)."""

    def observe(self, observations: FloatArray) -> Lineage | None:
        """Learn from the observations of the last 100 steps, shape (n, d).

        Returns the lineage if codevectors have moved, been made or removed; else None.
        """

    def state(self) -> Mapping[str, Array]:
        """Return all that has to be saved, as arrays."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take over what ``state`` returned."""


class BuiltIn:
    """Base of the partitions of this package, which are made of settings alone.

    They work on standardised observations, (o - mean) / deviations of random play.

    Parameters
    ----------
    **settings
        Fields of the class ``Settings``.
    """

    Settings: ClassVar[type[Checked]]
    settings: Any
    capacity: int
    # All arrays that are saved, here and in subclasses, have their schema of a file.
    units: Annotated[FloatArray, real("2, d")]  # mean and standard deviations of random play
    placed: Annotated[FloatArray, real("K, d")]  # codevectors as standardised observations

    def __init_subclass__(cls) -> None:
        own, kind = fields(cls.Settings), Parameter.KEYWORD_ONLY
        shown = [Parameter(one.name, kind, default=one.default) for one in own]
        cls.__signature__ = Signature(shown)  # type: ignore[attr-defined]

    def __init__(self, *unnamed: Any, **settings: Any) -> None:
        kind = type(self).__name__
        if unnamed:
            raise TypeError(f"{kind} is given {unnamed}: its settings must be given by name")
        self.settings = made_settings(kind, self.Settings, settings)

    def prepare(self, n_features: int, rng: np.random.Generator) -> Self:
        self.units = np.array([np.zeros(n_features), np.ones(n_features)])
        self._rng = rng
        self._allocate(n_features)
        return self

    def _allocate(self, n_features: int) -> None:
        """Make the arrays, by the settings."""
        raise NotImplementedError

    @property
    def codevectors(self) -> FloatArray:
        """A representative observation of each cell, shape (n_cells, d)."""
        return np.asarray(self.units[0] + self.units[1] * self.placed)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.placed)

    def start(self, observations: FloatArray) -> None:
        """Take the units from random play; see :class:`Partition`."""
        mean, covariance = metric.covariance(observations)
        scale = metric.scales(mean, covariance)
        self.units[:] = mean, 1.0 / np.where(scale > 0.0, scale, 1.0)

    def observe(self, observations: FloatArray) -> Lineage | None:
        """Learn from the observations of the last steps; see :class:`Partition`."""
        return None

    def standardised(self, observations: FloatArray) -> FloatArray:
        """Return observations in units of random play."""
        return np.asarray((observations - self.units[0]) / self.units[1])

    def state(self) -> dict[str, Array]:
        return {name.strip("_"): getattr(self, name) for name in members_of(type(self))}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take over what :meth:`state` returned, or raise InvalidFileError."""
        schema = {name.strip("_"): member for name, member in members_of(type(self)).items()}
        check(state, schema, {"d": self.units.shape[1], **self._sizes()})
        for name, array in self.state().items():
            array[:] = state[name]

    def _sizes(self) -> Sizes:
        """Return the sizes of arrays that follow from the settings."""
        return {"K": self.n_cells}
