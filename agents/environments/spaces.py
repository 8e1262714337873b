"""Spaces: conversion between the environment's observations and actions and the agent's.

An agent works with vectors and numbered actions (:class:`Interface`); its users, with whatever the
environment has (:class:`Native`): numbers, dictionaries, torques.
"""

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from oda_rl.files.schema import check_fields, printable, require

AnyEnv = gym.Env[Any, Any] | VectorEnv[Any, Any, Any]
Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]
Array = npt.NDArray[Any]

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_DTYPES = ("float32", "float64")
_OF_NUMBERS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_SPACES = ("observation_space", "action_space")
_MAX_ACTIONS = 1000
_MAX_GRID = 1_000_000  # values of all components, in a file


@dataclass(eq=False, repr=False)
class Described(gym.Env[Any, Any]):
    """The spaces of an environment without the environment."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    spec: EnvSpec | None = None


def described(env: Any) -> Any:
    """Return a pair of spaces as an environment that has them; anything else as it is."""
    pair = isinstance(env, tuple) and len(env) == 2
    return Described(*env) if pair and all(isinstance(one, spaces.Space) for one in env) else env


def is_name(text: str) -> bool:
    """Whether a text can name a component or an action."""
    return text.isprintable() and re.fullmatch(r"[^<>]{1,80}", text) is not None


def canonical(space: spaces.Space[Any], name: str = "observation_space") -> spaces.Space[Any]:
    """Return an equal space with the keys of each Dict sorted, in which order it is flattened.

    Raises TypeError if a part does not hold numbers.
    """
    if isinstance(space, spaces.Dict):
        if not all(isinstance(key, str) for key in space.spaces):
            raise TypeError(f"{name} is {space}: the keys of a Dict must be strings")
        items = space.spaces.items()  # which Gymnasium sorts
        return spaces.Dict({key: canonical(part, f"{name}[{key!r}]") for key, part in items})
    if isinstance(space, spaces.Tuple):
        inner = enumerate(space.spaces)
        return spaces.Tuple([canonical(part, f"{name}[{i}]") for i, part in inner])
    if not isinstance(space, _OF_NUMBERS):
        raise TypeError(
            f"{name} is {space}: it must be of numbers; gymnasium.wrappers.FilterObservation can "
            "leave it out"
        )
    return space


def refuse_empty(space: spaces.Space[Any]) -> None:
    """Raise ValueError if an observation has no components."""
    if spaces.flatdim(space) == 0:
        raise ValueError(f"observation_space is {space}: it must have at least one component")


def grid_of(space: spaces.Box, bins: int) -> list[Array]:
    """Return evenly spaced values of each component; of integers rounded, and none twice."""
    # The difference of the largest bounds would overflow, that of their halves does not.
    low, high = (0.5 * bound.ravel().astype(np.float64) for bound in (space.low, space.high))
    grids = (2.0 * np.linspace(a, b, bins) for a, b in zip(low, high, strict=True))
    if np.issubdtype(space.dtype, np.floating):
        return [np.unique(grid.astype(space.dtype)) for grid in grids]
    return [np.unique(np.rint(grid)) for grid in grids]


def action_choices(space: spaces.Space[Any], bins: int) -> Array:
    """Return the actions to choose among, shape (n_actions, *action shape); see ``adapted``."""
    if isinstance(space, spaces.Box):
        if not space.is_bounded():
            raise ValueError(
                f"action_space is {space}: a grid of it needs bounds; gymnasium.wrappers."
                "RescaleAction or TransformAction can give it some"
            )
        axes = grid_of(space, bins)
    elif isinstance(space, spaces.MultiDiscrete):
        ranges = zip(space.start.ravel(), space.nvec.ravel(), strict=True)
        axes = [start + np.arange(n) for start, n in ranges]
    elif isinstance(space, spaces.MultiBinary):
        axes = [np.arange(2)] * math.prod(space.shape)
    else:
        raise TypeError(
            f"action_space is {space}: it must be Discrete, MultiDiscrete, MultiBinary or Box; "
            "gymnasium.wrappers.TransformAction can offer a choice of a few others as one"
        )
    count = math.prod(len(axis) for axis in axes)
    if count > _MAX_ACTIONS:
        instead = "offer a choice of them by gymnasium.wrappers.TransformAction"
        if isinstance(space, spaces.Box):
            instead = (
                "CodevectorAgent, and ModelAgent without action_bins, need no grid; or take fewer "
                f"action_bins, or {instead}"
            )
        raise ValueError(
            f"action_space is {space}: {count:,} combinations of its components are too many (at "
            f"most {_MAX_ACTIONS}); {instead}"
        )
    combinations = list(itertools.product(*axes))
    return np.array(combinations, dtype=space.dtype).reshape(count, *space.shape)


@dataclass(frozen=True)
class ActionBox:
    """A bounded box of continuous actions, scaled to units: p numbers from -1 to 1."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, space: spaces.Space[Any]) -> "ActionBox":
        """Read an action space; raise ValueError if it is no bounded, non-empty Box of floats.

        >>> box = ActionBox.of(spaces.Box(-2.0, 2.0, (1,)))
        >>> box.actions(np.array([[0.5], [1.2]])).tolist(), box.units(np.array([1.0]))
        ([[1.0], [2.0]], array([0.5]))
        """
        box = space if isinstance(space, spaces.Box) else None
        unbounded = box is not None and not box.is_bounded()
        if box is None or unbounded or box.dtype not in _FLOATS or math.prod(box.shape) == 0:
            raise ValueError(
                f"action_space is {space}: it must be a bounded Box of float32 or float64 where "
                "actions are continuous; gymnasium.wrappers.TransformAction can make it one"
                f"{'' if unbounded else ', and FittedQAgent takes other actions'}"
            )
        low, high = (tuple(bound.ravel().tolist()) for bound in (box.low, box.high))
        return cls(low, high, box.shape, str(box.dtype))

    @cached_property
    def bounds(self) -> npt.NDArray[np.float64]:
        """Lower and upper bounds, shape (2, p)."""
        return np.array([self.low, self.high])

    @property
    def constants(self) -> npt.NDArray[np.float64]:
        """Actions to repeat, in units: nothing, the middle, the lowest and the highest."""
        nothing = self.units(np.clip(0.0, *self.bounds).reshape(self.shape))
        ends = [[unit] * len(nothing) for unit in (0.0, -1.0, 1.0)]
        return np.array(list(dict.fromkeys(map(tuple, [nothing.tolist(), *ends]))))

    def actions(self, units: npt.NDArray[np.float64]) -> Array:
        """Return the actions, shape (n, *shape), for units, shape (n, p); clipped to the box."""
        low, high = self.bounds
        actions = 0.5 * ((1.0 - units) * low + (1.0 + units) * high)
        inside: Array = np.minimum(np.maximum(actions, low), high).astype(self.dtype)
        return inside.reshape(-1, *self.shape)

    def units(self, action: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the units of one action, shape (p,); raise ValueError if it is not in the box."""
        array, (low, high) = np.asarray(action), self.bounds
        vector = array.ravel().astype(np.float64)
        if array.shape != self.shape or not ((vector >= low) & (vector <= high)).all():
            raise ValueError(
                f"action is {action!r}: it must have shape {self.shape} and lie between {self.low} "
                f"and {self.high}"
            )
        width = np.where(high > low, high - low, 1.0)
        return np.asarray(np.where(high > low, (2.0 * vector - low - high) / width, 0.0))


@dataclass(frozen=True)
class Native:
    """The environment's own spaces where they are not the agent's; Dicts in canonical order."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    bins: int | None  # values of each component of a continuous action; None without a grid

    def __post_init__(self) -> None:
        object.__setattr__(self, "observation_space", canonical(self.observation_space))

    @property
    def n_features(self) -> int:
        """Components of an observation as a vector."""
        space = self.observation_space
        return 1 if isinstance(space, spaces.Discrete) else int(spaces.flatdim(space))

    @property
    def n_actions(self) -> int | None:
        """Number of actions offered; None for continuous actions without a grid."""
        space = self.action_space
        if isinstance(space, spaces.Box):
            return None if self.bins is None else math.prod(map(len, grid_of(space, self.bins)))
        return n_elements(space)

    @property
    def sees_vectors(self) -> bool:
        """Whether observations are arrays as they are."""
        return isinstance(self.observation_space, spaces.Box)

    def points(self, observation: Any, name: str = "observation") -> tuple[Array, bool]:
        """Return one or more observations as vectors, shape (n, d), and whether it is only one."""
        space = self.observation_space
        if self._are_vectors(observation):
            return np.atleast_2d(observation), np.ndim(observation) == 1
        vectors = _vectors_of(space, observation, name)
        return np.atleast_2d(vectors).astype(np.float64), vectors.ndim == 1

    def actions(self, numbers: npt.NDArray[np.int64]) -> Array:
        """Return the environment's actions, shape (n, *action shape), for numbers from 0."""
        return self._choices[numbers]

    def number(self, action: Any) -> int:
        """Return the number of an action, from 0; raise ValueError if it is not offered."""
        array = np.asarray(action)
        number = None
        if array.shape == self._choices.shape[1:]:
            number = self._numbers.get(array.astype(self._choices.dtype).tobytes())
        if number is None:
            raise ValueError(
                f"action is {action!r}: it must be one of the {len(self._choices)} actions of "
                f"{self.action_space} that the agent chooses from, as act returns them"
            )
        return number

    def to_json(self) -> dict[str, Any]:
        """Return the spaces in JSON's types."""
        return {
            "observation_space": _space_to_json(self.observation_space),
            "action_space": _space_to_json(self.action_space),
            "bins": self.bins,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Native":
        """Make the spaces that :meth:`to_json` returned, or raise InvalidFileError."""
        require(fields.keys() == {*_SPACES, "bins"}, "native is another")
        bins = fields["bins"]
        observations, actions = (_space_from_json(fields[key]) for key in _SPACES)
        right = bins is None or (type(bins) is int and 2 <= bins <= 1000)
        small = right and (bins or 0) * math.prod(actions.shape or ()) <= _MAX_GRID
        require(small, f"native.bins is {bins!r}")
        return cls(observations, actions, bins)

    @cached_property
    def _choices(self) -> Array:
        if isinstance(self.action_space, spaces.Discrete):
            return int(self.action_space.start) + np.arange(int(self.action_space.n))
        assert self.bins is not None
        return action_choices(self.action_space, self.bins)

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        return {choice.tobytes(): number for number, choice in enumerate(self._choices)}

    def _are_vectors(self, observation: Any) -> bool:
        shape = np.shape(observation) if isinstance(observation, np.ndarray) else ()
        if isinstance(self.observation_space, spaces.Discrete):
            return len(shape) == 2 and shape[1] == 1
        n = spaces.flatdim(self.observation_space)
        return shape != self.observation_space.shape and shape in ((n,), (*shape[:1], n))


def _parts(space: Any) -> Iterable[spaces.Space[Any]]:
    return space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces


def n_elements(space: spaces.Space[Any]) -> int:
    """Return the number of elements of a space; 0 if it is not finite.

    >>> n_elements(spaces.Dict(on=spaces.MultiBinary(3), at=spaces.MultiDiscrete([4, 5])))
    160
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return math.prod(map(n_elements, _parts(space)))
    if isinstance(space, spaces.MultiBinary):
        return int(2 ** math.prod(space.shape))
    sizes = np.ravel(getattr(space, "nvec", getattr(space, "n", 0)))
    return int(math.prod(sizes.tolist()))


def _of_boxes(space: spaces.Space[Any]) -> list[bool]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return [of_box for part in _parts(space) for of_box in _of_boxes(part)]
    return [isinstance(space, spaces.Box)] * int(spaces.flatdim(space))


def vector_of(space: spaces.Space[Any], observation: Any) -> Array:
    """Return an observation as ``gymnasium.spaces.flatten`` does, but a number as it is."""
    vector = _vectors_of(space, observation, "observation")
    if vector.ndim != 1:
        raise ValueError(f"observation is a batch: it must be one of {space}")
    return vector


def _vectors_of(space: spaces.Space[Any], observation: Any, name: str) -> Array:
    try:
        return _vectors(space, observation, one_hot=not isinstance(space, spaces.Discrete))
    except (TypeError, ValueError, IndexError, KeyError) as error:
        given = printable(f"{observation!r:.200}")
        raise ValueError(f"{name} is {given}: it must be one of {space} ({error})") from error


def _vectors(space: spaces.Space[Any], value: Any, one_hot: bool = True) -> Array:
    """Return what ``gymnasium.spaces.flatten`` does, of one checked observation or a batch."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            raise ValueError(f"it must be a dictionary with the keys {', '.join(space.spaces)}")
        parts = [_vectors(part, value[key]) for key, part in space.spaces.items()]
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple) or len(value) != len(space.spaces):
            raise ValueError(f"it must be a tuple of {len(space.spaces)}")
        parts = [_vectors(part, one) for part, one in zip(space.spaces, value, strict=True)]
    else:
        array, shape = np.asarray(value), space.shape or ()
        if array.dtype.kind not in "biuf":
            raise ValueError(f"a part is of {array.dtype}: it must hold real numbers")
        if array.shape != shape and array.shape[1:] != shape:
            raise ValueError(f"a part has shape {array.shape}: it must be {shape}")
        rows = array.reshape(*array.shape[: array.ndim - len(shape)], -1)
        if isinstance(space, spaces.Box):
            return rows.astype(space.dtype)
        start = np.ravel(getattr(space, "start", 0))
        sizes = np.ravel(getattr(space, "nvec", 2 if space.shape else getattr(space, "n", 0)))
        numbers = rows - start
        if not ((numbers >= 0) & (numbers < sizes) & (numbers == np.floor(numbers))).all():
            raise ValueError(f"a part is {value!r}: it must be one of {space}")
        if isinstance(space, spaces.MultiBinary) or not one_hot:
            return rows
        columns = np.moveaxis(numbers.astype(np.int64), -1, 0)
        parts = [np.eye(n)[column] for n, column in zip(sizes, columns, strict=True)]
    if len({part.shape[:-1] for part in parts}) != 1:
        raise ValueError("its parts are batches of different lengths")
    return np.concatenate(parts, axis=-1)


def _space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    if isinstance(space, spaces.Dict):
        return {"Dict": {key: _space_to_json(part) for key, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"Tuple": [_space_to_json(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"Discrete": [int(space.n), int(space.start)]}
    if isinstance(space, spaces.MultiDiscrete):
        bounds = [space.nvec.tolist(), space.start.tolist()]
        return {"MultiDiscrete": bounds, "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiBinary):
        return {"MultiBinary": list(space.shape)}
    assert isinstance(space, spaces.Box)
    return {"Box": [space.low.tolist(), space.high.tolist()], "dtype": str(space.dtype)}


def _space_from_json(fields: dict[str, Any]) -> spaces.Space[Any]:
    (kind, value), dtype = next(iter(fields.items())), fields.get("dtype")
    if kind == "Dict":
        in_order = list(value) == sorted(value)
        require(in_order, f"the keys of a Dict are {list(value)}: they must be sorted")
        return spaces.Dict({key: _space_from_json(part) for key, part in value.items()})
    if kind == "Tuple":
        return spaces.Tuple([_space_from_json(part) for part in value])
    if kind == "Discrete":
        return spaces.Discrete(value[0], start=value[1])
    if kind == "MultiDiscrete":
        nvec, start = (np.array(one) for one in value)
        return spaces.MultiDiscrete(nvec, dtype=np.dtype(dtype).type, start=start)
    if kind == "MultiBinary":
        return spaces.MultiBinary(value[0] if len(value) == 1 else value)
    low, high = (np.array(bound, dtype=dtype) for bound in value)
    return spaces.Box(low, high, dtype=np.dtype(dtype).type)


@dataclass(frozen=True)
class Interface:
    """An environment's spaces as an agent works with them: vectors, and numbers or units."""

    observation_shape: tuple[int, ...]
    n_actions: int
    first_action: int  # the environment's number for the agent's action 0
    dtype: str = "float64"  # of remembered observations: "float32" if the environment's are
    n_values: int = 0  # values of a Discrete observation, each a cell; 0 for other spaces
    box: ActionBox | None = None  # of continuous actions, whose codevectors are chosen
    native: Native | None = None  # the environment's own spaces; None if they are Box and Discrete
    names: tuple[str, ...] = field(default=(), compare=False)  #: Of the d observed components
    action_names: tuple[str, ...] = field(default=(), compare=False)  #: Of actions or components

    def __post_init__(self) -> None:
        if not self.names:
            names = tuple(f"observation[{j}]" for j in range(self.n_features))
            object.__setattr__(self, "names", names)
        if not self.action_names:
            first, p = self.first_action, self.n_components
            numbered = (f"action {a}" for a in range(first, first + self.n_actions))
            names = tuple(f"action[{i}]" for i in range(p)) if p else tuple(numbered)
            object.__setattr__(self, "action_names", names)

    def __str__(self) -> str:
        if self.native is not None:
            return f"{self.native.observation_space} and {self.native.action_space}"
        said = f"{self.dtype} observations of shape {self.observation_shape}"
        if self.box is not None:
            return f"{said} and actions from {self.box.low} to {self.box.high}"
        return f"{said} and {self.n_actions} actions from {self.first_action}"

    @classmethod
    def of(cls, env: AnyEnv, codevectors: int | None = None) -> "Interface":
        """Read the spaces of an environment, or of those in a vector environment.

        ``codevectors`` is the number of them for each component of a continuous action; None for
        Discrete actions. Raises TypeError or ValueError if the spaces are not supported.
        """
        observations, actions = spaces_of(env)
        if not isinstance(observations, spaces.Box):
            raise TypeError(
                f"observation_space is {observations}: it must be a Box; "
                "gymnasium.wrappers.TransformObservation can make it one"
            )
        box = None
        if codevectors is not None:
            box = ActionBox.of(actions)
            n_actions, first_action = codevectors * len(box.low), 0
        elif isinstance(actions, spaces.Discrete):
            n_actions, first_action = int(actions.n), int(actions.start)
        else:
            raise TypeError(
                f"action_space is {actions}: it must be Discrete; gymnasium.wrappers."
                "TransformAction can offer a choice of a few continuous or combined actions as one"
            )
        refuse_empty(observations)
        dtype = "float32" if observations.dtype == np.float32 else "float64"
        n_values = int(getattr(env, "n_values", 0))
        if not isinstance(env, VectorEnv) and env.has_wrapper_attr("n_values"):
            n_values = int(env.get_wrapper_attr("n_values"))
        return cls(observations.shape, n_actions, first_action, dtype, n_values, box)

    @property
    def n_features(self) -> int:
        """Number of components of a flattened observation."""
        return math.prod(self.observation_shape)  # faster than NumPy's, at each decision

    @property
    def n_components(self) -> int:
        """Number of components of a continuous action; 0 where actions are numbers."""
        return 0 if self.box is None else len(self.box.low)

    @property
    def of_boxes(self) -> list[bool]:
        """Whether each component of an observation is of a Box, rather than of a category."""
        native = self.native
        return [True] * self.n_features if native is None else _of_boxes(native.observation_space)

    @property
    def boxed(self) -> bool:
        """Whether the environment's actions are continuous, or the agent's are values of such."""
        native = self.native
        gridded = native is not None and isinstance(native.action_space, spaces.Box)
        return self.box is not None or gridded

    @property
    def combinations(self) -> Array | None:
        """The actions offered, shape (n, p), where they combine components; else None."""
        native, n = self.native, self.n_actions
        if native is None or self.box or isinstance(native.action_space, spaces.Discrete):
            return None
        return native.actions(np.arange(n)).reshape(n, -1)

    def of_user(self, env: AnyEnv, bins: int | None) -> "Interface":
        """Return this with the spaces of the user's environment; ``bins``: values in a grid."""
        observations, actions = spaces_of(env)
        bins = None if self.box else bins
        direct = bins is None or isinstance(actions, spaces.Discrete)
        plain = isinstance(observations, spaces.Box) and direct
        return replace(self, native=None if plain else Native(observations, actions, bins))

    def named_as(self, other: "Interface | None") -> "Interface":
        """Return this with the names of another one, as far as that has as many."""
        if other is None:
            return self
        names = other.names if len(other.names) == len(self.names) else self.names
        alike = len(other.action_names) == len(self.action_names)
        actions = other.action_names if alike else self.action_names
        return replace(self, names=names, action_names=actions)

    def actions(self, acts: Array) -> Array:
        """Return the adapted environment's actions for numbers, (n,), or units, (n, p)."""
        return self.first_action + acts if self.box is None else self.box.actions(acts)

    def performed(self, acts: Array) -> Array:
        """Return the user's actions for numbers, (n,), or units, (n, p)."""
        if self.native is None or self.box is not None:
            return self.actions(acts)
        return self.native.actions(acts)

    def point(self, name: str, observation: Any) -> Array:
        """Return one of the user's observations as a vector, or raise ValueError."""
        refuse_reset(observation)
        if self.native is None or self.native.sees_vectors:
            return self.flatten(name, observation)
        points, _ = self.native.points(observation, name)
        if len(points) != 1:
            raise ValueError(f"{name} is a batch of {len(points)}: it must be one observation")
        return np.asarray(points[0])

    def batch(self, name: str, observations: Any) -> tuple[Array, bool]:
        """Return the user's observations as vectors, (n, d), and whether it is only one."""
        if self.native is not None and not self.native.sees_vectors:
            points, single = self.native.points(observations, name)
            return points.astype(self.dtype), single
        array, shape = np.asarray(observations), self.observation_shape
        if array.shape != shape and (array.ndim == 0 or array.shape[1:] != shape):
            raise ValueError(
                f"{name} has shape {array.shape}: it must be {shape}, or (n, "
                f"{', '.join(map(str, shape))}) for a batch"
            )
        return plain(array).reshape(-1, self.n_features), array.shape == shape

    def flatten(self, name: str, observation: Any) -> Array:
        """Return one observation as a vector; raise ValueError if its shape is wrong."""
        array = np.asarray(observation)
        if array.shape != self.observation_shape:
            raise ValueError(
                f"{name} has shape {array.shape}: it must be {self.observation_shape}, as in the "
                "environment's observation_space"
            )
        return flat(array)

    def vector(self, observation: Any) -> Array:
        """Return one observation as a vector; compiled code checks its length."""
        if type(observation) is np.ndarray and observation.ndim == 1:
            return observation if observation.dtype in _FLOATS else flat(observation)
        return self.flatten("observation", observation)

    def to_json(self) -> dict[str, Any]:
        """Return the fields in JSON's types."""
        native = None if self.native is None else self.native.to_json()
        return {**asdict(replace(self, native=None)), "native": native}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Interface":
        """Make the interface that :meth:`to_json` returned, or raise InvalidFileError."""
        shape, box = tuple(fields["observation_shape"]), fields.get("box")
        if box is not None:
            box = ActionBox(**{**box, **{key: tuple(box[key]) for key in ("low", "high", "shape")}})
            check_fields(box)
            p, bounds = math.prod(box.shape), (box.low, box.high)
            bounded = p > 0 and len(box.low) == len(box.high) == p and np.isfinite(bounds).all()
            right = bounded and np.less_equal(*bounds).all() and box.dtype in _DTYPES
            require(bool(right), f"box is {box}: it is no bounded box")
        native = fields.get("native")
        native = None if native is None else Native.from_json(native)
        named = {key: tuple(fields.get(key, ())) for key in ("names", "action_names")}
        require(all(named.values()), "names is missing")
        new = cls(**{**fields, "observation_shape": shape, "box": box, "native": native, **named})
        check_fields(new)
        require(min(shape, default=1) >= 1, f"observation_shape is {shape}")
        require(new.n_actions >= 1, f"n_actions is {new.n_actions}: it must be at least 1")
        first = new.first_action
        require(box is None or first == 0, f"first_action is {first}: of a box it must be 0")
        require(new.n_values >= 0, f"n_values is {new.n_values}: it must be at least 0")
        require(new.dtype in _DTYPES, f"dtype is {new.dtype!r}: it must be one of {_DTYPES}")
        n_names = new.n_components or new.n_actions
        sizes = len(new.names) == new.n_features and len(new.action_names) == n_names
        require(sizes and all(map(is_name, (*new.names, *new.action_names))), "names is bad")
        if native is not None:
            n = native.n_actions if box is None else new.n_actions
            right = native.n_features == new.n_features and n == new.n_actions
            require(right, "native has other spaces than observation_shape and n_actions say")
            discrete = isinstance(native.action_space, spaces.Discrete) and box is None
            start = int(native.action_space.start) if discrete else 0  # type: ignore[attr-defined]
            require(first == start, f"first_action is {first}: it must be {start}")
        return new


def refuse_reset(observation: Any) -> None:
    """Raise ValueError if an observation is what an environment's reset returned."""
    pair = type(observation) is tuple and len(observation) == 2
    if pair and type(observation[1]) is dict and not isinstance(observation[0], tuple | dict):
        raise ValueError(
            "observation is (observation, info), as env.reset() returns it: it must be the first "
            "of these"
        )


def spaces_of(env: AnyEnv) -> Spaces:
    """Return the observation and action space of an environment, or of those in a vector one."""
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def plain(array: Array) -> Array:
    """Return a contiguous array of float32 or float64, for compiled code, or raise ValueError."""
    if array.dtype not in _FLOATS:
        if array.dtype.kind not in "biuf":
            raise ValueError(f"observation is of {array.dtype}: it must hold real numbers")
        array = array.astype(np.float64)
    return np.ascontiguousarray(array)


def flat(array: Array) -> Array:
    """Return a contiguous array of one dimension, of float32 or float64, for compiled code."""
    return plain(array).reshape(-1)
