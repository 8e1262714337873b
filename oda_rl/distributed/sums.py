"""What a block answers: sums that add up with those of other blocks.

References
----------
[ODA-TNNLS] C. N. Mavridis, J. S. Baras, "Online deterministic annealing for classification and
clustering", IEEE Transactions on Neural Networks and Learning Systems, 2023.
K. Rose, "Deterministic annealing for clustering, compression, classification, regression, and
related optimization problems", Proceedings of the IEEE 86 (1998), 2210-2239.
"""

from dataclasses import astuple, dataclass, fields
from typing import Any, Self

import numpy as np

from oda_rl._compile import compiled, integer
from oda_rl._types import Array, FloatArray, IndexArray, IntArray
from oda_rl.annealing.codebook import (
    FARTHEST,
    LEAST_SHARE,
    Balls,
    Block,
    Layout,
    Scratch,
    visit,
    weigh,
)
from oda_rl.distributed.blocks import Rows
from oda_rl.distributed.reading import Chunk, Draw, Reader, weights_of
from oda_rl.divergences import CALLED, QUADRATIC


@dataclass(frozen=True)
class Labels:
    """Which labels there are."""

    values: Array
    """Sorted, each once."""
    objects: bool
    """Whether they are Python's objects."""

    def __add__(self, other: Self) -> Self:
        values = np.unique(np.concatenate([self.values, other.values]))
        return type(self)(values, self.objects or other.objects)


def labels_of(rows: Rows, index: int) -> Labels:
    """Find the labels of a block, of rows with weights above 0."""
    labels = np.asarray(rows.labels)
    if rows.weights is not None and len(labels) == len(rows.weights):
        labels = labels[np.asarray(rows.weights) > 0.0]
    return Labels(np.unique(labels), labels.dtype == object)


