"""Export of policies: C99 headers, JSON, ONNX."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from oda_rl._types import Array, FloatArray
from oda_rl.agents.policies.contract import TIE, Trained
from oda_rl.agents.policies.export_c import c_header, learner_header
from oda_rl.agents.policies.export_tables import Export, export_of
from oda_rl.agents.policies.joint import PARTS, SHORTLIST, STEP, JointPolicy
from oda_rl.agents.rules.editing import Clauses
from oda_rl.files.archive import replacing

SUFFIXES = {"c": ".h", "json": ".json", "onnx": ".onnx"}
_VERSION = 1
_OPSET, _IR_VERSION = 17, 8  # of the same time, so that older runtimes take the model, too
_FLOAT, _INT64, _DOUBLE = 1, 7, 11  # TensorProto's

_NUMBERED = ["action = actions.first + table.actions[observation - table.first]"]
_NUMBERED_CONTINUOUS = ["action = table.actions[observation - table.first], flattened"]
_SCORES = [
    "x = observation, flattened, minus origin",
    "score of cell k = diagram[k][0] + sum over j of diagram[k][1 + j] * x[j]",
]
_NEAREST = [*_SCORES, "cell = index of the lowest score (ties: the first)"]
_GREATEST = "action = actions.first + index of the highest of values[cell] (ties: the first)"
_BLENDED = [
    *_SCORES,
    "near = the n_nearest cells with the lowest scores, or all if there are fewer",
    "weight of cell k in near = exp((lowest score - score of k) / width), divided by their sum",
    "value of action a = sum over k in near of weight of k * (common[k][0] + sum over j of "
    "common[k][1 + j] * x[j] + values[k][a])",
]
_FIRST = "the first a with value >= highest - tie * |highest|"
_JOINT = [
    "x = observation, flattened, minus origin; u = an action in units, from -1 to 1 of each "
    "component; z(u) = transform (x, u), with the components of x before those of u",
    "Q(u) = sum over k of weight of k * (worth[k] + <slopes[k], z(u) - places[k]>), over the "
    "n_nearest of the near cells whose places are nearest to z(u), with weights "
    "exp((lowest squared distance - squared distance of k) / width), divided by their sum",
    "part of cell k = pseudo-inverse of transform's last columns, those of u, times (places[k] - "
    "z(0)), each component clipped to -1 and 1",
    "near = the shortlist cells with the lowest |z(part of k) - places[k]|^2, the nearest first",
    "u = the one with the highest Q (ties: the first) of levels, then of the parts of the first "
    "n_parts near cells",
    "then, for each component of u: below and above = Q where it is step less and step more, "
    "clipped to -1 and 1; take the best of these and of u, u among equals; if that is u, neither "
    "was clipped, and bend = 2 Q(u) - below - above is positive, also try the component plus "
    "step / 2 * (above - below) / bend",
    "action = actions.low + (u + 1) / 2 * (actions.high - actions.low)",
]
_CLIPPED = "flattened; below actions.low that, above actions.high that"
_AFFINE = (
    "component i of the action = affine_actions[cell][i][0] + sum over j of "
    f"affine_actions[cell][i][1 + j] * x[j], {_CLIPPED}"
)
_EDITED = [
    *_SCORES,
    "a clause holds where all of its rows are positive: row[0] + sum over j of row[1 + j] * x[j]",
    "clauses with an entry forbids forbid that action, from 0, where they hold; if a clause with "
    "an entry cell holds, whose action is not forbidden, the first of these is the cell",
    "otherwise cell = index of the lowest score (ties: the first) of the first len(diagram) whose "
    "action is not forbidden",
]
_CONTINUOUS = [
    f"a = {_FIRST}: the number of an action codevector",
    f"action = sum over k in near of weight of k * action_codevectors[k][a], {_CLIPPED}",
]


def export_policy(
    agent: Trained,
    out: str | Path,
    format: str | None = None,  # noqa: A002
    fixed_point: bool = False,
    learn: bool = False,
    allow_disagreement: bool = False,
) -> Path:
    """Write an agent's policy to a file that does not need this package; return its path.

    ``"c"``
        A C99 header with ``int oda_policy(const float obs[])``, or where actions are continuous
        ``void oda_policy(const float obs[], float action[])``. Numbered actions that combine
        components, as in a grid of a Box, have these in the table ``oda_components[action]``.
        Blended policies need ``math.h``, others no library.
    ``"json"``
        All numbers in double precision, their meaning, and how to decide by them.
    ``"onnx"``
        A model with the input ``obs``, float32 of shape (batch, d), and the output ``action``,
        int64 of shape (batch,), or where actions are continuous float32 of shape (batch, p). Its
        metadata has the names of both, bounds, and the components of numbered actions, as JSON
        lists. Needs ``pip install "oda-rl[onnx]"``.

    Decisions are those of ``agent.predict``, except where two actions or cells are equal up to
    rounding to single precision. Of cells at exactly equal distances the first counts everywhere.
    Numbered states are written as a table of their actions. Fixed-point tables are compared with
    the agent in the latest states that it remembers, at most 10,000: the header reports the share
    of equal decisions, and is refused below 99.9 %.

    Parameters
    ----------
    agent : Agent
        A trained one, or an object with the attributes of
        :class:`oda_rl.agents.policies.contract.Trained`.
    out : str or Path
        File to write.
    format : {"c", "json", "onnx"}, optional
        Format of the file; by default that of its suffix, .h, .json or .onnx, else C.
    fixed_point : bool
        Tables of 16-bit integers instead of single precision in a C header.
    learn : bool
        Instead of the policy, write the online agent's learner over the same, fixed cells as a C
        header: ``oda_init(&learner, seed, learned)``, ``oda_begin(&learner, obs)`` for each
        episode, then ``oda_step(&learner, obs, reward, terminated)`` for each step;
        ``oda_greedy(&learner, obs)`` is the policy. It starts from the exported values if
        ``learned`` is 1, from nothing if it is 0. All state is in the struct ``oda_learner``.
    allow_disagreement : bool
        Write fixed-point tables even if less than 99.9 % of the decisions agree.

    Raises
    ------
    ValueError
        If the format is unknown; if the format, or the agent, has no fixed point or learner; if
        ``out`` is a folder, or the policy cannot be exported; or if fixed-point tables disagree too
        often.
    ImportError
        If onnx is asked for and not installed.

    Examples
    --------
    >>> import tempfile
    >>> from oda_rl.agents import TwoTimescaleAgent
    >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = export_policy(agent, f"{folder}/policy.h")
    ...     "int oda_policy(const float obs[ODA_FEATURES])" in path.read_text()
    True
    """
    if format is None:
        named = {suffix: name for name, suffix in SUFFIXES.items()}
        format = named.get(Path(out).suffix, "c")  # noqa: A001
    if format not in SUFFIXES:
        raise ValueError(f"format is {format!r}: it must be one of {sorted(SUFFIXES)}")
    if fixed_point and format != "c":
        raise ValueError(f"fixed_point is True: it must be False for the format {format!r}")
    if allow_disagreement and not fixed_point:
        raise ValueError("allow_disagreement is True: it must be False without fixed_point")
    if learn and (format != "c" or fixed_point):
        what = f"the format {format!r}" if format != "c" else "fixed_point, which rounds values"
        raise ValueError(f"learn is True: it must be False for {what}")
    path, export = Path(out), export_of(agent)
    if learn:
        content = learner_header(export, agent).encode("utf-8")
    elif format == "onnx":
        content = onnx_model(export)
    else:
        text = json_document(export)
        if format == "c":
            text = c_header(export, fixed_point, allow_disagreement)
        content = text.encode("utf-8")
    with replacing(path) as file:
        file.write(content)
    return path


def default_file(run: Path, kind: str) -> Path:
    """Return the path for the policy of a run folder, or of an agent's file."""
    suffix = SUFFIXES.get(kind, "")
    return run / f"policy{suffix}" if run.is_dir() else run.with_suffix(suffix)


