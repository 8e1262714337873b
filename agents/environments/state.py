"""The state of an environment in a checkpoint: what its attributes hold.

Nothing is pickled, so it can be saved only if every attribute of the environment and its wrappers
is made of numbers, of random generators, or of constants such as texts, spaces and large tables. An
environment with ``get_state`` and ``set_state`` says itself what its state is.
"""

import hashlib
import sys
from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from oda_rl.agents.environments.origins import decode, encode
from oda_rl.files.schema import generator_state, reading, require

_IGNORED = {"env", "spec", "_action_space", "_observation_space", "_metadata", "_cached_spec",
            "_saved_kwargs"}  # fmt: skip
_SPACES = ("action_space", "observation_space")
_STATELESS = (OrderEnforcing, PassiveEnvChecker)  # apart from what they warn of
_MAX_VALUES = 1000  # of an attribute that changes
_NUMBERS = (type(None), bool, int, float, np.number, np.bool_)
_CONTAINERS = (list, tuple, dict, deque, set)
_MAX_DEPTH = 10


class _UnknownError(Exception):
    """An attribute of another kind."""


def read_state(env: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """Return the state of an environment in JSON's types; None if it cannot be saved.

    >>> state = read_state(gym.make("FrozenLake-v1"))
    >>> state["parts"]["0"]
    {'_elapsed_steps': None, '_max_episode_steps': 100}
    >>> read_state(gym.wrappers.TransformReward(gym.make("FrozenLake-v1"), lambda r: 2 * r))
    """
    constants = hashlib.sha256()
    try:
        parts = {str(i): _read(layer, constants, 0) for i, layer in enumerate(_layers(env))}
    except (_UnknownError, TypeError):
        return None
    return {"parts": parts, "constants": constants.hexdigest()}


def write_state(env: gym.Env[Any, Any], state: Any) -> bool:
    """Give an environment, after a reset, the state of another; return whether that is possible.

    It is not if it has other attributes or constants. Raises InvalidFileError for a state that
    :func:`read_state` cannot have returned.
    """
    right = isinstance(state, dict) and state.keys() == {"parts", "constants"}
    require(right and isinstance(state["parts"], dict), "training.env is no state")
    present = read_state(env)
    if present is None or not _alike(state, present):
        return False
    with reading("the checkpoint"):
        for i, layer in enumerate(_layers(env)):
            _write(layer, state["parts"][str(i)])
    return True


def _layers(env: gym.Env[Any, Any]) -> Iterator[Any]:
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        if not isinstance(layer, _STATELESS):
            yield layer
        layer = layer.env
    yield layer


def _read(part: Any, constants: Any, depth: int) -> dict[str, Any]:
    """Return the attributes that may change, by name; the others go into the digest."""
    if depth > _MAX_DEPTH:
        raise _UnknownError
    attributes, saved = dict(vars(part)), dict[str, Any]()
    if isinstance(part, gym.Env) and not isinstance(part, gym.Wrapper):
        if all(callable(getattr(part, name, None)) for name in ("get_state", "set_state")):
            rng = getattr(part, "_np_random", None)
            return {"": encode(cast(Any, part).get_state()), "_np_random": _generator(rng)}
        attributes |= {name: getattr(part, name, None) for name in _SPACES}  # of its class, too
    for name, value in sorted(attributes.items()):
        if name in _IGNORED:
            continue
        if isinstance(value, np.random.Generator):
            saved[name] = _generator(value)
        elif isinstance(value, gym.Space):
            constants.update(repr((name, value)).encode())
            saved[name] = _generator(value._np_random)
        elif _is_plain_object(value):
            saved[name] = {"object": _read(value, constants, depth + 1)}
        elif _count(value, 0) <= _MAX_VALUES:
            saved[name] = encode(list(value) if isinstance(value, deque) else value)
        else:
            constants.update(name.encode() + _bytes(value))
    return saved


def _generator(rng: Any) -> dict[str, Any] | None:
    if rng is None:
        return None
    state: dict[str, Any] = rng.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise _UnknownError
    return {"generator": state}


def _is_plain_object(value: Any) -> bool:
    """Whether a value is an instance of classes written in Python, so that it has no handles."""
    kinds = type(value).__mro__[:-1]
    files = (getattr(sys.modules.get(kind.__module__), "__file__", None) for kind in kinds)
    plain = not isinstance(value, Enum) and all(str(file).endswith(".py") for file in files)
    return plain and hasattr(value, "__dict__") and not callable(value)


def _count(value: Any, depth: int) -> float:
    """Count the numbers in a value; infinite if it is a constant."""
    if isinstance(value, Enum):
        return np.inf
    if isinstance(value, _NUMBERS):
        return 1
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return value.size
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return np.inf
    if isinstance(value, str | bytes | type):
        return np.inf
    if not isinstance(value, _CONTAINERS) or depth > _MAX_DEPTH:
        raise _UnknownError
    inner: Any = value
    if isinstance(value, dict):
        inner = value.values()
        if not all(isinstance(key, str) for key in value):
            inner = [*value.values(), ""]  # a table by numbers
    total = sum(_count(one, depth + 1) for one in inner)
    return np.inf if isinstance(value, set) else 1 + total


def _bytes(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return repr((value.dtype, value.shape)).encode() + value.tobytes()
    return repr(value).encode()


def _alike(saved: Any, present: Any) -> bool:
    """Whether a saved state has the attributes and constants of a present one."""
    if saved["constants"] != present["constants"]:
        return False
    pairs = [(saved["parts"], present["parts"])]
    while pairs:
        one, other = pairs.pop()
        if not isinstance(one, dict) or one.keys() != other.keys():
            return False
        for name in one:
            first, second = one[name], other[name]
            nested = _is_nested(second, "object")
            if nested != _is_nested(first, "object"):
                return False
            if nested or other is present["parts"]:
                pairs.append((first["object"], second["object"]) if nested else (first, second))
    return True


def _is_nested(encoded: Any, key: str) -> bool:
    return isinstance(encoded, dict) and encoded.keys() == {key}


def _write(part: Any, saved: dict[str, Any]) -> None:
    for name, encoded in saved.items():
        value: Any = getattr(part, name) if name else None
        what = f"training.env.{name}"
        if not name:
            part.set_state(decode(encoded, what))
        elif _is_nested(encoded, "object"):
            _write(value, encoded["object"])
        elif _is_nested(encoded, "generator"):
            rng = np.random.Generator(np.random.PCG64())
            rng.bit_generator.state = generator_state(encoded["generator"], what)
            if isinstance(value, gym.Space):
                value._np_random = rng
            else:
                setattr(part, name, rng)
        elif not isinstance(value, gym.Space | np.random.Generator):
            decoded = decode(encoded, what)
            require(_count(decoded, 0) <= _MAX_VALUES, f"{what} is no number")
            if isinstance(value, deque):
                value.clear()
                value.extend(decoded)
            elif isinstance(value, np.ndarray) and _alike_arrays(value, decoded):
                value[...] = decoded  # others may share it
            else:
                setattr(part, name, decoded)


def _alike_arrays(one: Any, other: Any) -> bool:
    return isinstance(other, np.ndarray) and (one.shape, one.dtype) == (other.shape, other.dtype)
