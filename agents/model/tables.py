"""A world of numbered states: learned as counts, explored by optimism, planned by value iteration.

States are the distinct observations so far. Exploration follows the best policy of an optimistic
model (Brafman and Tennenholtz, JMLR 3, 2002; Szita and Lorincz, ICML 2008): a pair of state and
action leads to the best there could be with the probability that its next visit brings something
new. That probability is counted over all pairs with as many visits: where worlds are deterministic,
one visit is enough. The delivered policy is the best of a pessimistic model, and takes only actions
that have been tried.

Transitions are edges: one for each state, action and next state, in two linked lists, of the pair
that it leaves and of the state that it enters. Terminations enter no state.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled
from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.model.experience import (
    Arrays,
    Memory,
    Outcomes,
    Tabled,
    greedy,
    tables_from_arrays,
    tables_to_arrays,
    values_of_tables,
)
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.policies.cells import TablePolicy
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.worlds.learning import CodedSteps, learn_world
from oda_rl.agents.worlds.simulation import predict, without_noise
from oda_rl.files.schema import Member, check, prefixed, real, require, whole, within

NO = -1  # no edge, or no state
MAX_VISITS = 64  # of a pair; more are not distinguished
_DISCOUNT = 0.99  # of exploration
_DISCOUNTS = (0.9, 0.95, 0.98, 0.99, 0.995, 0.998)  # tried for the delivered policy
_ERRORS = 2.5  # standard errors of optimism
_SURPRISE = 0.02  # something new behind a tried pair is worth this share of an untried one
_CLOSE, _NEAR = 1e-6, 1e-4  # convergence of sweeps, and of single steps, relative to the values
_MAX_SWEEPS, _MAX_BACKUPS = 3000, 2000  # between episodes, and in a step
_GROWTH = 0.05  # the delivered policy is planned when steps have grown by this share,
_PART = 10  # or a tenth of an episode has passed
_MAX_CANDIDATES = 12
_STRETCH, _HELD_OUT = 25, 5  # one of five episodes, or stretches of steps, is held out
_MIN_KNOWN, _MIN_SHARE = 10, 0.5  # held-out steps whose pair has been seen
_EXACT, _NEARLY = 1e-9, 1e-3  # squared errors in standard deviations

_SCHEMA: dict[str, Member] = {
    "counted": whole("1", "[0, steps]"),
    "hopes": real("states"),
    "fears": real(f"{len(_DISCOUNTS)}, states"),
    "doubt": real(f"{MAX_VISITS}+1", "[0, 1]"),
    "view": real("3"),
    "explorer": whole("places", "[0, known]"),
}
"""Members of a file beside tables; states and their number follow from the memory."""


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

    doubt: FloatArray
    """Weight of the unknown in a pair's value by its visits, shape (MAX_VISITS + 1,)."""
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
    """Improve the values of the first n states in place by Gauss-Seidel sweeps, to and fro.

    Returns the number of sweeps, at most ``most``, until no value changes by more than ``close``.
    """
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


@compiled
def spread(
    edges: Edges, view: View, values: FloatArray, queue: IntArray, waits: IntArray,
    state: int, close: float, most: int,
) -> None:  # fmt: skip
    """Improve the value of a state, then of the states before it, at most ``most`` values.

    ``queue`` and ``waits``, shape (S,), are scratch arrays; the latter must be 0. Changes smaller
    than ``close`` are not passed on.
    """
    room = len(queue)
    queue[0], waits[state], begin, length = state, 1, 0, 1
    for _ in range(most):
        if length == 0:
            return
        one = queue[begin]
        begin, length = (begin + 1) % room, length - 1
        waits[one] = 0
        value = state_value(edges, view, values, one, True)
        change = abs(value - values[one])
        values[one] = value
        if change <= close:
            continue
        edge = edges.entering[one]
        while edge != NO:
            before = edges.ends[0, edge]
            if waits[before] == 0:
                waits[before] = 1
                queue[(begin + length) % room] = before
                length += 1
            edge = edges.ends[4, edge]
    while length > 0:
        waits[queue[begin]] = 0
        begin, length = (begin + 1) % room, length - 1


