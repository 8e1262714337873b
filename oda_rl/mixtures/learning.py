"""Start a mixture, let it learn from samples in an order, and measure log densities."""

import math
from collections.abc import Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from oda_rl._threads import one_thread
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.mixtures import kernels
from oda_rl.mixtures.kernels import Mixture, Progress, Room, Rules
from oda_rl.samples import Weighted, filled, holes, means_of

_CHUNK = 1024  # samples that are scored at once
_MIN_WEIGHT = 1e-9  # of a component at release
# β at release is the larger of 8/d and that at which the odds of the nearest component to the next
# are e^1.25. Lower ones merge components.
_FIRST_BETA_FEATURES, _FIRST_LOG_ODDS = 8.0, 1.25


def near_square(n: int) -> tuple[int, int]:
    """Rows and columns of the grid of n places that is nearest to a square: (3, 4) for 12."""
    rows = next(rows for rows in range(math.isqrt(n), 0, -1) if n % rows == 0)
    return rows, n // rows


def new_mixture(
    means: Array, covariance_type: str, max_precision: float, width: float, rate: float
) -> Mixture:
    """Return a mixture of these means, shape (K, d), equal weights and the largest precisions."""
    n, d = means.shape
    axes = None
    if covariance_type == "full":
        axes = np.tile(np.eye(d, dtype=means.dtype), (n + 1, 1, 1))
    spherical = covariance_type == "tied_spherical"
    raw = np.zeros(Progress.size, dtype=np.uint8)
    progress = Progress(raw)
    progress.width, progress.rate, progress.variance = width, rate, 1.0 / max_precision
    progress.freed = progress.crowded = -1.0
    grid = np.empty((n, n))
    write_grid(*near_square(n), width, grid)
    return Mixture(
        spherical=spherical,
        means=means.copy(),
        precisions=np.full((n, 1 if spherical else d), max_precision, dtype=means.dtype),
        axes=axes,
        weights=np.full(n, 1.0 / n),
        half_log_dets=np.full(n, 0.5 * d * math.log(max_precision)),
        grid=grid,
        progress=raw,
        errors=np.zeros(n),
        savings=np.zeros(n),
    )


def k_means(data: Weighted, n: int, rng: np.random.RandomState) -> Array:
    """Means of n clusters by one run of k-means, where values are missing begun at the features'.

    Rows drawn by their weights, if there are fewer.
    """
    points = filled(data.points, means_of(data.points, data.weights))
    if len(points) < n:
        return points[data.draw(n, rng)]
    from sklearn.cluster import KMeans

    with threadpool_limits(1, "openmp"):
        clusters = KMeans(n, n_init=1, random_state=rng)
        means = clusters.fit(points, sample_weight=data.weights).cluster_centers_
    if holes(data.points) is None:
        return np.asarray(means)
    from oda_rl.quantization.kernels import lloyd

    return lloyd(data.points, data.weights, means)


def write_grid(n_rows: int, n_columns: int, width: float, out: FloatArray) -> None:
    """Write g, shape (K, K): a periodic Gaussian around each place, whose rows sum to 1."""
    rings = []
    for n in (n_rows, n_columns):
        steps = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
        with np.errstate(over="ignore"):
            rings.append(np.exp(-0.5 * (np.minimum(steps, n - steps) / width) ** 2))
    out[:] = np.kron(*rings)
    out /= out.sum(axis=1, keepdims=True)


def learn(
    mixture: Mixture, rules: Rules, points: Array, order: IntArray, batch: int, *, plain: bool
) -> None:
    """Learn from samples, shape (n, d), in an order and in batches; the last may be smaller.

    Annealing and quantizing take them one by one. ``plain``: by plain gradients, as printed.
    """
    progress, batch = Progress(mixture.progress), min(batch, len(order))
    logs = np.empty((batch + 1, len(mixture.weights)))
    room, done = Room.of(points, mixture), 0
    while done < len(order):
        # If a stage ends within a batch, its remaining samples are a batch.
        end = done + batch - done % batch if done % batch > 0 else len(order)
        part, width, periods = order[done:end], progress.width, progress.periods
        if plain:
            done += kernels.ascend(points, part, batch, mixture, rules, logs, room)
        elif progress.phase == kernels.ANNEALING:
            done += kernels.anneal(points, part, mixture, rules, logs, room)
        elif progress.phase == kernels.QUANTIZING:
            done += kernels.quantize(points, part, mixture, rules, room)
            if progress.periods > periods:
                _end_period(mixture, rules, progress)
        else:
            _follow_em(mixture, rules, progress, points, part, logs, room)
            done += len(part)
        if progress.width != width:
            write_grid(*near_square(len(mixture.weights)), progress.width, mixture.grid)


