"""Policies as ONNX models."""

from typing import Any

import numpy as np

from oda_rl.agents.policies.export_tables import FloatTables, Policy

_OPSET = 17
_IR_VERSION = 8  # of that opset's time, so that older runtimes take the model, too


def onnx_model(policy: Policy) -> bytes:
    """Return an ONNX model: input ``obs``, float32 (batch, d); output ``action``, int64 (batch,).

    Raises
    ------
    ImportError
        If onnx is not installed.

    Examples
    --------
    >>> from oda_rl.agents import TwoTimescaleAgent
    >>> from oda_rl.agents.policies.export_tables import policy_of
    >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000)
    >>> len(onnx_model(policy_of(agent))) < 2_000
    True
    """
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise ImportError(
            "format is 'onnx', which needs the package onnx: pip install 'oda-rl[onnx]'"
        ) from error
    found = policy.tables()
    nodes, arrays = _graph(policy, found.in_floats(), found.actions)
    d = len(policy.origin)
    graph = helper.make_graph(
        [helper.make_node(kind, *ends, **settings) for kind, ends, settings in nodes],
        "policy",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["batch", d])],
        [helper.make_tensor_value_info("action", TensorProto.INT64, ["batch"])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="oda_rl",
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        doc_string=f"A policy that oda_rl has learned for {policy.env_id or 'an environment'}.",
    )
    names = {"observation": policy.names, "actions": policy.action_names}
    helper.set_model_props(model, {key: ", ".join(value) for key, value in names.items()})
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


_Node = tuple[str, tuple[list[str], list[str]], dict[str, Any]]


def _graph(policy: Policy, tables: FloatTables, actions: Any) -> tuple[list[_Node], dict[str, Any]]:
    """Return nodes (operator, inputs and outputs, settings) and constant arrays."""
    arrays = {
        "first": np.array(policy.first_action, dtype=np.int64),
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
        arrays["actions"] = actions
        nodes += [
            ("ArgMin", (["scores"], ["cell"]), {"axis": 1, "keepdims": 0}),
            ("Gather", (["actions", "cell"], ["index"]), {}),
        ]
    else:
        own = np.pad(tables.advantages, ((0, 0), (1, 0)))  # and of action 0 over itself
        arrays["advantages"] = own
        arrays["count"] = np.array([min(3, len(own))], dtype=np.int64)
        arrays["zero"], arrays["one"], arrays["two"] = np.array([[0], [1], [2]], dtype=np.int64)
        nodes += _blending()
    return [*nodes, ("Add", (["index", "first"], ["action"]), {})], arrays


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
