"""The spaces of an environment as its user has them: observations taken in, actions given out.

Inside, an agent sees vectors and numbers its actions, for which
:mod:`oda_rl.agents.environments.adaptation` is there. Whoever calls it has what the environment
has: numbers, dictionaries, torques.
"""

import math
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from oda_rl._schema import require
from oda_rl.agents.environments.choices import action_choices, grid_of

_Json = dict[str, Any]
_MOST_BINS = 1000  # as there may be actions
_KEY = re.compile(r"\w[\w -]{0,39}")  # of a Dict, if it can be part of a component's name


def canonical(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return an equal space in which the keys of each Dict are sorted.

    Equal Dict spaces may have their keys in different orders, and Gymnasium flattens them
    differently. Vectors always follow this order.

    Raises
    ------
    TypeError
        If a key is not a string.

    Examples
    --------
    >>> space = spaces.Dict(speed=spaces.Discrete(2), place=spaces.Discrete(3))
    >>> list(space), list(canonical(space)), space == canonical(space)
    (['speed', 'place'], ['place', 'speed'], True)
    """
    if isinstance(space, spaces.Dict):
        if not all(isinstance(key, str) for key in space.spaces):
            raise TypeError(f"observation_space is {space}: the keys of a Dict must be strings")
        parts = sorted(space.spaces.items())
        return spaces.Dict(OrderedDict((key, canonical(part)) for key, part in parts))
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([canonical(part) for part in space.spaces])
    return space


@dataclass(frozen=True)
class Native:
    """Spaces that are not what an agent works with; Dict observations in canonical order.

    Examples
    --------
    >>> native = Native(spaces.Discrete(3), spaces.Box(-2.0, 2.0, (1,)), bins=5)
    >>> native.points(2)
    (array([[2.]]), True)
    >>> native.actions(np.array([0, 3])), native.number(np.float32([1.0]))
    (array([[-2.],
           [ 1.]], dtype=float32), 3)
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    bins: int | None
    """Values of each component of a continuous action; None where the agent needs no grid."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "observation_space", canonical(self.observation_space))

    @property
    def names(self) -> Sequence[str] | None:
        """Names of the components of an observation that is a Dict, by its keys; else None.

        >>> parts = {"at": spaces.Box(-1.0, 1.0, (2,)), "arm": spaces.Dict(on=spaces.Discrete(2))}
        >>> Native(spaces.Dict(parts), spaces.Discrete(2), None).names
        ['arm.on[0]', 'arm.on[1]', 'at[0]', 'at[1]']
        """
        if not isinstance(self.observation_space, spaces.Dict):
            return None
        names = list(_named(self.observation_space, ""))
        readable = len(set(names)) == len(names) and "" not in names
        return names if readable else None

    @property
    def n_features(self) -> int:
        """Components of an observation as a vector."""
        space = self.observation_space
        return 1 if isinstance(space, spaces.Discrete) else int(spaces.flatdim(space))

    @property
    def n_actions(self) -> int | None:
        """Actions that are offered; None where they need no numbers, or cannot have any."""
        space = self.action_space
        if isinstance(space, spaces.Discrete):
            return int(space.n)
        if isinstance(space, spaces.MultiDiscrete):
            return int(math.prod(space.nvec.ravel().tolist()))
        shape: tuple[int, ...] = space.shape or ()
        if isinstance(space, spaces.MultiBinary):
            return int(2 ** math.prod(shape))
        return None if self.bins is None else int(self.bins ** math.prod(shape))

    @property
    def sees_vectors(self) -> bool:
        """Whether observations are arrays as they are."""
        return isinstance(self.observation_space, spaces.Box)

    @property
    def offers_combinations(self) -> bool:
        """Whether actions are other than numbers."""
        return not isinstance(self.action_space, spaces.Discrete)

    @property
    def grid(self) -> list[npt.NDArray[Any]] | None:
        """Values that are offered of each component of a continuous action; else None."""
        space = self.action_space
        if not isinstance(space, spaces.Box) or self.bins is None:
            return None
        return grid_of(space, self.bins)

    def points(self, observation: Any) -> tuple[npt.NDArray[Any], bool]:
        """Return an observation, or a batch of them, as vectors, and whether it is one.

        A batch has one more leading dimension, in each part of a Dict or Tuple. What is an array of
        vectors already, as ``codevectors`` are, stays so.

        Raises
        ------
        ValueError
            If the observation is not of the space.
        """
        space = self.observation_space
        if self._are_vectors(observation):
            return np.atleast_2d(observation), np.ndim(observation) == 1
        try:
            n = _batch_size(space, observation)
            each = [observation] if n is None else [_item(space, observation, i) for i in range(n)]
            rows = [self._vector(one) for one in each]
        except (TypeError, ValueError, IndexError, KeyError) as error:
            raise ValueError(f"{self._unlike(observation)} ({error})") from error
        return np.array(rows, dtype=np.float64).reshape(len(each), -1), n is None

    def is_one(self, observation: Any) -> bool:
        """Whether this is one observation, not a batch; raise ValueError if it is neither."""
        return self.points(observation)[1]

    def actions(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the environment's actions for numbers from 0, shape (n, *action shape)."""
        return self._choices[numbers]

    def number(self, action: Any) -> int:
        """Return the number of an action from 0; raise ValueError if it is none that is offered."""
        array = np.asarray(action)
        found = None
        if array.shape == self._choices.shape[1:]:
            found = self._numbers.get(array.astype(self._choices.dtype).tobytes())
        if found is None:
            raise ValueError(
                f"action is {action!r}: it must be one of the {len(self._choices)} actions of "
                f"{self.action_space} that the agent chooses from, as act returns them"
            )
        return found

    def to_json(self) -> _Json:
        """Return the spaces, for :meth:`from_json`."""
        return {
            "observation_space": _described(self.observation_space),
            "action_space": _described(self.action_space),
            "bins": self.bins,
        }

    @classmethod
    def from_json(cls, fields: _Json) -> "Native":
        """Take over what :meth:`to_json` returned."""
        seen, taken = _made(fields["observation_space"]), _made(fields["action_space"])
        require(fields.keys() == {"observation_space", "action_space", "bins"}, "native is another")
        bins = fields["bins"]
        right = bins is None or (type(bins) is int and 2 <= bins <= _MOST_BINS)
        require(right, f"native.bins is {bins!r}")
        return cls(seen, taken, bins)

    @cached_property
    def _choices(self) -> npt.NDArray[Any]:
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
        length = spaces.flatdim(self.observation_space)
        return shape != self.observation_space.shape and shape in (
            (length,),
            ((*shape[:1], length)),
        )

    def _vector(self, observation: Any) -> npt.NDArray[Any]:
        space = self.observation_space
        if not isinstance(space, spaces.Discrete):
            return np.asarray(spaces.flatten(space, observation))
        return np.array([observation])

    def _unlike(self, observation: Any) -> str:
        text = repr(observation)
        shown = text if len(text) <= 200 else f"{text[:200]}…"
        return f"observation is {shown}: it must be one of {self.observation_space}, or a batch"


def native_of(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], bins: int | None
) -> Native | None:
    """Return what is to be translated, or None: a Box, and actions by numbers or codevectors."""
    acts = bins is None or isinstance(action_space, spaces.Discrete)
    if isinstance(observation_space, spaces.Box) and acts:
        return None
    return Native(observation_space, action_space, bins)


