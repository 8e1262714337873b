"""What is asked of a density, whatever estimates it."""

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from oda_rl._types import FloatArray
from oda_rl.annealing.base import BaseODA
from oda_rl.annealing.clusterer import ODAClusterer
from oda_rl.exemplars.base import ExemplarMixture
from oda_rl.exemplars.candidates import ConvexClustering, KernelVectorQuantization
from oda_rl.exemplars.infex import INFEX
from oda_rl.filing.contents import check_contents
from oda_rl.filing.files import Filed
from oda_rl.mixtures.base import StreamingMixture
from oda_rl.mixtures.sgd import SGDGaussianMixture
from oda_rl.mixtures.stochastic_em import StochasticEMGaussianMixture
from oda_rl.samples.weights import Weighted
from oda_rl.trees.base import BaseODATree
from oda_rl.trees.clusterer import ODATreeClusterer

_COMPONENTS = 4
_SIZES = ("n_components", "n_clusters")
_KINDS: tuple[type, ...] = (
    *(ConvexClustering, INFEX, KernelVectorQuantization, ODAClusterer, ODATreeClusterer),
    *(SGDGaussianMixture, StochasticEMGaussianMixture),
)
STORED: dict[str, type] = {
    **{kind.__name__: kind for kind in _KINDS},
    **BaseODA._stored,
    **BaseODATree._stored,
    **ExemplarMixture._stored,
    **StreamingMixture._stored,
}
"""Classes that a file may have of densities."""


def fitted_density(estimator: Any, data: Weighted, seed: int) -> Any:
    """Fit a copy of an estimator to weighted samples.

    Parameters
    ----------
    estimator : estimator or None
        With ``score_samples``; None for a Gaussian mixture of 4 components. If its
        ``random_state`` is None it gets the seed; of few samples it has no more components.
    data : Weighted
    seed : int

    Raises
    ------
    TypeError
        If weights are not whole, and it takes none.
    """
    default = SGDGaussianMixture(_COMPONENTS, tol=1e-3)
    density = clone(default if estimator is None else estimator)
    known = density.get_params(deep=False)
    changed = {name: min(known[name], data.size) for name in _SIZES if name in known}
    if "random_state" in known and known["random_state"] is None:
        changed["random_state"] = seed
    density.set_params(**changed)
    if has_fit_parameter(density, "sample_weight"):
        return density.fit(data.points, sample_weight=data.weights)
    if (data.weights != np.floor(data.weights)).any():
        raise TypeError(f"{type(density).__name__} takes no weights of samples that are not whole")
    return density.fit(data.points.repeat(data.weights.astype(np.int64), axis=0))


def check_density(density: Any, n_features: int, where: str) -> None:
    """Raise an exception unless a density that comes out of a file could have been saved."""
    if not isinstance(density, Filed) or getattr(density, "n_features_in_", 0) != n_features:
        raise TypeError(f"{where} is no density of {n_features} features")
    density._validate_params()  # type: ignore[attr-defined]
    check_contents(density, {"d": n_features}, where)


def log_densities(density: Any, points: FloatArray) -> FloatArray:
    """Log-density of samples, shape (n,), finite: at least -1e300."""
    return np.asarray(np.maximum(density.score_samples(points), -1e300))
