"""Trees of codebooks as graphs of ONNX: a choice among children at each depth."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from oda_rl._types import IntArray
from oda_rl.exporting.diagrams import Diagram
from oda_rl.exporting.onnx_codebooks import put_classes, put_local_models
from oda_rl.exporting.onnx_graph import Graph, Value
from oda_rl.trees.base import BaseODATree
from oda_rl.trees.classifier import ODATreeClassifier
from oda_rl.trees.nodes import Cells, Routes
from oda_rl.trees.regressor import ODATreeRegressor


@dataclass(frozen=True)
class _Depth:
    """The nodes that points may be at, at a depth: those there, and the leaves above."""

    features: IntArray
    """What the level sees of the data."""
    centres: Any
    """Shape (M, width)."""
    offsets: Any
    """Shape (M, B); infinite where there is no child."""
    slopes: Any
    """Shape (M, B, width)."""
    first: IntArray
    """Number of the first child among the nodes of the next depth, shape (M,)."""


def clusterer(graph: Graph, model: BaseODATree) -> None:
    """Put the number of the leaf."""
    graph.put(leaf_of(graph, model))


def classifier(graph: Graph, model: ODATreeClassifier) -> None:
    """Put the most probable class in the leaf, and probabilities."""
    place, nodes = _followed(graph, model)
    shares = model._tree.table.shares[nodes][:, model._order()]
    put_classes(graph, graph.op("Gather", graph.table(shares), place, axis=0))


def regressor(graph: Graph, model: ODATreeRegressor) -> None:
    """Put the prediction of the model of the leaf, shape (n, 1)."""
    centre = model._centres.mean(axis=0).astype(graph.dtype)
    put_local_models(graph, model, leaf_of(graph, model), centre)


def leaf_of(graph: Graph, model: BaseODATree) -> Value:
    """Return the number of the leaf that points come to, shape (n,)."""
    place, nodes = _followed(graph, model)
    numbers = model._tree.table.leaf_numbers[nodes]
    return graph.op("Gather", graph.indices(numbers), place, axis=0)


def _followed(graph: Graph, model: BaseODATree) -> tuple[Value, IntArray]:
    """Return where points come to, shape (n,), and which node of the table each place is."""
    depths, nodes = _depths(graph, model)
    return _follow(graph, depths), nodes


def _follow(graph: Graph, depths: list[_Depth]) -> Value:
    """Return where points come to, shape (n,)."""
    node: Value = None
    for i, own in enumerate(depths):
        seen = graph.columns(graph.x, own.features)
        if i == 0:  # all points are at the root
            steps = graph.op("Sub", seen, own.centres[0])
            sums = graph.op("MatMul", steps, np.ascontiguousarray(own.slopes[0].T))
            node = graph.where_least(graph.op("Add", sums, own.offsets[0]))
            continue
        centres, offsets, slopes, first = (
            graph.op("Gather", table, node, axis=0)
            for table in (own.centres, own.offsets, own.slopes, own.first)
        )
        steps = graph.op("UnsqueezeApi11", graph.op("Sub", seen, centres), axes=[2])
        sums = graph.op("SqueezeApi11", graph.op("MatMul", slopes, steps), axes=[2])
        child = graph.where_least(graph.op("Add", sums, offsets))
        node = graph.op("Add", first, child)
    return node


def _depths(graph: Graph, model: BaseODATree) -> tuple[list[_Depth], IntArray]:
    """Lay out the tree depth by depth; a leaf is its own only child."""
    table = model._tree.table
    at, depths = [0], []
    for depth in range(max(table.depth, 1)):
        features, cells = _seen(model, depth), []
        first, following = [], list[int]()
        for node in at:
            own = _cells(table.routes, node, len(features))
            cells.append(own)
            first.append(len(following))
            begin, n = table.routes.first[node], len(own.offsets)
            following += [node] if table.is_leaf[node] else list(range(begin, begin + n))
        depths.append(_laid_out(graph, model, features, cells, np.array(first)))
        at = following
    return depths, np.array(at)


def _seen(model: BaseODATree, depth: int) -> IntArray:
    i = min(depth, len(model._resolutions) - 1)
    resolution = model._resolutions[i]
    if callable(resolution):
        raise ValueError(
            f"resolutions[{i}] is a function: it must be a sequence of features to be written"
        )
    return resolution


def _cells(routes: Routes, node: int, width: int) -> Cells:
    """Return the cells of a node; one that is everywhere, of a leaf."""
    n, begin = int(routes.sizes[node]), int(routes.starts[node])
    if n == 0:
        return Cells(np.zeros(1), np.zeros((1, width)), np.zeros(width))
    values = routes.values[begin : begin + (1 + n) * width].reshape(1 + n, width)
    first = int(routes.first[node])
    return Cells(routes.offsets[first : first + n], values[1:], values[0])


def _laid_out(
    graph: Graph, model: BaseODATree, features: IntArray, cells: list[Cells], first: IntArray
) -> _Depth:
    most = max(len(own.offsets) for own in cells)
    centres = np.zeros((len(cells), len(features)), dtype=graph.dtype)
    offsets = np.full((len(cells), most), np.inf, dtype=graph.dtype)
    slopes = np.zeros((len(cells), most, len(features)), dtype=graph.dtype)
    for i, own in enumerate(cells):
        rounded = Diagram.of(own, model._tree.plan.divergence).rounded(graph.dtype)
        n = len(own.offsets)
        centres[i], offsets[i, :n], slopes[i, :n] = rounded.centre, rounded.offsets, rounded.slopes
    return _Depth(features, centres, offsets, slopes, first)
