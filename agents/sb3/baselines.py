"""DQN, PPO and A2C of Stable-Baselines3, trained with pauses for evaluation."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from oda_rl._types import Array
from oda_rl.agents.environments.making import make_env
from oda_rl.agents.sb3.settings import settings_for

try:
    import stable_baselines3 as sb3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize
except ImportError as error:
    raise ImportError("a comparison needs Stable-Baselines3: pip install 'oda-rl[sb3]'") from error

_SMALL = {"DQN": {"learning_starts": 10}, "PPO": {"n_steps": 64}, "A2C": {}}
_WARM_UP_STEPS = 100


def make_model(
    algorithm: str, env_id: str, make: Callable[[], gym.Env[Any, Any]], seed: int
) -> tuple[Any, VecNormalize | None]:
    """Return a model with the hyperparameters of :func:`settings_for`, and its normalizer."""
    torch.set_num_threads(1)
    parameters = dict(settings_for(algorithm, env_id).parameters)
    n_envs, normalize = parameters.pop("n_envs", 1), parameters.pop("normalize", False)
    envs: Any = make_vec_env(make, n_envs=n_envs, seed=seed)
    if normalize:
        envs = VecNormalize(envs, gamma=parameters.get("gamma", 0.99))
    model = getattr(sb3, algorithm)("MlpPolicy", envs, seed=seed, device="cpu", **parameters)
    return model, envs if normalize else None


class Baseline:
    """DQN, PPO or A2C with the hyperparameters of :func:`settings_for`, on one CPU thread."""

    def __init__(self, algorithm: str, env_id: str, seed: int) -> None:
        self.model, self._normalizer = make_model(algorithm, env_id, lambda: make_env(env_id), seed)

    @staticmethod
    def warm_up(algorithm: str, env_id: str) -> None:
        """Train another model for a few steps: the first ones load code."""
        torch.set_num_threads(1)
        kind: Any = getattr(sb3, algorithm)
        envs = make_vec_env(lambda: make_env(env_id))
        kind("MlpPolicy", envs, seed=0, device="cpu", **_SMALL[algorithm]).learn(_WARM_UP_STEPS)

    def learn(self, checkpoints: Sequence[int], pause: Callable[[int, float], None]) -> None:
        """Train, and call ``pause(steps, training seconds)`` at each checkpoint."""
        pauses = _Pauses(checkpoints, pause)
        self.model.learn(checkpoints[-1], callback=pauses)
        pauses.take()  # after the last gradient steps

    def predict(self, observations: Array) -> Array:
        """Return the greedy action for one observation, or the actions for a batch."""
        if self._normalizer is not None:
            observations = np.asarray(self._normalizer.normalize_obs(observations))
        return np.asarray(self.model.predict(observations, deterministic=True)[0])

    @property
    def n_parameters(self) -> int:
        """Number of parameters of the networks, without target copies."""
        network = getattr(self.model, "q_net", self.model.policy)
        return sum(int(parameter.numel()) for parameter in network.parameters())

    def save_policy(self, folder: Path) -> Path:
        self.model.policy.save(folder / "policy")
        return folder / "policy"

    def save(self, folder: Path) -> Path:
        self.model.save(folder / "model.zip")
        return folder / "model.zip"


class _Pauses(BaseCallback):
    """Stops the clock and calls ``pause`` at each checkpoint."""

    def __init__(self, checkpoints: Sequence[int], pause: Callable[[int, float], None]) -> None:
        super().__init__()
        self._left, self._pause = list(checkpoints), pause
        self._begun, self._paused = time.perf_counter(), 0.0

    def _on_step(self) -> bool:
        while len(self._left) > 1 and self.num_timesteps >= self._left[0]:
            self.take()
        return True

    def take(self) -> None:
        """Pause at the next checkpoint."""
        now = time.perf_counter()
        self._pause(self._left.pop(0), now - self._begun - self._paused)
        self._paused += time.perf_counter() - now
