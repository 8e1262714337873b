"""Blocks of rows, each of which answers where it lies; answers are added up.

Which sums are added to which is fixed by the blocks' order: the result has the same bits whoever
computes it, and whenever.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from oda_rl._threads import one_thread


class Rows(NamedTuple):
    """A block, as it is stored."""

    points: Any
    """Shape (n, d): an array or a frame."""
    labels: Any
    """Shape (n,), or None."""
    weights: Any
    """Shape (n,), or None."""


class _Addend(Protocol):
    def __add__(self, other: Self, /) -> Self: ...


Answer = TypeVar("Answer", bound=_Addend)
Question = Callable[[Rows, int], Answer]
"""Takes a block and its number. It is a function of a module, or an object that can be pickled."""


class Blocks(Protocol):
    """Where the rows are."""

    def total(self, question: Question[Answer]) -> Answer:
        """Ask every block, and return the sum of the answers."""
        ...


class OneBlock:
    """Rows that are here.

    Parameters
    ----------
    rows : Rows
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def total(self, question: Question[Answer]) -> Answer:
        """Ask the only block."""
        return question(self._rows, 0)


class DaskBlocks:
    """Rows in a Dask collection: answers are computed by Dask, wherever it keeps the blocks.

    Parameters
    ----------
    points : dask.array.Array, shape (n, d)
        In one block of columns; how many rows a block has need not be known.
    labels, weights : dask.array.Array, shape (n,), or None
        In the same blocks of rows.
    """

    def __init__(self, points: Any, labels: Any, weights: Any) -> None:
        parts = [
            None if one is None else one.to_delayed().ravel() for one in (points, labels, weights)
        ]
        self._blocks = [
            Rows(*(None if part is None else part[i] for part in parts))
            for i in range(points.numblocks[0])
        ]

    def total(self, question: Question[Answer]) -> Answer:
        """Ask all blocks in one graph, and add up in pairs."""
        from dask.delayed import delayed

        shared = delayed(_Asked(question))
        ask, add = delayed(_answer, pure=False), delayed(operator.add, pure=False)
        answers = [ask(shared, i, *rows) for i, rows in enumerate(self._blocks)]
        while len(answers) > 1:
            pairs = [add(*answers[i : i + 2]) for i in range(0, len(answers) - 1, 2)]
            answers = pairs + answers[2 * len(pairs) :]
        total: Answer = answers[0].compute()
        return total


class _Asked(NamedTuple):
    """Keeps Dask from looking into a question, or calling it."""

    question: Any


@one_thread()
def _answer(asked: _Asked, index: int, points: Any, labels: Any, weights: Any) -> Any:
    return asked.question(Rows(points, labels, weights), index)
