"""Figures of Gaussian mixtures."""

from oda_rl.plotting.mixtures import plot_component_grid as plot_component_grid
from oda_rl.plotting.mixtures import plot_density as plot_density
