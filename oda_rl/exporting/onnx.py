"""Estimators as ONNX graphs: converters for skl2onnx."""

import math
from collections.abc import Callable
from dataclasses import dataclass
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

from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing.base import BaseODA, log_cell_volumes
from oda_rl.annealing.classifier import ODAClassifier
from oda_rl.annealing.clusterer import ODAClusterer
from oda_rl.annealing.regressor import ODARegressor
from oda_rl.densities import DensityClassifier, DensityOutlierDetector
from oda_rl.distributed.classifier import DistributedODAClassifier
from oda_rl.distributed.clusterer import DistributedODAClusterer
from oda_rl.distributed.mixture import DistributedGaussianMixture
from oda_rl.divergences import SquaredEuclidean
from oda_rl.exemplars.base import ExemplarMixture
from oda_rl.exemplars.candidates import ConvexClustering, KernelVectorQuantization
from oda_rl.exemplars.infex import INFEX
from oda_rl.exemplars.pricing import TOUCHING
from oda_rl.exporting.diagrams import Diagram, fitting, is_text, whole_numbers
from oda_rl.mixtures import learning
from oda_rl.mixtures.base import StreamingMixture
from oda_rl.mixtures.sgd import SGDGaussianMixture
from oda_rl.mixtures.stochastic_em import StochasticEMGaussianMixture
from oda_rl.quantization.batch_annealing import BatchDeterministicAnnealing
from oda_rl.quantization.som import SOM
from oda_rl.quantization.vq import LVQ, StochasticVQ, VectorQuantizer
from oda_rl.trees.base import BaseODATree
from oda_rl.trees.classifier import ODATreeClassifier
from oda_rl.trees.clusterer import ODATreeClusterer
from oda_rl.trees.nodes import Cells, Routes
from oda_rl.trees.regressor import ODATreeRegressor

_MIN_OPSET = 13  # before, the axes of sums were no inputs
Value = Any
"""What a node returns, or an array."""


