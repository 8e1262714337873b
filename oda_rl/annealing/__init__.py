"""Online deterministic annealing: cells that split as a temperature falls, and its estimators.

``cells`` moves codevectors one sample at a time, for the agents, and ``codebook`` in blocks of
samples; ``annealer`` leads a codebook through its temperature levels, ``refinement`` polishes what
it ends with. ``estimators`` are the scikit-learn faces.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.annealing.estimators import ODAClassifier as ODAClassifier
    from oda_rl.annealing.estimators import ODAClusterer as ODAClusterer
    from oda_rl.annealing.estimators import ODARegressor as ODARegressor

__getattr__, __dir__ = offer(
    __name__,
    {
        "ODAClassifier": "estimators",
        "ODAClusterer": "estimators",
        "ODARegressor": "estimators",
    },
)
