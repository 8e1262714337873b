"""Estimators that ask which codevector is nearest, as graphs of ONNX."""

from typing import Any

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing.base import BaseODA
from oda_rl.annealing.classifier import ODAClassifier
from oda_rl.annealing.clusterer import ODAClusterer
from oda_rl.annealing.regressor import ODARegressor
from oda_rl.divergences import SquaredEuclidean
from oda_rl.exporting.diagrams import Diagram
from oda_rl.exporting.onnx_graph import Graph, Value
from oda_rl.quantization.estimators import LVQ, VectorQuantizer
from oda_rl.trees.regressor import ODATreeRegressor


def annealed(model: BaseODA) -> Diagram:
    """Return the diagram of an annealed codebook."""
    return Diagram.nearest(model._own(), model._annealer.divergence)


def quantizer(graph: Graph, model: VectorQuantizer) -> None:
    """Put the nearest codevector."""
    diagram = Diagram.nearest(model.cluster_centers_, SquaredEuclidean())
    graph.put(graph.where_least(graph.scores(diagram)))


def lvq(graph: Graph, model: LVQ) -> None:
    """Put the class of the nearest codevector."""
    diagram = Diagram.nearest(model.codevectors_, SquaredEuclidean())
    graph.put_labels(model.codevector_labels_, graph.where_least(graph.scores(diagram)))


def clusterer(graph: Graph, model: ODAClusterer) -> None:
    """Put the nearest codevector, and Gibbs associations."""
    diagram, temperature = annealed(model), float(model.temperature_)
    scores = graph.scores(diagram)
    graph.put(graph.where_least(scores), 0)
    if temperature > 0.0:
        pull = graph.op("Mul", scores, graph.table(-diagram.unit / temperature))
        graph.put(graph.shares(graph.op("Add", pull, _logs(graph, model.weights_))), 1)
    else:  # the nearest one has all
        places = graph.indices(np.arange(len(model.weights_)))
        nearest = graph.op("ArgMin", scores, axis=1, keepdims=1)
        graph.put(graph.number(graph.op("Equal", nearest, places)), 1)


def classifier(graph: Graph, model: ODAClassifier) -> None:
    """Put the most probable class, and probabilities."""
    diagram, labels = annealed(model), model._codebook.labels
    factor = graph.table(-diagram.unit / model.prediction_temperature_)
    pull = graph.op("Mul", graph.scores(diagram), factor)
    order = np.argsort(np.array(model._seen))
    if model.prediction == "density":
        shares = graph.shares(graph.op("Add", pull, _logs(graph, model.weights_)))
        member = (labels[:, None] == order).astype(graph.dtype)
        probabilities = graph.op("MatMul", shares, member)
    else:
        probabilities = graph.shares(graph.largest(graph.columns(pull, _padded(labels, order)), 2))
    put_classes(graph, probabilities)


def regressor(graph: Graph, model: ODARegressor) -> None:
    """Put the prediction of the model of the nearest codevector's cell, shape (n, 1)."""
    diagram = annealed(model)
    cell = graph.where_least(graph.scores(diagram))
    put_local_models(graph, model, cell, diagram.rounded(graph.dtype).centre)


def put_local_models(
    graph: Graph, model: ODARegressor | ODATreeRegressor, cell: Value, centre: FloatArray
) -> None:
    """Put what the models of cells say, shape (n, 1), of points measured from a centre."""
    gaps = centre.astype(np.float64) - model._centres
    values = model.codevector_labels_ + (model.slopes_ * gaps).sum(axis=1)
    own_slopes = graph.op("Gather", graph.table(model.slopes_), cell, axis=0)
    own_value = graph.op("Gather", graph.table(values[:, None]), cell, axis=0)
    products = graph.op("Mul", own_slopes, graph.op("Sub", graph.x, centre))
    graph.put(graph.op("Add", graph.sum(products, 1, keep=True), own_value))


def put_classes(graph: Graph, probabilities: Value) -> None:
    """Put the class of greatest probability, the first of equals, and probabilities."""
    graph.put_labels(graph.classes(), graph.where_largest(probabilities))
    graph.put(probabilities, 1)


_LEAST_LOG = -1e4  # of a codevector that weighs nothing


def _logs(graph: Graph, weights: FloatArray) -> Any:
    with np.errstate(divide="ignore"):
        return graph.table(np.maximum(np.log(weights), _LEAST_LOG))


def _padded(labels: IntArray, order: IntArray) -> IntArray:
    """Return the codevectors of each class, in an order of classes; the last fill up the rows."""
    members = [np.flatnonzero(labels == label) for label in order]
    most = max(map(len, members))
    return np.array([np.pad(own, (0, most - len(own)), mode="edge") for own in members])
