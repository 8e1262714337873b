"""Streaming Gaussian mixtures: the compiled steps of stochastic expectation maximization.

Every component takes its share of a sample's responsibility (eq. 13 of Gepperth and Pfülb) into its
moments.

References
----------
O. Cappé, E. Moulines, "On-line expectation-maximization algorithm for latent data models", Journal
of the Royal Statistical Society B 71, 2009.
"""

import math

import numpy as np

from oda_rl._compile import compiled, inlined, spliced
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.mixtures.densities import write_likely
from oda_rl.mixtures.distances import half_log_det, known_nearness, responsibilities
from oda_rl.mixtures.missing import (
    Room,
    complete,
    gap_of,
    is_missing,
    n_known,
    write_marginals,
    write_root,
)
from oda_rl.mixtures.state import LEAST_PRECISION, Mixture, progress_of
from oda_rl.mixtures.updates import flushed, pull

_LEAST_SHARE = 1e-3  # a smaller responsibility moves no mean and no covariance
_LARGEST_STEP = 0.5


@spliced
def absorb(
    points: Array, rows: IntArray, shares: FloatArray, step: float, max_precision: float,
    mixture: Mixture, room: Room | None,
) -> None:  # fmt: skip
    """Take a block into the moments of all components: s ← (1 - ρ) s + ρ mean of the block's.

    s_k are Σ r_k, Σ r_k x and Σ r_k x xᵀ (or its diagonal), of which mean, covariance and weight
    follow (Cappé and Moulines, 2009); responsibilities below .001 move no mean and no covariance.
    Of what is missing of a sample, a component takes in what it expects: conditional means and
    second moments, given what is observed (Ghahramani and Jordan, 1994).

    Parameters
    ----------
    points : ndarray, shape (n, d)
    rows : ndarray, shape (B,)
        Those of the block.
    shares : ndarray, shape (≥ B, K)
        Responsibilities.
    step : float
        ρ, in (0, 1).
    max_precision : float
        Bound of P.
    mixture : Mixture
        With released covariances.
    room : Room or None
        Scratch, if values are missing.
    """
    weights = mixture.weights
    n, d = rows.shape[0], points.shape[1]
    for b in range(n):
        # One after another with these steps is (1 - ρ) s + ρ/B Σ, exactly.
        each = step / n
        own = each / (1.0 - step + each * (b + 1.0))
        spread, expected = 0.0, 0.0
        total = 0.0
        for k in range(weights.shape[0]):
            total += shares[b, k]
        if total == 0.0:
            continue
        for k in range(weights.shape[0]):
            share = shares[b, k]
            weights[k] = max((1.0 - own) * weights[k] + own * share, 1e-30)
            if share <= _LEAST_SHARE:
                continue
            a = min(own * share / weights[k], _LARGEST_STEP)
            if mixture.spherical:
                distance = known_nearness(points, rows[b], mixture.means, k, np.inf, room)
                spread += share * (1.0 - a) * distance
                expected += share * (d - n_known(points, rows[b], room))
                pull(points, rows[b], mixture.means, k, a, room)
            else:
                _absorb_into(
                    points, rows[b], mixture.means, mixture.precisions, mixture.axes, k, a,
                    max_precision, room,
                )  # fmt: skip
                mixture.counts[k] = 1.0
        if mixture.spherical:
            progress = progress_of(mixture.progress, 0)
            spread += expected * progress.variance
            variance = (1.0 - own) * progress.variance + own * spread / d
            progress.variance = max(variance, 1.0 / max_precision)
    for k in range(weights.shape[0]):
        if mixture.counts[k] > 0.0:
            mixture.counts[k] = 0.0
            mixture.half_log_dets[k] = half_log_det(mixture.precisions, k)


