"""Where an agent was trained: what its environment is made of, so that it can be made anew.

An environment is an id with arguments, a limit of steps and the wrappers around it, each with the
arguments that it has recorded and, where it normalises, the running statistics that it has come to.
A file has all that as JSON. What is read may have come from anyone: all of it is checked, and
nothing is imported before :meth:`Origin.make`.
"""

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from inspect import signature
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.wrappers import (
    HumanRendering,
    NormalizeObservation,
    NormalizeReward,
    OrderEnforcing,
    PassiveEnvChecker,
    RecordEpisodeStatistics,
    RecordVideo,
    RenderCollection,
    TimeLimit,
)
from gymnasium.wrappers.vector import RecordEpisodeStatistics as VectorEpisodeStatistics

from oda_rl.agents.environments.adaptation import AdaptedVector
from oda_rl.agents.environments.making import make_env
from oda_rl.agents.environments.spaces import AnyEnv
from oda_rl.files.schema import InvalidFileError, number, require

Statistics = dict[str, Any]
"""Of a wrapper that normalises: ``mean`` and ``var``, flat, and ``count``."""

# They change nothing of what an agent sees, and some of them write files.
_UNSEEN = (HumanRendering, OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, RecordVideo,
           RenderCollection)  # fmt: skip
_UNSEEN_MODULE = "stable_baselines3.common.monitor"
_IN_TOWN = ("gymnasium", "oda_rl")
# Arguments of gymnasium.make_vec that an environment does not take.
_OF_VECTORS = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers", "max_episode_steps")
RUNNING = (NormalizeObservation.__name__, NormalizeReward.__name__)
_DIFFER = "whose running statistics differ between its environments"
_UNKNOWN = "whose running statistics are not in the file"
_MAX_WRAPPERS = 50
_MAX_VALUES, _MAX_DEPTH, _MAX_LETTERS = 100_000, 20, 10_000  # of an argument
_ID = re.compile(r"[\w./-]{1,200}")
_NAME = re.compile(r"[\w.:]{1,200}")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_ENTRY = re.compile(rf"{_MODULE.pattern}:[^\W\d]\w*")
_FAULT = re.compile(r"(which|whose) [^\n\r\x00-\x1f]{1,250}")
_DTYPE = re.compile(r"(bool|u?int(8|16|32|64)|float(16|32|64))")
_KEYS = {"id", "name", "module", "kwargs", "max_episode_steps", "wrappers", "fault"}
_LAYER_KEYS = {"name", "entry_point", "kwargs", "fault"}


def is_known(module: str) -> bool:
    """Whether a module is one of Gymnasium's or of this package, which files may have imported."""
    return module.partition(".")[0] in _IN_TOWN


@dataclass(frozen=True)
class Layer:
    """A wrapper around an environment."""

    name: str
    """Of its class."""
    entry_point: str | None
    """``module:class``; None where there is none that could be imported."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    statistics: Statistics | None = None
    fault: str | None = None
    """Why it cannot be made anew, as a clause beginning with "which" or "whose"."""
    kind: Callable[..., gym.Env[Any, Any]] | None = None
    """What makes it, if it is at hand."""

    def around(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Wrap an environment."""
        kind = self.kind
        if kind is None:
            assert self.entry_point is not None
            module, _, name = self.entry_point.partition(":")
            found: Any = getattr(import_module(module), name, None)
            wraps = isinstance(found, type) and issubclass(found, gym.Wrapper)
            if not wraps or issubclass(found, _UNSEEN):
                raise ValueError(f"{self.entry_point!r} is no wrapper that agents are trained in")
            kind = found
        return kind(env, **self.kwargs)


