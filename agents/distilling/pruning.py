"""A rule with fewer cells, numbers and digits, as far as real episodes return no less."""

import math
import warnings

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.playing import Deciding, Ground, drawn
from oda_rl.agents.model.simplifying import Rule, simplified
from oda_rl.agents.policies.rules import RulePolicy

_LEAST_STARTS, _MOST_STARTS, _STATES = 2, 48, 500
_TRIALS = 3  # that cost as much as the rule itself, beside bisection
_CONFIRMING = 2.0  # as much as the rule itself: steps for it, and for the first to be confirmed
_TOLERATED_ERROR, _TOLERATED_SHARE = 0.5, 0.01  # that fewer numbers may lose
_HOPELESS = 0.1  # share lost after a third of the episodes, to which the rest is not played


def pruned(
    ground: Ground,
    rule: RulePolicy,
    teacher: Deciding,
    states: FloatArray,
    length: float,
    rng: np.random.Generator,
) -> RulePolicy:
    """Drop what does not matter, with the steps that are allowed; compare with the teacher.

    A first half of the steps finds how much may go, from common starts; the second confirms that
    from fresh ones, or else something less is dropped. Warns if the rule is worse than its teacher.

    Parameters
    ----------
    ground : Ground
    rule : RulePolicy
    teacher : Deciding
    states : ndarray, shape (n, d)
        In which decisions matter.
    length : float
        Of an episode, about.
    rng : numpy.random.Generator
    """
    numbers = int((rule.scores != 0.0).sum() + rule.continuous * (rule.outputs != 0.0).sum())
    trials = _TRIALS + math.log2(numbers + 1)
    n = int(np.clip(0.5 * ground.left / (trials * length), _LEAST_STARTS, _MOST_STARTS))
    seeds = drawn(rng, n)
    before = ground.play(rule, seeds)
    taught = ground.play(teacher, seeds[: len(before)])
    if len(taught) < _LEAST_STARTS:
        warnings.warn(
            f"steps is {ground.most}: too few to compare the rule with its teacher, or to prune it",
            stacklevel=3,
        )
        return rule
    accepted: list[tuple[RulePolicy, FloatArray]] = [(rule, before)]

    def as_good(other: Rule) -> bool:
        smaller = RulePolicy(*other, rule.codevectors[: len(other[0])])
        returns = _returns_if_as_good(ground, smaller, seeds, before)
        if returns is not None:
            accepted.append((smaller, returns))
        return returns is not None

    rows = rng.choice(len(states), min(len(states), _STATES), replace=False)
    simplified((rule.scores, rule.outputs), states[rows], as_good)
    found, returns = _confirmed(ground, accepted, length, rng)
    _compare(returns[: len(taught)], taught)
    return found


def _confirmed(
    ground: Ground,
    accepted: list[tuple[RulePolicy, FloatArray]],
    length: float,
    rng: np.random.Generator,
) -> tuple[RulePolicy, FloatArray]:
    """Return the last that is as good as the first from fresh starts, too."""
    n = int(min(ground.left / (_CONFIRMING * length), _MOST_STARTS))
    seeds = drawn(rng, n)
    before = ground.play(accepted[0][0], seeds)
    if len(before) < _LEAST_STARTS:
        return accepted[-1]
    for one in accepted[:0:-1]:
        if _returns_if_as_good(ground, one[0], seeds, before) is not None:
            return one
    return accepted[0]


def _returns_if_as_good(
    ground: Ground, other: Deciding, seeds: list[int], before: FloatArray
) -> FloatArray | None:
    """Play from common starts; None as soon as it is clear that too much is lost."""
    scale = abs(float(before.mean()))
    returns = np.empty(0)
    for i, seed in enumerate(seeds[: len(before)]):
        returns = np.append(returns, ground.play(other, [seed]))
        if len(returns) <= i:
            return None
        if i == len(before) // 3 and (returns - before[: i + 1]).mean() < -_HOPELESS * scale:
            return None
    change = returns - before
    lost = min(_TOLERATED_ERROR * _error(change), _TOLERATED_SHARE * scale)
    return returns if change.mean() >= -lost else None


def _compare(ours: FloatArray, theirs: FloatArray) -> None:
    """Warn if a rule is worse than its teacher by more than a standard error."""
    change = ours - theirs
    if change.mean() < -_error(change):
        warnings.warn(
            f"the rule returns {ours.mean():.4g} where its teacher returns {theirs.mean():.4g} "
            f"({len(change)} episodes, standard error of the difference {_error(change):.2g}): "
            "more cells, or more steps, may do better",
            stacklevel=4,
        )


def _error(change: FloatArray) -> float:
    return float(change.std(ddof=1)) / math.sqrt(len(change))
