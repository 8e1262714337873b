"""Observation and action spaces: what the agent takes, and what it says about the rest."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from oda_rl._schema import check_fields, require
from oda_rl.agents.environments.native import Native, native_of

AnyEnv = gym.Env[Any, Any] | VectorEnv[Any, Any, Any]
Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_DTYPES = ("float32", "float64")


class Described(gym.Env[Any, Any]):
    """The spaces of an environment without the environment."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        spec: EnvSpec | None = None,
    ) -> None:
        self.observation_space, self.action_space, self.spec = observation_space, action_space, spec


class DescribedVector(VectorEnv[Any, Any, Any]):
    """The spaces of a vector environment without the environment."""

    def __init__(self, one: Described, num_envs: int) -> None:
        self.num_envs, self.spec = num_envs, one.spec
        self.single_observation_space = one.observation_space
        self.single_action_space = one.action_space
        self.observation_space = batch_space(one.observation_space, num_envs)
        self.action_space = batch_space(one.action_space, num_envs)


def described(env: Any) -> Any:
    """Return an environment that has the spaces, if what is given is a pair of spaces.

    >>> described((spaces.Discrete(4), spaces.Discrete(2))).action_space
    Discrete(2)
    """
    pair = isinstance(env, tuple) and len(env) == 2
    return Described(*env) if pair and all(isinstance(one, spaces.Space) for one in env) else env


