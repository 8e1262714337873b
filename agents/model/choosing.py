"""Whether a world is numbered states, though its observations do not say so; and who plans in it.

The distinct observations of some worlds are few: positions on a grid, or a handful of small
numbers. Where most of the latest observations had been seen before, to the bit, a table over them
is the better model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.agents.model.candidates import Candidate
from oda_rl.agents.model.contract import Planning, Played
from oda_rl.agents.model.memory import Memory
from oda_rl.agents.model.planning import Planner
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.model.tables import TablePlanner
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.policies.table import TablePolicy
from oda_rl.agents.rules.editing import Clauses
from oda_rl.agents.worlds.learning import Learned
from oda_rl.files.schema import Member, check, flags

_MOST_STATES = 5000
_AGAIN = 0.5  # share of the latest observations that had been seen before: then it is a table
_MOST_NEW = 0.5  # distinct observations, as a share of all: with more it is none after all

SCHEMA: dict[str, Member] = {"tables": flags()}
"""What a file has beside what the chosen one has."""


class ChoosingPlanner:
    """A planner of rules, until what was seen turns out to be a table.

    Parameters
    ----------
    rules : Planner
        For worlds that are not tables.
    tables : TablePlanner
        For those that are; of the same memory.
    """

    def __init__(self, rules: Planner, tables: TablePlanner) -> None:
        self.rules, self.tables = rules, tables
        self.chosen: Planning = rules

    @property
    def config(self) -> ModelConfig:
        """Settings of the agent."""
        return self.rules.config

    @property
    def candidates(self) -> Sequence[Played]:
        """What may be delivered."""
        return self.chosen.candidates

    @property
    def codevectors(self) -> FloatArray:
        """Of the model's cells, in the observation's units, shape (K, d)."""
        return self.chosen.codevectors

    @property
    def scale(self) -> FloatArray | None:
        """Inverse standard deviations of the observation's components; None before learning."""
        return self.chosen.scale

    @property
    def learned(self) -> Learned | None:
        """The world as laws; None before learning, and where it is a table."""
        return self.chosen.learned

    def wait(self, steps: int) -> int:
        """Return how many new steps there should be, after so many, before the next plan."""
        return self.chosen.wait(steps)

    def plan(self, returns: Sequence[float]) -> Played:
        """Choose a planner, and let it say what is played next.

        Parameters
        ----------
        returns : sequence of float
            Of all episodes so far.
        """
        is_table = self.chosen is self.tables
        if is_table:
            n = self.tables.n_states
            recurs = n <= _MOST_NEW * self.memory.n or seen_again(self.memory) >= _AGAIN
            is_table = n <= _MOST_STATES and recurs
        elif self.rules.learned is None and self.clauses is None:
            is_table = seen_again(self.memory) >= _AGAIN
        self.chosen = self.tables if is_table else self.rules
        return self.chosen.plan(returns)

    def note(self, played: Any, start: FloatArray, *outcome: Any) -> None:
        """Note a real episode that was played with something from its start to its end."""
        if isinstance(played, Candidate) == (self.chosen is self.rules):
            self.chosen.note(played, start, *outcome)

    @property
    def clauses(self) -> Clauses | None:
        """Within which everything is done."""
        return self.rules.clauses

    def constrain(self, policy: RulePolicy) -> Played | None:
        """Plan within a policy's clauses from now on; return it as what can be played."""
        return self.chosen.constrain(policy)

    def best(self) -> Played:
        """Return the candidate of greatest value."""
        return self.chosen.best()

    def policy(self, newest: Any) -> RulePolicy | TablePolicy:
        """Return what is delivered; ``newest`` was planned last, or is None."""
        return self.chosen.policy(newest)

    def pack(self, known: Sequence[Any]) -> dict[str, npt.NDArray[Any]]:
        """Return what can be played as arrays, for a file."""
        return {"tables": np.array(self.chosen is self.tables), **self.chosen.pack(known)}

    def unpack(self, arrays: dict[str, npt.NDArray[Any]]) -> list[Any]:
        """Make of them what was packed, or raise InvalidFileError."""
        check({"tables": arrays["tables"]}, SCHEMA, {})
        self.chosen = self.tables if arrays["tables"] else self.rules
        return self.chosen.unpack({k: array for k, array in arrays.items() if k != "tables"})

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return all else that has to be saved."""
        return self.chosen.state()

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], known: list[Any]) -> None:
        """Take over what :meth:`state` returned, and candidates, when the memory is restored."""
        self.chosen.restore(arrays, known)

    @property
    def memory(self) -> Memory:
        """What has been seen."""
        return self.rules.memory


def seen_again(memory: Memory) -> float:
    """Return the share of the latest half of observations that had been seen before.

    Of those after a step: a world may always begin the same.
    """
    after = memory.transitions.after
    _, first = np.unique(after, axis=0, return_index=True)
    half = len(after) // 2
    return 1.0 - float((first >= half).sum()) / max(len(after) - half, 1)
