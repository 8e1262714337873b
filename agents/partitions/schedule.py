"""Learners that compiled loops run themselves: their arrays, and one function for all of them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled
from oda_rl.annealing import cells as annealing
from oda_rl.diagram import Codevectors
from oda_rl.quantization import neighbourhood

FloatArray = npt.NDArray[np.float64]

# Slots of a learner's schedule, and the kinds of learner.
KIND, TEMPERATURE, SAMPLES, SAMPLES_NEEDED = range(4)
N_SCHEDULE = 11
RESTING, INTERPRETED, ANNEALING, MAPPING = 0.0, 1.0, 2.0, 3.0

# Slots of a map, which are the schedule's last ones.
ROWS, COLUMNS, PERIODIC, RATE, WIDTH, RATE_DECAY, WIDTH_DECAY = range(7)
N_SOM = 7


class Learner(NamedTuple):
    """The arrays by which compiled loops run a partition's learner themselves."""

    cells: FloatArray
    metric: FloatArray
    schedule: FloatArray
    som: FloatArray | None = None
    """Slots of a self-organising map; where there is none, its branch is not compiled."""


def new_schedule(kind: float) -> FloatArray:
    """Return a schedule of a kind, without a temperature."""
    schedule = np.zeros(N_SCHEDULE)
    schedule[KIND], schedule[TEMPERATURE] = kind, np.nan
    return schedule


def interpreted_learner(n_features: int) -> Learner:
    """Arrays of a learner without compiled code: every sample is given to ``observe``."""
    return Learner(np.zeros((1, 1 + n_features)), np.eye(n_features), new_schedule(INTERPRETED))


@compiled
def observe_compiled(
    diagram: FloatArray,
    cells: FloatArray,
    metric: FloatArray,
    schedule: FloatArray,
    som: FloatArray | None,
    n_cells: int,
    room: FloatArray,
) -> bool:
    """Let the learner see one point; returns whether its cells are now due to be reshaped.

    The point is the first row of ``room``, shape (at least 3, at least max(n_cells, d)), whose next
    rows are scratch.

    At a temperature level of annealing the m-th sample has step size 1/(m + 1).
    """
    point, weights, gradient = room[0], room[1], room[2]
    samples = schedule[SAMPLES] + 1.0
    schedule[SAMPLES] = samples
    codevectors = Codevectors(diagram, cells, metric, weights, gradient)
    if som is None:
        step = 1.0 / (samples + 1.0)
        temperature = schedule[TEMPERATURE]
        annealing.observe(codevectors, n_cells, point, temperature, step)
    else:
        grid = neighbourhood.Grid(int(som[ROWS]), int(som[COLUMNS]), som[PERIODIC] > 0.0)
        neighbourhood.observe(codevectors, grid, point, som[RATE], som[WIDTH])
        som[RATE] *= som[RATE_DECAY]
        som[WIDTH] *= som[WIDTH_DECAY]
    return bool(samples >= schedule[SAMPLES_NEEDED])
