"""Pricing of exemplars: the modes of Σ_i η_i k((x_i - z)/h).

That is the subproblem of :class:`oda_rl.INFEX`'s paper, section 3.2. Points are in units of the
bandwidth and centred. A climb is a gradient ascent whose plain step, for η ≥ 0, is that of weighted
mean shift (equation 14, whose weights have the wrong sign, which cancels); steps are lengthened by
Barzilai and Borwein's rule, and undone if they lose height. Unlike mean shift it works for η of
both signs.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from oda_rl._compile import compiled
from oda_rl._types import Array, BoolArray, FloatArray, IntArray

_SAME = 0.005  # bandwidths: modes this near are one
_MAX_STEP = 12.0  # in plain steps
_MAX_STEPS = 300
_ROUGH, _FINE = 2e-3, 5e-5  # steps, in bandwidths, below which a climb has ended
_CHUNK = 2_000_000  # responses computed at a time
_LONG = 1e6  # squared norm from which the difference of squares loses too many digits
TOUCHING = 1e-9  # the rim of a disc is inside
_WIDTH, _SHELLS = 1e-4, 4001  # of differences and sums for kernels of one's own


class Kernel(NamedTuple):
    """A radial kernel of unit bandwidth, by the squared distance y; [INFEX], section 4.

    :func:`radial_kernel` makes one of your own.
    """

    name: str
    response: Callable[[Array], Array]  # k(y), in [0, 1], which may take the place of y
    slope: Callable[[Array, Array], Array] | None
    """-2 dk/dy, given y and k(y): the gradient of k in z is slope times (x - z). None: the same as
    k."""
    reach: float  # distance within which a sample covers others
    log_volume: Callable[[int], float]  # logarithm of the integral of k in d dimensions
    radii: Callable[[np.random.RandomState, int, int], FloatArray] | None
    """Draws n distances from the exemplar in d dimensions; None: Gaussian."""


def _ball(d: int) -> float:
    return 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d + 1.0)


def radial_kernel(response: Callable[[Array], Array], reach: float) -> Kernel:
    """Make a kernel of your own.

    Parameters
    ----------
    response : callable
        k(y) of an array of squared distances y in bandwidths: continuous, falling from 1 at 0. It
        may be compiled (``numba.vectorize``). Its slope and its integral are taken numerically.
    reach : float
        Distance, above 0, from which k is 0, or negligible.

    Examples
    --------
    >>> from oda_rl import INFEX
    >>> biweight = radial_kernel(lambda y: np.maximum(1.0 - y, 0.0) ** 2, 1.0)
    >>> INFEX(kernel=biweight, bandwidth=1.0).fit([[0.0], [0.4], [5.0]]).exemplars_.round(2)
    array([[0.2],
           [5. ]])
    """
    shares = np.linspace(0.0, 1.0, _SHELLS)

    def slope(squares: Array, values: Array) -> Array:
        inner, outer = np.maximum(squares - _WIDTH, 0.0), squares + np.float64(_WIDTH)
        return 2.0 * (response(inner) - response(outer)) / (outer - inner)

    def shells(d: int) -> FloatArray:
        """Share of the ball's volume within each radius, weighted with k."""
        middle = 0.5 * (shares[1:] + shares[:-1])
        return np.cumsum(np.diff(shares**d) * response((reach * middle) ** 2))

    def radii(rng: np.random.RandomState, d: int, n: int) -> FloatArray:
        sums = np.append(0.0, shells(d))
        return reach * np.interp(rng.uniform(0.0, sums[-1], n), sums, shares)

    def log_volume(d: int) -> float:
        return _ball(d) + d * math.log(reach) + math.log(shells(d)[-1])

    return Kernel("own", response, slope, 0.9 * reach, log_volume, radii)


def _soft(width: float) -> Kernel:
    """Return a disc with a soft rim: 1/(1 + exp((y - 1)/width))."""

    def response(squares: Array) -> Array:
        return 1.0 / (1.0 + np.exp(np.minimum((squares - 1.0) / width, 80.0)))

    def slope(squares: Array, values: Array) -> Array:
        return (2.0 / width) * values * (1.0 - values)

    return Kernel("soft", response, slope, 1.0, lambda d: math.nan, None)


KERNELS = {
    "gaussian": Kernel(
        "gaussian",
        lambda squares: np.exp(np.multiply(squares, -0.5, out=squares), out=squares),
        None,
        3.0,
        lambda d: 0.5 * d * math.log(2.0 * math.pi),
        None,
    ),
    "epanechnikov": Kernel(
        "epanechnikov",
        lambda squares: np.maximum(1.0 - squares, 0.0),
        lambda squares, values: 2.0 * (values > 0.0).astype(values.dtype),
        0.9,
        lambda d: _ball(d) + math.log(2.0 / (d + 2.0)),
        lambda rng, d, n: np.sqrt(rng.beta(0.5 * d, 2.0, n)),
    ),
    "disc": Kernel(
        "disc",
        lambda squares: (squares <= 1.0 + TOUCHING).astype(np.float64),
        None,
        1.0,
        _ball,
        lambda rng, d, n: np.sqrt(rng.beta(0.5 * d, 1.0, n)),
    ),
}
_RIMS = tuple(_soft(width) for width in (0.4, 0.15, 0.05))


