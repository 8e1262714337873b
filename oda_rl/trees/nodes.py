"""Trees of annealed codebooks: what a node is, and how points find their way down.

A node is a cell of its parent's codebook, and may have a codebook of its own: a few codevectors,
annealed on the samples of that cell alone, in the features of its level. Each of these makes a
child. A node without a codebook is a leaf.

Statistics of nodes are those of the full space, codevectors those of their level, both in the
divergence's own coordinates.

Where values are missing a node's cells are compared by what its level sees of a sample. One of
which it sees nothing says nothing of these cells: they do not learn from it, and it is predicted
with the heaviest of them.

References
----------
[MR-ODA] C. N. Mavridis, J. S. Baras, "Multi-resolution online deterministic annealing: a
hierarchical and progressive learning architecture".
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from oda_rl._compile import compiled, inlined, reordered
from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import chunks
from oda_rl.annealing.annealer import Annealer
from oda_rl.divergences import Divergence
from oda_rl.files.schema import (
    ANYTHING,
    MISSING,
    Each,
    Maybe,
    Member,
    Optional,
    Sizes,
    real,
    require,
)
from oda_rl.samples import filled, first_missing_row, holes, observed_shares


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
        """Make cells of codevectors, shape (k, d).

        Examples
        --------
        >>> from oda_rl.divergences import SquaredEuclidean
        >>> cells = Cells.of(np.array([[0.0], [4.0]]), SquaredEuclidean())
        >>> cells.offsets + cells.gradients @ (np.array([4.0]) - cells.centre)  # 16 and 0, less 4
        array([12., -4.])
        """
        centre = codevectors.mean(axis=0, keepdims=True)
        offsets = divergence.rowwise(np.repeat(centre, len(codevectors), axis=0), codevectors)
        gradients = divergence.diagram(codevectors)[:, 1:] - divergence.diagram(centre)[:, 1:]
        return cls(offsets, gradients, centre[0])

    @property
    def parts(self) -> tuple[FloatArray, FloatArray]:
        """Centre and gradients as a :class:`Routes` has them."""
        return self.centre, self.gradients.ravel()

    def only(self, kept: IntArray) -> "Cells":
        """Leave out the other cells."""
        return Cells(self.offsets[kept], self.gradients[kept], self.centre)

    def nearest(self, features: FloatArray) -> IntArray:
        """Cell of each point, shape (n,), by the same arithmetic as in a tree."""
        width = np.array([features.shape[1]])
        leaves: list[Cells | None] = [None] * len(self.offsets)
        return Routes.of([self, *leaves]).follow(features, np.zeros(1, np.int64), width) - 1


class Routes(NamedTuple):
    """The cells of a whole tree in flat arrays, shape (N,) but for the last."""

    first: IntArray
    """First child of each node; its others follow."""
    sizes: IntArray
    """How many children it has."""
    starts: IntArray
    """Where in ``values`` theirs begin."""
    offsets: FloatArray
    """Offset of each node."""
    values: FloatArray
    """m, and then g of each of a node's children."""
    heaviest: IntArray
    """Heaviest child of each node."""

    @classmethod
    def of(cls, cells: Sequence[Cells | None], weights: FloatArray | None = None) -> Self:
        """Lay out the cells of nodes in breadth-first order; None for a leaf.

        Without weights of the nodes, shape (N,), the first child is taken for the heaviest.
        """
        inner = [own for own in cells if own is not None]
        sizes = np.array([0 if own is None else len(own.offsets) for own in cells])
        lengths = np.array([0 if own is None else sum(map(len, own.parts)) for own in cells])
        first = 1 + np.cumsum(sizes) - sizes
        heaviest = first.copy()
        if weights is not None:
            for i in np.flatnonzero(sizes):
                heaviest[i] += weights[first[i] : first[i] + sizes[i]].argmax()
        return cls(
            first=first,
            sizes=sizes,
            starts=np.cumsum(lengths) - lengths,
            offsets=np.concatenate([np.zeros(1), *(own.offsets for own in inner)]),
            values=np.concatenate([np.zeros(0), *(part for own in inner for part in own.parts)]),
            heaviest=heaviest,
        )

    def follow(self, features: FloatArray, columns: IntArray, widths: IntArray) -> IntArray:
        """Node that each point comes to, shape (n,)."""
        missing, nodes = holes(features), np.empty(len(features), dtype=np.int64)
        if missing is None:
            _route(features, columns, widths, self, False, nodes)
            return nodes
        holed = missing.any(axis=1)
        for rows, partial in ((~holed, False), (holed, True)):  # as if they came alone
            found = nodes[rows]
            _route(features[rows], columns, widths, self, partial, found)
            nodes[rows] = found
        return nodes


