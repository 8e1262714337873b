"""Gaussian mixtures that learn from a stream, by gradients (SGD-GMM) or by stochastic EM.

``state`` is what a mixture consists of, ``kernels`` are the compiled steps, which ``learning`` runs
over a stream; ``base`` is what the estimators share, ``sgd`` and ``stochastic_em`` are these.
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
