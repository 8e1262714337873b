"""Conversion of logged transitions to vectors, numbered actions and trajectories."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.base.memory import (
    ACTION,
    COMPONENTS,
    CUT,
    GOES_ON,
    MARK,
    REWARD,
    TERMINAL,
)
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import FINITE, action_index
from oda_rl.agents.offline.transitions import Transitions
from oda_rl.diagram import LARGEST

_ROUNDING = 1e-6  # tolerance of distances from the grid, relative and absolute


class Steps(NamedTuple):
    """n steps of trajectories."""

    before: FloatArray
    """Observations as vectors, shape (n, d)."""
    actions: FloatArray
    """Numbers of actions, from 0, shape (n, 1); or units of continuous ones, shape (n, p)."""
    rewards: FloatArray
    """Shape (n,)."""
    after: FloatArray
    """Next observations as vectors, shape (n, d)."""
    terminated: BoolArray
    """Shape (n,)."""
    over: BoolArray
    """Whether the episode was over, terminated or not, shape (n,)."""


def read_steps(given: Transitions, interface: Interface) -> Steps:
    """Return transitions as vectors and numbers, or raise ValueError."""
    before = checked_vectors("observations", given.observations, interface)
    after = checked_vectors("next_observations", given.next_observations, interface)
    convert = _numbers if interface.box is None else _units
    actions = convert(given.actions, interface)
    over = given.terminated | given.truncated
    return Steps(before, actions, given.rewards, after, given.terminated, over)


def checked_vectors(name: str, batch: Any, interface: Interface) -> FloatArray:
    """Return a batch of the user's observations as vectors, shape (n, d), or raise ValueError."""
    native = interface.native
    if native is not None and not native.sees_vectors:
        try:
            if isinstance(batch, np.ndarray) and batch.dtype == object:  # dictionaries or tuples
                points = np.concatenate([native.points(one)[0] for one in batch])
            else:
                points = native.points(batch)[0]
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        array = np.asarray(points)
    else:
        array, shape = np.asarray(batch), interface.observation_shape
        if array.shape[1:] != shape:
            right = "".join(f", {size}" for size in shape)
            raise ValueError(f"{name} has shape {array.shape}: it must be ({len(array)}{right})")
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{name} has dtype {array.dtype}: it must hold numbers")
    points = array.reshape(len(array), -1).astype(np.float64)
    wrong = ~(np.abs(points) <= LARGEST).all(axis=1)
    if wrong.any():
        k = int(wrong.argmax())
        raise ValueError(f"{name}[{k}] is {array[k].tolist()!r}, which is not finite: {FINITE}")
    return points


def _numbers(actions: npt.NDArray[Any], interface: Interface) -> FloatArray:
    """Return numbers of actions, or of the nearest on a grid, shape (n, 1), or raise ValueError."""
    native = interface.native
    if native is None or not native.offers_combinations:
        first, n = interface.first_action, interface.n_actions
        if native is not None:
            first = int(getattr(native.action_space, "start", 0))
        right = f"it must be an integer from {first} to {first + n - 1}"
        if actions.ndim != 1 or actions.dtype.kind not in "biuf":
            raise ValueError(
                f"actions has shape {actions.shape} and dtype {actions.dtype}: it must have shape "
                f"({len(actions)},), and each {right.removeprefix('it must ')}"
            )
        numbers = actions.astype(np.float64) - first
        wrong = ~((numbers >= 0) & (numbers < n) & (numbers == np.floor(numbers)))
        if wrong.any():
            k = int(wrong.argmax())
            raise ValueError(f"actions[{k}] is {actions[k].tolist()!r}: {right}")
        return numbers[:, None]
    if native.grid is not None:
        return _nearest(actions, native.grid)[:, None].astype(np.float64)
    return _each(actions, lambda action: action_index(action, interface), 1)


