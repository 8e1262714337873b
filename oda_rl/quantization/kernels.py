"""Compiled functions that move codevectors, one sample at a time.

:func:`compete` is stochastic vector quantization; :func:`lvq1`, :func:`glvq` and :func:`rslvq` move
the codevectors of a classifier, :func:`learn_map` those of a map. Their arguments:

``codevectors``, shape (K, d)
    Changed in place.
``labels``, shape (K,), int64
    The class of each codevector.
``points``, shape (n, d), and ``targets``, shape (n,), int64
    The samples and their classes. Where a value is missing (NaN), distances and moves are in the
    observed features (Samad and Harp, 1992).
``order``, shape (m,), int64
    Rows of the samples, in order of presentation.
``rate``, below 1
    First step size of a classifier; it falls to 0 linearly over the m presentations.

Scaled data gives scaled codevectors. A sample whose squared distance overflows is skipped.

References
----------
T. Samad, S. A. Harp, "Self-organization with partial data", Network: Computation in Neural Systems
3, 1992.
"""

import math
from typing import NamedTuple

import numpy as np

from oda_rl._compile import allocating, compiled, inlined
from oda_rl._types import FloatArray, IntArray
from oda_rl.diagram import nearest_codevector, squared_distance
from oda_rl.divergences import SquaredEuclidean
from oda_rl.samples import cell_means, observed_shares

_MIN_PULL = 1e-6  # relative step size: weaker moves are left out
_FARTHEST = 40.0  # temperatures: exp(-40) is lost beside 1
_SLOPE = 4.0  # of GLVQ's sigmoid
_MAX_PASSES = 300  # of Lloyd's iteration


@inlined
def move(codevectors: FloatArray, k: int, points: FloatArray, i: int, step: float) -> None:
    """Move a codevector towards a point, or away from it if the step is negative."""
    for j in range(points.shape[1]):
        gap = points[i, j] - codevectors[k, j]
        if gap == gap:
            codevectors[k, j] += step * gap


@inlined
def _boltzmann(gap: float, temperature: float) -> float:
    """exp(-gap / temperature), and its limit at temperature 0."""
    if gap <= 0.0:
        return 1.0
    if gap > _FARTHEST * temperature:
        return 0.0
    return math.exp(-gap / temperature)


@compiled
def measure(points: FloatArray, codevectors: FloatArray, out: FloatArray) -> None:
    """Write squared distances, shape (n, K)."""
    for i in range(points.shape[0]):
        for k in range(codevectors.shape[0]):
            out[i, k] = squared_distance(points, i, codevectors, k, points.shape[1])


@compiled
def _assign(
    points: FloatArray, codevectors: FloatArray, labels: IntArray, distances: FloatArray
) -> None:
    """Write the nearest codevector of each point and its squared distance, both of shape (n,)."""
    for i in range(points.shape[0]):
        labels[i], distances[i] = nearest_codevector(points, i, codevectors)


@compiled
def compete(
    codevectors: FloatArray, counts: FloatArray, points: FloatArray, order: IntArray
) -> float:
    """Move the winner of each sample by 1/(1 + 0.9 n), n its former count.

    Returns the sum of the squared distances from the winners before they moved.
    """
    total = 0.0
    for t in range(order.shape[0]):
        i = order[t]
        winner, smallest = nearest_codevector(points, i, codevectors)
        total += smallest
        if smallest < np.inf:
            move(codevectors, winner, points, i, 1.0 / (1.0 + 0.9 * counts[winner]))
            counts[winner] += 1.0
    return total


@compiled
def lvq1(
    codevectors: FloatArray, labels: IntArray, points: FloatArray, targets: IntArray,
    order: IntArray, rate: float,
) -> None:  # fmt: skip
    """Move the winner to samples of its class and away from others (Kohonen 1995, section 6.1)."""
    n_shown = order.shape[0]
    for t in range(n_shown):
        i = order[t]
        winner, smallest = nearest_codevector(points, i, codevectors)
        if smallest < np.inf:
            step = rate * (1.0 - t / n_shown)
            if labels[winner] != targets[i]:
                step = -step
            move(codevectors, winner, points, i, step)


