"""The description of an environment from which it can be made anew: id, arguments, wrappers.

Files hold it as JSON, which may come from anyone: all of it is checked, and nothing is imported
before :meth:`Origin.make`.
"""

import copy
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.wrappers import vector

from oda_rl.agents.environments.copying import checked_copyable
from oda_rl.agents.environments.making import chain, make_env, spec_of
from oda_rl.agents.environments.spaces import AnyEnv, Interface
from oda_rl.files.schema import InvalidFileError, number, require

Statistics = dict[str, Any]  # of a wrapper that normalises: mean and var, flat, and count

# Wrappers that change nothing an agent observes; some of them write files.
_TRANSPARENT = (gym.wrappers.HumanRendering, gym.wrappers.OrderEnforcing,
                gym.wrappers.PassiveEnvChecker, gym.wrappers.RecordEpisodeStatistics,
                gym.wrappers.RecordVideo, gym.wrappers.RenderCollection)  # fmt: skip
_TRANSPARENT_VECTOR = (vector.DictInfoToList, vector.HumanRendering,
                       vector.RecordEpisodeStatistics, vector.RecordVideo)  # fmt: skip
_SB3_MONITOR = "stable_baselines3.common.monitor"
# Arguments of gymnasium.make_vec that an environment does not take.
_MAKE_VEC = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers", "max_episode_steps")
_NORMALISING = (gym.wrappers.NormalizeObservation.__name__, gym.wrappers.NormalizeReward.__name__)
_NORMALISING_VECTOR = (vector.NormalizeObservation, vector.NormalizeReward)
_NO_COUNTERPART = "which wraps a vector environment, and has no counterpart for a single one"
_DIFFER = "whose running statistics differ between its environments"
_UNKNOWN = "whose running statistics are not in the file"
_UNRECORDED = "which does not record its arguments"
_MAX_WRAPPERS = 50
_MAX_VALUES, _MAX_DEPTH, _MAX_LETTERS = 100_000, 20, 10_000  # of an argument
_LARGEST_WHOLE = 100_000  # number in an argument: of frames, repeated steps, pixels
_LARGEST_PRODUCT = 10_000_000  # of those in wrappers, which may multiply observations
_MODULE = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_FORMS = {
    "id": re.compile(r"[\w./-]{1,200}"),
    "name": re.compile(r"[\w.:]{1,200}"),
    "module": re.compile(_MODULE),
    "entry_point": re.compile(rf"{_MODULE}:[^\W\d]\w*"),
    "fault": re.compile(r"(which|whose) .{1,250}"),
}
_DTYPE = re.compile(r"(bool|u?int(8|16|32|64)|float(16|32|64))")
_KEYS = {"id", "name", "module", "kwargs", "max_episode_steps", "wrappers", "fault"}
_LAYER_KEYS = {"name", "entry_point", "kwargs", "fault"}


def _trusted(module: str) -> bool:
    """Whether a file may have a module imported: Gymnasium's and this package's."""
    return module.partition(".")[0] in ("gymnasium", "oda_rl")


@dataclass(frozen=True)
class Layer:
    """A wrapper around an environment."""

    name: str  # name of its class
    entry_point: str | None  # ``module:class``; None if it cannot be imported
    kwargs: dict[str, Any] = field(default_factory=dict)
    statistics: Statistics | None = None
    fault: str | None = None  # why it cannot be made anew, from "which" or "whose" on
    kind: Callable[..., gym.Env[Any, Any]] | None = None  # None if read from a file

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        kind = self.kind
        if kind is None:
            assert self.entry_point is not None
            module, _, name = self.entry_point.partition(":")
            imported: Any = getattr(import_module(module), name, None)
            wraps = isinstance(imported, type) and issubclass(imported, gym.Wrapper)
            if not wraps or issubclass(imported, _TRANSPARENT):
                raise ValueError(f"{self.entry_point!r} is no wrapper that agents are trained in")
            kind = imported
        return kind(env, **self.kwargs)


