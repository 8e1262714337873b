"""Annealing of data that lie in blocks, on one machine or many: sums travel, rows stay.

``blocks`` asks every block the same and adds up the answers, by Dask where the blocks are Dask's;
``reading`` is how a block is read, and ``sums`` what it answers; ``annealing`` leads the codebook
by that; ``clusterer`` and ``classifier`` are the estimators, and ``collections`` what they say of
Dask's arrays and frames.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.distributed.classifier import DistributedODAClassifier as DistributedODAClassifier
    from oda_rl.distributed.clusterer import DistributedODAClusterer as DistributedODAClusterer

__getattr__, __dir__ = offer(
    __name__,
    {
        "DistributedODAClassifier": "classifier",
        "DistributedODAClusterer": "clusterer",
    },
)
