"""Compiled kernels of large codebooks: online deterministic annealing of a stream, class by class.

Where ``cells`` serves an agent's handful of cells one sample at a time, this is for
hundreds of codevectors and blocks of samples. The arrays, for K codevectors in d dimensions:

``columns``, shape (d + q, ≥ K)
    The codevectors, and perhaps columns that are not used. This way round, distances vectorise over
    the codevectors. The last q rows are averages of whatever follows the d features in a sample; no
    distance depends on them.
``gradients``, shape (d, K), and ``offsets``, shape (K,)
    The affine diagram, for the divergences that need one. The quadratic one takes differences
    instead, which do not cancel far from the origin, and leaves the two alone.
``masses``, shape (K,)
    Association masses; those of one class sum to 1.
``starts``, shape (S + 1,), and ``owners``, shape (C + 1,), unsigned
    Segment s is the codevectors from ``starts[s]`` up to ``starts[s + 1]``, and class c owns the
    segments from ``owners[c]`` up to ``owners[c + 1]``. (An index that might be negative would keep
    the loops from vectorising.)
``balls``
    For classes of several segments (quadratic divergence only), a ball around each segment:
    centres, shape (d, S), and radii, shape (S,); and the scratch ``gaps``, shape (S,).

Only the codevectors of a sample's own class see it: [ODA-TNNLS] eq. 15, with a counter per class.
What falls below a millionth of the largest share is left out.

References
----------
[ODA-TNNLS] C. N. Mavridis, J. S. Baras, "Online deterministic annealing for classification and
clustering", IEEE Transactions on Neural Networks and Learning Systems, 2023.
"""

import math

import numpy as np

from oda_rl._compile import compiled
from oda_rl._types import FloatArray, IndexArray, IntArray
from oda_rl.divergences import LOGARITHMIC, TINY, Divergence

LEAST_SHARE = 1e-6
FARTHEST = -math.log(LEAST_SHARE)  # in temperatures
_SMALLEST_SCALE = 1e-60
_LEAST_DECAY = 1e-3

GROUPED = 256  # codevectors from which on segments pay
_LLOYD = 5

# Rows of ``stats``: what a level has seen.
DISTORTION, WEIGHT = range(2)


@compiled
def measure(
    points: FloatArray,
    i: int,
    d: int,
    columns: FloatArray,
    first: np.uint64,
    last: np.uint64,
    out: FloatArray,
) -> float:
    """Write squared distances of point ``i`` from codevectors ``first`` to ``last`` - 1.

    Returns the smallest. From ten features on it takes less than half of the time of
    :func:`oda_rl.diagram.nearest_codevector`; with four features, a third more.
    """
    # Several components at once: fewer loads and stores of out.
    eights, fours = d - d % 8, d - d % 4
    for k in range(first, last):
        out[k] = 0.0
    for j in range(0, eights, 8):
        x0, x1, x2, x3 = points[i, j], points[i, j + 1], points[i, j + 2], points[i, j + 3]
        x4, x5, x6, x7 = points[i, j + 4], points[i, j + 5], points[i, j + 6], points[i, j + 7]
        for k in range(first, last):
            y0, y1 = x0 - columns[j, k], x1 - columns[j + 1, k]
            y2, y3 = x2 - columns[j + 2, k], x3 - columns[j + 3, k]
            y4, y5 = x4 - columns[j + 4, k], x5 - columns[j + 5, k]
            y6, y7 = x6 - columns[j + 6, k], x7 - columns[j + 7, k]
            halves = (y0 * y0 + y1 * y1) + (y2 * y2 + y3 * y3)
            out[k] += halves + ((y4 * y4 + y5 * y5) + (y6 * y6 + y7 * y7))
    for j in range(eights, fours, 4):
        x0, x1, x2, x3 = points[i, j], points[i, j + 1], points[i, j + 2], points[i, j + 3]
        for k in range(first, last):
            y0, y1 = x0 - columns[j, k], x1 - columns[j + 1, k]
            y2, y3 = x2 - columns[j + 2, k], x3 - columns[j + 3, k]
            out[k] += (y0 * y0 + y1 * y1) + (y2 * y2 + y3 * y3)
    for j in range(fours, d):
        x0 = points[i, j]
        for k in range(first, last):
            y0 = x0 - columns[j, k]
            out[k] += y0 * y0
    smallest = np.inf
    for k in range(first, last):
        smallest = out[k] if out[k] < smallest else smallest
    return smallest


