"""Policies for elsewhere: C99 headers, JSON, ONNX."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oda_rl.agents.policies.contract import TIE, Trained
from oda_rl.agents.policies.export_c import c_header, learner_header
from oda_rl.agents.policies.export_tables import Export, export_of
from oda_rl.agents.policies.joint import PARTS, SHORTLIST, STEP
from oda_rl.agents.rules.editing import Clauses
from oda_rl.files.archive import replacing

if TYPE_CHECKING:
    from oda_rl.agents.certifying.certificates import Certificate

SUFFIXES = {"c": ".h", "json": ".json", "onnx": ".onnx"}
_VERSION = 1

_NUMBERED = ["action = actions.first + table.actions[observation - table.first]"]
_NUMBERED_CONTINUOUS = ["action = table.actions[observation - table.first], flattened"]
_NEAREST = [
    "x = observation, flattened, minus origin",
    "score of cell k = diagram[k][0] + sum over j of diagram[k][1 + j] * x[j]",
    "cell = the one of least score, the first of equals",
    "action = actions.first + index of the greatest of values[cell], the first of equals",
]
_BLENDED = [
    *_NEAREST[:2],
    "near = the n_nearest cells of least score, or all if there are fewer",
    "weight of cell k in near = exp((least score - score of k) / width), divided by their sum",
    "value of action a = sum over k in near of weight of k * (common[k][0] + sum over j of "
    "common[k][1 + j] * x[j] + values[k][a])",
    "action = actions.first + the first a with value >= greatest - tie * |greatest|",
]
_JOINT = [
    "x = observation, flattened, minus origin; u = an action in units, from -1 to 1 of each "
    "component; z(u) = transform (x, u), with the components of x before those of u",
    "Q(u) = sum over k of weight of k * (worth[k] + <slopes[k], z(u) - places[k]>), over the "
    "n_nearest of the near cells whose places are nearest to z(u), with weights "
    "exp((least squared distance - squared distance of k) / width), divided by their sum",
    "part of cell k = pseudo-inverse of transform's last columns, those of u, times (places[k] - "
    "z(0)), each component clipped to -1 and 1",
    "near = the shortlist cells of least |z(part of k) - places[k]|^2, the nearest first",
    "u = the one of greatest Q, the first of equals, of levels, then of the parts of the first "
    "n_parts near cells",
    "then, for each component of u: below and above = Q where it is step less and step more, "
    "clipped to -1 and 1; take the best of these and of u, u among equals; if that is u, neither "
    "was clipped, and bend = 2 Q(u) - below - above is positive, also try the component plus "
    "step / 2 * (above - below) / bend",
    "action = actions.low + (u + 1) / 2 * (actions.high - actions.low)",
]
_AFFINE = [
    *_NEAREST[:3],
    "component i of the action = affine_actions[cell][i][0] + sum over j of "
    "affine_actions[cell][i][1 + j] * x[j], flattened; below actions.low that, above actions.high "
    "that",
]
_EDITED = [
    *_NEAREST[:2],
    "a clause holds where all of its rows are positive: row[0] + sum over j of row[1 + j] * x[j]",
    "clauses with an entry forbids forbid that action, from 0, where they hold; if a clause with "
    "an entry cell holds, whose action is not forbidden, the first of these is the cell",
    "otherwise cell = the one of least score, the first of equals, of the first len(diagram) whose "
    "action is not forbidden",
]
_CONTINUOUS = [
    *_BLENDED[:4],
    "a = the first with value >= greatest - tie * |greatest|: the number of an action codevector",
    "action = sum over k in near of weight of k * action_codevectors[k][a], flattened; below "
    "actions.low that, above actions.high that",
]


def export_policy(
    agent: Trained,
    out: str | Path,
    format: str | None = None,  # noqa: A002
    fixed_point: bool = False,
    certificate: "Certificate | None" = None,
    learn: bool = False,
    allow_disagreement: bool = False,
) -> Path:
    """Write an agent's policy to a file that does not need this package.

    ``"c"``
        A C99 header with ``int oda_policy(const float obs[])``, or where actions are continuous
        ``void oda_policy(const float obs[], float action[])``. Blended policies need ``math.h``,
        others no library.
    ``"json"``
        All numbers in double precision, their meaning, and how to decide by them.
    ``"onnx"``
        A model with the input ``obs``, float32 of shape (batch, d), and the output ``action``,
        int64 of shape (batch,), or where actions are continuous float32 of shape (batch, p). Needs
        ``pip install "oda-rl[onnx]"``. Not for cells of states and actions.

    Decisions are those of ``agent.predict``, except where two actions or cells are equal up to
    rounding to single precision. Of cells at exactly equal distances the first counts everywhere.
    Numbered states are written as a table of their actions. Fixed-point tables are compared with
    the agent in the latest states that it remembers, at most 10,000: the header reports the share
    of equal decisions, and is refused below 99.9 %.

    Parameters
    ----------
    agent : Agent
        A trained one, or an object with the attributes of
        :class:`oda_rl.agents.policies.Trained`.
    out : str or Path
        File to write.
    format : {"c", "json", "onnx"}, optional
        Format of the file; by default that of its suffix, .h, .json or .onnx, else C.
    fixed_point : bool
        Tables of 16-bit integers instead of single precision in a C header.
    certificate : Certificate, optional
        A proof about the policy, written into the comment of a C header, or into JSON.
    learn : bool
        Instead of the policy, write the online agent's learner over the same, fixed cells as a C
        header: ``oda_init(&learner, seed, learned)``, ``oda_begin(&learner, obs)`` for each
        episode, then ``oda_step(&learner, obs, reward, terminated)`` for each step;
        ``oda_greedy(&learner, obs)`` is the policy. It starts from the exported values if
        ``learned`` is 1, from nothing if it is 0. All state is in the struct ``oda_learner``.
    allow_disagreement : bool
        Write fixed-point tables even if less than 99.9 % of the decisions agree.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    ValueError
        If the format is unknown; if the format, or the agent, has no fixed point or learner; if
        ``out`` is a folder, the certificate is that of another policy, or the policy cannot be
        exported; or if fixed-point tables disagree too often.
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
    path = Path(out)
    if path.is_dir():
        raise ValueError(f"out is {str(path)!r}, which is a folder: it must be a file")
    export = export_of(agent, certificate)
    if learn:
        content = learner_header(export, agent).encode("utf-8")
    elif format == "onnx":
        from oda_rl.agents.policies.export_onnx import onnx_model

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
    """Return the path for the policy of a run folder, or of an agent's file.

    >>> default_file(Path("run.zip"), "json").name
    'run.json'
    """
    suffix = SUFFIXES.get(kind, "")
    return run / f"policy{suffix}" if run.is_dir() else run.with_suffix(suffix)


