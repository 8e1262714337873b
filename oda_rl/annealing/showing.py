"""Which kernel samples are shown to: of the quadratic divergence, of others, or with holes."""

from typing import NamedTuple

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing.codebook import (
    Balls,
    Block,
    Layout,
    Scratch,
    Stage,
    learn,
    learn_called,
)
from oda_rl.annealing.missing import first_with_holes, learn_known
from oda_rl.annealing.turned import Information, first_known, learn_turned
from oda_rl.divergences import CALLED, QUADRATIC, Divergence, Mahalanobis


class Shown(NamedTuple):
    """Samples, and how they are to be learned from."""

    divergence: Divergence
    n_features: int
    """d."""
    points: FloatArray
    """Shape (n, d + q)."""
    classes: IntArray
    """Shape (n,)."""
    weights: FloatArray
    """Shape (n,)."""


def show(
    shown: Shown, layout: Layout, balls: Balls, stage: Stage, known: FloatArray | None
) -> FloatArray | None:
    """Let a codebook learn from samples.

    ``known`` is what is known of it (:func:`oda_rl.annealing.turned.first_known`), or None if
    nothing has been missing at this level; returns what it is then.
    """
    whole = first_with_holes(shown.points) if known is None else 0
    if whole == len(shown.points):
        _show_whole(shown, layout, balls, stage)
        return known
    if whole > 0:
        _show_whole(shown._replace(
            points=shown.points[:whole], classes=shown.classes[:whole],
            weights=shown.weights[:whole],
        ), layout, balls, stage)  # fmt: skip
    if known is None:
        known = first_known(shown.divergence, shown.points.shape[1], layout.masses)
    rest = shown._replace(
        points=shown.points[whole:], classes=shown.classes[whole:], weights=shown.weights[whole:]
    )
    if isinstance(rest.divergence, Mahalanobis):
        return _show_turned(rest, rest.divergence, layout, stage, known)
    learn_known(
        rest.n_features, rest.points, rest.classes, rest.weights, layout.columns, layout.masses,
        known, layout.starts, layout.owners, *stage, np.empty(len(layout.masses)),
    )  # fmt: skip
    return known


def _show_turned(
    shown: Shown, divergence: Mahalanobis, layout: Layout, stage: Stage, known: FloatArray
) -> FloatArray:
    d, n = shown.n_features, len(layout.masses)
    matrices = np.ascontiguousarray(known.T).reshape(n, d, d)
    learn_turned(
        d, divergence.seen_in(shown.points), shown.classes, shown.weights, layout.columns,
        layout.masses, Information(matrices, np.empty((d, d)), np.empty(d)), layout.starts,
        layout.owners, *stage, np.empty(n),
    )  # fmt: skip
    return np.ascontiguousarray(matrices.reshape(n, d * d).T)


def _show_whole(shown: Shown, layout: Layout, balls: Balls, stage: Stage) -> None:
    divergence, d, points = shown[:3]
    if divergence.kernel == QUADRATIC:
        potentials = np.zeros(len(points))
    else:
        potentials = divergence.potential(points[:, :d])
    samples = Block(d, *shown[2:], potentials)
    if divergence.kernel == CALLED:
        learn_called(divergence, samples, layout, stage)
        return
    kernel = None if divergence.kernel == QUADRATIC else divergence.kernel
    n_segments = len(layout.starts) - 1
    several = n_segments >= len(layout.owners)  # for some class
    scratch = Scratch(np.empty(len(layout.masses)), np.empty(n_segments, dtype=np.uint64))
    arrays = (*samples, *layout, *stage, *scratch)
    learn(*arrays, kernel, balls if several else None)
