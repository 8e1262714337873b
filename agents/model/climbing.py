"""Climb one affine rule in real episodes, for continuous actions of any number of components.

Antithetic random search: two rules, a little off the present one in opposite directions, play from
the same start; the present rule moves along the directions in which returns were greatest.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, SupportsFloat

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.playing import BudgetedEnv, draw_seeds
from oda_rl.agents.distilling.search import race
from oda_rl.agents.distilling.simplifying import (
    Rule,
    returns_if_as_good,
    simplest,
    standard_error,
)
from oda_rl.agents.policies.contract import InLoops
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.files.schema import Member, check, real, require, whole

_FIRST_STEPS = 200  # with random actions, to standardise observations
_DIRECTIONS, _MAX_DIRECTIONS = 8, 64
_NOISE, _STEP = 0.05, 0.03  # units of the box for each standard deviation of an observation
_STAGE = 10  # iterations, after which episodes get longer, or directions more
_MIN_HORIZON, _FIRST_HORIZON = 50, 0.1  # steps; share of the longest
_LONGER, _MUCH_LONGER, _AGREE = 1.5, 4.0, 0.4  # factors; correlation, below which the second
_EARLY = 4  # iterations after which that is found
_EQUAL = 1e-9  # relative difference of returns that is rounding
_VARIES = 1e-6  # standard deviation of a component, relative to its mean
_IDLE_STARTS, _CONSTANT = 8, 0.1  # to detect a survival bonus
_DECIDING, _PRUNING = 0.07, 0.08  # shares of all steps
_FINALISTS = 6
_MIN_STARTS, _MAX_STARTS, _TRIALS = 2, 48, 5  # of pruning; trials beside bisection
_MAX_PATH = 200  # rules of fewer numbers
_N_LATEST = 2000  # observations that are kept

SCHEMA: dict[str, Member] = {
    "output": real("p, 1+d"),
    "moments": real("2, d"),
    "counts": whole("3", "[0, 9007199254740992)"),
    "bonus": real("1", "[0, inf)"),
    "sum": real("p, 1+d"),
    "returns": real("returns"),
    "differences": real("differences, 2"),
    "stages": real("stages, p, 1+d"),
    "scores": real("stages, 2"),
    "latest": real("latest, d"),
}
"""Members of a file."""


class Episodes(gym.Wrapper[Any, Any, Any, Any]):
    """Cuts episodes after ``horizon`` steps, and notes those that end by themselves."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.horizon = 1
        self.observation: Any = None
        self.rewards: list[float] = []
        """Rewards of the latest episode."""
        self._ended: list[tuple[float, int, int]] = []
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.rewards = []
        self.observation, info = self.env.reset(seed=seed, options=options)
        return self.observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        self.observation, reward, terminated, truncated, info = self.env.step(action)
        self.rewards.append(float(reward))
        self._steps += 1
        length = len(self.rewards)
        if terminated or truncated:
            self._ended.append((sum(self.rewards), length, self._steps))
        return self.observation, reward, terminated, truncated or length >= self.horizon, info

    def ended(self) -> FloatArray:
        """Return the episodes that have ended since the last call, as training loops do."""
        rows, self._ended, self._steps = self._ended, [], 0
        return np.array(rows, dtype=np.float64).reshape(-1, 3)


