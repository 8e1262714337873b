"""Results of blocks, which add up."""

from dataclasses import astuple, dataclass
from typing import Any, Self

import numpy as np

from oda_rl._compile import compiled
from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.annealing.kernels import FARTHEST, MIN_SHARE, measure, weigh
from oda_rl.distributed.blocks import Answer, Chunk, Draw, Reader, Rows, weights_of
from oda_rl.divergences import CALLED, QUADRATIC


@dataclass(frozen=True)
class Labels(Answer):
    """Labels of the rows."""

    values: Array
    """Distinct and sorted."""

    def __add__(self, other: Self) -> Self:
        return type(self)(np.unique(np.concatenate([self.values, other.values])))


def labels_of(rows: Rows, index: int) -> Labels:
    """Return the labels of the rows of a block with weights above 0."""
    labels = np.asarray(rows.labels)
    if rows.weights is not None and len(labels) == len(rows.weights):
        labels = labels[np.asarray(rows.weights) > 0.0]
    return Labels(np.unique(labels))


@dataclass(frozen=True)
class Moments(Answer):
    """Moments of each of C classes."""

    counts: IntArray
    """Rows of weights above 0, shape (C,)."""
    weights: FloatArray
    """Shape (C,)."""
    squares: float
    """Sum of the squares of the weights."""
    means: FloatArray
    """Shape (C, d), in the divergence's own coordinates."""
    low: FloatArray
    """Smallest values of the features, shape (d,), in the data's coordinates; inf if none."""
    high: FloatArray
    """Largest values, likewise."""

    def __add__(self, other: Self) -> Self:
        weights = self.weights + other.weights
        shares = other.weights / np.where(weights > 0.0, weights, 1.0)
        return type(self)(
            self.counts + other.counts,
            weights,
            self.squares + other.squares,
            self.means + shares[:, None] * (other.means - self.means),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


def survey(rows: Rows, index: int, *, reader: Reader, n_features: int) -> Moments:
    """Check a block, and return its moments."""
    reader.check(rows, index)
    none = Chunk(np.zeros((0, n_features)), np.zeros(0, np.int64), np.zeros(0))
    moments = _moments(none, reader)
    for chunk in reader.read(rows, index):
        moments = moments + _moments(chunk, reader)
    return moments


def _moments(chunk: Chunk, reader: Reader) -> Moments:
    points = chunk.points
    one_hot = chunk.classes == np.arange(reader.n_classes)[:, None]
    shares = one_hot * chunk.weights
    weights = shares.sum(axis=1)
    origin = points[:1].sum(axis=0)  # differences: accurate far from the origin, too
    shares /= np.where(weights > 0.0, weights, 1.0)[:, None]
    means = np.where(weights[:, None] > 0.0, origin + shares @ (points - origin), 0.0)
    values = reader.divergence.restore(points)
    low = values.min(axis=0, initial=np.inf)
    high = values.max(axis=0, initial=-np.inf)
    squares = float(chunk.weights @ chunk.weights)
    return Moments(one_hot.sum(axis=1), weights, squares, means, low, high)


@dataclass(frozen=True)
class Sums(Answer):
    """Sums of the samples of K codevectors of C classes."""

    masses: FloatArray
    """Σ w r_k, shape (K,)."""
    moves: FloatArray
    """Σ w r_k (x - μ_k), shape (K, d)."""
    counts: IntArray
    """Rows, shape (C,)."""
    weights: FloatArray
    """Σ w, shape (C,)."""
    distortions: FloatArray
    """Σ w d(x, nearest codevector), shape (C,)."""


@dataclass(frozen=True)
class Attraction:
    """Sums of a block for a codebook.

    r_k ∝ p_k exp(−d(x, μ_k)/T) among the codevectors of the sample's class, as in
    :mod:`oda_rl.annealing.cells`, with sums instead of single samples.
    """

    reader: Reader
    codevectors: FloatArray
    """Shape (K, d)."""
    masses: FloatArray
    """Shape (K,), positive."""
    labels: IntArray
    """Class of each, rising, shape (K,)."""
    temperature: float
    """T; at 0 the nearest codevector alone attracts."""
    draw: Draw | None = None

    def __call__(self, rows: Rows, index: int) -> Sums:
        """Return the sums of a block."""
        n, d = self.codevectors.shape
        n_classes = self.reader.n_classes
        sums = Sums(
            np.zeros(n), np.zeros((n, d)), np.zeros(n_classes, np.int64), np.zeros(n_classes),
            np.zeros(n_classes),
        )  # fmt: skip
        starts = np.searchsorted(self.labels, np.arange(n_classes + 1))
        divergence = self.reader.divergence
        diagram: FloatArray | None = None
        add: Any = _add_up
        if divergence.kernel != QUADRATIC:
            diagram = divergence.diagram(self.codevectors)
            add = _add_called if divergence.kernel == CALLED else _add_up
        # Copies, because arrays from other processes may be read-only: not what is compiled for.
        codevectors, masses = np.array(self.codevectors), np.array(self.masses)
        for chunk in self.reader.read(rows, index, self.draw):
            sums.counts[:] += np.bincount(chunk.classes, minlength=n_classes)
            sums.weights[:] += np.bincount(chunk.classes, chunk.weights, n_classes)
            potentials = np.zeros(len(chunk.points))
            if diagram is not None:
                potentials = divergence.potential(chunk.points)
            add(
                *chunk, potentials, codevectors, diagram, masses, starts,
                self.temperature, np.empty(n), sums.masses, sums.moves,
                sums.distortions,
            )  # fmt: skip
        return sums


def _add_called(
    points: FloatArray, classes: IntArray, weights: FloatArray, potentials: FloatArray,
    codevectors: FloatArray, diagram: FloatArray, masses: FloatArray, starts: IntArray,
    temperature: float, shares: FloatArray, totals: FloatArray, moves: FloatArray,
    distortions: FloatArray,
) -> None:  # fmt: skip
    """As :func:`_add_up`, for a divergence that Python computes."""
    for c in np.unique(classes):
        rows, own = classes == c, slice(starts[c], starts[c + 1])
        scores = diagram[own, 0] + points[rows] @ diagram[own, 1:].T
        gaps = scores - scores.min(axis=1, keepdims=True)
        if temperature > 0.0:
            shares = masses[own] * np.exp(-gaps / temperature)
            shares[gaps > FARTHEST * temperature] = 0.0
        else:
            shares = np.eye(gaps.shape[1])[gaps.argmin(axis=1)]
        total = shares.sum(axis=1, keepdims=True)
        shares[shares <= MIN_SHARE * total] = 0.0
        gains = shares * (weights[rows, None] / total)
        totals[own] += gains.sum(axis=0)
        moves[own] += gains.T @ points[rows] - gains.sum(axis=0)[:, None] * codevectors[own]
        least = potentials[rows] + scores.min(axis=1)
        distortions[c] += float(weights[rows] @ np.maximum(least, 0.0))


@compiled
def _add_up(
    points: FloatArray, classes: IntArray, weights: FloatArray, potentials: FloatArray,
    codevectors: FloatArray, diagram: FloatArray | None, masses: FloatArray, starts: IntArray,
    temperature: float, shares: FloatArray, totals: FloatArray, moves: FloatArray,
    distortions: FloatArray,
) -> None:  # fmt: skip
    """Add the sums of samples to ``totals``, ``moves`` and ``distortions``.

    ``diagram`` is None for the quadratic divergence; ``shares``, shape (K,), is scratch. The other
    arguments are those of :func:`oda_rl.annealing.kernels.learn`.
    """
    d = points.shape[1]
    for i in range(points.shape[0]):
        weight, first, last = weights[i], starts[classes[i]], starts[classes[i] + 1]
        smallest = measure(points, i, d, codevectors, diagram, first, last, shares)
        distortions[classes[i]] += weight * max(smallest + potentials[i], 0.0)
        if temperature > 0.0:
            total = weigh(masses, first, last, smallest, temperature, shares)
        else:
            total, winner = 1.0, first
            for k in range(first, last):
                if shares[k] < shares[winner]:
                    winner = k
            for k in range(first, last):
                shares[k] = 1.0 if k == winner else 0.0
        for k in range(first, last):
            if shares[k] > MIN_SHARE * total:
                gain = weight * (shares[k] / total)
                totals[k] += gain
                for j in range(d):
                    moves[k, j] += gain * (points[i, j] - codevectors[k, j])


@dataclass(frozen=True)
class Sample(Answer):
    """Some of the rows."""

    points: FloatArray
    """Shape (n, d), in the divergence's own coordinates."""
    classes: IntArray
    """Shape (n,)."""
    weights: FloatArray
    """Shape (n,)."""

    def __add__(self, other: Self) -> Self:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return type(self)(*(np.concatenate(pair) for pair in pairs))


def sampling(rows: Rows, index: int, *, reader: Reader, n_features: int, draw: Draw) -> Sample:
    """Draw rows of a block, with weights by the inverse of their probability."""
    shares = np.minimum(draw.shares, 1.0)
    drawn = [
        (chunk.points, chunk.classes, chunk.weights / shares[chunk.classes])
        for chunk in reader.read(rows, index, draw)
    ]
    none = np.zeros((0, n_features)), np.zeros(0, np.int64), np.zeros(0)
    return Sample(*(np.concatenate(parts) for parts in zip(none, *drawn, strict=True)))


@dataclass(frozen=True)
class Score(Answer):
    """Score of a model on rows."""

    total: float
    """Weighted sum of log-likelihoods, or of correct predictions."""
    weight: float
    rows: int

    @property
    def mean(self) -> float:
        """Weighted mean."""
        return self.total / self.weight


def scored(rows: Rows, index: int, *, model: Any) -> Score:
    """Accuracy of a classifier on a block, or log-likelihood if it has no labels."""
    points, scores = np.asarray(rows.points), np.zeros(0)
    weights = weights_of(rows.weights, len(points))
    if len(points) > 0 and rows.labels is None:
        scores = model.score_samples(points)
    elif len(points) > 0:
        scores = model.predict(points) == np.asarray(rows.labels)
    return Score(float(weights @ scores), float(weights.sum()), len(points))
