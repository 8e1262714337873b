"""What a file has of where an agent was trained: an origin as JSON, and back.

What is read may have come from anyone: all of it is looked at, and nothing is imported.
"""

import re
from collections.abc import Mapping
from typing import Any

from oda_rl._schema import number, require
from oda_rl.agents.environments.origins import RUNNING, Layer, Origin, is_known
from oda_rl.agents.environments.recorded import UnrecordedError, argument, numbers, recorded

_UNKNOWN = "whose running statistics are not in the file"
_ID = re.compile(r"[\w./-]{1,200}")
_NAME = re.compile(r"[\w.:]{1,200}")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_ENTRY = re.compile(rf"{_MODULE.pattern}:[^\W\d]\w*")
_FAULT = re.compile(r"(which|whose) [^\n\r\x00-\x1f]{1,250}")
_MOST_WRAPPERS = 50
_KEYS = {"id", "name", "module", "kwargs", "max_episode_steps", "wrappers", "fault"}
_LAYER_KEYS = {"name", "entry_point", "kwargs", "fault"}


def to_json(origin: Origin) -> dict[str, Any]:
    """Return what a file has of an origin; what no file can hold is left out, and that is said.

    >>> import gymnasium as gym
    >>> from oda_rl.agents.environments.origins import origin_of
    >>> env = gym.make("MountainCar-v0", max_episode_steps=50)
    >>> told = to_json(origin_of(gym.wrappers.TransformReward(env, lambda reward: 2.0 * reward)))
    >>> told["max_episode_steps"], told["wrappers"][0]["fault"]
    (50, 'whose argument func is of type function, which no file holds')
    """
    kwargs = {key: value for key, value in origin.kwargs.items()
              if (key, value) != ("render_mode", "human")}  # fmt: skip
    kwargs, fault = _written(kwargs)
    return {
        "id": origin.id,
        "name": origin.name,
        "module": None if origin.module is None or is_known(origin.module) else origin.module,
        "kwargs": kwargs,
        "max_episode_steps": origin.max_episode_steps,
        "wrappers": [_layer_to_json(layer) for layer in origin.wrappers],
        "fault": origin.fault or fault,
    }


def _layer_to_json(layer: Layer) -> dict[str, Any]:
    kwargs, fault = _written(layer.kwargs)
    entry_point = layer.entry_point
    if entry_point is None or entry_point.startswith("__main__:"):
        entry_point = None
        fault = "which no file can name, for it is made within a function or script"
    told = {"name": layer.name, "entry_point": entry_point, "kwargs": kwargs}
    if layer.statistics is not None:
        try:
            recorded(layer.statistics)
        except UnrecordedError:
            fault = _UNKNOWN
        else:
            told["statistics"] = layer.statistics
    return {**told, "fault": layer.fault or fault}


def _written(kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return arguments as files have them; and, if they cannot be there, none, and why."""
    told = {}
    for name, value in kwargs.items():
        try:
            told[name] = recorded(value)
        except UnrecordedError as error:
            return {}, f"whose argument {name} is {error}, which no file holds"
    return told, None


def from_json(told: Any) -> Origin:
    """Return what :func:`to_json` told of, or raise InvalidFileError; nothing is imported.

    >>> import gymnasium as gym
    >>> from oda_rl.agents.environments.origins import origin_of
    >>> told = to_json(origin_of(gym.make("MountainCar-v0", max_episode_steps=50)))
    >>> from_json(told).make(learning=True).spec.max_episode_steps
    50
    """
    require(isinstance(told, dict) and told.keys() == _KEYS, f"env_spec must have {sorted(_KEYS)}")
    _check_text(told["id"], _ID, "env_spec.id", optional=told["fault"] is not None)
    _check_text(told["name"], _NAME, "env_spec.name")
    _check_text(told["module"], _MODULE, "env_spec.module", optional=True)
    _check_text(told["fault"], _FAULT, "env_spec.fault", optional=True)
    limit, layers = told["max_episode_steps"], told["wrappers"]
    require(limit is None or (type(limit) is int and 1 <= limit < 2**53),
            f"env_spec.max_episode_steps is {limit!r}: it must be at least 1, or null")  # fmt: skip
    require(isinstance(layers, list) and len(layers) <= _MOST_WRAPPERS,
            f"env_spec.wrappers must be a list of at most {_MOST_WRAPPERS}")  # fmt: skip
    wrappers = tuple(_layer(one, f"env_spec.wrappers[{i}]") for i, one in enumerate(layers))
    kwargs = _arguments(told["kwargs"], "env_spec.kwargs")
    return Origin(told["id"], told["name"], told["module"], kwargs, limit, wrappers, told["fault"])


def _layer(told: Any, what: str) -> Layer:
    keys = told.keys() - {"statistics"} if isinstance(told, dict) else None
    require(keys == _LAYER_KEYS, f"{what} must have {sorted(_LAYER_KEYS)}")
    _check_text(told["name"], _NAME, f"{what}.name")
    _check_text(told["fault"], _FAULT, f"{what}.fault", optional=True)
    faulty = told["fault"] is not None
    _check_text(told["entry_point"], _ENTRY, f"{what}.entry_point", optional=faulty)
    statistics = None
    if "statistics" in told:
        said = told["statistics"]
        right = isinstance(said, dict) and said.keys() == {"mean", "var", "count"}
        require(right, f"{what}.statistics must have mean, var and count")
        statistics = {
            "mean": numbers(said["mean"], f"{what}.statistics.mean", "(-inf, inf)"),
            "var": numbers(said["var"], f"{what}.statistics.var", "[0, inf)"),
            "count": number(said["count"], f"{what}.statistics.count", "(0, inf)"),
        }
    fault = told["fault"]
    if fault is None and statistics is None and told["name"] in RUNNING:
        fault = _UNKNOWN
    kwargs = _arguments(told["kwargs"], f"{what}.kwargs")
    return Layer(told["name"], told["entry_point"], kwargs, statistics, fault)


def _arguments(told: Any, what: str) -> dict[str, Any]:
    kwargs = argument(told, what)
    require(isinstance(kwargs, dict), f"{what} must be arguments by name")
    require("env" not in kwargs, f"{what} has an argument env")
    return dict(kwargs)


def _check_text(text: Any, form: re.Pattern[str], what: str, optional: bool = False) -> None:
    right = (optional and text is None) or (isinstance(text, str) and form.fullmatch(text))
    require(right, f"{what} is {text!r:.80}: it cannot be that")
