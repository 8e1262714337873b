"""A Gaussian mixture of data that lie in blocks, by expectation maximization with sums over them.

Components start at annealed codevectors, and find their places on a sample of the rows: steps of
expectation maximization end where they are led to by their start, so the component that is needed
least gives up its place, and another one, for which two would be much better, is split; then all
follow. What is not better is undone. A split is tried on the component's own rows, so that its gain
is known before. Passes over all rows follow.

References
----------
A. P. Dempster, N. M. Laird, D. B. Rubin, "Maximum likelihood from incomplete data via the EM
algorithm", Journal of the Royal Statistical Society B 39, 1977.
Z. Ghahramani, M. I. Jordan, "Supervised learning from incomplete data via an EM approach", Advances
in Neural Information Processing Systems 6, 1994: where values are missing.
N. Ueda, R. Nakano, "Deterministic annealing EM algorithm", Neural Networks 11, 1998: tempering.
N. Ueda, R. Nakano, Z. Ghahramani, G. E. Hinton, "SMEM algorithm for mixture models", Neural
Computation 12, 2000: here with a removal in place of its merging.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from oda_rl._compile import compiled, inlined
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import check_columns, checked_weights
from oda_rl.annealing.annealer import Annealer
from oda_rl.annealing.base import FAST
from oda_rl.annealing.levels import Schedule
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
from oda_rl.distributed.sums import Moments, Sample, Score, likelihood
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

_READER = Reader(SquaredEuclidean(), None, missing=True)  # of what is in units
_ANNEALING_ROWS = 1000  # that a round of annealing reads for each codevector
_CHUNK = 1024  # rows that are measured at once
_MIN_RESPONSIBILITY = 1e-9  # a smaller one is left out
_MIN_MASS = 1e-12  # of all: a component of less stays where it is
_MIN_WEIGHT = 1e-30
_INVERSE_TEMPERATURES, _TEMPERED_PASSES = (0.5, 0.2), 19
_MAX_PASSES = 100  # on the sample
_TRIALS, _MAX_TRIALS = 20, 100  # that fail one after the other; of all
_MIN_GAIN = 1e-3
_SPLIT_PASSES = 6
_MIN_SHARE = 1e-3  # of a row, that is among a component's own


# Features, before a mixture is learned.


class InUnits(SquaredEuclidean):
    """|x − μ|², where each feature has a unit of its own.

    Parameters
    ----------
    units : ndarray, shape (d,)
    values : ndarray, shape (d,), optional
        What stands, in these units, for what is missing (NaN); by default it stays so.

    Examples
    --------
    >>> InUnits(np.array([2.0, 5.0]), np.ones(2)).embed(np.array([[4.0, np.nan]]))
    array([[2., 1.]])
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
class Extent(Answer):
    """Between which numbers features lie."""

    rows: int
    """Of weights above 0."""
    weight: float
    low: FloatArray
    """Least values of the features, shape (d,); inf if there are none."""
    high: FloatArray
    """Greatest values, likewise."""

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.rows + other.rows,
            self.weight + other.weight,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


def _extent(rows: Rows, index: int, *, n_features: int) -> Extent:
    """Check a block, and return its extent."""
    _READER.check(rows, index)
    found = Extent(0, 0.0, np.full(n_features, np.inf), np.full(n_features, -np.inf))
    for points, _, weights in _READER.read(rows, index):
        low = np.fmin.reduce(points, axis=0, initial=np.inf)
        high = np.fmax.reduce(points, axis=0, initial=-np.inf)
        found = found + Extent(len(points), float(weights.sum()), low, high)
    return found


@dataclass(frozen=True)
class Spread(Answer):
    """How features spread between their least value, which is 0 here, and their greatest, 1."""

    weights: FloatArray
    """Of the rows in which they are observed, shape (d,)."""
    means: FloatArray
    """Shape (d,)."""
    squares: FloatArray
    """Weighted sums of squared differences from the means, shape (d,)."""

    def __add__(self, other: Self) -> Self:
        weights, gaps = self.weights + other.weights, other.means - self.means
        shares = other.weights / np.where(weights > 0.0, weights, 1.0)
        return type(self)(
            weights,
            self.means + shares * gaps,
            self.squares + other.squares + self.weights * shares * gaps**2,
        )


