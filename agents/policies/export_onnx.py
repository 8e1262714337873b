"""Policies as ONNX models."""

from typing import Any

import numpy as np

from oda_rl.agents.policies.export_tables import Export, FloatTables, Numbered, Tables

_OPSET = 17
_FLOAT, _INT64, _DOUBLE = 1, 7, 11  # TensorProto's
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
    if export.joint is not None:
        raise ValueError(
            "format is 'onnx': it must be 'c' or 'json' for cells of states and actions, among "
            "which actions are looked for"
        )
    box = export.box
    kind, shape = (TensorProto.INT64, []) if box is None else (TensorProto.FLOAT, [len(box.low)])
    nodes, arrays = _graph(export)
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


_Node = tuple[str, tuple[list[str], list[str]], dict[str, Any]]


def _graph(export: Export) -> tuple[list[_Node], dict[str, Any]]:
    """Return nodes (operator, inputs and outputs, settings) and constant arrays.

    Scores are in double precision, as in Python: the same cells are equally near.
    """
    if export.numbered is not None:
        return _table_of_states(export, export.numbered)
    cells, found = export.cells, export.tables()
    tables = found.in_floats()
    arrays: dict[str, Any] = {
        "centre": cells.origin,
        "offsets": cells.diagram[:, 0],
        "slopes": np.ascontiguousarray(cells.diagram[:, 1:].T),
    }
    nodes: list[_Node] = [
        ("Cast", (["obs"], ["wide"]), {"to": _DOUBLE}),
        ("Sub", (["wide", "centre"], ["wide_point"]), {}),
        ("MatMul", (["wide_point", "slopes"], ["sums"]), {}),
        ("Add", (["sums", "offsets"], ["scores"]), {}),
    ]
    point = "obs" if tables.origin is None else "point"
    if tables.origin is not None and (found.clauses is not None or tables.affine is not None):
        arrays["origin"] = tables.origin
        nodes.append(("Sub", (["obs", "origin"], ["point"]), {}))
    if tables.advantages is None:
        if tables.conditions is not None and found.clauses is not None:
            arrays |= _clause_arrays(found, tables)
            nodes += _within_clauses(point, len(found.clauses.forbidden) > 0)
        else:
            nodes.append(("ArgMin", (["scores"], ["cell"]), {"axis": 1, "keepdims": 0}))
        if tables.affine is None:
            arrays["actions"] = cells.values.argmax(axis=1)
            nodes.append(("Gather", (["actions", "cell"], ["index"]), {}))
    else:
        own = np.pad(tables.advantages, ((0, 0), (1, 0)))  # and of action 0 over itself
        arrays["advantages"], arrays["width"] = own, np.array(cells.width)
        arrays["equal"] = np.array(export.equal, dtype=np.float32)
        arrays["count"] = np.array([found.n_nearest], dtype=np.int64)
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


def _table_of_states(export: Export, states: Numbered) -> tuple[list[_Node], dict[str, Any]]:
    """Return the nodes from the number of a state to its action, and constant arrays."""
    actions = states.actions.astype(np.int64 if export.box is None else np.float32)
    arrays: dict[str, Any] = {
        "first_state": np.array(states.first, dtype=np.int64),
        "zero": np.array(0, dtype=np.int64),
        "last": np.array(len(actions) - 1, dtype=np.int64),
        "only": np.array([1], dtype=np.int64),
        "table": actions + export.first_action if export.box is None else actions,
    }
    nodes: list[_Node] = [
        ("Round", (["obs"], ["rounded"]), {}),
        ("Cast", (["rounded"], ["state"]), {"to": _INT64}),
        ("Squeeze", (["state", "only"], ["number"]), {}),
        ("Sub", (["number", "first_state"], ["place"]), {}),
        ("Clip", (["place", "zero", "last"], ["row"]), {}),
        ("Gather", (["table", "row"], ["action"]), {}),
    ]
    return nodes, arrays


