"""Compiled steps by which Gaussian mixtures learn, and their log densities.

A mixture has K components on a periodic grid, near to square. It learns in three phases, with the
equations of :class:`oda_rl.SGDGaussianMixture`'s paper:

:func:`anneal`, while all components have one spherical covariance
    The winner k* of a sample is the component whose neighbourhood on the grid is nearest,
    argmax_k -Σ_j g_kj |x - μ_j|², and μ_j ← μ_j + ε g_k*j (x - μ_j): the natural gradient of the
    smoothed max-component log-likelihood (eq. 5) with P and π constant. Once the loss is stationary
    (eq. 6) the width σ of g falls to 0.9 of itself.
:func:`quantize`, when g is nearly the identity
    Only the winner moves. Every K/ε samples the component that is needed least is relocated to a
    sample of the component with the largest error.
:func:`follow_em`, when covariances are released
    Every component takes its share of the sample's responsibility (eq. 13) into its moments. At
    first responsibilities are tempered (Ueda and Nakano, 1998): of log densities times β, which
    rises to 1.

:func:`ascend` is algorithm 1 as printed: plain gradients of eq. 5 for μ, D, ξ.

Values may be missing (NaN): likelihoods, responsibilities and gradients are then those of the
observed features, and moments take conditional expectations (E step of Ghahramani and Jordan, 1994;
by Fisher's identity gradients of the observed likelihood are expectations of the complete one's).
With precisions P, missing features m and observed features o, a component expects the gap

    x_m - μ_m = -P_mm⁻¹ P_mo (x_o - μ_o),   with covariance P_mm⁻¹,

and (x_o - μ_o)ᵀ Σ_oo⁻¹ (x_o - μ_o) is the Mahalanobis distance of the completed gap by all of P,
and det Σ_oo⁻¹ = det P / det P_mm: only a matrix of the missing features is inverted. ``room`` says
of which samples values are missing, and is scratch for that. ``axes`` is passed beside its mixture
because numba prunes branches only where an argument is None.

References
----------
Z. Ghahramani, M. I. Jordan, "Supervised learning from incomplete data via an EM approach", Advances
in Neural Information Processing Systems 6, 1994.
"""

import math
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from oda_rl._compile import compiled, inlined, integer, reordered
from oda_rl._state import Raw, State, reader
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.files.schema import Floats, Maybe, Member, Sizes, Span, flags, real, require, whole
from oda_rl.samples import holes

ANNEALING, QUANTIZING, RELEASED = 0.0, 1.0, 2.0
NARROW = 0.25  # a narrower neighbourhood is none: e^(-1/(2σ²)) < 4e-4
COOLING = 0.9
MIN_PRECISION = 1e-30
CROWDING = 0.1  # relocate what saves less than this share of the largest error
NEGLIGIBLE_LOG = 25.0  # e^-25 is lost beside 1
_NEGLIGIBLE_TEMPERED_LOG = 5.0  # tempered responsibilities are rough anyway
_MIN_PULL = 1e-3  # of the winner's: a weaker one is left out
_MIN_SHARE = 1e-3  # a smaller responsibility moves no mean and no covariance
_MIN_WEIGHT = 1e-30
_MAX_STEP = 0.5
_STATIONARY = 0.05  # δ of eq. 6


class Progress(State):
    """State of a mixture's learning."""

    phase: Annotated[float, Span("[0, 2]")]  # ANNEALING, QUANTIZING or RELEASED
    width: Annotated[float, Span("[0, inf)")]  # standard deviation of the neighbourhood on the grid
    rate: Annotated[float, Span("[0, 1]")]  # ε
    seen: Annotated[float, Span("[0, inf)")]  # samples of this phase, before release
    shown: Annotated[float, Span("[0, inf)")]  # samples of the variance; or since release
    periods: Annotated[float, Span("[0, inf)")]  # periods of quantizing that have ended
    smoothed: Annotated[float, Span()]  # smoothed loss
    previous: Annotated[float, Span()]  # smoothed loss at the last check
    reference: Annotated[float, Span()]  # mean loss of the first samples
    variance: Annotated[float, Span("[0, inf)")]  # in each direction, until release
    freed: Annotated[float, Span("[-1, components)")]  # to be relocated; -1: none
    crowded: Annotated[float, Span("[-1, components)")]  # whose next sample is its mean; -1: none
    moved: Annotated[float, Span("[0, inf)")]  # number of relocations
    loss: Annotated[float, Span()]  # sum of the losses of this pass
    losses: Annotated[float, Span("[0, inf)")]  # number of these losses
    gap: Annotated[float, Span()]  # mean difference of the two least squared distances
    first_beta: Annotated[float, Span()]  # β at release


