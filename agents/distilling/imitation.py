"""Rules that imitate a teacher: where it goes, and where they go themselves."""

from dataclasses import dataclass

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.fit import Fitted, fit, mean_cost, with_ones
from oda_rl.agents.distilling.playing import Deciding, Ground, drawn
from oda_rl.agents.distilling.races import race
from oda_rl.agents.distilling.teachers import Teacher

_ROUNDS, _FITS = 3, 4
_WATCHING = 1 / 3  # of the steps; the rest tell the fits apart
_MOST_ROWS = 6000
_RACE_EPISODES = 3  # for each rule, at least: or else fewer race


@dataclass
class Imitation:
    """What imitating found.

    Attributes
    ----------
    coding : Coding
    vector : ndarray
        Of the best rule.
    states : ndarray, shape (n, d)
        That were seen.
    length : float
        Mean length of the students' episodes.
    at_top : bool
        Whether the rules that were left returned all the same, and no less than the teacher ever
        did: then there is nothing to climb.
    """

    coding: Coding
    vector: FloatArray
    states: FloatArray
    length: float
    at_top: bool


def imitate(
    ground: Ground, teacher: Teacher, n_cells: int, steps: int, rng: np.random.Generator
) -> Imitation:
    """Find the rule that imitates best, by DAgger.

    Four rules are fitted to what the teacher does where it goes; then twice four more, also to what
    it would do where the rules before went. The cheapest race.

    References
    ----------
    S. Ross, G. J. Gordon, J. A. Bagnell, "A reduction of imitation learning and structured
    prediction to no-regret online learning", AISTATS 2011.
    """
    end = ground.steps + steps
    share = int(_WATCHING * steps / _ROUNDS)
    seen, taught = _watch(ground, [teacher], share, rng)
    coding = Coding.of(seen, ground.interface, n_cells)
    fits: list[Fitted] = []
    returns, began = np.zeros(0), ground.steps
    for r in range(_ROUNDS):
        latest = _fits(teacher, seen, coding, rng)
        fits += latest
        if r + 1 < _ROUNDS:
            players = _players(latest or fits[-1:], teacher, coding) or [teacher]
            states, own = _watch(ground, players, share, rng)
            seen, returns = np.concatenate([seen, states]), np.concatenate([returns, own])
    if not fits:
        fits = _fits(teacher, seen, coding, rng, refuse=False)
    length = max(1.0, (ground.steps - began) / max(len(returns), 1))
    ground.allow(end - ground.steps)
    n = int(np.clip(ground.left / (_RACE_EPISODES * length), min(2, len(fits)), len(fits)))
    fits = _cheapest(fits, teacher, seen, coding, rng)[:n]
    rules = _players(fits, teacher, coding)
    best, raced = race(ground, rules, rng)
    left = max(map(len, raced))
    last = np.array([one for one in raced if len(one) == left])
    top = last.size > 1 and np.ptp(last) == 0.0 and len(taught) > 0 and last.max() >= taught.max()
    return Imitation(coding, _vector(fits[best], teacher, coding), seen, length, bool(top))


def _watch(
    ground: Ground, players: list[Deciding], steps: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Let players play in turn; return the states that they acted on, and the returns."""
    ground.allow(steps)
    seen, begin, i = np.empty((ground.left, ground.interface.n_features)), ground.steps, 0
    returns = []
    while ground.left > 0:
        room = seen[ground.steps - begin :]
        returns.append(ground.play(players[i % len(players)], drawn(rng, 1), room))
        i += 1
    return seen, np.concatenate(returns)


def _fits(
    teacher: Teacher,
    seen: FloatArray,
    coding: Coding,
    rng: np.random.Generator,
    refuse: bool = True,
) -> list[Fitted]:
    """Return cells fitted to what the teacher would do in states that were seen.

    Those that always do the same are refused, if the teacher does not.
    """
    states = _some(seen, rng)
    points, costs = coding.points(states), teacher.costs(states, coding)
    fits = [fit(points, costs, coding.n_cells, rng) for _ in range(_FITS)]
    if not refuse or constant(teacher, states):
        return fits
    players = _players(fits, teacher, coding)
    return [one for one, rule in zip(fits, players, strict=True) if not constant(rule, states)]


def _cheapest(
    fits: list[Fitted],
    teacher: Teacher,
    seen: FloatArray,
    coding: Coding,
    rng: np.random.Generator,
) -> list[Fitted]:
    """Return fits by what their mistakes cost in all that was seen, the cheapest first."""
    states = _some(seen, rng)
    features, costs = with_ones(coding.points(states)), teacher.costs(states, coding)
    rows = np.arange(len(states))
    return sorted(fits, key=lambda one: mean_cost(one.scores, one.outputs, features, costs, rows))


def _some(seen: FloatArray, rng: np.random.Generator) -> FloatArray:
    return np.asarray(seen[rng.choice(len(seen), min(len(seen), _MOST_ROWS), replace=False)])


def _players(fits: list[Fitted], teacher: Teacher, coding: Coding) -> list[Deciding]:
    return [coding.rule(_vector(one, teacher, coding)) for one in fits]


def _vector(one: Fitted, teacher: Teacher, coding: Coding) -> FloatArray:
    return coding.vector(one.scores, teacher.outputs(one.outputs))


def constant(player: Deciding, states: FloatArray) -> bool:
    """Whether a player does the same in all states."""
    acts = player.act(states)
    return bool((acts == acts[0]).all())
