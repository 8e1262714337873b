"""What a training leaves behind: its episodes, and the cells at each temperature level."""

import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.files.schema import MAX, Member, flags, real, require, whole

KEPT = 20_000  # episodes, of which the older half is summarised when there are more
_TOGETHER = 100  # episodes of a group
_MAX_GROUPS = 1000
_RECENT = 20
_COUNT, _MEAN, _BEST, _STEPS, _SECONDS = range(5)

EPISODES: dict[str, Member] = {
    "episodes": real("episodes, 3"),
    "episodes_before": real("groups, 5", optional=True),
}
"""What a file has of a log: return, length and seconds of each of the latest episodes; and of
groups of those before their number, mean return, greatest return, steps, and seconds."""


class EpisodeLog:
    """Return, length and time of finished training episodes.

    The latest are kept one by one. Of more than 20,000 the older half is summarised, 100 episodes a
    group; of more than 1,000 groups, two are made one. So it takes a few megabytes, however long
    a training is.
    """

    def __init__(self, rows: FloatArray | None = None, before: FloatArray | None = None) -> None:
        self.before: FloatArray = np.empty((0, 5)) if before is None else before
        """Groups of earlier episodes, shape (groups, 5): how many, mean and greatest return, steps
        in all, seconds of training up to the end of the last."""
        self._blocks: list[FloatArray] = []
        self._kept = 0
        if rows is not None:
            self.append(rows)

    @classmethod
    def from_file(cls, rows: FloatArray, before: FloatArray | None = None) -> "EpisodeLog":
        """Make one of what a file has, or raise InvalidFileError."""
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
        """Of the latest episodes, shape (n, 3): return, length, seconds of training up to its end.

        Of all that there were, up to 20,000.
        """
        if len(self._blocks) != 1:
            self._blocks = [np.concatenate([np.empty((0, 3)), *self._blocks])]
        return self._blocks[0]

    @property
    def count(self) -> int:
        """How many episodes there were in all."""
        return int(self.before[:, _COUNT].sum()) + self._kept

    @property
    def best_return(self) -> float:
        """Greatest return of all episodes; minus infinity if there were none."""
        latest = self.rows[:, 0].max(initial=-np.inf)
        return float(self.before[:, _BEST].max(initial=latest))

    @property
    def curve(self) -> FloatArray:
        """Return, steps, and seconds up to the end, shape (n, 3), of all groups and episodes.

        In their order; of a group, the mean return and all steps.
        """
        return np.concatenate([self.before[:, [_MEAN, _STEPS, _SECONDS]], self.rows])

    def since(self, n: int) -> FloatArray:
        """Rows of the episodes after the first n, as far as they are there one by one."""
        return self.rows[max(n - (self.count - self._kept), 0) :]

    def append(self, rows: FloatArray) -> None:
        """Add episodes, shape (n, 3)."""
        self._blocks.append(rows)
        self._kept += len(rows)
        while self._kept > KEPT:
            self._summarise()

    def recent_return(self) -> float:
        """Mean return of the last episodes (at most 20), NaN if there are none."""
        rows = self.rows[-_RECENT:, 0]
        return float(rows.mean()) if len(rows) else float("nan")

    def to_monitor_csv(self, env_id: str | None, start_time: float) -> str:
        """Text of a ``monitor.csv`` as Stable-Baselines3's plotting tools read it.

        A group of earlier episodes is a row: its mean return, and all its steps.
        """
        text = io.StringIO()
        header = {"t_start": start_time, "env_id": str(env_id)}
        text.write(f"#{json.dumps(header)}\nr,l,t\n")
        for episode_return, length, seconds in self.curve.tolist():
            text.write(f"{episode_return:.6f},{int(length)},{seconds:.6f}\n")
        return text.getvalue()

    def _summarise(self) -> None:
        """Put the older half of the episodes into groups."""
        old, latest = np.split(self.rows, [KEPT // 2])
        self._blocks, self._kept = [latest.copy()], len(latest)
        groups = old.reshape(-1, _TOGETHER, 3)
        returns, steps, seconds = groups[:, :, 0], groups[:, :, 1].sum(axis=1), groups[:, -1, 2]
        counts = np.full(len(groups), float(_TOGETHER))
        new = np.column_stack([counts, returns.mean(axis=1), returns.max(axis=1), steps, seconds])
        self.before = np.concatenate([self.before, new])
        if len(self.before) > _MAX_GROUPS:
            self._join()

    def _join(self) -> None:
        """Make one group of every two."""
        single = len(self.before) % 2  # the last one stays as it is
        pairs, rest = np.split(self.before, [len(self.before) - single])
        pairs = pairs.reshape(-1, 2, 5)
        counts, steps = pairs[:, :, _COUNT].sum(axis=1), pairs[:, :, _STEPS].sum(axis=1)
        means = (pairs[:, :, _MEAN] * pairs[:, :, _COUNT]).sum(axis=1) / counts
        best, seconds = pairs[:, :, _BEST].max(axis=1), pairs[:, 1, _SECONDS]
        joined = np.column_stack([counts, means, best, steps, seconds])
        self.before = np.concatenate([joined, rest])


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
    """Shape (cells, cells of the level before); None where learning started from nothing, or where
    an agent with several environments went back to an earlier policy."""


LEVELS: dict[str, Member] = {
    "history_step": whole("levels"),
    "history_temperature": real("levels", "[0, inf) or nan"),
    "history_cells": whole("levels", "[1, 1000000]"),
    "history_codevectors": real("codevector_numbers"),
    "history_lineage": real("lineage_numbers", "[0, inf)"),
    "history_started": flags("levels"),
}
"""What a file has of a history: all levels one after the other."""


def history_to_arrays(history: list[Level]) -> dict[str, npt.NDArray[Any]]:
    """Pack a history into arrays, for :func:`history_from_arrays`."""
    lineages = [np.zeros(0) if level.lineage is None else level.lineage for level in history]
    return {
        "history_step": np.array([level.step for level in history], dtype=np.int64),
        "history_temperature": np.array([level.temperature for level in history]),
        "history_cells": np.array([len(level.codevectors) for level in history], dtype=np.int64),
        "history_codevectors": np.concatenate(
            [np.zeros(0), *(level.codevectors.ravel() for level in history)]
        ),
        "history_lineage": np.concatenate([np.zeros(0), *(array.ravel() for array in lineages)]),
        "history_started": np.array([level.lineage is None for level in history], dtype=np.bool_),
    }


def history_from_arrays(arrays: dict[str, npt.NDArray[Any]], n_features: int) -> list[Level]:
    """Unpack what :func:`history_to_arrays` packed, or raise InvalidFileError."""
    history: list[Level] = []
    cells, started = arrays["history_cells"].tolist(), arrays["history_started"].tolist()
    require(not cells or started[0], "history_started[0] is False: no level is before the first")
    require((np.diff(arrays["history_step"]) >= 0).all(), "history_step falls")
    n_shares = sum(
        own * other
        for own, other, new in zip(cells[1:], cells, started[1:], strict=False)
        if not new
    )
    for name, n in (("codevectors", n_features * sum(cells)), ("lineage", n_shares)):
        size = len(arrays[f"history_{name}"])
        require(size == n, f"history_{name} has {size} numbers: it must have {n}")
    at_codevector = at_lineage = before = 0
    names = ("step", "temperature", "cells", "started")
    columns = (arrays[f"history_{name}"].tolist() for name in names)
    for step, temperature, cells, started in zip(*columns, strict=True):
        codevectors = arrays["history_codevectors"][at_codevector:][: cells * n_features]
        at_codevector += cells * n_features
        lineage = None
        if not started:
            lineage = arrays["history_lineage"][at_lineage:][: cells * before]
            lineage = lineage.reshape(cells, before)
            at_lineage += cells * before
        history.append(Level(step, temperature, codevectors.reshape(cells, n_features), lineage))
        before = cells
    return history
