"""Making environments from ids, with errors a person can act on."""

from typing import Any

import gymnasium as gym

import oda_rl.envs  # noqa: F401  (registers its environments)


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


def separate_env(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Make another environment like ``env``, so that playing in it leaves ``env`` alone."""
    if env.spec is None:
        raise ValueError(
            "env has no spec, so no other like it can be made: pass the environment to evaluate in"
        )
    return gym.make(env.spec)
