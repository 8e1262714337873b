"""A rule climbed in a learned world, which takes no step of the real one.

What comes of it races with the others in the real environment: a world that is wrong costs
nothing but time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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
_MOST_GENERATIONS, _MOST_STEPS = 200, 100_000_000
_CLIMBS, _JUDGING = 4, 1000  # and from how many starts it is judged whether one has led upwards


def world_of(teacher: Any) -> World | None:
    """Return the world that an agent has learned, if it has, and believes in it."""
    if not getattr(teacher, "models_laws", False) or teacher.distrust is not None:
        return None
    world: World = teacher.world
    return world


def dreamt(
    world: World | None,
    coding: Coding,
    known: Sequence[FloatArray],
    starts: FloatArray,
    rng: np.random.Generator,
) -> list[FloatArray]:
    """Climb in a world from the best of the known vectors and random ones.

    Then again from where that has led, with steps that are wide again: one climb often ends where
    another still finds a way up.

    Parameters
    ----------
    world : World, optional
    coding : Coding
    known : sequence of ndarray
    starts : ndarray, shape (m, d)
        Where real episodes have begun, beside those that the world was learned from. Few are
        learned by heart.
    rng : numpy.random.Generator

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
    dream = _Dream(world, coding, starts, rng)
    first = [*known, *(coding.random(rng) for _ in range(_RANDOM))]
    means = dream.means(first, _FIRST_STARTS)
    best = np.argsort(-means, kind="stable")[: max(len(known), 1)]
    vector = first[best[np.argmax(dream.means([first[i] for i in best], _PAIRED * _STARTS))]]
    for _ in range(_CLIMBS):
        found = dream.climbed(vector)
        before, after = dream.means([vector, found], _JUDGING)
        if after > before:
            vector = found
        if after == before or dream.taken > _MOST_STEPS:
            break
    return [vector]


@dataclass
class _Dream:
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
        for generation in range(1, _MOST_GENERATIONS + 1):
            climber.tell(self.means([whole(one) for one in climber.ask()], _STARTS))
            if generation % _WINDOW == 0:
                pair = self.means([before, whole(climber.mean)], _PAIRED * _STARTS)
                before = whole(climber.mean)
                if pair[1] - pair[0] < _PROGRESS * abs(pair[0]) or self.taken > _MOST_STEPS:
                    break
        return whole(climber.mean)
