"""A tree of annealed codebooks: its nodes, how points find their leaves, and how it grows.

A node is a cell of its parent's codebook. It is a leaf, or has a codebook: a few codevectors,
annealed (:class:`oda_rl.annealing.annealer.Annealer`) on the samples of that cell alone, in the
features of its level, each with a child. In a stream these are the first samples, from
which the children start.

Statistics of nodes are in the full space, codevectors in the features of their level, both in the
divergence's own coordinates.

Where values are missing, cells are compared by the observed features of their level. If there are
none, cells do not learn from the sample, and it goes to the heaviest of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from oda_rl._compile import compiled, inlined, reordered
from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import chunks
from oda_rl.annealing.annealer import Annealer, Distribution, Schedule
from oda_rl.annealing.refinement import refine
from oda_rl.divergences import QUADRATIC, Divergence
from oda_rl.files.schema import ANYTHING, MISSING, Each, Maybe, Sizes, flags, real, require, whole
from oda_rl.samples import filled, observed_shares, rows_with_values

_STRENGTHS = 2.0 ** np.arange(8)  # samples with the parent's class shares that are added to a node
_MIN_TEMPERATURE = 1e-4  # relative to the node's own scale


@dataclass(frozen=True)
class Cells:
    """The codebook of a node as scores: d(x, μ_k) = offset_k + <gradient_k, x − centre> + f(x)."""

    offsets: Annotated[FloatArray, real("B")]  # shape (k,)
    gradients: Annotated[FloatArray, real("B, W")]  # shape (k, d)
    centre: Annotated[FloatArray, real("W")]  # about which scores do not cancel

    @classmethod
    def of(cls, codevectors: FloatArray, divergence: Divergence) -> Self:
        """Make cells of codevectors, shape (k, d)."""
        centre = codevectors.mean(axis=0, keepdims=True)
        offsets = divergence.rowwise(np.repeat(centre, len(codevectors), axis=0), codevectors)
        gradients = divergence.diagram(codevectors)[:, 1:] - divergence.diagram(centre)[:, 1:]
        return cls(offsets, gradients, centre[0])

    def nearest(self, features: FloatArray) -> IntArray:
        """Cell of each point, shape (n,), with the arithmetic of :class:`Routes`."""
        width = np.array([features.shape[1]])
        leaves: list[Cells | None] = [None] * len(self.offsets)
        return Routes.of([self, *leaves]).follow(features, np.zeros(1, np.int64), width) - 1


class Routes(NamedTuple):
    """The cells of a whole tree in flat arrays, shape (N,) but for the last."""

    first: IntArray  # first child of each node; the others follow
    sizes: IntArray  # number of children
    starts: IntArray  # begin of the node's values
    offsets: FloatArray  # offset of each node
    values: FloatArray  # values m of each node, and then g of each child
    heaviest: IntArray  # heaviest child of each node

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

    points: FloatArray  # shape (n, d), in the coordinates of the divergence in the full space
    classes: IntArray  # shape (n,), indices
    weights: FloatArray  # shape (n,), positive
    levels: list[FloatArray]  # features of each level, shape (n, width of the level)
    view: Callable[[FloatArray], list[FloatArray]]  # returns these of other points, shape (m, d)

    def features(self, depth: int) -> FloatArray:
        """Return the features of a depth; the last level is that of all below, too."""
        return self.levels[min(depth, len(self.levels) - 1)]


def _after(total: FloatArray, terms: FloatArray) -> FloatArray:
    """Add terms one after the other: the same bits in blocks of any size."""
    return np.asarray(np.cumsum(np.concatenate([total[None], terms]), axis=0)[-1])


@dataclass
class Statistics:
    """Sums over the samples of a node, each in its observed features."""

    anchor: Annotated[FloatArray, real("d")]
    """Shape (d,): the first observed values, and before that the mean of the node above. Gaps and
    divergences are from it, so that they do not cancel far from the origin."""
    class_weights: Annotated[FloatArray, real("tree_classes", "[0, inf)")]  # shape (C,)
    weight: Annotated[float, real("", "[0, inf)")] = 0.0  # sum of the weights
    divergences: Annotated[float, real("", "[0, inf)")] = 0.0
    """Weighted sum of the divergences from the anchor, times d over a sample's number of observed
    features."""
    total: Annotated[FloatArray, real("d")] = field(init=False)  # weighted sum of points
    known: Annotated[FloatArray, real("d", "[0, inf)")] = field(init=False)
    """Weight of the samples with each feature observed, shape (d,)."""
    gaps: Annotated[FloatArray, real("d")] = field(init=False)
    """Sum of the gaps from the anchor, shape (d,), with weights times d over that number."""
    scaled: Annotated[FloatArray, real("d", "[0, inf)")] = field(init=False)
    """As ``known``, with these weights."""

    def __post_init__(self) -> None:
        self.total, self.known, self.gaps, self.scaled = np.zeros((4, len(self.anchor)))

    @property
    def mean(self) -> FloatArray:
        """Mean of the observed values, shape (d,); the anchor of a feature without any."""
        known = self.known > 0.0
        return np.where(known, self.total / np.where(known, self.known, 1.0), self.anchor)

    def error(self, divergence: Divergence) -> float:
        """Weighted sum of the divergences from the mean, scaled up to all features."""
        mean = self.mean
        if divergence.kernel == QUADRATIC:
            gap = mean - self.anchor
            fall = float(gap @ (2.0 * self.gaps - self.scaled * gap))
        else:  # whatever the Bregman divergence is
            fall = self.weight * float(divergence.rowwise(mean[None], self.anchor[None])[0])
        return max(self.divergences - fall, 0.0)

    def add(self, samples: Samples, rows: IntArray, divergence: Divergence) -> None:
        """Add rows of samples in their order: the same bits in blocks of any size."""
        for block in (rows[chunk] for chunk in chunks(len(rows))):
            points, weights = samples.points[block], samples.weights[block]
            observed = ~np.isnan(points)
            first = points[observed.argmax(axis=0), np.arange(points.shape[1])]
            self.anchor = np.where((self.known == 0.0) & observed.any(axis=0), first, self.anchor)
            anchors, plain = np.tile(self.anchor, (len(points), 1)), weights[:, None]
            values, scaled = filled(points, anchors), plain / observed_shares(points)
            self.total = _after(self.total, plain * filled(points, np.zeros(1)))
            self.known = _after(self.known, plain * observed)
            self.gaps = _after(self.gaps, scaled * (values - anchors))
            self.scaled = _after(self.scaled, scaled * observed)
            growth = scaled[:, 0] * divergence.rowwise(values, anchors)
            self.divergences = float(_after(np.array(self.divergences), growth))
            self.weight = float(_after(np.array(self.weight), weights))
            np.add.at(self.class_weights, samples.classes[block], weights)


@dataclass
class Node:
    """A cell of the tree.

    ``path`` has the number of the cell at each depth on the way from the root. ``cells`` divide the
    node's samples among ``children``, which are indices of nodes. A leaf of a stream collects
    samples in ``waiting``, rows of the point, the class and the weight.
    """

    path: Annotated[tuple[int, ...], ANYTHING]
    statistics: Statistics
    cells: Annotated[Cells | None, Maybe(Cells)] = None
    children: Annotated[list[int], ANYTHING] = field(default_factory=list)
    waiting: Annotated[list[FloatArray], Each(real("n, row", MISSING))] = field(
        default_factory=list
    )  # the tree checks a path and children

    @property
    def depth(self) -> int:
        """Number of codebooks above."""
        return len(self.path)


@dataclass(frozen=True)
class Plan:
    """Settings of a tree's growth."""

    divergence: Divergence
    branching: Annotated[int, whole("", "[2, inf)")]  # maximum number of codevectors of a node
    max_depth: Annotated[int, whole("", "[1, inf)")]
    min_samples_split: Annotated[float, real("", "[0, inf)")]  # weight of a node to divide
    cooling: Annotated[float, real("", "(0, 1)")]
    samples_per_cluster: Annotated[int, whole("", "[1, inf)")]
    supervised: Annotated[bool, flags()]  # nodes of one class are not divided

    @property
    def refines(self) -> bool:
        """Whether ``fit`` refines codebooks at temperature 0."""
        return self.divergence.kernel == QUADRATIC

    def schedule(self) -> Schedule:
        return Schedule(
            max_codevectors=self.branching,
            min_temperature=_MIN_TEMPERATURE,
            cooling=self.cooling,
            samples_per_codevector=self.samples_per_cluster,
            ends_full=self.refines,
        )

    def divides(self, node: Node) -> bool:
        """Whether a node may get a codebook."""
        statistics = node.statistics
        if self.supervised and np.count_nonzero(statistics.class_weights) < 2:
            return False
        return node.depth < self.max_depth and statistics.weight >= self.min_samples_split


