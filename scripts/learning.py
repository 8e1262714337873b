"""Agents that learn and are looked at now and then, and rules that are played as they are."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from hand_rules import Decide
from summaries import Row

from oda_rl.agents.engine.agent import Agent

EVALUATION_EPISODES = 100
FITTED, ONLINE, MODEL = "FittedQAgent", "TwoTimescaleAgent", "ModelAgent"
HAND = "rule by hand"
Place = Callable[[int], gym.Env[Any, Any]]


def learn(agent: Agent, place: Place, checkpoints: Iterable[int], seed: int) -> Iterator[Row]:
    """Train an agent, pausing at the checkpoints.

    Parameters
    ----------
    agent : Agent
        A new one.
    place : callable
        Makes the environment to evaluate in after so many steps.
    checkpoints : iterable of int
        Steps.
    seed : int
        That of the agent.
    """
    used = 0.0
    for steps in checkpoints:
        begun = time.process_time()
        agent.learn(steps - agent.num_timesteps)
        used += time.process_time() - begun
        returns = agent.evaluate(EVALUATION_EPISODES, env=place(steps), seed=seed + 10**8)
        yield {
            "steps": steps,
            "mean": float(returns.mean()),
            "least": float(returns.min()),
            "cells": agent.n_cells,
            "seconds": used,
            "bytes": sum(np.asarray(array).nbytes for array in agent.policy.parameters),
        }


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
