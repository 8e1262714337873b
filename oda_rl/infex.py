"""The mixtures of exemplars."""

from oda_rl.exemplars.base import ExemplarMixture as ExemplarMixture
from oda_rl.exemplars.base import rule_of_thumb as rule_of_thumb
from oda_rl.exemplars.candidates import ConvexClustering as ConvexClustering
from oda_rl.exemplars.candidates import KernelVectorQuantization as KernelVectorQuantization
from oda_rl.exemplars.column_generation import Round as Round
from oda_rl.exemplars.infex import INFEX as INFEX
from oda_rl.exemplars.weights import NotConvergedError as NotConvergedError
