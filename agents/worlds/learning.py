"""A world learned from transitions: coordinates, laws, rewards, ends, and how well they hold."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.worlds.arrays import WorldArrays, scratch_for
from oda_rl.agents.worlds.coordinates import Coordinates, changes, read
from oda_rl.agents.worlds.ends import REMEMBERED, Ends, fit_ends
from oda_rl.agents.worlds.imagination import imagining
from oda_rl.agents.worlds.laws import FORMS, Form, Law, fit_law
from oda_rl.agents.worlds.noise import noise_among
from oda_rl.agents.worlds.rewards import fit_rewards

_STRETCH = 25  # steps in a row that are held out together
_HELD_OUT = 5  # one stretch of so many
_ANEW = 1.5  # times as many steps, and the form is chosen anew
_SHARE = 0.8  # of the stretches, for each law of the ensemble
_MOST_FITTED = 20_000
_FEWEST_CELLS, _MOST_CELLS, _STEPS_PER_CELL = 16, 160, 60
_FAR = 1.5
_MOST_CUT = 0.5
_LEAST_ERROR = 1e-7  # squared; below, the simplest form will do
_NO_LARGE_ERROR = 1e-3  # squared, in standard deviations, of what counts as noise
_AS_GOOD = 0.1  # difference of mean logarithms that counts as none
_RESIDUALS = 1024


class CodedSteps(NamedTuple):
    """Steps that were taken, the oldest first, n of them."""

    before: FloatArray
    """Observations, shape (n, d)."""
    codes: FloatArray
    """Of the actions, shape (n, C); see :class:`~oda_rl.agents.worlds.arrays.WorldArrays`."""
    rewards: FloatArray
    """Shape (n,)."""
    after: FloatArray
    """Observations that they led to, shape (n, d)."""
    ended: BoolArray
    """Whether the episode terminated there, shape (n,)."""


class Chosen(NamedTuple):
    """What is not chosen anew at each fit."""

    form: Form
    n: int
    """Number of steps when the form was chosen."""
    errors: dict[str, float]
    """Mean logarithm of the squared error of each form on held-out stretches."""
    terms: IntArray
    """Of the ends."""
    residuals: FloatArray
    """What the form left unexplained there, shape (m, d)."""
    least: float
    """Least error that the form of the time has had, so far."""


@dataclass(frozen=True)
class Learned:
    """A world, and how it was learned."""

    arrays: WorldArrays
    at: Coordinates
    chosen: Chosen


def learn_world(
    seen: CodedSteps,
    worst: float,
    boxed: bool,
    n_laws: int,
    before: Chosen | None,
    rng: np.random.Generator,
) -> Learned:
    """Learn a world.

    Parameters
    ----------
    seen : CodedSteps
    worst : float
        Least return of an episode; minus infinity if none has ended.
    boxed : bool
        Whether actions are continuous.
    n_laws : int
        Members of the ensemble: each is fitted to other stretches.
    before : Chosen, optional
        Of the fit before.
    rng : numpy.random.Generator
    """
    fit = _Fit.of(seen, worst, boxed, n_laws, None if before is None else before.terms, rng)
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
        laws.append(fit.law(rows if len(rows) else fit.usable, chosen.form))
    return Learned(fit.world(laws, chosen.residuals), fit.at, chosen)


@dataclass(frozen=True)
class _Fit:
    """Steps, and all of a world but its laws."""

    seen: CodedSteps
    boxed: bool
    at: Coordinates
    points: FloatArray
    """Standardised observations, shape (n, d)."""
    change: FloatArray
    usable: IntArray
    """Steps after which no component was cut off."""
    rewards: FloatArray
    ends: Ends
    last: FloatArray
    worst: float
    rng: np.random.Generator

    @classmethod
    def of(
        cls,
        seen: CodedSteps,
        worst: float,
        boxed: bool,
        n_laws: int,
        terms: IntArray | None,
        rng: np.random.Generator,
    ) -> "_Fit":
        """Read coordinates, and learn rewards and ends."""
        at, cut = read(seen.before, seen.after)
        at = at.ignoring(noise_among(at, *seen))
        usable = np.flatnonzero(~cut) if cut.mean() < _MOST_CUT else np.arange(len(cut))
        on = ~seen.ended
        steps = seen.before[on], seen.codes[on], seen.after[on], seen.rewards[on]
        rewards = fit_rewards(at, *steps, boxed, rng)
        arrived = at.standardised(seen.after)
        ends = fit_ends(arrived, seen.ended, _margin(seen), n_laws, terms, rng)
        rows = np.flatnonzero(seen.ended)[-REMEMBERED:]
        last = np.column_stack([arrived[rows], seen.rewards[rows]])
        points, change = at.standardised(seen.before), changes(at, seen.before, seen.after)
        return cls(seen, boxed, at, points, change, usable, rewards, ends, last, worst, rng)

    def world(self, laws: list[Law], residuals: FloatArray) -> WorldArrays:
        """Put laws into a world."""
        least, most = float(self.seen.rewards.min()), float(self.seen.rewards.max())
        bounds = np.array([least, most, self.worst, _FAR * max(law.far for law in laws)])
        return WorldArrays(
            boxed=self.boxed,
            frame=self.at.frame,
            circles=self.at.circles,
            **_stacked(laws),
            residuals=residuals,
            rewards=self.rewards,
            bounds=bounds,
            **self.ends._asdict(),
            last=self.last,
        )

    def law(self, rows: IntArray, form: Form) -> Law:
        """Fit a law to some of the steps."""
        if len(rows) > _MOST_FITTED:
            rows = self.rng.choice(rows, _MOST_FITTED, replace=False)
        cells = min(_MOST_CELLS, _FEWEST_CELLS + len(rows) // _STEPS_PER_CELL)
        steps = self.points[rows], self.seen.codes[rows], self.change[rows]
        return fit_law(form, *steps, cells, self.rng)

    def choose_form(self) -> Chosen:
        """Choose the form that predicts best what it was not fitted to.

        Stretches, and the states that are farthest out: a rule will lead beyond what was seen.
        """
        distances = (self.points[self.usable] ** 2).sum(axis=1)
        stretches = self.usable // _STRETCH % _HELD_OUT == 0
        outermost = distances > np.quantile(distances, 1.0 - 1.0 / _HELD_OUT)
        errors, left = {}, {}
        for form in FORMS:
            found = [self._left(form, held) for held in (stretches, outermost)]
            left[form.name] = found[0]
            errors[form.name] = float(np.mean([_log_error(rest) for rest in found]))
        good = min(errors.values()) + _AS_GOOD
        form = next(form for form in FORMS if errors[form.name] <= good)
        noise = _noise(left[form.name], self.rng)
        n, least = len(self.seen.before), errors[form.name]
        return Chosen(form, n, errors, self.ends.terms, noise, least)

    def _left(self, form: Form, held: BoolArray) -> FloatArray:
        """Return what a law that is fitted to the others does not explain of some usable steps."""
        if not 0 < held.sum() < len(held):
            return np.zeros((0, self.points.shape[1]))
        nothing = np.zeros((0, self.points.shape[1]))
        one = self.world([self.law(self.usable[~held], form)], nothing)
        return residuals_of(one, self.at, self.seen, self.usable[held])


def log_errors(left: FloatArray) -> FloatArray:
    """Return logarithms of squared errors, shape (n,), of residuals, shape (n, d)."""
    return np.asarray(np.log((left**2).sum(axis=1) + _LEAST_ERROR))


def _log_error(left: FloatArray) -> float:
    """Return the mean logarithm of squared errors."""
    return float(log_errors(left).mean()) if len(left) else 0.0


def _margin(seen: CodedSteps) -> float:
    """Where the threshold of an end lies: late if ends pay, early if they cost."""
    rewards = seen.rewards[~seen.ended]
    if len(rewards) == 0:
        return 0.5
    if rewards.max() <= 0.0:
        return 0.8
    return 0.2 if rewards.min() >= 0.0 else 0.5


def _stacked(laws: list[Law]) -> dict[str, Any]:
    """Return laws as one array each; cells that some lack are far from everything."""
    n_cells = max(law.codevectors.shape[1] for law in laws)
    d = len(laws[0].codevectors)
    codevectors = np.full((len(laws), d, n_cells), 1e6)
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


def predict(
    world: WorldArrays, observations: FloatArray, codes: FloatArray
) -> tuple[FloatArray, FloatArray, BoolArray, FloatArray]:
    """Return what the laws, one after the other, say of steps.

    Observations, rewards, ends, and squared gaps from what was seen.
    """
    n, d = observations.shape
    reached, starts = np.empty((n, d + 3)), np.ascontiguousarray(observations)
    rule = np.zeros((1, 1, 1 + d)), np.zeros((1, 1, codes.shape[1], 1))
    imagining(d)(world, *rule, np.ascontiguousarray(codes), starts, 1, False, scratch_for(world),
                 np.empty((1, n)), reached)  # fmt: skip
    return reached[:, :d], reached[:, d + 2], reached[:, d] > 0.0, reached[:, d + 1]


def residuals_of(
    world: WorldArrays, at: Coordinates, seen: CodedSteps, rows: IntArray
) -> FloatArray:
    """Return what the first law does not explain of steps, as changes, shape (n, d)."""
    expected = predict(world, seen.before[rows], seen.codes[rows])[0]
    left = (seen.after[rows] - expected) / at.scale
    for i, k in at.circles:
        seen_i, seen_k = seen.after[rows, i], seen.after[rows, k]
        sine = expected[:, i] * seen_k - expected[:, k] * seen_i
        cosine = expected[:, i] * seen_i + expected[:, k] * seen_k
        left[:, i], left[:, k] = np.arctan2(sine, cosine), 0.0
    return np.asarray(left)


def _noise(left: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return residuals to draw from, or none where they are small."""
    if len(left) == 0 or np.median((left**2).sum(axis=1)) < _NO_LARGE_ERROR:
        return np.zeros((0, left.shape[1]))
    return left[rng.integers(len(left), size=_RESIDUALS)]
