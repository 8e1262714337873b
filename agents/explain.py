"""What an agent does in a state, and how far the state is from one in which it would act otherwise.

Distances are Euclidean in standard deviations of the observation's components (``agent.scale_``);
what never varied is not moved.

The online agent's policy is that of its cells, whose boundaries are hyperplanes: the distance is
exact. The fitted agent's blends the three nearest cells (:mod:`oda_rl.agents.cell_policy`). There
the distance is that of a state which does act otherwise, found by search, so an upper bound; and
there is a lower bound, within which no state acts otherwise.

The lower bound: slopes are shared, so action b is preferred to a where Σ exp(−score_k/width) δ_k
over the three nearest cells is not positive, δ_k being how much more a is worth in cell k. There,
let n be the cell of the three with the most negative term. At most two cells have a lower score. A
cell p with positive δ_p that is one of the three leaves room for two negative terms, so score_n ≤
score_p + width log(2 |δ_n|/δ_p). All such states are in a few polyhedra for each n and b, and the
nearest point of all polyhedra is at least as near as the nearest state that acts otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl.agents.cell_policy import CellPolicy, action_values
from oda_rl.agents.refusal import checked_batch
from oda_rl.boundaries import (
    NOWHERE,
    Nearest,
    hyperplane_distances,
    least_step,
    nearest_member,
)

if TYPE_CHECKING:
    from oda_rl.agents.base import Agent

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_COMPONENTS = 12  # of an observation that are printed
_ALONG = 32  # points looked at along a line
_HALVINGS = 24
_DIRECTIONS = 64  # tried around the best one, for each of
_SPREADS = (10.0, 10.0, 3.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)  # relative; 10: anywhere
_REGIONS = 500  # looked at for the lower bound, at most
_TIE = 1e-9
_BEYOND = 2.0  # as far as the polyhedra that a search follows the direction to them


@dataclass(frozen=True)
class Alternative:
    """The nearest state that acts otherwise, in the units and the form of points."""

    distance: float
    at_least: float
    point: FloatArray | None


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why an agent acts as it does in one state; ``print`` it."""

    observation: FloatArray
    """The state, in the shape of the observation space."""

    cell: int
    """The (nearest) cell."""

    n_cells: int
    """How many there are."""

    codevector: FloatArray
    """Of the cell, in the observation's units and shape."""

    q_values: FloatArray
    """Value of each action in this state, shape (n_actions,), as ``predict`` compares them."""

    action: int
    """What ``predict`` returns."""

    margin: float
    """By how much it is worth more than the runner-up; inf if there is but one action."""

    runner_up: int | None
    """The next best action; None if there is but one."""

    visits: FloatArray
    """Shape (n_actions,): how often the agent has learned from each action in this cell. Online:
    updates of the table. Fitted: transitions that it remembers, whichever policy took them."""

    distance: float
    """Smallest change of the state that changes the action, in standard deviations; inf if none
    does. An upper bound, unless :attr:`exact`: that of :attr:`nearest_other`."""

    at_least: float
    """Lower bound of that distance (but for values that are equal to nine digits); the distance
    itself where it is exact."""

    exact: bool
    """Whether the distance is exact, because the policy is one cell's."""

    nearest_other: FloatArray | None
    """A state as near as that, and just beyond the boundary, in the shape of the observation."""

    other_action: int | None
    """What ``predict`` returns there."""

    names: tuple[str, ...]
    """Of the observation's components."""

    action_names: tuple[str, ...]
    """Of the actions."""

    first_action: int
    """The environment's number for the first of them."""

    def __str__(self) -> str:
        return "\n".join([*self._what(), "", *self._where(), "", self._how_far()])

    def _named(self, action: int) -> str:
        return self.action_names[action - self.first_action]

    def _what(self) -> list[str]:
        by = ""
        if self.runner_up is not None:
            by = f", worth {self.margin:.3g} more than {self._named(self.runner_up)}"
        values = _listed(self.action_names, self.q_values, ".4g")
        visits = _listed(self.action_names, self.visits, ",.0f")
        return [
            f"{self._named(self.action)}{by}",
            f"values: {values}",
            f"cell {self.cell} of {self.n_cells}, times learned from: {visits}",
        ]

    def _where(self) -> list[str]:
        columns: dict[str, FloatArray] = {
            "state": self.observation.ravel(),
            "codevector": self.codevector.ravel(),
        }
        if self.nearest_other is not None and self.other_action is not None:
            columns[self._named(self.other_action)] = self.nearest_other.ravel()
            columns["change"] = columns[self._named(self.other_action)] - columns["state"]
        order = self._most_changed(columns.get("change"))
        width = max(len("component"), *(len(self.names[j]) for j in order))
        widths = [max(11, len(title)) for title in columns]
        lines = ["  ".join([f"{'component':{width}}", *map(_right, columns, widths)])]
        for j in order:
            cells = [
                _right(f"{values[j]:{'+' if title == 'change' else ''}.4g}", room)
                for (title, values), room in zip(columns.items(), widths, strict=True)
            ]
            lines.append("  ".join([f"{self.names[j]:{width}}", *cells]))
        left_out = len(self.names) - len(order)
        return [*lines, f"and {left_out} more components"] if left_out else lines

    def _most_changed(self, change: FloatArray | None) -> list[int]:
        """Components to print, in their order; where there are too many, those that change most."""
        d = len(self.names)
        if d <= _COMPONENTS or change is None:
            return list(range(min(d, _COMPONENTS)))
        return sorted(np.argsort(-np.abs(change), kind="stable")[:_COMPONENTS].tolist())

    def _how_far(self) -> str:
        if self.at_least == np.inf:
            return "no change of the state changes that"
        sure = f"no state within {self.at_least:.3g} of them acts otherwise"
        if self.other_action is None:
            return f"distances are in standard deviations: none is known, and {sure}"
        where = f"{self.distance:.3g} standard deviations away it would be "
        where += self._named(self.other_action)
        if self.exact:
            return f"{where}, and nowhere nearer"
        return f"{where}; {sure}" if self.at_least > 0.0 else f"{where}, or nearer"


