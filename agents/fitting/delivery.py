"""What a fit leaves behind: a policy in the observation's units, values, a metric."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.memory import GOES_ON, MARK
from oda_rl.agents.fitting.placement import Assigned, Cells, Experience
from oda_rl.agents.policies.cells import CellPolicy, CodevectorPolicy
from oda_rl.diagram import ordered

Targets = npt.NDArray[Any]  # of single precision, or double

_METRIC_SAMPLE = 20_000  # steps


class Fit(NamedTuple):
    """What a fit leaves behind."""

    policy: CellPolicy
    values: FloatArray
    """Value of each row, to begin the next fit with; shape (n,)."""
    metric: FloatArray | None
    """For the next fit: shape (d, d), in standard deviations of the observation."""
    scale: FloatArray
    """Inverse standard deviations, shape (d,)."""


class Iterated(NamedTuple):
    """What sweeps leave behind: values of rows and λ-returns of steps, (n,), and the models."""

    values: FloatArray
    targets: Targets
    theta: FloatArray
    """A value for each action, and slopes, in each cell: shape (K, A + d)."""
    offsets: FloatArray


class Places(NamedTuple):
    """Where cells lie, in the observation's units."""

    diagram: FloatArray
    """Shape (K, 1 + d)."""
    codevectors: FloatArray
    """Shape (K, d)."""

    @classmethod
    @one_thread()
    def of(cls, at: Cells) -> "Places":
        """Return the places of a fit's cells."""
        transform, codevectors = at.transform, at.codevectors
        diagram = np.column_stack([(codevectors**2).sum(axis=1), -2.0 * codevectors @ transform])
        own = (np.linalg.pinv(transform) @ codevectors.T).T + at.origin
        return cls(ordered(np.ascontiguousarray(diagram)), own)


def policy_of(at: Cells, places: Places, parts: FloatArray | None, found: Iterated) -> CellPolicy:
    """Return a fit's policy, with models in the observation's units.

    ``places`` are those of ``at``; ``parts``, shape (K, A, p), are where actions are continuous.
    """
    n_actions = found.theta.shape[1] - len(at.origin)
    values, slopes = found.theta[:, :n_actions], found.theta[:, n_actions:] @ at.transform
    models = np.ascontiguousarray(np.column_stack([found.offsets, slopes, values]))
    policy = CellPolicy(at.origin, places.diagram, models, at.width, places.codevectors)
    return policy if parts is None else CodevectorPolicy(**vars(policy), parts=parts)


def averaged_metric(
    seen: Experience,
    rows: Assigned,
    at: Cells,
    found: Iterated,
    learned: FloatArray | None,
    rng: np.random.Generator,
) -> FloatArray | None:
    """Return the metric that the gradients of a fit make of the one before, shape (d, d)."""
    n = len(found.values)
    drawn: IntArray | slice = slice(n)
    points = seen.observations[:n]
    if n > _METRIC_SAMPLE:
        drawn = rng.integers(n, size=_METRIC_SAMPLE)
        points = seen.observations.take(drawn, axis=0)
    groups = rows.cells[drawn, 0].astype(np.int64) * seen.n_actions + rows.labels[drawn, 0]
    groups[seen.steps[drawn, MARK] != GOES_ON] = -1
    outer = at.units.outer(
        points - at.origin,
        groups,
        found.targets[drawn].astype(np.float64, copy=False),
    )
    return at.units.average(learned, outer)
