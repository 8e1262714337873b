"""Scales, angles, bounds and noise of observations, and the arrays of a learned world."""

import math
from itertools import chain, combinations
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.files.schema import Member, flags, real, whole

Single = npt.NDArray[np.float32]


class WorldArrays(NamedTuple):
    """A world for compiled code: an ensemble of E laws, d components, C codes of an action.

    The code of a discrete action is one-hot, that of a continuous one (1, its units): an affine
    function of an action is a linear one of its code.
    """

    boxed: Annotated[bool, flags()]  # whether actions are continuous
    frame: Annotated[FloatArray, real("4+levels, d", "(-inf, inf) or nan")]
    """For each component its mean (0 on a circle), standard deviation, lower and upper bound of
    predictions, and its values if there are only a few (then NaN)."""
    circles: Annotated[IntArray, whole("circles, 2", "[0, d)")]
    """Pairs of components that are cosine and sine of an angle."""
    laws: Annotated[FloatArray, real("E, C, F, d")]  # global laws on (1, x, x xᵀ) or (1, x)
    waves: Annotated[Single, Member(np.float32, "E, 2*d+1, waves")]
    """Sinusoids that all actions share: d frequencies, a phase, and d weights."""
    codevectors: Annotated[FloatArray, real("E, d, K")]  # cells of the observed states
    locals: Annotated[FloatArray, real("E, locals, C, 1+d, d")]
    """Laws of the cells, if there are some, on (1, x - codevector)."""
    widths: Annotated[FloatArray, real("E", "(0, inf)")]  # of the blending of cells
    residuals: Annotated[FloatArray, real("residuals, d")]  # of the laws, to draw noise from
    rewards: Annotated[FloatArray, real("R")]  # weights of the reward's features
    hinges: Annotated[FloatArray | None, real("hinges, d")]
    """Hinges of the reward, standardised, and if it has them centre and weights of a distance and
    oblique hinges, shape (2, 4, ..., d); None in compiled code if it depends on the action alone.
    """
    bounds: Annotated[FloatArray, real("4", "[-inf, inf)")]
    """Lowest and highest reward, lowest return, and the squared distance from the nearest cell
    beyond which predictions are not trusted."""
    walls: Annotated[FloatArray, real("walls, 3")]
    """Where episodes end: rows (component, sign, threshold)."""
    terms: Annotated[IntArray, whole("terms, 2", "[0, d]")]
    """Products of two components in the classifier of terminations, 0 standing for 1 and 1 + j for
    component j."""
    hazards: Annotated[FloatArray, real("E, terms+1")]
    """Their weights, and the threshold, for each law."""
    last: Annotated[FloatArray, real("ends, d+1")]
    """Remembered last observations, standardised, and their rewards; none where every step ends an
    episode: then rewards follow the law."""
    conditions: FloatArray = np.zeros((0, 1))  # rows of clauses, shape (R, 1 + d)
    clauses: IntArray | None = None  # ends of their rows; their action, or -1
    said: FloatArray = np.zeros((0, 1, 1))  # outputs of the clauses that forbid nothing


MEAN, SCALE, LOW, HIGH, LEVELS = range(5)  # rows of the frame
HINGES = 2  # of each component


class Scratch(NamedTuple):
    """Scratch arrays of compiled code."""

    s: FloatArray
    before: FloatArray
    x: FloatArray
    z: FloatArray
    after: FloatArray
    gaps: FloatArray
    code: FloatArray
    waves: Single


def scratch_for(world: WorldArrays) -> Scratch:
    """Allocate scratch arrays for a world."""
    d, n_cells = world.codevectors.shape[1:]
    s, before, x, after = np.zeros((4, d))
    z, gaps, code = (np.zeros(n) for n in (2 * d, n_cells, world.laws.shape[1]))
    return Scratch(s, before, x, z, after, gaps, code, np.empty(world.waves.shape[2], np.float32))


_ON_CIRCLE = 1e-3  # share of the range of cos², within which cos² + sin² has to stay
_MARGIN = 1.0  # spans beyond the observations, to which predictions are clipped
_UNTURNED = 1.5  # radians a step that are surely less than half a turn
_ROUNDS = 4
_IGNORED = 1e200  # scale of noise, beyond that of any observation


