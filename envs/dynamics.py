"""Compiled dynamics of environments, and checks that they equal the environment's step."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import AcrobotEnv, CartPoleEnv, MountainCarEnv, PendulumEnv
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from oda_rl._compile import plain
from oda_rl._types import Array, FloatArray
from oda_rl.envs import classic_control as classic
from oda_rl.envs.cartpole import (
    BartoCartPoleEnv,
    cartpole_parameters,
    cartpole_resets,
    cartpole_step,
    look,
)

_PROBED_STEPS, _PROBED_EPISODE = 64, 16
_NEVER = 2**62
_TRUSTED: set[tuple[type, bytes]] = set()  # kinds of environments, with their constants


@dataclass(frozen=True)
class Dynamics:
    """An environment as compiled functions, made by ``numba.njit`` or the like.

    They allocate nothing, draw no random numbers, and equal the environment's ``step`` to the last
    bit. An environment offers them by a method ``dynamics()``, which returns them with its
    constants, and has its present state, shape (n_state,), of float64, in the attribute ``state``,
    which training reads and replaces. Agents then train on it in one compiled loop if it has no
    other wrappers than those of ``gymnasium.make``, and no method has been replaced.
    """

    step: Callable[[FloatArray, FloatArray, Any], tuple[float, bool]]
    """``step(parameters, state, action)`` advances ``state``, shape (n_state,), in place, and
    returns the reward and whether the episode has terminated. ``action`` is an integer from 0 for
    Discrete actions, otherwise an array."""
    look: Callable[[FloatArray, FloatArray, FloatArray], None]
    """``look(parameters, state, observation)`` writes the observation of a state, shape (d,),
    rounded to single precision where the observation space is."""
    resets: Callable[[np.random.Generator, int], FloatArray]
    """``resets(rng, n)`` returns the states of the next n calls of ``reset()``, shape (n, n_state),
    and draws from the environment's generator as those would."""
    parameters: FloatArray  #: Constants, of any shape (n,).
    first_observations: Callable[[FloatArray], FloatArray] | None = None
    """Observations of ``reset()`` in such states, shape (n, d), if they differ from ``look``'s."""


class ActionChoices(gym.ActionWrapper[Any, Any, Any], RecordConstructorArgs):
    """Offers ``choices`` of an environment's actions, shape (n, *action shape), by index."""

    def __init__(self, env: gym.Env[Any, Any], choices: Array) -> None:
        RecordConstructorArgs.__init__(self, choices=choices)
        gym.ActionWrapper.__init__(self, env)
        self.choices = choices
        self.action_space = gym.spaces.Discrete(len(choices))

    def action(self, action: Any) -> Any:
        """Return a copy of the action of an index."""
        return self.choices[action].copy()


# Wrappers that do not change a step.
_TRANSPARENT = (TimeLimit, OrderEnforcing, PassiveEnvChecker, ActionChoices)


@dataclass(frozen=True)
class Compiled:
    """An environment whose steps compiled code can take in its place."""

    env: gym.Env[Any, Any]
    time_limit: TimeLimit[Any, Any] | None
    dynamics: Dynamics
    choices: Array | None  # actions by index, if they are not Discrete

    def read_state(self) -> FloatArray:
        """Return a copy of the environment's state in double precision, shape (n_state,)."""
        return np.array(self.env.state, dtype=np.float64)  # type: ignore[attr-defined]

    def write_state(self, state: FloatArray, elapsed_steps: int) -> None:
        """Leave the environment in a state."""
        self.env.state = state.copy()  # type: ignore[attr-defined]
        if self.time_limit is not None:
            self.time_limit._elapsed_steps = elapsed_steps  # type: ignore[assignment]

    @property
    def constants(self) -> FloatArray | None:
        """Present parameters of the environment; None if its dynamics are no longer compiled."""
        present = _dynamics_of(self.env)
        return None if present is None else present.parameters

    @property
    def max_episode_steps(self) -> int:
        """Steps after which an episode is cut."""
        return self.time_limit._max_episode_steps if self.time_limit else _NEVER

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Components of a state, and of an observation, and number of actions."""
        seen = int(np.prod(self.env.observation_space.shape or ()))
        n = int(self.env.action_space.n) if self.choices is None else len(self.choices)  # type: ignore[attr-defined]
        return len(self.dynamics.resets(np.random.default_rng(0), 0).T), seen, n

    def starts(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Return states of n resets and their observations, shape (n, n_state + d)."""
        states = np.ascontiguousarray(self.dynamics.resets(rng, n), dtype=np.float64)
        if self.dynamics.first_observations is not None:
            seen = self.dynamics.first_observations(states)
        else:
            seen = np.zeros((n, self.sizes[1]))
            for state, observation in zip(states, seen, strict=True):
                plain(self.dynamics.look)(self.dynamics.parameters, state, observation)
        return np.concatenate([states, seen], axis=1)


class Resets:
    """Starts of an environment's next episodes, for compiled code, which cannot draw them."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._ahead = copy.deepcopy(compiled.env.np_random)
        self._starts = compiled.starts(self._ahead, 0)

    def starts(self, limit: int) -> FloatArray:
        """Return at least one and at most ``limit`` next starts, shape (n, n_state + d)."""
        if len(self._starts) == 0:
            self._starts = self._compiled.starts(self._ahead, 256)
        return self._starts[:limit]

    def pass_by(self, n: int) -> None:
        """Count n resets as made: the environment's generator draws them."""
        if n > 0:
            self._compiled.dynamics.resets(self._compiled.env.np_random, n)
            self._starts = self._starts[n:]


