"""Map-reduce over blocks of rows, in memory or in a Dask collection.

The order of additions is fixed by the order of the blocks: the result has the same bits wherever
and whenever it is computed. Methods of fitted estimators are lazy for Dask's arrays and frames.
"""

import copy
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from oda_rl._threads import one_thread
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import HEAVIEST, bounded, chunks
from oda_rl.divergences import Divergence

_OF_ALL_ROWS = ("feature_names_in_", "history_", "labels_", "_sklearn_output_config")
F = TypeVar("F", bound=Callable[..., Any])


class Rows(NamedTuple):
    """A block as it is stored."""

    points: Any
    """Shape (n, d): an array or a frame."""
    labels: Any
    """Shape (n,), or None."""
    weights: Any
    """Shape (n,), or None."""


@dataclass(frozen=True)
class Answer:
    """A result of a block; results are added field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


A = TypeVar("A", bound=Answer)
Question = Callable[[Rows, int], A]
"""A function of a block and its number, which can be pickled."""


class OneBlock:
    """Rows in memory."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def total(self, question: Question[A]) -> A:
        """Evaluate a question on the only block."""
        return question(self._rows, 0)


class DaskBlocks:
    """Rows in a Dask collection: answers are computed where Dask keeps the blocks.

    Points are a dask.array.Array, shape (n, d), in one block of columns; labels and weights, shape
    (n,), have the same blocks of rows, or are None. Numbers of rows may be unknown.
    """

    def __init__(self, points: Any, labels: Any, weights: Any) -> None:
        parts = [
            None if one is None else one.to_delayed().ravel() for one in (points, labels, weights)
        ]
        self._blocks = [
            Rows(*(None if part is None else part[i] for part in parts))
            for i in range(points.numblocks[0])
        ]

    def total(self, question: Question[A]) -> A:
        """Evaluate a question on all blocks in one graph, and add up in pairs."""
        from dask.delayed import delayed

        shared = delayed(_Asked(question))
        ask, add = delayed(_answer, pure=False), delayed(operator.add, pure=False)
        answers = [ask(shared, i, *rows) for i, rows in enumerate(self._blocks)]
        while len(answers) > 1:
            pairs = [add(*answers[i : i + 2]) for i in range(0, len(answers) - 1, 2)]
            answers = pairs + answers[2 * len(pairs) :]
        total: A = answers[0].compute()
        return total


class _Asked(NamedTuple):
    """Keeps Dask from traversing a question, or calling it."""

    question: Any


@one_thread()
def _answer(asked: _Asked, index: int, points: Any, labels: Any, weights: Any) -> Any:
    return asked.question(Rows(points, labels, weights), index)


Blocks = OneBlock | DaskBlocks


# Reading.


class Draw(NamedTuple):
    """A random choice of rows, each drawn independently."""

    shares: FloatArray
    """Probability of a row of each class, shape (C,); 1 or more reads all."""
    seed: tuple[int, ...]
    """The same seed draws the same rows."""


class Chunk(NamedTuple):
    """A few rows of weights above 0."""

    points: FloatArray
    """Shape (n, d), in the divergence's own coordinates."""
    classes: IntArray
    """Shape (n,): indices of their classes."""
    weights: FloatArray
    """Shape (n,)."""


