"""How much is explored: schemes take turns, the more often the better the returns under them.

How often a decision is random, and for how long it is held, is best another from world to world: a
mountain car finds its goal by pushing one way for a hundred steps, which breaks any lander, and a
cart-pole that is to learn from whole episodes can afford one such decision in several. So before
each episode a scheme is drawn by Thompson sampling. What is compared are ranks among the latest
returns, which no scale or shift of the rewards changes: a scheme costs what its episodes are worse
than others', and where that is nothing, all take turns alike.

Returns say nothing of a reward that was never seen, and where each step towards it costs, whoever
goes there seems to be the worst. Where states are numbered, so that it is known how often an action
was taken in each, one episode in thirty is therefore led by a policy that looks for what is new,
whatever it costs (:func:`led_by_novelty`).

References
----------
W. R. Thompson, "On the likelihood that one unknown probability exceeds another in view of the
evidence of two samples", Biometrika 25 (1933). A. P. Badia et al., "Agent57: outperforming the
Atari human benchmark", ICML 2020 (section 3.2: a bandit that chooses among policies). A. L.
Strehl, M. L. Littman, "An analysis of model-based interval estimation for Markov decision
processes", JCSS 74 (2008): a bonus by the root of visits.
"""

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.agents.base.memory import ACTION, GOES_ON, MARK, REWARD
from oda_rl.agents.fitting.one_piece import fit
from oda_rl.agents.fitting.placement import Experience
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.agents.policies.cells import CellPolicy


class Scheme(NamedTuple):
    """A way of exploring."""

    decisions: float
    """Random decisions in an episode, on average."""
    longest_hold: int
    """Most steps for which one of them is held."""


SCHEMES = (Scheme(0.4, 100), Scheme(4.0, 8), Scheme(20.0, 1), Scheme(4.0, 1))
NOVELTY = len(SCHEMES) - 1  # whose episodes look for what is new
NONE = -1  # an episode without exploration, or of nothing else
RECENT_RETURNS = 200  # whose spread says how sure a mean is
RECENT_LENGTHS = 20
_NOVEL = 1 / 30  # of all episodes
_LATEST = 30  # episodes that are compared
_DEVIATION = 0.29  # of a rank, uniform in (0, 1)
_SAME = 1e-9  # relative spread below which returns are all equal
_HORIZONS = 10.0  # that count as an episode where none ends


def led_by_novelty(
    seen: Experience,
    before: CellPolicy | None,
    config: FittedQConfig,
    rng: np.random.Generator,
) -> CellPolicy:
    """Fit a policy that looks for what has seldom been done, where states are numbered.

    To it a step is worth 1 / √n, if its action has been taken n times in that state.

    Parameters
    ----------
    seen : Experience
        Trajectories of numbered states.
    before : CellPolicy or None
        The one of an earlier fit, to begin with its values.
    config : FittedQConfig
        Settings of the agent.
    rng : numpy.random.Generator
        As in :func:`oda_rl.agents.fitting.one_piece.fit`.

    Returns
    -------
    CellPolicy
        With a cell for each state that was seen.
    """
    numbers, states = np.unique(seen.observations[:, 0], return_inverse=True)
    going = seen.steps[:, MARK] == GOES_ON
    done = states * seen.n_actions + np.where(going, seen.steps[:, ACTION], 0).astype(np.int64)
    visits = np.bincount(done[going], minlength=len(numbers) * seen.n_actions)
    steps = seen.steps.copy()
    steps[going, REWARD] = 1.0 / np.sqrt(visits[done[going]])
    values = None if before is None else before.evaluate(numbers[:, None])[2][states]
    return fit(seen._replace(steps=steps), values, None, config, rng).policy