def _nearest(actions: npt.NDArray[Any], grid: list[FloatArray]) -> IntArray:
    """Return the numbers of the nearest points of a grid of evenly spaced values, shape (n,).

    Raises ValueError if a component is farther from a value than half the distance between values.
    """
    n, p = len(actions), len(grid)
    if actions.dtype.kind not in "biuf" or actions.size != n * p:
        raise ValueError(
            f"actions has shape {actions.shape} and dtype {actions.dtype}: it must hold {p} "
            "numbers for each step"
        )
    rows, numbers = actions.reshape(n, p).astype(np.float64), np.zeros(n, dtype=np.int64)
    for j, values in enumerate(grid):
        gaps = np.abs(rows[:, j, None] - values)
        chosen = gaps.argmin(axis=1)
        space = (values[-1] - values[0]) / (len(values) - 1)
        far = ~(gaps.min(axis=1) <= (0.5 + _ROUNDING) * space + _ROUNDING)
        if far.any():
            k = int(far.argmax())
            raise ValueError(
                f"actions[{k}] is {actions[k].tolist()!r}: each component must be within "
                f"{0.5 * space:g} of one of the values that the agent chooses from, which are "
                f"{values.tolist()} of component {j}"
            )
        numbers = numbers * len(values) + chosen
    return numbers


def _units(actions: npt.NDArray[Any], interface: Interface) -> FloatArray:
    """Return continuous actions in units of their box, shape (n, p), or raise ValueError."""
    assert interface.box is not None
    return _each(actions, interface.box.units, interface.n_components)


def _each(actions: Any, convert: Callable[[Any], Any], size: int) -> FloatArray:
    """Convert each action to ``size`` numbers; errors say which action was wrong."""
    converted = np.empty((len(actions), size))
    for k, action in enumerate(actions):
        try:
            converted[k] = convert(action)
        except ValueError as error:
            raise ValueError(f"actions[{k}]: {error}") from error
    return converted


def trajectories(
    before: FloatArray, after: FloatArray, over: BoolArray, first: BoolArray | None = None
) -> list[IntArray]:
    """Return the rows of each trajectory, in which each step begins where the last one ended.

    Trajectories may be interleaved.

    Parameters
    ----------
    before, after : ndarray, shape (n, d)
    over : ndarray of bool, shape (n,)
        Whether the episode ended with the step.
    first : ndarray of bool, shape (n,), optional
        Whether an episode began with the step.

    Examples
    --------
    >>> before, after = np.array([[0.0], [5.0], [1.0]]), np.array([[1.0], [6.0], [2.0]])
    >>> [rows.tolist() for rows in trajectories(before, after, np.zeros(3, bool))]
    [[0, 2], [1]]
    """
    parts: list[list[int]] = []
    open_ends: dict[bytes, list[int]] = {}  # unfinished trajectories, by their last observation
    for row in range(len(before)):
        part = None
        if first is None or not first[row]:
            part = open_ends.pop((before[row] + 0.0).tobytes(), None)
        if part is None:
            part = []
            parts.append(part)
        part.append(row)
        if not over[row]:
            open_ends[(after[row] + 0.0).tobytes()] = part
    return [np.array(rows) for rows in parts]


def as_rows(
    given: Steps, parts: list[IntArray], n_components: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Return trajectories as rows of a :class:`oda_rl.agents.base.memory.Memory`.

    Parameters
    ----------
    given : Steps
    parts : list of ndarray
        Rows of each trajectory, from :func:`trajectories`.
    n_components : int
        Number of components of continuous actions; 0 for numbered actions.

    Returns
    -------
    observations : ndarray, shape (m, d)
    steps : ndarray, shape (m, 3 + n_components)
    """
    order, last = np.concatenate(parts), np.array([rows[-1] for rows in parts])
    ends = np.cumsum([len(rows) + 1 for rows in parts]) - 1
    m = len(order) + len(parts)
    taken = np.ones(m, dtype=np.bool_)
    taken[ends] = False
    observations = np.empty((m, given.before.shape[1]))
    observations[taken], observations[ends] = given.before[order], given.after[last]
    steps = np.zeros((m, COMPONENTS + n_components))
    steps[taken, REWARD], steps[taken, MARK] = given.rewards[order], GOES_ON
    if n_components:
        steps[taken, COMPONENTS:] = given.actions[order]
    else:
        steps[taken, ACTION] = given.actions[order, 0]
    steps[ends, ACTION] = -1.0
    steps[ends, MARK] = np.where(given.terminated[last], TERMINAL, CUT)
    return observations, steps