def json_document(export: Export) -> str:
    """Return a policy as JSON that explains itself."""
    cells, box, interface = export.cells, export.box, export.interface
    edited = cells.clauses is not None
    document: dict[str, Any] = {
        "format": "oda_rl policy",
        "version": _VERSION,
        "kind": "clauses, then the nearest cell" if edited else "nearest cell",
        "how_to_decide": [*(_EDITED if edited else _NEAREST), _GREATEST],
        "env_id": export.env_id,
        "observation": {"shape": interface.observation_shape, "names": interface.names},
        "actions": {"first": interface.first_action, "names": export.action_names},
        "origin": cells.origin.tolist(),
        "diagram": cells.diagram.tolist(),
        "values": cells.values.tolist(),
    }
    if box is not None:
        names = interface.action_names
        document["actions"] = {"shape": box.shape, "names": names, "low": box.low, "high": box.high}
    if cells.common is not None:
        last = [f"action = actions.first + {_FIRST}"] if export.actions is None else _CONTINUOUS
        document |= {"kind": "nearest cells, blended", "how_to_decide": [*_BLENDED, *last]}
        document |= {"n_nearest": cells.n_nearest, "width": cells.width, "tie": TIE}
        document["common"] = cells.common.tolist()
        if export.tables().curved:
            document["how_to_decide"][0] += ", and behind these numbers their squares"
    if export.joint is not None:
        document |= {"kind": "cells of states and actions", "how_to_decide": _JOINT}
        document |= {name: array.tolist() for name, array in export.joint.arrays.items()}
        document |= {"shortlist": SHORTLIST, "n_parts": PARTS, "step": STEP}
    if export.actions is not None:
        document["action_codevectors"] = export.actions.tolist()
    if export.affine is not None:
        del document["values"]
        document["how_to_decide"][-1] = _AFFINE
        document["affine_actions"] = export.affine.tolist()
    if cells.clauses is not None:
        says = enumerate(cells.clauses.says, len(cells.diagram))
        document["clauses"] = [
            *({"where": rows.tolist(), "forbids": a} for rows, a in cells.clauses.forbids),
            *({"where": rows.tolist(), "cell": k, "locked": lock} for k, (rows, _, lock) in says),
        ]
    if export.numbered is not None:
        document["how_to_decide"] = _NUMBERED if box is None else _NUMBERED_CONTINUOUS
        first, actions = export.numbered
        document["table"] = {"first": first, "actions": actions.tolist()}
    if (parts := interface.combinations) is not None:
        document["actions"]["components"] = parts.tolist()
        meaning = "components of the action, flattened = actions.components[action]"
        document["how_to_decide"] = [*document["how_to_decide"], meaning]
    document["codevectors"] = export.codevectors.tolist()
    entries = []
    for name, value in document.items():
        text = _json(value)
        if isinstance(value, list) and isinstance(value[0], list | str | dict):
            rows = ",\n".join(f"    {_json(row)}" for row in value)
            text = f"[\n{rows}\n  ]"
        entries.append(f"  {_json(name)}: {text}")
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def onnx_model(export: Export) -> bytes:
    """Return an ONNX model; see :func:`export_policy`."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise ImportError(
            "format is 'onnx', which needs the package onnx: pip install 'oda-rl[onnx]'"
        ) from error
    box, observed, graph = export.box, export.interface.names, _Graph()
    kind, shape = (TensorProto.INT64, []) if box is None else (TensorProto.FLOAT, [len(box.low)])
    graph.add("Identity", _action(graph, export), output="action")
    made = helper.make_graph(
        [helper.make_node(name, *ends, **settings) for name, ends, settings in graph.nodes],
        "policy",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["batch", len(observed)])],
        [helper.make_tensor_value_info("action", kind, ["batch", *shape])],
        [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    model = helper.make_model(
        made,
        producer_name="oda_rl",
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        doc_string=f"A policy that oda_rl has learned for {export.env_id or 'an environment'}.",
    )
    facts: dict[str, Any] = {"observation": observed, "actions": export.action_names}
    if box is not None:
        facts |= {"actions": export.interface.action_names, "low": box.low, "high": box.high}
    if (parts := export.interface.combinations) is not None:
        facts["components"] = parts.tolist()
    helper.set_model_props(model, {key: _json(value) for key, value in facts.items()})
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


class _Graph:
    """Operators and constants of a model, in order."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, tuple[list[str], list[str]], dict[str, Any]]] = []
        self.constants: dict[str, Any] = {}

    def add(self, kind: str, *inputs: Any, output: str | None = None, **settings: Any) -> str:
        """Add an operator on outputs, which are names, and arrays; return its output."""
        names = []
        for one in inputs:
            names.append(one if isinstance(one, str) else f"constant_{len(self.constants)}")
            if not isinstance(one, str):
                self.constants[names[-1]] = np.ascontiguousarray(one).reshape(np.shape(one))
        name = output or f"{kind}_{len(self.nodes)}"
        outputs = [name, f"{name}_indices"] if kind == "TopK" else [name]
        self.nodes.append((kind, (names, outputs), settings))
        return name


