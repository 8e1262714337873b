"""Search for rules: CMA-ES on real or imagined episodes, and races on common starts."""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.base.progress import report_work
from oda_rl.agents.distilling.coding import Coding, GradedCoding
from oda_rl.agents.distilling.playing import BudgetedEnv, Deciding, draw_seeds
from oda_rl.agents.worlds.coordinates import WorldArrays, scratch_for
from oda_rl.agents.worlds.simulation import imagine, without_unused_hinges

_ENOUGH = 0.5  # standard errors by which an incumbent must be beaten


@dataclass
class Imagination:
    """Evaluates rules in a learned world."""

    world: WorldArrays
    coding: Coding
    horizon: int
    draw_starts: Callable[[int], FloatArray]  # n states in which episodes may begin
    draw_seen: Callable[[int], FloatArray] | None = None  # draws n states that were visited
    steps: int = 0  # imagined so far

    def returns(
        self, scores: FloatArray, outputs: FloatArray, starts: FloatArray, explore: bool = False
    ) -> FloatArray:
        """Return the returns of P rules of K cells from n starts, shape (P, n).

        Scores (P, K, 1 + d) and outputs (P, K, ...) are those of :class:`RulePolicy
        <oda_rl.agents.policies.rules.RulePolicy>`; start i, shape (n, d), is played by law i modulo
        E. ``explore``: novelty instead of returns.
        """
        found, n_codes = np.empty((len(scores), len(starts))), self.world.laws.shape[1]
        self.steps += imagine(
            without_unused_hinges(self.world), scores, outputs, np.zeros((0, n_codes)), starts,
            self.horizon, explore, scratch_for(self.world), found,
            np.zeros((0, starts.shape[1] + 3)),
        )  # fmt: skip
        return found

    def from_lowest_reward(self) -> "Imagination":
        """Return the same with rewards counted from the lowest, so that no step costs."""
        world = self.world
        rewards, last, bounds = world.rewards.copy(), world.last.copy(), world.bounds.copy()
        rewards[: 1 if world.boxed else world.laws.shape[1]] -= bounds[0]
        last[:, -1] -= bounds[0]
        bounds[:2] -= bounds[0]
        return replace(self, world=world._replace(rewards=rewards, last=last, bounds=bounds))

    def returns_of(self, rule: tuple[FloatArray, FloatArray], starts: FloatArray) -> FloatArray:
        """Return the returns of one rule, (scores, outputs), from n starts, shape (n,)."""
        return np.asarray(self.returns(rule[0][None], rule[1][None], starts)[0])

    def means(
        self, vectors: FloatArray, n: int, explore: bool = False, wide: bool = False
    ) -> FloatArray:
        """Return mean returns of rules (vectors) from n starts; ``wide``: from visited states."""
        draw = self.draw_seen if wide and self.draw_seen is not None else self.draw_starts
        found = self.returns(*self.coding.decoded(vectors), draw(n), explore)
        return np.asarray(found.mean(axis=1))


class Raced(NamedTuple):
    """The result of a race."""

    best: int
    returns: list[list[float]]  # of each rule, from the first of the starts
    seeds: list[int]  # of the starts

    @property
    def last(self) -> FloatArray:
        """Returns of the rules that have played longest, shape (m, n)."""
        most = max(map(len, self.returns))
        return np.array([one for one in self.returns if len(one) == most])

    @property
    def order(self) -> list[int]:
        """Indices of all rules, the best first: by number of episodes, then by mean return."""
        means = [float(np.mean(one)) if one else 0.0 for one in self.returns]
        others = sorted(range(len(means)), key=lambda i: (-len(self.returns[i]), -means[i]))
        return [self.best, *(i for i in others if i != self.best)]


def race(
    env: BudgetedEnv, rules: list[Deciding], rng: np.random.Generator, incumbent: int | None = None
) -> Raced:
    """Find the best rule with the allowed steps by successive halving.

    All that are left play from the same starts; each round has an equal share of the steps, and the
    first at least one start. If steps end before all have played from it, those that have are
    better: put the most promising first. An incumbent stays to the end, and is replaced only by a
    rule that is better by half a standard error of the paired differences.
    """
    seeds: list[int] = []
    returns: list[list[float]] = [[] for _ in rules]
    alive = list(range(len(rules)))
    rounds = max(1, math.ceil(math.log2(len(rules))))
    for r in range(rounds):
        reserved = env.left * (rounds - r - 1) // (rounds - r)
        while env.left > (reserved if seeds else 0):
            (seed,) = draw_seeds(rng, 1)
            found = [env.play(rules[i], [seed]).tolist() for i in alive]
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
    for other in [i for i in alive if i != incumbent][:1]:
        n = min(len(returns[incumbent]), len(returns[other]))
        if better_by(returns[other][:n], returns[incumbent][:n]) > _ENOUGH:
            incumbent = other
    return Raced(incumbent, returns, seeds)