@dataclass(frozen=True, eq=False)
class Overview:
    """A whole policy: row i is about a cell, those that are visited most first."""

    cells: IntArray
    """Numbers of the cells, shape (n,)."""

    codevectors: FloatArray
    """In the observation's units, shape (n, d)."""

    q_values: FloatArray
    """Value of each action at the codevector, as ``predict`` compares them; (n, n_actions)."""

    actions: IntArray
    """Indices (from 0) of the actions there, shape (n,)."""

    margins: FloatArray
    """By how much these are worth more than the runners-up, shape (n,)."""

    visits: FloatArray
    """How often the agent has learned from the cell, as in :class:`Explanation`, shape (n,)."""

    shares: FloatArray
    """Of the states visited, shape (n,); NaN if none were given."""

    agreement: float
    """Share of the states visited in which the agent takes the action of the cell's row: 1 unless
    neighbouring cells are blended. NaN if none were given."""

    mean: FloatArray
    """Of the states visited, or else of the codevectors, shape (d,)."""

    scale: FloatArray
    """Inverse standard deviations of the components, shape (d,); 0 for constants."""

    names: tuple[str, ...]
    """Of the observation's components."""

    action_names: tuple[str, ...]
    """Of the actions."""


def explain(
    agent: "Agent",
    observation: npt.ArrayLike,
    names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
) -> Explanation:
    """Do what :meth:`oda_rl.agents.Agent.explain` says."""
    _require_learned(agent)
    interface = agent.interface
    interface.flatten("observation", observation)
    (point,) = checked_batch(observation, interface)
    components, actions = _checked_names(agent, names, action_names)
    shape = interface.observation_shape
    state = point.reshape(shape)
    cell, action = agent.cell(state), int(agent.predict(state)[0])
    (values,) = agent._action_values(point[None])
    ranked = np.argsort(-values, kind="stable") + interface.first_action
    runner_up = next((int(other) for other in ranked if other != action), None)
    nearest = agent._alternative(point, action - interface.first_action)
    other = None if nearest.point is None else nearest.point.reshape(shape)
    return Explanation(
        observation=state,
        cell=cell,
        n_cells=agent.n_cells,
        codevector=agent.codevectors[cell].reshape(shape),
        q_values=values,
        action=action,
        margin=float(margins_of(values[None], np.array([action - interface.first_action]))[0]),
        runner_up=runner_up,
        visits=agent.visits[cell].copy(),
        distance=nearest.distance,
        at_least=nearest.at_least,
        exact=agent._cells_act_alone,
        nearest_other=other,
        other_action=None if other is None else int(agent.predict(other)[0]),
        names=components,
        action_names=actions,
        first_action=interface.first_action,
    )


