"""Laws of motion, which predict how an observation changes by a step, and a law of rewards.

A global law for each code of an action (:class:`~oda_rl.agents.worlds.coordinates.WorldArrays`), on
(1, x) or on (1, x, x xᵀ), by ridge regression; and beside it

- *cells*: laws of annealed cells for the residuals, blended over the three nearest;
- *waves*: random sinusoids that all actions share, fitted jointly with the global law.

Held-out stretches decide which of them is used.

References
----------
A. Rahimi, B. Recht, "Random features for large-scale kernel machines", NeurIPS 2007.
"""

from dataclasses import dataclass
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.worlds.coordinates import HINGES, Coordinates, Single
from oda_rl.annealing.cells import anneal

_POOLED = 0.02  # weight of the prior: the moments of all actions
_RIDGE = 1e-8
_PRODUCTS = 10.0  # weight of the prior that products with continuous actions have no effect
_INTERCEPT_PENALTY = 0.01
_MIN_WEIGHT = 1e-4  # of a point in a cell's law
_MIN_CELLS, _POINTS_PER_CELL = 3, 10
_MIN_CELLS_OF_LAW, _MAX_CELLS, _STEPS_PER_CELL = 16, 160, 60
_N_WAVES = 400
_HEAVY, _REFINED = 10.0, 3  # median deviations in a heavy-tailed one; fits of such rewards
_FAR_OFF = 1e3  # standard deviations of the rewards, beyond which the ridge would bend their mean
_CONSTANT = 1e-9  # relative spread of rewards that are all equal
_MAX_REWARDS = 8_000  # steps to learn from
_MAX_COLUMNS = 600  # of a regression without waves: its time grows with their square
_ROWS_PER_COLUMN = 1.25
_HINGE_SAMPLE, _HINGE_GRID, _HINGE_ROUNDS = 1000, 17, 4
_LEFT, _LITTLE = 0.02, 1e-8  # shares that a distance may leave, and below which none is needed
_OF_DISTANCE, _NFEV, _BEST = 3, 200, 0.98  # components; quantile of rewards at the centre
MAX_OBLIQUE, _MIN_OBLIQUE = 3, 0.1  # hinges of two components; share of what is left, of each
_OFFSETS, _ANGLES = np.linspace(0.1, 0.9, 7), np.pi * (np.arange(8) + 0.5) / 8  # first guesses
_EXPLAINED, _MAX_WIDTH = 1e-6, 24  # so little may be left; components to form pairs of


