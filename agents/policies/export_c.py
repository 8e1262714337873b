"""Policies as C99 headers: a few tables, and a function that looks up the action (``policy.h``).

A learner (``learner.h``) does what the online agent does on its fast timescale: true online
Sarsa(λ) with exploration, over cells that stay where they are.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl.agents.policies.contract import CUT, MIN_NORM, SLOPE_RATE, SMALLEST_TRACE, Trained
from oda_rl.agents.policies.export_tables import (
    CLIP,
    Export,
    FloatTables,
    IntegerTables,
    Numbered,
    Tables,
    single,
)
from oda_rl.agents.policies.joint import PARTS, SHORTLIST, STEP, JointPolicy
from oda_rl.exporting.c_text import as_comment, defined, number, source, table
from oda_rl.metric import root

MIN_AGREEMENT = 0.999
"""Share of decisions in which tables of 16 bits have to agree with the agent's."""

SCORES = ("oda_diagram", "oda_offsets", "oda_slopes", "oda_shifts")
_MAX_TRACE = 65_533  # steps, in 16 bits


def c_header(export: Export, fixed_point: bool = False, allow_disagreement: bool = False) -> str:
    """Return a C99 header; see :func:`oda_rl.agents.policies.export.export_policy`."""
    if export.numbered is not None and not (fixed_point and export.box is not None):
        return _table_of_states(export, export.numbered)
    if export.joint is not None:
        return _joint_header(export, export.joint, fixed_point)
    found = export.tables()
    tables: FloatTables | IntegerTables
    compared = []
    if fixed_point:
        tables, agreement = _in_integers(export, found)
        if agreement is not None and export.visited is not None:
            share, n = f"{100 * agreement:.4g} %", len(export.visited.points)
            compared = [f"{share} of decisions in {n:,} states of its training are the agent's"]
            if agreement < MIN_AGREEMENT and not allow_disagreement:
                raise ValueError(
                    f"fixed_point is True: {compared[0]}, and at least {100 * MIN_AGREEMENT:g} % "
                    "must be; export in single precision, without fixed_point (--fixed-point), or "
                    "with allow_disagreement=True (--allow-disagreement)"
                )
    else:
        tables = found.in_floats()
    always = export.blended and len(export.action_names) == 1 and export.box is None
    only = len(found.scores) == 1 and found.apart and found.clauses is None
    numbers = found.actions is None and (found.affine is None or found.clauses is not None)
    arrays = {} if always else _arrays(export, tables, found)
    constants = _constants(export, tables, found)
    flags = {
        "ALWAYS": always,
        "ONLY": only,
        "CELLS": not (always or only),
        "FIXED": isinstance(tables, IntegerTables),
        "NUMBERS": numbers and not export.blended,
        "APART": found.apart,
        "LOOKED_UP": found.actions is not None,
    }
    near = found.n_nearest
    kind = f"the {near} nearest cells, blended" if export.blended else "the nearest cell decides"
    precision = "16-bit fixed point" if fixed_point else "single precision"
    size = sum(array.nbytes for array in arrays.values())
    about = f"{len(export.cells.diagram)} cells; {kind}", f"{size} bytes, {precision}"
    chosen = {flag for flag, is_set in flags.items() if is_set} | constants.keys() - {"CELLS"}
    parts = [
        _about(export, *about, _explanation(export, tables, found), compared),
        "#ifndef ODA_POLICY_H\n#define ODA_POLICY_H\n\n",
        "#include <math.h>\n" if export.blended else "",
        "#include <stdint.h>\n\n",
        defined(constants),
        *(table(name, array) for name, array in arrays.items()),
        _source("policy.h", chosen, arrays),
        "#endif\n",
    ]
    return "".join(parts)


def _in_integers(export: Export, found: Tables) -> tuple[IntegerTables, float | None]:
    """Return tables of integers, and the share of decisions that are the agent's, if known.

    Of tables with and without a ``tie``, which helps only where scores are equal, the better ones.
    """
    tables = found.in_integers(export.extent.reach)
    if export.visited is None:
        return tables, None
    points, choices, _, equal = export.visited
    both = tables, replace(tables, tie=0)
    shares = [float((one.choices(points, found.actions, equal) == choices).mean()) for one in both]
    best = int(np.argmax(shares))
    return both[best], shares[best]