def _named(space: spaces.Space[Any], name: str) -> Iterator[str]:
    """Yield the names of a space's components as vectors have them; empty for unreadable keys."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            full = f"{name}.{key}" if name else key
            yield from _named(part, full) if _KEY.fullmatch(key) else [""]
    elif isinstance(space, spaces.Tuple):
        for i, part in enumerate(space.spaces):
            yield from _named(part, f"{name}[{i}]")
    elif space.shape == () and not isinstance(space, spaces.Discrete):
        yield name
    else:
        yield from (f"{name}[{j}]" for j in range(int(spaces.flatdim(space))))


def _batch_size(space: spaces.Space[Any], value: Any) -> int | None:
    """Return the length of a batch, or None if it is one observation."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            raise ValueError(f"it must be a dictionary with the keys {', '.join(space.spaces)}")
        sizes = {_batch_size(part, value[key]) for key, part in space.spaces.items()}
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple) or len(value) != len(space.spaces):
            raise ValueError(f"it must be a tuple of {len(space.spaces)}")
        sizes = {_batch_size(part, one) for part, one in zip(space.spaces, value, strict=True)}
    else:
        shape, expected = np.shape(value), space.shape or ()
        if shape != expected and shape[1:] != expected:
            raise ValueError(f"a part has shape {shape}: it must be {expected}")
        _check_numbers(space, value)
        sizes = {None if shape == expected else shape[0]}
    if len(sizes) != 1:
        raise ValueError("its parts are batches of different lengths")
    return sizes.pop()


