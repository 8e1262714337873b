"""The compiled steps by which Gaussian mixtures learn, and what they say of samples.

A mixture has K components on a periodic grid, near to square. It learns in three phases:

:func:`anneal`, while all have one spherical covariance
    The winner k* of a sample is the component whose neighbourhood on the grid is nearest,
    argmax_k -Σ_j g_kj |x - μ_j|², and μ_j ← μ_j + ε g_k*j (x - μ_j): the natural gradient of the
    smoothed max-component log-likelihood (eq. 5) with P and π held. Once the loss is stationary
    (eq. 6) the width σ of g falls to 0.9 of itself.
:func:`quantize`, when g is nearly the identity
    Only the winner moves. Every K/ε samples the component that is needed least takes the place of
    a sample of the one that errs most.
:func:`follow_em`, when covariances are released
    Every component takes its share of the sample's responsibility (eq. 13) into its moments. At
    first responsibilities are tempered (Ueda and Nakano, 1998): of log densities times β, which
    rises to 1.

:func:`ascend` is all that as printed in algorithm 1 instead: plain gradients of eq. 5 for μ, D, ξ.

Values may be missing (NaN). A normal distribution of some of its features is normal: the density of
what is observed is known, and is what likelihoods, responsibilities and gradients are about. What
is missing enters the moments by what each component expects of it (E step of Ghahramani and Jordan,
1994; gradients of the observed likelihood are expectations of the complete one's, by Fisher's
identity). With precisions P, missing features m and observed ones o, a component expects the gap

    x_m - μ_m = -P_mm⁻¹ P_mo (x_o - μ_o),   with covariance P_mm⁻¹,

and (x_o - μ_o)ᵀ Σ_oo⁻¹ (x_o - μ_o) is the gap's Mahalanobis distance by all of P, and
det Σ_oo⁻¹ = det P / det P_mm. So only a matrix of the missing features is inverted. Functions take
scratch for that, ``room``: None says that nothing is missing, and numba compiles that apart.

References
----------
A. Gepperth, B. Pfülb, "Gradient-based training of Gaussian mixture models for high-dimensional
streaming data", Neural Processing Letters, 2021.
O. Cappé, E. Moulines, "On-line expectation-maximization algorithm for latent data models", Journal
of the Royal Statistical Society B 71, 2009.
N. Ueda, R. Nakano, "Deterministic annealing EM algorithm", Neural Networks 11, 1998.
Z. Ghahramani, M. I. Jordan, "Supervised learning from incomplete data via an EM approach", Advances
in Neural Information Processing Systems 6, 1994.
"""

import math
from typing import Any, NamedTuple, Self

import numpy as np

from oda_rl._compile import compiled, inlined, integer, reordered
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.mixtures.state import (
    ANNEALING,
    COOLING,
    CROWDING,
    MIN_PRECISION,
    NARROW,
    QUANTIZING,
    RELEASED,
    Mixture,
    Progress,
    Rules,
    progress_of,
)

NEGLIGIBLE_LOG = 25.0  # e^-25 is lost beside 1
_NEGLIGIBLE_TEMPERED_LOG = 5.0  # tempered responsibilities are rough anyway
_MIN_PULL = 1e-3  # of the winner's: a weaker one is left out
_MIN_SHARE = 1e-3  # a smaller responsibility moves no mean and no covariance
_MIN_WEIGHT = 1e-30
_MIN_PIVOT = 1e-15  # of what it was: the rest is rounding
_MIN_PRODUCT = 1e-100
_MAX_STEP = 0.5
_REFERENCE_SAMPLES = 100
_CHUNK = 128  # features, after which a component may be seen to be too far away


class Room(NamedTuple):
    """Scratch for a sample of d features, of which some are missing, and a component."""

    gaps: FloatArray
    """Expected x - μ, shape (d,)."""
    places: IntArray
    """Missing features, the first so many; shape (d,)."""
    along: FloatArray
    """Scratch, shape (d,)."""
    factor: FloatArray
    """Cholesky factor of P_mm, shape (d, d), the first so many rows and columns."""
    roots: FloatArray
    """Its inverse: the rows r have Σ r rᵀ = P_mm⁻¹."""

    @classmethod
    def of(cls, d: int) -> Self:
        """Allocate the arrays."""
        vectors, squares = np.zeros((2, d)), np.zeros((2, d, d))
        return cls(vectors[0], np.zeros(d, dtype=np.int64), vectors[1], squares[0], squares[1])


