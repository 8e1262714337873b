"""Records of training: its episodes, and the cells at each temperature level."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.files.schema import MAX, Member, flags, real, require, whole

MAX_EPISODES = 20_000  # beyond, the older half is summarised
_GROUP_SIZE = 100  # episodes
_MAX_GROUPS = 1000
_RECENT = 20
_COUNT, _MEAN, _BEST, _STEPS, _SECONDS = range(5)

EPISODES: dict[str, Member] = {
    "episodes": real("episodes, 3"),
    "episodes_before": real("groups, 5", optional=True),
}
"""Members of a file, with the columns of ``EpisodeLog.rows`` and ``EpisodeLog.before``."""


class EpisodeLog:
    """Return, length and time of finished training episodes.

    When there are more than 20,000, the older half is summarised in groups of 100 episodes; when
    there are more than 1,000 groups, pairs are merged. So it never takes more than a few megabytes.
    """

    def __init__(self, rows: FloatArray | None = None, before: FloatArray | None = None) -> None:
        self.before: FloatArray = np.empty((0, 5)) if before is None else before
        """Groups of earlier episodes, shape (groups, 5): number, mean return, maximum return,
        total steps, seconds of training at the end of the last."""
        self._blocks: list[FloatArray] = []
        self._n_rows = 0
        if rows is not None:
            self.append(rows)

    @classmethod
    def from_file(cls, rows: FloatArray, before: FloatArray | None = None) -> "EpisodeLog":
        """Make a log from the members of a file, or raise InvalidFileError."""
        lengths = rows[:, 1]
        right = (lengths >= 1.0) & (lengths == np.floor(lengths))
        require(right.all(), "episodes[:, 1], lengths, must be integers of at least 1")
        require((rows[:, 2] >= 0.0).all(), "episodes[:, 2], seconds, must be at least 0")
        if before is not None:
            counts, steps = before[:, _COUNT], before[:, _STEPS]
            right = (counts == np.floor(counts)) & (steps == np.floor(steps))
            right &= (counts >= 1.0) & (steps >= counts) & (steps < MAX)
            require(right.all(), "episodes_before counts no episodes, or fewer steps than these")
            require((before[:, _SECONDS] >= 0.0).all(), "episodes_before has seconds below 0")
            require(len(before) <= _MAX_GROUPS, f"episodes_before has {len(before)} groups")
        return cls(rows, before)

    @property
    def rows(self) -> FloatArray:
        """Return, length, and seconds of training at the end, of the latest episodes, (n, 3)."""
        if len(self._blocks) != 1:
            self._blocks = [np.concatenate([np.empty((0, 3)), *self._blocks])]
        return self._blocks[0]

    @property
    def count(self) -> int:
        """Number of all episodes."""
        return int(self.before[:, _COUNT].sum()) + self._n_rows

    @property
    def best_return(self) -> float:
        """Maximum return of all episodes; minus infinity without any."""
        latest = self.rows[:, 0].max(initial=-np.inf)
        return float(self.before[:, _BEST].max(initial=latest))

    @property
    def curve(self) -> FloatArray:
        """Mean return, total steps, and seconds at the end, of all groups and episodes, (n, 3)."""
        return np.concatenate([self.before[:, [_MEAN, _STEPS, _SECONDS]], self.rows])

    def since(self, n: int) -> FloatArray:
        """Return the rows of the episodes after the first n that are not in groups."""
        return self.rows[max(n - (self.count - self._n_rows), 0) :]

    def append(self, rows: FloatArray) -> None:
        """Add episodes, shape (n, 3)."""
        self._blocks.append(rows)
        self._n_rows += len(rows)
        while self._n_rows > MAX_EPISODES:
            self._summarise()

    def recent_return(self) -> float:
        """Return the mean return of the last 20 episodes; NaN if there are none."""
        rows = self.rows[-_RECENT:, 0]
        return float(rows.mean()) if len(rows) else float("nan")

    def to_monitor_csv(self, env_id: str | None, start_time: float) -> str:
        """Return a ``monitor.csv``, as Stable-Baselines3 reads it, with a row for each group."""
        header = json.dumps({"t_start": start_time, "env_id": str(env_id)})
        lines = [
            f"{episode_return:.6f},{int(length)},{seconds:.6f}\n"
            for episode_return, length, seconds in self.curve.tolist()
        ]
        return "".join([f"#{header}\nr,l,t\n", *lines])

    def _summarise(self) -> None:
        """Put the older half of the episodes into groups; merge pairs of too many groups."""
        old, latest = np.split(self.rows, [MAX_EPISODES // 2])
        self._blocks, self._n_rows = [latest.copy()], len(latest)
        returns, lengths, seconds = old.T
        ones = np.ones(len(old))
        single = np.column_stack([ones, returns, returns, lengths, seconds])
        self.before = np.concatenate([self.before, _merged(single, _GROUP_SIZE)])
        if len(self.before) > _MAX_GROUPS:
            odd = len(self.before) % 2  # the last group stays as it is
            pairs, last = np.split(self.before, [len(self.before) - odd])
            self.before = np.concatenate([_merged(pairs, 2), last])


def _merged(groups: FloatArray, size: int) -> FloatArray:
    """Merge every ``size`` consecutive groups."""
    counts, means, best, steps, seconds = groups.reshape(-1, size, 5).transpose(2, 0, 1)
    totals = counts.sum(axis=1)
    means = (means * counts).sum(axis=1) / totals
    return np.column_stack([totals, means, best.max(axis=1), steps.sum(axis=1), seconds[:, -1]])


@dataclass(frozen=True)
class Level:
    """An agent's cells when a temperature level began, or after a fit."""

    step: int
    """Environment steps taken before."""
    temperature: float
    """Temperature of the level."""
    codevectors: FloatArray
    """Shape (cells, d), in the observation's units."""
    lineage: FloatArray | None
    """Weights of the cells of the level before, shape (cells, cells before); None where learning
    started anew or went back to an earlier policy."""


