"""Two partitions that stay for some fits, and what is known of a memory's rows in them.

Fits follow each other closely, and most rows were there before. So only rows that have come since
are assigned to cells, and added to what the regressions need, which stays as long as cells do.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl import metric
from oda_rl._compile import compiled
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.memory import GOES_ON, MARK
from oda_rl.agents.fitting.action_codevectors import Labels, Near, Weights
from oda_rl.agents.fitting.blending import add_squares, new_points, origins_of
from oda_rl.agents.fitting.delivery import Places
from oda_rl.agents.fitting.nearest import Search
from oda_rl.agents.fitting.placement import (
    Assigned,
    Cells,
    Experience,
    finer,
    labels_of,
    place_cells,
    write_cells,
)
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.files.schema import Member, real, within

SCHEMA: dict[str, Member] = {
    "origin": real("d"),
    "scale": real("d", "[0, inf)"),
    "whitening": real("d, d", optional=True),
    "transform": real("d, d"),
    "codevectors": real("C, d"),
    "width": real("", "(0, inf)"),
    "finer": real("F, d"),
    "finer_width": real("", "(0, inf)"),
}
"""What a file has of :class:`Placed`."""

NOWHERE = -1  # where a row was that was in no fit
_SLACK = 0.5  # more rows that there is room for, of those that are needed
_KEPT = "_points", "_cells", "_weights", "_finer", "_finer_weights"  # of rows


@compiled
def add_counts(
    cells: Near, weights: Weights, labels: Labels, steps: FloatArray, counts: FloatArray
) -> None:
    """Add the weights of steps to those of their actions in each cell, shape (K, A)."""
    for i in range(cells.shape[0]):
        if steps[i, MARK] == GOES_ON:
            for t in range(cells.shape[1]):
                counts[cells[i, t], labels[i, t]] += weights[i, t]


class Moments(NamedTuple):
    """What regressions need of rows, whatever targets they have."""

    counts: FloatArray
    """Weights of each action in each of the policy's cells, shape (K, A)."""
    coarse: FloatArray
    """Sums of w z zᵀ, where z is a one and the point less the cell's codevector, without regard to
    actions: shape (K, 1 + d, 1 + d)."""
    fine: FloatArray
    """In the finer cells, shape (F, 1 + d, 1 + d)."""


class Rows(NamedTuple):
    """Rows of a memory by both partitions."""

    coarse: Assigned
    """By the policy's cells."""
    near: Near
    """The three nearest finer cells, shape (n, 3)."""
    weights: Weights
    """Of those, shape (n, 3)."""
    moments: Moments


class Since(NamedTuple):
    """How rows hang together with those of the last fit."""

    settled: int
    """How many of the first will stay what they are."""
    were: IntArray
    """Which rows the last ones were then, or ``NOWHERE``, shape (m,)."""