def json_document(export: Export) -> str:
    """Return a policy as JSON that explains itself."""
    cells, box, parts, affine = export.cells, export.box, export.actions, export.affine
    document: dict[str, Any] = {
        "format": "oda_rl policy",
        "version": _VERSION,
        "kind": "nearest cells, blended" if export.blended else "nearest cell",
        "how_to_decide": _BLENDED if export.blended else _NEAREST,
        "env_id": export.env_id,
        "observation": {"shape": list(export.observation_shape), "names": export.names},
        "actions": {"first": export.first_action, "names": export.action_names},
        "origin": cells.origin.tolist(),
        "diagram": cells.diagram.tolist(),
        "values": cells.values.tolist(),
    }
    if cells.common is not None:
        document |= {"n_nearest": cells.n_nearest, "width": cells.width, "tie": TIE}
        document["common"] = cells.common.tolist()
    if export.joint is not None:
        document |= {"kind": "cells of states and actions", "how_to_decide": _JOINT}
        document |= {name: array.tolist() for name, array in export.joint.arrays.items()}
        document |= {"shortlist": SHORTLIST, "n_parts": PARTS, "step": STEP}
    if box is not None:
        document["actions"] = {"shape": list(box.shape), "low": box.low, "high": box.high}
    if parts is not None:
        document["how_to_decide"] = _CONTINUOUS
        document["action_codevectors"] = parts.tolist()
    if affine is not None:
        del document["values"]
        document["how_to_decide"] = _AFFINE
        document["affine_actions"] = affine.tolist()
    if cells.clauses is not None:
        last = _AFFINE[-1:] if affine is not None else _NEAREST[-1:]
        document["how_to_decide"] = _EDITED + last
        document["clauses"] = _clauses(cells.clauses, len(cells.diagram))
    if export.numbered is not None:
        document["how_to_decide"] = _NUMBERED if box is None else _NUMBERED_CONTINUOUS
        first, actions = export.numbered
        document["table"] = {"first": first, "actions": actions.tolist()}
    document["codevectors"] = export.codevectors.tolist()
    if export.certificate is not None:
        document["certificate"] = export.certificate.document
    return "{\n" + ",\n".join(f"  {_entry(*item)}" for item in document.items()) + "\n}\n"


def _clauses(clauses: Clauses, n_cells: int) -> list[dict[str, Any]]:
    forbids = [{"where": rows.tolist(), "forbids": a} for rows, a in clauses.forbids]
    says = [
        {"where": rows.tolist(), "cell": n_cells + i, "locked": locked}
        for i, (rows, _, locked) in enumerate(clauses.says)
    ]
    return [*forbids, *says]


def _entry(name: str, value: Any) -> str:
    """Return one entry, with each row of a list on a line of its own."""
    if isinstance(value, list) and isinstance(value[0], list | str | dict):
        rows = ",\n".join(f"    {_json(row)}" for row in value)
        return f"{_json(name)}: [\n{rows}\n  ]"
    return f"{_json(name)}: {_json(value)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
