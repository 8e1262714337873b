"""Records of training: its episodes, and the cells at each temperature level."""

import json
from dataclasses import dataclass

import numpy as np

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.files.schema import MAX, Member, flags, real, require, whole

MAX_GROUPS = 20_000
RECENT = 20  # episodes
_MAX_BLOCKS = 64  # of episodes, before they are joined
_COUNT, _MEAN, _BEST, _STEPS, _SECONDS = range(5)


class EpisodeLog:
    """Return, length and time of training episodes; of many, older ones in groups."""

    def __init__(self, groups: FloatArray | None = None) -> None:
        self._blocks = [np.empty((0, 5)) if groups is None else groups]
        self._n_groups = len(self._blocks[0])

    @classmethod
    def from_file(cls, groups: FloatArray) -> "EpisodeLog":
        """Make a log from its groups in a file, or raise InvalidFileError."""
        counts, means, _, steps, _ = groups.T
        right = (counts == np.floor(counts)) & (steps == np.floor(steps)) & (means > -np.inf)
        right &= (counts >= 1.0) & (steps >= counts) & (steps < MAX)
        require(right.all(), "episodes has groups of no episodes, too few steps or infinite return")
        require((groups[:, _SECONDS] >= 0.0).all(), "episodes has seconds below 0")
        require(len(groups) <= MAX_GROUPS, f"episodes has {len(groups)} rows")
        return cls(groups)

    @property
    def groups(self) -> FloatArray:
        """Groups of consecutive episodes, shape (n, 5).

        Columns: number, mean return, maximum return (-inf if cut short), total steps, seconds of
        training at the end. A climb of :class:`~oda_rl.agents.ModelAgent` cuts episodes short.
        """
        blocks = self._blocks  # only append changes them: another thread may read
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    @property
    def rows(self) -> FloatArray:
        """Return, length, and seconds of training at the end, of the latest episodes, (n, 3)."""
        groups = self.groups
        return np.asarray(groups[groups[:, _COUNT] == 1.0][:, [_MEAN, _STEPS, _SECONDS]])

    @property
    def count(self) -> int:
        """Number of all episodes."""
        return int(self.groups[:, _COUNT].sum())

    @property
    def best_return(self) -> float:
        """Maximum return of all episodes not cut short; minus infinity without any."""
        return float(self.groups[:, _BEST].max(initial=-np.inf))

    @property
    def curve(self) -> FloatArray:
        """Mean return, total steps, seconds at the end, and 0 if cut short, else 1, (n, 4)."""
        groups = self.groups
        return np.column_stack([groups[:, [_MEAN, _STEPS, _SECONDS]], groups[:, _BEST] > -np.inf])

    def since(self, n: int) -> FloatArray:
        """Return the rows of the episodes after the first n that are not in groups."""
        return self.rows[max(n - (self.count - len(self.rows)), 0) :]

    def append(self, rows: FloatArray) -> None:
        """Add episodes, (n, 3), or (n, 4) with their return again: minus infinity if cut short."""
        returns, lengths, seconds = rows.T[:3]
        columns = np.ones(len(rows)), returns, rows[:, 3 * (rows.shape[1] > 3)], lengths, seconds
        blocks = [*self._blocks, np.column_stack(columns)]
        self._blocks = blocks if len(blocks) < _MAX_BLOCKS else [np.concatenate(blocks)]
        self._n_groups += len(rows)
        while self._n_groups > MAX_GROUPS:
            old, latest = np.split(self.groups, [self._n_groups // 4 * 2])
            counts, means, best, steps, seconds = old.reshape(-1, 2, 5).transpose(2, 0, 1)
            totals = counts.sum(axis=1)
            means = (means * counts).sum(axis=1) / totals
            pairs = totals, means, best.max(axis=1), steps.sum(axis=1), seconds[:, 1]
            self._blocks = [np.column_stack(pairs), latest]
            self._n_groups -= len(old) // 2

    def recent_return(self) -> float:
        """Return the mean return of the last 20 episodes; NaN if there are none."""
        returns = self.groups[-RECENT:, _MEAN]
        return float(returns.mean()) if len(returns) else float("nan")

    def to_monitor_csv(self, env_id: str | None, start_time: float) -> str:
        """Return a ``monitor.csv``, as Stable-Baselines3 reads it, with a row for each group."""
        header = json.dumps({"t_start": start_time, "env_id": str(env_id)})
        rows = self.curve[:, :3].tolist()
        lines = [f"{total:.6f},{int(n)},{seconds:.6f}\n" for total, n, seconds in rows]
        return "".join([f"#{header}\nr,l,t\n", *lines])


@dataclass(frozen=True)
class Level:
    """An agent's cells when a temperature level began, or after a fit."""

    step: int  # environment steps taken before
    temperature: float  # temperature of the level
    codevectors: FloatArray  # shape (cells, d), in the observation's units
    parents: IntArray | None
    """Number of the cell of the level before that each comes from, shape (cells,); None where
    learning started anew or went back to an earlier policy."""


SHARED: dict[str, Member] = {
    "episodes": real("episodes, 5", "[-inf, inf)"),
    "history_step": whole("levels"),
    "history_temperature": real("levels", "[0, inf) or nan"),
    "history_cells": whole("levels", "[1, 1000000]"),
    "history_codevectors": real("codevector_numbers"),
    "history_parents": whole("parents"),
    "history_started": flags("levels"),
}  # members of every agent's file: the groups of episodes, and the levels one after the other


def history_to_arrays(history: list[Level]) -> dict[str, Array]:
    """Pack a history into arrays for a file."""
    parents = [level.parents for level in history if level.parents is not None]
    numbers = [level.codevectors for level in history]
    return {
        "history_step": np.array([level.step for level in history], dtype=np.int64),
        "history_temperature": np.array([level.temperature for level in history]),
        "history_cells": np.array([len(level.codevectors) for level in history], dtype=np.int64),
        "history_codevectors": np.concatenate([np.zeros(0), *map(np.ravel, numbers)]),
        "history_parents": np.concatenate([np.zeros(0, dtype=np.int64), *parents]),
        "history_started": np.array([level.parents is None for level in history], dtype=np.bool_),
    }


def history_from_arrays(arrays: dict[str, Array], n_features: int) -> list[Level]:
    """Unpack the arrays of a file, or raise InvalidFileError."""
    names = ("step", "temperature", "cells", "started")
    steps, temperatures, cells, started = (arrays[f"history_{name}"] for name in names)
    require(not len(cells) or started[0], "history_started[0] is False: it must be True")
    require((np.diff(steps) >= 0).all(), "history_step falls")
    sizes = {"codevectors": cells * n_features, "parents": np.where(started, 0, cells)}
    parts = {}
    for name, counts in sizes.items():
        numbers, n = arrays[f"history_{name}"], int(counts.sum())
        require(len(numbers) == n, f"history_{name} has {len(numbers)} numbers: it must have {n}")
        parts[name] = np.split(numbers, np.cumsum(counts)[:-1].astype(np.int64))
    before = np.repeat(np.append(0, cells)[:-1], sizes["parents"])  # cells of the level before
    known = arrays["history_parents"] < before
    require(known.all(), "history_parents has a cell that is not of the level before")
    return [
        Level(
            int(steps[k]),
            float(temperatures[k]),
            parts["codevectors"][k].reshape(int(cells[k]), n_features),
            None if started[k] else parts["parents"][k],
        )
        for k in range(len(cells))
    ]
