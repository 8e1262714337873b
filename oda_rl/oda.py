"""The annealing estimators."""

from oda_rl.annealing.classifier import ODAClassifier as ODAClassifier
from oda_rl.annealing.clusterer import ODAClusterer as ODAClusterer
from oda_rl.annealing.regressor import ODARegressor as ODARegressor
