"""Tables that can be played, and how their real episodes went."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.agents.model import episodes
from oda_rl.agents.model.episodes import Tried
from oda_rl.agents.policies.table import TablePolicy
from oda_rl.diagram import ordered
from oda_rl.files.schema import Member, check, real, require, whole

SCHEMA: dict[str, Member] = {
    "cells": whole("R", "[1, 1000000]"),
    "states": real("states, d"),
    "q_values": real("states, A"),
    "starts": whole("episodes"),
    **episodes.SCHEMA,
    "variances": real("R", "[0, inf)"),
}
"""What a file has of tables, one after the other."""


@dataclass(eq=False)
class Tabled(Tried):
    """A table (:class:`~oda_rl.agents.policies.table.TablePolicy`) and its real episodes.

    Their starts are the numbers of states.
    """

    policy: TablePolicy
    variance: float = 0.0
    """Of a return in the present model, on average over the episodes' starts."""

    def decide(self, point: FloatArray) -> tuple[int, FloatArray]:
        """Return the action in a state, and its code."""
        action = int(self.policy.choices(point[None])[0])
        return action, np.eye(self.policy.n_actions)[action]


def greedy(states: FloatArray, q_values: FloatArray) -> TablePolicy:
    """Return the policy with a cell for each of n states, shape (n, d).

    >>> greedy(np.array([[0.0], [1.0]]), np.eye(2)).act(np.array([[1.0], [-3.0]]))
    array([1, 0])
    """
    diagram = np.column_stack([(states**2).sum(axis=1), -2.0 * states])
    return TablePolicy(np.zeros(states.shape[1]), ordered(diagram), q_values, states.copy())


def to_arrays(tables: list[Tabled]) -> dict[str, npt.NDArray[Any]]:
    """Return tables as arrays, for a file."""
    if not tables:
        return {}
    policies = [one.policy for one in tables]
    return {
        "cells": np.array([policy.n_cells for policy in policies]),
        "states": np.concatenate([policy.codevectors for policy in policies]),
        "q_values": np.concatenate([policy.q_values for policy in policies]),
        "starts": np.array([start for one in tables for start in one.starts], dtype=np.int64),
        "variances": np.array([one.variance for one in tables]),
        **episodes.to_arrays(tables),
    }


def from_arrays(arrays: dict[str, npt.NDArray[Any]], d: int, n_actions: int) -> list[Tabled]:
    """Make tables of what :func:`to_arrays` returned, or raise InvalidFileError."""
    if not arrays:
        return []
    sizes = {"d": d, "A": n_actions}
    check(arrays, SCHEMA, sizes)
    for name, total in (("cells", sizes["states"]), ("counts", sizes["episodes"])):
        require(
            arrays[name].sum() == total, f"{name} has the sum {arrays[name].sum()}: not {total}"
        )
    cells = np.cumsum(arrays["cells"])[:-1]
    states, q_values = (np.split(arrays[name], cells) for name in ("states", "q_values"))
    return [
        Tabled(greedy(own, values.copy()), float(variance), **known)
        for own, values, variance, known in zip(
            states, q_values, arrays["variances"], episodes.from_arrays(arrays), strict=True
        )
    ]
