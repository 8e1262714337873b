"""Streaming Gaussian mixtures: the compiled functions that let them learn.

A mixture has K components on a periodic grid, near to square. Samples come in blocks; of each block
the caller says how near every component is to every sample, and one of these functions moves the
components:

:func:`anneal_singly`, while all have one spherical covariance
    The winner k* of a sample is the component whose neighbourhood on the grid is nearest,
    argmax_k -Σ_j g_kj |x - μ_j|², and μ_j ← μ_j + ε g_k*j (x - μ_j): the natural gradient of the
    smoothed max-component log-likelihood (eq. 5) with P and π held. Once the loss is stationary
    (eq. 6) the width σ of g falls to .9 of itself.
:func:`quantize`, when g is nearly the identity
    Only the winner moves. Every K/ε samples the component that is needed least takes the place of
    a sample of the one that errs most.
:func:`absorb`, when covariances are released
    Every component takes its share of the sample's responsibility (eq. 13) into its moments. At
    first responsibilities are tempered (Ueda and Nakano, 1998): of log densities times β, which
    rises to 1.
:func:`ascend`
    All that as printed in algorithm 1 instead: plain gradients of eq. 5 for μ, D and ξ.

References
----------
A. Gepperth, B. Pfülb, "Gradient-based training of Gaussian mixture models for high-dimensional
streaming data", Neural Processing Letters, 2021.
N. Ueda, R. Nakano, "Deterministic annealing EM algorithm", Neural Networks 11, 1998.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from oda_rl._compile import compiled, internal, reordered, spliced
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.mixtures.distances import (
    half_log_det,
    least_log,
    mahalanobis,
    nearness,
    responsibilities,
    two_best,
    two_nearest,
    write_distances,
)

ANNEALING, QUANTIZING, RELEASED = 0.0, 1.0, 2.0

# Slots of the control array.
PHASE, WIDTH, RATE, SEEN, SHOWN, PERIODS, SMOOTHED, PREVIOUS, REFERENCE = range(9)
VARIANCE, FREED, CROWDED, MOVED, LOSS, LOSSES, GAP, FIRST_BETA = range(9, 17)
N_CONTROL = 17

NARROW = 0.25  # a narrower neighbourhood is none: e^(-1/(2σ²)) < 4e-4
COOLING = 0.9
_REFERENCE_SAMPLES = 100
LEAST_PULL = 1e-3  # of the winner's: a weaker pull is left out
_LEAST_SHARE = 1e-3  # likewise of responsibilities
_LARGEST_STEP = 0.5
CROWDING = 0.1  # relocate what saves less than this share of the largest error
_LEAST_PRECISION = 1e-30


class Mixture(NamedTuple):
    """A mixture of K components of d features, and how far it has learned."""

    spherical: bool
    """Whether all components have one spherical covariance, always."""
    means: Array
    """μ, shape (K, d)."""
    precisions: Array
    """Diagonal of P, or its eigenvalues, shape (K, d); unused while covariances are held."""
    axes: Array | None
    """Eigenvectors of P as rows, shape (K + 1, d, d), the last scratch; None if P is diagonal."""
    weights: FloatArray
    """π, shape (K,)."""
    half_log_dets: FloatArray
    """½ log det P, shape (K,)."""
    grid: FloatArray
    """g, shape (K, K): rows sum to 1."""
    control: FloatArray
    """Phase, width, rate, smoothed loss ...: the slots above."""
    counts: FloatArray
    """Samples of a block that each has won, shape (K,); 0 between blocks."""
    sums: Array
    """And their sums, shape (K, d)."""
    errors: FloatArray
    """Squared distances of the period's samples from their winner, shape (K,)."""
    savings: FloatArray
    """How much greater they would be without this winner, shape (K,)."""


class Rules(NamedTuple):
    """How a mixture learns."""

    rate: float
    """ε at the beginning."""
    least_rate: float
    """And the least that it falls to."""
    period: int
    """Samples (1/alpha) from one check of the loss to the next."""
    delta: float
    """δ: the loss is stationary if its relative increase in a period is smaller."""
    last_width: float
    """Of the neighbourhood."""
    max_precision: float
    """Bound of P."""
    periods: int
    """How many to quantize before covariances are released; -1: they never are."""
    tempered: int
    """How many after that with tempered responsibilities."""
    memory: float
    """Share of what is known of errors that outlives a period of quantizing."""


