"""The trees of annealed cells."""

from oda_rl.trees.estimators import ODATreeClassifier as ODATreeClassifier
from oda_rl.trees.estimators import ODATreeClusterer as ODATreeClusterer