def _check_numbers(space: spaces.Space[Any], values: Any) -> None:
    """Raise ValueError for what Gymnasium would flatten to something else, or to nothing."""
    if isinstance(space, spaces.Discrete):
        first, n = np.asarray(space.start), np.asarray(space.n)
    elif isinstance(space, spaces.MultiDiscrete):
        first, n = space.start, space.nvec
    elif isinstance(space, spaces.MultiBinary):
        first, n = np.asarray(0), np.asarray(2)
    else:
        return
    numbers = np.asarray(values) - first
    if not ((numbers >= 0) & (numbers < n) & (numbers == np.floor(numbers))).all():
        raise ValueError(f"a part is {values!r}: it must be one of {space}")


def _item(space: spaces.Space[Any], batch: Any, i: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _item(part, batch[key], i) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_item(part, one, i) for part, one in zip(space.spaces, batch, strict=True))
    return np.asarray(batch)[i]


def _described(space: spaces.Space[Any]) -> _Json:
    """Say what a space is, in JSON's types."""
    if isinstance(space, spaces.Dict):
        return {"Dict": {key: _described(part) for key, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"Tuple": [_described(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"Discrete": [int(space.n), int(space.start)]}
    if isinstance(space, spaces.MultiDiscrete):
        return {
            "MultiDiscrete": [space.nvec.tolist(), space.start.tolist()],
            "dtype": str(space.dtype),
        }
    if isinstance(space, spaces.MultiBinary):
        return {"MultiBinary": list(space.shape)}
    assert isinstance(space, spaces.Box)
    return {"Box": [space.low.tolist(), space.high.tolist()], "dtype": str(space.dtype)}


def _made(fields: _Json) -> spaces.Space[Any]:
    """Make the space that :func:`_described` described."""
    (kind, value), dtype = next(iter(fields.items())), fields.get("dtype")
    if kind == "Dict":
        sound = list(value) == sorted(value)  # as vectors have them
        require(sound, f"the keys of a Dict are {list(value)}: they must be sorted")
        return spaces.Dict({key: _made(part) for key, part in value.items()})
    if kind == "Tuple":
        return spaces.Tuple([_made(part) for part in value])
    if kind == "Discrete":
        return spaces.Discrete(value[0], start=value[1])
    if kind == "MultiDiscrete":
        nvec, start = (np.array(one) for one in value)
        return spaces.MultiDiscrete(nvec, dtype=np.dtype(dtype).type, start=start)
    if kind == "MultiBinary":
        return spaces.MultiBinary(value[0] if len(value) == 1 else value)
    low, high = (np.array(bound, dtype=dtype) for bound in value)
    return spaces.Box(low, high, dtype=np.dtype(dtype).type)