class Coordinates(NamedTuple):
    """Scales, bounds and angles of the components of observations."""

    mean: FloatArray  # shape (d,); 0 on a circle
    scale: FloatArray  # standard deviations, shape (d,); 1 of a constant
    low: FloatArray
    high: FloatArray  # bounds of predictions, shape (d,)
    circles: IntArray  # pairs (cosine, sine) of components, shape (m, 2)
    levels: FloatArray  # values of components that have only a few, shape (d, L); NaN beyond them

    @property
    def frame(self) -> FloatArray:
        """All but the circles, for compiled code, shape (4 + L, d)."""
        return np.concatenate([[self.mean, self.scale, self.low, self.high], self.levels.T])

    @classmethod
    def of_frame(cls, frame: FloatArray, circles: IntArray) -> "Coordinates":
        """Restore coordinates from :attr:`frame` and circles."""
        mean, scale, low, high = frame[:4]
        return cls(mean, scale, low, high, circles, frame[4:].T)

    @property
    def ignored(self) -> BoolArray:
        """Which components are noise: predicted at their mean, and 0 when standardised."""
        return np.asarray(self.scale >= _IGNORED)

    def ignoring(self, noise: BoolArray) -> "Coordinates":
        """Return coordinates in which some components are noise, shape (d,)."""
        if not noise.any():
            return self
        return self._replace(
            scale=np.where(noise, _IGNORED, self.scale),
            low=np.where(noise, self.mean, self.low),
            high=np.where(noise, self.mean, self.high),
            levels=np.where(noise[:, None], np.nan, self.levels),
        )

    def standardised(self, observations: npt.NDArray[np.floating]) -> FloatArray:
        """Return observations in standard deviations from the mean."""
        points = np.asarray((observations - self.mean) / self.scale, dtype=np.float64)
        points[..., self.ignored] = 0.0
        return points

    def on_circles(self, observations: FloatArray) -> FloatArray:
        """Move points onto the circles, whose radius is the upper bound of predictions."""
        out = observations.copy()
        for i, k in self.circles:
            norm = np.hypot(out[:, i], out[:, k]) / self.high[i]
            out[:, [i, k]] /= np.where(norm > 0.0, norm, 1.0)[:, None]
        return out


def read(before: FloatArray, after: FloatArray) -> tuple[Coordinates, BoolArray]:
    """Return coordinates, and which steps, shape (n,), ended where a component is clipped.

    ``before`` and ``after``, shape (n, d), are the observations around each step.
    """
    mean, scale = before.mean(axis=0), before.std(axis=0)
    scale = np.where(scale > 1e-12 * np.abs(before).max(axis=0), scale, 1.0)  # less is constant
    circles = _circles(before)
    mean[circles.ravel()] = 0.0
    low, high = after.min(axis=0), after.max(axis=0)
    span = high - low
    bounds = low - _MARGIN * span, high + _MARGIN * span
    d = before.shape[1]
    cut = np.zeros(len(before), dtype=np.bool_)
    levels = np.full((d, 0), np.nan)
    for j in range(d):
        values = np.unique(after[:, j])
        if len(values) <= 8:  # few levels
            bounds[0][j], bounds[1][j] = low[j], high[j]
            if span[j] > 0.0:
                missing = max(len(values) - levels.shape[1], 0)
                levels = np.pad(levels, ((0, 0), (0, missing)), constant_values=np.nan)
                levels[j, : len(values)] = values
            continue
        for edge, bound in ((low[j], bounds[0]), (high[j], bounds[1])):
            at = after[:, j] == edge
            if at.sum() >= 3:  # then it is a bound
                cut |= at
                bound[j] = edge
    for pair in circles:
        radius = math.sqrt((before[:, pair] ** 2).sum(axis=1).mean())
        unit = math.ldexp(1.0, math.frexp(radius)[1] - 20)  # float32 rounds by less
        radius = round(radius / unit) * unit
        bounds[0][pair], bounds[1][pair] = -radius, radius
    return Coordinates(mean, scale, *bounds, circles, levels), cut


def _circles(observations: FloatArray) -> IntArray:
    found: list[tuple[int, int]] = []
    squares = observations**2
    spreads = np.ptp(squares, axis=0)
    for i, k in combinations(range(observations.shape[1]), 2):
        radii = squares[:, i] + squares[:, k]
        apart = not {i, k} & set(chain(*found))
        varies = spreads[i] > _ON_CIRCLE * radii[0]  # not a constant beside another
        if apart and varies and np.ptp(radii) <= _ON_CIRCLE * spreads[i]:
            found.append((i, k))
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def changes(at: Coordinates, before: FloatArray, after: FloatArray) -> FloatArray:
    """Return the change of each step in standard deviations, shape (n, d).

    For cosine and sine the first is the angle's, in radians, and the second 0. Turns of more than
    half a circle are resolved by an affine law of the slower ones.
    """
    change = np.asarray((after - before) / at.scale, dtype=np.float64)
    points = np.column_stack([np.ones(len(before)), at.standardised(before)])
    for i, k in at.circles:
        sine = before[:, i] * after[:, k] - before[:, k] * after[:, i]
        cosine = before[:, i] * after[:, i] + before[:, k] * after[:, k]
        angle = np.arctan2(sine, cosine)
        near = np.abs(angle) < _UNTURNED
        for _ in range(_ROUNDS):
            if near.sum() < 2 * points.shape[1]:
                break
            expected = points @ np.linalg.lstsq(points[near], angle[near], rcond=None)[0]
            angle += 2.0 * np.pi * np.round((expected - angle) / (2.0 * np.pi))
            near = np.abs(angle - expected) < _UNTURNED
        change[:, i], change[:, k] = angle, 0.0
    return change