@compiled
def measure_affine(
    points: FloatArray,
    i: int,
    gradients: FloatArray,
    offsets: FloatArray,
    first: np.uint64,
    last: np.uint64,
    out: FloatArray,
) -> float:
    """Write scores a + <g, x> of point ``i``, divergences but for φ(x), and return the least."""
    for k in range(first, last):
        out[k] = offsets[k]
    for j in range(gradients.shape[0]):
        x = points[i, j]
        for k in range(first, last):
            out[k] += gradients[j, k] * x
    smallest = np.inf
    for k in range(first, last):
        smallest = out[k] if out[k] < smallest else smallest
    return smallest


@compiled
def redraw(
    kernel: int, columns: FloatArray, k: int, gradients: FloatArray, offsets: FloatArray
) -> None:
    """Fill the diagram of codevector ``k`` anew."""
    offset = 0.0
    for j in range(gradients.shape[0]):
        value = max(columns[j, k], TINY)
        if kernel == LOGARITHMIC:
            gradients[j, k] = -math.log(value)
            offset += value
        else:
            gradients[j, k] = 1.0 / value
            offset += math.log(value) - 1.0
    offsets[k] = offset


@compiled
def learn(
    d: int,
    points: FloatArray,
    classes: IntArray,
    weights: FloatArray,
    potentials: FloatArray,
    columns: FloatArray,
    diagram: tuple[int, FloatArray, FloatArray] | None,
    masses: FloatArray,
    starts: IndexArray,
    owners: IndexArray,
    balls: tuple[FloatArray, FloatArray, FloatArray] | None,
    scales: FloatArray,
    clocks: FloatArray,
    stats: FloatArray,
    temperature: float,
    forgetting: float,
    shares: FloatArray,
    visited: IndexArray,
) -> None:
    """Let samples, shape (n, d + q), attract the codevectors of their class.

    With r_k ∝ p_k exp(−d(x, μ_k)/T) from the old state and step size α: p_k ← p_k + α (r_k − p_k),
    then μ_k ← μ_k + (α r_k / p_k)(x − μ_k). After n samples of a class with K codevectors at this
    temperature α = 1/(1 + .9 (n + K)), and at least ``forgetting``/K.

    ``diagram`` is None for the quadratic divergence; for the others (kernel, gradients, offsets).
    ``balls`` is None if no class has several segments. numba compiles what is None apart.

    Where a class has several segments, those too far away for a share are not looked at: no
    codevector of a segment is farther from its centre than its radius.

    Masses decay all at once: the true ones are ``masses`` times ``scales``, shape (C,), of their
    class. ``clocks``, shape (C,), counts n; ``stats`` sums divergences from the nearest codevector,
    and weights; ``shares``, shape (K,), and ``visited``, shape (S,), are scratch. A weight w is a
    step w times as long.
    """
    n_rows = columns.shape[0]
    reach = FARTHEST * temperature
    for i in range(points.shape[0]):
        c = classes[i]
        begin, end = owners[c], owners[c + 1]
        nearest = begin
        if balls is not None:
            centres, radii, gaps = balls
            measure(points, i, d, centres, begin, end, gaps)
            for s in range(begin, end):
                if gaps[s] < gaps[nearest]:
                    nearest = s
        visited[0], n_visited = nearest, 1
        first, last = starts[nearest], starts[nearest + 1]
        if diagram is None:
            smallest = measure(points, i, d, columns, first, last, shares)
        else:
            smallest = measure_affine(points, i, diagram[1], diagram[2], first, last, shares)
        if balls is not None:
            n_visited = 0
            limit = math.sqrt(smallest + reach)
            for s in range(begin, end):
                bound = limit + radii[s]
                if gaps[s] > bound * bound:
                    continue
                visited[n_visited] = s
                n_visited += 1
                if s != nearest:
                    first, last = starts[s], starts[s + 1]
                    least = measure(points, i, d, columns, first, last, shares)
                    if least < smallest:
                        smallest = least
                        limit = math.sqrt(smallest + reach)
        divergence = smallest + potentials[i]
        if divergence < 0.0:
            divergence = 0.0
        stats[DISTORTION] += weights[i] * divergence
        stats[WEIGHT] += weights[i]
        total = 0.0
        farthest = smallest + reach
        for t in range(n_visited):
            s = visited[t]
            for k in range(starts[s], starts[s + 1]):
                if shares[k] <= farthest:
                    share = masses[k] * math.exp((smallest - shares[k]) / temperature)
                    shares[k] = share
                    total += share
                else:
                    shares[k] = 0.0
        size = starts[end] - starts[begin]
        step, least_step = 1.0 / (1.0 + 0.9 * (clocks[c] + size)), forgetting / size
        if step < least_step:
            step = least_step
        step *= weights[i]
        if step > 1.0:
            step = 1.0
        clocks[c] += weights[i]
        decay = 1.0 - step
        if decay < _LEAST_DECAY:
            decay = _LEAST_DECAY
        scales[c] *= decay
        least = LEAST_SHARE * total
        for t in range(n_visited):
            s = visited[t]
            for k in range(starts[s], starts[s + 1]):
                if shares[k] > least:
                    gain = step * (shares[k] / total) / scales[c]
                    masses[k] += gain
                    pull = gain / masses[k]
                    for j in range(n_rows):
                        columns[j, k] += pull * (points[i, j] - columns[j, k])
                    if diagram is not None:
                        redraw(diagram[0], columns, k, diagram[1], diagram[2])
                    if balls is not None:
                        radius = 0.0
                        for j in range(d):
                            radius += (columns[j, k] - centres[j, s]) ** 2
                        radii[s] = max(radii[s], math.sqrt(radius))
        if scales[c] < _SMALLEST_SCALE:
            for k in range(starts[begin], starts[end]):
                masses[k] *= scales[c]
            scales[c] = 1.0