@dataclass(frozen=True)
class Origin:
    """The parts an environment is made of."""

    id: str | None  # None if it is not registered
    name: str  # name of its class, for messages
    module: str | None = None  # module to import if the id is not registered
    kwargs: dict[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None
    wrappers: tuple[Layer, ...] = ()  # from the innermost on
    fault: str | None = None  # why the innermost environment cannot be made anew
    spec: EnvSpec | None = None  # its specification; None if it was read from a file

    @property
    def obstacle(self) -> str | None:
        """Why it cannot be made anew; None if it can."""
        what = self.id or self.name
        layers = [one for one in self.wrappers if one.fault is not None]
        faults = [f"{what} wrapped by {one.name}, {one.fault}" for one in layers]
        faults += [] if self.fault is None else [f"{what}, {self.fault}"]
        return faults[0] if faults else None

    def untrusted_module(self) -> str | None:
        """Name a module beyond Gymnasium and this package that :meth:`make` would import."""
        if self.spec is not None:
            return None
        registered = gym.registry.get(self.id or "")
        if registered is None and self.module is not None and not _trusted(self.module):
            return self.module
        entry = None if registered is None else registered.entry_point
        if self.kwargs and isinstance(entry, str):  # arguments from a file, for unknown code
            module = entry.partition(":")[0]
            if not _trusted(module) and module not in sys.modules:
                return module
        for layer in self.wrappers:
            module = (layer.entry_point or "").partition(":")[0]
            if layer.kind is None and not _trusted(module):
                return module
        return None

    def check_numbers(self, interface: Interface) -> None:
        """Raise ValueError if an argument from a file would make something very large or slow."""
        if self.spec is not None:
            return
        largest, product = max(_LARGEST_WHOLE, interface.n_features), 1
        for layer in (None, *self.wrappers):
            what, kwargs = (self.id, self.kwargs) if layer is None else (layer.name, layer.kwargs)
            for name, value in kwargs.items():
                number = max(_wholes(value), default=0)
                if layer is not None and not name.startswith(("min_", "max_")):  # a wrapper's bound
                    product *= math.prod(max(one, 1) for one in _wholes(value))
                if (number > largest and not name.endswith("seed")) or product > _LARGEST_PRODUCT:
                    raise ValueError(
                        f"the file names {what} with {name}={number:,}: it must be at most "
                        f"{largest:,}, and the product of those of wrappers {_LARGEST_PRODUCT:,}; "
                        "load it with load(path, env=...), or --trust-env in the command, if that "
                        "is what you want"
                    )

    def make(self, learning: bool, render_mode: str | None = None) -> gym.Env[Any, Any]:
        """Make the environment anew, ``learning`` running statistics or not; or ValueError."""
        kwargs = self.kwargs if render_mode is None else {**self.kwargs, "render_mode": render_mode}
        try:
            made = self._innermost(kwargs)
        except (TypeError, AssertionError, KeyError) as error:
            raise ValueError(f"{self.id} with {kwargs} cannot be made: {error}") from error
        inside = [type(one).__name__ for one in _wrappers(made)]  # some ids come with wrappers
        expected = [layer.name for layer in self.wrappers]
        if inside != expected[: len(inside)]:
            raise ValueError(
                f"{self.id} comes with the wrappers {inside}: it had {expected} when the agent was "
                "trained in it"
            )
        for layer in self.wrappers[len(inside) :]:
            try:
                made = layer.wrap(made)
            except Exception as error:
                raise ValueError(
                    f"{self.id} cannot be wrapped by {layer.name} with {layer.kwargs}: {error}"
                ) from error
        for wrapper, layer in zip(_wrappers(made), self.wrappers, strict=True):
            if layer.statistics is not None:
                _restore(wrapper, layer.statistics, learning)
        return made

    def _innermost(self, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
        if self.spec is not None:
            return gym.make(replace(self.spec, kwargs=kwargs))
        assert self.id is not None
        if self.id not in gym.registry and self.module is not None:
            import_module(self.module)
        limit = -1 if self.max_episode_steps is None else self.max_episode_steps
        return make_env(self.id, max_episode_steps=limit, **kwargs)


def origin_of(env: AnyEnv, module: str | None = None) -> Origin:
    """Describe an environment, or those in a vector one; ``module`` registers the id."""
    if isinstance(env, VectorEnv):
        return _vector_origin(env, module)
    around = chain(env)
    base = around[0].env if around else env
    spec, name = base.spec, type(base).__name__
    layers = tuple(_layer_of(one, type(one)) for one in _wrappers(env))
    if spec is None:
        return Origin(None, name, wrappers=layers, fault="which is not registered with Gymnasium")
    limit = next((one._max_episode_steps for one in around if _is_limit_of_make(one)), None)
    if module is None and type(base).__module__ != "__main__":
        module = type(base).__module__
    checks = any(isinstance(one, gym.wrappers.PassiveEnvChecker) for one in around)
    made_by = replace(
        spec,
        max_episode_steps=limit,
        order_enforce=any(isinstance(one, gym.wrappers.OrderEnforcing) for one in around),
        disable_env_checker=not checks,
        additional_wrappers=(),
    )
    return Origin(spec.id, name, module, dict(spec.kwargs), limit, layers, spec=made_by)


def separate_env(env: AnyEnv, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """Make, or copy, another environment like ``env``, with its constants and statistics."""
    obstacle = origin_of(env).obstacle
    if obstacle is None:
        return remade(env, render_mode)[0]
    found: gym.Env[Any, Any] | None = None if render_mode is not None else _copy_of(env)
    if found is None:
        raise ValueError(f"env is {env}: {obstacle}, so no other like it can be made")
    return found


def remade(env: AnyEnv, render_mode: str | None = None) -> tuple[gym.Env[Any, Any], bool]:
    """Make an environment anew, with the constants of ``env``; return whether some were changed.

    Constants are attributes that are equal in two environments just made, after a step of one of
    them. Others hold a state, or the number of a simulator.
    """
    origin, (first, new) = origin_of(env), _first_of(env)
    made = origin.make(learning=False, render_mode=render_mode)
    changed = [*map(_differences, _parts(env.unwrapped if first is None else first), _parts(made))]
    if new:
        first.close()
    if any(changed):
        with closing(origin.make(learning=False)) as other:
            with suppress(Exception):  # a reset may need options
                other.reset(seed=0)
                other.step(copy.deepcopy(other.action_space).sample())
            for constants, *parts in zip(changed, _parts(other), _parts(made), strict=False):
                for name in constants.keys() & _differences(*parts).keys():
                    del constants[name]
                vars(parts[1]).update(copy.deepcopy(constants))
    return made, any(changed)


def _parts(env: Any) -> list[Any]:
    """Return an environment without wrappers, and those that change what an agent observes."""
    return [env.unwrapped, *(one for one in _wrappers(env) if _running(one) is None)]


def _differences(part: Any, made: Any) -> dict[str, Any]:
    """Return the attributes of numbers, texts and arrays that ``made`` has with other values."""
    found = {}
    for name, value in vars(part).items():
        new = getattr(made, name, None)
        if value is not None and new is not None and name != "render_mode":
            with suppress(TypeError):  # of values of other types
                if encode(value) != encode(new):
                    found[name] = value
    return found


def _first_of(env: AnyEnv) -> tuple[Any, bool]:
    """Return the first environment in a vector one, or None, and whether it has just been made."""
    while isinstance(env, VectorWrapper):
        env = env.env
    if not isinstance(env, VectorEnv):
        return env, False
    if hasattr(env, "envs"):
        return env.envs[0], False
    return (env.env_fns[0](), True) if hasattr(env, "env_fns") else (None, False)


def _copy_of(env: AnyEnv) -> Any:
    """Copy an environment, or the first of those in a vector environment; None if that fails."""
    try:
        one, new = _first_of(env)
        if isinstance(env, VectorEnv) and any(_running(wrapper) for wrapper in chain(one)):
            return None  # they differ between the environments
        while isinstance(one, _TRANSPARENT):
            one = one.env
        found = one if new else copy.deepcopy(checked_copyable(one))
        for layer in _vector_layers(env):
            found = layer.wrap(found)
            if layer.statistics is not None:
                _restore(found, layer.statistics, learning=False)
    except Exception:  # of whatever kind an environment may hold
        return None
    for wrapper in chain(found):
        if _running(wrapper) is not None:
            wrapper.update_running_mean = False
    bare: Any = getattr(found, "unwrapped", None)
    if isinstance(getattr(bare, "_np_random", None), np.random.Generator):
        bare._np_random = None  # not the next random numbers of the original
    return found


def _layer_of(wrapper: Any, kind: type[Any]) -> Layer:
    entry_point = None if "." in kind.__qualname__ else f"{kind.__module__}:{kind.__name__}"
    kwargs: dict[str, Any] | None = None
    if isinstance(wrapper, RecordConstructorArgs):
        kwargs = {k: value for k, value in wrapper._saved_kwargs.items() if k != "env"}
    elif [one.default for one in signature(kind).parameters.values()] == [Parameter.empty]:
        kwargs = {}  # it needs one argument: the environment
    fault = _UNRECORDED if kwargs is None else None
    return Layer(kind.__name__, entry_point, kwargs or {}, _statistics(wrapper), fault, kind)


def _vector_layers(env: Any) -> tuple[Layer, ...]:
    """Describe a vector environment's wrappers as those of a single one, from the innermost on."""
    if not isinstance(env, VectorWrapper):
        return ()
    inside, kind, single = _vector_layers(env.env), type(env), vars(env).get("wrapper")
    if isinstance(env, _TRANSPARENT_VECTOR):
        return inside
    if kind in _NORMALISING_VECTOR:
        return *inside, _layer_of(env, getattr(gym.wrappers, kind.__name__))
    if kind.__module__.startswith("gymnasium.") and isinstance(single, gym.Wrapper):
        return *inside, _layer_of(single, type(single))
    return *inside, Layer(kind.__name__, None, fault=_NO_COUNTERPART)


def _wrappers(env: gym.Env[Any, Any]) -> list[Any]:
    """Return the wrappers that change what an agent observes, from the innermost on."""
    return [
        one
        for one in chain(env)
        if not isinstance(one, _TRANSPARENT)
        and type(one).__module__ != _SB3_MONITOR
        and not _is_limit_of_make(one)
    ]


def _is_limit_of_make(wrapper: Any) -> bool:
    if not isinstance(wrapper, gym.wrappers.TimeLimit):
        return False
    inner = wrapper.env
    made = isinstance(inner, gym.wrappers.OrderEnforcing | gym.wrappers.PassiveEnvChecker)
    return made or not isinstance(inner, gym.Wrapper)


def _vector_origin(env: VectorEnv[Any, Any, Any], module: str | None) -> Origin:
    if isinstance(env, VectorWrapper):
        inside = _vector_origin(env.unwrapped, module)
        return replace(inside, wrappers=(*inside.wrappers, *_vector_layers(env)))
    if hasattr(env, "envs"):
        origin = origin_of(env.envs[0], module)
        layers = tuple(
            replace(layer, statistics=None, fault=_DIFFER) if layer.statistics else layer
            for layer in origin.wrappers
        )
        return replace(origin, wrappers=layers)
    spec = spec_of(env)
    if spec is None:
        return Origin(None, type(env).__name__, fault="which has no spec")
    kwargs = {key: value for key, value in spec.kwargs.items() if key not in _MAKE_VEC}
    limit = spec.kwargs.get("max_episode_steps", spec.max_episode_steps)
    wrapped = spec.additional_wrappers or spec.kwargs.get("wrappers")
    hidden = "whose wrappers cannot be seen from here" if wrapped else None
    made_by = replace(spec, kwargs=kwargs, max_episode_steps=limit, additional_wrappers=())
    return Origin(spec.id, spec.name, module, kwargs, limit, fault=hidden, spec=made_by)


def _running(wrapper: Any) -> Any:
    if isinstance(wrapper, gym.wrappers.NormalizeObservation | vector.NormalizeObservation):
        return wrapper.obs_rms
    kinds = gym.wrappers.NormalizeReward, vector.NormalizeReward
    return wrapper.return_rms if isinstance(wrapper, kinds) else None


def _statistics(wrapper: Any) -> Statistics | None:
    running = _running(wrapper)
    if running is None:
        return None
    mean, var = (np.reshape(values, -1).tolist() for values in (running.mean, running.var))
    return {"mean": mean, "var": var, "count": float(running.count)}


def _restore(wrapper: Any, statistics: Statistics, learning: bool) -> None:
    running = _running(wrapper)
    for name in ("mean", "var"):
        like, values = np.asarray(getattr(running, name)), statistics[name]
        if len(values) != like.size:
            raise ValueError(
                f"{name} of {type(wrapper).__name__} has {len(values)} numbers: it must have "
                f"{like.size}"
            )
        setattr(running, name, np.array(values, dtype=like.dtype).reshape(like.shape))
    running.count = statistics["count"]
    wrapper.update_running_mean = learning


def to_json(origin: Origin) -> dict[str, Any]:
    """Encode an origin; what no file can hold is left out, and named in ``fault``."""
    kwargs, fault = _encoded_kwargs({key: value for key, value in origin.kwargs.items()
                                     if (key, value) != ("render_mode", "human")})  # fmt: skip
    return {
        "id": origin.id,
        "name": origin.name,
        "module": None if origin.module is None or _trusted(origin.module) else origin.module,
        "kwargs": kwargs,
        "max_episode_steps": origin.max_episode_steps,
        "wrappers": [_layer_to_json(layer) for layer in origin.wrappers],
        "fault": origin.fault or fault,
    }


def _layer_to_json(layer: Layer) -> dict[str, Any]:
    kwargs, fault = _encoded_kwargs(layer.kwargs)
    entry_point, statistics = layer.entry_point, layer.statistics
    if entry_point is None or entry_point.startswith("__main__:"):
        entry_point = None
        fault = "which no file can name, for it is made within a function or script"
    if statistics is not None and size(statistics) > _MAX_VALUES:
        statistics, fault = None, _UNKNOWN
    return {
        "name": layer.name,
        "entry_point": entry_point,
        "kwargs": kwargs,
        "fault": layer.fault or fault,
        **({} if statistics is None else {"statistics": statistics}),
    }


def _encoded_kwargs(kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return encoded arguments and None; or, if one cannot be encoded, none and the reason."""
    encoded = {}
    for name, value in kwargs.items():
        try:
            encoded[name] = encode(value)
        except TypeError as error:
            return {}, f"whose argument {name} is {error}, which no file holds"
    return encoded, None


def from_json(fields: Any) -> Origin:
    """Decode what :func:`to_json` returned, or raise InvalidFileError; nothing is imported."""
    right = _checked(fields, _KEYS, "env_spec")
    limit, layers = right["max_episode_steps"], right["wrappers"]
    require(limit is None or (type(limit) is int and 1 <= limit < 2**53),
            f"env_spec.max_episode_steps is {limit!r}: it must be at least 1, or null")  # fmt: skip
    require(isinstance(layers, list) and len(layers) <= _MAX_WRAPPERS,
            f"env_spec.wrappers must be a list of at most {_MAX_WRAPPERS}")  # fmt: skip
    wrappers = tuple(_layer(one, f"env_spec.wrappers[{i}]") for i, one in enumerate(layers))
    return Origin(**{**right, "wrappers": wrappers})


def _layer(fields: Any, what: str) -> Layer:
    given = fields.get("statistics") if isinstance(fields, dict) else None
    right = _checked(fields, _LAYER_KEYS | ({"statistics"} if given is not None else set()), what)
    if given is not None:
        what = f"{what}.statistics"
        named = isinstance(given, dict) and given.keys() == {"mean", "var", "count"}
        require(named, f"{what} must have mean, var and count")
        for name, span in (("mean", "(-inf, inf)"), ("var", "[0, inf)")):
            values = given[name]
            listed = isinstance(values, list) and len(values) <= _MAX_VALUES
            require(listed, f"{what}.{name} is no list")
            for value in values:
                number(value, f"{what}.{name}", span)
        number(given["count"], f"{what}.count", "(0, inf)")
    elif right["fault"] is None and right["name"] in _NORMALISING:
        right["fault"] = _UNKNOWN
    return Layer(**right)


def _checked(fields: Any, keys: set[str], what: str) -> dict[str, Any]:
    """Return fields with decoded arguments; raise InvalidFileError for wrong names and texts."""
    require(isinstance(fields, dict) and fields.keys() == keys, f"{what} must have {sorted(keys)}")
    for name in _FORMS.keys() & keys:
        text, faulty = fields[name], fields["fault"] is not None
        optional = name in ("module", "fault") or (name in ("id", "entry_point") and faulty)
        printable = isinstance(text, str) and text.isprintable()
        right = (optional and text is None) or (printable and _FORMS[name].fullmatch(text))
        require(right, f"{what}.{name} is {text!r:.80}: it cannot be that")
    kwargs = decode(fields["kwargs"], f"{what}.kwargs")
    require(isinstance(kwargs, dict), f"{what}.kwargs must be arguments by name")
    require("env" not in kwargs, f"{what}.kwargs has an argument env")
    require(kwargs.get("render_mode") != "human", f"{what}.kwargs would open a window")
    return {**fields, "kwargs": kwargs}


def encode(value: Any) -> Any:
    """Encode an argument in JSON's types: tuples and arrays become marked dictionaries.

    Raises TypeError for other types; the message completes "the argument is".

    >>> encode({"shape": (84, 84), "scale": 0.5})
    {'shape': {'tuple': [84, 84]}, 'scale': 0.5}
    """
    encoded = _encode(value, 0)
    if size(encoded) > _MAX_VALUES:
        raise TypeError(f"of more than {_MAX_VALUES:,} values")
    return encoded


def _encode(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise TypeError(f"nested more than {_MAX_DEPTH} deep")
    if value is None or type(value) in (bool, int, float):
        return value
    if type(value) is str and len(value) <= _MAX_LETTERS:
        return value
    if type(value) is list:
        return [_encode(one, depth + 1) for one in value]
    if type(value) is tuple:
        return {"tuple": [_encode(one, depth + 1) for one in value]}
    if isinstance(value, np.ndarray | np.generic) and _DTYPE.fullmatch(value.dtype.name):
        flat = np.reshape(value, -1).tolist()
        return {"array": flat, "shape": list(value.shape), "dtype": value.dtype.name}
    if type(value) is dict and all(type(key) is str for key in value) and not _marked(value):
        return {key: _encode(one, depth + 1) for key, one in value.items()}
    raise TypeError(f"of type {type(value).__name__}")


def _marked(value: dict[str, Any]) -> bool:
    """Whether a dictionary stands for a tuple or an array."""
    return value.keys() in ({"tuple"}, {"array", "shape", "dtype"})


def decode(value: Any, what: str) -> Any:
    """Decode an argument that :func:`encode` encoded, or raise InvalidFileError."""
    decoded = _decode(value, what, 0)
    require(size(value) <= _MAX_VALUES, f"{what} has more than {_MAX_VALUES:,} values")
    return decoded


def _decode(value: Any, what: str, depth: int) -> Any:
    require(depth <= _MAX_DEPTH, f"{what} is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, str):
        require(len(value) <= _MAX_LETTERS, f"{what} has more than {_MAX_LETTERS:,} letters")
    if isinstance(value, list):
        return [_decode(one, what, depth + 1) for one in value]
    if not isinstance(value, dict):
        return value
    if not _marked(value):
        return {key: _decode(one, what, depth + 1) for key, one in value.items()}
    if "tuple" in value:
        require(isinstance(value["tuple"], list), f"{what} has a tuple that is no list")
        return tuple(_decode(value["tuple"], what, depth))
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


def size(value: Any) -> int:
    """Count values and letters, containers included."""
    if isinstance(value, str):
        return max(len(value), 1)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(size, inner))


def _wholes(value: Any) -> Iterator[int]:
    """Yield the sizes of the whole numbers in an argument."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _wholes(inner)
    elif isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        yield abs(int(value))
