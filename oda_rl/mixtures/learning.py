"""Between the estimators of Gaussian mixtures and the compiled functions: blocks, densities."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.mixtures import distances, em, gradients, updates
from oda_rl.mixtures.densities import log_densities
from oda_rl.mixtures.missing import Room, log_marginals
from oda_rl.mixtures.state import (
    ANNEALING,
    CROWDING,
    LEAST_PULL,
    NARROW,
    QUANTIZING,
    RELEASED,
    Mixture,
    Progress,
    Rules,
)
from oda_rl.samples.missing import holes

_CHUNK = 1024  # samples that are scored at once
_LEAST_SCORE = -1e290  # of which many can be added up
_CACHE_LINE = 64  # bytes
_MANY, _USED, _STEP = 512, 48, 144  # features
_EVERY = 10  # samples: these tell whether many components are likely
_DECAY = 0.6
_LEAST_WEIGHT = 1e-9  # of a component at release
# β at release is the larger of two: so much by the number of features, and that at which the odds
# of the nearest component to the next are e to the power so much. Lower ones merge components.
_FIRST_BETA_FEATURES, _FIRST_LOG_ODDS = 8.0, 1.25


def aligned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Make an array of zeros that begins where a line of the cache does: vectors are faster."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(n_bytes + _CACHE_LINE, dtype=np.uint8)
    begin = -raw.ctypes.data % _CACHE_LINE
    return raw[begin : begin + n_bytes].view(dtype).reshape(shape)


def realigned(mixture: Mixture) -> Mixture:
    """Return a mixture whose arrays lie in memory as those of a new one."""
    known = mixture._asdict()
    for name in ("means", "precisions", "sums"):
        known[name] = aligned(known[name].shape, known[name].dtype)
        known[name][:] = getattr(mixture, name)
    return Mixture(**known)


def near_square(n: int) -> tuple[int, int]:
    """Rows and columns of a grid of n places, as near to a square as n's factors allow.

    Examples
    --------
    >>> near_square(64), near_square(12), near_square(7)
    ((8, 8), (3, 4), (1, 7))
    """
    rows = math.isqrt(n)
    while n % rows:
        rows -= 1
    return rows, n // rows


def new_mixture(
    means: Array, covariance_type: str, max_precision: float, width: float, rate: float
) -> Mixture:
    """Begin with means, shape (K, d), equal weights and the greatest precisions."""
    n, d = means.shape
    axes = None
    if covariance_type == "full":
        axes = np.tile(np.eye(d, dtype=means.dtype), (n + 1, 1, 1))
    held = covariance_type == "tied_spherical"
    raw = np.zeros(Progress.size, dtype=np.uint8)
    progress = Progress(raw)
    progress.width, progress.rate, progress.variance = width, rate, 1.0 / max_precision
    progress.freed = progress.crowded = -1.0
    grid = np.empty((n, n))
    write_grid(*near_square(n), width, grid)
    places, precisions = aligned((n, d), means.dtype), aligned((n, 1 if held else d), means.dtype)
    places[:], precisions[:] = means, max_precision
    return Mixture(
        spherical=held,
        means=places,
        precisions=precisions,
        axes=axes,
        weights=np.full(n, 1.0 / n),
        half_log_dets=np.full(n, 0.5 * d * math.log(max_precision)),
        grid=grid,
        progress=raw,
        counts=np.zeros(n),
        sums=aligned((n, d), means.dtype),
        errors=np.zeros(n),
        savings=np.zeros(n),
    )


def write_grid(n_rows: int, n_columns: int, width: float, out: FloatArray) -> None:
    """Write g, shape (K, K): a periodic Gaussian around each place, whose rows sum to 1.

    Examples
    --------
    >>> out = np.empty((4, 4))
    >>> write_grid(2, 2, 1.0, out)
    >>> out[0].round(2)
    array([0.39, 0.24, 0.24, 0.14])
    """
    out[:] = np.kron(_ring(n_rows, width), _ring(n_columns, width))
    out /= out.sum(axis=1, keepdims=True)


def _ring(n: int, width: float) -> FloatArray:
    steps = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(-0.5 * (np.minimum(steps, n - steps) / width) ** 2))


class Lesson(NamedTuple):
    """What learns, and how."""

    mixture: Mixture
    rules: Rules
    progress: Progress
    """Of the mixture, by name."""
    plain: bool
    """Whether by gradients as printed."""


def learn(
    mixture: Mixture, rules: Rules, points: Array, order: IntArray, batch: int, *, plain: bool
) -> None:
    """Show samples, shape (n, d), in an order, in blocks of ``batch``; the last may be smaller.

    ``plain`` is whether by gradients as printed.
    """
    lesson = Lesson(mixture, rules, Progress(mixture.progress), plain)
    blocks = Blocks(mixture, batch) if batch > 1 else None
    logs = np.empty((1, len(mixture.weights)))
    for shown, room in stretches(points, order, batch):
        while len(shown) > 0:
            width = lesson.progress.width
            held = not plain and lesson.progress.phase != RELEASED
            if blocks is None or (held and room is not None):
                shown = shown[_learn_singly(lesson, points, shown, logs, room) :]
            else:
                _learn_block(lesson, points, shown[:batch], blocks, room)
                shown = shown[batch:]
            _end_stage(lesson, width)


def stretches(points: Array, order: IntArray, batch: int) -> Iterator[tuple[IntArray, Room | None]]:
    """Cut an order into what is shown with nothing missing, and what is shown with room for that.

    A batch of which anything is missing has room in whole.

    Examples
    --------
    >>> points = np.array([[1.0], [2.0], [np.nan], [4.0]])
    >>> [(rows.tolist(), room is None) for rows, room in stretches(points, np.arange(4), 1)]
    [([0, 1], True), ([2], False), ([3], True)]
    """
    missing = holes(points)
    if missing is None or len(order) == 0:
        yield order, None
        return
    room = Room.of(points.shape[1])
    begins = np.arange(0, len(order), batch)
    lacking = np.asarray(missing.any(axis=1))[order]
    with_holes: BoolArray = np.logical_or.reduceat(lacking, begins)
    cuts = begins[1:][np.diff(with_holes)]
    firsts = np.concatenate([[0], cuts // batch])
    for part, holed in zip(np.split(order, cuts), with_holes[firsts], strict=True):
        yield part, room if holed else None


def _learn_singly(
    lesson: Lesson, points: Array, order: IntArray, logs: FloatArray, room: Room | None
) -> int:
    """Learn until the stage ends, or all samples are shown; returns how many were."""
    mixture, rules, progress, plain = lesson
    if plain:
        return gradients.ascend_singly(points, order, logs, mixture, rules, room)
    if progress.phase == ANNEALING:
        return updates.anneal_singly(points, order, logs, mixture, rules, room)
    if progress.phase == QUANTIZING:
        periods = progress.periods
        n = updates.quantize_singly(points, order, mixture, rules, room)
        _end_period(lesson, periods)
        return n
    n = len(order)
    later = np.arange(n)
    steps, betas = _em_steps(lesson, later, 1), _inverse_temperatures(lesson, later)
    bound = rules.max_precision
    total = em.follow_em(points, order, logs, steps, betas, bound, mixture, mixture, room)
    _count_shown(progress, n, total, float(betas[0]))
    return n


def _learn_block(
    lesson: Lesson, points: Array, rows: IntArray, blocks: "Blocks", room: Room | None
) -> None:
    mixture, rules, progress, plain = lesson
    phase = progress.phase
    block, rows = blocks.take(points, rows)
    tempered = phase == RELEASED and not plain
    beta = float(_inverse_temperatures(lesson, 0)) if tempered else 1.0
    logs = blocks.logs(block, densities=plain, beta=beta, room=room)
    if plain:
        gradients.ascend(block, rows, logs, mixture, rules, room)
    elif phase == ANNEALING:
        updates.count_winners(block, rows, logs, mixture, rules)
        _pull_neighbours(mixture, progress.rate)
        updates.watch_losses(mixture.progress, rules)
    elif phase == QUANTIZING:
        counted = 0
        while counted < len(rows):
            periods = progress.periods
            counted = updates.quantize(block, rows, logs, counted, mixture, rules)
            _end_period(lesson, periods)
        updates.pull_winners(mixture)
    else:
        step = float(_em_steps(lesson, 0, len(rows)))
        _count_shown(progress, len(rows), distances.responsibilities(logs, beta), beta)
        em.absorb(block, rows, logs, step, rules.max_precision, mixture, room)


def _pull_neighbours(mixture: Mixture, rate: float) -> None:
    """Let what a block's winners have won pull them and their neighbours on the grid.

    It has the effect, to first order, of its samples one after another: μ_k moves to the mean of
    what pulls it by 1 - Π (1 - ε g) over all pulls.
    """
    won = np.flatnonzero(mixture.counts)
    counts, grid = mixture.counts[won], mixture.grid[won]
    grid[grid <= LEAST_PULL * grid[np.arange(len(won)), won][:, None]] = 0.0
    pulls = counts @ grid
    steps = -np.expm1(counts @ np.log1p(-rate * grid))
    shares = grid * np.divide(steps, pulls, out=np.zeros_like(steps), where=pulls > 0.0)
    means, sums = mixture.means, mixture.sums
    means *= (1.0 - steps).astype(means.dtype)[:, None]
    means += shares.T.astype(means.dtype) @ sums[won]
    mixture.counts[won], sums[won] = 0.0, 0.0


def _em_steps(lesson: Lesson, later: IntArray | int, size: int) -> FloatArray:
    """ρ of blocks of a size, so many samples later.

    Of a component, from ε on, with its samples' number to the power -.6.
    """
    rules, n_components = lesson.rules, len(lesson.mixture.weights)
    shown = lesson.progress.shown + later
    first = 1.0 / rules.rate
    rates = rules.rate * (first / (first + shown / n_components)) ** _DECAY
    return -np.expm1(size * np.log1p(-rates / n_components))  # type: ignore[no-any-return]


def _inverse_temperatures(lesson: Lesson, later: IntArray | int) -> FloatArray:
    """β so many samples later: geometrically from its first value to 1."""
    rules, shown = lesson.rules, lesson.progress.shown + later
    rest = np.maximum(1.0 - shown / max(rules.tempered * rules.period, 1), 0.0)
    return lesson.progress.first_beta**rest


def _count_shown(progress: Progress, n: int, total: float, beta: float) -> None:
    """Count samples, and their log densities unless they were tempered."""
    progress.shown += n
    if beta == 1.0:
        progress.loss += total
        progress.losses += n


def _end_period(lesson: Lesson, periods: float) -> None:
    """If there were fewer periods, choose what to put where a sample of the worst winner will be.

    That is the component that is needed least.
    """
    progress, errors, savings = lesson.progress, lesson.mixture.errors, lesson.mixture.savings
    if progress.periods == periods:
        return
    least, most = savings.argmin(), errors.argmax()
    if least != most and savings[least] < CROWDING * errors[most]:
        progress.freed, progress.crowded = float(least), float(most)
    errors *= lesson.rules.memory
    savings *= lesson.rules.memory


def _end_stage(lesson: Lesson, width: float) -> None:
    """Write the grid anew if the width was another, and release covariances when it is time."""
    mixture, rules, progress, _ = lesson
    if progress.width != width:
        shape = near_square(len(mixture.weights))
        write_grid(*shape, progress.width, mixture.grid)
    if progress.phase == QUANTIZING and 0 <= rules.periods <= progress.periods:
        _release(mixture, progress)


def _release(mixture: Mixture, progress: Progress) -> None:
    """Give each component the covariance that all have had, and let it go its own way."""
    variance = progress.variance
    mixture.half_log_dets[:] = -0.5 * mixture.means.shape[1] * math.log(variance)
    np.maximum(mixture.weights, _LEAST_WEIGHT, out=mixture.weights)
    mixture.precisions[:] = 1.0 / variance
    log_odds = max(progress.gap, 1e-9 * variance) / (2.0 * variance)
    beta = max(_FIRST_LOG_ODDS / log_odds, _FIRST_BETA_FEATURES / mixture.means.shape[1])
    progress.first_beta = min(beta, 1.0)
    progress.phase = RELEASED
    progress.shown = 0.0


class Blocks:
    """What products of matrices say about blocks of up to ``batch`` samples, in buffers."""

    def __init__(self, mixture: Mixture, batch: int) -> None:
        self._mixture, self._progress = mixture, Progress(mixture.progress)
        (n, d), dtype = mixture.means.shape, mixture.means.dtype
        self._block, self._rows = aligned((batch, d), dtype), np.arange(batch)
        self._logs, self._products = np.empty((batch, n)), aligned((batch, n), dtype)
        # Of samples and components.
        self._left, self._right = aligned((batch * 2 * d,), dtype), aligned((n * 2 * d,), dtype)
        self._likely = np.empty(n, dtype=np.int64)
        self._squares, self._norms = aligned((batch,), dtype), aligned((n,), dtype)

    def take(self, points: Array, rows: IntArray) -> tuple[Array, IntArray]:
        """Copy some rows of points, to have them near; returns the block and its own rows."""
        block = self._block[: len(rows)]
        np.take(points, rows, axis=0, out=block, mode="clip")  # "raise" would copy twice
        return block, self._rows[: len(rows)]

    def logs(
        self, block: Array, *, densities: bool, beta: float = 1.0, room: Room | None = None
    ) -> FloatArray:
        """Measure what the mixture's phase asks for, shape (B, K), valid until the next call.

        -|x - μ_k|² while covariances are held, unless ``densities`` are asked for; then
        β (log π_k + log N(x; k) + (d/2) log 2π), or -∞ where it is less than another's by 25. With
        room for what is missing it is the density of what is observed.
        """
        mixture, progress = self._mixture, self._progress
        held = not densities and progress.phase != RELEASED
        logs = self._logs[: len(block)]
        if room is not None:
            log_marginals(block, mixture, logs, room)
        elif held or mixture.spherical:
            self._write_distances(block, logs)
            if held:
                return logs
            logs *= 0.5 / progress.variance
            offsets = -0.5 * block.shape[1] * math.log(progress.variance)
            logs += offsets + np.log(mixture.weights)
        elif mixture.axes is None:
            self._write_diagonal(block, beta, logs)
        else:
            _write_full(mixture, block, logs)
            logs += mixture.half_log_dets + np.log(mixture.weights)
        if beta < 1.0:
            logs *= beta
        return logs

    def _multiply(self, left: Array, right: Array) -> Array:
        return np.matmul(left, right.T, out=self._products[: len(left)])

    def _write_distances(self, block: Array, out: FloatArray) -> None:
        """Write -|x - μ_k|²."""
        means = self._mixture.means
        n, d = means.shape
        left, right = _first(self._left, len(block), d), _first(self._right, n, d)
        # Around a mean, because far from 0 the products would cancel.
        distances.centre(block, means, left, self._squares)
        distances.centre(means, means, right, self._norms)
        products = self._multiply(left, right)
        products += products
        products -= self._norms
        products -= self._squares[: len(block), None]
        np.minimum(products, 0.0, out=out)

    def _write_diagonal(self, block: Array, beta: float, out: FloatArray) -> None:
        d = block.shape[1]
        # Some features say which components are too far away; tempered, few are.
        if d >= _MANY and beta == 1.0:
            self._write_of_some(block, _USED, _STEP, out)
            some = out[::_EVERY]
            likely = some > some.max(axis=1, keepdims=True) - distances.LEAST_LOG
            if np.count_nonzero(likely) < 0.5 * likely.size:
                means, precisions = self._mixture.means, self._mixture.precisions
                distances.measure_rest(block, means, precisions, _USED, _STEP, out, self._likely)
                return
        self._write_of_some(block, d, d, out)

    def _write_of_some(self, block: Array, used: int, step: int, out: FloatArray) -> None:
        """Write log densities of the first ``used`` of each ``step`` features."""
        means, precisions = self._mixture.means, self._mixture.precisions
        n, d = means.shape
        m = d // step * used + min(d % step, used)
        left, right = _first(self._left, len(block), 2 * m), _first(self._right, n, 2 * m)
        distances.write_factors(block, means, precisions, used, step, left, right, self._norms)
        offsets = self._norms + self._mixture.half_log_dets + np.log(self._mixture.weights)
        np.add(self._multiply(left, right), offsets, out=out)


def _first(buffer: Array, n_rows: int, n_columns: int) -> Array:
    return buffer[: n_rows * n_columns].reshape(n_rows, n_columns)


def _write_full(mixture: Mixture, block: Array, out: FloatArray) -> None:
    assert mixture.axes is not None
    for k, axes in enumerate(mixture.axes[:-1]):
        along = (block - mixture.means[k]) @ axes.T
        out[:, k] = -0.5 * (along**2 @ mixture.precisions[k])


def scores(mixture: Mixture, points: Array) -> Iterator[FloatArray]:
    """Measure log π_k + log N(x; k), finite wherever the points are, in blocks of them.

    Each block, shape (rows, K), overwrites the last.
    """
    least = max(float(np.finfo(points.dtype).min) / 8.0, _LEAST_SCORE)
    buffer = np.empty((min(len(points), _CHUNK), len(mixture.weights)))
    for begin in range(0, len(points), _CHUNK):
        block = points[begin : begin + _CHUNK]
        logs = buffer[: len(block)]
        missing = holes(block)
        if missing is None:
            log_densities(block, mixture, logs)
            known = float(points.shape[1])
        else:
            log_marginals(block, mixture, logs, Room.of(points.shape[1]))
            known = (~missing).sum(axis=1, keepdims=True)
        logs -= 0.5 * known * math.log(2.0 * math.pi)
        yield np.maximum(logs, least, out=logs)


def covariance_parts(mixture: Mixture) -> tuple[FloatArray, FloatArray | None]:
    """Eigenvalues of the precisions, shape (K, d) or (K, 1), and their vectors as rows."""
    progress = Progress(mixture.progress)
    if mixture.spherical or progress.phase != RELEASED:
        n, d = mixture.means.shape
        width = 1 if mixture.spherical else d
        values = np.full((n, width), 1.0 / progress.variance)
        axes = None if mixture.axes is None else np.tile(np.eye(d), (n, 1, 1))
        return values, axes
    axes = None if mixture.axes is None else mixture.axes[:-1].astype(np.float64)
    return mixture.precisions.astype(np.float64), axes


def is_annealing(mixture: Mixture, *, plain: bool) -> bool:
    """Whether the neighbourhood on the grid is still wide."""
    progress = Progress(mixture.progress)
    return progress.width >= NARROW if plain else progress.phase == ANNEALING
