"""State of streaming Gaussian mixtures: parameters, progress and learning rules."""

from typing import Annotated, NamedTuple

import numpy as np

from oda_rl._state import Raw, State, reader
from oda_rl._types import Array, FloatArray
from oda_rl.files.schema import Floats, Maybe, Member, Sizes, Span, flags, real, require, whole

ANNEALING, QUANTIZING, RELEASED = 0.0, 1.0, 2.0
NARROW = 0.25  # a narrower neighbourhood is none: e^(-1/(2σ²)) < 4e-4
COOLING = 0.9
MIN_PRECISION = 1e-30
CROWDING = 0.1  # relocate what saves less than this share of the largest error


class Progress(State):
    """How far a mixture has learned."""

    phase: Annotated[float, Span("[0, 2]")]
    """:data:`ANNEALING`, then :data:`QUANTIZING`, then :data:`RELEASED`."""
    width: Annotated[float, Span("[0, inf)")]
    """Standard deviation of the neighbourhood on the grid."""
    rate: Annotated[float, Span("[0, 1]")]
    """ε."""
    seen: Annotated[float, Span("[0, inf)")]
    """Samples of this phase, before release."""
    shown: Annotated[float, Span("[0, inf)")]
    """Samples from which the variance was learned; after release, samples since then."""
    periods: Annotated[float, Span("[0, inf)")]
    """Periods of quantizing that have ended."""
    smoothed: Annotated[float, Span()]
    """Smoothed loss."""
    previous: Annotated[float, Span()]
    """Smoothed loss at the last check."""
    reference: Annotated[float, Span()]
    """Mean loss of the first samples."""
    variance: Annotated[float, Span("[0, inf)")]
    """Variance of all components in each direction, until release."""
    freed: Annotated[float, Span("[-1, components)")]
    """Component to be relocated to a sample of the ``crowded`` one; -1: none."""
    crowded: Annotated[float, Span("[-1, components)")]
    """Component whose next sample the ``freed`` one takes as its mean; -1: none."""
    moved: Annotated[float, Span("[0, inf)")]
    """Number of relocations."""
    loss: Annotated[float, Span()]
    """Sum of the losses of this pass."""
    losses: Annotated[float, Span("[0, inf)")]
    """Number of these losses."""
    gap: Annotated[float, Span()]
    """Mean difference of the squared distances from the two nearest components."""
    first_beta: Annotated[float, Span()]
    """β at release."""


class Mixture(NamedTuple):
    """A mixture of K components in d dimensions."""

    spherical: bool
    """Whether all components share one spherical covariance, after release, too."""
    means: Array
    """μ, shape (K, d)."""
    precisions: Array
    """Diagonal of P or its eigenvalues, shape (K, d or 1); unused until release."""
    axes: Array | None
    """Eigenvectors of P as rows, shape (K + 1, d, d), the last scratch; None if P is diagonal."""
    weights: FloatArray
    """π, shape (K,)."""
    half_log_dets: FloatArray
    """½ log det P, shape (K,)."""
    grid: FloatArray
    """g, shape (K, K): rows sum to 1."""
    progress: Raw
    """:class:`Progress`."""
    errors: FloatArray
    """Squared distances of the period's samples from their winner, shape (K,)."""
    savings: FloatArray
    """Increase of the errors if this component were removed, shape (K,)."""

    def _check_contents(self, sizes: Sizes, where: str) -> None:
        """Raise InvalidFileError unless the members of a file are consistent."""
        width = 1 if self.spherical else sizes["d"]
        require(self.precisions.shape[1] == width, f"{where}.precisions must have {width} columns")
        require(not self.spherical or self.axes is None, f"{where} is spherical: it has no axes")
        arrays = self.means, self.precisions, self.axes
        dtypes = {array.dtype for array in arrays if array is not None}
        require(len(dtypes) == 1, f"{where} has {len(dtypes)} dtypes: it must have one")
        require(len(self.progress) == Progress.size, f"{where}.progress has another size")
        record = np.ascontiguousarray(self.progress).view(Progress.dtype)
        Progress.check_records(f"{where}.progress", record, {"components": len(self.weights)})
        freed, crowded = float(record["freed"][0]), float(record["crowded"][0])
        whole_numbers = freed == int(freed) and crowded == int(crowded)
        paired = whole_numbers and (crowded < 0.0 or freed >= 0.0)
        require(paired, f"{where}.progress has {freed} for {crowded}")


Mixture.SCHEMA = {  # type: ignore[attr-defined]  # of a tuple it cannot stand inside
    "spherical": flags(),
    "means": Floats("K, d"),
    "precisions": Floats("K, width", "(0, inf)"),
    "axes": Maybe(Floats("K+1, d, d")),
    "weights": real("K", "[0, inf)"),
    "half_log_dets": real("K"),
    "grid": real("K, K", "[0, inf)"),
    "progress": Member(np.uint8, "progress", "[0, 256)"),
    "errors": real("K", "[0, inf)"),
    "savings": real("K"),
}


class Rules(NamedTuple):
    """Learning rules of a mixture."""

    rate: float
    """First ε."""
    min_rate: float
    """Smallest ε."""
    period: int
    """Samples between two checks of the loss."""
    max_precision: float
    """D_max²: bound of P, in the mixture's units."""
    periods: int
    """Periods of quantizing before covariances are released; -1: they never are."""
    tempered: int
    """Periods after that with tempered responsibilities."""
    memory: float
    """Share of the errors that is kept after a period of quantizing."""


Rules.SCHEMA = {  # type: ignore[attr-defined]  # of a tuple it cannot stand inside
    "rate": real("", "(0, 1)"),
    "min_rate": real("", "[0, 1)"),
    "period": whole("", "[1, inf)"),
    "max_precision": real("", "(0, inf)"),
    "periods": whole("", "[-1, inf)"),
    "tempered": whole(),
    "memory": real("", "[0, 1]"),
}

progress_of = reader(Progress)
