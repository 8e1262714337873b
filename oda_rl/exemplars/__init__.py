"""Densities of exemplars, of which there may be infinitely many (INFEX).

``column_generation`` adds exemplars while one would help, ``pricing`` finds it, ``weights`` solves
for the weights of those there are. ``infex`` and ``candidates`` are the estimators: of exemplars
anywhere, and among given ones.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.exemplars.base import ExemplarMixture as ExemplarMixture
    from oda_rl.exemplars.base import rule_of_thumb as rule_of_thumb
    from oda_rl.exemplars.candidates import ConvexClustering as ConvexClustering
    from oda_rl.exemplars.candidates import KernelVectorQuantization as KernelVectorQuantization
    from oda_rl.exemplars.column_generation import Round as Round
    from oda_rl.exemplars.infex import INFEX as INFEX
    from oda_rl.exemplars.weights import NotConvergedError as NotConvergedError

__getattr__, __dir__ = offer(
    __name__,
    {
        "INFEX": "infex",
        "ConvexClustering": "candidates",
        "ExemplarMixture": "base",
        "KernelVectorQuantization": "candidates",
        "NotConvergedError": "weights",
        "Round": "column_generation",
        "rule_of_thumb": "base",
    },
)
