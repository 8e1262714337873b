"""The environments of the suite, as agents are given them, and tuned deep-RL baselines for them.

Hyper-parameters of DQN and PPO are those of rl-baselines3-zoo (github.com/DLR-RM/rl-baselines3-zoo,
hyperparams/dqn.yml at commit 019107eb and ppo.yml at 00128b5d), its published returns those of its
benchmark.md at commit 0088472b. Where it has none for an environment, those of the environment most
like it are taken, and marked.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TransformAction

import oda_rl.envs  # noqa: F401  (registers BartoCartPole)

N_TORQUES = 5


@dataclass(frozen=True)
class Task:
    """An environment, when it counts as solved, and for how long agents learn."""

    name: str
    env_id: str
    solved: float | None
    """Least mean return of the delivered policy."""
    checkpoints: tuple[int, ...]
    n_seeds: int
    targets: dict[int, float] = field(default_factory=dict)
    """Share of seeds solved that is aimed at, by steps."""
    least_mean: tuple[int, float] | None = None
    """A mean return that is aimed at, and after how many steps."""
    published: str = "-"
    """What rl-zoo reports: algorithm, return, steps."""
    baseline_steps: int | None = None
    options: dict[str, Any] = field(default_factory=dict)


BARTO, CARTPOLE = "oda_rl/BartoCartPole-v0", "CartPole-v1"
LONG = (20_000, 50_000, 100_000, 200_000)

TASKS = (
    Task("BartoCartPole", BARTO, 950.0, (2_000, 5_000, 10_000, 20_000, 50_000), 100,
         targets={20_000: 0.90, 50_000: 0.95}, baseline_steps=50_000),
    Task("CartPole-v1", CARTPOLE, 475.0, (2_000, 5_000, 10_000, 20_000, 50_000), 100,
         targets={10_000: 0.93, 20_000: 0.96}, published="DQN 500 (50k)", baseline_steps=50_000),
    Task("MountainCar-v0", "MountainCar-v0", -110.0, LONG, 100,
         targets={200_000: 0.95}, least_mean=(200_000, -103.0), published="DQN -100.8 (120k)",
         baseline_steps=100_000),
    Task("Pendulum-v1, 5 torques", "Pendulum-v1", -200.0, LONG, 100,
         targets={200_000: 0.95}, least_mean=(200_000, -160.0), published="PPO -172 (100k)",
         baseline_steps=100_000),
    Task("Acrobot-v1", "Acrobot-v1", -100.0, LONG, 100,
         targets={200_000: 0.95}, published="DQN -77 (100k)", baseline_steps=100_000),
    Task("LunarLander-v3", "LunarLander-v3", 200.0, (50_000, 100_000, 200_000, 300_000), 20,
         least_mean=(300_000, 100.0), published="DQN 154 (100k), PPO 242 (1M)",
         baseline_steps=100_000),
    Task("MountainCarContinuous-v0, 5 forces", "MountainCarContinuous-v0", 90.0, LONG, 20,
         published="SAC 94.7 (50k)"),
    Task("CliffWalking-v1", "CliffWalking-v1", -13.0, LONG[:3], 20,
         options={"max_episode_steps": 200}),
    Task("FrozenLake8x8-v1", "FrozenLake8x8-v1", 0.5, LONG, 20),
)  # fmt: skip


def make(task: Task) -> gym.Env[Any, Any]:
    """Make a task's environment, with a grid for a torque, which DQN needs, too."""
    env: gym.Env[Any, Any] = gym.make(task.env_id, **task.options)
    if isinstance(env.action_space, gym.spaces.Box):
        space = env.action_space
        choices = np.linspace(space.low, space.high, N_TORQUES).astype(np.float32)
        env = TransformAction(env, choices.__getitem__, gym.spaces.Discrete(N_TORQUES))
    return env


def linear(start: float) -> Callable[[float], float]:
    """Fall linearly to 0, as rl-zoo's ``lin_`` does."""
    return lambda remaining: start * remaining


WIDE = {"net_arch": [256, 256]}
DQN: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "learning_rate": 2.5e-4, "batch_size": 512, "buffer_size": 100_000, "learning_starts": 0,
        "gamma": 0.99, "target_update_interval": 5000, "train_freq": 16, "gradient_steps": 4,
        "exploration_fraction": 0.06, "exploration_final_eps": 0.11,
    },
    "MountainCar-v0": {
        "learning_rate": 4e-3, "batch_size": 128, "buffer_size": 10_000, "learning_starts": 1000,
        "gamma": 0.98, "target_update_interval": 5000, "train_freq": 16, "gradient_steps": 8,
        "exploration_fraction": 0.2, "exploration_final_eps": 0.07, "policy_kwargs": WIDE,
    },
    "LunarLander-v3": {
        "learning_rate": 8.8e-4, "batch_size": 32, "buffer_size": 1_000_000, "learning_starts": 0,
        "gamma": 0.99, "target_update_interval": 10_000, "train_freq": 16, "gradient_steps": -1,
        "exploration_fraction": 0.2, "exploration_final_eps": 0.1, "policy_kwargs": WIDE,
    },
}  # fmt: skip
DQN["Acrobot-v1"] = DQN["CartPole-v1"]  # the same in rl-zoo
PPO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "n_envs": 8, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98,
        "n_epochs": 20, "ent_coef": 0.0, "learning_rate": linear(1e-3),
        "clip_range": linear(0.2),
    },
    "MountainCar-v0": {
        "normalize": True, "n_envs": 16, "n_steps": 16, "gae_lambda": 0.98, "gamma": 0.99,
        "n_epochs": 4, "ent_coef": 0.0,
    },
    "Acrobot-v1": {
        "normalize": True, "n_envs": 16, "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99,
        "n_epochs": 4, "ent_coef": 0.0,
    },
    "Pendulum-v1": {
        "n_envs": 4, "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10,
        "ent_coef": 0.0, "learning_rate": 1e-3, "clip_range": 0.2,
    },
    "LunarLander-v3": {
        "n_envs": 16, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999,
        "n_epochs": 4, "ent_coef": 0.01,
    },
}  # fmt: skip
# rl-zoo has no settings for these: BartoCartPole is a cart-pole, and DQN needs discrete torques,
# which also leaves PPO without the state-dependent noise that rl-zoo uses for continuous ones.
BORROWED = {BARTO: "CartPole-v1", "Pendulum-v1": "Acrobot-v1"}


def tuned(algorithm: str, env_id: str) -> tuple[dict[str, Any], bool]:
    """Hyper-parameters of DQN or PPO for an environment, and whether they are another one's."""
    known = {"DQN": DQN, "PPO": PPO}[algorithm]
    return (known[env_id], False) if env_id in known else (known[BORROWED[env_id]], True)
