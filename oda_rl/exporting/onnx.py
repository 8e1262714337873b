"""Estimators as ONNX graphs: converters for skl2onnx."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from skl2onnx import get_model_alias, update_registered_converter
from skl2onnx.algebra import onnx_ops
from skl2onnx.common.data_types import (
    Int64TensorType,
    StringTensorType,
    guess_numpy_type,
    guess_tensor_type,
)
from skl2onnx.common.utils_classifier import get_label_classes
from skl2onnx.proto import onnx_proto

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import finite
from oda_rl.annealing.base import CellEstimator, is_wide, log_cell_volumes, with_rim
from oda_rl.annealing.batch_annealing import BatchDeterministicAnnealing
from oda_rl.annealing.classifier import ODAClassifier
from oda_rl.annealing.clusterer import ODAClusterer
from oda_rl.annealing.regressor import ODARegressor
from oda_rl.densities import DensityClassifier, DensityOutlierDetector
from oda_rl.distributed.estimators import DistributedODAClassifier, DistributedODAClusterer
from oda_rl.distributed.mixture import DistributedGaussianMixture
from oda_rl.divergences import QUADRATIC, SquaredEuclidean
from oda_rl.exemplars.base import ExemplarMixture
from oda_rl.exemplars.estimators import INFEX, ConvexClustering, KernelVectorQuantization
from oda_rl.exemplars.pricing import TOUCHING
from oda_rl.exporting.c_header import Diagram, fitting, is_text, log_weights, whole_numbers
from oda_rl.mixtures import learning
from oda_rl.mixtures.base import StreamingMixture
from oda_rl.mixtures.sgd import SGDGaussianMixture
from oda_rl.mixtures.stochastic_em import StochasticEMGaussianMixture
from oda_rl.quantization.som import SOM
from oda_rl.quantization.vq import LVQ, StochasticVQ, VectorQuantizer
from oda_rl.trees import estimators as trees
from oda_rl.trees.tree import Cells, Routes

_MIN_OPSET = 13  # from here on the axes of ReduceSum are an input
Value = Any  # the output of a node, or an array


class Graph:
    """The graph of one operator of skl2onnx; numbers have the precision of its input."""

    def __init__(self, scope: Any, operator: Any, container: Any) -> None:
        self._scope, self._operator, self._container = scope, operator, container
        self.opset = container.target_opset
        if self.opset < _MIN_OPSET:
            raise ValueError(f"target_opset is {self.opset}: it must be at least {_MIN_OPSET}")
        given = guess_numpy_type(operator.inputs[0].type)
        self.dtype = np.float64 if given == np.float64 else np.float32
        self.x: Value = operator.inputs[0]
        self.missing: Value = None  # 1 where a value is missing, else 0; None if none may be
        if given not in (np.float32, np.float64):
            self.x = self.number(self.x)
        elif finite(operator.raw_operator) == "allow-nan":
            self.missing = self.number(self.op("IsNaN", self.x))

    def op(self, kind: str, *inputs: Value, **settings: Any) -> Value:
        """Add a node of a kind and return its output."""
        return getattr(onnx_ops, f"Onnx{kind}")(*inputs, op_version=self.opset, **settings)

    def table(self, array: npt.ArrayLike) -> Array:
        """Return numbers in the graph's precision; raise ValueError if that is too low."""
        return fitting(array, self.dtype)

    def number(self, value: Value) -> Value:
        """Cast booleans or integers to the graph's precision."""
        kinds = onnx_proto.TensorProto
        kind = kinds.DOUBLE if self.dtype == np.float64 else kinds.FLOAT
        return self.op("Cast", value, to=kind)

    def sum(self, value: Value) -> Value:
        """Return the sum of each row, shape (n, 1)."""
        axes = np.array([1], dtype=np.int64)
        return self.op("ReduceSumApi11", value, axes=axes, keepdims=1)

    def max(self, value: Value, axis: int = 1, keepdims: int = 1) -> Value:
        return self.op("ReduceMaxApi18", value, axes=[axis], keepdims=keepdims)

    def argmin(self, value: Value) -> Value:
        """Return the column of each row's first minimum, shape (n,)."""
        return self.op("ArgMin", value, axis=1, keepdims=0)

    def argmax(self, value: Value) -> Value:
        """Return the column of each row's first maximum, shape (n,)."""
        return self.op("ArgMax", value, axis=1, keepdims=0)

    def rows(self, array: Array, indices: Value) -> Value:
        """Return rows of an array."""
        return self.op("Gather", array, indices, axis=0)

    def nearest(self, diagram: Diagram) -> Value:
        """Return the index of the nearest codevector, shape (n,)."""
        return self.argmin(self.scores(diagram))

    def gaps(self, centre: FloatArray) -> Value:
        """Return x - centre, shape (n, d); 0 where values are missing."""
        return _known(self, self.op("Sub", self.x, self.table(centre)))

    def scores(self, diagram: Diagram) -> Value:
        """Return scores of codevectors, in units of the diagram, shape (n, K)."""
        rounded = diagram.rounded(self.dtype)
        sums = self.op("MatMul", self.gaps(rounded.centre), np.ascontiguousarray(rounded.slopes.T))
        scores = self.op("Add", sums, rounded.offsets)
        if self.missing is None:
            return scores
        parts = diagram.parts + diagram.slopes * (rounded.centre.astype(float) - diagram.centre)
        return self.op("Sub", scores, self.op("MatMul", self.missing, self.table(parts.T)))

    def squares(self, diagram: Diagram) -> Value:
        """Return squared distances from codevectors in the observed features, shape (n, K)."""
        gaps = self.gaps(diagram.centre)
        if diagram.root is not None:
            gaps = self.op("MatMul", gaps, self.table(diagram.root))
        common = self.op("ReduceSumSquareApi18", gaps, axes=[1], keepdims=1)
        scaled = self.op("Mul", self.scores(diagram), self.table(diagram.unit))
        return self.op("Max", self.op("Add", scaled, common), self.table(0.0))

    def observed(self) -> Value:
        """Return the share of the features that is observed, shape (n, 1)."""
        share = self.op("ReduceMeanApi18", self.missing, axes=[1], keepdims=1)
        return self.op("Sub", self.table(1.0), share)

    def softmax(self, logs: Value) -> Value:
        """Return the softmax of each row, shape (n, K)."""
        return self.op("Softmax", logs, axis=1)

    def put(self, value: Value, output: int = 0) -> None:
        """Make a value an output."""
        name = self._operator.outputs[output]
        self.op("Identity", value, output_names=[name]).add_to(self._scope, self._container)

    def put_labels(self, labels: Array, indices: Value) -> None:
        """Make the labels with these indices the first output."""
        if is_text(labels):
            name = self._scope.get_unique_variable_name("labels")
            coded = [str(label).encode("utf-8") for label in labels]
            kind = onnx_proto.TensorProto.STRING
            self._container.add_initializer(name, kind, [len(coded)], coded)
            # The algebra has no tables of strings.
            index = self._scope.get_unique_variable_name("number")
            self.op("Identity", indices, output_names=[index]).add_to(self._scope, self._container)
            output = self._operator.outputs[0].full_name
            node = self._scope.get_unique_operator_name("Labels")
            self._container.add_node("Gather", [name, index], output, name=node, op_version=13)
        else:
            self.put(self.rows(whole_numbers(labels), indices))

    def classes(self) -> Array:
        """Return the labels of the classes; their indices with the option ``nocl``."""
        return np.asarray(get_label_classes(self._scope, self._operator.raw_operator))


