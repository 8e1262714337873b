"""Environments whose actions are numbers of what a policy does in the present state."""

from typing import Any, Protocol

import gymnasium as gym
import numpy.typing as npt
from gymnasium import spaces

from oda_rl.agents.environments.spaces import Interface


class Performer(Protocol):
    """Knows what a number stands for in the present state: an engine."""

    interface: Interface

    def perform(self, number: int) -> npt.NDArray[Any]:
        """Return the action of the environment, and remember that it is done."""


class Performed(gym.ActionWrapper[Any, Any, Any]):
    """An environment as training sees it: its actions are numbers.

    Parameters
    ----------
    env : gymnasium.Env
        With a box of actions.
    performer : Performer
        Knows what they are in the present state.
    """

    def __init__(self, env: gym.Env[Any, Any], performer: Performer) -> None:
        super().__init__(env)
        self.action_space = spaces.Discrete(performer.interface.n_actions)
        self._performer = performer

    def action(self, action: Any) -> npt.NDArray[Any]:
        """Return the action that a number stands for."""
        return self._performer.perform(int(action))