@dataclass(frozen=True)
class Origin:
    """What an environment is made of."""

    id: str | None
    """None for one that is not registered."""
    name: str
    """Of its class, for people."""
    module: str | None = None
    """What to import if the id is not known."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None
    wrappers: tuple[Layer, ...] = ()
    fault: str | None = None
    """Why the environment within cannot be made anew."""
    spec: EnvSpec | None = None
    """What it is made by, if that is at hand."""

    @property
    def obstacle(self) -> str | None:
        """Why it cannot be made anew; None if it can."""
        what = self.id or self.name
        if self.fault is not None:
            return f"{what}, {self.fault}"
        for layer in self.wrappers:
            if layer.fault is not None:
                return f"{what} wrapped by {layer.name}, {layer.fault}"
        return None

    def foreign(self) -> str | None:
        """Name a module beyond Gymnasium and this package that would be imported, if any."""
        if self.spec is not None:
            return None
        known = gym.registry.get(self.id or "")
        if known is None and self.module is not None and not is_known(self.module):
            return self.module
        entry = known.entry_point if known is not None else None
        if self.kwargs and isinstance(entry, str):  # arguments out of a file, to unknown code
            module = entry.partition(":")[0]
            if not is_known(module) and module not in sys.modules:
                return module
        for layer in self.wrappers:
            module = (layer.entry_point or "").partition(":")[0]
            if layer.kind is None and not is_known(module):
                return module
        return None

    def beside(self, **kwargs: Any) -> "Origin":
        """Return one with these arguments in the place of its own."""
        spec, more = self.spec, {**self.kwargs, **kwargs}
        return replace(self, kwargs=more, spec=spec and replace(spec, kwargs=more))

    def make(self, learning: bool) -> gym.Env[Any, Any]:
        """Make the environment anew; raise ValueError if it cannot be made.

        ``learning`` says whether running statistics go on running.
        """
        try:
            made = self._innermost()
        except (TypeError, AssertionError, KeyError) as error:
            raise ValueError(f"{self.id} with {self.kwargs} cannot be made: {error}") from error
        inside = [layer.name for layer in layers_of(made)]  # some ids come with wrappers
        if inside != [layer.name for layer in self.wrappers[: len(inside)]]:
            raise ValueError(
                f"{self.id} comes with the wrappers {inside}: it had "
                f"{[layer.name for layer in self.wrappers]} when the agent was trained in it"
            )
        for layer in self.wrappers[len(inside) :]:
            try:
                made = layer.around(made)
            except Exception as error:
                raise ValueError(
                    f"{self.id} cannot be wrapped by {layer.name} with {layer.kwargs}: {error}"
                ) from error
        for wrapper, layer in zip(_wrappers(made), self.wrappers, strict=True):
            if layer.statistics is not None:
                _restore(wrapper, layer.statistics, learning)
        return made

    def _innermost(self) -> gym.Env[Any, Any]:
        if self.spec is not None:
            return gym.make(self.spec)
        assert self.id is not None
        if self.id not in gym.registry and self.module is not None:
            import_module(self.module)
        limit = -1 if self.max_episode_steps is None else self.max_episode_steps
        return make_env(self.id, max_episode_steps=limit, **self.kwargs)


def elsewhere(name: str, fault: str) -> Origin:
    """Return the origin of an agent whose environment cannot be made anew.

    >>> elsewhere("VecNormalize", "which is not in the file").obstacle
    'VecNormalize, which is not in the file'
    """
    return Origin(None, name, fault=fault)


def origin_of(env: AnyEnv, module: str | None = None) -> Origin:
    """Say what an environment, or each of those in a vector environment, is made of.

    Parameters
    ----------
    env : gymnasium.Env or gymnasium.vector.VectorEnv
        Its running statistics are copied.
    module : str, optional
        What was imported so that its id was known.

    Examples
    --------
    >>> env = gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=50)
    >>> origin = origin_of(gym.wrappers.TransformReward(env, lambda reward: 2.0 * reward))
    >>> origin.kwargs["is_slippery"], origin.max_episode_steps, origin.wrappers[0].name
    (False, 50, 'TransformReward')
    """
    if isinstance(env, VectorEnv):
        return _origin_within(env, module)
    chain = _chain(env)
    base = chain[0].env if chain else env
    spec, name = base.spec, type(base).__name__
    layers = tuple(layers_of(env))
    if spec is None:
        return Origin(None, name, wrappers=layers, fault="which is not registered with Gymnasium")
    limit = next((one._max_episode_steps for one in chain if _is_makes(one)), None)
    if module is None and type(base).__module__ != "__main__":
        module = type(base).__module__
    made_by = replace(
        spec,
        max_episode_steps=limit,
        order_enforce=any(isinstance(one, OrderEnforcing) for one in chain),
        disable_env_checker=not any(isinstance(one, PassiveEnvChecker) for one in chain),
        additional_wrappers=(),
    )
    return Origin(spec.id, name, module, dict(spec.kwargs), limit, layers, spec=made_by)


def separate_env(env: AnyEnv, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """Make another environment like ``env``, or one like those in it, and leave ``env`` alone.

    Running statistics are those of ``env``, and stay as they are.
    """
    origin = origin_of(env)
    if origin.obstacle is not None:
        raise ValueError(
            f"env is {env}: {origin.obstacle}, so no other like it can be made: pass the "
            "environment to evaluate in"
        )
    drawn = {} if render_mode is None else {"render_mode": render_mode}
    return origin.beside(**drawn).make(learning=False)


def layers_of(env: gym.Env[Any, Any]) -> Iterator[Layer]:
    """Yield the wrappers that change what an agent sees, from within."""
    for wrapper in _wrappers(env):
        kind = type(wrapper)
        entry_point = None if "." in kind.__qualname__ else f"{kind.__module__}:{kind.__name__}"
        kwargs: dict[str, Any] | None = None
        if isinstance(wrapper, RecordConstructorArgs):
            kwargs = {k: value for k, value in wrapper._saved_kwargs.items() if k != "env"}
        elif len(signature(kind).parameters) == 1:
            kwargs = {}
        fault = "which does not record its arguments" if kwargs is None else None
        statistics = _statistics(wrapper)
        yield Layer(kind.__name__, entry_point, kwargs or {}, statistics, fault, kind)


def _chain(env: Any) -> list[Any]:
    """Return all wrappers of an environment, from within."""
    chain = []
    while isinstance(env, gym.Wrapper):
        chain.append(env)
        env = env.env
    return chain[::-1]


def _wrappers(env: gym.Env[Any, Any]) -> list[Any]:
    """Return those that change what an agent sees."""
    return [
        one
        for one in _chain(env)
        if not isinstance(one, _UNSEEN)
        and type(one).__module__ != _UNSEEN_MODULE
        and not _is_makes(one)
    ]


def _is_makes(wrapper: Any) -> bool:
    """Whether a wrapper is the limit of steps that ``gymnasium.make`` sets."""
    if not isinstance(wrapper, TimeLimit):
        return False
    within = wrapper.env
    made = isinstance(within, OrderEnforcing | PassiveEnvChecker)
    return made or not isinstance(within, gym.Wrapper)


def _origin_within(env: VectorEnv[Any, Any, Any], module: str | None) -> Origin:
    """Say what the environments in a vector environment are made of."""
    while isinstance(env, AdaptedVector | VectorEpisodeStatistics):
        env = env.env
    if isinstance(env, VectorWrapper):
        fault = "which wraps a vector environment, and has no counterpart for a single one"
        inside = _origin_within(env.env, module)
        return replace(inside, wrappers=(Layer(type(env).__name__, None, fault=fault),))
    if hasattr(env, "envs"):
        origin = origin_of(env.envs[0], module)
        layers = tuple(
            replace(layer, statistics=None, fault=_DIFFER) if layer.statistics else layer
            for layer in origin.wrappers
        )
        return replace(origin, wrappers=layers)
    spec = env.spec
    if spec is None and hasattr(env, "get_attr"):  # not made by gymnasium.make_vec
        spec = env.get_attr("spec")[0]
    if spec is None:
        return elsewhere(type(env).__name__, "which has no spec")
    own = {key: value for key, value in spec.kwargs.items() if key not in _OF_VECTORS}
    limit = spec.kwargs.get("max_episode_steps", spec.max_episode_steps)
    layers = tuple(_specified(spec))
    made_by = replace(spec, kwargs=own, max_episode_steps=limit, additional_wrappers=())
    return Origin(spec.id, spec.name, module, own, limit, layers, spec=made_by)


def _specified(spec: EnvSpec) -> Iterator[Layer]:
    """Yield the wrappers that a specification has."""
    for one in spec.additional_wrappers:
        fault = "which does not record its arguments" if one.kwargs is None else None
        fault = _DIFFER if one.name in RUNNING else fault
        yield Layer(one.name, one.entry_point, dict(one.kwargs or {}), fault=fault)
    for kind in spec.kwargs.get("wrappers") or ():
        name = getattr(kind, "__name__", str(kind))
        wraps = isinstance(kind, type) and "." not in kind.__qualname__
        entry_point = f"{kind.__module__}:{name}" if wraps else None
        fault = _DIFFER if name in RUNNING else None
        yield Layer(name, entry_point, fault=fault, kind=kind)


def _running(wrapper: Any) -> Any:
    """Return the running statistics of a wrapper, if it has any."""
    if isinstance(wrapper, NormalizeObservation):
        return wrapper.obs_rms
    return wrapper.return_rms if isinstance(wrapper, NormalizeReward) else None


def _statistics(wrapper: Any) -> Statistics | None:
    found = _running(wrapper)
    if found is None:
        return None
    mean, var = np.array(found.mean).reshape(-1), np.array(found.var).reshape(-1)
    return {"mean": mean.tolist(), "var": var.tolist(), "count": float(found.count)}


def _restore(wrapper: Any, statistics: Statistics, learning: bool) -> None:
    found = _running(wrapper)
    for name in ("mean", "var"):
        like, values = np.asarray(getattr(found, name)), statistics[name]
        if len(values) != like.size:
            raise ValueError(
                f"{name} of {type(wrapper).__name__} has {len(values)} numbers: it must have "
                f"{like.size}"
            )
        setattr(found, name, np.array(values, dtype=like.dtype).reshape(like.shape))
    found.count = statistics["count"]
    wrapper.update_running_mean = learning


def to_json(origin: Origin) -> dict[str, Any]:
    """Return what a file has of an origin; what no file can hold is left out, and that is said.

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
        if _size(layer.statistics) > _MAX_VALUES:
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
        except TypeError as error:
            return {}, f"whose argument {name} is {error}, which no file holds"
    return told, None