def quantizer(graph: Graph, model: VectorQuantizer) -> None:
    """Output the index of the nearest codevector."""
    graph.put(graph.nearest(Diagram.nearest(model.cluster_centers_, SquaredEuclidean())))


def lvq(graph: Graph, model: LVQ) -> None:
    """Output the class of the nearest codevector, and scores: those of decision_function."""
    squares = graph.squares(Diagram.nearest(model.codevectors_, SquaredEuclidean()))
    labels = np.searchsorted(model.classes_, model.codevector_labels_)
    by_class = graph.op("Gather", graph.op("Neg", squares), _members(labels), axis=1)
    scores = graph.max(by_class, axis=2, keepdims=0)
    if len(model.classes_) == 2:  # -s and s, as skl2onnx has it for one score s
        scores = graph.op("MatMul", scores, graph.table([[1.0, -1.0], [-1.0, 1.0]]))
    put_classes(graph, scores)


def distances(graph: Graph, model: VectorQuantizer | CellEstimator) -> Value:
    """Return distances from the codevectors, shape (n, K)."""
    if isinstance(model, VectorQuantizer):
        diagram = Diagram.nearest(model.cluster_centers_, SquaredEuclidean())
    elif model._divergence.kernel == QUADRATIC:
        diagram = Diagram.nearest(model._embedded_codevectors(), model._divergence)
    else:
        raise ValueError(
            f"divergence is {model.divergence!r}: with transform=True it must be squared Euclidean "
            "or Mahalanobis"
        )
    squares = graph.squares(diagram)
    if graph.missing is not None:
        squares = graph.op("Div", squares, graph.observed())
    return graph.op("Sqrt", squares)


