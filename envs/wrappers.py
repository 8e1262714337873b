"""Wrappers that compiled loops see through."""

from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from oda_rl._types import Array


class ActionChoices(gym.ActionWrapper[Any, Any, Any], RecordConstructorArgs):
    """Offers ``choices`` of an environment's actions, shape (n, *action shape), by index.

    Examples
    --------
    >>> import numpy as np
    >>> env = ActionChoices(gym.make("Pendulum-v1"), np.array([[-2.0], [2.0]], dtype=np.float32))
    >>> env.action_space, env.action(1)
    (Discrete(2), array([2.], dtype=float32))
    """

    def __init__(self, env: gym.Env[Any, Any], choices: Array) -> None:
        RecordConstructorArgs.__init__(self, choices=choices)
        gym.ActionWrapper.__init__(self, env)
        self.choices = choices
        self.action_space = spaces.Discrete(len(choices))

    def action(self, action: Any) -> Any:
        """Return a copy of the action of an index."""
        return self.choices[action].copy()