# Distances and densities.


@reordered
def _squared_distance(points: Array, i: int, means: Array, k: int, begin: int, end: int) -> float:
    total = points[i, 0] * 0
    for j in range(np.uint64(begin), np.uint64(end)):  # unsigned: no index from the end
        gap = points[i, j] - means[k, j]
        total += gap * gap
    return total  # type: ignore[no-any-return]


@reordered
def _weighted_distance(
    points: Array, i: int, means: Array, precisions: Array, k: int, begin: int, end: int
) -> float:
    total = points[i, 0] * 0
    for j in range(np.uint64(begin), np.uint64(end)):  # unsigned: no index from the end
        gap = points[i, j] - means[k, j]
        total += precisions[k, j] * (gap * gap)
    return total  # type: ignore[no-any-return]


@reordered
def _along(points: Array, i: int, means: Array, axes: Array, k: int, axis: int) -> float:
    """Measure x_i - μ_k along an axis of component k."""
    total = points[i, 0] * 0
    for j in range(points.shape[1]):
        total += axes[k, axis, j] * (points[i, j] - means[k, j])
    return total  # type: ignore[no-any-return]


@inlined
def _distance(
    points: Array, i: int, means: Array, k: int, begin: int, end: int, room: Room | None
) -> float:
    """|x_i - μ_k|² of what is observed of the features from ``begin`` to ``end``."""
    total = 0.0
    if room is None:
        total += _squared_distance(points, i, means, k, begin, end)
    else:
        for j in range(begin, end):
            if not math.isnan(points[i, j]):
                gap = np.float64(points[i, j]) - means[k, j]
                total += gap * gap
    return total


@inlined
def _half_log_det(precisions: Array, k: int) -> float:
    """½ Σ_j log p_kj, of products that do not overflow: logarithms are slow."""
    total, product = 0.0, 1.0
    for j in range(precisions.shape[1]):
        product *= np.float64(precisions[k, j])
        if not _MIN_PRODUCT < product < 1.0 / _MIN_PRODUCT:
            total += math.log(product)
            product = 1.0
    return 0.5 * (total + math.log(product))


@inlined
def _log_part(
    points: Array, i: int, means: Array, precisions: Array, axes: Array | None, k: int, begin: int,
    end: int, room: Room | None,
) -> float:  # fmt: skip
    """Log N(x_o; k) of the observed, but for ½ log det P and -(|o|/2) log 2π.

    Of some features only, if nothing is missing and P is diagonal.
    """
    log, total, d = 0.0, 0.0, points.shape[1]
    if room is None:
        if axes is None:
            total += _weighted_distance(points, i, means, precisions, k, begin, end)
        else:
            for u in range(d):
                y = _along(points, i, means, axes, k, u)
                total += precisions[k, u] * y * y
    else:
        n = complete(points, i, means, precisions, axes, k, room)
        if axes is None:
            for a in range(n):
                log -= 0.5 * math.log(np.float64(precisions[k, room.places[a]]))
            for j in range(d):
                total += precisions[k, j] * (room.gaps[j] * room.gaps[j])
        else:
            for a in range(n):
                log += math.log(room.roots[a, a])
            _measure_along(axes, k, room.gaps, room.along)
            for u in range(d):
                total += precisions[k, u] * (room.along[u] * room.along[u])
    return log - 0.5 * total


