"""The annealing estimators."""

from oda_rl.annealing.estimators import ODAClassifier as ODAClassifier
from oda_rl.annealing.estimators import ODAClusterer as ODAClusterer
from oda_rl.annealing.estimators import ODARegressor as ODARegressor
