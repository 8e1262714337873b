"""Compiled dynamics of environments, and checks that they equal the environment's step."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import AcrobotEnv, CartPoleEnv, MountainCarEnv, PendulumEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from oda_rl._compile import plain
from oda_rl._types import Array, FloatArray
from oda_rl.envs import classic_control as classic
from oda_rl.envs.cartpole import BartoCartPoleEnv, cartpole_parameters, cartpole_step, look
from oda_rl.envs.wrappers import ActionChoices

# Wrappers of gymnasium.make, which do not change a step.
_TRANSPARENT = (TimeLimit, OrderEnforcing, PassiveEnvChecker, ActionChoices)
_PROBED_STEPS, _PROBED_EPISODE = 64, 16
_BARE = {"env", "_action_space", "_observation_space", "_metadata", "_cached_spec", "_saved_kwargs"}
_NEVER = 2**62
_RESETS = 256  # drawn at a time
_TRUSTED: set[tuple[type, bytes]] = set()  # kinds of environments, with their constants


@dataclass(frozen=True)
class Dynamics:
    """An environment as compiled functions, made by ``numba.njit`` or the like.

    They allocate nothing, draw no random numbers, and equal the environment's ``step`` to the last
    bit.
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
    parameters: FloatArray
    """Constants, of any shape (n,)."""
    first_observations: Callable[[FloatArray], FloatArray] | None = None
    """Observations of ``reset()`` in such states, shape (n, d); None: slower, by ``look``."""


class CompiledEnv(Protocol):
    """An environment that offers compiled dynamics in addition to ``step`` and ``reset``.

    Agents train on it in one compiled loop if it has no other wrappers than those of
    ``gymnasium.make``, and no method has been replaced.
    """

    state: Any
    """Present state, shape (n_state,), of float64; training reads and replaces it."""

    def dynamics(self) -> Dynamics:
        """Return the dynamics with this object's constants."""


@dataclass(frozen=True)
class Stateful:
    """An environment whose complete state can be read and replaced."""

    env: gym.Env[Any, Any]
    time_limit: TimeLimit[Any, Any] | None

    @property
    def elapsed_steps(self) -> int:
        """Steps of the episode that a time limit has counted."""
        return (self.time_limit and self.time_limit._elapsed_steps) or 0

    def read_state(self) -> FloatArray:
        """Return a copy of the environment's state in double precision, shape (n_state,)."""
        return np.array(self.env.state, dtype=np.float64)  # type: ignore[attr-defined]

    def write_state(self, state: FloatArray, elapsed_steps: int) -> None:
        """Leave the environment in a state."""
        self.env.state = state.copy()  # type: ignore[attr-defined]
        if self.time_limit is not None:
            self.time_limit._elapsed_steps = elapsed_steps  # type: ignore[assignment]


@dataclass(frozen=True)
class Compiled(Stateful):
    """An environment whose steps compiled code can take in its place."""

    dynamics: Dynamics
    choices: Array | None
    """Actions by index, if they are not Discrete."""

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
            space = self.env.observation_space
            seen = np.zeros((n, int(np.prod(space.shape or ()))))
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
            self._starts = self._compiled.starts(self._ahead, _RESETS)
        return self._starts[:limit]

    def pass_by(self, n: int) -> None:
        """Count n resets as made: the environment's generator draws them."""
        if n > 0:
            self._compiled.dynamics.resets(self._compiled.env.np_random, n)
            self._starts = self._starts[n:]


def cartpole_dynamics(env: Any) -> Dynamics:
    """Return the dynamics of a cart-pole, or of copies of it in one object.

    >>> float(cartpole_dynamics(gym.make("CartPole-v1").unwrapped).parameters[0])
    9.8
    """

    def resets(rng: np.random.Generator, n: int) -> FloatArray:
        return rng.uniform(-0.05, 0.05, size=(n, 4))

    parameters = cartpole_parameters(env)
    return Dynamics(cartpole_step, look, resets, parameters, classic.in_single_precision)


def _mountain_car(env: Any) -> Dynamics:
    parameters = classic.mountain_car_parameters(env)
    resets, first = classic.mountain_car_resets, classic.in_single_precision
    return Dynamics(classic.mountain_car_step, look, resets, parameters, first)


def _pendulum(env: Any) -> Dynamics:
    return Dynamics(
        classic.pendulum_step,
        classic.pendulum_look,
        classic.pendulum_resets,
        classic.pendulum_parameters(env),
        classic.pendulum_first_observations,
    )


