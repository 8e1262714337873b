"""How much is explored: schemes take turns, the more often the better the returns under them.

How often a decision is random, and for how long it is held, is best another from world to world: a
mountain car finds its goal by pushing one way for a hundred steps, which breaks any lander, and a
cart-pole that is to learn from whole episodes can afford one such decision in several. So before
each episode a scheme is drawn by Thompson sampling. What is compared are ranks among the latest
returns, which no scale or shift of the rewards changes: a scheme costs what its episodes are worse
than others', and where that is nothing, all take turns alike.

References
----------
W. R. Thompson, "On the likelihood that one unknown probability exceeds another in view of the
evidence of two samples", Biometrika 25 (1933). A. P. Badia et al., "Agent57: outperforming the
Atari human benchmark", ICML 2020 (section 3.2: a bandit that chooses among policies).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from oda_rl._types import IntArray


class Scheme(NamedTuple):
    """A way of exploring."""

    decisions: float
    """Random decisions in an episode, on average."""
    longest_hold: int
    """Most steps for which one of them is held."""


SCHEMES = (Scheme(0.4, 100), Scheme(4.0, 8), Scheme(20.0, 1))
NONE = -1  # an episode without exploration, or of nothing else
_LATEST = 30  # episodes that are compared
_DEVIATION = 0.29  # of a rank, uniform in (0, 1)


def of_returns(stored: IntArray | None, n: int) -> list[int]:
    """Return the scheme of each of n returns, as a file has them; older files have none."""
    return [NONE] * n if stored is None else stored.tolist()


def draw(played: Sequence[int], returns: Sequence[float], rng: np.random.Generator) -> int:
    """Draw the scheme of the next episode.

    Parameters
    ----------
    played : sequence of int
        Scheme of each episode, or ``NONE``.
    returns : sequence of float
        Their returns, as many.
    rng : numpy.random.Generator
        Draws.

    Returns
    -------
    int
        Number of the scheme.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> returns = [20.0, 500.0] * 15
    >>> [draw([1, 0] * 15, returns, rng) for _ in range(12)]
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    """
    explored = [i for i, scheme in enumerate(played) if scheme != NONE][-_LATEST:]
    if len(explored) < _LATEST:
        return 0
    worth = np.array([returns[i] for i in explored])
    schemes = np.array([played[i] for i in explored], dtype=np.int64)
    ordered = np.sort(worth)
    below = np.searchsorted(ordered, worth) + np.searchsorted(ordered, worth, side="right")
    ranks = below / (2.0 * max(len(explored), 1))
    # Each scheme has had one more episode, in the middle.
    counts = 1.0 + np.bincount(schemes, minlength=len(SCHEMES))
    means = (0.5 + np.bincount(schemes, weights=ranks, minlength=len(SCHEMES))) / counts
    drawn = means + _DEVIATION / np.sqrt(counts) * rng.standard_normal(len(SCHEMES))
    return int(drawn.argmax())
