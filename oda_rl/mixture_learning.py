"""Between the estimators of Gaussian mixtures and the compiled functions: blocks, densities."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl import mixture_updates as updates
from oda_rl.mixture_updates import ANNEALING, RELEASED, Mixture, Rules

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

_CHUNK = 1024  # samples that are scored at once


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
    control = np.zeros(updates.N_CONTROL)
    control[updates.WIDTH], control[updates.RATE] = width, rate
    control[updates.VARIANCE] = 1.0 / max_precision
    control[updates.FREED] = control[updates.CROWDED] = -1.0
    grid = np.empty((n, n))
    updates.write_grid(*near_square(n), width, grid)
    return Mixture(
        spherical=held,
        means=np.ascontiguousarray(means),
        precisions=np.full((n, 1 if held else d), max_precision, dtype=means.dtype),
        axes=axes,
        weights=np.full(n, 1.0 / n),
        half_log_dets=np.full(n, 0.5 * d * math.log(max_precision)),
        grid=grid,
        control=control,
        counts=np.zeros(n),
        sums=np.zeros((n, d), dtype=means.dtype),
        errors=np.zeros(n),
        savings=np.zeros(n),
    )


def learn(
    mixture: Mixture, rules: Rules, points: Array, order: IntArray, batch: int, *, plain: bool
) -> None:
    """Show samples, shape (n, d), in an order, in blocks of ``batch``; the last may be smaller.

    ``plain`` is whether by gradients as printed.
    """
    shape = near_square(len(mixture.weights))
    logs = np.empty((batch, len(mixture.weights)))
    if batch == 1:
        singly = updates.ascend_singly if plain else updates.learn_singly
        singly(points, order, logs, *shape, mixture, rules)
        return
    for begin in range(0, len(order), batch):
        rows = order[begin : begin + batch]
        block_logs(mixture, points[rows], logs, densities=plain)
        step = updates.ascend if plain else updates.learn_block
        step(points, rows, logs, *shape, mixture, rules)


def block_logs(mixture: Mixture, block: Array, out: FloatArray, *, densities: bool) -> None:
    """Write what the mixture's phase asks for, shape (≥ B, K), by products of matrices.

    -|x - μ_k|² while covariances are held, unless ``densities`` are asked for; then
    log π_k + log N(x; k) + (d/2) log 2π.
    """
    held = not densities and mixture.control[updates.PHASE] != RELEASED
    origin = mixture.means.mean(axis=0)  # far from 0 the products would cancel
    points, means = block - origin, mixture.means - origin
    n, d = points.shape
    if held or mixture.spherical:
        distances = (points**2).sum(axis=1)[:, None] - 2.0 * (points @ means.T)
        distances += (means**2).sum(axis=1)
        np.maximum(distances, 0.0, out=distances)
        if held:
            np.negative(distances, out=out[:n])
            return
        variance = mixture.control[updates.VARIANCE]
        out[:n] = -0.5 * (distances / variance + d * math.log(variance))
    else:
        precisions = mixture.precisions
        if mixture.axes is None:
            weighted = precisions * means
            out[:n] = points @ weighted.T
            out[:n] -= 0.5 * ((points**2) @ precisions.T + (weighted * means).sum(axis=1))
        else:
            for k, axes in enumerate(mixture.axes[:-1]):
                along = (points - means[k]) @ axes.T
                out[:n, k] = -0.5 * (along**2 @ precisions[k])
        out[:n] += mixture.half_log_dets
    out[:n] += np.log(mixture.weights)


def score(mixture: Mixture, points: Array) -> FloatArray:
    """Measure log π_k + log N(x; k), shape (n, K), finite wherever the points are."""
    logs = np.empty((len(points), len(mixture.weights)))
    for begin in range(0, len(points), _CHUNK):
        rows = slice(begin, begin + _CHUNK)
        updates.log_densities(points[rows], mixture, logs[rows])
    logs -= 0.5 * points.shape[1] * math.log(2.0 * math.pi)
    return np.maximum(logs, float(np.finfo(points.dtype).min) / 8.0, out=logs)


def covariance_parts(mixture: Mixture) -> tuple[FloatArray, FloatArray | None]:
    """Eigenvalues of the precisions, shape (K, d) or (K, 1), and their vectors as rows."""
    if mixture.spherical or mixture.control[updates.PHASE] != RELEASED:
        n, d = mixture.means.shape
        width = 1 if mixture.spherical else d
        values = np.full((n, width), 1.0 / mixture.control[updates.VARIANCE])
        axes = None if mixture.axes is None else np.tile(np.eye(d), (n, 1, 1))
        return values, axes
    axes = None if mixture.axes is None else mixture.axes[:-1].astype(np.float64)
    return mixture.precisions.astype(np.float64), axes


def is_annealing(mixture: Mixture, *, plain: bool) -> bool:
    """Whether the neighbourhood on the grid is still wide."""
    if plain:
        return bool(mixture.control[updates.WIDTH] >= updates.NARROW)
    return bool(mixture.control[updates.PHASE] == ANNEALING)
