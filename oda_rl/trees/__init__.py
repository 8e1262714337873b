"""Trees of annealed cells, each level at a finer resolution of the data.

``growth`` splits nodes as samples arrive, ``nodes`` are their cells and statistics;
``base`` is what the estimators share; ``clusterer``, ``classifier`` and
``regressor`` are the estimators.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.trees.classifier import ODATreeClassifier as ODATreeClassifier
    from oda_rl.trees.clusterer import ODATreeClusterer as ODATreeClusterer
    from oda_rl.trees.regressor import ODATreeRegressor as ODATreeRegressor

__getattr__, __dir__ = offer(
    __name__,
    {
        "ODATreeClassifier": "classifier",
        "ODATreeClusterer": "clusterer",
        "ODATreeRegressor": "regressor",
    },
)