def overview(
    agent: "Agent",
    visited: FloatArray | None = None,
    names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
) -> Overview:
    """Return the whole policy as a table.

    Parameters
    ----------
    agent : FittedQAgent or TwoTimescaleAgent
        One that has learned.
    visited : ndarray, shape (n, d), optional
        States from which to count how often the policy is in which cell, as from
        ``agent.visited_states``.
    names, action_names : sequence of str, optional
        As in :meth:`oda_rl.agents.Agent.explain`.

    Raises
    ------
    ValueError
        If the agent has learned nothing yet, or there are not as many names as there should be.

    Examples
    --------
    >>> from oda_rl.agents import TwoTimescaleAgent
    >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(20_000)
    >>> table = overview(agent, agent.visited_states(1000, seed=1))
    >>> len(table.cells) == agent.n_cells, float(table.shares.sum().round(6))
    (True, 1.0)
    """
    scale = _require_learned(agent)
    components, actions = _checked_names(agent, names, action_names)
    codevectors, (values, best) = agent.codevectors, agent._at_codevectors()
    seen = codevectors if visited is None or len(visited) == 0 else visited
    shares, agreement = np.full(agent.n_cells, np.nan), np.nan
    visits = agent.visits.sum(axis=1)
    if seen is visited:
        states = visited.reshape(-1, *agent.interface.observation_shape)
        cells, taken = agent.cell(states), agent.predict(states)[0] - agent.interface.first_action
        shares = np.bincount(cells, minlength=agent.n_cells) / len(cells)
        agreement = float((best[cells] == taken).mean())
    order = np.lexsort([-visits, -shares])
    return Overview(
        cells=order,
        codevectors=codevectors[order],
        q_values=values[order],
        actions=best[order],
        margins=margins_of(values, best)[order],
        visits=visits[order],
        shares=shares[order],
        agreement=agreement,
        mean=seen.mean(axis=0),
        scale=scale,
        names=components,
        action_names=actions,
    )


def margins_of(values: FloatArray, actions: IntArray) -> FloatArray:
    """By how much each row's action is worth more than the others, shape (n,); at least 0.

    >>> margins_of(np.array([[1.0, 3.0, 2.5]]), np.array([1]))
    array([0.5])
    """
    rows = np.arange(len(values))
    rest = values.copy()
    rest[rows, actions] = -np.inf
    return np.asarray(np.maximum(values[rows, actions] - rest.max(axis=1), 0.0))


def known_names(agent: "Agent") -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """Names of the observation's components and of the actions, where they are known."""
    from oda_rl.agents.config import component_names

    names, action_names = component_names(agent.env_id)
    if names is not None and len(names) != agent.interface.n_features:
        names = None  # the environment was wrapped
    if action_names is not None and len(action_names) != agent.interface.n_actions:
        action_names = None
    return names, action_names


def alternative_of_cells(
    diagram: FloatArray, actions: IntArray, point: FloatArray, action: int, scale: FloatArray
) -> Alternative:
    """Return the nearest point in a cell with another action; exact.

    Parameters
    ----------
    diagram : ndarray, shape (K, 1 + d)
    actions : ndarray of int64, shape (K,)
        Of the cells.
    point : ndarray, shape (d,)
        Where one is.
    action : int
        What is done there.
    scale : ndarray, shape (d,)
        Inverse standard deviations of the components; those with 0 are not moved.

    Examples
    --------
    >>> codevectors = np.array([[0.0], [2.0]])
    >>> diagram = np.column_stack([codevectors**2, -2.0 * codevectors])
    >>> found = alternative_of_cells(diagram, np.array([0, 1]), np.array([3.0]), 1, np.ones(1))
    >>> round(found.distance, 9), found.point.round(4)
    (2.0, array([1.]))
    """
    scores, slopes = _scores_and_slopes(diagram, point, scale)
    own, others = np.flatnonzero(actions == action), np.flatnonzero(actions != action)
    found = nearest_member(scores, slopes, others, own)
    reached = None if found.step is None else point + _unscaled(found.step, scale)
    return Alternative(found.distance, found.distance, reached)


