"""What an agent asks of a partition, and how compiled loops run its learner themselves."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from oda_rl._compile import compiled
from oda_rl._state import Raw, State, reader
from oda_rl._types import Array, FloatArray
from oda_rl.agents.base.settings import Checked
from oda_rl.annealing import cells as annealing
from oda_rl.diagram import Codevectors
from oda_rl.files.schema import COUNT, Member, Sizes, Span, check, require
from oda_rl.quantization.kernels import Grid, observe_map

Lineage = FloatArray
"""Shape (new cells, old cells): row k says with which weights (summing to 1) new cell k comes from
the old ones. An old cell in several rows was split; several old cells in one row were merged."""


class Scaling(NamedTuple):
    """How an agent measures its observations at present."""

    transform: FloatArray
    """Shape (d, d): distances are Euclidean in ``transform @ point``, of total variance 2."""
    origin: FloatArray
    """Shape (d,): points are observations minus it. It never changes."""
    deviations: FloatArray
    """Standard deviation of each component in the latest transitions, shape (d,)."""


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
    """Samples that end it."""


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


class Partition(Protocol):
    """A partition of the observation space that may change while the agent learns.

    Points are observations in their own units, flattened, shape (d,), minus a fixed origin that the
    agent chose. A partition may have a method ``prepare(n_features, rng)``, in which it makes its
    arrays: an agent that is made with it calls that with d and with a generator.
    """

    diagram: FloatArray
    """Affine diagram, shape (capacity, 1 + d); the first ``n_cells`` rows count. The agent keeps
    a reference: change it in place."""

    learner: Learner
    """The learner's arrays; ``interpreted_learner(d)`` for one whose ``observe`` is Python."""

    n_cells: int

    @property
    def active(self) -> bool:
        """Whether it still wants to observe."""

    @property
    def temperature(self) -> float:
        """Temperature of the current level; NaN if the partition knows none."""

    def start(self, scaling: Scaling) -> None:
        """Place the first cells, at the beginning and when the agent starts again from nothing."""

    @property
    def codevectors(self) -> FloatArray:
        """A representative point of each cell, shape (n_cells, d)."""

    def observe(self, point: FloatArray) -> Lineage | None:
        """Learn from one point; return the lineage if cells were renumbered, split or merged."""

    def reshape(self) -> Lineage:
        """Reshape the cells when a compiled learner says that they are due."""

    def rescale(self, scaling: Scaling) -> None:
        """Take over a new scaling; the codevectors stay where they are."""

    def state(self) -> Mapping[str, Array]:
        """Return all that has to be saved, as arrays."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take over what ``state`` returned."""


class BuiltIn:
    """Base of the partitions of this package, which are made of settings alone.

    Parameters
    ----------
    **settings
        Of the class ``Settings``.
    """

    Settings: ClassVar[type[Checked]]
    schema: ClassVar[dict[str, Member]]
    """What a file has of :meth:`_arrays`."""
    settings: Any
    diagram: FloatArray
    learner: Learner
    n_cells: int

    def __init__(self, **settings: Any) -> None:
        self.settings = self.Settings(**settings)

    @property
    def temperature(self) -> float:
        """Temperature of the current level; NaN if there is none."""
        return math.nan

    def observe(self, point: FloatArray) -> Lineage | None:
        """Learn from one point; see :class:`Partition`."""
        return None

    def reshape(self) -> Lineage:
        """Reshape the cells; see :class:`Partition`."""
        return np.eye(self.n_cells)

    def state(self) -> dict[str, Array]:
        """Return all that has to be saved."""
        return self._arrays()

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take over what :meth:`state` returned, or raise InvalidFileError."""
        check(state, self.schema, self._sizes())
        for name, array in self._arrays().items():
            array[:] = state[name]

    def _arrays(self) -> dict[str, Array]:
        """Return all that has to be saved, to be written to."""
        raise NotImplementedError

    def _sizes(self) -> Sizes:
        """Return the sizes of these arrays that follow from the settings."""
        return {"K": self.n_cells, "d": self.diagram.shape[1] - 1}


def check_kind(schedule: Schedule, *kinds: int) -> None:
    """Raise InvalidFileError unless a learner is of one of some kinds, or rests."""
    require(schedule.kind in (RESTING, *kinds), f"schedule.kind is {schedule.kind}")
