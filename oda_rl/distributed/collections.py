"""What estimators take from Dask's arrays and frames, and what they say of them."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_feature_names

from oda_rl._types import Array
from oda_rl.distributed.blocks import DaskBlocks


def is_lazy(X: Any) -> bool:
    """Whether something is a Dask collection."""
    return hasattr(X, "__dask_graph__")


def as_array(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return a collection as a Dask array, shape (n, d), in one block of columns.

    Raises
    ------
    ValueError
        If it is of another shape, or has other features than the estimator has been fitted with.
    """
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


def as_column(values: Any, array: Any, name: str) -> Any:
    """Return labels or weights in the blocks of an array.

    Raises
    ------
    ValueError
        If they are no collection, or of another shape.
    """
    if values is None:
        return None
    if not is_lazy(values):
        raise ValueError(
            f"{name} is {type(values).__name__}: where X is a Dask collection it must be one, too"
        )
    column = _columns(values)
    if column.ndim != 1:
        raise ValueError(f"{name} has shape {column.shape}: it must be (n,)")
    if column.chunks[0] != array.chunks[0]:
        known = not np.isnan([*column.chunks[0], *array.chunks[0]]).any()
        if known and column.shape[0] != array.shape[0]:
            raise ValueError(f"{name} has {column.shape[0]} rows, X has {array.shape[0]}")
        if known:
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
    """Return the blocks of collections."""
    array = as_array(estimator, X, reset=reset)
    columns = as_column(y, array, "y"), as_column(sample_weight, array, "sample_weight")
    return DaskBlocks(array, *columns)


def mapped(model: BaseEstimator, name: str, array: Any, like: Array) -> Any:
    """Ask a model something of all rows of a Dask array, lazily, where they lie.

    ``like`` is an empty array as the answer will be, shape (0,) or (0, m).
    """
    shape: dict[str, Any] = {"drop_axis": 1}
    if like.ndim == 2:
        shape = {"chunks": (array.chunks[0], like.shape[1:])}
    return array.map_blocks(_of_block, model=model, method=name, like=like, meta=like, **shape)


def _of_block(block: Any, *, model: BaseEstimator, method: str, like: Array) -> Any:
    points = np.asarray(block)
    return getattr(model, method)(points) if len(points) > 0 else like


def _columns(X: Any) -> Any:
    return X.to_dask_array() if hasattr(X, "to_dask_array") else X
