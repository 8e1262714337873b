"""A self-organising map as a scikit-learn estimator."""

import math
from dataclasses import KW_ONLY, field
from numbers import Integral
from typing import Annotated

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import TakesMissing, check_columns, fitted_points
from oda_rl.files.estimators import COUNT, POSITIVE, SAMPLES, Flag, Seed, estimator, one_of, within
from oda_rl.files.schema import Several, Sizes, check_fitted, require, whole
from oda_rl.quantization.kernels import Grid, learn_map, nearest
from oda_rl.quantization.vq import OnlineQuantizer, checked_codevectors
from oda_rl.samples import Weighted, filled, means_of, observed_shares

_MAX_CELLS = 1_000_000
_ROUNDED = 1e-9  # steps on the map
_STREAM_SAMPLES = 100  # for each codevector, over which a stream's rate and width fall


@estimator
class SOM(TakesMissing, OnlineQuantizer):
    """Self-organising map: codevectors on a grid that move together with their neighbours.

    Rate and width of the neighbourhood fall exponentially from their first values to their last.
    Values may be missing (NaN), but no sample may lack all, nor, at first, any feature.

    Parameters
    ----------
    shape : int or tuple of int, default=8
        Codevectors of a chain, or rows and columns of a grid, each ≥ 1.
    topology : {"rectangular", "hexagonal"}, default="rectangular"
        Kind of grid; in a hexagonal one odd rows are shifted by half a column.
    periodic : bool, default=False
        Whether opposite sides of the grid are neighbours: a ring, or a torus.
    max_iter : int, default=10
        Passes of ``fit`` over the samples, ≥ 1, each in a new random order.
    learning_rate : float, default=0.5
        First rate, in (0, 1].
    final_learning_rate : float, default=0.01
        Last rate, in (0, 1].
    width : float or None, default=None
        First standard deviation of the neighbourhood, in grid steps; None: half of the longest
        side.
    final_width : float, default=0.5
        Last standard deviation; positive.
    decay_samples : int or None, default=None
        Samples during which rate and width fall; afterwards they stay. None: all of ``fit``, or 100
        for each codevector in ``partial_fit``.
    init : "pca", "random" or array-like, default="pca"
        Where the codevectors start: a rectangle in the plane of the first two principal components,
        random samples, or an array of shape (n_codevectors, n_features), row after row.
    random_state : int, RandomState instance or None, default=None
        Draws a random start and the order of the samples.

    Attributes
    ----------
    cluster_centers_ : ndarray, shape (n_codevectors, n_features)
        The codevectors, row after row of the grid.
    hits_ : ndarray, shape (n_codevectors,)
        Number of samples that each has won while learning.
    labels_, inertia_, n_iter_, history_
        As for :class:`StochasticVQ`.

    References
    ----------
    T. Kohonen, "Self-organizing maps", Springer, 1995, section 3.2.

    Examples
    --------
    >>> X = np.linspace(0.0, 1.0, 200)[:, None]
    >>> chain = SOM(shape=5, random_state=0).fit(X)
    >>> float(np.ptp(np.sign(np.diff(chain.codevectors_[:, 0]))))  # neighbours stay neighbours
    0.0
    >>> chain.topographic_error(X)
    0.0
    """

    shape: Annotated[int | tuple[int, ...], COUNT, tuple, list] = 8
    _: KW_ONLY
    topology: Annotated[str, one_of("rectangular", "hexagonal")] = "rectangular"
    periodic: Flag = False
    max_iter: Annotated[int, COUNT] = 10
    learning_rate: Annotated[float, within("(0, 1]")] = 0.5
    final_learning_rate: Annotated[float, within("(0, 1]")] = 0.01
    width: Annotated[float | None, POSITIVE, None] = None
    final_width: Annotated[float, POSITIVE] = 0.5
    decay_samples: Annotated[int | None, SAMPLES, None] = None
    init: Annotated[str | npt.ArrayLike, one_of("pca", "random"), "array-like"] = "pca"
    random_state: Seed = None

    hits_: Annotated[IntArray, whole("K")] = field(init=False)
    _grid: Annotated[tuple[int, int], Several(*[whole("", "[1, inf)")] * 2)] = field(init=False)

    def _check_contents(self, sizes: Sizes, where: str) -> None:
        if check_fitted((name in vars(self) for name in self._LEARNED), where):
            n = self._grid[0] * self._grid[1]
            require(n == sizes["K"], f"{where}._grid has {n} places: it must have {sizes['K']}")

    @property
    def positions_(self) -> IntArray:
        """Row and column of each codevector, shape (n_codevectors, 2)."""
        return np.argwhere(np.ones(self._grid, dtype=np.bool_))

    def topographic_error(self, X: npt.ArrayLike) -> float:
        """Share of samples, in [0, 1], whose two nearest codevectors are not neighbours on the map.

        Neighbours differ by at most one row and one column; on a hexagonal map they are the six
        nearest places.
        """
        distances = self.transform(X)
        rows = np.arange(len(distances))
        winners = distances.argmin(axis=1)
        distances[rows, winners] = np.inf
        reach = 1.0 if self.topology == "hexagonal" else np.sqrt(2.0)
        return float((self._apart(winners, distances.argmin(axis=1)) > reach + _ROUNDED).mean())

    def quantization_error(self, X: npt.ArrayLike) -> float:
        """Mean distance of samples from the nearest codevector."""
        return float(np.sqrt(nearest(fitted_points(self, X), self.cluster_centers_)[1]).mean())

    def u_matrix(self) -> FloatArray:
        """Mean distance from the neighbours at one step on the map, shape (rows, columns).

        Its ridges are borders of clusters (Ultsch and Siemon, 1990).
        """
        check_is_fitted(self)
        codevectors, means = self.cluster_centers_, np.zeros(len(self.hits_))
        for k in range(len(means)):
            near = np.abs(self._apart(np.array([k]), np.arange(len(means))) - 1.0) < _ROUNDED
            if near.any():
                means[k] = np.linalg.norm(codevectors[near] - codevectors[k], axis=1).mean()
        return means.reshape(self._grid)

    def _apart(self, places: IntArray, others: IntArray) -> FloatArray:
        """Distance on the map of each place from another, in steps."""
        unit = np.ones(2)
        positions, lengths = self.positions_.astype(np.float64), np.array(self._grid)
        if self.topology == "hexagonal":
            positions[:, 1] += 0.5 * (positions[:, 0] % 2.0)
            unit[0] = np.sqrt(0.75)
        gaps = np.abs(positions[places] - positions[others])
        if self.periodic:
            gaps = np.minimum(gaps, lengths - gaps)
        return np.asarray(np.hypot(*(gaps * unit).T))

    def _start(self, data: Weighted, rng: np.random.RandomState) -> None:
        check_columns(self, data.points)
        data = data._replace(points=filled(data.points, means_of(*data[::2])))
        self._grid = grid_shape(self.shape)
        if self.topology == "hexagonal" and self.periodic and self._grid[0] % 2 > 0:
            raise ValueError(
                f"shape is {self.shape!r}: a periodic hexagonal map needs an even number of rows"
            )
        n = self._grid[0] * self._grid[1]
        if not isinstance(self.init, str):
            codevectors = checked_codevectors(self.init, n, data.points.shape[1])
        elif self.init == "random":
            codevectors = data.points[data.draw(n, rng)]
        else:
            codevectors = _principal_rectangle(data, *self._grid)
        self.cluster_centers_, self.hits_ = codevectors, np.zeros(n, dtype=np.int64)

    def _pass(self, points: FloatArray, order: IntArray, n_passes: int | None) -> float:
        planned = n_passes * len(order) if n_passes else _STREAM_SAMPLES * len(self.hits_)
        before = self.history_[-1][0] if self.history_ else 0
        share = np.minimum((before + np.arange(len(order))) / (self.decay_samples or planned), 1.0)
        first = self.width or max(self._grid) / 2.0
        rates = self.learning_rate * (self.final_learning_rate / self.learning_rate) ** share
        widths = first * (self.final_width / first) ** share
        observed = np.broadcast_to(np.ravel(observed_shares(points)), len(points)).copy()
        hexagonal = self.topology == "hexagonal"
        grid, pulls = Grid(*self._grid, self.periodic, hexagonal), np.empty(len(self.hits_))
        self.hits_ = self.hits_.copy()
        return learn_map(
            self.cluster_centers_, self.hits_, points, observed, order, grid, rates, widths, pulls
        )


