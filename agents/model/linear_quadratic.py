"""Linear-quadratic rules, from which a search for rules of continuous actions begins."""

import math
from collections.abc import Sequence

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.distilling.simplifying import Rule
from oda_rl.agents.worlds.coordinates import Coordinates
from oda_rl.agents.worlds.learning import CodedSteps

_BEST = 0.02  # share of the steps, those with the highest rewards, around which laws are linear
_WIDTHS = 0.2, 0.5, 1.0  # of their neighbourhood, in standard deviations
_COSTS = 0.01, 1.0  # of an action, beside a distance of one standard deviation
HIGH_COSTS = 1.0, 100.0, 1e3, 1e4  # with which bounded actions balance from more states
_HORIZON, _DISCOUNT = 50, 0.99
_RIDGE = 1e-6  # relative to the mean square of a column
_VARIES = 1e-9  # standard deviation of a component that is not constant
_MAX_PRODUCTS = 600  # in a law of rewards
MAX_WIDTH = 50  # of an observation: the time grows with their cube


def linear_quadratic_rules(
    seen: CodedSteps, at: Coordinates, costs: Sequence[float] = _COSTS, rewarded: bool = False
) -> list[Rule]:
    """Return affine rules, (scores, outputs), that lead to the states with the highest rewards.

    Around their mean the law is linear: least squares with weights that fall with the distance. A
    step costs the squared distance and one of the ``costs`` times the squared action. On a circle,
    the distance is along the tangent: the radius is no state, and a linear law of it would be
    unstable. ``rewarded``: a step of one more rule costs what a quadratic law of rewards says; it
    can follow a goal in the observation.
    """
    (n, d), p = seen.before.shape, seen.codes.shape[1] - 1
    centre = seen.before[seen.rewards >= np.quantile(seen.rewards, 1.0 - _BEST)].mean(axis=0)
    axes = np.eye(d)
    for i, k in at.circles:
        axes[i, [i, k]] = np.array([-centre[k], centre[i]]) / math.hypot(*centre[[i, k]], _VARIES)
    axes = np.delete(axes, [*at.circles[:, 1], *np.flatnonzero(at.ignored)], axis=0)
    spread = (seen.before @ axes.T).std(axis=0)
    axes = axes[spread > _VARIES] / spread[spread > _VARIES, None]
    if not 0 < len(axes) <= MAX_WIDTH:
        return []
    x, m = (seen.before - centre) @ axes.T, 1 + len(axes)
    columns = np.column_stack([np.ones(n), x, seen.codes[:, 1:]])
    rules: list[Rule] = []
    for width in _WIDTHS:
        weights = np.exp(-0.5 * (x**2).mean(axis=1) / width**2)[:, None]
        law = np.eye(m, m + p)
        moves = (columns * weights).T @ (seen.after - seen.before) @ axes.T
        law[1:] += np.linalg.solve(_gram(columns, weights), moves).T
        of_steps = [np.diag([0.0, *[1.0 / (m - 1)] * (m - 1), *[cost] * p]) for cost in costs]
        few = (m + p) * (m + p + 1) // 2 <= min(n, _MAX_PRODUCTS)
        if rewarded and few and width == max(_WIDTHS):
            of_steps.append(_reward_costs(columns, weights, seen.rewards))
        for gains in (_gains(law, of_step) for of_step in of_steps):
            output = np.concatenate([gains[:, :1], gains[:, 1:] @ axes], axis=1)
            output[:, 0] -= output[:, 1:] @ centre
            if np.isfinite(output).all():
                rules.append((np.zeros((1, 1 + d)), output[None]))
    return rules


def _gram(columns: FloatArray, weights: FloatArray) -> FloatArray:
    gram: FloatArray = (columns * weights).T @ columns
    gram += (_RIDGE * np.trace(gram) / len(gram) + _VARIES) * np.eye(len(gram))
    return gram


def _reward_costs(columns: FloatArray, weights: FloatArray, rewards: FloatArray) -> FloatArray:
    """Return costs of (1, x, u) by a law of rewards, its curvature in (x, u) made positive."""
    i, k = np.triu_indices(columns.shape[1])
    products, costs = columns[:, i] * columns[:, k], np.zeros((columns.shape[1],) * 2)
    relative = (rewards - rewards.mean()) / max(float(rewards.std()), _VARIES)
    law = np.linalg.solve(_gram(products, weights), (products * weights).T @ relative)
    costs[i, k] = -0.5 * law
    costs += costs.T
    curvatures, directions = np.linalg.eigh(costs[1:, 1:])
    costs[1:, 1:] = directions * np.maximum(curvatures, _VARIES) @ directions.T
    return costs


def _gains(law: FloatArray, costs: FloatArray) -> FloatArray:
    """Return the first gains, (p, m), of the regulator of (1, x), of arguments of (1, x, u)."""
    m = len(law)
    still, effect, values = law[:, :m], law[:, m:], costs[:m, :m]
    with np.errstate(over="ignore", invalid="ignore"):  # an unstable law
        for _ in range(_HORIZON):
            pulled = _DISCOUNT * effect.T @ values
            bend, slope = pulled @ effect + costs[m:, m:], pulled @ still + costs[m:, :m]
            gains = np.asarray(-np.linalg.solve(bend, slope))
            values = costs[:m, :m] + _DISCOUNT * still.T @ values @ (still + effect @ gains)
            values += costs[:m, m:] @ gains
            values = 0.5 * (values + values.T)
    return gains
