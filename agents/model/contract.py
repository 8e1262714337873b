"""What the engine asks of whoever plans: what is played next, and which policy is best."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.policies.table import TablePolicy
from oda_rl.agents.rules.editing import Clauses
from oda_rl.agents.worlds.learning import Learned


class Played(Protocol):
    """What an episode can be played with."""

    returns: list[float]
    """Of real episodes that were."""

    def decide(self, point: FloatArray) -> tuple[int, FloatArray]:
        """Return the number of what is done in a state, and its code."""


class Planning(Protocol):
    """What is done between episodes."""

    @property
    def config(self) -> ModelConfig:
        """Settings of the agent."""

    @property
    def candidates(self) -> Sequence[Played]:
        """What may be delivered."""

    @property
    def codevectors(self) -> FloatArray:
        """Of the model's cells, in the observation's units, shape (K, d)."""

    @property
    def scale(self) -> FloatArray | None:
        """Inverse standard deviations of the observation's components; None before learning.

        0 of what never varied.
        """

    @property
    def learned(self) -> Learned | None:
        """The world as laws; None before learning, and where it is a table."""

    def wait(self, steps: int) -> int:
        """Return how many new steps there should be, after so many, before the next plan."""

    def plan(self, returns: Sequence[float]) -> Played:
        """Learn the world anew, and say what is played next.

        Parameters
        ----------
        returns : sequence of float
            Of all episodes so far that stand beside imagined ones.
        """

    def note(self, played: Any, start: FloatArray, *outcome: Any) -> None:
        """Note a real episode that was played with something from its start to its end.

        Parameters
        ----------
        played, start
            What it was played with, and its first observation.
        outcome : return, length, and whether it terminated
        """

    def best(self) -> Played:
        """Return the candidate of greatest value."""

    def policy(self, newest: Any) -> RulePolicy | TablePolicy:
        """Return what is delivered; ``newest`` was planned last, or is None."""

    @property
    def clauses(self) -> Clauses | None:
        """Within which everything is done."""

    def constrain(self, policy: RulePolicy) -> Played | None:
        """Plan within a policy's clauses from now on; return it as what can be played."""

    def pack(self, known: Sequence[Any]) -> dict[str, npt.NDArray[Any]]:
        """Return what can be played as arrays, for a file."""

    def unpack(self, arrays: dict[str, npt.NDArray[Any]]) -> list[Any]:
        """Make of them what was packed."""

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return all else that has to be saved."""

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], known: list[Any]) -> None:
        """Take over what :meth:`state` returned, and candidates, when the memory is restored."""
