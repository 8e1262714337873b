"""Compiled kernels of large codebooks: online deterministic annealing of a stream, class by class.

Where ``cells`` serves an agent's handful of cells one sample at a time, this is for
hundreds of codevectors and blocks of samples.

Only the codevectors of a sample's own class see it: [ODA-TNNLS] eq. 15, with a counter per class.
What falls below a millionth of the largest share is left out.

References
----------
[ODA-TNNLS] C. N. Mavridis, J. S. Baras, "Online deterministic annealing for classification and
clustering", IEEE Transactions on Neural Networks and Learning Systems, 2023.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from oda_rl._compile import compiled, inlined, spliced
from oda_rl._state import Raw, State, reader
from oda_rl._types import FloatArray, IndexArray, IntArray
from oda_rl.divergences import LOGARITHMIC, TINY, Divergence
from oda_rl.files.schema import Member, Span, real, require

LEAST_SHARE = 1e-6
FARTHEST = -math.log(LEAST_SHARE)  # in temperatures
SMALLEST_SCALE = 1e-60
LEAST_DECAY = 1e-3

GROUPED = 256  # codevectors from which on segments pay
_LLOYD = 5
_SLACK = 1.0 + 1e-12  # rounding must not hide the nearest where nothing else is looked for


class Block(NamedTuple):
    """A block of samples of d features."""

    n_features: int
    """d."""
    points: FloatArray
    """Shape (n, d + q): the last q columns are averaged along; no distance depends on them."""
    classes: IntArray
    """Shape (n,)."""
    weights: FloatArray
    """Shape (n,): a weight w is a step w times as long."""
    potentials: FloatArray
    """φ, shape (n,); zeros for the quadratic divergence."""


class Layout(NamedTuple):
    """K codevectors, laid out for the kernel.

    An index that might be negative would keep the loops from vectorising: so they are unsigned.
    """

    columns: FloatArray
    """Codevectors and their q averages, shape (d + q, ≥ K), and perhaps columns that are not used.
    This way round, distances vectorise over the codevectors."""
    gradients: FloatArray
    """Of the affine diagram, shape (d, K), for divergences that need one. The quadratic one takes
    differences instead, which do not cancel far from the origin, and has shape (0, 0)."""
    offsets: FloatArray
    """Likewise, shape (K,)."""
    masses: FloatArray
    """Association masses, shape (K,), over the scale of their class."""
    starts: IndexArray
    """Segment s is the codevectors from ``starts[s]`` up to ``starts[s + 1]``; shape (S + 1,)."""
    owners: IndexArray
    """Class c owns the segments from ``owners[c]`` up to ``owners[c + 1]``; shape (C + 1,)."""


class Balls(NamedTuple):
    """A ball around each segment, for classes of several segments (quadratic divergence only)."""

    centres: FloatArray
    """Shape (d, S)."""
    radii: FloatArray
    """Shape (S,): no codevector of the segment is farther from its centre."""
    gaps: FloatArray
    """Shape (S,), scratch."""


class Seen(State):
    """What a level has seen."""

    distortion: Annotated[float, Span("[0, inf)")]
    """Sum of the divergences from the nearest codevector."""
    weight: Annotated[float, Span("[0, inf)")]
    """Sum of the weights."""


LAYOUT: dict[str, Member] = {
    "columns": real("D, width"),
    "gradients": real("g, k"),
    "offsets": real("k"),
    "masses": real("K", "[0, inf)"),
    "starts": Member(np.uint64, "S+1", "[0, K]"),
    "owners": Member(np.uint64, "classes+1", "[0, S]"),
}
BALLS: dict[str, Member] = {
    "centres": real("d, S"),
    "radii": real("S", "[0, inf)"),
    "gaps": real("S", "[-inf, inf] or nan"),
}
"""What a file may say of a :class:`Layout` and of :class:`Balls`."""
Layout.SCHEMA, Balls.SCHEMA = LAYOUT, BALLS  # type: ignore[attr-defined]


def check_layout(layout: Layout, labels: IntArray, affine: bool) -> None:
    """Raise InvalidFileError unless a layout is one of as many codevectors as there are labels.

    Parameters
    ----------
    layout : Layout
        Of right types and shapes.
    labels : ndarray, shape (K,)
        Class of each codevector, rising.
    affine : bool
        Whether the divergence needs an affine diagram.
    """
    n, (n_rows, width) = len(labels), layout.columns.shape
    starts, owners = layout.starts.astype(np.int64), layout.owners.astype(np.int64)
    for name, bounds, last in (("starts", starts, n), ("owners", owners, len(starts) - 1)):
        right = bounds[0] == 0 and bounds[-1] == last and (np.diff(bounds) > 0).all()
        require(right, f"layout.{name} must rise from 0 to {last}")
    classes = np.searchsorted(labels, np.arange(len(owners)))
    require((starts[owners] == classes).all(), "layout.owners own codevectors of other classes")
    require(width >= n, f"layout.columns has {width} columns for {n} codevectors")
    features = layout.gradients.shape
    right = features[1] == n and 0 < features[0] <= n_rows if affine else features == (0, 0)
    require(right, f"layout.gradients has shape {features}")


class Stage(NamedTuple):
    """A temperature level, and how far it has come."""

    temperature: float
    """T."""
    forgetting: float
    """Least share of the way to a sample of its own that a codevector goes."""
    scales: FloatArray
    """Shape (C,): masses decay all at once; the true ones are those of the layout times this."""
    clocks: FloatArray
    """Weight n of each class's samples, shape (C,)."""
    seen: Raw
    """:class:`Seen`."""


