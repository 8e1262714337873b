"""Which policy is the best by its returns, and whether the world has changed since.

The policy with the highest lower bound of its mean return is delivered. Where the world has
changed, older steps are left out. Two tests decide: the latest returns are far below those of the
best policy, given how returns scatter; and the newest steps are predicted far worse by their
nearest neighbours among old ones than by those among other new ones, although old ones are no
farther away. Both compare ranks and ratios, so units do not matter, nor does noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.memory import ACTION, GOES_ON, MARK, REWARD
from oda_rl.agents.fitting.cells import Experience
from oda_rl.agents.policies.cells import CellPolicy

_PRIOR_WEIGHT = 3.0  # degrees of freedom
_OF_QUARTILES = 1.349  # deviations between the quartiles of a normal distribution
_DROPPED = 10  # policies, the worst, when there are too many
_FAR = 4.0  # standard errors between means
_MIN_NEWEST = 100  # steps to go by
_MAX_QUERIES, _MAX_PEERS, _MAX_OLD = 300, 200, 10_000  # steps that are compared
_LONGER = 1.5  # ratio of the ages that are tried
_WORSE, _HARMLESS = 2.0, 0.1  # times the other error; share of a deviation, which is no error
_NEAR = 4.0  # times the squared distance of other new ones, to compare with an old one
_HALF = 0.5  # of the steps are predicted worse
_SURE = 3.0  # standard errors by which it is more


class Returns(NamedTuple):
    """Returns of episodes: how many, and their mean."""

    n: int
    mean: float

    @classmethod
    def latest(cls, returns: Sequence[float], n: int) -> "Returns":
        """Return the n latest ones, or as many as there are."""
        latest = returns[max(len(returns) - n, 0) :]
        return cls(len(latest), float(np.mean(latest)) if latest else 0.0)

    def since(self, before: "Returns") -> "Returns":
        """Return those that were not among those before."""
        n = self.n - before.n
        return Returns(n, (self.n * self.mean - before.n * before.mean) / max(n, 1))


@dataclass(eq=False)
class Record:
    """A policy, and the returns of the training episodes that were played with it alone."""

    policy: CellPolicy
    n: int = 0
    mean: float = 0.0
    m2: float = 0.0  # sum of squared deviations from the mean
    action: int = -1  # the action that it always takes; -1 if it depends on the state

    def add(self, episode_return: float) -> None:
        """Count one more episode (Welford's recursion)."""
        self.n += 1
        change = episode_return - self.mean
        self.mean += change / self.n
        self.m2 += change * (episode_return - self.mean)

    @property
    def constant(self) -> bool:
        """Whether it always takes the same action."""
        return self.action >= 0

    @property
    def returns(self) -> Returns:
        """Number of episodes, and their mean."""
        return Returns(self.n, self.mean)

    def lower_bound(self, spread: float) -> float:
        """Mean return minus its standard error; ``spread`` is a policy's usual deviation.

        Of few episodes, their own deviation says little. A negative ``spread``: an upper bound.
        """
        squares = self.m2 + _PRIOR_WEIGHT * spread * spread
        error = math.sqrt(squares / (self.n - 1 + _PRIOR_WEIGHT) / self.n)
        return self.mean - math.copysign(error, spread)


def spread_of(records: Sequence[Record], returns: Sequence[float]) -> float:
    """Return the deviation of a policy's return, in the median of policies with several episodes.

    The mean would be that of a few early policies with disastrous returns. While there are few
    policies, quartiles of all ``returns`` stand for it.
    """
    own = [math.sqrt(one.m2 / (one.n - 1)) for one in records if one.n > 1]
    typical = float(np.median(own)) if len(own) > 2 else 0.0
    if typical > 0.0 or not returns:
        return typical
    low, high = np.quantile(returns, [0.25, 0.75])
    return float(high - low) / _OF_QUARTILES or float(np.std(returns))


def best_of(records: Sequence[Record], spread: float, steady: bool) -> Record:
    """Return the record with the highest lower bound; of equal ones constant actions come last.

    If fits are ``steady``, it is the latest of two or more episodes whose mean is not below that
    bound: it has seen the most steps.
    """
    best = max(records, key=lambda record: (record.lower_bound(spread), not record.constant))
    floor = best.lower_bound(spread) if steady else math.inf
    several = (one for one in reversed(records) if one.n > 1)  # one return may be luck
    return next((one for one in several if one.mean >= floor), best)


def without_worst(records: Sequence[Record], max_records: int, spread: float) -> list[Record]:
    """Return the records without the worst, if there are too many; the latest stays."""
    older, latest = records[:-1], records[-1]
    bounds = np.argsort([record.lower_bound(spread) for record in older])
    keep = max(len(older) - _DROPPED, max_records - _DROPPED, 1)
    return [*(older[i] for i in np.sort(bounds[-keep:])), latest]


def far_below(now: Returns, before: Returns, spread: float) -> bool:
    """Whether a mean return is far lower, given the standard deviation of a return."""
    if min(now.n, before.n) == 0:
        return False
    return before.mean - now.mean > _FAR * spread * math.sqrt(1.0 / now.n + 1.0 / before.n)


class _Steps(NamedTuple):
    """Steps in units in which they are compared."""

    places: FloatArray  # state, and a continuous action, in standard deviations; shape (n, d)
    actions: FloatArray  # numbers of actions, (n,); all 0 where they are continuous
    outcomes: FloatArray  # changes and reward, in standard deviations, shape (n, d + 1)
    trajectories: IntArray  # numbers of the trajectories, (n,)


@one_thread()
def steps_that_agree(seen: Experience, newest: int) -> int:
    """Return how many of the newest steps, half at most, come after a change; 0 if none does."""
    going_on = np.flatnonzero(seen.steps[:, MARK] == GOES_ON)
    n = len(going_on)
    newest = max(newest, _MIN_NEWEST)
    if 2 * newest > n:
        return 0
    asked, peers = _evenly(n - newest, n, _MAX_QUERIES), _evenly(n - newest, n, _MAX_PEERS)
    old = _evenly(0, n - newest, _MAX_OLD)
    sizes = [newest]  # candidates
    while 2 * _LONGER * sizes[-1] <= n:
        sizes.append(int(_LONGER * sizes[-1]))
    ends = np.searchsorted(old, n - np.array(sizes)).tolist()
    compared = np.concatenate([old, np.unique(np.concatenate([asked, peers]))])
    steps = _standardised(seen, going_on[compared])
    asked, peers, old = (np.searchsorted(compared, which) for which in (asked, peers, old))
    slopes = _slopes(steps, old)
    gaps = _gaps(steps, asked, peers)
    gaps[steps.trajectories[asked, None] == steps.trajectories[peers]] = np.inf
    near, nearest = gaps.min(axis=1), peers[gaps.argmin(axis=1)]
    error = _errors(steps, slopes, asked, nearest)
    gaps = _gaps(steps, asked, old)
    nearest_old = gaps.argmin(axis=1)
    for i, end in enumerate(ends):
        too_new = nearest_old >= end
        nearest_old[too_new] = gaps[too_new, :end].argmin(axis=1)
        comparable = np.isfinite(near) & (gaps[np.arange(len(gaps)), nearest_old] <= _NEAR * near)
        other = _errors(steps, slopes, asked, old[nearest_old])
        if _contradicts(error[comparable], other[comparable]):
            return sizes[max(i - 1, 0)]
    return 0


def _contradicts(error: FloatArray, other: FloatArray) -> bool:
    """Whether other errors, shape (n, outcomes), are mostly far greater in some component."""
    n = len(error)
    if n < 20:  # too few to compare
        return False
    worse = (other > _WORSE * error + _HARMLESS).mean(axis=0)
    return bool(worse.max() > _HALF + _SURE * math.sqrt(_HALF * (1.0 - _HALF) / n))


def _standardised(seen: Experience, rows: IntArray) -> _Steps:
    before = seen.observations[rows].astype(np.float64)
    moves = seen.observations[rows + 1] - before
    actions = seen.steps[rows, ACTION]
    if seen.taken is not None:
        before = np.column_stack([before, seen.taken.actions[rows]])
        actions = np.zeros(len(rows))
    trajectories = np.cumsum(seen.steps[:, MARK] != GOES_ON)[rows]
    outcomes = np.column_stack([moves, seen.steps[rows, REWARD]])
    return _Steps(_scaled(before), actions, _scaled(outcomes), trajectories)


def _scaled(numbers: FloatArray) -> FloatArray:
    """Standardise columns; constant ones become 0."""
    columns = np.ascontiguousarray(numbers.T)  # sums along rows are much faster
    columns -= columns.mean(axis=1, keepdims=True)
    highest = columns.max(axis=1, keepdims=True, initial=0.0)
    largest = np.maximum(highest, -columns.min(axis=1, keepdims=True, initial=0.0))
    columns /= np.where(largest > 0.0, largest, 1.0)  # squares of tiny ones would vanish
    deviations = columns.std(axis=1, keepdims=True)
    columns /= np.where(deviations > 0.0, deviations, 1.0)
    return np.ascontiguousarray(columns.T)


def _evenly(begin: int, end: int, max_n: int) -> IntArray:
    """Return at most ``max_n`` integers in [begin, end), evenly, the last one included."""
    n = min(max_n, end - begin)
    return end - 1 - (np.arange(n)[::-1] * (end - begin)) // n


def _gaps(steps: _Steps, asked: IntArray, others: IntArray) -> FloatArray:
    """Return squared distances of steps, rows of ``steps``; infinite where actions differ."""
    from scipy.spatial.distance import cdist  # loads slowly, and few trainings need it

    gaps = cdist(steps.places[asked], steps.places[others], "sqeuclidean")
    gaps[steps.actions[asked, None] != steps.actions[others]] = np.inf
    return np.asarray(gaps)


def _slopes(steps: _Steps, rows: IntArray) -> dict[float, FloatArray]:
    """Regress outcomes on places, for each action: slopes of shape (d, d + 1)."""
    slopes = {}
    for action in np.unique(steps.actions):
        own = rows[steps.actions[rows] == action]
        design = np.column_stack([steps.places[own], np.ones(len(own))])
        slopes[float(action)] = np.linalg.lstsq(design, steps.outcomes[own], rcond=None)[0][:-1]
    return slopes


def _errors(
    steps: _Steps, slopes: dict[float, FloatArray], asked: IntArray, others: IntArray
) -> FloatArray:
    """Return errors of others' outcomes, corrected by slopes, as predictions; (n, d + 1)."""
    apart = steps.places[asked] - steps.places[others]
    found = steps.outcomes[asked] - steps.outcomes[others]
    for action, slope in slopes.items():
        own = steps.actions[asked] == action
        found[own] -= apart[own] @ slope
    return np.asarray(np.abs(found))
