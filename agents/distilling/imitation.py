"""Rules that imitate a teacher (DAgger), and rules climbed in a learned world.

A teacher assigns costs to mistakes; cells are fitted by cost-sensitive classification.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, cast

import numpy as np

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.agents.distilling.coding import Coding
from oda_rl.agents.distilling.playing import BudgetedEnv, Deciding, draw_seeds, evaluated
from oda_rl.agents.distilling.search import Effort, Imagination, Raced, race, search
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import action_index
from oda_rl.agents.policies.contract import InLoops, Policy
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.worlds.world import World

_PENALTY = 1e-5
_RIDGE = 1e-3
_RESTARTS, _FIRST_ROWS = 3, 1500
_FIRST = 4, 40  # turns, and iterations of L-BFGS in each
_LAST = 2, 100
_SPREAD = 0.1  # of codevectors around states at the start
_UNIFORM = 0.1  # share of the mean importance that is added to each state's
_NEAR = 300  # states that measure the distances of codevectors


class ChoiceCosts:
    """Costs, shape (n, A), of discrete actions; 0 of the best.

    ``importance``, shape (n,), is the cost of the second best choice in each state.
    """

    def __init__(self, costs: FloatArray) -> None:
        self._costs = costs / max(float(costs.mean()), 1e-300)
        self.importance = np.sort(self._costs, axis=1)[:, min(1, costs.shape[1] - 1)]

    def as_mistakes(self) -> "ChoiceCosts":
        """Return 1 for all but the best action of each state."""
        return ChoiceCosts(1.0 - np.eye(self._costs.shape[1])[self._costs.argmin(axis=1)])

    def best(self, shares: FloatArray, rows: IntArray) -> Array:
        """Return the cheapest action of each cell, (K,), given shares of states, (len(rows), K)."""
        totals = shares.T @ self._costs[rows]
        actions = np.asarray(totals.argmin(axis=1))
        if totals.shape[1] > 1 and (actions == actions[0]).all():  # there would be no boundary
            two = np.sort(totals, axis=1)[:, :2]
            k = int((two[:, 1] - two[:, 0]).argmin())
            actions[k] = totals[k].argsort()[1]
        return actions

    def of(self, outputs: Array, rows: IntArray) -> FloatArray:
        """Return the cost in each state of each cell's output, shape (len(rows), K)."""
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
        units = np.clip(np.einsum("nj,kpj->nkp", self._features[rows], outputs), -1.0, 1.0)
        squares = ((units - self._targets[rows, None]) ** 2).sum(axis=2)
        return np.asarray(self.importance[rows, None] * squares)


Costs = ChoiceCosts | SquareCosts


class Fitted(NamedTuple):
    """Fitted cells: the highest score decides."""

    scores: FloatArray  # offsets and slopes, shape (K, 1 + d)
    outputs: Array  # from :meth:`ChoiceCosts.best` or :meth:`SquareCosts.best`
    cost: float  # mean cost


def fit(points: FloatArray, costs: Costs, n_cells: int, rng: np.random.Generator) -> Fitted:
    """Fit cells to standardised points, shape (n, d), from three starts around important states."""
    n = len(points)
    features = with_ones(points)
    importance = costs.importance + _UNIFORM * costs.importance.mean() + 1e-12
    few = rng.choice(n, min(n, _FIRST_ROWS), replace=False)
    tried = []
    for _ in range(_RESTARTS):
        chosen = points[rng.choice(n, n_cells, p=importance / importance.sum())]
        codevectors = chosen + _SPREAD * rng.standard_normal(chosen.shape)
        squares = ((points[few[:_NEAR], None] - codevectors) ** 2).sum(axis=2)
        width = squares.min(axis=1).mean() + 1e-6
        # The highest score is that of the nearest codevector.
        scores = np.column_stack([-(codevectors**2).sum(axis=1), 2.0 * codevectors]) / width
        tried.append(_alternate(scores, features, costs, few, *_FIRST))
    best = min(tried, key=lambda one: one.cost)
    return _alternate(best.scores, features, costs, np.arange(n), *_LAST)


def with_ones(points: FloatArray) -> FloatArray:
    """Add a first column of ones."""
    return np.column_stack([np.ones(len(points)), points])


