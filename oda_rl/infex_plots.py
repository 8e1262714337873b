"""Figures of mixtures of exemplars."""

from oda_rl.plotting.exemplars import plot_density as plot_density
from oda_rl.plotting.exemplars import plot_images as plot_images
from oda_rl.plotting.exemplars import plot_rounds as plot_rounds
