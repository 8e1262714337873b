"""Climb an affine rule in real episodes, for continuous actions of any number of components.

Antithetic random search (Mania, Guy and Recht, NeurIPS 2018): two rules, a little off the present
one in opposite directions, play from the same start; the present rule moves along the best ones.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from uuid import uuid4

import gymnasium as gym
import numpy as np

from oda_rl._threads import one_thread
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.agents.base.actors import kept_here, modules_of, result_of
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.playing import BudgetedEnv, draw_seeds
from oda_rl.agents.distilling.search import race
from oda_rl.agents.distilling.simplifying import (
    MAX_SIMPLIFIED,
    Confirming,
    smaller_rules,
    standard_error,
)
from oda_rl.agents.environments.origins import Origin
from oda_rl.agents.environments.validation import checked_reward, five
from oda_rl.agents.policies.contract import InLoops
from oda_rl.agents.policies.rules import RulePolicy, placed
from oda_rl.files.schema import Member, check, real, whole

_FIRST_STEPS = 200  # with random actions, to standardise observations
_DIRECTIONS, _MAX_DIRECTIONS = 8, 64
_NOISE = 0.05  # units of the box per standard deviation of an observation
_GOAL_NOISE = 0.03  # where each cell has its own directions
_WHOLE_NOISE = 0.2  # where only whole episodes show what is better: few of them can be played
_STEP = 0.6  # share of the noise
_STAGE = 10  # iterations, after which episodes get longer, or directions more
MIN_HORIZON, _FIRST_HORIZON, _LONGER = 50, 0.1, 1.5  # steps; share of the longest; factor
_AGREE = 0.2  # correlation of the halves of episodes, below which short ones mislead
_MIN_PAIRS = 40  # of whole episodes, with fewer of which that is unknown
_STARTS, _STARTING = 3, 0.5  # climbs, of which the best goes on; maximum share of the steps for it
_COMPARED, _MIN_COMPARED = 0.2, 300  # horizon to compare climbs: share of the longest; steps
_SAFE = 0.3  # share of the pairs of episodes that are whole, from which climbs are compared
_STALLED, _PROGRESS = 4, 1.1  # stages in which returns have to grow by this factor,
_FALLS = 0.5  # where fewer than this share of the pairs of episodes are whole
MANY_EPISODES = 100  # times the steps of the longest episode: more get further without known rules
_MISLED = 0.5  # share of the best stage's return, below which the bonus is put back
_EQUAL = 1e-9  # relative difference of returns that is rounding
_VARIES = 1e-6  # standard deviation of a component, relative to its mean
_IDLE_STARTS, _CONSTANT = 8, 0.1  # to detect a survival bonus
_DECIDING, _PRUNING = 0.07, 0.08  # shares of all steps
_FINALISTS, _MIN_RACED = 6, 2  # rules; episodes of each against rule 0, cut if need be
_MAX_GOALS = 3  # components, of which each doubles the number of cells
_N_LATEST = 2000  # observations that are kept

SCHEMA: dict[str, Member] = {  # members of a file: the attributes of a climb
    "cells": real("K, 1+d"),
    "output": real("K, p, 1+d"),
    "known": real("known, p, 1+d"),
    "moments": real("2, d"),
    "latest": real("latest, d"),
    "n_observed": whole(),
    "horizon": whole(),
    "n_directions": whole("", "[1, 9007199254740992)"),
    "noise": real("", "(0, inf)"),
    "bonus": real("", "[0, inf)"),
    "stages": real("stages, K, p, 1+d"),
    "scores": real("stages, 2"),
    "total": real("K, p, 1+d"),
    "returns": real("returns"),
    "differences": real("differences, 2"),
    "mean_return": real("", "(-inf, inf) or nan"),
}


class Episodes(gym.Wrapper[Any, Any, Any, Any]):
    """Cuts episodes after ``horizon`` steps, and records all."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.horizon = 1
        self.observation: Any = None
        self.rewards: list[float] = []  # of the latest episode
        self._rewards: list[list[float]] = []  # of each episode that :meth:`played` returns next
        self._whole: list[bool] = []  # which of them have ended by themselves

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.add([])
        self.observation, info = self.env.reset(seed=seed, options=options)
        return self.observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.observation, reward, terminated, truncated, info = five(self.env.step(action))
        self.rewards.append(checked_reward(reward))
        self._whole[-1] = terminated or truncated
        cut = len(self.rewards) >= self.horizon
        return self.observation, reward, terminated, truncated or cut, info

    def add(self, rewards: list[float], whole: bool = False) -> None:
        """Begin an episode, or add one that was played elsewhere."""
        self.rewards = rewards
        self._rewards.append(rewards)
        self._whole.append(whole)

    def played(self) -> FloatArray:
        """Return the episodes since the last call, as :meth:`EpisodeLog.append` takes them."""
        rows = [(sum(one), len(one)) for one in self._rewards]
        whole, self._rewards, self._whole = np.array(self._whole, np.bool_), [], []
        returns, lengths = np.reshape(rows, (-1, 2)).T
        best = np.where(whole, returns, -np.inf)
        return np.column_stack([returns, lengths, lengths.cumsum(), best])[lengths > 0.0]


