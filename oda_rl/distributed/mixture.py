"""A Gaussian mixture of data in blocks, by expectation maximization with sums over them."""

import math
import warnings
from dataclasses import KW_ONLY
from functools import partial
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from oda_rl._compile import compiled
from oda_rl._types import Array, FloatArray
from oda_rl._validation import check_columns, checked_weights
from oda_rl.distributed.blocks import (
    Answer,
    Blocks,
    OneBlock,
    Reader,
    Rows,
    Survey,
    blocks_of,
    by_blocks,
    is_lazy,
    scored_by,
)
from oda_rl.files.estimators import COUNT, NOT_NEGATIVE, Seed, estimator, one_of, validated
from oda_rl.mixtures import kernels, learning
from oda_rl.mixtures.base import COMPONENTS, StreamingMixture, VarianceFloor
from oda_rl.mixtures.kernels import Mixture, Progress, Room, complete, gap_of, write_logs
from oda_rl.samples import Weighted, beyond_rounding, weighted

_READER = Reader(missing=True)
_MIN_MASS = 1e-12  # share of all: a component with less stays where it is
_MIN_WEIGHT = 1e-30
_STARTS, _FIRST_PASSES = 10, 20  # of which the best goes on
_ROUNDING = 1e-9  # of scores: starts often end alike, and the first of them goes on
_MAX_PASSES = 100  # on the sample


class Statistics(NamedTuple):
    """Sufficient statistics of K components of d features."""

    masses: FloatArray  # Σ w r_k, shape (K,)
    moves: FloatArray  # Σ w r_k (x - μ_k), shape (K, d)
    spreads: FloatArray
    """Σ w r_k (x - μ_k)(x - μ_k)ᵀ, upper triangles, shape (K, d, d), or its diagonal, shape
    (K, 1, d), if covariances are not full."""
    log_likelihood: float  # Σ w log p(x), without -½ log 2π for each observed feature
    weight: float  # Σ w

    @property
    def score(self) -> float:
        """Mean log-likelihood."""
        return self.log_likelihood / self.weight


def expected(rows: Rows, index: int, *, units: FloatArray, mixture: Mixture) -> Answer:
    """Return the statistics of a block in units, shape (d,): the E step.

    Missing values are replaced by conditional expectations of first and second moments.
    """
    # Copies, because arrays from other processes may be read-only: not what is compiled for.
    copies: Any = [np.array(x) if isinstance(x, np.ndarray) else x for x in mixture]
    mixture = Mixture(*copies)
    (n, d), full = mixture.means.shape, mixture.axes is not None
    masses, moves = np.zeros(n), np.zeros((n, d))
    spreads, total, weight = np.zeros((n, d if full else 1, d)), 0.0, 0.0
    variances = np.broadcast_to(learning.covariance_parts(mixture)[0], (n, d))
    variances, gaps = np.ascontiguousarray(1.0 / variances), np.empty(d)
    for points, _, weights in _READER.read(rows, index):
        points /= units
        room = Room.of(points, mixture)
        buffer, order = np.empty((len(points) + 1, n)), np.arange(len(points))
        write_logs(points, order, mixture, 1.0, buffer, room)
        shares = buffer[:-1]
        peaks = shares.max(axis=1)
        np.exp(shares - peaks[:, None], out=shares)
        totals = shares.sum(axis=1)
        shares /= totals[:, None]
        total += float(weights @ (peaks + np.log(totals)))
        weight += float(weights.sum())
        _add_up(
            points, weights, shares, mixture, mixture.axes, variances, gaps, masses, moves,
            spreads, room,
        )  # fmt: skip
    return [masses, moves, spreads, total, weight]


@compiled
def _add_up(
    points: FloatArray, weights: FloatArray, shares: FloatArray, mixture: Mixture,
    axes: Array | None, variances: FloatArray, gaps: FloatArray, masses: FloatArray,
    moves: FloatArray, spreads: FloatArray, room: Room,
) -> None:  # fmt: skip
    """Add the statistics of samples, shape (n, d), to masses, moves and spreads.

    ``variances``, shape (K, d), are those of missing values if covariances are not full; ``gaps``,
    shape (d,), and ``room`` are scratch.
    """
    d = points.shape[1]
    for i in range(points.shape[0]):
        for k in range(shares.shape[1]):
            if shares[i, k] <= 1e-9:  # negligible
                continue
            gain = weights[i] * shares[i, k]
            masses[k] += gain
            n_missing = complete(points, i, mixture, axes, k, room)
            for j in range(d):
                gaps[j] = gap_of(points, i, mixture.means, k, j, room)
                moves[k, j] += gain * gaps[j]
            if axes is None:
                for j in range(d):
                    missing = math.isnan(points[i, j])
                    spreads[k, 0, j] += gain * (variances[k, j] if missing else gaps[j] * gaps[j])
            else:
                for u in range(d):
                    pull = gain * gaps[u]
                    for v in range(u, d):
                        spreads[k, u, v] += pull * gaps[v]
                places, roots = room.places, room.roots
                for root in range(n_missing):  # the covariance of missing values: Σ r rᵀ
                    for a in range(root + 1):
                        pull = gain * roots[root, a]
                        for b in range(a, root + 1):  # places rise
                            spreads[k, places[a], places[b]] += pull * roots[root, b]


