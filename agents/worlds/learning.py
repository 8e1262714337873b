"""Learn a world: laws chosen on held-out stretches, terminations, and the reward."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.agents import offline
from oda_rl.agents.base.progress import report_work
from oda_rl.agents.worlds import coordinates
from oda_rl.agents.worlds.laws import (
    FORMS,
    MAX_OBLIQUE,
    Form,
    Law,
    fit_law,
    fit_rewards,
    n_cells_for,
    n_reward_features,
)
from oda_rl.agents.worlds.simulation import predict
from oda_rl.files import schema
from oda_rl.files.schema import Member, check, flags, prefixed, real, require, whole

Arrays = dict[str, Array]

_MIN_SHARE = 0.05  # share of the remaining ends that one more half-space must explain
_NEGLIGIBLE = 0.02  # share of the ends that may stay unexplained
_LOST_F1, _STALE_F1 = 0.005, 0.01
_MAX_ROWS, _MAX_ENDS, _HARDEST, _RANDOM = 4000, 1500, 1500, 1000
_PENALTY = 1e-6
_ITERATIONS = 150
_KEPT = 0.8  # share of the rows, for each member of the ensemble
REMEMBERED = 300  # ends whose rewards are remembered


class Ends(NamedTuple):
    """Terminations, as :class:`~oda_rl.agents.worlds.coordinates.WorldArrays` has them."""

    walls: FloatArray
    terms: IntArray
    hazards: FloatArray


def fit_ends(
    points: FloatArray, ended: BoolArray, margin: float, n_laws: int, known: IntArray | None,
    rng: np.random.Generator,
) -> Ends:  # fmt: skip
    """Learn where episodes end.

    ``points``, shape (n, d), are standardised observations after steps; thresholds lie at a share
    ``margin`` of the way from what went on (0) to what ended (1). ``known`` terms, shape (m, 2),
    are kept while they are good enough.
    """
    if ended.all():
        always = np.tile([1.0, 0.0], (n_laws, 1))
        return Ends(np.zeros((0, 3)), np.zeros((1, 2), dtype=np.int64), always)
    walls, left = _walls(points, ended, margin)
    if left.sum() <= _NEGLIGIBLE * ended.sum():
        return Ends(walls, np.zeros((0, 2), dtype=np.int64), np.zeros((n_laws, 1)))
    if left.sum() > 0.5 * ended.sum():
        walls, left = np.zeros((0, 3)), ended.copy()
    rows = _rows(points, left, ended, rng)
    terms = _all_terms(points.shape[1])
    columns, target = _products(points[rows], terms), left[rows].astype(float)
    full = _logistic(columns, target, np.zeros(len(terms)))
    best = best_f1(columns @ full, target)[0]
    again = [] if known is None else [terms.tolist().index(term) for term in known.tolist()]
    kept, f1 = np.array(again, dtype=np.int64), -math.inf
    if len(kept):
        weights = _logistic(columns[:, kept], target, np.zeros(len(kept)))
        f1 = best_f1(columns[:, kept] @ weights, target)[0]
    if f1 < best - _STALE_F1:
        kept = _eliminate(columns, target, full, best)
    hazards = np.zeros((n_laws, len(kept) + 1))
    for e in range(n_laws):
        drawn = rng.random(len(target)) < _KEPT
        if not 0.0 < target[drawn].sum() < drawn.sum():
            drawn[:] = True
        weights = _logistic(columns[drawn][:, kept], target[drawn], np.zeros(len(kept)))
        weights /= np.linalg.norm(weights) + 1e-300
        hazards[e, :-1] = weights
        hazards[e, -1] = _threshold(columns[:, kept] @ weights, target, margin)
    return Ends(walls, terms[kept], hazards)


def _all_terms(d: int) -> IntArray:
    """Return the terms of (1, x, x xᵀ): pairs of 0 for 1 and 1 + j for component j."""
    # Of many components only the squares: elimination fits them again and again.
    i, k = np.triu_indices(d) if d <= 12 else np.tile(np.arange(d), (2, 1))  # else squares
    linear = np.column_stack([np.arange(1 + d), np.zeros(1 + d, dtype=np.int64)])
    return np.concatenate([linear, np.column_stack([1 + i, 1 + k])])


def _products(points: FloatArray, terms: IntArray) -> FloatArray:
    """Return the values of terms, shape (n, m)."""
    with_one = np.column_stack([np.ones(len(points)), points])
    return np.asarray(with_one[:, terms[:, 0]] * with_one[:, terms[:, 1]])


def _walls(points: FloatArray, ended: BoolArray, margin: float) -> tuple[FloatArray, BoolArray]:
    """Return half-spaces as rows (component, sign, threshold), and the ends that are in none."""
    left = ended.copy()
    rows: list[tuple[float, float, float]] = []
    sides = [(j, sign) for j in range(points.shape[1]) for sign in (1.0, -1.0)]
    while left.any() and len(rows) < len(sides) and not ended.all():
        best, wall, inside = (0, 0.0), (0.0, 0.0, 0.0), left
        for j, sign in sides:
            values = sign * points[:, j]
            top = values[~ended].max()
            beyond = left & (values > top)
            if beyond.any():
                gap = float(values[beyond].min() - top)
                worth = int(beyond.sum()), gap
                if worth > best:
                    best, inside, wall = worth, beyond, (j, sign, sign * (top + margin * gap))
        if best[0] == 0 or best[0] < _MIN_SHARE * left.sum():
            break
        rows.append(wall)
        left = left & ~inside
    return np.array(rows, dtype=np.float64).reshape(-1, 3), left


def _rows(
    points: FloatArray, left: BoolArray, ended: BoolArray, rng: np.random.Generator
) -> IntArray:
    """Choose rows to learn from: the latest ends, the steps most like them, and random ones."""
    rows = np.flatnonzero(left | ~ended)
    if len(rows) <= _MAX_ROWS:
        return rows
    ends, others = np.flatnonzero(left)[-_MAX_ENDS:], np.flatnonzero(~ended)
    some = others[:: max(len(others) // (2 * _RANDOM), 1)]
    both = np.concatenate([ends, some])
    target = np.concatenate([np.ones(len(ends)), np.zeros(len(some))])
    terms = _all_terms(points.shape[1])
    weights = _logistic(_products(points[both], terms), target, np.zeros(len(terms)))
    likeness = _products(points[others], terms) @ weights
    hardest = others[np.argpartition(-likeness, _HARDEST)[:_HARDEST]]
    return np.unique(np.concatenate([ends, hardest, rng.choice(others, _RANDOM)]))


def _logistic(columns: FloatArray, target: FloatArray, start: FloatArray) -> FloatArray:
    """Logistic regression with balanced classes."""
    from scipy.optimize import minimize

    share = target.mean()
    weights = np.where(target > 0.0, 0.5 / share, 0.5 / max(1.0 - share, 1e-300)) / len(target)

    def loss(v: FloatArray) -> tuple[float, FloatArray]:
        z = columns @ v
        probability = 1.0 / (1.0 + np.exp(-np.clip(z, -500.0, 500.0)))
        value = weights @ (np.logaddexp(0.0, z) - target * z) + 0.5 * _PENALTY * v @ v
        return float(value), columns.T @ (weights * (probability - target)) + _PENALTY * v

    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS})
    return np.asarray(found.x)


def best_f1(likeness: FloatArray, target: FloatArray) -> tuple[float, float]:
    """Return the best F1 score of any threshold, and that threshold."""
    order = np.argsort(-likeness, kind="stable")
    hits = np.cumsum(target[order])
    scores = 2.0 * hits / (np.arange(1, len(hits) + 1) + target.sum())
    best = int(np.argmax(scores))
    return float(scores[best]), float(likeness[order][best])


def _eliminate(
    columns: FloatArray, target: FloatArray, weights: FloatArray, best: float
) -> IntArray:
    """Drop terms, the least important first, while the F1 score stays."""
    kept = np.arange(columns.shape[1])
    at_once = True
    while len(kept) > 2:
        size = np.abs(weights) * columns[:, kept].std(axis=0)
        size[0] = np.inf
        count = max(1, (len(kept) - 8) // 4) if at_once else 1
        dropped = np.argsort(size)[:count]
        fewer = np.delete(kept, dropped)
        found = _logistic(columns[:, fewer], target, np.delete(weights, dropped))
        if best_f1(columns[:, fewer] @ found, target)[0] < best - _LOST_F1:
            if count == 1:
                break
            at_once = False
            continue
        kept, weights, at_once = fewer, found, True
    return kept


def _threshold(likeness: FloatArray, target: FloatArray, margin: float) -> float:
    """Return the threshold between what went on and what ended; a precise one if margin > 0.5."""
    others, ends = likeness[target == 0.0], likeness[target > 0.0]
    top, low = float(others.max()), float(ends.min())
    if low > top:
        return top + margin * (low - top)
    if margin > 0.5:
        precise = float(np.quantile(others, max(0.0, 1.0 - 0.02 * len(ends) / len(target))))
        return max(min(top, float(np.quantile(ends, 0.5))), precise)
    if margin < 0.5:
        return float(np.quantile(ends, 0.1))
    return best_f1(likeness, target)[1] - 1e-9


_STRETCH = 25  # steps in a row that are held out together
_HELD_OUT = 5  # one of five stretches is held out
_MIN_EPISODES = 3  # of which one of five, or the first, is held out, too
_MAX_CUT = 0.8  # share of steps that are left out as they end where a component is clipped
_MIN_AFFINE_R2, _MIN_LOG_GAIN = 0.3, 0.5  # below both, a component is taken to be unpredicted
_TINY = 1e-12  # squared, of standardised observations
_ANEW = 1.5  # growth of the steps after which the form is chosen again
_SHARE = 0.8  # share of the stretches, for each law of the ensemble
_MAX_FITTED = 20_000
_FAR = 1.5


N_LAWS = 4  # of an agent's world


class CodedSteps(NamedTuple):
    """n steps, the oldest first."""

    before: Annotated[FloatArray, real("steps, d")]  # observations
    codes: Annotated[FloatArray, real("steps, C")]  # of actions
    rewards: Annotated[FloatArray, real("steps")]
    after: Annotated[FloatArray, real("steps, d")]  # next observations
    ended: Annotated[BoolArray, flags("steps")]  # whether the episode terminated


class Chosen(NamedTuple):
    """Choices that are kept for several fits."""

    form: Form
    n: int  # number of steps when the form was chosen
    errors: dict[str, float]  # mean log squared error of each form on held-out stretches
    terms: IntArray  # of terminations
    residuals: FloatArray  # of the form on held-out stretches, shape (m, d)
    least: float  # smallest error of a chosen form so far
    unpredicted: BoolArray  # components that no law predicts: assumed constant, shape (d,)


@dataclass(frozen=True)
class Learned:
    """A world, and how it was learned."""

    arrays: coordinates.WorldArrays
    at: coordinates.Coordinates
    chosen: Chosen


def learn_world(
    seen: CodedSteps, worst: float, boxed: bool, n_laws: int, before: Chosen | None,
    rng: np.random.Generator,
) -> Learned:  # fmt: skip
    """Learn a world.

    ``worst`` is the lowest return of an episode, minus infinity if none has ended. Each of the
    ``n_laws`` is fitted to other stretches. ``before`` are the choices of the last fit.
    """
    fit = _Fit(seen, worst, boxed, n_laws, None if before is None else before.terms, rng)
    if before is None or len(seen.before) > _ANEW * before.n:
        chosen = fit.choose_form()
        if before is not None:
            chosen = chosen._replace(least=min(chosen.least, before.least))
    else:
        chosen = before._replace(terms=fit.ends.terms)
    laws = []
    for _ in range(n_laws):
        stretches = rng.random(int(fit.usable.max()) // _STRETCH + 1) < _SHARE
        rows = fit.usable[stretches[fit.usable // _STRETCH]]
        laws.append(
            fit.law(rows if len(rows) else fit.usable, chosen.form, chosen.unpredicted, rng)
        )
    return Learned(fit.world(laws, chosen.residuals), fit.at, chosen)


class _Fit:
    """Steps, and all of a world but its laws."""

    def __init__(
        self, seen: CodedSteps, worst: float, boxed: bool, n_laws: int, terms: IntArray | None,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        at, cut = coordinates.read(seen.before, seen.after)
        self.at = at = at.ignoring(coordinates.noise_among(at, *seen))
        self.seen, self.boxed, self.worst, self.rng = seen, boxed, worst, rng
        usable = np.flatnonzero(~cut) if cut.mean() < _MAX_CUT else np.arange(len(cut))
        self.usable: IntArray = usable  # steps after which no component was cut off
        on = ~seen.ended | seen.ended.all()
        steps = seen.before[on], seen.codes[on], seen.after[on], seen.rewards[on]
        self.rewards = fit_rewards(at, *steps, boxed, rng)
        arrived = at.standardised(seen.after)
        self.ends = fit_ends(arrived, seen.ended, _margin(seen), n_laws, terms, rng)
        rows = np.flatnonzero(seen.ended & ~on)[-REMEMBERED:]
        self.last = np.column_stack([arrived[rows], seen.rewards[rows]])
        self.points = at.standardised(seen.before)
        self.change = coordinates.changes(at, seen.before, seen.after)

    def world(self, laws: list[Law], residuals: FloatArray) -> coordinates.WorldArrays:
        least, most = float(self.seen.rewards.min()), float(self.seen.rewards.max())
        return coordinates.WorldArrays(
            boxed=self.boxed,
            frame=self.at.frame,
            circles=self.at.circles,
            **_stacked(laws),
            residuals=residuals,
            rewards=self.rewards.weights,
            hinges=self.rewards.hinges,
            bounds=np.array([least, most, self.worst, _FAR * max(law.far for law in laws)]),
            **self.ends._asdict(),
            last=self.last,
        )

    def law(
        self, rows: IntArray, form: Form, unpredicted: BoolArray, rng: np.random.Generator
    ) -> Law:
        if len(rows) > _MAX_FITTED:
            rows = rng.choice(rows, _MAX_FITTED, replace=False)
        change = np.where(unpredicted, 0.0, self.change[rows])
        steps = self.points[rows], self.seen.codes[rows], change
        report_work(f"learning a world: {form.name} laws")
        return fit_law(form, *steps, n_cells_for(len(rows)), rng)

    def choose_form(self) -> Chosen:
        """Choose the form that predicts held-out stretches and the outermost states best.

        Forms that predict whole episodes worse than no change at all are left out: in stretches
        they may interpolate what differs from episode to episode.
        """
        distances = (self.points[self.usable] ** 2).sum(axis=1)
        stretches = self.usable // _STRETCH % _HELD_OUT == 0
        outermost = distances > np.quantile(distances, 1.0 - 1.0 / _HELD_OUT)
        errors, left = {}, {}
        n, d, n_codes = *self.points.shape, self.seen.codes.shape[1]
        tried = [form for form in FORMS if form.pays(n, d, n_codes)]
        for form in tried:
            found = [self._left(form, held, self.rng) for held in (stretches, outermost)]
            left[form.name] = found[0]
            each = [log_errors(rest).mean() if len(rest) else 0.0 for rest in found]
            errors[form.name] = float(np.mean(each))
        form, unpredicted = self._sound_form(tried, errors)
        rest = left[form.name]
        if len(rest) > 0:
            rest = np.where(unpredicted, self.change[self.usable[stretches]], rest)
        noise = rest[:0]
        if len(rest) > 0 and np.median((rest**2).sum(axis=1)) >= 1e-3:  # squared
            noise = rest[self.rng.integers(len(rest), size=1024)]
        least = errors[form.name]
        return Chosen(form, n, errors, self.ends.terms, noise, least, unpredicted)

    def _sound_form(
        self, tried: Sequence[Form], errors: dict[str, float]
    ) -> tuple[Form, BoolArray]:
        """Return the best form that predicts held-out episodes, and the unpredicted components."""
        rows, number = trajectories(self.seen), np.arange(len(self.seen.before)) // _STRETCH
        if len(rows) >= _MIN_EPISODES:
            number[np.concatenate(rows)] = np.repeat(np.arange(len(rows)), [*map(len, rows)])
        apart = number[self.usable] % _HELD_OUT == 0
        forms, first = [*tried], None
        rng = np.random.default_rng(len(number))  # its own: laws are the same as without this check
        while forms:
            good = min(errors[form.name] for form in forms) + 0.1  # a negligible difference
            form = next(form for form in forms if errors[form.name] <= good)
            left, change = self._left(form, apart, rng), self.change[self.usable[apart]]
            unpredicted = self._unpredicted(apart, left)
            first = first or (form, unpredicted)
            if len(left) == 0 or (left**2).sum() <= (change**2).sum():
                return form, unpredicted
            forms.remove(form)
        assert first is not None
        return first

    def _unpredicted(self, apart: BoolArray, left: FloatArray) -> BoolArray:
        """Return which components neither an affine law predicts nor the one that has ``left``."""
        if len(left) == 0:
            return np.zeros(self.points.shape[1], dtype=np.bool_)
        change, codes = self.change[self.usable], self.seen.codes[self.usable]
        columns = np.column_stack([np.ones(len(codes)), self.points[self.usable], codes[:, 1:]])
        law = np.linalg.lstsq(columns[~apart], change[~apart], rcond=None)[0]
        affine_left, change = (change - columns @ law)[apart], change[apart]
        spread = ((change - change.mean(axis=0)) ** 2).sum(axis=0)
        not_affine = (affine_left**2).sum(axis=0) > (1.0 - _MIN_AFFINE_R2) * spread
        worse = (left**2).sum(axis=0) > np.maximum(spread, _TINY)
        before, after = (np.log(errors**2 + _TINY).mean(axis=0) for errors in (change, left))
        return np.asarray(not_affine & worse & (before - after < _MIN_LOG_GAIN))

    def _left(self, form: Form, held: BoolArray, rng: np.random.Generator) -> FloatArray:
        nothing = np.zeros((0, self.points.shape[1]))
        if not 0 < held.sum() < len(held):
            return nothing
        none = np.zeros(self.points.shape[1], dtype=np.bool_)
        one = self.world([self.law(self.usable[~held], form, none, rng)], nothing)
        return residuals_of(one, self.at, self.seen, self.usable[held])


def log_errors(left: FloatArray) -> FloatArray:
    """Return logarithms of squared errors, shape (n,), of residuals, shape (n, d)."""
    return np.asarray(np.log((left**2).sum(axis=1) + 1e-7))  # below, the simplest form will do


def _margin(seen: CodedSteps) -> float:
    """Return where the threshold of a termination lies: late if ending pays, early if it costs."""
    rewards = seen.rewards[~seen.ended]
    if len(rewards) == 0:
        return 0.5
    if rewards.max() <= 0.0:
        return 0.8
    return 0.2 if rewards.min() >= 0.0 else 0.5


def _stacked(laws: list[Law]) -> dict[str, Any]:
    """Stack laws; missing cells are far from everything."""
    n_cells = max(law.codevectors.shape[1] for law in laws)
    codevectors = np.full((len(laws), len(laws[0].codevectors), n_cells), 1e6)
    with_locals = any(len(law.locals) for law in laws)
    own = np.zeros((len(laws), n_cells if with_locals else 0, *laws[0].locals.shape[1:]))
    for e, law in enumerate(laws):
        codevectors[e, :, : law.codevectors.shape[1]] = law.codevectors
        own[e, : len(law.locals)] = law.locals
    return {
        "laws": np.array([law.weights for law in laws]),
        "waves": np.array([law.waves for law in laws]),
        "codevectors": codevectors,
        "locals": own,
        "widths": np.array([law.width for law in laws]),
    }


def residuals_of(
    world: coordinates.WorldArrays, at: coordinates.Coordinates, seen: CodedSteps, rows: IntArray
) -> FloatArray:
    """Return the first law's residuals, as changes, shape (n, d)."""
    expected = predict(world, seen.before[rows], seen.codes[rows])[0]
    left = (seen.after[rows] - expected) / at.scale
    for i, k in at.circles:
        seen_i, seen_k = seen.after[rows, i], seen.after[rows, k]
        sine = expected[:, i] * seen_k - expected[:, k] * seen_i
        cosine = expected[:, i] * seen_i + expected[:, k] * seen_k
        left[:, i], left[:, k] = np.arctan2(sine, cosine), 0.0
    return np.asarray(left)