def codebook_clusterer(graph: Graph, model: ODAClusterer) -> None:
    """Output the index of the nearest codevector, and Gibbs associations."""
    diagram, temperature = Diagram.annealed(model), float(model.temperature_)
    scores = graph.scores(diagram)
    graph.put(graph.argmin(scores), 0)
    if temperature > 0.0:
        logits = graph.op("Mul", scores, graph.table(-diagram.unit / temperature))
        weighted = graph.op("Add", logits, graph.table(log_weights(model.weights_)))
        graph.put(graph.softmax(weighted), 1)
    else:
        indices = np.arange(len(model.weights_), dtype=np.int64)
        nearest = graph.op("ArgMin", scores, axis=1, keepdims=1)
        graph.put(graph.number(graph.op("Equal", nearest, indices)), 1)


def codebook_classifier(graph: Graph, model: ODAClassifier) -> None:
    """Output the most probable class, and probabilities."""
    diagram, labels = Diagram.annealed(model), model._codebook.labels
    factor = graph.table(-diagram.unit / model.prediction_temperature_)
    logits = graph.op("Mul", graph.scores(diagram), factor)
    order = np.argsort(np.array(model._columns()))
    if model.prediction == "density":
        weighted = graph.op("Add", logits, graph.table(log_weights(model.weights_)))
        shares, owners = graph.softmax(weighted), labels
    else:
        if graph.missing is not None:
            logits = graph.op("Div", logits, graph.observed())
        by_class = graph.op("Gather", logits, _members(labels), axis=1)
        shares = graph.softmax(graph.max(by_class, axis=2, keepdims=0))
        owners = np.arange(labels[-1] + 1)
    member = (owners[:, None] == order).astype(graph.dtype)
    put_classes(graph, graph.op("MatMul", shares, member))


def regressor(graph: Graph, model: ODARegressor | trees.ODATreeRegressor) -> None:
    """Output the predictions of the cells' local models, written about one centre, shape (n, q)."""
    if isinstance(model, ODARegressor):
        diagram = Diagram.annealed(model)
        cell, centre = graph.nearest(diagram), diagram.rounded(graph.dtype).centre
    else:
        cell, centre = leaf_of(graph, model), model._models.centres.mean(axis=0).astype(graph.dtype)
    gaps = centre.astype(np.float64) - model._models.centres
    values = model._models.values + (model._models.slopes * gaps[:, None]).sum(axis=2)
    slopes = graph.rows(graph.table(model._models.slopes), cell)
    steps = graph.op("Sub", graph.x, centre)
    if graph.missing is not None:
        means = graph.rows(graph.table(-gaps), cell)
        steps = graph.op("Where", graph.op("IsNaN", steps), means, steps)
    products = _products(graph, slopes, steps)
    graph.put(graph.op("Add", products, graph.rows(graph.table(values), cell)))


def put_classes(graph: Graph, probabilities: Value) -> None:
    """Output the most probable class, and probabilities."""
    graph.put_labels(graph.classes(), graph.argmax(probabilities))
    graph.put(probabilities, 1)


def _members(labels: IntArray) -> IntArray:
    """Return the codevectors of each class, from 0 on; rows repeat their last."""
    members = [np.flatnonzero(labels == label) for label in range(int(labels.max()) + 1)]
    size = max(map(len, members))
    return np.array([np.pad(row, (0, size - len(row)), mode="edge") for row in members])


def density_classifier(graph: Graph, model: DensityClassifier) -> None:
    """Output the most probable class, and probabilities."""
    columns = [log_density(graph, density) for density in model.densities_]
    logs = graph.op("Concat", *columns, axis=1)
    scaled = graph.op("Mul", logs, graph.table(1.0 / model.temperature_))
    priors = graph.table(np.log(model.class_prior_))
    put_classes(graph, graph.softmax(graph.op("Add", scaled, priors)))


