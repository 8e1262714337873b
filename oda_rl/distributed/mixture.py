"""A Gaussian mixture of data that lie in blocks, by expectation maximization with sums over them.

References
----------
A. P. Dempster, N. M. Laird, D. B. Rubin, "Maximum likelihood from incomplete data via the EM
algorithm", Journal of the Royal Statistical Society B 39, 1977.
"""

import math
import warnings
from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import check_columns, checked_weights
from oda_rl.distributed.blocks import Blocks, OneBlock, Rows
from oda_rl.distributed.collections import blocks_of, is_lazy
from oda_rl.distributed.exchanging import best_of
from oda_rl.distributed.expectations import Scored, Scoring
from oda_rl.distributed.extents import Features, InUnits, features_of
from oda_rl.distributed.lazy import Lazy, by_blocks
from oda_rl.distributed.maximization import Climb
from oda_rl.distributed.placing import places
from oda_rl.distributed.reading import Reader
from oda_rl.divergences import SquaredEuclidean
from oda_rl.files.estimators import COUNT, NOT_NEGATIVE, Seed, estimator, validated
from oda_rl.files.schema import Optional, flags, real
from oda_rl.mixtures.base import StreamingMixture, VarianceFloor
from oda_rl.samples import weighted

_READER = Reader(SquaredEuclidean(), None, missing=True)  # of what is in units


