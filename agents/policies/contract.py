"""Policies: arrays that decide, explain themselves and can be exported.

Points are observations, flattened, in double precision. A policy chooses among A choices, numbered
from 0: actions, or codevectors of continuous ones. A new kind of policy is a class with the members
of :class:`Policy`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.rules.editing import Clauses
from oda_rl.files.schema import Member, check, members_of

TIE = 1e-9  # relative: values closer than that are equal
# Of learning in soft cells, in every language:
CUT = 7.0  # cells with w_k below exp(-7) of the greatest are left out
SLOPE_RATE = 0.3  # step size of slopes beside that of values, at a distance of √T
MIN_NORM = 0.1  # lower bound of |φ|² in the step size
SMALLEST_TRACE = 1e-4  # relative; smaller ones are dropped


@dataclass(frozen=True)
class Alternative:
    """The nearest known point where another choice is made."""

    distance: float
    at_least: float  # lower bound of the distance of any such point
    point: FloatArray | None


class CellTables(NamedTuple):
    """The tables of a policy of K cells, for export."""

    origin: FloatArray  # subtracted from observations, shape (d,)
    diagram: FloatArray  # affine diagram of the cells (:mod:`oda_rl.diagram`), shape (K, 1 + d)
    values: FloatArray  # of choices, shape (K, A), without what these share by ``common``
    common: FloatArray | None = None  # offsets and slopes, (K, 1 + d), if cells are blended
    width: float = 1.0  # cells are blended with weights proportional to exp(-score/width)
    n_nearest: int = 1  # number of cells that are blended, or more than there are
    parts: FloatArray | None = None  # continuous actions of the choices, in units, shape (K, A, p)
    affine: FloatArray | None = None  # or their offsets and slopes, in units, shape (K, p, 1 + d)
    clauses: Clauses | None = None  # their rows of values and affine follow those of cells


class InLoops(NamedTuple):
    """Decisions by a policy in compiled loops (:mod:`oda_rl.agents.base.compiled_loop`)."""

    kind: str  # name of the kind of policy
    decide: Callable[..., int]  # compiled: (arrays, observation) to the choice of greatest value
    arrays: tuple[Any, ...]  # arrays of the policy, and scratch


class Policy(Protocol):
    """A policy, which an agent delivers; points have the shape (n, d)."""

    @property
    def codevectors(self) -> FloatArray:
        """Codevectors of the cells in the observation's units, shape (K, d)."""

    @property
    def n_cells(self) -> int:
        """Number of cells K."""

    @property
    def n_actions(self) -> int:
        """Number of choices A."""

    @property
    def choice_name(self) -> str:
        """Kind of choices: "action", "codevector", "level" or "cell"."""

    @property
    def value_name(self) -> str:
        """Name of the numbers by which choices are compared: "value" or "score"."""

    @property
    def q_values(self) -> FloatArray:
        """Value of each choice at each codevector by its cell alone, (K, A); -inf: never chosen."""

    @property
    def exact(self) -> bool:
        """Whether one cell decides, so that the distances of :meth:`alternative` are exact."""

    def cells(self, points: Array) -> IntArray:
        """(Nearest) cells, shape (n,)."""

    def values(self, points: Array) -> FloatArray:
        """Values of all choices, shape (n, A)."""

    def choices(self, points: Array) -> IntArray:
        """Numbers of the choices of greatest value, shape (n,)."""

    def act(self, points: Array) -> Array:
        """Actions: the choices, or where they are continuous their units, shape (n, p)."""

    def alternative(self, point: FloatArray, choice: int, scale: FloatArray) -> Alternative:
        """Find the nearest state where the choice is not that at ``point``.

        Distances are Euclidean in units of 1 / ``scale``, shape (d,); components with a scale of 0
        are not moved.
        """

    @property
    def parameters(self) -> tuple[FloatArray, ...]:
        """The arrays that decide; their sizes add up to the number of parameters."""

    @property
    def in_loops(self) -> InLoops | None:
        """Decisions by it in compiled loops; None if these cannot."""

    @property
    def tables(self) -> CellTables:
        """Tables for export."""

    @property
    def arrays(self) -> dict[str, FloatArray]:
        """All arrays, for a file."""

    @classmethod
    def from_arrays(cls, arrays: dict[str, FloatArray]) -> Self:
        """Make one of what :attr:`arrays` returned, or raise InvalidFileError."""


class Stored:
    """A dataclass of arrays and numbers, each with its schema; defaults of a :class:`Policy`."""

    SCHEMA: ClassVar[dict[str, Member]]  # by default what is declared beside the fields
    exact: ClassVar[bool] = False
    choice_name: ClassVar[str] = "action"
    value_name: ClassVar[str] = "value"

    def __init_subclass__(cls) -> None:
        if "SCHEMA" not in vars(cls):
            cls.SCHEMA = members_of(cls)

    @property
    def in_loops(self) -> InLoops | None:
        return None

    @property
    def arrays(self) -> dict[str, FloatArray]:
        return {name: np.asarray(getattr(self, name)) for name in self.SCHEMA}

    @classmethod
    def from_arrays(cls, arrays: dict[str, FloatArray]) -> Self:
        check(arrays, cls.SCHEMA, {})
        return cls(**{name: a if a.ndim else a.item() for name, a in arrays.items()})


class Extent(NamedTuple):
    """Range of the observations of training."""

    centre: FloatArray  # mean of the latest ones, shape (d,)
    reach: FloatArray  # largest distance from the centre, shape (d,)


class Trained(Protocol):
    """An agent: it delivers a policy, and knows its environment."""

    @property
    def policy(self) -> Policy:
        """The policy."""

    @property
    def interface(self) -> Interface:
        """Spaces of its observations and actions."""

    @property
    def env_id(self) -> str | None:
        """Its id, if it has one."""

    @property
    def num_timesteps(self) -> int:
        """Environment steps learned from."""

    @property
    def scale_(self) -> FloatArray | None:
        """Inverse standard deviations of the observation's components; None before learning."""

    @property
    def visits(self) -> FloatArray:
        """Number of updates of each choice in each cell, shape (K, A)."""

    @property
    def extent(self) -> Extent:
        """Range of the observations."""
