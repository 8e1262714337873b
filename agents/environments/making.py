"""Making environments from ids; facts about environments: rewards, time limit, generator."""

from collections.abc import Mapping
from typing import Any, Self

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv, VectorRewardWrapper, VectorWrapper
from gymnasium.wrappers import AtariPreprocessing, NormalizeReward, TimeLimit
from gymnasium.wrappers.vector import NormalizeReward as VectorNormalizeReward

import oda_rl.envs  # noqa: F401  (registers its environments)
from oda_rl.agents.environments.spaces import AnyEnv, Described, spaces_of

LONGEST = 1_000_000  # steps of a time limit that is more than none
# Modules whose wrappers keep rewards, except for those named below.
_HARMLESS = ("gymnasium.", "oda_rl.", "stable_baselines3.common.monitor")
_EXTRAS = ("box2d", "mujoco")  # of this package, for environments
_OTHER_REWARDS = (gym.RewardWrapper, NormalizeReward, AtariPreprocessing,
                  VectorRewardWrapper, VectorNormalizeReward)  # fmt: skip


def make_env(env_id: str, max_episode_steps: int | None = None, **kwargs: Any) -> gym.Env[Any, Any]:
    """Call ``gymnasium.make``; raise ValueError if there is no such environment."""
    try:
        return gym.make(env_id, max_episode_steps=max_episode_steps, **kwargs)
    except gym.error.DependencyNotInstalled as error:
        found = [extra for extra in _EXTRAS if extra in str(error).lower()]
        hint = f"pip install 'oda-rl[{found[0]}]'" if found else str(error)
        raise ValueError(f"env_id is {env_id!r}, which needs more: {hint}") from error
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise ValueError(
            f"env_id is {env_id!r}: {error} "
            "It must be an id known to Gymnasium (gymnasium.pprint_registry() lists them), or "
            "'module:id' for an environment that a module registers when it is imported."
        ) from error


class EnvFirst:
    """Refuses the order of Stable-Baselines3's arguments before ``__init__`` finds two seeds."""

    def __new__(cls, *args: Any, **_: Any) -> Self:
        first = args[0] if args else None
        if isinstance(first, str) and first in ("MlpPolicy", "CnnPolicy", "MultiInputPolicy"):
            raise ValueError(f"env is {first!r}: the environment comes first; there is no network")
        return super().__new__(cls)


def given_env(env: Any) -> AnyEnv:
    """Return an environment, made if ``env`` is an id; raise TypeError if it is neither."""
    if isinstance(env, str):
        return make_env(env)
    if not isinstance(env, gym.Env | VectorEnv):
        raise TypeError(
            f"env is {env!r}: it must be an environment or a vector environment of Gymnasium, or "
            "the id of one"
        )
    return env


def reward_threshold(env: AnyEnv) -> float | None:
    """Return the specification's threshold; None if it has none or a wrapper may change rewards."""
    spec = spec_of(env)
    return None if spec is None or _rewards_differ(env) else spec.reward_threshold


def _rewards_differ(env: AnyEnv) -> bool:
    """Whether a wrapper changes rewards, or may: it is unknown and has its own ``step``."""
    if not isinstance(env, gym.Wrapper | VectorWrapper):
        return any(map(_rewards_differ, getattr(env, "envs", ())))
    base = VectorWrapper if isinstance(env, VectorWrapper) else gym.Wrapper
    known = type(env).step is base.step or type(env).__module__.startswith(_HARMLESS)
    return isinstance(env, _OTHER_REWARDS) or not known or _rewards_differ(env.env)


def spec_of(env: AnyEnv) -> EnvSpec | None:
    """Return the specification of an environment, or of those in a vector environment."""
    if not isinstance(env, VectorEnv):
        return env.spec
    spec = env.spec
    if spec is None and hasattr(env.unwrapped, "get_attr"):  # not made by gymnasium.make_vec
        spec = env.unwrapped.get_attr("spec")[0]
    return spec


def chain(env: Any) -> list[Any]:
    """Return all wrappers of an environment, from the innermost on."""
    found = []
    while isinstance(env, gym.Wrapper):
        found.append(env)
        env = env.env
    return found[::-1]


def time_limit(env: AnyEnv) -> int | None:
    """Return the steps after which the specification or a wrapper truncates episodes.

    None without a limit of at most :data:`LONGEST`: models imagine episodes of that many steps.

    >>> time_limit(gym.make("CartPole-v1")), time_limit(gym.make("CartPole-v1").unwrapped)
    (500, None)
    >>> time_limit(gym.wrappers.TimeLimit(gym.make("CartPole-v1").unwrapped, 100))
    100
    """
    spec = spec_of(env)
    limits = [] if spec is None or spec.max_episode_steps is None else [spec.max_episode_steps]
    layers = chain(env.unwrapped.envs[0] if hasattr(env.unwrapped, "envs") else env)
    limits += [int(one._max_episode_steps) for one in layers if isinstance(one, TimeLimit)]
    return min((limit for limit in limits if limit <= LONGEST), default=None)


def one_of(env: AnyEnv) -> gym.Env[Any, Any]:
    """Return a description of one of the environments in a vector environment; others as it is."""
    if not isinstance(env, VectorEnv):
        return env
    one, limit = Described(*spaces_of(env), spec_of(env)), time_limit(env)
    return one if limit is None else TimeLimit(one, limit)


def generator_of(env: AnyEnv | None) -> dict[str, Any] | None:
    """Return the state of an environment's random generator; None if it is no PCG64."""
    rng = None if env is None else getattr(env.unwrapped, "_np_random", None)
    if isinstance(env, VectorEnv) or not isinstance(rng, np.random.Generator):
        return None
    state: dict[str, Any] = dict(rng.bit_generator.state)
    return state if state["bit_generator"] == "PCG64" else None


def generator_in(state: Mapping[str, Any]) -> np.random.Generator:
    """Return a generator in the state that :func:`generator_of` returned."""
    rng = np.random.Generator(np.random.PCG64())
    rng.bit_generator.state = state
    return rng
