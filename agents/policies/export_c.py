"""Policies as C99 headers: a few tables, and a function that looks up the action (``policy.h``).

A learner (``learner.h``) does what the online agent does on its fast timescale: true online
Sarsa(λ) with exploration, over cells that stay where they are.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from oda_rl._types import Array
from oda_rl.agents.policies.contract import CUT, MIN_NORM, SLOPE_RATE, SMALLEST_TRACE, Trained
from oda_rl.agents.policies.export_tables import CLIP, Export, Numbered, single
from oda_rl.agents.policies.joint import PARTS, SHORTLIST, STEP, JointPolicy
from oda_rl.exporting.c_text import header, number, source
from oda_rl.metric import root

MIN_AGREEMENT = 0.999  # share of decisions in which tables of 16 bits have to be the agent's

_SCORES = ("diagram", "offsets", "slopes", "shifts")
_MAX_TRACE = 65_533  # steps, in 16 bits


def c_header(export: Export, fixed_point: bool = False, allow_disagreement: bool = False) -> str:
    """Return a C99 header; see :func:`oda_rl.agents.policies.export.export_policy`."""
    if export.numbered is not None and not (fixed_point and export.box is not None):
        return _table_of_states(export, export.numbered)
    if export.joint is not None:
        return _joint_header(export, export.joint, fixed_point)
    if fixed_point:
        export = replace(export, whole=False)
    found, agreement = export.tables(), []
    integers = found.in_integers(export.extent.reach) if fixed_point else None
    if integers is not None and export.recent is not None:
        chosen = integers.choices(export.recent, found.actions)
        share = float((chosen == export.choices).mean())
        agreement = [
            f"{100 * share:.4g} % of decisions in {len(chosen):,} states of its training are the "
            "agent's"
        ]
        if share < MIN_AGREEMENT and not allow_disagreement:
            raise ValueError(
                f"fixed_point is True: {agreement[0]}, and at least {100 * MIN_AGREEMENT:g} % must "
                "be; export in single precision, without fixed_point (--fixed-point), or with "
                "allow_disagreement=True (--allow-disagreement)"
            )
    constants = {"FEATURES": len(found.origin), "CELLS": len(found.scores), **_actions(export)}
    blended, clauses = found.advantages is not None, export.cells.clauses
    arrays = found.in_floats() if integers is None else dict(integers.arrays)
    if integers is not None:
        constants |= {"ONE": f"INT64_C({integers.one})", "CLIP": f"{CLIP}.0f"}
    if found.actions is not None:
        arrays["actions"] = _narrowed(found.actions)
    if clauses is not None:
        arrays["ends"], arrays["forbidden"] = map(_narrowed, (clauses.ends, clauses.forbidden))
        constants |= {"CLAUSES": len(clauses.ends), "FORBIDDING": len(clauses.forbidden)}
    if export.box is not None:
        arrays["low"], arrays["high"] = export.limits
    if found.apart:
        arrays |= {name: arrays[name][1:] for name in _SCORES if name in arrays}
    if blended:
        constants |= {"NEAR": found.n_nearest, "TIE": number(found.tie)}
    if blended and integers is not None:
        constants["UNIT"] = number(integers.unit)
    tables = {f"oda_{name}": array for name, array in arrays.items() if len(array)}
    flags = {
        "ONLY": len(found.scores) == 1 and found.apart and clauses is None,
        "FIXED": integers is not None,
        "WHOLE": found.whole,
        "CURVED": found.curved,
        "NUMBERS": found.actions is None and not blended,
        "APART": found.apart,
        "LOOKED_UP": found.actions is not None,
    }
    flags["CELLS"] = not flags["ONLY"]
    k, n = len(export.cells.diagram), found.n_nearest
    near = f"the {n} nearest cells, blended" if blended else "the nearest cell decides"
    chosen_flags = {flag for flag, is_set in flags.items() if is_set}
    body = _source(chosen_flags | constants.keys() - {"CELLS"}, tables)
    tables |= _components(export)
    precision = ", 16-bit fixed point" if fixed_point else ", single precision"
    precision += ", scores in double" * found.whole
    what = f"{k} cells; {near}" if k > 1 else "one cell"
    if clauses is not None:
        what += f", after {len(clauses.ends)} clause{'s' * (len(clauses.ends) != 1)}"
        precision += ", clauses in double"
    about = _about(export, what, tables, precision, *agreement)
    return header("POLICY", about, blended, constants, tables, body)


def _source(flags: Iterable[str], tables: Iterable[str], name: str = "policy.h") -> str:
    """Return the parts of a file that are flagged, or belong to the tables."""
    of_tables = {key.removeprefix("oda_").upper() for key in tables}
    return source("oda_rl.agents.policies", name, {*flags, *of_tables})


def _actions(export: Export) -> dict[str, Any]:
    constants: dict[str, Any] = {"ACTIONS": len(export.action_names)}
    if export.box is not None:
        return constants | {"COMPONENTS": len(export.box.low)}
    return constants | {"FIRST_ACTION": f"({export.interface.first_action})"}


def _components(export: Export) -> dict[str, Array]:
    """Return the table of the components of numbered actions, exact, if they combine any."""
    parts = export.interface.combinations
    return {} if parts is None else {"oda_components": _narrowed(parts)}


def _narrowed(numbers: Array) -> Array:
    """Return whole numbers in the smallest type that holds them; others as they are."""
    ends = np.min_scalar_type(numbers.min(initial=0)), np.min_scalar_type(numbers.max(initial=0))
    return numbers if numbers.dtype.kind == "f" else numbers.astype(np.result_type(*ends))


def _table_of_states(export: Export, states: Numbered) -> str:
    first, n = states.first, len(states.actions)
    discrete = export.box is None
    actions = _narrowed(states.actions) if discrete else states.actions.astype(np.float32)
    if not discrete:
        actions = np.clip(actions, *export.limits)
    constants = {"FEATURES": 1, "STATES": n, "FIRST_STATE": f"({first})", **_actions(export)}
    tables = {"oda_table": actions, **_components(export)}
    about, body = _about(export, f"a table of {n} states", tables), _source(constants, ())
    return header("POLICY", about, False, constants, tables, body)


def _joint_header(export: Export, policy: JointPolicy, fixed_point: bool) -> str:
    if fixed_point:
        raise ValueError(
            "fixed_point is True: it must be False for cells of states and actions, which are in "
            "single precision"
        )
    low, high = export.limits
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
        "FEATURES": d,
        "COMPONENTS": len(low),
        "SIZE": "(ODA_FEATURES + ODA_COMPONENTS)",
        "CELLS": k,
        "NEAR": min(SHORTLIST, k),
        "BLENDED": min(policy.n_nearest, k),
        "LEVELS": policy.n_actions,
        "PARTS": PARTS,
        "STEP": number(STEP),
        "WIDTH": number(policy.width),
    }
    what = f"{k} cell{'s' * (k != 1)} of states and actions, blended"
    about, body = _about(export, what, tables, ", single precision"), _source((), (), "joint.h")
    return header("POLICY", about, True, constants, tables, body)


def _about(
    export: Export, what: str, tables: Mapping[str, Array], precision: str = "", *more: str
) -> list[str]:
    signature = "int oda_policy(const float obs[ODA_FEATURES])"
    if export.box is not None:
        signature = "void oda_policy(const float obs[ODA_FEATURES], float action[ODA_COMPONENTS])"
    return [
        "A policy that oda_rl has learned, for C99.",
        "",
        f"Environment: {export.env_id or 'not known'}",
        f"Policy: {what}",
        f"Tables: {sum(array.nbytes for array in tables.values())} bytes{precision}",
        *more,
        "",
        f"{signature} takes an observation, flattened:",
        *_interface(export),
    ]


def _interface(export: Export) -> list[str]:
    first = export.interface.first_action
    observed = [f"    obs[{j}]  {name}" for j, name in enumerate(export.interface.names)]
    if export.box is None:
        names = [f"    {a}  {name}" for a, name in enumerate(export.action_names, first)]
        of = "" if export.interface.combinations is None else ", a row of oda_components"
        return [*observed, f"and returns an action{of}:", *names]
    bounds = zip(export.box.low, export.box.high, strict=True)
    ranges = [f"action[{i}]  from {low:g} to {high:g}" for i, (low, high) in enumerate(bounds)]
    parts = export.interface.action_names
    known = [name if not name.startswith("action[") else "" for name in parts]
    return [
        *observed,
        "and writes an action, flattened; 0, or the bound nearest to 0, for what is no number:",
        *(f"    {text}  {name}".rstrip() for text, name in zip(ranges, known, strict=True)),
    ]


def learner_header(export: Export, agent: Trained) -> str:
    """Return a C99 header of a learner; raise ValueError if the agent does not learn online."""
    learner: Any = agent
    settings, cells = getattr(agent, "config", None), export.cells
    if export.joint is not None:
        raise ValueError(
            "learn is True: it must be False for cells of states and actions; train with "
            "action_bins=5 (--action-bins 5), which makes a grid of actions, to learn in C"
        )
    if cells.common is None or not hasattr(settings, "step_size_steps"):
        raise ValueError(
            f"learn is True: it must be False for a {type(agent).__name__}, which does not learn "
            "step by step; TwoTimescaleAgent does"
        )
    if hasattr(learner.partition, "weights"):
        raise ValueError(
            "learn is True: it must be False for cells with weights, which partition='gmm' and "
            "'infex' have; other partitions can"
        )
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
    tables = {**{name: single(array) for name, array in exact.items()}, **_components(export)}
    about = _about_learner(export, sum(array.nbytes for array in tables.values()))
    constants = _learner_constants(export, settings, learner.steps_since_change)
    return header("LEARNER", about, True, constants, tables, _source((), (), "learner.h"))


def _learner_constants(export: Export, settings: Any, steps: int) -> dict[str, Any]:
    cells, decay = export.cells, settings.gamma * settings.trace_decay
    exponent = settings.step_exponent
    last = decay * _MAX_TRACE  # steps after which a trace counts no more
    if 0.0 < decay < 1.0:
        last = min(last, math.log(SMALLEST_TRACE) / math.log(decay))
    power = "/ (elapsed)" if exponent == 1.0 else f"* powf(elapsed, {number(-exponent)})"
    return {
        "FEATURES": len(cells.origin),
        "CELLS": len(cells.diagram),
        "NEAR": min(cells.n_nearest, len(cells.diagram)),
        "COLUMNS": "(ODA_ACTIONS + ODA_FEATURES)",
        **_actions(export),
        "TEMPERATURE": number(SLOPE_RATE),
        "CUT": f"{number(CUT * SLOPE_RATE)} /* farther than the nearest cell: no weight */",
        "DISCOUNT": number(settings.gamma),
        "TRACE_DECAY": f"{number(decay)} /* times gamma */",
        "TRACE_STEPS": int(last) + 2,
        "STEP_SIZE(elapsed)": f"({number(settings.step_size)} {power})",
        "STEP_SIZE_STEPS": number(settings.step_size_steps),
        "MIN_STEP_SIZE": number(settings.min_step_size),
        "MIN_NORM": number(MIN_NORM),
        "EXPLORATION": f"{number(settings.exploration)} /* probability at first */",
        "EXPLORATION_DECAY": f"{number(settings.exploration_decay)} /* steps that halve it */",
        "STEPS": f"UINT32_C({min(steps, 2**32 - 1)}) /* of learning since the world changed */",
        "OPTIMISM": f"{number(cells.values.max())} /* every value, before anything is learned */",
        "LARGEST": "1e30f",
    }


def _about_learner(export: Export, table_bytes: int) -> list[str]:
    cells, actions, d = *export.cells.values.shape, len(export.cells.origin)
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
        "returns the next action. After the end of an episode, terminated or cut off, what it",
        "returns is not done: oda_begin goes on with the first observation of the next episode.",
        "From a reward or an observation that is not finite nothing is learned.",
        "",
        "Each takes an observation, flattened:",
        *_interface(export),
        "",
        "x = oda_metric (obs - oda_mean). The nearest cells have weights w_k proportional to",
        "exp(-|x - m_k|^2 / ODA_TEMPERATURE), m_k = oda_codevectors[k]; the value of action a is",
        "the sum of w_k (q_ka + <g_k, x - m_k>). A row of oda_learned has the values q_ka and the",
        "slope g_k; from nothing, all values are the greatest of these, so that every action is",
        "tried. Random numbers are PCG32 (O'Neill 2014), stream 54; the seed is any 32 bits.",
    ]