@dataclass(frozen=True)
class Reader:
    """Reads and checks rows."""

    divergence: Divergence
    classes: Array | None
    """Labels of the classes, shape (C,), sorted; None if there are none."""
    missing: bool = False
    """Whether values may be missing (NaN), but not all of a row."""

    @property
    def n_classes(self) -> int:
        """C, at least 1."""
        return 1 if self.classes is None else len(self.classes)

    def read(self, rows: Rows, index: int, draw: Draw | None = None) -> Iterator[Chunk]:
        """Read block number ``index``, a few rows at a time."""
        points = np.asarray(rows.points)
        classes = self._classes_of(rows.labels, len(points))
        weights = weights_of(rows.weights, len(points))
        chosen = weights > 0.0
        if draw is not None and (draw.shares < 1.0).any():
            uniform = np.random.default_rng([*draw.seed, index]).random(len(points))
            chosen &= uniform < draw.shares[classes]
        order = np.flatnonzero(chosen)
        for part in chunks(len(order)):
            indices = order[part]
            values = np.ascontiguousarray(points[indices], dtype=np.float64)
            embedded = np.ascontiguousarray(self.divergence.embed(values))
            yield Chunk(embedded, classes[indices], weights[indices])

    def check(self, rows: Rows, index: int) -> None:
        """Raise ValueError if a block, by its number, has invalid rows."""
        points, where = np.asarray(rows.points), f"X, in block {index},"
        n = len(points)
        for name, column in (("y", rows.labels), ("sample_weight", rows.weights)):
            if column is not None and len(column) != n:
                raise ValueError(
                    f"{name} has {len(column)} rows in block {index}, X has {n}: give both the "
                    "same chunks"
                )
        weights = weights_of(rows.weights, n)
        bad = weights[~((weights >= 0.0) & (weights <= HEAVIEST))]
        if len(bad) > 0:
            raise ValueError(
                f"sample_weight holds {bad[0]:g} in block {index}: weights must be from 0 to "
                f"{HEAVIEST:g}"
            )
        for part in chunks(n):
            values = np.asarray(points[part], dtype=np.float64)
            wrong = np.isinf(values) if self.missing else ~np.isfinite(values)
            kinds = "infinity" if self.missing else "NaN or infinity"
            _refuse(wrong.any(axis=1), part, f"{where} has {kinds}", "values must be finite")
            _refuse(
                np.isnan(values).all(axis=1), part, f"{where} has no value",
                "of each row at least one feature must be observed",
            )  # fmt: skip
            bounded(values, where)
            self.divergence.check(values)

    def _classes_of(self, labels: Any, n: int) -> IntArray:
        if self.classes is None:
            return np.zeros(n, dtype=np.int64)
        return np.searchsorted(self.classes, np.asarray(labels)).astype(np.int64)


def weights_of(weights: Any, n: int) -> FloatArray:
    """Return the weights of n rows, ones by default."""
    return np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)


def _refuse(wrong: Any, part: slice, what: str, right: str) -> None:
    if wrong.any():
        raise ValueError(f"{what} in row {part.start + int(wrong.argmax())} of it: {right}")


# Dask's arrays and frames.


def is_lazy(X: Any) -> bool:
    """Whether X is a Dask collection."""
    return hasattr(X, "__dask_graph__")


def _as_array(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return a collection as a Dask array, shape (n, d), in one block of columns."""
    if not is_lazy(X):
        raise ValueError(f"X is {type(X).__name__}: it must be a Dask collection, as others are")
    array = _columns(X)
    if array.ndim != 2 or not array.shape[1] > 0:
        raise ValueError(f"X has shape {array.shape}: it must be (n, d), with d at least 1")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"X has dtype {array.dtype}: it must be of real numbers")
    _check_feature_names(estimator, X._meta, reset=reset)
    d = int(array.shape[1])
    if reset:
        estimator.n_features_in_ = d
    elif d != estimator.n_features_in_:
        raise ValueError(
            f"X has {d} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input."
        )
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
    if not np.isnan([*column.chunks[0], *array.chunks[0]]).any():
        if column.shape[0] != array.shape[0]:
            raise ValueError(f"{name} has {column.shape[0]} rows, X has {array.shape[0]}")
        return column.rechunk({0: array.chunks[0]})
    if column.numblocks[0] != array.numblocks[0]:
        raise ValueError(
            f"{name} has {column.numblocks[0]} blocks, X has {array.numblocks[0]}: give both the "
            "same"
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
    from pandas.api.types import is_numeric_dtype

    kinds = [X.dtype] if X.ndim == 1 else list(X.dtypes)
    plain = all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in kinds)
    if not plain and all(map(is_numeric_dtype, kinds)):
        X = X.astype(np.float64 if X.ndim == 2 else getattr(X.dtype, "numpy_dtype", X.dtype))
    return X.to_dask_array()


def bare(model: BaseEstimator) -> Any:
    """Return a copy to be sent to the blocks: without names, labels and history."""
    check_is_fitted(model)
    copied = copy.copy(model)
    for attribute in _OF_ALL_ROWS:
        copied.__dict__.pop(attribute, None)
    return copied


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


def in_order(partial_fit: F) -> F:
    """Let ``partial_fit`` refuse Dask collections."""

    @wraps(partial_fit)
    def learn(self: Any, X: Any, *more: Any, **named: Any) -> Any:
        if is_lazy(X):
            raise ValueError(
                "X is a Dask collection: partial_fit learns from samples in their order; pass "
                "one block after another, or call fit"
            )
        return partial_fit(self, X, *more, **named)

    return cast(F, learn)
