"""What a block answers to the components of a Gaussian mixture: sufficient statistics that add up.

References
----------
A. P. Dempster, N. M. Laird, D. B. Rubin, "Maximum likelihood from incomplete data via the EM
algorithm", Journal of the Royal Statistical Society B 39, 1977.
Z. Ghahramani, M. I. Jordan, "Supervised learning from incomplete data via an EM approach", Advances
in Neural Information Processing Systems 6, 1994: where values are missing.
N. Ueda, R. Nakano, "Deterministic annealing EM algorithm", Neural Networks 11, 1998: tempering.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np

from oda_rl._compile import compiled, inlined
from oda_rl._types import Array, FloatArray
from oda_rl.distributed.blocks import Rows
from oda_rl.distributed.reading import Reader, weights_of
from oda_rl.mixtures import learning
from oda_rl.mixtures.kernels import (
    NEGLIGIBLE_LOG,
    Room,
    complete,
    gap_of,
    is_missing,
    write_logs,
)
from oda_rl.mixtures.state import Mixture
from oda_rl.samples import holes

_LEAST_SHARE = 1e-9  # a smaller responsibility is left out
_ROWS = 1024  # that are measured at once


@dataclass(frozen=True)
class Statistics:
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

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def score(self) -> float:
        """Mean of the log-likelihoods."""
        return float(self.log_likelihood[0] / self.weight[0])


class Measured(NamedTuple):
    """A few rows, and whose they are."""

    points: FloatArray
    """Shape (n, d), in the mixture's units."""
    weights: FloatArray
    """Shape (n,)."""
    shares: FloatArray
    """Responsibilities, shape (n, K), valid until the next are measured."""
    logs: FloatArray
    """Log-likelihoods, shape (n,), as :class:`Statistics` adds them up."""
    room: Room | None
    """For what is missing, if anything is."""


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
        own = owned(self.mixture)
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
            arguments: tuple[Any, ...] = (
                points, weights, shares, own.means, own.precisions, own.axes, variances, gaps,
                sums.masses, sums.moves, sums.spreads, room,
            )  # fmt: skip
            add_up(*arguments)
        return sums

    def measure(self, rows: Rows, index: int, own: Mixture) -> Iterator[Measured]:
        """Measure responsibilities, a few rows at a time."""
        buffer = np.empty((_ROWS + 1, len(own.weights)))
        for chunk in self.reader.read(rows, index):
            for begin in range(0, len(chunk.points), _ROWS):
                points = chunk.points[begin : begin + _ROWS]
                room = None if holes(points) is None else Room.of(points.shape[1])
                shares = buffer[: len(points)]
                order = np.arange(len(points))
                write_logs(points, order, own, self.beta, NEGLIGIBLE_LOG, buffer, room)
                logs = _normalize(shares)
                yield Measured(points, chunk.weights[begin : begin + _ROWS], shares, logs, room)


def owned(mixture: Mixture) -> Mixture:
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
def add_up(
    points: FloatArray, weights: FloatArray, shares: FloatArray, means: Array, precisions: Array,
    axes: Array | None, variances: FloatArray, gaps: FloatArray, masses: FloatArray,
    moves: FloatArray, spreads: FloatArray, room: Room | None,
) -> None:  # fmt: skip
    """Add what samples, shape (n, d), give each component to masses, moves and spreads.

    These are those of :class:`Statistics`; ``shares``, shape (n, K), are responsibilities, and
    means, precisions and axes those of a :class:`oda_rl.mixtures.state.Mixture`. ``variances``,
    shape (K, d), count where covariances are not full and a value is missing; ``gaps``, shape (d,),
    is scratch, and ``room``, if values are missing.
    """
    for i in range(points.shape[0]):
        for k in range(shares.shape[1]):
            if shares[i, k] > _LEAST_SHARE:
                gain = weights[i] * shares[i, k]
                masses[k] += gain
                _add_one(
                    points, i, gain, means, precisions, axes, variances, k, gaps, moves, spreads,
                    room,
                )  # fmt: skip


@inlined
def _add_one(
    points: FloatArray, i: int, gain: float, means: Array, precisions: Array, axes: Array | None,
    variances: FloatArray, k: int, gaps: FloatArray, moves: FloatArray, spreads: FloatArray,
    room: Room | None,
) -> None:  # fmt: skip
    d = points.shape[1]
    n_missing = complete(points, i, means, precisions, axes, k, room)
    for j in range(d):
        gaps[j] = gap_of(points, i, means, k, j, room)
        moves[k, j] += gain * gaps[j]
    if axes is None:
        for j in range(d):
            square = gaps[j] * gaps[j]
            if is_missing(points, i, j, room):
                square = variances[k, j]
            spreads[k, 0, j] += gain * square
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


@dataclass(frozen=True)
class Scored:
    """How likely rows are."""

    total: float
    """Σ w log p(x)."""
    weight: float
    rows: int

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.total + other.total, self.weight + other.weight, self.rows + other.rows
        )


@dataclass(frozen=True)
class Scoring:
    """Asks a block how likely its rows are to a fitted model."""

    model: Any

    def __call__(self, rows: Rows, index: int) -> Scored:
        """Answer."""
        points = np.asarray(rows.points)
        weights = weights_of(rows.weights, len(points))
        if len(points) == 0:
            return Scored(0.0, 0.0, 0)
        return Scored(
            float(weights @ self.model.score_samples(points)), float(weights.sum()), len(points)
        )
