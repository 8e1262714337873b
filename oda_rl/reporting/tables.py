"""A policy as a table, in the words that terminals and pages share."""

from typing import TYPE_CHECKING

import numpy as np

from oda_rl.agents.policies.explaining import value_text
from oda_rl.plotting.agents import MOST_ACTIONS, MOST_ROWS, shown_components

if TYPE_CHECKING:
    from oda_rl.agents.policies.explaining import Overview


def policy_rows(policy: "Overview") -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of a policy: a row for each cell, those visited most first.

    Columns: number of the cell, share of the states visited, how often the agent has learned from
    it, its codevector, the value of each action there, by how much the best is worth more than the
    next, and which that is. There are at most 40 rows, and as many components as are shown.
    """
    actions = range(len(policy.action_names) if len(policy.action_names) <= MOST_ACTIONS else 0)
    components = shown_components(policy)
    headings = ["cell", "visited, %", "learned from", *(policy.names[j] for j in components)]
    value = policy.value_name
    headings += [f"{value} of {policy.action_names[a]}" for a in actions] or [value]
    rows = []
    for i in range(min(len(policy.cells), MOST_ROWS)):
        values = [policy.q_values[i, a] for a in actions or policy.actions[i : i + 1]]
        row = [
            str(policy.cells[i]),
            "" if np.isnan(policy.shares[i]) else f"{100.0 * policy.shares[i]:.1f}",
            f"{policy.visits[i]:,.0f}",
            *(f"{policy.codevectors[i, j]:.3g}" for j in components),
            *map(value_text, values),
            "" if np.isinf(policy.margins[i]) else f"{policy.margins[i]:.2g}",
            policy.labels[i],
        ]
        rows.append(row)
    return [*headings, "margin", "action"], rows


def policy_remarks(policy: "Overview") -> list[str]:
    """Return what a reader of :func:`policy_rows` should know: what is left out, what blends."""
    remarks = []
    n, rest = len(policy.cells), policy.shares[MOST_ROWS:].sum()
    if n > MOST_ROWS:
        share = "" if np.isnan(rest) else f", where {100.0 * rest:.1f} % of the states visited are"
        remarks.append(f"{n - MOST_ROWS} more cells are left out{share}")
    if policy.nowhere:
        remarks.append(f"{policy.nowhere} more cells decide nowhere that is known")
    left_out = len(policy.names) - len(shown_components(policy))
    if left_out:
        remarks.append(f"{left_out} more components differ less between the cells")
    if policy.agreement < 1.0:
        remarks.append(
            f"neighbouring cells are blended: in {100.0 * policy.agreement:.1f} % of the states "
            "visited the action is that of the cell's row"
        )
    return remarks
