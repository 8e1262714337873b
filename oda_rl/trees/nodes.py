"""Nodes of trees of annealed codebooks, and the way of points from the root to a leaf.

A node is a cell of its parent's codebook. It is a leaf, or has a codebook: a few codevectors,
annealed on the samples of that cell alone, in the features of its level, each with a child.

Statistics of nodes are in the full space, codevectors in the features of their level, both in the
divergence's own coordinates.

Where values are missing, cells are compared by the observed features of their level. If there are
none, cells do not learn from the sample, and it goes to the heaviest of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from oda_rl._compile import compiled, inlined, reordered
from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import chunks
from oda_rl.divergences import Divergence
from oda_rl.files.schema import (
    ANYTHING,
    MISSING,
    Each,
    Maybe,
    Member,
    Optional,
    real,
)
from oda_rl.samples import filled, first_missing_row, observed_shares


@dataclass(frozen=True)
class Cells:
    """The codebook of a node as scores: d(x, μ_k) = offset_k + <gradient_k, x − centre> + f(x)."""

    offsets: FloatArray
    """Shape (k,)."""
    gradients: FloatArray
    """Shape (k, d)."""
    centre: FloatArray
    """Shape (d,). About it, scores do not cancel far from the origin."""

    SCHEMA: ClassVar[dict[str, Member]] = {
        "offsets": real("B"),
        "gradients": real("B, W"),
        "centre": real("W"),
    }

    @classmethod
    def of(cls, codevectors: FloatArray, divergence: Divergence) -> Self:
        """Make cells of codevectors, shape (k, d)."""
        centre = codevectors.mean(axis=0, keepdims=True)
        offsets = divergence.rowwise(np.repeat(centre, len(codevectors), axis=0), codevectors)
        gradients = divergence.diagram(codevectors)[:, 1:] - divergence.diagram(centre)[:, 1:]
        return cls(offsets, gradients, centre[0])

    def only(self, chosen: IntArray) -> "Cells":
        """Return some of the cells."""
        return Cells(self.offsets[chosen], self.gradients[chosen], self.centre)

    def nearest(self, features: FloatArray) -> IntArray:
        """Cell of each point, shape (n,), with the arithmetic of :class:`Routes`."""
        width = np.array([features.shape[1]])
        leaves: list[Cells | None] = [None] * len(self.offsets)
        return Routes.of([self, *leaves]).follow(features, np.zeros(1, np.int64), width) - 1


class Routes(NamedTuple):
    """The cells of a whole tree in flat arrays, shape (N,) but for the last."""

    first: IntArray
    """First child of each node; the others follow."""
    sizes: IntArray
    """Number of children."""
    starts: IntArray
    """Begin of the node's values."""
    offsets: FloatArray
    """Offset of each node."""
    values: FloatArray
    """Of each node m, and then g of each child."""
    heaviest: IntArray
    """Heaviest child of each node."""

    @classmethod
    def of(cls, cells: Sequence[Cells | None], weights: FloatArray | None = None) -> Self:
        """Lay out the cells of nodes in breadth-first order; None for a leaf.

        Without weights of the nodes, shape (N,), the first child counts as the heaviest.
        """
        inner = [cell for cell in cells if cell is not None]
        parts = [[] if cell is None else [cell.centre, cell.gradients.ravel()] for cell in cells]
        sizes = np.array([0 if cell is None else len(cell.offsets) for cell in cells])
        lengths = np.array([sum(map(len, part)) for part in parts])
        first = 1 + np.cumsum(sizes) - sizes
        heaviest = first.copy()
        if weights is not None:
            for i in np.flatnonzero(sizes):
                heaviest[i] += weights[first[i] : first[i] + sizes[i]].argmax()
        return cls(
            first=first,
            sizes=sizes,
            starts=np.cumsum(lengths) - lengths,
            offsets=np.concatenate([np.zeros(1), *(cell.offsets for cell in inner)]),
            values=np.concatenate([np.zeros(0), *(array for part in parts for array in part)]),
            heaviest=heaviest,
        )

    def follow(self, features: FloatArray, columns: IntArray, widths: IntArray) -> IntArray:
        """Leaf of each point, shape (n,)."""
        incomplete = np.isnan(features).any(axis=1)
        nodes = np.empty(len(features), dtype=np.int64)
        for rows, partial in ((~incomplete, False), (incomplete, True)):
            out = nodes[rows]
            _route(features[rows], columns, widths, self, partial, out)
            nodes[rows] = out
        return nodes


