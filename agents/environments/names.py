"""What known environments' observations and actions are called, for people to read."""

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from oda_rl.agents.environments.spaces import Interface


@cache
def _names() -> dict[str, dict[str, list[str]]]:
    text = files("oda_rl.agents.environments").joinpath("names.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def component_names(env_id: str | None) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """Names of a known environment's observation components and actions.

    >>> component_names("MountainCar-v0")[0]
    ['position', 'velocity']
    """
    names = _names().get(env_id or "", {})
    return names.get("observations"), names.get("actions")


def matching_parts(env_id: str | None, interface: Interface) -> Sequence[str] | None:
    """Return the known names of a continuous action's components, if there are so many.

    >>> from oda_rl.agents.environments.making import make_env
    >>> matching_parts("Pendulum-v1", Interface.of(make_env("Pendulum-v1"), 4))
    ['torque (N m)']
    """
    parts = _names().get(env_id or "", {}).get("action_components")
    return parts if parts is not None and len(parts) == interface.n_components else None


def matching_names(
    env_id: str | None, interface: Interface
) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """Return the known names, as far as there are so many components and actions.

    There are others if the environment was wrapped. Components of a Dict are known by its keys.
    """
    names, action_names = component_names(env_id)
    if names is not None and len(names) != interface.n_features:
        names = None
    if names is None and interface.native is not None:
        names = interface.native.names
    if action_names is not None and len(action_names) != interface.n_actions:
        action_names = None
    return names, action_names
