"""Where episodes end: half-spaces of one component, and a sparse quadratic classifier.

First half-spaces {x_j > t} or {x_j < t} in which nothing but ends has been seen, greedily: a track
or a field is left there. If they leave ends over, a logistic regression on (1, x, x xᵀ) tells
those, from which the terms that matter least are dropped one after the other, as long as the F1
score stays. Between the last state that went on and the first that ended nobody knows: the
threshold leans to where it does not promise too much.
"""

from typing import NamedTuple

import numpy as np

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.worlds.laws import monomials

_LEAST_SHARE = 0.05  # of the ends that are left, in one more half-space
_NEGLIGIBLE = 0.02  # of the ends, which may stay unexplained
_LOST_F1, _STALE_F1 = 0.005, 0.01
_MOST_ROWS, _MOST_ENDS, _HARDEST, _RANDOM = 4000, 1500, 1500, 1000
_PENALTY = 1e-6
_ITERATIONS = 150
_KEPT = 0.8  # of the rows, for each member of the ensemble
REMEMBERED = 300  # ends whose rewards are remembered


class Ends(NamedTuple):
    """What tells ends, as :class:`~oda_rl.agents.worlds.arrays.WorldArrays` has it."""

    walls: FloatArray
    terms: IntArray
    hazards: FloatArray


def none(n_laws: int) -> Ends:
    """Nothing ends."""
    return Ends(np.zeros((0, 3)), np.zeros((0, 2), dtype=np.int64), np.zeros((n_laws, 1)))


def fit_ends(
    points: FloatArray,
    ended: BoolArray,
    margin: float,
    n_laws: int,
    known: IntArray | None,
    rng: np.random.Generator,
) -> Ends:
    """Learn where episodes end.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        Standardised observations that steps led to.
    ended : ndarray of bool, shape (n,)
        Whether the episode terminated there.
    margin : float
        Where thresholds lie between what went on (0) and what ended (1).
    n_laws : int
        Members of the ensemble.
    known : ndarray, shape (m, 2), optional
        Terms that were found before; they are kept while they do.
    rng : numpy.random.Generator

    Examples
    --------
    >>> points = np.linspace(-1.0, 1.0, 21)[:, None]
    >>> found = fit_ends(points, points[:, 0] > 0.75, 0.5, 1, None, np.random.default_rng(0))
    >>> found.walls.round(9)
    array([[0.  , 1.  , 0.75]])
    """
    if not ended.any():
        return none(n_laws)
    walls, left = _walls(points, ended, margin)
    if left.sum() <= _NEGLIGIBLE * ended.sum():
        return none(n_laws)._replace(walls=walls)
    if left.sum() > 0.5 * ended.sum():
        walls, left = np.zeros((0, 3)), ended.copy()
    rows = _rows(points, left, ended, rng)
    terms = _all_terms(points.shape[1])
    columns, target = monomials(points[rows], quadratic=True), left[rows].astype(float)
    full = _logistic(columns, target, np.zeros(len(terms)))
    best = best_f1(columns @ full, target)[0]
    kept = _indices(terms, known)
    if kept is not None:
        weights = _logistic(columns[:, kept], target, np.zeros(len(kept)))
        if best_f1(columns[:, kept] @ weights, target)[0] < best - _STALE_F1:
            kept = None
    if kept is None:
        kept = _eliminate(columns, target, full, best)
    hazards = np.zeros((n_laws, len(kept) + 1))
    for e in range(n_laws):
        drawn = rng.random(len(target)) < _KEPT
        if not 0.0 < target[drawn].sum() < drawn.sum():
            drawn[:] = True
        weights = _logistic(columns[drawn][:, kept], target[drawn], np.zeros(len(kept)))
        weights /= np.linalg.norm(weights) + 1e-300
        hazards[e, :-1] = weights
        hazards[e, -1] = _threshold(columns[:, kept] @ weights, target, margin)
    return Ends(walls, terms[kept], hazards)


def _all_terms(d: int) -> IntArray:
    """Return the terms of (1, x, x xᵀ): pairs of 0 for 1 and 1 + j for component j."""
    i, k = np.triu_indices(d)
    linear = np.column_stack([np.arange(1 + d), np.zeros(1 + d, dtype=np.int64)])
    return np.concatenate([linear, np.column_stack([1 + i, 1 + k])])


def _indices(terms: IntArray, wanted: IntArray | None) -> IntArray | None:
    if wanted is None or len(wanted) == 0:
        return None
    places = {tuple(term): i for i, term in enumerate(terms.tolist())}
    return np.array([places[tuple(term)] for term in wanted.tolist()])


