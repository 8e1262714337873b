"""Environments of Stable-Baselines3, as an agent asks about them."""

import copy
import re
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor

from oda_rl.agents.environments.spaces import Described

_LIMIT = "_max_episode_steps"  # of gymnasium.wrappers.TimeLimit


def described(env: VecEnv) -> Described:
    """Return what an agent asks of an environment when it is made."""
    return Described(env.observation_space, env.action_space, _spec(env))


def last_observations(
    observations: npt.NDArray[Any], dones: npt.NDArray[Any], infos: list[dict[str, Any]]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return what a step led to where an episode has begun since, and which were truncated."""
    truncated = np.zeros(len(dones), dtype=np.bool_)
    ended = dones.nonzero()[0].tolist()
    if ended:
        observations = observations.copy()
        for i in ended:
            observations[i] = infos[i]["terminal_observation"]
            truncated[i] = infos[i].get("TimeLimit.truncated", False)
    return observations, truncated


def _spec(env: VecEnv) -> EnvSpec | None:
    if isinstance(env.unwrapped, DummyVecEnv):
        spec: EnvSpec | None = env.get_attr("spec")[0]
        return spec
    # The spec of an environment in another process can't be sent if a wrapper holds a lambda. Its
    # text always can, and ends in the id: <TimeLimit<CartPoleEnv<CartPole-v1>>>.
    found = re.search(r"<([^<>]+)>+$", str(env.env_method("__str__")[0]))
    registered = gym.registry.get(found[1]) if found else None
    if registered is None or not env.env_method("has_wrapper_attr", _LIMIT)[0]:
        return registered
    spec = copy.copy(registered)
    spec.max_episode_steps = env.env_method("get_wrapper_attr", _LIMIT)[0]
    return spec


def inner_env(env: VecEnv) -> gym.Env[Any, Any] | None:
    """Return the environment that the agent sees, if it sees it as it is."""
    while isinstance(env, VecMonitor):
        env = env.venv
    if not isinstance(env, DummyVecEnv):
        return None
    inner = env.envs[0]
    while isinstance(inner, Monitor):
        inner = inner.env
    return inner
