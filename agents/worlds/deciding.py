"""How a rule decides in a world that is imagined, alone and within clauses, to be compiled.

Here, too, ``n_features`` is a constant of each copy (:mod:`oda_rl.agents.worlds.imagination`).
"""

from typing import Any

import numpy as np

from oda_rl._compile import integer
from oda_rl._types import FloatArray
from oda_rl.agents.worlds.arrays import WorldArrays

n_features = 0


def unbarred(*arguments: Any) -> Any:
    """Stand for :func:`decide_freely`, which takes its place in each copy."""
    raise NotImplementedError


def decide_freely(
    world: WorldArrays, scores: FloatArray, outputs: FloatArray, s: FloatArray, code: FloatArray
) -> int:
    """Write the code of the action by a rule (:mod:`oda_rl.agents.policies.rules`); its cell.

    ``outputs`` has the shape (K, C, 1) where actions are discrete, else (K, p, 1 + d).
    """
    cell = integer(0)
    greatest = -np.inf
    for k in range(scores.shape[0]):
        score = scores[k, 0]
        for j in range(n_features):
            score += scores[k, 1 + j] * s[j]
        if score > greatest:
            greatest = score
            cell = k
    if outputs.shape[2] == 1:
        for c in range(outputs.shape[1]):
            code[c] = outputs[cell, c, 0]
    else:
        code[0] = 1.0
        for c in range(outputs.shape[1]):
            value = outputs[cell, c, 0]
            for j in range(n_features):
                value += outputs[cell, c, 1 + j] * s[j]
            code[1 + c] = min(max(value, -1.0), 1.0)
    return cell


def decide_within(
    world: WorldArrays, scores: FloatArray, outputs: FloatArray, s: FloatArray, code: FloatArray
) -> int:
    """Do what :func:`decide_freely` does, within clauses; -1 - i where the i-th of them decides."""
    discrete = outputs.shape[2] == 1
    barred, one, row, said = np.int64(0), np.int64(1), integer(0), integer(0)  # barred: bits
    for i in range(world.clauses.shape[0]):
        holds = True
        while row < world.clauses[i, 0]:
            total = world.conditions[row, 0]
            for j in range(n_features):
                total += world.conditions[row, 1 + j] * s[j]
            holds = holds and total > 0.0
            row += 1
        action = world.clauses[i, 1]
        if action >= 0:
            barred |= (one if holds else np.int64(0)) << action
            continue
        own = integer(0)
        while discrete and world.said[said, own, 0] <= 0.0:
            own += 1
        if holds and (barred >> own) & one == 0:
            unbarred(world, scores[:1], world.said[said : said + 1], s, code)
            return -1 - i
        said += 1
    cell, greatest = integer(-1), -np.inf
    for k in range(scores.shape[0]):
        own = integer(0)
        while discrete and outputs[k, own, 0] <= 0.0:
            own += 1
        score = scores[k, 0]
        for j in range(n_features):
            score += scores[k, 1 + j] * s[j]
        if score > greatest and (barred >> own) & one == 0:
            greatest = score
            cell = k
    if cell >= 0:
        unbarred(world, scores[cell : cell + 1], outputs[cell : cell + 1], s, code)
        return cell
    own = integer(0)
    while (barred >> own) & one != 0:
        own += 1
    for c in range(outputs.shape[1]):
        code[c] = 1.0 if c == own else 0.0
    return cell
