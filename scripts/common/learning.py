"""Agents that learn and are looked at now and then, and rules that are played as they are."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from common.hand_rules import Decide
from common.summaries import Row
from oda_rl._types import FloatArray
from oda_rl.agents.base.agent import Agent
from oda_rl.agents.sb3.settings import settings_for

EVALUATION_EPISODES = 100
FITTED, ONLINE, MODEL = "FittedQAgent", "TwoTimescaleAgent", "ModelAgent"
HAND = "rule by hand"
Make = Callable[[], gym.Env[Any, Any]]


def learn(
    agent: Agent, checkpoints: Iterable[int], evaluated: Callable[[int], FloatArray]
) -> Iterator[Row]:
    """Train an agent, pausing at the checkpoints.

    Parameters
    ----------
    agent : Agent
        A new one.
    checkpoints : iterable of int
        Steps.
    evaluated : callable
        Called with these steps; plays, and returns the returns.
    """
    used = 0.0
    for steps in checkpoints:
        begun = time.process_time()
        agent.learn(steps - agent.num_timesteps)
        used += time.process_time() - begun
        returns = evaluated(steps)
        yield {
            "steps": steps,
            "mean": float(returns.mean()),
            "least": float(returns.min()),
            "cells": agent.n_cells,
            "seconds": used,
            "bytes": sum(np.asarray(array).nbytes for array in agent.policy.parameters),
        }


def baseline(algorithm: str, env_id: str, make: Make, seed: int) -> tuple[Any, Any]:
    """Return a model of Stable-Baselines3 with rl-zoo's hyper-parameters, and its normalizer.

    The latter is None where observations are not normalized.
    """
    import stable_baselines3 as sb3
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    settings = settings_for(algorithm, env_id).parameters
    n_envs, normalize = settings.pop("n_envs", 1), settings.pop("normalize", False)
    envs: Any = make_vec_env(make, n_envs=n_envs, seed=seed)
    normalizer = VecNormalize(envs, gamma=settings["gamma"]) if normalize else None
    model = getattr(sb3, algorithm)(
        "MlpPolicy", normalizer or envs, seed=seed, device="cpu", **settings
    )
    return model, normalizer


def side_by_side(agent: Agent, make: Make, seed: int) -> FloatArray:
    """Return the returns of greedy episodes, one in each of as many copies of an environment."""
    seed += 10**8
    copies = [make() for _ in range(EVALUATION_EPISODES)]
    running, returns = list(range(len(copies))), np.zeros(len(copies))
    observations = {k: copies[k].reset(seed=seed + k)[0] for k in running}
    while running:
        seen = np.array([observations[k] for k in running])
        actions, _ = agent.predict(seen.reshape(-1, *agent.interface.observation_shape))
        for k, action in zip(tuple(running), actions, strict=True):
            observations[k], reward, terminated, truncated, _ = copies[k].step(action)
            returns[k] += float(reward)
            if terminated or truncated:
                running.remove(k)
    return returns


def play(decide: Decide, place: gym.Env[Any, Any], seed: int) -> Row:
    """Play by a rule that does not learn."""
    returns = []
    observation, _ = place.reset(seed=seed + 10**8)
    while len(returns) < EVALUATION_EPISODES:
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = place.step(decide(observation))
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
        observation, _ = place.reset()
    mean, least = float(np.mean(returns)), float(np.min(returns))
    return {"steps": 0, "mean": mean, "least": least, "cells": 0, "seconds": 0.0, "bytes": 0}
