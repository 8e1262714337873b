"""A rule made smaller: cells dropped, numbers dropped, digits dropped, as far as returns stay.

What changes fewest decisions goes first. How far along that path the return stays, bisection finds;
then so few digits as will do.
"""

from collections.abc import Callable

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.policies.rules import RulePolicy

_DIGITS = (1, 2, 3, 4)

Rule = tuple[FloatArray, FloatArray]
"""Scores and outputs."""


def simplified(rule: Rule, states: FloatArray, as_good: Callable[[Rule], bool]) -> Rule:
    """Return a rule with fewer numbers.

    Parameters
    ----------
    rule : (scores, outputs)
        See :class:`~oda_rl.agents.policies.rules.RulePolicy`.
    states : ndarray, shape (n, d)
        In which its decisions matter.
    as_good : callable
        Whether a rule is good enough.
    """
    path = [(grounded(rule[0]), rule[1])]
    while (shorter := _shortened(path[-1], states, path[0])) is not None:
        path.append(shorter)
    first, last = 0, len(path) - 1
    while first < last:
        middle = (first + last + 1) // 2
        if as_good(path[middle]):
            first = middle
        else:
            last = middle - 1
    scores, outputs = distinct(path[first])
    scores = unit_slopes(scores)
    for digits in _DIGITS:
        short = rounded(scores, digits), outputs if _discrete(outputs) else rounded(outputs, digits)
        if as_good(short):
            return distinct(short)
    return scores, outputs


def distinct(rule: Rule) -> Rule:
    """Return a rule without cells that are never chosen, because an earlier one scores the same.

    >>> scores, outputs = distinct((np.zeros((2, 3)), np.eye(2)[:, :, None]))
    >>> scores.shape, outputs[:, :, 0].tolist()
    ((1, 3), [[1.0, 0.0]])
    """
    scores, outputs = rule
    kept = np.sort(np.unique(scores, axis=0, return_index=True)[1])
    return scores[kept], outputs[kept]


def grounded(scores: FloatArray) -> FloatArray:
    """Subtract what all scores have in common, so that as many numbers as can be are 0.

    >>> grounded(np.array([[1.0, 5.0], [1.0, 2.0], [4.0, 2.0]]))
    array([[0., 3.],
           [0., 0.],
           [3., 0.]])
    """
    if len(scores) == 2:
        return np.asarray(scores - scores[0])
    middle = np.argsort(np.abs(scores - np.median(scores, axis=0)), axis=0, kind="stable")[0]
    return np.asarray(scores - scores[middle, np.arange(scores.shape[1])])


def unit_slopes(scores: FloatArray) -> FloatArray:
    """Multiply scores by the positive constant that makes the least slope 1.

    >>> unit_slopes(np.array([[0.0, 0.0, 0.0], [1.0, -0.2, 3.0]]))
    array([[ 0.,  0.,  0.],
           [ 5., -1., 15.]])
    """
    sizes = np.abs(scores[:, 1:])
    return scores / sizes[sizes > 0.0].min() if sizes.any() else scores


def rounded(numbers: FloatArray, digits: int) -> FloatArray:
    """Round to so many significant digits.

    >>> rounded(np.array([0.0, 123.4, -0.056]), 1).tolist()
    [0.0, 100.0, -0.06]
    """
    size = np.abs(numbers)
    powers = 10.0 ** (digits - 1 - np.floor(np.log10(np.where(size > 0.0, size, 1.0))))
    return np.asarray(np.round(numbers * powers) / powers)


def _discrete(outputs: FloatArray) -> bool:
    return bool(outputs.shape[2] == 1)


def _shortened(rule: Rule, states: FloatArray, original: Rule) -> Rule | None:
    """Drop the cell, or the number, that changes least of what is done, for each number dropped."""
    scores, outputs = rule
    done = _done(original, states)
    moves: list[tuple[float, Rule]] = []
    for k in range(len(scores) if len(scores) > 2 else 0):
        kept = np.arange(len(scores)) != k
        freed = (scores[k] != 0.0).sum() + (0 if _discrete(outputs) else (outputs[k] != 0.0).sum())
        moves.append((1.0 + freed, (grounded(scores[kept]), outputs[kept])))
    for at in zip(*np.nonzero(scores), strict=True):
        moves.append((1.0, (_without(scores, at), outputs)))
    if not _discrete(outputs):
        for at in zip(*np.nonzero(outputs), strict=True):
            moves.append((1.0, (scores, _without(outputs, at))))
    if not moves:
        return None
    costs = [np.abs(_done(move, states) - done).mean() / freed for freed, move in moves]
    return moves[int(np.argmin(costs))][1]


def _without(numbers: FloatArray, at: tuple[int, ...]) -> FloatArray:
    fewer = numbers.copy()
    fewer[at] = 0.0
    return fewer


def _done(rule: Rule, states: FloatArray) -> FloatArray:
    """Return what a rule does, shape (n, ·): codes of discrete actions, units of others."""
    scores, outputs = rule
    policy = RulePolicy(scores, outputs, np.zeros((len(scores), scores.shape[1] - 1)))
    if policy.continuous:
        return policy.act(states)
    return np.asarray(outputs[policy.cells(states), :, 0])