@inlined
def write_logs(
    points: Array, rows: IntArray, mixture: Mixture, beta: float, margin: float, logs: FloatArray,
    room: Room | None,
) -> None:  # fmt: skip
    """Write β (log π_k + log N(x_o; k)) of some rows of points to ``logs``, shape (≥ rows + 1, K).

    It is without -(|o|/2) log 2π, for the o features that are observed, and -∞ where it is seen to
    be less than another component's by more than ``margin``. The last row is scratch.
    """
    means, precisions, d = mixture.means, mixture.precisions, points.shape[1]
    variance = progress_of(mixture.progress, 0).variance
    held = mixture.spherical or progress_of(mixture.progress, 0).phase != RELEASED
    constants = logs[-1]
    for k in range(means.shape[0]):
        constants[k] = math.log(mixture.weights[k]) + (0.0 if held else mixture.half_log_dets[k])
    # The first features tell which components are likely; only these are measured to the end.
    first = min(_CHUNK, d) if _has_parts(mixture.axes, room) else d
    for b in range(rows.shape[0]):
        i, likely = rows[b], 0
        half_log = 0.5 * n_known(points, i, room) * math.log(variance) if held else 0.0
        for k in range(means.shape[0]):
            if held:
                log = -half_log - 0.5 * _distance(points, i, means, k, 0, first, room) / variance
            else:
                log = _log_part(points, i, means, precisions, mixture.axes, k, 0, first, room)
            logs[b, k] = constants[k] + log
            if logs[b, k] > logs[b, likely]:
                likely = k
        best = -np.inf if first < d else np.inf
        for t in range(means.shape[0] if first < d else 0):
            k = likely if t == 0 else t - (t <= likely)  # the likely one first
            begin = first
            while begin < d and logs[b, k] >= best - margin / beta:
                end = min(begin + _CHUNK, d)
                if held:
                    logs[b, k] -= 0.5 * _distance(points, i, means, k, begin, end, room) / variance
                else:
                    logs[b, k] += _log_part(
                        points, i, means, precisions, mixture.axes, k, begin, end, room
                    )
                begin = end
            if begin < d:
                logs[b, k] = -np.inf
            best = max(best, logs[b, k])
        for k in range(means.shape[0]):
            logs[b, k] *= beta


@inlined
def _has_parts(axes: Array | None, room: Room | None) -> bool:
    """Whether densities are products over features, all of which are known."""
    return axes is None and room is None


@inlined
def responsibilities(logs: FloatArray, n: int, margin: float) -> float:
    """Turn n rows of log densities into responsibilities; return the sum of their log Σ exp.

    A sample whose density is no number gets none.
    """
    total = 0.0
    for b in range(n):
        highest = -np.inf
        for k in range(logs.shape[1]):
            highest = max(highest, logs[b, k])
        if highest == -np.inf:
            for k in range(logs.shape[1]):
                logs[b, k] = 0.0
            continue
        evidence = 0.0
        for k in range(logs.shape[1]):
            log = logs[b, k] - highest
            logs[b, k] = math.exp(log) if log > -margin else 0.0
            evidence += logs[b, k]
        for k in range(logs.shape[1]):
            logs[b, k] /= evidence
        total += highest + math.log(evidence)
    return total


# Missing values.


@inlined
def is_missing(points: Array, i: int, j: int, room: Room | None) -> bool:
    """Whether a value is missing."""
    if room is None:
        return False
    return math.isnan(points[i, j])


@inlined
def n_known(points: Array, i: int, room: Room | None) -> int:
    """Count the features of a sample that are observed."""
    if room is None:
        return points.shape[1]  # type: ignore[no-any-return]
    n = integer(0)
    for j in range(points.shape[1]):
        n += not math.isnan(points[i, j])
    return n


@inlined
def complete(
    points: Array, i: int, means: Array, precisions: Array, axes: Array | None, k: int,
    room: Room | None,
) -> int:  # fmt: skip
    """Write what component k expects of a sample to ``room``; return how much is missing."""
    if room is None:
        return 0
    n = integer(0)
    for j in range(points.shape[1]):
        if math.isnan(points[i, j]):
            room.gaps[j] = 0.0
            room.places[n] = j
            n += 1
        else:
            room.gaps[j] = np.float64(points[i, j]) - means[k, j]
    if axes is not None and n > 0:
        _factorize(precisions, axes, k, n, room)
        _expect(precisions, axes, k, n, room)
    return n


@inlined
def _factorize(precisions: Array, axes: Array, k: int, n: int, room: Room) -> None:
    """Write the Cholesky factor of P_mm, and its inverse."""
    places, factor, roots = room.places, room.factor, room.roots
    for a in range(n):
        for b in range(a + 1):
            total = 0.0
            for u in range(axes.shape[2]):
                total += (
                    np.float64(precisions[k, u]) * axes[k, u, places[a]] * axes[k, u, places[b]]
                )
            full = total
            for c in range(b):
                total -= factor[a, c] * factor[b, c]
            if a == b:
                factor[a, a] = math.sqrt(max(total, _MIN_PIVOT * full))
            else:
                factor[a, b] = total / factor[b, b]
    for c in range(n):
        for a in range(c, n):
            total = 1.0 if a == c else 0.0
            for b in range(c, a):
                total -= factor[a, b] * roots[b, c]
            roots[a, c] = total / factor[a, a]


