"""Growth of a tree of annealed codebooks on a data set or on a stream.

Each node's codebook is annealed separately, by an :class:`oda_rl.annealing.annealer.Annealer`: on
all samples of the node, or on the first so many of a stream, from which its children start.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing.annealer import Annealer
from oda_rl.annealing.levels import Distribution, Schedule
from oda_rl.annealing.refinement import refine
from oda_rl.divergences import QUADRATIC, Divergence
from oda_rl.files.schema import MAX, Each, Sizes, flags, real, require, whole
from oda_rl.samples import rows_with_values
from oda_rl.trees.nodes import Cells, Node, Routes, Samples, Statistics

_FIRST_LOOK = 500  # samples that give the scale of a node, in fit
_COLLECTED = 10  # samples of a stream for each codevector of a node
_SMOOTHING = 1.0  # samples with the parent's class shares that are added to a node
_MIN_TEMPERATURE = 1e-4  # relative to the node's own scale


@dataclass(frozen=True)
class Plan:
    """Settings of a tree's growth."""

    divergence: Divergence
    branching: int
    """Maximum number of codevectors of a node."""
    max_depth: int
    min_samples_split: float
    """A node whose samples weigh less is not divided."""
    cooling: float
    samples_per_cluster: int
    supervised: bool
    """Whether a node whose samples are of one class is not divided."""

    SCHEMA: ClassVar[dict[str, Any]] = {
        "divergence": Divergence,
        "branching": whole("", "[2, inf)"),
        "max_depth": whole("", "[1, inf)"),
        "min_samples_split": real("", "[0, inf)"),
        "cooling": real("", "(0, 1)"),
        "samples_per_cluster": whole("", "[1, inf)"),
        "supervised": flags(),
    }

    @property
    def refines(self) -> bool:
        """Whether ``fit`` refines codebooks at temperature 0."""
        return self.divergence.kernel == QUADRATIC

    @property
    def n_collected(self) -> int:
        """Samples that a leaf of a stream collects before it is divided."""
        return max(_COLLECTED * self.branching, math.ceil(self.min_samples_split))

    def schedule(self) -> Schedule:
        """Return the schedule of a node's annealing."""
        return Schedule(
            max_codevectors=self.branching,
            min_temperature=_MIN_TEMPERATURE,
            cooling=self.cooling,
            samples_per_codevector=self.samples_per_cluster,
            max_samples=np.inf,
            target_distortion=0.0,
            target_error=-1.0,
            ends_full=self.refines,
            forgetting=0.0,
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
        self.errors = np.array([one.error for one in statistics])
        self.means = np.array([one.mean for one in statistics])
        class_weights = np.array([one.class_weights for one in statistics])
        self.shares: FloatArray = class_weights / self.weights[:, None]
        for depth in range(1, self.depth + 1):  # parents first
            level = self.depths == depth
            sums = class_weights[level] + _SMOOTHING * self.shares[self.parents[level]]
            self.shares[level] = sums / (self.weights[level, None] + _SMOOTHING)
        self.is_leaf = self.routes.sizes == 0
        self.leaf_numbers = np.cumsum(self.is_leaf) - 1


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
            right = type(path) is tuple and all(type(k) is int and 0 <= k < MAX for k in path)
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
        require(not node.waiting or self._room(node) > 0, f"{where}.waiting is full")

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

    def forget_table(self) -> None:
        """Drop the arrays."""
        self._table = None

    def grow(self, samples: Samples) -> None:
        """Grow on a data set, whose samples are drawn repeatedly."""
        self.forget_table()
        pending = [(0, np.arange(len(samples.points)))]
        while pending:
            index, rows = pending.pop()
            node = self.nodes[index]
            node.statistics.add(samples, rows, self.plan.divergence)
            pending += self._divide(node, samples, rows)

    def observe(self, samples: Samples) -> None:
        """Grow on a stream, in its order: the same in blocks of any size."""
        self.forget_table()
        pending = [(0, samples, np.arange(len(samples.points)))]
        while pending:
            index, samples, rows = pending.pop()
            node = self.nodes[index]
            learned, rest = rows, rows[:0]
            collects = node.cells is None and node.depth < self.plan.max_depth
            if collects:
                learned, rest = np.split(rows, [self._room(node)])
                columns = samples.points, samples.classes, samples.weights
                node.waiting.append(np.column_stack([column[learned] for column in columns]))
            node.statistics.add(samples, learned, self.plan.divergence)
            below = []
            if node.cells is not None:
                below = _below(node, samples, rows)
            elif collects and self._room(node) == 0:
                if len(rest) > 0:
                    pending.append((index, samples, rest))
                samples = _collected(node, samples.view)
                below = self._divide(node, samples, np.arange(len(samples.points)))
            pending += [(child, samples, own) for child, own in below]  # the next to come

    def _room(self, node: Node) -> int:
        """How many samples a leaf of a stream still collects."""
        return self.plan.n_collected - sum(map(len, node.waiting))

    def _divide(self, node: Node, samples: Samples, rows: IntArray) -> list[tuple[int, IntArray]]:
        """Anneal the codebook of a leaf on rows of samples, if it may be divided.

        Returns its children and their rows.
        """
        if not self.plan.divides(node):
            return []
        features = samples.features(node.depth)[rows]
        rows = rows[rows_with_values(features)]
        if len(rows) == 0:
            return []
        cells = self._anneal(node, samples.features(node.depth)[rows], samples.weights[rows])
        k = len(cells.offsets)
        if k < 2:
            return []
        node.cells = cells
        node.children = list(range(len(self.nodes), len(self.nodes) + k))
        self.nodes += [node.child(i, node.statistics.empty()) for i in range(k)]
        return _below(node, samples, rows)

    def _anneal(self, node: Node, features: FloatArray, weights: FloatArray) -> Cells:
        """Return the cells of a node that have samples, in the order of their first samples."""
        rng = self._generator(node)
        data = Distribution(features, np.zeros(len(features), dtype=np.int64), weights, rng)
        schedule = self.plan.schedule()
        current = Annealer(schedule, self.plan.divergence, features.shape[1], rng)
        rows = data.draw(0, *data.max_draw(_FIRST_LOOK, None))
        weighed = data.points[rows], data.classes[rows], np.ones(len(rows))
        current.begin(*weighed, class_weights=data.class_weights)
        current.anneal(data)
        codevectors: FloatArray = current.codevectors
        if self.plan.refines:
            codevectors = refine(data.points, data.weights, codevectors, rng)
        codevectors[:, np.isnan(data.points).all(axis=0)] = 0.0  # features without values
        cells = Cells.of(codevectors, self.plan.divergence)
        used, first = np.unique(cells.nearest(data.points), return_index=True)
        return cells.only(used[np.argsort(first)])

    def _generator(self, node: Node) -> np.random.Generator:
        # Zeros at the end of a seed have no effect.
        return np.random.default_rng([self.seed, *(k + 1 for k in node.path)])

    def add_classes(self, n: int) -> None:
        """Make room for n more classes."""
        for node in self.nodes:
            node.statistics.class_weights = np.pad(node.statistics.class_weights, (0, n))

    def cut(self, depth: int) -> "Tree":
        """Return a copy without the nodes below a depth."""
        tree = copy.deepcopy(self)
        tree.forget_table()
        old = [i for i, node in enumerate(tree.nodes) if node.depth <= depth]
        new = {index: i for i, index in enumerate(old)}
        tree.nodes = [tree.nodes[i] for i in old]
        for node in tree.nodes:
            if node.depth == depth:
                node.cells, node.children, node.waiting = None, [], []
            node.children = [new[child] for child in node.children]
        return tree


def _below(node: Node, samples: Samples, rows: IntArray) -> list[tuple[int, IntArray]]:
    """Children of a node, and which rows of samples are theirs."""
    assert node.cells is not None
    features = samples.features(node.depth)[rows]
    observed = rows_with_values(features)
    rows, nearest = rows[observed], node.cells.nearest(features[observed])
    parts = ((child, rows[nearest == k]) for k, child in enumerate(node.children))
    return [(child, own) for child, own in parts if len(own) > 0]


def _collected(node: Node, view: Callable[[FloatArray], list[FloatArray]]) -> Samples:
    """Take the samples that a leaf of a stream has collected."""
    waiting, node.waiting = np.concatenate(node.waiting), []
    points = np.ascontiguousarray(waiting[:, :-2])
    classes, weights = waiting[:, -2].astype(np.int64), waiting[:, -1].copy()
    return Samples(points, classes, weights, view(points), view)