def better_by(ours: list[float], theirs: list[float]) -> float:
    """Return by how many standard errors paired returns are better; 0 for fewer than two."""
    if len(ours) < 2:
        return 0.0
    change = np.subtract(ours, theirs)
    error = float(change.std(ddof=1)) / math.sqrt(len(change))
    mean = float(change.mean())
    return mean / error if error > 0.0 else math.copysign(math.inf, mean) if mean else 0.0


def compare(env: BudgetedEnv, rules: list[Deciding], seeds: list[int]) -> FloatArray | None:
    """Return sums that rank rules, shape (n,); None if steps run out.

    All play from the first half of the starts, as long as they can be among the better half; only
    those also play from the others. The sum of the rest is minus infinity.
    """
    half, n_best = (len(seeds) + 1) // 2, (len(rules) + 1) // 2
    sums: list[float] = []
    for rule in rules:
        floor = sorted(sums)[-n_best] if len(sums) >= n_best else -np.inf
        found = _sum(env, rule, seeds[:half], floor)
        if found is None:
            return None
        sums.append(found)
    worth = np.full(len(rules), -np.inf)
    for i in np.argsort(-np.array(sums), kind="stable")[:n_best]:
        found = _sum(env, rules[i], seeds[half:], -np.inf)
        if found is None:
            return None
        worth[i] = sums[i] + found
    return worth


def _sum(env: BudgetedEnv, rule: Deciding, seeds: list[int], floor: float) -> float | None:
    """Return the sum of returns; minus infinity as soon as it must be below the floor."""
    total = 0.0
    for seed in seeds:
        returns = env.play(rule, [seed], floor=floor - total)
        if len(returns) == 0:
            return None
        total += float(returns[0])
        if total == -np.inf:
            break
    return total


