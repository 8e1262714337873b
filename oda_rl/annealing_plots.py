"""Figures of the annealing estimators."""

from oda_rl.plotting.annealing import animate_annealing as animate_annealing
from oda_rl.plotting.annealing import plot_annealing as plot_annealing
from oda_rl.plotting.annealing import plot_clusters as plot_clusters
from oda_rl.plotting.annealing import plot_decision_regions as plot_decision_regions
from oda_rl.plotting.annealing import plot_trade_off as plot_trade_off
