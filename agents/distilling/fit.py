"""K cells in which few mistakes are made, each mistake as bad as it is.

Cells are soft while they are fitted: state x is in cell k by the share softmax(<w_k, (1, x)>). What
is minimised is the mean of Σ_k share_k · c(x, a_k), c what it costs to do in x what the cell does.
L-BFGS on the scores takes turns with finding what is best for each cell.
"""

from typing import NamedTuple, Protocol

import numpy as np

from oda_rl._types import Array, FloatArray, IntArray

_PENALTY = 1e-5
_RIDGE = 1e-3
_RESTARTS, _FIRST_ROWS = 3, 1500
_FIRST = 4, 40  # turns, and iterations of L-BFGS in each
_LAST = 2, 100
_SPREAD = 0.1  # of codevectors around states at the start
_UNIFORM = 0.1  # share of mean importance that every state has
_NEAR = 300  # states that say how far codevectors are


class Costs(Protocol):
    """What it costs to do otherwise than the teacher, in each of n states."""

    importance: FloatArray
    """How much there is to lose in each state, shape (n,)."""

    def best(self, shares: FloatArray, rows: IntArray) -> Array:
        """Return what each cell should do, of which states have such shares, (len(rows), K)."""

    def of(self, outputs: Array, rows: IntArray) -> FloatArray:
        """Return what that costs in each state in each cell, shape (len(rows), K)."""


class ChoiceCosts:
    """One of a few actions for each cell.

    Parameters
    ----------
    costs : ndarray, shape (n, A)
        Of each action in each state; 0 of the best.
    """

    def __init__(self, costs: FloatArray) -> None:
        self._costs = costs / max(float(costs.mean()), 1e-300)
        self.importance = np.sort(self._costs, axis=1)[:, min(1, costs.shape[1] - 1)]

    def as_mistakes(self) -> "ChoiceCosts":
        """Return 1 for all but the best action of each state."""
        n_actions = self._costs.shape[1]
        return ChoiceCosts(1.0 - np.eye(n_actions)[self._costs.argmin(axis=1)])

    def best(self, shares: FloatArray, rows: IntArray) -> Array:
        """Return the cheapest action of each cell, shape (K,).

        If that were the same for all, cells would have nothing to part by: then the one that loses
        least has its second cheapest.
        """
        totals = shares.T @ self._costs[rows]
        actions = np.asarray(totals.argmin(axis=1))
        if totals.shape[1] > 1 and (actions == actions[0]).all():
            two = np.sort(totals, axis=1)[:, :2]
            k = int((two[:, 1] - two[:, 0]).argmin())
            actions[k] = totals[k].argsort()[1]
        return actions

    def of(self, outputs: Array, rows: IntArray) -> FloatArray:
        """Return what they cost in each state."""
        return self._costs[rows][:, outputs]


class SquareCosts:
    """A vector for each cell, or an affine function; costs are weighted squares of differences.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        Standardised.
    targets : ndarray, shape (n, p)
        What is done, from -1 to 1.
    weights : ndarray, shape (n,)
    affine : bool
        Or else constant.
    """

    def __init__(
        self, points: FloatArray, targets: FloatArray, weights: FloatArray, affine: bool
    ) -> None:
        self._targets = targets
        self.importance = weights / max(float(weights.mean()), 1e-300)
        self._features = with_ones(points) if affine else np.ones((len(points), 1))

    def best(self, shares: FloatArray, rows: IntArray) -> Array:
        """Return offsets and slopes of each cell, shape (K, p, 1 or 1 + d)."""
        features, targets = self._features[rows], self._targets[rows]
        n_cells, width = shares.shape[1], features.shape[1]
        ridge = _RIDGE * len(rows) / n_cells * np.eye(width)
        found = np.empty((n_cells, targets.shape[1], width))
        for k in range(n_cells):
            weighted = features * (shares[:, k] * self.importance[rows])[:, None]
            found[k] = np.linalg.solve(weighted.T @ features + ridge, weighted.T @ targets).T
        return found

    def of(self, outputs: Array, rows: IntArray) -> FloatArray:
        """Return the weighted squares in each state."""
        units = np.clip(np.einsum("nj,kpj->nkp", self._features[rows], outputs), -1.0, 1.0)
        squares = ((units - self._targets[rows, None]) ** 2).sum(axis=2)
        return np.asarray(self.importance[rows, None] * squares)


