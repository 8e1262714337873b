"""How a codebook is laid out in memory for the compiled kernel."""

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing.codebook import Balls, Layout
from oda_rl.divergences import QUADRATIC, Divergence

_WIDTH = 8  # numbers in a cache line


def laid_out(
    divergence: Divergence, n_features: int, codevectors: FloatArray, masses: FloatArray,
    segments: IntArray, n_classes: int,
) -> tuple[Layout, Balls]:  # fmt: skip
    """Return arrays for the kernel, and a ball around each segment.

    Parameters
    ----------
    divergence : Divergence
    n_features : int
        The first d components of a codevector.
    codevectors : ndarray, shape (K, d + q)
        Class after class, and segment after segment.
    masses : ndarray, shape (K,)
        The layout has this array itself, not a copy.
    segments : ndarray, shape (K,)
        In which segment each is, rising; the classes, if there are several.
    n_classes : int
    """
    n, n_rows = codevectors.shape
    columns = np.zeros((n_rows, -(-n // _WIDTH) * _WIDTH))  # rows that begin alike in memory
    columns[:, :n] = codevectors.T
    own = codevectors[:, :n_features]
    gradients, offsets = np.zeros((0, 0)), np.zeros(0)
    if divergence.kernel != QUADRATIC:
        rows = divergence.diagram(own)
        gradients, offsets = np.ascontiguousarray(rows[:, 1:].T), rows[:, 0].copy()
    n_segments = int(segments[-1]) + 1
    starts = np.searchsorted(segments, np.arange(n_segments + 1))
    owners = np.arange(n_classes + 1) if n_classes > 1 else np.array([0, n_segments])
    indices = starts.astype(np.uint64), owners.astype(np.uint64)
    if n_segments == n_classes:  # nothing is passed over
        balls = Balls(np.zeros((n_features, n_segments)), *np.zeros((2, n_segments)))
        return Layout(columns, gradients, offsets, masses, *indices), balls
    centres = np.add.reduceat(own, starts[:-1]) / np.diff(starts)[:, None]
    gaps = np.sqrt(((own - centres[segments]) ** 2).sum(axis=1))
    radii = np.maximum.reduceat(gaps, starts[:-1])
    balls = Balls(np.ascontiguousarray(centres.T), radii, np.empty(n_segments))
    return Layout(columns, gradients, offsets, masses, *indices), balls
