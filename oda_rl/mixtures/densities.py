"""Streaming Gaussian mixtures: the compiled functions that say how likely samples are."""

import math

import numpy as np

from oda_rl._compile import spliced
from oda_rl._types import Array, FloatArray
from oda_rl.mixtures.distances import least_log, mahalanobis, nearness
from oda_rl.mixtures.state import RELEASED, Mixture, progress_of


@spliced
def write_likely(points: Array, i: int, mixture: Mixture, beta: float, out: FloatArray) -> None:
    """Write β (log π_k + log N(x_i; k)) to the first row of ``out``, shape (≥ 1, K).

    It is without -(d/2) log 2π, and may be -∞ where it is less than another's by 25, or by 5 if
    β < 1. Of released covariances.
    """
    best = -np.inf
    margin = least_log(beta) / beta
    variance = progress_of(mixture.progress, 0).variance
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


@spliced
def log_densities(points: Array, mixture: Mixture, out: FloatArray) -> None:
    """Write log π_k + log N(x; k), without -(d/2) log 2π, to ``out``, shape (n, K)."""
    progress, d = progress_of(mixture.progress, 0), points.shape[1]
    held = progress.phase != RELEASED or mixture.spherical
    for i in range(points.shape[0]):
        for k in range(mixture.means.shape[0]):
            if held:
                distance = nearness(points, i, mixture.means, k, np.inf) / progress.variance
                log = -0.5 * d * math.log(progress.variance)
            else:
                distance = mahalanobis(
                    points, i, mixture.means, mixture.precisions, mixture.axes, k, np.inf
                )
                log = mixture.half_log_dets[k]
            out[i, k] = math.log(mixture.weights[k]) + log - 0.5 * distance