def alternative_of_policy(
    policy: CellPolicy, point: FloatArray, action: int, scale: FloatArray
) -> Alternative:
    """Return a near state in which a blended policy acts otherwise, and a bound from below.

    Parameters
    ----------
    policy : CellPolicy
    point : ndarray, shape (d,)
        An observation.
    action : int
        What is done there.
    scale : ndarray, shape (d,)
        Inverse standard deviations of the components; those with 0 are not moved.
    """
    low = _lower_bound(policy, point, action, scale)
    if low is NOWHERE:
        return Alternative(np.inf, np.inf, None)
    search = _Search(policy, point, action, scale)
    step = search.best([*_ways(policy, point, action, scale), low.step])
    if step is None:
        return Alternative(np.inf, low.distance, None)
    distance = float(np.linalg.norm(step))
    return Alternative(distance, min(low.distance, distance), point + _unscaled(step, scale))


def values_at(policy: CellPolicy, observations: FloatArray) -> FloatArray:
    """Values of all actions, shape (n, n_actions), of observations, shape (n, d)."""
    values = np.empty((len(observations), policy.n_actions))
    for observation, row in zip(observations, values, strict=True):
        action_values(policy.diagram, policy.models, policy.width, observation - policy.origin, row)
    return values


class _Region(NamedTuple):
    """Where a cell n that prefers another action may decide, as one of three; a polyhedron."""

    cell: int
    slack: FloatArray
    """By how much the score of n may exceed that of each cell, shape (K,)."""
    step: FloatArray | None
    """To its nearest point; None while that is not known."""


def _lower_bound(policy: CellPolicy, point: FloatArray, action: int, scale: FloatArray) -> Nearest:
    """Return the nearest point where the action may change, as the module's docstring argues.

    Best first: a region whose nearest point has n among the three nearest cells is the answer;
    where three others are nearer, n has to be nearer than one of them, so the region is split.
    """
    scores, slopes = _scores_and_slopes(policy.diagram, point - policy.origin, scale)
    tolerance = _TIE * float(np.ptp(scores))
    queue = _first_regions(policy, scores, slopes, action)
    heapify(queue)
    seen: set[tuple[int, bytes]] = set()
    count = len(queue)
    for _ in range(_REGIONS):
        if not queue:
            return NOWHERE
        bound, _, region = heappop(queue)
        n, slack, step = region
        if step is None:
            finite = np.flatnonzero(np.isfinite(slack))
            gaps = scores[n] - scores[finite] - slack[finite]
            step = least_step(slopes[n] - slopes[finite], gaps)
            if step is not None:
                bound = max(bound, float(np.linalg.norm(step)))
                count += 1
                heappush(queue, (bound, count, region._replace(step=step)))
            continue
        excess = scores[n] - scores + (slopes[n] - slopes) @ step
        nearer = np.flatnonzero((excess > tolerance) & (slack > 0.0))
        if len(nearer) <= 2:
            return Nearest(bound, step)
        for j in nearer[np.argsort(-excess[nearer], kind="stable")[:3]]:
            tighter = slack.copy()
            tighter[j] = 0.0
            if (n, tighter.tobytes()) not in seen:
                seen.add((n, tighter.tobytes()))
                count += 1
                heappush(queue, (bound, count, _Region(n, tighter, None)))
    return Nearest(queue[0][0], None) if queue else NOWHERE


