"""A Gaussian mixture of data in blocks, by expectation maximization with sums over them.

Components start at annealed codevectors and are first placed on a sample of the rows. The optimum
of expectation maximization depends on its start, so the component that is needed least is removed,
and another one is split for which two are much better; then all are trained. What is not better is
undone. A split is first tried on the component's own rows, which tells its gain. Passes over all
rows follow.

References
----------
A. P. Dempster, N. M. Laird, D. B. Rubin, "Maximum likelihood from incomplete data via the EM
algorithm", Journal of the Royal Statistical Society B 39, 1977.
Z. Ghahramani, M. I. Jordan, "Supervised learning from incomplete data via an EM approach", Advances
in Neural Information Processing Systems 6, 1994: where values are missing.
N. Ueda, R. Nakano, "Deterministic annealing EM algorithm", Neural Networks 11, 1998: tempering.
N. Ueda, R. Nakano, Z. Ghahramani, G. E. Hinton, "SMEM algorithm for mixture models", Neural
Computation 12, 2000: here with a removal instead of merging.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from oda_rl._compile import compiled
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import check_columns, given_weights
from oda_rl.annealing.annealer import Annealer
from oda_rl.annealing.levels import FAST_COOLING, Schedule
from oda_rl.annealing.refinement import refine
from oda_rl.distributed.annealing import BlockAnnealing
from oda_rl.distributed.blocks import (
    Answer,
    Blocks,
    OneBlock,
    Reader,
    Rows,
    bare,
    blocks_of,
    by_blocks,
    is_lazy,
)
from oda_rl.distributed.sums import Moments, Sample, Score, scored
from oda_rl.divergences import SquaredEuclidean
from oda_rl.files.estimators import COUNT, NOT_NEGATIVE, Seed, estimator, validated
from oda_rl.files.schema import Optional, flags, real
from oda_rl.mixtures import learning
from oda_rl.mixtures.base import StreamingMixture, VarianceFloor, beyond_rounding
from oda_rl.mixtures.kernels import (
    NEGLIGIBLE_LOG,
    Room,
    complete,
    gap_of,
    is_missing,
    write_logs,
)
from oda_rl.mixtures.state import MIN_PRECISION, RELEASED, Mixture, Progress
from oda_rl.samples import filled, holes, weighted

_READER = Reader(SquaredEuclidean(), None, missing=True)
_ANNEALING_ROWS = 1000  # of a round of annealing, for each codevector
_CHUNK = 1024  # rows that are measured at once
_MIN_RESPONSIBILITY = 1e-9  # smaller ones are left out
_MIN_MASS = 1e-12  # share of all: a component with less stays where it is
_MIN_WEIGHT = 1e-30
_INVERSE_TEMPERATURES, _TEMPERED_PASSES = (0.5, 0.2), 19
_MAX_PASSES = 100  # on the sample
_TRIALS, _MAX_TRIALS = 20, 100  # failures in a row, and all
_MIN_GAIN = 1e-3
_SPLIT_PASSES = 6
_MIN_SHARE = 1e-3  # of a row that counts as a component's


class InUnits(SquaredEuclidean):
    """|x − μ|² with a unit of length for each feature, shape (d,).

    NaN stays, or is replaced by ``values``, shape (d,), in these units.
    """

    def __init__(self, units: FloatArray, values: FloatArray | None = None) -> None:
        self.units, self.values = units, values

    def embed(self, points: FloatArray) -> FloatArray:
        """Take points, shape (n, d), to these units."""
        scaled = points / self.units
        return scaled if self.values is None else filled(scaled, self.values)

    def restore(self, codevectors: FloatArray) -> FloatArray:
        """Undo :meth:`embed`."""
        return codevectors * self.units


@dataclass(frozen=True)
class Features(Answer):
    """Statistics of the observed values of d features."""

    rows: int
    """Rows of weights above 0."""
    weight: float
    weights: FloatArray
    """Weight of the rows in which each feature is observed, shape (d,)."""
    means: FloatArray
    """Shape (d,)."""
    norms: FloatArray
    """Roots of the weighted sums of squared differences from the means, shape (d,)."""
    low: FloatArray
    """Smallest values, shape (d,); inf if there are none."""
    high: FloatArray
    """Largest values, likewise."""

    def __add__(self, other: Self) -> Self:
        weights, gaps = self.weights + other.weights, other.means - self.means
        shares = other.weights / np.where(weights > 0.0, weights, 1.0)
        between = np.sqrt(self.weights * shares) * np.abs(gaps)
        return type(self)(
            self.rows + other.rows,
            self.weight + other.weight,
            weights,
            self.means + shares * gaps,
            np.hypot(np.hypot(self.norms, other.norms), between),  # squares may overflow
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    @property
    def known(self) -> FloatArray:
        """Share of the weight in which each feature is observed, shape (d,)."""
        return self.weights / self.weight

    @property
    def deviations(self) -> FloatArray:
        """Standard deviations, shape (d,): 0 of constant features."""
        deviations = self.norms / np.sqrt(np.where(self.weights > 0.0, self.weights, np.nan))
        sizes = np.maximum(np.abs(self.low), np.abs(self.high))
        return beyond_rounding(deviations, sizes, float(np.finfo(np.float64).eps))

    @property
    def size(self) -> float:
        """Largest absolute value."""
        observed = self.weights > 0.0
        return float(np.maximum(np.abs(self.low), np.abs(self.high))[observed].max(initial=0.0))


def features_of(rows: Rows, index: int, *, n_features: int) -> Features:
    """Check a block, and return the statistics of its features."""
    _READER.check(rows, index)
    zeros, infinite = np.zeros(n_features), np.full(n_features, np.inf)
    features = Features(0, 0.0, zeros, zeros, zeros, infinite, -infinite)
    for points, _, weights in _READER.read(rows, index):
        low = np.fmin.reduce(points, axis=0, initial=np.inf)
        high = np.fmax.reduce(points, axis=0, initial=-np.inf)
        widths = np.where(high > low, high - low, 1.0)
        places = (points - np.where(low <= high, low, 0.0)) / widths  # from 0 to 1
        known = ~np.isnan(places) * weights[:, None]
        totals = known.sum(axis=0)
        places = filled(places, np.zeros(1))
        means = (known * places).sum(axis=0) / np.where(totals > 0.0, totals, 1.0)
        norms = widths * np.sqrt((known * (places - means) ** 2).sum(axis=0))
        means = np.where(low <= high, low + widths * means, 0.0)
        total = float(weights.sum())
        features += Features(len(points), total, totals, means, norms, low, high)
    return features


def places(
    blocks: Blocks, features: Features, units: FloatArray, n_components: int, seed: int
) -> tuple[FloatArray, Sample]:
    """Anneal codevectors, shape (K, d), by sums, and refine them on a sample of the rows.

    Both are in units, shape (d,). Missing values stay in the sample; codevectors use the features'
    means. If there are fewer than K distinct codevectors, they are repeated.
    """
    mean = features.means / units
    divergence = InUnits(units, mean)
    moments = Moments(
        np.array([features.rows]), np.array([features.weight]), features.weight, mean[None],
        features.low, features.high,
    )  # fmt: skip
    reader = Reader(divergence, None, missing=True)
    training = BlockAnnealing(blocks, reader, moments, _ANNEALING_ROWS, seed)
    schedule = Schedule(
        max_codevectors=n_components,
        min_temperature=0.0,
        cooling=FAST_COOLING,
        samples_per_codevector=_ANNEALING_ROWS,
        max_samples=np.inf,
        target_distortion=0.0,
        target_error=-1.0,
        ends_full=True,
        forgetting=0.0,
    )
    current = Annealer(schedule, divergence, len(mean), np.random.default_rng(seed))
    training.begin(current, None)
    training.anneal(current)
    reader = Reader(InUnits(units), None, missing=True)
    sample, _ = replace(training, reader=reader).sample(n_components)
    rows = weighted(filled(sample.points, mean), sample.weights)
    rng = np.random.default_rng(len(rows.points))
    codevectors = refine(rows.points, rows.weights, current.codevectors, rng)
    return codevectors[np.arange(n_components) % len(codevectors)], sample


# Expectation: what a block answers.


@dataclass(frozen=True)
class Statistics(Answer):
    """Sufficient statistics of K components of d features."""

    masses: FloatArray
    """Σ w r_k, shape (K,)."""
    moves: FloatArray
    """Σ w r_k (x - μ_k), shape (K, d)."""
    spreads: FloatArray
    """Σ w r_k (x - μ_k)(x - μ_k)ᵀ, upper triangles, shape (K, d, d), or its diagonal, shape
    (K, 1, d), if covariances are not full."""
    log_likelihood: FloatArray
    """Σ w log p(x)^β, shape (1,), without -½ log 2π for each observed feature."""
    weight: FloatArray
    """Σ w, shape (1,)."""

    @property
    def score(self) -> float:
        """Mean log-likelihood."""
        return float(self.log_likelihood[0] / self.weight[0])


@dataclass(frozen=True)
class Expectation:
    """The E step on a block: sufficient statistics of a mixture.

    Responsibilities are r_k ∝ (π_k N(x; μ_k, Σ_k))^β. Missing values are replaced by conditional
    expectations of first and second moments.
    """

    reader: Reader
    mixture: Mixture
    beta: float = 1.0

    def __call__(self, rows: Rows, index: int) -> Statistics:
        """Return the statistics of a block."""
        mixture = self._writable()
        (n, d), full = mixture.means.shape, mixture.axes is not None
        sums = Statistics(
            np.zeros(n), np.zeros((n, d)), np.zeros((n, d if full else 1, d)), np.zeros(1),
            np.zeros(1),
        )  # fmt: skip
        variances = np.broadcast_to(learning.covariance_parts(mixture)[0], (n, d))
        variances, gaps = np.ascontiguousarray(1.0 / variances), np.empty(d)
        for points, weights, shares, logs, room in self.measure(rows, index):
            sums.log_likelihood[:] += weights @ logs
            sums.weight[:] += weights.sum()
            _add_up(
                points, weights, shares, mixture, mixture.axes, variances, gaps, sums.masses,
                sums.moves, sums.spreads, room,
            )  # fmt: skip
        return sums

    def _writable(self) -> Mixture:
        """Copy arrays that may be read-only, which is not what code is compiled for."""
        copies: Any = [np.array(x) if isinstance(x, np.ndarray) else x for x in self.mixture]
        return Mixture(*copies)

    def measure(self, rows: Rows, index: int) -> Iterator[Any]:
        """Yield points, weights, responsibilities, log-likelihoods and scratch of a few rows."""
        mixture = self._writable()
        buffer = np.empty((_CHUNK + 1, len(mixture.weights)))
        for chunk in self.reader.read(rows, index):
            for begin in range(0, len(chunk.points), _CHUNK):
                points = chunk.points[begin : begin + _CHUNK]
                room = None if holes(points) is None else Room.of(points.shape[1])
                shares, order = buffer[: len(points)], np.arange(len(points))
                write_logs(points, order, mixture, self.beta, NEGLIGIBLE_LOG, buffer, room)
                peaks = shares.max(axis=1)
                np.exp(shares - peaks[:, None], out=shares)
                totals = shares.sum(axis=1)
                shares /= totals[:, None]
                logs = peaks + np.log(totals)
                yield points, chunk.weights[begin : begin + _CHUNK], shares, logs, room


@compiled
def _add_up(
    points: FloatArray, weights: FloatArray, shares: FloatArray, mixture: Mixture,
    axes: Array | None, variances: FloatArray, gaps: FloatArray, masses: FloatArray,
    moves: FloatArray, spreads: FloatArray, room: Room | None,
) -> None:  # fmt: skip
    """Add the statistics of samples, shape (n, d), to masses, moves and spreads.

    ``variances``, shape (K, d), are those of missing values if covariances are not full; ``gaps``,
    shape (d,), and ``room`` are scratch.
    """
    d = points.shape[1]
    for i in range(points.shape[0]):
        for k in range(shares.shape[1]):
            if shares[i, k] <= _MIN_RESPONSIBILITY:
                continue
            gain = weights[i] * shares[i, k]
            masses[k] += gain
            n_missing = complete(points, i, mixture, axes, k, room)
            for j in range(d):
                gaps[j] = gap_of(points, i, mixture.means, k, j, room)
                moves[k, j] += gain * gaps[j]
            if axes is None:
                for j in range(d):
                    missing = is_missing(points, i, j, room)
                    spreads[k, 0, j] += gain * (variances[k, j] if missing else gaps[j] * gaps[j])
            else:
                for u in range(d):
                    pull = gain * gaps[u]
                    for v in range(u, d):
                        spreads[k, u, v] += pull * gaps[v]
                if room is not None:  # the covariance of missing values: Σ r rᵀ over its roots
                    places, roots = room.places, room.roots
                    for root in range(n_missing):
                        for a in range(root + 1):
                            pull = gain * roots[root, a]
                            for b in range(a, root + 1):  # places rise
                                spreads[k, places[a], places[b]] += pull * roots[root, b]


# Maximization.


class Reached(NamedTuple):
    """Result of EM steps."""

    mixture: Mixture
    score: float
    """Mean log-likelihood in the last pass, as :attr:`Statistics.score`."""
    passes: int
    converged: bool


@dataclass(frozen=True)
class Climb:
    """Expectation maximization on some rows."""

    blocks: Blocks
    reader: Reader
    covariance_type: str
    max_precision: float

    def start(self, means: FloatArray) -> Mixture:
        """Fit components to the rows that are nearest to each mean, shape (K, d)."""
        first = learning.new_mixture(means, self.covariance_type, self.max_precision, 1.0, 0.0)
        Progress(first.progress).phase = RELEASED
        return self.step(first)

    def ask(self, mixture: Mixture, beta: float = 1.0) -> Statistics:
        """Add up over all blocks."""
        return self.blocks.total(Expectation(self.reader, mixture, beta))

    def step(self, mixture: Mixture, beta: float = 1.0) -> Mixture:
        """Take an EM step."""
        return _maximized(mixture, self.ask(mixture, beta), self.max_precision)

    def tempered(self, mixture: Mixture, beta: float) -> Mixture:
        """Take EM steps with tempered responsibilities, β rising to 1."""
        for power in np.linspace(1.0, 0.0, _TEMPERED_PASSES, endpoint=False):
            mixture = self.step(mixture, float(beta**power))
        return mixture

    def climb(self, mixture: Mixture, max_iter: int, tol: float) -> Reached:
        """Take EM steps until one raises the mean log-likelihood by less than ``tol``."""
        before = -np.inf
        for i in range(max_iter):
            sums = self.ask(mixture)
            score = sums.score
            if score - before < tol:
                return Reached(mixture, score, i + 1, True)
            before = score
            mixture = _maximized(mixture, sums, self.max_precision)
        return Reached(mixture, before, max_iter, False)

    def here(self, points: FloatArray, weights: FloatArray) -> "Climb":
        """Return the same for rows in memory."""
        return replace(self, blocks=OneBlock(Rows(points, None, weights)))


def _maximized(mixture: Mixture, sums: Statistics, max_precision: float) -> Mixture:
    """Take the M step, with bounded eigenvalues of the precisions.

    A component that gets next to no mass keeps its place, with next to no weight.
    """
    d, total = mixture.means.shape[1], float(sums.weight[0])
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
    precisions = 1.0 / np.clip(values, 1.0 / max_precision, 1.0 / MIN_PRECISION)
    precisions = np.where(alive[:, None], precisions, mixture.precisions)
    half_log_dets = 0.5 * np.log(precisions).sum(axis=1)
    return moved._replace(precisions=precisions, axes=axes, half_log_dets=half_log_dets)


# Exchanges, on a sample of the rows.


def best_of(here: Climb, sample: Sample, means: FloatArray, tol: float) -> Reached:
    """Fit to the sample from means, shape (K, d), and exchange components until nothing is gained.

    The best of three fits goes on: a plain one, and two that are tempered first.
    """
    start = here.start(means)
    begun = [start, *(here.tempered(start, beta) for beta in _INVERSE_TEMPERATURES)]
    fits = [here.climb(mixture, _MAX_PASSES, tol) for mixture in begun]
    best = max(fits, key=lambda fit: fit.score)
    trials = 0
    while len(means) > 1 and trials < _MAX_TRIALS:
        for mixture in _exchanges(here, sample, best.mixture):
            trials += 1
            tried = here.climb(mixture, _MAX_PASSES, tol)
            if tried.score > best.score + _MIN_GAIN:
                best = tried
                break
        else:
            break
    return best


def _exchanges(here: Climb, sample: Sample, mixture: Mixture) -> list[Mixture]:
    """Return mixtures with exchanged components, the most promising first."""
    losses, blocks = np.zeros(len(mixture.weights)), []
    rows = Rows(sample.points, None, sample.weights)
    for _, weights, shares, _, _ in Expectation(here.reader, mixture).measure(rows, 0):
        losses -= weights @ np.log(np.maximum(1.0 - shares, _MIN_SHARE**4))
        blocks.append(csr_array(np.where(shares > _MIN_SHARE, shares, 0.0)))
    columns = vstack(blocks, format="csc")
    splits = []
    for k in range(len(losses)):
        members = slice(columns.indptr[k], columns.indptr[k + 1])
        splits.append(
            _split(here, sample, mixture, k, columns.indices[members], columns.data[members])
        )
    promised = np.array([gain for gain, _ in splits])[:, None] - losses / sample.weights.sum()
    np.fill_diagonal(promised, -np.inf)
    order = np.argsort(-promised, axis=None, kind="stable")[:_TRIALS]
    places = (divmod(int(i), len(splits)) for i in order)
    return [_exchanged(mixture, split, freed, splits[split][1]) for split, freed in places]


def _split(
    here: Climb, sample: Sample, mixture: Mixture, k: int, rows: IntArray, shares: FloatArray
) -> tuple[float, Mixture]:
    """Fit two components to the rows of one; return the gain in log-likelihood, and the pair."""
    alone = mixture._replace(
        means=mixture.means[[k]], precisions=mixture.precisions[[k]], weights=np.ones(1),
        axes=None if mixture.axes is None else mixture.axes[[k, -1]],
        half_log_dets=mixture.half_log_dets[[k]],
    )  # fmt: skip
    if len(rows) < 2:
        return -np.inf, alone
    weights = sample.weights[rows] * shares
    local = here.here(sample.points[rows], weights)
    sums = local.ask(alone)
    spread = np.triu(sums.spreads[0]) / sums.masses[0]
    if mixture.axes is None:
        j = int(spread[0].argmax())
        shift = np.zeros(len(spread[0]))
        shift[j] = np.sqrt(spread[0, j])
    else:
        values, vectors = np.linalg.eigh(spread, UPLO="U")
        shift = np.sqrt(max(values[-1], 0.0)) * vectors[:, -1]
    pair = local.start(alone.means + np.outer([1.0, -1.0], shift))
    reached = local.climb(pair, _SPLIT_PASSES, 0.0)
    gain = (reached.score - sums.score) * weights.sum() / sample.weights.sum()
    return float(gain), reached.mixture


def _exchanged(mixture: Mixture, split: int, freed: int, pair: Mixture) -> Mixture:
    """Replace a component that is split, and another that is removed, by a pair."""
    places = [split, freed]
    weights = mixture.weights.copy()
    weights[places] = weights[split] * pair.weights
    changed = {"weights": weights / weights.sum()}
    for name in ("means", "precisions", "half_log_dets"):
        changed[name] = getattr(mixture, name).copy()
        changed[name][places] = getattr(pair, name)
    if mixture.axes is not None and pair.axes is not None:
        changed["axes"] = mixture.axes.copy()
        changed["axes"][places] = pair.axes[:2]
    return mixture._replace(**changed)


@estimator
class DistributedGaussianMixture(StreamingMixture):
    """Gaussian mixture of a Dask array or frame, by sums over its blocks.

    In each pass every block adds up the sufficient statistics of its rows: expectation
    maximization. Means start from annealed codevectors (:class:`oda_rl.DistributedODAClusterer`).
    Rows stay where they are, except for a sample of about 50,000 (or 10 a component), on which
    components are placed: with tempered responsibilities at first, and by exchanges, in which a
    component that is needed little takes over half of another one. Passes over all rows follow.
    Dask recomputes what is lost with a worker. The same blocks and ``random_state`` give the same
    bits on any cluster.

    It needs ``pip install "oda-rl[cluster]"``. ``fit`` reads the data once a pass: call
    ``X.persist()`` before if the cluster has the memory.

    Parameters
    ----------
    n_components : int, default=1
        K ≥ 1.
    covariance_type : {"diag", "full", "tied_spherical"}, default="diag"
        As for :class:`oda_rl.SGDGaussianMixture`.
    max_iter : int, default=100
        Maximum number of passes over all rows, ≥ 1.
    tol : float, default=1e-4
        ``fit`` ends when a pass raises the mean log-likelihood by less; ≥ 0.
    variance_floor : float, array-like of shape (n_features,) or None, default=None
        As for :class:`oda_rl.SGDGaussianMixture`.
    random_state : int, RandomState instance or None, default=None
        Draws the rows that annealing reads and the sample, and :meth:`sample`.

    Attributes
    ----------
    weights_, means_, covariances_, precisions_, precisions_cholesky_, variance_floor_ : ndarray
        As of :class:`oda_rl.SGDGaussianMixture`.
    converged_ : bool
        Whether ``fit`` has ended by ``tol``.
    n_iter_ : int
        Passes over all rows.
    lower_bound_ : float
        Mean log-likelihood of the rows in the last pass.
    n_features_in_, feature_names_in_
        Number of features, and their names, if X had any.

    References
    ----------
    A. P. Dempster, N. M. Laird, D. B. Rubin, "Maximum likelihood from incomplete data via the EM
    algorithm", Journal of the Royal Statistical Society B 39, 1977; N. Ueda, R. Nakano, Z.
    Ghahramani, G. E. Hinton, "SMEM algorithm for mixture models", Neural Computation 12, 2000.

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

    n_components: Annotated[int, COUNT] = 1
    _: KW_ONLY
    covariance_type: Annotated[str, StrOptions({"diag", "full", "tied_spherical"})] = "diag"
    max_iter: Annotated[int, COUNT] = 100
    tol: Annotated[float, NOT_NEGATIVE] = 1e-4
    variance_floor: VarianceFloor = None
    random_state: Seed = None

    _LEARNED: ClassVar[dict[str, Any]] = {
        **StreamingMixture._LEARNED,
        "converged_": Optional(flags()),
        "lower_bound_": Optional(real()),
    }

    @validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        """Learn anew, by sums over all blocks.

        Parameters
        ----------
        X : Dask array or frame, or array-like, shape (n_samples, n_features)
            At least ``n_components`` rows; NaN where values are missing, which are integrated out.
        y : Ignored
        sample_weight : Dask array, or array-like, shape (n_samples,), optional
            At least 0, relative to one another; in the blocks of X.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X is invalid, or ``variance_floor`` does not fit; if nothing is observed of a row, or
            of a feature.

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` passes were too few.
        """
        blocks = self._opened(X, sample_weight)
        features = blocks.total(partial(features_of, n_features=self.n_features_in_))
        self._check_features(features)
        self._incomplete = bool((features.known < 1.0).any())
        self._set_units(features.deviations, features.size)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        means, sample = places(blocks, features, self._units, self.n_components, seed)
        shape = self.covariance_type, self._max_precision
        here = Climb(OneBlock(Rows(sample.points, None, sample.weights)), _READER, *shape)
        start = best_of(here, sample, means, float(self.tol)).mixture
        reader = Reader(InUnits(self._units), None, missing=True)
        climb = Climb(blocks, reader, *shape)
        reached = climb.climb(start, int(self.max_iter), float(self.tol))
        dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
        parts: dict[str, Any] = {
            name: getattr(reached.mixture, name) for name in ("means", "precisions", "axes")
        }
        for name, part in parts.items():
            parts[name] = part if part is None else part.astype(dtype)
        self._mixture = reached.mixture._replace(**parts)
        self.n_iter_ = reached.passes
        self.converged_ = reached.converged
        constant = np.log(self._units) + 0.5 * math.log(2.0 * math.pi)
        self.lower_bound_ = reached.score - float(features.known @ constant)
        if not self.converged_:
            warnings.warn(
                f"max_iter={self.max_iter} passes over {features.rows} rows were too few to "
                f"converge: the last one began at {self.lower_bound_:.6g}",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    predict = by_blocks(StreamingMixture.predict, lambda self: np.empty(0, np.int64))
    predict_proba = by_blocks(
        StreamingMixture.predict_proba, lambda self: np.empty((0, self.n_components))
    )
    score_samples = by_blocks(StreamingMixture.score_samples, lambda self: np.empty(0))

    def score(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> float:
        """Mean log-likelihood of the rows of an array or a collection.

        Parameters
        ----------
        X : array-like or Dask collection, shape (n_samples, n_features)
        y : Ignored
        sample_weight : as X is, shape (n_samples,), optional
            At least 0.
        """
        if not is_lazy(X):
            return super().score(X, y, sample_weight)
        return self._scored(X, sample_weight).mean

    def _total(self, X: npt.ArrayLike) -> tuple[float, int]:
        if not is_lazy(X):
            return super()._total(X)
        score = self._scored(X)
        return score.total, score.rows

    def _scored(self, X: Any, sample_weight: Any = None) -> Score:
        check_is_fitted(self)
        blocks = blocks_of(self, X, None, sample_weight, reset=False)
        return blocks.total(partial(scored, model=bare(self)))

    def _opened(self, X: Any, sample_weight: Any) -> Blocks:
        """Return the blocks of a collection, or checked rows in canonical order."""
        if is_lazy(X):
            return blocks_of(self, X, None, sample_weight, reset=True)
        points = self._learnable(X, reset=True)
        data = weighted(points, given_weights(sample_weight, points))
        return OneBlock(Rows(data.points, None, data.weights))

    def _check_features(self, features: Features) -> None:
        if features.rows == 0:
            raise ValueError("X has no row of a weight above 0: it must have at least one")
        if features.rows < self.n_components:
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = {self.n_components}, "
                f"n_samples = {features.rows}"
            )
        check_columns(self, np.where(features.weights > 0.0, 0.0, np.nan)[None])
