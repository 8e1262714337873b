"""Logged transitions from arrays, data frames and Minari datasets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from oda_rl._types import BoolArray, FloatArray
from oda_rl.agents.environments.validation import LARGEST_REWARD, SMALL

FIELDS = (
    "observations", "actions", "rewards", "next_observations", "terminated", "truncated",
)  # fmt: skip
_NEXT = "next_"  # begins the name of a frame's column for what a step led to
_NUMBERS = "biuf"  # kinds of arrays


@dataclass(frozen=True, eq=False)
class Transitions:
    """n logged steps, in order, for ``FittedQAgent.fit`` and ``World.fit``.

    A step continues the episode of an earlier one that ended where it begins, unless that episode
    was over; so steps of several environments may be mixed. The agent checks whether observations
    and actions fit its environment.

    Parameters
    ----------
    observations, next_observations : array_like, shape (n, ...)
        Before and after each step, of the environment's space; for a Dict or Tuple space, a
        dictionary or tuple of such arrays.
    actions : array_like, shape (n,) or (n, ...)
        Of the environment's space.
    rewards : array_like, shape (n,)
        Finite.
    terminated : array_like of bool, shape (n,)
        Whether the episode terminated with the step: later values are 0.
    truncated : array_like of bool, shape (n,), optional
        Whether the episode was cut off, for example by a time limit. By default none was.

    Raises
    ------
    ValueError
        If lengths differ, a reward is not finite or a flag is not True or False.

    Examples
    --------
    >>> taken = Transitions([[0.0], [0.1]], [1, 0], [0, 1], [[0.1], [0.0]], [False, True])
    >>> len(taken), taken.truncated
    (2, array([False, False]))
    """

    observations: Any
    actions: Any
    rewards: FloatArray
    next_observations: Any
    terminated: BoolArray
    truncated: BoolArray = None  # type: ignore[assignment]  # one of n comes in its place

    def __post_init__(self) -> None:
        n = _length(self.observations)
        if n == 0:
            raise ValueError("observations has no rows: there must be at least one step")
        checked: dict[str, Any] = {}
        for name in ("observations", "next_observations", "actions"):
            checked[name] = _batch(name, getattr(self, name), n)
        checked["rewards"] = rewards = _row("rewards", self.rewards, n)
        wrong = ~(np.abs(rewards) <= LARGEST_REWARD)
        if wrong.any():
            k = int(wrong.argmax())
            raise ValueError(f"rewards[{k}] is {rewards[k]}: {SMALL}")
        truncated = np.zeros(n, dtype=np.bool_) if self.truncated is None else self.truncated
        for name, flags in (("terminated", self.terminated), ("truncated", truncated)):
            checked[name] = _flags(name, flags, n)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.rewards)

    @classmethod
    def of(cls, given: Any) -> "Transitions":
        """Convert any supported form of transitions.

        Parameters
        ----------
        given
            Transitions; a sequence of the parameters of the class, in order, or a dictionary of
            them; a data frame for :meth:`from_frame`; or a Minari dataset.

        Raises
        ------
        TypeError
            If it is of another type.
        ValueError
            If arrays are missing or unknown, and as in the class.

        Examples
        --------
        >>> len(Transitions.of({"observations": [0, 2], "actions": [1, 1], "rewards": [0.0, 1.0],
        ...                     "next_observations": [2, 3], "terminated": [False, True]}))
        2
        """
        if isinstance(given, Transitions):
            return given
        if hasattr(given, "iterate_episodes"):
            return cls.from_minari(given)
        if hasattr(given, "columns"):
            return cls.from_frame(given)
        if isinstance(given, Mapping):
            _require("transitions", given, FIELDS[:-1])
            unknown = sorted(map(str, set(given) - set(FIELDS)))
            if unknown:
                raise ValueError(f"transitions has {unknown}: it may have {', '.join(FIELDS)}")
            return cls(**given)
        if isinstance(given, Sequence) and not isinstance(given, str):
            if len(given) not in (len(FIELDS) - 1, len(FIELDS)):
                raise ValueError(
                    f"transitions has {len(given)} arrays: they must be {', '.join(FIELDS)}"
                )
            return cls(*given)
        raise TypeError(
            f"transitions is of type {type(given).__name__}: it must be Transitions, the arrays "
            f"{', '.join(FIELDS)}, a data frame or a Minari dataset"
        )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        observations: str | Sequence[str] | None = None,
        actions: str | Sequence[str] = "action",
        rewards: str = "reward",
        terminated: str = "terminated",
        truncated: str | None = "truncated",
    ) -> "Transitions":
        """Read a pandas frame with a row for each step.

        The next observation is in columns with the prefix ``next_``: ``next_position`` for
        ``position``.

        Parameters
        ----------
        frame : pandas.DataFrame
        observations : str or sequence of str, optional
            Columns of the observation's components, in order; a string if the observation is one
            number. By default all columns that have a counterpart with ``next_``.
        actions : str or sequence of str
            Column of the action, or of each of its components.
        rewards, terminated : str
        truncated : str or None
            None if no episode was cut off, as where there is no column "truncated".

        Raises
        ------
        ValueError
            If a column is missing, or as in the class.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"place": [0.0, 0.1], "action": [1, 1], "reward": [0, 1],
        ...     "next_place": [0.1, 0.2], "terminated": [False, True], "truncated": False})
        >>> Transitions.from_frame(frame).next_observations
        array([[0.1],
               [0.2]])
        """
        names = [str(name) for name in frame.columns]
        if truncated == "truncated" and truncated not in names:
            truncated = None
        before = observations
        if before is None:
            before = [name for name in names if _NEXT + name in names]
            if not before:
                _miss("frame", ["an observation and the next one, such as x and next_x"], names)
        after = _NEXT + before if isinstance(before, str) else [_NEXT + name for name in before]
        columns = [before, actions, rewards, after, terminated, *([truncated] if truncated else [])]
        required = [name for one in columns for name in ([one] if isinstance(one, str) else one)]
        _require("frame", names, required)
        return cls(*(np.asarray(frame[one if isinstance(one, str) else list(one)])
                     for one in columns))  # fmt: skip

    @classmethod
    def from_minari(cls, dataset: Any) -> "Transitions":
        """Read all episodes of a Minari dataset (install the extra ``offline``).

        An episode that neither terminated nor was truncated counts as truncated at its end.

        Parameters
        ----------
        dataset : minari.MinariDataset
            For example from ``minari.load_dataset``.

        Raises
        ------
        ValueError
            If it has no steps.
        """
        parts: list[tuple[Any, ...]] = []
        for episode in dataset.iterate_episodes():
            n = len(episode.rewards)
            if n == 0:
                continue
            terminated = np.asarray(episode.terminations, dtype=np.bool_)
            truncated = np.array(episode.truncations, dtype=np.bool_)
            truncated[-1] |= not terminated[-1]
            before = _map(lambda array, n=n: array[:n], episode.observations)
            after = _map(lambda array, n=n: array[1 : n + 1], episode.observations)
            actions = _map(lambda array, n=n: array[:n], episode.actions)
            parts.append(
                (before, actions, np.asarray(episode.rewards), after, terminated, truncated)
            )
        if not parts:
            raise ValueError("dataset has no steps: there must be at least one")
        return cls(*(_map(lambda *arrays: np.concatenate(arrays), *column)
                     for column in zip(*parts, strict=True)))  # fmt: skip


def _require(what: str, given: Any, required: Sequence[str]) -> None:
    missing = [name for name in required if name not in given]
    if missing:
        _miss(what, missing, list(map(str, given)))


def _miss(what: str, missing: Sequence[str], given: Sequence[str]) -> NoReturn:
    raise ValueError(f"{what} has {', '.join(given)}: there must be {', '.join(missing)}, too")


def _length(given: Any) -> int:
    """Return the number of rows of the first array."""
    if isinstance(given, Mapping):
        given = tuple(given.values())
    if _is_parts(given):
        return _length(given[0])
    array = np.asarray(given)
    if array.ndim == 0:
        raise ValueError(f"observations is {given!r}: it must have a row for each step")
    return len(array)


def _is_parts(given: Any) -> bool:
    """Whether this is a tuple of arrays, for a Tuple space, rather than an array."""
    kinds = (np.ndarray, Mapping, tuple)
    return isinstance(given, tuple) and any(isinstance(part, kinds) for part in given)


def _row(name: str, given: Any, n: int) -> FloatArray:
    """Return numbers, shape (n,), or raise ValueError."""
    array = np.asarray(given)
    if array.shape != (n,):
        raise ValueError(f"{name} has shape {array.shape}: it must be ({n},), as observations have")
    if array.dtype.kind not in _NUMBERS:
        raise ValueError(f"{name} has dtype {array.dtype}: it must hold numbers")
    return array.astype(np.float64)


def _flags(name: str, given: Any, n: int) -> BoolArray:
    flags = _row(name, given, n)
    wrong = (flags != 0.0) & (flags != 1.0)
    if wrong.any():
        k = int(wrong.argmax())
        raise ValueError(f"{name}[{k}] is {flags[k]}: it must be True or False")
    return flags > 0.0


def _batch(name: str, given: Any, n: int) -> Any:
    """Return arrays of n rows, or dictionaries and tuples of them, or raise ValueError."""
    if isinstance(given, Mapping):
        return {key: _batch(f"{name}[{key!r}]", part, n) for key, part in given.items()}
    if _is_parts(given):
        return tuple(_batch(f"{name}[{i}]", part, n) for i, part in enumerate(given))
    array = np.asarray(given)
    if array.ndim == 0 or len(array) != n:
        right = ", ".join(map(str, (n, *array.shape[1:]))) + ("," if array.ndim < 2 else "")
        raise ValueError(
            f"{name} has shape {array.shape}: it must be ({right}), as observations have rows"
        )
    return array


def _map(convert: Callable[..., Any], *batches: Any) -> Any:
    """Convert arrays, or the corresponding arrays of dictionaries or tuples."""
    first = batches[0]
    if isinstance(first, Mapping):
        return {key: _map(convert, *(batch[key] for batch in batches)) for key in first}
    if isinstance(first, tuple):
        return tuple(_map(convert, *parts) for parts in zip(*batches, strict=True))
    return convert(*map(np.asarray, batches))