def _action(graph: _Graph, export: Export) -> str:
    """Add the operators from observations to actions; scores are in double, as in Python."""
    add = graph.add
    if export.numbered is not None:
        first, acts = export.numbered
        discrete = export.box is None
        acts = acts + export.interface.first_action if discrete else acts.astype(np.float32)
        ends = np.array([0, len(acts) - 1], dtype=np.float32)
        state = add("Round", _within(graph, add("Sub", "obs", np.float32(first)), ends))
        row = add("Squeeze", add("Cast", state, to=_INT64), np.array([1]))
        action = add("Gather", acts, row)
        return action if discrete else _within(graph, action, export.limits)
    if export.joint is not None and export.box is not None:
        low, high = export.box.bounds
        units = _greedy_joint_action(graph, export.joint)
        share = add("Div", add("Add", units, np.array(1.0)), np.array(2.0))
        wide = add("Add", add("Mul", share, high - low), low)
        return _within(graph, add("Cast", wide, to=_FLOAT), export.limits)
    cells, found = export.cells, export.tables()
    tables = found.in_floats()
    wide = add("Sub", add("Cast", "obs", to=_DOUBLE), cells.origin)
    if found.curved:
        wide = add("Concat", wide, add("Mul", wide, wide), axis=1)
    scores = add("Add", add("MatMul", wide, cells.diagram[:, 1:].T), cells.diagram[:, 0])
    point = add("Sub", "obs", tables["origin"]) if "origin" in tables else "obs"
    if found.advantages is not None:
        inner = _blended(graph, export, scores, wide, found.n_nearest)
    else:
        actions = cells.values.argmax(axis=1)
        if cells.clauses is None:
            cell = add("ArgMin", scores, axis=1, keepdims=0)
        else:
            bans = len(cells.clauses.forbidden)
            cell = _within_clauses(graph, cells.clauses, actions, scores, wide)
            actions = np.insert(actions, [len(cells.diagram)] * bans, 0)
        if found.affine is None:
            inner = add("Gather", actions, cell)
        else:
            column = add("Unsqueeze", point, np.array([2]))
            products = add("MatMul", add("Gather", tables["affine"][:, :, 1:], cell), column)
            sums = add("Squeeze", products, np.array([2]))
            inner = add("Add", sums, add("Gather", tables["affine"][:, :, 0], cell))
    if export.box is None:
        return add("Add", inner, np.array(export.interface.first_action))
    return _within(graph, inner, export.limits)