class Fitted(NamedTuple):
    """Cells, the greatest score of which decides."""

    scores: FloatArray
    """Offsets and slopes, shape (K, 1 + d)."""
    outputs: Array
    """What :meth:`Costs.best` returned."""
    cost: float
    """Mean cost where each state is in its cell alone."""


def fit(points: FloatArray, costs: Costs, n_cells: int, rng: np.random.Generator) -> Fitted:
    """Fit cells, from three starts around states where there is much to lose.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        Standardised.
    costs : Costs
        In these states.
    n_cells : int
    rng : numpy.random.Generator

    Examples
    --------
    >>> points = np.linspace(-1.0, 1.0, 101)[:, None]
    >>> costs = ChoiceCosts(np.column_stack([points > 0.2, points <= 0.2]).astype(float))
    >>> found = fit(points, costs, 2, np.random.default_rng(0))
    >>> found.cost
    0.0
    """
    n = len(points)
    features = with_ones(points)
    importance = costs.importance + _UNIFORM * costs.importance.mean() + 1e-12
    few = rng.choice(n, min(n, _FIRST_ROWS), replace=False)
    tried = []
    for _ in range(_RESTARTS):
        chosen = points[rng.choice(n, n_cells, p=importance / importance.sum())]
        codevectors = chosen + _SPREAD * rng.standard_normal(chosen.shape)
        scores = _nearest(codevectors, points[few[:_NEAR]])
        tried.append(_in_turn(scores, features, costs, few, *_FIRST))
    best = min(tried, key=lambda one: one.cost)
    return _in_turn(best.scores, features, costs, np.arange(n), *_LAST)


def with_ones(points: FloatArray) -> FloatArray:
    """Return points with a first column of ones."""
    return np.column_stack([np.ones(len(points)), points])


def _nearest(codevectors: FloatArray, points: FloatArray) -> FloatArray:
    """Return scores of which that of the nearest codevector is greatest."""
    squares = ((points[:, None] - codevectors) ** 2).sum(axis=2)
    width = squares.min(axis=1).mean() + 1e-6
    scores = np.column_stack([-(codevectors**2).sum(axis=1), 2.0 * codevectors])
    return np.asarray(scores / width)


def _shares(scores: FloatArray, features: FloatArray) -> FloatArray:
    found = features @ scores.T
    shares = np.exp(found - found.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _in_turn(
    scores: FloatArray,
    features: FloatArray,
    costs: Costs,
    rows: IntArray,
    turns: int,
    iterations: int,
) -> Fitted:
    from scipy.optimize import minimize  # loads slowly

    own = features[rows]
    outputs = costs.best(_shares(scores, own), rows)
    for _ in range(turns):
        found = minimize(
            loss, scores.ravel(), (own, costs.of(outputs, rows)), jac=True, method="L-BFGS-B",
            options={"maxiter": iterations},
        )  # fmt: skip
        scores = found.x.reshape(scores.shape)
        outputs = costs.best(_shares(scores, own), rows)
    return Fitted(scores, outputs, mean_cost(scores, outputs, own, costs, rows))


def mean_cost(
    scores: FloatArray, outputs: Array, features: FloatArray, costs: Costs, rows: IntArray
) -> float:
    """Return the mean cost where each state is in its cell alone."""
    cells = (features @ scores.T).argmax(axis=1)
    return float(costs.of(outputs, rows)[np.arange(len(rows)), cells].mean())


def loss(numbers: FloatArray, features: FloatArray, costs: FloatArray) -> tuple[float, FloatArray]:
    """Return what is minimised, and its gradient."""
    scores = numbers.reshape(costs.shape[1], -1)
    shares = _shares(scores, features)
    expected = (shares * costs).sum(axis=1)
    slopes = shares * (costs - expected[:, None]) / len(costs)
    gradient = slopes.T @ features + 2.0 * _PENALTY * scores
    return float(expected.mean() + _PENALTY * (numbers**2).sum()), gradient.ravel()