def outliers(graph: Graph, model: DensityOutlierDetector) -> None:
    """Output -1 for outliers and 1 for others, and log-density minus offset, shape (n, 1)."""
    scores = graph.op("Sub", log_density(graph, model.density_), graph.table(model.offset_))
    unusual = graph.op("SqueezeApi11", graph.op("Less", scores, graph.table(0.0)), axes=[1])
    graph.put(graph.op("Where", unusual, *np.array([[-1], [1]], dtype=np.int64)), 0)
    graph.put(scores, 1)


def log_density(graph: Graph, density: Any) -> Value:
    """Return the log-density, shape (n, 1); very small where the density is 0."""
    min_log = graph.table(MIN_LOG[graph.dtype])
    if isinstance(density, StreamingMixture):
        return _total(graph, mixture_logs(graph, density))
    if isinstance(density, ExemplarMixture):
        logs = exemplar_logs(graph, density, exemplar_squares(graph, density))
        d = density.exemplars_.shape[1]
        volume = density._kernel.log_volume(d) + d * math.log(density.bandwidth_)
        shifted = graph.op("Sub", _total(graph, logs), graph.table(volume))
        return graph.op("Max", shifted, min_log)
    if isinstance(density, ODAClusterer):
        cell = graph.nearest(Diagram.annealed(density))
    elif isinstance(density, trees.ODATreeClusterer):
        cell = leaf_of(graph, density)
    else:
        raise ValueError(
            f"a density is of {type(density).__name__}: to be exported it must be a mixture, "
            "exemplars, an ODAClusterer or an ODATreeClusterer of this package"
        )
    if is_wide(density._low, density._high) and isinstance(density, ODAClusterer):
        return _normal_log_density(graph, density)
    volumes = log_cell_volumes(density.predict, len(density.weights_), density._low, density._high)
    with np.errstate(divide="ignore"):
        values = np.maximum(np.log(density.weights_) - volumes, MIN_LOG[graph.dtype])
    inside = graph.rows(graph.table(values[:, None]), cell)
    corners = with_rim(density._low, density._high)
    low, high = (corner.astype(graph.dtype) for corner in corners)
    below, above = graph.op("Sub", low, graph.x), graph.op("Sub", graph.x, high)
    outside = graph.op("Less", graph.table(0.0), graph.max(graph.op("Max", below, above)))
    return graph.op("Where", outside, min_log, inside)


def _normal_log_density(graph: Graph, model: ODAClusterer) -> Value:
    """Return the log-density of normal distributions at the codevectors, shape (n, 1)."""
    divergence, d = model._annealer.divergence, model.n_features_in_
    if divergence.kernel != QUADRATIC:
        raise ValueError(
            f"more than 12 features vary: the density of {divergence!r} needs at most 12"
        )
    variance = model._distortion() / d
    logs = log_weights(model.weights_) - 0.5 * d * math.log(2.0 * math.pi * variance)
    logs += np.linalg.slogdet(divergence.embed(np.eye(d)))[1]
    squares = graph.squares(Diagram.annealed(model))
    halves = graph.op("Mul", squares, graph.table(-0.5 / variance))
    return _total(graph, graph.op("Add", halves, graph.table(logs)))


def _total(graph: Graph, logs: Value) -> Value:
    """Return the log-sum-exp of each row, shape (n, 1)."""
    maximum = graph.max(logs)
    relative = graph.op("Exp", graph.op("Sub", logs, maximum))
    return graph.op("Add", graph.op("Log", graph.sum(relative)), maximum)


_MAX_DISTANCE = {np.float32: 1e15, np.float64: 1e150}  # in units, so that squares are finite
MIN_LOG = {np.float32: -1e38, np.float64: -1e300}  # stands for log 0: differences stay finite


def mixture(graph: Graph, model: StreamingMixture) -> None:
    """Output the most probable component, and responsibilities."""
    logs = mixture_logs(graph, model)
    graph.put(graph.argmax(logs), 0)
    graph.put(graph.softmax(logs), 1)


