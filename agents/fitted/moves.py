"""Where rows of trajectories that several environments are on were at the last fit.

Running trajectories lie behind all others during a fit. Until the next one they go on, end, in any
order, and lie elsewhere: what has been found out about their rows would be lost.
"""

from collections.abc import Sequence

import numpy as np

from oda_rl._types import IntArray
from oda_rl.agents.fitting.placed import NOWHERE


class Moves:
    """The rows of running trajectories, at the last fit and since.

    Parameters
    ----------
    count : int
        Environments.
    """

    def __init__(self, count: int) -> None:
        self._at = np.zeros((count, 2), dtype=np.int64)  # first row of each, and how many
        self._ended: list[tuple[int, int, int]] = []

    def forget(self) -> None:
        """Know nothing of any fit."""
        self._at[:], self._ended = 0, []

    def end(self, lane: int, n_rows: int, to: int) -> None:
        """Note that an environment's trajectory of so many rows is over, and lies at row ``to``."""
        first, known = self._at[lane].tolist()
        self._ended.append((first, min(known, n_rows), to))
        self._at[lane] = 0

    def of_ended(self, begin: int, end: int) -> IntArray:
        """Return where rows from ``begin`` to ``end`` were; ``NOWHERE`` if they were in no fit."""
        rows = np.full(end - begin, NOWHERE)
        for first, known, to in self._ended:
            rows[to - begin :][:known] = np.arange(first, first + known)
        self._ended = []
        return rows

    def of_running(self, begin: int, lengths: Sequence[int]) -> IntArray:
        """Return likewise where the rows of all running trajectories were.

        They are in a fit again: the first environment's, of that many rows, begins at ``begin``.
        """
        sizes = np.asarray(lengths)
        first, known = self._at.T
        begins = np.cumsum(sizes) - sizes
        within = np.arange(sizes.sum()) - begins.repeat(sizes)
        self._at = np.column_stack([begin + begins, sizes])
        return np.where(within < known.repeat(sizes), first.repeat(sizes) + within, NOWHERE)