@dataclass(frozen=True)
class Form:
    """A form of laws."""

    name: str
    quadratic: bool = False
    cells: bool = False
    own_slopes: bool = False  # laws of cells have slopes for each action
    penalty: float = 0.0  # of waves, if there are any

    def pays(self, n: int, d: int, n_codes: int) -> bool:
        """Whether n steps can determine its numbers, and not too many of them.

        >>> [form.name for form in FORMS if form.pays(400, 20, 5)]
        ['affine', 'affine, cells']
        """
        columns = n_codes * (1 + d + self.quadratic * (d * (d + 1) // 2))
        if columns > min(n, _MAX_COLUMNS) and self.quadratic:
            return False
        own = n_codes * (1 + d) if self.own_slopes else n_codes + d
        return not self.cells or own * n_cells_for(n) <= 3 * n


FORMS = (
    Form("affine"),
    Form("quadratic", quadratic=True),
    Form("affine, cells", cells=True),
    Form("quadratic, cells", quadratic=True, cells=True),
    Form("quadratic, cells with own slopes", quadratic=True, cells=True, own_slopes=True),
    Form("waves, smooth", quadratic=True, penalty=1e-3),
    Form("waves", quadratic=True, penalty=1e-5),
    Form("waves, rough", quadratic=True, penalty=1e-7),
)


def n_cells_for(n: int) -> int:
    """Return the number of cells for n steps."""
    return min(_MAX_CELLS, _MIN_CELLS_OF_LAW + n // _STEPS_PER_CELL)


class Law(NamedTuple):
    """A law as :class:`~oda_rl.agents.worlds.coordinates.WorldArrays` has E of them."""

    weights: FloatArray
    waves: Single
    codevectors: FloatArray
    locals: FloatArray
    width: float
    far: float  # quantile of the squared distance from the nearest cell


def monomials(points: FloatArray, quadratic: bool) -> FloatArray:
    """Return (1, x), or (1, x, x xᵀ) with each product once, shape (n, F)."""
    i, k = np.triu_indices(points.shape[1] if quadratic else 0)
    return np.column_stack([np.ones(len(points)), points, points[:, i] * points[:, k]])


def fit_law(
    form: Form, points: FloatArray, codes: FloatArray, change: FloatArray, max_cells: int,
    rng: np.random.Generator,
) -> Law:  # fmt: skip
    """Fit a law to steps.

    ``points`` (n, d) are standardised, ``codes`` (n, C) of actions, ``change`` (n, d) as of
    :func:`oda_rl.agents.worlds.coordinates.changes`.
    """
    d = points.shape[1]
    features = monomials(points, form.quadratic)
    if form.penalty > 0.0:
        weights, waves = _with_waves(form.penalty, points, features, codes, change, rng)
    else:
        weights = _global(features, codes, change)
        waves = np.zeros((2 * d + 1, 0), np.float32)
    sample = points[rng.integers(len(points), size=min(len(points), 3000))]
    wanted = max_cells if form.cells else min(max_cells, 32)  # to measure distances
    count = max(min(wanted, len(points) // _POINTS_PER_CELL), _MIN_CELLS)
    codevectors = anneal(np.ascontiguousarray(sample), count, rng)
    gaps = squared_gaps(points, codevectors)
    least = gaps.min(axis=1)
    width = max(float(least.mean()), 1e-9)
    own = np.zeros((0, codes.shape[1], 1 + d, d))
    if form.cells and len(codevectors) >= 3:
        rest = change - global_change(weights, features, codes)
        own = _locals(form, points, codes, rest, codevectors, gaps, width)
    far = float(np.quantile(least, 0.999))
    return Law(weights, waves, np.ascontiguousarray(codevectors.T), own, width, far)


def global_change(weights: FloatArray, features: FloatArray, codes: FloatArray) -> FloatArray:
    """Return the predictions of global laws, shape (C, F, d), shape (n, d)."""
    each = zip(codes.T, weights, strict=True)
    return np.asarray(sum(code[:, None] * (features @ law) for code, law in each))


def squared_gaps(points: FloatArray, codevectors: FloatArray) -> FloatArray:
    """Return |x − μ|² of points and codevectors, shape (n, K)."""
    squares = (points**2).sum(axis=1)[:, None] + (codevectors**2).sum(axis=1)
    return np.asarray(np.maximum(squares - 2.0 * points @ codevectors.T, 0.0))


def solve(gram: FloatArray, right: FloatArray, ridge: float) -> FloatArray:
    """Solve (gram + ridge · its mean diagonal) w = right."""
    diagonal = ridge * np.trace(gram) / len(gram) + 1e-300
    return _solved(gram + diagonal * np.eye(len(gram)), right)


def _solved(gram: FloatArray, right: FloatArray) -> FloatArray:
    """Solve gram w = right, also where rounding makes it singular."""
    try:
        return np.asarray(np.linalg.solve(gram, right), np.float64)
    except np.linalg.LinAlgError:
        units = 1.0 / np.sqrt(gram.diagonal())
        found = np.linalg.lstsq(gram * units[:, None] * units, right * units[:, None])[0]
        return np.asarray(units[:, None] * found, np.float64)


def _global(features: FloatArray, codes: FloatArray, change: FloatArray) -> FloatArray:
    """Ridge regression; for discrete actions towards the law of all actions."""
    n, (n_codes, n_features) = len(features), (codes.shape[1], features.shape[1])
    if not _one_hot(codes):
        joint = (codes[:, :, None] * features[:, None, :]).reshape(n, -1)
        gram = joint.T @ joint / n
        penalties = np.full((n_codes, n_features), _RIDGE * np.trace(gram) / len(gram) + 1e-300)
        penalties[1:, 1:] += _PRODUCTS * penalties.size / n**2  # few steps do not determine these
        found = _solved(gram + np.diag(penalties.ravel()), joint.T @ change / n)
        return found.reshape(n_codes, n_features, -1)
    gram, right = features.T @ features / n, features.T @ change / n
    weights = []
    for code in codes.T > 0.0:
        f, y = features[code], change[code]
        weights.append(solve(f.T @ f + _POOLED * gram, f.T @ y + _POOLED * right, _RIDGE))
    return np.array(weights)


def _one_hot(codes: FloatArray) -> bool:
    return bool((codes.sum(axis=1) == 1.0).all() and ((codes == 0.0) | (codes == 1.0)).all())


def _with_waves(
    penalty: float, points: FloatArray, features: FloatArray, codes: FloatArray, change: FloatArray,
    rng: np.random.Generator,
) -> tuple[FloatArray, Single]:  # fmt: skip
    """One ridge regression on features, features times codes, and shared sinusoids."""
    n, m, d, n_codes = len(features), features.shape[1], points.shape[1], codes.shape[1]
    lengths = 3.0 * np.exp(0.5 * rng.normal(size=_N_WAVES))  # standard deviations
    frequencies = rng.normal(size=(d, _N_WAVES)) / lengths / (2.0 * np.pi)
    phases = rng.random(_N_WAVES)
    joint = (codes[:, :, None] * features[:, None, :]).reshape(n, -1)
    columns = np.column_stack([features, joint, sinusoids(points @ frequencies + phases)])
    penalties = np.full(columns.shape[1], penalty)
    penalties[:m] = 1e-6  # of coefficients that all actions share
    found = _solved(columns.T @ columns / n + np.diag(penalties), columns.T @ change / n)
    own = found[m : m * (1 + n_codes)].reshape(n_codes, m, d)
    if _one_hot(codes):
        own = own + found[:m]
    else:
        own[0] += found[:m]
    shares = found[m * (1 + n_codes) :].T
    return own, np.concatenate([frequencies, phases[None], shares]).astype(np.float32)


def sinusoids(turns: FloatArray) -> FloatArray:
    """Return sin(2π turns) to 0.001, as compiled code has it: a parabola, and its square."""
    part = turns - np.floor(turns + 0.5)
    y = 8.0 * part - 16.0 * part * np.abs(part)
    return np.asarray(y * (0.775 + 0.225 * np.abs(y)))


def _locals(
    form: Form, points: FloatArray, codes: FloatArray, rest: FloatArray, codevectors: FloatArray,
    gaps: FloatArray, width: float,
) -> FloatArray:  # fmt: skip
    """Ridge regression in each cell, with the weights of the blending."""
    n_codes, d = codes.shape[1], points.shape[1]
    near = np.argpartition(gaps, 2, axis=1)[:, :3]
    nearest = np.take_along_axis(gaps, near, axis=1)
    weights = np.exp((nearest.min(axis=1, keepdims=True) - nearest) / width)
    weights /= weights.sum(axis=1, keepdims=True)
    found = np.zeros((len(codevectors), n_codes, 1 + d, d))
    one_hot = _one_hot(codes)
    for k in range(len(codevectors)):
        rows, ranks = np.nonzero((near == k) & (weights > _MIN_WEIGHT))
        weight, own = weights[rows, ranks][:, None], codes[rows]
        offsets = points[rows] - codevectors[k]
        if form.own_slopes:
            with_one = np.column_stack([np.ones(len(rows)), offsets])
            columns = own[:, :, None] * with_one[:, None, :]
            columns = columns.reshape(len(rows), n_codes * (1 + d))
            penalties = np.tile([_INTERCEPT_PENALTY, *[width / d] * d], n_codes)
        else:
            columns = np.column_stack([own, offsets])
            penalties = np.array([_INTERCEPT_PENALTY] * n_codes + [width / d] * d)
        gram = (columns * weight).T @ columns + np.diag(penalties)
        law = _solved(gram, (columns * weight).T @ rest[rows])
        if form.own_slopes:
            found[k] = law.reshape(n_codes, 1 + d, d)
        else:
            found[k, :, 0] = law[:n_codes]
            found[k, slice(None) if one_hot else 0, 1:] = law[n_codes:]
    return found


def reward_features(
    at: Coordinates, hinges: FloatArray, before: FloatArray, codes: FloatArray, after: FloatArray,
    boxed: bool, size: float = np.inf,
) -> FloatArray:  # fmt: skip
    """Return the features of steps, shape (n, ·), in the order of compiled code.

    The action's code, squares of continuous actions; for the components z of the observations
    before and after it, standardised, their products with the code, z, z², squared angles, products
    of two components unless all others are ``size``, |z - h| for their hinges h, and if ``hinges``
    have more rows, pairs of a centre c and weights w, the distance |w (z - c)| of each observation
    by the first pair, and |w · (z - c)| by the others.
    """
    own, (n_rows, d), n_circles = codes[:, boxed:], hinges.shape, len(at.circles)
    pairs = size > n_reward_features(d, codes.shape[1], boxed, n_rows, n_circles)[0]
    z = np.concatenate([at.standardised(before), at.standardised(after)], axis=1)
    i, k = np.triu_indices(z.shape[1] if pairs else 0, 1)
    angles = [np.arctan2(o[:, k], o[:, i]) ** 2 for o in (before, after) for i, k in at.circles]
    bent = np.abs(z[:, :, None] - np.tile(hinges[:HINGES], 2).T).reshape(len(z), -1)
    products = (own[:, :, None] * z[:, None, :]).reshape(len(z), -1)
    squares = own[:, : boxed * own.shape[1]] ** 2
    bent = np.column_stack([bent, *_distances(hinges[HINGES:], np.split(z, 2, axis=1))])
    return np.column_stack([codes, squares, products, z, z**2, *angles, z[:, i] * z[:, k], bent])


def n_reward_features(
    d: int, n_codes: int, boxed: bool, n_rows: int, n_circles: int
) -> tuple[int, int]:
    """Return the number of :func:`reward_features` without products of two, and with them."""
    own = n_codes - boxed
    size = n_codes + boxed * own + 2 * (n_circles + d * (own + 2 + HINGES)) + n_rows - HINGES
    return size, size + d * (2 * d - 1)


def is_constant(rewards: FloatArray) -> bool:
    """Whether rewards are all equal, but for rounding."""
    return len(rewards) == 0 or bool(np.ptp(rewards) <= _CONSTANT * np.abs(rewards).max())


def depends_on_actions_alone(codes: FloatArray, rewards: FloatArray) -> bool:
    """Whether actions alone explain rewards.

    >>> codes = np.column_stack([np.ones(5), np.linspace(-1.0, 1.0, 5)])
    >>> [depends_on_actions_alone(codes, y) for y in (-(codes[:, 1] ** 2), np.arange(5.0) % 2)]
    [True, False]
    """
    columns = np.column_stack([codes, codes**2])
    left = rewards - columns @ np.linalg.lstsq(columns, rewards)[0]
    return bool(left.var() <= 0.1 * rewards.var())  # states may account for the rest


class Rewards(NamedTuple):
    """A law of rewards."""

    weights: FloatArray  # of the features, or of the action's code alone
    hinges: FloatArray  # and a distance, and oblique hinges, shape (2, 4, 6, ..., d)


def fit_rewards(
    at: Coordinates, before: FloatArray, codes: FloatArray, after: FloatArray,
    rewards: FloatArray, boxed: bool, rng: np.random.Generator,
) -> Rewards:  # fmt: skip
    """Fit a law of rewards, which is linear in its features; a constant where all are equal."""
    n, d = before.shape
    hinges = np.zeros((HINGES, d))
    if is_constant(rewards):
        constant = float(rewards.mean()) if n else 0.0
        return Rewards(np.array([constant, *[0.0 if boxed else constant] * (codes.shape[1] - 1)]),
                       hinges)  # fmt: skip
    rows = np.arange(n)
    if n > _MAX_REWARDS:
        rows = rng.choice(rows, _MAX_REWARDS, replace=False)
    steps = before[rows], codes[rows], after[rows]
    wanted = rewards[rows]
    sizes = n_reward_features(d, codes.shape[1], boxed, HINGES, len(at.circles))
    size = sizes[sizes[1] <= min(len(rows) / _ROWS_PER_COLUMN, _MAX_COLUMNS)]
    drawn = slice(None, None, max(len(rows) // _HINGE_SAMPLE, 1))
    some = steps[0][drawn], steps[1][drawn], steps[2][drawn]
    bent = 2 * d * HINGES
    smooth = np.asfortranarray(reward_features(at, hinges, *some, boxed, size))[:, :-bent]
    distance = hinges[:0]
    if len(smooth) > smooth.shape[1]:
        z = [at.standardised(observations) for observations in (some[0], some[2])]
        distance = _fit_distance(z, smooth[:, : sizes[0] - bent], wanted[drawn])
        smooth = np.column_stack([smooth, *_distances(distance, z)])
        hinges = np.concatenate([_fit_hinges(z, smooth, wanted[drawn]), distance])
        plain = reward_features(at, hinges, *some, boxed, size + len(distance))
        oblique = _fit_oblique(z, plain, wanted[drawn])
        if len(oblique):
            distance = np.concatenate([distance if len(distance) else np.zeros((2, d)), oblique])
            smooth = np.column_stack([smooth, *_distances(distance, z)])
            hinges = np.concatenate([_fit_hinges(z, smooth, wanted[drawn]), distance])
    size += len(distance)
    columns = np.asfortranarray(reward_features(at, hinges, *steps, boxed, size))
    weights = np.zeros(size)
    origin = wanted.mean() if abs(wanted.mean()) > _FAR_OFF * wanted.std() else 0.0
    far, weighted = np.abs(wanted - np.median(wanted)), columns
    heavy = wanted.std() > _HEAVY * np.median(far) > 0.0
    if heavy:  # squared errors of a few bad states would hide those of all others
        weighted = columns / (1.0 + far / np.median(far))[:, None]
    gram, moment = weighted.T @ columns, weighted.T @ (wanted - origin)
    for _ in range(_REFINED if heavy else 1):  # each time there is less of the ridge's bias
        weights += solve(gram, moment - gram @ weights, 1e-7)
    weights[: 1 if boxed else codes.shape[1]] += origin
    return Rewards(weights, hinges)


def _distances(rows: FloatArray, points: list[FloatArray]) -> list[FloatArray]:
    """Return distances of each points, (n, d), by the first two rows, oblique hinges by others."""
    pairs = rows.reshape(-1, 2, rows.shape[1])
    gaps = [[weights * (one - centre) for one in points] for centre, weights in pairs]
    distances = [np.sqrt((one**2).sum(axis=1)) for one in chain(*gaps[:1])]
    return distances + [np.abs(one.sum(axis=1)) for one in chain(*gaps[1:])]


def _beyond(basis: FloatArray, left: FloatArray, columns: FloatArray) -> FloatArray:
    """Return what columns do not explain of residuals of an orthonormal basis."""
    columns = columns - basis @ (basis.T @ columns)
    return np.asarray(left - columns @ np.linalg.lstsq(columns, left)[0])


def _fit_distance(z: list[FloatArray], plain: FloatArray, rewards: FloatArray) -> FloatArray:
    """Return a distance that explains almost all that other features leave, or none.

    It is of two or three components, added one by one. Centre and weights are fitted from those of
    the best states, so that shifts and units of observations change nothing. ``plain`` are features
    without products, ``z`` the standardised observations before and after steps.
    """
    from scipy import optimize

    (n, d), basis, used = z[1].shape, np.linalg.qr(plain)[0], list[int]()
    beyond = rewards - basis @ (basis.T @ rewards)
    if n <= 2 * plain.shape[1] or beyond.var() <= _LITTLE * rewards.var():
        return np.zeros((0, d))

    def left(numbers: FloatArray, own: list[int]) -> FloatArray:
        shape = np.insert(numbers, len(own), 1.0).reshape(2, -1)  # the first weight is 1
        columns = np.column_stack(_distances(shape, [one[:, own] for one in z]))
        return _beyond(basis, beyond, columns)

    best = z[1][rewards >= np.quantile(rewards, _BEST)].mean(axis=0)
    distance = np.stack([best, np.ones(d)])
    for _ in range(min(_OF_DISTANCE, d)):
        more = [[*used, j] for j in range(d) if j not in used]
        start = [np.append(distance[0, own], distance[1, own[1:]]) for own in more]
        used, numbers = min(zip(more, start, strict=True), key=lambda one: left(*one[::-1]).var())
        found = optimize.root(left, numbers, (used,), method="lm", options={"maxiter": _NFEV})
        distance[:, used] = np.insert(found.x, len(used), 1.0).reshape(2, -1)
        if found.fun.var() <= _LEFT * beyond.var():
            within = np.abs(distance[0]) <= np.abs(z[1]).max(axis=0)
            distance[1] *= np.isin(range(d), used)
            if len(used) > 1 and within[used].all():
                return distance
            break
    return np.zeros((0, d))


def _fit_oblique(z: list[FloatArray], plain: FloatArray, rewards: FloatArray) -> FloatArray:
    """Return oblique hinges, pairs of centre c and weights w of two components, shape (2 m, d).

    |w · (z - c)| is the error of a set point that is observed, too. Together they explain most of
    what ``plain`` features leave, or there are none. Each starts on a grid, and all are refined.
    """
    from scipy import optimize

    (n, d), basis = z[1].shape, np.linalg.qr(plain)[0]
    left = beyond = rewards - basis @ (basis.T @ rewards)
    numbers, pairs = np.zeros(0), list[tuple[int, int]]()
    scarce = n <= 2 * plain.shape[1] or not 2 <= d <= _MAX_WIDTH
    if scarce or beyond.var() <= _EXPLAINED * rewards.var():
        return np.zeros((0, d))

    def rows(numbers: FloatArray) -> FloatArray:
        out = np.zeros((1 + len(pairs), 2, d))  # the first pair of rows is a distance's
        for row, own, (angle, offset) in zip(out[1:], pairs, numbers.reshape(-1, 2), strict=True):
            row[1, own] = np.cos(angle), np.sin(angle)
            row[0] = offset * row[1]
        return out.reshape(-1, d)

    def unexplained(numbers: FloatArray) -> FloatArray:
        return _beyond(basis, beyond, np.column_stack(_distances(rows(numbers), z)[2:]))

    while len(pairs) < MAX_OBLIQUE and left.var() > _EXPLAINED * beyond.var():
        best = 0.0, (0, 0), 0.0, 0.0
        for own in combinations(range(d), 2):
            heights = z[1][:, own] @ np.array([np.cos(_ANGLES), np.sin(_ANGLES)])
            offsets = np.quantile(heights, _OFFSETS, axis=0)
            columns = np.abs(heights - offsets[:, None]).swapaxes(0, 1).reshape(n, -1)
            columns -= basis @ (basis.T @ columns)
            gains = (left @ columns) ** 2 / ((columns**2).sum(axis=0) + 1e-9 * n)
            k = int(gains.argmax())
            best = max(best, (gains[k], own, _ANGLES[k % len(_ANGLES)], offsets.ravel()[k]))
        pairs.append(best[1])
        start = np.append(numbers, best[2:])
        found = optimize.root(unexplained, start, method="lm", options={"maxiter": _NFEV})
        if found.fun.var() > (1.0 - _MIN_OBLIQUE) * left.var():
            pairs.pop()
            break
        numbers, left = found.x, found.fun
    return rows(numbers)[2:] if left.var() < 0.5 * beyond.var() else np.zeros((0, d))


def _fit_hinges(z: list[FloatArray], smooth: FloatArray, rewards: FloatArray) -> FloatArray:
    """Return the hinges that explain most of what smooth features leave, shape (H, d).

    One after the other, each by a grid that becomes finer around its best point. ``z`` are the
    standardised observations before and after steps, shape (n, d).
    """
    d = z[0].shape[1]
    hinges = np.zeros((HINGES, d))
    basis = np.linalg.qr(smooth)[0]
    left = rewards - basis @ (basis.T @ rewards)
    variance = float(((rewards - rewards.mean()) ** 2).sum())
    for h in range(HINGES):
        for j in range(d):
            ends = np.quantile(np.concatenate([one[:, j] for one in z]), (0.02, 0.98))
            grid = np.linspace(ends[0], ends[1], _HINGE_GRID)
            unexplained = float(left @ left)
            if unexplained <= _EXPLAINED * variance or ends[0] == ends[1]:
                continue
            for _ in range(_HINGE_ROUNDS):
                columns = [np.abs(one[:, j : j + 1] - grid) for one in z]
                columns = [own - basis @ (basis.T @ own) for own in columns]
                sizes = [(own**2).sum(axis=0) + 1e-9 * len(own) for own in columns]
                pairs = zip(columns, sizes, strict=True)
                gains = sum(((left @ own) ** 2 / size for own, size in pairs), np.zeros(len(grid)))
                best = int(gains.argmax())
                hinges[h, j] = grid[best]
                if gains[best] < 0.01 * unexplained:  # not worth refining
                    break
                grid = np.linspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)],
                                   _HINGE_GRID)  # fmt: skip
            else:
                added = np.column_stack([own[:, best] for own in columns])
                basis = np.column_stack([basis, np.linalg.qr(added)[0]])
                left = rewards - basis @ (basis.T @ rewards)
    return hinges