def mixture_logs(graph: Graph, model: StreamingMixture) -> Value:
    """Return the logarithms of weighted densities, shape (n, K)."""
    means = model._places()
    values, axes = learning.covariance_parts(model._delivered)
    if axes is not None and model._incomplete:
        raise ValueError(
            f"{type(model).__name__} has learned full covariances from missing values, which a "
            "graph cannot integrate out: fit it with covariance_type='diag', or impute them"
        )
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
    logs = graph.op("Add", halves, graph.table(constants - np.log(model._units).sum()))
    if graph.missing is None or axes is not None:
        return logs
    parts = np.log(roots) - 0.5 * math.log(2.0 * math.pi) - np.log(model._units)  # of each feature
    return graph.op("Sub", logs, graph.op("MatMul", graph.missing, graph.table(parts.T)))


def exemplars(graph: Graph, model: ExemplarMixture) -> None:
    """Output the exemplar of greatest response, and the share of each in the response."""
    squares = exemplar_squares(graph, model)
    logs = exemplar_logs(graph, model, squares)
    if model._kernel.name != "gaussian":
        logs = _nearest_if_silent(graph, logs, squares)
    graph.put(graph.argmax(logs), 0)
    graph.put(graph.softmax(logs), 1)


def exemplar_squares(graph: Graph, model: ExemplarMixture) -> Value:
    """Return squared distances in bandwidths, shape (n, K)."""
    units = np.full(model.exemplars_.shape[1], model.bandwidth_)
    return _squares(graph, _gaps(graph, model.exemplars_, units))


def exemplar_logs(graph: Graph, model: ExemplarMixture, squares: Value) -> Value:
    """Return logarithms of weighted responses, (n, K); very small where the response is 0."""
    kernel, weights = model._kernel.name, graph.table(np.log(model.weights_))
    min_log = graph.table(MIN_LOG[graph.dtype])
    if kernel == "gaussian":
        return graph.op("Add", graph.op("Mul", squares, graph.table(-0.5)), weights)
    if kernel == "disc":
        inside = graph.op("LessOrEqual", squares, graph.table(1.0 + TOUCHING))
        return graph.op("Where", inside, weights, min_log)
    if kernel != "epanechnikov":
        raise ValueError("kernel is one of your own: only those with a name are converted")
    inside = graph.op("Less", squares, graph.table(1.0))
    response = graph.op("Sub", graph.table(1.0), squares)
    tiny = graph.table(np.finfo(graph.dtype).tiny)
    logs = graph.op("Add", graph.op("Log", graph.op("Max", response, tiny)), weights)
    return graph.op("Where", inside, logs, min_log)


def _nearest_if_silent(graph: Graph, logs: Value, squares: Value) -> Value:
    """Let only the nearest exemplar respond where none does."""
    opposite = graph.op("Neg", squares)
    farther = graph.op("Less", opposite, graph.max(opposite))
    alone = graph.op("Where", farther, graph.table(MIN_LOG[graph.dtype]), graph.table(0.0))
    silent = graph.op("Less", graph.max(logs), graph.table(0.5 * MIN_LOG[graph.dtype]))
    return graph.op("Where", silent, alone, logs)


def _gaps(graph: Graph, places: FloatArray, units: FloatArray) -> Value:
    """Return x − places in units, (K, n, d): more accurate in float32 than expanded squares."""
    centre = graph.table(places.mean(axis=0))
    scaled = graph.op("Div", graph.op("Sub", graph.x, centre), graph.table(units))
    farthest = _MAX_DISTANCE[graph.dtype]
    near = graph.op("Clip", scaled, graph.table(-farthest), graph.table(farthest))
    shifted = (places - centre.astype(np.float64)) / units
    gaps = graph.op("Sub", near, graph.table(shifted[:, None, :]))
    if graph.missing is None:
        return gaps
    return graph.op("Where", graph.op("IsNaN", graph.x), graph.table(0.0), gaps)


def _squares(graph: Graph, gaps: Value) -> Value:
    """Return squared lengths, shape (n, K), of vectors, shape (K, n, d)."""
    lengths = graph.op("ReduceSumSquareApi18", gaps, axes=[2], keepdims=0)
    return graph.op("Transpose", lengths, perm=[1, 0])


class _Depth(NamedTuple):
    """The M nodes of a tree at one depth, and the leaves above it, with at most B children."""

    features: IntArray  # of the input that this level uses, shape (width,)
    centres: Any  # shape (M, width)
    offsets: Any  # shape (M, B); infinite where there is no child
    slopes: Any  # shape (M, B, width)
    first: IntArray  # index of the first child among the nodes of the next depth, shape (M,)
    parts: Any  # of the features in the offsets, where values may be missing, shape (M, B, width)
    heaviest: Any  # 1 for the child that a sample without these features goes to, shape (M, B)


