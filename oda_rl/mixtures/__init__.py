"""Gaussian mixtures that learn from a stream, by gradients (SGD-GMM) or by stochastic EM.

``updates`` are the compiled steps of one sample or batch, ``distances`` what they have in common,
and ``learning`` runs them over a stream.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.mixtures.estimators import SGDGaussianMixture as SGDGaussianMixture
    from oda_rl.mixtures.estimators import (
        StochasticEMGaussianMixture as StochasticEMGaussianMixture,
    )
    from oda_rl.mixtures.estimators import StreamingMixture as StreamingMixture

__getattr__, __dir__ = offer(
    __name__,
    {
        "SGDGaussianMixture": "estimators",
        "StochasticEMGaussianMixture": "estimators",
        "StreamingMixture": "estimators",
    },
)