_CARTPOLE = cartpole_step, look, cartpole_resets, cartpole_parameters
_KNOWN: dict[type, Any] = {
    BartoCartPoleEnv: _CARTPOLE,
    CartPoleEnv: _CARTPOLE,
    MountainCarEnv: (classic.mountain_car_step, look, classic.mountain_car_resets,
                     classic.mountain_car_parameters),
    PendulumEnv: (classic.pendulum_step, classic.pendulum_look, classic.pendulum_resets,
                  classic.pendulum_parameters),
    AcrobotEnv: (classic.acrobot_step, classic.acrobot_look, classic.acrobot_resets,
                 classic.acrobot_parameters, classic.acrobot_first_observations),
}  # fmt: skip


def known_dynamics(env: gym.Env[Any, Any]) -> Dynamics | None:
    """Return the dynamics of an environment of a known class, with its constants, or None.

    Those are BartoCartPole, and Gymnasium's CartPole, MountainCar, Pendulum and Acrobot; wrappers
    are ignored.

    >>> known_dynamics(gym.make("MountainCar-v0")).parameters[:2]
    array([0.001 , 0.0025])
    >>> known_dynamics(gym.make("FrozenLake-v1"))
    """
    bare: Any = env.unwrapped
    if type(bare) not in _KNOWN or any(name in vars(bare) for name in ("step", "reset")):
        return None
    if type(bare) is AcrobotEnv:
        torques = np.array(bare.AVAIL_TORQUE)
        if bare.torque_noise_max > 0.0 or not np.array_equal(torques - torques[0], np.arange(3.0)):
            return None
    step, look, resets, parameters, *others = _KNOWN[type(bare)]
    return Dynamics(step, look, resets, parameters(bare), *others)


def compiled_dynamics(env: gym.Env[Any, Any]) -> Compiled | None:
    """Return compiled dynamics that equal the environment's steps, or None.

    There are some for the classes of :func:`known_dynamics` and for environments that offer theirs
    (:class:`Dynamics`), inside the wrappers of ``gymnasium.make`` and :class:`ActionChoices`. A
    subclass, another wrapper, a replaced method, a render mode, or an Acrobot with noise or uneven
    torques gives None; so does a numpy whose sine differs from the C library's in the last bit.

    Raises
    ------
    ValueError
        If an environment offers dynamics that are not those of its ``step``.
    """
    bare, layers = env.unwrapped, []
    while isinstance(env, gym.Wrapper):
        layers.append(env)
        env = env.env
    limits = [layer for layer in layers if isinstance(layer, TimeLimit)]
    choices = next((one.choices for one in layers[::-1] if isinstance(one, ActionChoices)), None)
    if (
        any(type(layer) not in _TRANSPARENT for layer in layers)
        or len(limits) > 1
        or any(name in vars(bare) for name in ("step", "reset"))
        or (choices is None and not isinstance(bare.action_space, gym.spaces.Discrete))
        or bare.render_mode is not None
    ):
        return None
    dynamics = _dynamics_of(bare)
    if dynamics is None:
        return None
    found = Compiled(bare, limits[0] if limits else None, dynamics, choices)
    if type(bare) is BartoCartPoleEnv:  # whose own step is the compiled one
        return found
    kind = type(bare), dynamics.parameters.tobytes()
    difference = None if kind in _TRUSTED else _difference(found)
    if difference is None:
        _TRUSTED.add(kind)
    elif _offers(bare):
        raise ValueError(
            f"env offers dynamics that differ from its step: {difference}; they must agree to the "
            "last bit"
        )
    return found if difference is None else None


def _offers(bare: gym.Env[Any, Any]) -> bool:
    return callable(getattr(bare, "dynamics", None))


def _dynamics_of(bare: Any) -> Dynamics | None:
    """Return the dynamics that an environment offers, or those of its class."""
    found = bare.dynamics() if _offers(bare) else known_dynamics(bare)
    return found if isinstance(found, Dynamics) else None


def _difference(found: Compiled) -> str | None:
    """Take a few steps both ways, and say what differs."""
    env, dynamics = copy.deepcopy(found.env), found.dynamics
    ahead = np.random.default_rng(0)
    env.np_random = np.random.default_rng(0)
    rng = np.random.default_rng(1)
    step, look = plain(dynamics.step), plain(dynamics.look)
    probe = replace(found, env=env)
    n = found.sizes[2]
    length = _PROBED_EPISODE
    for _ in range(_PROBED_STEPS):
        if length == _PROBED_EPISODE:
            observation, _ = env.reset()
            start = probe.starts(ahead, 1)[0]
            state, seen = np.split(start, [len(start) - np.size(observation)])
            if not np.array_equal(seen, np.ravel(observation)):
                return f"reset() shows {np.ravel(observation)}, not {seen}"
            length = 0
        number = int(rng.integers(n))
        action = number if found.choices is None else found.choices[number]
        observation, reward, terminated, _, _ = env.step(action)
        own, ends = step(dynamics.parameters, state, action)
        look(dynamics.parameters, state, seen)
        if not np.array_equal(seen, np.ravel(observation)) or (own, ends) != (reward, terminated):
            outcome = np.ravel(observation), reward, terminated
            return f"a step leads to {outcome}, not to {(seen, own, ends)}"
        length = _PROBED_EPISODE if terminated else length + 1
    return None
