"""Annealing, and mixtures, of data that lie in blocks, here or on many machines: sums travel.

``blocks`` asks every block the same and adds up the answers, by Dask where the blocks are Dask's;
``reading`` is how a block is read, and ``sums`` what it answers; ``annealing`` leads the codebook
by that; ``clusterer`` and ``classifier`` are the estimators, and ``collections`` and ``lazy`` what
they say of Dask's arrays and frames. ``mixture`` is the estimator of a Gaussian mixture:
``extents`` says in which units, ``placing`` where its components start, ``expectations`` is what a
block answers, ``maximization`` leads by that, and ``exchanging`` finds better places on a sample.
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
