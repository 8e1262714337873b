"""What is known of features before a mixture is learned: how many rows, and how they spread."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.distributed.blocks import Blocks, Rows
from oda_rl.distributed.reading import Reader
from oda_rl.divergences import SquaredEuclidean
from oda_rl.mixtures.base import beyond_rounding
from oda_rl.samples import filled


class InUnits(SquaredEuclidean):
    """|x − μ|², where each feature has a unit of its own.

    Parameters
    ----------
    units : ndarray, shape (d,)
    values : ndarray, shape (d,), optional
        What stands, in these units, for what is missing (NaN); by default it stays so.

    Examples
    --------
    >>> InUnits(np.array([2.0, 5.0]), np.ones(2)).embed(np.array([[4.0, np.nan]]))
    array([[2., 1.]])
    """

    def __init__(self, units: FloatArray, values: FloatArray | None = None) -> None:
        self.units, self.values = units, values

    def embed(self, points: FloatArray) -> FloatArray:
        """Take points, shape (n, d), to these units."""
        scaled = points / self.units
        return scaled if self.values is None else filled(scaled, self.values)

    def restore(self, codevectors: FloatArray) -> FloatArray:
        """Undo :meth:`embed`."""
        return codevectors * self.units


@dataclass(frozen=True)
class Extent:
    """Between which numbers features lie."""

    rows: int
    """Of weights above 0."""
    weight: float
    low: FloatArray
    """Least values of the features, shape (d,); inf if there are none."""
    high: FloatArray
    """Greatest values, likewise."""

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.rows + other.rows,
            self.weight + other.weight,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


@dataclass(frozen=True)
class Extents:
    """Asks a block for its extent, and checks it."""

    reader: Reader
    n_features: int

    def __call__(self, rows: Rows, index: int) -> Extent:
        """Answer."""
        self.reader.check(rows, index)
        d = self.n_features
        found = Extent(0, 0.0, np.full(d, np.inf), np.full(d, -np.inf))
        for points, _, weights in self.reader.read(rows, index):
            low = np.fmin.reduce(points, axis=0, initial=np.inf)
            high = np.fmax.reduce(points, axis=0, initial=-np.inf)
            found = found + Extent(len(points), float(weights.sum()), low, high)
        return found


@dataclass(frozen=True)
class Spread:
    """How features spread between their least value, which is 0 here, and their greatest, 1."""

    weights: FloatArray
    """Of the rows in which they are observed, shape (d,)."""
    means: FloatArray
    """Shape (d,)."""
    squares: FloatArray
    """Weighted sums of squared differences from the means, shape (d,)."""

    def __add__(self, other: Self) -> Self:
        weights, gaps = self.weights + other.weights, other.means - self.means
        shares = other.weights / np.where(weights > 0.0, weights, 1.0)
        return type(self)(
            weights,
            self.means + shares * gaps,
            self.squares + other.squares + self.weights * shares * gaps**2,
        )


@dataclass(frozen=True)
class Spreads:
    """Asks a block for its spread."""

    reader: Reader
    low: FloatArray
    widths: FloatArray
    """Greatest less least values, or 1, shape (d,)."""

    def __call__(self, rows: Rows, index: int) -> Spread:
        """Answer."""
        found = Spread(*np.zeros((3, len(self.low))))
        for points, _, weights in self.reader.read(rows, index):
            places = (points - self.low) / self.widths
            known = ~np.isnan(places) * weights[:, None]
            totals = known.sum(axis=0)
            shares = known / np.where(totals > 0.0, totals, 1.0)
            places = filled(places, np.zeros(1))
            means = (shares * places).sum(axis=0)
            found = found + Spread(totals, means, (known * (places - means) ** 2).sum(axis=0))
        return found


@dataclass(frozen=True)
class Features:
    """What all blocks say of the features."""

    rows: int
    weight: float
    known: FloatArray
    """Share of the weight in which they are observed, shape (d,)."""
    means: FloatArray
    """Shape (d,)."""
    deviations: FloatArray
    """Standard deviations, shape (d,): 0 of those that are constant."""
    size: float
    """Largest absolute value."""
    low: FloatArray
    """Shape (d,)."""
    high: FloatArray
    """Shape (d,)."""


def features_of(blocks: Blocks, n_features: int) -> Features:
    """Ask all blocks, twice.

    Where nothing is observed of a feature, numbers are NaN.

    Examples
    --------
    >>> from oda_rl.distributed.blocks import OneBlock
    >>> blocks = OneBlock(Rows(np.array([[0.0, 1.0], [4.0, np.nan], [2.0, 3.0]]), None, None))
    >>> found = features_of(blocks, 2)
    >>> found.rows, found.known.round(2), found.means, found.deviations.round(2)
    (3, array([1.  , 0.67]), array([2., 2.]), array([1.63, 1.  ]))
    """
    reader = Reader(SquaredEuclidean(), None, missing=True)
    extent = blocks.total(Extents(reader, n_features))
    if extent.rows == 0:
        raise ValueError("X has no row of a weight above 0: it must have at least one")
    observed = extent.low <= extent.high
    low, high = (np.where(observed, one, np.nan) for one in (extent.low, extent.high))
    widths = np.where(high > low, high - low, 1.0)
    spread = blocks.total(Spreads(reader, low, widths))
    weights = np.where(observed, spread.weights, np.nan)
    sizes = np.fmax(np.abs(low), np.abs(high))
    deviations = widths * np.sqrt(spread.squares / weights)
    deviations = beyond_rounding(deviations, sizes, float(np.finfo(np.float64).eps))
    size = float(np.fmax.reduce(sizes))
    means = low + widths * spread.means
    known = spread.weights / extent.weight
    return Features(extent.rows, extent.weight, known, means, deviations, size, low, high)