def _acrobot(env: Any) -> Dynamics | None:
    torques = np.array(env.AVAIL_TORQUE)
    if env.torque_noise_max > 0.0 or not np.array_equal(torques, torques[0] + np.arange(3.0)):
        return None
    return Dynamics(
        classic.acrobot_step,
        classic.acrobot_look,
        classic.acrobot_resets,
        classic.acrobot_parameters(env),
        classic.acrobot_first_observations,
    )


_KNOWN: dict[type, Callable[[Any], Dynamics | None]] = {
    AcrobotEnv: _acrobot,
    BartoCartPoleEnv: cartpole_dynamics,
    CartPoleEnv: cartpole_dynamics,
    MountainCarEnv: _mountain_car,
    PendulumEnv: _pendulum,
}


def known_dynamics(env: gym.Env[Any, Any]) -> Dynamics | None:
    """Return the dynamics of an environment of a known class, with its constants, or None.

    Those are BartoCartPole, and Gymnasium's CartPole, MountainCar, Pendulum and Acrobot; wrappers
    are ignored.

    >>> known_dynamics(gym.make("MountainCar-v0")).parameters[:2]
    array([0.001 , 0.0025])
    >>> known_dynamics(gym.make("FrozenLake-v1"))
    """
    bare = env.unwrapped
    if type(bare) not in _KNOWN or any(name in vars(bare) for name in ("step", "reset")):
        return None
    return _KNOWN[type(bare)](bare)


def compiled_dynamics(env: gym.Env[Any, Any]) -> Compiled | None:
    """Return compiled dynamics that equal the environment's steps, or None.

    There are some for the classes of :func:`known_dynamics` and for every :class:`CompiledEnv`,
    inside the wrappers of ``gymnasium.make`` and :class:`ActionChoices`. A subclass, another
    wrapper, a replaced method, a render mode, or an Acrobot with noise or uneven torques gives
    None; so does a numpy whose sine differs from the C library's in the last bit.

    Raises
    ------
    ValueError
        If a :class:`CompiledEnv` offers dynamics that are not those of its ``step``.
    """
    known = stateful(env)
    layers = [*_layers(env)]
    if known is None or any(type(layer) not in _TRANSPARENT for layer in layers):
        return None
    layer = known.env
    wrappers = [wrapper for wrapper in layers if isinstance(wrapper, ActionChoices)]
    choices = wrappers[-1].choices if wrappers else None
    if choices is None and not isinstance(layer.action_space, gym.spaces.Discrete):
        return None
    dynamics = _dynamics_of(layer)
    if dynamics is None or layer.render_mode is not None:
        return None
    found = Compiled(layer, known.time_limit, dynamics, choices)
    if type(layer) is BartoCartPoleEnv:  # whose own step is the compiled one
        return found
    kind = type(layer), dynamics.parameters.tobytes()
    difference = None if kind in _TRUSTED else _difference(found)
    if difference is None:
        _TRUSTED.add(kind)
    elif _offers(layer):
        raise ValueError(
            f"env offers dynamics that differ from its step: {difference}; they must agree to the "
            "last bit"
        )
    return found if difference is None else None


def _offers(layer: gym.Env[Any, Any]) -> bool:
    return callable(getattr(layer, "dynamics", None))


def _dynamics_of(layer: Any) -> Dynamics | None:
    """Return the dynamics that an environment offers, or those of its class."""
    found = layer.dynamics() if _offers(layer) else _KNOWN[type(layer)](layer)
    return found if isinstance(found, Dynamics) else None


def stateful(env: gym.Env[Any, Any]) -> Stateful | None:
    """Return an environment if its state can be read and replaced, otherwise None.

    It can if it has compiled dynamics, used or not, and wrappers without state.

    >>> stateful(gym.make("Pendulum-v1")) is None, stateful(gym.make("FrozenLake-v1")) is None
    (False, True)
    """
    layers, bare = [*_layers(env)], env.unwrapped
    limits = [layer for layer in layers if isinstance(layer, TimeLimit)]
    keep = [
        layer for layer in layers
        if type(layer) not in _TRANSPARENT and (layer in limits or vars(layer).keys() - _BARE)
    ]  # fmt: skip
    if keep or len(limits) > 1 or any(name in vars(bare) for name in ("step", "reset")):
        return None
    offered = _offers(bare) and _dynamics_of(bare) is not None
    known = offered or type(bare) in _KNOWN
    return Stateful(bare, limits[0] if limits else None) if known else None


def _layers(env: gym.Env[Any, Any]) -> Iterator[gym.Wrapper[Any, Any, Any, Any]]:
    """Yield the wrappers around an environment, the outermost first."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


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
