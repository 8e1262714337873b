"""A world of numbered states: learned as counts, explored by optimism, planned by value iteration.

States are the distinct observations that were seen. What is played to explore is the best policy of
a hopeful model (Brafman and Tennenholtz, JMLR 3, 2002; Szita and Lorincz, ICML 2008): a pair of
state and action leads, with the probability that its next visit brings something new, to the best
there could be. That probability is counted, over all pairs that had as many visits: where worlds
are deterministic, one visit is enough. What is delivered is the best policy of a model that fears
the worst instead, and does only what has been tried.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.model.counting import (
    MOST,
    NO,
    Edges,
    View,
    boldest,
    count,
    empty,
    grown,
    pair_values,
    play,
    spread,
    sweep,
)
from oda_rl.agents.model.episodes import Outcomes
from oda_rl.agents.model.memory import Memory
from oda_rl.agents.model.selection import values_of_tables
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.model.tabled import Tabled, from_arrays, greedy, to_arrays
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.policies.table import TablePolicy
from oda_rl.files.schema import Member, check, real, require, whole

_DISCOUNT = 0.99  # of exploration
_DISCOUNTS = (0.9, 0.95, 0.98, 0.99, 0.995, 0.998)  # one of them is best for what is delivered
_ERRORS = 2.5  # standard errors of hope
_SURPRISE = 0.02  # what is new behind a tried pair, as a share of what may be behind an untried one
_CLOSE, _NEAR = 1e-6, 1e-4  # shares of the values' range: sweeps, and single steps
_SWEEPS, _BACKUPS = 3000, 2000  # at most: between episodes, and in a step
_GROWTH = 0.05  # the delivered policy is planned when steps have grown by this share
_PART = 10  # or an episode's tenth has passed
_KEPT = 12  # candidates


SCHEMA: dict[str, Member] = {
    "counted": whole("1", "[0, steps]"),
    "hopes": real("states"),
    "fears": real(f"{len(_DISCOUNTS)}, states"),
    "doubt": real(f"{MOST}+1", "[0, 1]"),
    "view": real("3"),
}
"""What a file has beside tables; states and their number follow from the memory."""

_EXPLORER: dict[str, Member] = {"explorer": whole("places", "[0, known]")}


class Explorer:
    """The best policy of the hopeful model, as it is at each moment."""

    def __init__(self, planner: "TablePlanner") -> None:
        self.returns: list[float] = []
        self._planner = planner

    def decide(self, point: FloatArray) -> tuple[int, FloatArray]:
        """Return the action in a state, and its code."""
        return self._planner.explore(point)


class TablePlanner:
    """The counts, the policies that are best in them, and which of these is best.

    Parameters
    ----------
    memory : Memory
        What has been seen.
    n_actions : int
        Number of actions.
    outcomes : Outcomes
        Of all real episodes.
    config : ModelConfig
        Settings of the agent.
    """

    def __init__(
        self, memory: Memory, n_actions: int, outcomes: Outcomes, config: ModelConfig
    ) -> None:
        self.memory, self.outcomes, self.config = memory, outcomes, config
        self.candidates: list[Tabled] = []
        self.explorer = Explorer(self)
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
        """Number of states that were seen."""
        return len(self._numbers)

    @property
    def codevectors(self) -> FloatArray:
        """The states, shape (K, d)."""
        return self._rows[: self.n_states].copy()

    @property
    def scale(self) -> FloatArray | None:
        """Inverse standard deviations of the observation's components; None before learning."""
        if self._counted == 0:
            return None
        deviation = self.memory.transitions.before.std(axis=0)
        return np.where(deviation > 0.0, 1.0 / np.where(deviation > 0.0, deviation, 1.0), 0.0)

    learned = None  # no laws: a table

    def wait(self, steps: int) -> int:
        """Return how many new steps there should be, after so many, before the next plan."""
        return max(1, self.outcomes.horizon // _PART, int(_GROWTH * steps)) if steps else 1

    def plan(self, returns: Sequence[float]) -> Explorer:
        """Count what is new, find the best policies, and explore on.

        Parameters
        ----------
        returns : sequence of float
            They are not needed.
        """
        self._count()
        self._look_anew()
        self._judge()
        self._propose()
        return self.explorer

    def explore(self, point: FloatArray) -> tuple[int, FloatArray]:
        """Return the action of greatest hope in a state, and its code."""
        self._count()
        state = self._numbers.get(_key(point))
        if state is None:
            return 0, self._codes[0]
        close = _CLOSE * abs(self._hope.unknown)
        action = int(boldest(self._edges, self._hope, self._hopes, state, close))
        return action, self._codes[action]

    def note(self, played: Any, start: FloatArray, *outcome: Any) -> None:
        """Note a real episode that was played with something from its start to its end."""
        if not any(played is one for one in self.candidates):
            return
        self._count()
        played.note(self._numbers[_key(start)], *outcome)
        self._imagine(played)

    @property
    def clauses(self) -> None:
        """None: what is done in numbered states is not edited."""
        return None

    def constrain(self, policy: RulePolicy) -> None:
        """Refuse."""
        raise ValueError("constrain: the agent has a table of states; it must have a rule")

    def best(self) -> Tabled:
        """Return the candidate of greatest value."""
        return self.candidates[int(np.argmax(values_of_tables(self.candidates)))]

    def policy(self, newest: Any) -> TablePolicy:
        """Return what is delivered: the best candidate, of those that were really played if any."""
        played = [one for one in self.candidates if one.returns]
        if played:
            return played[int(np.argmax(values_of_tables(played)))].policy
        if self.candidates:
            return self.best().policy
        d = self._rows.shape[1]
        return greedy(np.zeros((1, d)), np.zeros((1, len(self._codes))))

    def pack(self, known: Sequence[Any]) -> dict[str, npt.NDArray[Any]]:
        """Return candidates and the explorer as arrays."""
        places = [k for k, one in enumerate(known) if one is self.explorer]
        tables = [one for one in known if one is not self.explorer]
        return {"explorer": np.array(places, dtype=np.int64), **to_arrays(tables)}

    def unpack(self, arrays: dict[str, npt.NDArray[Any]]) -> list[Any]:
        """Make of them what was packed, or raise InvalidFileError."""
        tables = {name: array for name, array in arrays.items() if name != "explorer"}
        known: list[Any] = list(from_arrays(tables, self._rows.shape[1], len(self._codes)))
        check({"explorer": arrays["explorer"]}, _EXPLORER, {"known": len(known)})
        require(len(arrays["explorer"]) <= 1, "explorer has several places")
        for place in arrays["explorer"].tolist():
            known.insert(place, self.explorer)
        return known

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return all else that has to be saved."""
        n = self.n_states
        return {
            "counted": np.array([self._counted]),
            "hopes": self._hopes[:n].copy(),
            "fears": self._fears[:, :n].copy(),
            "doubt": self._hope.doubt,
            "view": np.array([self._hope.unknown, self._hope.errors, self._hope.discount]),
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], known: list[Any]) -> None:
        """Take over what :meth:`state` returned, and candidates, when the memory is restored.

        Raises InvalidFileError.
        """
        check(arrays, SCHEMA, {"steps": self.memory.n})
        for i in range(int(arrays["counted"][0])):
            self._count_one(i)
        n = self.n_states
        states = len(arrays["hopes"])
        require(states == n, f"hopes has {states} states: there are {n} in the memory")
        for one in known:
            starts = max(getattr(one, "starts", ()), default=-1)
            require(starts < n, f"starts has the state {starts}: there are {n}")
        _, errors, discount = arrays["view"].tolist()
        require(errors >= 0.0 and 0.0 < discount < 1.0, f"view is {arrays['view'].tolist()}")
        self._hopes[:n], self._fears[:, :n] = arrays["hopes"], arrays["fears"]
        self._hope = View(np.array(arrays["doubt"]), *arrays["view"].tolist())
        self.candidates = known

    def _count(self) -> None:
        """Count the steps that are new, and pass on what they change in the hopes."""
        for i in range(self._counted, self.memory.n):
            low, high = self._bounds.tolist()
            state = self._count_one(i)
            if self.memory.rewards[i] < low or self.memory.rewards[i] > high:
                self._look_anew()
                continue
            spread(
                self._edges, self._hope, self._hopes, *self._room, state,
                _NEAR * abs(self._hope.unknown), _BACKUPS,
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
        """Return the number of a state, which it gets if it is new."""
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
        """Work out all hopes, with what is known by now of rewards and surprises."""
        self._hope = self._hopeful()
        n, close = self.n_states, _CLOSE * abs(self._hope.unknown)
        sweep(self._edges, self._hope, self._hopes, n, True, close, _SWEEPS)

    def _hopeful(self) -> View:
        """Where little is known, there is twice as much to gain as was ever seen."""
        low, high = self._bounds.tolist()
        doubt = self._doubt(0.5)
        doubt[1:] *= _SURPRISE
        if not math.isfinite(low):
            return View(doubt, 1.0, _ERRORS, _DISCOUNT)
        top = high + ((high - low) or 1.0)
        unknown = top / (1.0 - _DISCOUNT) if top > 0.0 else top
        return View(doubt, unknown, _ERRORS, _DISCOUNT)

    def _fearful(self, discount: float) -> View:
        """Where little is known, each step costs what the worst did."""
        worst = min(float(self._bounds[0]), 0.0)
        steps = min(1.0 / (1.0 - discount), float(self.outcomes.horizon))
        return View(self._doubt(0.0), worst * steps, 0.0, discount)

    def _doubt(self, prior: float) -> FloatArray:
        """Return how likely a pair's next visit brings something new, by its visits."""
        visits, news = self._edges.news
        doubt = np.ones(MOST + 1)
        for k in range(1, MOST + 1):
            total = visits[k] + 2.0 * prior
            doubt[k] = min(doubt[k - 1], (news[k] + prior) / total) if total else doubt[k - 1]
        return doubt

    def _propose(self) -> None:
        """Make the best policy of what is known a candidate, if it is not one."""
        n, low = self.n_states, float(self._bounds[0])
        acted = self._edges.counts[:n].any(axis=1)
        tried = self._edges.counts[:n][acted] > 0.0
        best: Tabled | None = None
        q_values = np.zeros((n, len(self._codes)))
        for k, discount in enumerate(_DISCOUNTS):
            view, fears = self._fearful(discount), self._fears[k]
            close = _CLOSE * max(float(np.ptp(fears[:n])), 1e-9)
            sweep(self._edges, view, fears, n, False, close, _SWEEPS)
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
            if self._same(one, best):
                one.policy = best.policy
                return
        self.candidates.append(best)
        if len(self.candidates) > _KEPT:
            values = values_of_tables(self.candidates)
            values[-1] = np.inf
            del self.candidates[int(values.argmin())]

    def _same(self, old: Tabled, new: Tabled) -> bool:
        """Whether two candidates do the same wherever the older one can act by what it knew."""
        points = old.policy.codevectors
        return np.array_equal(old.policy.choices(points), new.policy.choices(points))

    def _judge(self) -> None:
        """Imagine all candidates anew in the present model."""
        for one in self.candidates:
            self._imagine(one)

    def _imagine(self, one: Tabled) -> None:
        """Say what a candidate returns in the present model."""
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
