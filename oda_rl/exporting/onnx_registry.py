"""Which converter is whose: what makes skl2onnx know the estimators of this package."""

from collections.abc import Callable
from typing import Any, NamedTuple

from skl2onnx import get_model_alias, update_registered_converter
from skl2onnx.common.data_types import (
    Int64TensorType,
    StringTensorType,
    guess_tensor_type,
)
from skl2onnx.common.utils_classifier import get_label_classes

from oda_rl.annealing.classifier import ODAClassifier
from oda_rl.annealing.clusterer import ODAClusterer
from oda_rl.annealing.regressor import ODARegressor
from oda_rl.densities import DensityClassifier, DensityOutlierDetector
from oda_rl.distributed.classifier import DistributedODAClassifier
from oda_rl.distributed.clusterer import DistributedODAClusterer
from oda_rl.distributed.mixture import DistributedGaussianMixture
from oda_rl.exemplars.candidates import ConvexClustering, KernelVectorQuantization
from oda_rl.exemplars.infex import INFEX
from oda_rl.exporting import (
    onnx_codebooks,
    onnx_densities,
    onnx_mixtures,
    onnx_trees,
)
from oda_rl.exporting.labels import is_text
from oda_rl.exporting.onnx_graph import Graph
from oda_rl.mixtures.sgd import SGDGaussianMixture
from oda_rl.mixtures.stochastic_em import StochasticEMGaussianMixture
from oda_rl.quantization.batch_annealing import BatchDeterministicAnnealing
from oda_rl.quantization.estimators import LVQ, StochasticVQ
from oda_rl.quantization.som import SOM
from oda_rl.trees.classifier import ODATreeClassifier
from oda_rl.trees.clusterer import ODATreeClusterer
from oda_rl.trees.regressor import ODATreeRegressor

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
    BatchDeterministicAnnealing: _Converter(onnx_codebooks.quantizer, _LABEL),
    SOM: _Converter(onnx_codebooks.quantizer, _LABEL),
    StochasticVQ: _Converter(onnx_codebooks.quantizer, _LABEL),
    LVQ: _Converter(onnx_codebooks.lvq, _LABEL),
    ODAClusterer: _Converter(onnx_codebooks.clusterer, _SHARES),
    ODAClassifier: _Converter(onnx_codebooks.classifier, _SHARES, _WITH_ZIPMAP),
    DistributedODAClusterer: _Converter(onnx_codebooks.clusterer, _SHARES),
    DistributedODAClassifier: _Converter(onnx_codebooks.classifier, _SHARES, _WITH_ZIPMAP),
    ODARegressor: _Converter(onnx_codebooks.regressor, ("variable",)),
    ODATreeClusterer: _Converter(onnx_trees.clusterer, _LABEL),
    ODATreeClassifier: _Converter(onnx_trees.classifier, _SHARES, _WITH_ZIPMAP),
    ODATreeRegressor: _Converter(onnx_trees.regressor, ("variable",)),
    SGDGaussianMixture: _Converter(onnx_mixtures.mixture, _SHARES),
    StochasticEMGaussianMixture: _Converter(onnx_mixtures.mixture, _SHARES),
    DistributedGaussianMixture: _Converter(onnx_mixtures.mixture, _SHARES),
    ConvexClustering: _Converter(onnx_mixtures.exemplars, _SHARES),
    INFEX: _Converter(onnx_mixtures.exemplars, _SHARES),
    KernelVectorQuantization: _Converter(onnx_mixtures.exemplars, _SHARES),
    DensityClassifier: _Converter(onnx_densities.classifier, _SHARES, _WITH_ZIPMAP),
    DensityOutlierDetector: _Converter(onnx_densities.outliers, ("label", "scores")),
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