@spliced
def write_likely(points: Array, i: int, mixture: Mixture, beta: float, out: FloatArray) -> None:
    """Write β (log π_k + log N(x_i; k)) to the first row of ``out``, shape (≥ 1, K).

    It is without -(d/2) log 2π, and may be -∞ where it is less than another's by 25, or by 5 if
    β < 1. Of released covariances.
    """
    best = -np.inf
    margin = least_log(beta) / beta
    variance = mixture.control[VARIANCE]
    d = points.shape[1]
    for k in range(mixture.means.shape[0]):
        log = math.log(mixture.weights[k])
        if mixture.spherical:
            log -= 0.5 * d * math.log(variance)
            limit = 2.0 * variance * (log + margin - best)
            log -= 0.5 * nearness(points, i, mixture.means, k, limit) / variance
        else:
            log += mixture.half_log_dets[k]
            limit = 2.0 * (log + margin - best)
            log -= 0.5 * mahalanobis(
                points, i, mixture.means, mixture.precisions, mixture.axes, k, limit
            )
        out[0, k] = beta * log
        best = max(best, log)


@reordered
def _smoothed(logs: FloatArray, b: int, grid: FloatArray, k: int) -> float:
    total = 0.0
    for j in range(grid.shape[1]):
        total += grid[k, j] * logs[b, j]
    return total


@internal
def _smoothed_best(logs: FloatArray, b: int, grid: FloatArray) -> tuple[int, float]:
    # argmax_k Σ_j g_kj log p_j, and the maximum (eq. 5); -1 if none is a number.
    winner, highest = -1, -np.inf
    for k in range(logs.shape[1]):
        total = _smoothed(logs, b, grid, k)
        if total > highest:
            winner, highest = k, total
    return winner, highest


@internal
def _count(counts: FloatArray, sums: Array, points: Array, i: int, winner: int) -> None:
    counts[winner] += 1.0
    for j in range(points.shape[1]):
        sums[winner, j] += points[i, j]


@internal
def _learn_variance(control: FloatArray, distance: float, rules: Rules) -> None:
    # Per feature, around the winner: a plain mean at first, then an exponential one.
    control[SHOWN] += 1.0
    step = max(1.0 / control[SHOWN], 1.0 / rules.period)
    control[VARIANCE] += step * (distance - control[VARIANCE])
    control[VARIANCE] = max(control[VARIANCE], 1.0 / rules.max_precision)


@internal
def _watch_loss(control: FloatArray, loss: float, rules: Rules) -> None:
    # Annealing control (section 2.4). Eq. 6 is 0/0 at its first check: the reference is the mean
    # loss of the first samples, and what is smoothed begins as that of the first period.
    control[SEEN] += 1.0
    seen = control[SEEN]
    if seen <= _REFERENCE_SAMPLES:
        control[REFERENCE] += (loss - control[REFERENCE]) / seen
    if seen <= rules.period:
        control[SMOOTHED] += (loss - control[SMOOTHED]) / seen
        control[PREVIOUS] = control[SMOOTHED]
        return
    control[SMOOTHED] += (loss - control[SMOOTHED]) / rules.period
    if seen % rules.period != 0.0:
        return
    increase = control[SMOOTHED] - control[PREVIOUS]
    since_start = control[PREVIOUS] - control[REFERENCE]
    control[PREVIOUS] = control[SMOOTHED]
    if increase < rules.delta * max(since_start, 0.0):  # worse than at first if data drift
        control[WIDTH] = max(COOLING * control[WIDTH], rules.last_width)
        control[RATE] = max(COOLING * control[RATE], rules.least_rate)


