"""A rule climbed in a learned world, which takes no step of the real one.

What comes of it races with the others in the real environment: a world that is wrong costs
nothing but time.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.climbing import Climber
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.worlds.trajectories import returned
from oda_rl.agents.worlds.world import World

_RANDOM, _FIRST_STARTS = 100, 8
_SIGMA, _POPULATION = 0.3, 24
_STARTS, _PAIRED = 40, 4  # of a generation; times as many tell whether it is better
_WINDOW, _PROGRESS = 20, 0.003  # generations, by that share in which returns must grow
_MOST_GENERATIONS, _MOST_STEPS = 200, 50_000_000


def world_of(teacher: Any) -> World | None:
    """Return the world that an agent has learned, if it has, and believes in it."""
    if not getattr(teacher, "models_laws", False) or teacher.distrust is not None:
        return None
    world: World = teacher.world
    return world


def dreamt(
    world: World | None, coding: Coding, known: Sequence[FloatArray], rng: np.random.Generator
) -> list[FloatArray]:
    """Climb in a world from the best of the known vectors and random ones.

    Returns the vector that is found: none without a world, or if it knows other actions.
    """
    if world is None or world.learned.arrays.boxed != coding.boxed:
        return []
    if world.learned.arrays.frame.shape[1] != len(coding.mean):
        return []
    if world.learned.arrays.laws.shape[1] != coding.n_outputs + coding.boxed:
        return []
    taken = 0

    def means(vectors: Sequence[FloatArray], n: int) -> FloatArray:
        nonlocal taken
        rules = [coding.rule(one) for one in vectors]
        scores, outputs = (
            np.array([getattr(rule, name) for rule in rules]) for name in ("scores", "outputs")
        )
        starts = world.draw_starts(n, rng)
        found, steps = returned(world.learned.arrays, scores, outputs, starts, world.horizon)
        taken += steps
        return np.asarray(found.mean(axis=1))

    first = [*known, *(coding.random(rng) for _ in range(_RANDOM))]
    best = np.argsort(-means(first, _FIRST_STARTS), kind="stable")[: max(len(known), 1)]
    begin = first[best[np.argmax(means([first[i] for i in best], _PAIRED * _STARTS))]]
    moving, fixed = np.split(begin, [coding.n_moving])
    climber = Climber(moving, _SIGMA, _POPULATION, rng)

    def whole(vector: FloatArray) -> FloatArray:
        return np.concatenate([vector, fixed])

    before = begin
    for generation in range(1, _MOST_GENERATIONS + 1):
        climber.tell(means([whole(one) for one in climber.ask()], _STARTS))
        if generation % _WINDOW == 0:
            pair = means([before, whole(climber.mean)], _PAIRED * _STARTS)
            before = whole(climber.mean)
            if pair[1] - pair[0] < _PROGRESS * abs(pair[0]) or taken > _MOST_STEPS:
                break
    return [whole(climber.mean)]