def grid_shape(shape: int | tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a chain or a grid; ValueError if it is neither."""
    sides = (shape,) if isinstance(shape, Integral) else tuple(shape)  # type: ignore[arg-type]
    whole = all(isinstance(side, Integral) and int(side) >= 1 for side in sides)
    if not (whole and len(sides) in (1, 2) and math.prod(map(int, sides)) <= _MAX_CELLS):
        raise ValueError(
            f"shape is {shape!r}: it must be one or two integers of at least 1, and their product "
            f"at most {_MAX_CELLS:,}"
        )
    return (1, int(sides[0])) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def _principal_rectangle(data: Weighted, n_rows: int, n_columns: int) -> FloatArray:
    """Grid, shape (n_rows * n_columns, d), of one standard deviation of two principal components.

    Either way from the mean, with the longer side along the first component.
    """
    shares = data.weights / data.weights.sum()
    mean = shares @ data.points
    _, sizes, vectors = np.linalg.svd(
        np.sqrt(shares)[:, None] * (data.points - mean), full_matrices=False
    )
    axes = np.zeros((2, len(mean)))
    axes[: len(sizes)] = sizes[:2, None] * vectors[:2]
    signs = np.sign(axes[[0, 1], np.abs(axes).argmax(axis=1)])
    axes *= np.where(signs == 0.0, 1.0, signs)[:, None]
    if n_rows > n_columns:
        axes = axes[::-1]
    along, across = (
        np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(1) for n in (n_columns, n_rows)
    )
    offsets = across[:, None, None] * axes[1] + along[None, :, None] * axes[0]
    return np.ascontiguousarray(mean + offsets.reshape(-1, len(mean)))
