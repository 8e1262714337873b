"""Where the cells of a rule are: a point in each, to describe it by."""

from dataclasses import replace

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.policies.rules import RulePolicy


def placed(rule: RulePolicy, states: FloatArray) -> RulePolicy:
    """Return a rule with codevectors: a point that lies in each cell.

    It is the mean of the states in the cell; where clauses leave that to another cell, the one of
    the states that is nearest to it. Where there are none, it is a point deep inside the cell, as
    far as that reaches into the least box around all states, or else anywhere. A cell that decides
    nowhere has the mean of all states.

    Parameters
    ----------
    rule : RulePolicy
    states : ndarray, shape (n, d)
        At least one.

    Examples
    --------
    >>> scores = np.array([[0.0, 0.0], [-1.0, 1.0]])
    >>> rule = RulePolicy(scores, np.eye(2)[:, :, None], np.zeros((2, 1)))
    >>> placed(rule, np.array([[-1.0], [0.0], [0.5]])).codevectors.round(6).tolist()
    [[-0.166667], [2.0]]
    """
    cells = rule.cells(states)
    codevectors = np.tile(states.mean(axis=0), (rule.n_cells, 1))
    idle = []
    for k in range(rule.n_cells):
        own = states[cells == k]
        if len(own) == 0:
            idle.append(k)
            continue
        codevectors[k] = own.mean(axis=0)
        if rule.cells(codevectors[k : k + 1])[0] != k:  # edited: not convex
            codevectors[k] = own[np.abs(own - codevectors[k]).sum(axis=1).argmin()]
    if idle:
        unbounded = np.full(states.shape[1], np.inf)
        boxes = (states.min(axis=0), states.max(axis=0)), (-unbounded, unbounded)
        for low, high in boxes[::-1]:  # what lies in the first one is written last
            for piece in rule.pieces_within(low, high):
                if piece.cell in idle and rule.cells(piece.inside[None])[0] == piece.cell:
                    codevectors[piece.cell] = piece.inside
    return replace(rule, codevectors=codevectors)
