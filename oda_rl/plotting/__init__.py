"""Figures of agents (``agents``) and of estimators (``estimators``).

Each function draws into the matplotlib axes ``ax``, by default those of a new figure, and returns
them. Figures of the plane raise ValueError for samples of other than two features.
"""

from oda_rl.plotting.agents import plot_difference as plot_difference
from oda_rl.plotting.agents import plot_episode as plot_episode
from oda_rl.plotting.agents import plot_learning_curve as plot_learning_curve
from oda_rl.plotting.agents import plot_metric as plot_metric
from oda_rl.plotting.agents import plot_partition as plot_partition
from oda_rl.plotting.agents import plot_world as plot_world
from oda_rl.plotting.axes import COLORS as COLORS
from oda_rl.plotting.axes import new_axes as new_axes
from oda_rl.plotting.estimators import plot_bifurcation as plot_bifurcation
from oda_rl.plotting.estimators import plot_clusters as plot_clusters
from oda_rl.plotting.estimators import plot_decision_regions as plot_decision_regions
from oda_rl.plotting.estimators import plot_density as plot_density