def squared_distances(points: Array, others: Array, squares: Array | None = None) -> Array:
    """Squared Euclidean distances, shape (n, m); ``squares`` are squared norms of ``others``."""
    if squares is None:
        squares = np.einsum("ij,ij->i", others, others)
    norms = np.einsum("ij,ij->i", points, points)
    if points.dtype == np.float64 and max(squares.max(initial=0.0), norms.max(initial=0.0)) > _LONG:
        return np.asarray(cdist(points, others, "sqeuclidean"))
    distances: Array = (-2.0 * points) @ others.T
    distances += norms[:, None]
    distances += squares
    return np.maximum(distances, 0.0, out=distances)


class Landscape(NamedTuple):
    """Samples in the precision and the coordinates in which to climb."""

    points: Array
    squares: Array

    @classmethod
    def of(cls, points: Array) -> "Landscape":
        """Precompute what every evaluation needs."""
        return cls(points, np.einsum("ij,ij->i", points, points))

    def chunks(self, n: int) -> Iterator[slice]:
        """Slices of rows whose responses fit the cache."""
        size = max(1, _CHUNK // len(self.points))
        return (slice(begin, begin + size) for begin in range(0, n, size))

    def evaluate(self, at: Array, prices: Array, kernel: Kernel) -> tuple[Array, Array]:
        """Heights Σ η k at points, shape (n,), and plain steps from there, shape (n, d)."""
        heights = np.empty(len(at), dtype=at.dtype)
        steps = np.empty_like(at)
        tiny = np.finfo(at.dtype).tiny
        signed = bool((prices < 0.0).any())
        for rows in self.chunks(len(at)):
            squares = squared_distances(at[rows], self.points, self.squares)
            values = kernel.response(squares)
            slopes = values if kernel.slope is None else kernel.slope(squares, values)
            if slopes is not values:
                heights[rows] = values @ prices
            slopes *= prices
            total = slopes.sum(axis=1)
            if slopes is values:
                heights[rows] = total
            size = np.abs(slopes).sum(axis=1) if signed else total
            steps[rows] = slopes @ self.points - total[:, None] * at[rows]
            steps[rows] /= np.maximum(size, tiny)[:, None]
        return heights, steps


def climb(
    landscape: Landscape, prices: FloatArray, starts: Array, known: Array, kernel: Kernel,
    tolerance: float, *, merged: float,
) -> Array:  # fmt: skip
    """Climb from many starts, shape (n, d), at once, by a kernel with a gradient.

    A climb ends when its plain step is below the tolerance. Two within ``merged`` bandwidths go on
    as one, and one is dropped within twice that of an end, or of the ``known`` modes, shape (m, d),
    which are not returned.
    """
    dtype = landscape.points.dtype
    weights, at = prices.astype(dtype), starts.astype(dtype)
    ends = [known.astype(dtype)]
    heights, steps = landscape.evaluate(at, weights, kernel)
    lengths = np.ones(len(at), dtype=dtype)
    noise = float(np.finfo(dtype).eps) * 50.0 * float(np.abs(weights).sum())
    for count in range(1, _MAX_STEPS + 1):
        trial = at + lengths[:, None] * steps
        higher, onward = landscape.evaluate(trial, weights, kernel)
        rising = higher >= heights - noise
        change = steps - onward
        moved = lengths * np.einsum("ij,ij->i", steps, steps)  # <Δz, step>
        curved = np.einsum("ij,ij->i", steps, change)
        with np.errstate(divide="ignore", invalid="ignore"):
            longer = np.where(curved > 0.0, moved / curved, 2.0 * lengths)
        lengths = np.where(rising, np.clip(longer, 1.0, _MAX_STEP), 0.25 * lengths)
        at = np.where(rising[:, None], trial, at)
        steps = np.where(rising[:, None], onward, steps)
        heights = np.where(rising, higher, heights)
        ended = (np.sqrt(np.einsum("ij,ij->i", steps, steps)) < tolerance) | (lengths < 1e-4)
        ends.append(at[ended])
        going = ~ended
        if count > 1 and going.any():
            keep = np.zeros(len(at), dtype=np.bool_)
            order = np.flatnonzero(going)[np.argsort(-heights[going])]
            keep[order[leaders(at[order], merged)]] = True
            going = keep & ~is_near(at, np.concatenate(ends), 2.0 * merged)
        at, steps, heights, lengths = at[going], steps[going], heights[going], lengths[going]
        if len(at) == 0:
            break
    return np.concatenate([*ends[1:], at])


class Samples:
    """Samples, shape (N, d), in units of the bandwidth, and their responses to exemplars.

    Masses, shape (N,), are positive and of sum 1, or None if all are equal.
    """

    def __init__(
        self, points: FloatArray, kernel: Kernel, masses: FloatArray | None = None
    ) -> None:
        self.kernel, self.masses = kernel, masses
        self.origin = points.mean(axis=0)
        self.points = points - self.origin
        self.exact = Landscape.of(self.points)
        in_range = self.exact.squares.max() < 300.0  # then single precision suffices
        self._fast = Landscape.of(self.points.astype(np.float32)) if in_range else self.exact

    def __len__(self) -> int:
        return len(self.points)

    @property
    def shares(self) -> FloatArray:
        """Masses, given or equal, shape (N,)."""
        return np.full(len(self), 1.0 / len(self)) if self.masses is None else self.masses

    def weighed(self, values: FloatArray) -> FloatArray:
        """Values, shape (N, M), times the samples' masses in units of their mean."""
        return values if self.masses is None else values * (len(self) * self.masses)[:, None]

    def responses(self, exemplars: FloatArray) -> FloatArray:
        """K, shape (N, M)."""
        return np.asarray(self.kernel.response(squared_distances(self.points, exemplars)))

    def heights(self, exemplars: FloatArray, prices: FloatArray) -> FloatArray:
        """Σ_i η_i k_z(x_i) of each exemplar z, shape (M,), without storing K."""
        heights = np.empty(len(exemplars))
        for rows in self.exact.chunks(len(exemplars)):
            squares = squared_distances(exemplars[rows], self.points, self.exact.squares)
            heights[rows] = self.kernel.response(squares) @ prices
        return heights

    def modes(
        self, prices: FloatArray, starts: FloatArray, known: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Modes of Σ η k to which climbs lead, the highest first, and their heights.

        Climbs start from ``known`` modes, shape (m, d), too. A disc has no gradient: climbs are by
        discs with ever sharper rims, and heights are those of the disc.
        """
        known = starts[:0] if known is None else known
        if self.kernel.name == "disc":
            modes = [np.concatenate([known, starts])]
            for rim in _RIMS:
                modes.append(self._climbed(prices, rim, modes[-1], starts[:0]))
        else:
            if len(known) > 0:
                known = self._climbed(prices, self.kernel, known, starts[:0])
            modes = [known, self._climbed(prices, self.kernel, starts, known)]
        return self._distinct(np.concatenate(modes), prices)

    def finished(
        self, prices: FloatArray, modes: FloatArray, heights: FloatArray, floor: float
    ) -> tuple[FloatArray, FloatArray]:
        """Climb on from modes above a floor, in double precision and to a finer tolerance."""
        high = heights > floor
        if self.kernel.name == "disc" or not high.any():
            return modes, heights
        starts, known = modes[high], modes[:0]
        ends = climb(self.exact, prices, starts, known, self.kernel, _FINE, merged=_SAME)
        return self._distinct(np.concatenate([ends, modes[~high]]), prices)

    def _climbed(
        self, prices: FloatArray, kernel: Kernel, starts: FloatArray, known: FloatArray
    ) -> FloatArray:
        smooth = kernel.name == "gaussian" and prices.min() >= 0.0
        merged = 0.15 if smooth else 0.05  # bandwidths: such climbs go on as one
        ends = climb(self._fast, prices, starts, known, kernel, _ROUGH, merged=merged)
        return np.asarray(ends, dtype=np.float64)

    def _distinct(self, modes: FloatArray, prices: FloatArray) -> tuple[FloatArray, FloatArray]:
        heights = self.heights(modes, prices)
        order = np.argsort(-heights, kind="stable")
        first = order[leaders(modes[order], _SAME)]
        return modes[first], heights[first]


def leaders(points: Array, radius: float) -> IntArray:
    """Rows that have no earlier leader within a radius."""
    chosen = np.zeros(len(points), dtype=np.int64)
    return chosen[: _lead(points, radius * radius, chosen)]


def is_near(points: Array, others: Array, radius: float) -> BoolArray:
    """Whether one of the others is within a radius of each point, shape (n,)."""
    near = np.zeros(len(points), dtype=np.bool_)
    _mark_near(points, others, radius * radius, near)
    return near


@compiled
def _within(points: Array, i: int, others: Array, k: int, bound: float) -> bool:
    total = 0.0
    for j in range(points.shape[1]):
        difference = points[i, j] - others[k, j]
        total += difference * difference
        if total > bound:
            return False
    return True


@compiled
def _lead(points: Array, bound: float, chosen: IntArray) -> int:
    n = 0
    for i in range(points.shape[0]):
        k = 0
        while k < n and not _within(points, i, points, chosen[k], bound):
            k += 1
        if k == n:
            chosen[n] = i
            n += 1
    return n


@compiled
def _mark_near(points: Array, others: Array, bound: float, near: BoolArray) -> None:
    for i in range(points.shape[0]):
        for k in range(others.shape[0]):
            if _within(points, i, others, k, bound):
                near[i] = True
                break
