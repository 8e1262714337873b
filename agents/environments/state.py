"""The state of an environment in a checkpoint: what the attributes of its layers hold.

Nothing is pickled, so it can be saved only if every attribute is made of numbers, of random
generators, of plain objects, or of constants such as texts, spaces and large tables, of which the
file has a digest. What several attributes share is made anew once, and shared again. An environment
with ``get_state`` and ``set_state`` says itself what it is.
"""

import copy
import hashlib
import sys
from collections import deque
from contextlib import suppress
from enum import Enum
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from oda_rl.agents.environments.making import chain, generator_in
from oda_rl.agents.environments.origins import decode, encode, size
from oda_rl.files.schema import generator_state, reading, require

_IGNORED = {"env", "spec", "_action_space", "_observation_space", "_metadata", "_cached_spec",
            "_saved_kwargs"}  # fmt: skip
_SPACES = ("action_space", "observation_space")  # which a class may have for all its instances
_STATELESS = (OrderEnforcing, PassiveEnvChecker)  # apart from what they warn of
_MAX_VALUES = 10_000  # of an attribute that changes
_FIXED = {"object", "generator", "constant"}  # kinds that stay what they are
_Seen = dict[int, tuple[str, Any]]  # mutable values by identity, with the first place of each


def read_state(env: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """Return the state of an environment in JSON's types; None if it cannot be saved.

    >>> read_state(gym.make("FrozenLake-v1"))["0"]["object"]["_max_episode_steps"]
    {'value': 100}
    >>> read_state(gym.wrappers.TransformReward(gym.make("FrozenLake-v1"), lambda r: 2 * r))
    """
    layers = {str(i): layer for i, layer in enumerate(_layers(env))}
    seen: _Seen = {id(layer): (place, layer) for place, layer in layers.items()}
    try:
        state = {place: {"object": _read(layer, place, seen)} for place, layer in layers.items()}
    except (TypeError, RecursionError):
        return None
    return state if size(state) <= 100_000 else None  # values


def write_state(env: gym.Env[Any, Any], state: Any) -> bool:
    """Give an environment, after a reset, the state of another; return whether it is possible."""
    present = read_state(env)
    if present is None or not _alike(state, present):
        return False
    made = {str(i): layer for i, layer in enumerate(_layers(env))}
    with reading("the checkpoint"):
        for place, layer in [*made.items()]:
            _write(layer, state[place]["object"], place, made)
    return True


def _layers(env: Any) -> list[Any]:
    return [one for one in (*chain(env), env.unwrapped) if not isinstance(one, _STATELESS)]


def _read(part: Any, place: str, seen: _Seen) -> dict[str, Any]:
    """Return the attributes of an object by name, each as its kind and what it holds."""
    if any(vars(kind).get("__slots__") for kind in type(part).__mro__):
        raise TypeError("an object has attributes in slots")
    attributes = {name: value for name, value in vars(part).items() if name not in _IGNORED}
    if isinstance(part, gym.Env) and not isinstance(part, gym.Wrapper):
        attributes |= {name: getattr(part, name, None) for name in _SPACES}
        if all(callable(getattr(part, name, None)) for name in ("get_state", "set_state")):
            own: Any = part
            rng = _held(attributes.get("_np_random"), f"{place}._np_random", seen)
            return {"get_state": {"value": encode(own.get_state())}, "_np_random": rng}
    return {name: _held(attributes[name], f"{place}.{name}", seen) for name in sorted(attributes)}


def _held(value: Any, place: str, seen: _Seen) -> dict[str, Any]:
    if id(value) in seen:
        return {"same": seen[id(value)][0]}
    if isinstance(value, np.random.Generator | gym.Space):
        space = isinstance(value, gym.Space)
        rng: Any = getattr(value, "_np_random", value)  # of a space that was never sampled: None
        state = None if rng is None else rng.bit_generator.state
        if state is not None and state["bit_generator"] != "PCG64":
            raise TypeError("a generator is no PCG64")
        if not space:
            seen[id(value)] = place, value
        return {"generator": state, **({"constant": repr(value)} if space else {})}
    if _is_plain_object(value):
        seen[id(value)] = place, value
        return {"object": _read(value, place, seen)}
    if _n_numbers(value) <= _MAX_VALUES:
        arrays = (one for _, one in seen.values() if isinstance(one, np.ndarray))
        if isinstance(value, np.ndarray) and any(np.may_share_memory(value, a) for a in arrays):
            raise TypeError("an array is part of another")
        with suppress(TypeError):
            encoded = _encoded(value)
            if isinstance(value, np.ndarray | list | dict | set | deque):
                seen[id(value)] = place, value
            return encoded
    data = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
    kind = f"{value.dtype}{value.shape}" if isinstance(value, np.ndarray) else ""
    return {"constant": kind + hashlib.sha256(data).hexdigest()}


def _encoded(value: Any) -> dict[str, Any]:
    """Return a value in JSON's types, or raise TypeError."""
    if isinstance(value, deque):
        return {"deque": encode(list(value)), "maxlen": value.maxlen}
    if type(value) is set:
        return {"set": encode(list(value))}
    if type(value) is dict and not all(isinstance(key, str) for key in value):
        return {"pairs": encode(list(value.items()))}
    return {"value": encode(value)}


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
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return value.size if value.dtype.kind in "biuf" else np.inf
    if isinstance(value, dict):
        keys = (key for key in value if not isinstance(key, str))
        return sum(map(_n_numbers, (*value.values(), *keys)), start=1)
    if isinstance(value, list | tuple | deque | set):
        return sum(map(_n_numbers, value), start=1)
    raise TypeError(f"{type(value)} holds other things than numbers")


def _alike(saved: Any, present: dict[str, Any]) -> bool:
    """Whether a state has the attributes of a present one, of the same kinds, and its constants."""
    if not isinstance(saved, dict) or saved.keys() != present.keys():
        return False
    for name, held in present.items():
        given = saved[name]
        alike = isinstance(given, dict) and _FIXED & given.keys() == _FIXED & held.keys()
        if not alike or given.get("constant") != held.get("constant"):
            return False
        if "object" in held and not _alike(given["object"], held["object"]):
            return False
    return True


def _write(part: Any, saved: dict[str, Any], place: str, made: dict[str, Any]) -> None:
    """Give an object its attributes, made anew: present ones may belong to others, too."""
    for name, held in saved.items():
        value, what = getattr(part, name), f"training.env.{name}"
        if name == "get_state":
            part.set_state(decode(held["value"], what))
        elif isinstance(value, gym.Space):
            if held.get("generator") is not None:
                rng = value.np_random
                rng.bit_generator.state = generator_state(held["generator"], what)
        elif "constant" not in held:
            new = made[f"{place}.{name}"] = vars(part)[name] = _made(value, held, what, made)
            if "object" in held:
                _write(new, held["object"], f"{place}.{name}", made)


def _made(value: Any, held: dict[str, Any], what: str, made: dict[str, Any]) -> Any:
    """Return a new value, or the one that another attribute has, too."""
    kind, given = next(iter(held.items()))
    if kind == "same":
        return made[given]
    if kind == "object":
        return copy.copy(value)
    if kind == "generator":
        return generator_in(generator_state(given, what))
    decoded = decode(given, what)
    require(_n_numbers(decoded) <= _MAX_VALUES, f"{what} is no number")
    if kind == "deque":
        return deque(decoded, held["maxlen"])
    return decoded if kind == "value" else {"set": set, "pairs": dict}[kind](decoded)
