"""Classic control tasks as the arguments of compiled learners: dynamics, starts, actions."""

from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import Continuous_MountainCarEnv
from numba import njit

from oda_rl._types import Float32Array, FloatArray
from oda_rl.envs import classic_control as classic
from oda_rl.envs.cartpole import cartpole_step
from oda_rl.envs.dynamics import Dynamics, known_dynamics

_STEPS = (
    cartpole_step, classic.mountain_car_step, classic.acrobot_step, classic.pendulum_step
)  # fmt: skip
CARTPOLE, MOUNTAIN_CAR, ACROBOT, PENDULUM = range(4)
_SHORTEST = 8  # steps of an episode of a cart-pole, the shortest there is


class CompiledTask(NamedTuple):
    kind: int
    parameters: FloatArray
    starts: FloatArray
    """States of the resets of training, shape (n, n_state)."""
    evaluation_starts: FloatArray
    """States of the resets of evaluation, shape (n_episodes, n_state)."""
    choices: Float32Array
    """Torques by the numbers of actions, shape (A, 1), if actions are not Discrete; the greatest
    action, shape (1, m), if they are continuous."""
    n_actions: int
    """0 if they are continuous."""
    n_features: int
    max_episode_steps: int


def _continuous_car(env: Continuous_MountainCarEnv) -> Dynamics:
    car = classic.MountainCar(
        env.power, 0.0025, env.max_speed, env.min_position, env.max_position,
        env.goal_position, env.goal_velocity,
    )  # fmt: skip
    dynamics = known_dynamics(gym.make("MountainCar-v0"))
    assert dynamics is not None
    return replace(dynamics, parameters=np.array(car))


def compiled_task(
    env: gym.Env[Any, Any], seed: int, total_timesteps: int, n_eval_episodes: int
) -> CompiledTask:
    """Return an environment with compiled dynamics as arguments of a compiled learner."""
    bare, space = env.unwrapped, env.action_space
    car = isinstance(bare, Continuous_MountainCarEnv) and _continuous_car(bare)
    dynamics = car or known_dynamics(env)
    assert dynamics is not None, f"{env} has no compiled dynamics"
    assert env.spec is not None, f"{env} has no limit of steps"
    boxed = isinstance(space, gym.spaces.Box)
    choices = space.high[None] if boxed else np.zeros((1, 1), dtype=np.float32)
    return CompiledTask(
        _STEPS.index(dynamics.step),
        dynamics.parameters,
        dynamics.resets(np.random.default_rng(seed), total_timesteps // _SHORTEST + 1),
        dynamics.resets(np.random.default_rng(seed + 10**9), n_eval_episodes),
        getattr(env, "choices", choices),
        0 if boxed else int(space.n),  # type: ignore[attr-defined]
        int(env.observation_space.shape[0]),  # type: ignore[index]
        int(env.spec.max_episode_steps or 0),
    )


@njit(cache=True)
def step(task, state, action):
    """Advance the state; return the reward and whether the episode has terminated."""
    if task.kind == CARTPOLE:
        return cartpole_step(task.parameters, state, action)
    if task.kind == MOUNTAIN_CAR:
        return classic.mountain_car_step(task.parameters, state, action)
    if task.kind == ACROBOT:
        return classic.acrobot_step(task.parameters, state, action)
    return classic.pendulum_step(task.parameters, state, task.choices[action])


@njit(cache=True)
def step_continuous(task, state, action):
    """Advance the state by an action from [-1, 1]^m, in units of the greatest one."""
    if task.kind == MOUNTAIN_CAR:  # but for rounding to single precision, Gymnasium's
        _, terminated = classic.mountain_car_step(task.parameters, state, 1.0 + action[0])
        return 100.0 * terminated - 0.1 * action[0] ** 2, terminated
    torque = (action * task.choices[0]).astype(np.float32)
    return classic.pendulum_step(task.parameters, state, torque)


@njit(cache=True)
def look(task, state, observation):
    """Write the observation of a state."""
    if task.kind == CARTPOLE or task.kind == MOUNTAIN_CAR:
        for i in range(4 if task.kind == CARTPOLE else 2):
            observation[i] = np.float32(state[i])
    elif task.kind == ACROBOT:
        classic.acrobot_look(task.parameters, state, observation)
    else:
        classic.pendulum_look(task.parameters, state, observation)


@njit(cache=True)
def reset(task, episode, state):
    """Write the state in which an episode of training starts."""
    state[:] = task.starts[episode % task.starts.shape[0]]


@njit(cache=True)
def reset_evaluation(task, episode, state):
    """Write the state in which an episode of evaluation starts."""
    state[:] = task.evaluation_starts[episode]