def _table_of_states(export: Export, states: Numbered) -> str:
    """Return a header with a table of the actions in numbered states."""
    box, n = export.box, len(states.actions)
    actions = _unsigned(states.actions) if box is None else states.actions.astype(np.float32)
    constants = {
        "FEATURES": "1",
        "STATES": str(n),
        "FIRST_STATE": f"({states.first})",
        "ACTIONS": str(len(export.action_names)),
    }
    if box is None:
        constants["FIRST_ACTION"] = f"({export.first_action})"
    else:
        constants["COMPONENTS"] = str(len(box.low))
    explanation = [
        f"A state is a number from {states.first} to {states.first + n - 1}, and oda_table has the",
        "action of each" + (", counted from 0." if box is None else "."),
    ]
    parts = [
        _about(export, f"a table of {n} states", f"{actions.nbytes} bytes", explanation),
        "#ifndef ODA_POLICY_H\n#define ODA_POLICY_H\n\n#include <stdint.h>\n\n",
        defined(constants),
        table("oda_table", actions),
        _source("policy.h", constants, {}),
        "#endif\n",
    ]
    return "".join(parts)


def _joint_header(export: Export, policy: JointPolicy, fixed_point: bool) -> str:
    """Return a header of cells of states and actions."""
    if fixed_point:
        raise ValueError(
            "fixed_point is True: it must be False for cells of states and actions, which are in "
            "single precision"
        )
    assert export.box is not None
    low, high = export.box.bounds
    d, k = len(policy.origin), policy.n_cells
    arrays = {
        "oda_origin": policy.origin,
        "oda_transform": policy.transform,
        "oda_inverse": np.linalg.pinv(policy.transform[:, d:]),
        "oda_places": policy.places,
        "oda_planes": np.column_stack([policy.worth - policy.worth.max(), policy.slopes]),
        "oda_levels": policy.levels,
        "oda_low": low,
        "oda_high": high,
    }
    tables = {name: single(array) for name, array in arrays.items()}
    constants = {
        "FEATURES": str(d),
        "COMPONENTS": str(len(low)),
        "SIZE": "(ODA_FEATURES + ODA_COMPONENTS)",
        "CELLS": str(k),
        "NEAR": str(min(SHORTLIST, k)),
        "BLENDED": str(min(policy.n_nearest, k)),
        "LEVELS": str(policy.n_actions),
        "PARTS": str(PARTS),
        "STEP": number(STEP),
        "WIDTH": number(policy.width),
    }
    explanation = [
        "z = oda_transform (obs - oda_origin, u), where u is an action in units, from -1 to 1 of",
        "each component. Q(obs, u) is the mean of value + <slope, z - m_k>, rows of oda_planes,",
        "over the ODA_BLENDED cells whose oda_places m_k are nearest to z, with weights",
        "exp(-|z - m_k|^2 / ODA_WIDTH); values are less the greatest. Cell k stands for the",
        "action nearest to it, oda_inverse (m_k - z), clipped; the ODA_NEAR cells nearest to z",
        "with it are looked at. The action is the best of oda_levels and of those that the first",
        "ODA_PARTS cells stand for; then, for each component, of itself, ODA_STEP more or less,",
        "and the vertex of the parabola through these.",
    ]
    size = sum(array.nbytes for array in tables.values())
    about = f"{k} cells of states and actions, blended", f"{size} bytes, single precision"
    parts = [
        _about(export, *about, explanation),
        "#ifndef ODA_POLICY_H\n#define ODA_POLICY_H\n\n#include <math.h>\n\n",
        defined(constants),
        *(table(name, array) for name, array in tables.items()),
        source("oda_rl.agents.policies", "joint.h", ()),
        "#endif\n",
    ]
    return "".join(parts)


def _signature(export: Export) -> str:
    if export.box is None:
        return "int oda_policy(const float obs[ODA_FEATURES])"
    return "void oda_policy(const float obs[ODA_FEATURES], float action[ODA_COMPONENTS])"


