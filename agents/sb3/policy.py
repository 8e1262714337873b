"""An agent's policy as a policy of Stable-Baselines3."""

from typing import Any, NoReturn

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import PyTorchObs

from oda_rl.agents.base.agent import Agent


class CellsPolicy(BasePolicy):
    """The policy of an agent, without a network.

    Parameters
    ----------
    observation_space, action_space : gymnasium.Space
        Spaces of the environment.
    agent : Agent
    """

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], agent: Agent
    ) -> None:
        super().__init__(observation_space, action_space)
        self.agent = agent

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> torch.Tensor:
        if isinstance(observation, torch.Tensor):
            array: Any = observation.numpy()
        else:
            array = {name: part.numpy() for name, part in observation.items()}
        actions, _ = self.agent.predict(array, deterministic=deterministic)
        return torch.as_tensor(actions)

    def save(self, path: str) -> NoReturn:
        """Raise NotImplementedError: save the model instead."""
        raise NotImplementedError("a policy of cells is saved with its model: model.save(path)")

    @classmethod
    def load(cls, path: str, device: torch.device | str = "auto") -> NoReturn:
        """Raise NotImplementedError: load the model instead."""
        raise NotImplementedError("a policy of cells is loaded with its model: Model.load(path)")
