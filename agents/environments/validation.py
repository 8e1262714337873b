"""Checks of observations, rewards and actions, and their error messages."""

from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np

from oda_rl._types import Array, FloatArray
from oda_rl.agents.environments.making import spec_of
from oda_rl.agents.environments.spaces import AnyEnv, Interface, flat, refuse_reset
from oda_rl.diagram import LARGEST
from oda_rl.files.schema import printable

# Bits of events by which compiled code reports a bad value.
BAD_SHAPE = 64
NOT_FINITE = 128

LARGEST_REWARD = 1e100  # whose sums over episodes are squared

BAD_STEP = "the environment's observation or reward"
BAD_VALUE = BAD_SHAPE | NOT_FINITE
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


def checked_reward(reward: Any) -> float:
    """Return a reward as a float; raise ValueError if it is not one real number."""
    value = np.asarray(reward)
    if value.ndim == 0 and value.dtype.kind in "biufO" and not isinstance(value[()], str | bytes):
        with suppress(TypeError, ValueError, OverflowError):
            return float(reward)
    raise ValueError(f"reward is {_short(reward)}: it must be one number")


def checked_flag(name: str, flag: Any) -> bool:
    """Return ``terminated`` or ``truncated`` as a bool; raise ValueError if it is none."""
    value = np.asarray(flag)
    kind = value.dtype.kind
    if value.ndim == 0 and (kind == "b" or (kind in "iu" and flag in (0, 1))):
        return bool(flag)
    raise ValueError(f"{name} is {_short(flag)}: it must be True or False")


def checked_step(env: gym.Env[Any, Any], action: Any, steps: int) -> tuple[Any, float, bool, bool]:
    """Step, and return observation (unchecked), reward, terminated and truncated."""
    try:
        observation, reward, terminated, truncated, _ = five(env.step(action))
        if type(reward) is not float:
            reward = checked_reward(reward)
        if type(terminated) is not bool:
            terminated = checked_flag("terminated", terminated)
        if type(truncated) is not bool:
            truncated = checked_flag("truncated", truncated)
    except ValueError as error:
        raise named(error, env, steps) from error
    return observation, reward, terminated, truncated


def checked_reset(env: AnyEnv, steps: int, seed: int | None = None) -> Any:
    """Reset, and return the observation (unchecked)."""
    try:
        outcome: Any = env.reset(seed=seed)
        if not isinstance(outcome, tuple) or len(outcome) != 2:
            raise ValueError(f"reset returned {_short(outcome)}: it must be (observation, info)")
    except ValueError as error:
        raise named(error, env, steps) from error
    return outcome[0]


def five(outcome: Any) -> Any:
    """Return what ``step`` returned; raise ValueError if it is not five values."""
    if isinstance(outcome, tuple) and len(outcome) == 5:
        return outcome
    given = f"{len(outcome)} values" if isinstance(outcome, tuple) else _short(outcome)
    raise ValueError(
        f"step returned {given}: it must be (observation, reward, terminated, truncated, info)"
    )


def check_values(observation: Any, reward: float, interface: Interface) -> None:
    """Raise ValueError, which names the component, if an observation or reward is bad."""
    vector = interface.flatten("observation", observation).astype(np.float64)
    bad = np.flatnonzero(~(np.abs(vector) <= LARGEST))
    if len(bad):
        at = ", ".join(str(i) for i in np.unravel_index(bad[0], interface.observation_shape))
        what = f"observation[{at}] is {vector[bad[0]]}"
        raise ValueError(f"{what}, {_problem(vector[bad[0]])}: {FINITE}")
    if not abs(reward) <= LARGEST_REWARD:
        raise ValueError(f"reward is {reward}, {_problem(reward)}: {SMALL}")


def _problem(number: float) -> str:
    return "too large" if np.isfinite(number) else "not finite"


def named(error: ValueError, env: AnyEnv, steps: int) -> ValueError:
    """Return an error about what an environment returned, with its name and the step."""
    spec = spec_of(env)
    name = type(env.unwrapped).__name__ if spec is None else spec.id
    return ValueError(f"{name} at step {steps}: {error}")


def _short(value: Any) -> str:
    try:
        return printable(f"{value!r:.80}")
    except Exception:  # such as that of an integer of too many digits
        return f"of type {type(value).__name__}"


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


def checked_batch(observation: Any, interface: Interface) -> tuple[FloatArray, bool]:
    """Return observations as float64, shape (n, d), and whether it is only one; or ValueError."""
    refuse_reset(observation)
    points, single = interface.batch("observation", observation)
    return checked_points(points, interface), single


def checked_points(array: Array, interface: Interface) -> FloatArray:
    """Return vectors, in whatever shape, as float64 in shape (n, d); ValueError if not finite."""
    points = flat(np.asarray(array)).reshape(-1, interface.n_features).astype(np.float64)
    if not (np.abs(points) <= LARGEST).all():
        raise ValueError(f"observation is not finite: {FINITE}")
    return points