def _within(graph: _Graph, numbers: str, ends: Array) -> str:
    """Clip numbers to lower and upper ends; what is not a number becomes 0 before."""
    known = graph.add("Where", graph.add("IsNaN", numbers), np.float32(0.0), numbers)
    return graph.add("Min", graph.add("Max", known, ends[0]), ends[1])


def _blended(graph: _Graph, export: Export, scores: str, wide: str, n_nearest: int) -> str:
    """Add the operators from scores to actions, not yet clipped."""
    add, one, common = graph.add, np.array([1]), export.cells.common
    assert common is not None
    near_scores = add("TopK", scores, np.array([n_nearest]), axis=1, largest=0)
    near = f"{near_scores}_indices"
    least = add("ReduceMin", near_scores, axes=[1])
    weights = add("Exp", add("Div", add("Sub", least, near_scores), np.array(export.cells.width)))
    column = add("Unsqueeze", weights, np.array([2]))

    def summed(table: FloatArray) -> str:
        return add("ReduceSum", add("Mul", add("Gather", table, near), column), one, keepdims=0)

    # Ties are relative to the greatest value: actions' shares of that do not decide, but count.
    shared = add("ReduceSum", add("Mul", summed(common[:, 1:]), wide), one)
    values = add("Add", summed(common[:, :1] + export.cells.values), shared)
    greatest = add("ReduceMax", values, axes=[1])
    last = add("Sub", greatest, add("Mul", add("Abs", greatest), np.array(TIE)))
    equal = add("Cast", add("GreaterOrEqual", values, last), to=_FLOAT)
    index = add("ArgMax", equal, axis=1, keepdims=0)
    if export.actions is None:
        return index
    by_number = add("Transpose", add("Gather", export.actions, near), perm=[0, 2, 1, 3])
    chosen = add("GatherND", by_number, add("Unsqueeze", index, one), batch_dims=1)
    total = add("ReduceSum", add("Mul", chosen, column), one, keepdims=0)
    return add("Cast", add("Div", total, add("ReduceSum", weights, one)), to=_FLOAT)


