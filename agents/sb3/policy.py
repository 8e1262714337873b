"""A policy of Stable-Baselines3 that asks an agent."""

from typing import Any, NoReturn

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import PyTorchObs

from oda_rl.agents.base.agent import Agent


class CellsPolicy(BasePolicy):
    """What Stable-Baselines3 calls a policy: here, the cells of an agent. There is no network.

    Parameters
    ----------
    observation_space, action_space : gymnasium.Space
        Of the environment.
    agent : Agent
        Decides.
    """

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], agent: Agent
    ) -> None:
        super().__init__(observation_space, action_space)
        self.agent = agent

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> torch.Tensor:
        if isinstance(observation, torch.Tensor):
            seen: Any = observation.numpy()
        else:
            seen = {name: part.numpy() for name, part in observation.items()}
        actions, _ = self.agent.predict(seen, deterministic=deterministic)
        return torch.as_tensor(actions)

    def save(self, path: str) -> NoReturn:
        """Raise NotImplementedError: the model is what is saved."""
        raise NotImplementedError("a policy of cells is saved with its model: model.save(path)")

    @classmethod
    def load(cls, path: str, device: torch.device | str = "auto") -> NoReturn:
        """Raise NotImplementedError: the model is what is loaded."""
        raise NotImplementedError(
            "a policy of cells is loaded with its model: TwoTimescale.load(path).policy, or "
            "FittedQ.load(path).policy"
        )
