"""Logged transitions (arrays, data frames, Minari datasets) and their conversion for agents."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces

from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.agents.base.memory import ACTION, COMPONENTS, CUT, GOES_ON, MARK, REWARD, TERMINAL
from oda_rl.agents.environments.spaces import Interface, grid_of
from oda_rl.agents.environments.validation import FINITE, LARGEST_REWARD, SMALL, action_index
from oda_rl.diagram import LARGEST

FIELDS = (
    "observations", "actions", "rewards", "next_observations", "terminated", "truncated",
)  # fmt: skip
_MIN_STEPS, _MIN_CONTINUED = 50, 0.05  # of steps that end no episode, and the share continued
_NEAR = 0.1  # standard deviations
_ROUNDING = 1e-6  # tolerance of distances from the grid, relative and absolute


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
        From the environment's action space.
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
    _columns: ClassVar[str] = ""  # names of those of a frame, for messages

    def __post_init__(self) -> None:
        n = np.asarray(self.rewards).size
        if n == 0:
            raise ValueError("rewards is empty: there must be at least one step")
        rewards = _row("rewards", self.rewards, n)
        checked: dict[str, Any] = {"rewards": rewards}
        for name in ("observations", "next_observations", "actions"):
            checked[name] = _batch(name, getattr(self, name), n)
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
        if hasattr(given, "columns") or hasattr(given, "column_names"):
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
    ) -> "Transitions":
        """Read a pandas frame, or a table of Apache Arrow, with a row for each step.

        The next observation is in columns with the prefix ``next_``: ``next_position`` for
        ``position``. Rewards and flags are in ``reward``, ``terminated`` and, if episodes were cut
        off, ``truncated``.

        Parameters
        ----------
        frame : pandas.DataFrame or pyarrow.Table
        observations : str or sequence of str, optional
            Columns of the observation's components, in order; a string if the observation is one
            number. By default all others that have a counterpart with ``next_``.
        actions : str or sequence of str
            Column of the action, or of each of its components.

        Raises
        ------
        ValueError
            If a column is missing, or as in the class.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"place": [0.0, 0.1], "action": [1, 1], "reward": [0, 1],
        ...     "next_place": [0.1, 0.2], "terminated": [False, True]})
        >>> Transitions.from_frame(frame).next_observations
        array([[0.1],
               [0.2]])
        """
        if hasattr(frame, "column_names"):  # of Apache Arrow
            frame = frame.to_pandas()
        names = [str(name) for name in frame.columns]
        before = observations
        if before is None:
            other = {"reward", "terminated", "truncated", *np.atleast_1d(actions).tolist()}
            before = [name for name in names if f"next_{name}" in names and name not in other]
        if len(before) == 0:
            _require("frame", names, ["an observation and the next one, such as x and next_x"])
        after = f"next_{before}" if isinstance(before, str) else [f"next_{name}" for name in before]
        columns = [before, actions, "reward", after, "terminated"]
        columns += ["truncated"] if "truncated" in names else []
        _require("frame", names, np.hstack(columns).tolist())
        made = cls(*(_array(frame[one if isinstance(one, str) else list(one)]) for one in columns))
        object.__setattr__(made, "_columns", f" (columns {', '.join(np.atleast_1d(before))})")
        return made

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
            rewards = np.asarray(episode.rewards)
            parts.append((before, actions, rewards, after, terminated, truncated))
        if not parts:
            raise ValueError("dataset has no steps: there must be at least one")
        return cls(*(_map(lambda *arrays: np.concatenate(arrays), *column)
                     for column in zip(*parts, strict=True)))  # fmt: skip


def _require(what: str, given: Any, required: Sequence[str]) -> None:
    if missing := [name for name in required if name not in given]:
        names = ", ".join(map(str, given))
        raise ValueError(f"{what} has {names}: there must be {', '.join(missing)}, too")


def _array(columns: Any) -> Array:
    """Return columns of a frame, with pandas' own types as numbers."""
    try:
        array = np.asarray(columns)
        return columns.to_numpy(np.float64, na_value=np.nan) if array.dtype == object else array
    except (TypeError, ValueError):
        return array  # texts, which are refused by name