class Climbed(NamedTuple):
    """Result of EM steps."""

    mixture: Mixture
    score: float  # mean log-likelihood in the last pass
    passes: int
    converged: bool


def maximized(mixture: Mixture, sums: Statistics, max_precision: float) -> Mixture:
    """Take the M step, with bounded eigenvalues of the precisions.

    A component that gets next to no mass keeps its place, with next to no weight.
    """
    d, total = mixture.means.shape[1], sums.weight
    alive = sums.masses > _MIN_MASS * total
    masses = np.where(alive, sums.masses, 1.0)
    steps = np.where(alive[:, None], sums.moves / masses[:, None], 0.0)
    weights = np.maximum(sums.masses / total, _MIN_WEIGHT)
    moved = mixture._replace(means=mixture.means + steps, weights=weights)
    if mixture.axes is None:
        spreads = sums.spreads[:, 0] / masses[:, None] - steps**2
        if mixture.spherical:
            variance = float((sums.masses @ np.where(alive[:, None], spreads, 0.0)).sum())
            progress = mixture.progress.copy()
            Progress(progress).variance = max(variance / (d * total), 1.0 / max_precision)
            return moved._replace(progress=progress)
        values, axes = spreads, None
    else:
        upper = np.triu(sums.spreads)
        spreads = upper + np.triu(upper, 1).transpose(0, 2, 1)
        spreads = spreads / masses[:, None, None] - steps[:, :, None] * steps[:, None, :]
        values, vectors = np.linalg.eigh(spreads)
        axes = mixture.axes.copy()
        axes[:-1][alive] = vectors.transpose(0, 2, 1)[alive]
    precisions = 1.0 / np.clip(values, 1.0 / max_precision, 1.0 / kernels.MIN_PRECISION)
    precisions = np.where(alive[:, None], precisions, mixture.precisions)
    half_log_dets = 0.5 * np.log(precisions).sum(axis=1)
    return moved._replace(precisions=precisions, axes=axes, half_log_dets=half_log_dets)