@dataclass(frozen=True)
class ActionBox:
    """A bounded box of continuous actions, and its units: p numbers from -1 to 1."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, space: spaces.Space[Any]) -> "ActionBox":
        """Read an action space; raise ValueError if it is no bounded, non-empty Box of floats.

        Examples
        --------
        >>> box = ActionBox.of(spaces.Box(-2.0, 2.0, (1,)))
        >>> box.actions(np.array([[0.5], [1.2]])).tolist(), box.units(np.array([1.0]))
        ([[1.0], [2.0]], array([0.5]))
        """
        if not (
            isinstance(space, spaces.Box)
            and space.is_bounded()
            and space.dtype in _FLOATS
            and np.prod(space.shape) > 0
        ):
            raise ValueError(
                f"action_space is {space}: it must be a bounded Box of floats where actions are "
                "continuous; gymnasium.wrappers.RescaleAction or TransformAction can give it "
                "bounds, and FittedQAgent takes other actions"
            )
        low, high = (tuple(bound.ravel().tolist()) for bound in (space.low, space.high))
        return cls(low, high, space.shape, str(space.dtype))

    @property
    def bounds(self) -> npt.NDArray[np.float64]:
        """Lower and upper bounds, shape (2, p)."""
        return np.array([self.low, self.high])

    def actions(self, units: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return actions, (n, *shape), of units, (n, p); beyond -1 or 1, those at the bounds."""
        low, high = self.bounds
        actions = 0.5 * ((1.0 - units) * low + (1.0 + units) * high)
        inside: npt.NDArray[Any] = np.clip(actions, low, high).astype(self.dtype)
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
class Interface:
    """What an agent has to know of its environment's spaces."""

    observation_shape: tuple[int, ...]
    n_actions: int
    first_action: int
    """The environment's number for the agent's action 0."""
    dtype: str = "float64"
    """In which observations are remembered: float32 where the environment's are."""
    n_values: int = 0
    """Of an observation that is one of so many numbers, each a cell of its own; else 0."""
    box: ActionBox | None = None
    """Of continuous actions, if the agent chooses among codevectors of them."""
    native: Native | None = None
    """The environment's own spaces, unless vectors and numbered actions are what it has."""

    @classmethod
    def of(cls, env: AnyEnv, codevectors: int | None = None) -> "Interface":
        """Read the spaces of an environment, or of those in a vector environment.

        With ``codevectors``, so many for each component of a continuous action, actions are a box.
        Raises TypeError or ValueError if the spaces are not supported.
        """
        observations, actions = spaces_of(env)
        if not isinstance(observations, spaces.Box):
            raise TypeError(
                f"observation_space is {observations}: it must be a Box; gymnasium.wrappers."
                "FlattenObservation or TransformObservation can make it one"
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
        if int(np.prod(observations.shape)) == 0:
            raise ValueError(
                f"observation_space is {observations}: it must have at least one component"
            )
        single = observations.dtype == np.float32
        dtype = "float32" if single else "float64"
        n_values = _n_values(env)
        return cls(observations.shape, n_actions, first_action, dtype, n_values, box)

    @property
    def n_features(self) -> int:
        """Number of components of a flattened observation."""
        return math.prod(self.observation_shape)  # not NumPy's: it is asked at each decision

    @property
    def n_components(self) -> int:
        """Number of components of a continuous action; 0 where actions are numbers."""
        return 0 if self.box is None else len(self.box.low)

    def of_user(self, env: AnyEnv, bins: int | None) -> "Interface":
        """Return the same with the spaces of the environment that the user has.

        ``bins`` are offered of each component of a continuous action.
        """
        return replace(self, native=native_of(*spaces_of(env), None if self.box else bins))

    def actions(self, acts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what the adapted environment takes for numbers, (n,), or units, (n, p)."""
        return self.first_action + acts if self.box is None else self.box.actions(acts)

    def performed(self, acts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the user's actions for numbers, (n,), or units of the box, (n, p)."""
        if self.native is None or self.box is not None:
            return self.actions(acts)
        return self.native.actions(acts)

    def point(self, name: str, observation: Any) -> npt.NDArray[Any]:
        """Return one observation of the user's as a vector; raise ValueError if it is none."""
        if self.native is None or self.native.sees_vectors:
            return self.flatten(name, observation)
        points, _ = self.native.points(observation)
        if len(points) != 1:
            raise ValueError(f"{name} is a batch of {len(points)}: it must be one observation")
        return np.asarray(points[0])

    def is_one(self, observation: Any) -> bool:
        """Whether this is one observation of the user's, not a batch."""
        if self.native is None or self.native.sees_vectors:
            return bool(np.shape(observation) == self.observation_shape)
        return self.native.is_one(observation)

    def flatten(self, name: str, observation: Any) -> npt.NDArray[Any]:
        """Return one observation as a vector; raise ValueError if its shape is another."""
        array = np.asarray(observation)
        if array.shape != self.observation_shape:
            raise ValueError(
                f"{name} has shape {array.shape}: it must be {self.observation_shape}, as in the "
                "environment's observation_space"
            )
        return flat(array)

    def vector(self, observation: Any) -> npt.NDArray[Any]:
        """Return one observation as a vector, without a check where that is free of cost.

        Compiled code checks the length of what is already a vector.
        """
        if type(observation) is np.ndarray and observation.ndim == 1:
            return observation if observation.dtype in _FLOATS else flat(observation)
        return self.flatten("observation", observation)

    def to_json(self) -> dict[str, Any]:
        """Return the fields, for :meth:`from_json`."""
        native = None if self.native is None else self.native.to_json()
        return {**asdict(replace(self, native=None)), "native": native}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Interface":
        """Take over what :meth:`to_json` returned, or raise InvalidFileError."""
        shape, box = tuple(fields["observation_shape"]), fields.get("box")
        if box is not None:
            lists = {name: tuple(box[name]) for name in ("low", "high", "shape")}
            box = ActionBox(**{**box, **lists})
            check_fields(box)
            low, high = np.array(box.low, dtype=np.float64), np.array(box.high, dtype=np.float64)
            sizes = {len(low), len(high), math.prod(box.shape)}
            bounded = len(sizes) == 1 and len(low) > 0 and min(box.shape, default=1) > 0
            bounded = bounded and bool((np.isfinite(low) & np.isfinite(high) & (low <= high)).all())
            require(bounded and box.dtype in _DTYPES, f"box is {box}: it is no bounded box")
        native = fields.get("native")
        if native is not None:
            native = Native.from_json(native)
        own = cls(**{**fields, "observation_shape": shape, "box": box, "native": native})
        check_fields(own)
        require(min(shape, default=1) >= 1, f"observation_shape is {shape}")
        require(own.n_actions >= 1, f"n_actions is {own.n_actions}: it must be at least 1")
        first = own.first_action
        require(box is None or first == 0, f"first_action is {first}: of a box it must be 0")
        require(own.n_values >= 0, f"n_values is {own.n_values}: it must be at least 0")
        require(own.dtype in _DTYPES, f"dtype is {own.dtype!r}: it must be one of {_DTYPES}")
        if native is not None:
            n = native.n_actions if box is None else own.n_actions
            right = native.n_features == own.n_features and n == own.n_actions
            require(right, "native has other spaces than observation_shape and n_actions say")
        return own


def spaces_of(env: AnyEnv) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Return the observation and action spaces of an environment, or of those in a vector one."""
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def _n_values(env: AnyEnv) -> int:
    if isinstance(env, VectorEnv):
        return int(getattr(env, "n_values", 0))
    return int(env.get_wrapper_attr("n_values")) if env.has_wrapper_attr("n_values") else 0


def plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Contiguous, and float32 or float64: what compiled code takes."""
    if array.dtype not in _FLOATS:
        array = array.astype(np.float64)
    return np.ascontiguousarray(array)


def flat(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One dimension, and what compiled code takes."""
    return plain(array).reshape(-1)
