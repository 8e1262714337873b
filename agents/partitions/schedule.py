"""Learners that compiled loops run themselves: their arrays, and one function for all of them."""

from typing import Annotated, NamedTuple

import numpy as np

from oda_rl._compile import compiled
from oda_rl._state import Raw, State, reader
from oda_rl._types import FloatArray
from oda_rl.annealing import cells as annealing
from oda_rl.diagram import Codevectors
from oda_rl.files.schema import COUNT, Member, Span
from oda_rl.quantization.kernels import Grid, observe_map

RESTING, INTERPRETED, ANNEALING, MAPPING = range(4)  # kinds of learner


class Schedule(State):
    """What kind of learner it is, and how far it has got."""

    kind: Annotated[int, Span("[0, 3]")]
    """``RESTING``, ``INTERPRETED``, ``ANNEALING`` or ``MAPPING``."""
    temperature: Annotated[float, Span("[0, inf) or nan")]
    """Of the current level; NaN where there are none."""
    samples: Annotated[int, Span(COUNT)]
    """Samples seen at this level or stage."""
    samples_needed: Annotated[float, Span("[0, inf)")]
    """So many until it is over."""


class MapSchedule(Schedule):
    """That of a self-organising map."""

    rows: Annotated[int, Span(COUNT)]
    """Of the map."""
    columns: Annotated[int, Span(COUNT)]
    """Of the map."""
    periodic: bool
    """Whether its sides are glued together."""
    rate: Annotated[float, Span("[0, 1]")]
    """Of the next step."""
    width: Annotated[float, Span("[0, inf)")]
    """Of the neighbourhood in the next step."""
    rate_decay: Annotated[float, Span("[0, inf)")]
    """Factor from one step to the next."""
    width_decay: Annotated[float, Span("[0, inf)")]
    """Factor from one step to the next."""


SAVED_SCHEDULE = Member(Schedule, "1")
SAVED_MAP_SCHEDULE = Member(MapSchedule, "1")

schedule_of, map_of = reader(Schedule), reader(MapSchedule)


class Learner(NamedTuple):
    """The arrays by which compiled loops run a partition's learner themselves."""

    cells: FloatArray
    """Masses and codevectors; see :class:`oda_rl.diagram.Codevectors`."""
    metric: FloatArray
    schedule: Raw
    """A :class:`Schedule`; of kind ``MAPPING``, a :class:`MapSchedule`."""


def new_schedule(kind: int, declaration: type[Schedule] = Schedule) -> Raw:
    """Return a schedule of a kind, without a temperature."""
    raw = np.zeros(declaration.size, dtype=np.uint8)
    Schedule(raw).assign({"kind": kind, "temperature": np.nan})
    return raw


def interpreted_learner(n_features: int) -> Learner:
    """Arrays of a learner without compiled code: every sample is given to ``observe``."""
    return Learner(np.zeros((1, 1 + n_features)), np.eye(n_features), new_schedule(INTERPRETED))


@compiled
def observe(
    diagram: FloatArray,
    learner: Learner,
    n_cells: int,
    point: FloatArray,
    weights: FloatArray,
    gradient: FloatArray,
) -> bool:
    """Let a learner see one point; return whether its cells are now due to be reshaped.

    ``weights``, shape (at least n_cells,), and ``gradient``, shape (at least d,), are scratch. At a
    temperature level of annealing the m-th sample has step size 1/(m + 1).
    """
    schedule = schedule_of(learner.schedule, 0)
    schedule.samples += 1
    codevectors = Codevectors(diagram, learner.cells, learner.metric, weights, gradient)
    if schedule.kind == MAPPING:
        on = map_of(learner.schedule, 0)
        grid = Grid(on.rows, on.columns, on.periodic > 0)
        observe_map(codevectors, grid, point, on.rate, on.width)
        on.rate *= on.rate_decay
        on.width *= on.width_decay
    else:
        step = 1.0 / (schedule.samples + 1.0)
        annealing.observe(codevectors, n_cells, point, schedule.temperature, step)
    return schedule.samples >= schedule.samples_needed