class Mixture(NamedTuple):
    """A mixture of K components in d dimensions."""

    spherical: Annotated[bool, flags()]  # one covariance for all components
    means: Annotated[Array, Floats("K, d")]  # μ, shape (K, d)
    precisions: Annotated[Array, Floats("K, width", "(0, inf)")]  # unused until release
    axes: Annotated[Array | None, Maybe(Floats("K+1, d, d"))]
    """Eigenvectors of P as rows, shape (K + 1, d, d), the last scratch; None if P is diagonal."""
    weights: Annotated[FloatArray, real("K", "[0, inf)")]  # π, shape (K,)
    half_log_dets: Annotated[FloatArray, real("K")]  # ½ log det P, shape (K,)
    grid: Annotated[FloatArray, real("K, K", "[0, inf)")]  # g, shape (K, K): rows sum to 1
    progress: Annotated[Raw, Member(np.uint8, "progress", "[0, 256)")]  # :class:`Progress`
    errors: Annotated[FloatArray, real("K", "[0, inf)")]  # squared distances from the winner
    savings: Annotated[FloatArray, real("K")]  # increase of errors without this one

    def _check_contents(self, sizes: Sizes, where: str) -> None:
        width = 1 if self.spherical else sizes["d"]
        require(self.precisions.shape[1] == width, f"{where}.precisions must have {width} columns")
        require(not self.spherical or self.axes is None, f"{where} is spherical: it has no axes")
        arrays = self.means, self.precisions, self.axes
        dtypes = {array.dtype for array in arrays if array is not None}
        require(len(dtypes) == 1, f"{where} has {len(dtypes)} dtypes: it must have one")
        require(len(self.progress) == Progress.size, f"{where}.progress has another size")
        record = np.ascontiguousarray(self.progress).view(Progress.dtype)
        Progress.check_records(f"{where}.progress", record, {"components": len(self.weights)})
        freed, crowded = float(record["freed"][0]), float(record["crowded"][0])
        whole_numbers = freed == int(freed) and crowded == int(crowded)
        paired = whole_numbers and (crowded < 0.0 or freed >= 0.0)
        require(paired, f"{where}.progress has {freed} for {crowded}")


class Rules(NamedTuple):
    """Learning rules of a mixture."""

    rate: Annotated[float, real("", "(0, 1)")]  # first ε
    min_rate: Annotated[float, real("", "[0, 1)")]  # smallest ε
    period: Annotated[int, whole("", "[1, inf)")]  # samples between two checks of the loss
    max_precision: Annotated[float, real("", "(0, inf)")]  # D_max², in the mixture's units
    periods: Annotated[int, whole("", "[-1, inf)")]  # of quantizing; -1: no release
    tempered: Annotated[int, whole()]  # periods after that with tempered responsibilities
    memory: Annotated[float, real("", "[0, 1]")]  # share of errors kept after a period


progress_of = reader(Progress)


class Room(NamedTuple):
    """Numbers of missing features of samples, and scratch for one of them and a component."""

    missing: IntArray  # missing features of each sample, shape (n,)
    gaps: FloatArray  # expected x - μ, shape (d,)
    places: IntArray  # missing features come first; shape (d,)
    along: FloatArray  # the expected gap along the eigenvectors, shape (d,)
    factor: FloatArray  # Cholesky factor of P_mm, in the first rows and columns; shape (d, d)
    roots: FloatArray  # its inverse: the rows r have Σ r rᵀ = P_mm⁻¹

    @classmethod
    def of(cls, points: Array, mixture: Mixture) -> Self:
        """Count missing values of points, shape (n, d), and allocate scratch."""
        (n, d), missing = points.shape, holes(points)
        counts = np.zeros(n, dtype=np.int64) if missing is None else missing.sum(axis=1)
        vectors = np.zeros((2, d))
        squares = np.zeros((2, *(2 * [0 if missing is None or mixture.axes is None else d])))
        places = np.zeros(d, dtype=np.int64)
        return cls(counts, vectors[0], places, vectors[1], squares[0], squares[1])