_BY_CHANCE = 5.0  # standard errors of a correlation that thousands of pairs do not reach
_MAX_STEPS = 4_000
_MIN_STEPS = 100  # fewer allow no conclusion
_MAX_DEVIATIONS = 3.0  # columns are clipped: heavy tails are correlated by chance


def noise_among(
    at: Coordinates, before: FloatArray, codes: FloatArray, rewards: FloatArray,
    after: FloatArray, ended: BoolArray,
) -> BoolArray:  # fmt: skip
    """Return which components are noise, shape (d,), judging by coded steps."""
    n, d = before.shape
    noise = np.zeros(d, dtype=np.bool_)
    if n < _MIN_STEPS:
        return noise
    rows = slice(-_MAX_STEPS, None)
    x, y = _to_units(before[rows]), _to_units(after[rows])
    own = codes[rows]
    persists = np.abs((x * y).mean(axis=0)) * np.sqrt(len(x)) >= _BY_CHANCE
    varies = (np.ptp(before, axis=0) > 0.0) & (np.ptp(after, axis=0) > 0.0)
    likely = np.flatnonzero(varies & ~persists)
    likely = np.setdiff1d(likely, at.circles)
    likely = likely[~_predicted(x, own, y[:, likely])]
    while len(likely):
        kept = np.setdiff1d(np.arange(d), likely)
        ends, gains = ended[rows].astype(np.float64), rewards[rows]
        rest = _residuals(np.concatenate([x[:, kept], own], axis=1), y[:, kept])
        both = _residuals(
            np.concatenate([x[:, kept], y[:, kept], own], axis=1), np.column_stack([gains, ends])
        )
        predictive = np.array([
            _predicts(x, kept, j, own, rest)
            or _predicts(x, kept, j, own, both)
            or _predicts(y, kept, j, own, both)
            for j in likely.tolist()
        ])  # fmt: skip
        if not predictive.any():
            break
        likely = likely[~predictive]
    noise[likely] = True
    return noise


def _to_units(values: FloatArray) -> FloatArray:
    """Standardise columns; constant ones are 0."""
    centred = values - values.mean(axis=0)
    deviation = centred.std(axis=0)
    tiny = 1e-9 * np.abs(values).max(axis=0)
    return np.asarray(centred / np.where(deviation > tiny, deviation, np.inf))


def _residuals(columns: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the standardised residuals of an affine law."""
    with_one = np.column_stack([np.ones(len(columns)), columns])
    return _to_units(targets - with_one @ np.linalg.lstsq(with_one, targets, rcond=None)[0])


def _reaches(columns: FloatArray, targets: FloatArray) -> BoolArray:
    """Return which targets are correlated with any of the columns."""
    one, other = (
        _to_units(np.clip(_to_units(values), -_MAX_DEVIATIONS, _MAX_DEVIATIONS))
        for values in (columns, targets)
    )
    found = np.abs(one.T @ other / len(targets)) * np.sqrt(len(targets))
    return np.asarray(found.max(axis=0) >= _BY_CHANCE)


def _predicted(x: FloatArray, codes: FloatArray, targets: FloatArray) -> BoolArray:
    """Return which targets depend on actions, components, or products of any two of these."""
    found = _reaches(codes, targets)
    for j in range(x.shape[1]):
        columns = np.concatenate([x[:, j : j + 1], x[:, j : j + 1] * x[:, j:]], axis=1)
        found |= _reaches(np.concatenate([columns, x[:, j : j + 1] * codes], axis=1), targets)
    return found


def _predicts(
    x: FloatArray, kept: IntArray, j: int, codes: FloatArray, targets: FloatArray
) -> bool:
    """Whether any target depends on a component, alone or with kept ones or actions."""
    own = x[:, j : j + 1]
    columns = [own, np.abs(own), own * own, own * x[:, kept], own * codes]
    return bool(_reaches(np.concatenate(columns, axis=1), targets).any())