def _arrays(
    export: Export, tables: FloatTables | IntegerTables, found: Tables
) -> dict[str, npt.NDArray[Any]]:
    arrays: dict[str, npt.NDArray[Any] | None] = {"oda_origin": tables.origin}
    if isinstance(tables, IntegerTables):
        arrays["oda_scale"] = tables.scale
        arrays["oda_offsets"] = tables.offsets
        arrays["oda_slopes"] = tables.slopes
        arrays["oda_shifts"] = tables.shifts
        arrays["oda_exponents"] = tables.exponents
    else:
        arrays["oda_diagram"] = tables.scores
        arrays["oda_codevectors"] = tables.parts
        arrays["oda_affine"] = tables.affine
    if export.box is not None:
        arrays["oda_low"], arrays["oda_high"] = export.box.bounds.astype(np.float32)
    if found.clauses is not None and isinstance(tables, FloatTables):
        arrays["oda_conditions"] = tables.conditions
        arrays["oda_ends"] = _unsigned(found.clauses.ends)
        barred = found.clauses.forbidden
        arrays["oda_forbidden"] = _unsigned(barred) if len(barred) else None
    arrays["oda_actions"] = None if found.actions is None else _unsigned(found.actions)
    arrays["oda_advantages"] = tables.advantages
    present = {name: array for name, array in arrays.items() if array is not None}
    if found.apart:
        present |= {name: present[name][1:] for name in SCORES if name in present}
    return {name: array for name, array in present.items() if len(array)}


