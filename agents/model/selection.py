"""Which rule is delivered: what the model promises, corrected by what real episodes returned.

A rule's value is the model's mean return from many starts, plus what real episodes returned beyond
what the model imagines from the same starts, shrunk towards the pessimistic half of that of all
rules, minus a standard error. Imagined returns alone never decide.
"""

import math
from collections.abc import Sequence

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.model.candidates import Candidate
from oda_rl.agents.model.tabled import Tabled

_PRIOR_EPISODES = 2.0
_PRIOR_FREEDOM = 3.0
_BEYOND = 2.0  # standard errors that tables have to differ by


def values(candidates: list[Candidate]) -> FloatArray:
    """Return the value of each candidate, shape (n,).

    Examples
    --------
    >>> honest = Candidate(np.zeros((1, 2)), np.ones((1, 1, 1)), promised=90.0)
    >>> honest.returns, honest.imagined = [90.0, 90.0], [90.0, 90.0]
    >>> boaster = Candidate(np.zeros((1, 2)), np.ones((1, 1, 1)), promised=100.0)
    >>> boaster.returns, boaster.imagined = [50.0, 50.0], [100.0, 100.0]
    >>> int(values([honest, boaster]).argmax())
    0
    """
    surprises = [candidate.surprises for candidate in candidates]
    everything = np.concatenate([np.zeros(0), *surprises])
    within = np.concatenate([np.zeros(0), *(own - own.mean() for own in surprises if len(own) > 1)])
    prior = float(everything.var()) if len(everything) else 0.0
    freedom = len(within) + _PRIOR_FREEDOM
    deviation = math.sqrt((float(within @ within) + _PRIOR_FREEDOM * prior) / freedom)
    bias = min(float(np.median(everything)), 0.0) if len(everything) else 0.0
    return np.array([
        candidate.promised
        + (own.sum() + _PRIOR_EPISODES * bias) / (len(own) + _PRIOR_EPISODES)
        - deviation / math.sqrt(len(own) + 1.0)
        for candidate, own in zip(candidates, surprises, strict=True)
    ])  # fmt: skip


def values_of_tables(tables: Sequence[Tabled]) -> FloatArray:
    """Return the value of each table, shape (n,).

    A table's model is counted, and real episodes were counted with the rest: they correct it only
    as far as they differ more between tables than they do by chance, which is what they vary by, or
    should by the model: a few episodes may be lucky together. A value is the model's mean
    return, plus what real episodes returned beyond what it imagines from the same starts, shrunk
    towards that of all, minus a standard deviation of what is then left to be surprised by.

    Examples
    --------
    >>> from oda_rl.agents.model.tabled import greedy
    >>> policy = greedy(np.zeros((1, 1)), np.ones((1, 1)))
    >>> honest, boaster = Tabled(policy, promised=90.0), Tabled(policy, promised=100.0)
    >>> honest.returns, honest.imagined = [90.0, 90.0], [90.0, 90.0]
    >>> boaster.returns, boaster.imagined = [50.0, 50.0], [100.0, 100.0]
    >>> int(values_of_tables([honest, boaster]).argmax())
    0
    """
    surprises = [table.surprises for table in tables]
    everything = np.concatenate([np.zeros(0), *surprises])
    bias = min(float(everything.mean()), 0.0) if len(everything) else 0.0
    counts = np.array([len(own) for own in surprises], dtype=float)
    sums = np.array([own.sum() for own in surprises])
    played = counts > 0.0
    n = max(int(played.sum()), 1)
    means = sums[played] / counts[played]
    within = float(sum(((own - own.mean()) ** 2).sum() for own in surprises if len(own)))
    expected = counts @ np.array([table.variance for table in tables]) / max(counts.sum(), 1.0)
    noise = max(within / max(float((counts[played] - 1.0).sum()), 1.0), float(expected))
    chance = noise * float((1.0 / counts[played]).sum()) / n * (1.0 + _BEYOND * math.sqrt(2.0 / n))
    between = max(float(((means - bias) ** 2).sum()) / n - chance, 0.0)
    if between == 0.0:
        return np.array([table.promised for table in tables]) + bias
    share = np.where(played, counts * between / np.maximum(counts * between + noise, between), 0.0)
    shrunk = np.where(played, share * sums / np.maximum(counts, 1.0) + (1.0 - share) * bias, bias)
    left = np.sqrt(between * (1.0 - share))
    return np.array([table.promised for table in tables]) + shrunk - left
