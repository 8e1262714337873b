"""Checks of observations, rewards and actions, and their error messages."""

from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl.agents.environments.spaces import Interface, flat, refuse_reset
from oda_rl.diagram import LARGEST

# Bits of events by which compiled code reports a bad value.
BAD_SHAPE = 64
NOT_FINITE = 128

LARGEST_REWARD = 1e100  # whose sums over episodes are squared

BAD_STEP = "the environment's observation or reward"
FINITE = f"it must hold neither NaN nor infinity, nor anything beyond {LARGEST:g}"
SMALL = f"a reward must be a number from {-LARGEST_REWARD:g} to {LARGEST_REWARD:g}"


def refuse(events: int, what: str, interface: Interface) -> None:
    """Raise ValueError if events report a bad value; ``what`` names it."""
    if events & BAD_SHAPE:
        raise ValueError(
            f"{what} has another shape than the observation space: it must be "
            f"{interface.observation_shape}"
        )
    if events & NOT_FINITE:
        more = f"; {SMALL}" if "reward" in what else ""
        raise ValueError(f"{what} is not finite: {FINITE}{more}")


def checked_reward(reward: Any, step: int | None = None) -> float:
    """Return a reward as a float; raise ValueError if it is not one number."""
    try:
        if np.ndim(reward) == 0:
            return float(reward)
    except (TypeError, ValueError):
        pass
    when = "" if step is None else f" at step {step}"
    raise ValueError(f"reward is {reward!r}{when}: it must be one number")


def action_index(action: Any, interface: Interface) -> int:
    """Return the agent's number for an action of the environment, or raise ValueError."""
    if interface.native is not None:
        return interface.native.number(action)
    first, n_actions = interface.first_action, interface.n_actions
    single = np.ndim(action) == 0 and not isinstance(action, str | None)
    index = int(action) - first if single else -1
    if not (0 <= index < n_actions and int(action) == action):
        raise ValueError(
            f"action is {action!r}: it must be an integer from {first} to {first + n_actions - 1}"
        )
    return index


def checked_batch(observation: Any, interface: Interface) -> tuple[npt.NDArray[np.float64], bool]:
    """Return one or more observations as float64, shape (n, d), and whether it is only one.

    Raises ValueError if they are not of the space, or not finite.
    """
    refuse_reset(observation)
    shape, native = interface.observation_shape, interface.native
    if native is not None and not native.sees_vectors:
        points, single = native.points(observation)
        return checked_points(points, interface), single
    array = np.asarray(observation)
    if array.shape != shape and array.shape[1:] != shape:
        raise ValueError(
            f"observation has shape {array.shape}: it must be {shape}, or (n, "
            f"{', '.join(map(str, shape))}) for a batch"
        )
    return checked_points(array, interface), array.shape == shape


def checked_points(array: npt.NDArray[Any], interface: Interface) -> npt.NDArray[np.float64]:
    """Return vectors, in whatever shape, as float64 in shape (n, d); ValueError if not finite."""
    points = flat(np.asarray(array)).reshape(-1, interface.n_features).astype(np.float64)
    if not (np.abs(points) <= LARGEST).all():
        raise ValueError(f"observation is not finite: {FINITE}")
    return points