@reordered
def _distance(points: Array, i: int, means: Array, k: int) -> float:
    """|x_i - μ_k|² of what is observed."""
    zero = means[k, 0] * 0
    total = zero
    for j in range(points.shape[1]):
        gap = points[i, j] - means[k, j]
        total += gap * gap if gap == gap else zero
    return total  # type: ignore[no-any-return]


@reordered
def _weighted_distance(points: Array, i: int, means: Array, precisions: Array, k: int) -> float:
    total = points[i, 0] * 0
    for j in range(points.shape[1]):
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
def _half_log_det(precisions: Array, k: int) -> float:
    """½ Σ_j log p_kj."""
    total = 0.0
    for j in range(precisions.shape[1]):
        total += math.log(np.float64(precisions[k, j]))
    return 0.5 * total


@inlined
def _log_part(
    points: Array, i: int, mixture: Mixture, axes: Array | None, k: int, variance: float,
    room: Room,
) -> float:  # fmt: skip
    """Log N(x_o; k) without ½ log det P and -(|o|/2) log 2π.

    ``variance`` is what all components share before covariances are released, and 0 afterwards.
    """
    means, precisions = mixture.means, mixture.precisions
    log, total, d = 0.0, 0.0, points.shape[1]
    if variance > 0.0:
        total += _distance(points, i, means, k) / variance
    elif room.missing[i] == 0:
        if axes is None:
            total += _weighted_distance(points, i, means, precisions, k)
        else:
            for u in range(d):
                y = _along(points, i, means, axes, k, u)
                total += precisions[k, u] * y * y
    else:
        n = complete(points, i, mixture, axes, k, room)
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


@compiled
def write_logs(
    points: Array, rows: IntArray, mixture: Mixture, beta: float, logs: FloatArray, room: Room,
) -> None:  # fmt: skip
    """Write β (log π_k + log N(x_o; k)) of some rows of points to ``logs``, shape (≥ rows + 1, K).

    It is without -(|o|/2) log 2π. The last row is scratch.
    """
    d, progress = points.shape[1], progress_of(mixture.progress, 0)
    shared = mixture.spherical or progress.phase != RELEASED
    variance = progress.variance if shared else 0.0
    constants = logs[-1]
    for k in range(logs.shape[1]):
        constants[k] = math.log(mixture.weights[k]) + (0.0 if shared else mixture.half_log_dets[k])
    for b in range(rows.shape[0]):
        i = rows[b]
        half_log = 0.5 * (d - room.missing[i]) * math.log(variance) if shared else 0.0
        for k in range(logs.shape[1]):
            log = _log_part(points, i, mixture, mixture.axes, k, variance, room)
            logs[b, k] = beta * (constants[k] + (log - half_log))


