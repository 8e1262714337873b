"""What densities are good for: telling classes apart, and what is unusual.

``classifier`` has one density a class, ``outliers`` one of all that is usual; ``base`` is what both
ask of a density, which may be any estimator with ``score_samples``.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.densities.classifier import DensityClassifier as DensityClassifier
    from oda_rl.densities.outliers import DensityOutlierDetector as DensityOutlierDetector

__getattr__, __dir__ = offer(
    __name__,
    {
        "DensityClassifier": "classifier",
        "DensityOutlierDetector": "outliers",
    },
)
