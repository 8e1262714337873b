"""Exploration of a fitted agent: schemes take turns, the more often the better their returns.

How often a decision should be random, and for how long it should be repeated, differs from task to
task: a mountain car reaches its goal by pushing one way for a hundred steps, which crashes any
lander. So a scheme is drawn before each episode by Thompson sampling. It compares ranks among the
latest returns, which do not depend on the scale of the rewards.

Returns tell nothing about a reward that was never seen, and where each step costs, exploring looks
bad. With discrete states, one episode in thirty follows a novelty policy instead
(:func:`fit_novelty_policy`).

:class:`Exploration` sets the probability ``epsilon`` of a random decision and the longest repeat;
:func:`oda_rl.agents.fitted.steps.choose` makes the decisions.

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
from typing import NamedTuple

import numpy as np

from oda_rl._types import Array, FloatArray
from oda_rl.agents.base.memory import ACTION, GOES_ON, MARK, REWARD
from oda_rl.agents.fitting.cells import Experience
from oda_rl.agents.fitting.regression import fit
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.agents.policies.cells import CellPolicy


class Scheme(NamedTuple):
    """A way of exploring."""

    decisions: float  # random decisions in an episode, on average
    longest_hold: int  # most steps for which one of them is repeated


SCHEMES = (Scheme(0.4, 100), Scheme(4.0, 8), Scheme(20.0, 1), Scheme(4.0, 1))
NOVELTY = len(SCHEMES) - 1  # whose episodes follow the novelty policy
NONE = -1  # an episode without exploration, or entirely at random
MAX_RETURNS = 200  # latest ones, whose spread says how sure a mean is
MAX_LENGTHS = 20
_COMPARED = 30  # latest episodes
_DEVIATION = 0.29  # of a rank, uniform in (0, 1)
_SHORT = 8.0  # mean length of episodes of which every second one is played without exploration
_EQUAL = 1e-9  # relative spread below which returns are all equal


def fit_novelty_policy(
    seen: Experience, before: CellPolicy | None, config: FittedQConfig, rng: np.random.Generator
) -> CellPolicy:
    """Fit a policy to rewards 1 / √n of an action taken n times; ``before`` is the last one."""
    points, states = np.unique(seen.observations, axis=0, return_inverse=True)
    states = states.ravel()
    going = seen.steps[:, MARK] == GOES_ON
    pairs = states * seen.n_actions + np.where(going, seen.steps[:, ACTION], 0).astype(np.int64)
    visits = np.bincount(pairs[going], minlength=len(points) * seen.n_actions)
    steps = seen.steps.copy()
    steps[going, REWARD] = 1.0 / np.sqrt(visits[pairs[going]])
    values = None if before is None else before.evaluate(points)[2][states]
    return fit(seen._replace(steps=steps), values, None, config, rng).policy


def draw(schemes: Sequence[int], returns: Sequence[float], rng: np.random.Generator) -> int:
    """Draw the scheme of the next episode by those of earlier ones and their returns."""
    latest = (i for i in range(len(schemes) - 1, -1, -1) if schemes[i] not in (NONE, NOVELTY))
    explored = [*itertools.islice(latest, _COMPARED)][::-1]
    if len(explored) < _COMPARED:
        return 0
    ordered = sorted(returns[i] for i in explored)
    # Each scheme has had one more episode, in the middle. (Arrays of so few numbers are slower.)
    counts, ranks = [1.0] * NOVELTY, [0.0] * NOVELTY
    for i in explored:
        below = bisect_left(ordered, returns[i]) + bisect_right(ordered, returns[i])
        counts[schemes[i]] += 1.0
        ranks[schemes[i]] += below / (2.0 * _COMPARED)
    noise = rng.standard_normal(NOVELTY).tolist()
    drawn = [
        (0.5 + rank) / count + _DEVIATION / math.sqrt(count) * normal
        for rank, count, normal in zip(ranks, counts, noise, strict=True)
    ]
    return drawn.index(max(drawn))


class Exploration:
    """The present scheme, and the probability ``epsilon`` of random decisions."""

    def __init__(self, config: FittedQConfig) -> None:
        self._config = config
        self.epsilon, self.scheme = 1.0, NONE
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.schemes: list[int] = []

    @property
    def longest_hold(self) -> int:
        """Most steps for which a random decision is repeated."""
        if self.scheme == NONE:
            return self._config.longest_hold
        return SCHEMES[self.scheme].longest_hold

    def add(self, episode_return: float, length: int, scheme: int) -> None:
        self.returns = [*self.returns[1 - MAX_RETURNS :], episode_return]
        self.schemes = [*self.schemes[1 - MAX_RETURNS :], scheme]
        self.lengths = [*self.lengths[1 - MAX_LENGTHS :], length]

    def forget_all_but(self, episodes: int) -> None:
        """Forget the returns of all but the latest episodes."""
        kept = slice(max(len(self.returns) - episodes, 0), None)
        self.returns, self.schemes = self.returns[kept], self.schemes[kept]

    def set_epsilon(
        self, rewards: Callable[[], FloatArray], rng: np.random.Generator, anew: bool, novelty: bool
    ) -> None:
        """Set epsilon by the present scheme, or one drawn ``anew``; 1 while returns are equal.

        ``rewards`` stand for returns while no episode has ended.
        """
        gains = self.returns or rewards().tolist()
        low, high = min(gains), max(gains)
        if high - low <= _EQUAL * max(abs(low), abs(high)):
            self.scheme, self.epsilon = NONE, 1.0
            return
        decisions = self._config.exploration
        if decisions is None:
            if anew or self.scheme == NONE:
                self.scheme = draw(self.schemes, self.returns, rng)
                if novelty and rng.random() < 1 / 30:  # of all episodes
                    self.scheme = NOVELTY
            decisions = SCHEMES[self.scheme].decisions
        self.epsilon = min(1.0, decisions / self.mean_length)
        if self.mean_length < _SHORT and rng.random() < 0.5:  # else no return is a policy's own
            self.epsilon = 0.0

    @property
    def mean_length(self) -> float:
        """Mean length of the latest episodes; ten horizons if none ever ended."""
        if self.lengths:
            return sum(self.lengths) / len(self.lengths)
        return 10.0 / (1.0 - self._config.gamma)  # steps that count as an episode where none ends

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of a file."""
        return {
            "epsilon": np.array(self.epsilon),
            "returns": np.array(self.returns),
            "lengths": np.array(self.lengths),
            "explored": np.array(self.schemes, dtype=np.int64),
            "scheme": np.array(self.scheme),
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        self.epsilon, self.scheme = float(arrays["epsilon"]), int(arrays["scheme"])
        self.returns, self.lengths = arrays["returns"].tolist(), arrays["lengths"].tolist()
        self.schemes = arrays["explored"].tolist()