@compiled
def count_winners(
    points: Array, rows: IntArray, logs: FloatArray, mixture: Mixture, rules: Rules
) -> None:
    """Count the samples of a block that each component wins, and sum them, during annealing.

    Parameters
    ----------
    points : ndarray, shape (n, d)
    rows : ndarray, shape (B,)
        Those of the block.
    logs : ndarray, shape (≥ B, K)
        -|x - μ_k|² for each sample of the block.
    mixture, rules : Mixture, Rules
    """
    control, d = mixture.control, points.shape[1]
    for b in range(rows.shape[0]):
        winner, loss = _smoothed_best(logs, b, mixture.grid)
        if winner < 0:
            continue  # too far away for its distance to be a number
        _count(mixture.counts, mixture.sums, points, rows[b], winner)
        _learn_variance(control, -logs[b, winner] / d, rules)
        control[LOSS] += loss
        control[LOSSES] += 1.0


@compiled
def watch_losses(control: FloatArray, rules: Rules) -> None:
    """Let the width of the neighbourhood fall if the block's losses say so, and forget them.

    If it falls, the caller writes the grid anew.
    """
    for _ in range(int(control[LOSSES])):
        _watch_loss(control, control[LOSS] / control[LOSSES], rules)
    control[LOSS] = control[LOSSES] = 0.0
    _end_annealing(control)


@internal
def _end_annealing(control: FloatArray) -> None:
    if control[WIDTH] < NARROW:
        control[PHASE] = QUANTIZING
        control[SEEN] = 0.0


@internal
def _forget_block(counts: FloatArray, sums: Array) -> None:
    for k in range(counts.shape[0]):
        if counts[k] > 0.0:
            counts[k] = 0.0
            for j in range(sums.shape[1]):
                sums[k, j] = 0


@compiled
def quantize(
    points: Array, rows: IntArray, logs: FloatArray, begin: int, mixture: Mixture, rules: Rules
) -> int:
    """Count the samples of a block, from one on, that each component wins, until a period ends.

    One component a period is relocated. Parameters as for :func:`count_winners`; returns how many
    of the block have been counted then, and :func:`pull_winners` ends the block.
    """
    means, control = mixture.means, mixture.control
    periods = control[PERIODS]
    n: int = rows.shape[0]
    for b in range(begin, n):
        winner, second = two_best(logs, b)
        if winner < 0:
            continue
        next_distance = -logs[b, second] if second >= 0 else np.inf
        freed = _account(
            control, mixture.weights, mixture.errors, mixture.savings, winner,
            -logs[b, winner], next_distance, means.shape[1], rules,
        )  # fmt: skip
        if freed >= 0:
            _pull(points, rows[b], means, freed, 1.0)
        else:
            _count(mixture.counts, mixture.sums, points, rows[b], winner)
        if control[PERIODS] > periods:
            return b + 1
    return n


@compiled
def pull_winners(mixture: Mixture) -> None:
    """Let a block pull the winners of its samples, and forget it."""
    means, control = mixture.means, mixture.control
    n, d = means.shape
    for k in range(n):
        count = mixture.counts[k]
        if count > 0.0:
            step = -math.expm1(count * math.log1p(-control[RATE]))
            rest, share = means.dtype.type(1.0 - step), means.dtype.type(step / count)
            for j in range(d):
                means[k, j] = _flushed(rest * means[k, j] + share * mixture.sums[k, j])
    _forget_block(mixture.counts, mixture.sums)


@internal
def _account(
    control: FloatArray, weights: FloatArray, errors: FloatArray, savings: FloatArray,
    winner: int, distance: float, next_distance: float, d: int, rules: Rules,
) -> int:  # fmt: skip
    # Returns the component that is to take the place of the sample, or -1.
    _learn_variance(control, distance / d, rules)
    errors[winner] += distance
    if next_distance < np.inf:
        gap = next_distance - distance
        savings[winner] += gap
        control[GAP] += (gap - control[GAP]) / rules.period
    keep = 1.0 - 1.0 / rules.period
    for k in range(weights.shape[0]):
        weights[k] *= keep
    weights[winner] += 1.0 / rules.period
    control[SEEN] += 1.0
    freed = -1
    if control[CROWDED] == winner:
        freed = np.int64(control[FREED])  # type: ignore[assignment]  # int() is compiled apart
        weights[winner] *= 0.5
        weights[freed] += weights[winner]
        errors[winner] *= 0.5
        errors[freed] = errors[winner]
        savings[freed] = CROWDING * errors[winner]  # a trial
        control[CROWDED] = -1.0
        control[MOVED] += 1.0
    if control[SEEN] % rules.period == 0.0:
        control[PERIODS] += 1.0
        control[RATE] = max(COOLING * control[RATE], rules.least_rate)
    return freed


