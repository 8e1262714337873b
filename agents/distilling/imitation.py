"""Rules that imitate a teacher (DAgger), and rules climbed in a learned world."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.playing import BudgetedEnv, draw_seeds, evaluated
from oda_rl.agents.distilling.search import Climber, Imagination, Raced, race
from oda_rl.agents.distilling.teachers import (
    ChoiceCosts,
    Deciding,
    Fitted,
    Labelling,
    Teacher,
    fit,
    mean_cost,
    with_ones,
)
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.worlds.world import World

_RANDOM_RULES, _FIRST_STARTS = 100, 8
_SIGMA, _POPULATION = 0.3, 24
_STARTS, _PAIRED = 40, 4  # of a generation; times as many tell whether it is better
_WINDOW, _PROGRESS = 20, 0.003  # generations in which returns must grow by that share
_MAX_GENERATIONS, _MAX_STEPS = 200, 100_000_000
_CLIMBS, _JUDGING = 4, 1000  # climbs; starts that judge whether one has led upwards


def world_of(teacher: Any) -> World | None:
    """Return the world that an agent has learned, if it has one and trusts it."""
    if not getattr(teacher, "models_laws", False) or teacher.distrust is not None:
        return None
    world: World = teacher.world
    return world


def climb_in_world(
    world: World | None,
    coding: Coding,
    known: Sequence[FloatArray],
    starts: FloatArray,
    rng: np.random.Generator,
) -> list[FloatArray]:
    """Climb in a world, from the best of the known vectors and random ones.

    Each climb begins, with wide steps, where the last has led. ``starts``, shape (m, d), are first
    observations of real episodes, beside those that the world was learned from.

    Returns
    -------
    list of ndarray
        The best vector; nothing without a world, or if that has other actions.
    """
    if world is None:
        return []
    arrays, size = world.learned.arrays, coding.n_outputs + coding.boxed
    if (arrays.boxed, arrays.laws.shape[1], arrays.frame.shape[1]) != (
        coding.boxed, size, len(coding.mean)
    ):  # fmt: skip
        return []
    where = Imagination(arrays, coding, world.horizon, lambda n: world.draw_starts(n, rng, starts))
    first = np.array([*known, *(coding.random(rng) for _ in range(_RANDOM_RULES))])
    means = where.means(first, _FIRST_STARTS)
    best = first[np.argsort(-means, kind="stable")[: max(len(known), 1)]]
    vector = best[np.argmax(where.means(best, _PAIRED * _STARTS))]
    for _ in range(_CLIMBS):
        found = _climbed(where, vector, rng)
        before, after = where.means(np.array([vector, found]), _JUDGING)
        if after > before:
            vector = found
        if after == before or where.steps > _MAX_STEPS:
            break
    return [vector]


def _climbed(where: Imagination, begin: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Climb as long as returns grow."""
    climber, before = Climber(begin, _SIGMA, _POPULATION, rng, where.coding.n_moving), begin
    for generation in range(1, _MAX_GENERATIONS + 1):
        climber.tell(where.means(climber.ask(), _STARTS))
        if generation % _WINDOW == 0:
            pair = where.means(np.array([before, climber.mean]), _PAIRED * _STARTS)
            before = climber.mean
            if pair[1] - pair[0] < _PROGRESS * abs(pair[0]) or where.steps > _MAX_STEPS:
                break
    return climber.mean


_ROUNDS, _FITS = 3, 4
_VALUING = 0.15  # share of the steps, to estimate what actions are worth
_RESTLESS = 0.05  # share of random decisions meanwhile
_WATCHING = 1 / 4  # share of the other steps, to watch players
_MAX_ROWS = 6000
_RANDOM, _RANDOM_SHARE, _BEST_RANDOM = 40, 0.15, 3  # rules, share of the steps, rules that go on


@dataclass
class Imitation:
    """The result of imitation."""

    coding: Coding
    vectors: list[FloatArray]
    """Of the rules that have raced, the best first."""
    states: FloatArray
    """States that were visited, shape (n, d)."""
    length: float
    """Mean length of an episode."""
    raced: Raced
    at_top: bool
    """Whether the last rules in the race all returned the same, and no less than the teacher: then
    there is nothing to climb."""
    enough: float
    """Greatest return of the teacher."""


