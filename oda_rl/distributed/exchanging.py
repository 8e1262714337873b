"""A Gaussian mixture brought to a better optimum, on a sample of the rows.

Steps of expectation maximization end where they are led to by their start. Here two places change
hands: the component that is needed least gives up its place, and another one, for which two would
be much better, is split; then all follow. What is not better is undone. A split is tried on the
component's own rows, so that its gain is known before.

References
----------
N. Ueda, R. Nakano, Z. Ghahramani, G. E. Hinton, "SMEM algorithm for mixture models", Neural
Computation 12, 2000: here with a removal in place of its merging.
"""

from typing import NamedTuple

import numpy as np

from oda_rl._types import FloatArray, IntArray
from oda_rl.distributed.blocks import Rows
from oda_rl.distributed.expectations import Expectation, owned
from oda_rl.distributed.maximization import Climb, Reached
from oda_rl.distributed.sums import Sample
from oda_rl.mixtures.state import Mixture

_INVERSE_TEMPERATURES = 0.5, 0.2
_MOST_PASSES = 100  # of a climb
_TRIALS = 20  # that fail one after the other
_ALL_TRIALS = 100
_LEAST_GAIN = 1e-3
_SPLIT_PASSES = 6
_LEAST_SHARE = 1e-3  # of a row, that is among a component's own


class Split(NamedTuple):
    """Two components in place of one."""

    gain: float
    """Of the log-likelihood, a row."""
    pair: Mixture


class Members(NamedTuple):
    """Rows by the components that have a share in them."""

    rows: IntArray
    """Shape (m,), component after component."""
    shares: FloatArray
    """Shape (m,)."""
    ends: IntArray
    """Where those of each component end, shape (K,)."""
    costs: FloatArray
    """By how much the mean log-likelihood falls if a component is left out, shape (K,)."""


def best_of(here: Climb, sample: Sample, means: FloatArray, tol: float) -> Reached:
    """Climb from means, shape (K, d), and exchange until nothing is gained.

    From the means it climbs at once, and tempered in two ways: what is best goes on. The rows of
    ``here`` are those of the sample.
    """
    start = here.start(means)
    begun = [start, *(here.tempered(start, beta) for beta in _INVERSE_TEMPERATURES)]
    found = [here.climb(mixture, _MOST_PASSES, tol) for mixture in begun]
    best = max(found, key=lambda one: one.score)
    trials = 0
    while len(means) > 1 and trials < _ALL_TRIALS:
        exchanged = _exchanges(here, sample, best.mixture)
        for mixture in exchanged[:_TRIALS]:
            trials += 1
            tried = here.climb(mixture, _MOST_PASSES, tol)
            if tried.score > best.score + _LEAST_GAIN:
                best = tried
                break
        else:
            break
    return best


def _exchanges(here: Climb, sample: Sample, mixture: Mixture) -> list[Mixture]:
    """Return what could be better, what promises most first."""
    members = _members(here, sample, mixture)
    splits = [_split(here, sample, mixture, members, k) for k in range(len(mixture.weights))]
    gains = np.array([split.gain for split in splits])
    promised = gains[:, None] - members.costs
    np.fill_diagonal(promised, -np.inf)
    order = np.argsort(-promised, axis=None, kind="stable")[:_TRIALS]
    n = len(gains)
    return [_exchanged(mixture, int(i) // n, int(i) % n, splits[int(i) // n]) for i in order]


def _members(here: Climb, sample: Sample, mixture: Mixture) -> Members:
    """Find out who has a share in which rows."""
    rows, owners, shares, begin = [], [], [], 0
    costs = np.zeros(len(mixture.weights))
    question = Expectation(here.reader, mixture)
    for part in question.measure(Rows(sample.points, None, sample.weights), 0, owned(mixture)):
        costs -= part.weights @ np.log(np.maximum(1.0 - part.shares, _LEAST_SHARE**4))
        own, who = np.nonzero(part.shares > _LEAST_SHARE)
        rows.append(begin + own)
        owners.append(who)
        shares.append(part.shares[own, who])
        begin += len(part.points)
    order = np.argsort(np.concatenate(owners), kind="stable")
    counts = np.bincount(np.concatenate(owners), minlength=len(costs))
    return Members(
        np.concatenate(rows)[order], np.concatenate(shares)[order], np.cumsum(counts),
        costs / sample.weights.sum(),
    )  # fmt: skip


def _split(here: Climb, sample: Sample, mixture: Mixture, members: Members, k: int) -> Split:
    """Try two components on the rows of one."""
    begin = members.ends[k - 1] if k > 0 else 0
    own = slice(begin, members.ends[k])
    rows = members.rows[own]
    alone = _component(mixture, k)
    weights = sample.weights[rows] * members.shares[own]
    if len(rows) < 2:
        return Split(-np.inf, alone)
    local = here.here(sample.points[rows], weights)
    sums = local.ask(alone)
    spread = np.triu(sums.spreads[0]) / sums.masses[0]
    if mixture.axes is None:
        j = int(spread[0].argmax())
        way = np.zeros(len(spread[0]))
        way[j] = np.sqrt(spread[0, j])
    else:
        values, vectors = np.linalg.eigh(spread, UPLO="U")
        way = np.sqrt(max(values[-1], 0.0)) * vectors[:, -1]
    reached = local.climb(local.start(alone.means + np.outer([1.0, -1.0], way)), _SPLIT_PASSES, 0.0)
    gain = (reached.score - sums.score) * weights.sum() / sample.weights.sum()
    return Split(float(gain), reached.mixture)


def _component(mixture: Mixture, k: int) -> Mixture:
    """Return a mixture of a component alone."""
    own = slice(k, k + 1)
    return mixture._replace(
        means=mixture.means[own], precisions=mixture.precisions[own], weights=np.ones(1),
        axes=None if mixture.axes is None else mixture.axes[[k, -1]],
        half_log_dets=mixture.half_log_dets[own],
    )  # fmt: skip


def _exchanged(mixture: Mixture, split: int, freed: int, into: Split) -> Mixture:
    """Put two components in the places of one that is split and of another, which is given up."""
    places, pair = [split, freed], into.pair
    weights = mixture.weights.copy()
    weights[places] = weights[split] * pair.weights
    changed = {"weights": weights / weights.sum()}
    for name in ("means", "precisions", "half_log_dets"):
        changed[name] = getattr(mixture, name).copy()
        changed[name][places] = getattr(pair, name)
    if mixture.axes is not None and pair.axes is not None:
        changed["axes"] = mixture.axes.copy()
        changed["axes"][places] = pair.axes[:2]
    return mixture._replace(**changed)
