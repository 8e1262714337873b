"""Steps of vector environments: their own, or where dynamics are known, compiled ones."""

import copy
from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.agents.engine.loop import step_loop
from oda_rl.agents.environments.adaptation import AdaptedVector
from oda_rl.envs.cartpole import BartoCartPoleVectorEnv
from oda_rl.envs.dynamics import Compiled, Dynamics, cartpole_dynamics, compiled_dynamics
from oda_rl.envs.wrappers import ActionChoices

_CART_POLES = CartPoleVectorEnv, BartoCartPoleVectorEnv
_PRECISIONS = np.dtype(np.float32), np.dtype(np.float64)
_PROBED_STEPS = 64
_TRUSTED: set[tuple[type, int, bytes]] = set()  # kinds and numbers of cart-poles, with constants


class Stepper(Protocol):
    """Who takes the steps of a vector environment."""

    def step(self, actions: IntArray) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Return what the environment's ``step`` does; actions are numbers from 0."""

    def leave(self) -> None:
        """Put the environment where these steps have led."""

    def take_up(self) -> bool:
        """Go on from where it is; False if that cannot be, as its constants are others now."""


class Own:
    """An environment that takes its steps itself.

    Parameters
    ----------
    env : gymnasium.vector.VectorEnv
        Of environments with Discrete actions.
    first_action : int
        Its number for action 0.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], first_action: int) -> None:
        self._env, self._first_action = env, first_action

    def step(self, actions: IntArray) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Return what the environment's ``step`` does; actions are numbers from 0."""
        return self._env.step(self._first_action + actions)

    def leave(self) -> None:
        """Do nothing: it is there."""

    def take_up(self) -> bool:
        """Go on from where it is, as always."""
        return True


