"""Gaussian mixtures that learn from a stream, by gradients (SGD-GMM) or by stochastic EM.

``state`` is what a mixture consists of. ``updates``, ``em`` and ``gradients`` are the compiled
steps of one sample or batch, ``distances`` and ``densities`` what they have in common,
``units`` what lengths and the floor of variances are measured in, and ``learning`` runs them over
a stream. ``sgd`` and ``stochastic_em`` are the estimators.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.mixtures.base import StreamingMixture as StreamingMixture
    from oda_rl.mixtures.sgd import SGDGaussianMixture as SGDGaussianMixture
    from oda_rl.mixtures.stochastic_em import (
        StochasticEMGaussianMixture as StochasticEMGaussianMixture,
    )

__getattr__, __dir__ = offer(
    __name__,
    {
        "SGDGaussianMixture": "sgd",
        "StochasticEMGaussianMixture": "stochastic_em",
        "StreamingMixture": "base",
    },
)
