"""A rule found in imagination: random ones and the best known, then CMA-ES from the best.

A rule of K cells is a vector of numbers: for each cell offset and slopes of its score, in
standardised components, and where actions are continuous those of each component of its action.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.search import Climber
from oda_rl.agents.worlds.coordinates import Coordinates, WorldArrays
from oda_rl.agents.worlds.trajectories import returned

_MOST_CELLS = 20
_SAME, _EQUAL = 1e-9, 0.75  # share of rules that are best alike, and a search is over
_LONGEST = 4  # times as many generations, while returns grow
_WINDOW, _PROGRESS = 8, 0.01  # by that share in so many generations, from common starts
_WIDE = 12  # more generations from wherever, of rules that are as good as can be from the starts
_PAIRED = 4  # times as many as in a generation
_GRADED_SIGMA = 0.1  # about a rule that has been climbed before


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
        n_cells = max(n_outputs, min(pairs, _MOST_CELLS))
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
        rows = vectors.reshape(len(vectors), -1, self.width)
        raw = np.zeros((*rows.shape[:2], 1 + self.n_features))
        raw[..., self._columns] = rows
        raw[..., 1:] /= at.scale
        raw[..., 0] -= raw[..., 1:] @ at.mean
        scores, rest = raw[:, : self.n_cells], raw[:, self.n_cells :]
        if self.boxed:
            outputs = rest.reshape(len(rows), self.n_cells, self.n_outputs, 1 + self.n_features)
        else:
            actions = np.arange(self.n_cells) % self.n_outputs
            one = np.eye(self.n_outputs)[actions][:, :, None]
            outputs = np.tile(one, (len(rows), 1, 1, 1))  # its own: numba compiles views anew
        return np.ascontiguousarray(scores), np.ascontiguousarray(outputs)

    def encoded(self, scores: FloatArray, outputs: FloatArray, at: Coordinates) -> FloatArray:
        """Return the vector of a rule, its scores scaled to a mean square of 1."""

        def standardised(raw: FloatArray) -> FloatArray:
            rows = raw.reshape(-1, 1 + self.n_features).copy()
            rows[:, 0] += rows[:, 1:] @ at.mean
            rows[:, 1:] *= at.scale
            return np.ascontiguousarray(rows[:, self._columns])

        scores, outputs = self._filled(scores, outputs)
        own = standardised(scores)
        own -= own.mean(axis=0)
        own /= np.sqrt((own**2).mean()) + 1e-300
        return np.concatenate([own.ravel(), standardised(outputs).ravel() if self.boxed else []])

    @property
    def _columns(self) -> slice | list[int]:
        """Of an affine function of all components, those that count."""
        return slice(None) if self.used is None else [0, *(1 + j for j in self.used)]

    def _filled(self, scores: FloatArray, outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a rule of all cells that decides like one of fewer."""
        order = np.arange(self.n_cells) % self.n_outputs
        if len(scores) == self.n_cells and (
            self.boxed or np.array_equal(outputs[:, :, 0].argmax(axis=1), order)
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
            own = scores[outputs[:, k % self.n_outputs, 0] > 0.0]
            filled[k] = own[k // self.n_outputs % len(own)] if len(own) else lowest
        return filled, outputs


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

    Parameters
    ----------
    where : Imagination
    known : sequence of (scores, outputs)
        The best rules so far.
    explore : bool
        Look for what is unlike all that was seen instead of for returns.
    fresh : bool
        Climb from a new rule, not from a known one, to leave a local optimum.
    effort : Effort
    rng : numpy.random.Generator
    graded : Shape, optional
        Of rules of fewer numbers, if there are any that may serve: new rules are made of them.

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