@compiled
def pair_values(edges: Edges, view: View, values: FloatArray, n: int, out: FloatArray) -> None:
    """Write the values of all pairs of the first n states, shape (n, A)."""
    for state in range(n):
        for action in range(edges.counts.shape[1]):
            out[state, action] = pair_value(edges, view, values, state, action)


@compiled
def boldest(edges: Edges, view: View, values: FloatArray, state: int, close: float) -> int:
    """Return the action of greatest value in a state; of equal ones the least tried."""
    best, greatest, least = 0, -np.inf, np.inf
    for action in range(edges.counts.shape[1]):
        value, tried = pair_value(edges, view, values, state, action), edges.counts[state, action]
        if value > greatest + close or (value > greatest - close and tried < least):
            best, greatest, least = action, max(value, greatest), tried
    return best


@compiled
def play(
    edges: Edges, actions: IntArray, worst: float, steps: int, values: FloatArray, room: FloatArray
) -> None:
    """Write mean and variance of a policy's return in ``steps`` steps from each state.

    The variance takes rewards as independent of the next state. ``actions``, shape (n,), are the
    policy's; each step at an unknown pair returns ``worst``. Means and variances go to ``values``,
    shape (2, n); ``room`` is a scratch array.
    """
    n = len(actions)
    for state in range(n):
        values[0, state], values[1, state] = 0.0, 0.0
    for t in range(steps):
        changed = False
        for state in range(n):
            visits = edges.counts[state, actions[state]]
            if visits == 0.0:
                room[0, state], room[1, state] = worst * (t + 1), 0.0
            else:
                reward = edges.rewards[state, actions[state]] / visits
                mean, square = 0.0, 0.0
                edge = edges.leaving[state, actions[state]]
                while edge != NO:
                    after = edges.ends[2, edge]
                    if after != NO:
                        weight, value = edges.weights[edge], values[0, after]
                        mean += weight * value
                        square += weight * (values[1, after] + value * value)
                    edge = edges.ends[3, edge]
                mean, square = mean / visits, square / visits
                varies = edges.squares[state, actions[state]] / visits - reward * reward
                room[0, state] = reward + mean
                room[1, state] = max(varies, 0.0) + max(square - mean * mean, 0.0)
            changed = changed or room[0, state] != values[0, state]
            changed = changed or room[1, state] != values[1, state]
        for state in range(n):
            values[0, state], values[1, state] = room[0, state], room[1, state]
        if not changed:
            return


def _known(numbers: IntArray, groups: IntArray) -> tuple[BoolArray, IntArray, IntArray]:
    """Return what is held out, visits of each pair in the rest, and held-out rows it has seen."""
    held = groups % _HELD_OUT == 0
    visits = np.bincount(numbers[~held], minlength=len(numbers))
    return held, visits, np.flatnonzero(held & (visits[numbers] > 0))