def _first_regions(
    policy: CellPolicy, scores: FloatArray, slopes: FloatArray, action: int
) -> list[tuple[float, int, _Region]]:
    """Return a region for each other action and each cell that prefers it, with a bound."""
    own = policy.models[:, policy.diagram.shape[1] :]
    regions: list[tuple[float, int, _Region]] = []
    for other in range(policy.n_actions):
        if other == action:
            continue
        lead = own[:, action] - own[:, other]
        # Among equals the first action is taken: a later one has to be better.
        behind = np.flatnonzero(lead < 0.0 if other > action else lead <= 0.0)
        ahead = np.flatnonzero(lead > 0.0)
        for n in behind.tolist():
            slack = np.full(policy.n_cells, np.inf)
            with np.errstate(divide="ignore"):
                slack[ahead] = policy.width * np.log(2.0 * -lead[n] / lead[ahead])
            slack = np.maximum(slack, 0.0)
            norms = np.linalg.norm(slopes[n] - slopes, axis=1)
            within = hyperplane_distances(scores[n] - scores - slack, norms).max()
            nearer = hyperplane_distances(scores[n] - scores, norms)
            third = np.sort(nearer)[-3] if len(nearer) >= 3 else 0.0  # two may stay nearer
            regions.append(
                (max(float(within), float(third)), len(regions), _Region(n, slack, None))
            )
    return regions


def _ways(
    policy: CellPolicy, point: FloatArray, action: int, scale: FloatArray
) -> list[FloatArray | None]:
    """Return steps to look along: to the codevectors, and to the nearest cell with another action.

    What is nearest need not be between here and a codevector that acts otherwise: where three cells
    are blended, none of them has to.
    """
    centred = point - policy.origin
    own = _greedy(policy.models[:, policy.diagram.shape[1] :])
    hard = alternative_of_cells(policy.diagram, own, centred, action, scale)
    ways: list[FloatArray | None] = []
    if hard.point is not None:
        ways.append((hard.point - centred) * scale)
    ways.extend((policy.codevectors - point) * scale)
    return ways


class _Search:
    """Looks along lines for where a policy begins to act otherwise."""

    def __init__(
        self, policy: CellPolicy, point: FloatArray, action: int, scale: FloatArray
    ) -> None:
        self._policy, self._point, self._action, self._scale = policy, point, action, scale

    def best(self, ways: Sequence[FloatArray | None]) -> FloatArray | None:
        """Return the shortest step found along some, and around the shortest of these.

        While there is none, anywhere, ever farther than the longest that was given.
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
        """Shorten each step to where the action changes first; return the shortest of them."""
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
        return np.asarray(self._policy.evaluate(observations)[1] != self._action)


def _greedy(values: FloatArray) -> IntArray:
    return np.asarray(values.argmax(axis=1))


def _scores_and_slopes(
    diagram: FloatArray, point: FloatArray, scale: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Scores of a point, and their gradients for steps in standard deviations."""
    return diagram[:, 0] + diagram[:, 1:] @ point, _unscaled(diagram[:, 1:], scale)


def _unscaled(steps: FloatArray, scale: FloatArray) -> FloatArray:
    """Divide by the scale; 0 where that is 0."""
    return np.asarray(np.where(scale > 0.0, steps / np.where(scale > 0.0, scale, 1.0), 0.0))


def _require_learned(agent: "Agent") -> FloatArray:
    scale = agent.scale_
    if scale is None:
        raise ValueError(
            f"agent.scale_ is None: the agent has learned nothing yet after {agent.num_timesteps} "
            "steps; it must learn for some more first"
        )
    return scale


def _checked_names(
    agent: "Agent", names: Sequence[str] | None, action_names: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names given, or those known, or numbers; raise ValueError for the wrong number."""
    interface, (known, known_actions) = agent.interface, known_names(agent)
    components = [f"observation[{j}]" for j in range(interface.n_features)]
    first = interface.first_action
    actions = [f"action {first + a}" for a in range(interface.n_actions)]
    return (
        _checked("names", names, known or components, "component of the observation"),
        _checked("action_names", action_names, known_actions or actions, "action"),
    )


def _checked(
    argument: str, given: Sequence[str] | None, otherwise: Sequence[str], of: str
) -> tuple[str, ...]:
    if given is None:
        return tuple(otherwise)
    if isinstance(given, str) or len(given) != len(otherwise):
        raise ValueError(
            f"{argument} is {given!r}: it must be a sequence of {len(otherwise)}, one for each {of}"
        )
    return tuple(map(str, given))


def _listed(names: Sequence[str], values: npt.NDArray[Any], form: str) -> str:
    return ", ".join(f"{name} {value:{form}}" for name, value in zip(names, values, strict=True))


def _right(text: str, width: int) -> str:
    return f"{text:>{width}}"
