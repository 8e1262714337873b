"""
Beside PPO, seed by seed
========================

The same steps, the same environment, and fresh episodes of what each would deliver. Three seeds can
show that something fails, never that it works: ``oda-rl compare`` takes twenty.
"""

import gymnasium as gym
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from oda_rl.agents.sb3 import FittedQ
from oda_rl.runs.statistics import summarize

torch.set_num_threads(1)
STEPS = 10_000
RL_ZOO = {
    "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
    "learning_rate": lambda left: 1e-3 * left, "clip_range": lambda left: 0.2 * left,
}  # fmt: skip


def trained(name, seed):
    """Train on one seed; PPO has the hyperparameters that rl-zoo tuned for this task."""
    if name == "FittedQ":
        return FittedQ("CartPole-v1", seed=seed).learn(STEPS)
    envs = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    return PPO("MlpPolicy", envs, seed=seed, device="cpu", **RL_ZOO).learn(STEPS)


for name in ("FittedQ", "PPO"):
    means = []
    for seed in range(3):
        env = Monitor(gym.make("CartPole-v1"))
        env.reset(seed=1_000 + seed)
        means.append(evaluate_policy(trained(name, seed), env, n_eval_episodes=50)[0])
    print(name, [f"{mean:.0f}" for mean in means], summarize(means, threshold=475.0), sep="\n")