@inlined
def responsibilities(logs: FloatArray, n: int, margin: float) -> float:
    """Turn n rows of log densities into responsibilities, 0 where no density is a number.

    Returns the sum of the rows' log Σ exp.
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


@inlined
def complete(
    points: Array, i: int, mixture: Mixture, axes: Array | None, k: int, room: Room
) -> int:
    """Write the gap that component k expects of a sample; return how many features are missing."""
    if room.missing[i] == 0:
        return 0
    n = integer(0)
    for j in range(points.shape[1]):
        if math.isnan(points[i, j]):
            room.gaps[j] = 0.0
            room.places[n] = j
            n += 1
        else:
            room.gaps[j] = np.float64(points[i, j]) - mixture.means[k, j]
    if axes is not None and n > 0:
        _expect(mixture.precisions, axes, k, n, room)
    return n


@inlined
def _expect(precisions: Array, axes: Array, k: int, n: int, room: Room) -> None:
    """Write the Cholesky factor of P_mm, its inverse, and -P_mm⁻¹ P_mo times the observed gaps."""
    gaps, places, along = room.gaps, room.places, room.along
    factor, roots = room.factor, room.roots
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
                factor[a, a] = math.sqrt(max(total, 1e-15 * full))  # less is rounding
            else:
                factor[a, b] = total / factor[b, b]
    for c in range(n):
        for a in range(c, n):
            total = 1.0 if a == c else 0.0
            for b in range(c, a):
                total -= factor[a, b] * roots[b, c]
            roots[a, c] = total / factor[a, a]
    _measure_along(axes, k, gaps, along)
    for a in range(n):
        pull = 0.0
        for u in range(along.shape[0]):
            pull += np.float64(precisions[k, u]) * along[u] * axes[k, u, places[a]]
        for b in range(a, n):  # gaps of missing features are 0 until their turn
            factor[b, a] = roots[b, a] * pull  # the factor is not needed any more
    for b in range(n):
        total = 0.0
        for a in range(b + 1):
            total += factor[b, a]
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
def gap_of(points: Array, i: int, means: Array, k: int, j: int, room: Room) -> Array:
    """Gap of a feature, x - μ_k, or its expectation."""
    if room.missing[i] == 0:
        return points[i, j] - means[k, j]  # type: ignore[no-any-return]
    return means.dtype.type(room.gaps[j])  # type: ignore[no-any-return]


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
    if seen <= 100:
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
    if increase < _STATIONARY * max(since_start, 0.0):  # worse than at first if data drift
        progress.width = max(COOLING * progress.width, 0.01)  # of the neighbourhood
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
def _pull(points: Array, i: int, means: Array, k: int, step: float) -> None:
    """Move a mean towards a sample by a share of the way, where the sample is observed."""
    a = means.dtype.type(step)
    for j in range(points.shape[1]):
        gap = points[i, j] - means[k, j]
        if gap == gap:
            means[k, j] = _flushed(means[k, j] + a * gap)


@compiled
def anneal(
    points: Array, order: IntArray, mixture: Mixture, rules: Rules, logs: FloatArray,
    room: Room,
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
            logs[0, k] = -_distance(points, i, means, k)
        winner, loss = _smoothed_best(logs, 0, grid)
        if winner >= 0:  # else too far away for its distance to be a number
            _learn_variance(progress, -logs[0, winner], d - room.missing[i], d, rules)
            for k in range(means.shape[0]):
                if grid[winner, k] > _MIN_PULL * grid[winner, winner]:
                    _pull(points, i, means, k, progress.rate * grid[winner, k])
            watch_loss(progress, loss, rules)
        if progress.width < NARROW:
            progress.phase = QUANTIZING
            progress.seen = 0.0
        if progress.phase != ANNEALING or progress.width != width:
            return t + 1
    return n


@compiled
def quantize(points: Array, order: IntArray, mixture: Mixture, rules: Rules, room: Room) -> int:
    """Let samples pull the nearest component one by one, until a period ends.

    At most one component a period is relocated: ``progress.freed`` to a sample of
    ``progress.crowded``. Returns how many samples were shown.
    """
    means, progress = mixture.means, progress_of(mixture.progress, 0)
    weights, errors, savings = mixture.weights, mixture.errors, mixture.savings
    periods, d = progress.periods, points.shape[1]
    n: int = order.shape[0]
    for t in range(n):
        i = order[t]
        winner, nearest, second = -1, np.inf, np.inf
        for k in range(means.shape[0]):
            distance = _distance(points, i, means, k)
            if distance < nearest:
                winner, nearest, second = k, distance, nearest
            elif distance < second:
                second = distance
        if winner < 0:
            continue  # too far away for its distance to be a number
        _learn_variance(progress, nearest, d - room.missing[i], d, rules)
        errors[winner] += nearest
        if second < np.inf:
            savings[winner] += second - nearest
            progress.gap += (second - nearest - progress.gap) / rules.period
        for k in range(weights.shape[0]):
            weights[k] *= 1.0 - 1.0 / rules.period
        weights[winner] += 1.0 / rules.period
        progress.seen += 1.0
        if progress.seen % rules.period == 0.0:
            progress.periods += 1.0
            progress.rate = max(COOLING * progress.rate, rules.min_rate)
        if progress.crowded == winner:
            freed = np.int64(progress.freed)
            weights[winner] *= 0.5
            weights[freed] += weights[winner]
            errors[winner] *= 0.5
            errors[freed] = errors[winner]
            savings[freed] = CROWDING * errors[winner]  # a trial
            progress.crowded = -1.0
            progress.moved += 1.0
            for j in range(d):
                known = not math.isnan(points[i, j])
                means[freed, j] = points[i, j] if known else means[winner, j]
        else:
            _pull(points, i, means, winner, progress.rate)
        if progress.periods > periods:
            return t + 1
    return n


@compiled
def follow_em(
    points: Array, order: IntArray, batch: int, steps: FloatArray, betas: FloatArray,
    max_precision: float, model: Mixture, statistics: Mixture, logs: FloatArray,
    room: Room,
) -> float:  # fmt: skip
    """Learn by stochastic EM, in batches; return the sum of log densities to the power β.

    ``steps`` and ``betas``, shape (m,), are ρ and β of each batch. Responsibilities are those of
    ``model``, and go into ``statistics``, which may be the same object. ``logs``, shape
    (batch + 1, K), and ``room`` are scratch.
    """
    total = 0.0
    for s in range(steps.shape[0]):
        rows = order[s * batch : (s + 1) * batch]
        margin = NEGLIGIBLE_LOG if betas[s] == 1.0 else _NEGLIGIBLE_TEMPERED_LOG
        write_logs(points, rows, model, betas[s], logs, room)
        total += responsibilities(logs, rows.shape[0], margin)
        _absorb(points, rows, logs, steps[s], max_precision, statistics, room)
    return total


@inlined
def _absorb(
    points: Array, rows: IntArray, shares: FloatArray, step: float, max_precision: float,
    mixture: Mixture, room: Room,
) -> None:  # fmt: skip
    """Take a batch into the moments of all components: s ← (1 - ρ) s + ρ mean of the batch's.

    s_k are Σ r_k, Σ r_k x and Σ r_k x xᵀ (or its diagonal), from which mean, covariance and weight
    follow (Cappé and Moulines, 2009). ``shares``, shape (≥ B, K), are the responsibilities r of the
    B rows, and ``step`` is ρ.
    """
    means, weights, n, d = mixture.means, mixture.weights, rows.shape[0], points.shape[1]
    progress = progress_of(mixture.progress, 0)
    each = step / n
    for b in range(n):
        # One after another with these steps is (1 - ρ) s + ρ/B Σ, exactly.
        a_b = each / (1.0 - step + each * (b + 1.0))
        total, spread, expected = 0.0, 0.0, 0.0
        for k in range(weights.shape[0]):
            total += shares[b, k]
        if total == 0.0:
            continue
        for k in range(weights.shape[0]):
            share = shares[b, k]
            weights[k] = max((1.0 - a_b) * weights[k] + a_b * share, _MIN_WEIGHT)
            if share <= _MIN_SHARE:
                continue
            a = min(a_b * share / weights[k], _MAX_STEP)
            if mixture.spherical:
                distance = _distance(points, rows[b], means, k)
                spread += share * (1.0 - a) * distance
                expected += share * room.missing[rows[b]]
                _pull(points, rows[b], means, k, a)
            else:
                _absorb_one(points, rows[b], mixture, mixture.axes, k, a, max_precision, room)
        if mixture.spherical:
            spread += expected * progress.variance
            variance = (1.0 - a_b) * progress.variance + a_b * spread / d
            progress.variance = max(variance, 1.0 / max_precision)
    for k in range(0 if mixture.spherical else weights.shape[0]):
        highest = 0.0
        for b in range(n):
            highest = max(highest, shares[b, k])
        if highest > _MIN_SHARE:
            mixture.half_log_dets[k] = _half_log_det(mixture.precisions, k)


@inlined
def _absorb_one(
    points: Array, i: int, mixture: Mixture, axes: Array | None, k: int, step: float,
    max_precision: float, room: Room,
) -> None:  # fmt: skip
    """Σ ← (1 - a) (Σ + a (x - μ)(x - μ)ᵀ), by the precisions and their eigenvectors."""
    means, precisions, d = mixture.means, mixture.precisions, points.shape[1]
    n_missing = complete(points, i, mixture, axes, k, room)
    if axes is None:
        one, a = means.dtype.type(1.0), means.dtype.type(step)
        high, low = means.dtype.type(max_precision), means.dtype.type(MIN_PRECISION)
        for j in range(d):
            gap = points[i, j] - means[k, j]
            if math.isnan(gap):
                continue  # expected are the present mean and variance
            p = precisions[k, j]
            means[k, j] = _flushed(means[k, j] + a * gap)
            p /= (one - a) * (one + a * p * (gap * gap))
            precisions[k, j] = min(max(p, low), high)
    else:
        # Σ is the sum of r rᵀ over roots r, the eigenvectors times standard deviations. The gap
        # is one more root, and so are those of the covariance of what is missing.
        last = means.shape[0]
        for u in range(d):
            deviation = 1.0 / math.sqrt(np.float64(precisions[k, u]))
            for j in range(d):
                axes[k, u, j] *= deviation
        for j in range(d):
            axes[last, 0, j] = math.sqrt(step) * gap_of(points, i, means, k, j, room)
        _rotate_apart(axes, k)
        gain = math.sqrt(step / (1.0 - step))
        for root in range(n_missing):
            for j in range(d):
                axes[last, 0, j] = 0.0
            for b in range(root + 1):
                axes[last, 0, room.places[b]] = gain * room.roots[root, b]
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


@compiled
def _rotate_apart(axes: Array, k: int) -> None:
    """Make the d rows of axes[k] and the first of axes[-1], of d features, orthogonal.

    Rotations leave the sum of their outer products as it is; of d + 1 orthogonal rows the last is
    0. Three sweeps of Hestenes' one-sided Jacobi method are enough: it converges quadratically, and
    begins near the solution.
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
def ascend(
    points: Array, order: IntArray, batch: int, mixture: Mixture, rules: Rules, logs: FloatArray,
    room: Room,
) -> int:  # fmt: skip
    """Take gradient steps on the smoothed max-component log-likelihood (eq. 4 and 5).

    ∂μ = g P (x - μ), ∂D = g (1/D - D (x - μ)²) with P = D², ∂ξ = g - π, for each sample of a batch
    of B in turn, with ε/B. A spherical P has a single D, whose gradient is the mean over features.
    The width of g falls as in annealing. Parameters are as for :func:`anneal`, with ``logs`` of
    shape (batch + 1, K); returns how many samples were shown before the width fell.
    """
    progress, grid = progress_of(mixture.progress, 0), mixture.grid
    weights, d, width = mixture.weights, points.shape[1], progress.width
    n: int = order.shape[0]
    for begin in range(0, n, batch):
        rows = order[begin : begin + batch]
        write_logs(points, rows, mixture, 1.0, logs, room)
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
                    distance = _distance(points, i, mixture.means, k)
                    known = (d - room.missing[i]) / d
                    slope += g * (known / root - root * distance / d)
                    _pull(points, i, mixture.means, k, each * g * root * root)
                else:
                    _ascend_one(points, i, mixture, k, each * g, rules.max_precision)
            for k in range(weights.shape[0]):
                weights[k] /= total
            if mixture.spherical:
                root = _clipped(root + each * slope, rules.max_precision)
                progress.variance = 1.0 / (root * root)
        progress.loss += losses
        progress.losses += n_losses
        for _ in range(n_losses):
            watch_loss(progress, losses / n_losses, rules)
        if progress.width != width:
            return begin + rows.shape[0]  # type: ignore[no-any-return]
    return n


@inlined
def _ascend_one(
    points: Array, i: int, mixture: Mixture, k: int, step: float, max_precision: float
) -> None:
    means, precisions = mixture.means, mixture.precisions
    for j in range(points.shape[1]):
        gap = np.float64(points[i, j]) - means[k, j]
        if math.isnan(gap):
            continue
        root = math.sqrt(np.float64(precisions[k, j]))
        means[k, j] += step * root * root * gap
        root = _clipped(root + step * (1.0 / root - root * gap * gap), max_precision)
        precisions[k, j] = root * root
    mixture.half_log_dets[k] = _half_log_det(precisions, k)


@inlined
def _clipped(root: float, max_precision: float) -> float:
    return min(max(root, math.sqrt(MIN_PRECISION)), math.sqrt(max_precision))