def _follow_em(
    mixture: Mixture, rules: Rules, progress: Progress, points: Array, order: IntArray,
    logs: FloatArray, room: Room,
) -> None:  # fmt: skip
    n, batch = len(order), len(logs) - 1
    later = np.arange(0, n, batch)
    sizes = np.minimum(batch, n - later)
    steps = -np.expm1(sizes * np.log1p(-steps_at(rules, mixture, progress.shown + later)))
    # Inverse temperatures rise geometrically from the first value to 1.
    left = np.maximum(1.0 - (progress.shown + later) / max(rules.tempered * rules.period, 1), 0.0)
    betas = np.asarray(progress.first_beta**left)
    total = kernels.follow_em(
        points, order, batch, steps, betas, rules.max_precision, mixture, mixture, logs, room
    )
    progress.shown += n
    if betas[0] == 1.0:  # log densities that are not tempered
        progress.loss += total
        progress.losses += n


def steps_at(rules: Rules, mixture: Mixture, shown: Array) -> Array:
    """Return the step sizes ρ when ``shown`` samples have followed the release.

    Of a component the rates ε fall with its number of samples to the power -0.6.
    """
    first, n_components = 1.0 / rules.rate, len(mixture.weights)
    decay = (first / (first + shown / n_components)) ** 0.6
    return np.asarray(rules.rate * decay / n_components)


def _end_period(mixture: Mixture, rules: Rules, progress: Progress) -> None:
    """Choose the relocation of the next period; release covariances after the last one."""
    errors, savings = mixture.errors, mixture.savings
    freed, crowded = savings.argmin(), errors.argmax()
    if freed != crowded and savings[freed] < kernels.CROWDING * errors[crowded]:
        progress.freed, progress.crowded = float(freed), float(crowded)
    errors *= rules.memory
    savings *= rules.memory
    if 0 <= rules.periods <= progress.periods:
        d, variance = mixture.means.shape[1], progress.variance
        mixture.half_log_dets[:] = -0.5 * d * math.log(variance)
        np.maximum(mixture.weights, _MIN_WEIGHT, out=mixture.weights)
        mixture.precisions[:] = 1.0 / variance
        log_odds = max(progress.gap, 1e-9 * variance) / (2.0 * variance)
        progress.first_beta = min(max(_FIRST_LOG_ODDS / log_odds, _FIRST_BETA_FEATURES / d), 1.0)
        progress.phase = kernels.RELEASED
        progress.shown = 0.0


@one_thread()
def shrunken(mixture: Mixture, n_samples: float, max_precision: float) -> Mixture:
    """Add a sample with the mean covariance of all components to each full covariance.

    Else other samples would be extremely unlikely that vary where the few of a component do not:
    this is the mode under a prior that is an inverse Wishart distribution. It weighs 1 if a
    component has at most as many samples n as features d, else (d/n)²: with many it only harms.
    """
    shares = mixture.weights / mixture.weights.sum()
    values, axes = covariance_parts(mixture)
    assert mixture.axes is not None
    assert axes is not None
    covariances = (axes.transpose(0, 2, 1) / values[:, None]) @ axes
    common = np.tensordot(shares, covariances, 1)
    counts = (n_samples * shares)[:, None, None]
    prior = np.minimum(values.shape[1] / np.maximum(counts, 1.0), 1.0) ** 2
    values, vectors = np.linalg.eigh((counts * covariances + prior * common) / (counts + prior))
    precisions = 1.0 / np.maximum(values, 1.0 / max_precision)
    turned = np.concatenate([vectors.transpose(0, 2, 1), mixture.axes[-1:]])
    return mixture._replace(
        precisions=precisions.astype(mixture.precisions.dtype),
        axes=turned.astype(mixture.axes.dtype),
        half_log_dets=0.5 * np.log(precisions).sum(axis=1),
    )


def scores(mixture: Mixture, points: Array) -> Iterator[FloatArray]:
    """Yield log π_k + log N(x; k), finite for every x, in blocks of shape (rows, K).

    Each block overwrites the last.
    """
    lowest = max(float(np.finfo(points.dtype).min) / 8.0, -1e290)  # sums of many are finite
    buffer = np.empty((min(len(points), _CHUNK) + 1, len(mixture.weights)))
    for begin in range(0, len(points), _CHUNK):
        block = points[begin : begin + _CHUNK]
        logs, missing = buffer[: len(block)], holes(block)
        room = Room.of(block, mixture)
        kernels.write_logs(block, np.arange(len(block)), mixture, 1.0, buffer, room)
        known = points.shape[1] if missing is None else (~missing).sum(axis=1, keepdims=True)
        logs -= 0.5 * known * math.log(2.0 * math.pi)
        yield np.maximum(logs, lowest, out=logs)


def covariance_parts(mixture: Mixture) -> tuple[FloatArray, FloatArray | None]:
    """Eigenvalues of the precisions, shape (K, d) or (K, 1), and their vectors as rows."""
    progress = Progress(mixture.progress)
    if mixture.spherical or progress.phase != kernels.RELEASED:
        n, d = mixture.means.shape
        values = np.full((n, 1 if mixture.spherical else d), 1.0 / progress.variance)
        axes = None if mixture.axes is None else np.tile(np.eye(d), (n, 1, 1))
        return values, axes
    axes = None if mixture.axes is None else mixture.axes[:-1].astype(np.float64)
    return mixture.precisions.astype(np.float64), axes
