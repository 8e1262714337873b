"""Gaussian mixtures and weighted exemplars as graphs of ONNX."""

import math

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.exemplars.base import ExemplarMixture
from oda_rl.exemplars.pricing import TOUCHING
from oda_rl.exporting.onnx_graph import Graph, Value
from oda_rl.mixtures import learning
from oda_rl.mixtures.base import StreamingMixture

_FARTHEST = {np.float32: 1e15, np.float64: 1e150}  # in units, so that squares are numbers
LEAST = {np.float32: -1e38, np.float64: -1e300}  # for minus infinity, which has no differences


def mixture(graph: Graph, model: StreamingMixture) -> None:
    """Put the most probable component, and responsibilities."""
    logs = mixture_logs(graph, model)
    graph.put(graph.where_largest(logs), 0)
    graph.put(graph.shares(logs), 1)


def mixture_logs(graph: Graph, model: StreamingMixture) -> Value:
    """Return the logarithms of weighted densities, shape (n, K)."""
    means = model.means_.astype(np.float64)
    values, axes = learning.covariance_parts(model._mixture)
    roots = np.sqrt(values)
    gaps = _gaps(graph, means, model._units)
    if axes is None:
        scaled = graph.op("Mul", gaps, graph.table(roots[:, None, :]))
    else:
        whitening = (roots[:, :, None] * axes).transpose(0, 2, 1)
        scaled = graph.op("MatMul", gaps, graph.table(whitening))
    d = means.shape[1]
    half_log_dets = np.log(np.broadcast_to(roots, means.shape)).sum(axis=1)
    constants = np.log(model.weights_) + half_log_dets - 0.5 * d * math.log(2.0 * math.pi)
    halves = graph.op("Mul", _squares(graph, scaled), graph.table(-0.5))
    return graph.op("Add", halves, graph.table(constants - np.log(model._units).sum()))


def exemplars(graph: Graph, model: ExemplarMixture) -> None:
    """Put the exemplar of greatest response, and the shares of all in the response."""
    squares = exemplar_squares(graph, model)
    logs = exemplar_logs(graph, model, squares)
    if model._kernel_name() != "gaussian":
        logs = _nearest_if_silent(graph, logs, squares)
    graph.put(graph.where_largest(logs), 0)
    graph.put(graph.shares(logs), 1)


def exemplar_squares(graph: Graph, model: ExemplarMixture) -> Value:
    """Return squared distances in bandwidths, shape (n, K)."""
    units = np.full(model.exemplars_.shape[1], model.bandwidth_)
    return _squares(graph, _gaps(graph, model.exemplars_, units))


def exemplar_logs(graph: Graph, model: ExemplarMixture, squares: Value) -> Value:
    """Return logarithms of weighted responses, shape (n, K); very small ones where there is none.

    The integral of the kernel is not in them.
    """
    kernel, weights = model._kernel_name(), graph.table(np.log(model.weights_))
    least = graph.table(LEAST[graph.dtype])
    if kernel == "gaussian":
        return graph.op("Add", graph.op("Mul", squares, graph.table(-0.5)), weights)
    if kernel == "disc":
        inside = graph.op("LessOrEqual", squares, graph.table(1.0 + TOUCHING))
        return graph.op("Where", inside, weights, least)
    inside = graph.op("Less", squares, graph.table(1.0))
    rest = graph.op("Sub", graph.table(1.0), squares)
    tiny = graph.table(np.finfo(graph.dtype).tiny)
    logs = graph.op("Add", graph.op("Log", graph.op("Max", rest, tiny)), weights)
    return graph.op("Where", inside, logs, least)


def _nearest_if_silent(graph: Graph, logs: Value, squares: Value) -> Value:
    """Give the nearest exemplar all where none responds."""
    opposite = graph.op("Neg", squares)
    least = graph.table(LEAST[graph.dtype])
    nearest = graph.op("Less", opposite, graph.largest(opposite, 1, keep=True))
    alone = graph.op("Where", nearest, least, graph.table(0.0))
    half = graph.table(0.5 * LEAST[graph.dtype])
    silent = graph.op("Less", graph.largest(logs, 1, keep=True), half)
    return graph.op("Where", silent, alone, logs)


def _gaps(graph: Graph, places: FloatArray, units: FloatArray) -> Value:
    """Return x − places, shape (K, d), in units, shape (d,): shape (K, n, d).

    Differences, not squares and products, so that single precision does.
    """
    centre = graph.table(places.mean(axis=0))
    scaled = graph.op("Div", graph.op("Sub", graph.x, centre), graph.table(units))
    farthest = _FARTHEST[graph.dtype]
    near = graph.op("Clip", scaled, graph.table(-farthest), graph.table(farthest))
    own = (places - centre.astype(np.float64)) / units
    return graph.op("Sub", near, graph.table(own[:, None, :]))


def _squares(graph: Graph, gaps: Value) -> Value:
    """Return squared lengths of vectors, shape (K, n, d): shape (n, K)."""
    lengths = graph.op("ReduceSumSquareApi18", gaps, axes=[2], keepdims=0)
    return graph.op("Transpose", lengths, perm=[1, 0])