@spliced
def absorb(
    points: Array, rows: IntArray, shares: FloatArray, step: float, max_precision: float,
    mixture: Mixture,
) -> None:  # fmt: skip
    """Take a block into the moments of all components: s ← (1 - ρ) s + ρ mean of the block's.

    s_k are Σ r_k, Σ r_k x and Σ r_k x xᵀ (or its diagonal), of which mean, covariance and weight
    follow (Cappé and Moulines, 2009); responsibilities below .001 move no mean and no covariance.

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
    """
    weights = mixture.weights
    n = rows.shape[0]
    for b in range(n):
        # One after another with these steps is (1 - ρ) s + ρ/B Σ, exactly.
        each = step / n
        own = each / (1.0 - step + each * (b + 1.0))
        spread = 0.0
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
                distance = nearness(points, rows[b], mixture.means, k, np.inf)
                spread += share * (1.0 - a) * distance
                _pull(points, rows[b], mixture.means, k, a)
            else:
                _absorb_into(
                    points, rows[b], mixture.means, mixture.precisions, mixture.axes, k, a,
                    max_precision,
                )  # fmt: skip
                mixture.counts[k] = 1.0
        if mixture.spherical:
            control = mixture.control
            variance = (1.0 - own) * control[VARIANCE] + own * spread / points.shape[1]
            control[VARIANCE] = max(variance, 1.0 / max_precision)
    for k in range(weights.shape[0]):
        if mixture.counts[k] > 0.0:
            mixture.counts[k] = 0.0
            mixture.half_log_dets[k] = half_log_det(mixture.precisions, k)


@internal
def _pull(points: Array, i: int, means: Array, k: int, step: float) -> None:
    a = means.dtype.type(step)
    for j in range(points.shape[1]):
        means[k, j] = _flushed(means[k, j] + a * (points[i, j] - means[k, j]))


@internal
def _flushed(mean: Any) -> Any:
    # 0 if its cube is: where a feature is 0, means would get denormal, and their squares: slow.
    return mean if abs(mean * mean * mean) > 0 else mean * 0


@internal
def _absorb_into(
    points: Array, i: int, means: Array, precisions: Array, axes: Array | None, k: int,
    step: float, max_precision: float,
) -> None:  # fmt: skip
    # Σ ← (1 - a) (Σ + a (x - μ)(x - μ)ᵀ), with precisions.
    d = points.shape[1]
    if axes is None:
        one, a = means.dtype.type(1.0), means.dtype.type(step)
        high, low = means.dtype.type(max_precision), means.dtype.type(_LEAST_PRECISION)
        for j in range(d):
            gap = points[i, j] - means[k, j]
            p = precisions[k, j]
            means[k, j] = _flushed(means[k, j] + a * gap)
            p /= (one - a) * (one + a * p * (gap * gap))
            precisions[k, j] = min(max(p, low), high)
    else:
        # Σ is the sum of r rᵀ over roots r, the eigenvectors times standard deviations. So is Σ + a
        # (x - μ)(x - μ)ᵀ, with one more root.
        last = means.shape[0]
        gain = math.sqrt(step)
        for u in range(d):
            deviation = 1.0 / math.sqrt(np.float64(precisions[k, u]))
            for j in range(d):
                axes[k, u, j] *= deviation
        for j in range(d):
            axes[last, 0, j] = gain * (points[i, j] - means[k, j])
        rotate_apart(axes, k)
        for u in range(d):
            variance = 0.0
            for j in range(d):
                variance += axes[k, u, j] * axes[k, u, j]
            deviation = math.sqrt(variance)
            for j in range(d):
                axes[k, u, j] /= deviation
            p = 1.0 / max((1.0 - step) * variance, 1.0 / max_precision)
            precisions[k, u] = max(p, _LEAST_PRECISION)
        _pull(points, i, means, k, step)


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