def tree_classifier(graph: Graph, model: trees.ODATreeClassifier) -> None:
    """Output the most probable class in the leaf, and probabilities."""
    place, nodes = _descend(graph, model)
    shares = model._tree.table.shares[nodes][:, model._order()]
    put_classes(graph, graph.rows(graph.table(shares), place))


def leaf_of(graph: Graph, model: trees.BaseODATree) -> Value:
    """Return the number of each point's leaf, shape (n,)."""
    place, nodes = _descend(graph, model)
    return graph.rows(model._tree.table.leaf_numbers[nodes].astype(np.int64), place)


def _descend(graph: Graph, model: trees.BaseODATree) -> tuple[Value, IntArray]:
    """Return each point's place below the last depth, shape (n,), and the node at each place."""
    depths, nodes = _depths(graph, model)
    place = graph.argmin(graph.sum(graph.x))  # 0: all points are at the root
    for level in depths:
        features = level.features.astype(np.int64)
        x = graph.op("Gather", graph.x, features, axis=1)
        tables = (level.centres, level.offsets, level.slopes, level.first)
        centres, offsets, slopes, first = (graph.rows(table, place) for table in tables)
        steps = _known(graph, graph.op("Sub", x, centres))
        scores = graph.op("Add", _products(graph, slopes, steps), offsets)
        if graph.missing is not None:
            missing = graph.op("Gather", graph.missing, features, axis=1)
            excess = _products(graph, graph.rows(level.parts, place), missing)
            one = graph.table(1.0)
            none = graph.op("Sub", one, graph.max(graph.op("Sub", one, missing)))
            heaviest = graph.op("Mul", none, graph.rows(level.heaviest, place))
            scores = graph.op("Sub", graph.op("Sub", scores, excess), heaviest)
        place = graph.op("Add", first, graph.argmin(scores))
    return place, nodes


def _known(graph: Graph, steps: Value) -> Value:
    """Replace missing steps by 0."""
    if graph.missing is None:
        return steps
    return graph.op("Where", graph.op("IsNaN", steps), graph.table(0.0), steps)


def _products(graph: Graph, tables: Value, rows: Value) -> Value:
    """Multiply tables, shape (n, B, width), and rows, shape (n, width)."""
    columns = graph.op("UnsqueezeApi11", rows, axes=[2])
    return graph.op("SqueezeApi11", graph.op("MatMul", tables, columns), axes=[2])


def _depths(graph: Graph, model: trees.BaseODATree) -> tuple[list[_Depth], IntArray]:
    """Lay out the tree depth by depth; a leaf is its own only child."""
    table = model._tree.table
    nodes, depths = [0], []
    for depth in range(max(table.depth, 1)):
        i = min(depth, len(model._resolutions) - 1)
        features = model._resolutions[i]
        if callable(features):
            raise ValueError(
                f"resolutions[{i}] is a function: to be exported it must be a sequence of features"
            )
        cells, first, heaviest, children = [], [], [], list[int]()
        for node in nodes:
            cells.append(_cells(table.routes, node, len(features)))
            first.append(len(children))
            begin, n = table.routes.first[node], len(cells[-1].offsets)
            heaviest.append(0 if table.is_leaf[node] else table.routes.heaviest[node] - begin)
            children += [node] if table.is_leaf[node] else list(range(begin, begin + n))
        depths.append(_stacked(graph, model, features, cells, np.array(first), heaviest))
        nodes = children
    return depths, np.array(nodes)


def _cells(routes: Routes, node: int, width: int) -> Cells:
    """Return the cells of a node; a leaf has one, which is everywhere."""
    n, begin = int(routes.sizes[node]), int(routes.starts[node])
    if n == 0:
        return Cells(np.zeros(1), np.zeros((1, width)), np.zeros(width))
    values = routes.values[begin : begin + (1 + n) * width].reshape(1 + n, width)
    first = int(routes.first[node])
    return Cells(routes.offsets[first : first + n], values[1:], values[0])


