"""Names of the components of observations, and of actions.

They are those of ``metadata["component_names"]`` and ``metadata["action_names"]``, which any
environment can have; or those of known environments (``names.toml``); or the keys of a Dict; or
numbers. ``component_names`` names all components of the flattened observation. ``action_names``
has a name for each Discrete action, or for each component of another one; for a component of a
MultiDiscrete or MultiBinary action it may be a list with a name for each value.
"""

import math
import re
import tomllib
from collections.abc import Iterator, Sequence, Sized
from dataclasses import replace
from decimal import Context, Decimal
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from gymnasium import spaces

from oda_rl._types import FloatArray
from oda_rl.agents.environments.making import spec_of
from oda_rl.agents.environments.spaces import AnyEnv, Interface, canonical, is_name, spaces_of

_KEY = re.compile(r"\w[\w -]{0,39}(\([\w°%/ .*^-]{1,20}\))?")  # of a Dict, perhaps with a unit


def named(interface: Interface, env: AnyEnv) -> Interface:
    """Return an interface with the names that are known of its environment, if they fit."""
    own, bare = spaces_of(env), spaces_of(env.unwrapped)
    spec, metadata = spec_of(env), env.metadata or {}
    known = _known(None if spec is None else spec.id)
    observations, d = known.get("observations", ()), interface.n_features
    given = metadata.get("component_names")
    if given is not None and (own[0] is bare[0] or len(given) == d):
        interface = with_components(interface, given, "metadata['component_names']")
    elif names := observations if len(observations) == d else _of_space(own[0]):
        interface = with_components(interface, names)
    discrete = isinstance(own[1], spaces.Discrete)
    if (values := interface.combinations) is not None:
        rows = zip(*_words("", values, [None] * values.shape[1]), strict=True)
        usual = tuple(f"action ({', '.join(row)})" for row in rows)
        if all(map(is_name, usual)):  # else too long: they keep their numbers
            interface = replace(interface, action_names=usual)
    actions = known.get("actions" if discrete else "action_components", ())
    n = len(interface.action_names)
    sizes = {n, n if discrete else math.prod(own[1].shape or ())}
    given = metadata.get("action_names")
    if given is not None and (own[1] is bare[1] or len(given) in sizes):
        return with_actions(interface, given, "metadata['action_names']")
    return with_actions(interface, actions if len(actions) in sizes else None)


def with_components(
    interface: Interface, names: Sequence[str] | None, argument: str = "names"
) -> Interface:
    """Return an interface with other names of components, if any, or raise ValueError."""
    kind = "component of the observation"
    return replace(interface, names=checked_names(argument, names, interface.names, kind))


def with_actions(
    interface: Interface, names: Sequence[Any] | None, argument: str = "action_names"
) -> Interface:
    """Return an interface with other names of actions, if any, or raise ValueError."""
    values = interface.combinations
    sized = isinstance(names, Sized) and len(names) not in (0, interface.n_actions)
    if values is not None and names is not None and sized:
        words = _words(argument, values, names)
        return replace(interface, action_names=tuple(map(", ".join, zip(*words, strict=True))))
    kind = "action" if interface.box is None else "component of an action"
    known = checked_names(argument, names, interface.action_names, kind)
    return replace(interface, action_names=known)


def _words(argument: str, values: Any, names: Sequence[Any]) -> list[list[str]]:
    """Return the words of each component, in a list for each, of combinations, shape (n, p)."""
    n, p = values.shape
    if isinstance(names, str) or len(names) != p:
        raise ValueError(
            f"{argument} is {names!r}: it must have a name for each of {p} components, a list of "
            f"names of its values for each, or a name for each of {n} actions"
        )
    words = []
    for name, column in zip(names, values.T, strict=True):
        offered, numbers = np.unique(column.astype(np.float64), return_inverse=True)
        scale = 0.5 / np.diff(0.5 * offered).min(initial=np.inf)
        said = [number_text(value, scale) for value in offered.tolist()]
        if isinstance(name, str):
            (short,) = without_units(checked_names(argument, [name], [""], "component"))
            said = [f"{short} {text}" for text in said]
        else:
            said = list(checked_names(argument, name, said, "value of the component"))
        words.append([said[k] for k in numbers.ravel()])
    return words


