"""Voronoi cells of the means of a streaming Gaussian mixture over the visited states."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Self

import numpy as np

from oda_rl._types import Array, FloatArray
from oda_rl.agents.base.settings import Checked, Range, at_least, within
from oda_rl.agents.partitions.base import (
    INTERPRETED,
    RESTING,
    BuiltIn,
    Lineage,
    Scaling,
    Schedule,
    check_kind,
    interpreted_learner,
)
from oda_rl.divergences import quadratic_diagram
from oda_rl.files.schema import Member, Sizes, real, require
from oda_rl.mixtures import learning
from oda_rl.mixtures.state import Mixture, Progress, Rules

_RATE = 0.5
_MAX_PRECISION = 1e12  # of no effect: only distances count

_FEW = Range("at most 4096", lambda n_components: n_components <= 4096)


@dataclass(frozen=True)
class GMMSettings(Checked):
    """Settings of :class:`oda_rl.agents.GMMPartition`, each with its default."""

    mixture_components: Annotated[int, at_least(1), _FEW] = 16
    """Of a Gaussian mixture: components, on the grid nearest to a square; at most 4096."""

    mixture_forgetting: Annotated[float, within("(0, 1)")] = 0.005
    """Of a mixture: least rate at which a component follows its states, in (0, 1)."""

    mixture_samples_per_cell: Annotated[int, at_least(1)] = 50
    """Of a mixture: samples for each component until it rests."""


class GMMPartition(BuiltIn):
    """Voronoi cells of the means of a Gaussian mixture with equal spherical covariances.

    A state belongs to the nearest mean in the agent's metric: cells have no shapes of their own.
    The components stand on a periodic grid and learn as those of
    :class:`oda_rl.SGDGaussianMixture` with ``forgetting``, for the states that the agent visits
    are correlated and drift: first with their neighbours, then alone. They keep their numbers,
    except that the one that is needed least is moved now and then to where states are far from
    theirs; its Q-values are those of the cell that it comes to divide. After
    ``mixture_samples_per_cell`` samples for each component the mixture rests.

    Parameters
    ----------
    **settings
        Of :class:`GMMSettings`.

    Attributes
    ----------
    n_cells : int
        Number of components.
    codevectors : ndarray, shape (n_cells, d)
        Means, relative to the agent's origin.

    References
    ----------
    A. Gepperth, B. Pfülb, "Gradient-based training of Gaussian mixture models for high-dimensional
    streaming data", Neural Processing Letters, 2021.

    Examples
    --------
    >>> cells = GMMPartition(mixture_components=9).prepare(2, np.random.default_rng(0))
    >>> cells.start(Scaling(np.eye(2), origin=np.zeros(2), deviations=np.ones(2)))
    >>> cells.n_cells, cells.active
    (9, True)
    """

    Settings = GMMSettings
    schema: ClassVar[dict[str, Member]] = {
        "codevectors": real("K, d"),
        "diagram": real("K, 1+d"),
        "transform": real("d, d"),
        "inverse": real("d, d"),
        "control": real("controls"),
        "means": real("K, d"),
        "weights": real("K", "[0, inf)"),
        "grid": real("K, K", "[0, inf)"),
        "errors": real("K", "[0, inf)"),
        "savings": real("K", "[0, inf)"),
        "schedule": Member(Schedule, "1"),
    }
    settings: GMMSettings

    def prepare(self, n_features: int, rng: np.random.Generator) -> Self:
        n = self.n_cells = self.settings.mixture_components
        self.diagram = np.zeros((n, 1 + n_features))
        self.learner = interpreted_learner(n_features)
        self._schedule = Schedule(self.learner.schedule)
        self.codevectors: FloatArray = np.zeros((n, n_features))
        self._transform: FloatArray = np.eye(n_features)
        self._inverse: FloatArray = np.eye(n_features)
        self._samples = self.settings.mixture_samples_per_cell * n
        forgetting = min(self.settings.mixture_forgetting, _RATE)
        self._rules = Rules(
            rate=_RATE,
            min_rate=forgetting,
            period=n,
            max_precision=_MAX_PRECISION,
            periods=-1,
            tempered=0,
            memory=1.0 - forgetting / _RATE,
        )
        vars(self).pop("_mixture", None)  # of another agent
        self._rng = rng
        return self

    @cached_property
    def _mixture(self) -> Mixture:
        """Made when it is needed first: before, it is known whether a file has one of that size."""
        return self._new_mixture()

    @property
    def active(self) -> bool:
        """Whether the mixture still learns."""
        return self._schedule.kind != RESTING

    def start(self, scaling: Scaling) -> None:
        """Begin with means at random, as far apart as the states of the random play."""
        self.codevectors[:] = scaling.deviations * self._rng.normal(size=self.codevectors.shape)
        self._mixture = self._new_mixture()
        self._schedule.kind, self._schedule.samples = INTERPRETED, 0
        self.rescale(scaling)

    def rescale(self, scaling: Scaling) -> None:
        self._transform[:] = scaling.transform
        self._inverse[:] = np.linalg.pinv(scaling.transform)
        self._mixture.means[:] = self.codevectors @ self._transform.T
        self._draw()

    def observe(self, point: FloatArray) -> Lineage | None:
        progress, schedule = Progress(self._mixture.progress), self._schedule
        schedule.samples += 1
        if schedule.samples >= self._samples:
            schedule.kind = RESTING
        width, moved = progress.width, progress.moved
        freed, crowded = int(progress.freed), int(progress.crowded)
        order = np.zeros(1, dtype=np.int64)
        points = (self._transform @ point)[None]
        learning.learn(self._mixture, self._rules, points, order, 1, plain=False)
        self.codevectors[:] = self._mixture.means @ self._inverse.T
        self._draw()
        if progress.moved > moved:
            lineage = np.eye(self.n_cells)
            lineage[freed] = lineage[crowded]
            return lineage
        narrower = progress.width < width  # a stage ends, and the metric is learned anew
        return np.eye(self.n_cells) if narrower or not self.active else None

    def _arrays(self) -> dict[str, Array]:
        names = ("means", "weights", "grid", "errors", "savings")
        return {
            "codevectors": self.codevectors,
            "diagram": self.diagram,
            "transform": self._transform,
            "inverse": self._inverse,
            "control": self._mixture.progress.view(np.float64),
            "schedule": self._schedule.record,
            **{name: getattr(self._mixture, name) for name in names},
        }

    def _sizes(self) -> Sizes:
        return {**super()._sizes(), "controls": len(Progress.kinds)}

    def restore(self, state: Mapping[str, Array]) -> None:
        super().restore(state)
        progress, n = Progress(self._mixture.progress), self.n_cells
        Progress.check_records("control", progress.record, {"components": n})
        freed, crowded = progress.freed, progress.crowded
        right = freed == int(freed) and crowded == int(crowded)
        require(right and (crowded < 0.0 or freed >= 0.0), f"control has {freed} for {crowded}")
        check_kind(self._schedule, INTERPRETED)

    def _new_mixture(self) -> Mixture:
        width = sum(learning.near_square(self.n_cells)) / 4.0
        return learning.new_mixture(
            np.zeros_like(self.codevectors), "tied_spherical", _MAX_PRECISION, width, _RATE
        )

    def _draw(self) -> None:
        metric = self._transform.T @ self._transform
        self.diagram[:] = quadratic_diagram(metric, self.codevectors)
