"""What the estimators of annealing over blocks share: learning by sums."""

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.annealing.base import BaseODA
from oda_rl.distributed.annealing import Course, nearest
from oda_rl.distributed.blocks import Blocks
from oda_rl.distributed.collections import is_lazy
from oda_rl.distributed.lazy import Lazy, by_blocks
from oda_rl.distributed.reading import Reader
from oda_rl.distributed.sums import Sums, Survey
from oda_rl.divergences import resolve

_LEAST_SPREAD = 1e-140


class Distributed(Lazy, BaseODA):
    """An annealing estimator that learns where rows lie."""

    @by_blocks(lambda model: np.empty((0, len(model.codevectors_))))
    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Divergences of points from the codevectors.

        Parameters
        ----------
        X : array-like or Dask collection, shape (n, d)
            In the domain of the divergence.

        Returns
        -------
        ndarray or dask.array.Array, shape (n, K)
            Of a collection it is computed when it is asked for, block by block.
        """
        return super().transform(X)

    @by_blocks(lambda model: np.empty(0))
    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Log-density of the histogram over the cells, as for :class:`oda_rl.ODAClusterer`.

        Parameters
        ----------
        X : array-like or Dask collection, shape (n, d)

        Returns
        -------
        ndarray or dask.array.Array, shape (n,)
        """
        return super().score_samples(X)

    _missing_needs = ""

    def _takes_missing(self) -> bool:
        return False

    def _takes_single(self) -> bool:
        return False

    def _refuse_lazy(self, X: Any) -> None:
        if is_lazy(X):
            raise ValueError(
                "X is a Dask collection: partial_fit learns from samples in their order; give it "
                "one block after another, or call fit"
            )

    def _survey(self, blocks: Blocks, classes: Array | None) -> Course:
        """Check the rows, and see what they are like."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        reader = Reader(resolve(self.divergence), classes)
        moments = blocks.total(Survey(reader, self.n_features_in_))
        if not moments.counts.any():
            raise ValueError("X has no row of a weight above 0: it must have at least one")
        spread = float((moments.high - moments.low).max())
        if 0.0 < spread < _LEAST_SPREAD:
            raise ValueError(
                f"X varies by {spread:g}: it must vary by {_LEAST_SPREAD:g}, or squares vanish"
            )
        return Course(blocks, reader, moments, int(self.samples_per_cluster), seed)

    def _grow(
        self, course: Course, *, refined: bool, probe: tuple[FloatArray, IntArray] | None = None
    ) -> None:
        """Anneal a new codebook; what its accuracy is measured on is ``probe``."""
        n_classes = course.reader.n_classes
        current = self._new_annealer(n_classes, course.seed, refined)
        current.probe = probe
        course.begin(current, self._checked_init(current.divergence, n_classes))
        course.anneal(current)
        self._annealer, self._waiting = current, None
        self._low, self._high = course.moments.low, course.moments.high

    def _measured(self, blocks: Blocks) -> Sums:
        """Check rows, and add up what the codevectors of predictions attract, each the nearest."""
        reader, own = Reader(self._annealer.divergence, None), self._own()
        blocks.total(Survey(reader, self.n_features_in_))
        return blocks.total(nearest(reader, own, np.zeros(len(own), dtype=np.int64)))
