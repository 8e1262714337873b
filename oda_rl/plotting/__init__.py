"""Figures of agents and estimators, each drawn into an axes of matplotlib.

``agents`` draws learning curves, partitions and metrics, ``policies`` what a policy does in each
cell, ``differences`` what has changed between two, ``world`` what a learned world makes of an
episode, ``sizes`` what rules of more cells return, ``lineage`` how cells came from cells;
``annealing``, ``exemplars`` and ``mixtures`` draw the estimators, ``displays`` draws them as
scikit-learn does. ``axes`` are what all share.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.plotting.agents import plot_learning_curve as plot_learning_curve
    from oda_rl.plotting.agents import plot_metric as plot_metric
    from oda_rl.plotting.agents import plot_partition as plot_partition
    from oda_rl.plotting.axes import COLORS as COLORS
    from oda_rl.plotting.axes import new_axes as new_axes
    from oda_rl.plotting.differences import plot_difference as plot_difference
    from oda_rl.plotting.displays import BifurcationDisplay as BifurcationDisplay
    from oda_rl.plotting.displays import DensityDisplay as DensityDisplay
    from oda_rl.plotting.displays import TradeOffDisplay as TradeOffDisplay
    from oda_rl.plotting.lineage import TemperatureLevel as TemperatureLevel
    from oda_rl.plotting.lineage import draw_lineage as draw_lineage
    from oda_rl.plotting.lineage import plot_bifurcation as plot_bifurcation
    from oda_rl.plotting.lineage import plot_cells_over_time as plot_cells_over_time
    from oda_rl.plotting.policies import plot_policy as plot_policy
    from oda_rl.plotting.sizes import plot_sizes as plot_sizes
    from oda_rl.plotting.world import plot_world as plot_world

__getattr__, __dir__ = offer(
    __name__,
    {
        "BifurcationDisplay": "displays",
        "COLORS": "axes",
        "DensityDisplay": "displays",
        "TemperatureLevel": "lineage",
        "TradeOffDisplay": "displays",
        "draw_lineage": "lineage",
        "new_axes": "axes",
        "plot_bifurcation": "lineage",
        "plot_cells_over_time": "lineage",
        "plot_difference": "differences",
        "plot_learning_curve": "agents",
        "plot_metric": "agents",
        "plot_partition": "agents",
        "plot_policy": "policies",
        "plot_sizes": "sizes",
        "plot_world": "world",
    },
)
