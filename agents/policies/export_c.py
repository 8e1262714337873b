"""Policies as C99 headers: a few tables, and a function that looks up the action (``policy.h``).

A learner (``learner.h``) does what the online agent does on its fast timescale: Watkins' Q(λ) with
exploration, freezing and restart over fixed cells. The power in its step size is computed without
``math.h``: the number of updates is halved until it is in [1, 2), which multiplies the result by a
constant each time, and a polynomial does the rest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl.agents.policies.contract import SETTLED_AFTER, SHORT, SMALLEST_TRACE, Trained
from oda_rl.agents.policies.export_tables import (
    CLIP,
    Export,
    FloatTables,
    IntegerTables,
    Numbered,
    Tables,
)
from oda_rl.agents.policies.table import TablePolicy
from oda_rl.exporting.c_text import (
    as_comment,
    defined,
    number,
    source,
    table,
)

MIN_AGREEMENT = 0.999
"""Share of decisions in which tables of 16 bits have to agree with the agent's."""

SCORES = ("oda_diagram", "oda_offsets", "oda_slopes", "oda_shifts")
_DEGREE = 10  # then the error is that of rounding, for any exponent in [0, 1]
_MAX_STEPS = 2**32 - 2  # that a count reaches; a restart after so many never comes
_MAX_EPISODES = 2**31 - 2


def c_header(export: Export, fixed_point: bool = False, allow_disagreement: bool = False) -> str:
    """Return a C99 header; see :func:`oda_rl.agents.policies.export.export_policy`."""
    if export.numbered is not None and not (fixed_point and export.box is not None):
        return _table_of_states(export, export.numbered)
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

    Raises ValueError if the agent has no Q-table over cells, or a certificate is given.
    """
    settings: Any = getattr(agent, "config", None)
    if not (isinstance(agent.policy, TablePolicy) and hasattr(settings, "solved_episodes")):
        raise ValueError(
            f"learn is True: it must be False for a {type(agent).__name__}, whose policy is no "
            "Q-table over cells that goes on learning with every step; TwoTimescaleAgent's is"
        )
    if export.certificate is not None:
        raise ValueError("certificate is given: it must be None where learn is True")
    found = export.tables(in_order=True)
    tables = found.in_floats()
    power = _power(settings.step_exponent)
    arrays = {"oda_diagram": tables.scores, "oda_origin": tables.origin, "oda_power": power}
    present = {name: array for name, array in arrays.items() if array is not None}
    constants = _learner_constants(export, settings)
    if tables.tie > 0:
        constants["TIE"] = number(tables.tie)
    parts = [
        as_comment(_about_learner(export, sum(array.nbytes for array in present.values()))),
        "#ifndef ODA_LEARNER_H\n#define ODA_LEARNER_H\n\n#include <stdint.h>\n\n",
        defined(constants),
        *(table(name, array) for name, array in present.items()),
        _source("learner.h", constants, present),
        "#endif\n",
    ]
    return "".join(parts)


def _power(exponent: float) -> npt.NDArray[np.float32]:
    """Return coefficients of m to minus a power, m = (3 + x) / 2 in [1, 2], the lowest first."""
    interpolated = np.polynomial.Chebyshev.interpolate(
        lambda x: ((3.0 + x) / 2.0) ** -exponent, _DEGREE
    )
    return interpolated.convert(kind=np.polynomial.Polynomial).coef.astype(np.float32)


def _learner_constants(export: Export, settings: Any) -> dict[str, str]:
    restart = settings.restart_after
    return {
        "FEATURES": str(len(export.cells.origin)),
        "CELLS": str(len(export.cells.diagram)),
        "ACTIONS": str(len(export.action_names)),
        "FIRST_ACTION": f"({export.first_action})",
        "DISCOUNT": number(settings.gamma),
        "TRACE_DECAY": f"{number(settings.gamma * settings.trace_decay)} /* times gamma */",
        "SMALLEST_TRACE": number(SMALLEST_TRACE),
        "MIN_STEP_SIZE": number(settings.min_step_size),
        "HALVED": f"{number(2.0**-settings.step_exponent)} /* step size at twice the updates */",
        "DEGREE": str(_DEGREE),
        "EXPLORATION": f"{number(settings.exploration)} /* probability at first */",
        "EXPLORATION_DECAY": f"{number(settings.exploration_decay)} /* steps that halve it */",
        "LARGEST": "3.4e38f",
        "SHORT": f"{number(SHORT)} /* share of what was gained that a success may lack */",
        "SETTLED_AFTER": f"UINT32_C({SETTLED_AFTER})",
        "FIRST_STEPS": f"UINT32_C({min(settings.warmup_steps, _MAX_STEPS)})",
        "SOLVED_EPISODES": str(min(settings.solved_episodes, _MAX_EPISODES)),
        "MAX_STEPS": f"UINT32_C({_MAX_STEPS})",
        "RESTART_AFTER": f"UINT32_C({min(restart, _MAX_STEPS) if restart else _MAX_STEPS})",
    }


def _about_learner(export: Export, table_bytes: int) -> list[str]:
    cells, actions = len(export.cells.diagram), len(export.action_names)
    return [
        "A learner over cells that oda_rl has placed, for C99: Watkins' Q(lambda), from nothing.",
        "",
        f"Environment: {export.env_id or 'not known'}",
        f"Cells: {cells}, which stay where they are; the nearest one is learned in",
        f"State: {16 * cells * actions + 56} bytes, an oda_learner, which the caller owns",
        f"Tables: {table_bytes} bytes, constant, single precision",
        "",
        "    oda_learner learner;",
        "    oda_init(&learner, seed);             any 32 bits; nothing is learned yet",
        "    action = oda_act(&learner, obs);      explores; then do the action, and",
        "    oda_learn(&learner, next_obs, reward, terminated, truncated);",
        "    action = oda_greedy(&learner, obs);   the best that is known; changes nothing",
        "",
        "oda_learn follows each oda_act, with the observation that the action led to. After an",
        "episode's end, terminated (failed or arrived: nothing comes after it) or truncated (cut",
        "off), oda_act goes on with the first observation of the next one. Of a reward that is not",
        "finite nothing is learned, and oda_learn returns 0, else 1. An observation that is not a",
        "number belongs to some cell. Who does another action than oda_act's says so in",
        "learner.action, counted from 0, before oda_learn.",
        "",
        "An observation, flattened, is",
        *_observed(export),
        *_returned(export),
        "",
        "The score of cell k is oda_diagram[k][0] + sum over j of oda_diagram[k][1 + j] x[j];",
        "x is obs, less oda_origin if that is there. The nearest cell has the least score.",
        "An action is random with the probability",
        "ODA_EXPLORATION / (1 + steps / ODA_EXPLORATION_DECAY). The n-th update of a value has",
        "the step size n to minus a power, but at least ODA_MIN_STEP_SIZE. An episode succeeds if",
        "its return, the sum of rewards, keeps what the best so far has gained over the mean of",
        "the first ones, but for a share of ODA_SHORT. After ODA_SOLVED_EPISODES in a row that",
        "succeed, ODA_SETTLED_AFTER steps or more after the best, learning rests until one falls",
        "short; if as many in a row fall short after more than",
        "ODA_RESTART_AFTER steps, it starts from nothing. Random numbers are PCG32 (O'Neill",
        "2014), stream 54.",
    ]