@compiled
def _route(
    features: FloatArray, columns: IntArray, widths: IntArray, routes: Routes, partial: bool,
    out: IntArray,
) -> None:  # fmt: skip
    """Write the leaf that each point, shape (n, D), comes to from the root, which is node 0.

    The child with the least score offset + <g, x - m> wins. At depth t features are the
    ``widths[t]`` from ``columns[t]`` on. If values are missing (``partial``), the divergence is the
    squared Euclidean one, and the child that is nearest in what is observed wins; where nothing is
    observed the heaviest child.
    """
    first, sizes, values = routes.first, routes.sizes, routes.values
    for i in range(features.shape[0]):
        node, depth = 0, 0
        while sizes[node] > 0:
            width, column, centre = widths[depth], columns[depth], routes.starts[node]
            winner, least = routes.heaviest[node], np.inf
            for k in range(sizes[node]):
                at = centre + (1 + k) * width
                if partial:
                    score = _partial_score(features, i, column, width, values, centre, at)
                else:
                    score = routes.offsets[first[node] + k]
                    score += _score(features, i, column, width, values, centre, at)
                if score < least:
                    winner, least = first[node] + k, score
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
    """Squared distance in what is observed, up to what all children share; infinity if nothing is.

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
    """Samples as a tree learns from them."""

    points: FloatArray
    """Shape (n, d), in the coordinates of the divergence in the full space."""
    classes: IntArray
    """Shape (n,), indices."""
    weights: FloatArray
    """Shape (n,), positive."""
    levels: list[FloatArray]
    """What the levels of the tree see, shape (n, width of the level) each."""
    look: Callable[[FloatArray], list[FloatArray]]
    """Says what they see of other points, shape (m, d), in these coordinates, too."""

    def features(self, depth: int) -> FloatArray:
        """Return what a node at this depth sees; the last level is that of all below, too."""
        return self.levels[min(depth, len(self.levels) - 1)]

    def seen_of(self, point: FloatArray, depth: int) -> FloatArray:
        """Return what a node at this depth sees of a point, shape (d,)."""
        levels = self.look(point[None])
        seen: FloatArray = levels[min(depth, len(levels) - 1)][0]
        return seen


@dataclass
class Partial:
    """Sums over samples of which values are missing (squared Euclidean divergence)."""

    anchor: FloatArray
    """Shape (d,): sums are of gaps from it, and so do not cancel far from the origin."""
    sums: FloatArray
    """Weighted sum of the gaps in what is observed, shape (d,)."""
    known: FloatArray
    """Weight of the samples of which a feature is observed, shape (d,)."""
    expected: FloatArray
    """As ``sums``, of weights times d over how many features of a sample are observed."""
    expected_known: FloatArray
    """As ``known`` likewise."""
    squares: float
    """Likewise, of squared gaps in all features."""

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
        """Go on from samples of this mean and this sum of divergences from it."""
        none = np.zeros_like(mean)
        return cls(mean, none, known, none, expected_known, error)

    @property
    def mean(self) -> FloatArray:
        """Mean of what is observed; of a feature that never is, the anchor."""
        return np.asarray(self.anchor + self.sums / np.where(self.known > 0.0, self.known, 1.0))

    @property
    def error(self) -> float:
        """Weighted sum of what the divergences from the mean are expected to be of whole samples.

        Those in what is observed, times d over how many features that is.
        """
        gap = self.mean - self.anchor
        rise = gap * (self.expected_known * gap - 2.0 * self.expected)
        return max(self.squares + float(rise.sum()), 0.0)

    def add(self, points: FloatArray, weights: FloatArray) -> None:
        """Add points, shape (n, d), n > 0, in their order."""
        seen = ~np.isnan(points)
        first = points[seen.argmax(axis=0), np.arange(points.shape[1])]
        self.anchor = np.where((self.known == 0.0) & seen.any(axis=0), first, self.anchor)
        gaps = filled(points - self.anchor, np.zeros(1))
        own = weights[:, None]
        whole = own / observed_shares(points)
        self.sums, self.known = _after(self.sums, own * gaps), _after(self.known, own * seen)
        self.expected = _after(self.expected, whole * gaps)
        self.expected_known = _after(self.expected_known, whole * seen)
        growth = whole[:, 0] * (gaps * gaps).sum(axis=1)
        self.squares = float(_after(np.array(self.squares), growth))


def _after(total: FloatArray, terms: FloatArray) -> FloatArray:
    """Add terms one after the other: the same in blocks of any size, to the bit."""
    return np.asarray(np.cumsum(np.concatenate([total[None], terms]), axis=0)[-1])


@dataclass
class Statistics:
    """The samples of a node, summed up."""

    total: FloatArray
    """Weighted sum of the points, shape (d,)."""
    class_weights: FloatArray
    """Shape (C,)."""
    weight: float = 0.0
    """Sum of the weights."""
    error: float = 0.0
    """Weighted sum of the divergences of the points from their mean."""
    partial: Partial | None = None
    """What the others follow from, once values have been missing."""

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
        """Make statistics of the same shapes, of no samples."""
        found = Statistics(np.zeros_like(self.total), np.zeros_like(self.class_weights))
        if self.partial is not None:
            nothing = np.zeros_like(self.total)
            found.partial = Partial.about(self.mean, nothing, nothing, 0.0)
        return found

    def add(self, samples: Samples, rows: IntArray, divergence: Divergence) -> None:
        """Add rows of samples in their order; the same in blocks of any size, to the bit."""
        if self.partial is None:
            whole = first_missing_row(samples.points[rows])
            self._add_whole(samples, rows[:whole], divergence)
            rows = rows[whole:]
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

    def _add_whole(self, samples: Samples, rows: IntArray, divergence: Divergence) -> None:
        """Add rows of which nothing is missing.

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


