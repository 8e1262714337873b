"""Streaming Gaussian mixtures: the compiled steps of plain gradients.

Equations are those of Gepperth and Pfülb; see :mod:`oda_rl.mixtures.updates`.
"""

import math

import numpy as np

from oda_rl._compile import compiled, inlined, spliced
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.mixtures.densities import log_densities
from oda_rl.mixtures.distances import half_log_det, known_nearness
from oda_rl.mixtures.missing import (
    Room,
    complete,
    gap_of,
    is_missing,
    n_known,
    spread_along,
    turn_by_spread,
    write_marginals,
)
from oda_rl.mixtures.state import LEAST_PRECISION, LEAST_PULL, Mixture, Rules, progress_of
from oda_rl.mixtures.updates import pull, smoothed_best, watch_loss


@spliced
def ascend(
    points: Array, rows: IntArray, logs: FloatArray, mixture: Mixture, rules: Rules,
    room: Room | None,
) -> None:  # fmt: skip
    """Take gradient steps on the smoothed max-component log-likelihood (eq. 4 and 5).

    ∂μ = g P (x - μ), ∂D = g (1/D - D (x - μ)²) with P = D², ∂ξ = g - π: of each sample of a block
    of B in turn, with ε/B. A full P has the eigenvalues D², and its eigenvectors v get
    ∂v = -g D² vᵀ(x - μ) (x - μ) and are made orthonormal again; a spherical one has a single D,
    whose gradient is the mean over features. The width of g falls as in annealing.

    Parameters
    ----------
    points, rows, mixture, rules
        As for :func:`oda_rl.mixtures.updates.count_winners`.
    logs : ndarray, shape (≥ B, K)
        log π_k + log N(x; k) for each sample of the block, up to a constant.
    room : Room or None
        Scratch, if values are missing: gradients are then those of what is observed.
    """
    progress, grid = progress_of(mixture.progress, 0), mixture.grid
    weights = mixture.weights
    d = points.shape[1]
    each = progress.rate / rows.shape[0]
    root = 1.0 / math.sqrt(progress.variance)
    losses, n_losses = 0.0, 0
    for b in range(rows.shape[0]):
        winner, loss = smoothed_best(logs, b, grid)
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
                distance = known_nearness(points, i, mixture.means, k, np.inf, room)
                known = n_known(points, i, room) / d
                slope += g * (known / root - root * distance / d)
                pull(points, i, mixture.means, k, each * g * root * root, room)
            else:
                _ascend_one(
                    points, i, mixture, mixture.axes, k, each * g, rules.max_precision, room
                )
        for k in range(weights.shape[0]):
            weights[k] /= total
        if mixture.spherical:
            root = _clipped(root + each * slope, rules.max_precision)
            progress.variance = 1.0 / (root * root)
    progress.loss += losses
    progress.losses += n_losses
    for _ in range(n_losses):
        watch_loss(progress, losses / n_losses, rules)


@inlined
def _ascend_one(
    points: Array, i: int, mixture: Mixture, axes: Array | None, k: int, step: float,
    max_precision: float, room: Room | None,
) -> None:  # fmt: skip
    means, precisions = mixture.means, mixture.precisions
    d = points.shape[1]
    n_missing = complete(points, i, means, precisions, axes, k, room)
    if axes is None:
        for j in range(d):
            if is_missing(points, i, j, room):
                continue
            gap = np.float64(points[i, j]) - means[k, j]
            root = math.sqrt(np.float64(precisions[k, j]))
            means[k, j] += step * root * root * gap
            root = _clipped(root + step * (1.0 / root - root * gap * gap), max_precision)
            precisions[k, j] = root * root
    else:
        gaps, forces = axes[means.shape[0], 0], mixture.sums
        for j in range(d):
            gaps[j] = gap_of(points, i, means, k, j, room)
        for u in range(d):
            spread = spread_along(axes, k, u, n_missing, room)
            y = 0.0
            for j in range(d):
                y += axes[k, u, j] * gaps[j]
            root = math.sqrt(np.float64(precisions[k, u]))
            force = step * root * root * y
            for j in range(d):
                forces[0, j] += force * axes[k, u, j]
                axes[k, u, j] -= force * gaps[j]
            turn_by_spread(axes, k, u, step * root * root, room)
            slope = 1.0 / root - root * y * y - root * spread
            root = _clipped(root + step * slope, max_precision)
            precisions[k, u] = root * root
        for j in range(d):
            means[k, j] += forces[0, j]
            forces[0, j] = 0
        orthonormalize(axes[k])
    mixture.half_log_dets[k] = half_log_det(precisions, k)


@inlined
def _clipped(root: float, max_precision: float) -> float:
    return min(max(root, math.sqrt(LEAST_PRECISION)), math.sqrt(max_precision))


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


@compiled
def ascend_singly(
    points: Array, order: IntArray, logs: FloatArray, mixture: Mixture, rules: Rules,
    room: Room | None,
) -> int:  # fmt: skip
    """Do as :func:`anneal_singly`, by :func:`ascend`."""
    progress = progress_of(mixture.progress, 0)
    width = progress.width
    n: int = order.shape[0]
    for t in range(n):
        if room is None:
            log_densities(points[order[t] : order[t] + 1], mixture, logs)
        else:
            write_marginals(points, order[t], mixture, 1.0, logs, 0, room)
        ascend(points, order[t : t + 1], logs, mixture, rules, room)
        if progress.width != width:
            return t + 1
    return n