def _stacked(
    graph: Graph, model: trees.BaseODATree, features: IntArray, cells: list[Cells], first: IntArray,
    heaviest: list[int],
) -> _Depth:  # fmt: skip
    size = max(len(node.offsets) for node in cells)
    centres = np.zeros((len(cells), len(features)), dtype=graph.dtype)
    offsets = np.full((len(cells), size), np.inf, dtype=graph.dtype)
    slopes = np.zeros((len(cells), size, len(features)), dtype=graph.dtype)
    parts = np.zeros_like(slopes)
    for i, node in enumerate(cells):
        diagram, n = Diagram.of(node, model._tree.plan.divergence), len(node.offsets)
        rounded = diagram.rounded(graph.dtype)
        gaps = rounded.centre.astype(float) - diagram.centre
        parts[i, :n] = diagram.parts + diagram.slopes * gaps
        centres[i], offsets[i, :n], slopes[i, :n] = rounded.centre, rounded.offsets, rounded.slopes
    best = (np.arange(size) == np.array(heaviest)[:, None]).astype(graph.dtype)
    return _Depth(features, centres, offsets, slopes, first, parts, best)


_TAKES_SCORES = "StackingClassifier", "VotingClassifier", "OneVsOneClassifier"  # or labels
_WITH_ZIPMAP: dict[str, list[Any]] = {
    "zipmap": [True, False, "columns"],
    "output_class_labels": [False, True],
    "nocl": [True, False],
}


class _Converter(NamedTuple):
    write: Callable[[Graph, Any], None]
    outputs: tuple[str, ...]  # names; labels are strings or integers
    options: dict[str, list[Any]] | None = None
    """skl2onnx parses those of classifiers itself. With ``score_samples`` the log-density is the
    last output; with ``transform`` distances are the only one, for the next step of a pipeline."""


_SCORED: dict[str, list[Any]] = {"score_samples": [False, True]}
_DISTANT: dict[str, list[Any]] = {"transform": [False, True]}
_BOTH = {**_SCORED, **_DISTANT}
_LABEL, _SHARES = ("label",), ("label", "probabilities")
_CONVERTERS: dict[type, _Converter] = {
    BatchDeterministicAnnealing: _Converter(quantizer, _LABEL, _DISTANT),
    SOM: _Converter(quantizer, _LABEL, _DISTANT),
    StochasticVQ: _Converter(quantizer, _LABEL, _DISTANT),
    LVQ: _Converter(lvq, _SHARES, _WITH_ZIPMAP),
    ODAClusterer: _Converter(codebook_clusterer, _SHARES, _BOTH),
    ODAClassifier: _Converter(codebook_classifier, _SHARES, _WITH_ZIPMAP),
    DistributedODAClusterer: _Converter(codebook_clusterer, _SHARES, _BOTH),
    DistributedODAClassifier: _Converter(codebook_classifier, _SHARES, _WITH_ZIPMAP),
    ODARegressor: _Converter(regressor, ("variable",)),
    trees.ODATreeClusterer: _Converter(
        lambda graph, model: graph.put(leaf_of(graph, model)), _LABEL, _BOTH
    ),
    trees.ODATreeClassifier: _Converter(tree_classifier, _SHARES, _WITH_ZIPMAP),
    trees.ODATreeRegressor: _Converter(regressor, ("variable",)),
    SGDGaussianMixture: _Converter(mixture, _SHARES, _SCORED),
    StochasticEMGaussianMixture: _Converter(mixture, _SHARES, _SCORED),
    DistributedGaussianMixture: _Converter(mixture, _SHARES, _SCORED),
    ConvexClustering: _Converter(exemplars, _SHARES, _SCORED),
    INFEX: _Converter(exemplars, _SHARES, _SCORED),
    KernelVectorQuantization: _Converter(exemplars, _SHARES, _SCORED),
    DensityClassifier: _Converter(density_classifier, _SHARES, _WITH_ZIPMAP),
    DensityOutlierDetector: _Converter(outliers, ("label", "scores"), _SCORED),
}