class Table:
    """Arrays for predictions, over the N nodes in breadth-first order.

    ``depths`` and ``parents`` of each node (the root's is 0), ``weights``, ``errors`` and ``means``
    of its samples, ``shares`` of their classes, smoothed by the parent's, ``is_leaf``, and
    ``leaf_numbers``, counted from 0, valid for leaves; ``depth`` is the largest depth.
    Smoothing is as strong as makes each sample most likely, given all others.
    """

    def __init__(self, tree: "Tree") -> None:
        nodes, cells, parents = [tree.nodes[0]], [], [0]
        for i, node in enumerate(nodes):  # which grows during the loop
            cells.append(node.cells)
            nodes += [tree.nodes[child] for child in node.children]
            parents += [i] * len(node.children)
        self.depths = np.array([node.depth for node in nodes])
        self.parents = np.array(parents)
        self.depth = int(self.depths.max())
        statistics = [node.statistics for node in nodes]
        self.weights = np.array([one.weight for one in statistics])
        self.routes = Routes.of(cells, self.weights)
        self.errors = np.array([one.error(tree.plan.divergence) for one in statistics])
        self.means = np.array([one.mean for one in statistics])
        class_weights = np.array([one.class_weights for one in statistics])
        self.is_leaf = self.routes.sizes == 0
        self.leaf_numbers = np.cumsum(self.is_leaf) - 1
        # Without a sample, its class and all classes weigh 1 less in each of its nodes.
        others = np.maximum(class_weights - 1.0, 0.0), np.maximum(self.weights - 1.0, 1e-9)
        shares = [np.maximum(self._smoothed(*others, strength), 1e-9) for strength in _STRENGTHS]
        logs = [(class_weights * np.log(one))[self.is_leaf].sum() for one in shares]
        self.shares = self._smoothed(class_weights, self.weights, _STRENGTHS[int(np.argmax(logs))])

    def _smoothed(self, classes: FloatArray, weights: FloatArray, strength: float) -> FloatArray:
        """Class shares of nodes, shape (N, C), with samples of their parents' added."""
        shares = classes / weights[:, None]
        for depth in range(1, self.depth + 1):  # parents first
            level = self.depths == depth
            sums = classes[level] + strength * shares[self.parents[level]]
            shares[level] = sums / (weights[level, None] + strength)
        return np.asarray(shares)


