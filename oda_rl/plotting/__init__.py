"""Figures of agents (``agents``) and of estimators (``estimators``), drawn into matplotlib axes."""

from oda_rl.plotting.agents import plot_difference as plot_difference
from oda_rl.plotting.agents import plot_episode as plot_episode
from oda_rl.plotting.agents import plot_learning_curve as plot_learning_curve
from oda_rl.plotting.agents import plot_metric as plot_metric
from oda_rl.plotting.agents import plot_partition as plot_partition
from oda_rl.plotting.agents import plot_policy as plot_policy
from oda_rl.plotting.agents import plot_sizes as plot_sizes
from oda_rl.plotting.agents import plot_world as plot_world
from oda_rl.plotting.axes import COLORS as COLORS
from oda_rl.plotting.axes import new_axes as new_axes
from oda_rl.plotting.estimators import animate_annealing as animate_annealing
from oda_rl.plotting.estimators import plot_annealing as plot_annealing
from oda_rl.plotting.estimators import plot_bifurcation as plot_bifurcation
from oda_rl.plotting.estimators import plot_cells_over_time as plot_cells_over_time
from oda_rl.plotting.estimators import plot_clusters as plot_clusters
from oda_rl.plotting.estimators import plot_component_grid as plot_component_grid
from oda_rl.plotting.estimators import plot_decision_regions as plot_decision_regions
from oda_rl.plotting.estimators import plot_density as plot_density
from oda_rl.plotting.estimators import plot_exemplar_density as plot_exemplar_density
from oda_rl.plotting.estimators import plot_mixture_density as plot_mixture_density
from oda_rl.plotting.estimators import plot_trade_off as plot_trade_off