@dataclass(frozen=True)
class _AtRandom:
    """Draws actions."""

    rng: np.random.Generator
    n_components: int
    in_loops: InLoops | None = None

    def act(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self.rng.uniform(-1.0, 1.0, (len(points), self.n_components))


@dataclass
class Climb:
    """A climb to one affine rule, which can be saved after each iteration.

    Directions are drawn in standardised observations, with mean and scale of all steps so far. The
    rule is of raw observations, and stays as it is where these change.

    Episodes are short at first, and longer in each stage of ten iterations, up to the time limit:
    much longer where the second half of episodes prefers other directions than the first. From then
    on the number of directions doubles where a stage is worse than the best by a standard error. A
    constant reward of each step, as for survival, is left out while climbing.

    References
    ----------
    H. Mania, A. Guy, B. Recht, "Simple random search of static linear policies is competitive for
    reinforcement learning", NeurIPS 2018.
    """

    output: FloatArray
    """The present rule: offset and slopes of each component in units of the box, (p, 1 + d)."""
    moments: FloatArray
    """Mean of the observations, and sum of their squared deviations, (2, d)."""
    latest: FloatArray
    """Latest observations, (n, d)."""
    n_observed: int = 0
    horizon: int = 0
    """Steps after which episodes are cut; 0 before the first."""
    n_directions: int = _DIRECTIONS
    bonus: float = 0.0
    """Constant reward of a step, which is left out."""
    stages: list[FloatArray] = field(default_factory=list)
    """Mean rule of each stage."""
    scores: list[tuple[float, float]] = field(default_factory=list)
    """Horizon of each stage, and mean return."""

    @classmethod
    def of(cls, n_components: int, seen: FloatArray) -> Self:
        """Begin with the rule 0, and the scale of the observations ``seen``, (n, d)."""
        d = seen.shape[1]
        new = cls(np.zeros((n_components, 1 + d)), np.zeros((2, d)), np.empty((0, d)))
        new._observe([seen])
        return new

    def __post_init__(self) -> None:
        self._sum = np.zeros_like(self.output)  # of the rules of the present stage
        self._returns: list[float] = []
        self._differences: list[FloatArray] = []
        self._seen = np.empty((0, 0))
        self.decides = False
        """Whether the climb is over: how far the comparison of its rules has got is not saved."""

    @property
    def rule(self) -> RulePolicy:
        """The present rule."""
        return self._rule(self.output)

    @property
    def deviation(self) -> FloatArray:
        """Standard deviations of the observation's components, (d,); 0 for constant ones."""
        found = np.sqrt(self.moments[1] / max(self.n_observed, 1))
        return np.where(found > _VARIES * (1.0 + np.abs(self.moments[0])), found, 0.0)

    @property
    def scale(self) -> FloatArray:
        """Inverse standard deviations of the components, (d,); 0 for constant ones."""
        deviation = self.deviation
        return np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0.0)

    def run(
        self,
        env: BudgetedEnv,
        place: Episodes,
        longest: int,
        begun: int,
        known: Sequence[RulePolicy],
        rng: np.random.Generator,
    ) -> Iterator[FloatArray]:
        """Climb, decide and prune; yield the episodes that have ended, after each iteration.

        Parameters
        ----------
        env : BudgetedEnv
            Plays in ``place``.
        place : Episodes
        longest : int
            Maximum number of steps of an episode.
        begun : int
            Steps that were taken before those of ``env``.
        known : sequence of RulePolicy
            Rules of one cell. A new climb begins with the best of these and 0, and has to beat
            them.
        """
        total = begun + env.most
        self._seen = np.empty((longest, self.moments.shape[1]))
        env.allow((1.0 - _DECIDING - _PRUNING) * total - begun)
        if self.horizon == 0:
            self._begin(env, place, longest, known, rng)
            yield place.ended()
        while env.left > 0 and self._iterate(env, place, longest, rng):
            yield place.ended()
        if self._returns:
            self._end_stage(longest)
        self.decides, place.horizon = True, longest
        env.allow((1.0 - _PRUNING) * total - begun - env.steps)
        order = sorted(range(len(self.stages)), key=self.scores.__getitem__, reverse=True)
        best = [self.rule, *(self._rule(self.stages[k]) for k in order[:_FINALISTS]), *known]
        raced = race(env, [*best], rng, len(best) - 1 if known else None)
        self.output = best[raced.best].outputs[0]
        self.stages, self.scores = [self.output], [max([*self.scores, (0.0, 0.0)])]
        yield place.ended()
        env.allow(env.most - env.steps)
        self.output, self.decides = self._pruned(env, rng), False
        yield place.ended()

    def _rule(self, output: FloatArray) -> RulePolicy:
        return RulePolicy(np.zeros((1, output.shape[1])), output[None], self.moments[:1].copy())

    @property
    def _coding(self) -> Coding:
        deviation = self.deviation
        scale = np.where(deviation > 0.0, deviation, 1.0)
        used = np.flatnonzero(deviation)
        return Coding(self.moments[0], scale, 1, len(self.output), True, True, used)

    def _vector(self, coding: Coding) -> FloatArray:
        return coding.encoded(np.zeros((1, self.output.shape[1])), self.output[None])

    def _begin(
        self,
        env: BudgetedEnv,
        place: Episodes,
        longest: int,
        known: Sequence[RulePolicy],
        rng: np.random.Generator,
    ) -> None:
        """Find the scale of observations, the survival bonus, and the rule to begin with."""
        self.horizon = min(max(_MIN_HORIZON, int(_FIRST_HORIZON * longest)), longest)
        place.horizon = self.horizon
        random = _AtRandom(rng, len(self.output))
        seen: list[FloatArray] = []
        rewards: list[float] = []
        while len(rewards) < _FIRST_STEPS and env.left > 0:
            env.play(random, draw_seeds(rng, 1), self._seen)
            seen.append(self._seen[: len(place.rewards)].copy())
            rewards += place.rewards
        self._observe(seen)
        place.horizon, idle = 1, []
        for seed in draw_seeds(rng, _IDLE_STARTS):
            env.play(self.rule, [seed])
            idle += place.rewards
        self.bonus = survival_bonus(np.array(idle), np.array(rewards))
        place.horizon = self.horizon
        rules, seeds = [self.rule, *known], draw_seeds(rng, _MIN_STARTS)
        if known:
            returns = [
                [self._halves(env, place, one, seed).sum() for seed in seeds] for one in rules
            ]
            self.output = rules[int(np.sum(returns, axis=1).argmax())].outputs[0]

    def _halves(self, env: BudgetedEnv, place: Episodes, rule: RulePolicy, seed: int) -> FloatArray:
        """Return what the halves of an episode return, without the bonus; NaN if steps ran out."""
        if len(env.play(rule, [seed], self._seen)) == 0:
            return np.full(2, np.nan)
        paid, middle = np.array(place.rewards) - self.bonus, place.horizon // 2
        return np.array([paid[:middle].sum(), paid[middle:].sum()])

    def _iterate(
        self, env: BudgetedEnv, place: Episodes, longest: int, rng: np.random.Generator
    ) -> bool:
        """Move the rule along the best directions; return whether steps are left."""
        place.horizon = self.horizon
        coding = self._coding
        vector = self._vector(coding)
        directions = rng.standard_normal((self.n_directions, len(vector)))
        pairs: list[list[FloatArray]] = []
        seen: list[FloatArray] = []
        total = 0.0
        for direction, seed in zip(directions, draw_seeds(rng, len(directions)), strict=True):
            pair = []
            for shift in (_NOISE, -_NOISE):
                rule = coding.rule(vector + shift * direction)
                pair.append(self._halves(env, place, rule, seed))
                total += sum(place.rewards)
                seen.append(self._seen[: len(place.rewards)].copy())
            if np.isnan(pair).any():
                break
            pairs.append(pair)
        if len(pairs) < 2:
            return False
        halves = np.array(pairs)
        returns = halves.sum(axis=2)
        self._sum += self.output
        self._returns.append(total / returns.size)
        self._differences += [*(halves[:, 0] - halves[:, 1])]
        if np.ptp(returns) <= _EQUAL * np.abs(returns).max():
            self._end_stage(longest)
            if place.horizon == longest:  # nothing is learned here
                self.output = coding.rule(rng.standard_normal(len(vector))).outputs[0]
        else:
            best = np.argsort(-returns.max(axis=1), kind="stable")[: (len(returns) + 1) // 2]
            slopes = (returns[best, 0] - returns[best, 1]) / returns[best].std()
            vector = vector + _STEP / len(best) * (slopes @ directions[best])
            self.output = coding.rule(vector).outputs[0]
            n = len(self._returns)
            early = n == _EARLY and self.horizon < longest and not self._agree
            if early or n == _STAGE:
                self._end_stage(longest)
        self._observe(seen)
        return len(returns) == len(directions)

    def _end_stage(self, longest: int) -> None:
        score = float(np.mean(self._returns))
        best = max((value for horizon, value in self.scores if horizon == longest), default=score)
        self.stages.append(self._sum / len(self._returns))
        self.scores.append((float(self.horizon), score))
        if self.horizon < longest:
            factor = _LONGER if self._agree else _MUCH_LONGER
            self.horizon = min(math.ceil(factor * self.horizon), longest)
        elif score < best - standard_error(np.array(self._returns)):
            self.n_directions = min(2 * self.n_directions, _MAX_DIRECTIONS)
        self._sum, self._returns, self._differences = np.zeros_like(self.output), [], []

    @property
    def _agree(self) -> bool:
        """Whether the halves of this stage's episodes prefer about the same directions."""
        first, second = np.transpose(self._differences)
        constant = min(first.std(), second.std()) == 0.0
        return bool(constant or np.corrcoef(first, second)[0, 1] >= _AGREE)

    def _observe(self, seen: Sequence[FloatArray]) -> None:
        """Update mean and squared deviations of the observations."""
        points = np.concatenate(seen)
        self.latest = np.concatenate([self.latest, points])[-_N_LATEST:]
        n, before = len(points), self.n_observed
        if n == 0:
            return
        self.n_observed = before + n
        mean = points.mean(axis=0)
        change = mean - self.moments[0]
        self.moments[0] += change * n / self.n_observed
        self.moments[1] += ((points - mean) ** 2).sum(axis=0)
        self.moments[1] += change**2 * before * n / self.n_observed

    def _pruned(self, env: BudgetedEnv, rng: np.random.Generator) -> FloatArray:
        """Drop numbers and digits that do not matter, which fresh starts have to confirm."""
        path = self._shorter()
        (seed,) = draw_seeds(rng, 1)
        left, before = env.left, env.steps
        if len(env.play(self.rule, [seed])) == 0:
            return self.output
        length = env.steps - before
        n_trials = _TRIALS + math.log2(len(path) + 1)
        as_good = self._judge(env, rng, 0.5 * left / n_trials / length)
        found = simplest(path, as_good)
        confirmed = self._judge(env, rng, 0.25 * left / length)
        return np.asarray((found if confirmed(found) else path[0])[1][0])

    def _judge(
        self, env: BudgetedEnv, rng: np.random.Generator, n: float
    ) -> Callable[[Rule], bool]:
        """Return whether rules do as well as the present one, from about n fresh starts."""
        seeds = draw_seeds(rng, int(np.clip(n, _MIN_STARTS, _MAX_STARTS)))
        returns = env.play(self.rule, seeds)

        def as_good(rule: Rule) -> bool:
            other = self._rule(rule[1][0])
            enough = len(returns) == len(seeds)
            return enough and returns_if_as_good(env, other, seeds, returns) is not None

        return as_good

    def _shorter(self) -> list[Rule]:
        """Return the rule, and rules with ever fewer numbers, without those that matter least."""
        coding = self._coding
        vector = self._vector(coding)
        width = 1 + len(coding.used)
        sizes = np.abs(vector).reshape(-1, width)
        sizes[:, 0] = np.abs(self.output[:, 0])  # of raw observations
        order = np.argsort(sizes.ravel(), kind="stable")
        path: list[Rule] = []
        for k in np.unique(np.linspace(0, len(vector) - 1, _MAX_PATH, dtype=np.int64)):
            fewer, offsets = vector.copy(), order[:k][order[:k] % width == 0] // width
            fewer[order[:k][order[:k] % width > 0]] = 0.0
            scores, outputs = coding.decoded(fewer[None])
            outputs[0, 0, offsets, 0] = 0.0
            path.append((scores[0], outputs[0]))
        return path

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return arrays for a file."""
        shape = self.output.shape
        return {
            "output": self.output,
            "moments": self.moments,
            "counts": np.array([self.n_observed, self.horizon, self.n_directions]),
            "bonus": np.array([self.bonus]),
            "sum": self._sum,
            "returns": np.array(self._returns),
            "differences": np.array(self._differences).reshape(-1, 2),
            "stages": np.array(self.stages).reshape(-1, *shape),
            "scores": np.array(self.scores).reshape(-1, 2),
            "latest": self.latest,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], d: int, p: int) -> Self:
        """Restore what :meth:`to_arrays` returned, or raise InvalidFileError."""
        check(arrays, SCHEMA, {"d": d, "p": p})
        n_observed, horizon, n_directions = arrays["counts"].tolist()
        require(n_directions >= 1, "climb_counts has no directions")
        new = cls(
            np.array(arrays["output"]), np.array(arrays["moments"]), np.array(arrays["latest"]),
            n_observed, horizon, n_directions, float(arrays["bonus"][0]), [*arrays["stages"]],
            [(float(a), float(b)) for a, b in arrays["scores"]],
        )  # fmt: skip
        new._sum, new._returns = np.array(arrays["sum"]), arrays["returns"].tolist()
        new._differences = [*arrays["differences"]]
        return new


def survival_bonus(idle: FloatArray, rewards: FloatArray) -> float:
    """Return a constant reward of each step; 0 if there is none, or nothing beside it.

    It is what a step pays if nothing is done, shape (n,), where that is about the same from all
    starts, and one of the ``rewards``, shape (m,), is higher: then it hides them, as standing
    still is safe. Where it is the most that is paid, survival is the task.

    >>> moving = np.linspace(-1.0, 3.0, 9)
    >>> survival_bonus(np.array([0.99, 1.01]), moving), survival_bonus(np.array([3.0]), moving)
    (1.0, 0.0)
    """
    if len(idle) == 0:
        return 0.0
    bonus = float(np.median(idle))
    constant = bonus > 0.0 and idle.std() <= _CONSTANT * bonus
    pays = rewards.max(initial=0.0) > (1.0 + _CONSTANT) * bonus
    return bonus if constant and pays else 0.0