def draw(played: Sequence[int], returns: Sequence[float], rng: np.random.Generator) -> int:
    """Draw the scheme of the next episode; the first one until 30 have been explored.

    Parameters
    ----------
    played : sequence of int
        Scheme of each episode, or ``NONE``; neither that nor ``NOVELTY`` is compared.
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
    compared = (i for i in range(len(played) - 1, -1, -1) if played[i] not in (NONE, NOVELTY))
    explored = [*itertools.islice(compared, _LATEST)][::-1]
    if len(explored) < _LATEST:
        return 0
    ordered = sorted(returns[i] for i in explored)
    # Each scheme has had one more episode, in the middle. (Arrays of so few numbers are slower.)
    counts, ranks = [1.0] * NOVELTY, [0.0] * NOVELTY
    for i in explored:
        below = bisect_left(ordered, returns[i]) + bisect_right(ordered, returns[i])
        counts[played[i]] += 1.0
        ranks[played[i]] += below / (2.0 * _LATEST)
    noise = rng.standard_normal(NOVELTY).tolist()
    drawn = [
        (0.5 + rank) / count + _DEVIATION / math.sqrt(count) * more
        for rank, count, more in zip(ranks, counts, noise, strict=True)
    ]
    return drawn.index(max(drawn))


class Exploration:
    """How much is explored, by what the latest episodes have brought.

    Parameters
    ----------
    config : FittedQConfig
        Settings of the agent.

    Attributes
    ----------
    epsilon : float
        Probability of a random decision.
    scheme : int
        That is followed, or ``NONE``.
    returns, lengths, schemes : list
        Of the latest episodes: 200, 20 and 200 of them.
    """

    def __init__(self, config: FittedQConfig) -> None:
        self._config = config
        self.epsilon, self.scheme = 1.0, NONE
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.schemes: list[int] = []

    @property
    def longest_hold(self) -> int:
        """Most steps for which a random decision is held."""
        if self.scheme == NONE:
            return self._config.longest_hold
        return SCHEMES[self.scheme].longest_hold

    def add(self, episode_return: float, length: int, scheme: int) -> None:
        """Note an episode."""
        self.returns = [*self.returns[1 - RECENT_RETURNS :], episode_return]
        self.schemes = [*self.schemes[1 - RECENT_RETURNS :], scheme]
        self.lengths = [*self.lengths[1 - RECENT_LENGTHS :], length]

    def forget_all_but(self, episodes: int) -> None:
        """Forget the returns of all but the latest episodes."""
        kept = slice(max(len(self.returns) - episodes, 0), None)
        self.returns, self.schemes = self.returns[kept], self.schemes[kept]

    def go_on(
        self,
        rewards: Callable[[], FloatArray],
        rng: np.random.Generator,
        anew: bool,
        novelty: bool,
    ) -> None:
        """Follow the present scheme, or one drawn ``anew``; at random while all returns are equal.

        ``rewards`` of all steps have to do for returns while no episode has ended. ``novelty`` says
        whether there is a policy that looks for what is new.
        """
        worth = self.returns or rewards().tolist()
        least, most = min(worth), max(worth)
        if most - least <= _SAME * max(abs(least), abs(most)):
            self.scheme, self.epsilon = NONE, 1.0
            return
        decisions = self._config.exploration
        if decisions is None:
            if anew or self.scheme == NONE:
                self.scheme = draw(self.schemes, self.returns, rng)
                if novelty and rng.random() < _NOVEL:
                    self.scheme = NOVELTY
            decisions = SCHEMES[self.scheme].decisions
        self.epsilon = min(1.0, decisions / self.mean_length)

    @property
    def mean_length(self) -> float:
        """Mean length of the latest episodes, or ten horizons if none ever ended."""
        if self.lengths:
            return sum(self.lengths) / len(self.lengths)
        return _HORIZONS / (1.0 - self._config.discount)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return what a file has of it, ``epsilon`` apart."""
        return {
            "returns": np.array(self.returns),
            "lengths": np.array(self.lengths),
            "explored": np.array(self.schemes, dtype=np.int64),
            "scheme": np.array(self.scheme),
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], epsilon: float) -> None:
        """Take over what a file has."""
        self.epsilon, self.scheme = epsilon, int(arrays["scheme"])
        self.returns, self.lengths = arrays["returns"].tolist(), arrays["lengths"].tolist()
        self.schemes = arrays["explored"].tolist()