def _row(name: str, given: Any, n: int) -> FloatArray:
    """Return numbers, shape (n,), or raise ValueError."""
    array = np.asarray(given)
    if array.shape != (n,):
        raise ValueError(f"{name} has shape {array.shape}: it must be ({n},), a number a step")
    if array.dtype.kind not in "biuf":
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
    kinds = (np.ndarray, Mapping, tuple)
    if isinstance(given, tuple) and any(isinstance(part, kinds) for part in given):
        return tuple(_batch(f"{name}[{i}]", part, n) for i, part in enumerate(given))
    array = np.asarray(given)
    if array.ndim == 0 or len(array) != n:
        raise ValueError(f"{name} has shape {array.shape}: it must have {n} rows, as rewards have")
    return array


def _map(convert: Callable[..., Any], *batches: Any) -> Any:
    """Convert arrays, or the corresponding arrays of dictionaries or tuples."""
    first = batches[0]
    if isinstance(first, Mapping):
        return {key: _map(convert, *(batch[key] for batch in batches)) for key in first}
    if isinstance(first, tuple):
        return tuple(_map(convert, *parts) for parts in zip(*batches, strict=True))
    return convert(*map(np.asarray, batches))


class Steps(NamedTuple):
    """n steps of trajectories."""

    before: FloatArray  # observations as vectors, shape (n, d)
    actions: FloatArray  # numbers from 0, shape (n, 1), or units, shape (n, p)
    rewards: FloatArray  # shape (n,)
    after: FloatArray  # next observations as vectors, shape (n, d)
    terminated: BoolArray  # shape (n,)
    over: BoolArray  # whether the episode was over, terminated or not, shape (n,)


def read_steps(given: Transitions, interface: Interface) -> Steps:
    """Return transitions as vectors and numbers, or raise ValueError."""
    before = _vectors(f"observations{given._columns}", given.observations, interface)
    after = _vectors(f"next_observations{given._columns}", given.next_observations, interface)
    if interface.box is None:
        actions = _numbers(given.actions, interface)
    else:
        actions = _each(given.actions, interface.box.units, interface.n_components)
    over = given.terminated | given.truncated
    _warn_of_gaps(before, after, over)
    return Steps(before, actions, given.rewards, after, given.terminated, over)


def _warn_of_gaps(before: FloatArray, after: FloatArray, over: BoolArray) -> None:
    """Warn if steps begin near the end of those before, and hardly any exactly at one's end."""
    rows = np.flatnonzero(~over[:-1])
    gaps = np.abs(before[rows + 1] - after[rows])
    if len(rows) < _MIN_STEPS or (np.median(gaps, axis=0) > _NEAR * before.std(axis=0)).any():
        return
    starts = {row.tobytes() for row in before + 0.0}
    if np.mean([row.tobytes() in starts for row in after[rows] + 0.0]) < _MIN_CONTINUED:
        warnings.warn(
            f"next_observations differ by {gaps.mean():.1g} from the observations that follow, so "
            f"{len(rows):,} steps are taken for episodes of their own that were cut off: give both "
            "in the same precision and scale",
            stacklevel=5,
        )


def _vectors(name: str, batch: Any, interface: Interface) -> FloatArray:
    """Return a batch of the user's observations as vectors, shape (n, d), or raise ValueError."""
    if isinstance(batch, np.ndarray) and batch.dtype == object:  # dictionaries or tuples
        points = np.concatenate([interface.batch(name, one)[0] for one in batch])
    else:
        points, single = interface.batch(name, batch)
        if single:
            raise ValueError(f"{name} is {batch!r:.80}: it must have a row for each step")
    points = points.astype(np.float64)
    wrong = np.flatnonzero(~(np.abs(points) <= LARGEST).all(axis=1))
    if len(wrong):
        k = wrong[0]
        raise ValueError(f"{name}[{k}] is {points[k].tolist()!r}, which is not finite: {FINITE}")
    return points