class Climber:
    """CMA-ES, which maximises by :meth:`ask` and :meth:`tell`.

    The first ``n_moving`` of the numbers ``begin``, shape (n,), may change, by steps of size
    ``sigma``; a generation has ``population`` candidates, at least 4.
    Source: N. Hansen, "The CMA evolution strategy: a tutorial", arXiv 1604.00772 (2016).
    """

    def __init__(
        self,
        begin: FloatArray,
        sigma: float,
        population: int,
        rng: np.random.Generator,
        n_moving: int | None = None,
    ) -> None:
        n = len(begin) if n_moving is None else n_moving
        self._moving, self._fixed, self.sigma = begin[:n], begin[n:], sigma
        self._population, self._rng = population, rng
        weights = math.log((population + 1) / 2) - np.log(np.arange(1, population // 2 + 1))
        self._weights = weights / weights.sum()
        mass = self._mass = 1.0 / (self._weights**2).sum()
        self._c_sigma = (mass + 2.0) / (n + mass + 5.0)
        self._c_path = (4.0 + mass / n) / (n + 4.0 + 2.0 * mass / n)
        self._c_one = 2.0 / ((n + 1.3) ** 2 + mass)
        c_mu = 2.0 * (mass - 2.0 + 1.0 / mass) / ((n + 2.0) ** 2 + mass)
        self._c_mu = min(1.0 - self._c_one, c_mu)
        excess = max(0.0, math.sqrt((mass - 1.0) / (n + 1.0)) - 1.0)
        self._damping = 1.0 + 2.0 * excess + self._c_sigma
        self._expected = math.sqrt(n) * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n))
        self._covariance, self._axes, self._lengths = np.eye(n), np.eye(n), np.ones(n)
        self._path, self._path_sigma = np.zeros(n), np.zeros(n)
        self._generation = 0
        self._steps = np.zeros((0, n))

    @property
    def mean(self) -> FloatArray:
        """Mean of the distribution, shape (n,)."""
        return np.concatenate([self._moving, self._fixed])

    def ask(self) -> FloatArray:
        """Draw candidates, shape (population, n)."""
        draws = self._rng.standard_normal((self._population, len(self._moving)))
        self._steps = (draws * self._lengths) @ self._axes.T
        fixed = np.tile(self._fixed, (self._population, 1))
        return np.concatenate([self._moving + self.sigma * self._steps, fixed], axis=1)

    def tell(self, worth: FloatArray) -> None:
        """Update the distribution by the candidates' values, shape (population,)."""
        n = len(self._moving)
        self._generation += 1
        best = self._steps[np.argsort(-worth, kind="stable")[: len(self._weights)]]
        step = self._weights @ best
        self._moving = self._moving + self.sigma * step
        white = self._axes @ ((self._axes.T @ step) / self._lengths)
        c = self._c_sigma
        self._path_sigma *= 1.0 - c
        self._path_sigma += math.sqrt(c * (2.0 - c) * self._mass) * white
        length = float(np.linalg.norm(self._path_sigma))
        settled = length / math.sqrt(1.0 - (1.0 - c) ** (2 * self._generation))
        goes_on = float(settled < (1.4 + 2.0 / (n + 1.0)) * self._expected)
        c = self._c_path
        self._path *= 1.0 - c
        self._path += goes_on * math.sqrt(c * (2.0 - c) * self._mass) * step
        self._covariance *= (
            1.0 - self._c_one - self._c_mu + (1.0 - goes_on) * self._c_one * c * (2.0 - c)
        )
        self._covariance += self._c_one * np.outer(self._path, self._path)
        self._covariance += self._c_mu * (best.T * self._weights) @ best
        self.sigma *= math.exp(
            min(1.0, self._c_sigma / self._damping * (length / self._expected - 1.0))
        )
        every = max(1, int(1.0 / (10.0 * n * (self._c_one + self._c_mu))))
        if self._generation % every == 0:
            squares, self._axes = np.linalg.eigh(0.5 * (self._covariance + self._covariance.T))
            self._lengths = np.sqrt(np.maximum(squares, 1e-20))


_OFFSET = 0.5  # standard deviation of the offsets of random rules
_SAME, _EQUAL = 1e-9, 0.75  # if that share of rules is equally good, a search is over
_LONGEST = 4  # times as many generations, while returns grow
_WINDOW, _PROGRESS = 8, 0.01  # generations in which returns must grow by that share
_WIDE = 12  # more generations from visited states, of rules that are perfect from the starts


@dataclass(frozen=True)
class Effort:
    """The effort of a search in imagination."""

    random: int = 150  # rules to begin with
    population: int = 24
    generations: int = 25
    starts: int = 12
    sigma: float = 0.4


