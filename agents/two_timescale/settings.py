"""Settings of the online agent; partitions other than its own have theirs."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from oda_rl.agents.base.settings import POSITIVE, Checked, Range, at_least, or_none, within


def _is_metric(value: Any) -> bool:
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
        return False
    eigenvalues = np.linalg.eigvalsh(matrix)
    definite = eigenvalues[-1] > 0.0 and eigenvalues[0] >= -1e-9 * eigenvalues[-1]
    return bool(np.allclose(matrix, matrix.T) and definite)


_NAMED = Range(
    "'learned', 'std' or a matrix",
    lambda value: not isinstance(value, str) or value in ("learned", "std"),
)
_FEW = Range("at most 4096", lambda max_cells: max_cells <= 4096)
_SYMMETRIC = Range(
    "a symmetric, positive semi-definite matrix, or a name",
    lambda value: isinstance(value, str) or _is_metric(value),
)


@dataclass(frozen=True)
class TwoTimescaleConfig(Checked):
    """Settings of :class:`oda_rl.agents.TwoTimescaleAgent`, each with its default.

    Both timescales have Robbins-Monro step sizes: a_t = max(min_step_size, step_size (1 + t /
    step_size_steps)^-step_exponent) of the values, and b_n = max(min_slow_step, (n +
    1)^-slow_exponent) of the n-th sample of a codevector. Exponents of 0 are constant steps, of 1
    harmonic ones. Theory requires b_n / a_n → 0: see ``print(agent)``. Of Discrete observations the
    N-th visit of a pair of state and action has a_t = max(min_step_size, N^-0.7).
    """

    max_cells: Annotated[int, at_least(1), _FEW] = 256
    """Maximum number of cells, at most 4096.
    There is room for 64 at first, and for more while values of neighbours differ."""

    gamma: Annotated[float, within("(0, 1]")] = 0.99
    """Discount factor gamma of the return, in (0, 1]."""

    trace_decay: Annotated[float, within("[0, 1]")] = 0.85
    """Decay lambda of the eligibility traces, in [0, 1]. 0 is one-step learning.
    With n > 1 environments at once it is multiplied by max(n, 32)^-0.1."""

    step_size: Annotated[float, within("(0, 1]")] = 0.3
    """Step size a_0 of the values at the start, relative to the squared norm of φ, in (0, 1]."""

    step_size_steps: Annotated[float, POSITIVE] = 50_000.0
    """Steps after which it has halved, with an exponent of 1; positive."""

    step_exponent: Annotated[float, within("[0, 1]")] = 1.0
    """Exponent of the fast timescale, in [0, 1]."""

    min_step_size: Annotated[float, within("[0, 1]")] = 0.02
    """Lower bound of the step size of the values, in [0, 1]."""

    slow_exponent: Annotated[float, within("[0, 1]")] = 1.0
    """Exponent of the slow timescale, in [0, 1]."""

    min_slow_step: Annotated[float, within("[0, 1]")] = 0.0002
    """Lower bound of the step size of the codevectors, in [0, 1]."""

    exploration: Annotated[float, within("[0, 1]")] = 0.2
    """Probability of a random decision at the start, in [0, 1]."""

    exploration_decay: Annotated[float, POSITIVE] = 5_000.0
    """Steps after which that probability has halved, by default 20,000 for Discrete observations:
    exploration / (1 + t / exploration_decay)."""

    hold: Annotated[int | None, or_none(at_least(1))] = None
    """Bold episodes hold a random action for fewer steps than this, but at least one: 1 is as 2.
    None: 8, or 20 where actions are continuous."""

    cooling: Annotated[float, within("(0, 1)")] = 0.9
    """Factor of the temperature every 100 steps, in (0, 1), while there is room for cells."""

    observe_every: Annotated[int, at_least(1)] = 2
    """Codevectors move every ``observe_every`` steps."""

    metric: Annotated[
        Literal["learned", "std"] | tuple[tuple[float, ...], ...], _NAMED, _SYMMETRIC
    ] = "learned"
    """Distances between states: learned from the gradients of Q (whitened if components are not
    natural axes), in standard deviations, or a symmetric positive semi-definite matrix. For cells
    of states and actions it also has the action's components, in units of its box, after the
    observation's. ``partition="gmm"`` has its components' precisions instead."""

    action_bins: Annotated[int | None, or_none(within("[2, 1000]"))] = None
    """Number of values of each component of a continuous action, evenly from lower to upper bound;
    from 2 to 1000. None: cells of states and actions, or with another partition five values."""

    paper: bool = False
    """Algorithm 2 of the paper, with cells from Algorithm 1: one-step Q-learning of constant values
    in hard cells, Euclidean distances, and random actions that are not held.
    The learning policy is delivered. ``oda_rl.agents.two_timescale.paper`` has its defaults."""

    warmup_steps: Annotated[int, at_least(2)] = 500
    """Random steps before learning, which give means and deviations; at least 2."""