def _spread(rows: Rows, index: int, *, low: FloatArray, widths: FloatArray) -> Spread:
    """Return how features spread; ``widths`` are greatest less least values, or 1."""
    found = Spread(*np.zeros((3, len(low))))
    for points, _, weights in _READER.read(rows, index):
        places = (points - low) / widths
        known = ~np.isnan(places) * weights[:, None]
        totals = known.sum(axis=0)
        shares = known / np.where(totals > 0.0, totals, 1.0)
        places = filled(places, np.zeros(1))
        means = (shares * places).sum(axis=0)
        found = found + Spread(totals, means, (known * (places - means) ** 2).sum(axis=0))
    return found


@dataclass(frozen=True)
class Features:
    """What all blocks say of the features."""

    rows: int
    weight: float
    known: FloatArray
    """Share of the weight in which they are observed, shape (d,)."""
    means: FloatArray
    """Shape (d,)."""
    deviations: FloatArray
    """Standard deviations, shape (d,): 0 of those that are constant."""
    size: float
    """Largest absolute value."""
    low: FloatArray
    """Shape (d,)."""
    high: FloatArray
    """Shape (d,)."""


def features_of(blocks: Blocks, n_features: int) -> Features:
    """Ask all blocks, twice.

    Where nothing is observed of a feature, numbers are NaN.

    Examples
    --------
    >>> blocks = OneBlock(Rows(np.array([[0.0, 1.0], [4.0, np.nan], [2.0, 3.0]]), None, None))
    >>> found = features_of(blocks, 2)
    >>> found.rows, found.known.round(2), found.means, found.deviations.round(2)
    (3, array([1.  , 0.67]), array([2., 2.]), array([1.63, 1.  ]))
    """
    extent = blocks.total(partial(_extent, n_features=n_features))
    if extent.rows == 0:
        raise ValueError("X has no row of a weight above 0: it must have at least one")
    observed = extent.low <= extent.high
    low, high = (np.where(observed, one, np.nan) for one in (extent.low, extent.high))
    widths = np.where(high > low, high - low, 1.0)
    spread = blocks.total(partial(_spread, low=low, widths=widths))
    weights = np.where(observed, spread.weights, np.nan)
    sizes = np.fmax(np.abs(low), np.abs(high))
    deviations = widths * np.sqrt(spread.squares / weights)
    deviations = beyond_rounding(deviations, sizes, float(np.finfo(np.float64).eps))
    size = float(np.fmax.reduce(sizes))
    means = low + widths * spread.means
    known = spread.weights / extent.weight
    return Features(extent.rows, extent.weight, known, means, deviations, size, low, high)


