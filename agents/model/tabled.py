"""Tables that can be played, and how their real episodes went."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._schema import Member, check, real, require, whole
from oda_rl._types import FloatArray
from oda_rl.agents.policies.table import TablePolicy

SCHEMA: dict[str, Member] = {
    "cells": whole("R", "[1, 1000000]"),
    "counts": whole("R", "[0, 1000000000]"),
    "states": real("states, d"),
    "q_values": real("states, A"),
    "starts": whole("episodes"),
    "returns": real("episodes"),
    "imagined": real("episodes"),
    "promised": real("R", "[-inf, inf)"),
}
"""What a file has of tables, one after the other."""


@dataclass(eq=False)
class Tabled:
    """A table (:class:`~oda_rl.agents.policies.table.TablePolicy`) and its real episodes."""

    policy: TablePolicy
    starts: list[int] = field(default_factory=list)
    """Numbers of the states in which episodes began that were played with it,"""
    returns: list[float] = field(default_factory=list)
    """and their returns."""
    promised: float = -math.inf
    """Mean return in the present model."""
    imagined: list[float] = field(default_factory=list)
    """Mean returns there from the episodes' starts."""

    def decide(self, point: FloatArray) -> tuple[int, FloatArray]:
        """Return the action in a state, and its code."""
        action = int(self.policy.choices(point[None])[0])
        return action, np.eye(self.policy.n_actions)[action]

    @property
    def surprises(self) -> FloatArray:
        """Real minus imagined returns."""
        return np.subtract(self.returns, self.imagined)


def greedy(states: FloatArray, q_values: FloatArray) -> TablePolicy:
    """Return the policy with a cell for each of n states, shape (n, d).

    >>> greedy(np.array([[0.0], [1.0]]), np.eye(2)).act(np.array([[1.0], [-3.0]]))
    array([1, 0])
    """
    diagram = np.column_stack([(states**2).sum(axis=1), -2.0 * states])
    return TablePolicy(np.zeros(states.shape[1]), diagram, q_values, states.copy())


def to_arrays(tables: list[Tabled]) -> dict[str, npt.NDArray[Any]]:
    """Return tables as arrays, for a file."""
    if not tables:
        return {}
    policies = [one.policy for one in tables]
    return {
        "cells": np.array([policy.n_cells for policy in policies]),
        "states": np.concatenate([policy.codevectors for policy in policies]),
        "q_values": np.concatenate([policy.q_values for policy in policies]),
        "counts": np.array([len(one.returns) for one in tables]),
        "starts": np.concatenate([np.array(one.starts, dtype=np.int64) for one in tables]),
        "returns": np.concatenate([one.returns for one in tables]),
        "imagined": np.concatenate([one.imagined for one in tables]),
        "promised": np.array([one.promised for one in tables]),
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
    cells, ends = np.cumsum(arrays["cells"])[:-1], np.cumsum(arrays["counts"])[:-1]
    states, q_values = (np.split(arrays[name], cells) for name in ("states", "q_values"))
    starts, returns, imagined = (
        np.split(arrays[name], ends) for name in ("starts", "returns", "imagined")
    )
    return [
        Tabled(
            greedy(states[k], q_values[k].copy()), starts[k].tolist(), returns[k].tolist(),
            float(arrays["promised"][k]), imagined[k].tolist(),
        )
        for k in range(len(states))
    ]  # fmt: skip