def trajectories(seen: CodedSteps, first: BoolArray | None = None) -> list[IntArray]:
    """Return the rows of each trajectory; ``first``, (n,): whether each step began an episode."""
    return offline.trajectories(seen.before, seen.after, seen.ended, first)


def stretches(rows: list[IntArray], steps: int) -> Iterator[IntArray]:
    """Cut trajectories into stretches of at least ``steps`` steps, or shorter whole ones."""
    for one in rows:
        yield from np.array_split(one, max(len(one) // steps, 1))


SCHEMA: dict[str, Member] = {
    **prefixed("world_", schema.members_of(coordinates.WorldArrays)),
    "form": whole("2"),
    "errors": real("forms", "(-inf, inf) or nan"),
    "min_error": real("1"),
    "terms": whole("chosen_terms, 2", "[0, d]"),
    "residuals": real("chosen_residuals, d"),
    "unpredicted": flags("d"),
}  # members of a file of a learned world, in the order in which sizes follow from one another


def world_to_arrays(learned: Learned) -> Arrays:
    """Return a learned world as arrays."""
    world, chosen = learned.arrays, learned.chosen
    own = {k: a for k, a in world._asdict().items() if k not in world._field_defaults}
    names = [form.name for form in FORMS]
    return {
        **prefixed("world_", {name: np.asarray(a) for name, a in own.items()}),
        "form": np.array([names.index(chosen.form.name), chosen.n]),
        "errors": np.array([chosen.errors.get(name, np.nan) for name in names]),
        "min_error": np.array([chosen.least]),
        "terms": chosen.terms,
        "residuals": chosen.residuals,
        "unpredicted": chosen.unpredicted,
    }


def world_from_arrays(arrays: Arrays, boxed: bool, n_codes: int, d: int) -> Learned:
    """Restore what :func:`world_to_arrays` returned, or raise InvalidFileError."""
    sizes = {"d": d, "C": n_codes, "E": N_LAWS, "forms": len(FORMS)}
    check(arrays, SCHEMA, sizes)
    frame, circles = arrays["world_frame"], arrays["world_circles"]
    mean_to_high, scale = frame[: coordinates.LEVELS], frame[coordinates.SCALE]
    ordered = (frame[coordinates.LOW] <= frame[coordinates.HIGH]).all() and (scale > 0.0).all()
    require(ordered and np.isfinite(mean_to_high).all(), "frame has no scale, or no bounds")
    require(len(np.unique(circles)) == circles.size, "circles has a component twice")
    require(sizes["F"] in (1 + d, 1 + d + d * (d + 1) // 2), f"laws have {sizes['F']} features")
    require(sizes["locals"] in (0, sizes["K"]), f"locals has laws of {sizes['locals']} cells")
    require(sizes["locals"] == 0 or sizes["K"] >= 3, "locals blends three cells: there are fewer")
    n_rows, two = sizes["hinges"], coordinates.HINGES
    right_rows = tuple(range(two, two + 3 + 2 * MAX_OBLIQUE, 2))
    require(n_rows in right_rows, f"hinges has {n_rows} rows, not one of {right_rows}")
    allowed = n_codes, *n_reward_features(d, n_codes, boxed, n_rows, len(circles))
    require(sizes["R"] in allowed, f"rewards has {sizes['R']} weights, not one of {allowed}")
    least, greatest, _, far = arrays["world_bounds"].tolist()
    right = -np.inf < least <= greatest and far >= 0.0
    require(right, f"bounds is {arrays['world_bounds'].tolist()}")
    component, sign, _ = arrays["world_walls"].T
    known = np.isin(component, np.arange(d)).all() and np.isin(sign, (-1.0, 1.0)).all()
    require(known, "walls has a component, or a sign, that there is not")
    require(bool(arrays["world_boxed"]) == boxed, "boxed is not what the actions are")
    form, n = arrays["form"].tolist()
    require(form < len(FORMS), f"form is {form}: there are {len(FORMS)}")
    fields = schema.within(arrays, "world_")
    world = coordinates.WorldArrays(
        bool(fields.pop("boxed")), **{k: np.array(a) for k, a in fields.items()}
    )
    pairs = zip(FORMS, arrays["errors"].tolist(), strict=True)
    errors = {one.name: error for one, error in pairs if not np.isnan(error)}
    least = float(arrays["min_error"][0])
    kept = arrays["terms"], arrays["residuals"], least, arrays["unpredicted"]
    chosen = Chosen(FORMS[form], n, errors, *kept)
    return Learned(world, coordinates.Coordinates.of_frame(world.frame, world.circles), chosen)
