"""Discrete CQL of d3rlpy on logged transitions: fit it, play it, and print the returns.

d3rlpy asks for Gymnasium 1.0.0 and no other, so that it needs an environment of its own:

    python -m venv cql && cql/bin/pip install -c constraints.txt d3rlpy==2.8.1

scripts/benchmark.py offline calls this file with its Python (--cql-python cql/bin/python).

Run: cql/bin/python scripts/offline_cql.py log.npz CartPole-v1 --seed 0
The log has the arrays observations, actions (from 0), rewards, terminated, truncated, and choices:
the environment's action of each number. Prints the returns of 100 greedy episodes as JSON.
"""

import argparse
import json
import logging

import d3rlpy
import gymnasium as gym
import numpy as np
import structlog

EPISODES = 100


def fitted(log, steps: int, rate: float, target_every: int, seed: int):
    """Fit discrete CQL: d3rlpy's settings but for the step size and the target's period."""
    d3rlpy.seed(seed)
    ends = log["terminated"] | log["truncated"]
    ends[-1] = True
    dataset = d3rlpy.dataset.MDPDataset(
        observations=log["observations"].astype(np.float32),
        actions=log["actions"].reshape(-1, 1),
        rewards=log["rewards"].reshape(-1, 1).astype(np.float32),
        terminals=log["terminated"].astype(np.float32),
        timeouts=(ends & ~log["terminated"]).astype(np.float32),
        action_space=d3rlpy.ActionSpace.DISCRETE,
        action_size=len(log["choices"]),
    )
    scaler = d3rlpy.preprocessing.StandardObservationScaler()
    config = d3rlpy.algos.DiscreteCQLConfig(
        learning_rate=rate, target_update_interval=target_every, observation_scaler=scaler
    )
    learner = config.create(device="cpu:0")
    learner.fit(
        dataset, n_steps=steps, n_steps_per_epoch=steps, show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )  # fmt: skip
    return learner


def played(learner, choices, env_id: str, seed: int) -> list[float]:
    """Return the returns of greedy episodes, one in each of as many copies of the environment."""
    copies = [gym.make(env_id) for _ in range(EPISODES)]
    seen = np.array([copy.reset(seed=seed + k)[0] for k, copy in enumerate(copies)])
    returns, running = np.zeros(EPISODES), list(range(EPISODES))
    while running:
        actions = choices[learner.predict(seen[running].astype(np.float32))]
        for k, action in zip(tuple(running), actions, strict=True):
            seen[k], reward, terminated, truncated, _ = copies[k].step(action)
            returns[k] += reward
            if terminated or truncated:
                running.remove(k)
    return returns.tolist()


def main() -> None:
    """Fit, play, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("env_id")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--target-every", type=int, default=1_000)
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with np.load(given.log) as log:
        own = dict(log)
    learner = fitted(own, given.steps, given.rate, given.target_every, given.seed)
    returns = played(learner, own["choices"], given.env_id, given.seed + 10**8)
    print(json.dumps({"returns": returns}))


if __name__ == "__main__":
    main()
