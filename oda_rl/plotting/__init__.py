"""Figures of agents and estimators, each drawn into an axes of matplotlib.

``agents`` draws learning curves, partitions, metrics, policies and bifurcations; ``annealing``,
``exemplars`` and ``mixtures`` draw the estimators.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.plotting.agents import COLORS as COLORS
    from oda_rl.plotting.agents import TemperatureLevel as TemperatureLevel
    from oda_rl.plotting.agents import draw_lineage as draw_lineage
    from oda_rl.plotting.agents import new_axes as new_axes
    from oda_rl.plotting.agents import plot_bifurcation as plot_bifurcation
    from oda_rl.plotting.agents import plot_cells_over_time as plot_cells_over_time
    from oda_rl.plotting.agents import plot_learning_curve as plot_learning_curve
    from oda_rl.plotting.agents import plot_metric as plot_metric
    from oda_rl.plotting.agents import plot_partition as plot_partition
    from oda_rl.plotting.agents import plot_policy as plot_policy

__getattr__, __dir__ = offer(
    __name__,
    {
        "COLORS": "agents",
        "TemperatureLevel": "agents",
        "draw_lineage": "agents",
        "new_axes": "agents",
        "plot_bifurcation": "agents",
        "plot_cells_over_time": "agents",
        "plot_learning_curve": "agents",
        "plot_metric": "agents",
        "plot_partition": "agents",
        "plot_policy": "agents",
    },
)
