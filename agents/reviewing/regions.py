"""Where some of many states lie, in words: a few bounds of components.

Bounds are added one by one, each the one with which precision and recall, as their harmonic mean,
gain most; and moved once more when all are there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oda_rl._types import BoolArray, FloatArray
from oda_rl.agents.policies.wording import number, without_units

_MOST_BOUNDS = 4
_LEAST_GAIN = 0.02  # of the harmonic mean
_CANDIDATES = 64  # thresholds of a component


@dataclass(frozen=True)
class Bounds:
    """A conjunction of bounds, and how well it says where the states lie."""

    bounds: tuple[tuple[int, str, float], ...]
    """Component, ``">"`` or ``"<"``, and threshold of each."""
    precision: float
    """Share of the states within that are meant."""
    recall: float
    """Share of those that are meant that lie within."""

    def said(self, names: Sequence[str]) -> str:
        """Say it in words, by the names of the components.

        >>> Bounds(((1, ">", 0.5),), 1.0, 0.9).said(["x", "speed (m/s)"])
        'speed > 0.5'
        """
        short = without_units(names)
        parts = [f"{short[j]} {side} {number(value)}" for j, side, value in self.bounds]
        return " and ".join(parts) or "everywhere"

    def within(self, states: FloatArray) -> BoolArray:
        """Whether states, shape (n, d), are within all bounds, shape (n,)."""
        inside = np.ones(len(states), dtype=np.bool_)
        for j, side, value in self.bounds:
            inside &= _side(states[:, j], side, value)
        return inside


def where(states: FloatArray, meant: BoolArray) -> Bounds:
    """Find bounds that hold in most of the states that are meant, and in few others.

    Parameters
    ----------
    states : ndarray, shape (n, d)
    meant : ndarray of bool, shape (n,)

    Examples
    --------
    >>> states = np.linspace(0.0, 1.0, 101)[:, None]
    >>> found = where(states, states[:, 0] > 0.755)
    >>> found.said(["x"]), found.precision, found.recall
    ('x > 0.755', 1.0, 1.0)
    """
    bounds: list[tuple[int, str, float]] = []
    if not meant.any():
        return Bounds((), 0.0, 1.0)
    best = _harmonic(np.ones(len(states), dtype=np.bool_), meant)
    while len(bounds) < _MOST_BOUNDS:
        found = _best_bound(states, meant, bounds)
        if found[0] < best + _LEAST_GAIN:
            break
        best = found[0]
        bounds.append(found[1])
    for k in range(len(bounds)):
        others = bounds[:k] + bounds[k + 1 :]
        moved = _best_bound(states, meant, others)
        if moved[0] > best:
            best, bounds = moved[0], [*others, moved[1]]
    bounds.sort()
    inside = Bounds(tuple(bounds), 0.0, 0.0).within(states)
    hits = int((inside & meant).sum())
    return Bounds(tuple(bounds), hits / max(int(inside.sum()), 1), hits / int(meant.sum()))


def _best_bound(
    states: FloatArray, meant: BoolArray, bounds: list[tuple[int, str, float]]
) -> tuple[float, tuple[int, str, float]]:
    inside = Bounds(tuple(bounds), 0.0, 0.0).within(states)
    best = (-1.0, (0, ">", -np.inf))
    for j in range(states.shape[1]):
        for side in (">", "<"):
            for value in _thresholds(states[inside, j], meant[inside]):
                score = _harmonic(inside & _side(states[:, j], side, value), meant)
                if score > best[0]:
                    best = (score, (j, side, float(value)))
    return best


def _thresholds(values: FloatArray, meant: BoolArray) -> FloatArray:
    """Return where a bound may lie: half-way between neighbours, at quantiles of what is meant."""
    distinct = np.unique(values)
    middles = 0.5 * (distinct[1:] + distinct[:-1])
    if len(middles) <= _CANDIDATES or not meant.any():
        return middles[:: max(len(middles) // _CANDIDATES, 1)]
    own = np.quantile(values[meant], np.linspace(0.0, 1.0, _CANDIDATES // 2))
    all_ = np.quantile(values, np.linspace(0.0, 1.0, _CANDIDATES // 2))
    at = np.concatenate([own, all_])
    near = np.searchsorted(middles, at)
    both = np.concatenate([near - 1, near])
    return np.asarray(middles[np.unique(np.clip(both, 0, len(middles) - 1))])


def _side(values: FloatArray, side: str, threshold: float) -> BoolArray:
    return values > threshold if side == ">" else values < threshold


def _harmonic(inside: BoolArray, meant: BoolArray) -> float:
    return 2.0 * float((inside & meant).sum()) / float(inside.sum() + meant.sum())
