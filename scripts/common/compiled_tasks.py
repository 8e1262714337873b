"""Classic control tasks as the arguments of compiled learners: dynamics, starts, actions."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numba import njit

from oda_rl._types import Float32Array, FloatArray
from oda_rl.envs import classic_control as classic
from oda_rl.envs.cartpole import cartpole_step
from oda_rl.envs.dynamics import known_dynamics

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
    """Torques by the numbers of actions, shape (A, 1), if actions are not Discrete."""
    n_actions: int
    n_features: int
    max_episode_steps: int


def compiled_task(
    env: gym.Env[Any, Any], seed: int, total_timesteps: int, n_eval_episodes: int
) -> CompiledTask:
    """Return an environment with compiled dynamics as arguments of a compiled learner."""
    dynamics = known_dynamics(env)
    assert dynamics is not None, f"{env} has no compiled dynamics"
    assert env.spec is not None, f"{env} has no limit of steps"
    return CompiledTask(
        _STEPS.index(dynamics.step),
        dynamics.parameters,
        dynamics.resets(np.random.default_rng(seed), total_timesteps // _SHORTEST + 1),
        dynamics.resets(np.random.default_rng(seed + 10**9), n_eval_episodes),
        getattr(env, "choices", np.zeros((1, 1), dtype=np.float32)),
        int(env.action_space.n),  # type: ignore[attr-defined]
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
