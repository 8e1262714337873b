"""Gymnasium's wrappers around environments whose spaces are not what agents work with.

An agent sees a Box and chooses among Discrete actions. Everything else is brought to that here, so
that ``agent.env`` is what the agent sees; a loop of one's own steps that.
"""

import itertools
import math
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, TransformAction

_MOST_ACTIONS = 1000
_FLATTENED = (spaces.Dict, spaces.Tuple, spaces.MultiDiscrete, spaces.MultiBinary)


class NumberedObservation(
    gym.ObservationWrapper[npt.NDArray[np.float64], Any, Any], gym.utils.RecordConstructorArgs
):
    """A Discrete observation as a vector of one number, each value of which is a cell of its own.

    Parameters
    ----------
    env : gymnasium.Env
        With Discrete observations.

    Examples
    --------
    >>> env = NumberedObservation(gym.make("FrozenLake-v1"))
    >>> env.reset(seed=0)[0], env.n_values
    (array([0.]), 16)
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.ObservationWrapper.__init__(self, env)
        space = env.observation_space
        assert isinstance(space, spaces.Discrete)
        self.n_values = int(space.n)
        last = float(space.start) + self.n_values - 1.0
        self.observation_space = spaces.Box(float(space.start), last, (1,), np.float64)

    def observation(self, observation: Any) -> npt.NDArray[np.float64]:
        """Return the number as a vector."""
        return np.array([observation], dtype=np.float64)


def adapted(env: gym.Env[Any, Any], action_bins: int) -> gym.Env[Any, Any]:
    """Wrap an environment, if it needs that, so that observations are a Box and actions Discrete.

    Parameters
    ----------
    env : gymnasium.Env
        Observations: Box; Discrete, each value of which becomes a cell of its own; Dict, Tuple,
        MultiDiscrete and MultiBinary, which ``FlattenObservation`` flattens. Actions: Discrete;
        MultiDiscrete and MultiBinary, of which all combinations are offered; Box, of which a grid
        is.
    action_bins : int
        Values of each component of a continuous action, from its least to its greatest.

    Raises
    ------
    TypeError
        For other spaces.
    ValueError
        If there would be more than 1000 actions, or a continuous one has no bounds.

    Examples
    --------
    >>> env = adapted(gym.make("Pendulum-v1"), action_bins=5)
    >>> env.action_space, env.action(0), env.action(3)
    (Discrete(5), array([-2.], dtype=float32), array([1.], dtype=float32))
    """
    env = observed(env)
    if isinstance(env.action_space, spaces.Discrete):
        return env
    choices = _choices(env.action_space, action_bins)
    return TransformAction(env, choices.__getitem__, spaces.Discrete(len(choices)))


def observed(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Wrap an environment, if it needs that, so that observations are a Box.

    >>> observed(gym.make("FrozenLake-v1")).observation_space
    Box(0.0, 15.0, (1,), float64)
    """
    if isinstance(env.observation_space, spaces.Discrete):
        return NumberedObservation(env)
    if isinstance(env.observation_space, _FLATTENED):
        return FlattenObservation(env)
    return env


def _choices(space: spaces.Space[Any], bins: int) -> npt.NDArray[Any]:
    """Return the actions to choose among, in the order of their numbers."""
    if isinstance(space, spaces.Box):
        if not space.is_bounded():
            raise ValueError(
                f"action_space is {space}: a grid of it needs bounds; gymnasium.wrappers."
                "RescaleAction or TransformAction can give it some"
            )
        low, high = space.low.ravel(), space.high.ravel()
        axes = [np.linspace(a, b, bins) for a, b in zip(low, high, strict=True)]
    elif isinstance(space, spaces.MultiDiscrete):
        axes = [
            start + np.arange(n)
            for start, n in zip(space.start.ravel(), space.nvec.ravel(), strict=True)
        ]
    elif isinstance(space, spaces.MultiBinary):
        axes = [np.arange(2)] * math.prod(space.shape)
    else:
        raise TypeError(
            f"action_space is {space}: it must be Discrete, MultiDiscrete, MultiBinary or Box; "
            "gymnasium.wrappers.TransformAction can offer a choice of a few others as one"
        )
    count = math.prod(len(axis) for axis in axes)
    if count > _MOST_ACTIONS:
        raise ValueError(
            f"action_space is {space}: {count:,} combinations of its components are too many (at "
            f"most {_MOST_ACTIONS}); take fewer action_bins, or offer a choice of them by "
            "gymnasium.wrappers.TransformAction"
        )
    combinations = np.array(list(itertools.product(*axes)), dtype=space.dtype)
    return combinations.reshape(count, *space.shape)