def _greedy_joint_action(graph: _Graph, policy: JointPolicy) -> str:
    """Add the operators from observations to greedy actions in units: those of ``joint.choose``."""
    add, (d, p), n = graph.add, (len(policy.origin), policy.levels.shape[1]), policy.n_cells
    one, two = np.array([1]), np.array([2])
    by_state, by_action = policy.transform[:, :d], policy.transform[:, d:]
    inverse, zero = np.linalg.pinv(by_action), np.array(0.0)
    least, greatest, step = np.array(-1.0), np.array(1.0), np.array(STEP)
    idle = add("MatMul", add("Sub", add("Cast", "obs", to=_DOUBLE), policy.origin), by_state.T)
    idle = add("Unsqueeze", idle, one)  # z(o, 0), shape (batch, 1, d + p)
    parts = add("MatMul", add("Sub", policy.places, idle), inverse.T)
    parts = add("Clip", parts, least, greatest)
    gaps = add("Sub", add("Add", idle, add("MatMul", parts, by_action.T)), policy.places)
    scores = add("ReduceSum", add("Mul", gaps, gaps), two, keepdims=0)
    near = add("TopK", scores, np.array([min(SHORTLIST, n)]), axis=1, largest=0) + "_indices"
    first = add("Slice", near, np.array([0]), np.array([PARTS]), one)
    parts = add("GatherND", parts, add("Unsqueeze", first, two), batch_dims=1)
    places, slopes, worth = (
        add("Unsqueeze", add("Gather", table, near), one)
        for table in (policy.places, policy.slopes, policy.worth)
    )

    def value(actions: str) -> str:
        """Add Q, shape (batch, m), of actions, shape (batch, m, p)."""
        point = add("Unsqueeze", add("Add", idle, add("MatMul", actions, by_action.T)), two)
        offsets = add("Sub", point, places)
        squares = add("ReduceSum", add("Mul", offsets, offsets), np.array([3]), keepdims=0)
        planes = add("ReduceSum", add("Mul", offsets, slopes), np.array([3]), keepdims=0)
        size = np.array([min(policy.n_nearest, SHORTLIST, n)])
        nearest = add("TopK", squares, size, axis=2, largest=0)
        chosen = add("GatherElements", add("Add", planes, worth), f"{nearest}_indices", axis=2)
        away = add("Sub", add("ReduceMin", nearest, axes=[2]), nearest)
        weights = add("Exp", add("Div", away, np.array(policy.width)))
        weighted = add("ReduceSum", add("Mul", weights, chosen), two, keepdims=0)
        return add("Div", weighted, add("ReduceSum", weights, two, keepdims=0))

    zeros = add("Mul", add("ReduceMin", parts, axes=[1, 2]), zero)  # for each row of the batch
    tried = add("Concat", add("Add", policy.levels, zeros), parts, axis=1)
    values = value(tried)
    index = add("ArgMax", values, axis=1, keepdims=1)
    action = add("GatherND", tried, index, batch_dims=1)  # shape (batch, p)
    best = add("ReduceMax", values, axes=[1])  # shape (batch, 1)
    for unit in np.eye(p):
        centre = add("ReduceSum", add("Mul", action, unit), one)
        others = add("Mul", action, 1.0 - unit)
        ends = add("Sub", centre, step), add("Add", centre, step)
        low, high = add("Max", ends[0], least), add("Min", ends[1], greatest)

        def with_component(component: str, others: str = others, unit: FloatArray = unit) -> str:
            return add("Unsqueeze", add("Add", others, add("Mul", component, unit)), one)

        below, above = value(with_component(low)), value(with_component(high))
        bend = add("Sub", add("Sub", add("Mul", best, np.array(2.0)), below), above)
        found, highest = centre, best
        for component, worth_there in ((low, below), (high, above)):
            better = add("Greater", worth_there, highest)
            found = add("Where", better, component, found)
            highest = add("Where", better, worth_there, highest)
        inside = add("And", add("Equal", low, ends[0]), add("Equal", high, ends[1]))
        centre_is_best = add("And", inside, add("Equal", highest, best))
        has_vertex = add("And", centre_is_best, add("Greater", bend, zero))
        slope = add("Div", add("Sub", above, below), add("Where", has_vertex, bend, greatest))
        vertex = add("Add", centre, add("Mul", slope, np.array(0.5 * STEP)))
        at_vertex = value(with_component(vertex))
        better = add("And", has_vertex, add("Greater", at_vertex, highest))
        found, best = add("Where", better, vertex, found), add("Where", better, at_vertex, highest)
        action = add("Add", others, add("Mul", found, unit))
    return action


