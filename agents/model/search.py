"""Search for a rule in imagination: random rules and the best known, then CMA-ES from the best.

A rule of K cells is a vector of numbers: for each cell offset and slopes of its score, in
standardised components, and where actions are continuous those of each component of its action.

Actions may be degrees of one quantity, as torques are. Then fewer numbers make a rule: each cell
has an affine degree, and the nearest action is taken. With affine scores s of cells and degrees u,
action k of degree c_k has in each cell the affine score M s + 2 c_k u - c_k^2, which is greatest
where c_k is nearest to u: so it is a rule like all others, in which a search for one can begin.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.distilling.coding import raw, standardised
from oda_rl.agents.distilling.search import Climber
from oda_rl.agents.worlds.coordinates import Coordinates, WorldArrays
from oda_rl.agents.worlds.simulation import one_law, predict, returned

_MAX_CELLS = 20
_SAME, _EQUAL = 1e-9, 0.75  # share of rules that are best alike, and a search is over
_LONGEST = 4  # times as many generations, while returns grow
_WINDOW, _PROGRESS = 8, 0.01  # by that share in so many generations, from common starts
_WIDE = 12  # more generations from wherever, of rules that are as good as can be from the starts
_PAIRED = 4  # times as many as in a generation
_GRADED_SIGMA = 0.1  # about a rule that has been climbed before
_GRADED_STATES = 200
_ON_A_LINE = 0.95  # share of what actions change that one quantity explains
_MIN_GAP = 0.04  # between two degrees, which go from -1 to 1
_SCORE_WEIGHT = 5.0  # of a cell, against the distance of its degree


@dataclass(frozen=True)
class Shape:
    """Of the rules that are searched."""

    n_cells: int
    n_features: int
    n_outputs: int
    """Actions, or components of a continuous one."""
    boxed: bool
    used: tuple[int, ...] | None = None
    """Components that scores and outputs depend on; None: all."""

    @classmethod
    def of(cls, n_features: int, n_outputs: int, n_choices: int, boxed: bool) -> "Shape":
        """Return the default: two cells for each pair of actions, if these are few; or all choices.

        More cells than are needed have fewer local optima; what does not matter is dropped later.
        """
        if boxed:
            return cls(n_choices, n_features, n_outputs, boxed)
        pairs = n_outputs * max(n_outputs - 1, 2)
        n_cells = max(n_outputs, min(pairs, _MAX_CELLS))
        return cls(n_cells, n_features, n_outputs, boxed)

    @property
    def size(self) -> int:
        """Numbers of a rule."""
        rows = self.n_cells * (1 + self.n_outputs * self.boxed)
        return rows * self.width

    @property
    def width(self) -> int:
        """Numbers of an affine function."""
        return 1 + (self.n_features if self.used is None else len(self.used))

    def among(self, at: Coordinates) -> "Shape":
        """Return the shape of rules that do not depend on what is noise."""
        if not at.ignored.any():
            return self
        return replace(self, used=tuple(np.flatnonzero(~at.ignored).tolist()))

    @property
    def constant(self) -> FloatArray:
        """Rules that always do the same, as vectors; of continuous actions none."""
        if self.boxed:
            return np.zeros((0, self.size))
        rules = np.zeros((self.n_outputs, self.size))
        rules[:, :: self.width] = np.eye(self.n_outputs, self.n_cells)
        return rules

    def decoded(self, vectors: FloatArray, at: Coordinates) -> tuple[FloatArray, FloatArray]:
        """Return scores and outputs of rules, as :class:`RulePolicy` has them, of P vectors."""
        n_rules, n_cells = len(vectors), self.n_cells
        used = vectors.reshape(n_rules, -1, self.width)
        rows = np.zeros((*used.shape[:2], 1 + self.n_features))
        rows[..., self._columns] = used
        rows = raw(rows, at.mean, at.scale)
        scores = rows[:, :n_cells]
        if self.boxed:
            outputs = rows[:, n_cells:].reshape(n_rules, n_cells, self.n_outputs, -1)
        else:
            one = np.eye(self.n_outputs)[self._actions][:, :, None]
            outputs = np.tile(one, (n_rules, 1, 1, 1))  # no view, for which numba compiles anew
        return np.ascontiguousarray(scores), np.ascontiguousarray(outputs)

    def encoded(self, scores: FloatArray, outputs: FloatArray, at: Coordinates) -> FloatArray:
        """Return the vector of a rule, its scores scaled to a mean square of 1."""
        scores, outputs = self._filled(scores, outputs)
        rows = self._used(scores, at)
        rows -= rows.mean(axis=0)
        rows /= np.sqrt((rows**2).mean()) + 1e-300
        return np.concatenate([rows.ravel(), self._used(outputs, at).ravel() if self.boxed else []])

    def _used(self, rows: FloatArray, at: Coordinates) -> FloatArray:
        """Return affine functions of those standardised components that count."""
        rows = standardised(rows.reshape(-1, 1 + self.n_features), at.mean, at.scale)
        return np.ascontiguousarray(rows[:, self._columns])

    @property
    def _actions(self) -> IntArray:
        """Action of each cell."""
        return np.arange(self.n_cells) % self.n_outputs

    @property
    def _columns(self) -> slice | list[int]:
        """Of an affine function of all components, those that count."""
        return slice(None) if self.used is None else [0, *(1 + j for j in self.used)]

    def _filled(self, scores: FloatArray, outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a rule of all cells that decides like one of fewer."""
        if len(scores) == self.n_cells and (
            self.boxed or np.array_equal(outputs[:, :, 0].argmax(axis=1), self._actions)
        ):
            return scores, outputs
        if self.boxed:
            rows = np.arange(self.n_cells) % len(scores)
            return scores[rows], outputs[rows]
        filled = np.zeros((self.n_cells, 1 + self.n_features))
        lowest = scores.min(axis=0) - np.eye(1, 1 + self.n_features)[0] * (
            1.0 + np.ptp(scores[:, 0])
        )
        for k in range(self.n_cells):
            same = scores[outputs[:, k % self.n_outputs, 0] > 0.0]
            filled[k] = same[k // self.n_outputs % len(same)] if len(same) else lowest
        return filled, outputs


@dataclass(frozen=True)
class GradedShape(Shape):
    """Shape of rules whose cells each have a degree, and whose actions are degrees."""

    degrees: tuple[float, ...] = ()
    """Of the actions, -1 to 1."""

    @classmethod
    def by(cls, shape: Shape, degrees: FloatArray) -> "GradedShape":
        """Return the graded shape of rules that can be encoded in another shape."""
        return cls(**asdict(shape), degrees=tuple(degrees.tolist()))

    @property
    def size(self) -> int:
        """Numbers of a rule."""
        return 2 * self._n_graded * self.width

    @property
    def constant(self) -> FloatArray:
        """No rules: those that always do the same are tried without degrees."""
        return np.zeros((0, self.size))

    def decoded(self, vectors: FloatArray, at: Coordinates) -> tuple[FloatArray, FloatArray]:
        """Return scores and outputs of rules, as :class:`RulePolicy` has them, of P vectors."""
        halves = vectors.reshape(len(vectors), 2, self._n_graded, 1, self.width)
        degrees = np.array(self.degrees)[:, None]
        scores = _SCORE_WEIGHT * halves[:, 0] + 2.0 * degrees * halves[:, 1]
        scores[..., :1] -= degrees**2
        cells = scores.reshape(len(vectors), -1, self.width)
        missing = self.n_cells - cells.shape[1]
        cells = np.concatenate([cells, cells[:, :missing]], axis=1)
        return super().decoded(cells.reshape(len(vectors), -1), at)

    @property
    def _n_graded(self) -> int:
        return max(self.n_cells // self.n_outputs, 1)


def degrees_of(
    world: WorldArrays, at: Coordinates, seen: FloatArray, n_actions: int
) -> FloatArray | None:
    """Return of which degree of one quantity each action is, if they are: -1 to 1, shape (A,).

    ``seen``, shape (n, d), are states in which the first law says what actions change. Two actions
    always are degrees of one quantity, and rules for them have no fewer numbers.
    """
    if n_actions < 3:
        return None
    points = seen[:: max(len(seen) // _GRADED_STATES, 1)]
    codes = np.repeat(np.eye(n_actions), len(points), axis=0)
    after = predict(one_law(world, 0), np.tile(points, (n_actions, 1)), codes)[0]
    changes = np.where(at.ignored, 0.0, after / at.scale).reshape(n_actions, -1)
    changes -= changes.mean(axis=0)
    left, sizes, _ = np.linalg.svd(changes, full_matrices=False)
    if not sizes[0] ** 2 > _ON_A_LINE * (sizes**2).sum():
        return None
    degrees = left[:, 0] - left[:, 0].min()
    degrees = 2.0 * degrees / degrees.max() - 1.0
    return degrees if np.diff(np.sort(degrees)).min() > _MIN_GAP else None


@dataclass(frozen=True)
class Effort:
    """How long to search."""

    random: int = 150
    """Random rules to begin with."""
    population: int = 24
    generations: int = 25
    starts: int = 12
    sigma: float = 0.4


@dataclass
class Imagination:
    """Plays rules in a world."""

    world: WorldArrays
    at: Coordinates
    shape: Shape
    horizon: int
    draw_starts: Callable[[int], FloatArray]
    """Returns so many states in which an episode may begin."""
    draw_seen: Callable[[int], FloatArray]
    """Returns so many states that were seen."""
    steps: int = 0
    """Imagined so far."""

    def returns(
        self, scores: FloatArray, outputs: FloatArray, starts: FloatArray, explore: bool = False
    ) -> FloatArray:
        """Return the returns of P rules from n starts, shape (P, n)."""
        found, steps = returned(self.world, scores, outputs, starts, self.horizon, explore)
        self.steps += steps
        return found

    def means(
        self, vectors: FloatArray, n_starts: int, explore: bool, wide: bool = False
    ) -> FloatArray:
        """Return the mean returns of rules, given as vectors, from common starts.

        If ``wide``, from states that were seen, wherever.
        """
        starts = self.draw_seen(n_starts) if wide else self.draw_starts(n_starts)
        return np.asarray(
            self.returns(*self.shape.decoded(vectors, self.at), starts, explore).mean(axis=1)
        )


def search(
    where: Imagination,
    known: Sequence[tuple[FloatArray, FloatArray]],
    explore: bool,
    fresh: bool,
    effort: Effort,
    rng: np.random.Generator,
    graded: Shape | None = None,
) -> tuple[FloatArray, FloatArray, float]:
    """Search for the best rule.

    It begins with the rules ``known`` so far, as (scores, outputs). ``explore``: look for what is
    unlike all that was seen instead of for returns. ``fresh``: climb from a new rule, to leave a
    local optimum; new rules are of the ``graded`` shape, if there is one.

    Returns
    -------
    scores, outputs, and the mean return that is promised
    """
    old = np.array([where.shape.encoded(*rule, where.at) for rule in known])
    old = old.reshape(-1, where.shape.size)
    sigma = effort.sigma
    if fresh and graded is not None:
        begin, sigma = _by_degrees(where, graded, explore, effort, rng), _GRADED_SIGMA
    else:
        begin = _first(where, old, explore, fresh, effort, rng)
    climber = Climber(begin, sigma, effort.population, rng)
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
    finalists = np.concatenate([[climber.mean], old])
    final = where.means(finalists, 3 * effort.starts, explore)
    final[0] += 1e-6 * abs(final[0])
    best = int(np.argmax(final))
    scores, outputs = where.shape.decoded(finalists[best : best + 1], where.at)
    if best > 0:
        return *known[best - 1], float(final[best])
    return scores[0], outputs[0], float(final[0])


def _first(
    where: Imagination,
    old: FloatArray,
    explore: bool,
    fresh: bool,
    effort: Effort,
    rng: np.random.Generator,
) -> FloatArray:
    """Return the best of the known rules and of random ones; if ``fresh``, of the latter."""
    shape = where.shape
    new = rng.normal(size=(effort.random, shape.size))
    new[:, :: shape.width] *= 0.5
    vectors = np.concatenate([old, new, shape.constant])
    first = where.means(vectors, max(effort.starts // 3, 3), explore)
    top = np.argsort(-first, kind="stable")[: 8 + len(old)]
    second = where.means(vectors[top], effort.starts, explore)
    if fresh and (top >= len(old)).any():
        second = np.where(top >= len(old), second, -np.inf)
    return np.asarray(vectors[top[np.argmax(second)]])


def _by_degrees(
    where: Imagination, graded: Shape, explore: bool, effort: Effort, rng: np.random.Generator
) -> FloatArray:
    """Return the best of rules of fewer numbers, as a vector."""
    among = replace(where, shape=graded)
    scores, outputs, _ = search(among, (), explore, True, effort, rng)
    where.steps = among.steps
    return where.shape.encoded(scores, outputs, where.at)