@inlined
def _expect(precisions: Array, axes: Array, k: int, n: int, room: Room) -> None:
    """Write -P_mm⁻¹ P_mo times the gaps that are observed to those that are not."""
    gaps, places, along, roots = room.gaps, room.places, room.along, room.roots
    _measure_along(axes, k, gaps, along)
    for a in range(n):
        pull = 0.0
        for u in range(along.shape[0]):
            pull += np.float64(precisions[k, u]) * along[u] * axes[k, u, places[a]]
        for b in range(a, n):  # gaps of missing features are 0 until their turn
            room.factor[b, a] = roots[b, a] * pull  # the factor is not needed any more
    for b in range(n):
        total = 0.0
        for a in range(b + 1):
            total += room.factor[b, a]
        for a in range(b + 1):
            gaps[places[a]] -= roots[b, a] * total


@inlined
def _measure_along(axes: Array, k: int, gaps: FloatArray, out: FloatArray) -> None:
    for u in range(out.shape[0]):
        total = 0.0
        for j in range(out.shape[0]):
            total += axes[k, u, j] * gaps[j]
        out[u] = total


@inlined
def gap_of(points: Array, i: int, means: Array, k: int, j: int, room: Room | None) -> Array:
    """X - μ_k of a feature, or what is expected of it."""
    if room is None:
        return points[i, j] - means[k, j]  # type: ignore[no-any-return]
    return means.dtype.type(room.gaps[j])  # type: ignore[no-any-return]


# Annealing and quantizing, one sample at a time.


@reordered
def _smoothed(logs: FloatArray, b: int, grid: FloatArray, k: int) -> float:
    total = 0.0
    for j in range(grid.shape[1]):
        total += grid[k, j] * logs[b, j]
    return total


@inlined
def _smoothed_best(logs: FloatArray, b: int, grid: FloatArray) -> tuple[int, float]:
    """argmax_k Σ_j g_kj log p_j, and the maximum (eq. 5); -1 if none is a number."""
    winner, highest = -1, -np.inf
    for k in range(logs.shape[1]):
        total = _smoothed(logs, b, grid, k)
        if total > highest:
            winner, highest = k, total
    return winner, highest


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
        progress.rate = max(COOLING * progress.rate, rules.min_rate)


@inlined
def _learn_variance(progress: Progress, distance: float, known: int, d: int, rules: Rules) -> None:
    # Per feature, around the winner: a plain mean at first, then an exponential one. A sample of
    # which a share of the features is observed counts that much.
    progress.shown += known / d
    step = known / d * max(1.0 / progress.shown, 1.0 / rules.period)
    progress.variance += step * (distance / known - progress.variance)
    progress.variance = max(progress.variance, 1.0 / rules.max_precision)


@inlined
def _flushed(mean: Any) -> Any:
    """Return 0 if the cube is: where a feature is 0, means and squares would get denormal: slow."""
    return mean if abs(mean * mean * mean) > 0 else mean * 0


@inlined
def _pull(points: Array, i: int, means: Array, k: int, step: float, room: Room | None) -> None:
    """Move a mean towards a sample by a share of the way, where the sample is observed."""
    a = means.dtype.type(step)
    for j in range(points.shape[1]):
        if not is_missing(points, i, j, room):
            means[k, j] = _flushed(means[k, j] + a * (points[i, j] - means[k, j]))


@compiled
def anneal(
    points: Array, order: IntArray, mixture: Mixture, rules: Rules, logs: FloatArray,
    room: Room | None,
) -> int:  # fmt: skip
    """Let samples, shape (n, d), pull winners and neighbours one by one in an order, shape (m,).

    ``logs``, shape (≥ 1, K), and ``room`` are scratch. Returns how many were shown before the width
    fell.
    """
    means, grid, d = mixture.means, mixture.grid, points.shape[1]
    progress = progress_of(mixture.progress, 0)
    width = progress.width
    n: int = order.shape[0]
    for t in range(n):
        i = order[t]
        for k in range(means.shape[0]):
            logs[0, k] = -_distance(points, i, means, k, 0, d, room)
        winner, loss = _smoothed_best(logs, 0, grid)
        if winner >= 0:  # else too far away for its distance to be a number
            _learn_variance(progress, -logs[0, winner], n_known(points, i, room), d, rules)
            for k in range(means.shape[0]):
                if grid[winner, k] > _MIN_PULL * grid[winner, winner]:
                    _pull(points, i, means, k, progress.rate * grid[winner, k], room)
            watch_loss(progress, loss, rules)
        if progress.width < NARROW:
            progress.phase = QUANTIZING
            progress.seen = 0.0
        if progress.phase != ANNEALING or progress.width != width:
            return t + 1
    return n