def _within_clauses(graph: _Graph, clauses: Clauses, actions: Any, scores: str, wide: str) -> str:
    """Add the operators from scores to the cell, or clause, that decides; cells come first."""
    add, bans, sizes = graph.add, len(clauses.forbidden), np.diff(clauses.ends, prepend=0)
    belongs = np.repeat(np.eye(len(sizes), dtype=np.float32), sizes, axis=0)
    sums = add("Add", add("MatMul", wide, clauses.conditions[:, 1:].T), clauses.conditions[:, 0])
    rows = add("Cast", add("Greater", sums, np.array(0.0)), to=_FLOAT)
    count = add("MatMul", rows, belongs)
    holds = add("Greater", count, sizes.astype(np.float32) - np.float32(0.5))
    says = np.where(np.arange(len(sizes)) < bans, np.inf, -np.inf)
    all_scores = add("Concat", scores, add("Where", holds, says, np.array(np.inf)), axis=1)
    if bans:
        taken = np.insert(actions, [len(actions) - len(sizes) + bans] * bans, -1)
        same = np.zeros((len(sizes), len(taken)), dtype=np.float32)
        same[:bans] = clauses.forbidden[:, None] == taken
        barred = add("MatMul", add("Cast", holds, to=_FLOAT), same)
        half = np.array(0.5, dtype=np.float32)
        all_scores = add("Where", add("Greater", barred, half), np.array(np.inf), all_scores)
    return add("ArgMin", all_scores, axis=1, keepdims=0)
