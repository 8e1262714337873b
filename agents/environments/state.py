"""The state of an environment in a checkpoint: what the attributes of its layers hold.

Nothing is pickled, so it can be saved only if every attribute is made of numbers, of random
generators, of plain objects, or of constants such as texts, spaces and large tables, of which the
file has a digest. An environment with ``get_state`` and ``set_state`` says itself what it is.
"""

import hashlib
import sys
from collections import deque
from enum import Enum
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from oda_rl.agents.environments.origins import decode, encode
from oda_rl.files.schema import generator_state, reading, require

_IGNORED = {"env", "spec", "_action_space", "_observation_space", "_metadata", "_cached_spec",
            "_saved_kwargs"}  # fmt: skip
_SPACES = ("action_space", "observation_space")  # which a class may have for all its instances
_STATELESS = (OrderEnforcing, PassiveEnvChecker)  # apart from what they warn of
_MAX_VALUES = 1000  # of an attribute that changes


def read_state(env: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """Return the state of an environment in JSON's types; None if it cannot be saved.

    >>> read_state(gym.make("FrozenLake-v1"))["0"]["object"]["_max_episode_steps"]
    {'value': 100}
    >>> read_state(gym.wrappers.TransformReward(gym.make("FrozenLake-v1"), lambda r: 2 * r))
    """
    try:
        return {str(i): {"object": _read(layer)} for i, layer in enumerate(_layers(env))}
    except (TypeError, RecursionError):
        return None


def write_state(env: gym.Env[Any, Any], state: Any) -> bool:
    """Give an environment, after a reset, the state of another; return whether it is possible."""
    present = read_state(env)
    if present is None or not _alike(state, present):
        return False
    with reading("the checkpoint"):
        for i, layer in enumerate(_layers(env)):
            _write(layer, state[str(i)]["object"])
    return True


def _layers(env: Any) -> list[Any]:
    layers = []
    while isinstance(env, gym.Wrapper):
        layers.append(env)
        env = env.env
    return [layer for layer in (*layers, env) if not isinstance(layer, _STATELESS)]


def _read(part: Any) -> dict[str, Any]:
    """Return the attributes of an object by name, each as its kind and what it holds."""
    attributes = {name: value for name, value in vars(part).items() if name not in _IGNORED}
    if isinstance(part, gym.Env) and not isinstance(part, gym.Wrapper):
        attributes |= {name: getattr(part, name, None) for name in _SPACES}
        if all(callable(getattr(part, name, None)) for name in ("get_state", "set_state")):
            own: Any = part
            rng = attributes.get("_np_random")
            return {"get_state": {"value": encode(own.get_state())}, "_np_random": _held(rng)}
    return {name: _held(value) for name, value in sorted(attributes.items())}


def _held(value: Any) -> dict[str, Any]:
    if isinstance(value, np.random.Generator | gym.Space):
        space = isinstance(value, gym.Space)
        rng: Any = getattr(value, "_np_random", value)  # of a space that was never sampled: None
        state = None if rng is None else rng.bit_generator.state
        if state is not None and state["bit_generator"] != "PCG64":
            raise TypeError("a generator is no PCG64")
        return {"generator": state, **({"constant": repr(value)} if space else {})}
    if _is_plain_object(value):
        return {"object": _read(value)}
    if _n_numbers(value) <= _MAX_VALUES:
        return {"value": encode(list(value) if isinstance(value, deque) else value)}
    data = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
    kind = f"{value.dtype}{value.shape}" if isinstance(value, np.ndarray) else ""
    return {"constant": kind + hashlib.sha256(data).hexdigest()}


def _is_plain_object(value: Any) -> bool:
    """Whether a value is an instance of classes written in Python, so that it has no handles."""
    kinds = type(value).__mro__[:-1]
    files = (getattr(sys.modules.get(kind.__module__), "__file__", None) for kind in kinds)
    plain = not isinstance(value, Enum) and all(str(file).endswith(".py") for file in files)
    return plain and hasattr(value, "__dict__") and not callable(value)


def _n_numbers(value: Any) -> float:
    """Count the numbers in a value; infinite if it is a constant, TypeError if it is neither."""
    if isinstance(value, Enum | str | bytes | type):
        return np.inf
    if value is None or isinstance(value, bool | int | float | np.number | np.bool_):
        return 1
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.size if value.dtype.kind in "biuf" else np.inf
    if isinstance(value, dict):
        table = not all(isinstance(key, str) for key in value)
        return sum(map(_n_numbers, value.values()), start=np.inf if table else 1)
    if isinstance(value, list | tuple | deque | set):
        return sum(map(_n_numbers, value), start=np.inf if isinstance(value, set) else 1)
    raise TypeError(f"{type(value)} holds other things than numbers")


def _alike(saved: Any, present: dict[str, Any]) -> bool:
    """Whether a state has the attributes of a present one, of the same kinds, and its constants."""
    if not isinstance(saved, dict) or saved.keys() != present.keys():
        return False
    for name, held in present.items():
        given = saved[name]
        alike = isinstance(given, dict) and given.keys() == held.keys()
        if not alike or given.get("constant") != held.get("constant"):
            return False
        if "object" in held and not _alike(given["object"], held["object"]):
            return False
    return True


def _write(part: Any, saved: dict[str, Any]) -> None:
    for name, held in saved.items():
        value, what = getattr(part, name), f"training.env.{name}"
        if "object" in held:
            _write(value, held["object"])
        elif held.get("generator") is not None:
            rng = value.np_random if isinstance(value, gym.Space) else value
            rng.bit_generator.state = generator_state(held["generator"], what)
        elif name == "get_state":
            part.set_state(decode(held["value"], what))
        elif "value" in held:
            decoded = decode(held["value"], what)
            require(_n_numbers(decoded) <= _MAX_VALUES, f"{what} is no number")
            if isinstance(value, deque):
                value.clear()
                value.extend(decoded)
            elif isinstance(value, np.ndarray) and _alike_arrays(value, decoded):
                value[...] = decoded  # others may share it
            else:
                setattr(part, name, decoded)


def _alike_arrays(one: Any, other: Any) -> bool:
    return isinstance(other, np.ndarray) and (one.shape, one.dtype) == (other.shape, other.dtype)
