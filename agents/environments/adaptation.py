"""Wrappers that give engines Box observations and Discrete actions.

Users of an agent keep the spaces of the environment
(:class:`oda_rl.agents.environments.spaces.Native`).
"""

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, iterate
from gymnasium.wrappers import TransformObservation

from oda_rl.agents.environments.spaces import Described, action_choices, canonical
from oda_rl.envs.wrappers import ActionChoices

_FLATTENED = (spaces.Dict, spaces.Tuple, spaces.MultiDiscrete, spaces.MultiBinary)


if TYPE_CHECKING:
    _VectorWrapper = VectorWrapper[Any, Any, Any, Any, Any]
else:  # which is not generic before Gymnasium 1.4
    _VectorWrapper = VectorWrapper


class NumberedObservation(
    gym.ObservationWrapper[npt.NDArray[np.float64], Any, Any], gym.utils.RecordConstructorArgs
):
    """A Discrete observation as a vector of one number, with a cell for each value."""

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
    """Wrap an environment, if necessary, so that observations are a Box and actions Discrete.

    Parameters
    ----------
    env : gymnasium.Env
        Observations: Box; Discrete; Dict, Tuple, MultiDiscrete and MultiBinary, which are
        flattened, Dicts by sorted keys. Actions: Discrete; MultiDiscrete and MultiBinary, of which
        all combinations are offered; Box, of which a grid is offered.
    action_bins : int
        Values of each component of a continuous action, from its lower to its upper bound.

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
    return ActionChoices(env, action_choices(env.action_space, action_bins))


def observed(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Wrap an environment, if necessary, so that observations are a Box."""
    if isinstance(env.observation_space, spaces.Discrete):
        return NumberedObservation(env)
    if isinstance(env.observation_space, _FLATTENED):
        space = canonical(env.observation_space)  # FlattenObservation follows the space's own order
        return TransformObservation(
            env, lambda observation: spaces.flatten(space, observation), spaces.flatten_space(space)
        )
    return env


class AdaptedVector(_VectorWrapper):
    """:func:`adapted` for vector environments; :func:`observed` without ``action_bins``.

    Gymnasium's vector wrappers of observations refuse resets at the same step.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], action_bins: int | None) -> None:
        super().__init__(env)
        observations, actions = env.single_observation_space, env.single_action_space
        self._batched = env.observation_space
        self._one = observed(Described(observations, actions))
        self.n_values = int(observations.n) if isinstance(observations, spaces.Discrete) else 0
        self.single_observation_space = self._one.observation_space
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self.choices: npt.NDArray[Any] | None = None  # actions by number, unless Discrete
        if action_bins is not None and not isinstance(actions, spaces.Discrete):
            self.choices = action_choices(actions, action_bins)
            self.single_action_space = spaces.Discrete(len(self.choices))
            self.action_space = batch_space(self.single_action_space, env.num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._vectors(observations), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        taken = actions if self.choices is None else self.choices[actions]
        observations, *outcome, infos = self.env.step(taken)
        if isinstance(infos, list) or "final_obs" in infos:
            finals = [final_observation(infos, i) for i in range(self.num_envs)]
            infos = {"final_obs": [None if one is None else self._vector(one) for one in finals]}
        return self._vectors(observations), *outcome, infos

    def _vectors(self, observations: Any) -> Any:
        if not isinstance(self._one, gym.ObservationWrapper):
            return observations
        return np.array([self._vector(one) for one in iterate(self._batched, observations)])

    def _vector(self, observation: Any) -> Any:
        one = self._one
        return (
            one.observation(observation) if isinstance(one, gym.ObservationWrapper) else observation
        )


def final_observation(infos: Any, i: int) -> Any:
    """Return the last observation of the episode that ended in an environment; None if untold.

    ``infos`` are a dictionary, or a list of them, as from ``gymnasium.wrappers.vector.
    DictInfoToList``.
    """
    if isinstance(infos, dict):
        finals = infos.get("final_obs")
        return None if finals is None else finals[i]
    return infos[i].get("final_obs")


class WithOptions(gym.Wrapper[Any, Any, Any, Any]):
    """Passes ``options`` to each reset."""

    def __init__(self, env: gym.Env[Any, Any], options: dict[str, Any]) -> None:
        super().__init__(env)
        self._options = options

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed, options=options or self._options)


def adapted_vector(env: VectorEnv[Any, Any, Any], action_bins: int) -> VectorEnv[Any, Any, Any]:
    """Wrap a vector environment, if necessary, so that observations are a Box, actions Discrete."""
    plain = isinstance(env.single_observation_space, spaces.Box)
    if plain and isinstance(env.single_action_space, spaces.Discrete):
        return env
    return AdaptedVector(env, action_bins)