@compiled
def glvq(
    codevectors: FloatArray, labels: IntArray, points: FloatArray, targets: IntArray,
    order: IntArray, rate: float,
) -> None:  # fmt: skip
    """Descend a sigmoid f of (d⁺ − d⁻)/(d⁺ + d⁻) (generalized LVQ).

    d⁺ and d⁻ are the squared distances of a sample from the nearest codevector of its class and of
    any other; the first moves towards the sample by rate f′ d⁻/(d⁺ + d⁻), the second away from it
    by rate f′ d⁺/(d⁺ + d⁻): the gradient times (d⁺ + d⁻)/4, which has no unit of length. Nothing
    moves if there is only one class, or no codevector of the sample's class.

    References
    ----------
    A. Sato, K. Yamada, "Generalized learning vector quantization", NIPS 8, 1995.
    """
    d, n_shown = points.shape[1], order.shape[0]
    for t in range(n_shown):
        i = order[t]
        right, wrong = 0, 0
        near, far = np.inf, np.inf
        for k in range(codevectors.shape[0]):
            distance = squared_distance(points, i, codevectors, k, d)
            if labels[k] == targets[i]:
                if distance < near:
                    near, right = distance, k
            elif distance < far:
                far, wrong = distance, k
        total = near + far
        if 0.0 < total < np.inf:
            sigmoid = 1.0 / (1.0 + math.exp(_SLOPE * (far - near) / total))
            step = rate * (1.0 - t / n_shown) * _SLOPE * sigmoid * (1.0 - sigmoid) / total
            move(codevectors, right, points, i, step * far)
            move(codevectors, wrong, points, i, -step * near)


@allocating
def rslvq(
    codevectors: FloatArray, masses: FloatArray, labels: IntArray, temperature: float,
    points: FloatArray, targets: IntArray, order: IntArray, rate: float,
) -> None:  # fmt: skip
    """Ascend log p(c|x), with p(k|x) ∝ p_k exp(−|x − μ_k|²/T) (robust soft LVQ).

    Codevectors of the sample's class move towards it by rate p(k|c, x) (1 − p(c|x)), others away
    from it by rate p(k|x): the gradient times T/2, which has no unit of length. A sample of a
    class without codevectors is skipped.

    ``masses``, shape (K,), are the p_k ≥ 0: only their ratios matter. The temperature T ≥ 0 is in
    squared units of the data; at 0 only the nearest of either kind moves.

    References
    ----------
    S. Seo, K. Obermayer, "Soft learning vector quantization", Neural Computation 15, 2003.
    """
    n_codevectors, d = codevectors.shape
    n_shown = order.shape[0]
    weights = np.empty(n_codevectors)
    for t in range(n_shown):
        i = order[t]
        near, nearest = np.inf, np.inf  # of the class, and of all
        for k in range(n_codevectors):
            weights[k] = squared_distance(points, i, codevectors, k, d)
            if masses[k] > 0.0:
                nearest = min(nearest, weights[k])
                if labels[k] == targets[i]:
                    near = min(near, weights[k])
        if near == np.inf:
            continue
        # Two references, so that neither sum underflows.
        right, wrong = 0.0, 0.0
        for k in range(n_codevectors):
            if labels[k] == targets[i]:
                weights[k] = masses[k] * _boltzmann(weights[k] - near, temperature)
                right += weights[k]
            else:
                weights[k] = masses[k] * _boltzmann(weights[k] - nearest, temperature)
                wrong += weights[k]
        total = wrong + right * _boltzmann(near - nearest, temperature)
        error = wrong / total  # 1 - p(c|x), and no pull is stronger
        if error <= _MIN_PULL:
            continue
        step = rate * (1.0 - t / n_shown)
        for k in range(n_codevectors):
            same = labels[k] == targets[i]
            pull = weights[k] / right * error if same else -weights[k] / total
            if abs(pull) > _MIN_PULL:
                move(codevectors, k, points, i, step * pull)