def _unsigned(actions: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the actions in the smallest type that holds them."""
    return actions.astype(np.min_scalar_type(actions.max()))


def _source(name: str, flags: Iterable[str], tables: Iterable[str]) -> str:
    """Return a C file with what is flagged, or belongs to the tables."""
    flags = {*flags, *(name.removeprefix("oda_").upper() for name in tables)}
    text = source("oda_rl.agents.policies", name, flags)
    text = text if "TIE" in flags else text.replace(" - ODA_TIE", "")
    return text if "EQUAL" in flags else text.replace(" + ODA_EQUAL", "")


def _constants(
    export: Export, tables: FloatTables | IntegerTables, found: Tables
) -> dict[str, str]:
    constants = {
        "FEATURES": str(len(export.cells.origin)),
        "CELLS": str(len(export.cells.diagram)),
        "ACTIONS": str(len(export.action_names)),
    }
    if export.box is None:
        constants["FIRST_ACTION"] = f"({export.first_action})"
    else:
        constants["COMPONENTS"] = str(len(export.box.low))
    if found.clauses is not None:
        constants["ROWS"] = str(len(found.clauses.conditions))
        constants["CLAUSES"] = str(len(found.clauses.ends))
        constants["FORBIDDING"] = str(len(found.clauses.forbidden))
    if isinstance(tables, IntegerTables):
        constants["ONE"] = f"INT64_C({tables.one})"
        constants["CLIP"] = f"{CLIP}.0f"
    if export.blended:
        constants["NEAR"] = str(found.n_nearest)
    if export.blended and isinstance(tables, IntegerTables):
        constants["UNIT"] = number(tables.unit)
    if tables.tie > 0:
        tie = tables.tie
        constants["TIE"] = f"INT64_C({tie})" if isinstance(tie, int) else number(tie)
    if export.equal > 0.0:
        constants["EQUAL"] = number(export.equal)
    return constants


def _about(
    export: Export, policy: str, tables: str, explanation: list[str], compared: Sequence[str] = ()
) -> str:
    lines = [
        "A policy that oda_rl has learned, for C99.",
        "",
        f"Environment: {export.env_id or 'not known'}",
        f"Policy: {policy}",
        f"Tables: {tables}",
        *compared,
        "",
        f"{_signature(export)} takes an observation, flattened:",
        *_observed(export),
        *_returned(export),
        "",
        *explanation,
        *([] if export.certificate is None else ["", *export.certificate.lines]),
    ]
    return as_comment(lines)


def _observed(export: Export) -> list[str]:
    return [f"    obs[{j}]  {name}" for j, name in enumerate(export.names)]


def _returned(export: Export) -> list[str]:
    if export.box is None:
        names = enumerate(export.action_names, export.first_action)
        return ["and returns an action:", *(f"    {a}  {name}" for a, name in names)]
    bounds = zip(export.box.low, export.box.high, strict=True)
    ranges = [f"action[{i}]  from {low:g} to {high:g}" for i, (low, high) in enumerate(bounds)]
    known = [name if not name.startswith("action[") else "" for name in export.parts]
    return [
        "and writes an action, flattened:",
        *(f"    {text}  {name}".rstrip() for text, name in zip(ranges, known, strict=True)),
    ]


def _explanation(export: Export, tables: FloatTables | IntegerTables, found: Tables) -> list[str]:
    integers = isinstance(tables, IntegerTables)
    row = "k - 1" if found.apart else "k"
    lines = [
        f"The score of cell k is oda_diagram[{row}][0] + sum over j of "
        f"oda_diagram[{row}][1 + j] x[j],"
    ]
    if integers:
        lines = [
            "x[j] is obs[j] less oda_origin[j] in steps of 1 / oda_scale[j], rounded, and clipped",
            f"at {CLIP} steps. The score of cell k is, in 64 bits,",
            f"oda_offsets[{row}] ODA_ONE + 2 to the power of oda_shifts[{row}] times",
            f"the sum over j of oda_slopes[{row}][j] x[j],",
        ]
    if found.apart:
        lines.append("that of cell 0 is 0,")
    lines.append("and the nearest cell has the least score.")
    if tables.tie > 0:
        lines.append("Of scores that differ by less than ODA_TIE the first cell's counts as less.")
    if found.clauses is not None:
        lines += [
            "A clause holds where all of its rows in oda_conditions, of which oda_ends says where",
            "they end, are positive; rows are like those of scores. The first ones forbid actions,",
            "oda_forbidden; the first of the others that holds and is not forbidden is the cell.",
        ]
    if found.affine is not None:
        return [
            *(lines if len(found.scores) > 1 else []),
            "Component l of its action is oda_affine[k][l][0] + sum over j of",
            "oda_affine[k][l][1 + j] x[j], within oda_low and oda_high.",
        ]
    if found.actions is None and not export.blended:
        return [*lines, "Its number is the action, counted from 0."]
    if not export.blended:
        return [*lines, "Its action is in oda_actions, counted from 0."]
    unit = " ODA_UNIT" if integers else ""
    lines += [
        f"The ODA_NEAR nearest have weights exp((least score - score){unit}). In a row of",
        "oda_advantages is how much better action 1, 2, ... is than action 0 in that cell;",
        "the action of greatest weighted sum is taken, the first of equals.",
        *(["Sums that differ by less than ODA_EQUAL are equal."] if export.equal > 0.0 else []),
    ]
    if export.box is not None:
        lines += [
            "Actions are numbers of codevectors of actions here: what is written is the weighted",
            "mean of those with this number in oda_codevectors, within oda_low and oda_high.",
        ]
    if integers:
        lines.append("Advantages of row k are in units of 2 to the power of oda_exponents[k].")
    return lines


def learner_header(export: Export, agent: Trained) -> str:
    """Return a C99 header with a struct that learns, and functions for it.

    Raises ValueError if the agent does not learn online, or a certificate is given.
    """
    learner: Any = agent
    settings, cells = getattr(agent, "config", None), export.cells
    if export.joint is not None:
        raise ValueError(
            "learn is True: it must be False for cells of states and actions; an agent with "
            "action_bins=5 learns to choose among five values"
        )
    if cells.common is None or not hasattr(settings, "step_size_steps"):
        raise ValueError(
            f"learn is True: it must be False for a {type(agent).__name__}, which does not learn "
            "step by step; TwoTimescaleAgent does"
        )
    if export.certificate is not None:
        raise ValueError("certificate is given: it must be None where learn is True")
    # In units in which the step size of slopes is that of values.
    metric = learner.metric_ * SLOPE_RATE / cells.width
    units = np.sqrt(np.diag(metric))
    units[units == 0.0] = 1.0
    transform = root(metric / np.outer(units, units), 0.5, 0.0)
    slopes = (cells.common[:, 1:] / units) @ np.linalg.pinv(transform)
    exact = {
        "oda_mean": cells.origin,
        "oda_metric": transform * units,
        "oda_codevectors": ((export.codevectors - cells.origin) * units) @ transform.T,
        "oda_learned": np.column_stack([cells.values, slopes]),
    }
    arrays = {name: single(array) for name, array in exact.items()}
    constants = _learner_constants(export, settings, agent.num_timesteps)
    parts = [
        as_comment(_about_learner(export, sum(array.nbytes for array in arrays.values()))),
        "#ifndef ODA_LEARNER_H\n#define ODA_LEARNER_H\n\n",
        "#include <math.h>\n#include <stdint.h>\n\n",
        defined(constants),
        *(table(name, array) for name, array in arrays.items()),
        source("oda_rl.agents.policies", "learner.h", ()),
        "#endif\n",
    ]
    return "".join(parts)


def _learner_constants(export: Export, settings: Any, steps: int) -> dict[str, str]:
    cells, decay = export.cells, settings.gamma * settings.trace_decay
    exponent = settings.step_exponent
    last = decay * _MAX_TRACE  # steps after which a trace counts no more
    if 0.0 < decay < 1.0:
        last = min(last, math.log(SMALLEST_TRACE) / math.log(decay))
    power = "/ (elapsed)" if exponent == 1.0 else f"* powf(elapsed, {number(-exponent)})"
    return {
        "FEATURES": str(len(cells.origin)),
        "CELLS": str(len(cells.diagram)),
        "NEAR": str(min(cells.n_nearest, len(cells.diagram))),
        "ACTIONS": str(len(export.action_names)),
        "COLUMNS": "(ODA_ACTIONS + ODA_FEATURES)",
        "FIRST_ACTION": f"({export.first_action})",
        "TEMPERATURE": number(SLOPE_RATE),
        "CUT": f"{number(CUT * SLOPE_RATE)} /* farther than the nearest cell: no weight */",
        "DISCOUNT": number(settings.gamma),
        "TRACE_DECAY": f"{number(decay)} /* times gamma */",
        "TRACE_STEPS": str(int(last) + 2),
        "STEP_SIZE(elapsed)": f"({number(settings.step_size)} {power})",
        "STEP_SIZE_STEPS": number(settings.step_size_steps),
        "MIN_STEP_SIZE": number(settings.min_step_size),
        "MIN_NORM": number(MIN_NORM),
        "EXPLORATION": f"{number(settings.exploration)} /* probability at first */",
        "EXPLORATION_DECAY": f"{number(settings.exploration_decay)} /* steps that halve it */",
        "STEPS": f"UINT32_C({min(steps, 2**32 - 1)}) /* that were learned from so far */",
        "OPTIMISM": f"{number(cells.values.max())} /* every value, before anything is learned */",
        "LARGEST": "1e30f",
    }


def _about_learner(export: Export, table_bytes: int) -> list[str]:
    """Return what a reader has to know."""
    cells, actions, d = len(export.cells.diagram), len(export.action_names), len(export.names)
    near = min(export.cells.n_nearest, cells)
    size = 8 * cells * (actions + d) + 2 * cells + 4 * near * (2 + d)
    return [
        "A learner over cells that oda_rl has placed, for C99: true online Sarsa(lambda).",
        "",
        f"Environment: {export.env_id or 'not known'}",
        f"Cells: {cells}, which stay where they are; the {near} nearest are blended",
        f"State: {8 * math.ceil((size + 24) / 8)} bytes, an oda_learner, which the caller owns",
        f"Tables: {table_bytes} bytes, constant, single precision",
        "",
        "    static oda_learner learner;",
        "    oda_init(&learner, seed, 1);           goes on from oda_learned; 0: from nothing",
        "    action = oda_begin(&learner, obs);     an episode; then do the action, and",
        "    action = oda_step(&learner, obs, reward, terminated);",
        "    action = oda_greedy(&learner, obs);    the best that is known; changes nothing",
        "",
        "oda_step learns from the reward and the observation that the latest action led to, and",
        "returns the next action. After the end of an episode, terminated (failed or arrived:",
        "nothing comes after it) or cut off, what it returns is not done: oda_begin goes on with",
        "the first observation of the next episode. From a reward or an observation that is not",
        "finite nothing is learned, and traces end.",
        "",
        "An observation, flattened, is",
        *_observed(export),
        *_returned(export),
        "",
        "x = oda_metric (obs - oda_mean). The nearest cells have weights w_k proportional to",
        "exp(-|x - m_k|^2 / ODA_TEMPERATURE), m_k = oda_codevectors[k]; the value of action a is",
        "the sum of w_k (q_ka + <g_k, x - m_k>). A row of oda_learned is what the agent had",
        "learned in ODA_STEPS steps: the values q_ka, and the slope g_k; from nothing, all values",
        "are the greatest of these, ODA_OPTIMISM, so that every action is tried. An action is",
        "random with probability ODA_EXPLORATION / (1 + steps / ODA_EXPLORATION_DECAY). Step sizes",
        "are divided by the sum of squares of w_k and w_k (x - m_k). The agent in Python also",
        "places cells, holds random actions for several steps, and delivers the best of its",
        "snapshots. Random numbers are PCG32 (O'Neill 2014), stream 54; the seed is any 32 bits.",
    ]