class Graph:
    """The graph of one operator of skl2onnx; numbers have the precision of its input.

    Parameters are what skl2onnx gives to a converter.
    """

    def __init__(self, scope: Any, operator: Any, container: Any) -> None:
        self._scope, self._operator, self._container = scope, operator, container
        self.opset = container.target_opset
        if self.opset < _MIN_OPSET:
            raise ValueError(f"target_opset is {self.opset}: it must be at least {_MIN_OPSET}")
        given = guess_numpy_type(operator.inputs[0].type)
        self.dtype = np.float64 if given == np.float64 else np.float32
        self.x: Value = operator.inputs[0]
        if given not in (np.float32, np.float64):
            self.x = self.number(self.x)

    def op(self, kind: str, *inputs: Value, **settings: Any) -> Value:
        """Return what a node makes of its inputs."""
        return getattr(onnx_ops, f"Onnx{kind}")(*inputs, op_version=self.opset, **settings)

    def table(self, array: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return numbers in the precision of the graph, or raise ValueError if that is too low."""
        return fitting(array, self.dtype)

    def indices(self, array: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return whole numbers, or an axis."""
        return np.asarray(array, dtype=np.int64)

    def number(self, value: Value) -> Value:
        """Return truth values, or whole numbers, in the precision of the graph."""
        kinds = onnx_proto.TensorProto
        kind = kinds.DOUBLE if self.dtype == np.float64 else kinds.FLOAT
        return self.op("Cast", value, to=kind)

    def columns(self, value: Value, which: npt.ArrayLike) -> Value:
        """Return columns, or blocks of them, of a value of shape (n, K)."""
        return self.op("Gather", value, self.indices(which), axis=1)

    def sum(self, value: Value, axis: int, keep: bool = False) -> Value:
        """Return sums along an axis."""
        axes = self.indices([axis])
        return self.op("ReduceSumApi11", value, axes=axes, keepdims=int(keep))

    def largest(self, value: Value, axis: int, keep: bool = False) -> Value:
        """Return the greatest along an axis."""
        return self.op("ReduceMaxApi18", value, axes=[axis], keepdims=int(keep))

    def where_least(self, value: Value) -> Value:
        """Return the column of each row's least value, the first of equals, shape (n,)."""
        return self.op("ArgMin", value, axis=1, keepdims=0)

    def where_largest(self, value: Value) -> Value:
        """Return the column of each row's greatest value, the first of equals, shape (n,)."""
        return self.op("ArgMax", value, axis=1, keepdims=0)

    def scores(self, diagram: Diagram) -> Value:
        """Return scores of codevectors, in units, shape (n, K)."""
        rounded = diagram.rounded(self.dtype)
        steps = self.op("Sub", self.x, rounded.centre)
        sums = self.op("MatMul", steps, np.ascontiguousarray(rounded.slopes.T))
        return self.op("Add", sums, rounded.offsets)

    def shares(self, logs: Value) -> Value:
        """Return exp of logarithms, divided by its sum in each row, shape (n, K)."""
        return self.op("Softmax", logs, axis=1)

    def put(self, value: Value, output: int = 0) -> None:
        """Make a value an output."""
        name = self._operator.outputs[output]
        named = self.op("Identity", value, output_names=[name])
        named.add_to(self._scope, self._container)

    def put_labels(self, labels: npt.NDArray[Any], which: Value) -> None:
        """Make labels, by their numbers, the first output."""
        if is_text(labels):
            name = self._scope.get_unique_variable_name("labels")
            coded = [str(label).encode("utf-8") for label in labels]
            kind = onnx_proto.TensorProto.STRING
            self._container.add_initializer(name, kind, [len(coded)], coded)
            # The algebra knows no tables of strings.
            index = self._scope.get_unique_variable_name("number")
            chosen = self.op("Identity", which, output_names=[index])
            chosen.add_to(self._scope, self._container)
            output = self._operator.outputs[0].full_name
            node = self._scope.get_unique_operator_name("Labels")
            self._container.add_node("Gather", [name, index], output, name=node, op_version=13)
        else:
            self.put(self.op("Gather", whole_numbers(labels), which, axis=0))

    def classes(self) -> npt.NDArray[Any]:
        """Return the labels of the classes; their numbers, if it is converted with ``nocl``."""
        return np.asarray(get_label_classes(self._scope, self._operator.raw_operator))


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


def codebook_clusterer(graph: Graph, model: ODAClusterer) -> None:
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


def codebook_classifier(graph: Graph, model: ODAClassifier) -> None:
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


def codebook_regressor(graph: Graph, model: ODARegressor) -> None:
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


_MIN_LOG = -1e4  # of a codevector that weighs nothing


def _logs(graph: Graph, weights: FloatArray) -> Any:
    with np.errstate(divide="ignore"):
        return graph.table(np.maximum(np.log(weights), _MIN_LOG))


def _padded(labels: IntArray, order: IntArray) -> IntArray:
    """Return the codevectors of each class, in an order of classes; the last fill up the rows."""
    members = [np.flatnonzero(labels == label) for label in order]
    size = max(map(len, members))
    return np.array([np.pad(own, (0, size - len(own)), mode="edge") for own in members])


def density_classifier(graph: Graph, model: DensityClassifier) -> None:
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
    """Return the log-density, shape (n, 1); very small where the density is 0."""
    least = graph.table(MIN_LOG[graph.dtype])
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
        values = np.maximum(np.log(density.weights_) - volumes, MIN_LOG[graph.dtype])
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
    farthest = graph.largest(graph.op("Max", below, above), 1, keep=True)
    return graph.op("Less", graph.table(0.0), farthest)


def _rounded_inwards(corner: FloatArray, towards: float, dtype: Any) -> npt.NDArray[Any]:
    """Round a corner so that the same points of the type lie inside as of the box itself.

    >>> _rounded_inwards(np.array([0.1]), np.inf, np.float32) >= 0.1
    array([ True])
    """
    rounded = corner.astype(dtype)
    nearer = np.nextafter(rounded, np.asarray(towards, dtype=dtype))
    outside = rounded < corner if towards > 0.0 else rounded > corner
    return np.asarray(np.where(outside, nearer, rounded))


_MAX_DISTANCE = {np.float32: 1e15, np.float64: 1e150}  # in units, so that squares are numbers
MIN_LOG = {np.float32: -1e38, np.float64: -1e300}  # for minus infinity, which has no differences


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
    least = graph.table(MIN_LOG[graph.dtype])
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
    least = graph.table(MIN_LOG[graph.dtype])
    nearest = graph.op("Less", opposite, graph.largest(opposite, 1, keep=True))
    alone = graph.op("Where", nearest, least, graph.table(0.0))
    half = graph.table(0.5 * MIN_LOG[graph.dtype])
    silent = graph.op("Less", graph.largest(logs, 1, keep=True), half)
    return graph.op("Where", silent, alone, logs)


def _gaps(graph: Graph, places: FloatArray, units: FloatArray) -> Value:
    """Return x − places, shape (K, d), in units, shape (d,): shape (K, n, d).

    Differences, not squares and products, so that single precision does.
    """
    centre = graph.table(places.mean(axis=0))
    scaled = graph.op("Div", graph.op("Sub", graph.x, centre), graph.table(units))
    farthest = _MAX_DISTANCE[graph.dtype]
    near = graph.op("Clip", scaled, graph.table(-farthest), graph.table(farthest))
    own = (places - centre.astype(np.float64)) / units
    return graph.op("Sub", near, graph.table(own[:, None, :]))


def _squares(graph: Graph, gaps: Value) -> Value:
    """Return squared lengths of vectors, shape (K, n, d): shape (n, K)."""
    lengths = graph.op("ReduceSumSquareApi18", gaps, axes=[2], keepdims=0)
    return graph.op("Transpose", lengths, perm=[1, 0])


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


def tree_clusterer(graph: Graph, model: BaseODATree) -> None:
    """Put the number of the leaf."""
    graph.put(leaf_of(graph, model))


def tree_classifier(graph: Graph, model: ODATreeClassifier) -> None:
    """Put the most probable class in the leaf, and probabilities."""
    place, nodes = _followed(graph, model)
    shares = model._tree.table.shares[nodes][:, model._order()]
    put_classes(graph, graph.op("Gather", graph.table(shares), place, axis=0))


def tree_regressor(graph: Graph, model: ODATreeRegressor) -> None:
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
    size = max(len(own.offsets) for own in cells)
    centres = np.zeros((len(cells), len(features)), dtype=graph.dtype)
    offsets = np.full((len(cells), size), np.inf, dtype=graph.dtype)
    slopes = np.zeros((len(cells), size, len(features)), dtype=graph.dtype)
    for i, own in enumerate(cells):
        rounded = Diagram.of(own, model._tree.plan.divergence).rounded(graph.dtype)
        n = len(own.offsets)
        centres[i], offsets[i, :n], slopes[i, :n] = rounded.centre, rounded.offsets, rounded.slopes
    return _Depth(features, centres, offsets, slopes, first)


_WITH_ZIPMAP: dict[str, list[Any]] = {
    "zipmap": [True, False, "columns"],
    "output_class_labels": [False, True],
    "nocl": [True, False],
}


class _Converter(NamedTuple):
    write: Callable[[Graph, Any], None]
    outputs: tuple[str, ...]
    """Their names: numbers are of the input's precision, a label is a text or a whole number."""
    options: dict[str, list[Any]] | None = None
    """Of classifiers with probabilities, as skl2onnx's own have them: it parses these itself."""


_LABEL, _SHARES = ("label",), ("label", "probabilities")
_CONVERTERS: dict[type, _Converter] = {
    BatchDeterministicAnnealing: _Converter(quantizer, _LABEL),
    SOM: _Converter(quantizer, _LABEL),
    StochasticVQ: _Converter(quantizer, _LABEL),
    LVQ: _Converter(lvq, _LABEL),
    ODAClusterer: _Converter(codebook_clusterer, _SHARES),
    ODAClassifier: _Converter(codebook_classifier, _SHARES, _WITH_ZIPMAP),
    DistributedODAClusterer: _Converter(codebook_clusterer, _SHARES),
    DistributedODAClassifier: _Converter(codebook_classifier, _SHARES, _WITH_ZIPMAP),
    ODARegressor: _Converter(codebook_regressor, ("variable",)),
    ODATreeClusterer: _Converter(tree_clusterer, _LABEL),
    ODATreeClassifier: _Converter(tree_classifier, _SHARES, _WITH_ZIPMAP),
    ODATreeRegressor: _Converter(tree_regressor, ("variable",)),
    SGDGaussianMixture: _Converter(mixture, _SHARES),
    StochasticEMGaussianMixture: _Converter(mixture, _SHARES),
    DistributedGaussianMixture: _Converter(mixture, _SHARES),
    ConvexClustering: _Converter(exemplars, _SHARES),
    INFEX: _Converter(exemplars, _SHARES),
    KernelVectorQuantization: _Converter(exemplars, _SHARES),
    DensityClassifier: _Converter(density_classifier, _SHARES, _WITH_ZIPMAP),
    DensityOutlierDetector: _Converter(outliers, ("label", "scores")),
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
    """
    for kind, converter in _CONVERTERS.items():
        update_registered_converter(
            kind,
            f"OdaRl{kind.__name__}",
            _set_shapes,
            _convert,
            parser=None if converter.options else _declare,
            options=converter.options,
        )


def _declare(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    """Say what comes out; the name of the last argument is skl2onnx's."""
    operator = scope.declare_local_operator(get_model_alias(type(model)), model)
    operator.inputs = inputs
    for name in _CONVERTERS[type(model)].outputs:
        number = Int64TensorType() if name == "label" else guess_tensor_type(inputs[0].type)
        operator.outputs.append(scope.declare_local_variable(name, number))
    return operator.outputs


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
    n = inputs[0].get_first_dimension()
    for output, called in zip(operator.outputs, _CONVERTERS[type(model)].outputs, strict=True):
        if called != "label":
            output.type.shape = [n, _width(model) if called == "probabilities" else 1]
        elif hasattr(model, "classes_") and is_text(_labels(operator)):
            output.set_type(StringTensorType([n]))
        else:
            output.set_type(Int64TensorType([n]))


def _labels(operator: Any) -> Any:
    model = operator.raw_operator
    with_options = _CONVERTERS[type(model)].options is not None
    return get_label_classes(operator.scope_inst, model) if with_options else model.classes_


def _width(model: Any) -> int:
    """Return how many probabilities there are."""
    return len(model.classes_ if hasattr(model, "classes_") else model.weights_)


def _convert(scope: Any, operator: Any, container: Any) -> None:
    model = operator.raw_operator
    _CONVERTERS[type(model)].write(Graph(scope, operator, container), model)
