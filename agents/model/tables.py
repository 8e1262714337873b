"""A world of discrete states: learned as counts, explored by optimism, planned by value iteration.

States are the distinct observations so far. Exploration follows the best policy of an optimistic
model (Brafman and Tennenholtz, JMLR 3, 2002; Szita and Lorincz, ICML 2008): a pair of state and
action leads to the best there could be with the probability that its next visit brings something
new. That probability is counted over all pairs with as many visits: where worlds are deterministic,
one visit is enough. The delivered policy is the best of a pessimistic model, and takes only actions
that have been tried; episodes that are played with it are counted, too.

Transitions are edges: one for each state, action and next state, in two linked lists, of the pair
that it leaves and of the state that it enters. Terminations enter no state.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from oda_rl._compile import allocating, compiled
from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.agents.model.experience import Memory, Outcomes
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.policies.cells import TablePolicy
from oda_rl.agents.worlds.learning import Arrays, CodedSteps, learn_world
from oda_rl.agents.worlds.simulation import predict, without_noise
from oda_rl.diagram import ordered
from oda_rl.files.schema import Member, check, real, require, whole

NO = -1  # no edge, or no state
MAX_VISITS = 64  # of a pair; more are not distinguished
_MANY_VISITS = 10  # of a pair with random outcomes, on average
_DISCOUNT = 0.99  # of exploration
_DISCOUNTS = (0.9, 0.95, 0.98, 0.99, 0.995, 0.998)  # tried for the delivered policy
_ERRORS = 2.5  # standard errors of optimism
_SURPRISE = 0.02  # something new behind a tried pair is worth this share of an untried one
_CLOSE, _NEAR = 1e-6, 1e-4  # convergence of sweeps, and of single steps, relative to the values
_MAX_SWEEPS, _MAX_BACKUPS = 3000, 2000  # between episodes, and in a step
_GROWTH = 0.05  # the delivered policy is planned when steps have grown by this share,
_PART = 10  # or a tenth of an episode has passed
_STRETCH, _HELD_OUT = 25, 5  # one of five episodes, or stretches of steps, is held out
_MIN_KNOWN, _MIN_SHARE = 10, 0.5  # held-out steps whose pair has been seen
_EXACT, _NEARLY = 1e-9, 1e-3  # squared errors in standard deviations

_SCHEMA: dict[str, Member] = {  # members of a file; states and their number follow from the memory
    "counted": whole("1", "[0, steps]"),
    "hopes": real("states"),
    "fears": real(f"{len(_DISCOUNTS)}, states"),
    "doubt": real(f"{MAX_VISITS}+1", "[0, 1]"),
    "view": real("3"),
    "delivered": real("cells, d"),
    "q_values": real("cells, A"),
    "returns": real("returns"),
}


class Edges(NamedTuple):
    """Counts of S states and A actions, with room for E edges."""

    counts: FloatArray  # visits of each pair, shape (S, A)
    rewards: FloatArray  # sums of its rewards,
    squares: FloatArray  # and of their squares
    leaving: IntArray  # first edge that leaves a pair, shape (S, A)
    entering: IntArray  # first edge that enters a state, shape (S,)
    weights: FloatArray  # how often an edge was taken, shape (E,)
    ends: IntArray
    """State and action that it leaves, state that it enters, next edge that leaves the same pair,
    next that enters the same state, shape (5, E)."""
    news: FloatArray
    """Visits, by the number of earlier visits of the pair, and those of them that led somewhere
    new, shape (2, MAX_VISITS + 1)."""
    size: IntArray  # number of edges, shape (1,)


class View(NamedTuple):
    """Optimism or pessimism where little is known."""

    doubt: FloatArray  # weight of the unknown by visits of a pair, (MAX_VISITS + 1,)
    unknown: float  # value of the unknown
    errors: float  # standard errors added to a pair's value
    gamma: float


def empty(n_states: int, n_actions: int, n_edges: int) -> Edges:
    """Return zero counts, with room for states and edges."""
    pairs = (n_states, n_actions)
    return Edges(
        np.zeros(pairs), np.zeros(pairs), np.zeros(pairs), np.full(pairs, NO),
        np.full(n_states, NO), np.zeros(n_edges), np.full((5, n_edges), NO),
        np.zeros((2, MAX_VISITS + 1)), np.zeros(1, dtype=np.int64),
    )  # fmt: skip


def grown(edges: Edges, n_states: int, n_edges: int) -> Edges:
    """Return the same counts with more room."""
    new = empty(max(n_states, len(edges.entering)), edges.counts.shape[1],
                max(n_edges, len(edges.weights)))  # fmt: skip
    for old, more in zip(edges, new, strict=True):
        more[tuple(slice(n) for n in old.shape)] = old
    return new


@compiled
def count(edges: Edges, state: int, action: int, reward: float, after: int) -> None:
    """Count a step; ``after`` is NO where it ended the episode. There must be room for an edge."""
    visits = min(int(edges.counts[state, action]), MAX_VISITS)
    edges.counts[state, action] += 1.0
    edges.rewards[state, action] += reward
    edges.squares[state, action] += reward * reward
    edges.news[0, visits] += 1.0
    edge = edges.leaving[state, action]
    while edge != NO:
        if edges.ends[2, edge] == after:
            edges.weights[edge] += 1.0
            return
        edge = edges.ends[3, edge]
    edges.news[1, visits] += 1.0
    edge = edges.size[0]
    edges.size[0] += 1
    edges.weights[edge] = 1.0
    edges.ends[0, edge], edges.ends[1, edge], edges.ends[2, edge] = state, action, after
    edges.ends[3, edge] = edges.leaving[state, action]
    edges.leaving[state, action] = edge
    if after != NO:
        edges.ends[4, edge] = edges.entering[after]
        edges.entering[after] = edge


@compiled
def pair_value(edges: Edges, view: View, values: FloatArray, state: int, action: int) -> float:
    """Return the value of an action in a state."""
    n = edges.counts[state, action]
    if n == 0.0:
        return view.unknown
    mean, square = 0.0, 0.0
    edge = edges.leaving[state, action]
    while edge != NO:
        after = edges.ends[2, edge]
        if after != NO:
            mean += edges.weights[edge] * values[after]
            square += edges.weights[edge] * values[after] * values[after]
        edge = edges.ends[3, edge]
    mean, square = mean / n, square / n
    reward: float = edges.rewards[state, action] / n
    variance = max(edges.squares[state, action] / n - reward * reward, 0.0)
    variance += view.gamma * view.gamma * max(square - mean * mean, 0.0)
    value: float = reward + view.gamma * mean
    if view.errors > 0.0:  # nothing is better than the unknown, or it would not be explored
        value = min(value + view.errors * math.sqrt(variance / n), view.unknown)
    visits = min(int(n), MAX_VISITS)
    doubt: float = view.doubt[visits] * visits / n
    return (1.0 - doubt) * value + doubt * view.unknown


@compiled
def state_value(edges: Edges, view: View, values: FloatArray, state: int, bold: bool) -> float:
    """Return the value of the best action; ``bold``: untried ones included."""
    best: float = -np.inf
    for action in range(edges.counts.shape[1]):
        if bold or edges.counts[state, action] > 0.0:
            best = max(best, pair_value(edges, view, values, state, action))
    return view.unknown if best == -np.inf else best


@compiled
def sweep(
    edges: Edges, view: View, values: FloatArray, n: int, bold: bool, close: float, most: int
) -> int:
    """Improve n values in place by sweeps to and fro, until they are ``close``; return how many."""
    for k in range(most):
        change = 0.0
        for i in range(n):
            state = i if k % 2 == 1 else n - 1 - i
            value = state_value(edges, view, values, state, bold)
            change = max(change, abs(value - values[state]))
            values[state] = value
        if change <= close:
            return k + 1
    return most


@allocating
def spread(
    edges: Edges, view: View, values: FloatArray, state: int, close: float, most: int
) -> None:
    """Improve at most ``most`` values: of a state, then of those before it, if it changes."""
    queue, waits = np.empty(len(values), np.int64), np.zeros(len(values), np.bool_)
    queue[0], begin, length = state, 0, 1
    for _ in range(most):
        if length == 0:
            return
        one = queue[begin]
        begin, length = (begin + 1) % len(queue), length - 1
        waits[one] = False
        value = state_value(edges, view, values, one, True)
        change = abs(value - values[one])
        values[one] = value
        if change <= close:
            continue
        edge = edges.entering[one]
        while edge != NO:
            before = edges.ends[0, edge]
            if not waits[before]:
                waits[before] = True
                queue[(begin + length) % len(queue)] = before
                length += 1
            edge = edges.ends[4, edge]


@allocating
def pair_values(edges: Edges, view: View, values: FloatArray, first: int, last: int) -> FloatArray:
    """Return the values of all pairs of some states, shape (last - first, A)."""
    out = np.empty((last - first, edges.counts.shape[1]))
    for state in range(first, last):
        for action in range(out.shape[1]):
            out[state - first, action] = pair_value(edges, view, values, state, action)
    return out


@allocating
def play(edges: Edges, actions: IntArray, worst: float, steps: int) -> FloatArray:
    """Return the return of ``actions``, (n,), from each state; unknown steps return ``worst``."""
    values, last = np.zeros(len(actions)), np.zeros(len(actions))
    for t in range(steps):
        changed = False
        for state in range(len(actions)):
            visits = edges.counts[state, actions[state]]
            value = edges.rewards[state, actions[state]]
            edge = edges.leaving[state, actions[state]]
            while edge != NO:
                after = edges.ends[2, edge]
                if after != NO:
                    value += edges.weights[edge] * last[after]
                edge = edges.ends[3, edge]
            values[state] = value / visits if visits > 0.0 else worst * (t + 1)
            changed = changed or values[state] != last[state]
        last[:] = values
        if not changed:
            break
    return values


def greedy(states: FloatArray, q_values: FloatArray) -> TablePolicy:
    """Return the policy with a cell for each of n states, shape (n, d).

    >>> greedy(np.array([[0.0], [1.0]]), np.eye(2)).act(np.array([[1.0], [-3.0]]))
    array([1, 0])
    """
    diagram = np.column_stack([(states**2).sum(axis=1), -2.0 * states])
    return TablePolicy(np.zeros(states.shape[1]), ordered(diagram), q_values, states.copy())


def _known(numbers: IntArray, groups: IntArray) -> tuple[BoolArray, IntArray, IntArray]:
    """Return what is held out, visits of each pair in the rest, and held-out rows it has seen."""
    held = groups % _HELD_OUT == 0
    visits = np.bincount(numbers[~held], minlength=len(numbers))
    return held, visits, np.flatnonzero(held & (visits[numbers] > 0))


def predicts(
    seen: CodedSteps, first: BoolArray, rng: np.random.Generator, counted: bool = False
) -> bool:
    """Whether counts predict held-out steps exactly, or as well as laws of motion do.

    Only pairs that have been seen are compared. ``first``, shape (n,), says whether an episode
    began with the step: a place may recur in its own episode alone. Where a table has been
    ``counted`` already, its explorer seeks new pairs, and fewer need to recur.
    """
    n = len(seen.rewards)
    episodes = np.cumsum(first, dtype=np.int64)
    pairs = np.column_stack([seen.before, seen.codes.argmax(axis=1)])
    numbers = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    scale = np.append(seen.after.std(axis=0), seen.rewards.std())
    scale = np.where(scale > 0.0, scale, 1.0)
    outcomes = np.column_stack([seen.after, seen.rewards]) / scale
    held, visits, rows = _known(numbers, episodes)
    young = counted and episodes[-1] < _HELD_OUT**2 and len(rows) < _MIN_KNOWN
    if young or episodes[-1] < _HELD_OUT:
        held, visits, rows = _known(numbers, np.arange(n) // _STRETCH)
    sums = np.zeros((n, outcomes.shape[1]))
    np.add.at(sums, numbers[~held], outcomes[~held])
    left = outcomes[rows] - sums[numbers[rows]] / visits[numbers[rows], None]
    error = float((left**2).sum(axis=1).mean()) if len(rows) else np.inf
    recur, exact = len(rows) >= _MIN_SHARE * held.sum(), error <= _EXACT
    if len(rows) < _MIN_KNOWN or not (recur or exact or counted):
        return False
    if exact and (recur or counted):
        return True
    rest = CodedSteps._make(column[~held] for column in seen)
    world = without_noise(learn_world(rest, -math.inf, False, 1, None, rng).arrays)
    after, rewards = predict(world, seen.before[rows], seen.codes[rows])[:2]
    left = outcomes[rows] - np.column_stack([after, rewards]) / scale
    return max(error, _NEARLY) <= float((left**2).sum(axis=1).mean())


@dataclass(eq=False)
class Table:
    """The delivered policy, and the returns of episodes that were played with it."""

    policy: TablePolicy
    returns: list[float] = field(default_factory=list)

    def decide(self, point: FloatArray) -> tuple[int, FloatArray]:
        action = int(self.policy.choices(point[None])[0])
        return action, np.eye(self.policy.n_actions)[action]


class TablePlanner:
    """The counts, and the policy that is best in them, in place of a ``Planner``.

    It can be played itself: it explores by the present optimistic policy.
    """

    learned = None  # no laws
    clauses = None  # tables are not edited

    def __init__(
        self, memory: Memory, n_actions: int, outcomes: Outcomes, config: ModelConfig
    ) -> None:
        self.memory, self.outcomes, self.config = memory, outcomes, config
        self.candidates: list[Table] = []  # the delivered one, as soon as there is one
        self._numbers: dict[bytes, int] = {}
        self._rows: FloatArray = np.zeros((64, memory.before.shape[1]))
        self._edges: Edges = empty(64, n_actions, 256)
        self._starts = np.zeros(64)  # episodes that began in each state
        self._counted = 0
        self._bounds = np.array([np.inf, -np.inf])  # of rewards
        self._hopes = np.zeros(64)
        self._fears = np.zeros((len(_DISCOUNTS), 64))
        self._hope = self._hopeful()
        self._codes = np.eye(n_actions)

    @property
    def n_states(self) -> int:
        return len(self._numbers)

    @property
    def codevectors(self) -> FloatArray:
        """The states, shape (K, d)."""
        return self._rows[: self.n_states].copy()

    @property
    def scale(self) -> FloatArray | None:
        """Inverse standard deviations of the components, 0 for constants; None before learning."""
        if self._counted == 0:
            return None
        deviation = self.memory.transitions.before.std(axis=0)
        return np.where(deviation > 0.0, 1.0 / np.where(deviation > 0.0, deviation, 1.0), 0.0)

    @property
    def is_reliable(self) -> bool:
        """Whether no outcome is random, or pairs have many visits, or no reward is known."""
        pairs = int((self._edges.counts > 0.0).sum())
        certain = int(self._edges.size[0]) == pairs
        return certain or self._counted >= _MANY_VISITS * pairs or bool(np.ptp(self._bounds) == 0.0)

    def wait(self, steps: int) -> int:
        """Return how many new steps to take, after ``steps``, before the next plan."""
        return max(1, self.outcomes.horizon // _PART, int(_GROWTH * steps)) if steps else 1

    def plan(self, returns: Sequence[float]) -> "TablePlanner":
        """Count new steps, find the best policy, and go on exploring."""
        self._count()
        self._look_anew()
        self._deliver()
        return self

    def decide(self, point: FloatArray) -> tuple[int, FloatArray]:
        """Return the action of highest optimistic value, of equal ones the least tried."""
        self._count()
        state = self._numbers.get(_key(point))
        if state is None:
            return 0, self._codes[0]
        (values,) = pair_values(self._edges, self._hope, self._hopes, state, state + 1)
        best = values >= values.max() - _CLOSE * abs(self._hope.unknown)
        action = int(np.where(best, self._edges.counts[state], np.inf).argmin())
        return action, self._codes[action]

    def note(self, played: Any, start: FloatArray, outcome: tuple[float, int, bool]) -> None:
        """Record a real episode that was played with a table from its start to its end."""
        if isinstance(played, Table):
            played.returns.append(outcome[0])

    def best(self) -> Table:
        return self.candidates[0]

    def policy(self, newest: Any) -> TablePolicy:
        """Return the delivered policy; a constant one before there is any."""
        if self.candidates:
            return self.candidates[0].policy
        return greedy(np.zeros((1, self._rows.shape[1])), np.zeros((1, len(self._codes))))

    def to_arrays(self, known: Sequence[Any]) -> Arrays:
        """Return arrays for a file; ``known`` are the delivered table and this planner."""
        n, policies = self.n_states, [one.policy for one in self.candidates]
        return {
            "counted": np.array([self._counted]),
            "hopes": self._hopes[:n].copy(),
            "fears": self._fears[:, :n].copy(),
            "doubt": self._hope.doubt,
            "view": np.array([self._hope.unknown, self._hope.errors, self._hope.gamma]),
            "delivered": np.concatenate([self._rows[:0], *(one.codevectors for one in policies)]),
            "q_values": np.concatenate([self._codes[:0], *(one.q_values for one in policies)]),
            "returns": np.array([r for one in self.candidates for r in one.returns], np.float64),
        }

    def restore(self, arrays: Mapping[str, Array], n_candidates: int) -> list[Any]:
        """Restore what :meth:`to_arrays` returned; return the known tables, candidates first."""
        sizes = {"steps": self.memory.n, "d": self._rows.shape[1], "A": len(self._codes)}
        check(arrays, _SCHEMA, sizes)
        for i in range(int(arrays["counted"][0])):
            self._count_one(i)
        n, states = self.n_states, len(arrays["hopes"])
        require(states == n, f"hopes has {states} states: there are {n} in the memory")
        _, errors, gamma = arrays["view"].tolist()
        require(errors >= 0.0 and 0.0 < gamma < 1.0, f"view is {arrays['view'].tolist()}")
        self._hopes[:n], self._fears[:, :n] = arrays["hopes"], arrays["fears"]
        self._hope = View(np.array(arrays["doubt"]), *arrays["view"].tolist())
        if sizes["cells"]:
            policy = greedy(arrays["delivered"], arrays["q_values"].copy())
            self.candidates = [Table(policy, arrays["returns"].tolist())]
        require(n_candidates == len(self.candidates), "delivered is missing, or there is none")
        return [*self.candidates, self]

    def _count(self) -> None:
        """Count new steps, and update the optimistic values."""
        for i in range(self._counted, self.memory.n):
            low, high = self._bounds.tolist()
            state = self._count_one(i)
            if self.memory.rewards[i] < low or self.memory.rewards[i] > high:
                self._look_anew()
                continue
            close = _NEAR * abs(self._hope.unknown)
            spread(self._edges, self._hope, self._hopes, state, close, _MAX_BACKUPS)

    def _count_one(self, i: int) -> int:
        seen = self.memory
        before = self._number(seen.before[i])
        after = NO if seen.ended[i] else self._number(seen.after[i])
        if int(self._edges.size[0]) == len(self._edges.weights):
            self._edges = grown(self._edges, 0, 2 * len(self._edges.weights))
        reward = float(seen.rewards[i])
        count(self._edges, before, int(seen.codes[i].argmax()), reward, after)
        self._starts[before] += seen.first[i]
        self._bounds[:] = min(self._bounds[0], reward), max(self._bounds[1], reward)
        self._counted = i + 1
        return before

    def _number(self, row: FloatArray) -> int:
        """Return the number of a state, a new one if it is new."""
        key = _key(row)
        number = self._numbers.get(key)
        if number is not None:
            return number
        number = self._numbers[key] = len(self._numbers)
        if number == len(self._rows):
            self._edges = grown(self._edges, 2 * number, 0)
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._starts = np.concatenate([self._starts, np.zeros(number)])
            self._hopes = np.concatenate([self._hopes, np.zeros(number)])
            self._fears = np.concatenate([self._fears, np.zeros_like(self._fears)], axis=1)
        self._rows[number] = row
        self._hopes[number] = self._hope.unknown
        return number

    def _look_anew(self) -> None:
        """Compute all optimistic values anew."""
        self._hope = self._hopeful()
        n, close = self.n_states, _CLOSE * abs(self._hope.unknown)
        sweep(self._edges, self._hope, self._hopes, n, True, close, _MAX_SWEEPS)

    def _hopeful(self) -> View:
        """Return the optimistic view: the unknown pays more, by the range of rewards so far."""
        low, high = self._bounds.tolist()
        doubt = self._doubt(0.5)
        doubt[1:] *= _SURPRISE
        if not math.isfinite(low):
            return View(doubt, 1.0, _ERRORS, _DISCOUNT)
        top = high + ((high - low) or 1.0)
        unknown = top / (1.0 - _DISCOUNT) if top > 0.0 else top
        return View(doubt, unknown, _ERRORS, _DISCOUNT)

    def _doubt(self, prior: float) -> FloatArray:
        """Return the probability that a pair's next visit brings something new, by its visits."""
        visits, news = self._edges.news
        doubt = np.ones(MAX_VISITS + 1)
        for k in range(1, MAX_VISITS + 1):
            total = visits[k] + 2.0 * prior
            doubt[k] = min(doubt[k - 1], (news[k] + prior) / total) if total else doubt[k - 1]
        return doubt

    def _deliver(self) -> None:
        """Deliver the best pessimistic policy, unless the present one is as good in the model.

        Pessimism: each step into the unknown costs what the worst did.
        """
        n, worst, horizon = self.n_states, float(self._bounds[0]), self.outcomes.horizon
        acted = self._edges.counts[:n].any(axis=1)
        tried = self._edges.counts[:n][acted] > 0.0
        policies = [one.policy for one in self.candidates]
        for k, gamma in enumerate(_DISCOUNTS):
            unknown = min(worst, 0.0) * min(1.0 / (1.0 - gamma), float(horizon))
            view, fears = View(self._doubt(0.0), unknown, 0.0, gamma), self._fears[k]
            close = _CLOSE * max(float(np.ptp(fears[:n])), 1e-9)
            sweep(self._edges, view, fears, n, False, close, _MAX_SWEEPS)
            known = pair_values(self._edges, view, fears, 0, n)[acted]
            least = np.where(tried, known, np.inf).min(axis=1, keepdims=True)
            known = np.where(tried, known, np.minimum(least, view.unknown) - 1.0 - abs(worst))
            policies.append(greedy(self._rows[:n][acted], known))
        means = [
            self._starts[:n]
            @ play(self._edges, one.choices(self._rows[:n]), min(worst, 0.0), horizon)
            for one in policies
        ]
        best = policies[int(np.argmax(means))]
        if not self.candidates or best is not self.candidates[0].policy:
            self.candidates = [Table(best)]


def _key(row: Array) -> bytes:
    return (np.asarray(row, dtype=np.float64) + 0.0).tobytes()  # minus zero is zero
