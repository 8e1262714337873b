"""Logged transitions as a world takes them, and codes of actions."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.offline import reading
from oda_rl.agents.offline import transitions as logged
from oda_rl.agents.worlds.laws import codes_of
from oda_rl.agents.worlds.learning import CodedSteps


def codes_of_acts(acts: npt.NDArray[Any], interface: Interface) -> FloatArray:
    """Return the codes, shape (n, C), of what a policy's ``act`` returns."""
    if interface.box is None:
        return codes_of(np.asarray(acts, dtype=np.int64), interface.n_actions)
    return np.concatenate([np.ones((len(acts), 1)), acts], axis=1)


def actions_of(codes: FloatArray, interface: Interface) -> npt.NDArray[Any]:
    """Return the environment's actions, shape (n, ...), of codes."""
    acts = codes.argmax(axis=1) if interface.box is None else codes[:, 1:]
    return interface.performed(acts)


def checked_codes(name: str, actions: npt.ArrayLike, n: int, interface: Interface) -> FloatArray:
    """Return the codes, shape (n, C), of n actions of the environment, or raise ValueError.

    >>> checked_codes("actions", [2, 1], 2, Interface((3,), n_actions=2, first_action=1))
    array([[0., 1.],
           [1., 0.]])
    """
    array, box = np.asarray(actions), interface.box
    if interface.native is not None and box is None and len(array) == n:
        numbers = np.array([interface.native.number(action) for action in array])
        return codes_of(numbers, interface.n_actions)
    shape = () if box is None else box.shape
    if array.shape != (n, *shape):
        wanted = ", ".join(map(str, (n, *shape))) + ("," if box is None else "")
        raise ValueError(
            f"{name} has shape {array.shape}: it must be ({wanted}), an action for each observation"
        )
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} is {actions!r}: it must hold numbers")
    if box is None:
        first, last = interface.first_action, interface.first_action + interface.n_actions - 1
        wrong = ~((array >= first) & (array <= last) & (array == np.floor(array)))
        right = f"it must be an integer from {first} to {last}"
    else:
        low, high = box.bounds
        rows = array.reshape(n, -1).astype(np.float64)
        wrong = ~((rows >= low) & (rows <= high)).all(axis=1)
        right = f"it must lie between {box.low} and {box.high}"
    if wrong.any():
        k = int(wrong.argmax())
        raise ValueError(f"{name}[{k}] is {array[k].tolist()!r}: {right}")
    if box is None:
        return codes_of((array - first).astype(np.int64), interface.n_actions)
    width = np.where(high > low, high - low, 1.0)
    units = np.where(high > low, (2.0 * rows - low - high) / width, 0.0)
    return np.concatenate([np.ones((n, 1)), units], axis=1)


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
