"""Search for a rule in imagination: random rules and the best known, then CMA-ES from the best.

Actions may be degrees of one quantity, as torques are. Then fewer numbers make a rule: each cell
has an affine degree, and the nearest action is taken. With affine scores s of cells and degrees u,
action k of degree c_k has in each cell the affine score M s + 2 c_k u - c_k^2, which is greatest
where c_k is nearest to u: so it is a rule like all others, in which a search for one can begin.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.search import Climber, Imagination
from oda_rl.agents.worlds.coordinates import Coordinates, WorldArrays
from oda_rl.agents.worlds.simulation import one_law, predict

_MAX_CELLS = 20
_OFFSET = 0.5  # standard deviation of the offsets of random rules
_SAME, _EQUAL = 1e-9, 0.75  # if that share of rules is equally good, a search is over
_LONGEST = 4  # times as many generations, while returns grow
_WINDOW, _PROGRESS = 8, 0.01  # generations in which returns must grow by that share
_WIDE = 12  # more generations from visited states, of rules that are perfect from the starts
_PAIRED = 4  # times as many starts as in a generation
_GRADED_SIGMA = 0.1  # about a rule that has been climbed before
_GRADED_STATES = 200
_ON_A_LINE = 0.95  # share of what actions change that one quantity explains
_NO_EFFECT = 1e-6  # standard deviations of what actions change, that are rounding
_MIN_GAP = 0.04  # between two degrees, which go from -1 to 1
_SCORE_WEIGHT = 5.0  # of a cell, against the distance of its degree


def n_cells_for(n_actions: int) -> int:
    """Return the number of cells: two for each pair of actions, at most 20 or one per action.

    More cells than are needed have fewer local optima; what does not matter is dropped later.
    """
    return max(n_actions, min(n_actions * max(n_actions - 1, 2), _MAX_CELLS))


@dataclass(frozen=True)
class GradedCoding(Coding):
    """Codes rules whose cells each have a degree, and whose actions are degrees."""

    degrees: FloatArray
    """Of the actions, from -1 to 1, shape (A,)."""

    @property
    def n_moving(self) -> int:
        """Length of a vector."""
        return 2 * self._n_graded * (1 + len(self.used))

    def random(self, rng: np.random.Generator, offset: float = 1.0) -> FloatArray:
        """Draw the vector of a rule."""
        vector = rng.standard_normal(self.n_moving)
        vector[:: 1 + len(self.used)] *= offset
        return vector

    def decoded(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return scores and outputs of rules, as :class:`RulePolicy` has them, of P vectors."""
        n, width = len(vectors), 1 + len(self.used)
        halves = vectors.reshape(n, 2, self._n_graded, 1, width)
        scores = _SCORE_WEIGHT * halves[:, 0] + 2.0 * self.degrees[:, None] * halves[:, 1]
        scores[..., 0] -= self.degrees**2
        cells = scores.reshape(n, -1, width)
        outputs = np.tile(np.eye(self.n_outputs), (self._n_graded, 1))[:, :, None]
        return self._raw(cells), np.tile(outputs, (n, 1, 1, 1))

    @property
    def _n_graded(self) -> int:
        return max(self.n_cells // self.n_outputs, 1)


def degrees_of(
    world: WorldArrays, at: Coordinates, seen: FloatArray, n_actions: int
) -> FloatArray | None:
    """Return each action's degree of one quantity, from -1 to 1, shape (A,); None if there is none.

    ``seen``, shape (n, d), are states in which the first law says what actions change. For two
    actions, which always are degrees, rules have no fewer numbers: None.
    """
    if n_actions < 3:
        return None
    points = seen[:: max(len(seen) // _GRADED_STATES, 1)]
    codes = np.repeat(np.eye(n_actions), len(points), axis=0)
    after = predict(one_law(world, 0), np.tile(points, (n_actions, 1)), codes)[0]
    changes = np.where(at.ignored, 0.0, after / at.scale).reshape(n_actions, -1)
    changes -= changes.mean(axis=0)
    left, sizes, _ = np.linalg.svd(changes, full_matrices=False)
    if sizes[0] <= _NO_EFFECT or not sizes[0] ** 2 > _ON_A_LINE * (sizes**2).sum():
        return None
    degrees = left[:, 0] - left[:, 0].min()
    degrees = 2.0 * degrees / degrees.max() - 1.0
    return degrees if np.diff(np.sort(degrees)).min() > _MIN_GAP else None


@dataclass(frozen=True)
class Effort:
    """The effort of a search."""

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
    """Search for the best rule.

    It begins with the ``known`` rules, (scores, outputs), and random ones. ``explore``: maximise
    novelty instead of returns. ``fresh``: climb from a new rule, to leave a local optimum, in the
    ``graded`` coding if there is one.

    Returns
    -------
    scores, outputs, and the promised mean return
    """
    old = [where.coding.encoded(*rule) for rule in known]
    sigma = effort.sigma
    if fresh and graded is not None:
        begin, sigma = _by_degrees(where, graded, explore, effort, rng), _GRADED_SIGMA
    else:
        begin = _first(where, old, explore, fresh, effort, rng)
    climber = Climber(begin, sigma, effort.population, rng, where.coding.n_moving)
    before, wide, last = begin, False, _LONGEST * effort.generations
    for generation in range(1, last + 1):
        asked = climber.ask()
        found = where.means(asked, effort.starts, explore, wide)
        if found.max() - np.quantile(found, 1.0 - _EQUAL) <= _SAME * np.abs(found).max():
            if wide or explore:
                break
            wide, last = True, generation + _WIDE
            continue  # from so many that are equal nothing is learned
        climber.tell(found)
        if wide and generation >= last:
            break
        if generation % _WINDOW == 0:
            pair = where.means(np.array([before, climber.mean]), _PAIRED * effort.starts, explore)
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


def _first(
    where: Imagination,
    old: list[FloatArray],
    explore: bool,
    fresh: bool,
    effort: Effort,
    rng: np.random.Generator,
) -> FloatArray:
    """Return the best of the known rules and of random ones; if ``fresh``, of the latter."""
    new = [where.coding.random(rng, _OFFSET) for _ in range(effort.random)]
    vectors = np.array([*old, *new, *_constant(where.coding)])
    first = where.means(vectors, max(effort.starts // 3, 3), explore)
    top = np.argsort(-first, kind="stable")[: 8 + len(old)]
    second = where.means(vectors[top], effort.starts, explore)
    if fresh and (top >= len(old)).any():
        second = np.where(top >= len(old), second, -np.inf)
    return np.asarray(vectors[top[np.argmax(second)]])


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


def _by_degrees(
    where: Imagination, graded: Coding, explore: bool, effort: Effort, rng: np.random.Generator
) -> FloatArray:
    """Return the best rule of the graded coding, as a vector."""
    among = replace(where, coding=graded)
    scores, outputs, _ = search(among, (), explore, True, effort, rng)
    where.steps = among.steps
    return where.coding.encoded(scores, outputs)
