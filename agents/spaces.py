"""Observation and action spaces: what the agent takes, and what it says about the rest."""

from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

AnyEnv = gym.Env[Any, Any] | VectorEnv[Any, Any, Any]

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class Described(gym.Env[Any, Any]):
    """The spaces of an environment without the environment."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        spec: EnvSpec | None = None,
    ) -> None:
        self.observation_space, self.action_space, self.spec = observation_space, action_space, spec


@dataclass(frozen=True)
class Interface:
    """What an agent has to know of its environment's spaces."""

    observation_shape: tuple[int, ...]
    n_actions: int
    first_action: int
    """The environment's number for the agent's action 0."""
    dtype: str = "float64"
    """In which observations are remembered: float32 where the environment's are."""
    n_values: int = 0
    """Of an observation that is one of so many numbers, each a cell of its own; else 0."""

    @classmethod
    def of(cls, env: AnyEnv) -> "Interface":
        """Read the spaces of an environment, or of those in a vector environment.

        Raises TypeError or ValueError if they are not supported.
        """
        observations, actions = spaces_of(env)
        if not isinstance(observations, spaces.Box):
            raise TypeError(
                f"observation_space is {observations}: it must be a Box; gymnasium.wrappers."
                "FlattenObservation or TransformObservation can make it one"
            )
        if not isinstance(actions, spaces.Discrete):
            raise TypeError(
                f"action_space is {actions}: it must be Discrete; gymnasium.wrappers."
                "TransformAction can offer a choice of a few continuous or combined actions as one"
            )
        if int(np.prod(observations.shape)) == 0:
            raise ValueError(
                f"observation_space is {observations}: it must have at least one component"
            )
        single = observations.dtype == np.float32
        dtype = "float32" if single else "float64"
        return cls(observations.shape, int(actions.n), int(actions.start), dtype, _n_values(env))

    @property
    def n_features(self) -> int:
        """Number of components of a flattened observation."""
        return int(np.prod(self.observation_shape))

    def flatten(self, name: str, observation: Any) -> npt.NDArray[Any]:
        """Return one observation as a vector; raise ValueError if its shape is another."""
        array = np.asarray(observation)
        if array.shape != self.observation_shape:
            raise ValueError(
                f"{name} has shape {array.shape}: it must be {self.observation_shape}, as in the "
                "environment's observation_space"
            )
        return flat(array)

    def vector(self, observation: Any) -> npt.NDArray[Any]:
        """Return one observation as a vector, without a check where that is free of cost.

        Compiled code checks the length of what is already a vector.
        """
        if type(observation) is np.ndarray and observation.ndim == 1:
            return observation if observation.dtype in _FLOATS else flat(observation)
        return self.flatten("observation", observation)

    def to_json(self) -> dict[str, Any]:
        """Return the fields, for :meth:`from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Interface":
        """Take over what :meth:`to_json` returned."""
        return cls(**{**fields, "observation_shape": tuple(fields["observation_shape"])})


def spaces_of(env: AnyEnv) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Return the observation and action spaces of an environment, or of those in a vector one."""
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def _n_values(env: AnyEnv) -> int:
    if isinstance(env, VectorEnv):
        return int(getattr(env, "n_values", 0))
    return int(env.get_wrapper_attr("n_values")) if env.has_wrapper_attr("n_values") else 0


def flat(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One dimension, and float32 or float64: what compiled code takes."""
    if array.dtype not in _FLOATS:
        array = array.astype(np.float64)
    return np.ascontiguousarray(array).reshape(-1)
