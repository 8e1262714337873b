"""Simplify rules: fewer cells, numbers and digits without loss of return."""

import math
from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.imitation import constant
from oda_rl.agents.distilling.playing import BudgetedEnv, Deciding, draw_seeds
from oda_rl.agents.policies.rules import RulePolicy

_DIGITS = (1, 2, 3, 4)
MAX_SIMPLIFIED = 200  # numbers of a rule: one after the other is dropped

Rule = tuple[FloatArray, FloatArray]  # scores and outputs


def simplified(
    rule: Rule, states: FloatArray, as_good: Callable[[Rule], bool], most: float = math.inf
) -> Rule:
    """Return the simplest rule that is ``as_good``, by bisection, with as few digits.

    Its numbers are dropped in the order of how little that changes actions in states, (n, d). Of
    more than ``most`` numbers, only cells are dropped: that takes less time.
    """
    path = [(grounded(rule[0]), rule[1])]
    while (shorter := _shortened(path[-1], states, path[0], most)) is not None:
        path.append(shorter)
    path.reverse()  # the simplest first
    scores, outputs = distinct(path[bisect_left(path, True, hi=len(path) - 1, key=as_good)])
    scores = unit_slopes(scores)
    for digits in _DIGITS:
        short = rounded(scores, digits), rounded(outputs, digits)
        if as_good(short):
            return distinct(short)
    return scores, outputs


def distinct(rule: Rule) -> Rule:
    """Drop cells with the same score as an earlier one."""
    scores, outputs = rule
    kept = np.sort(np.unique(scores, axis=0, return_index=True)[1])
    return scores[kept], outputs[kept]


def grounded(scores: FloatArray) -> FloatArray:
    """Subtract what all scores have in common, so that as many numbers as possible are 0."""
    if len(scores) == 2:
        return np.asarray(scores - scores[0])
    middle = np.argsort(np.abs(scores - np.median(scores, axis=0)), axis=0, kind="stable")[0]
    return np.asarray(scores - scores[middle, np.arange(scores.shape[1])])


def unit_slopes(scores: FloatArray) -> FloatArray:
    """Scale scores so that the smallest slope is 1."""
    sizes = np.abs(scores[:, 1:])
    return scores / sizes[sizes > 0.0].min() if sizes.any() else scores


def rounded(numbers: FloatArray, digits: int) -> FloatArray:
    """Round to significant digits."""
    size = np.abs(numbers)
    powers = 10.0 ** (digits - 1 - np.floor(np.log10(np.where(size > 0.0, size, 1.0))))
    return np.asarray(np.round(numbers * powers) / powers)


def _shortened(rule: Rule, states: FloatArray, original: Rule, most: float) -> Rule | None:
    """Drop the cell, or the number, that changes actions least, per number dropped."""
    scores, outputs = rule
    done, discrete = _done(original, states), outputs.shape[2] == 1
    moves: list[tuple[float, Rule]] = []
    for k in range(len(scores) if len(scores) > 2 else 0):
        kept = np.arange(len(scores)) != k
        freed = (scores[k] != 0.0).sum() + (0 if discrete else (outputs[k] != 0.0).sum())
        moves.append((1.0 + freed, (grounded(scores[kept]), outputs[kept])))
    few = sum(map(np.count_nonzero, rule)) <= most
    for at in zip(*np.nonzero(scores), strict=True) if few else ():
        moves.append((1.0, (_without(scores, at), outputs)))
    for at in zip(*np.nonzero(outputs), strict=True) if few and not discrete else ():
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
    """Return a rule's actions, shape (n, ·): one-hot, or units of continuous ones."""
    scores, outputs = rule
    policy = RulePolicy(scores, outputs, np.zeros((len(scores), scores.shape[1] - 1)))
    if policy.continuous:
        return policy.act(states)
    return np.asarray(outputs[policy.cells(states), :, 0])


_MIN_STARTS, _MAX_STARTS, _STATES = 2, 48, 500
_TRIALS = 3  # beside bisection
_TOLERATED_ERROR, _TOLERATED_SHARE = 0.5, 0.01  # tolerated loss: standard errors, share
_HOPELESS = 0.1  # share lost after a third of the episodes, with which a trial ends
_MAX_SEEN = 50_000  # states
_MIN_CONFIRMING, _MAX_CONFIRMING = 12, 100  # starts, enough for rare failures to occur
MAX_CONFIRMING_EPISODES = 5 * _MAX_CONFIRMING  # by the rule, two smaller ones and the teacher


