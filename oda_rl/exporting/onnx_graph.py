"""The graph of an estimator in ONNX: nodes, tables of numbers, and what comes out."""

from typing import Any

import numpy as np
import numpy.typing as npt
from skl2onnx.algebra import onnx_ops
from skl2onnx.common.data_types import guess_numpy_type
from skl2onnx.common.utils_classifier import get_label_classes
from skl2onnx.proto import onnx_proto

from oda_rl.exporting.diagrams import Diagram, fitting
from oda_rl.exporting.labels import is_text, whole_numbers

_LEAST_OPSET = 13  # before, the axes of sums were no inputs
Value = Any
"""What a node returns, or an array."""


class Graph:
    """The graph of one operator of skl2onnx; numbers have the precision of its input.

    Parameters
    ----------
    scope, operator, container
        As skl2onnx gives them to a converter.

    Raises
    ------
    ValueError
        If the opset is older than 13.
    """

    def __init__(self, scope: Any, operator: Any, container: Any) -> None:
        self._scope, self._operator, self._container = scope, operator, container
        self.opset = container.target_opset
        if self.opset < _LEAST_OPSET:
            raise ValueError(f"target_opset is {self.opset}: it must be at least {_LEAST_OPSET}")
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