def checked_names(
    argument: str, given: Sequence[str] | None, otherwise: Sequence[str], of: str
) -> tuple[str, ...]:
    """Return the names given, or the default ones; raise ValueError if they are no names."""
    if given is None:
        return tuple(otherwise)
    if isinstance(given, str) or not isinstance(given, Sized) or len(given) != len(otherwise):
        raise ValueError(
            f"{argument} is {given!r}: it must be a sequence of {len(otherwise)}, one for each {of}"
        )
    for i, name in enumerate(given):
        if not isinstance(name, str) or not is_name(name):
            raise ValueError(
                f"{argument} has {name!r}: it must be a string of 1 to 80 printable characters"
            )
        if name in given[:i]:
            raise ValueError(f"{argument} has {name!r} twice: each {of} needs a name of its own")
    return tuple(map(str, given))


def number_text(value: float, scale: float, digits: int = 4, rounding: str = "") -> str:
    """Return a number to some digits, or to more if it is many deviations, 1/scale, away from 0."""
    far = min(max(1.0, abs(value) * scale), 1e11)  # in this order: it may be NaN
    digits += int(math.log10(far))
    if rounding:  # beyond five more digits is what computations leave
        value = float(Context(digits, rounding).plus(Decimal(f"{value:.{digits + 5}g}")))
    return f"{value:.{digits}g}"


def scales_between(low: FloatArray, high: FloatArray) -> list[float]:
    """Return the scales, for :func:`number_text`, of numbers between bounds; 0 without bounds."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.ravel(1.0 / (high - low)).tolist()


def without_units(names: Sequence[str]) -> list[str]:
    """Return names without parentheses at their ends, if they still differ.

    >>> without_units(["angle (rad)", "angular velocity (rad/s)"])
    ['angle', 'angular velocity']
    """
    short = [re.sub(r"\s*\([^()]*\)$", "", name) for name in names]
    return short if all(short) and len(set(short)) == len(names) else list(names)


@cache
def _known(env_id: str | None) -> dict[str, list[str]]:
    """Return names of a known environment's observations, actions and action_components."""
    text = files("oda_rl.agents.environments").joinpath("names.toml").read_text(encoding="utf-8")
    names: dict[str, dict[str, list[str]]] = tomllib.loads(text)
    return names.get(re.sub(r"-v\d+$", "", env_id or ""), {})


def _of_space(space: spaces.Space[Any]) -> Sequence[str] | None:
    """Return names by the keys of a Dict; None for other spaces, and unreadable keys."""
    if isinstance(space, spaces.Discrete):
        return ["state"]
    if not isinstance(space, spaces.Dict):
        return None
    names = [  # units go to the end
        re.sub(r"( ?\(.*?\))(.+)", r"\2\1", name) for name in _flattened(canonical(space), "")
    ]
    return names if len(set(names)) == len(names) and "" not in names else None


def _flattened(space: spaces.Space[Any], name: str) -> Iterator[str]:
    """Yield the names of the components of flattened observations; "" for unreadable keys."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            full = f"{name}.{key}" if name else key
            yield from _flattened(part, full) if _KEY.fullmatch(key) else [""]
    elif isinstance(space, spaces.Tuple):
        for i, part in enumerate(space.spaces):
            yield from _flattened(part, f"{name}[{i}]")
    elif (space.shape == () and not isinstance(space, spaces.Discrete)) or (
        space.shape == (1,) and isinstance(space, spaces.Box)
    ):
        yield name
    else:
        yield from (f"{name}[{j}]" for j in range(int(spaces.flatdim(space))))
