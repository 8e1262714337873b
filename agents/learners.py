"""Learners that compiled loops run themselves: their arrays, and one function for all of them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl import annealing, neighbourhood
from oda_rl._compile import compiled

FloatArray = npt.NDArray[np.float64]

# Slots of a learner's schedule, and the kinds of learner.
KIND, TEMPERATURE, SAMPLES, SAMPLES_NEEDED = range(4)
ROWS, COLUMNS, PERIODIC, RATE, WIDTH, RATE_DECAY, WIDTH_DECAY = range(4, 11)  # of a map
N_SCHEDULE = 11
RESTING, INTERPRETED, ANNEALING, MAPPING = 0.0, 1.0, 2.0, 3.0


class Learner(NamedTuple):
    """The arrays by which compiled loops run a partition's learner themselves."""

    cells: FloatArray
    metric: FloatArray
    schedule: FloatArray


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
    n_cells: int,
    point: FloatArray,
    weights: FloatArray,
    gradient: FloatArray,
) -> bool:
    """Let the learner see one point; returns whether its cells are now due to be reshaped.

    At a temperature level of annealing the m-th sample has step size 1/(m + 1).
    """
    schedule[SAMPLES] += 1.0
    if schedule[KIND] == ANNEALING:
        annealing.observe(
            diagram,
            cells,
            metric,
            n_cells,
            point,
            schedule[TEMPERATURE],
            1.0 / (schedule[SAMPLES] + 1.0),
            weights,
            gradient,
        )
    else:
        neighbourhood.observe(
            diagram,
            cells,
            metric,
            int(schedule[ROWS]),
            int(schedule[COLUMNS]),
            schedule[PERIODIC] > 0.0,
            point,
            schedule[RATE],
            schedule[WIDTH],
            weights,
            gradient,
        )
        schedule[RATE] *= schedule[RATE_DECAY]
        schedule[WIDTH] *= schedule[WIDTH_DECAY]
    return bool(schedule[SAMPLES] >= schedule[SAMPLES_NEEDED])