@compiled
def quantize(
    points: Array, order: IntArray, mixture: Mixture, rules: Rules, room: Room | None
) -> int:
    """Let samples pull the nearest component one by one, until a period ends.

    One component a period is relocated: ``progress.freed`` to a sample of ``progress.crowded``.
    Returns how many samples were shown.
    """
    means, progress = mixture.means, progress_of(mixture.progress, 0)
    periods, d = progress.periods, points.shape[1]
    first = min(_CHUNK, d)
    n: int = order.shape[0]
    for t in range(n):
        i = order[t]
        winner, nearest, second = -1, np.inf, np.inf
        for k in range(means.shape[0]):
            distance = _distance(points, i, means, k, 0, first, room)
            if distance < second:
                distance += _distance(points, i, means, k, first, d, room)
            if distance < nearest:
                winner, nearest, second = k, distance, nearest
            elif distance < second:
                second = distance
        if winner >= 0:
            _learn_variance(progress, nearest, n_known(points, i, room), d, rules)
            if _account(mixture, progress, winner, nearest, second, rules):
                freed = np.int64(progress.freed)
                for j in range(d):
                    known = not is_missing(points, i, j, room)
                    means[freed, j] = points[i, j] if known else means[winner, j]
            else:
                _pull(points, i, means, winner, progress.rate, room)
        if progress.periods > periods:
            return t + 1
    return n


@inlined
def _account(
    mixture: Mixture, progress: Progress, winner: int, distance: float, next_distance: float,
    rules: Rules,
) -> bool:  # fmt: skip
    # Whether another component is to take the place of the sample.
    weights, errors, savings = mixture.weights, mixture.errors, mixture.savings
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
    relocated = progress.crowded == winner
    if relocated:
        freed = np.int64(progress.freed)
        weights[winner] *= 0.5
        weights[freed] += weights[winner]
        errors[winner] *= 0.5
        errors[freed] = errors[winner]
        savings[freed] = CROWDING * errors[winner]  # a trial
        progress.crowded = -1.0
        progress.moved += 1.0
    if progress.seen % rules.period == 0.0:
        progress.periods += 1.0
        progress.rate = max(COOLING * progress.rate, rules.min_rate)
    return relocated


# Expectation maximization.


@compiled
def follow_em(
    points: Array, order: IntArray, batch: int, steps: FloatArray, betas: FloatArray,
    max_precision: float, model: Mixture, statistics: Mixture, logs: FloatArray,
    room: Room | None,
) -> float:  # fmt: skip
    """Stochastic EM, a batch at a time; returns the sum of the samples' log densities to the β.

    ``steps`` and ``betas``, shape (m,), are ρ and β of each batch; responsibilities are those of
    ``model``, and go into ``statistics``, which may be the same object. ``logs``, shape
    (batch + 1, K), and ``room`` are scratch.
    """
    total = 0.0
    for s in range(steps.shape[0]):
        rows = order[s * batch : (s + 1) * batch]
        margin = NEGLIGIBLE_LOG if betas[s] == 1.0 else _NEGLIGIBLE_TEMPERED_LOG
        write_logs(points, rows, model, betas[s], margin, logs, room)
        total += responsibilities(logs, rows.shape[0], margin)
        absorb(points, rows, logs, steps[s], max_precision, statistics, room)
    return total


