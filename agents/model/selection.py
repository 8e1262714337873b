"""Which rule is delivered: what the model promises, corrected by what real episodes returned.

A rule's value is the model's mean return from many starts, plus what real episodes returned beyond
what the model imagines from the same starts, shrunk towards the pessimistic half of that of all
rules, minus a standard error. Imagined returns alone never decide.
"""

import math

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.model.candidates import Candidate

_PRIOR_EPISODES = 2.0
_PRIOR_FREEDOM = 3.0


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
