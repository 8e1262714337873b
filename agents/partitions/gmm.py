"""A streaming Gaussian mixture of the visited states."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from oda_rl._types import Array, FloatArray
from oda_rl.agents.base.settings import Checked, Range, at_least
from oda_rl.agents.partitions.base import BuiltIn, Lineage
from oda_rl.files.schema import Sizes, real, require
from oda_rl.mixtures import learning
from oda_rl.mixtures.kernels import Progress, Rules

_RATE, _MIN_RATE = 0.5, 0.005  # at which a component follows its states
_VARIANCE_RATE, _MIN_VARIANCE = 0.05, 1e-3
_MAX_PRECISION = 1e12  # of no effect while means learn: only distances count

_FEW = Range("at most 4096", lambda n_components: n_components <= 4096)


@dataclass(frozen=True)
class GMMSettings(Checked):
    """Settings of :class:`oda_rl.agents.GMMPartition`, each with its default."""

    mixture_components: Annotated[int, at_least(1), _FEW] = 16
    """Gaussian mixture: components, on the grid nearest to a square; at most 4096."""

    mixture_samples_per_cell: Annotated[int, at_least(1)] = 50
    """Gaussian mixture: samples for each component until it rests."""


class GMMPartition(BuiltIn):
    """Components of a Gaussian mixture; codevectors are their means.

    Values are blended by responsibilities, and a cell is where its component's is greatest. The
    agent draws the logarithms of precisions together: they are 0.15 of these and 0.85 of their
    mean, in standard deviations of all states.

    The components stand on a periodic grid and learn as those of
    :class:`oda_rl.SGDGaussianMixture` with ``forgetting``, for the states that the agent visits
    are correlated and drift: first with their neighbours, then alone. They keep their numbers,
    except that the one that is needed least is moved now and then to where states are far from
    theirs; its values are those of the cell that it comes to divide. Weights are shares of the
    samples for which a mean was the nearest, and precisions are of these samples. After
    ``mixture_samples_per_cell`` samples for each component the mixture rests.

    ``settings`` are those of :class:`GMMSettings`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cells = GMMPartition(mixture_components=9).prepare(2, rng)
    >>> cells.start(rng.normal(size=(500, 2)))
    >>> cells.observe(rng.normal(size=(100, 2))).shape
    (9, 9)
    """

    Settings = GMMSettings
    settings: GMMSettings
    _shown: Annotated[FloatArray, real("1", "[0, inf)")]
    _counts: Annotated[FloatArray, real("K", "[1, inf)")]
    _variances: Annotated[FloatArray, real("K, d", "(0, inf)")]
    _control: Annotated[FloatArray, real("controls")]  # this and the next are of the mixture
    _grid: Annotated[FloatArray, real("K, K", "[0, inf)")]
    _errors: Annotated[FloatArray, real("K", "[0, inf)")]
    _savings: Annotated[FloatArray, real("K", "[0, inf)")]

    def _allocate(self, n_features: int) -> None:
        n = self.capacity = self.settings.mixture_components
        width = sum(learning.near_square(n)) / 4.0
        mixture = self._mixture = learning.new_mixture(
            np.zeros((n, n_features)), "tied_spherical", _MAX_PRECISION, width, _RATE
        )
        self.placed, self._grid = mixture.means, mixture.grid
        self._errors, self._savings = mixture.errors, mixture.savings
        self._shown, self._counts = np.zeros(1), np.ones(n)
        self._variances = np.ones((n, n_features))
        self._rules = Rules(
            rate=_RATE,
            min_rate=_MIN_RATE,
            period=n,
            max_precision=_MAX_PRECISION,
            periods=-1,
            tempered=0,
            memory=1.0 - _MIN_RATE / _RATE,
        )

    def start(self, observations: FloatArray) -> None:
        super().start(observations)
        self.placed[:] = self._rng.normal(size=self.placed.shape)

    def observe(self, observations: FloatArray) -> Lineage | None:
        samples = self.settings.mixture_samples_per_cell * self.capacity
        n = min(len(observations), int(samples - self._shown[0]))
        if n <= 0:
            return None
        self._shown += n
        progress, points = Progress(self._mixture.progress), self.standardised(observations[:n])
        lineage = np.eye(self.capacity)
        for row in range(n):  # one by one: each may move a component
            moved, freed, crowded = progress.moved, int(progress.freed), int(progress.crowded)
            learning.learn(self._mixture, self._rules, points, np.array([row]), 1, plain=False)
            if progress.moved > moved:
                lineage[freed] = lineage[crowded]
                self._counts[[freed, crowded]] = max(0.5 * self._counts[crowded], 1.0)
                self._variances[freed] = self._variances[crowded]
            squares = (points[row] - self.placed) ** 2
            winner = squares.sum(axis=1).argmin()
            self._counts[winner] += 1.0
            step = max(1.0 / self._counts[winner], _VARIANCE_RATE)
            variances = self._variances[winner] + step * (squares[winner] - self._variances[winner])
            self._variances[winner] = np.maximum(variances, _MIN_VARIANCE)
        return lineage

    @property  # type: ignore[no-redef]
    def _control(self) -> FloatArray:
        return self._mixture.progress.view(np.float64)

    @property
    def weights(self) -> FloatArray:
        """Weights of the components, shape (n_cells,); they sum to 1."""
        return np.asarray(self._counts / self._counts.sum())

    @property
    def precisions(self) -> FloatArray:
        """Inverse variances of the components, in the observation's units, shape (n_cells, d)."""
        return np.asarray(1.0 / (self._variances * self.units[1] ** 2))

    def _sizes(self) -> Sizes:
        return {**super()._sizes(), "controls": len(Progress.kinds)}

    def restore(self, state: Mapping[str, Array]) -> None:
        super().restore(state)
        progress, n = Progress(self._mixture.progress), self.n_cells
        Progress.check_records("control", progress.record, {"components": n})
        freed, crowded = progress.freed, progress.crowded
        right = freed == int(freed) and crowded == int(crowded)
        require(right and (crowded < 0.0 or freed >= 0.0), f"control has {freed} for {crowded}")
