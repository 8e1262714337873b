"""Master problems of exemplar selection: the best weights of finitely many exemplars.

Given the responses K, shape (N, M), of N samples to M exemplars, they find the weights q on the
simplex whose combined responses γ = K q maximise one of the four objectives of
:class:`oda_rl.INFEX`'s paper, section 3.1, whose α are -η. Means are over samples, or weighted by
their masses. A solution comes with prices η of the samples: a further exemplar z improves it if
Σ_i η_i k_z(x_i) exceeds σ; if none does, q is optimal.

The solvers are primal-dual interior-point methods whose systems have M unknowns, however many
samples there are. Their dual solutions lie inside the optimal face, not at one of its corners.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from oda_rl._types import FloatArray

OBJECTIVES = ("log_likelihood", "margin", "margin_variance", "mean_variance")
_MAX_STEPS = 200
_TINY = 1e-300
_ROUNDED = 1e-3
_RIDGE = 1e-13  # of the mean diagonal: columns may be equal


class Proportions(NamedTuple):
    """Weights of exemplars, and prices for others."""

    weights: FloatArray  # q, shape (M,), ≥ 0 and of sum 1; exactly 0 outside the solution
    value: float  # the objective at q
    prices: FloatArray  # η, shape (N,)
    bound: float
    """Threshold that a price has to exceed. By weak duality no weights of any exemplars in a set Z
    are better than ``value + max over Z of Σ η_i k_z(x_i) - bound``."""
    converged: bool
    """Whether the tolerance was reached; weights are feasible and the bound is valid anyway."""


def average(values: FloatArray, masses: FloatArray | None) -> FloatArray:
    """Mean over the first axis, weighted by masses, shape (N,) and of sum 1, if given."""
    return np.asarray(values.mean(axis=0) if masses is None else masses @ values)


def objective_value(
    objective: str, responses: FloatArray, penalty: float, masses: FloatArray | None = None
) -> float:
    """Value of one of :data:`OBJECTIVES` at combined responses γ, shape (N,).

    In their order: mean log γ; ρ = min γ; ρ - C mean (γ - ρ)²; mean γ - C var γ, with C =
    ``penalty`` ≥ 0. ``masses``, shape (N,), are positive and of sum 1, equal by default.
    """
    if objective == "log_likelihood":
        with np.errstate(divide="ignore"):
            return float(average(np.log(responses), masses))
    if objective == "mean_variance":
        mean = average(responses, masses)
        return float(mean - penalty * average((responses - mean) ** 2, masses))
    margin = responses.min()
    if objective == "margin":
        return float(margin)
    return float(margin - penalty * average((responses - margin) ** 2, masses))


def best_proportions(
    responses: FloatArray, objective: str = "log_likelihood", *, penalty: float = 1.0,
    start: FloatArray | None = None, tolerance: float = 1e-10, masses: FloatArray | None = None,
) -> Proportions:  # fmt: skip
    """Weight exemplars optimally, from weights ``start``, shape (M,), near the solution.

    Responses K ≥ 0, shape (N, M), are of the order of 1; every row has a positive entry.
    ``objective``, ``penalty`` and ``masses`` are those of :func:`objective_value`. The tolerance is
    the duality gap at which to stop, > 0; of a margin below 1, in shares of it.
    """
    n_exemplars = responses.shape[1]
    if start is None:
        weights = np.full(n_exemplars, 1.0 / n_exemplars)
    else:
        weights = 0.9 * start / start.sum() + 0.1 / n_exemplars
    if objective in ("margin", "margin_variance"):
        each = 1.0 / len(responses) if masses is None else masses
        curvature = 2.0 * penalty * each if objective == "margin_variance" else 0.0
        solved = _margin(responses, weights, curvature, tolerance)
    else:
        solved = _smooth(responses, weights, objective, penalty, tolerance, masses)
    inside, costs, etas, converged = solved
    # Weights that are 0 in the limit become 0; prices are those at the others.
    weights = np.where((inside * 1e3 > costs) & (inside > 1e-12), inside, 0.0)
    weights /= weights.sum()
    combined = responses @ weights
    if combined.min() <= 0.0 < (responses @ inside).min():
        weights = inside / inside.sum()
        combined = responses @ weights
    bound = value = objective_value(objective, combined, penalty, masses)
    n = len(combined) if masses is None else 1.0 / masses  # as if all samples had this mass
    if objective == "log_likelihood":
        prices, bound = 1.0 / (n * combined), 1.0
    elif objective == "mean_variance":
        prices = (1.0 - 2.0 * penalty * (combined - average(combined, masses))) / n
        bound = float(prices @ combined)
    else:
        prices = etas / etas.sum()
        if objective == "margin_variance" and penalty > 0.0:
            # The dual function is -max_z Σ η k_z - Σ over η < 0 of N η²/(4 C).
            squares = n * np.minimum(prices, 0.0) ** 2
            bound -= float(squares.sum()) / 4.0 / penalty
    return Proportions(weights, value, prices, bound, converged)


# Weights, their costs, the unscaled η of the margins, and whether the method converged.
_Solved = tuple[FloatArray, FloatArray, FloatArray, bool]


def _newton_solver(hessian: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Solve H x = b by Cholesky's factors, with more and more of a ridge if it is not definite."""
    ridge = _RIDGE * float(np.trace(hessian)) / len(hessian)
    while True:
        try:
            regular = hessian.copy()
            regular[np.diag_indices(len(hessian))] += ridge
            factor = cho_factor(regular, lower=True, overwrite_a=True, check_finite=False)
            return lambda b: np.asarray(cho_solve(factor, b, check_finite=False))
        except LinAlgError:
            ridge *= 100.0


