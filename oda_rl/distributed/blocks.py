"""Map-reduce over blocks of rows, in memory or in a Dask collection.

The order of additions is fixed by the order of the blocks: the result has the same bits wherever
and whenever it is computed. Methods of fitted estimators are lazy for Dask's arrays and frames.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_is_fitted

from oda_rl._threads import one_thread
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import HEAVIEST, bounded, chunks, observed
from oda_rl.divergences import Divergence, SquaredEuclidean
from oda_rl.samples import filled

_OF_ALL_ROWS = ("feature_names_in_", "labels_", "_sklearn_output_config")
_MAX_SAMPLED = 50_000  # rows that leave their blocks, unless 10 a codevector are more
_RARE = 10  # a class has at least a tenth of an equal share of the sample
F = TypeVar("F", bound=Callable[..., Any])


class Rows(NamedTuple):
    """A block as it is stored."""

    points: Any  # shape (n, d): an array or a frame
    labels: Any = None  # shape (n,), or None
    weights: Any = None  # shape (n,), or None


Answer = list[Any]
Question = Callable[[Rows, int], Answer]
"""A function of a block and its number, which can be pickled."""
Combine = Callable[[Answer, Answer], Answer]


def added(one: Answer, other: Answer) -> Answer:
    """Add two answers, number by number."""
    return [a + b for a, b in zip(one, other, strict=True)]


def joined(*answers: Answer) -> Answer:
    """Concatenate answers, array by array."""
    return [np.concatenate(arrays) for arrays in zip(*answers, strict=True)]


class OneBlock:
    """Rows in memory."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def total(self, question: Question, combine: Combine = added) -> Answer:
        """Evaluate a question on the only block."""
        return question(self._rows, 0)


class DaskBlocks:
    """Rows in a Dask collection: answers are computed where Dask keeps the blocks.

    Points are a dask.array.Array, shape (n, d), in one block of columns; labels and weights, shape
    (n,), have the same blocks of rows, or are None. Numbers of rows may be unknown.
    """

    def __init__(self, points: Any, labels: Any = None, weights: Any = None) -> None:
        none = [None] * points.numblocks[0]
        given = (points, labels, weights)
        parts = (none if one is None else one.to_delayed().ravel() for one in given)
        self._blocks = [Rows(*row) for row in zip(*parts, strict=True)]

    def total(self, question: Question, combine: Combine = added) -> Answer:
        """Evaluate a question on all blocks in one graph, and combine the answers in pairs."""
        from dask.delayed import delayed

        shared = delayed(_Asked(question))
        ask, add = delayed(_answer, pure=False), delayed(combine, pure=False)
        answers = [ask(shared, i, *rows) for i, rows in enumerate(self._blocks)]
        while len(answers) > 1:
            pairs = [add(*answers[i : i + 2]) for i in range(0, len(answers) - 1, 2)]
            answers = pairs + answers[2 * len(pairs) :]
        return list(answers[0].compute())


class _Asked(NamedTuple):
    """Keeps Dask from traversing a question, or calling it."""

    question: Any


@one_thread()
def _answer(asked: _Asked, index: int, points: Any, labels: Any, weights: Any) -> Any:
    return asked.question(Rows(points, labels, weights), index)


Blocks = OneBlock | DaskBlocks


class Chunk(NamedTuple):
    """A few rows of weights above 0."""

    points: FloatArray  # shape (n, d)
    classes: IntArray  # shape (n,): indices of their classes
    weights: FloatArray  # shape (n,)


@dataclass(frozen=True)
class Reader:
    """Reads and checks rows."""

    divergence: Divergence = field(default_factory=SquaredEuclidean)
    classes: Array | None = None  # sorted labels, shape (C,), or None
    missing: bool = False  # whether values may be missing (NaN), but not all of a row

    @property
    def n_classes(self) -> int:
        """C, at least 1."""
        return 1 if self.classes is None else len(self.classes)

    def read(
        self, rows: Rows, index: int, shares: FloatArray | None = None, seed: int = 0
    ) -> Iterator[Chunk]:
        """Check block number ``index``, and yield a few of its rows at a time.

        ``shares``, shape (C,), are probabilities with which rows of each class are drawn.
        """
        try:
            points, weights = self._checked(rows)
        except ValueError as error:
            raise ValueError(f"block {index}: {error}") from error
        classes = np.zeros(len(points), dtype=np.int64)
        if self.classes is not None:
            classes = np.searchsorted(self.classes, np.asarray(rows.labels)).astype(np.int64)
        chosen = weights > 0.0
        if shares is not None:
            chosen &= np.random.default_rng([seed, index]).random(len(points)) < shares[classes]
        order = np.flatnonzero(chosen)
        for part in chunks(len(order)):
            indices = order[part]
            yield Chunk(points[indices], classes[indices], weights[indices])

    def _checked(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """Return points and weights of a block, or raise ValueError."""
        kinds = "allow-nan" if self.missing else True
        points = check_array(
            rows.points, dtype=np.float64, ensure_all_finite=kinds, ensure_min_samples=0,
            input_name="X",
        )  # fmt: skip
        observed(bounded(points, "X"))
        weights = weights_of(rows.weights, len(points))
        check_consistent_length(points, weights, rows.labels)
        wrong = weights[~((weights >= 0.0) & (weights <= HEAVIEST))]
        if len(wrong) > 0:
            raise ValueError(
                f"sample_weight holds {wrong[0]:g}: weights must be from 0 to {HEAVIEST:g}"
            )
        if len(points) > 0:
            self.divergence.check(points)
        return points, weights


def weights_of(weights: Any, n: int) -> FloatArray:
    """Return the weights of n rows, ones by default."""
    return np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)


