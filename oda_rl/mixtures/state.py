"""Streaming Gaussian mixtures: what they consist of, how far they have learned, and how."""

from typing import Annotated, NamedTuple

from oda_rl._schema import Span
from oda_rl._state import Raw, State, reader
from oda_rl._types import Array, FloatArray

ANNEALING, QUANTIZING, RELEASED = 0.0, 1.0, 2.0
NARROW = 0.25  # a narrower neighbourhood is none: e^(-1/(2σ²)) < 4e-4
COOLING = 0.9
LEAST_PULL = 1e-3  # of the winner's: a weaker pull is left out
LEAST_PRECISION = 1e-30
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
    """Samples of this phase, while covariances are held."""
    shown: Annotated[float, Span("[0, inf)")]
    """Samples whose distances the variance was learned from; after release, all since then."""
    periods: Annotated[float, Span("[0, inf)")]
    """Periods of quantizing that have ended."""
    smoothed: Annotated[float, Span()]
    """Smoothed loss."""
    previous: Annotated[float, Span()]
    """That of the check before."""
    reference: Annotated[float, Span()]
    """Mean loss of the first samples."""
    variance: Annotated[float, Span("[0, inf)")]
    """Of all components, a feature, while covariances are held."""
    freed: Annotated[float, Span("[-1, components)")]
    """Component that is to take the place of a sample of the ``crowded`` one; -1: none."""
    crowded: Annotated[float, Span("[-1, components)")]
    """Its place is where a sample of it will be; -1: none."""
    moved: Annotated[float, Span("[0, inf)")]
    """How often one has been relocated."""
    loss: Annotated[float, Span()]
    """Sum of the losses since it was last set to 0."""
    losses: Annotated[float, Span("[0, inf)")]
    """How many those are."""
    gap: Annotated[float, Span()]
    """Mean difference of the squared distances from winner and next."""
    first_beta: Annotated[float, Span()]
    """β at release."""


class Mixture(NamedTuple):
    """A mixture of K components of d features, and how far it has learned."""

    spherical: bool
    """Whether all components have one spherical covariance, always."""
    means: Array
    """μ, shape (K, d)."""
    precisions: Array
    """Diagonal of P, or its eigenvalues, shape (K, d); unused while covariances are held."""
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
    counts: FloatArray
    """Samples of a block that each has won, shape (K,); 0 between blocks."""
    sums: Array
    """And their sums, shape (K, d)."""
    errors: FloatArray
    """Squared distances of the period's samples from their winner, shape (K,)."""
    savings: FloatArray
    """How much greater they would be without this winner, shape (K,)."""


class Rules(NamedTuple):
    """How a mixture learns."""

    rate: float
    """ε at the beginning."""
    least_rate: float
    """And the least that it falls to."""
    period: int
    """Samples (1/alpha) from one check of the loss to the next."""
    delta: float
    """δ: the loss is stationary if its relative increase in a period is smaller."""
    last_width: float
    """Of the neighbourhood."""
    max_precision: float
    """Bound of P."""
    periods: int
    """How many to quantize before covariances are released; -1: they never are."""
    tempered: int
    """How many after that with tempered responsibilities."""
    memory: float
    """Share of what is known of errors that outlives a period of quantizing."""


progress_of = reader(Progress)
