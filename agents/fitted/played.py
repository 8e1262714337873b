"""The policies that several environments play, in a few arrays, and which of them each plays."""

from typing import NamedTuple

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.policies.cells import CellPolicy

_SLACK = 1.5  # times as much room as is needed


class Tables(NamedTuple):
    """P policies, each with room for the largest."""

    diagrams: FloatArray
    """Shape (P, K, 1 + d)."""
    models: FloatArray
    """Shape (P, K, 1 + d + A)."""
    n_cells: IntArray
    """Of each, shape (P,)."""
    origins: FloatArray
    """Shape (P, d)."""
    widths: FloatArray
    """Shape (P,)."""

    @classmethod
    def with_room(cls, count: int, n_cells: int, policy: CellPolicy) -> "Tables":
        """Return room for so many policies of so many cells, that are like this one."""
        d, wide = len(policy.origin), policy.models.shape[1]
        diagrams, models = np.zeros((count, n_cells, 1 + d)), np.zeros((count, n_cells, wide))
        used = np.zeros(count, dtype=np.int64)
        return cls(diagrams, models, used, np.zeros((count, d)), np.zeros(count))

    def write(self, place: int, policy: CellPolicy) -> None:
        """Put a policy in its place."""
        self.n_cells[place] = policy.n_cells
        self.diagrams[place, : policy.n_cells] = policy.diagram
        self.models[place, : policy.n_cells] = policy.models
        self.origins[place], self.widths[place] = policy.origin, policy.width


class Turns(NamedTuple):
    """What n environments play, and how."""

    places: IntArray
    """Of their policies in the tables, shape (n,)."""
    epsilons: FloatArray
    """Probabilities of a random decision, shape (n,)."""
    holds: IntArray
    """Most steps for which one is held, shape (n,)."""
    order: IntArray
    """In which they choose, shape (n,): all that play a policy while it is in the cache."""


class PlayedPolicies:
    """Tables of the policies that n environments play.

    Parameters
    ----------
    count : int
        Environments.
    policy : CellPolicy
        That all of them begin with.

    Attributes
    ----------
    tables : Tables
        Of policies. A new one takes the place of one that nobody plays.
    turns : Turns
        Of the environments.
    """

    def __init__(self, count: int, policy: CellPolicy) -> None:
        whole = np.zeros((3, count), dtype=np.int64)
        self.turns = Turns(whole[0], np.zeros(count), whole[1], whole[2])
        self._set_order()
        self._policies = [policy]
        self._arrange(policy)

    def play(self, lane: int, policy: CellPolicy, epsilon: float, longest_hold: int) -> None:
        """Say what an environment plays from now on, and how."""
        places, epsilons, holds, _ = self.turns
        if self._policies[places[lane]] is not policy:
            places[lane] = self._place_of(policy)
            self._set_order()
        epsilons[lane], holds[lane] = epsilon, longest_hold

    def _set_order(self) -> None:
        self.turns.order[:] = np.argsort(self.turns.places, kind="stable")

    def _place_of(self, policy: CellPolicy) -> int:
        for place, known in enumerate(self._policies):
            if known is policy:
                return place
        free = set(range(len(self._policies))).difference(self.turns.places.tolist())
        place = min(free, default=len(self._policies))
        self._policies[place : place + 1] = [policy]
        count, cells = self.tables.models.shape[:2]
        if place < count and policy.n_cells <= cells:
            self.tables.write(place, policy)
        else:
            self._arrange(policy)
        return place

    def _arrange(self, like: CellPolicy) -> None:
        """Write all policies to new tables, of which the largest may be this one."""
        largest = max(policy.n_cells for policy in self._policies)
        count, n_cells = int(_SLACK * len(self._policies)) + 1, int(_SLACK * largest) + 1
        self.tables = Tables.with_room(count, n_cells, like)
        for place, policy in enumerate(self._policies):
            self.tables.write(place, policy)
