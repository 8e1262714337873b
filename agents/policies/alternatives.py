"""The nearest state in which a policy acts otherwise.

Distances are Euclidean in standard deviations of the observation's components; constant components
are not moved. Where the nearest cell decides alone, cells are polyhedra: the distance is exact, by
non-negative least squares. Where the m nearest cells are blended
(:mod:`oda_rl.agents.policies.cells`), a search finds a state that acts otherwise, so an upper
bound, and there is a lower bound, within which no state has another action.

The lower bound is the larger of two. Slopes are shared, so action b is preferred to a where
Σ exp(−score_k/width) δ_k over the m nearest cells is not positive, δ_k being how much more a is
worth in cell k.

- A ball: within a radius r, the difference of two scores changes by at most r times the norm of the
  difference of their slopes. So each term has bounds, and so has the radius within which its cell
  is surely, or possibly, one of the m. The sum of the lower bounds of positive terms that surely
  count and of negative terms that possibly do is positive up to a radius, found by bisection.
- Polyhedra: let n be the cell of the m with the most negative term. A cell p with positive δ_p that
  is nearer is one of the m, so leaves room for m − 1 negative terms: score_n ≤ score_p +
  width log((m − 1) |δ_n|/δ_p). No state before the nearest polyhedron has another action.

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
from oda_rl.agents.policies.contract import Alternative, CellTables, Policy

_NOTHING = 1e-12  # relative: what is left by rounding
_MARGIN, _MIN_MARGIN = 1e-6, 1e-9  # of the distance by which a witness lies beyond the boundary
_ALONG = 32  # points looked at along a line
_HALVINGS = 24
_DIRECTIONS = 64  # tried around the best one, for each of
_FARTHEST, _BISECTIONS = 1e3, 40  # of a ball
_MAX_EXPONENT = 700.0
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
    scores, slopes = _scores_and_slopes(tables.diagram, point - tables.origin, scale)
    at_least, towards = _polyhedra_bound(tables, scores, slopes, action)
    if at_least == np.inf:
        return Alternative(np.inf, np.inf, None)
    # Blended cells may act otherwise where no codevector does: search towards all of them.
    ways = [] if towards is None else [towards]
    own = np.asarray(tables.values.argmax(axis=1))
    hard = alternative_of_cells(tables.diagram, own, point - tables.origin, action, scale)
    if hard.point is not None:
        ways.append((hard.point - (point - tables.origin)) * scale)
    found = alternative_by_search(policy, point, action, scale, ways)
    radius = _ball_bound(tables, scores, slopes, action, min(found.distance, _FARTHEST))
    return replace(found, at_least=max(min(at_least, found.distance), radius))


def _polyhedra_bound(
    tables: CellTables, scores: FloatArray, slopes: FloatArray, action: int
) -> tuple[float, FloatArray | None]:
    """Return the distance of the nearest polyhedron of other actions, or inf, and the step."""
    regions = []
    for other in range(tables.values.shape[1]):
        lead = tables.values[:, action] - tables.values[:, other]
        # Among equals the first action is taken: a later one has to be better.
        behind = np.flatnonzero(lead < 0.0 if other > action else lead <= 0.0)
        ahead = np.flatnonzero(lead > 0.0)
        for n in behind.tolist() if other != action else ():
            with np.errstate(divide="ignore"):
                slack = tables.width * np.log((tables.n_nearest - 1.0) * -lead[n] / lead[ahead])
            gaps = scores[n] - scores[ahead] - np.maximum(slack, 0.0)
            within = hyperplane_distances(gaps, np.linalg.norm(slopes[n] - slopes[ahead], axis=1))
            regions.append((float(within.max(initial=0.0)), n, ahead, gaps))
    nearest, towards = np.inf, None
    for bound, n, ahead, gaps in sorted(regions, key=lambda region: region[0]):
        if bound >= nearest:
            break
        step = smallest_step(slopes[n] - slopes[ahead], gaps)
        if step is not None and np.linalg.norm(step) < nearest:
            nearest, towards = max(bound, float(np.linalg.norm(step))), step
    return nearest, towards


def _ball_bound(
    tables: CellTables, scores: FloatArray, slopes: FloatArray, action: int, farthest: float
) -> float:
    """Return a radius within which the action does not change, at most ``farthest``."""
    from scipy.spatial.distance import cdist

    m, norms = tables.n_nearest, cdist(slopes, slopes)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Up to a radius of [k, j], cell j cannot get nearer than k; from minus it on, it may.
        radii = np.nan_to_num((scores - scores[:, None]) / norms, nan=0.0, posinf=np.inf)
    few = len(scores) <= m
    leaves = np.inf if few else np.sort(radii, axis=1)[:, m]  # itself has 0
    enters = -np.inf if few else np.sort(radii, axis=0)[-m]
    lead = tables.values[:, [action]] - np.delete(tables.values, action, axis=1)
    references = np.argsort(scores)[:m]  # relative to whose weight the others are

    def is_safe(radius: float) -> bool:
        gaps, change = scores - scores[references, None], radius * norms[references]
        least = np.exp(np.minimum(-(gaps + change) / tables.width, 0.5 * _MAX_EXPONENT))
        most = np.exp(np.minimum((change - gaps) / tables.width, _MAX_EXPONENT))  # cut: unsafe
        least, most = least * (radius < leaves), most * (radius >= enters)
        margins = least @ np.maximum(lead, 0.0) + most @ np.minimum(lead, 0.0)
        return bool((margins > 0.0).all(axis=1).any())

    low, high = 0.0, farthest
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_safe(middle) else (low, middle)
    return low


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


def kept_in_single(
    policy: Policy, nearest: Alternative, point: FloatArray, choice: int, scale: FloatArray
) -> Alternative:
    """Return an alternative a little farther away, which keeps its choice in single precision."""
    if nearest.point is None:
        return nearest
    step = nearest.point - point
    size, length = np.linalg.norm([nearest.point * scale, step * scale], axis=1)
    farther = np.finfo(np.float32).eps * size / length * np.append(0.0, 2.0 ** np.arange(10))
    states = nearest.point + farther[:, None] * step
    choices, rounded = policy.choices(states), states.astype(np.float32).astype(np.float64)
    best = ((choices != choice) & (policy.choices(rounded) == choices)).argmax()
    factor = 1.0 if policy.exact else 1.0 + float(farther[best])
    return replace(nearest, distance=factor * nearest.distance, point=states[best])


def _scores_and_slopes(
    diagram: FloatArray, point: FloatArray, scale: FloatArray
) -> tuple[FloatArray, FloatArray]:
    return diagram[:, 0] + diagram[:, 1:] @ point, _unscaled(diagram[:, 1:], scale)


def _unscaled(steps: FloatArray, scale: FloatArray) -> FloatArray:
    """Divide by the scale; 0 where that is 0."""
    return np.asarray(np.where(scale > 0.0, steps / np.where(scale > 0.0, scale, 1.0), 0.0))
