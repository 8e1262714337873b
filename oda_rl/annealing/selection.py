"""How many codevectors, and how to fine-tune: chosen by validation within the training set."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.annealing.fine_tuning import MATRIX

N_FOLDS = 5
_PER_CLASS = (1, 2, 4, 8, 16, 32)
_RATES = (0.01, 0.05, 0.2)
_PENALTIES = (0.001, 0.01, 0.1)
_HONEST = 0.99  # no single sample costs more than log 100


class Candidate(NamedTuple):
    """What is chosen."""

    n_clusters: int
    fine_tuning: str | None
    rate: float
    penalty: float


def candidates(
    n_classes: int, n_samples: int, algorithms: Sequence[str | None], rate: float, penalty: float
) -> list[Candidate]:
    """Candidates, the simplest first: up to 32 codevectors a class, and one for 5 samples.

    Of each algorithm of fine-tuning three rates are tried, or penalties, and of what it does not
    have the one given.
    """
    sizes = sorted({min(n * n_classes, max(n_classes, n_samples // 5)) for n in _PER_CLASS})
    ways: list[tuple[str | None, float, float]] = []
    for one in algorithms:
        if one == MATRIX:
            ways += [(one, rate, each) for each in _PENALTIES]
        else:
            ways += [(one, each, penalty) for each in (_RATES if one else (rate,))]
    return [Candidate(n, *way) for n in sizes for way in ways]


def doubts(scores: FloatArray, classes: IntArray) -> FloatArray:
    """Error plus log loss of each prediction, shape (n,).

    The error alone is a small number of samples, and chooses by chance. ``scores``, shape (n, C),
    are log-probabilities up to a constant.
    """
    logs = scores - np.logaddexp.reduce(scores, axis=1)[:, None]
    own = np.exp(logs[np.arange(len(logs)), classes])
    return np.asarray((scores.argmax(axis=1) != classes) - np.log(_HONEST * own + 1.0 - _HONEST))


def folds(classes: IntArray, rng: np.random.Generator) -> Iterator[tuple[IntArray, IntArray]]:
    """Training and test rows of each fold; every class is spread evenly over the folds.

    Classes with a single member stay in every training set.
    """
    fold = np.empty(len(classes), dtype=np.int64)
    for c in range(int(classes.max()) + 1):
        members = rng.permutation(np.flatnonzero(classes == c))
        fold[members] = np.arange(len(members)) % N_FOLDS if len(members) > 1 else -1
    for k in range(N_FOLDS):
        if (fold == k).any():
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)


def select(
    options: Sequence[Candidate],
    losses: Callable[[IntArray, IntArray], FloatArray],
    classes: IntArray,
    rng: np.random.Generator,
) -> Candidate:
    """Return the candidate with the least mean loss over the folds; the simplest of equals.

    Parameters
    ----------
    options : sequence of Candidate
        To choose from.
    losses : callable
        Takes the rows to learn from and those to measure on; returns the sum of the losses of each
        option on the latter.
    classes : ndarray, shape (n,)
        Class of each row, from 0 on.
    rng : numpy.random.Generator
        Deals the rows out to folds.
    """
    totals = np.zeros(len(options))
    for train, test in folds(classes, rng):
        totals += losses(train, test)
    return options[int(np.argmin(totals))]
