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
def decide_by_rule(arrays: tuple[Any, ...], observation: FloatArray) -> int:
    """Return the action in a state by (scores, actions of the cells)."""
    scores, actions = arrays
    cell = integer(0)
    greatest = -np.inf
    for k in range(scores.shape[0]):
        score = _score(scores, k, observation)
        if score > greatest:
            greatest = score
            cell = k
    action: int = actions[cell]
    return action


@spliced
def decide_by_clauses(arrays: tuple[Any, ...], observation: FloatArray) -> int:
    """Return the action in a state by (scores, actions, conditions, ends, forbidden, said, room).

    See :class:`~oda_rl.agents.editing.clauses.Clauses`; the room is for what is forbidden.
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