@dataclass(frozen=True)
class Moments:
    """What is known before learning, for each of C classes."""

    counts: IntArray
    """Rows of weights above 0, shape (C,)."""
    weights: FloatArray
    """Shape (C,)."""
    means: FloatArray
    """Shape (C, d), in the divergence's own coordinates."""
    low: FloatArray
    """Least values of the features, shape (d,), as they are in the data; inf if there are none."""
    high: FloatArray
    """Greatest values, likewise."""

    def __add__(self, other: Self) -> Self:
        weights = self.weights + other.weights
        shares = other.weights / np.where(weights > 0.0, weights, 1.0)
        return type(self)(
            self.counts + other.counts,
            weights,
            self.means + shares[:, None] * (other.means - self.means),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


@dataclass(frozen=True)
class Survey:
    """Asks a block for its moments, and checks it."""

    reader: Reader
    n_features: int

    def __call__(self, rows: Rows, index: int) -> Moments:
        """Answer."""
        self.reader.check(rows, index)
        found = self._of(Chunk(np.zeros((0, self.n_features)), np.zeros(0, np.int64), np.zeros(0)))
        for chunk in self.reader.read(rows, index):
            found = found + self._of(chunk)
        return found

    def _of(self, chunk: Chunk) -> Moments:
        points, n_classes = chunk.points, self.reader.n_classes
        one_hot = chunk.classes == np.arange(n_classes)[:, None]
        shares = one_hot * chunk.weights
        weights = shares.sum(axis=1)
        origin = points[:1].sum(axis=0)  # differences: accurate far from the origin, too
        shares /= np.where(weights > 0.0, weights, 1.0)[:, None]
        means = np.where(weights[:, None] > 0.0, origin + shares @ (points - origin), 0.0)
        values = self.reader.divergence.restore(points)
        low = values.min(axis=0, initial=np.inf)
        high = values.max(axis=0, initial=-np.inf)
        return Moments(one_hot.sum(axis=1), weights, means, low, high)


@dataclass(frozen=True)
class Sums:
    """What a codebook of K codevectors of C classes attracts."""

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

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Codevectors:
    """A codebook, as every block is shown it."""

    layout: Layout
    balls: Balls
    temperature: float
    """T; at 0 the nearest codevector alone attracts."""


@dataclass(frozen=True)
class Attraction:
    """Asks a block for the sums of a codebook.

    With r_k ∝ p_k exp(−d(x, μ_k)/T) among the codevectors of the sample's own class: [ODA-TNNLS]
    eq. 15, with the sums of Rose (1998) in place of the samples one by one.
    """

    reader: Reader
    codevectors: Codevectors
    draw: Draw | None = None

    def __call__(self, rows: Rows, index: int) -> Sums:
        """Answer."""
        layout = self.codevectors.layout
        n, d = len(layout.masses), len(layout.columns)
        n_classes = self.reader.n_classes
        sums = Sums(
            np.zeros(n), np.zeros((n, d)), np.zeros(n_classes, np.int64), np.zeros(n_classes),
            np.zeros(n_classes),
        )  # fmt: skip
        called = self.reader.divergence.kernel == CALLED
        add = self._add_called if called else self._adder(n, d)
        for chunk in self.reader.read(rows, index, self.draw):
            sums.counts[:] += np.bincount(chunk.classes, minlength=n_classes)
            sums.weights[:] += np.bincount(chunk.classes, chunk.weights, n_classes)
            add(chunk, sums)
        return sums

    def _adder(self, n: int, d: int) -> Any:
        """Prepare for compiled sums."""
        divergence, (layout, balls) = self.reader.divergence, self._own()
        kernel = None if divergence.kernel == QUADRATIC else divergence.kernel
        codevectors = np.ascontiguousarray(layout.columns[:, :n].T)
        n_segments = len(layout.starts) - 1
        several = n_segments >= len(layout.owners)
        scratch = np.empty(n), np.empty(n_segments, dtype=np.uint64)

        def add(chunk: Chunk, sums: Sums) -> None:
            affine = kernel is not None
            potentials = divergence.potential(chunk.points) if affine else np.zeros(len(chunk[0]))
            arguments: tuple[Any, ...] = (
                d, *chunk, potentials, *layout, self.codevectors.temperature, codevectors,
                *scratch, sums.masses, sums.moves, sums.distortions, kernel,
                balls if several else None,
            )  # fmt: skip
            add_up(*arguments)

        return add

    def _own(self) -> tuple[Layout, Balls]:
        """Arrays as they are compiled for: what comes from elsewhere may be read-only."""
        layout: Any = [np.array(array) for array in self.codevectors.layout]
        balls: Any = [np.array(array) for array in self.codevectors.balls]
        return Layout(*layout), Balls(*balls)

    def _add_called(self, chunk: Chunk, sums: Sums) -> None:
        """Do what :func:`add_up` does, for a divergence that Python computes."""
        layout, temperature = self.codevectors.layout, self.codevectors.temperature
        for c in np.unique(chunk.classes):
            of_class = chunk.classes == c
            points, weights = chunk.points[of_class], chunk.weights[of_class]
            own = slice(int(layout.starts[c]), int(layout.starts[c + 1]))
            scores = layout.offsets[own] + points @ layout.gradients[:, own]
            gaps = scores - scores.min(axis=1, keepdims=True)
            if temperature > 0.0:
                shares = layout.masses[own] * np.exp(-gaps / temperature)
                shares[gaps > FARTHEST * temperature] = 0.0
            else:
                shares = np.eye(gaps.shape[1])[gaps.argmin(axis=1)]
            totals = shares.sum(axis=1, keepdims=True)
            shares[shares <= LEAST_SHARE * totals] = 0.0
            gains = shares * (weights[:, None] / totals)
            masses = gains.sum(axis=0)
            sums.masses[own] += masses
            codevectors = layout.columns[:, own].T
            sums.moves[own] += gains.T @ points - masses[:, None] * codevectors
            least = self.reader.divergence.potential(points) + scores.min(axis=1)
            sums.distortions[c] += float(weights @ np.maximum(least, 0.0))


@compiled
def add_up(
    n_features: int,
    points: FloatArray,
    classes: IntArray,
    weights: FloatArray,
    potentials: FloatArray,
    columns: FloatArray,
    gradients: FloatArray,
    offsets: FloatArray,
    masses: FloatArray,
    starts: IndexArray,
    owners: IndexArray,
    temperature: float,
    codevectors: FloatArray,
    shares: FloatArray,
    visited: IndexArray,
    totals: FloatArray,
    moves: FloatArray,
    distortions: FloatArray,
    kernel: int | None,
    balls: Balls | None,
) -> None:
    """Add what samples give each codevector to ``totals``, ``moves`` and ``distortions``.

    The arguments are those of a :class:`oda_rl.annealing.codebook.Block` and of a
    :class:`oda_rl.annealing.codebook.Layout`, whose masses are positive; ``codevectors``, shape
    (K, d), are its columns. ``shares`` and ``visited`` are scratch. ``kernel`` is None for the
    quadratic divergence, ``balls`` if no class has several segments.
    """
    samples = Block(n_features, points, classes, weights, potentials)
    layout = Layout(columns, gradients, offsets, masses, starts, owners)
    scratch = Scratch(shares, visited)
    reach = FARTHEST * temperature
    for i in range(points.shape[0]):
        weight = weights[i]
        smallest, n_visited = visit(samples, i, layout, kernel, balls, reach, scratch)
        divergence = smallest + potentials[i]
        if divergence > 0.0:
            distortions[classes[i]] += weight * divergence
        if temperature > 0.0:
            total = weigh(layout, scratch, n_visited, smallest, temperature)
            least = LEAST_SHARE * total
        else:
            total, least = 1.0, 0.5
            free = integer(1)
            for t in range(n_visited):
                s = visited[t]
                for k in range(starts[s], starts[s + 1]):
                    nearest = free > 0 and shares[k] <= smallest
                    shares[k] = 1.0 if nearest else 0.0
                    if nearest:
                        free = 0
        for t in range(n_visited):
            s = visited[t]
            for k in range(starts[s], starts[s + 1]):
                if shares[k] > least:
                    gain = weight * (shares[k] / total)
                    totals[k] += gain
                    for j in range(n_features):
                        moves[k, j] += gain * (points[i, j] - codevectors[k, j])


@dataclass(frozen=True)
class Sample:
    """A few of the rows."""

    points: FloatArray
    """Shape (n, d), in the divergence's own coordinates."""
    classes: IntArray
    """Shape (n,)."""
    weights: FloatArray
    """Shape (n,)."""

    def __add__(self, other: Self) -> Self:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return type(self)(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class Sampling:
    """Asks a block for rows, each of which weighs so much more as others are left out."""

    reader: Reader
    n_features: int
    draw: Draw

    def __call__(self, rows: Rows, index: int) -> Sample:
        """Answer."""
        shares = np.minimum(self.draw.shares, 1.0)
        found = [
            (chunk.points, chunk.classes, chunk.weights / shares[chunk.classes])
            for chunk in self.reader.read(rows, index, self.draw)
        ]
        none = np.zeros((0, self.n_features)), np.zeros(0, np.int64), np.zeros(0)
        return Sample(*(np.concatenate(parts) for parts in zip(none, *found, strict=True)))


@dataclass(frozen=True)
class Agreed:
    """How much of what there is is predicted."""

    right: float
    weight: float

    def __add__(self, other: Self) -> Self:
        return type(self)(self.right + other.right, self.weight + other.weight)

    @property
    def share(self) -> float:
        """Of what is predicted."""
        return self.right / self.weight


@dataclass(frozen=True)
class Agreement:
    """Asks a block for the weight of the rows whose labels a model predicts."""

    model: Any

    def __call__(self, rows: Rows, index: int) -> Agreed:
        """Answer."""
        points, labels = np.asarray(rows.points), np.asarray(rows.labels)
        weights = weights_of(rows.weights, len(points))
        right = self.model.predict(points) == labels if len(points) > 0 else labels == labels
        return Agreed(float(weights @ right), float(weights.sum()))
