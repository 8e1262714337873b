"""Master problems of exemplar selection: the best weights of finitely many exemplars.

Given the responses K, shape (N, M), of N samples to M exemplars, they look for weights q on the
simplex for which the combined responses γ = K q are best by one of the four objectives of [INFEX],
section 3.1. Each solution comes with the weights η of the samples that price a further exemplar z:
it is worth adding if Σ_i η_i k_z(x_i) exceeds σ, and if none does, q is optimal.

The solvers are primal-dual interior points whose systems have M unknowns, however many samples
there are. Their dual solutions lie inside the optimal face, not at one of its corners.

References
----------
[INFEX] S. Nowozin, G. Bakir, "A decoupled approach to exemplar-based unsupervised learning",
International Conference on Machine Learning, 2008. Its α are -η. Equation 13 and Algorithm 1 print
the sign of Σ α k wrongly, and the η of objectives 3 and 4 have both signs, against section 3.3.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve

FloatArray = npt.NDArray[np.float64]

OBJECTIVES = ("log_likelihood", "margin", "margin_variance", "mean_variance")
_MOST_STEPS = 200
_TO_BOUNDARY = 0.995  # share of the way to the boundary that a step may go
_ROUNDED = 1e-3
_RIDGE = 1e-13  # of the mean diagonal: columns may be equal


class NotConvergedError(RuntimeError):
    """A solver ended before its tolerance was reached.

    Attributes
    ----------
    solution : object
        The best certified solution until then: feasible, with an honest gap.
    """

    def __init__(self, message: str, solution: object) -> None:
        super().__init__(message)
        self.solution = solution


class Proportions(NamedTuple):
    """Weights of exemplars, and what prices others."""

    weights: FloatArray
    """q, shape (M,), ≥ 0 and of sum 1; exactly 0 for those that are not in the solution."""
    value: float
    """The objective at q, to be maximised."""
    prices: FloatArray
    """η, shape (N,)."""
    bound: float
    """σ less what the dual loses: by weak duality no solution over a set Z is better than
    ``value + max over Z of Σ η_i k_z(x_i) - bound``."""


def objective_value(objective: str, responses: FloatArray, penalty: float) -> float:
    """Value of an objective, to be maximised, at combined responses γ, shape (N,).

    Parameters
    ----------
    objective : {"log_likelihood", "margin", "margin_variance", "mean_variance"}
        mean log γ; ρ = min γ; ρ - C mean (γ - ρ)²; mean γ - C var γ.
    responses : ndarray, shape (N,)
        γ ≥ 0; positive for the log-likelihood to be finite.
    penalty : float
        C ≥ 0, of the last two.

    Examples
    --------
    >>> objective_value("mean_variance", np.array([1.0, 3.0]), 0.5)
    1.5
    """
    if objective == "log_likelihood":
        with np.errstate(divide="ignore"):
            return float(np.log(responses).mean())
    if objective == "mean_variance":
        return float(responses.mean() - penalty * responses.var())
    least = responses.min()
    if objective == "margin":
        return float(least)
    return float(least - penalty * ((responses - least) ** 2).mean())


def best_proportions(
    responses: FloatArray,
    objective: str = "log_likelihood",
    *,
    penalty: float = 1.0,
    start: FloatArray | None = None,
    tolerance: float = 1e-10,
) -> Proportions:
    """Weight exemplars optimally.

    Parameters
    ----------
    responses : ndarray, shape (N, M)
        K ≥ 0, at most 1 by order of magnitude. Every row has a positive entry.
    objective : {"log_likelihood", "margin", "margin_variance", "mean_variance"}
        See :func:`objective_value`.
    penalty : float
        C ≥ 0, of the last two.
    start : ndarray, shape (M,), optional
        Weights near the solution.
    tolerance : float
        Duality gap at which to stop, > 0; times the value where that is below 1 and positive (a
        margin may be small).

    Returns
    -------
    Proportions

    Raises
    ------
    NotConvergedError
        If 200 Newton steps don't suffice; its ``solution`` is the last one.

    Examples
    --------
    >>> K = np.array([[1.0, 0.2], [1.0, 0.2], [0.2, 1.0]])
    >>> found = best_proportions(K)
    >>> found.weights.round(3)
    array([0.75, 0.25])
    >>> bool(np.allclose(found.prices @ K, 1.0))  # neither could be worth more
    True
    """
    n_exemplars = responses.shape[1]
    if start is None:
        weights = np.full(n_exemplars, 1.0 / n_exemplars)
    else:
        weights = 0.9 * start / start.sum() + 0.1 / n_exemplars
    if objective in ("margin", "margin_variance"):
        curvature = 2.0 * penalty / len(responses) if objective == "margin_variance" else 0.0
        solved = _margin(responses, weights, curvature, tolerance)
    else:
        solved = _smooth(responses, weights, objective, penalty, tolerance)
    if not solved.converged:
        found = _finished(responses, objective, penalty, solved)
        raise NotConvergedError(
            f"the proportions of {n_exemplars} exemplars did not converge to {tolerance:g} in "
            f"{_MOST_STEPS} Newton steps: raise the tolerance",
            found,
        )
    return _finished(responses, objective, penalty, solved)


class _Solved(NamedTuple):
    """Where an interior point ended."""

    weights: FloatArray
    costs: FloatArray
    prices: FloatArray | None
    converged: bool


def _finished(
    responses: FloatArray, objective: str, penalty: float, solved: _Solved
) -> Proportions:
    """Drop what is zero in the limit, and price at the rest."""
    weights = np.where(solved.weights * 1e3 > solved.costs, solved.weights, 0.0)
    weights = np.where(weights > 1e-12, weights, 0.0)
    weights /= weights.sum()
    combined = responses @ weights
    if combined.min() <= 0.0 < (responses @ solved.weights).min():
        weights = solved.weights / solved.weights.sum()
        combined = responses @ weights
    value = objective_value(objective, combined, penalty)
    return Proportions(
        weights, value, *_prices(objective, combined, penalty, value, solved.prices)
    )


def _prices(
    objective: str,
    combined: FloatArray,
    penalty: float,
    value: float,
    dual: FloatArray | None,
) -> tuple[FloatArray, float]:
    """Prices η and the bound that a price has to beat."""
    n = len(combined)
    if objective == "log_likelihood":
        return 1.0 / (n * combined), 1.0
    if objective == "mean_variance":
        prices = (1.0 - 2.0 * penalty * (combined - combined.mean())) / n
        return prices, float(prices @ combined)
    assert dual is not None
    prices = dual / dual.sum()
    if objective == "margin":
        return prices, value
    # The dual function is -max_z Σ η k_z - Σ over η < 0 of N η²/(4 C).
    lost = 0.0 if penalty == 0.0 else n * float((np.minimum(prices, 0.0) ** 2).sum()) / 4.0 / penalty
    return prices, value - lost


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
    """How far one may go until a positive value vanishes, at most 1."""
    falling = direction < 0.0
    if not falling.any():
        return 1.0
    return min(1.0, _TO_BOUNDARY * float((-values[falling] / direction[falling]).min()))


def _is_small(complementarity: float, residual: float, tolerance: float) -> bool:
    """Whether an iterate is good enough, or rounding keeps the residual from falling further."""
    if complementarity >= tolerance:
        return False
    return residual < tolerance or complementarity < _ROUNDED * tolerance


def _smooth(
    responses: FloatArray, weights: FloatArray, objective: str, penalty: float, tolerance: float
) -> _Solved:
    """Minimise a smooth f(K q) over the simplex: -log-likelihood, or variance less mean.

    Mehrotra's predictor gives the centring; Σ q = 1 has the multiplier ``level``.
    """
    n, m = responses.shape
    likelihood = objective == "log_likelihood"
    centred = responses if likelihood else responses - responses.mean(axis=0)
    mean = responses.mean(axis=0)
    costs = np.ones(m) * (1.0 if likelihood else max(float(mean.max()), 1e-300))
    level = 0.0
    combined = responses @ weights
    fixed_hessian = None if likelihood else 2.0 * penalty / n * (centred.T @ centred)
    for _ in range(_MOST_STEPS):
        if likelihood:
            scaled = responses / combined[:, None]
            gradient = -scaled.sum(axis=0) / n
            hessian = scaled.T @ scaled / n
        else:
            assert fixed_hessian is not None
            gradient = fixed_hessian @ weights - mean
            hessian = fixed_hessian.copy()
        residual = gradient + level - costs
        gap = float(weights @ costs)
        scale = 1.0 if likelihood else max(float(np.abs(gradient).max()), 1e-300)
        if _is_small(gap, float(np.abs(residual).max()), tolerance * scale):
            return _Solved(weights, costs, None, True)
        hessian[np.diag_indices(m)] += costs / weights
        solve = _newton_solver(hessian)
        by_level = solve(np.ones(m))
        missing = 1.0 - float(weights.sum())

        def direction(
            target: float | FloatArray,
            solve: Callable[[FloatArray], FloatArray] = solve,
            residual: FloatArray = residual,
            by_level: FloatArray = by_level,
            missing: float = missing,
        ) -> tuple[FloatArray, FloatArray, float]:
            own = solve(-(residual + costs - target / weights))
            up = (float(own.sum()) - missing) / float(by_level.sum())
            move = own - up * by_level
            return move, (target - costs * move) / weights - costs, up

        move, slope, _ = direction(0.0)
        along, against = _longest(weights, move), _longest(costs, slope)
        predicted = float((weights + along * move) @ (costs + against * slope))
        centring = gap / m * min(1.0, predicted / gap) ** 3
        correction = move * slope if min(along, against) > 0.1 else 0.0
        move, slope, up = direction(centring - correction)
        step = min(_longest(weights, move), _longest(costs, slope))
        change = responses @ move
        if likelihood:
            step = min(step, _longest(combined, change))
        weights = weights + step * move
        costs = costs + step * slope
        level += step * up
        combined = responses @ weights
    return _Solved(weights, costs, None, False)


def _margin(
    responses: FloatArray, weights: FloatArray, curvature: float, tolerance: float
) -> _Solved:
    """Maximise ρ - (curvature / 2) Σ (γ - ρ)² under γ = K q ≥ ρ, q on the simplex.

    The slacks γ - ρ and their multipliers are iterates of their own; the unknowns of the system are
    q, ρ and σ.
    """
    n, m = responses.shape
    combined = responses @ weights
    margin = float(combined.min()) * 0.5
    slacks = combined - margin
    slacks = np.maximum(slacks, max(1e-3 * float(slacks.mean()), 1e-300))
    pushes = np.full(n, 1.0 / n)  # multipliers ω of the slacks
    level = float((pushes @ responses).max()) * 1.1
    costs = np.maximum(level - pushes @ responses, 0.05 * level)
    for _ in range(_MOST_STEPS):
        prices = pushes - curvature * slacks  # η
        of_weights = level - responses.T @ prices - costs
        of_margin = float(prices.sum()) - 1.0
        combined = responses @ weights
        of_slacks = combined - margin - slacks
        missing = 1.0 - float(weights.sum())
        complementarity = float(weights @ costs + slacks @ pushes)
        # A penalised margin may be worth nothing; a plain one is the level.
        scale = max(abs(level), float(combined.mean()) if curvature > 0.0 else 1e-300)
        rest = max(
            float(np.abs(of_weights).max()),
            abs(of_margin) * scale,
            float(np.abs(of_slacks).max()),
        )
        if _is_small(complementarity, rest, tolerance * min(scale, 1.0)):
            return _Solved(weights, costs, prices, True)
        stiffness = pushes / slacks + curvature
        stiff = responses * stiffness[:, None]
        hessian = responses.T @ stiff
        hessian[np.diag_indices(m)] += costs / weights
        solve = _newton_solver(hessian)
        to_margin = -stiff.sum(axis=0)
        by_margin, by_level = solve(to_margin), solve(np.ones(m))
        corner = float(stiffness.sum())

        def direction(
            of_pushes: float | FloatArray, of_costs: float | FloatArray
        ) -> tuple[FloatArray, float, FloatArray, float, FloatArray, FloatArray]:
            # dη = target/s - ω - stiffness ds, ds = K dq - dρ + of_slacks.
            drive = of_pushes / slacks - pushes - stiffness * of_slacks
            right = responses.T @ drive - of_weights + (of_costs / weights - costs)
            own = solve(right)
            # Unknowns dρ and dσ: two equations are left, those of ρ and of Σ q.
            system = np.array(
                [
                    [corner - float(to_margin @ by_margin), -float(to_margin @ by_level)],
                    [-float(by_margin.sum()), -float(by_level.sum())],
                ]
            )
            sides = np.array(
                [
                    -of_margin - float(drive.sum()) - float(to_margin @ own),
                    missing - float(own.sum()),
                ]
            )
            d_margin, d_level = np.linalg.solve(system, sides)
            d_weights = own - d_margin * by_margin - d_level * by_level
            d_slacks = responses @ d_weights - d_margin + of_slacks
            d_pushes = (of_pushes - pushes * d_slacks) / slacks - pushes
            d_costs = (of_costs - costs * d_weights) / weights - costs
            return d_weights, d_margin, d_slacks, d_level, d_pushes, d_costs

        dw, _, ds, _, dp, dc = direction(0.0, 0.0)
        along = min(_longest(weights, dw), _longest(slacks, ds))
        against = min(_longest(costs, dc), _longest(pushes, dp))
        predicted = float(
            (weights + along * dw) @ (costs + against * dc)
            + (slacks + along * ds) @ (pushes + against * dp)
        )
        centring = complementarity / (n + m) * min(1.0, predicted / complementarity) ** 3
        dw, dm, ds, dl, dp, dc = direction(centring - ds * dp, centring - dw * dc)
        step = min(
            _longest(weights, dw), _longest(slacks, ds), _longest(costs, dc), _longest(pushes, dp)
        )
        weights = weights + step * dw
        margin += step * dm
        slacks = slacks + step * ds
        level += step * dl
        pushes = pushes + step * dp
        costs = costs + step * dc
    return _Solved(weights, costs, pushes - curvature * slacks, False)
