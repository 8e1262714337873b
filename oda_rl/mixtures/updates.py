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
:func:`oda_rl.mixtures.em.absorb`, when covariances are released
    Every component takes its share of the sample's responsibility (eq. 13) into its moments. At
    first responsibilities are tempered (Ueda and Nakano, 1998): of log densities times β, which
    rises to 1.
:func:`oda_rl.mixtures.gradients.ascend`
    All that as printed in algorithm 1 instead: plain gradients of eq. 5 for μ, D and ξ.

References
----------
A. Gepperth, B. Pfülb, "Gradient-based training of Gaussian mixture models for high-dimensional
streaming data", Neural Processing Letters, 2021.
N. Ueda, R. Nakano, "Deterministic annealing EM algorithm", Neural Networks 11, 1998.
"""

import math
from typing import Any

import numpy as np

from oda_rl._compile import compiled, inlined, reordered
from oda_rl._state import Raw
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.mixtures.distances import two_best, two_nearest, write_distances
from oda_rl.mixtures.missing import Room, is_missing, n_known
from oda_rl.mixtures.state import (
    ANNEALING,
    COOLING,
    CROWDING,
    LEAST_PULL,
    NARROW,
    QUANTIZING,
    Mixture,
    Progress,
    Rules,
    progress_of,
)

_REFERENCE_SAMPLES = 100


@reordered
def _smoothed(logs: FloatArray, b: int, grid: FloatArray, k: int) -> float:
    total = 0.0
    for j in range(grid.shape[1]):
        total += grid[k, j] * logs[b, j]
    return total


@inlined
def smoothed_best(logs: FloatArray, b: int, grid: FloatArray) -> tuple[int, float]:
    """argmax_k Σ_j g_kj log p_j, and the maximum (eq. 5); -1 if none is a number."""
    winner, highest = -1, -np.inf
    for k in range(logs.shape[1]):
        total = _smoothed(logs, b, grid, k)
        if total > highest:
            winner, highest = k, total
    return winner, highest


@inlined
def _count(counts: FloatArray, sums: Array, points: Array, i: int, winner: int) -> None:
    counts[winner] += 1.0
    for j in range(points.shape[1]):
        sums[winner, j] += points[i, j]


@inlined
def _learn_variance(progress: Progress, distance: float, share: float, rules: Rules) -> None:
    # Per feature, around the winner: a plain mean at first, then an exponential one. A sample of
    # which a share of the features is observed counts that much.
    progress.shown += share
    step = share * max(1.0 / progress.shown, 1.0 / rules.period)
    progress.variance += step * (distance - progress.variance)
    progress.variance = max(progress.variance, 1.0 / rules.max_precision)


@inlined
def watch_loss(progress: Progress, loss: float, rules: Rules) -> None:
    """Let width and rate fall if the loss is stationary (section 2.4).

    Eq. 6 is 0/0 at its first check: the reference is the mean loss of the first samples, and what
    is smoothed begins as that of the first period.
    """
    progress.seen += 1.0
    seen = progress.seen
    if seen <= _REFERENCE_SAMPLES:
        progress.reference += (loss - progress.reference) / seen
    if seen <= rules.period:
        progress.smoothed += (loss - progress.smoothed) / seen
        progress.previous = progress.smoothed
        return
    progress.smoothed += (loss - progress.smoothed) / rules.period
    if seen % rules.period != 0.0:
        return
    increase = progress.smoothed - progress.previous
    since_start = progress.previous - progress.reference
    progress.previous = progress.smoothed
    if increase < rules.delta * max(since_start, 0.0):  # worse than at first if data drift
        progress.width = max(COOLING * progress.width, rules.last_width)
        progress.rate = max(COOLING * progress.rate, rules.least_rate)


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
    progress, d = progress_of(mixture.progress, 0), points.shape[1]
    for b in range(rows.shape[0]):
        winner, loss = smoothed_best(logs, b, mixture.grid)
        if winner < 0:
            continue  # too far away for its distance to be a number
        _count(mixture.counts, mixture.sums, points, rows[b], winner)
        _learn_variance(progress, -logs[b, winner] / d, 1.0, rules)
        progress.loss += loss
        progress.losses += 1.0


@compiled
def watch_losses(raw: Raw, rules: Rules) -> None:
    """Let the width of the neighbourhood fall if the block's losses say so, and forget them.

    If it falls, the caller writes the grid anew.
    """
    progress = progress_of(raw, 0)
    for _ in range(int(progress.losses)):
        watch_loss(progress, progress.loss / progress.losses, rules)
    progress.loss = progress.losses = 0.0
    _end_annealing(progress)


@inlined
def _end_annealing(progress: Progress) -> None:
    if progress.width < NARROW:
        progress.phase = QUANTIZING
        progress.seen = 0.0


@inlined
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
    means, progress = mixture.means, progress_of(mixture.progress, 0)
    periods = progress.periods
    n: int = rows.shape[0]
    for b in range(begin, n):
        winner, second = two_best(logs, b)
        if winner < 0:
            continue
        next_distance = -logs[b, second] if second >= 0 else np.inf
        freed = _account(
            mixture, progress, winner, -logs[b, winner], next_distance, means.shape[1], rules
        )
        if freed >= 0:
            pull(points, rows[b], means, freed, 1.0, None)
        else:
            _count(mixture.counts, mixture.sums, points, rows[b], winner)
        if progress.periods > periods:
            return b + 1
    return n


@compiled
def pull_winners(mixture: Mixture) -> None:
    """Let a block pull the winners of its samples, and forget it."""
    means, progress = mixture.means, progress_of(mixture.progress, 0)
    n, d = means.shape
    for k in range(n):
        count = mixture.counts[k]
        if count > 0.0:
            step = -math.expm1(count * math.log1p(-progress.rate))
            rest, share = means.dtype.type(1.0 - step), means.dtype.type(step / count)
            for j in range(d):
                means[k, j] = flushed(rest * means[k, j] + share * mixture.sums[k, j])
    _forget_block(mixture.counts, mixture.sums)


@inlined
def _account(
    mixture: Mixture, progress: Progress, winner: int, distance: float, next_distance: float,
    known: int, rules: Rules,
) -> int:  # fmt: skip
    # Returns the component that is to take the place of the sample, or -1. Of the sample so many
    # features are known.
    weights, errors, savings = mixture.weights, mixture.errors, mixture.savings
    _learn_variance(progress, distance / known, known / mixture.means.shape[1], rules)
    errors[winner] += distance
    if next_distance < np.inf:
        gap = next_distance - distance
        savings[winner] += gap
        progress.gap += (gap - progress.gap) / rules.period
    keep = 1.0 - 1.0 / rules.period
    for k in range(weights.shape[0]):
        weights[k] *= keep
    weights[winner] += 1.0 / rules.period
    progress.seen += 1.0
    freed = -1
    if progress.crowded == winner:
        freed = np.int64(progress.freed)  # type: ignore[assignment]  # int() is compiled apart
        weights[winner] *= 0.5
        weights[freed] += weights[winner]
        errors[winner] *= 0.5
        errors[freed] = errors[winner]
        savings[freed] = CROWDING * errors[winner]  # a trial
        progress.crowded = -1.0
        progress.moved += 1.0
    if progress.seen % rules.period == 0.0:
        progress.periods += 1.0
        progress.rate = max(COOLING * progress.rate, rules.least_rate)
    return freed


@inlined
def pull(points: Array, i: int, means: Array, k: int, step: float, room: Room | None) -> None:
    """Move a mean towards a sample by a share of the way, where the sample is observed."""
    a = means.dtype.type(step)
    for j in range(points.shape[1]):
        if is_missing(points, i, j, room):
            continue
        means[k, j] = flushed(means[k, j] + a * (points[i, j] - means[k, j]))


@inlined
def _stand_in(
    points: Array, i: int, means: Array, freed: int, winner: int, room: Room | None
) -> None:
    # What takes the place of a sample is where the winner is, of the features that are missing.
    for j in range(points.shape[1]):
        if is_missing(points, i, j, room):
            means[freed, j] = means[winner, j]


@inlined
def flushed(mean: Any) -> Any:
    """Return 0 if the cube is: where a feature is 0, means and squares would get denormal: slow."""
    return mean if abs(mean * mean * mean) > 0 else mean * 0


@compiled
def anneal_singly(
    points: Array, order: IntArray, logs: FloatArray, mixture: Mixture, rules: Rules,
    room: Room | None,
) -> int:  # fmt: skip
    """Let samples, shape (n, d), pull winners and neighbours one by one in an order, shape (m,).

    ``logs`` (1, K) is scratch, and ``room``, if values are missing. Returns how many were shown
    before the width fell.
    """
    means, grid = mixture.means, mixture.grid
    progress = progress_of(mixture.progress, 0)
    width = progress.width
    n: int = order.shape[0]
    for t in range(n):
        i = order[t]
        write_distances(points, i, means, logs, room)
        winner, loss = smoothed_best(logs, 0, grid)
        if winner >= 0:  # else too far away for its distance to be a number
            known = n_known(points, i, room)
            share = known / points.shape[1]
            _learn_variance(progress, -logs[0, winner] / known, share, rules)
            for k in range(means.shape[0]):
                if grid[winner, k] > LEAST_PULL * grid[winner, winner]:
                    pull(points, i, means, k, progress.rate * grid[winner, k], room)
            watch_loss(progress, loss, rules)
        _end_annealing(progress)
        if progress.phase != ANNEALING or progress.width != width:
            return t + 1
    return n


@compiled
def quantize_singly(
    points: Array, order: IntArray, mixture: Mixture, rules: Rules, room: Room | None
) -> int:
    """Do likewise as :func:`quantize` with samples one by one, until a period ends."""
    progress = progress_of(mixture.progress, 0)
    periods = progress.periods
    n: int = order.shape[0]
    for t in range(n):
        winner, distance, next_distance = two_nearest(points, order[t], mixture.means, room)
        if winner >= 0:
            known = n_known(points, order[t], room)
            freed = _account(mixture, progress, winner, distance, next_distance, known, rules)
            moved, step = (freed, 1.0) if freed >= 0 else (winner, progress.rate)
            if freed >= 0:
                _stand_in(points, order[t], mixture.means, freed, winner, room)
            pull(points, order[t], mixture.means, moved, step, room)
        if progress.periods > periods:
            return t + 1
    return n