@one_thread()
def play_beside(
    name: str, origin: Origin, rule: RulePolicy, seed: int, horizon: int
) -> tuple[list[float], FloatArray, bool]:
    """Play an episode in an actor's own environment, which stays for the training of that name.

    Returns rewards and observations, and whether it has ended by itself.
    """

    def set_up() -> tuple[Episodes, BudgetedEnv]:
        place = Episodes(origin.make(learning=True))
        return place, BudgetedEnv(place, 1, 2**53)

    place, env = kept_here(name, set_up)
    place.horizon = horizon
    seen = np.empty((horizon, rule.scores.shape[1] - 1))
    env.play(rule, [seed], seen)
    return place.rewards, seen[: len(place.rewards)], bool(place.played()[-1, 3] > -np.inf)


class ClimbActors:
    """Starts episodes of a climb that actors play side by side."""

    def __init__(self, origin: Origin) -> None:
        self.modules = [__name__, *modules_of(origin)]  # that an actor has to import
        self._there = uuid4().hex, origin

    def start(self, client: Any, rule: RulePolicy, seed: int, horizon: int) -> Any:
        """Return the future of an episode."""
        return client.submit(play_beside, *self._there, rule, seed, horizon, pure=False)


@dataclass(frozen=True)
class _AtRandom:
    """Draws actions."""

    rng: np.random.Generator
    n_components: int
    in_loops: InLoops | None = None

    def act(self, points: Array) -> Array:
        return self.rng.uniform(-1.0, 1.0, (len(points), self.n_components))


