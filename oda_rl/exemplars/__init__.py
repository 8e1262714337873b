"""Densities of exemplars, of which there may be infinitely many (INFEX).

``column_generation`` adds exemplars while one would help, ``pricing`` finds it, ``weights`` solves
for the weights of those there are, and ``budget`` does with a number of them.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.exemplars.estimators import INFEX as INFEX
    from oda_rl.exemplars.estimators import ConvexClustering as ConvexClustering
    from oda_rl.exemplars.estimators import ExemplarMixture as ExemplarMixture
    from oda_rl.exemplars.estimators import KernelVectorQuantization as KernelVectorQuantization
    from oda_rl.exemplars.estimators import NotConvergedError as NotConvergedError
    from oda_rl.exemplars.estimators import Round as Round
    from oda_rl.exemplars.estimators import rule_of_thumb as rule_of_thumb

__getattr__, __dir__ = offer(
    __name__,
    {
        "INFEX": "estimators",
        "ConvexClustering": "estimators",
        "ExemplarMixture": "estimators",
        "KernelVectorQuantization": "estimators",
        "NotConvergedError": "estimators",
        "Round": "estimators",
        "rule_of_thumb": "estimators",
    },
)