@inlined
def _absorb_into(
    points: Array, i: int, means: Array, precisions: Array, axes: Array | None, k: int,
    step: float, max_precision: float, room: Room | None,
) -> None:  # fmt: skip
    # Σ ← (1 - a) (Σ + a (x - μ)(x - μ)ᵀ), with precisions.
    d = points.shape[1]
    n_missing = complete(points, i, means, precisions, axes, k, room)
    if axes is None:
        one, a = means.dtype.type(1.0), means.dtype.type(step)
        high, low = means.dtype.type(max_precision), means.dtype.type(LEAST_PRECISION)
        for j in range(d):
            if is_missing(points, i, j, room):
                continue  # what is expected is the mean and the variance that there are
            gap = points[i, j] - means[k, j]
            p = precisions[k, j]
            means[k, j] = flushed(means[k, j] + a * gap)
            p /= (one - a) * (one + a * p * (gap * gap))
            precisions[k, j] = min(max(p, low), high)
    else:
        # Σ is the sum of r rᵀ over roots r, the eigenvectors times standard deviations. So is Σ + a
        # (x - μ)(x - μ)ᵀ, with one more root; what is missing has covariances with roots, too.
        last = means.shape[0]
        gain = math.sqrt(step)
        for u in range(d):
            deviation = 1.0 / math.sqrt(np.float64(precisions[k, u]))
            for j in range(d):
                axes[k, u, j] *= deviation
        for j in range(d):
            axes[last, 0, j] = gain * gap_of(points, i, means, k, j, room)
        rotate_apart(axes, k)
        for root in range(n_missing):
            write_root(room, root, math.sqrt(step / (1.0 - step)), axes)
            rotate_apart(axes, k)
        for u in range(d):
            variance = 0.0
            for j in range(d):
                variance += axes[k, u, j] * axes[k, u, j]
            deviation = math.sqrt(variance)
            for j in range(d):
                axes[k, u, j] /= deviation
            p = 1.0 / max((1.0 - step) * variance, 1.0 / max_precision)
            precisions[k, u] = max(p, LEAST_PRECISION)
        _pull_expected(points, i, means, k, step, room)


@inlined
def _pull_expected(
    points: Array, i: int, means: Array, k: int, step: float, room: Room | None
) -> None:
    if room is None:
        pull(points, i, means, k, step, room)
    else:
        for j in range(points.shape[1]):
            means[k, j] = flushed(means[k, j] + means.dtype.type(step * room.gaps[j]))


@spliced
def rotate_apart(axes: Array, k: int) -> None:
    """Make the d rows of axes[k] and the first of axes[-1], of d features, orthogonal.

    Rotations leave the sum of their outer products as it is; of d + 1 orthogonal rows one is 0: the
    last. Three sweeps of Hestenes' one-sided variant of Jacobi's method, which converges
    quadratically, and begins near to its end.

    Examples
    --------
    >>> axes = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [0.0, 0.0]]])
    >>> rotate_apart(axes, 0)
    >>> (axes[0] @ axes[0].T).round(6) + 0.0
    array([[3., 0.],
           [0., 1.]])
    """
    d, last = axes.shape[2], axes.shape[0] - 1
    for _ in range(3):
        for u in range(d):
            for place in range(u + 1, d + 1):
                m, v = (k, place) if place < d else (last, 0)
                first, second, off = 0.0, 0.0, 0.0
                for w in range(d):
                    left, right = axes[k, u, w], axes[m, v, w]
                    first += left * left
                    second += right * right
                    off += left * right
                if off == 0.0:
                    continue
                theta = 0.5 * (second - first) / off
                t = 1.0 / (abs(theta) + math.sqrt(1.0 + theta * theta))
                if theta < 0.0:
                    t = -t
                c = 1.0 / math.sqrt(1.0 + t * t)
                s = t * c
                if second + t * off > first - t * off:  # the longer one comes first
                    c, s = s, -c
                for w in range(d):
                    left, right = axes[k, u, w], axes[m, v, w]
                    axes[k, u, w], axes[m, v, w] = c * left - s * right, s * left + c * right


@compiled
def follow_em(
    points: Array, order: IntArray, logs: FloatArray, steps: FloatArray, betas: FloatArray,
    max_precision: float, model: Mixture, statistics: Mixture, room: Room | None,
) -> float:  # fmt: skip
    """Stochastic EM, one sample at a time; returns the sum of their log densities where β = 1.

    ``steps`` and ``betas``, shape (m,), are ρ and β; responsibilities are those of ``model``, and
    go into ``statistics``, which may be the same object; ``room`` is scratch if values are missing.
    """
    total = 0.0
    for t in range(order.shape[0]):
        if room is None:
            write_likely(points, order[t], model, betas[t], logs)
        else:
            write_marginals(points, order[t], model, betas[t], logs, 0, room)
        total += responsibilities(logs, betas[t])
        absorb(points, order[t : t + 1], logs, steps[t], max_precision, statistics, room)
    return total
