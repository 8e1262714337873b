"""Figures of agents (``agents``), annealing (``annealing``) and other estimators (``estimators``).

Each is drawn into an axes of matplotlib; ``axes`` has what all share.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.plotting.agents import plot_difference as plot_difference
    from oda_rl.plotting.agents import plot_learning_curve as plot_learning_curve
    from oda_rl.plotting.agents import plot_metric as plot_metric
    from oda_rl.plotting.agents import plot_partition as plot_partition
    from oda_rl.plotting.agents import plot_policy as plot_policy
    from oda_rl.plotting.agents import plot_sizes as plot_sizes
    from oda_rl.plotting.agents import plot_world as plot_world
    from oda_rl.plotting.annealing import TemperatureLevel as TemperatureLevel
    from oda_rl.plotting.annealing import draw_lineage as draw_lineage
    from oda_rl.plotting.annealing import plot_bifurcation as plot_bifurcation
    from oda_rl.plotting.annealing import plot_cells_over_time as plot_cells_over_time
    from oda_rl.plotting.axes import COLORS as COLORS
    from oda_rl.plotting.axes import new_axes as new_axes
    from oda_rl.plotting.estimators import BifurcationDisplay as BifurcationDisplay
    from oda_rl.plotting.estimators import DensityDisplay as DensityDisplay
    from oda_rl.plotting.estimators import TradeOffDisplay as TradeOffDisplay

__getattr__, __dir__ = offer(
    __name__,
    {
        "BifurcationDisplay": "estimators",
        "COLORS": "axes",
        "DensityDisplay": "estimators",
        "TemperatureLevel": "annealing",
        "TradeOffDisplay": "estimators",
        "draw_lineage": "annealing",
        "new_axes": "axes",
        "plot_bifurcation": "annealing",
        "plot_cells_over_time": "annealing",
        "plot_difference": "agents",
        "plot_learning_curve": "agents",
        "plot_metric": "agents",
        "plot_partition": "agents",
        "plot_policy": "agents",
        "plot_sizes": "agents",
        "plot_world": "agents",
    },
)
