"""The mixtures of exemplars."""

from oda_rl.exemplars.estimators import INFEX as INFEX
from oda_rl.exemplars.estimators import ConvexClustering as ConvexClustering
from oda_rl.exemplars.estimators import ExemplarMixture as ExemplarMixture
from oda_rl.exemplars.estimators import KernelVectorQuantization as KernelVectorQuantization
from oda_rl.exemplars.estimators import NotConvergedError as NotConvergedError
from oda_rl.exemplars.estimators import Round as Round
from oda_rl.exemplars.estimators import rule_of_thumb as rule_of_thumb
