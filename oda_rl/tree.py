"""The trees of annealed cells."""

from oda_rl.trees.classifier import ODATreeClassifier as ODATreeClassifier
from oda_rl.trees.clusterer import ODATreeClusterer as ODATreeClusterer