def _longest(values: FloatArray, direction: FloatArray) -> float:
    """Longest step, at most 1, at which positive values stay positive."""
    falling = direction < 0.0
    steps = -values[falling] / direction[falling]
    return min(1.0, 0.995 * float(steps.min(initial=np.inf)))  # share of the way to the boundary


def _is_small(complementarity: float, residual: float, tolerance: float) -> bool:
    """Whether an iterate is good enough, or rounding keeps the residual from falling further."""
    enough = residual < tolerance or complementarity < _ROUNDED * tolerance
    return complementarity < tolerance and enough


def _products(rows: FloatArray, masses: FloatArray | None) -> FloatArray:
    """Rᵀ R of rows R, shape (N, M), weighted by masses in units of their mean."""
    weighed = rows if masses is None else rows * (len(rows) * masses)[:, None]
    return np.asarray(weighed.T @ rows)


def _smooth(
    responses: FloatArray, weights: FloatArray, objective: str, penalty: float, tolerance: float,
    masses: FloatArray | None,
) -> _Solved:  # fmt: skip
    """Minimise a smooth f(K q) over the simplex: -log-likelihood, or C var γ - mean γ.

    ``costs`` are the multipliers of q ≥ 0, ``level`` that of Σ q = 1; centring is by Mehrotra's
    predictor.
    """
    n, m = responses.shape
    likelihood = objective == "log_likelihood"
    mean = average(responses, masses)
    spread = None if likelihood else 2.0 * penalty / n * _products(responses - mean, masses)
    costs = np.full(m, 1.0 if likelihood else max(float(mean.max()), _TINY))
    level = 0.0
    combined = responses @ weights
    for _ in range(_MAX_STEPS):
        if spread is None:
            scaled = responses / combined[:, None]
            gradient, hessian, scale = -average(scaled, masses), _products(scaled, masses) / n, 1.0
        else:
            gradient, hessian = spread @ weights - mean, spread.copy()
            scale = max(float(np.abs(gradient).max()), _TINY)
        residual = gradient + level - costs
        gap = float(weights @ costs)
        if _is_small(gap, float(np.abs(residual).max()), tolerance * scale):
            return weights, costs, combined, True
        hessian[np.diag_indices(m)] += costs / weights
        solve = _newton_solver(hessian)
        by_level = solve(np.ones(m))
        missing = 1.0 - float(weights.sum())
        target: FloatArray = np.zeros(m)
        for predicting in (True, False):
            move = solve(target / weights - residual - costs)
            up = (float(move.sum()) - missing) / float(by_level.sum())
            move -= up * by_level
            slope = (target - costs * move) / weights - costs
            along, against = _longest(weights, move), _longest(costs, slope)
            if predicting:
                predicted = float((weights + along * move) @ (costs + against * slope))
                target = np.full(m, gap / m * min(1.0, predicted / gap) ** 3)
                if min(along, against) > 0.1:
                    target -= move * slope
        step = min(along, against)
        change = responses @ move
        if likelihood:
            step = min(step, _longest(combined, change))
        weights = weights + step * move
        costs = costs + step * slope
        level += step * up
        combined = combined + step * change
    return weights, costs, combined, False