def labels_of(rows: Rows, index: int) -> Answer:
    """Return the distinct labels of the rows of a block with weights above 0."""
    labels = np.asarray(rows.labels)
    weights = weights_of(rows.weights, len(labels))
    return [np.unique(labels[weights > 0.0] if len(weights) == len(labels) else labels)]


class Survey(NamedTuple):
    """Statistics of all rows of weights above 0."""

    counts: IntArray  # rows of each class, shape (C,)
    weights: FloatArray  # weight of each class, shape (C,)
    squares: float  # sum of the squares of the weights
    known: FloatArray  # weight of the rows in which each feature is observed, shape (d,)
    means: FloatArray  # means of the observed values, shape (d,)
    deviations: FloatArray  # standard deviations of the observed values, shape (d,)
    low: FloatArray  # smallest observed values, shape (d,); inf if there are none
    high: FloatArray  # largest observed values, likewise

    @classmethod
    def of(cls, blocks: Blocks, reader: Reader, n_features: int) -> Self:
        """Survey all rows; ValueError if there are none."""
        question = partial(_surveyed, reader=reader, n_features=n_features)
        counts, weights, squares, known, means, norms, low, high = blocks.total(question, joined)
        if not counts.any():
            raise ValueError("X has no row of a weight above 0: it must have at least one")
        total = known.sum(axis=0)
        shares = known / np.where(total > 0.0, total, 1.0)
        low, high = low.min(axis=0), high.max(axis=0)
        origin, widths = np.where(low <= high, low, 0.0), np.where(high > low, high - low, 1.0)
        places = (means - origin) / widths  # from 0 to 1: squares do not overflow
        mean = (shares * places).sum(axis=0)
        variances = (norms / widths) ** 2 / np.where(known > 0.0, known, 1.0) + (places - mean) ** 2
        deviations = widths * np.sqrt((shares * variances).sum(axis=0))
        sums = counts.sum(axis=0), weights.sum(axis=0), float(squares.sum()), total
        return cls(*sums, origin + widths * mean, deviations, low, high)

    @property
    def n_rows(self) -> int:
        return int(self.counts.sum())

    def sample(
        self, blocks: Blocks, reader: Reader, n_codevectors: int, seed: int
    ) -> tuple[Chunk, bool]:
        """Fetch about 50,000 rows, or 10 a codevector; return whether these are all, too.

        Rare classes have more than their shares, with lower weights.
        """
        size = max(_MAX_SAMPLED, 10 * n_codevectors)
        least = size / (_RARE * len(self.counts) * self.counts)
        shares = np.minimum(np.maximum(size / self.n_rows, least), 1.0)
        question = partial(_sampled, reader=reader, shares=shares, seed=seed)
        return Chunk(*blocks.total(question, joined)), bool((shares >= 1.0).all())


def _surveyed(rows: Rows, index: int, *, reader: Reader, n_features: int) -> Answer:
    """Return the fields of a survey for each chunk of a block, with norms for deviations."""
    n, none = reader.n_classes, np.zeros((0, n_features))
    answers: list[Answer] = [
        [np.zeros((0, n), np.int64), np.zeros((0, n)), np.zeros(0), *[none] * 5]
    ]
    for points, classes, weights in reader.read(rows, index):
        low, high = np.fmin.reduce(points, axis=0), np.fmax.reduce(points, axis=0)
        origin, widths = np.where(low <= high, low, 0.0), np.where(high > low, high - low, 1.0)
        known = ~np.isnan(points) * weights[:, None]
        totals = known.sum(axis=0)
        places = filled((points - origin) / widths, np.zeros(1))
        means = (known * places).sum(axis=0) / np.where(totals > 0.0, totals, 1.0)
        norms = widths * np.sqrt((known * (places - means) ** 2).sum(axis=0))
        low, high = np.where(np.isnan(low), np.inf, low), np.where(np.isnan(high), -np.inf, high)
        counts = np.bincount(classes, minlength=n), np.bincount(classes, weights, n)
        chunk = *counts, weights @ weights, totals, origin + widths * means, norms, low, high
        answers.append([np.asarray(one)[None] for one in chunk])
    return joined(*answers)


def _sampled(rows: Rows, index: int, *, reader: Reader, shares: FloatArray, seed: int) -> Answer:
    """Draw rows of a block, with weights by the inverse of their probability."""
    none: Answer = [np.zeros((0, rows.points.shape[1])), np.zeros(0, np.int64), np.zeros(0)]
    chunks_drawn = reader.read(rows, index, shares, seed)
    return joined(none, *([x, c, w / shares[c]] for x, c, w in chunks_drawn))


