"""Rules that imitate a teacher (DAgger), and rules climbed in a learned world."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.playing import BudgetedEnv, Deciding, draw_seeds, evaluated
from oda_rl.agents.distilling.search import Climber, Raced, race
from oda_rl.agents.distilling.teachers import (
    ChoiceCosts,
    Fitted,
    Labelling,
    Teacher,
    fit,
    mean_cost,
    with_ones,
)
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.worlds.simulation import returned
from oda_rl.agents.worlds.world import World

_RANDOM_RULES, _FIRST_STARTS = 100, 8
_SIGMA, _POPULATION = 0.3, 24
_STARTS, _PAIRED = 40, 4  # of a generation; times as many tell whether it is better
_WINDOW, _PROGRESS = 20, 0.003  # generations, by that share in which returns must grow
_MAX_GENERATIONS, _MAX_STEPS = 200, 100_000_000
_CLIMBS, _JUDGING = 4, 1000  # and from how many starts it is judged whether one has led upwards


def world_of(teacher: Any) -> World | None:
    """Return the world that an agent has learned, if it has, and believes in it."""
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
    """Climb in a world from the best of the known vectors and random ones.

    Then again from where that has led, with steps that are wide again: one climb often ends where
    another still finds a way up.

    ``starts``, shape (m, d), are where real episodes have begun, beside those that the world was
    learned from: few are learned by heart.

    Returns
    -------
    list of ndarray
        The vector that is found: none without a world, or if it knows other actions.
    """
    if world is None or world.learned.arrays.boxed != coding.boxed:
        return []
    if world.learned.arrays.frame.shape[1] != len(coding.mean):
        return []
    if world.learned.arrays.laws.shape[1] != coding.n_outputs + coding.boxed:
        return []
    world_returns = _WorldReturns(world, coding, starts, rng)
    first = [*known, *(coding.random(rng) for _ in range(_RANDOM_RULES))]
    means = world_returns.means(first, _FIRST_STARTS)
    best = np.argsort(-means, kind="stable")[: max(len(known), 1)]
    vector = first[
        best[np.argmax(world_returns.means([first[i] for i in best], _PAIRED * _STARTS))]
    ]
    for _ in range(_CLIMBS):
        found = world_returns.climbed(vector)
        before, after = world_returns.means([vector, found], _JUDGING)
        if after > before:
            vector = found
        if after == before or world_returns.taken > _MAX_STEPS:
            break
    return [vector]


@dataclass
class _WorldReturns:
    """What rules return in a world."""

    world: World
    coding: Coding
    starts: FloatArray
    rng: np.random.Generator
    taken: int = 0
    """Imagined steps."""

    def means(self, vectors: Sequence[FloatArray], n: int) -> FloatArray:
        """Return mean returns from n common starts, shape (len(vectors),)."""
        world, rules = self.world, [self.coding.rule(one) for one in vectors]
        scores, outputs = (
            np.array([getattr(rule, name) for rule in rules]) for name in ("scores", "outputs")
        )
        starts = world.draw_starts(n, self.rng, self.starts)
        found, steps = returned(world.learned.arrays, scores, outputs, starts, world.horizon)
        self.taken += steps
        return np.asarray(found.mean(axis=1))

    def climbed(self, begin: FloatArray) -> FloatArray:
        """Return where a climb leads to that goes on as long as returns grow."""
        moving, fixed = np.split(begin, [self.coding.n_moving])
        climber = Climber(moving, _SIGMA, _POPULATION, self.rng)

        def whole(vector: FloatArray) -> FloatArray:
            return np.concatenate([vector, fixed])

        before = begin
        for generation in range(1, _MAX_GENERATIONS + 1):
            climber.tell(self.means([whole(one) for one in climber.ask()], _STARTS))
            if generation % _WINDOW == 0:
                pair = self.means([before, whole(climber.mean)], _PAIRED * _STARTS)
                before = whole(climber.mean)
                if pair[1] - pair[0] < _PROGRESS * abs(pair[0]) or self.taken > _MAX_STEPS:
                    break
        return whole(climber.mean)


_ROUNDS, _FITS = 3, 4
_VALUING = 0.15  # of the steps, to find out what actions are worth
_RESTLESS = 0.05  # of decisions meanwhile that are random
_WATCHING = 1 / 4  # of the rest; what is left tells the rules apart
_MAX_ROWS = 6000
_RANDOM, _RANDOM_SHARE, _BEST_RANDOM = 40, 0.15, 3  # rules, of the steps, that go on


@dataclass
class Imitation:
    """What imitating found.

    Attributes
    ----------
    coding : Coding
    vectors : list of ndarray
        Of the rules that have raced, the best first.
    states : ndarray, shape (n, d)
        That were seen.
    length : float
        Mean length of the episodes of rules that were played longest.
    raced : Raced
        The race that it has won.
    at_top : bool
        Whether the rules that were left returned all the same, and no less than the teacher ever
        did: then there is nothing to climb.
    """

    coding: Coding
    vectors: list[FloatArray]
    states: FloatArray
    length: float
    raced: Raced
    at_top: bool
    enough: float
    """What the teacher returned at most."""


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
    it would do where the rules before went. They race, with the best of random ones; and with the
    teacher, if that is such a rule, with one that is known, and with one that was climbed in the
    learned world, if there are any. The first of these that there is has to be beaten: that of
    the learned world, which has been compared over more starts than are played here, or else the
    teacher.

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
    """Return a teacher who knows what actions are worth, if they are numbers."""
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
    """Return the best of random rules, by a race of their own."""
    env.allow(steps)
    vectors = [coding.random(rng) for _ in range(_RANDOM)]
    raced = race(env, [coding.rule(vector) for vector in vectors], rng)
    return [vectors[i] for i in raced.order[:_BEST_RANDOM] if raced.returns[i]]


def _watch(
    env: BudgetedEnv, players: list[Deciding], steps: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Let players play in turn; return the states that they acted on, and the returns."""
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
    """Return cells fitted to what the teacher would do in states.

    Every second of them to that alone, as if all mistakes cost the same. Those that always do the
    same are refused, if the teacher does not.
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
    """Return fits by what their mistakes cost in states, the cheapest first."""
    features, costs = with_ones(coding.points(states)), teacher.costs(states, coding)
    rows = np.arange(len(states))
    return sorted(fits, key=lambda one: mean_cost(one.scores, one.outputs, features, costs, rows))


def _sample(seen: FloatArray, n_taught: int, rng: np.random.Generator) -> FloatArray:
    """Draw states that were seen, half of them among the first, where the teacher went."""
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
    """Whether a player does the same in all states."""
    acts = player.act(states)
    return bool((acts == acts[0]).all())
