"""Environments of Stable-Baselines3 in the form that agents need."""

import copy
import re
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor

from oda_rl._types import Array, BoolArray
from oda_rl.agents.environments.making import reward_threshold
from oda_rl.agents.environments.spaces import Described, Interface

Observations = Array | dict[str, Array]  # observations of several environments

_LIMIT = "_max_episode_steps"  # attribute of gymnasium.wrappers.TimeLimit


def described(env: VecEnv) -> Described:
    """Return a description of one of the environments, from which an agent is made."""
    single = Described(env.observation_space, env.action_space, _spec(env))
    single.metadata = env.metadata or {}
    return single


def next_observations(
    before: Observations, observations: Observations, dones: Array, infos: list[dict[str, Any]]
) -> tuple[Observations, BoolArray]:
    """Return the next observations of a step before resets, and which episodes were truncated."""
    truncated = np.zeros(len(dones), dtype=np.bool_)
    ended = dones.nonzero()[0].tolist()
    if not ended:
        return observations, truncated
    parts = observations if isinstance(observations, dict) else {"": observations}
    after = {name: part.copy() for name, part in parts.items()}
    for i in ended:
        last = infos[i].get("terminal_observation")
        last = item(before, i) if last is None else last
        for name, part in after.items():
            part[i] = last[name] if isinstance(observations, dict) else last
        truncated[i] = infos[i].get("TimeLimit.truncated", False)
    return after if isinstance(observations, dict) else after[""], truncated


def item(observations: Observations, i: int) -> Any:
    """Return the i-th of several observations."""
    if isinstance(observations, dict):
        return {name: part[i] for name, part in observations.items()}
    return observations[i]


def saved_spaces(interface: Interface) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Return the spaces of a saved model; boxes of observations have no bounds."""
    native, box = interface.native, interface.box
    actions: spaces.Space[Any] = spaces.Discrete(interface.n_actions, start=interface.first_action)
    if box is not None:
        low, high = (np.reshape(bound, box.shape).astype(box.dtype) for bound in box.bounds)
        actions = spaces.Box(low, high, dtype=np.dtype(box.dtype).type)
    elif native is not None:
        actions = native.action_space
    if native is not None and not native.sees_vectors:
        return native.observation_space, actions
    dtype = np.dtype(interface.dtype).type
    return spaces.Box(-np.inf, np.inf, interface.observation_shape, dtype), actions


def _spec(env: VecEnv) -> EnvSpec | None:
    if isinstance(env.unwrapped, DummyVecEnv):
        inner = env.unwrapped.envs[0]
        spec: EnvSpec | None = inner.spec
        return spec and replace(spec, reward_threshold=reward_threshold(inner))
    # The spec of an environment in another process cannot be sent if a wrapper holds a lambda. Its
    # text can, and ends in the id: <TimeLimit<CartPoleEnv<CartPole-v1>>>.
    try:
        match = re.search(r"<([^<>]+)>+$", str(env.env_method("__str__")[0]))
        registered = gym.registry.get(match[1]) if match else None
        if registered is None or not env.env_method("has_wrapper_attr", _LIMIT)[0]:
            return registered
    except Exception:  # a VecEnv need not have environments whose methods can be called
        return None
    spec = copy.copy(registered)
    spec.max_episode_steps = env.env_method("get_wrapper_attr", _LIMIT)[0]
    return spec


def inner_env(env: VecEnv) -> gym.Env[Any, Any] | None:
    """Return the environment if Stable-Baselines3 does not change its returns; else None."""
    while isinstance(env, VecMonitor):
        env = env.venv
    if not isinstance(env, DummyVecEnv):
        return None
    inner = env.envs[0]
    while isinstance(inner, Monitor):
        inner = inner.env
    return inner