class NodeAnnealer(Annealer):
    """The annealing of a node that learns from a stream.

    Its points are the features, then what is averaged along: the point in the full space, its
    divergence there from ``anchor``, and an indicator of each class.
    """

    anchor: FloatArray
    SCHEMA: ClassVar[dict[str, Any]] = {**Annealer.SCHEMA, "anchor": real("points")}

    def check_contents(self, sizes: Sizes, where: str) -> None:
        """Raise InvalidFileError if what a file says does not belong together."""
        wanted = sizes["d"] + sizes["points"] + 1 + sizes["tree_classes"]
        require(sizes["D"] == wanted, f"{where} has {sizes['D']} columns: it must have {wanted}")
        require(sizes["classes"] == 1, f"{where} has {sizes['classes']} classes: it must have 1")
        super().check_contents(sizes, where)

    def widen(self, n: int) -> None:
        """Make room for n more classes."""
        self.codevectors = np.pad(self.codevectors, ((0, 0), (0, n)))
        if self._observed is not None:
            masses = np.repeat(self.masses[:, None], n, axis=1)
            self._observed = np.concatenate([self._observed, masses], axis=1)


@dataclass
class Node:
    """A cell of the tree.

    ``path`` has the number of the cell at each depth on the way from the root. ``cells`` divide the
    node's samples among ``children``, which are indices of nodes. A leaf of a stream collects
    samples in ``waiting``, rows of the features, the point, the class and the weight, and then has
    an ``annealer``, whose codevectors are children in the making.
    """

    path: tuple[int, ...]
    statistics: Statistics
    cells: Cells | None = None
    children: list[int] = field(default_factory=list)
    waiting: list[FloatArray] = field(default_factory=list)
    annealer: NodeAnnealer | None = None

    SCHEMA: ClassVar[dict[str, Any]] = {
        "path": ANYTHING,
        "statistics": Statistics,
        "cells": Maybe(Cells),
        "children": ANYTHING,
        "waiting": Each(real("n, row", MISSING)),
        "annealer": ANYTHING,
    }
    """Of a path, children and an annealer the tree says what they may be."""

    @property
    def depth(self) -> int:
        """How many codebooks are above."""
        return len(self.path)

    def child(self, k: int, statistics: Statistics) -> "Node":
        """Make the node of cell k."""
        return Node((*self.path, k), statistics)
