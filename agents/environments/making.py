"""Making environments from ids, with errors a person can act on."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import oda_rl.envs  # noqa: F401  (registers its environments)
from oda_rl.agents.environments.adaptation import AdaptedVector
from oda_rl.agents.environments.spaces import AnyEnv

# Arguments of gymnasium.make_vec that an environment does not take.
_OF_VECTORS = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers", "max_episode_steps")


def make_env(env_id: str) -> gym.Env[Any, Any]:
    """``gymnasium.make``; raises ValueError if there is no such environment.

    >>> make_env("CartPole-v1").spec.max_episode_steps
    500
    """
    try:
        return gym.make(env_id)
    except gym.error.DependencyNotInstalled as error:
        raise ValueError(f"env_id is {env_id!r}: {error}") from error
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise ValueError(
            f"env_id is {env_id!r}: {error} "
            "It must be an id known to Gymnasium (gymnasium.pprint_registry() lists them), or "
            "'module:id' for an environment that a module registers when it is imported."
        ) from error


def given_env(env: Any) -> AnyEnv:
    """Return an environment, made if ``env`` is an id; raise TypeError if it is neither.

    >>> given_env("CartPole-v1").spec.id
    'CartPole-v1'
    """
    if isinstance(env, str):
        return make_env(env)
    if not isinstance(env, gym.Env | VectorEnv):
        raise TypeError(
            f"env is {env!r}: it must be an environment or a vector environment of Gymnasium, or "
            "the id of one"
        )
    return env


def separate_env(env: AnyEnv) -> gym.Env[Any, Any]:
    """Make another environment like ``env``, or one like those in it, and leave ``env`` alone."""
    spec = spec_of(env)
    if spec is None or _changed(env):
        raise ValueError(
            f"env is {env}, which has {'no spec' if spec is None else 'wrappers'}, so no other "
            "like it can be made: pass the environment to evaluate in"
        )
    if not isinstance(env, VectorEnv):
        return gym.make(spec)
    own = {key: value for key, value in spec.kwargs.items() if key not in _OF_VECTORS}
    most_steps = spec.kwargs.get("max_episode_steps", spec.max_episode_steps)
    made = gym.make(replace(spec, kwargs=own, max_episode_steps=most_steps))
    for wrapper in spec.kwargs.get("wrappers", ()):
        made = wrapper(made)
    return made


def _changed(env: AnyEnv) -> bool:
    """Whether a vector environment's wrappers change what it returns, and are not ours."""
    while isinstance(env, AdaptedVector | RecordEpisodeStatistics):
        env = env.env
    return isinstance(env, VectorWrapper)


def spec_of(env: AnyEnv) -> EnvSpec | None:
    """Return the specification of an environment, or of those in a vector environment."""
    if not isinstance(env, VectorEnv):
        return env.spec
    spec = env.spec
    if spec is None and hasattr(env.unwrapped, "get_attr"):  # not made by gymnasium.make_vec
        spec = env.unwrapped.get_attr("spec")[0]
    return spec