def _walls(points: FloatArray, ended: BoolArray, margin: float) -> tuple[FloatArray, BoolArray]:
    """Return half-spaces as rows (component, sign, threshold), and the ends that are in none."""
    left = ended.copy()
    rows: list[tuple[float, float, float]] = []
    d = points.shape[1]
    if ended.all():
        return np.zeros((0, 3)), left
    while left.any() and len(rows) < 2 * d:
        best, found = (0, 0.0), None
        for j in range(d):
            for sign in (1.0, -1.0):
                values = sign * points[:, j]
                top = values[~ended].max()
                inside = left & (values > top)
                if inside.any():
                    gap = float(values[inside].min() - top)
                    worth = int(inside.sum()), gap
                    if worth > best:
                        best, found = worth, (j, sign, sign * (top + margin * gap), inside)
        if found is None or best[0] < _LEAST_SHARE * left.sum():
            break
        rows.append(found[:3])
        left &= ~found[3]
    return np.array(rows, dtype=np.float64).reshape(-1, 3), left


def _rows(
    points: FloatArray, left: BoolArray, ended: BoolArray, rng: np.random.Generator
) -> IntArray:
    """Choose what to learn from: the latest ends, the others that look most like them, and some."""
    rows = np.flatnonzero(left | ~ended)
    if len(rows) <= _MOST_ROWS:
        return rows
    ends, others = np.flatnonzero(left)[-_MOST_ENDS:], np.flatnonzero(~ended)
    some = others[:: max(len(others) // (2 * _RANDOM), 1)]
    both = np.concatenate([ends, some])
    target = np.concatenate([np.ones(len(ends)), np.zeros(len(some))])
    columns = monomials(points[both], quadratic=True)
    weights = _logistic(columns, target, np.zeros(columns.shape[1]))
    likeness = monomials(points[others], quadratic=True) @ weights
    hardest = others[np.argpartition(-likeness, _HARDEST)[:_HARDEST]]
    return np.unique(np.concatenate([ends, hardest, rng.choice(others, _RANDOM)]))


def _logistic(columns: FloatArray, target: FloatArray, start: FloatArray) -> FloatArray:
    """Logistic regression in which ends and all others weigh the same."""
    from scipy.optimize import minimize

    share = target.mean()
    weights = np.where(target > 0.0, 0.5 / share, 0.5 / max(1.0 - share, 1e-300)) / len(target)

    def loss(v: FloatArray) -> tuple[float, FloatArray]:
        z = columns @ v
        probability = 1.0 / (1.0 + np.exp(-np.clip(z, -500.0, 500.0)))
        value = weights @ (np.logaddexp(0.0, z) - target * z) + 0.5 * _PENALTY * v @ v
        return float(value), columns.T @ (weights * (probability - target)) + _PENALTY * v

    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS})
    return np.asarray(found.x)


def best_f1(likeness: FloatArray, target: FloatArray) -> tuple[float, float]:
    """Return the best F1 score of any threshold, and that threshold.

    >>> best_f1(np.array([0.1, 0.4, 0.8]), np.array([0.0, 1.0, 1.0]))
    (1.0, 0.4)
    """
    order = np.argsort(-likeness, kind="stable")
    hits = np.cumsum(target[order])
    scores = 2.0 * hits / (np.arange(1, len(hits) + 1) + target.sum())
    best = int(np.argmax(scores))
    return float(scores[best]), float(likeness[order][best])


def _eliminate(
    columns: FloatArray, target: FloatArray, weights: FloatArray, best: float
) -> IntArray:
    """Drop terms, those that matter least first, while the F1 score stays."""
    kept = np.arange(columns.shape[1])
    at_once = True
    while len(kept) > 2:
        size = np.abs(weights) * columns[:, kept].std(axis=0)
        size[0] = np.inf
        count = max(1, (len(kept) - 8) // 4) if at_once else 1
        dropped = np.argsort(size)[:count]
        fewer = np.delete(kept, dropped)
        found = _logistic(columns[:, fewer], target, np.delete(weights, dropped))
        if best_f1(columns[:, fewer] @ found, target)[0] < best - _LOST_F1:
            if count == 1:
                break
            at_once = False
            continue
        kept, weights, at_once = fewer, found, True
    return kept


def _threshold(likeness: FloatArray, target: FloatArray, margin: float) -> float:
    """Return the threshold between what went on and what ended; or a precise or a broad one."""
    others, ends = likeness[target == 0.0], likeness[target > 0.0]
    top, low = float(others.max()), float(ends.min())
    if low > top:
        return top + margin * (low - top)
    if margin > 0.5:
        precise = float(np.quantile(others, max(0.0, 1.0 - 0.02 * len(ends) / len(target))))
        return max(min(top, float(np.quantile(ends, 0.5))), precise)
    if margin < 0.5:
        return float(np.quantile(ends, 0.1))
    return best_f1(likeness, target)[1] - 1e-9