@spliced
def orthonormalize(axes: Array) -> None:
    """Make rows, shape (d, d), orthonormal again, by Gram and Schmidt."""
    d = axes.shape[0]
    for u in range(d):
        for v in range(u):
            dot = 0.0
            for w in range(d):
                dot += axes[u, w] * axes[v, w]
            for w in range(d):
                axes[u, w] -= dot * axes[v, w]
        norm = 0.0
        for w in range(d):
            norm += axes[u, w] * axes[u, w]
        norm = math.sqrt(norm)
        for w in range(d):
            axes[u, w] /= norm


@spliced
def ascend(points: Array, rows: IntArray, logs: FloatArray, mixture: Mixture, rules: Rules) -> None:
    """Take gradient steps on the smoothed max-component log-likelihood (eq. 4 and 5).

    ∂μ = g P (x - μ), ∂D = g (1/D - D (x - μ)²) with P = D², ∂ξ = g - π: of each sample of a block
    of B in turn, with ε/B. A full P has the eigenvalues D², and its eigenvectors v get
    ∂v = -g D² vᵀ(x - μ) (x - μ) and are made orthonormal again; a spherical one has a single D,
    whose gradient is the mean over features. The width of g falls as in annealing.

    Parameters
    ----------
    points, rows, mixture, rules
        As for :func:`count_winners`.
    logs : ndarray, shape (≥ B, K)
        log π_k + log N(x; k) for each sample of the block, up to a constant.
    """
    control, grid, weights = mixture.control, mixture.grid, mixture.weights
    d = points.shape[1]
    each = control[RATE] / rows.shape[0]
    root = 1.0 / math.sqrt(control[VARIANCE])
    losses, n_losses = 0.0, 0
    for b in range(rows.shape[0]):
        winner, loss = _smoothed_best(logs, b, grid)
        if winner < 0:
            continue
        i = rows[b]
        losses += loss
        n_losses += 1
        slope, total = 0.0, 0.0
        for k in range(weights.shape[0]):
            g = grid[winner, k]
            weights[k] = max(weights[k] * math.exp(each * (g - weights[k])), 1e-30)
            total += weights[k]
            if g <= LEAST_PULL * grid[winner, winner]:
                continue
            if mixture.spherical:
                distance = nearness(points, i, mixture.means, k, np.inf)
                slope += g * (1.0 / root - root * distance / d)
                _pull(points, i, mixture.means, k, each * g * root * root)
            else:
                _ascend_one(points, i, mixture, mixture.axes, k, each * g, rules.max_precision)
        for k in range(weights.shape[0]):
            weights[k] /= total
        if mixture.spherical:
            root = _clipped(root + each * slope, rules.max_precision)
            control[VARIANCE] = 1.0 / (root * root)
    control[LOSS] += losses
    control[LOSSES] += n_losses
    for _ in range(n_losses):
        _watch_loss(control, losses / n_losses, rules)


@internal
def _clipped(root: float, max_precision: float) -> float:
    return min(max(root, math.sqrt(_LEAST_PRECISION)), math.sqrt(max_precision))


@internal
def _ascend_one(
    points: Array, i: int, mixture: Mixture, axes: Array | None, k: int, step: float,
    max_precision: float,
) -> None:  # fmt: skip
    means, precisions = mixture.means, mixture.precisions
    d = points.shape[1]
    if axes is None:
        for j in range(d):
            gap = np.float64(points[i, j]) - means[k, j]
            root = math.sqrt(np.float64(precisions[k, j]))
            means[k, j] += step * root * root * gap
            root = _clipped(root + step * (1.0 / root - root * gap * gap), max_precision)
            precisions[k, j] = root * root
    else:
        gaps, forces = axes[means.shape[0], 0], mixture.sums
        for j in range(d):
            gaps[j] = points[i, j] - means[k, j]
        for u in range(d):
            y = 0.0
            for j in range(d):
                y += axes[k, u, j] * gaps[j]
            root = math.sqrt(np.float64(precisions[k, u]))
            pull = step * root * root * y
            for j in range(d):
                forces[0, j] += pull * axes[k, u, j]
                axes[k, u, j] -= pull * gaps[j]
            root = _clipped(root + step * (1.0 / root - root * y * y), max_precision)
            precisions[k, u] = root * root
        for j in range(d):
            means[k, j] += forces[0, j]
            forces[0, j] = 0
        orthonormalize(axes[k])
    mixture.half_log_dets[k] = half_log_det(precisions, k)


