"""Which environments have compiled dynamics, and whether an environment object still has them."""

import copy
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from oda_rl._types import FloatArray
from oda_rl.envs.cartpole import BartoCartPoleEnv, cartpole_parameters, cartpole_step

# What gymnasium.make puts around an environment; none of it changes what a step does.
_TRANSPARENT = (TimeLimit, OrderEnforcing, PassiveEnvChecker)
_RESET_BOUND = 0.05
_PROBES = 32
_NEVER = 2**62
_RESETS = 256  # drawn at a time


@dataclass(frozen=True)
class CompiledCartPole:
    """A cart-pole whose steps compiled code can take in place of the environment object."""

    env: CartPoleEnv
    time_limit: TimeLimit[Any, Any] | None
    parameters: FloatArray
    """Constants of the dynamics, shape (12,)."""
    step_reward: float
    failure_reward: float
    max_episode_steps: int

    @property
    def arguments(self) -> tuple[FloatArray, float, float, int]:
        """The first arguments of the compiled loops."""
        return self.parameters, self.step_reward, self.failure_reward, self.max_episode_steps

    def draw_states(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Return the states that n resets lead to, shape (n, 4)."""
        return rng.uniform(-_RESET_BOUND, _RESET_BOUND, size=(n, 4))

    def read_state(self) -> FloatArray:
        """Return a copy of the environment's float64 state, shape (4,)."""
        return np.array(self.env.state, dtype=np.float64)

    def write_state(self, state: FloatArray, elapsed_steps: int) -> None:
        """Leave the environment where compiled code took it."""
        self.env.state = state.copy()
        if self.time_limit is not None:
            self.time_limit._elapsed_steps = elapsed_steps  # type: ignore[assignment]


class Resets:
    """States that an environment's resets lead to, for compiled code, which draws nothing itself.

    Parameters
    ----------
    dynamics : CompiledCartPole
        Of the environment. Its generator stays where its resets take it.
    """

    def __init__(self, dynamics: CompiledCartPole) -> None:
        self._dynamics = dynamics
        self._ahead = copy.deepcopy(dynamics.env.np_random)
        self._states: FloatArray = np.empty((0, 4))

    def states(self, most: int) -> FloatArray:
        """Return the states that the next resets lead to: at least one, shape (n, 4)."""
        if len(self._states) == 0:
            self._states = self._dynamics.draw_states(self._ahead, _RESETS)
        return self._states[:most]

    def pass_by(self, n: int) -> None:
        """Note that so many of them have been made."""
        if n > 0:
            self._dynamics.draw_states(self._dynamics.env.np_random, n)
            self._states = self._states[n:]


def compiled_dynamics(env: gym.Env[Any, Any]) -> CompiledCartPole | None:
    """Return compiled dynamics that equal the environment's own, or None if there are none.

    There are some for BartoCartPole and for Gymnasium's CartPole, with the constants of the object
    and inside no other wrappers than those of ``gymnasium.make``. A subclass, another wrapper, a
    replaced method or a window to draw in gives None; so does a numpy whose sine differs from the
    C library's in the last bit, because results would then not be the same as step by step.
    """
    time_limit: TimeLimit[Any, Any] | None = None
    layer: gym.Env[Any, Any] = env
    while isinstance(layer, gym.Wrapper):
        if type(layer) not in _TRANSPARENT or (isinstance(layer, TimeLimit) and time_limit):
            return None
        if isinstance(layer, TimeLimit):
            time_limit = layer
        layer = layer.env
    if type(layer) not in (CartPoleEnv, BartoCartPoleEnv) or layer.render_mode is not None:
        return None
    assert isinstance(layer, CartPoleEnv)
    if any(name in vars(layer) for name in ("step", "reset")):
        return None
    dynamics = CompiledCartPole(
        env=layer,
        time_limit=time_limit,
        parameters=cartpole_parameters(layer),
        step_reward=0.0 if layer._sutton_barto_reward else 1.0,
        failure_reward=-1.0 if layer._sutton_barto_reward else 1.0,
        max_episode_steps=time_limit._max_episode_steps if time_limit else _NEVER,
    )
    return dynamics if type(layer) is BartoCartPoleEnv or _agree(dynamics) else None


def _agree(dynamics: CompiledCartPole) -> bool:
    step = cartpole_step.py_func  # type: ignore[attr-defined]  # uses the C library's sine, too
    probe = copy.copy(dynamics.env)
    rng = np.random.default_rng(0)
    bounds = np.array([1.0, 2.0, 0.1, 1.0])
    for _ in range(_PROBES):
        start, action = rng.uniform(-bounds, bounds), int(rng.integers(2))
        probe.state, probe.steps_beyond_terminated = start.copy(), None
        probe.step(action)  # type: ignore[no-untyped-call]
        step(dynamics.parameters, start, action)
        if not np.array_equal(start, np.asarray(probe.state)):
            return False
    return True