@inlined
def _gaussian(steps: int, n: int, periodic: bool, width: float) -> float:
    """Pull at a distance of grid positions on a line of n."""
    apart = float(abs(steps))
    if periodic:
        apart = min(apart, n - apart)
    return math.exp(-apart * apart / (2.0 * width * width))


class Grid(NamedTuple):
    """Shape of a map."""

    n_rows: int
    n_columns: int
    periodic: bool
    hexagonal: bool = False  # odd rows are half a column on, and rows √3/2 apart


@compiled
def write_pulls(winner: int, grid: Grid, width: float, out: FloatArray) -> None:
    """Write the pull on each codevector, 1 for the winner, to ``out``, shape (≥ K,)."""
    n_rows, n_columns, periodic, hexagonal = grid
    row, column = winner // n_columns, winner % n_columns
    if hexagonal:
        for k in range(n_rows * n_columns):
            r = k // n_columns
            down = abs(r - row) + 0.0
            along = abs(k % n_columns - column + 0.5 * (r % 2 - row % 2))
            if periodic:
                down, along = min(down, n_rows - down), min(along, n_columns - along)
            out[k] = math.exp(-(along * along + 0.75 * down * down) / (2.0 * width * width))
        return
    for c in range(n_columns):
        out[c] = _gaussian(c - column, n_columns, periodic, width)
    for r in range(n_rows - 1, -1, -1):  # row 0 last: it holds the columns' factors
        factor = _gaussian(r - row, n_rows, periodic, width)
        for c in range(n_columns):
            out[r * n_columns + c] = factor * out[c]


@compiled
def learn_map(
    codevectors: FloatArray, hits: IntArray, points: FloatArray, shares: FloatArray,
    order: IntArray, grid: Grid, rates: FloatArray, widths: FloatArray, pulls: FloatArray,
) -> float:  # fmt: skip
    """Move the codevectors of a map towards points.

    ``hits``, shape (K,), counts the samples that each codevector wins; ``shares``, shape (n,), are
    the shares of observed features. ``rates`` and ``widths``, shape (m,), are those of each
    presentation; ``pulls``, shape (K,), is scratch. Returns the sum of the squared distances,
    scaled up to all features, from the winners before they moved.
    """
    total = 0.0
    for t in range(order.shape[0]):
        i = order[t]
        winner, smallest = nearest_codevector(points, i, codevectors)
        total += smallest / shares[i]
        if not smallest < np.inf:
            continue
        hits[winner] += 1
        write_pulls(winner, grid, widths[t], pulls)
        for k in range(codevectors.shape[0]):
            if pulls[k] >= 1e-9:  # weaker moves are left out
                move(codevectors, k, points, i, rates[t] * pulls[k])
    return total


def nearest(points: FloatArray, codevectors: FloatArray) -> tuple[IntArray, FloatArray]:
    """Nearest codevector of each point, and squared distances scaled up to all features; (n,)."""
    labels = np.empty(len(points), dtype=np.int64)
    distances = np.empty(len(points))
    _assign(points, codevectors, labels, distances)
    return labels, distances / np.reshape(observed_shares(points), -1)


def lloyd(points: FloatArray, weights: FloatArray, codevectors: FloatArray) -> FloatArray:
    """Lloyd's iteration, with ``weights``, shape (n,), in the observed features, to a fixed point.

    Every pass lowers the weighted sum of the squared distances in the observed features (k-POD of
    Chi, Chi and Baraniuk, "k-POD: a method for k-means clustering of missing data", The American
    Statistician 70, 2016). A component that no sample of the cell has does not move. Returns the
    codevectors, shape (K, d).
    """
    before = None
    for _ in range(_MAX_PASSES):
        nearest = SquaredEuclidean().between(points, codevectors).argmin(axis=1)
        if before is not None and (nearest == before).all():
            break
        before = nearest
        codevectors = cell_means(points, weights, nearest, codevectors)
    return codevectors
