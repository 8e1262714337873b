"""Teachers and the cost of mistakes; cells fitted by cost-sensitive classification."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import action_index
from oda_rl.agents.policies.contract import InLoops, Policy
from oda_rl.agents.policies.rules import RulePolicy

_PENALTY = 1e-5
_RIDGE = 1e-3
_RESTARTS, _FIRST_ROWS = 3, 1500
_FIRST = 4, 40  # turns, and iterations of L-BFGS in each
_LAST = 2, 100
_SPREAD = 0.1  # of codevectors around states at the start
_UNIFORM = 0.1  # share of the mean importance that is added to each state's
_NEAR = 300  # states that measure the distances of codevectors


class Costs(Protocol):
    """Costs of deviating from the teacher, in each of n states."""

    importance: FloatArray
    """Cost of the second best choice in each state, shape (n,)."""

    def best(self, shares: FloatArray, rows: IntArray) -> Array:
        """Return the best output of each cell, given shares of states, (len(rows), K)."""

    def of(self, outputs: Array, rows: IntArray) -> FloatArray:
        """Return the cost in each state of each cell's output, shape (len(rows), K)."""


class ChoiceCosts:
    """Costs, shape (n, A), of discrete actions; 0 of the best."""

    def __init__(self, costs: FloatArray) -> None:
        self._costs = costs / max(float(costs.mean()), 1e-300)
        self.importance = np.sort(self._costs, axis=1)[:, min(1, costs.shape[1] - 1)]

    def as_mistakes(self) -> "ChoiceCosts":
        """Return 1 for all but the best action of each state."""
        n_actions = self._costs.shape[1]
        return ChoiceCosts(1.0 - np.eye(n_actions)[self._costs.argmin(axis=1)])

    def best(self, shares: FloatArray, rows: IntArray) -> Array:
        """Return the cheapest action of each cell, shape (K,).

        If that were the same for all, there would be no boundary: then the cell that loses least
        has its second cheapest.
        """
        totals = shares.T @ self._costs[rows]
        actions = np.asarray(totals.argmin(axis=1))
        if totals.shape[1] > 1 and (actions == actions[0]).all():
            two = np.sort(totals, axis=1)[:, :2]
            k = int((two[:, 1] - two[:, 0]).argmin())
            actions[k] = totals[k].argsort()[1]
        return actions

    def of(self, outputs: Array, rows: IntArray) -> FloatArray:
        """Return the cost in each state of each cell's action, shape (len(rows), K)."""
        return self._costs[rows][:, outputs]


class SquareCosts:
    """Weighted squared errors of continuous actions, constant in a cell or ``affine``.

    ``points``, shape (n, d), are standardised, ``targets``, shape (n, p), actions from -1 to 1.
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
        """Return the weighted squares in each state, shape (len(rows), K)."""
        units = np.clip(np.einsum("nj,kpj->nkp", self._features[rows], outputs), -1.0, 1.0)
        squares = ((units - self._targets[rows, None]) ** 2).sum(axis=2)
        return np.asarray(self.importance[rows, None] * squares)


class Fitted(NamedTuple):
    """Fitted cells: the greatest score decides."""

    scores: FloatArray
    """Offsets and slopes, shape (K, 1 + d)."""
    outputs: Array
    """From :meth:`Costs.best`."""
    cost: float
    """Mean cost."""


def fit(points: FloatArray, costs: Costs, n_cells: int, rng: np.random.Generator) -> Fitted:
    """Fit cells, from three starts around important states.

    ``points``, shape (n, d), are standardised.

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
        tried.append(_alternate(scores, features, costs, few, *_FIRST))
    best = min(tried, key=lambda one: one.cost)
    return _alternate(best.scores, features, costs, np.arange(n), *_LAST)


def with_ones(points: FloatArray) -> FloatArray:
    """Add a first column of ones."""
    return np.column_stack([np.ones(len(points)), points])


