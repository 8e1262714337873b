"""What is made of densities, as graphs of ONNX: classes and outliers."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.annealing.clusterer import ODAClusterer
from oda_rl.annealing.density import log_cell_volumes
from oda_rl.densities import DensityClassifier, DensityOutlierDetector
from oda_rl.exemplars.base import ExemplarMixture
from oda_rl.exporting.onnx_codebooks import annealed, put_classes
from oda_rl.exporting.onnx_graph import Graph, Value
from oda_rl.exporting.onnx_mixtures import (
    LEAST,
    exemplar_logs,
    exemplar_squares,
    mixture_logs,
)
from oda_rl.exporting.onnx_trees import leaf_of
from oda_rl.mixtures.base import StreamingMixture
from oda_rl.trees.clusterer import ODATreeClusterer


def classifier(graph: Graph, model: DensityClassifier) -> None:
    """Put the most probable class, and probabilities."""
    columns = [log_density(graph, one) for one in model.densities_]
    logs = graph.op("Concat", *columns, axis=1)
    pull = graph.op("Mul", logs, graph.table(1.0 / model.temperature_))
    priors = graph.table(np.log(model.class_prior_))
    put_classes(graph, graph.shares(graph.op("Add", pull, priors)))


def outliers(graph: Graph, model: DensityOutlierDetector) -> None:
    """Put -1 for outliers and 1 for others, and log-densities above the offset, shape (n, 1)."""
    offset = graph.table(model.offset_)
    scores = graph.op("Sub", log_density(graph, model.density_), offset)
    unusual = graph.op("SqueezeApi11", graph.op("Less", scores, graph.table(0.0)), axes=[1])
    graph.put(graph.op("Where", unusual, *graph.indices([[-1], [1]])), 0)
    graph.put(scores, 1)


def log_density(graph: Graph, density: Any) -> Value:
    """Return the log-density, shape (n, 1); very small where the density is 0.

    Raises
    ------
    ValueError
        If it is none of those that can be written.
    """
    least = graph.table(LEAST[graph.dtype])
    if isinstance(density, StreamingMixture):
        return _total(graph, mixture_logs(graph, density))
    if isinstance(density, ExemplarMixture):
        logs = exemplar_logs(graph, density, exemplar_squares(graph, density))
        d = density.exemplars_.shape[1]
        volume = density._kernel.log_volume(d) + d * math.log(density.bandwidth_)
        shifted = graph.op("Sub", _total(graph, logs), graph.table(volume))
        return graph.op("Max", shifted, least)
    if isinstance(density, ODAClusterer):
        cell = graph.where_least(graph.scores(annealed(density)))
    elif isinstance(density, ODATreeClusterer):
        cell = leaf_of(graph, density)
    else:
        raise ValueError(
            f"a density is of {type(density).__name__}: it must be a mixture, exemplars, an "
            "ODAClusterer or an ODATreeClusterer of this package to be written"
        )
    volumes = log_cell_volumes(density.predict, len(density.weights_), density._low, density._high)
    with np.errstate(divide="ignore"):
        values = np.maximum(np.log(density.weights_) - volumes, LEAST[graph.dtype])
    own = graph.op("Gather", graph.table(values[:, None]), cell, axis=0)
    return graph.op("Where", _outside(graph, density._low, density._high), least, own)


def _total(graph: Graph, logs: Value) -> Value:
    """Return the logarithm of summed exponentials, shape (n, 1)."""
    greatest = graph.largest(logs, 1, keep=True)
    relative = graph.op("Exp", graph.op("Sub", logs, greatest))
    return graph.op("Add", graph.op("Log", graph.sum(relative, 1, keep=True)), greatest)


def _outside(graph: Graph, low: FloatArray, high: FloatArray) -> Value:
    """Return whether points lie outside a box, shape (n, 1)."""
    below = graph.op("Sub", _rounded_inwards(low, np.inf, graph.dtype), graph.x)
    above = graph.op("Sub", graph.x, _rounded_inwards(high, -np.inf, graph.dtype))
    most = graph.largest(graph.op("Max", below, above), 1, keep=True)
    return graph.op("Less", graph.table(0.0), most)


def _rounded_inwards(corner: FloatArray, towards: float, dtype: Any) -> npt.NDArray[Any]:
    """Round a corner so that the same points of the type lie inside as of the box itself.

    >>> _rounded_inwards(np.array([0.1]), np.inf, np.float32) >= 0.1
    array([ True])
    """
    rounded = corner.astype(dtype)
    nearer = np.nextafter(rounded, np.asarray(towards, dtype=dtype))
    outside = rounded < corner if towards > 0.0 else rounded > corner
    return np.asarray(np.where(outside, nearer, rounded))