@compiled
def _route(
    features: FloatArray, columns: IntArray, widths: IntArray, routes: Routes, partial: bool,
    out: IntArray,
) -> None:  # fmt: skip
    """Write the leaf of each point, shape (n, D); the root is node 0.

    The child of the lowest score offset + <g, x - m> wins. At depth t features are the
    ``widths[t]`` from ``columns[t]`` on. If values are missing (``partial``), the child wins that
    is nearest in the observed features, or the heaviest if there are none.
    """
    first, sizes, values = routes.first, routes.sizes, routes.values
    for i in range(features.shape[0]):
        node, depth = 0, 0
        while sizes[node] > 0:
            width, column, centre = widths[depth], columns[depth], routes.starts[node]
            winner, lowest = routes.heaviest[node], np.inf
            for k in range(sizes[node]):
                at = centre + (1 + k) * width
                if partial:
                    score = _partial_score(features, i, column, width, values, centre, at)
                else:
                    score = routes.offsets[first[node] + k]
                    score += _score(features, i, column, width, values, centre, at)
                if score < lowest:
                    winner, lowest = first[node] + k, score
            node = winner
            depth += 1
        out[i] = node


@reordered
def _score(
    features: FloatArray, i: int, column: int, width: int, values: FloatArray, centre: int, at: int
) -> float:
    """<g, x - m>."""
    total = 0.0
    for j in range(width):
        total += values[at + j] * (features[i, column + j] - values[centre + j])
    return total


@inlined
def _partial_score(
    features: FloatArray, i: int, column: int, width: int, values: FloatArray, centre: int, at: int
) -> float:
    """Squared distance in the observed features, up to a constant; infinity if there are none.

    A child's g is −2 (μ − m): the distance is Σ_observed (x_j − m_j)² + g_j (x_j − m_j) + g_j²/4.
    """
    total, n_observed = 0.0, 0
    for j in range(width):
        x = features[i, column + j]
        if not math.isnan(x):
            g = values[at + j]
            total += g * (x - values[centre + j]) + 0.25 * g * g
            n_observed += 1
    return total if n_observed > 0 else np.inf


@dataclass
class Samples:
    """Samples to learn from."""

    points: FloatArray
    """Shape (n, d), in the coordinates of the divergence in the full space."""
    classes: IntArray
    """Shape (n,), indices."""
    weights: FloatArray
    """Shape (n,), positive."""
    levels: list[FloatArray]
    """Features of each level, shape (n, width of the level)."""
    view: Callable[[FloatArray], list[FloatArray]]
    """Returns these of other points, shape (m, d)."""

    def features(self, depth: int) -> FloatArray:
        """Return the features of a depth; the last level is that of all below, too."""
        return self.levels[min(depth, len(self.levels) - 1)]


@dataclass
class Partial:
    """Sums over samples of which values are missing (squared Euclidean divergence)."""

    anchor: FloatArray
    """Shape (d,): sums are of gaps from it, so that they do not cancel far from the origin."""
    sums: FloatArray
    """Weighted sum of the observed gaps, shape (d,)."""
    known: FloatArray
    """Weight of the samples with each feature observed, shape (d,)."""
    expected: FloatArray
    """As ``sums``, with weights times d over a sample's number of observed features."""
    expected_known: FloatArray
    """As ``known``, with these weights."""
    squares: float
    """Sum of the squared gaps in all features, with these weights."""

    SCHEMA: ClassVar[dict[str, Member]] = {
        "anchor": real("d"),
        "sums": real("d"),
        "known": real("d", "[0, inf)"),
        "expected": real("d"),
        "expected_known": real("d", "[0, inf)"),
        "squares": real("", "[0, inf)"),
    }

    @classmethod
    def about(
        cls, mean: FloatArray, known: FloatArray, expected_known: FloatArray, error: float
    ) -> Self:
        """Return the sums of samples of this mean and this sum of divergences from it."""
        zeros = np.zeros_like(mean)
        return cls(mean, zeros, known, zeros, expected_known, error)

    @property
    def mean(self) -> FloatArray:
        """Mean of the observed values; the anchor of a feature that is never observed."""
        return np.asarray(self.anchor + self.sums / np.where(self.known > 0.0, self.known, 1.0))

    @property
    def error(self) -> float:
        """Weighted sum of squared distances from the mean, scaled by d over observed features."""
        gap = self.mean - self.anchor
        rise = gap * (self.expected_known * gap - 2.0 * self.expected)
        return max(self.squares + float(rise.sum()), 0.0)

    def add(self, points: FloatArray, weights: FloatArray) -> None:
        """Add points, shape (n, d), n > 0, in their order."""
        observed = ~np.isnan(points)
        first = points[observed.argmax(axis=0), np.arange(points.shape[1])]
        self.anchor = np.where((self.known == 0.0) & observed.any(axis=0), first, self.anchor)
        gaps = filled(points - self.anchor, np.zeros(1))
        plain = weights[:, None]
        scaled = plain / observed_shares(points)
        self.sums = _after(self.sums, plain * gaps)
        self.known = _after(self.known, plain * observed)
        self.expected = _after(self.expected, scaled * gaps)
        self.expected_known = _after(self.expected_known, scaled * observed)
        growth = scaled[:, 0] * (gaps * gaps).sum(axis=1)
        self.squares = float(_after(np.array(self.squares), growth))


