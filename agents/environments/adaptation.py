"""Wrappers that give engines Box observations and Discrete actions.

Users of an agent keep the spaces of the environment
(:class:`oda_rl.agents.environments.spaces.Native`).
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation

from oda_rl._types import FloatArray
from oda_rl.agents.environments.spaces import action_choices, canonical, refuse_empty, vector_of
from oda_rl.envs.dynamics import ActionChoices

_FLATTENED = (spaces.Dict, spaces.Tuple, spaces.MultiDiscrete, spaces.MultiBinary)


class NumberedObservation(
    gym.ObservationWrapper[FloatArray, Any, Any], gym.utils.RecordConstructorArgs
):
    """A Discrete observation as a vector of one number, with a cell for each value."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.ObservationWrapper.__init__(self, env)
        space = env.observation_space
        assert isinstance(space, spaces.Discrete)
        self.n_values, self._first = int(space.n), int(space.start)
        last = self._first + self.n_values - 1
        self.observation_space = spaces.Box(self._first, last, (1,), np.float64)

    def observation(self, observation: Any) -> FloatArray:
        """Return the number as a vector."""
        if type(observation) is not int or not 0 <= observation - self._first < self.n_values:
            observation = vector_of(self.env.observation_space, observation)[0]
        return np.array([observation], dtype=np.float64)


def adapted(env: gym.Env[Any, Any], action_bins: int) -> gym.Env[Any, Any]:
    """Wrap an environment, if necessary, so that observations are a Box and actions Discrete.

    Dicts (by sorted keys), Tuples, MultiDiscrete and MultiBinary observations are flattened. Of
    MultiDiscrete and MultiBinary actions all combinations are offered, of a Box a grid with
    ``action_bins`` values of each component. Raises TypeError or ValueError for others.
    """
    env = observed(env)
    if isinstance(env.action_space, spaces.Discrete):
        return env
    return ActionChoices(env, action_choices(env.action_space, action_bins))


def observed(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Wrap an environment, if necessary, so that observations are a Box."""
    if isinstance(env.observation_space, spaces.Discrete):
        return NumberedObservation(env)
    if isinstance(env.observation_space, _FLATTENED):
        space = canonical(env.observation_space)  # FlattenObservation follows the space's own order
        refuse_empty(space)
        return TransformObservation(
            env, lambda observation: vector_of(space, observation), spaces.flatten_space(space)
        )
    return env


def final_observation(infos: Any, i: int) -> Any:
    """Return the last observation of an episode that ended; ``infos``: a dictionary, or a list."""
    if isinstance(infos, dict):
        finals = infos.get("final_obs")
        return None if finals is None else finals[i]
    return infos[i].get("final_obs")


class WithOptions(gym.Wrapper[Any, Any, Any, Any]):
    """Passes ``options`` to each reset."""

    def __init__(self, env: gym.Env[Any, Any], options: dict[str, Any]) -> None:
        super().__init__(env)
        if not isinstance(options, dict):
            raise ValueError(f"reset_options is {options!r}: it must be a dict")
        self._options = options

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed, options=options or self._options)