def places(
    blocks: Blocks, features: Features, units: FloatArray, n_components: int, seed: int
) -> tuple[FloatArray, Sample]:
    """Anneal codevectors by sums, and refine them on a sample of the rows.

    Both are in units, shape (d,), and NaN stays in the sample; to codevectors, shape (K, d), the
    features' means are there. Fewer than K distinct ones stand there more than once.
    """
    mean = features.means / units
    divergence = InUnits(units, mean)
    moments = Moments(
        np.array([features.rows]), np.array([features.weight]), mean[None], features.low,
        features.high,
    )  # fmt: skip
    training, holed = (
        BlockAnnealing(blocks, Reader(one, None, missing=True), moments, _ANNEALING_ROWS, seed)
        for one in (divergence, InUnits(units))
    )
    schedule = Schedule(
        max_codevectors=n_components,
        min_temperature=0.0,
        cooling=FAST,
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
    sample, _ = holed.sample(n_components)
    rows = weighted(filled(sample.points, mean), sample.weights)
    rng = np.random.default_rng(len(rows.points))
    codevectors = refine(rows.points, rows.weights, current.codevectors, rng)
    return codevectors[np.arange(n_components) % len(codevectors)], sample


# Expectation: what a block answers.


@dataclass(frozen=True)
class Statistics(Answer):
    """What K components of d features take of samples."""

    masses: FloatArray
    """Σ w r_k, shape (K,)."""
    moves: FloatArray
    """Σ w r_k (x - μ_k), shape (K, d)."""
    spreads: FloatArray
    """Σ w r_k (x - μ_k)(x - μ_k)ᵀ, shape (K, d, d), of which the upper triangles count; if
    covariances are not full, its diagonal, shape (K, 1, d)."""
    log_likelihood: FloatArray
    """Σ w log p(x), shape (1,), less (d/2) log 2π for each of the features that are observed; of
    densities to the power β if they are tempered."""
    weight: FloatArray
    """Σ w, shape (1,)."""

    @property
    def score(self) -> float:
        """Mean of the log-likelihoods."""
        return float(self.log_likelihood[0] / self.weight[0])


@dataclass(frozen=True)
class Expectation:
    """Asks a block for the sufficient statistics of a mixture: the E step.

    Responsibilities are r_k ∝ (π_k N(x; μ_k, Σ_k))^β. Of what is missing a component takes in what
    it expects: conditional means, and second moments.
    """

    reader: Reader
    mixture: Mixture
    beta: float = 1.0

    def __call__(self, rows: Rows, index: int) -> Statistics:
        """Answer."""
        own = _owned(self.mixture)
        (n, d), full = own.means.shape, own.axes is not None
        sums = Statistics(
            np.zeros(n), np.zeros((n, d)), np.zeros((n, d if full else 1, d)), np.zeros(1),
            np.zeros(1),
        )  # fmt: skip
        variances = np.broadcast_to(learning.covariance_parts(own)[0], (n, d))
        variances, gaps = np.ascontiguousarray(1.0 / variances), np.empty(d)
        for points, weights, shares, logs, room in self.measure(rows, index, own):
            sums.log_likelihood[:] += weights @ logs
            sums.weight[:] += weights.sum()
            _add_up(
                points, weights, shares, own, own.axes, variances, gaps, sums.masses, sums.moves,
                sums.spreads, room,
            )  # fmt: skip
        return sums

    def measure(self, rows: Rows, index: int, own: Mixture) -> Iterator[Any]:
        """Measure a few rows at a time.

        Yields points and weights, responsibilities, shape (n, K), log-likelihoods, shape (n,), as
        :class:`Statistics` adds them up, and room for what is missing.
        """
        buffer = np.empty((_CHUNK + 1, len(own.weights)))
        for chunk in self.reader.read(rows, index):
            for begin in range(0, len(chunk.points), _CHUNK):
                points = chunk.points[begin : begin + _CHUNK]
                room = None if holes(points) is None else Room.of(points.shape[1])
                shares = buffer[: len(points)]
                order = np.arange(len(points))
                write_logs(points, order, own, self.beta, NEGLIGIBLE_LOG, buffer, room)
                logs = _normalize(shares)
                yield points, chunk.weights[begin : begin + _CHUNK], shares, logs, room


def _owned(mixture: Mixture) -> Mixture:
    """Arrays as they are compiled for: what comes from elsewhere may be read-only."""
    copies: Any = [np.array(one) if isinstance(one, np.ndarray) else one for one in mixture]
    return Mixture(*copies)


def _normalize(logs: FloatArray) -> FloatArray:
    """Turn logs of densities, shape (n, K), into responsibilities; their log sums, shape (n,)."""
    peaks = logs.max(axis=1)
    logs -= peaks[:, None]
    np.exp(logs, out=logs)
    totals = logs.sum(axis=1)
    logs /= totals[:, None]
    return np.asarray(peaks + np.log(totals))


@compiled
def _add_up(
    points: FloatArray, weights: FloatArray, shares: FloatArray, mixture: Mixture,
    axes: Array | None, variances: FloatArray, gaps: FloatArray, masses: FloatArray,
    moves: FloatArray, spreads: FloatArray, room: Room | None,
) -> None:  # fmt: skip
    """Add what samples, shape (n, d), give each component to masses, moves and spreads.

    ``variances``, shape (K, d), count where covariances are not full and a value is missing;
    ``gaps``, shape (d,), and ``room`` are scratch.
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
                _add_unknown(gain, k, n_missing, spreads, room)


@inlined
def _add_unknown(gain: float, k: int, n: int, spreads: FloatArray, room: Room | None) -> None:
    # The covariance of what is missing, Σ r rᵀ over its roots; places rise.
    if room is not None:
        places, roots = room.places, room.roots
        for root in range(n):
            for a in range(root + 1):
                pull = gain * roots[root, a]
                for b in range(a, root + 1):
                    spreads[k, places[a], places[b]] += pull * roots[root, b]


# Maximization.


class Reached(NamedTuple):
    """Where a climb ends."""

    mixture: Mixture
    score: float
    """Mean log-likelihood when it was last measured, as :class:`Statistics` has it."""
    passes: int
    converged: bool


@dataclass(frozen=True)
class Climb:
    """Rows to learn from, and how."""

    blocks: Blocks
    reader: Reader
    covariance_type: str
    max_precision: float

    def start(self, means: FloatArray) -> Mixture:
        """Give each row to the nearest mean, shape (K, d)."""
        first = learning.new_mixture(means, self.covariance_type, self.max_precision, 1.0, 0.0)
        Progress(first.progress).phase = RELEASED
        return self.step(first)

    def ask(self, mixture: Mixture, beta: float = 1.0) -> Statistics:
        """Add up over all blocks."""
        return self.blocks.total(Expectation(self.reader, mixture, beta))

    def step(self, mixture: Mixture, beta: float = 1.0) -> Mixture:
        """Expect, and maximize."""
        return _maximized(mixture, self.ask(mixture, beta), self.max_precision)

    def tempered(self, mixture: Mixture, beta: float) -> Mixture:
        """Follow responsibilities that are tempered, less and less."""
        for power in np.linspace(1.0, 0.0, _TEMPERED_PASSES, endpoint=False):
            mixture = self.step(mixture, float(beta**power))
        return mixture

    def climb(self, mixture: Mixture, max_iter: int, tol: float) -> Reached:
        """Go on until a pass raises the mean log-likelihood by less than ``tol``."""
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
        """Return the same for some rows that are here."""
        return replace(self, blocks=OneBlock(Rows(points, None, weights)))


def _maximized(mixture: Mixture, sums: Statistics, max_precision: float) -> Mixture:
    """Return the mixture of these statistics: the M step.

    Eigenvalues of the precisions are bounded. A component that takes next to nothing stays where it
    is, with next to no weight.
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


class Members(NamedTuple):
    """Rows by the components that have a share in them."""

    rows: IntArray
    """Shape (m,), component after component."""
    shares: FloatArray
    """Shape (m,)."""
    ends: IntArray
    """Where those of each component end, shape (K,)."""
    costs: FloatArray
    """By how much the mean log-likelihood falls if a component is left out, shape (K,)."""


def best_of(here: Climb, sample: Sample, means: FloatArray, tol: float) -> Reached:
    """Climb from means, shape (K, d), and exchange until nothing is gained.

    From the means it climbs at once, and tempered in two ways: what is best goes on. The rows of
    ``here`` are those of the sample.
    """
    start = here.start(means)
    begun = [start, *(here.tempered(start, beta) for beta in _INVERSE_TEMPERATURES)]
    found = [here.climb(mixture, _MAX_PASSES, tol) for mixture in begun]
    best = max(found, key=lambda one: one.score)
    trials = 0
    while len(means) > 1 and trials < _MAX_TRIALS:
        exchanged = _exchanges(here, sample, best.mixture)
        for mixture in exchanged[:_TRIALS]:
            trials += 1
            tried = here.climb(mixture, _MAX_PASSES, tol)
            if tried.score > best.score + _MIN_GAIN:
                best = tried
                break
        else:
            break
    return best


def _exchanges(here: Climb, sample: Sample, mixture: Mixture) -> list[Mixture]:
    """Return what could be better, what promises most first."""
    members = _members(here, sample, mixture)
    splits = [_split(here, sample, mixture, members, k) for k in range(len(mixture.weights))]
    promised = np.array([gain for gain, _ in splits])[:, None] - members.costs
    np.fill_diagonal(promised, -np.inf)
    order = np.argsort(-promised, axis=None, kind="stable")[:_TRIALS]
    places = (divmod(int(i), len(splits)) for i in order)
    return [_exchanged(mixture, split, freed, splits[split][1]) for split, freed in places]


def _members(here: Climb, sample: Sample, mixture: Mixture) -> Members:
    """Find out who has a share in which rows."""
    rows, owners, shares, begin = [], [], [], 0
    costs = np.zeros(len(mixture.weights))
    question = Expectation(here.reader, mixture)
    all_rows = Rows(sample.points, None, sample.weights)
    for points, weights, own, _, _ in question.measure(all_rows, 0, _owned(mixture)):
        costs -= weights @ np.log(np.maximum(1.0 - own, _MIN_SHARE**4))
        i, k = np.nonzero(own > _MIN_SHARE)
        rows.append(begin + i)
        owners.append(k)
        shares.append(own[i, k])
        begin += len(points)
    order = np.argsort(np.concatenate(owners), kind="stable")
    counts = np.bincount(np.concatenate(owners), minlength=len(costs))
    return Members(
        np.concatenate(rows)[order], np.concatenate(shares)[order], np.cumsum(counts),
        costs / sample.weights.sum(),
    )  # fmt: skip


def _split(
    here: Climb, sample: Sample, mixture: Mixture, members: Members, k: int
) -> tuple[float, Mixture]:
    """Try two components on the rows of one; returns the gain in log-likelihood, and the pair."""
    begin = members.ends[k - 1] if k > 0 else 0
    own = slice(begin, members.ends[k])
    rows = members.rows[own]
    alone = _component(mixture, k)
    weights = sample.weights[rows] * members.shares[own]
    if len(rows) < 2:
        return -np.inf, alone
    local = here.here(sample.points[rows], weights)
    sums = local.ask(alone)
    spread = np.triu(sums.spreads[0]) / sums.masses[0]
    if mixture.axes is None:
        j = int(spread[0].argmax())
        way = np.zeros(len(spread[0]))
        way[j] = np.sqrt(spread[0, j])
    else:
        values, vectors = np.linalg.eigh(spread, UPLO="U")
        way = np.sqrt(max(values[-1], 0.0)) * vectors[:, -1]
    reached = local.climb(local.start(alone.means + np.outer([1.0, -1.0], way)), _SPLIT_PASSES, 0.0)
    gain = (reached.score - sums.score) * weights.sum() / sample.weights.sum()
    return float(gain), reached.mixture


def _component(mixture: Mixture, k: int) -> Mixture:
    """Return a mixture of a component alone."""
    own = slice(k, k + 1)
    return mixture._replace(
        means=mixture.means[own], precisions=mixture.precisions[own], weights=np.ones(1),
        axes=None if mixture.axes is None else mixture.axes[[k, -1]],
        half_log_dets=mixture.half_log_dets[own],
    )  # fmt: skip


def _exchanged(mixture: Mixture, split: int, freed: int, pair: Mixture) -> Mixture:
    """Put two components in the places of one that is split and of another, which is given up."""
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
    """Gaussian mixture of a Dask array or frame, by sums that blocks add up where they lie.

    In a pass each block adds up what every component takes of its rows: weights, means and
    covariances follow from the sums of all blocks, as expectation maximization has it. Means start
    from annealed codevectors (:class:`oda_rl.DistributedODAClusterer`). Rows stay where they are,
    but for a sample of about 50,000 (or 10 a component), on which components find their places:
    with responsibilities that are tempered at first, and by exchanges, in which a component that is
    hardly needed takes over half of another one. Passes over all rows follow. Dask computes again
    what is lost with a worker. The same blocks and the same ``random_state`` give the same bits,
    whatever computes them.

    It needs ``pip install "oda-rl[cluster]"``. ``fit`` reads the data once a pass: call
    ``X.persist()`` before if the cluster has the memory.

    Parameters
    ----------
    n_components : int, default=1
        K ≥ 1.
    covariance_type : {"diag", "full", "tied_spherical"}, default="diag"
        As for :class:`oda_rl.SGDGaussianMixture`.
    max_iter : int, default=100
        Most passes over all rows, ≥ 1.
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
        Passes over all rows after components have found their places.
    lower_bound_ : float
        Mean log-likelihood of the rows in the last pass.
    n_features_in_, feature_names_in_
        Number of features, and their names, if X had any.

    References
    ----------
    A. P. Dempster, N. M. Laird, D. B. Rubin, "Maximum likelihood from incomplete data via the EM
    algorithm", Journal of the Royal Statistical Society B 39, 1977; N. Ueda, R. Nakano,
    "Deterministic annealing EM algorithm", Neural Networks 11, 1998; N. Ueda, R. Nakano, Z.
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

    LEARNED: ClassVar[dict[str, Any]] = {
        **StreamingMixture.LEARNED,
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
            What is no collection is one block.
        y : Ignored
        sample_weight : Dask array, or array-like, shape (n_samples,), optional
            At least 0; in the blocks of X. A weight of 2 is the same as a row that stands there
            twice.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X is not that, or ``variance_floor`` does not fit; if nothing is observed of a row,
            or of a feature.

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` passes were too few.
        """
        blocks = self._opened(X, sample_weight)
        features = features_of(blocks, self.n_features_in_)
        self._check_features(features)
        self._set_units(features.deviations, features.size)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        means, sample = places(blocks, features, self._units, self.n_components, seed)
        shape = self.covariance_type, self._max_precision
        here = Climb(OneBlock(Rows(sample.points, None, sample.weights)), _READER, *shape)
        start = best_of(here, sample, means, float(self.tol)).mixture
        reader = Reader(InUnits(self._units), None, missing=True)
        climb = Climb(blocks, reader, *shape)
        reached = climb.climb(start, int(self.max_iter), float(self.tol))
        self._mixture, self.n_iter_ = reached.mixture, reached.passes
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

    def fit_predict(self, X: npt.ArrayLike, y: object = None, **fit_params: Any) -> IntArray:
        """Fit, and find the component that most likely made each row, of a collection lazily.

        Parameters
        ----------
        X, y
            As for :meth:`fit`.
        **fit_params
            ``sample_weight``.

        Returns
        -------
        ndarray or dask.array.Array, shape (n_samples,)
        """
        return self.fit(X, y, **fit_params).predict(X)

    predict = by_blocks(StreamingMixture.predict, lambda self: np.empty(0, np.int64))
    predict_proba = by_blocks(
        StreamingMixture.predict_proba, lambda self: np.empty((0, self.n_components))
    )
    score_samples = by_blocks(StreamingMixture.score_samples, lambda self: np.empty(0))

    def score(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> float:
        """Mean log-likelihood of the rows.

        Parameters
        ----------
        X : array-like or Dask collection, shape (n_samples, n_features)
            Of a collection blocks answer with sums, too.
        y : Ignored
        sample_weight : as X is, shape (n_samples,), optional
            At least 0.
        """
        if not is_lazy(X):
            return super().score(X, y, sample_weight)
        return self._scored(X, sample_weight).mean

    def aic(self, X: npt.ArrayLike) -> float:
        """Akaike's information criterion on X, an array or a collection; the lower the better."""
        if not is_lazy(X):
            return super().aic(X)
        return 2.0 * (self._n_parameters() - self._scored(X).total)

    def bic(self, X: npt.ArrayLike) -> float:
        """Bayes' information criterion on X, an array or a collection; the lower the better."""
        if not is_lazy(X):
            return super().bic(X)
        scored = self._scored(X)
        return self._n_parameters() * math.log(scored.rows) - 2.0 * scored.total

    def _scored(self, X: Any, sample_weight: Any = None) -> Score:
        check_is_fitted(self)
        blocks = blocks_of(self, X, None, sample_weight, reset=False)
        return blocks.total(partial(likelihood, model=bare(self)))

    def _opened(self, X: Any, sample_weight: Any) -> Blocks:
        """Check rows that are here, and put them into an order of their own; or find the blocks."""
        if is_lazy(X):
            return blocks_of(self, X, None, sample_weight, reset=True)
        points = self._learnable(X, reset=True)
        data = weighted(points, checked_weights(sample_weight, points))
        return OneBlock(Rows(data.points, None, data.weights))

    def _check_features(self, features: Features) -> None:
        size = max(features.rows, round(features.weight))
        if size < self.n_components:
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = {self.n_components}, "
                f"n_samples = {size}"
            )
        check_columns(self, np.where(features.known > 0.0, 0.0, np.nan)[None])
