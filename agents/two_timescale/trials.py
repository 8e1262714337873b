"""Which policy is kept with several environments, by the training episodes played with each.

Along one trajectory the online agent's policy hardly changes during an episode, so that an episode
that is solved says something about the table. With n environments the table changes n times as
fast. Therefore each environment plays an episode with the policy as it was when the episode began:
its trial. The first that solves its episode (by the best return so far) is taken back as the
agent's own, and learning rests; the others try it, too, until too many of them fail; then the next
one that was solved takes its place. A better return makes all that was counted void.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray, IntArray

LONGEST_TRIAL = 10_000  # steps, after which the table is played: the episode may never end
_TOLERATED = 0.05  # share of a kept policy's episodes that may fail


class Played(NamedTuple):
    """The policies as compiled code plays them."""

    counts: IntArray
    """Cells of each environment's policy, shape (n,); 0 where it plays the table as it is."""
    diagrams: FloatArray
    """Their diagrams, shape (n, capacity, 1 + d)."""
    greedy: IntArray
    """Their actions, shape (n, capacity)."""


@dataclass(eq=False)
class Trial:
    """A policy as it was, and how many of the episodes that were played with it succeeded."""

    partition: Mapping[str, npt.NDArray[Any]]
    """State of the partition."""
    table: FloatArray
    """Layers of the table without the traces, shape (3, cells, actions)."""
    solved: int = 0
    failed: int = 0


class Trials:
    """The trials of n environments.

    Parameters
    ----------
    count, capacity, n_features : int
        Environments, most cells, components of an observation.
    kept : Trial or None
        The policy that the agent rests on.
    """

    def __init__(self, count: int, capacity: int, n_features: int, kept: Trial | None) -> None:
        self.played = Played(
            np.zeros(count, dtype=np.int64),
            np.zeros((count, capacity, 1 + n_features)),
            np.zeros((count, capacity), dtype=np.int64),
        )
        self.kept = kept
        self._of: list[Trial | None] = [None] * count
        self._candidates: list[Trial] = []

    def begin(self, envs: IntArray, trial: Trial, diagram: FloatArray, greedy: IntArray) -> None:
        """Let environments play a policy."""
        n_cells = len(greedy)
        self.played.counts[envs] = n_cells
        self.played.diagrams[envs, :n_cells] = diagram[:n_cells]
        self.played.greedy[envs, :n_cells] = greedy
        for env in envs.tolist():
            self._of[env] = trial

    def note(self, env: int, solved: bool, length: int) -> bool:
        """Note how an episode ended; returns whether another policy is to be kept, or none."""
        trial, self._of[env] = self._of[env], None
        if trial is None or length > LONGEST_TRIAL:
            return False
        trial.solved += solved
        trial.failed += not solved
        if trial is self.kept:
            return self._fails(trial)
        if solved and trial not in self._candidates:
            self._candidates.append(trial)
        return self.kept is None and solved and not self._fails(trial)

    def keep_next(self) -> Trial | None:
        """Keep the policy that has succeeded longest ago and does not fail, if any."""
        self._candidates = [trial for trial in self._candidates if not self._fails(trial)]
        self.kept = self._candidates.pop(0) if self._candidates else None
        return self.kept

    def forget(self) -> None:
        """Forget who succeeded and who failed, because more is asked for now."""
        self._candidates.clear()
        if self.kept is not None:
            self.kept.solved = self.kept.failed = 0

    def _fails(self, trial: Trial) -> bool:
        """Whether too many of a policy's episodes fail."""
        # Running ones count, too: those that fail are the first to end.
        running = sum(other is trial for other in self._of)
        episodes = trial.solved + trial.failed + running
        return trial.failed >= 2 and trial.failed > _TOLERATED * episodes