class Placed:
    """Where both partitions lie, and rows that have been assigned.

    Parameters
    ----------
    at, fine : Cells
        The policy's cells and the baseline's, in one metric.
    anew : bool
        Whether nothing has been fitted in them.
    """

    def __init__(self, at: Cells, fine: Cells, anew: bool) -> None:
        self.at, self.fine, self.anew = at, fine, anew
        self.places = Places.of(at)
        self._coarse, self._fine = (Search.among(own.codevectors, own.width) for own in (at, fine))
        self._origins, self._finer_origins = (origins_of(own.codevectors) for own in (at, fine))
        self.forget_rows()

    @classmethod
    def among(
        cls,
        seen: Experience,
        learned: FloatArray | None,
        config: FittedQConfig,
        rng: np.random.Generator,
    ) -> "Placed":
        """Place cells among trajectories; ``learned`` is a metric, shape (d, d), or None."""
        at = place_cells(seen, learned, config, rng)
        return cls(at, finer(seen, at, rng), anew=True)

    def forget_rows(self) -> None:
        """Take all rows for new ones from now on."""
        d = len(self.at.origin)
        self._settled = self._n = 0
        self._points = new_points(0, d)
        self._cells, self._finer = np.empty((2, 0, 3), dtype=np.uint16)
        self._weights, self._finer_weights = np.empty((2, 0, 3), dtype=np.float32)
        self._labels: Labels = np.empty((0, 3), dtype=np.int16)
        self._moments: Moments | None = None

    def take_room(self, other: "Placed") -> None:
        """Write what is known of rows where another has done so, that is not needed any more."""
        for name in (*_KEPT, "_labels"):
            setattr(self, name, getattr(other, name))

    def assign(self, seen: Experience, since: Since) -> Rows:
        """Return all rows by their cells."""
        n, begin, settled = len(seen.observations), self._settled, since.settled
        assert begin <= settled <= n  # else compiled code would go by what is in no row
        self._make_room(n)
        new = self._move(n, since.were)
        partitions = (
            (self._coarse, self._cells, self._weights),
            (self._fine, self._finer, self._finer_weights),
        )
        write_cells(seen, new, self.at, self._points, partitions)
        self._labels[begin:n] = labels_of(seen.steps[begin:])
        moments = self._moments or self._no_moments(seen.n_actions)
        self._add(moments, seen.steps, slice(begin, settled))
        self._moments, self._settled, self._n = moments, settled, n
        moments = Moments(*(one.copy() for one in moments))
        self._add(moments, seen.steps, slice(settled, n))
        own = Assigned(
            self._points[:n], self._cells[:n], self._weights[:n], self._labels[:n], seen.steps
        )
        return Rows(own, self._finer[:n], self._finer_weights[:n], moments)

    def _move(self, n: int, were: IntArray) -> IntArray:
        """Put what is known of rows to where they are now; return those of which nothing is."""
        first = n - len(were)
        were = np.where(were < self._n, were, NOWHERE)  # all have been forgotten, perhaps
        if (were != NOWHERE).any():
            for name in _KEPT:
                array = getattr(self, name)
                array[first:n] = array.take(were, axis=0, mode="clip")
        new = first + (were == NOWHERE).nonzero()[0]
        return np.concatenate([np.arange(self._settled, first), new])

    def _make_room(self, n: int) -> None:
        if n <= len(self._points):
            return
        room, d = int((1.0 + _SLACK) * n), len(self.at.origin)
        for name in (*_KEPT, "_labels"):
            old = getattr(self, name)
            points = name == "_points"
            new = new_points(room, d) if points else np.empty((room, old.shape[1]), old.dtype)
            new[: self._n] = old[: self._n]
            setattr(self, name, new)

    def _no_moments(self, n_actions: int) -> Moments:
        d = len(self.at.origin)
        k, f = len(self.at.codevectors), len(self.fine.codevectors)
        square = 1 + d, 1 + d
        return Moments(np.zeros((k, n_actions)), np.zeros((k, *square)), np.zeros((f, *square)))

    def _add(self, moments: Moments, steps: FloatArray, rows: slice) -> None:
        """Add rows to moments."""
        own, steps = self._labels[rows], steps[rows]
        add_counts(self._cells[rows], self._weights[rows], own, steps, moments.counts)
        room = np.empty((2, self._points.shape[1]))
        for origins, cells, weights, to in (
            (self._origins, self._cells, self._weights, moments.coarse),
            (self._finer_origins, self._finer, self._finer_weights, moments.fine),
        ):
            near = self._points[rows], cells[rows], weights[rows]
            add_squares(*near, steps, origins, to, room)

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Where cells lie, to be saved: :data:`SCHEMA`."""
        at, fine = self.at, self.fine
        whitening = at.units.whitening
        return {
            "origin": at.origin,
            "scale": at.units.scale,
            "transform": at.transform,
            "codevectors": at.codevectors,
            "width": np.array(at.width),
            "finer": fine.codevectors,
            "finer_width": np.array(fine.width),
            **({} if whitening is None else {"whitening": whitening}),
        }

    @classmethod
    def read(cls, arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> "Placed | None":
        """Return what :attr:`arrays` had, under names with a prefix; None if that was nothing."""
        own = {name: np.array(array) for name, array in within(arrays, prefix).items()}
        if not own:
            return None
        units = metric.Units(own["scale"], own.get("whitening"))
        at = Cells(own["origin"], units, own["transform"], own["codevectors"], float(own["width"]))
        fine = at._replace(codevectors=own["finer"], width=float(own["finer_width"]))
        return cls(at, fine, anew=False)
