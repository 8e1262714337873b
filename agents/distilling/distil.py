"""A small rule in place of a policy: imitated, climbed, pruned and rounded."""

import math
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.imitation import imitate
from oda_rl.agents.distilling.playing import Deciding, Ground, drawn
from oda_rl.agents.distilling.pruning import pruned
from oda_rl.agents.distilling.races import compare, race
from oda_rl.agents.distilling.teachers import teacher_of
from oda_rl.agents.engine.player import checked_count
from oda_rl.agents.model.climbing import Climber
from oda_rl.agents.policies.rules import RulePolicy

_IMITATING, _PRUNING = 0.25, 0.2  # of all steps, of those that are left then
_DECIDING = 0.2  # of those of the climb
_SIGMA, _GENERATIONS = 0.2, 40
_LEAST_STARTS, _MOST_STARTS = 2, 32
_FLAT = 2  # generations in a row in which the better half all return the same: nothing to climb
_LEAST_STEPS = 100


def distill(
    teacher: Any,
    env: str | gym.Env[Any, Any],
    n_cells: int,
    steps: int,
    seed: int | None = None,
) -> RulePolicy:
    """Make a rule of a few cells that does what a teacher does, or better.

    A quarter of the steps goes into imitation: cells are fitted to what the teacher does where it
    goes and where its students go, each mistake as bad as what it costs. Then CMA-ES climbs on real
    episodes, from the best of them; four rules are played against each other, of which the first is
    that where the climb began. Last, cells, numbers and digits are dropped that do not matter.

    Parameters
    ----------
    teacher : agent, policy, model of Stable-Baselines3, or callable
        Of agents and policies (:class:`~oda_rl.agents.policies.contract.Policy`) the values say
        what a mistake costs. Of a model, or of a function that returns an action for an
        observation, all mistakes cost the same.
    env : str or gymnasium.Env
        Where to play, with spaces as the agents take them.
    n_cells : int
        Of the rule, at most; at least 2.
    steps : int
        In the environment, at most: every one counts, also those of the teacher.
    seed : int, optional
        The same seed gives the same bits.

    Returns
    -------
    RulePolicy

    Warns
    -----
    UserWarning
        If the rule returned less than the teacher, by more than a standard error, from the same
        starts; or if there were too few steps to tell.

    Raises
    ------
    ValueError
        For numbers out of range, or a teacher of another environment.
    TypeError
        If it is no teacher, or no environment.

    References
    ----------
    O. Bastani, Y. Pu, A. Solar-Lezama, "Verifiable reinforcement learning via policy extraction",
    NeurIPS 2018.

    Examples
    --------
    >>> rule = distill(lambda x: int(6 * x[2] + x[3] > 0), "CartPole-v1", 2, 8_000, seed=0)
    >>> rule.n_cells
    2
    """
    if checked_count("n_cells", n_cells) < 2:
        raise ValueError(f"n_cells is {n_cells!r}: it must be at least 2")
    if checked_count("steps", steps) < _LEAST_STEPS:
        raise ValueError(f"steps is {steps!r}: it must be at least {_LEAST_STEPS}")
    ground = Ground(env, int(n_cells), int(steps))
    master = teacher_of(teacher, ground.interface)
    rng = np.random.default_rng(seed)
    found = imitate(ground, master, int(n_cells), int(_IMITATING * steps), rng)
    vector = found.vector
    if not found.at_top:
        share = (1.0 - _PRUNING) * (ground.most - ground.steps)
        vector = climb(ground, found.coding, vector, share, rng)
    ground.allow(ground.most - ground.steps)
    rule = pruned(ground, found.coding.rule(vector), master, found.states, found.length, rng)
    return _with_codevectors(rule, found.states)


def climb(
    ground: Ground, coding: Coding, vector: FloatArray, steps: float, rng: np.random.Generator
) -> FloatArray:
    """Climb from a rule, and return the best of where it began, half-way, last and later mean."""
    end = ground.steps + steps
    ground.allow((1.0 - _DECIDING) * steps)
    allowed = ground.left
    moving, fixed = np.split(vector, [coding.n_moving])
    climber = Climber(moving, _SIGMA, 4 + int(3 * math.log(len(moving))), rng)
    n_starts, flat = _LEAST_STARTS, 0
    means: list[FloatArray] = []
    while flat < _FLAT:
        before = ground.steps
        asked: list[Deciding] = [coding.rule(np.concatenate([one, fixed])) for one in climber.ask()]
        worth = compare(ground, asked, drawn(rng, n_starts))
        if worth is None:
            break
        better = worth[np.isfinite(worth)]
        flat = flat + 1 if np.ptp(better) == 0.0 else 0
        climber.tell(worth)
        means.append(np.concatenate([climber.mean, fixed]))
        wanted = allowed / _GENERATIONS * n_starts / (ground.steps - before)
        n_starts = int(np.clip(wanted, _LEAST_STARTS, min(2 * n_starts, _MOST_STARTS)))
    n = len(means)
    if n < 2:
        return vector
    vectors: list[FloatArray] = [vector, means[n // 2], means[-1], np.mean(means[n // 2 :], axis=0)]
    ground.allow(min(end - ground.steps, _DECIDING * steps))
    best, _ = race(ground, [coding.rule(one) for one in vectors], rng, incumbent=0)
    return vectors[best]


def _with_codevectors(rule: RulePolicy, states: FloatArray) -> RulePolicy:
    """Return the rule with the means of the states in its cells."""
    cells = rule.cells(states)
    own = [states[cells == k] for k in range(rule.n_cells)]
    codevectors = [(one if len(one) else states).mean(axis=0) for one in own]
    return replace(rule, codevectors=np.array(codevectors))