def scored(rows: Rows, index: int, *, model: Any) -> Answer:
    """Return the weighted sum of correct predictions, or of log-likelihoods if there are no labels.

    And the sum of the weights, and the number of rows.
    """
    points, scores = np.asarray(rows.points), np.zeros(0)
    weights = weights_of(rows.weights, len(points))
    if len(points) > 0 and rows.labels is None:
        scores = model.score_samples(points)
    elif len(points) > 0:
        scores = model.predict(points) == np.asarray(rows.labels)
    return [float(weights @ scores), float(weights.sum()), len(points)]


def is_lazy(X: Any) -> bool:
    """Whether X is a Dask collection."""
    return hasattr(X, "__dask_graph__")


def _as_array(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return a collection as a Dask array, shape (n, d), in one block of columns."""
    if not is_lazy(X):
        raise ValueError(f"X is {type(X).__name__}: it must be a Dask array or frame")
    array = _columns(X)
    if array.ndim != 2 or not array.shape[1] > 0:
        raise ValueError(f"X has shape {array.shape}: it must be (n, d), with d at least 1")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"X has dtype {array.dtype}: it must be of real numbers")
    _check_feature_names(estimator, X._meta, reset=reset)
    _check_n_features(estimator, array, reset=reset)
    return array if array.numblocks[1] == 1 else array.rechunk({1: -1})


def _as_column(values: Any, array: Any, name: str) -> Any:
    """Return labels or weights in the blocks of an array."""
    if values is None:
        return None
    if not is_lazy(values):
        raise ValueError(
            f"{name} is {type(values).__name__}: where X is a Dask collection it must be one, too"
        )
    column = _columns(values)
    if column.ndim != 1:
        raise ValueError(f"{name} has shape {column.shape}: it must be (n,)")
    known = not np.isnan([*column.chunks[0], *array.chunks[0]]).any()
    if known and column.shape[0] == array.shape[0]:
        return column.rechunk({0: array.chunks[0]})
    if known or column.numblocks[0] != array.numblocks[0]:
        raise ValueError(
            f"{name} has {column.shape[0]} rows in {column.numblocks[0]} blocks, X has "
            f"{array.shape[0]} in {array.numblocks[0]}"
        )
    return column


def blocks_of(
    estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any, *, reset: bool
) -> DaskBlocks:
    """Return the blocks of checked collections; ``reset`` sets the estimator's features."""
    array = _as_array(estimator, X, reset=reset)
    columns = _as_column(y, array, "y"), _as_column(sample_weight, array, "sample_weight")
    return DaskBlocks(array, *columns)


def _columns(X: Any) -> Any:
    """Return a frame or a series as an array; numbers of pandas' own types become NumPy's."""
    if not hasattr(X, "to_dask_array"):
        return X
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if X.ndim == 1 and hasattr(X.dtype, "categories"):
        X = X.cat.as_known()  # the categories of a lazy column are text until they are known
    given = [X.dtype] if X.ndim == 1 else list(X.dtypes)
    kinds = [kind.categories.dtype if hasattr(kind, "categories") else kind for kind in given]
    if all(is_numeric_dtype(kind) or is_bool_dtype(kind) for kind in kinds):
        X = X.astype(np.float64 if X.ndim == 2 else getattr(kinds[0], "numpy_dtype", kinds[0]))
    elif X.ndim == 1:
        X = X.astype(kinds[0])
    return X.to_dask_array()


def bare(model: BaseEstimator) -> Any:
    """Return a copy to be sent to the blocks: without names, labels and history."""
    check_is_fitted(model)
    copied = copy.copy(model)
    for attribute in _OF_ALL_ROWS:
        copied.__dict__.pop(attribute, None)
    return copied


def scored_by(model: BaseEstimator, X: Any, y: Any = None, sample_weight: Any = None) -> Answer:
    """Return the sums of :func:`scored` over the blocks of a fitted model's data."""
    question = partial(scored, model=bare(model))
    return blocks_of(model, X, y, sample_weight, reset=False).total(question)


def by_blocks(method: F, like: Callable[[Any], Array]) -> F:
    """Apply a method of an estimator to all blocks, lazily, if X is a Dask collection.

    ``like`` returns its result for no rows, of the right width and dtype, given the estimator.
    """

    @wraps(method)
    def answer(self: Any, X: Any) -> Any:
        if not is_lazy(X):
            return method(self, X)
        model, array, none = bare(self), _as_array(self, X, reset=False), like(self)
        shape: dict[str, Any] = {"drop_axis": 1}
        if none.ndim == 2:
            shape = {"chunks": (array.chunks[0], none.shape[1:])}
        return array.map_blocks(
            _of_block, model=model, method=method.__name__, like=none, meta=none, **shape
        )

    return cast(F, answer)


def _of_block(block: Any, *, model: BaseEstimator, method: str, like: Array) -> Any:
    points = np.asarray(block)
    return getattr(model, method)(points) if len(points) > 0 else like
