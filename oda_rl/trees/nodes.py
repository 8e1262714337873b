"""Trees of annealed codebooks: what a node is, and how points find their way down.

A node is a cell of its parent's codebook, and may have a codebook of its own: a few codevectors,
annealed on the samples of that cell alone, in the features of its level. Each of these makes a
child. A node without a codebook is a leaf.

Statistics of nodes are those of the full space, codevectors those of their level, both in the
divergence's own coordinates.

References
----------
[MR-ODA] C. N. Mavridis, J. S. Baras, "Multi-resolution online deterministic annealing: a
hierarchical and progressive learning architecture".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from oda_rl._compile import compiled, inlined
from oda_rl._schema import Member, Sizes, real, require
from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import chunks
from oda_rl.annealing.annealer import Annealer
from oda_rl.divergences import Divergence
from oda_rl.filing.contents import ANYTHING, Each, Maybe


@inlined
def _score(
    features: FloatArray, i: int, column: int, width: int, values: FloatArray, centre: int, at: int
) -> float:
    # <g, x - m>. Four sums that do not wait for one another, as each addition waits for the last.
    fours = width - width % 4
    a, b, c, e = 0.0, 0.0, 0.0, 0.0
    for j in range(0, fours, 4):
        x, m, g = column + j, centre + j, at + j
        a += values[g] * (features[i, x] - values[m])
        b += values[g + 1] * (features[i, x + 1] - values[m + 1])
        c += values[g + 2] * (features[i, x + 2] - values[m + 2])
        e += values[g + 3] * (features[i, x + 3] - values[m + 3])
    for j in range(fours, width):
        a += values[at + j] * (features[i, column + j] - values[centre + j])
    return (a + b) + (c + e)


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
        """Centre and gradients as :func:`route` wants them."""
        return self.centre, self.gradients.ravel()

    def only(self, kept: IntArray) -> "Cells":
        """Leave out the other cells."""
        return Cells(self.offsets[kept], self.gradients[kept], self.centre)

    def nearest(self, features: FloatArray) -> IntArray:
        """Cell of each point, shape (n,), by the same arithmetic as in a tree."""
        width = np.array([features.shape[1]])
        leaves: list[Cells | None] = [None] * len(self.offsets)
        return Routes.of([self, *leaves]).follow(features, np.zeros(1, np.int64), width)[0] - 1


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

    @classmethod
    def of(cls, cells: Sequence[Cells | None]) -> Self:
        """Lay out the cells of nodes in breadth-first order; None for a leaf."""
        inner = [own for own in cells if own is not None]
        sizes = np.array([0 if own is None else len(own.offsets) for own in cells])
        lengths = np.array([0 if own is None else sum(map(len, own.parts)) for own in cells])
        return cls(
            first=1 + np.cumsum(sizes) - sizes,
            sizes=sizes,
            starts=np.cumsum(lengths) - lengths,
            offsets=np.concatenate([np.zeros(1), *(own.offsets for own in inner)]),
            values=np.concatenate([np.zeros(0), *(part for own in inner for part in own.parts)]),
        )

    def follow(
        self, features: FloatArray, columns: IntArray, widths: IntArray
    ) -> tuple[IntArray, int]:
        """Node that each point comes to, shape (n,), and how many scores that took."""
        nodes = np.empty(len(features), dtype=np.int64)
        n_scores = route(features, columns, widths, self, nodes)
        return nodes, n_scores


@compiled
def route(
    features: FloatArray, columns: IntArray, widths: IntArray, routes: Routes, out: IntArray
) -> int:
    """Write the leaf that each point, shape (n, D), comes to from the root, which is node 0.

    The child with the least score offset + <g, x - m> wins. At depth t features are the
    ``widths[t]`` from ``columns[t]`` on.

    Returns
    -------
    int
        How many scores were computed.
    """
    first, sizes = routes.first, routes.sizes
    n_scores = 0
    for i in range(features.shape[0]):
        node, depth = 0, 0
        while sizes[node] > 0:
            width, centre = widths[depth], routes.starts[node]
            winner, least = first[node], np.inf
            for k in range(sizes[node]):
                at = centre + (1 + k) * width
                score = routes.offsets[first[node] + k]
                score += _score(features, i, columns[depth], width, routes.values, centre, at)
                if score < least:
                    winner, least = first[node] + k, score
            n_scores += sizes[node]
            node = winner
            depth += 1
        out[i] = node
    return n_scores


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

    def features(self, depth: int) -> FloatArray:
        """Return what a node at this depth sees; the last level is that of all below, too."""
        return self.levels[min(depth, len(self.levels) - 1)]


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

    SCHEMA: ClassVar[dict[str, Member]] = {
        "total": real("d"),
        "class_weights": real("tree_classes", "[0, inf)"),
        "weight": real("", "[0, inf)"),
        "error": real("", "[0, inf)"),
    }

    @property
    def mean(self) -> FloatArray:
        """Mean of the points, shape (d,)."""
        return self.total / self.weight

    def empty(self) -> "Statistics":
        """Make statistics of the same shapes, of no samples."""
        return Statistics(np.zeros_like(self.total), np.zeros_like(self.class_weights))

    def add(self, samples: Samples, rows: IntArray, divergence: Divergence) -> None:
        """Add rows of samples in their order; the same in blocks of any size, to the bit.

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
        self.gather()
        self.codevectors = np.pad(self.codevectors, ((0, 0), (0, n)))
        self._scatter()


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
        "waiting": Each(real("n, row")),
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