def _after(total: FloatArray, terms: FloatArray) -> FloatArray:
    """Add terms one after the other: the same bits in blocks of any size."""
    return np.asarray(np.cumsum(np.concatenate([total[None], terms]), axis=0)[-1])


@dataclass
class Statistics:
    """Sums over the samples of a node."""

    total: FloatArray
    """Weighted sum of the points, shape (d,)."""
    class_weights: FloatArray
    """Shape (C,)."""
    weight: float = 0.0
    """Sum of the weights."""
    error: float = 0.0
    """Weighted sum of the divergences of the points from their mean."""
    partial: Partial | None = None
    """Sums from which the others follow, once values have been missing."""

    SCHEMA: ClassVar[dict[str, Any]] = {
        "total": real("d"),
        "class_weights": real("tree_classes", "[0, inf)"),
        "weight": real("", "[0, inf)"),
        "error": real("", "[0, inf)"),
        "partial": Optional(Maybe(Partial)),
    }

    @property
    def mean(self) -> FloatArray:
        """Mean of the points, shape (d,)."""
        return self.total / self.weight

    def empty(self) -> "Statistics":
        """Return statistics of the same shapes, of no samples."""
        zeros, partial = np.zeros_like(self.total), None
        if self.partial is not None:
            partial = Partial.about(self.mean, zeros, zeros, 0.0)
        return Statistics(zeros, np.zeros_like(self.class_weights), partial=partial)

    def add(self, samples: Samples, rows: IntArray, divergence: Divergence) -> None:
        """Add rows of samples in their order: the same bits in blocks of any size."""
        if self.partial is None:
            n_complete = first_missing_row(samples.points[rows])
            self._add_complete(samples, rows[:n_complete], divergence)
            rows = rows[n_complete:]
        for block in (rows[chunk] for chunk in chunks(len(rows))):
            weights = samples.weights[block]
            if self.partial is None:
                known = np.full_like(self.total, self.weight)
                mean = self.mean if self.weight > 0.0 else self.total
                self.partial = Partial.about(mean, known, known, self.error)
            self.partial.add(samples.points[block], weights)
            np.add.at(self.class_weights, samples.classes[block], weights)
            self.weight = float(_after(np.array(self.weight), weights))
            self.total, self.error = self.weight * self.partial.mean, self.partial.error

    def _add_complete(self, samples: Samples, rows: IntArray, divergence: Divergence) -> None:
        """Add rows without missing values.

        When the mean goes from m to m', the error grows by w d(x, m') + W d(m, m') whatever the
        Bregman divergence is.
        """
        for block in (rows[chunk] for chunk in chunks(len(rows))):
            points, weights = samples.points[block], samples.weights[block]
            np.add.at(self.class_weights, samples.classes[block], weights)
            totals = np.cumsum(np.vstack([self.total, weights[:, None] * points]), axis=0)
            masses = np.cumsum(np.append(self.weight, weights))
            means = totals[1:] / masses[1:, None]
            before = np.vstack([self.mean if self.weight > 0.0 else points[0], means[:-1]])
            growth = weights * divergence.rowwise(points, means)
            growth += masses[:-1] * divergence.rowwise(before, means)
            self.error = float(np.cumsum(np.append(self.error, growth))[-1])
            self.total, self.weight = totals[-1], float(masses[-1])


@dataclass
class Node:
    """A cell of the tree.

    ``path`` has the number of the cell at each depth on the way from the root. ``cells`` divide the
    node's samples among ``children``, which are indices of nodes. A leaf of a stream collects
    samples in ``waiting``, rows of the point, the class and the weight.
    """

    path: tuple[int, ...]
    statistics: Statistics
    cells: Cells | None = None
    children: list[int] = field(default_factory=list)
    waiting: list[FloatArray] = field(default_factory=list)

    SCHEMA: ClassVar[dict[str, Any]] = {
        "path": ANYTHING,
        "statistics": Statistics,
        "cells": Maybe(Cells),
        "children": ANYTHING,
        "waiting": Each(real("n, row", MISSING)),
    }
    """The tree checks a path and children."""

    @property
    def depth(self) -> int:
        """Number of codebooks above."""
        return len(self.path)

    def child(self, k: int, statistics: Statistics) -> "Node":
        """Make the node of cell k."""
        return Node((*self.path, k), statistics)