@inlined
def absorb(
    points: Array, rows: IntArray, shares: FloatArray, step: float, max_precision: float,
    mixture: Mixture, room: Room | None,
) -> None:  # fmt: skip
    """Take a batch into the moments of all components: s ← (1 - ρ) s + ρ mean of the batch's.

    s_k are Σ r_k, Σ r_k x and Σ r_k x xᵀ (or its diagonal), of which mean, covariance and weight
    follow (Cappé and Moulines, 2009). Of what is missing a component takes in what it expects:
    conditional means and second moments (Ghahramani and Jordan, 1994).

    Parameters
    ----------
    points : ndarray, shape (n, d)
    rows : ndarray, shape (B,)
        Those of the batch.
    shares : ndarray, shape (≥ B, K)
        Responsibilities; those below 0.001 move no mean and no covariance.
    step : float
        ρ, in (0, 1).
    max_precision : float
        Bound of P.
    mixture : Mixture
        With released covariances.
    room : Room or None
        Scratch, if values are missing.
    """
    means, weights, n, d = mixture.means, mixture.weights, rows.shape[0], points.shape[1]
    progress = progress_of(mixture.progress, 0)
    each = step / n
    for b in range(n):
        # One after another with these steps is (1 - ρ) s + ρ/B Σ, exactly.
        own = each / (1.0 - step + each * (b + 1.0))
        total, spread, expected = 0.0, 0.0, 0.0
        for k in range(weights.shape[0]):
            total += shares[b, k]
        if total == 0.0:
            continue
        for k in range(weights.shape[0]):
            share = shares[b, k]
            weights[k] = max((1.0 - own) * weights[k] + own * share, _MIN_WEIGHT)
            if share <= _MIN_SHARE:
                continue
            a = min(own * share / weights[k], _MAX_STEP)
            if mixture.spherical:
                distance = _distance(points, rows[b], means, k, 0, d, room)
                spread += share * (1.0 - a) * distance
                expected += share * (d - n_known(points, rows[b], room))
                _pull(points, rows[b], means, k, a, room)
            else:
                _absorb_into(
                    points, rows[b], means, mixture.precisions, mixture.axes, k, a,
                    max_precision, room,
                )  # fmt: skip
        if mixture.spherical:
            spread += expected * progress.variance
            variance = (1.0 - own) * progress.variance + own * spread / d
            progress.variance = max(variance, 1.0 / max_precision)
    for k in range(0 if mixture.spherical else weights.shape[0]):
        highest = 0.0
        for b in range(n):
            highest = max(highest, shares[b, k])
        if highest > _MIN_SHARE:
            mixture.half_log_dets[k] = _half_log_det(mixture.precisions, k)


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
        high, low = means.dtype.type(max_precision), means.dtype.type(MIN_PRECISION)
        for j in range(d):
            if is_missing(points, i, j, room):
                continue  # what is expected is the mean and the variance that there are
            gap = points[i, j] - means[k, j]
            p = precisions[k, j]
            means[k, j] = _flushed(means[k, j] + a * gap)
            p /= (one - a) * (one + a * p * (gap * gap))
            precisions[k, j] = min(max(p, low), high)
    else:
        # Σ is the sum of r rᵀ over roots r, the eigenvectors times standard deviations. So is Σ + a
        # (x - μ)(x - μ)ᵀ, with one more root; what is missing has covariances with roots, too.
        last = means.shape[0]
        for u in range(d):
            deviation = 1.0 / math.sqrt(np.float64(precisions[k, u]))
            for j in range(d):
                axes[k, u, j] *= deviation
        for j in range(d):
            axes[last, 0, j] = math.sqrt(step) * gap_of(points, i, means, k, j, room)
        _rotate_apart(axes, k)
        for root in range(n_missing):
            _write_root(room, root, math.sqrt(step / (1.0 - step)), axes)
            _rotate_apart(axes, k)
        for u in range(d):
            variance = 0.0
            for j in range(d):
                variance += axes[k, u, j] * axes[k, u, j]
            deviation = math.sqrt(variance)
            for j in range(d):
                axes[k, u, j] /= deviation
            p = 1.0 / max((1.0 - step) * variance, 1.0 / max_precision)
            precisions[k, u] = max(p, MIN_PRECISION)
        for j in range(d):
            pulled = means.dtype.type(step) * gap_of(points, i, means, k, j, room)
            means[k, j] = _flushed(means[k, j] + pulled)


@inlined
def _write_root(room: Room | None, root: int, gain: float, axes: Array) -> None:
    """Write a root of the covariance of what is missing, times a gain, to the scratch of axes."""
    if room is not None:
        last = axes.shape[0] - 1
        for j in range(axes.shape[2]):
            axes[last, 0, j] = 0.0
        for a in range(root + 1):
            axes[last, 0, room.places[a]] = gain * room.roots[root, a]


