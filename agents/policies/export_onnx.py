"""Policies as ONNX models."""

from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl.agents.policies.export_tables import Export, FloatTables, Tables

_OPSET = 17
_IR_VERSION = 8  # of that opset's time, so that older runtimes take the model, too


def onnx_model(export: Export) -> bytes:
    """Return an ONNX model: input ``obs``, float32 (batch, d); output ``action``, int64 (batch,).

    Where actions are continuous the output is float32 (batch, p).

    Raises
    ------
    ImportError
        If onnx is not installed.

    Examples
    --------
    >>> from oda_rl.agents import TwoTimescaleAgent
    >>> from oda_rl.agents.policies.export_tables import export_of
    >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000)
    >>> len(onnx_model(export_of(agent))) < 2_000
    True
    """
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise ImportError(
            "format is 'onnx', which needs the package onnx: pip install 'oda-rl[onnx]'"
        ) from error
    found, box = export.tables(), export.box
    kind, shape = (TensorProto.INT64, []) if box is None else (TensorProto.FLOAT, [len(box.low)])
    nodes, arrays = _graph(export, found.in_floats(), _numbers(found))
    d = len(export.cells.origin)
    graph = helper.make_graph(
        [helper.make_node(kind, *ends, **settings) for kind, ends, settings in nodes],
        "policy",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["batch", d])],
        [helper.make_tensor_value_info("action", kind, ["batch", *shape])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="oda_rl",
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        doc_string=f"A policy that oda_rl has learned for {export.env_id or 'an environment'}.",
    )
    names = {"observation": export.names, "actions": export.action_names}
    helper.set_model_props(model, {key: ", ".join(value) for key, value in names.items()})
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _numbers(found: Tables) -> npt.NDArray[np.int64]:
    """Return the action of each cell where the nearest decides."""
    return np.arange(len(found.scores)) if found.actions is None else found.actions


_Node = tuple[str, tuple[list[str], list[str]], dict[str, Any]]


def _graph(export: Export, tables: FloatTables, actions: Any) -> tuple[list[_Node], dict[str, Any]]:
    """Return nodes (operator, inputs and outputs, settings) and constant arrays."""
    arrays = {
        "offsets": tables.scores[:, 0],
        "slopes": np.ascontiguousarray(tables.scores[:, 1:].T),
    }
    nodes: list[_Node] = []
    if tables.origin is not None:
        arrays["origin"] = tables.origin
        nodes.append(("Sub", (["obs", "origin"], ["point"]), {}))
    point = "obs" if tables.origin is None else "point"
    nodes += [
        ("MatMul", ([point, "slopes"], ["sums"]), {}),
        ("Add", (["sums", "offsets"], ["scores"]), {}),
    ]
    if tables.advantages is None:
        nodes.append(("ArgMin", (["scores"], ["cell"]), {"axis": 1, "keepdims": 0}))
        if tables.affine is None:
            arrays["actions"] = actions
            nodes.append(("Gather", (["actions", "cell"], ["index"]), {}))
    else:
        own = np.pad(tables.advantages, ((0, 0), (1, 0)))  # and of action 0 over itself
        arrays["advantages"] = own
        arrays["count"] = np.array([min(3, len(own))], dtype=np.int64)
        arrays["zero"], arrays["one"], arrays["two"] = np.array([[0], [1], [2]], dtype=np.int64)
        nodes += _blending()
    if export.box is None:
        arrays["first"] = np.array(export.first_action, dtype=np.int64)
        return [*nodes, ("Add", (["index", "first"], ["action"]), {})], arrays
    arrays["low"], arrays["high"] = export.box.bounds.astype(np.float32)
    if tables.affine is not None:
        arrays["two"] = np.array([2], dtype=np.int64)
        arrays["action_offsets"] = np.ascontiguousarray(tables.affine[:, :, 0])
        arrays["action_slopes"] = np.ascontiguousarray(tables.affine[:, :, 1:])
        return [*nodes, *_affine(point), *_CLIPPING], arrays
    assert tables.parts is not None
    arrays["codevectors"] = tables.parts
    return [*nodes, *_performing(), *_CLIPPING], arrays


def _blending() -> list[_Node]:
    """Return the nodes from scores to the action."""
    return [
        ("TopK", (["scores", "count"], ["near_scores", "near"]), {"axis": 1, "largest": 0}),
        ("Slice", (["near_scores", "zero", "one", "one"], ["least"]), {}),
        ("Sub", (["least", "near_scores"], ["exponents"]), {}),
        ("Exp", (["exponents"], ["weights"]), {}),
        ("Unsqueeze", (["weights", "two"], ["columns"]), {}),
        ("Gather", (["advantages", "near"], ["near_advantages"]), {}),
        ("Mul", (["near_advantages", "columns"], ["parts"]), {}),
        ("ReduceSum", (["parts", "one"], ["advantage"]), {"keepdims": 0}),
        ("ArgMax", (["advantage"], ["index"]), {"axis": 1, "keepdims": 0}),
    ]


def _performing() -> list[_Node]:
    """Return the nodes from the number of an action codevector to the action."""
    return [
        ("Gather", (["codevectors", "near"], ["near_parts"]), {}),
        ("Transpose", (["near_parts"], ["by_number"]), {"perm": [0, 2, 1, 3]}),
        ("Unsqueeze", (["index", "one"], ["number"]), {}),
        ("GatherND", (["by_number", "number"], ["chosen"]), {"batch_dims": 1}),
        ("Mul", (["chosen", "columns"], ["weighted"]), {}),
        ("ReduceSum", (["weighted", "one"], ["sum"]), {"keepdims": 0}),
        ("ReduceSum", (["weights", "one"], ["total"]), {}),
        ("Div", (["sum", "total"], ["inner"]), {}),
    ]


def _affine(point: str) -> list[_Node]:
    """Return the nodes from the cell to its action at a point."""
    return [
        ("Gather", (["action_slopes", "cell"], ["own_slopes"]), {}),
        ("Gather", (["action_offsets", "cell"], ["own_offsets"]), {}),
        ("Unsqueeze", ([point, "two"], ["column"]), {}),
        ("MatMul", (["own_slopes", "column"], ["products"]), {}),
        ("Squeeze", (["products", "two"], ["changes"]), {}),
        ("Add", (["changes", "own_offsets"], ["inner"]), {}),
    ]


_CLIPPING: list[_Node] = [
    ("Max", (["inner", "low"], ["above"]), {}),
    ("Min", (["above", "high"], ["action"]), {}),
]
