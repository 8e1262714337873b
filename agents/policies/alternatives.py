"""The nearest state in which a policy acts otherwise.

Distances are Euclidean in standard deviations of the observation's components; constant components
are not moved. Where the nearest cell decides alone, cells are polyhedra: the distance is exact, by
non-negative least squares. Where the m nearest cells are blended
(:mod:`oda_rl.agents.policies.cells`), a search finds a state that acts otherwise, so an upper
bound, and there is a lower bound, within which no state has another action.

The lower bound: slopes are shared, so action b is preferred to a where Σ exp(−score_k/width) δ_k
over the m nearest cells is not positive, δ_k being how much more a is worth in cell k. There, let n
be the cell of the m with the most negative term. At most m − 1 cells have a lower score. A cell p
with positive δ_p that is one of the m leaves room for m − 1 negative terms, so score_n ≤ score_p +
width log((m − 1) |δ_n|/δ_p). All such states are in a few polyhedra for each n and b, and the
nearest point of all polyhedra is at least as near as the nearest state that acts otherwise.

References
----------
C. L. Lawson, R. J. Hanson, "Solving least squares problems", 1974, chapter 23: least distance
programming by non-negative least squares.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.policies.contract import TIE, Alternative, CellTables, Policy

_NOTHING = 1e-12  # relative: what is left by rounding
_MARGIN, _MIN_MARGIN = 1e-6, 1e-9  # of the distance by which a witness lies beyond the boundary
_ALONG = 32  # points looked at along a line
_HALVINGS = 24
_DIRECTIONS = 64  # tried around the best one, for each of
_SPREADS = (10.0, 10.0, 3.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)  # relative; 10: anywhere
_MAX_REGIONS = 500  # looked at for the lower bound
_BEYOND = 2.0  # as far as the polyhedra that a search follows the direction to them


class Nearest(NamedTuple):
    """The nearest point of a polyhedron, as a step from where one is."""

    distance: float
    """inf if there is none."""
    step: FloatArray | None
    """Shape (d,); leads just beyond the boundary, so a little farther than the distance."""


NOWHERE = Nearest(np.inf, None)


def smallest_step(slopes: FloatArray, gaps: FloatArray) -> FloatArray | None:
    """Return the shortest z, (d,), with ``gaps + slopes @ z <= 0``, (m,); None if there is none.

    The dual is a problem of non-negative least squares.

    >>> smallest_step(np.array([[-1.0, 0.0], [0.0, -2.0]]), np.array([3.0, 8.0])).round(9)
    array([3., 4.])
    """
    from scipy.optimize import nnls

    d = slopes.shape[1]
    norms = np.linalg.norm(slopes, axis=1)
    flat = norms <= _NOTHING * norms.max(initial=0.0)
    if (gaps[flat] > 0.0).any():
        return None
    normals, offsets = slopes[~flat] / norms[~flat, None], gaps[~flat] / norms[~flat]
    unit = float(offsets.max(initial=0.0))
    if unit <= 0.0:
        return np.zeros(d)
    dual = np.vstack([-normals.T, offsets / unit])
    aim = np.append(np.zeros(d), 1.0)
    weights, residual_norm = nnls(dual, aim, maxiter=30 * dual.shape[1])
    if residual_norm**2 < _NOTHING:
        return None
    residual = dual @ weights - aim
    return np.asarray(-unit * residual[:d] / residual[d])


def nearest_of(polyhedra: Sequence[tuple[FloatArray, FloatArray]]) -> Iterator[Nearest]:
    """Yield the nearest point of each polyhedron that is not empty, the nearest first.

    Polyhedra are (slopes, gaps) with ``gaps + slopes @ z <= 0``, shapes (m, d) and (m,).

    >>> sides = [(np.array([[-1.0]]), np.array([3.0])), (np.array([[1.0]]), np.array([2.0]))]
    >>> [round(one.distance, 9) for one in nearest_of(sides)]
    [2.0, 3.0]
    """
    queue: list[tuple[float, int, FloatArray | None]] = []
    for i, (slopes, gaps) in enumerate(polyhedra):
        bounds = hyperplane_distances(gaps, np.linalg.norm(slopes, axis=1))
        queue.append((float(bounds.max(initial=0.0)), i, None))
    heapify(queue)
    while queue:
        distance, i, step = heappop(queue)
        slopes, gaps = polyhedra[i]
        if step is None:
            step = smallest_step(slopes, gaps)
            if step is not None:
                heappush(queue, (max(distance, float(np.linalg.norm(step))), i, step))
            continue
        margin = max(_MARGIN * distance, _MIN_MARGIN)
        beyond = smallest_step(slopes, gaps + margin * np.linalg.norm(slopes, axis=1))
        yield Nearest(distance, step if beyond is None else beyond)  # it may have no inside


def hyperplane_distances(gaps: FloatArray, norms: FloatArray) -> FloatArray:
    """Return the distance that closes each gap alone, given the norms of the slopes.

    >>> hyperplane_distances(np.array([6.0, -1.0, 1.0, 0.0]), np.array([2.0, 1.0, 0.0, 0.0]))
    array([ 3.,  0., inf,  0.])
    """
    flat = norms <= _NOTHING * norms.max(initial=0.0)
    crossed = np.maximum(gaps, 0.0) / np.where(flat, 1.0, norms)
    return np.asarray(np.where(flat, np.where(gaps > 0.0, np.inf, 0.0), crossed))


def alternative_of_cells(
    diagram: FloatArray, actions: IntArray, point: FloatArray, action: int, scale: FloatArray
) -> Alternative:
    """Return the nearest point in a cell with another action; exact.

    ``actions``, shape (K,), are those of the cells, and ``action`` is that at the point. ``scale``,
    shape (d,), has inverse standard deviations of the components; those with 0 are not moved.

    >>> codevectors = np.array([[0.0], [2.0]])
    >>> diagram = np.column_stack([codevectors**2, -2.0 * codevectors])
    >>> found = alternative_of_cells(diagram, np.array([0, 1]), np.array([3.0]), 1, np.ones(1))
    >>> round(found.distance, 9), found.point.round(4)
    (2.0, array([1.]))
    """
    scores, slopes = _scores_and_slopes(diagram, point, scale)
    own, others = np.flatnonzero(actions == action), np.flatnonzero(actions != action)
    cells = [(slopes[k] - slopes[own], scores[k] - scores[own]) for k in others]
    distance, step = next(nearest_of(cells), NOWHERE)
    return Alternative(distance, distance, None if step is None else point + _unscaled(step, scale))


def alternative_of_pieces(
    pieces: Sequence[FloatArray], policy: Policy, point: FloatArray, choice: int, scale: FloatArray
) -> Alternative:
    """Return the nearest point in polyhedra where a policy makes another choice; exact.

    A polyhedron is where its rows, shape (m, 1 + d), of affine functions are not negative.
    """
    polyhedra = [_scores_and_slopes(-rows, point, scale)[::-1] for rows in pieces]
    for distance, step in nearest_of(polyhedra):
        assert step is not None
        reached = point + _unscaled(step, scale)
        if policy.choices(reached[None])[0] != choice:
            return Alternative(distance, distance, reached)
    return Alternative(np.inf, np.inf, None)


def alternative_of_blend(
    policy: Policy, point: FloatArray, action: int, scale: FloatArray
) -> Alternative:
    """Return a near state in which a blended policy acts otherwise, and a lower bound."""
    tables = policy.tables
    low = _lower_bound(tables, point, action, scale)
    if low is NOWHERE:
        return Alternative(np.inf, np.inf, None)
    # Blended cells may act otherwise where no codevector does: search towards all of them.
    own = np.asarray(tables.values.argmax(axis=1))
    hard = alternative_of_cells(tables.diagram, own, point - tables.origin, action, scale)
    ways = [*(policy.codevectors - point) * scale, low.step]
    if hard.point is not None:
        ways.insert(0, (hard.point - (point - tables.origin)) * scale)
    step = _Search(policy, point, action, scale).best(ways)
    if step is None:
        return Alternative(np.inf, low.distance, None)
    distance = float(np.linalg.norm(step))
    return Alternative(distance, min(low.distance, distance), point + _unscaled(step, scale))


def alternative_by_search(
    policy: Policy, point: FloatArray, choice: int, scale: FloatArray
) -> Alternative:
    """Return a near state with another choice, found on ways to codevectors; no lower bound."""
    step = _Search(policy, point, choice, scale).best([*(policy.codevectors - point) * scale])
    if step is None:
        return Alternative(np.inf, 0.0, None)
    return Alternative(float(np.linalg.norm(step)), 0.0, point + _unscaled(step, scale))


class _Region(NamedTuple):
    """A polyhedron where a cell n that prefers another action may be one of the m nearest."""

    cell: int
    slack: FloatArray
    """By how much the score of n may exceed that of each cell, shape (K,)."""
    step: FloatArray | None
    """To its nearest point; None while that is not known."""


def _lower_bound(tables: CellTables, point: FloatArray, action: int, scale: FloatArray) -> Nearest:
    """Return the nearest point where the action may change, as the module's docstring argues.

    Best first: a region whose nearest point has n among the m nearest cells is the answer; where
    m others are nearer, n has to be nearer than one of them, so the region is split.
    """
    m = tables.n_nearest
    scores, slopes = _scores_and_slopes(tables.diagram, point - tables.origin, scale)
    tolerance = TIE * float(np.ptp(scores))
    queue = _first_regions(tables, scores, slopes, action)
    heapify(queue)
    seen: set[tuple[int, bytes]] = set()
    count = len(queue)
    for _ in range(_MAX_REGIONS):
        if not queue:
            return NOWHERE
        bound, _, region = heappop(queue)
        n, slack, step = region
        if step is None:
            finite = np.flatnonzero(np.isfinite(slack))
            gaps = scores[n] - scores[finite] - slack[finite]
            step = smallest_step(slopes[n] - slopes[finite], gaps)
            if step is not None:
                bound = max(bound, float(np.linalg.norm(step)))
                count += 1
                heappush(queue, (bound, count, region._replace(step=step)))
            continue
        excess = scores[n] - scores + (slopes[n] - slopes) @ step
        nearer = np.flatnonzero((excess > tolerance) & (slack > 0.0))
        if len(nearer) < m:
            return Nearest(bound, step)
        for j in nearer[np.argsort(-excess[nearer], kind="stable")[:m]]:
            tighter = slack.copy()
            tighter[j] = 0.0
            if (n, tighter.tobytes()) not in seen:
                seen.add((n, tighter.tobytes()))
                count += 1
                heappush(queue, (bound, count, _Region(n, tighter, None)))
    return Nearest(queue[0][0], None) if queue else NOWHERE


def _first_regions(
    tables: CellTables, scores: FloatArray, slopes: FloatArray, action: int
) -> list[tuple[float, int, _Region]]:
    """Return a region for each other action and each cell that prefers it, with a bound."""
    own, m = tables.values, tables.n_nearest
    regions: list[tuple[float, int, _Region]] = []
    for other in range(own.shape[1]):
        if other == action:
            continue
        lead = own[:, action] - own[:, other]
        # Among equals the first action is taken: a later one has to be better.
        behind = np.flatnonzero(lead < 0.0 if other > action else lead <= 0.0)
        ahead = np.flatnonzero(lead > 0.0)
        for n in behind.tolist():
            slack = np.full(len(own), np.inf)
            with np.errstate(divide="ignore"):
                slack[ahead] = tables.width * np.log((m - 1.0) * -lead[n] / lead[ahead])
            slack = np.maximum(slack, 0.0)
            norms = np.linalg.norm(slopes[n] - slopes, axis=1)
            within = hyperplane_distances(scores[n] - scores - slack, norms).max()
            nearer = hyperplane_distances(scores[n] - scores, norms)
            last = np.sort(nearer)[-m] if len(nearer) >= m else 0.0  # m - 1 may stay nearer
            regions.append((max(float(within), float(last)), len(regions), _Region(n, slack, None)))
    return regions


class _Search:
    """Looks along lines for where a policy begins to act otherwise."""

    def __init__(self, policy: Policy, point: FloatArray, action: int, scale: FloatArray) -> None:
        self._policy, self._point, self._action, self._scale = policy, point, action, scale

    def best(self, ways: Sequence[FloatArray | None]) -> FloatArray | None:
        """Return the shortest step along some ways, and around the shortest of these.

        While there is none, search in all directions, ever farther.
        """
        steps = np.array([_BEYOND * way for way in ways if way is not None and way.any()])
        if len(steps) == 0:
            return None
        longest = steps[np.linalg.norm(steps, axis=1).argmax()]
        best = self._shortest(steps)
        rng = np.random.default_rng(0)
        for spread in _SPREADS:
            start = longest if best is None else best
            longest = 2.0 * longest
            best = self._shortest(np.vstack([self._around(start, spread, rng), start]))
        return best

    def _around(self, step: FloatArray, spread: float, rng: np.random.Generator) -> FloatArray:
        """Return steps as long as one, in directions near its own."""
        length = float(np.linalg.norm(step))
        noise = rng.normal(size=(_DIRECTIONS, len(step))) * (self._scale > 0.0)
        around = step + spread * length * noise / np.sqrt(len(step))
        return np.asarray(around * length / np.linalg.norm(around, axis=1, keepdims=True))

    def _shortest(self, steps: FloatArray) -> FloatArray | None:
        """Shorten each step to the first change of the action; return the shortest step."""
        shares = np.arange(1, _ALONG + 1) / _ALONG
        otherwise = self._otherwise((steps[:, None] * shares[:, None]).reshape(-1, steps.shape[1]))
        table = otherwise.reshape(len(steps), _ALONG)
        steps, table = steps[table.any(axis=1)], table[table.any(axis=1)]
        if len(steps) == 0:
            return None
        high = shares[table.argmax(axis=1)]
        low = high - 1.0 / _ALONG
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            changed = self._otherwise(middle[:, None] * steps)
            low, high = np.where(changed, low, middle), np.where(changed, middle, high)
        found = high[:, None] * steps
        return np.asarray(found[np.linalg.norm(found, axis=1).argmin()])

    def _otherwise(self, steps: FloatArray) -> npt.NDArray[np.bool_]:
        observations = self._point + _unscaled(steps, self._scale)
        return np.asarray(self._policy.choices(observations) != self._action)


def _scores_and_slopes(
    diagram: FloatArray, point: FloatArray, scale: FloatArray
) -> tuple[FloatArray, FloatArray]:
    return diagram[:, 0] + diagram[:, 1:] @ point, _unscaled(diagram[:, 1:], scale)


def _unscaled(steps: FloatArray, scale: FloatArray) -> FloatArray:
    """Divide by the scale; 0 where that is 0."""
    return np.asarray(np.where(scale > 0.0, steps / np.where(scale > 0.0, scale, 1.0), 0.0))