@spliced
def log_densities(points: Array, mixture: Mixture, out: FloatArray) -> None:
    """Write log π_k + log N(x; k), without -(d/2) log 2π, to ``out``, shape (n, K)."""
    control, d = mixture.control, points.shape[1]
    held = control[PHASE] != RELEASED or mixture.spherical
    for i in range(points.shape[0]):
        for k in range(mixture.means.shape[0]):
            if held:
                distance = nearness(points, i, mixture.means, k, np.inf) / control[VARIANCE]
                log = -0.5 * d * math.log(control[VARIANCE])
            else:
                distance = mahalanobis(
                    points, i, mixture.means, mixture.precisions, mixture.axes, k, np.inf
                )
                log = mixture.half_log_dets[k]
            out[i, k] = math.log(mixture.weights[k]) + log - 0.5 * distance


@compiled
def anneal_singly(
    points: Array, order: IntArray, logs: FloatArray, mixture: Mixture, rules: Rules
) -> int:
    """Let samples, shape (n, d), pull winners and neighbours one by one in an order, shape (m,).

    ``logs`` (1, K) is scratch. Returns how many were shown before the width fell.
    """
    means, grid, control = mixture.means, mixture.grid, mixture.control
    width = control[WIDTH]
    n: int = order.shape[0]
    for t in range(n):
        i = order[t]
        write_distances(points, i, means, logs)
        winner, loss = _smoothed_best(logs, 0, grid)
        if winner >= 0:  # else too far away for its distance to be a number
            _learn_variance(control, -logs[0, winner] / points.shape[1], rules)
            for k in range(means.shape[0]):
                if grid[winner, k] > LEAST_PULL * grid[winner, winner]:
                    _pull(points, i, means, k, control[RATE] * grid[winner, k])
            _watch_loss(control, loss, rules)
        _end_annealing(control)
        if control[PHASE] != ANNEALING or control[WIDTH] != width:
            return t + 1
    return n


@compiled
def quantize_singly(points: Array, order: IntArray, mixture: Mixture, rules: Rules) -> int:
    """Do likewise as :func:`quantize` with samples one by one, until a period ends."""
    control = mixture.control
    periods = control[PERIODS]
    n: int = order.shape[0]
    for t in range(n):
        winner, distance, next_distance = two_nearest(points, order[t], mixture.means)
        if winner >= 0:
            freed = _account(
                control, mixture.weights, mixture.errors, mixture.savings, winner,
                distance, next_distance, points.shape[1], rules,
            )  # fmt: skip
            moved, step = (freed, 1.0) if freed >= 0 else (winner, control[RATE])
            _pull(points, order[t], mixture.means, moved, step)
        if control[PERIODS] > periods:
            return t + 1
    return n


@compiled
def ascend_singly(
    points: Array, order: IntArray, logs: FloatArray, mixture: Mixture, rules: Rules
) -> int:
    """Do as :func:`anneal_singly`, by :func:`ascend`."""
    width = mixture.control[WIDTH]
    n: int = order.shape[0]
    for t in range(n):
        log_densities(points[order[t] : order[t] + 1], mixture, logs)
        ascend(points, order[t : t + 1], logs, mixture, rules)
        if mixture.control[WIDTH] != width:
            return t + 1
    return n


@compiled
def follow_em(
    points: Array, order: IntArray, logs: FloatArray, steps: FloatArray, betas: FloatArray,
    max_precision: float, model: Mixture, statistics: Mixture,
) -> float:  # fmt: skip
    """Stochastic EM, one sample at a time; returns the sum of their log densities where β = 1.

    ``steps`` and ``betas``, shape (m,), are ρ and β; responsibilities are those of ``model``, and
    go into ``statistics``, which may be the same object.
    """
    total = 0.0
    for t in range(order.shape[0]):
        write_likely(points, order[t], model, betas[t], logs)
        total += responsibilities(logs, betas[t])
        absorb(points, order[t : t + 1], logs, steps[t], max_precision, statistics)
    return total
