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
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.policies.contract import TIE, Alternative, CellTables, Policy

_NOTHING = 1e-12  # relative: what is left by rounding
_MARGIN, _MIN_MARGIN = 1e-6, 1e-9  # of the distance by which a witness lies beyond the boundary
_ALONG = 32  # points looked at along a line
_HALVINGS = 24
_DIRECTIONS = 64  # tried around the best one, for each of
_BEYOND = 2.0  # as far as the polyhedra that a search follows the direction to them


def smallest_step(slopes: FloatArray, gaps: FloatArray) -> FloatArray | None:
    """Return the shortest z, (d,), with ``gaps + slopes @ z <= 0``, (m,); None if there is none."""
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


def nearest_of(
    polyhedra: Sequence[tuple[FloatArray, FloatArray]],
) -> Iterator[tuple[float, FloatArray]]:
    """Yield the distance of each polyhedron that is not empty, the nearest first.

    Polyhedra are (slopes, gaps) with ``gaps + slopes @ z <= 0``, shapes (m, d) and (m,). With the
    distance comes a step, shape (d,), just beyond the boundary, so a little longer.
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
        yield distance, step if beyond is None else beyond  # it may have no inside


def hyperplane_distances(gaps: FloatArray, norms: FloatArray) -> FloatArray:
    """Return the distance that closes each gap alone, given the norms of the slopes."""
    flat = norms <= _NOTHING * norms.max(initial=0.0)
    crossed = np.maximum(gaps, 0.0) / np.where(flat, 1.0, norms)
    return np.asarray(np.where(flat, np.where(gaps > 0.0, np.inf, 0.0), crossed))


def alternative_of_cells(
    diagram: FloatArray, actions: IntArray, point: FloatArray, action: int, scale: FloatArray
) -> Alternative:
    """Return the nearest point in a cell with another action; exact.

    ``actions``, shape (K,), are those of the cells, and ``action`` is that at the point. ``scale``,
    shape (d,), has inverse standard deviations of the components; those with 0 are not moved.
    """
    scores, slopes = _scores_and_slopes(diagram, point, scale)
    own, others = np.flatnonzero(actions == action), np.flatnonzero(actions != action)
    cells = [(slopes[k] - slopes[own], scores[k] - scores[own]) for k in others]
    for distance, step in nearest_of(cells):
        return Alternative(distance, distance, point + _unscaled(step, scale))
    return Alternative(np.inf, np.inf, None)


def alternative_of_pieces(
    pieces: Sequence[FloatArray], policy: Policy, point: FloatArray, choice: int, scale: FloatArray
) -> Alternative:
    """Return the nearest point in polyhedra, (m, 1 + d), where another choice is made; exact."""
    polyhedra = [_scores_and_slopes(-rows, point, scale)[::-1] for rows in pieces]
    for distance, step in nearest_of(polyhedra):
        reached = point + _unscaled(step, scale)
        if policy.choices(reached[None])[0] != choice:
            return Alternative(distance, distance, reached)
    return Alternative(np.inf, np.inf, None)


def alternative_of_blend(
    policy: Policy, point: FloatArray, action: int, scale: FloatArray
) -> Alternative:
    """Return a near state in which a blended policy acts otherwise, and maybe a lower bound."""
    tables = policy.tables
    if tables.diagram.shape[1] > 1 + len(point):  # borders of a mixture are curved
        return alternative_by_search(policy, point, action, scale)
    at_least, towards = lower_bound(tables, point, action, scale)
    if at_least == np.inf:
        return Alternative(np.inf, np.inf, None)
    # Blended cells may act otherwise where no codevector does: search towards all of them.
    ways = [] if towards is None else [towards]
    own = np.asarray(tables.values.argmax(axis=1))
    hard = alternative_of_cells(tables.diagram, own, point - tables.origin, action, scale)
    if hard.point is not None:
        ways.append((hard.point - (point - tables.origin)) * scale)
    found = alternative_by_search(policy, point, action, scale, ways)
    return replace(found, at_least=min(at_least, found.distance))


def lower_bound(
    tables: CellTables, point: FloatArray, action: int, scale: FloatArray
) -> tuple[float, FloatArray | None]:
    """Return the distance within which the action does not change, as the module's docstring says.

    With it comes the step to the point at this distance, if it is known. Best first: a region whose
    nearest point has n among the m nearest cells is the answer; where m others are nearer, n has to
    be nearer than one of them, so the region is split.
    """
    m = tables.n_nearest
    scores, slopes = _scores_and_slopes(tables.diagram, point - tables.origin, scale)
    tolerance = TIE * float(np.ptp(scores))
    # A region is (n, by how much the score of n may exceed that of each cell, shape (K,)).
    regions: list[tuple[int, FloatArray]] = []
    queue: list[tuple[float, int, FloatArray | None]] = []
    seen: set[tuple[int, bytes]] = set()

    def add(bound: float, n: int, slack: FloatArray) -> None:
        if (n, slack.tobytes()) not in seen:
            seen.add((n, slack.tobytes()))
            heappush(queue, (bound, len(regions), None))
            regions.append((n, slack))

    for other in range(tables.values.shape[1]):
        lead = tables.values[:, action] - tables.values[:, other]
        # Among equals the first action is taken: a later one has to be better.
        behind = np.flatnonzero(lead < 0.0 if other > action else lead <= 0.0)
        ahead = np.flatnonzero(lead > 0.0)
        for n in behind.tolist() if other != action else ():
            slack = np.full(len(scores), np.inf)
            with np.errstate(divide="ignore"):
                slack[ahead] = tables.width * np.log((m - 1.0) * -lead[n] / lead[ahead])
            slack = np.maximum(slack, 0.0)
            norms = np.linalg.norm(slopes[n] - slopes, axis=1)
            within = hyperplane_distances(scores[n] - scores - slack, norms).max()
            others = np.sort(hyperplane_distances(scores[n] - scores, norms))
            last = others[-m] if len(others) >= m else 0.0  # m - 1 may stay nearer
            add(max(float(within), float(last)), n, slack)
    for _ in range(500):  # regions, for the lower bound
        if not queue:
            return np.inf, None
        bound, i, step = heappop(queue)
        n, slack = regions[i]
        if step is None:
            finite = np.flatnonzero(np.isfinite(slack))
            gaps = scores[n] - scores[finite] - slack[finite]
            step = smallest_step(slopes[n] - slopes[finite], gaps)
            if step is not None:
                heappush(queue, (max(bound, float(np.linalg.norm(step))), i, step))
            continue
        excess = scores[n] - scores + (slopes[n] - slopes) @ step
        nearer = np.flatnonzero((excess > tolerance) & (slack > 0.0))
        if len(nearer) < m:
            return bound, step
        for j in nearer[np.argsort(-excess[nearer], kind="stable")[:m]]:
            tighter = slack.copy()
            tighter[j] = 0.0
            add(bound, n, tighter)
    return (queue[0][0] if queue else np.inf), None


def alternative_by_search(
    policy: Policy,
    point: FloatArray,
    choice: int,
    scale: FloatArray,
    ways: Sequence[FloatArray] = (),
) -> Alternative:
    """Return a near state with another choice, found along lines; no lower bound.

    Searches on ways to the codevectors and on others that are given, then around the best ones;
    while nothing is found, in all directions, ever farther.
    """

    def differs(steps: FloatArray) -> BoolArray:
        return np.asarray(policy.choices(point + _unscaled(steps, scale)) != choice)

    def shortest(steps: FloatArray) -> FloatArray | None:
        """Shorten each step to the first change of the choice; return the shortest."""
        shares = np.arange(1, _ALONG + 1) / _ALONG
        along = (steps[:, None] * shares[:, None]).reshape(-1, steps.shape[1])
        table = differs(along).reshape(len(steps), _ALONG)
        steps, table = steps[table.any(axis=1)], table[table.any(axis=1)]
        if len(steps) == 0:
            return None
        high = shares[table.argmax(axis=1)]
        low = high - 1.0 / _ALONG
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            changed = differs(middle[:, None] * steps)
            low, high = np.where(changed, low, middle), np.where(changed, middle, high)
        found = high[:, None] * steps
        return np.asarray(found[np.linalg.norm(found, axis=1).argmin()])

    steps = _BEYOND * np.array([*ways, *(policy.codevectors - point) * scale])
    steps = steps[steps.any(axis=1)]
    if len(steps) == 0:
        return Alternative(np.inf, 0.0, None)
    longest = steps[np.linalg.norm(steps, axis=1).argmax()]
    best = shortest(steps)
    rng = np.random.default_rng(0)
    for spread in (10.0, 10.0, 3.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01):  # relative; 10: anywhere
        start = longest if best is None else best
        longest = 2.0 * longest
        length = float(np.linalg.norm(start))
        noise = rng.normal(size=(_DIRECTIONS, len(start))) * (scale > 0.0)
        around = start + spread * length * noise / np.sqrt(len(start))
        around *= length / np.linalg.norm(around, axis=1, keepdims=True)
        best = shortest(np.vstack([around, start]))
    if best is None:
        return Alternative(np.inf, 0.0, None)
    return Alternative(float(np.linalg.norm(best)), 0.0, point + _unscaled(best, scale))


def _scores_and_slopes(
    diagram: FloatArray, point: FloatArray, scale: FloatArray
) -> tuple[FloatArray, FloatArray]:
    return diagram[:, 0] + diagram[:, 1:] @ point, _unscaled(diagram[:, 1:], scale)


def _unscaled(steps: FloatArray, scale: FloatArray) -> FloatArray:
    """Divide by the scale; 0 where that is 0."""
    return np.asarray(np.where(scale > 0.0, steps / np.where(scale > 0.0, scale, 1.0), 0.0))
