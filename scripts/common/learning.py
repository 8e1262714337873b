"""Training with evaluation at checkpoints, and evaluation of fixed rules."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from common.hand_rules import Decide
from common.summaries import Row
from oda_rl._types import FloatArray
from oda_rl.agents.base.agent import Agent
from oda_rl.agents.comparison import greedy_returns

EVALUATION_EPISODES = 100
FITTED, ONLINE, MODEL = "FittedQAgent", "TwoTimescaleAgent", "ModelAgent"
HAND = "rule by hand"
Make = Callable[[], gym.Env[Any, Any]]


def learn(
    agent: Agent, checkpoints: Iterable[int], evaluated: Callable[[int], FloatArray]
) -> Iterator[Row]:
    """Train a new agent; ``evaluated(steps)`` returns its returns at each checkpoint."""
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
            "numbers": sum(np.asarray(array).size for array in agent.policy.parameters),
            "bytes": sum(np.asarray(array).nbytes for array in agent.policy.parameters),
        }


def side_by_side(predict: Callable[..., Any], make: Make, seed: int) -> FloatArray:
    """Return the returns of greedy episodes in copies; ``predict(batch)[0]`` are actions."""
    copies = [make() for _ in range(EVALUATION_EPISODES)]
    return greedy_returns(lambda batch: predict(batch)[0], copies, seed + 10**8)


def sb3_learner(method: str, env: gym.Env[Any, Any], steps: int, seed: int) -> Any:
    """Train an algorithm of Stable-Baselines3 with its defaults, on one thread."""
    import stable_baselines3 as sb3
    import torch

    torch.set_num_threads(1)
    several = isinstance(env.observation_space, gym.spaces.Dict)
    network = "MultiInputPolicy" if several else "MlpPolicy"
    return getattr(sb3, method)(network, env, seed=seed, device="cpu").learn(steps)


def play(decide: Decide, place: gym.Env[Any, Any], seed: int) -> Row:
    """Evaluate a fixed rule."""
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