def segments(codevectors: FloatArray) -> IntArray:
    """Segment of each codevector, shape (K,): about 2√K groups of neighbours, or one.

    Groups start from codevectors far from one another: as many clusters as there are get their own.
    """
    n = len(codevectors)
    if n < GROUPED:
        return np.zeros(n, dtype=np.int64)
    centred = codevectors - codevectors.mean(axis=0)
    chosen = [int((centred**2).sum(axis=1).argmax())]
    nearest_gaps = np.full(n, np.inf)
    while len(chosen) < 2 * math.isqrt(n):
        gaps = ((centred - centred[chosen[-1]]) ** 2).sum(axis=1)
        nearest_gaps = np.minimum(nearest_gaps, gaps)
        chosen.append(int(nearest_gaps.argmax()))
    centres = centred[chosen]
    for _ in range(_LLOYD):
        gaps = (centres**2).sum(axis=1) - 2.0 * centred @ centres.T
        nearest = gaps.argmin(axis=1)
        members = np.eye(len(centres))[nearest].T
        sizes = members.sum(axis=1, keepdims=True)
        centres = np.where(sizes > 0.0, members @ centred / np.maximum(sizes, 1.0), centres)
    return np.unique(nearest, return_inverse=True)[1]


def learn_called(
    divergence: Divergence,
    d: int,
    points: FloatArray,
    classes: IntArray,
    weights: FloatArray,
    potentials: FloatArray,
    columns: FloatArray,
    gradients: FloatArray,
    offsets: FloatArray,
    masses: FloatArray,
    starts: IndexArray,
    scales: FloatArray,
    clocks: FloatArray,
    stats: FloatArray,
    temperature: float,
    forgetting: float,
) -> None:
    """Do what :func:`learn` does through Python; classes have a segment each."""
    for point, c, weight, potential in zip(points, classes, weights, potentials, strict=True):
        own = slice(int(starts[c]), int(starts[c + 1]))
        size = own.stop - own.start
        scores = offsets[own] + point[:d] @ gradients[:, own]
        smallest = scores.min()
        stats[DISTORTION] += weight * max(smallest + potential, 0.0)
        stats[WEIGHT] += weight
        shares = masses[own] * np.exp((smallest - scores) / temperature)
        shares /= shares.sum()
        shares[shares <= LEAST_SHARE] = 0.0
        step = max(1.0 / (1.0 + 0.9 * (clocks[c] + size)), forgetting / size)
        step = min(weight * step, 1.0)
        clocks[c] += weight
        scales[c] *= max(1.0 - step, _LEAST_DECAY)
        masses[own] += step * shares / scales[c]
        pulled = own.start + np.flatnonzero(shares)
        pull = step * shares[shares > 0.0] / (masses[pulled] * scales[c])
        if scales[c] < _SMALLEST_SCALE:
            masses[own] *= scales[c]
            scales[c] = 1.0
        columns[:, pulled] += pull * (point[:, None] - columns[:, pulled])
        rows = divergence.diagram(columns[:d, pulled].T)
        offsets[pulled], gradients[:, pulled] = rows[:, 0], rows[:, 1:].T
