"""Which of several rules is best, from common starts."""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.playing import Deciding, Ground, drawn

_ENOUGH = 0.5  # standard errors by which an incumbent must be beaten


class Raced(NamedTuple):
    """How a race has ended."""

    best: int
    returns: list[list[float]]
    """Of each, from the first of the starts."""
    seeds: list[int]
    """Of the starts."""

    @property
    def last(self) -> FloatArray:
        """Returns of those that have played longest, shape (m, n)."""
        most = max(map(len, self.returns))
        return np.array([one for one in self.returns if len(one) == most])

    @property
    def order(self) -> list[int]:
        """All of them, the best first: those that have played longest, by their mean returns."""
        means = [float(np.mean(one)) if one else 0.0 for one in self.returns]
        others = sorted(range(len(means)), key=lambda i: (-len(self.returns[i]), -means[i]))
        return [self.best, *(i for i in others if i != self.best)]


def race(
    ground: Ground,
    rules: list[Deciding],
    rng: np.random.Generator,
    incumbent: int | None = None,
) -> Raced:
    """Find the best rule with the steps that are allowed: the worse half drops out, and so on.

    All that are left play from the same starts; each round has an equal share of the steps, and the
    first at least one start. If steps end before all have played from it, those that have are
    better: let those come first that promise most. An
    incumbent stays to the end, and is replaced only by one that is better by half a standard error
    of the paired differences.
    """
    seeds: list[int] = []
    returns: list[list[float]] = [[] for _ in rules]
    alive = list(range(len(rules)))
    rounds = max(1, math.ceil(math.log2(len(rules))))
    for r in range(rounds):
        reserved = ground.left * (rounds - r - 1) // (rounds - r)
        while ground.left > (reserved if seeds else 0):
            (seed,) = drawn(rng, 1)
            found = [ground.play(rules[i], [seed]).tolist() for i in alive]
            if not all(found) and seeds:
                break
            seeds.append(seed)
            for i, one in zip(alive, found, strict=True):
                returns[i] += one
        alive.sort(key=lambda i: (-len(returns[i]), -float(np.mean(returns[i] or [0.0]))))
        kept = alive[: (len(alive) + 1) // 2]
        if incumbent is not None and incumbent not in kept:
            kept = [*kept[: max(len(kept) - 1, 1)], incumbent]
        alive = kept
    if incumbent is None:
        return Raced(alive[0], returns, seeds)
    others = [i for i in alive if i != incumbent]
    n = len(returns[incumbent])
    if (
        others
        and better_by(returns[others[0]][:n], returns[incumbent][: len(returns[others[0]])])
        > _ENOUGH
    ):
        return Raced(others[0], returns, seeds)
    return Raced(incumbent, returns, seeds)


def better_by(ours: list[float], theirs: list[float]) -> float:
    """Return by how many standard errors paired returns are better; 0 of fewer than two.

    >>> round(better_by([2.0, 3.0, 4.0, 5.0], [1.0, 1.0, 1.0, 1.0]), 3)
    3.873
    """
    if len(ours) < 2:
        return 0.0
    change = np.subtract(ours, theirs)
    error = float(change.std(ddof=1)) / math.sqrt(len(change))
    mean = float(change.mean())
    return mean / error if error > 0.0 else math.copysign(math.inf, mean) if mean else 0.0


def compare(ground: Ground, rules: list[Deciding], seeds: list[int]) -> FloatArray | None:
    """Return sums by which rules can be ranked, shape (n,); None if steps do not last for that.

    All play from the first half of the starts, as long as they may be among the better half; only
    those also play from the others. The worth of the rest is minus infinity.
    """
    half, n_best = (len(seeds) + 1) // 2, (len(rules) + 1) // 2
    sums: list[float] = []
    for rule in rules:
        floor = sorted(sums)[-n_best] if len(sums) >= n_best else -np.inf
        found = _sum(ground, rule, seeds[:half], floor)
        if found is None:
            return None
        sums.append(found)
    worth = np.full(len(rules), -np.inf)
    for i in np.argsort(-np.array(sums), kind="stable")[:n_best]:
        found = _sum(ground, rules[i], seeds[half:], -np.inf)
        if found is None:
            return None
        worth[i] = sums[i] + found
    return worth


def _sum(ground: Ground, rule: Deciding, seeds: list[int], floor: float) -> float | None:
    """Return the sum of returns; minus infinity as soon as it will surely be below the floor."""
    total = 0.0
    for seed in seeds:
        returns = ground.play(rule, [seed], floor=floor - total)
        if len(returns) == 0:
            return None
        total += float(returns[0])
        if total == -np.inf:
            break
    return total
