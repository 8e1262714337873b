"""Logs of transitions: which follow one another, and how a world takes them."""

from collections.abc import Iterator

import numpy as np

from oda_rl._types import BoolArray, IntArray
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.offline import reading
from oda_rl.agents.offline import transitions as logged
from oda_rl.agents.worlds.codes import checked_codes
from oda_rl.agents.worlds.learning import CodedSteps


def trajectories(seen: CodedSteps, first: BoolArray | None = None) -> list[IntArray]:
    """Return the rows of each trajectory: a step follows another that led to where it begins.

    Those of several environments may be mixed.

    Parameters
    ----------
    seen : CodedSteps
    first : ndarray of bool, shape (n,), optional
        Whether an episode began with the step.
    """
    return reading.trajectories(seen.before, seen.after, seen.ended, first)


def stretches(rows: list[IntArray], steps: int) -> Iterator[IntArray]:
    """Cut trajectories into stretches of at least so many steps, or as many as there are.

    >>> [len(rows) for rows in stretches([np.arange(7), np.arange(2)], 3)]
    [4, 3, 2]
    """
    for one in rows:
        yield from np.array_split(one, max(len(one) // steps, 1))


def checked_log(given: logged.Transitions, interface: Interface) -> CodedSteps:
    """Return transitions as they are learned from, or raise ValueError."""
    before = reading.checked_vectors("observations", given.observations, interface)
    after = reading.checked_vectors("next_observations", given.next_observations, interface)
    if len(before) < 2:
        raise ValueError(f"observations has {len(before)} row: there must be at least 2 steps")
    codes = checked_codes("actions", given.actions, len(before), interface)
    return CodedSteps(before, codes, given.rewards, after, given.terminated)