@compiled
def _rotate_apart(axes: Array, k: int) -> None:
    """Make the d rows of axes[k] and the first of axes[-1], of d features, orthogonal.

    Rotations leave the sum of their outer products as it is; of d + 1 orthogonal rows one is 0: the
    last. Three sweeps of Hestenes' one-sided variant of Jacobi's method, which converges
    quadratically, and begins near to its end.

    Examples
    --------
    >>> axes = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [0.0, 0.0]]])
    >>> _rotate_apart(axes, 0)
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


# Plain gradients.


@compiled
def ascend(
    points: Array, order: IntArray, batch: int, mixture: Mixture, rules: Rules, logs: FloatArray,
    room: Room | None,
) -> int:  # fmt: skip
    """Take gradient steps on the smoothed max-component log-likelihood (eq. 4 and 5).

    ∂μ = g P (x - μ), ∂D = g (1/D - D (x - μ)²) with P = D², ∂ξ = g - π: of each sample of a batch
    of B in turn, with ε/B. A full P has the eigenvalues D², and its eigenvectors v get
    ∂v = -g D² vᵀ(x - μ) (x - μ) and are made orthonormal again; a spherical one has a single D,
    whose gradient is the mean over features. The width of g falls as in annealing. Where values are
    missing, gradients are those of what is observed. Parameters are as for :func:`anneal`, with
    ``logs`` of shape (batch + 1, K); returns how many samples were shown before the width fell.
    """
    progress = progress_of(mixture.progress, 0)
    width = progress.width
    n: int = order.shape[0]
    for begin in range(0, n, batch):
        rows = order[begin : begin + batch]
        write_logs(points, rows, mixture, 1.0, np.inf, logs, room)
        _ascend_batch(points, rows, logs, mixture, rules, room)
        if progress.width != width:
            return begin + rows.shape[0]  # type: ignore[no-any-return]
    return n


@inlined
def _ascend_batch(
    points: Array, rows: IntArray, logs: FloatArray, mixture: Mixture, rules: Rules,
    room: Room | None,
) -> None:  # fmt: skip
    progress, grid = progress_of(mixture.progress, 0), mixture.grid
    weights, d = mixture.weights, points.shape[1]
    each = progress.rate / rows.shape[0]
    root = 1.0 / math.sqrt(progress.variance)
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
            weights[k] = max(weights[k] * math.exp(each * (g - weights[k])), _MIN_WEIGHT)
            total += weights[k]
            if g <= _MIN_PULL * grid[winner, winner]:
                continue
            if mixture.spherical:
                distance = _distance(points, i, mixture.means, k, 0, d, room)
                slope += g * (n_known(points, i, room) / d / root - root * distance / d)
                _pull(points, i, mixture.means, k, each * g * root * root, room)
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
    means, precisions, d = mixture.means, mixture.precisions, points.shape[1]
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
        gaps = axes[means.shape[0], 0]
        for j in range(d):
            gaps[j] = gap_of(points, i, means, k, j, room)
        for u in range(d):
            spread = _spread_along(axes, k, u, n_missing, room)
            y = 0.0
            for j in range(d):
                y += axes[k, u, j] * gaps[j]
            root = math.sqrt(np.float64(precisions[k, u]))
            force = step * root * root * y
            for j in range(d):
                means[k, j] += force * axes[k, u, j]
                axes[k, u, j] -= force * gaps[j]
            _turn_by_spread(axes, k, u, step * root * root, room)
            slope = 1.0 / root - root * y * y - root * spread
            root = _clipped(root + step * slope, max_precision)
            precisions[k, u] = root * root
        _orthonormalize(axes[k])
    mixture.half_log_dets[k] = _half_log_det(precisions, k)


@inlined
def _spread_along(axes: Array, k: int, u: int, n: int, room: Room | None) -> float:
    """Write C v to ``room.along``, for the covariance C of what is missing; return vᵀ C v.

    v is axis u of component k.
    """
    total = 0.0
    if room is not None:
        for j in range(room.along.shape[0]):
            room.along[j] = 0.0
        for root in range(n):
            dot = 0.0
            for a in range(root + 1):
                dot += room.roots[root, a] * axes[k, u, room.places[a]]
            for a in range(root + 1):
                room.along[room.places[a]] += dot * room.roots[root, a]
            total += dot * dot
    return total


@inlined
def _turn_by_spread(axes: Array, k: int, u: int, step: float, room: Room | None) -> None:
    """Move an axis against what :func:`_spread_along` has written, by a step."""
    if room is not None:
        for j in range(axes.shape[2]):
            axes[k, u, j] -= step * room.along[j]


@inlined
def _clipped(root: float, max_precision: float) -> float:
    return min(max(root, math.sqrt(MIN_PRECISION)), math.sqrt(max_precision))


@compiled
def _orthonormalize(axes: Array) -> None:
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
