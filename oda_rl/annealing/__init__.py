"""Online deterministic annealing: cells that split as a temperature falls, and its estimators.

``cells`` moves codevectors one sample at a time, for the agents, and ``kernels`` in blocks;
``annealer`` takes a codebook through its temperatures, and ``refinement`` improves the result.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.annealing.annealer import AnnealingConstants as AnnealingConstants
    from oda_rl.annealing.bifurcation import critical_temperature as critical_temperature

__getattr__, __dir__ = offer(__name__, __file__)