class Climb:
    """A climb to one affine rule, which can be saved after each iteration.

    Directions are drawn in standardised observations, with mean and scale of all steps so far. The
    rule is of raw observations, and stays as it is where these change.

    Episodes are short at first, and longer in each stage of ten iterations, up to the time limit.
    They reach it in one step where, after the first stage, the second half of whole ones prefers
    other directions than the first. Then the climb begins anew, unless with a known rule, as short
    episodes lead to a local optimum; it takes longer steps, because few whole episodes can be
    played. At the time limit the number of directions doubles where a stage is worse than the best
    by a standard error. A constant reward of each step, as for survival, is left out while
    climbing, unless that teaches to end episodes early.

    Which local optimum a climb ends in is decided early. Without known rules it begins anew where
    episodes end early and returns no longer grow. Where many do not, as standing still is safe,
    three climbs are begun, and the best goes on; if none ends early, in episodes as long as those
    that compared them.

    Without known rules, up to three components that are constant in each episode, but not in all,
    are goals: there is a cell for each side of their means, and each affine rule is climbed in the
    episodes of its cell.
    """

    def __init__(self, known: FloatArray, seen: FloatArray) -> None:
        """Begin with the scale of the observations ``seen``, (n, d), and rules that it has to beat.

        ``known``, (k, p, 1 + d), are their offsets and slopes, in units of the box.
        """
        self.known = known
        self.decides = False  # whether it is over: its comparison of rules is not saved
        self.loses = False  # whether the rival was better in the last race
        p, d = known.shape[1], seen.shape[1]
        self.cells = np.zeros((1, 1 + d))  # scores of the present rule
        self.output = np.zeros((1, p, 1 + d))  # outputs of the present rule
        self.moments = np.zeros((2, d))  # mean of observations, sum of squared deviations
        self.latest = np.empty((0, d))  # observations
        self.n_observed = 0
        self.horizon = 0  # steps after which episodes are cut; 0 before the first
        self.n_directions = _DIRECTIONS
        self.noise = _NOISE
        self.bonus = 0.0  # constant reward of a step, which is left out
        self.mean_return = math.nan  # in the last comparison of rules; before, in whole episodes
        self.stages, self.scores = np.empty((0, 1, p, 1 + d)), np.empty((0, 2))
        """Mean rule of each stage; its horizon and mean return."""
        self._begin_stage()
        self._observe([seen])

    def _begin_stage(self) -> None:
        self.total = np.zeros_like(self.output)  # sum of the rules of the present stage,
        self.returns = np.empty(0)  # mean return of each of its iterations,
        self.differences = np.empty((0, 2))  # and those of pairs, in each half of whole episodes

    @property
    def rule(self) -> RulePolicy:
        rule = self._rule(self.output)
        return rule if rule.n_cells == 1 else placed(rule, self.latest)

    @property
    def scale(self) -> FloatArray:
        """Inverse standard deviations of the observation's components, (d,); 0 for constants."""
        deviation = np.sqrt(self.moments[1] / max(self.n_observed, 1))
        floor = np.maximum(np.abs(self.moments[0]), _VARIES * deviation.max(initial=0.0))
        varies = deviation > _VARIES * floor  # the rest is rounding
        return np.asarray(np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies))

    def run(
        self,
        env: BudgetedEnv,
        place: Episodes,
        longest: int,
        begun: int,
        rng: np.random.Generator,
        rival: RulePolicy | None = None,
        actors: tuple[ClimbActors, Any, int] | None = None,
    ) -> Iterator[FloatArray]:
        """Climb, decide and prune; yield the episodes of each iteration.

        ``env`` plays in ``place``, in episodes of at most ``longest`` steps; ``begun`` steps were
        taken before. A new climb begins with the best of the rule 0 and the known ones; with few
        episodes it ends with one of these unless it is better. In the last race it loses if a
        ``rival`` is better. ``actors``, with their Dask client and number, play directions side by
        side, with the same result.
        """
        total = begun + env.most
        self._env, self._place, self._longest, self._rng = env, place, longest, rng
        self._actors, self._before, self._all_steps = actors, begun, total
        self._seen = np.empty((longest, self.moments.shape[1]))  # in an episode
        known = [*map(self._rule, self.known[:, None])]
        self._lasts = True  # whether episodes are as long as their horizon
        env.allow((1.0 - _DECIDING - _PRUNING) * total - begun - env.steps)
        if self.horizon == 0:
            self._begin()
            yield place.played()
        while env.left > 0 and self._iterate():
            yield place.played()
        if len(self.returns):
            self._end_stage()
        self.decides, place.horizon = True, longest
        # Few episodes are too few to prune, or to compare many rules.
        few = self._lasts and total < MANY_EPISODES * longest
        blind = few and rival is None and not known
        known = [self._rule(np.zeros_like(self.output))] if blind else known
        share = 1.0 if known else 1.0 - _PRUNING
        env.allow(share * total - begun - env.steps)
        if blind:
            place.horizon = min(max(env.left // (2 * _MIN_RACED), 1), longest)
        order = np.lexsort(self.scores.T[::-1])[::-1]
        best = [self._rule(self.stages[k]) for k in order[: 1 if known else _FINALISTS]]
        best = [*best, *known] if known else [self.rule, *best]
        before = env.steps
        rivals = [] if rival is None else [rival]
        incumbent = len(best) + len(rivals) - 1 if known or rivals else None
        raced = race(env, [*best, *rivals], rng, incumbent)
        self.loses = raced.best == len(best)
        self.output = self.output if self.loses else best[raced.best].outputs
        yield place.played()
        if self.loses:
            return
        returns = np.array(raced.returns[raced.best] if place.horizon == longest else [])
        place.horizon = longest
        length = max((env.steps - before) / max(sum(map(len, raced.returns)), 1), 1.0)
        if np.count_nonzero(self.output) <= MAX_SIMPLIFIED:
            env.allow(0.5 * (env.most - env.steps))
            rules = smaller_rules(env, self.rule, self.latest, draw_seeds(rng, 100), length, rng)
            env.allow(env.most - env.steps)
            confirming = Confirming(None, rng)
            pruned, confirmed, _ = confirming.confirmed(env, rules, length)
            self.cells, self.output = pruned.scores, pruned.outputs
            returns = confirmed if len(confirmed) else returns
        self.mean_return = float(returns.mean()) if len(returns) else self.mean_return
        self.stages = self.output[None]
        self.scores = np.concatenate([self.scores[order[:1]], np.zeros((1, 2))])[:1]
        self.decides = False
        yield place.played()

    @property
    def _first_horizon(self) -> int:
        return min(max(MIN_HORIZON, int(_FIRST_HORIZON * self._longest)), self._longest)

    def _rule(self, output: FloatArray) -> RulePolicy:
        return RulePolicy(self.cells, output, self.moments[:1].repeat(len(output), axis=0))

    def _begin(self) -> None:
        """Find the scale of observations, the survival bonus, and the rule to begin with."""
        env, place, rng = self._env, self._place, self._rng
        self.horizon = self._first_horizon
        rewards, goals = self._find_scale()
        sides = 2.0 * (np.arange(2 ** len(goals))[:, None] >> np.arange(len(goals)) & 1) - 1.0
        self.cells = np.zeros((len(sides), self.output.shape[2]))
        self.cells[:, 1 + goals] = sides * self.scale[goals]
        self.cells[:, 0] -= self.cells[:, 1:] @ self.moments[0]
        self.output = self.output.repeat(len(sides), axis=0)
        self.stages = self.stages.repeat(len(sides), axis=1)
        self.noise = _GOAL_NOISE if len(goals) else _NOISE
        self._begin_stage()
        place.horizon, idle = 1, []
        for seed in draw_seeds(rng, _IDLE_STARTS):
            env.play(self.rule, [seed])
            idle += place.rewards
        self.bonus = survival_bonus(np.array(idle), np.array(rewards))
        place.horizon = self.horizon
        rules, seeds = [self.rule, *map(self._rule, self.known[:, None])], draw_seeds(rng, 2)
        # Known rules stand still or fall where survival pays.
        if len(rules) > 1 and self.bonus == 0.0:
            returns = [[self._halves(one, seed).sum() for seed in seeds] for one in rules]
            self.output = rules[int(np.sum(returns, axis=1).argmax())].outputs

    def _find_scale(self) -> tuple[list[float], IntArray]:
        """Observe some episodes of random actions; return their rewards, and which are goals."""
        place, random = self._place, _AtRandom(self._rng, self.output.shape[1])
        place.horizon = self.horizon
        rewards: list[float] = []
        starts, moved = np.empty((0, self.moments.shape[1])), np.zeros_like(self.moments[0])
        while len(rewards) < _FIRST_STEPS and self._env.left > 0:
            self._env.play(random, draw_seeds(self._rng, 1), self._seen)
            self._observe([self._seen[: len(place.rewards)]])
            starts = np.concatenate([starts, self._seen[:1]])
            moved += np.ptp(self._seen[: len(place.rewards)], axis=0)
            rewards += place.rewards
        differs = (starts != starts[:1]).any(axis=0) & (self.scale > 0.0)
        goals = np.flatnonzero(differs & (moved == 0.0))
        return rewards, goals if len(goals) <= _MAX_GOALS and not len(self.known) else goals[:0]

    def _halves(self, rule: RulePolicy, seed: int, started: Any = None) -> FloatArray:
        """Return what the halves of an episode return, without the bonus; NaN if steps ran out.

        It is played here, unless it was ``started`` elsewhere.
        """
        here = started is None
        if not (len(self._env.play(rule, [seed], self._seen)) if here else self._fetch(started)):
            return np.full(2, np.nan)
        middle = self._place.horizon // 2
        paid = np.array(self._place.rewards) - self.bonus
        return np.array([paid[:middle].sum(), paid[middle:].sum()])

    def _fetch(self, started: Any) -> bool:
        """Wait for an actor's episode; return whether it ended within the steps that are left."""
        while (found := result_of(started)) is None:
            pass
        rewards, seen, over = found
        n = min(len(rewards), self._env.left)
        if n > 0:
            self._env.steps += n
            self._seen[:n] = seen[:n]
            self._place.add(rewards[:n], over and n == len(rewards))
        return n == len(rewards)

    def _iterate(self) -> bool:
        """Move the rule along the best directions; return whether steps are left."""
        place, longest, rng = self._place, self._longest, self._rng
        place.horizon = self.horizon
        used, deviation = np.flatnonzero(self.scale), np.ones_like(self.scale)
        deviation[used] /= self.scale[used]
        (n_cells, p, _), width = self.output.shape, 1 + len(used)
        numbers = np.arange(n_cells).repeat(p * width)  # the cell of each number of outputs
        coding = Coding(self.moments[0], deviation, n_cells, p, True, True, used)
        vector = coding.encoded(self.cells, self.output)
        changes = self.noise * rng.standard_normal((self.n_directions, len(vector)))
        changes[:, : -len(numbers)] = 0.0  # scores stay as they are
        plays = [
            (coding.rule(vector + sign * change), seed)
            for change, seed in zip(changes, draw_seeds(rng, len(changes)), strict=True)
            for sign in (1.0, -1.0)
        ]
        started: list[Any] = [None] * len(plays)
        if self._actors is not None:
            actors, client, _ = self._actors
            started = [actors.start(client, *one, self.horizon) for one in plays]
        played, seen, total = list[FloatArray](), list[FloatArray](), 0.0
        for (rule, seed), one in zip(plays, started, strict=True):
            played.append(self._halves(rule, seed, one))
            total += sum(place.rewards)
            seen.append(self._seen[: len(place.rewards)].copy())
            if len(played) % 2 == 0 and np.isnan(played[-2:]).any():
                break
        halves = np.reshape(played, (-1, 2, 2))
        halves = halves[~np.isnan(halves).any(axis=(1, 2))]
        if len(halves) < 2:
            return False
        returns = halves.sum(axis=2)
        self.total += self.output
        self.returns = np.append(self.returns, total / returns.size)
        whole = np.array([len(one) == place.horizon for one in seen[: returns.size]])
        halves = halves[whole.reshape(-1, 2).all(axis=1)]  # others end within a half
        self._lasts = bool(whole.any())
        self.differences = np.concatenate([self.differences, halves[:, 0] - halves[:, 1]])
        flat = np.ptp(returns) <= _EQUAL * np.abs(returns).max()
        if not flat:
            # The greatest returns of several goals would be those of the easiest.
            n_best = len(returns) if n_cells > 1 else (len(returns) + 1) // 2
            best = np.argsort(-returns.max(axis=1), kind="stable")[:n_best]
            slopes = (returns[best, 0] - returns[best, 1]) / returns[best].std()
            cells = self._rule(self.output).cells(np.array([one[0] for one in seen[::2]]))
            moves = changes[best]
            moves[:, -len(numbers) :] *= cells[best, None] == numbers
            vector = vector + _STEP * math.sqrt(n_cells) / len(best) * (slopes @ moves)
            self.output = coding.rule(vector).outputs
        elif place.horizon == longest:  # nothing is learned here
            self.output = coding.rule(rng.standard_normal(len(vector))).outputs
        self._observe(seen)
        if flat or len(self.returns) == _STAGE:
            self._end_stage()
        return len(returns) == len(changes)

    def _end_stage(self) -> None:
        """Keep the mean rule of the stage, and decide how the climb goes on."""
        score, longest = float(self.returns.mean()), self._longest
        self.mean_return = score if self.horizon == longest else self.mean_return
        horizons = np.append(self.scores[:, 0], self.horizon)
        begin = np.flatnonzero(np.diff(horizons, prepend=np.inf) < 0.0)[-1]  # of this climb
        own = self.scores[begin:, 1]
        if self.bonus > 0.0 and score < _MISLED * own.max(initial=-np.inf):
            self.bonus, self.horizon = 0.0, self._first_horizon
            self.output = self.stages[begin + own.argmax()].copy()
            self._begin_stage()
            return
        best = own[horizons[begin:-1] == self.horizon].max(initial=-np.inf)
        n_starts = int(np.count_nonzero(horizons == self.horizon))
        new, agree = len(self.known) == 0 and self._env.left > 0, self._halves_agree()
        share = (self._before + self._env.steps) / self._all_steps
        stalls = new and share <= _STARTING and self._stalls(np.append(own, score))
        enough = share * _STARTS / n_starts <= _STARTING
        long = max(_COMPARED * longest, _MIN_COMPARED) <= self.horizon < longest
        compares = new and agree and enough and long and self._share_of_whole >= _SAFE
        self.stages = np.concatenate([self.stages, self.total[None] / len(self.returns)])
        self.scores = np.concatenate([self.scores, [[self.horizon, score]]])
        if stalls or (compares and n_starts < _STARTS):
            self.horizon, self.n_directions = self._first_horizon, _DIRECTIONS
            self._begin_anew()
        elif compares and n_starts == _STARTS:
            self.output = self.stages[np.lexsort(self.scores.T[::-1])[-1]].copy()
        elif self.horizon < longest and agree and not (compares and self._share_of_whole == 1.0):
            self.horizon = min(math.ceil(_LONGER * self.horizon), longest)
        elif self.horizon < longest and not agree:
            self.horizon = longest
            if new:
                self.noise = _WHOLE_NOISE
                self._begin_anew()
        elif score < best - standard_error(self.returns):
            self.n_directions = min(2 * self.n_directions, _MAX_DIRECTIONS)
        self._begin_stage()

    def _halves_agree(self) -> bool:
        """Whether both halves of the first stage's episodes prefer the same directions."""
        first, second = self.differences.T
        unknown = len(first) < _MIN_PAIRS or min(first.std(), second.std()) == 0.0
        later = self.horizon > self._first_horizon  # then they may disagree by chance
        return later or unknown or bool(np.corrcoef(first, second)[0, 1] >= _AGREE)

    def _stalls(self, own: FloatArray) -> bool:
        """Whether episodes end early, and the climb's ``own`` returns no longer grow."""
        grows = own[-_STALLED:].max() >= _PROGRESS * own[:-_STALLED].max(initial=-np.inf)
        early = self.horizon > self._first_horizon and self._share_of_whole < _FALLS
        return bool(early and not grows)

    @property
    def _share_of_whole(self) -> float:
        """Share of the stage's pairs of episodes that were not cut short by their own end."""
        return len(self.differences) / (len(self.returns) * self.n_directions)

    def _begin_anew(self) -> None:
        self.output, self.moments = np.zeros_like(self.output), np.zeros_like(self.moments)
        self.n_observed = 0
        self._find_scale()

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

    def to_arrays(self) -> dict[str, Array]:
        return {name: np.array(getattr(self, name)) for name in SCHEMA}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], d: int, p: int) -> Self:
        """Restore what :meth:`to_arrays` returned, or raise InvalidFileError."""
        check(arrays, SCHEMA, {"d": d, "p": p})
        new = cls(np.empty((0, p, 1 + d)), np.empty((0, d)))
        for name, array in arrays.items():
            setattr(new, name, array.copy() if array.ndim else array.item())
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