def smaller_rules(
    env: BudgetedEnv,
    rule: RulePolicy,
    states: FloatArray,
    seeds: list[int],
    length: float,
    rng: np.random.Generator,
) -> list[RulePolicy]:
    """Return simpler rules, found with the allowed steps; the first is the rule itself.

    ``states``, shape (n, d), are those in which decisions matter; rules are played from the starts
    of ``seeds``, in episodes of about ``length`` steps.
    """
    scores, outputs = distinct((unit_slopes(grounded(rule.scores)), rule.outputs))
    rule = RulePolicy(scores, outputs, rule.codevectors[: len(scores)])
    numbers = int((rule.scores != 0.0).sum() + rule.continuous * (rule.outputs != 0.0).sum())
    trials = _TRIALS + math.log2(numbers + 1)
    seeds = seeds[: int(np.clip(env.left / (trials * length), _MIN_STARTS, _MAX_STARTS))]
    before = env.play(rule, seeds)
    accepted = [rule]
    rows = rng.choice(len(states), min(len(states), _STATES), replace=False)
    varies = not constant(rule, states)

    def as_good(other: Rule) -> bool:
        smaller = RulePolicy(*other, rule.codevectors[: len(other[0])])
        if varies and constant(smaller, states[rows]):
            return False
        fine = len(before) > 0 and returns_if_as_good(env, smaller, seeds, before) is not None
        if fine:
            accepted.append(smaller)
        return fine

    simplified((rule.scores, rule.outputs), states[rows], as_good)
    return accepted


class Confirming:
    """Fresh starts, from which rules are compared with their teacher and each other."""

    def __init__(self, teacher: Deciding | None, rng: np.random.Generator) -> None:
        self.teacher, self.seeds = teacher, draw_seeds(rng, _MAX_CONFIRMING)
        self.taught: list[float] = []  # returns of the teacher, from the first of the starts

    def confirmed(
        self, env: BudgetedEnv, rules: list[RulePolicy], length: float
    ) -> tuple[RulePolicy, FloatArray, FloatArray]:
        """Return the smallest rule as good as the first, its returns, and its states, (m, d)."""
        players = 3 if len(rules) > 1 else 2
        n = int(min(env.left / (players * length), _MAX_CONFIRMING))
        d = env.interface.n_features
        seen = np.full((_MAX_SEEN, d), np.nan)
        before = env.play(rules[0], self.seeds[:n], seen)
        if self.teacher is not None:
            missing = self.seeds[len(self.taught) : len(before)]
            self.taught += env.play(self.teacher, missing).tolist()
        if len(before) >= _MIN_CONFIRMING:  # enough for rare failures to occur
            for one in (rules[-1], rules[len(rules) // 2]):
                if one is rules[0]:
                    break
                others = np.full((_MAX_SEEN, d), np.nan)
                returns = returns_if_as_good(env, one, self.seeds, before, others)
                if returns is not None:
                    return one, returns, _filled(others)
        return rules[0], before, _filled(seen)


def _filled(seen: FloatArray) -> FloatArray:
    return seen[~np.isnan(seen).any(axis=1)]


def returns_if_as_good(
    env: BudgetedEnv,
    other: Deciding,
    seeds: list[int],
    before: FloatArray,
    seen: FloatArray | None = None,
) -> FloatArray | None:
    """Return returns from common starts, or None if too much is lost; fill NaN rows of ``seen``."""
    scale = abs(float(before.mean()))
    returns = np.empty(0)
    for i, seed in enumerate(seeds[: len(before)]):
        room = None if seen is None else seen[len(_filled(seen)) :]
        returns = np.append(returns, env.play(other, [seed], room))
        if len(returns) <= i:
            return None
        if i == len(before) // 3 and (returns - before[: i + 1]).mean() < -_HOPELESS * scale:
            return None
    change = returns - before
    lost = min(_TOLERATED_ERROR * standard_error(change), _TOLERATED_SHARE * scale)
    return returns if change.mean() >= -lost else None


def standard_error(change: FloatArray) -> float:
    """Return the standard error of the mean; infinity for fewer than two."""
    if len(change) < 2:
        return math.inf
    return float(change.std(ddof=1)) / math.sqrt(len(change))
