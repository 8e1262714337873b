"""What is unusual by a density of what is usual."""

from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods

from oda_rl._parameters import Seed, estimator, validated, within
from oda_rl._schema import Sizes, real
from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import checked_points, checked_weights, fitted_points
from oda_rl.densities.base import STORED, check_density, fitted_density, log_densities
from oda_rl.filing.contents import ANYTHING, Optional, check_fitted
from oda_rl.filing.files import Filed
from oda_rl.samples.weights import weighted


@estimator
class DensityOutlierDetector(Filed, OutlierMixin, BaseEstimator):
    """Tell outliers by a density: what is less likely than a share of the training samples.

    Parameters
    ----------
    estimator : estimator or None, default=None
        As for :class:`oda_rl.DensityClassifier`.
    contamination : float, default=0.1
        Share of the training samples that are outliers, in (0, 0.5].
    random_state : int, RandomState instance or None, default=None
        Seeds a density whose own ``random_state`` is None.

    Attributes
    ----------
    density_ : estimator
        Fitted to all samples.
    offset_ : float
        Log-density below which a sample is an outlier.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray, shape (d,)
        Names of the features, where X had names.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> model = DensityOutlierDetector(random_state=0).fit(X)
    >>> model.predict([[0.0, 0.0], [9.0, 9.0]])
    array([ 1, -1])
    >>> int((model.predict(X) == -1).sum())
    30
    """

    estimator: Annotated[Any, HasMethods(["fit", "score_samples"]), None] = None
    contamination: Annotated[float, within("(0, 0.5]")] = 0.1
    random_state: Seed = None

    _stored = STORED
    LEARNED: ClassVar[dict[str, Any]] = {
        "density_": Optional(ANYTHING),
        "offset_": Optional(real()),
    }
    """What a file may say of what was learned; the density has a schema of its own."""

    def check_contents(self, sizes: Sizes, where: str) -> None:
        """Raise InvalidFileError if what a file says does not belong together."""
        if check_fitted((name in vars(self) for name in self.LEARNED), where):
            check_density(self.density_, sizes["d"], f"{where}.density_")

    @validated
    def fit(self, X: npt.ArrayLike, y: object = None, sample_weight: Any = None) -> Self:
        """Fit the density, and find what is unusual by it.

        Parameters
        ----------
        X : array-like, shape (n, d)
        y : Ignored
        sample_weight : array-like, shape (n,), optional
            At least 0; a weight of 2 is the same as a row that stands there twice.

        Raises
        ------
        TypeError
            If weights are not whole, and ``estimator`` takes none.
        """
        points = checked_points(self, X, reset=True)
        data = weighted(points, checked_weights(sample_weight, points))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.density_ = fitted_density(self.estimator, data, seed)
        scores = log_densities(self.density_, data.points)
        self.offset_ = _least_usual(scores, data.weights, float(self.contamination))
        return self

    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Log-density of each sample.

        Parameters
        ----------
        X : array-like, shape (n, d)

        Returns
        -------
        ndarray, shape (n,)
            The smaller the more unusual.
        """
        points = fitted_points(self, X)
        return log_densities(self.density_, points)

    def decision_function(self, X: npt.ArrayLike) -> FloatArray:
        """Log-density above ``offset_``; negative for outliers.

        Parameters
        ----------
        X : array-like, shape (n, d)

        Returns
        -------
        ndarray, shape (n,)
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """-1 for outliers, 1 for others.

        Parameters
        ----------
        X : array-like, shape (n, d)

        Returns
        -------
        ndarray, shape (n,)
        """
        return np.where(self.decision_function(X) < 0.0, -1, 1)


def _least_usual(scores: FloatArray, weights: FloatArray, share: float) -> float:
    """Score below which lies a share of the weight: half way between two of the scores.

    >>> _least_usual(np.array([4.0, 1.0, 2.0, 3.0]), np.ones(4), 0.25)
    1.5
    """
    order = np.argsort(scores, kind="stable")
    ends = np.cumsum(weights[order])
    first = int(np.searchsorted(ends, share * ends[-1] * (1.0 + 1e-9), side="right"))
    inside = float(scores[order[min(first, len(order) - 1)]])
    if first == 0:
        return inside
    between = 0.5 * (inside + float(scores[order[first - 1]]))
    return between if between > -1e290 else inside