def _shares(scores: FloatArray, features: FloatArray) -> FloatArray:
    found = features @ scores.T
    shares = np.exp(found - found.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _alternate(
    scores: FloatArray, features: FloatArray, costs: Costs, rows: IntArray, turns: int,
    iterations: int,
) -> Fitted:  # fmt: skip
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


@dataclass(frozen=True)
class Teacher:
    """Plays, and assigns costs to mistakes: the loss of value, or 1 where no values are known."""

    choose: Callable[[FloatArray], Array]  # states, (n, d), to choices, (n,), or units, (n, p)
    values: Callable[[FloatArray], FloatArray] | None = None  # values of choices, (n, A)
    units: FloatArray | None = None  # of choices, (A, p), if these are a grid of continuous actions
    in_loops: InLoops | None = None
    rule: RulePolicy | None = None  # the rule that decides, if it is one

    def act(self, points: Array) -> Array:
        """Return numbers of actions, shape (n,), or units of continuous ones, shape (n, p)."""
        acts = self.choose(points)
        return acts if self.units is None else self.units[acts]

    def costs(self, states: FloatArray, coding: Coding) -> Costs:
        """Return the costs of mistakes in states, shape (n, d)."""
        acts, values = self.choose(states), None if self.values is None else self.values(states)
        if acts.ndim == 2:
            weights = np.ones(len(acts))
            if values is not None:
                weights = _lost(values, values.max(axis=1, keepdims=True)).mean(axis=1) + 1e-300
            return SquareCosts(coding.points(states), acts, weights, coding.affine)
        if values is None:
            n_choices = coding.n_outputs if self.units is None else len(self.units)
            return ChoiceCosts(1.0 - np.eye(n_choices)[acts])
        lost = _lost(values, np.take_along_axis(values, acts[:, None], axis=1))
        return ChoiceCosts(with_mistakes(lost, acts))

    def outputs(self, found: Array) -> Array:
        """Return outputs of fitted cells as :meth:`Coding.vector` takes them."""
        return found if self.units is None else self.units[found][:, :, None]


def _lost(values: FloatArray, best: FloatArray) -> FloatArray:
    """Return how much worse than the best each choice is: at least 0, and finite."""
    lost = np.maximum(best - values, 0.0)
    return np.asarray(np.minimum(lost, lost[np.isfinite(lost)].max()))  # unknown: -inf


def with_mistakes(lost: FloatArray, acts: IntArray) -> FloatArray:
    """Add a small cost to each action that is not the teacher's."""
    others = 1.0 - np.eye(lost.shape[1])[acts]
    return lost + _MISTAKE * float(lost.mean()) * others


def teacher_of(teacher: Any, interface: Interface) -> Teacher:
    """Return the teacher for the first argument of :func:`distill`."""
    policy = getattr(teacher, "policy", teacher)
    if hasattr(policy, "values") and hasattr(policy, "act"):
        units = _units_of(policy, interface)
        in_loops = policy.in_loops if units is None else None
        if isinstance(policy, RulePolicy):
            return Teacher(policy.act, None, units, in_loops, policy)
        return Teacher(policy.act, policy.values, units, in_loops)
    if not hasattr(teacher, "predict") and not callable(teacher):
        raise TypeError(
            f"policy is {teacher!r}: it must be an agent, a policy, a model of Stable-Baselines3, "
            "or a function of an observation"
        )

    def choose(points: Array) -> Array:
        batch = points.reshape((len(points), *interface.observation_shape)).astype(interface.dtype)
        if hasattr(teacher, "predict"):
            actions = teacher.predict(batch, deterministic=True)[0]
        else:
            actions = np.array([teacher(one) for one in batch])
        if interface.box is not None:
            return np.array([interface.box.units(action) for action in actions])
        return np.array([action_index(action, interface) for action in actions])

    return Teacher(choose)


def _units_of(policy: Policy, interface: Interface) -> FloatArray | None:
    """Return units of a policy's choices, shape (A, p), if they are a grid; else None."""
    d = policy.codevectors.shape[1]
    if d != interface.n_features:
        raise ValueError(
            f"policy takes observations of {d} components: it must take the environment's "
            f"{interface.n_features}"
        )
    n, box, acts = policy.n_actions, interface.box, policy.act(np.zeros((1, d)))
    if box is None:
        if acts.ndim == 1 and n == interface.n_actions:
            return None
    elif acts.ndim == 2:
        if acts.shape[1] == interface.n_components:
            return None
    elif (bins := round(n ** (1.0 / interface.n_components))) ** interface.n_components == n:
        axis = np.linspace(-1.0, 1.0, bins).tolist()
        return np.array(list(product(axis, repeat=interface.n_components)))
    raise ValueError(
        f"policy chooses among {n} actions: they must be those of the environment, of which there "
        f"are {interface.n_actions if box is None else f'{interface.n_components} components'}"
    )


_CLIMBS, _MAX_STEPS = 4, 100_000_000  # in a world, while they lead upwards
_STARTS = 500  # beside those that the world was learned from, which would be learned by heart
_EFFORT = Effort(random=100, generations=50, starts=40, sigma=0.3)


def world_of(teacher: Any) -> World | None:
    """Return the world that an agent has learned, if it has one and trusts it."""
    if not getattr(teacher, "models_laws", False) or teacher.distrust is not None:
        return None
    return cast(World, teacher.world)


def climb_in_world(
    world: World | None,
    env: BudgetedEnv,
    coding: Coding,
    known: Sequence[FloatArray],
    rng: np.random.Generator,
) -> list[FloatArray]:
    """Climb in a world from known and random vectors; return the best one, if there is a world."""
    if world is None:
        return []
    arrays, size = world.learned.arrays, coding.n_outputs + coding.boxed
    takes = arrays.boxed, arrays.laws.shape[1], arrays.frame.shape[1]
    if takes != (coding.boxed, size, len(coding.mean)):
        return []
    starts = env.draw_starts(_STARTS, rng)
    where = Imagination(arrays, coding, world.horizon, lambda n: world.draw_starts(n, rng, starts))
    rules = [*zip(*coding.decoded(np.array(known)), strict=True)] if known else []
    for _ in range(_CLIMBS):
        scores, outputs, _ = search(where, rules, False, False, _EFFORT, rng)
        as_before = any(scores is one[0] for one in rules)
        rules = [(scores, outputs)]
        if as_before or where.steps > _MAX_STEPS:
            break
    return [coding.encoded(*rules[0])]


_ROUNDS, _FITS = 3, 4
_VALUING = 0.15  # share of the steps, to estimate what actions are worth
_WATCHING = 1 / 4  # share of the other steps, to watch players
_MAX_ROWS = 6000
_RANDOM, _RANDOM_SHARE, _BEST_RANDOM = 40, 0.15, 3  # rules, share of the steps, rules that go on


@dataclass
class Imitation:
    """The result of imitation."""

    coding: Coding
    vectors: list[FloatArray]  # of the rules that have raced, the best first
    states: FloatArray  # states that were visited, shape (n, d)
    length: float  # mean length of an episode
    raced: Raced
    at_top: bool
    """Whether the last rules in the race all returned the same, and no less than the teacher: then
    there is nothing to climb."""
    enough: float  # greatest return of the teacher


def imitate(
    env: BudgetedEnv, teacher: Teacher, n_cells: int, steps: int, rng: np.random.Generator,
    world: World | None = None, known: RulePolicy | None = None,
) -> Imitation:  # fmt: skip
    """Find the rule that imitates best, by DAgger, or a random one that is better.

    Four rules are fitted to the teacher's actions in the states it visits; then twice four more,
    also to its actions in the states that earlier rules visit. They race with the best of random
    rules and, if there are any, with the rule found in the learned world, the teacher if it is such
    a rule, and a known rule. The first of these three has to be beaten.
    Source: S. Ross, G. J. Gordon, J. A. Bagnell (AISTATS 2011).
    """
    end = env.steps + steps
    if teacher.values is None and env.interface.box is None:
        env.allow(_VALUING * steps)
        recorded = env.record(teacher, rng, 0.05)  # random decisions
        values = evaluated(recorded, teacher.act, env.interface.n_actions, rng)
        teacher = replace(teacher, values=values)
    share = int(_WATCHING * (end - env.steps) / _ROUNDS)
    seen, taught = _watch(env, [teacher], share, rng)
    n_taught = len(seen)
    coding = Coding.of(seen, env.interface, n_cells)
    fits: list[Fitted] = []
    for r in range(_ROUNDS):
        latest = _fits(teacher, _sample(seen, n_taught, rng), coding, rng)
        fits += latest
        if r + 1 < _ROUNDS:
            vectors = _vectors(latest or fits[-1:], teacher, coding)
            players: list[Deciding] = [coding.rule(one) for one in vectors]
            states, _ = _watch(env, players or [teacher], share, rng)
            seen = np.concatenate([seen, states])
    if not fits:
        fits = _fits(teacher, _sample(seen, n_taught, rng), coding, rng, refuse=False)
    states = _sample(seen, n_taught, rng)
    features, costs = with_ones(coding.points(states)), teacher.costs(states, coding)
    rows = np.arange(len(states))
    fits.sort(key=lambda one: mean_cost(one.scores, one.outputs, features, costs, rows))
    rules = [coding.of_rule(one) for one in (teacher.rule, known) if one is not None]
    mastered = [one for one in rules if one is not None]
    fitted = _vectors(fits, teacher, coding)
    trusted = [*climb_in_world(world, env, coding, mastered + fitted, rng), *mastered]
    env.allow(_RANDOM_SHARE * (end - env.steps))
    random = [coding.random(rng) for _ in range(_RANDOM)]
    tried = race(env, [coding.rule(vector) for vector in random], rng)
    better = [random[i] for i in tried.order[:_BEST_RANDOM] if tried.returns[i]]
    vectors = [*trusted, *fitted, *better]
    env.allow(end - env.steps)
    begun = env.steps
    raced = race(env, [coding.rule(vector) for vector in vectors], rng, 0 if trusted else None)
    length = max(1.0, (env.steps - begun) / max(sum(map(len, raced.returns)), 1))
    last = raced.last
    same = last.size > 1 and np.ptp(last) == 0.0
    enough = float(taught.max(initial=-np.inf))
    top = bool(same and len(taught) > 0 and last.max() >= enough)
    return Imitation(coding, [vectors[i] for i in raced.order], seen, length, raced, top, enough)


def _watch(
    env: BudgetedEnv, players: list[Deciding], steps: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Let players play in turn; return the visited states, and the returns."""
    env.allow(steps)
    seen, begin = np.empty((env.left, env.interface.n_features)), env.steps
    returns: list[FloatArray] = []
    while env.left > 0:
        player = players[len(returns) % len(players)]
        returns.append(env.play(player, draw_seeds(rng, 1), seen[env.steps - begin :]))
    return seen, np.concatenate(returns)


def _fits(
    teacher: Teacher,
    states: FloatArray,
    coding: Coding,
    rng: np.random.Generator,
    refuse: bool = True,
) -> list[Fitted]:
    """Fit cells to a teacher in states, every second time with equal costs of mistakes."""
    points, costs = coding.points(states), teacher.costs(states, coding)
    each = [costs] * _FITS
    if isinstance(costs, ChoiceCosts):
        each[1::2] = [costs.as_mistakes()] * (_FITS // 2)
    fits = [fit(points, one, coding.n_cells, rng) for one in each]
    if not refuse or constant(teacher, states):
        return fits
    pairs = zip(fits, _vectors(fits, teacher, coding), strict=True)
    return [one for one, vector in pairs if not constant(coding.rule(vector), states)]


def _sample(seen: FloatArray, n_taught: int, rng: np.random.Generator) -> FloatArray:
    """Sample visited states, half of them among the first, where the teacher went."""
    n = len(seen)
    weights = np.full(n, 1.0 / n_taught)
    weights[n_taught:] = 1.0 / max(n - n_taught, 1)
    rows = rng.choice(n, min(n, _MAX_ROWS), replace=False, p=weights / weights.sum())
    return np.asarray(seen[rows])


def _vectors(fits: list[Fitted], teacher: Teacher, coding: Coding) -> list[FloatArray]:
    return [coding.vector(one.scores, teacher.outputs(one.outputs)) for one in fits]


def constant(player: Deciding, states: FloatArray) -> bool:
    """Whether a player takes the same action in all states."""
    acts = player.act(states)
    return bool((acts == acts[0]).all())
