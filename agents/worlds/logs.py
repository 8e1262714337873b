"""Logs of transitions: which follow one another, and whether they are sound."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import FINITE, LARGEST_REWARD, SMALL
from oda_rl.agents.worlds.codes import checked_codes
from oda_rl.agents.worlds.learning import Transitions
from oda_rl.diagram import LARGEST


def trajectories(seen: Transitions, first: BoolArray | None = None) -> list[IntArray]:
    """Return the rows of each trajectory: a step follows another that led to where it begins.

    Those of several environments may be mixed.

    Parameters
    ----------
    seen : Transitions
    first : ndarray of bool, shape (n,), optional
        Whether an episode began with the step.
    """
    found: list[list[int]] = []
    open_ends: dict[bytes, int] = {}  # where a trajectory can go on, and which
    for row in range(len(seen.rewards)):
        place = None
        if first is None or not first[row]:
            place = open_ends.pop((seen.before[row] + 0.0).tobytes(), None)
        if place is None:
            place = len(found)
            found.append([])
        found[place].append(row)
        if not seen.ended[row]:
            open_ends[(seen.after[row] + 0.0).tobytes()] = place
    return [np.array(rows) for rows in found]


def stretches(rows: list[IntArray], steps: int) -> Iterator[IntArray]:
    """Cut trajectories into stretches of at least so many steps, or as many as there are.

    >>> [len(rows) for rows in stretches([np.arange(7), np.arange(2)], 3)]
    [4, 3, 2]
    """
    for one in rows:
        yield from np.array_split(one, max(len(one) // steps, 1))


def checked_log(
    observations: npt.ArrayLike,
    actions: npt.ArrayLike,
    rewards: npt.ArrayLike,
    next_observations: npt.ArrayLike,
    terminated: npt.ArrayLike,
    interface: Interface,
) -> Transitions:
    """Return transitions as they are learned from, or raise ValueError."""
    before = _checked_observations("observations", observations, None, interface)
    n = len(before)
    after = _checked_observations("next_observations", next_observations, n, interface)
    gains = _checked_row("rewards", rewards, n)
    if not (np.abs(gains) <= LARGEST_REWARD).all():
        k = int((~(np.abs(gains) <= LARGEST_REWARD)).argmax())
        raise ValueError(f"rewards[{k}] is {gains[k]}: {SMALL}")
    ended = _checked_row("terminated", terminated, n)
    wrong = (ended != 0.0) & (ended != 1.0)
    if wrong.any():
        k = int(wrong.argmax())
        raise ValueError(f"terminated[{k}] is {ended[k]}: it must be True or False")
    codes = checked_codes("actions", actions, n, interface)
    return Transitions(before, codes, gains, after, ended > 0.0)


def _checked_observations(
    name: str, given: npt.ArrayLike, n: int | None, interface: Interface
) -> FloatArray:
    array, shape = np.asarray(given), interface.observation_shape
    inner = "".join(f", {size}" for size in shape)
    if array.ndim == 0 or array.shape[1:] != shape or (n is not None and len(array) != n):
        raise ValueError(
            f"{name} has shape {array.shape}: it must be ({'n' if n is None else n}{inner})"
        )
    if len(array) < 2:
        raise ValueError(f"{name} has shape {array.shape}: it must hold at least 2 steps")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} has dtype {array.dtype}: it must hold numbers")
    points = array.reshape(len(array), -1).astype(np.float64)
    wrong = ~(np.abs(points) <= LARGEST).all(axis=1)
    if wrong.any():
        k = int(wrong.argmax())
        raise ValueError(f"{name}[{k}] is {array[k].tolist()!r}, which is not finite: {FINITE}")
    return points


def _checked_row(name: str, given: npt.ArrayLike, n: int) -> FloatArray:
    array = np.asarray(given)
    if array.shape != (n,):
        raise ValueError(f"{name} has shape {array.shape}: it must be ({n},), as observations have")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} has dtype {array.dtype}: it must hold numbers")
    return array.astype(np.float64)