def register() -> None:
    """Make skl2onnx convert the estimators of this package.

    Examples
    --------
    >>> from skl2onnx import to_onnx
    >>> import numpy as np
    >>> register()
    >>> model = ODAClusterer(2, random_state=0).fit([[0.0], [0.1], [4.0], [4.1]])
    >>> [output.name for output in to_onnx(model, np.zeros((1, 1))).graph.output]
    ['label', 'probabilities']
    >>> graph = to_onnx(model, np.zeros((1, 1)), options={ODAClusterer: {"score_samples": True}})
    >>> graph.graph.output[-1].name
    'score_samples'
    """
    for kind, converter in _CONVERTERS.items():
        update_registered_converter(
            kind,
            f"OdaRl{kind.__name__}",
            _set_shapes,
            _convert,
            parser=None if converter.options is _WITH_ZIPMAP else _declare,
            options=converter.options,
        )


def _declare(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    """Declare the outputs; skl2onnx names the last argument."""
    operator = scope.declare_local_operator(get_model_alias(type(model)), model)
    operator.inputs = inputs
    for name in _outputs(scope, model):
        number = Int64TensorType() if name == "label" else guess_tensor_type(inputs[0].type)
        operator.outputs.append(scope.declare_local_variable(name, number))
    return operator.outputs


def _outputs(scope: Any, model: Any) -> tuple[str, ...]:
    converter = _CONVERTERS[type(model)]
    if converter.options in (None, _WITH_ZIPMAP):
        return converter.outputs
    chosen = scope.get_options(model, {})
    if chosen.get("transform"):
        return ("distances",)
    density = ("score_samples",) if chosen.get("score_samples") else ()
    return (*converter.outputs, *density)


def _set_shapes(operator: Any) -> None:
    model, inputs = operator.raw_operator, operator.inputs
    name = type(model).__name__
    if len(inputs) != 1:
        raise ValueError(
            f"{name} has {len(inputs)} inputs: it must have one, of {model.n_features_in_} columns"
        )
    columns = inputs[0].type.shape[1] if len(inputs[0].type.shape) > 1 else None
    if columns not in (None, model.n_features_in_):
        raise ValueError(
            f"the input of {name} has {columns} columns: it must have {model.n_features_in_}"
        )
    if _outputs(operator.scope_inst, model) != ("distances",) and not _is_last(operator):
        raise ValueError(
            f"{name} comes before another step, which takes its distances: clusterers give them "
            f"with options={{{name}: {{'transform': True}}}}, others must be the last step"
        )
    if isinstance(model, LVQ):
        _refuse_ensembles(operator)
    n = inputs[0].get_first_dimension()
    width = len(getattr(model, "classes_", getattr(model, "weights_", ())))
    for output, role in zip(operator.outputs, _outputs(operator.scope_inst, model), strict=True):
        if role != "label":
            wide = {"probabilities": width, "distances": len(getattr(model, "codevectors_", ()))}
            if role == "variable":
                wide[role] = model._models.values.shape[1]
            output.type.shape = [n, wide.get(role, 1)]
        elif hasattr(model, "classes_") and is_text(get_label_classes(operator.scope_inst, model)):
            output.set_type(StringTensorType([n]))
        else:
            output.set_type(Int64TensorType([n]))


def _refuse_ensembles(operator: Any) -> None:
    """Raise ValueError if an ensemble takes the scores of this operator for probabilities."""
    for other in operator.scope_inst.operators.values():
        ensemble, name = other.raw_operator, type(other.raw_operator).__name__
        members = getattr(ensemble, "estimators_", ())
        lasts = [getattr(member, "steps", [("", member)])[-1][1] for member in members]
        if any(last is operator.raw_operator for last in lasts) and name not in _TAKES_SCORES:
            raise ValueError(
                f"LVQ in a {name} cannot be exported, as it has no probabilities: put it into a "
                "CalibratedClassifierCV before"
            )


def _is_last(operator: Any) -> bool:
    """Whether no other operator takes the outputs, except to name the classes."""
    names = {output.onnx_name for output in operator.outputs}
    for other in operator.scope_inst.operators.values():
        if not names.isdisjoint(variable.onnx_name for variable in other.inputs):
            return other.type.startswith("SklearnZipMap") and _is_last(other)
    return True


def _convert(scope: Any, operator: Any, container: Any) -> None:
    model = operator.raw_operator
    graph = Graph(scope, operator, container)
    outputs = _outputs(scope, model)
    if outputs == ("distances",):
        graph.put(distances(graph, model))
        return
    _CONVERTERS[type(model)].write(graph, model)
    if outputs[-1] == "score_samples":
        density = model.density_ if isinstance(model, DensityOutlierDetector) else model
        graph.put(log_density(graph, density), len(outputs) - 1)
