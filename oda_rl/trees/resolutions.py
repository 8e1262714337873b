"""What the levels of a tree see of the data: some features, or a transform of them."""

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.divergences import Divergence
from oda_rl.samples import filled

Resolution = IntArray | Callable[[FloatArray], Any]


def resolve_all(
    resolutions: Sequence[Any] | None, n_features: int, names: Array | None
) -> list[Resolution]:
    """Check resolutions, and turn the names of features into indices.

    Parameters
    ----------
    resolutions : sequence or None
        For each level the indices or names of features, or a function; None for all features.
    n_features : int
        How many features there are.
    names : ndarray, shape (n_features,), or None
        What they are called.

    Raises
    ------
    TypeError
        If an entry is neither a function nor a sequence of integers and names.
    ValueError
        If there is no entry, or one that is empty or has a feature that there is not.

    Examples
    --------
    >>> resolve_all([["b"], [0, 1]], 2, np.array(["a", "b"], dtype=object))
    [array([1]), array([0, 1])]
    """
    if resolutions is None:
        return [np.arange(n_features)]
    if len(resolutions) == 0:
        raise ValueError("resolutions must have an entry for the first level, got none")
    return [
        entry if callable(entry) else _indices(entry, i, n_features, names)
        for i, entry in enumerate(resolutions)
    ]


def _indices(entry: Any, i: int, n_features: int, names: Array | None) -> IntArray:
    if isinstance(entry, str) or not isinstance(entry, Iterable):
        raise TypeError(
            f"resolutions[{i}] must be a function or a sequence of features, got {entry!r}"
        )
    indices = [_index(feature, i, n_features, names) for feature in entry]
    if not indices:
        raise ValueError(f"resolutions[{i}] must name at least one feature, got none")
    return np.array(indices)


def _index(feature: Any, i: int, n_features: int, names: Array | None) -> int:
    if isinstance(feature, str):
        if names is None or feature not in names:
            known = "has no names" if names is None else f"has {', '.join(names)}"
            raise ValueError(f"resolutions[{i}] has feature {feature!r}, but X {known}")
        return int(np.flatnonzero(names == feature)[0])
    if isinstance(feature, bool | np.bool_) or not isinstance(feature, Integral):
        raise TypeError(f"resolutions[{i}] must have indices or names of features, got {feature!r}")
    index = int(feature)
    if not 0 <= index < n_features:
        raise ValueError(
            f"resolutions[{i}] must have indices from 0 to {n_features - 1}, got {index}"
        )
    return index


def view(
    points: FloatArray, resolution: Resolution, i: int, width: int | None, divergence: Divergence
) -> FloatArray:
    """Points, shape (n, d), as level ``i`` sees them: shape (n, d'), in divergence's coordinates.

    Parameters
    ----------
    width : int or None
        How many features the level has had until now, if it is not new.

    Raises
    ------
    ValueError
        If a function returns another shape or values that are not finite numbers, or if the
        divergence is not defined for what the level sees.

    Examples
    --------
    >>> from oda_rl.divergences import SquaredEuclidean
    >>> points = np.array([[1.0, 2.0, 4.0]])
    >>> view(points, lambda x: x.mean(axis=1, keepdims=True), 0, None, SquaredEuclidean())
    array([[2.33333333]])
    """
    if callable(resolution):
        seen = _transformed(points, resolution, i)
    else:
        seen = points.take(resolution, axis=1)
    if width is not None and seen.shape[1] != width:
        raise ValueError(
            f"resolutions[{i}] must return {width} features as before, got {seen.shape[1]}"
        )
    try:
        divergence.check(seen)
    except ValueError as error:
        raise ValueError(f"at level {i} of the tree: {error}") from error
    return divergence.embed(seen)


def _transformed(points: FloatArray, transform: Callable[[FloatArray], Any], i: int) -> FloatArray:
    returned = transform(points.copy())  # whatever it does to its argument
    try:
        seen = np.ascontiguousarray(returned, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"resolutions[{i}] must return numbers: {error}") from error
    if seen.ndim != 2 or len(seen) != len(points) or seen.shape[1] == 0:
        raise ValueError(
            f"resolutions[{i}] must return shape ({len(points)}, d'), got {np.shape(returned)}"
        )
    holed = np.isnan(points).any(axis=1, keepdims=True)
    whole = filled(seen, np.where(holed, 0.0, np.nan))
    if not np.isfinite(whole).all():
        raise ValueError(
            f"resolutions[{i}] must return finite numbers, got NaN or infinity: only for a sample "
            "of which values are missing may they be NaN"
        )
    return seen
