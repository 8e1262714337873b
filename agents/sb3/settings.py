"""Tuned hyperparameters for algorithms of Stable-Baselines3.

Source: rl-baselines3-zoo (github.com/DLR-RM/rl-baselines3-zoo), hyperparams/dqn.yml at commit
ce95481b, ppo.yml at 208b6fdf, a2c.yml at c6c209e7 and sac.yml at 00128b5d, without the numbers of
steps. LunarLander-v3 has those of LunarLander-v2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ALGORITHMS = ("DQN", "PPO", "A2C")  # for discrete actions

Parameters = dict[str, Any]


def linear(start: float) -> Callable[[float], float]:
    """Return a schedule that falls linearly to 0, as rl-zoo's ``lin_``."""
    return lambda remaining: start * remaining


_WIDE = {"net_arch": [256, 256]}
_DQN: dict[str, Parameters] = {
    "CartPole-v1": {
        "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000,
        "gamma": 0.99, "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128,
        "exploration_fraction": 0.16, "exploration_final_eps": 0.04, "policy_kwargs": _WIDE,
    },
    "MountainCar-v0": {
        "learning_rate": 4e-3, "batch_size": 128, "buffer_size": 10_000, "learning_starts": 1000,
        "gamma": 0.98, "target_update_interval": 600, "train_freq": 16, "gradient_steps": 8,
        "exploration_fraction": 0.2, "exploration_final_eps": 0.07, "policy_kwargs": _WIDE,
    },
    "LunarLander-v3": {
        "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000, "learning_starts": 0,
        "gamma": 0.99, "target_update_interval": 250, "train_freq": 4, "gradient_steps": -1,
        "exploration_fraction": 0.12, "exploration_final_eps": 0.1, "policy_kwargs": _WIDE,
    },
}  # fmt: skip
_DQN["Acrobot-v1"] = _DQN["LunarLander-v3"]  # the same in rl-zoo
_PPO: dict[str, Parameters] = {
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
_A2C: dict[str, Parameters] = {
    "CartPole-v1": {"n_envs": 8, "ent_coef": 0.0},
    "MountainCar-v0": {"normalize": True, "n_envs": 16, "ent_coef": 0.0},
    "Acrobot-v1": {"normalize": True, "n_envs": 16, "ent_coef": 0.0},
    "LunarLander-v3": {
        "n_envs": 8, "gamma": 0.995, "n_steps": 5, "learning_rate": linear(8.3e-4),
        "ent_coef": 1e-5,
    },
}  # fmt: skip
_SAC: dict[str, Parameters] = {
    "Pendulum-v1": {"learning_rate": 1e-3},
    "MountainCarContinuous-v0": {
        "learning_rate": 3e-4, "buffer_size": 50_000, "batch_size": 512, "ent_coef": 0.1,
        "train_freq": 32, "gradient_steps": 32, "gamma": 0.9999, "tau": 0.01, "learning_starts": 0,
        "use_sde": True, "policy_kwargs": {"log_std_init": -3.67, "net_arch": [64, 64]},
    },
}  # fmt: skip
_TUNED = {"DQN": _DQN, "PPO": _PPO, "A2C": _A2C, "SAC": _SAC}
# rl-zoo has no settings for these: BartoCartPole is a cart-pole, and DQN needs discrete torques,
# which also leaves PPO without the state-dependent noise that rl-zoo uses for continuous ones.
_BORROWED = {"oda_rl/BartoCartPole-v0": "CartPole-v1", "Pendulum-v1": "Acrobot-v1"}


@dataclass(frozen=True)
class Settings:
    """Hyper-parameters of an algorithm for an environment."""

    parameters: Parameters
    """Arguments of the algorithm, and ``n_envs`` (number of environments) and ``normalize`` (use
    ``VecNormalize``)."""

    source: str | None  # the environment in rl-zoo; None: Stable-Baselines3's defaults


def settings_for(algorithm: str, env_id: str) -> Settings:
    """Return tuned hyperparameters of DQN, PPO, A2C or, for continuous actions, SAC.

    They are those of the task, of a similar one, or the defaults.

    >>> settings_for("A2C", "CartPole-v1")
    Settings(parameters={'n_envs': 8, 'ent_coef': 0.0}, source='CartPole-v1')
    """
    known, name = _TUNED[algorithm], env_id.rpartition(":")[2]
    source = name if name in known else _BORROWED.get(name)
    return Settings({}, None) if source is None else Settings(dict(known[source]), source)
