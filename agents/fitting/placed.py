"""Two partitions that stay for some fits, and the rows of a memory that are assigned to them.

Only rows that have come since the last fit are assigned to cells, and added to the moments of the
regressions, which stay as long as the cells.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl import metric
from oda_rl._types import FloatArray
from oda_rl.agents.base.memory import ACTION, GOES_ON, MARK
from oda_rl.agents.fitting.action_codevectors import Near, Weights
from oda_rl.agents.fitting.cells import (
    Assigned,
    Cells,
    Experience,
    assign_three,
    finer,
    place_cells,
)
from oda_rl.agents.fitting.regression import add_moments
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.files.schema import Member, real

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


class Moments(NamedTuple):
    """Moments of regressions, which do not depend on targets."""

    counts: FloatArray
    """Weights of each action in each of the policy's cells, shape (K, A)."""
    coarse: FloatArray
    """Upper triangles of sums of w z zᵀ, where z is a one and the point less the cell's codevector,
    shape (K, 1 + d, 1 + d)."""
    fine: FloatArray
    """The same in the finer cells, shape (F, 1 + d, 1 + d)."""


class Rows(NamedTuple):
    """Rows of a memory in both partitions."""

    coarse: Assigned
    """In the policy's cells."""
    near: Near
    """The three nearest finer cells, shape (n, 3)."""
    weights: Weights
    """Their weights, shape (n, 3)."""
    moments: Moments


class Placed:
    """Both partitions, and the rows that have been assigned.

    Parameters
    ----------
    at, fine : Cells
        The policy's cells and the baseline's, in one metric.
    anew : bool
        Whether nothing has been fitted in them.
    """

    def __init__(self, at: Cells, fine: Cells, anew: bool) -> None:
        self.at, self.fine, self.anew = at, fine, anew
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
        """Assign all rows anew from now on."""
        self._known: list[npt.NDArray[Any]] = []  # points, nearest cells and weights of rows
        self._moments: Moments | None = None
        self._n_added = 0  # rows that the moments have

    def assign(self, seen: Experience, settled: int) -> Rows:
        """Assign the rows that are new.

        Parameters
        ----------
        seen : Experience
            n rows, of which those assigned before are the first ones.
        settled : int
            Number of first rows that will not change; the others will be assigned again.
        """
        n = len(seen.observations)
        new = seen.observations[len(self._known[0]) if self._known else 0 :]
        found: list[npt.NDArray[Any]]
        found = [*assign_three(new, self.at), *assign_three(new, self.fine)[1:]]
        if self._known:
            found = [np.concatenate(pair) for pair in zip(self._known, found, strict=True)]
        self._known = [own[:settled] for own in found]
        points, cells, weights, near, near_weights = found
        labels = np.repeat(seen.steps[:, ACTION, None].astype(np.int16), 3, axis=1)
        coarse = Assigned(points, cells, weights, labels, seen.steps)
        moments = self._moments or self._no_moments(seen.n_actions)
        self._add(moments, coarse, near, near_weights, slice(self._n_added, settled))
        self._moments, self._n_added = moments, settled
        moments = Moments(*(own.copy() for own in moments))
        self._add(moments, coarse, near, near_weights, slice(settled, n))
        return Rows(coarse, near, near_weights, moments)

    def _no_moments(self, n_actions: int) -> Moments:
        k, f, size = len(self.at.codevectors), len(self.fine.codevectors), 1 + len(self.at.origin)
        zeros = np.zeros
        return Moments(zeros((k, n_actions)), zeros((k, size, size)), zeros((f, size, size)))

    def _add(
        self, moments: Moments, own: Assigned, near: Near, near_weights: Weights, rows: slice
    ) -> None:
        own = Assigned(*(array[rows] for array in own))  # type: ignore[arg-type]
        going = own.steps[:, MARK] == GOES_ON
        n_actions = moments.counts.shape[1]
        counted = own.cells[going].astype(np.int64) * n_actions + own.labels[going]
        added = own.weights[going].ravel().astype(np.float64)
        np.add.at(moments.counts.ravel(), counted.ravel(), added)
        coarse, room = own._replace(labels=np.zeros_like(own.labels)), np.empty(len(self.at.origin))
        fine = coarse._replace(cells=near[rows], weights=near_weights[rows])
        add_moments(*coarse, self.at.codevectors, moments.coarse, room)
        add_moments(*fine, self.fine.codevectors, moments.fine, room)

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
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> "Placed":
        """Take over what :attr:`arrays` had."""
        own = {name: np.array(array) for name, array in arrays.items()}
        units = metric.Units(own["scale"], own.get("whitening"))
        at = Cells(own["origin"], units, own["transform"], own["codevectors"], float(own["width"]))
        fine = at._replace(codevectors=own["finer"], width=float(own["finer_width"]))
        return cls(at, fine, anew=False)
