"""Codevectors that compete for samples: compiled functions that move them, one sample at a time.

:func:`compete` is stochastic vector quantization; :func:`lvq1`, :func:`glvq` and :func:`rslvq` move
the codevectors of a classifier, wherever those come from. They take

``codevectors``, shape (K, d)
    Changed in place.
``labels``, shape (K,), int64
    The class of each codevector.
``points``, shape (n, d), and ``targets``, shape (n,), int64
    The samples and their classes.
``order``, shape (m,), int64
    Which samples are shown, one after another. The step size falls from ``rate``, below 1, to 0
    linearly over these m presentations.

They know no absolute length: scaled data gives scaled codevectors. A sample so far away that its
squared distance is no longer a number is passed over, so what was finite remains so.
"""

import math

import numpy as np

from oda_rl._compile import allocating, compiled, inlined
from oda_rl._types import FloatArray, IntArray
from oda_rl._validation import chunks
from oda_rl.diagram import nearest_codevector, squared_distance
from oda_rl.divergences import SquaredEuclidean
from oda_rl.samples.missing import holes

_LEAST_PULL = 1e-6  # of the step size: a weaker pull on a codevector is left out
_FARTHEST = 40.0  # in temperatures: exp(-40) is lost beside 1
_SLOPE = 4.0  # of GLVQ's sigmoid


@inlined
def move(codevectors: FloatArray, k: int, points: FloatArray, i: int, step: float) -> None:
    """Move a codevector towards a point, or away from it if the step is negative."""
    for j in range(points.shape[1]):
        codevectors[k, j] += step * (points[i, j] - codevectors[k, j])


@inlined
def _boltzmann(gap: float, temperature: float) -> float:
    # exp(-gap / temperature), and its limit at temperature 0.
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
            out[i, k] = squared_distance(points, i, codevectors, k)


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
    """Move the winner of each sample by 1/(1 + .9 n), n the samples it had before.

    Returns
    -------
    float
        Sum of the squared distances from the winners before they moved.
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
    codevectors: FloatArray,
    labels: IntArray,
    points: FloatArray,
    targets: IntArray,
    order: IntArray,
    rate: float,
) -> None:
    """Move the winner towards samples of its class and away from others (Kohonen's LVQ1).

    Examples
    --------
    >>> codevectors, labels = np.array([[0.0], [4.0]]), np.array([0, 1])
    >>> points, targets = np.array([[1.0], [3.0]]), np.array([0, 0])
    >>> lvq1(codevectors, labels, points, targets, order=np.array([0, 1]), rate=0.5)
    >>> codevectors
    array([[0.5 ],
           [4.25]])

    References
    ----------
    T. Kohonen, "Self-organizing maps", Springer, 1995, section 6.1.
    """
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
    codevectors: FloatArray,
    labels: IntArray,
    points: FloatArray,
    targets: IntArray,
    order: IntArray,
    rate: float,
) -> None:
    """Descend a sigmoid f of (d⁺ − d⁻)/(d⁺ + d⁻) (generalized LVQ).

    d⁺ and d⁻ are the squared distances of a sample from the nearest codevector of its own class and
    of any other; the first moves towards the sample by rate f′ d⁻/(d⁺ + d⁻), the second away from
    it by rate f′ d⁺/(d⁺ + d⁻). That is the gradient times (d⁺ + d⁻)/4, which rids it of the unit of
    length. A sample of a class that has no codevector, or of the only class, moves nothing.

    References
    ----------
    A. Sato, K. Yamada, "Generalized learning vector quantization", NIPS 8, 1995.
    """
    n_shown = order.shape[0]
    for t in range(n_shown):
        i = order[t]
        right, wrong = 0, 0
        near, far = np.inf, np.inf
        for k in range(codevectors.shape[0]):
            distance = squared_distance(points, i, codevectors, k)
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
    codevectors: FloatArray,
    masses: FloatArray,
    labels: IntArray,
    temperature: float,
    points: FloatArray,
    targets: IntArray,
    order: IntArray,
    rate: float,
) -> None:
    """Ascend log p(c|x), with p(k|x) ∝ p_k exp(−|x − μ_k|²/T) (robust soft LVQ).

    Codevectors of the sample's own class move towards it by rate p(k|c, x) (1 − p(c|x)), others
    away from it by rate p(k|x). That is the gradient times T/2, which rids it of the unit of
    length. A sample of a class that has no codevector moves nothing.

    Parameters
    ----------
    masses : ndarray, shape (K,)
        The p_k, ≥ 0; only their ratios matter. They stay as they are.
    temperature : float
        T ≥ 0, in squared units of the data. At 0 only the nearest of either kind moves.

    References
    ----------
    S. Seo, K. Obermayer, "Soft learning vector quantization", Neural Computation 15, 2003.
    """
    n_codevectors = codevectors.shape[0]
    n_shown = order.shape[0]
    weights = np.empty(n_codevectors)
    for t in range(n_shown):
        i = order[t]
        own, nearest = np.inf, np.inf
        for k in range(n_codevectors):
            weights[k] = squared_distance(points, i, codevectors, k)
            if masses[k] > 0.0:
                nearest = min(nearest, weights[k])
                if labels[k] == targets[i]:
                    own = min(own, weights[k])
        if own == np.inf:
            continue
        # Each kind has its own reference, so that neither sum underflows.
        right, wrong = 0.0, 0.0
        for k in range(n_codevectors):
            if labels[k] == targets[i]:
                weights[k] = masses[k] * _boltzmann(weights[k] - own, temperature)
                right += weights[k]
            else:
                weights[k] = masses[k] * _boltzmann(weights[k] - nearest, temperature)
                wrong += weights[k]
        total = wrong + right * _boltzmann(own - nearest, temperature)
        mistaken = wrong / total  # 1 - p(c|x), and no pull is stronger
        if mistaken <= _LEAST_PULL:
            continue
        step = rate * (1.0 - t / n_shown)
        for k in range(n_codevectors):
            own_class = labels[k] == targets[i]
            pull = weights[k] / right * mistaken if own_class else -weights[k] / total
            if abs(pull) > _LEAST_PULL:
                move(codevectors, k, points, i, step * pull)


def nearest(points: FloatArray, codevectors: FloatArray) -> tuple[IntArray, FloatArray]:
    """Nearest codevector of each point, shape (n,), and its squared distance, shape (n,).

    Where values are missing that is what the whole distance is expected to be.
    """
    labels = np.empty(len(points), dtype=np.int64)
    distances = np.empty(len(points))
    if holes(points) is None:
        _assign(points, codevectors, labels, distances)
        return labels, distances
    for rows in chunks(len(points)):
        squares = SquaredEuclidean().between(points[rows], codevectors)
        labels[rows], distances[rows] = squares.argmin(axis=1), squares.min(axis=1)
    return labels, distances
