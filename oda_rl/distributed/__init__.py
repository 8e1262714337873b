"""Annealing, and mixtures, of data that lie in blocks, here or on many machines: sums travel.

``blocks`` asks every block the same and adds up the answers, by Dask where the blocks are Dask's;
``sums`` is what blocks answer, and ``annealing`` leads a codebook by that. ``clusterer``,
``classifier`` and ``mixture`` are the estimators.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.distributed.classifier import DistributedODAClassifier as DistributedODAClassifier
    from oda_rl.distributed.clusterer import DistributedODAClusterer as DistributedODAClusterer
    from oda_rl.distributed.mixture import DistributedGaussianMixture as DistributedGaussianMixture

__getattr__, __dir__ = offer(
    __name__,
    {
        "DistributedGaussianMixture": "mixture",
        "DistributedODAClassifier": "classifier",
        "DistributedODAClusterer": "clusterer",
    },
)
