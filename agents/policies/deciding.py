"""How compiled loops decide by a rule, and within clauses."""

from typing import Any

import numpy as np

from oda_rl._compile import integer, spliced
from oda_rl._types import FloatArray


@spliced
def _score(scores: FloatArray, k: int, observation: FloatArray) -> float:
    """Return the value of an affine function, row k."""
    score: float = scores[k, 0]
    for j in range(scores.shape[1] - 1):
        score += scores[k, 1 + j] * observation[j]
    return score


@spliced
def _greatest(scores: FloatArray, observation: FloatArray) -> int:
    """Return the cell whose score is greatest; of equal ones the first."""
    cell = integer(0)
    greatest = -np.inf
    for k in range(scores.shape[0]):
        score = _score(scores, k, observation)
        if score > greatest:
            greatest = score
            cell = k
    return cell


@spliced
def decide_by_rule(arrays: tuple[Any, ...], observation: FloatArray) -> int:
    """Return the action in a state by (scores, actions of the cells)."""
    scores, actions = arrays
    action: int = actions[_greatest(scores, observation)]
    return action


@spliced
def decide_in_box(arrays: tuple[Any, ...], observation: FloatArray) -> int:
    """Write the action in a state by (scores, outputs, low, high, room); return 0, its place.

    ``room``, shape (1, p), is all that compiled loops have to choose from.
    """
    scores, outputs, low, high, room = arrays
    cell = _greatest(scores, observation)
    for c in range(outputs.shape[1]):
        unit = outputs[cell, c, 0]
        for j in range(outputs.shape[2] - 1):
            unit += outputs[cell, c, 1 + j] * observation[j]
        if unit < -1.0:
            unit = -1.0
        elif unit > 1.0:
            unit = 1.0
        room[0, c] = 0.5 * ((1.0 - unit) * low[c] + (1.0 + unit) * high[c])
    return 0


@spliced
def decide_by_clauses(arrays: tuple[Any, ...], observation: FloatArray) -> int:
    """Return the action in a state by (scores, actions, conditions, ends, forbidden, said, room).

    See :class:`~oda_rl.agents.rules.editing.Clauses`; the room is for what is forbidden.
    """
    scores, actions, conditions, ends, forbidden, said, barred = arrays
    for a in range(barred.shape[0]):
        barred[a] = False
    row = integer(0)
    for c in range(ends.shape[0]):
        holds = True
        while row < ends[c]:
            holds = holds and _score(conditions, row, observation) > 0.0
            row += 1
        if holds and c < forbidden.shape[0]:
            barred[forbidden[c]] = True
        elif holds and not barred[said[c - forbidden.shape[0]]]:
            by_clause: int = said[c - forbidden.shape[0]]
            return by_clause
    cell = integer(0)
    greatest = -np.inf
    for k in range(scores.shape[0]):
        score = _score(scores, k, observation)
        if score > greatest and not barred[actions[k]]:
            greatest = score
            cell = k
    action: int = actions[cell]
    return action