def _numbers(actions: Array, interface: Interface) -> FloatArray:
    """Return numbers of actions, or of the nearest on a grid, shape (n, 1), or raise ValueError."""
    native = interface.native
    if native is None or isinstance(native.action_space, spaces.Discrete):
        first, n = interface.first_action, interface.n_actions
        right = f"it must be an integer from {first} to {first + n - 1}"
        if actions.ndim != 1 or actions.dtype.kind not in "biuf":
            raise ValueError(
                f"actions has shape {actions.shape} and dtype {actions.dtype}: it must have shape "
                f"({len(actions)},), and each {right.removeprefix('it must ')}"
            )
        numbers = actions.astype(np.float64) - first
        wrong = np.flatnonzero(~((numbers >= 0) & (numbers < n) & (numbers == np.floor(numbers))))
        if len(wrong):
            k = wrong[0]
            raise ValueError(f"actions[{k}] is {actions[k].tolist()!r}: {right}")
        return numbers[:, None]
    if isinstance(native.action_space, spaces.Box) and native.bins is not None:
        grid = grid_of(native.action_space, native.bins)
        return _nearest(actions, grid)[:, None].astype(np.float64)
    return _each(actions, lambda action: action_index(action, interface), 1)


def _nearest(actions: Array, grid: list[FloatArray]) -> IntArray:
    """Return the numbers of the nearest points of a grid, shape (n,), or raise ValueError."""
    n, p = len(actions), len(grid)
    if actions.dtype.kind not in "biuf" or actions.size != n * p:
        raise ValueError(
            f"actions has shape {actions.shape} and dtype {actions.dtype}: it must hold {p} "
            "numbers for each step"
        )
    rows, numbers = actions.reshape(n, p).astype(np.float64), np.zeros(n, dtype=np.int64)
    for j, values in enumerate(grid):
        gaps = np.abs(rows[:, j, None] - values)
        chosen = gaps.argmin(axis=1)
        space = np.diff(values).max(initial=0.0)  # of integers it differs
        far = ~(gaps.min(axis=1) <= (0.5 + _ROUNDING) * space + _ROUNDING)
        if far.any():
            k = int(far.argmax())
            raise ValueError(
                f"actions[{k}] is {actions[k].tolist()!r}: each component must be within "
                f"{0.5 * space:g} of one of the values that the agent chooses from, which are "
                f"{values.tolist()} of component {j}"
            )
        numbers = numbers * len(values) + chosen
    return numbers


def _each(actions: Any, convert: Callable[[Any], Any], size: int) -> FloatArray:
    """Convert each action to ``size`` numbers; errors say which action was wrong."""
    converted = np.empty((len(actions), size))
    for k, action in enumerate(actions):
        try:
            converted[k] = convert(action)
        except ValueError as error:
            raise ValueError(f"actions[{k}]: {error}") from error
    return converted


def trajectories(
    before: FloatArray, after: FloatArray, over: BoolArray, first: BoolArray | None = None
) -> list[IntArray]:
    """Return the rows of each trajectory, in which each step begins where the last one ended.

    Trajectories may be interleaved. ``before`` and ``after`` have shape (n, d); ``over`` and
    ``first``, shape (n,), say whether an episode ended, or began, with a step.
    """
    parts: list[list[int]] = []
    open_ends: dict[bytes, list[int]] = {}  # unfinished trajectories, by their last observation
    for row in range(len(before)):
        part = None
        if first is None or not first[row]:
            part = open_ends.pop((before[row] + 0.0).tobytes(), None)
        if part is None:
            part = []
            parts.append(part)
        part.append(row)
        if not over[row]:
            open_ends[(after[row] + 0.0).tobytes()] = part
    return [np.array(rows) for rows in parts]


def as_rows(
    given: Steps, parts: list[IntArray], n_components: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Return trajectories as rows of a :class:`oda_rl.agents.base.memory.Memory`.

    ``parts`` are those of :func:`trajectories`; ``n_components`` is 0 for discrete actions. Returns
    observations, shape (m, d), and steps, shape (m, 3 + n_components).
    """
    order, last = np.concatenate(parts), np.array([rows[-1] for rows in parts])
    ends = np.cumsum([len(rows) + 1 for rows in parts]) - 1
    m = len(order) + len(parts)
    taken = np.ones(m, dtype=np.bool_)
    taken[ends] = False
    observations = np.empty((m, given.before.shape[1]))
    observations[taken], observations[ends] = given.before[order], given.after[last]
    steps = np.zeros((m, COMPONENTS + n_components))
    steps[taken, REWARD], steps[taken, MARK] = given.rewards[order], GOES_ON
    if n_components:
        steps[taken, COMPONENTS:] = given.actions[order]
    else:
        steps[taken, ACTION] = given.actions[order, 0]
    steps[ends, ACTION] = -1.0
    steps[ends, MARK] = np.where(given.terminated[last], TERMINAL, CUT)
    return observations, steps
