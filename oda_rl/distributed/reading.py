"""Blocks read a few rows at a time, as numbers in double precision, and checked once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl._validation import HEAVIEST, bounded, chunks
from oda_rl.distributed.blocks import Rows
from oda_rl.divergences import Divergence


class Draw(NamedTuple):
    """Which rows are read: each by itself is drawn, or is not."""

    shares: FloatArray
    """Shape (C,): the probability that a row of a class is; 1 or more reads all."""
    seed: tuple[int, ...]
    """The same rows are drawn by the same seed, whoever reads."""


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
    """How rows become numbers."""

    divergence: Divergence
    classes: Array | None
    """Labels of the classes, shape (C,), sorted; None if there are none."""
    missing: bool = False
    """Whether values may be missing (NaN), though not all of a row."""

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
        kept = None if chosen.all() else np.flatnonzero(chosen)
        for part in chunks(len(points) if kept is None else len(kept)):
            own: Any = part if kept is None else kept[part]
            values = np.ascontiguousarray(points[own], dtype=np.float64)
            embedded = np.ascontiguousarray(self.divergence.embed(values))
            yield Chunk(embedded, classes[own], weights[own])

    def check(self, rows: Rows, index: int) -> None:
        """Raise ValueError if a block, by its number, is not what can be learned from."""
        points, where = np.asarray(rows.points), f"X, in block {index},"
        n = len(points)
        for name, column in (("y", rows.labels), ("sample_weight", rows.weights)):
            if column is not None and len(column) != n:
                raise ValueError(
                    f"{name} has {len(column)} rows in block {index}, X has {n}: give both the "
                    "same chunks"
                )
        weights = weights_of(rows.weights, n)
        if not ((weights >= 0.0) & (weights <= HEAVIEST)).all():
            bad = weights[~((weights >= 0.0) & (weights <= HEAVIEST))][0]
            raise ValueError(
                f"sample_weight holds {bad:g} in block {index}: weights must be from 0 to "
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
    """Return the weights of n rows; ones if they have none."""
    return np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)


def _refuse(wrong: Any, part: slice, what: str, right: str) -> None:
    if wrong.any():
        raise ValueError(f"{what} in row {part.start + int(wrong.argmax())} of it: {right}")