@estimator
class DistributedGaussianMixture(StreamingMixture):
    """Gaussian mixture of a Dask array or frame, by sums over its blocks.

    In each pass every block adds up the sufficient statistics of its rows: expectation
    maximization. It starts on a sample of about 50,000 rows (or 10 a component), from the best of
    ten starts of k-means; the other rows stay where they are. Dask recomputes what is lost with a
    worker. The same blocks and ``random_state`` give the same bits on any cluster.

    It needs ``pip install "oda-rl[cluster]"``. ``fit`` reads the data once a pass: call
    ``X.persist()`` before if the cluster has the memory.

    Parameters
    ----------
    n_components : int, default=1
        K, from 1 to 10,000.
    covariance_type : {"diag", "full", "tied_spherical"}, default="diag"
        As for :class:`oda_rl.SGDGaussianMixture`.
    max_iter : int, default=100
        Maximum number of passes over all rows, ≥ 1.
    tol : float, default=1e-4
        ``fit`` ends when a pass raises the mean log-likelihood by less; ≥ 0.
    variance_floor : float, array-like of shape (n_features,) or None, default=None
        As for :class:`oda_rl.SGDGaussianMixture`.
    random_state : int, RandomState instance or None, default=None
        Draws the sample, the starts of k-means, and :meth:`sample`.

    Attributes
    ----------
    converged_ : bool
        Whether ``fit`` has ended by ``tol``.
    n_iter_ : int
        Passes over all rows.
    lower_bound_ : float
        Mean log-likelihood of the rows in the last pass.

    References
    ----------
    A. P. Dempster, N. M. Laird, D. B. Rubin, "Maximum likelihood from incomplete data via the EM
    algorithm", Journal of the Royal Statistical Society B 39, 1977.

    Examples
    --------
    >>> import dask.array as da
    >>> from oda_rl import DistributedGaussianMixture
    >>> X = np.random.default_rng(0).normal([[-3.0], [3.0]], 1.0, (2, 500)).reshape(-1, 1)
    >>> X = da.from_array(X, chunks=(250, 1))
    >>> mixture = DistributedGaussianMixture(2, random_state=0).fit(X)
    >>> np.sort(mixture.means_.ravel()).round(0)
    array([-3.,  3.])
    >>> mixture.predict(X).chunks
    ((250, 250, 250, 250),)
    """

    n_components: Annotated[int, COMPONENTS] = 1
    _: KW_ONLY
    covariance_type: Annotated[str, one_of("diag", "full", "tied_spherical")] = "diag"
    max_iter: Annotated[int, COUNT] = 100
    tol: Annotated[float, NOT_NEGATIVE] = 1e-4
    variance_floor: VarianceFloor = None
    random_state: Seed = None

    @validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        """Learn anew, as :meth:`oda_rl.SGDGaussianMixture.fit`, by sums over all blocks.

        X may be a Dask array or frame, and weights a Dask array in its blocks.
        """
        blocks: Blocks
        if is_lazy(X):
            blocks = blocks_of(self, X, None, sample_weight, reset=True)
        else:
            points = self._learnable(X, reset=True)
            self._check_many(len(points))
            data = weighted(points, checked_weights(sample_weight, points))
            blocks = OneBlock(Rows(data.points, None, data.weights))
        survey = Survey.of(blocks, _READER, self.n_features_in_)
        if is_lazy(X):
            self._check_many(survey.n_rows)
        check_columns(self, np.where(survey.known > 0.0, 0.0, np.nan)[None])
        known = survey.known / survey.weights.sum()
        self._incomplete = bool((known < 1.0).any())
        sizes = np.maximum(np.abs(survey.low), np.abs(survey.high))
        precision = float(np.finfo(np.float64).eps)
        self._set_units(beyond_rounding(survey.deviations, sizes, precision), float(sizes.max()))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        sample = survey.sample(blocks, _READER, self.n_components, seed)[0]
        start = self._best_start(weighted(sample.points / self._units, sample.weights), seed)
        reached = self._climb(blocks, self._units, start, int(self.max_iter))
        dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
        found = reached.mixture
        middle = found.means.mean(axis=0)
        self._origin = middle * self._units
        means, precisions = (found.means - middle).astype(dtype), found.precisions.astype(dtype)
        axes = None if found.axes is None else found.axes.astype(dtype)
        self._mixture = found._replace(means=means, precisions=precisions, axes=axes)
        self._n_samples = float(survey.weights.sum() ** 2 / survey.squares)
        self.n_iter_ = reached.passes
        self.converged_ = reached.converged
        constant = np.log(self._units) + 0.5 * math.log(2.0 * math.pi)
        self.lower_bound_ = reached.score - float(known @ constant)
        if not self.converged_:
            warnings.warn(
                f"max_iter={self.max_iter} passes over {survey.n_rows} rows were too few to "
                f"converge: the last one began at {self.lower_bound_:.6g}",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _climb(self, blocks: Blocks, units: FloatArray, mixture: Mixture, max_iter: int) -> Climbed:
        """Take EM steps until one raises the mean log-likelihood by less than ``tol``."""
        before = -np.inf
        for i in range(max_iter):
            sums = Statistics(*blocks.total(partial(expected, units=units, mixture=mixture)))
            if sums.score - before < self.tol:
                return Climbed(mixture, sums.score, i + 1, True)
            before = sums.score
            mixture = maximized(mixture, sums, self._max_precision)
        return Climbed(mixture, before, max_iter, False)

    def _best_start(self, sample: Weighted, seed: int) -> Mixture:
        """Fit to a sample in units: the best of ten starts goes on after twenty passes."""
        rng, bound = np.random.RandomState(seed), self._max_precision
        block = OneBlock(Rows(sample.points, None, sample.weights))
        ones, fits = np.ones(sample.points.shape[1]), []
        for _ in range(_STARTS if self.n_components > 1 else 1):
            means = learning.k_means(sample, self.n_components, rng)
            first = learning.new_mixture(means, self.covariance_type, bound, 1.0, 0.0)
            Progress(first.progress).phase = kernels.RELEASED  # a row is of the nearest mean
            fits.append(self._climb(block, ones, first, _FIRST_PASSES))
        highest = max(fit.score for fit in fits) - _ROUNDING
        best = next(fit for fit in fits if fit.score >= highest)
        return self._climb(block, ones, best.mixture, _MAX_PASSES).mixture

    predict = by_blocks(StreamingMixture.predict, lambda self: np.empty(0, np.int64))
    predict_proba = by_blocks(
        StreamingMixture.predict_proba, lambda self: self._typed(np.empty((0, self.n_components)))
    )
    score_samples = by_blocks(StreamingMixture.score_samples, lambda self: np.empty(0))

    def score(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> float:
        """Mean log-likelihood of rows; weights are in the blocks of X."""
        if not is_lazy(X):
            return super().score(X, y, sample_weight)
        total, weight, _ = scored_by(self, X, None, sample_weight)
        return float(total / weight)

    def _total(self, X: npt.ArrayLike) -> tuple[float, int]:
        if not is_lazy(X):
            return super()._total(X)
        total, _, n = scored_by(self, X)
        return total, n