def from_json(told: Any) -> Origin:
    """Return what :func:`to_json` told of, or raise InvalidFileError; nothing is imported.

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
    require(isinstance(layers, list) and len(layers) <= _MAX_WRAPPERS,
            f"env_spec.wrappers must be a list of at most {_MAX_WRAPPERS}")  # fmt: skip
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


def recorded(value: Any) -> Any:
    """Return what JSON has of an argument: tuples and arrays are marked as such.

    Raises TypeError for what no file holds; the message says what that is.

    >>> recorded({"shape": (84, 84), "scale": 0.5})
    {'shape': {'tuple': [84, 84]}, 'scale': 0.5}
    >>> recorded(print)
    Traceback (most recent call last):
    TypeError: of type builtin_function_or_method
    """
    told = _recorded(value, 0)
    if _size(told) > _MAX_VALUES:
        raise TypeError(f"of more than {_MAX_VALUES:,} values")
    return told


def _recorded(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise TypeError(f"nested more than {_MAX_DEPTH} deep")
    if value is None or type(value) in (bool, int, float):
        return value
    if type(value) is str and len(value) <= _MAX_LETTERS:
        return value
    if type(value) is list:
        return [_recorded(one, depth + 1) for one in value]
    if type(value) is tuple:
        return {"tuple": [_recorded(one, depth + 1) for one in value]}
    if isinstance(value, np.ndarray | np.generic) and _DTYPE.fullmatch(value.dtype.name):
        flat = np.reshape(value, -1).tolist()
        return {"array": flat, "shape": list(value.shape), "dtype": value.dtype.name}
    if type(value) is dict and all(type(key) is str for key in value) and _plain(value):
        return {key: _recorded(one, depth + 1) for key, one in value.items()}
    raise TypeError(f"of type {type(value).__name__}")


def _plain(value: dict[str, Any]) -> bool:
    """Whether a dictionary is none of those that stand for a tuple or an array."""
    return value.keys() != {"tuple"} and value.keys() != {"array", "shape", "dtype"}


def argument(value: Any, what: str) -> Any:
    """Return the argument that :func:`recorded` told of, or raise InvalidFileError.

    >>> argument({"tuple": [84, 84]}, "shape")
    (84, 84)
    """
    require(_depth(value) <= _MAX_DEPTH + 1, f"{what} is nested more than {_MAX_DEPTH} deep")
    require(_size(value) <= _MAX_VALUES, f"{what} has more than {_MAX_VALUES:,} values")
    return _argument(value, what)


def _argument(value: Any, what: str) -> Any:
    if isinstance(value, str):
        require(len(value) <= _MAX_LETTERS, f"{what} has more than {_MAX_LETTERS:,} letters")
        return value
    if isinstance(value, list):
        return [_argument(one, what) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"tuple"}:
        require(isinstance(value["tuple"], list), f"{what} has a tuple that is no list")
        return tuple(_argument(one, what) for one in value["tuple"])
    if _plain(value):
        return {key: _argument(one, what) for key, one in value.items()}
    flat, shape, dtype = value["array"], value["shape"], value["dtype"]
    numbers = isinstance(flat, list) and all(type(one) in (bool, int, float) for one in flat)
    sizes = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    right = numbers and sizes and math.prod(shape) == len(flat)
    require(right and isinstance(dtype, str) and _DTYPE.fullmatch(dtype),
            f"{what} has an array that is none")  # fmt: skip
    try:
        return np.array(flat, dtype=dtype).reshape(shape)[()]  # without a shape, a number
    except (OverflowError, ValueError) as error:
        raise InvalidFileError(f"{what} has an array that is none: {error}") from error


def numbers(values: Any, what: str, span: str) -> list[float]:
    """Return a list of numbers from JSON, or raise InvalidFileError."""
    require(isinstance(values, list) and len(values) <= _MAX_VALUES, f"{what} is no list")
    return [number(value, what, span) for value in values]


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)