def _nearest(codevectors: FloatArray, points: FloatArray) -> FloatArray:
    """Return scores whose maximum is that of the nearest codevector."""
    squares = ((points[:, None] - codevectors) ** 2).sum(axis=2)
    width = squares.min(axis=1).mean() + 1e-6
    scores = np.column_stack([-(codevectors**2).sum(axis=1), 2.0 * codevectors])
    return np.asarray(scores / width)


def _shares(scores: FloatArray, features: FloatArray) -> FloatArray:
    found = features @ scores.T
    shares = np.exp(found - found.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _alternate(
    scores: FloatArray,
    features: FloatArray,
    costs: Costs,
    rows: IntArray,
    turns: int,
    iterations: int,
) -> Fitted:
    """Alternate between fitting scores and choosing outputs."""
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
    """Return the mean cost of the deciding cells."""
    cells = (features @ scores.T).argmax(axis=1)
    return float(costs.of(outputs, rows)[np.arange(len(rows)), cells].mean())


def loss(numbers: FloatArray, features: FloatArray, costs: FloatArray) -> tuple[float, FloatArray]:
    """Return the expected cost under a softmax of the scores, and its gradient."""
    scores = numbers.reshape(costs.shape[1], -1)
    shares = _shares(scores, features)
    expected = (shares * costs).sum(axis=1)
    slopes = shares * (costs - expected[:, None]) / len(costs)
    gradient = slopes.T @ features + 2.0 * _PENALTY * scores
    return float(expected.mean() + _PENALTY * (numbers**2).sum()), gradient.ravel()


_MISTAKE = 0.1  # cost of each mistake, as a share of the mean loss

Values = Callable[[FloatArray], npt.ArrayLike]
"""Values of all actions, shape (n, A), in states, shape (n, d)."""


class Deciding(Protocol):
    """A policy, or a teacher."""

    def act(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return numbers of actions, shape (n,), or units of continuous ones, shape (n, p)."""

    @property
    def in_loops(self) -> InLoops | None:
        """How compiled loops decide by it; None if they cannot."""


class Teacher(Deciding, Protocol):
    """Plays, and assigns costs to mistakes."""

    def costs(self, states: FloatArray, coding: Coding) -> Costs:
        """Return the costs of mistakes in states, shape (n, d)."""

    def outputs(self, found: Array) -> Array:
        """Return outputs of :meth:`Costs.best` as :meth:`Coding.vector` takes them."""


@dataclass(frozen=True)
class Valued:
    """A policy with values of its choices: a mistake costs the loss of value."""

    policy: Policy
    units: FloatArray | None
    """Units of its choices, shape (A, p), if these are a grid of continuous actions."""

    def act(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the greedy actions."""
        acts = self.policy.act(points)
        return acts if self.units is None else self.units[acts]

    @property
    def in_loops(self) -> InLoops | None:
        """How compiled loops decide by it; None if they cannot."""
        return self.policy.in_loops if self.units is None else None

    def costs(self, states: FloatArray, coding: Coding) -> Costs:
        """Return the loss of value; for continuous actions the mean choice's is the weight."""
        values = self.policy.values(states)
        lost = values.max(axis=1, keepdims=True) - values
        lost = np.minimum(lost, lost[np.isfinite(lost)].max())  # infinite where nothing is known
        if self.units is not None or not coding.boxed:
            return ChoiceCosts(with_mistakes(lost, lost.argmin(axis=1)))
        targets, weights = self.policy.act(states), lost.mean(axis=1) + 1e-300
        return SquareCosts(coding.points(states), targets, weights, coding.affine)

    def outputs(self, found: Array) -> Array:
        """Return actions, or their units."""
        return found if self.units is None else self.units[found][:, :, None]


@dataclass(frozen=True)
class Labelling:
    """A teacher known by its actions alone: without ``values`` all mistakes cost the same."""

    decide: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    """Maps a batch of observations to actions of the environment."""
    interface: Interface
    values: Values | None = None
    in_loops: InLoops | None = None
    rule: RulePolicy | None = None
    """The rule that decides, if it is one."""

    def act(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return numbers of actions, shape (n,), or units of continuous ones, shape (n, p)."""
        shape = (len(points), *self.interface.observation_shape)
        actions = self.decide(points.reshape(shape).astype(self.interface.dtype))
        if self.interface.box is not None:
            return np.array([self.interface.box.units(action) for action in actions])
        return np.array([action_index(action, self.interface) for action in actions])

    def costs(self, states: FloatArray, coding: Coding) -> Costs:
        """Return the loss of value, or 1; for continuous actions squared errors."""
        acts = self.act(states)
        if coding.boxed:
            return SquareCosts(coding.points(states), acts, np.ones(len(acts)), coding.affine)
        if self.values is None:
            return ChoiceCosts(1.0 - np.eye(coding.n_outputs)[acts])
        values = checked_values(self.values, states, coding.n_outputs)
        lost = np.maximum(np.take_along_axis(values, acts[:, None], axis=1) - values, 0.0)
        return ChoiceCosts(with_mistakes(lost, acts))

    def outputs(self, found: Array) -> Array:
        """Return them unchanged."""
        return found


def with_mistakes(lost: FloatArray, acts: IntArray) -> FloatArray:
    """Add a small cost to each action that is not the teacher's.

    >>> with_mistakes(np.array([[0.0, 0.0, 3.0]]), np.array([1]))
    array([[0.1, 0. , 3.1]])
    """
    others = 1.0 - np.eye(lost.shape[1])[acts]
    return lost + _MISTAKE * float(lost.mean()) * others


def checked_values(values: Values, states: FloatArray, n_actions: int) -> FloatArray:
    """Return the values of actions in states, shape (n, A), or raise ValueError."""
    found = np.asarray(values(states), dtype=np.float64)
    if found.shape != (len(states), n_actions) or not np.isfinite(found).all():
        raise ValueError(
            f"values returned shape {found.shape} for {len(states)} states: it must be finite "
            f"numbers of shape {(len(states), n_actions)}, one for each action"
        )
    return found


def teacher_of(teacher: Any, interface: Interface, values: Values | None = None) -> Teacher:
    """Return the teacher for the first argument of :func:`distill`."""
    policy = getattr(teacher, "policy", teacher)
    if hasattr(policy, "values") and hasattr(policy, "act"):
        known = _valued(policy, interface)
        if values is None and not isinstance(policy, RulePolicy):
            return known

        def decide(batch: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return interface.performed(known.act(batch.reshape(len(batch), -1)))

        rule = policy if isinstance(policy, RulePolicy) else None
        return Labelling(decide, interface, values, known.in_loops, rule)
    if hasattr(teacher, "predict"):
        return Labelling(
            lambda batch: teacher.predict(batch, deterministic=True)[0], interface, values
        )
    if callable(teacher):
        return Labelling(lambda batch: np.array([teacher(one) for one in batch]), interface, values)
    raise TypeError(
        f"policy is {teacher!r}: it must be an agent, a policy, a model of Stable-Baselines3, or "
        "a function of an observation"
    )


def _valued(policy: Policy, interface: Interface) -> Valued:
    d = policy.codevectors.shape[1]
    if d != interface.n_features:
        raise ValueError(
            f"policy has learned from observations of {d} components: it must be from as many as "
            f"the environment's {interface.n_features}"
        )
    n = policy.n_actions
    acts = policy.act(np.zeros((1, d)))
    box = interface.box
    if box is None:
        if acts.ndim == 1 and n == interface.n_actions:
            return Valued(policy, None)
    elif acts.ndim == 2:
        if acts.shape[1] == interface.n_components:
            return Valued(policy, None)
    elif (bins := round(n ** (1.0 / interface.n_components))) ** interface.n_components == n:
        axis = np.linspace(-1.0, 1.0, bins).tolist()
        return Valued(policy, np.array(list(product(axis, repeat=interface.n_components))))
    raise ValueError(
        f"policy chooses among {n} actions: they must be those of the environment, of which there "
        f"are {interface.n_actions if box is None else f'{interface.n_components} components'}"
    )