def _clause_arrays(found: Tables, tables: FloatTables) -> dict[str, Any]:
    """Return the constant arrays of clauses; see :func:`_within_clauses`."""
    clauses, n_cells = found.clauses, len(found.scores)
    assert clauses is not None
    assert tables.conditions is not None
    n, sizes = len(clauses.forbidden), np.diff(clauses.ends, prepend=0)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    member = (owner[:, None] == np.arange(len(sizes))).astype(np.float32)
    arrays: dict[str, Any] = {
        "condition_offsets": tables.conditions[:, 0],
        "condition_slopes": np.ascontiguousarray(tables.conditions[:, 1:].T),
        "says_rows": member[:, n:],
        "says_needed": sizes[n:].astype(np.float32) - 0.5,
        "one_more": np.array([0, 0, 0, 1], dtype=np.int64),
        "last_place": np.array(len(sizes) - n, dtype=np.int64),
        "first_more": np.array(n_cells, dtype=np.int64),
        "nothing": np.array(0.0, dtype=np.float32),
        "half": np.array(0.5, dtype=np.float32),
        "beyond": np.array(np.inf),
    }
    if n:
        assert found.actions is not None
        same = clauses.forbidden[:, None] == found.actions
        arrays["forbids_rows"] = member[:, :n]
        arrays["forbids_needed"] = sizes[:n].astype(np.float32) - 0.5
        arrays["forbids_cells"] = same[:, :n_cells].astype(np.float32)
        arrays["forbids_says"] = same[:, n_cells:].astype(np.float32)
    return arrays


def _within_clauses(point: str, forbids: bool) -> list[_Node]:
    """Return the nodes from scores to the cell, or clause, that decides."""
    nodes: list[_Node] = [
        ("MatMul", ([point, "condition_slopes"], ["condition_sums"]), {}),
        ("Add", (["condition_sums", "condition_offsets"], ["conditions"]), {}),
        ("Greater", (["conditions", "nothing"], ["rows_hold"]), {}),
        ("Cast", (["rows_hold"], ["rows_held"]), {"to": _FLOAT}),
        ("MatMul", (["rows_held", "says_rows"], ["says_count"]), {}),
        ("Greater", (["says_count", "says_needed"], ["says_hold"]), {}),
        ("Cast", (["says_hold"], ["says"]), {"to": _FLOAT}),
    ]
    says, scores = "says", "scores"
    if forbids:
        nodes += [
            ("MatMul", (["rows_held", "forbids_rows"], ["forbids_count"]), {}),
            ("Greater", (["forbids_count", "forbids_needed"], ["forbids_hold"]), {}),
            ("Cast", (["forbids_hold"], ["forbids"]), {"to": _FLOAT}),
            ("MatMul", (["forbids", "forbids_cells"], ["cells_barred"]), {}),
            ("Greater", (["cells_barred", "half"], ["barred"]), {}),
            ("Where", (["barred", "beyond", "scores"], ["free_scores"]), {}),
            ("MatMul", (["forbids", "forbids_says"], ["says_barred"]), {}),
            ("Sub", (["says", "says_barred"], ["free_says"]), {}),
        ]
        says, scores = "free_says", "free_scores"
    return [
        *nodes,
        ("ArgMin", ([scores], ["own_cell"]), {"axis": 1, "keepdims": 0}),
        ("Pad", ([says, "one_more", "half"], ["said"]), {}),
        ("ArgMax", (["said"], ["place"]), {"axis": 1, "keepdims": 0}),
        ("Add", (["place", "first_more"], ["more_cell"]), {}),
        ("Less", (["place", "last_place"], ["decided"]), {}),
        ("Where", (["decided", "more_cell", "own_cell"], ["cell"]), {}),
    ]


def _blending() -> list[_Node]:
    return [
        ("TopK", (["scores", "count"], ["near_scores", "near"]), {"axis": 1, "largest": 0}),
        ("Slice", (["near_scores", "zero", "one", "one"], ["least"]), {}),
        ("Sub", (["least", "near_scores"], ["differences"]), {}),
        ("Div", (["differences", "width"], ["quotients"]), {}),
        ("Cast", (["quotients"], ["exponents"]), {"to": _FLOAT}),
        ("Exp", (["exponents"], ["weights"]), {}),
        ("Unsqueeze", (["weights", "two"], ["columns"]), {}),
        ("Gather", (["advantages", "near"], ["near_advantages"]), {}),
        ("Mul", (["near_advantages", "columns"], ["parts"]), {}),
        ("ReduceSum", (["parts", "one"], ["advantage"]), {"keepdims": 0}),
        ("ReduceMax", (["advantage"], ["most"]), {"axes": [1]}),
        ("Sub", (["most", "equal"], ["enough"]), {}),
        ("GreaterOrEqual", (["advantage", "enough"], ["is_best"]), {}),
        ("Cast", (["is_best"], ["best"]), {"to": _FLOAT}),
        ("ArgMax", (["best"], ["index"]), {"axis": 1, "keepdims": 0}),
    ]


def _performing() -> list[_Node]:
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