def imitate(
    env: BudgetedEnv,
    teacher: Teacher,
    n_cells: int,
    steps: int,
    rng: np.random.Generator,
    world: World | None = None,
    known: RulePolicy | None = None,
) -> Imitation:
    """Find the rule that imitates best, by DAgger, or a random one that is better.

    Four rules are fitted to what the teacher does where it goes; then twice four more, also to what
    it would do where the rules before went. They race with the best of random rules; and, if there
    are any, with the rule climbed in the learned world, the teacher if it is such a rule, and one
    that is known. The first of these three has to be beaten.

    References
    ----------
    S. Ross, G. J. Gordon, J. A. Bagnell, "A reduction of imitation learning and structured
    prediction to no-regret online learning", AISTATS 2011.
    """
    end = env.steps + steps
    teacher = _valued(env, teacher, _VALUING * steps, rng)
    share = int(_WATCHING * (end - env.steps) / _ROUNDS)
    seen, taught = _watch(env, [teacher], share, rng)
    n_taught = len(seen)
    coding = Coding.of(seen, env.interface, n_cells)
    fits: list[Fitted] = []
    for r in range(_ROUNDS):
        latest = _fits(teacher, _sample(seen, n_taught, rng), coding, rng)
        fits += latest
        if r + 1 < _ROUNDS:
            players = _players(latest or fits[-1:], teacher, coding) or [teacher]
            states, _ = _watch(env, players, share, rng)
            seen = np.concatenate([seen, states])
    if not fits:
        fits = _fits(teacher, _sample(seen, n_taught, rng), coding, rng, refuse=False)
    fits = _cheapest(fits, teacher, _sample(seen, n_taught, rng), coding)
    own = teacher.rule if isinstance(teacher, Labelling) else None
    rules = [coding.of_rule(one) for one in (own, known) if one is not None]
    mastered = [one for one in rules if one is not None]
    fitted = [_vector(one, teacher, coding) for one in fits]
    trusted = [*climb_in_world(world, coding, mastered + fitted, env.starts, rng), *mastered]
    vectors = trusted + fitted
    vectors += _random(env, coding, _RANDOM_SHARE * (end - env.steps), rng)
    env.allow(end - env.steps)
    begun = env.steps
    incumbent = 0 if trusted else None
    raced = race(env, [coding.rule(vector) for vector in vectors], rng, incumbent)
    n = sum(map(len, raced.returns))
    length = max(1.0, (env.steps - begun) / max(n, 1))
    last = raced.last
    same = last.size > 1 and np.ptp(last) == 0.0
    enough = float(taught.max(initial=-np.inf))
    top = bool(same and len(taught) > 0 and last.max() >= enough)
    ordered = [vectors[i] for i in raced.order]
    return Imitation(coding, ordered, seen, length, raced, top, enough)


def _valued(env: BudgetedEnv, teacher: Teacher, steps: float, rng: np.random.Generator) -> Teacher:
    """Let a teacher of discrete actions know what these are worth."""
    if not isinstance(teacher, Labelling) or teacher.values is not None:
        return teacher
    if env.interface.box is not None:
        return teacher
    env.allow(steps)
    seen = env.record(teacher, rng, _RESTLESS)
    values = evaluated(seen, teacher.act, env.interface.n_actions, rng)
    return replace(teacher, values=values)


def _random(
    env: BudgetedEnv, coding: Coding, steps: float, rng: np.random.Generator
) -> list[FloatArray]:
    """Return the best of random rules, by a race."""
    env.allow(steps)
    vectors = [coding.random(rng) for _ in range(_RANDOM)]
    raced = race(env, [coding.rule(vector) for vector in vectors], rng)
    return [vectors[i] for i in raced.order[:_BEST_RANDOM] if raced.returns[i]]


def _watch(
    env: BudgetedEnv, players: list[Deciding], steps: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Let players play in turn; return the visited states, and the returns."""
    env.allow(steps)
    seen, begin, i = np.empty((env.left, env.interface.n_features)), env.steps, 0
    returns = []
    while env.left > 0:
        room = seen[env.steps - begin :]
        returns.append(env.play(players[i % len(players)], draw_seeds(rng, 1), room))
        i += 1
    return seen, np.concatenate(returns)


def _fits(
    teacher: Teacher,
    states: FloatArray,
    coding: Coding,
    rng: np.random.Generator,
    refuse: bool = True,
) -> list[Fitted]:
    """Fit cells to what the teacher would do in states.

    For every second fit all mistakes cost the same. Constant rules are refused unless the teacher
    is constant.
    """
    points, costs = coding.points(states), teacher.costs(states, coding)
    each = [costs] * _FITS
    if isinstance(costs, ChoiceCosts):
        each[1::2] = [costs.as_mistakes()] * (_FITS // 2)
    fits = [fit(points, one, coding.n_cells, rng) for one in each]
    if not refuse or constant(teacher, states):
        return fits
    players = _players(fits, teacher, coding)
    return [one for one, rule in zip(fits, players, strict=True) if not constant(rule, states)]


def _cheapest(
    fits: list[Fitted], teacher: Teacher, states: FloatArray, coding: Coding
) -> list[Fitted]:
    """Sort fits by what their mistakes cost in states, the cheapest first."""
    features, costs = with_ones(coding.points(states)), teacher.costs(states, coding)
    rows = np.arange(len(states))
    return sorted(fits, key=lambda one: mean_cost(one.scores, one.outputs, features, costs, rows))


def _sample(seen: FloatArray, n_taught: int, rng: np.random.Generator) -> FloatArray:
    """Sample visited states, half of them among the first, where the teacher went."""
    n = len(seen)
    weights = np.full(n, 1.0 / n_taught)
    weights[n_taught:] = 1.0 / max(n - n_taught, 1)
    rows = rng.choice(n, min(n, _MAX_ROWS), replace=False, p=weights / weights.sum())
    return np.asarray(seen[rows])


def _players(fits: list[Fitted], teacher: Teacher, coding: Coding) -> list[Deciding]:
    return [coding.rule(_vector(one, teacher, coding)) for one in fits]


def _vector(one: Fitted, teacher: Teacher, coding: Coding) -> FloatArray:
    return coding.vector(one.scores, teacher.outputs(one.outputs))


def constant(player: Deciding, states: FloatArray) -> bool:
    """Whether a player takes the same action in all states."""
    acts = player.act(states)
    return bool((acts == acts[0]).all())