@estimator
class DistributedGaussianMixture(Lazy, StreamingMixture):
    """Gaussian mixture of a Dask array or frame, by sums that blocks add up where they lie.

    In a pass each block adds up what every component takes of its rows: weights, means and
    covariances follow from the sums of all blocks, as expectation maximization has it. Means start
    from annealed codevectors (:class:`oda_rl.DistributedODAClusterer`). Rows stay where they are,
    but for a sample of about 50,000 (or 10 a component), on which components find their places:
    with responsibilities that are tempered at first, and by exchanges, in which a component that is
    hardly needed takes over half of another one. Passes over all rows follow. Dask computes again
    what is lost with a worker. The same blocks and the same ``random_state`` give the same bits,
    whatever computes them.

    It needs ``pip install "oda-rl[cluster]"``. ``fit`` reads the data once a pass: call
    ``X.persist()`` before if the cluster has the memory.

    Parameters
    ----------
    n_components : int, default=1
        K ≥ 1.
    covariance_type : {"diag", "full", "tied_spherical"}, default="diag"
        As for :class:`oda_rl.SGDGaussianMixture`.
    max_iter : int, default=100
        Most passes over all rows, ≥ 1.
    tol : float, default=1e-4
        ``fit`` ends when a pass raises the mean log-likelihood by less; ≥ 0.
    variance_floor : float, array-like of shape (n_features,) or None, default=None
        As for :class:`oda_rl.SGDGaussianMixture`.
    random_state : int, RandomState instance or None, default=None
        Draws the rows that annealing reads and the sample, and :meth:`sample`.

    Attributes
    ----------
    weights_, means_, covariances_, precisions_, precisions_cholesky_, variance_floor_ : ndarray
        As of :class:`oda_rl.SGDGaussianMixture`.
    converged_ : bool
        Whether ``fit`` has ended by ``tol``.
    n_iter_ : int
        Passes over all rows after components have found their places.
    lower_bound_ : float
        Mean log-likelihood of the rows in the last pass.
    n_features_in_, feature_names_in_
        Number of features, and their names, if X had any.

    References
    ----------
    A. P. Dempster, N. M. Laird, D. B. Rubin, "Maximum likelihood from incomplete data via the EM
    algorithm", Journal of the Royal Statistical Society B 39, 1977; N. Ueda, R. Nakano,
    "Deterministic annealing EM algorithm", Neural Networks 11, 1998; N. Ueda, R. Nakano, Z.
    Ghahramani, G. E. Hinton, "SMEM algorithm for mixture models", Neural Computation 12, 2000.

    Examples
    --------
    >>> import dask.array as da
    >>> from oda_rl import DistributedGaussianMixture
    >>> X = np.random.default_rng(0).normal([[-3.0], [3.0]], 1.0, (2, 500)).reshape(-1, 1)
    >>> X = da.from_array(X, chunks=(250, 1))
    >>> mixture = DistributedGaussianMixture(2, random_state=0).fit(X)
    >>> np.sort(mixture.means_.ravel()).round(0)
    array([-3.,  3.])
    >>> mixture.predict(X).chunks
    ((250, 250, 250, 250),)
    """

    n_components: Annotated[int, COUNT] = 1
    _: KW_ONLY
    covariance_type: Annotated[str, StrOptions({"diag", "full", "tied_spherical"})] = "diag"
    max_iter: Annotated[int, COUNT] = 100
    tol: Annotated[float, NOT_NEGATIVE] = 1e-4
    variance_floor: VarianceFloor = None
    random_state: Seed = None

    LEARNED: ClassVar[dict[str, Any]] = {
        **StreamingMixture.LEARNED,
        "converged_": Optional(flags()),
        "lower_bound_": Optional(real()),
    }

    @validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        """Learn anew, by sums over all blocks.

        Parameters
        ----------
        X : Dask array or frame, or array-like, shape (n_samples, n_features)
            At least ``n_components`` rows; NaN where values are missing, which are integrated out.
            What is no collection is one block.
        y : Ignored
        sample_weight : Dask array, or array-like, shape (n_samples,), optional
            At least 0; in the blocks of X. A weight of 2 is the same as a row that stands there
            twice.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X is not that, or ``variance_floor`` does not fit; if nothing is observed of a row,
            or of a feature.

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` passes were too few.
        """
        blocks = self._opened(X, sample_weight)
        features = features_of(blocks, self.n_features_in_)
        self._check_features(features)
        self._set_units(features.deviations, features.size)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        means, sample = places(blocks, features, self._units, self.n_components, seed)
        shape = self.covariance_type, self._max_precision
        here = Climb(OneBlock(Rows(sample.points, None, sample.weights)), _READER, *shape)
        start = best_of(here, sample, means, float(self.tol)).mixture
        reader = Reader(InUnits(self._units), None, missing=True)
        climb = Climb(blocks, reader, *shape)
        reached = climb.climb(start, int(self.max_iter), float(self.tol))
        self._mixture, self.n_iter_ = reached.mixture, reached.passes
        self.converged_ = reached.converged
        constant = np.log(self._units) + 0.5 * math.log(2.0 * math.pi)
        self.lower_bound_ = reached.score - float(features.known @ constant)
        if not self.converged_:
            warnings.warn(
                f"max_iter={self.max_iter} passes over {features.rows} rows were too few to "
                f"converge: the last one began at {self.lower_bound_:.6g}",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def fit_predict(self, X: npt.ArrayLike, y: object = None, **fit_params: Any) -> IntArray:
        """Fit, and find the component that most likely made each row, of a collection lazily.

        Parameters
        ----------
        X, y
            As for :meth:`fit`.
        **fit_params
            ``sample_weight``.

        Returns
        -------
        ndarray or dask.array.Array, shape (n_samples,)
        """
        return self.fit(X, y, **fit_params).predict(X)

    @by_blocks(lambda model: np.empty(0, np.int64))
    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Find the component that most likely made each row.

        Parameters
        ----------
        X : array-like or Dask collection, shape (n_samples, n_features)
            NaN where values are missing.

        Returns
        -------
        ndarray or dask.array.Array, shape (n_samples,)
            Of a collection it is computed when it is asked for, block by block.
        """
        return super().predict(X)

    @by_blocks(lambda model: np.empty((0, len(model._mixture.weights))))
    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Responsibilities: how probably each component made each row.

        Parameters
        ----------
        X : array-like or Dask collection, shape (n_samples, n_features)
            NaN where values are missing.

        Returns
        -------
        ndarray or dask.array.Array, shape (n_samples, n_components)
            Rows sum to 1.
        """
        return super().predict_proba(X)

    @by_blocks(lambda model: np.empty(0))
    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Log-likelihood of each row.

        Parameters
        ----------
        X : array-like or Dask collection, shape (n_samples, n_features)
            NaN where values are missing.

        Returns
        -------
        ndarray or dask.array.Array, shape (n_samples,)
            Finite, however far outside a row is.
        """
        return super().score_samples(X)

    def score(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> float:
        """Mean log-likelihood of the rows.

        Parameters
        ----------
        X : array-like or Dask collection, shape (n_samples, n_features)
            Of a collection blocks answer with sums, too.
        y : Ignored
        sample_weight : as X is, shape (n_samples,), optional
            At least 0.
        """
        if not is_lazy(X):
            return super().score(X, y, sample_weight)
        scored = self._scored(X, sample_weight)
        return scored.total / scored.weight

    def aic(self, X: npt.ArrayLike) -> float:
        """Akaike's information criterion on X; the lower the better.

        Parameters
        ----------
        X : array-like or Dask collection, shape (n_samples, n_features)
        """
        if not is_lazy(X):
            return super().aic(X)
        return 2.0 * (self._n_parameters() - self._scored(X).total)

    def bic(self, X: npt.ArrayLike) -> float:
        """Bayes' information criterion on X; the lower the better.

        Parameters
        ----------
        X : array-like or Dask collection, shape (n_samples, n_features)
        """
        if not is_lazy(X):
            return super().bic(X)
        scored = self._scored(X)
        return self._n_parameters() * math.log(scored.rows) - 2.0 * scored.total

    def _scored(self, X: Any, sample_weight: Any = None) -> Scored:
        check_is_fitted(self)
        blocks = blocks_of(self, X, None, sample_weight, reset=False)
        return blocks.total(Scoring(self._bare()))

    def _opened(self, X: Any, sample_weight: Any) -> Blocks:
        """Check rows that are here, and put them into an order of their own; or find the blocks."""
        if is_lazy(X):
            return blocks_of(self, X, None, sample_weight, reset=True)
        points = self._learnable(X, reset=True)
        data = weighted(points, checked_weights(sample_weight, points))
        return OneBlock(Rows(data.points, None, data.weights))

    def _check_features(self, features: Features) -> None:
        size = max(features.rows, round(features.weight))
        if size < self.n_components:
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = {self.n_components}, "
                f"n_samples = {size}"
            )
        check_columns(self, np.where(features.known > 0.0, 0.0, np.nan)[None])