def predicts(
    seen: CodedSteps, first: BoolArray, rng: np.random.Generator, counted: bool = False
) -> bool:
    """Whether counts predict held-out steps exactly, or as well as laws of motion do.

    Where numbers are quantities, as of a stock, the same state and action hardly recur, and laws
    say more. Only pairs that have been seen are compared. ``first``, shape (n,), says whether an
    episode began with the step: a place may recur in its own episode alone. Where a table has been
    ``counted`` already, its explorer seeks new pairs, and fewer need to recur: in other episodes
    only once five are held out, as a taxi's passenger may wait elsewhere in each.
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


class TablePlanner:
    """The counts, the policies that are best in them, and which of these is best.

    Its methods are those of :class:`~oda_rl.agents.model.planner.Planner`. It can be played itself:
    it explores by the present optimistic policy.
    """

    learned = None  # no laws
    clauses = None  # tables are not edited

    def __init__(
        self, memory: Memory, n_actions: int, outcomes: Outcomes, config: ModelConfig
    ) -> None:
        self.memory, self.outcomes, self.config = memory, outcomes, config
        self.candidates: list[Tabled] = []
        self._numbers: dict[bytes, int] = {}
        self._rows: FloatArray = np.zeros((64, memory.before.shape[1]))
        self._edges: Edges = empty(64, n_actions, 256)
        self._starts = np.zeros(64)  # episodes that began in each state
        self._counted = 0
        self._bounds = np.array([np.inf, -np.inf])  # of rewards
        self._hopes = np.zeros(64)
        self._fears = np.zeros((len(_DISCOUNTS), 64))
        self._hope = self._hopeful()
        self._room: tuple[IntArray, IntArray] = self._new_room()
        self._codes = np.eye(n_actions)

    @property
    def n_states(self) -> int:
        """Number of states so far."""
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

    def wait(self, steps: int) -> int:
        """Return how many new steps to take, after ``steps``, before the next plan."""
        return max(1, self.outcomes.horizon // _PART, int(_GROWTH * steps)) if steps else 1

    def plan(self, returns: Sequence[float]) -> "TablePlanner":
        """Count new steps, find the best policies, and go on exploring."""
        self._count()
        self._look_anew()
        for one in self.candidates:
            self._imagine(one)
        self._propose()
        return self

    def decide(self, point: FloatArray) -> tuple[int, FloatArray]:
        """Return the action of greatest optimistic value in a state, and its code."""
        self._count()
        state = self._numbers.get(_key(point))
        if state is None:
            return 0, self._codes[0]
        close = _CLOSE * abs(self._hope.unknown)
        action = int(boldest(self._edges, self._hope, self._hopes, state, close))
        return action, self._codes[action]

    def note(self, played: Any, start: FloatArray, *outcome: Any) -> None:
        """Record a real episode that was played with one candidate from its start to its end."""
        if not any(played is one for one in self.candidates):
            return
        self._count()
        played.note(self._numbers[_key(start)], *outcome)
        self._imagine(played)

    def constrain(self, policy: RulePolicy) -> None:
        """Raise ValueError."""
        raise ValueError("constrain: the agent has a table of states; it must have a rule")

    def best(self) -> Tabled:
        """Return the candidate with the highest value."""
        return self.candidates[int(np.argmax(values_of_tables(self.candidates)))]

    def policy(self, newest: Any) -> TablePolicy:
        """Return the delivered policy: the best candidate, if possible of those really played."""
        known = [one for one in self.candidates if one.returns] or self.candidates
        if known:
            return known[int(np.argmax(values_of_tables(known)))].policy
        d = self._rows.shape[1]
        return greedy(np.zeros((1, d)), np.zeros((1, len(self._codes))))

    def to_arrays(self, known: Sequence[Any]) -> Arrays:
        """Return arrays for a file, with the ``known`` tables."""
        n = self.n_states
        places = [k for k, one in enumerate(known) if one is self]
        return {
            "counted": np.array([self._counted]),
            "hopes": self._hopes[:n].copy(),
            "fears": self._fears[:, :n].copy(),
            "doubt": self._hope.doubt,
            "view": np.array([self._hope.unknown, self._hope.errors, self._hope.gamma]),
            "explorer": np.array(places, dtype=np.int64),
            **prefixed("tables_", tables_to_arrays([x for x in known if x is not self])),
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], n_candidates: int) -> list[Any]:
        """Restore what :meth:`to_arrays` returned, or raise InvalidFileError.

        The memory must be restored. Returns the known tables, of which the first are candidates.
        """
        tables = within(arrays, "tables_")
        known: list[Any] = list(tables_from_arrays(tables, self._rows.shape[1], len(self._codes)))
        sizes = {"steps": self.memory.n, "known": len(known)}
        check({k: arrays[k] for k in arrays if not k.startswith("tables_")}, _SCHEMA, sizes)
        for i in range(int(arrays["counted"][0])):
            self._count_one(i)
        n, states = self.n_states, len(arrays["hopes"])
        require(states == n, f"hopes has {states} states: there are {n} in the memory")
        for one in known:
            start = max(one.starts, default=-1)
            require(start < n, f"starts has the state {start}: there are {n}")
        _, errors, gamma = arrays["view"].tolist()
        require(errors >= 0.0 and 0.0 < gamma < 1.0, f"view is {arrays['view'].tolist()}")
        require(len(arrays["explorer"]) <= 1, "explorer has several places")
        for place in arrays["explorer"].tolist():
            known.insert(place, self)
        self._hopes[:n], self._fears[:, :n] = arrays["hopes"], arrays["fears"]
        self._hope = View(np.array(arrays["doubt"]), *arrays["view"].tolist())
        self.candidates = known[:n_candidates]
        no_table = any(isinstance(one, TablePlanner) for one in known[:n_candidates])
        require(not no_table, "the explorer is among the candidates")
        return known

    def _count(self) -> None:
        """Count new steps, and update the optimistic values."""
        for i in range(self._counted, self.memory.n):
            low, high = self._bounds.tolist()
            state = self._count_one(i)
            if self.memory.rewards[i] < low or self.memory.rewards[i] > high:
                self._look_anew()
                continue
            spread(
                self._edges, self._hope, self._hopes, *self._room, state,
                _NEAR * abs(self._hope.unknown), _MAX_BACKUPS,
            )  # fmt: skip

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
            self._room = self._new_room()
        self._rows[number] = row
        self._hopes[number] = self._hope.unknown
        return number

    def _new_room(self) -> tuple[IntArray, IntArray]:
        return np.zeros(len(self._rows), dtype=np.int64), np.zeros(len(self._rows), dtype=np.int64)

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

    def _fearful(self, gamma: float) -> View:
        """Return the pessimistic view: each step into the unknown costs what the worst did."""
        worst = min(float(self._bounds[0]), 0.0)
        steps = min(1.0 / (1.0 - gamma), float(self.outcomes.horizon))
        return View(self._doubt(0.0), worst * steps, 0.0, gamma)

    def _doubt(self, prior: float) -> FloatArray:
        """Return the probability that a pair's next visit brings something new, by its visits."""
        visits, news = self._edges.news
        doubt = np.ones(MAX_VISITS + 1)
        for k in range(1, MAX_VISITS + 1):
            total = visits[k] + 2.0 * prior
            doubt[k] = min(doubt[k - 1], (news[k] + prior) / total) if total else doubt[k - 1]
        return doubt

    def _propose(self) -> None:
        """Add the best pessimistic policy to the candidates."""
        n, low = self.n_states, float(self._bounds[0])
        acted = self._edges.counts[:n].any(axis=1)
        tried = self._edges.counts[:n][acted] > 0.0
        best: Tabled | None = None
        q_values = np.zeros((n, len(self._codes)))
        for k, gamma in enumerate(_DISCOUNTS):
            view, fears = self._fearful(gamma), self._fears[k]
            close = _CLOSE * max(float(np.ptp(fears[:n])), 1e-9)
            sweep(self._edges, view, fears, n, False, close, _MAX_SWEEPS)
            pair_values(self._edges, view, fears, n, q_values)
            known = q_values[acted]
            least = np.where(tried, known, np.inf).min(axis=1, keepdims=True)
            known = np.where(tried, known, np.minimum(least, view.unknown) - 1.0 - abs(low))
            found = Tabled(greedy(self._rows[:n][acted], known))
            self._imagine(found)
            if best is None or found.promised > best.promised:
                best = found
        assert best is not None
        for one in self.candidates:
            points = one.policy.codevectors  # the states it knew
            if np.array_equal(one.policy.choices(points), best.policy.choices(points)):
                one.policy = best.policy
                return
        self.candidates.append(best)
        if len(self.candidates) > _MAX_CANDIDATES:
            values = values_of_tables(self.candidates)
            values[-1] = np.inf
            del self.candidates[int(values.argmin())]

    def _imagine(self, one: Tabled) -> None:
        """Compute a candidate's returns in the present model."""
        n = self.n_states
        actions = one.policy.choices(self._rows[:n])
        began, horizon = self._starts[:n], self.outcomes.horizon
        starts, lengths = np.array(one.starts, dtype=np.int64), one.compared(horizon)
        imagined, variances = np.zeros((2, len(starts)))
        for steps in np.unique([horizon, *lengths]).tolist():
            found, room = np.zeros((2, 2, n))
            play(self._edges, actions, min(float(self._bounds[0]), 0.0), steps, found, room)
            if steps == horizon:
                one.promised = float(began @ found[0] / max(began.sum(), 1.0))
            rows = lengths == steps
            imagined[rows], variances[rows] = found[:, starts[rows]]
        one.imagined = imagined.tolist()
        one.variance = float(variances.mean()) if len(starts) else 0.0


def _key(row: npt.NDArray[Any]) -> bytes:
    return (np.asarray(row, dtype=np.float64) + 0.0).tobytes()  # minus zero is zero
