"""Growth of a tree of annealed codebooks on a data set or on a stream.

Each node's codebook goes through temperatures separately, by an
:class:`oda_rl.annealing.annealer.Annealer`; the tree decides which samples it gets.
"""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing.annealer import Annealer
from oda_rl.annealing.levels import LEVEL_SAMPLES, Distribution, Schedule
from oda_rl.annealing.refinement import refine
from oda_rl.divergences import QUADRATIC, Divergence
from oda_rl.files.schema import MAX, Each, Sizes, check_contents, flags, real, require, whole
from oda_rl.samples import holes, rows_with_values
from oda_rl.trees.nodes import Cells, Node, NodeAnnealer, Partial, Routes, Samples, Statistics

_FIRST_LOOK = 500  # samples that give the scale of a node, in fit
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

    def schedule(self, *, ends_full: bool) -> Schedule:
        """Return the schedule of a node's annealing."""
        return Schedule(
            max_codevectors=self.branching,
            min_temperature=_MIN_TEMPERATURE,
            cooling=self.cooling,
            samples_per_codevector=self.samples_per_cluster,
            max_samples=np.inf,
            target_distortion=0.0,
            target_error=-1.0,
            ends_full=ends_full,
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
            codebook, children = tree.offspring(node)
            cells.append(codebook)
            nodes += children
            parents += [i] * len(children)
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
            self._check_learning(node, width, sizes, name)
        require(parents[0] == 0 and (parents[1:] == 1).all(), f"{where} is no tree")

    def _check_learning(self, node: Node, width: int, sizes: Sizes, where: str) -> None:
        d, n_classes = sizes["d"], sizes["tree_classes"]
        for rows in node.waiting:
            require(rows.shape[1] == width + d + 2, f"{where}.waiting has {rows.shape[1]} columns")
            classes, weights = rows[:, -2], rows[:, -1]
            right = (classes >= 0) & (classes < n_classes) & (classes == np.floor(classes))
            require((right & (weights > 0.0)).all(), f"{where}.waiting has no class, or no weight")
        n = sum(map(len, node.waiting))
        require(n < LEVEL_SAMPLES, f"{where}.waiting has {n} samples")
        if node.annealer is not None:
            right = isinstance(node.annealer, NodeAnnealer) and node.cells is None
            require(right, f"{where} has cells, and an annealer")
            sizes = {"d": width, "points": d, "tree_classes": n_classes}
            check_contents(node.annealer, sizes, f"{where}.annealer")
            same = node.annealer.divergence.kernel == self.plan.divergence.kernel
            require(same, f"{where}.annealer has another divergence")

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
            if not self.plan.divides(node):
                continue
            features = samples.features(node.depth)[rows]
            observed = rows_with_values(features)
            rows, features = rows[observed], features[observed]
            if len(rows) == 0:
                continue
            cells = self._anneal(node, features, samples.weights[rows])
            k = len(cells.offsets)
            if k > 1:
                nearest = cells.nearest(features)
                children = [node.child(i, node.statistics.empty()) for i in range(k)]
                self._divide(node, cells, children)
                pending += [(child, rows[nearest == i]) for i, child in enumerate(node.children)]

    def _anneal(self, node: Node, features: FloatArray, weights: FloatArray) -> Cells:
        """Return the cells of a node that have samples, in the order of their first samples."""
        rng = self._generator(node)
        data = Distribution(features, np.zeros(len(features), dtype=np.int64), weights, rng)
        schedule = self.plan.schedule(ends_full=self.plan.refines)
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

    def observe(self, samples: Samples) -> None:
        """Grow on a stream, in its order: the same in blocks of any size."""
        self.forget_table()
        pending = [(0, np.arange(len(samples.points)))]
        while pending:
            index, rows = pending.pop()
            node = self.nodes[index]
            rows = self._learn(node, samples, rows)
            if len(rows) > 0 and node.cells is not None:
                node.statistics.add(samples, rows, self.plan.divergence)
                features = samples.features(node.depth)[rows]
                observed = rows_with_values(features)
                rows, nearest = rows[observed], node.cells.nearest(features[observed])
                pending += [(child, rows[nearest == k]) for k, child in enumerate(node.children)]

    def _learn(self, node: Node, samples: Samples, rows: IntArray) -> IntArray:
        """Let a leaf learn until it has children; return the remaining rows."""
        while len(rows) > 0 and node.cells is None:
            room = len(rows)
            if node.depth < self.plan.max_depth:
                room = LEVEL_SAMPLES - sum(map(len, node.waiting))
                if node.annealer is not None:
                    room = node.annealer.room
                self._take(node, samples, rows[:room])
            node.statistics.add(samples, rows[:room], self.plan.divergence)
            rows = rows[room:]
            if node.annealer is None:
                if sum(map(len, node.waiting)) >= LEVEL_SAMPLES:
                    self._begin(node, samples)
            elif not node.annealer.active:
                cells, children = self.offspring(node)
                node.annealer = None
                if cells is not None:
                    self._divide(node, cells, children)
        return rows

    def _take(self, node: Node, samples: Samples, rows: IntArray) -> None:
        """Let a leaf collect samples, or its annealer observe them."""
        features, points = samples.features(node.depth)[rows], samples.points[rows]
        classes, weights = samples.classes[rows], samples.weights[rows]
        if node.annealer is None:
            node.waiting.append(np.column_stack([features, points, classes, weights]))
        else:
            observed = rows_with_values(features)
            joined = self._joined(node, node.annealer.anchor, features, points, classes)[observed]
            zeros = np.zeros(len(joined), dtype=np.int64)
            node.annealer.observe(joined, zeros, weights[observed])

    def _joined(
        self, node: Node, anchor: FloatArray, features: FloatArray, points: FloatArray,
        classes: IntArray,
    ) -> FloatArray:  # fmt: skip
        """Lay out points for a :class:`NodeAnnealer`."""
        gaps = self.plan.divergence.rowwise(points, np.broadcast_to(anchor, points.shape))
        members = np.eye(len(node.statistics.class_weights))[classes]
        return np.column_stack([features, points, gaps, members])

    def _begin(self, node: Node, samples: Samples) -> None:
        """Begin to anneal a leaf on the samples it has collected, if it may be divided."""
        waiting, d = np.concatenate(node.waiting), len(node.statistics.total)
        node.waiting = []
        width = waiting.shape[1] - d - 2
        waiting = waiting[rows_with_values(waiting[:, :width])]
        features, points = waiting[:, :width], waiting[:, width : width + d]
        low, high = (of.reduce(features, axis=0, initial=np.nan) for of in (np.fmin, np.fmax))
        if not self.plan.divides(node) or not (low < high).any():
            return
        schedule, generator = self.plan.schedule(ends_full=False), self._generator(node)
        current = NodeAnnealer(schedule, self.plan.divergence, width, generator)
        current.anchor = points.mean(axis=0)
        if holes(waiting) is not None:
            current.anchor = mean = node.statistics.mean
            views = samples.view(mean[None])
            view = views[min(node.depth, len(views) - 1)][0]
            for part, known in ((features, view), (points, mean)):
                unknown = np.isnan(part).all(axis=0)  # starts at the mean of a node above
                part[:, unknown] = known[unknown]
        joined = self._joined(node, current.anchor, features, points, waiting[:, -2].astype(int))
        current.begin(joined, np.zeros(len(joined), dtype=np.int64), waiting[:, -1])
        if current.active:
            node.annealer = current

    def _divide(self, node: Node, cells: Cells, children: list[Node]) -> None:
        node.cells = cells
        node.children = list(range(len(self.nodes), len(self.nodes) + len(children)))
        self.nodes += children

    def _generator(self, node: Node) -> np.random.Generator:
        # Zeros at the end of a seed have no effect.
        return np.random.default_rng([self.seed, *(k + 1 for k in node.path)])

    def add_classes(self, n: int) -> None:
        """Make room for n more classes."""
        for node in self.nodes:
            node.statistics.class_weights = np.pad(node.statistics.class_weights, (0, n))
            if node.annealer is not None:
                node.annealer.widen(n)

    def offspring(self, node: Node) -> tuple[Cells | None, list[Node]]:
        """Cells and children of a node; those of its annealer, if it has one."""
        if node.annealer is None:
            return node.cells, [self.nodes[child] for child in node.children]
        width = node.annealer.n_features
        d = len(node.statistics.total)
        view = node.annealer.view(self.plan.branching)
        if len(view.weights) < 2:
            return None, []
        statistics = []
        for share, averages in zip(view.weights, view.codevectors[:, width:], strict=True):
            weight = node.statistics.weight * share
            mean, gap, classes = averages[:d], averages[d], averages[d + 1 :]
            # Jensen's gap of the divergence from any anchor is that of its φ.
            gap -= self.plan.divergence.rowwise(mean[None], node.annealer.anchor[None])[0]
            error = weight * max(float(gap), 0.0)
            child = Statistics(weight * mean, weight * classes, weight, error)
            if (partial := node.statistics.partial) is not None:  # with the same shares missing
                part = weight / node.statistics.weight
                known, expected = part * partial.known, part * partial.expected_known
                child.partial = Partial.about(mean, known, expected, error)
            statistics.append(child)
        children = [node.child(k, child) for k, child in enumerate(statistics)]
        return Cells.of(view.codevectors[:, :width], self.plan.divergence), children

    def cut(self, depth: int) -> "Tree":
        """Return a copy without the nodes below a depth."""
        tree = copy.deepcopy(self)
        tree.forget_table()
        old = [i for i, node in enumerate(tree.nodes) if node.depth <= depth]
        new = {index: i for i, index in enumerate(old)}
        tree.nodes = [tree.nodes[i] for i in old]
        for node in tree.nodes:
            if node.depth == depth:
                node.cells, node.annealer, node.children, node.waiting = None, None, [], []
            node.children = [new[child] for child in node.children]
        return tree