class Tree:
    """Nodes with indices of their children; the root is node 0.

    The annealing of a node is seeded by the seed and the node's path.
    """

    SCHEMA: ClassVar[dict[str, Any]] = {
        "plan": Plan,
        "seed": whole("", "[0, 2147483647]"),
        "nodes": Each(Node),
        "_table": type(None),
    }

    def check_nodes(self, widths: list[int], sizes: Sizes, where: str) -> None:
        """Raise InvalidFileError unless nodes form a tree, and their arrays fit.

        ``widths`` are the numbers of features of the levels; the last is that of all below, too.
        """
        require(len(self.nodes) > 0 and self.nodes[0].path == (), f"{where} has no root")
        parents = np.zeros(len(self.nodes), dtype=np.int64)
        for i, node in enumerate(self.nodes):
            name = f"{where}.nodes[{i}]"
            path, children = node.path, node.children
            n_classes = len(node.statistics.class_weights)
            require(n_classes == sizes["tree_classes"], f"{name} knows {n_classes} classes")
            right = type(path) is tuple and all(
                type(k) is int and 0 <= k < self.plan.branching for k in path
            )
            require(right and len(path) <= self.plan.max_depth, f"{name}.path is {path!r:.80}")
            width = widths[min(len(path), len(widths) - 1)] if widths else 0
            right = type(children) is list and all(
                type(child) is int and 0 < child < len(self.nodes) for child in children
            )
            require(right, f"{name}.children is {children!r:.80}")
            shape = (0, width) if node.cells is None else node.cells.gradients.shape
            require(shape == (len(children), width), f"{name}.cells have shape {shape}")
            for k, child in enumerate(children):
                parents[child] += 1
                right = self.nodes[child].path == (*path, k)  # so that there is no cycle
                require(right, f"{name}.children[{k}] has another path")
            self._check_waiting(node, sizes, name)
        require(parents[0] == 0 and (parents[1:] == 1).all(), f"{where} is no tree")

    def _check_waiting(self, node: Node, sizes: Sizes, where: str) -> None:
        d, n_classes = sizes["d"], sizes["tree_classes"]
        for rows in node.waiting:
            require(rows.shape[1] == d + 2, f"{where}.waiting has {rows.shape[1]} columns")
            classes, weights = rows[:, -2], rows[:, -1]
            right = (classes >= 0) & (classes < n_classes) & (classes == np.floor(classes))
            require((right & (weights > 0.0)).all(), f"{where}.waiting has no class, or no weight")
        full = sum(map(len, node.waiting)) >= 2 * self._batch
        require(not full, f"{where}.waiting is full")

    def __init__(self, plan: Plan, seed: int, n_features: int, n_classes: int) -> None:
        self.plan, self.seed = plan, seed
        self.nodes = [Node((), Statistics(np.zeros(n_features), np.zeros(n_classes)))]
        self._table: Table | None = None

    @property
    def table(self) -> Table:
        """The tree in arrays, made again after learning."""
        if self._table is None:
            self._table = Table(self)
        return self._table

    def grow(self, samples: Samples) -> None:
        """Grow on a data set, whose samples are drawn repeatedly."""
        self._table = None
        pending = [(0, np.arange(len(samples.points)))]
        while pending:
            index, rows = pending.pop()
            node = self.nodes[index]
            node.statistics.add(samples, rows, self.plan.divergence)
            pending += self._divide(node, samples, rows)

    def observe(self, samples: Samples) -> None:
        """Grow on a stream, in its order: the same in blocks of any size."""
        self._table = None
        pending = [(0, samples, np.arange(len(samples.points)))]
        while pending:
            index, samples, rows = pending.pop()
            node = self.nodes[index]
            learned, rest = rows, rows[:0]
            collects = node.cells is None and node.depth < self.plan.max_depth
            room = self._batch - sum(map(len, node.waiting)) % self._batch
            if collects:
                learned, rest = np.split(rows, [room])
                columns = samples.points, samples.classes, samples.weights
                node.waiting.append(np.column_stack([column[learned] for column in columns]))
            node.statistics.add(samples, learned, self.plan.divergence)
            below = []
            if node.cells is not None:
                below = _below(node, samples, rows)
            elif collects and len(learned) == room:
                if len(rest) > 0:
                    pending.append((index, samples, rest))
                waiting = np.concatenate(node.waiting)
                points, classes = waiting[:, :-2].copy(), waiting[:, -2].astype(np.int64)
                views = samples.view(points)
                samples = Samples(points, classes, waiting[:, -1].copy(), views, samples.view)
                below = self._divide(node, samples, np.arange(len(samples.points)))
                # Those of one class wait for another, to be divided with it.
                node.waiting = [] if below else [waiting[-self._batch :]]
            pending += [(child, samples, own) for child, own in below]  # the next to come

    @property
    def _batch(self) -> int:
        """Number of samples that a leaf of a stream collects before it is divided."""
        return max(10 * self.plan.branching, math.ceil(self.plan.min_samples_split))

    def _divide(self, node: Node, samples: Samples, rows: IntArray) -> list[tuple[int, IntArray]]:
        """Anneal the codebook of a leaf on rows of samples, if it may be divided.

        Returns its children and their rows.
        """
        if not self.plan.divides(node):
            return []
        rows = rows[rows_with_values(samples.features(node.depth)[rows])]
        if len(rows) == 0:
            return []
        cells = self._anneal(node, samples.features(node.depth)[rows], samples.weights[rows])
        k = len(cells.offsets)
        if k < 2:
            return []
        node.cells = cells
        node.children = list(range(len(self.nodes), len(self.nodes) + k))
        mean, none = node.statistics.mean, np.zeros_like(node.statistics.class_weights)
        self.nodes += [Node((*node.path, i), Statistics(mean, none.copy())) for i in range(k)]
        return _below(node, samples, rows)

    def _anneal(self, node: Node, features: FloatArray, weights: FloatArray) -> Cells:
        """Return the cells of a node that have samples, in the order of their first samples."""
        # Zeros at the end of a seed have no effect.
        rng = np.random.default_rng([self.seed, *(k + 1 for k in node.path)])
        data = Distribution(features, np.zeros(len(features), dtype=np.int64), weights, rng)
        current = Annealer(self.plan.schedule(), self.plan.divergence, features.shape[1], rng)
        current.anneal(data)
        codevectors: FloatArray = current.codevectors
        if self.plan.refines:
            codevectors = refine(data.points, data.weights, codevectors, rng)
        codevectors[:, np.isnan(data.points).all(axis=0)] = 0.0  # features without values
        cells = Cells.of(codevectors, self.plan.divergence)
        used, first = np.unique(cells.nearest(data.points), return_index=True)
        order = used[np.argsort(first)]
        return Cells(cells.offsets[order], cells.gradients[order], cells.centre)

    def add_classes(self, n: int) -> None:
        """Make room for n more classes."""
        for node in self.nodes:
            node.statistics.class_weights = np.pad(node.statistics.class_weights, (0, n))

    def cut(self, depth: int) -> None:
        """Remove the nodes below a depth."""
        self._table = None
        old = [i for i, node in enumerate(self.nodes) if node.depth <= depth]
        new = {index: i for i, index in enumerate(old)}
        self.nodes = [self.nodes[i] for i in old]
        for node in self.nodes:
            if node.depth == depth:
                node.cells, node.children, node.waiting = None, [], []
            node.children = [new[child] for child in node.children]


def _below(node: Node, samples: Samples, rows: IntArray) -> list[tuple[int, IntArray]]:
    """Children of a node, and which rows of samples are theirs."""
    assert node.cells is not None
    features = samples.features(node.depth)[rows]
    observed = rows_with_values(features)
    rows, nearest = rows[observed], node.cells.nearest(features[observed])
    parts = ((child, rows[nearest == k]) for k, child in enumerate(node.children))
    return [(child, own) for child, own in parts if len(own) > 0]