def search(
    where: Imagination,
    known: Sequence[tuple[FloatArray, FloatArray]],
    explore: bool,
    fresh: bool,
    effort: Effort,
    rng: np.random.Generator,
    graded: Coding | None = None,
) -> tuple[FloatArray, FloatArray, float]:
    """Search for the best rule in imagination: by CMA-ES, from the best of known and random ones.

    ``known`` rules are (scores, outputs). ``explore``: maximise novelty instead of returns.
    ``fresh``: climb from a new rule, to leave a local optimum, in the ``graded`` coding if there is
    one. Returns scores, outputs and the promised mean return.
    """
    old = [where.coding.encoded(*rule) for rule in known]
    sigma = effort.sigma
    if fresh and graded is not None:
        by_degrees = search(replace(where, coding=graded), (), explore, True, effort, rng)
        begin, sigma = where.coding.encoded(*by_degrees[:2]), 0.1  # it has been climbed before
    else:
        new = [where.coding.random(rng, _OFFSET) for _ in range(effort.random)]
        vectors = np.array([*old, *new, *_constant(where.coding)])
        first = where.means(vectors, max(effort.starts // 3, 3), explore)
        top = np.argsort(-first, kind="stable")[: 8 + len(old)]
        second = where.means(vectors[top], effort.starts, explore)
        if fresh and (top >= len(old)).any():
            second = np.where(top >= len(old), second, -np.inf)
        begin = vectors[top[np.argmax(second)]]
    climber = Climber(begin, sigma, effort.population, rng, where.coding.n_moving)
    before, wide, last = begin, False, _LONGEST * effort.generations
    for generation in range(1, last + 1):
        report_work(f"searching for a rule, generation {generation}")
        found = where.means(climber.ask(), effort.starts, explore, wide)
        if found.max() - np.quantile(found, 1.0 - _EQUAL) <= _SAME * np.abs(found).max():
            if wide or explore:
                break
            wide, last = True, generation + _WIDE
            continue  # ties at the top teach nothing
        climber.tell(found)
        if wide and generation >= last:
            break
        if generation % _WINDOW == 0:
            pair = where.means(np.array([before, climber.mean]), 4 * effort.starts, explore)
            before = climber.mean
            settled = pair[1] - pair[0] < _PROGRESS * abs(pair[0])
            at_most = pair[0] == pair[1] >= found.max()  # a horizon's, and no rule has more
            if settled and (at_most or generation >= effort.generations):
                break
    finalists = np.array([climber.mean, *old])
    final = where.means(finalists, 3 * effort.starts, explore)
    final[0] += 1e-6 * abs(final[0])
    best = int(np.argmax(final))
    if best > 0:
        return *known[best - 1], float(final[best])
    scores, outputs = where.coding.decoded(finalists[:1])
    return scores[0], outputs[0], float(final[0])


def _constant(coding: Coding) -> list[FloatArray]:
    """Return rules that always do the same: an action; the middle, or a bound of a component."""
    if isinstance(coding, GradedCoding):
        return []
    n, one = coding.n_outputs, np.eye(1, 1 + len(coding.mean))
    if coding.boxed:
        units = np.concatenate([np.zeros((1, n)), np.eye(n), -np.eye(n)])
        outputs = units[:, None, :, None] * one
        return [coding.encoded(np.zeros_like(one), output) for output in outputs]
    offsets = np.eye(n)[:, :, None] * one
    return [coding.encoded(scores, np.eye(n)[:, :, None]) for scores in offsets]


_SIGMA, _GENERATIONS = 0.2, 40
_MIN_STARTS, _MAX_STARTS, _ENOUGH_STARTS = 1, 32, 2
_DECIDING = 0.2  # share of the steps of a climb


def enough_steps(coding: Coding, length: float) -> float:
    """Return the steps of a climb, beyond which another climb from its end is worth more."""
    return _GENERATIONS * _population(coding) * _ENOUGH_STARTS * length / (1.0 - _DECIDING)


def _population(coding: Coding) -> int:
    return 4 + int(3 * math.log(coding.n_moving))


def ascend(
    env: BudgetedEnv,
    coding: Coding,
    vector: FloatArray,
    steps: float,
    enough: float,
    rng: np.random.Generator,
) -> Generator[None, None, tuple[FloatArray, list[int]] | None]:
    """Climb by CMA-ES on real episodes; then race start, middle, end and later mean of the climb.

    ``steps`` decide how many starts each of 40 generations has. If all return ``enough``, there is
    nothing to climb. Yields after each generation. Returns the best vector, and seeds of starts
    from which it was the best; None if there was nothing to choose from.
    """
    climbing = (1.0 - _DECIDING) * steps
    env.allow(climbing)
    climber = Climber(vector, _SIGMA, _population(coding), rng, coding.n_moving)
    means: list[FloatArray] = []
    n_starts, flat = _MIN_STARTS, 0
    while flat < 2:  # generations in a row
        before = env.steps
        asked: list[Deciding] = [coding.rule(one) for one in climber.ask()]
        worth = compare(env, asked, draw_seeds(rng, n_starts))
        if worth is None:
            break
        better = worth[np.isfinite(worth)]
        if np.ptp(better) > 0.0:
            flat = 0
        elif better[0] >= enough * n_starts:
            flat += 1
        else:
            climber.sigma *= 2.0  # all return the same, but not enough
        climber.tell(worth)
        means.append(climber.mean)
        wanted = climbing / _GENERATIONS * n_starts / (env.steps - before)
        n_starts = int(np.clip(wanted, _MIN_STARTS, min(2 * n_starts, _MAX_STARTS)))
        yield
    if len(means) < 2:
        return None
    later = means[len(means) // 2 :]
    vectors = [vector, later[0], later[-1], np.mean(later, axis=0)]
    env.allow(_DECIDING * steps)
    raced = race(env, [coding.rule(one) for one in vectors], rng, incumbent=0)
    return vectors[raced.best], raced.seeds