class Copies(ABC):
    """Several environments that compiled code steps, to the same bits as their own ``step``.

    Each is reset at the step after its episode's last, where Gymnasium's vector environments reset
    it, and with their generators: they draw what they would.

    Parameters
    ----------
    dynamics : Dynamics
        Of all of them; ``parameters`` are each one's own.
    choices : ndarray or None
        Actions by their numbers, where these are not Discrete.
    sizes : tuple of int
        Components of a state, and of an observation, and number of actions.
    parameters : ndarray, shape (n, m)
        Constants of each environment.
    seen : gymnasium.spaces.Box
        What is observed in one of them, in single or double precision.
    """

    states: FloatArray
    """Shape (n, n_state)."""
    elapsed: IntArray
    """Steps of the running episodes, shape (n,)."""
    limits: IntArray
    """Steps after which they are cut, shape (n,)."""
    over: BoolArray
    """Which episodes have ended: the next step is a reset. Shape (n,)."""

    def __init__(
        self,
        dynamics: Dynamics,
        choices: Array | None,
        sizes: tuple[int, int, int],
        parameters: FloatArray,
        seen: Box,
    ) -> None:
        self._step = step_loop(dynamics, choices is not None, sizes)
        self._constant = parameters, np.zeros(0) if choices is None else choices
        self._shape, self._seen = (len(parameters), sizes[1]), seen
        self._read()

    def step(
        self, actions: IntArray
    ) -> tuple[Array, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Return what the environment's ``step`` would."""
        n, over = self._shape[0], self.over
        observations, rewards = np.empty(self._shape, self._seen.dtype), np.empty(n)
        terminated, truncated = np.empty(n, np.bool_), np.empty(n, np.bool_)
        made = observations, rewards, terminated, truncated
        place = self.limits, self.states, self.elapsed, over
        self._step(*self._constant, *place, actions, *made)
        if over.any():
            lanes = over.nonzero()[0]
            self.elapsed[lanes] = 0
            self.states[lanes], observations[lanes] = self._begin(lanes)
        self.over = terminated | truncated
        return observations.reshape(n, *self._seen.shape), *made[1:], {}

    @abstractmethod
    def _begin(self, lanes: IntArray) -> tuple[Any, Any]:
        """Reset these environments; return their states and observations."""

    @abstractmethod
    def leave(self) -> None:
        """Put the environment where these steps have led."""

    def take_up(self) -> bool:
        """Go on from where it is; False if that cannot be, as its constants are others now."""
        same = np.array_equal(self._constants(), self._constant[0])
        if same:
            self._read()
        return same

    @abstractmethod
    def _constants(self) -> Array:
        """Return the constants that the environments have now, shape (n, m)."""

    @abstractmethod
    def _read(self) -> None:
        """Read where the environments are."""


class CartPoles(Copies):
    """Copies of a cart-pole in Gymnasium's own implementation.

    Parameters
    ----------
    env : CartPoleVectorEnv
        Has been reset.
    """

    def __init__(self, env: CartPoleVectorEnv) -> None:
        self._env = env
        seen: Any = env.single_observation_space
        super().__init__(cartpole_dynamics(env), None, (4, 4, 2), self._constants(), seen)

    def _begin(self, lanes: IntArray) -> tuple[Any, Any]:
        env = self._env
        states = env.np_random.uniform(env.low, env.high, size=(4, len(lanes))).T
        return states, states

    def leave(self) -> None:
        """Put the environment where these steps have led."""
        env: Any = self._env
        env.state, env.steps = self.states.T.copy(), self.elapsed.astype(np.int32)
        env.prev_done = self.over.copy()

    def _constants(self) -> Array:
        return np.tile(cartpole_dynamics(self._env).parameters, (self._env.num_envs, 1))

    def _read(self) -> None:
        env = self._env
        self.states = np.array(env.state, dtype=np.float64).T.copy()
        self.elapsed, self.over = env.steps.astype(np.int64), env.prev_done
        self.limits = np.full(env.num_envs, env.max_episode_steps)


class Several(Copies):
    """Environments with compiled dynamics, one after the other.

    Parameters
    ----------
    env : gymnasium.vector.SyncVectorEnv
        Has been reset.
    each : list of Compiled
        Those in it.
    """

    # In quotes: in Gymnasium 1.1 the class takes no types.
    def __init__(self, env: "SyncVectorEnv[Any, Any]", each: list[Compiled]) -> None:
        self._env, self._each, first = env, each, each[0]
        seen: Any = env.single_observation_space
        own = first.dynamics, first.choices, first.sizes
        super().__init__(*own, self._constants(), seen)

    def _begin(self, lanes: IntArray) -> tuple[Any, Any]:
        seen = [self._env.envs[lane].reset()[0] for lane in lanes]
        states = [self._each[lane].read_state() for lane in lanes]
        return np.array(states), np.array(seen).reshape(len(seen), -1)

    def leave(self) -> None:
        """Put the environment where these steps have led."""
        self._env._autoreset_envs = self.over.copy()
        for one, state, elapsed in zip(self._each, self.states, self.elapsed, strict=True):
            one.write_state(state, int(elapsed))

    def _constants(self) -> Array:
        return np.array([one.constants for one in self._each])

    def _read(self) -> None:
        self.states = np.array([one.read_state() for one in self._each])
        self.elapsed = np.array([one.elapsed_steps for one in self._each])
        self.limits = np.array([one.max_episode_steps for one in self._each])
        self.over = self._env._autoreset_envs


def stepper(env: VectorEnv[Any, Any, Any], first_action: int) -> Stepper:
    """Return who steps a vector environment: compiled code, if it can.

    It can step Gymnasium's cart-poles in one object, and a ``SyncVectorEnv`` of environments that
    :func:`oda_rl.envs.dynamics.compiled_dynamics` knows, where episodes begin at the next step; a
    subclass, a wrapper or a replaced method takes its steps itself.

    Parameters
    ----------
    env : gymnasium.vector.VectorEnv
        Has been reset.
    first_action : int
        Its number for action 0.
    """
    inner: Any = env
    choices = None
    if isinstance(env, AdaptedVector) and env.sees_vectors:
        inner, choices = env.env, env.choices
    found: Copies | None = None
    next_step = (env.metadata or {}).get("autoreset_mode") == AutoresetMode.NEXT_STEP
    if next_step and not any(name in vars(inner) for name in ("step", "reset")):
        if type(inner) is SyncVectorEnv:
            found = _several(inner, choices)
        elif type(inner) in _CART_POLES and _trusted(inner):
            found = CartPoles(inner)
    return found or Own(env, first_action)


def _several(env: "SyncVectorEnv[Any, Any]", choices: Array | None) -> Copies | None:
    each = []
    for one in env.envs:
        found = compiled_dynamics(one if choices is None else ActionChoices(one, choices))
        if found is None:
            return None
        each.append(found)
    kinds = {
        (own.dynamics.step, own.dynamics.look, own.sizes, own.dynamics.parameters.shape)
        for own in each
    }
    apart = len({id(own.env) for own in each}) == len(each)
    right = len(kinds) == 1 and apart and env.single_observation_space.dtype in _PRECISIONS
    return Several(env, each) if right else None


def _trusted(env: CartPoleVectorEnv) -> bool:
    """Whether compiled steps are those of the environment, to the last bit: it is tried once."""
    kind = type(env), env.num_envs, cartpole_dynamics(env).parameters.tobytes()
    if kind not in _TRUSTED and _agree(env):
        _TRUSTED.add(kind)
    return kind in _TRUSTED


def _agree(env: CartPoleVectorEnv) -> bool:
    own, other = copy.copy(env), copy.copy(env)
    for probe in (own, other):
        probe.np_random = np.random.default_rng(0)
        probe.reset()  # which gives it arrays of its own
    copies, rng = CartPoles(other), np.random.default_rng(1)
    for _ in range(_PROBED_STEPS):
        actions = rng.integers(2, size=env.num_envs)
        for right, found in zip(own.step(actions)[:4], copies.step(actions)[:4], strict=True):
            if not np.array_equal(right, found):
                return False
    return True