def _margin(
    responses: FloatArray, weights: FloatArray, curvature: float | FloatArray, tolerance: float
) -> _Solved:
    """Maximise ρ - Σ (curvature / 2) (γ - ρ)² under γ = K q ≥ ρ, q on the simplex.

    The slacks γ - ρ and their multipliers ω, the ``pushes``, are iterates, too; ``margin`` is ρ,
    ``costs`` are the multipliers of q ≥ 0, and ``level`` that of Σ q = 1.
    """
    n, m = responses.shape
    combined = responses @ weights
    margin = 0.5 * float(combined.min())
    slacks = np.maximum(combined - margin, max(1e-3 * float((combined - margin).mean()), _TINY))
    pushes = np.full(n, 1.0 / n)
    level = 1.1 * float((pushes @ responses).max())
    costs = np.maximum(level - pushes @ responses, 0.05 * level)
    for _ in range(_MAX_STEPS):
        prices = pushes - curvature * slacks  # η
        of_weights = level - responses.T @ prices - costs
        of_margin = float(prices.sum()) - 1.0
        combined = responses @ weights
        of_slacks = combined - margin - slacks
        gap = float(weights @ costs + slacks @ pushes)
        # A penalised margin may be 0; a plain one is the level.
        floor = float(combined.mean()) if np.any(curvature > 0.0) else _TINY
        scale = max(abs(level), floor)
        residual = max(
            float(np.abs(of_weights).max()), abs(of_margin) * scale, float(np.abs(of_slacks).max())
        )
        if _is_small(gap, residual, tolerance * min(scale, 1.0)):
            return weights, costs, prices, True
        # All unknowns but ρ and σ are eliminated.
        stiffness = pushes / slacks + curvature
        stiff = responses * stiffness[:, None]
        hessian = responses.T @ stiff
        hessian[np.diag_indices(m)] += costs / weights
        solve = _newton_solver(hessian)
        to_margin = -stiff.sum(axis=0)
        by_margin, by_level = solve(to_margin), solve(np.ones(m))
        corner = float(stiffness.sum()) - float(to_margin @ by_margin)
        left = np.array(
            [[corner, -float(to_margin @ by_level)], [-by_margin.sum(), -by_level.sum()]]
        )
        pushed, cost = np.zeros(n), np.zeros(m)  # slacks times pushes, weights times costs there
        for predicting in (True, False):
            # dη = pushed/s - ω - stiffness ds, and ds = K dq - dρ + of_slacks.
            drive = pushed / slacks - pushes - stiffness * of_slacks
            d_free = solve(responses.T @ drive - of_weights + (cost / weights - costs))
            missing = 1.0 - float(weights.sum())
            sides = [-of_margin - drive.sum() - to_margin @ d_free, missing - d_free.sum()]
            d_margin, d_level = np.linalg.solve(left, sides)
            d_weights = d_free - d_margin * by_margin - d_level * by_level
            d_slacks = responses @ d_weights - d_margin + of_slacks
            d_pushes = (pushed - pushes * d_slacks) / slacks - pushes
            d_costs = (cost - costs * d_weights) / weights - costs
            along = min(_longest(weights, d_weights), _longest(slacks, d_slacks))
            against = min(_longest(costs, d_costs), _longest(pushes, d_pushes))
            if predicting:
                predicted = float(
                    (weights + along * d_weights) @ (costs + against * d_costs)
                    + (slacks + along * d_slacks) @ (pushes + against * d_pushes)
                )
                centring = gap / (n + m) * min(1.0, predicted / gap) ** 3
                pushed, cost = centring - d_slacks * d_pushes, centring - d_weights * d_costs
        step = min(along, against)
        weights, slacks = weights + step * d_weights, slacks + step * d_slacks
        costs, pushes = costs + step * d_costs, pushes + step * d_pushes
        margin += step * float(d_margin)
        level += step * float(d_level)
    return weights, costs, pushes - curvature * slacks, False
