"""What can be set about the online agent; its partitions have settings of their own."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from oda_rl.agents.base.settings import (
    POSITIVE,
    Checked,
    Range,
    at_least,
    within,
)


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
_SYMMETRIC = Range(
    "a symmetric, positive semi-definite matrix, or a name",
    lambda value: isinstance(value, str) or _is_metric(value),
)


@dataclass(frozen=True)
class TwoTimescaleConfig(Checked):
    """Settings of :class:`oda_rl.agents.TwoTimescaleAgent`, each with its default."""

    gamma: Annotated[float, within("(0, 1]")] = 0.995
    """Discount factor gamma of the return, in (0, 1]."""

    trace_decay: Annotated[float, within("[0, 1]")] = 0.98
    """Decay lambda of Watkins' eligibility traces, in [0, 1]. 0 is one-step Q-learning."""

    step_exponent: Annotated[float, within("[0, 1]")] = 0.2
    """The n-th update of a Q-value has step size n ** -step_exponent; in [0, 1]."""

    min_step_size: Annotated[float, within("(0, 1]")] = 0.01
    """Lower bound of that step size, in (0, 1]."""

    exploration: Annotated[float, within("[0, 1]")] = 0.5
    """Probability of a random action at the (re)start, in [0, 1]."""

    exploration_decay: Annotated[float, POSITIVE] = 1000.0
    """Steps after which that probability has halved: exploration / (1 + t / exploration_decay)."""

    observe_every: Annotated[int, at_least(1)] = 4
    """The slow timescale sees every so manyth step."""

    metric: Annotated[
        Literal["learned", "std"] | tuple[tuple[float, ...], ...], _NAMED, _SYMMETRIC
    ] = "learned"
    """Distances between states: learned from the gradients of Q while the cells are annealed (until
    then in standard deviations of the observation; whitened, if its components are no axes of the
    world), in standard deviations throughout, or a symmetric positive semi-definite matrix."""

    action_bins: Annotated[int, at_least(2)] = 5
    """Values of each component of a continuous action, least to greatest; at least 2."""

    warmup_steps: Annotated[int, at_least(2)] = 500
    """Random steps before learning, which give the scale; at least 2."""

    solved_episodes: Annotated[int, at_least(0)] = 2
    """After so many episodes in a row that succeed the agent stops learning, until one falls short.
    An episode succeeds if its return is within 5 % of the best so far, measured from random play,
    and nothing better has come for 2000 steps. 0: it never stops, and one that falls short is
    enough to start again."""

    restart_after: Annotated[int, at_least(0)] = 5000
    """If after so many steps as many episodes in a row fall short as would have had to succeed,
    learning starts from nothing. 0: it never does."""