class Scratch(NamedTuple):
    """What the kernel writes to and nobody reads."""

    shares: FloatArray
    """Shape (K,)."""
    visited: IndexArray
    """Shape (S,)."""


seen_of = reader(Seen)


@inlined
def smallest_of(values: FloatArray, first: np.uint64, last: np.uint64) -> float:
    """Return the smallest of values ``first`` to ``last`` - 1.

    Four at a time: a comparison that waits for the one before takes four times as long.
    """
    even = last - (last - first) % np.uint64(4)
    a = b = c = d = np.inf
    for k in range(first, even, 4):
        a = values[k] if values[k] < a else a
        b = values[k + 1] if values[k + 1] < b else b
        c = values[k + 2] if values[k + 2] < c else c
        d = values[k + 3] if values[k + 3] < d else d
    for k in range(even, last):
        a = values[k] if values[k] < a else a
    a = b if b < a else a
    c = d if d < c else c
    return c if c < a else a


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
    return smallest_of(out, first, last)


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
    return smallest_of(out, first, last)


@compiled
def _redraw(
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


@spliced
def _measure(
    samples: Block, i: int, layout: Layout, kernel: int | None, s: int, out: FloatArray
) -> float:
    """Write divergences from the codevectors of a segment, but for φ(x); return the smallest."""
    first, last = layout.starts[s], layout.starts[s + 1]
    if kernel is None:
        return measure(samples.points, i, samples.n_features, layout.columns, first, last, out)
    return measure_affine(samples.points, i, layout.gradients, layout.offsets, first, last, out)


@spliced
def visit(
    samples: Block,
    i: int,
    layout: Layout,
    kernel: int | None,
    balls: Balls | None,
    reach: float,
    scratch: Scratch,
) -> tuple[float, int]:
    """Measure the segments of the sample's class; return the smallest and how many they are.

    Where there are several, those too far away for a share are not looked at.
    """
    c = samples.classes[i]
    begin, end = layout.owners[c], layout.owners[c + 1]
    nearest = begin
    if balls is not None:
        gaps = balls.gaps
        measure(samples.points, i, samples.n_features, balls.centres, begin, end, gaps)
        for s in range(begin, end):
            if gaps[s] < gaps[nearest]:
                nearest = s
    scratch.visited[0], n_visited = nearest, 1
    smallest = _measure(samples, i, layout, kernel, nearest, scratch.shares)
    if balls is not None:
        n_visited = 0
        limit = math.sqrt(smallest + reach) * _SLACK
        for s in range(begin, end):
            bound = limit + balls.radii[s]
            if gaps[s] > bound * bound:
                continue
            scratch.visited[n_visited] = s
            n_visited += 1
            if s != nearest:
                least = _measure(samples, i, layout, kernel, s, scratch.shares)
                if least < smallest:
                    smallest = least
                    limit = math.sqrt(smallest + reach) * _SLACK
    return smallest, n_visited


@spliced
def weigh(
    layout: Layout, scratch: Scratch, n_visited: int, smallest: float, temperature: float
) -> float:
    """Turn divergences into masses times Gibbs weights; return their sum."""
    shares = scratch.shares
    total = 0.0
    farthest = smallest + FARTHEST * temperature
    for t in range(n_visited):
        s = scratch.visited[t]
        for k in range(layout.starts[s], layout.starts[s + 1]):
            if shares[k] <= farthest:
                share = layout.masses[k] * math.exp((smallest - shares[k]) / temperature)
                shares[k] = share
                total += share
            else:
                shares[k] = 0.0
    return total


@spliced
def step_of(stage: Stage, c: int, size: int, weight: float) -> float:
    """Step size α of a sample, which it counts; the masses decay by 1 - α."""
    step: float = 1.0 / (1.0 + 0.9 * (stage.clocks[c] + size))
    least = stage.forgetting / size
    if step < least:
        step = least
    step *= weight
    if step > 1.0:
        step = 1.0
    stage.clocks[c] += weight
    decay = 1.0 - step
    if decay < LEAST_DECAY:
        decay = LEAST_DECAY
    stage.scales[c] *= decay
    return step


@spliced
def _attract(
    samples: Block,
    i: int,
    layout: Layout,
    kernel: int | None,
    balls: Balls | None,
    s: int,
    k: int,
    gain: float,
) -> None:
    """Add to the mass of codevector ``k`` of segment ``s``, which moves towards the sample."""
    columns = layout.columns
    layout.masses[k] += gain
    pull = gain / layout.masses[k]
    for j in range(columns.shape[0]):
        columns[j, k] += pull * (samples.points[i, j] - columns[j, k])
    if kernel is not None:
        _redraw(kernel, columns, k, layout.gradients, layout.offsets)
    if balls is not None:
        radius = 0.0
        for j in range(samples.n_features):
            radius += (columns[j, k] - balls.centres[j, s]) ** 2
        balls.radii[s] = max(balls.radii[s], math.sqrt(radius))


@compiled
def learn(
    n_features: int,
    points: FloatArray,
    classes: IntArray,
    weights: FloatArray,
    potentials: FloatArray,
    columns: FloatArray,
    gradients: FloatArray,
    offsets: FloatArray,
    masses: FloatArray,
    starts: IndexArray,
    owners: IndexArray,
    temperature: float,
    forgetting: float,
    scales: FloatArray,
    clocks: FloatArray,
    raw: Raw,
    shares: FloatArray,
    visited: IndexArray,
    kernel: int | None,
    balls: Balls | None,
) -> None:
    """Let samples attract the codevectors of their class.

    With r_k ∝ p_k exp(−d(x, μ_k)/T) from the old state and step size α: p_k ← p_k + α (r_k − p_k),
    then μ_k ← μ_k + (α r_k / p_k)(x − μ_k). After n samples of a class with K codevectors at this
    temperature α = 1/(1 + .9 (n + K)), and at least ``forgetting``/K.

    The arguments are those of a :class:`Block`, a :class:`Layout`, a :class:`Stage` and a
    :class:`Scratch`, one by one: Python takes longer to hand over records. ``kernel`` is None for
    the quadratic divergence, ``balls`` if no class has several segments. numba compiles what is
    None apart.
    """
    samples = Block(n_features, points, classes, weights, potentials)
    layout = Layout(columns, gradients, offsets, masses, starts, owners)
    stage = Stage(temperature, forgetting, scales, clocks, raw)
    scratch = Scratch(shares, visited)
    seen = seen_of(raw, 0)
    reach = FARTHEST * temperature
    for i in range(points.shape[0]):
        c, weight = classes[i], weights[i]
        smallest, n_visited = visit(samples, i, layout, kernel, balls, reach, scratch)
        divergence = smallest + potentials[i]
        if divergence < 0.0:
            divergence = 0.0
        seen.distortion += weight * divergence
        seen.weight += weight
        total = weigh(layout, scratch, n_visited, smallest, temperature)
        first, last = starts[owners[c]], starts[owners[c + 1]]
        step = step_of(stage, c, last - first, weight)
        least = LEAST_SHARE * total
        for t in range(n_visited):
            s = scratch.visited[t]
            for k in range(starts[s], starts[s + 1]):
                if shares[k] > least:
                    gain = step * (shares[k] / total) / scales[c]
                    _attract(samples, i, layout, kernel, balls, s, k, gain)
        if scales[c] < SMALLEST_SCALE:
            for k in range(first, last):
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


def learn_called(divergence: Divergence, samples: Block, layout: Layout, stage: Stage) -> None:
    """Do what :func:`learn` does through Python; classes have a segment each."""
    d, masses, scales, clocks = samples.n_features, layout.masses, stage.scales, stage.clocks
    offsets, gradients, columns = layout.offsets, layout.gradients, layout.columns
    seen = Seen(stage.seen)
    for point, c, weight, potential in zip(*samples[1:], strict=True):
        own = slice(int(layout.starts[c]), int(layout.starts[c + 1]))
        size = own.stop - own.start
        scores = offsets[own] + point[:d] @ gradients[:, own]
        smallest = scores.min()
        seen.distortion += weight * max(smallest + potential, 0.0)
        seen.weight += weight
        shares = masses[own] * np.exp((smallest - scores) / stage.temperature)
        shares /= shares.sum()
        shares[shares <= LEAST_SHARE] = 0.0
        step = max(1.0 / (1.0 + 0.9 * (clocks[c] + size)), stage.forgetting / size)
        step = min(weight * step, 1.0)
        clocks[c] += weight
        scales[c] *= max(1.0 - step, LEAST_DECAY)
        masses[own] += step * shares / scales[c]
        pulled = own.start + np.flatnonzero(shares)
        pull = step * shares[shares > 0.0] / (masses[pulled] * scales[c])
        if scales[c] < SMALLEST_SCALE:
            masses[own] *= scales[c]
            scales[c] = 1.0
        columns[:, pulled] += pull * (point[:, None] - columns[:, pulled])
        rows = divergence.diagram(columns[:d, pulled].T)
        offsets[pulled], gradients[:, pulled] = rows[:, 0], rows[:, 1:].T