LEVELS: dict[str, Member] = {
    "history_step": whole("levels"),
    "history_temperature": real("levels", "[0, inf) or nan"),
    "history_cells": whole("levels", "[1, 1000000]"),
    "history_codevectors": real("codevector_numbers"),
    "history_lineage": real("lineage_numbers", "[0, inf)"),
    "history_started": flags("levels"),
}
"""Members of a file: the levels one after the other."""


def history_to_arrays(history: list[Level]) -> dict[str, npt.NDArray[Any]]:
    """Pack a history into arrays for a file."""
    lineages = [level.lineage for level in history if level.lineage is not None]
    numbers = [level.codevectors for level in history]
    return {
        "history_step": np.array([level.step for level in history], dtype=np.int64),
        "history_temperature": np.array([level.temperature for level in history]),
        "history_cells": np.array([len(level.codevectors) for level in history], dtype=np.int64),
        "history_codevectors": np.concatenate([np.zeros(0), *map(np.ravel, numbers)]),
        "history_lineage": np.concatenate([np.zeros(0), *map(np.ravel, lineages)]),
        "history_started": np.array([level.lineage is None for level in history], dtype=np.bool_),
    }


def history_from_arrays(arrays: dict[str, npt.NDArray[Any]], n_features: int) -> list[Level]:
    """Unpack the arrays of a file, or raise InvalidFileError."""
    names = ("step", "temperature", "cells", "started")
    steps, temperatures, cells, started = (arrays[f"history_{name}"] for name in names)
    require(not len(cells) or started[0], "history_started[0] is False: it must be True")
    require((np.diff(steps) >= 0).all(), "history_step falls")
    before = np.concatenate([[0], cells[:-1]]).astype(np.int64)  # cells of the level before
    sizes = {"codevectors": cells * n_features, "lineage": np.where(started, 0, cells * before)}
    parts = {}
    for name, counts in sizes.items():
        numbers, n = arrays[f"history_{name}"], int(counts.sum())
        require(len(numbers) == n, f"history_{name} has {len(numbers)} numbers: it must have {n}")
        parts[name] = np.split(numbers, np.cumsum(counts)[:-1].astype(np.int64))
    return [
        Level(
            int(steps[k]),
            float(temperatures[k]),
            parts["codevectors"][k].reshape(int(cells[k]), n_features),
            None if started[k] else parts["lineage"][k].reshape(int(cells[k]), int(before[k])),
        )
        for k in range(len(cells))
    ]
