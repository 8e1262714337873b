"""Quality of a learned world on held-out stretches, and detection of changes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.worlds import learning
from oda_rl.agents.worlds.coordinates import LEVELS, LOW, Coordinates, WorldArrays
from oda_rl.agents.worlds.laws import reward_features, squared_gaps
from oda_rl.agents.worlds.simulation import predict, replay, without_noise

_STEPS = 50  # of a replay
_MIN_STRETCHES, _DRAWS = 10, 8  # of noise, for each stretch
_EXACT = 1e-12  # relative squared error that is rounding
_MAX_ERROR = 0.5  # standard deviations, of a replay that is trusted
_MIN_F1, _MIN_REWARD_R2 = 0.6, 0.5  # of ends and rewards that are
_AFFECTING, _LITTLE = 1000, 0.05  # states in which a component is varied; share of a variance
_MIN_R2, _MUCH = 0.3, 1.0  # of a component that makes so much of the variance of rewards


@dataclass(frozen=True)
class Trust:
    """Whether a world is trusted, and why."""

    trusted: bool
    reason: str

    def __bool__(self) -> bool:
        return self.trusted

    def __str__(self) -> str:
        return f"{'trusted' if self.trusted else 'not trusted'}: {self.reason}"


@dataclass(frozen=True)
class Report:
    """Quality of a learned world on held-out stretches; ``print`` it.

    Each stretch, of about 50 steps, is predicted by a model of four fifths of the others; the form
    of its laws is the one chosen on all.
    """

    n_transitions: int
    names: tuple[str, ...]  # names of the observation's components
    form: str  # form of the laws
    form_errors: dict[str, float]
    """Mean logarithm of the squared error of each form on held-out stretches."""
    r2: FloatArray  # R² of one step's change of each component, shape (d,)
    unpredicted: BoolArray  # which components no law predicts, shape (d,)
    n_replays: int
    replay_steps: int  # steps of each replay; fewer where the episode was shorter
    replay_error: float
    """Median distance between a replay of the real actions and the real state at its end: the root
    mean square over the components, in standard deviations."""
    n_ends: int
    precision: float  # precision of predicted terminations; NaN if none was predicted
    recall: float  # recall of terminations; NaN if there are none
    reward_r2: float
    inner_reward_r2: float
    """R² of the law of rewards, given the next observation, in steps that neither end an episode
    nor are predicted to."""
    overall: Trust  # before single components are judged
    trust: Trust

    def __str__(self) -> str:
        width = max(map(len, [*self.names, *self.form_errors]))
        lines = [f"A world learned from {self.n_transitions} steps, on stretches it has not seen",
                 f"{'one step ahead':{width}}  R² of the change"]  # fmt: skip
        for name, value, unpredicted in zip(self.names, self.r2, self.unpredicted, strict=True):
            remark = "  no law predicts it: assumed constant" if unpredicted else ""
            lines.append(f"  {name:{width}}  {value:.4f}{remark}")
        lines += [f"  {'reward':{width}}  {self.reward_r2:.4f}",
                  f"{self.replay_steps} steps ahead: off by {self.replay_error:.3g} standard "
                  f"deviations (median of {self.n_replays} replays)",
                  f"terminations: {self._terminations()}",
                  "form of the laws, by the mean log squared error: the first that is about as "
                  "good as the best is chosen"]  # fmt: skip
        for name, error in self.form_errors.items():
            mark = "  <- chosen" if name == self.form else ""
            lines.append(f"  {name:{width}}  {error:7.2f}{mark}")
        return "\n".join([*lines, str(self.trust)])

    def _terminations(self) -> str:
        if self.n_ends == 0:
            return "none seen"
        precision = "none predicted" if np.isnan(self.precision) else f"{self.precision:.2f}"
        return f"{self.n_ends} seen, recall {self.recall:.2f}, precision {precision}"


def refitted(
    learned: learning.Learned, seen: learning.CodedSteps, rows: IntArray, rng: np.random.Generator
) -> learning.Learned:
    """Learn a world from some of the steps, with one law of the known form."""
    worst = float(learned.arrays.bounds[2])
    terms, nothing = np.zeros((0, 2), dtype=np.int64), np.zeros((0, seen.before.shape[1]))
    known = learned.chosen._replace(n=len(rows), terms=terms, residuals=nothing)
    some = learning.CodedSteps._make(column[rows] for column in seen)
    return learning.learn_world(some, worst, learned.arrays.boxed, 1, known, rng)


def judge(
    learned: learning.Learned,
    seen: learning.CodedSteps,
    first: BoolArray | None,
    names: Sequence[str],
    rng: np.random.Generator,
) -> Report:
    """Evaluate a world by cross-validation; ``first``, (n,): whether each step began an episode."""
    n, d = seen.before.shape
    expected, rewards, ended = np.empty((n, d)), np.empty((2, n)), np.zeros(n, dtype=np.bool_)
    misses: list[list[FloatArray]] = []
    steps = max(min(_STEPS, n // _MIN_STRETCHES), 1)
    pieces = list(learning.stretches(learning.trajectories(seen, first), steps))
    mixed = [pieces[k] for k in rng.permutation(len(pieces))]
    mixed.sort(key=lambda rows: not seen.ended[rows].any())  # a share of terminations in each fold
    n_folds = min(5, len(mixed))
    for fold in (mixed[k::n_folds] for k in range(n_folds)):
        held = np.concatenate(fold)
        part = refitted(learned, seen, np.setdiff1d(np.arange(n), held), rng)
        bounds, allowed = part.arrays.bounds.copy(), learned.arrays.frame[LOW:].copy()
        bounds[:2] = learned.arrays.bounds[:2]  # clipped, and on levels, as by all steps
        allowed[:, part.at.ignored] = np.nan
        allowed[: LEVELS - LOW, part.at.ignored] = part.arrays.frame[LOW:LEVELS, part.at.ignored]
        frame = np.concatenate([part.arrays.frame[:LOW], allowed])
        world = part.arrays._replace(frame=frame, bounds=bounds)
        before, codes, after = seen.before[held], seen.codes[held], seen.after[held]
        expected[held], rewards[0, held], ended[held] = predict(world, before, codes)[:3]
        rewards[1, held] = _law_rewards(world, part.at, before, codes, after)
        noisy = world._replace(residuals=learned.arrays.residuals)
        for piece in fold:
            rows = piece[:steps]
            begun = seen.before[rows[[0] * _DRAWS]], seen.codes[rows][None].repeat(_DRAWS, axis=0)
            end, other = (replay(one, *begun, rng)[:, -1] for one in (world, noisy))
            misses.append([end - seen.after[rows[-1]], end - other])
    hits, n_ends = int((ended & seen.ended).sum()), int(seen.ended.sum())
    precision = hits / int(ended.sum()) if ended.any() else np.nan
    recall = hits / n_ends if n_ends else np.nan
    change, left = seen.after - seen.before, seen.after - expected
    r2 = np.array([explained(change[:, j], left[:, j]) for j in range(d)])
    reward_r2 = explained(seen.rewards, seen.rewards - rewards[0])
    on = ~(seen.ended | ended)
    on |= not on.any()  # episodes of one step
    inner_reward_r2 = explained(seen.rewards[on], (seen.rewards - rewards[1])[on])
    off, noise = np.array(misses).swapaxes(0, 1) / learned.at.scale
    unpredicted = learned.chosen.unpredicted
    excused = unpredicted & ~_rewarding(learned, seen)
    if not learned.arrays.boxed:  # values do without laws: what matters has to be predicted
        for j in np.flatnonzero(excused).tolist():
            excused[j] = _affected(learned, seen, j, names)[0] is None
    counted = np.flatnonzero(~excused | excused.all())
    error, by_noise = (
        float(np.median(np.sqrt((one[..., counted] ** 2).mean(axis=2)))) for one in (off, noise)
    )
    max_error = max(_MAX_ERROR, 1.5 * by_noise)
    trust = judged(error, steps, precision, recall, reward_r2, max_error)
    if error > max_error:
        worst = names[counted[np.median(np.abs(off[..., counted]), axis=(0, 1)).argmax()]]
        trust = Trust(False, f"{trust.reason}; it predicts {worst} worst")
    overall = trust
    for j in np.flatnonzero(r2 < _MIN_R2).tolist() if trust else ():
        affected, share = _affected(learned, seen, j, names)
        if share > _MUCH and len(learned.arrays.residuals) == 0:  # it plans without noise
            most = f"R² of the change of {names[j]}, which rewards depend on most, is {r2[j]:.2g}"
            trust = Trust(False, most)
            break
        if excused[j]:
            trust = Trust(
                True, f"{trust.reason}; {names[j]}, which no law predicts, is assumed constant"
            )
        if r2[j] >= 0.0 or excused[j]:
            continue
        what = f"the change of {names[j]} is predicted worse than by its mean (R² {r2[j]:.2g})"
        missed = float(np.median(np.abs(off[..., j])))
        excuse = f"{steps} steps ahead that is {missed:.2g} standard deviations"
        if missed > _MAX_ERROR:
            if affected is not None:
                trust = Trust(False, f"{what}, and {affected} depends on it")
                break
            excuse = "nothing else depends on it"
        trust = Trust(True, f"{trust.reason}; {what}, but {excuse}")
    return Report(
        n, tuple(names), learned.chosen.form.name, dict(learned.chosen.errors), r2,
        unpredicted, len(misses), steps, error, n_ends, precision, recall, reward_r2,
        inner_reward_r2, overall, trust,
    )  # fmt: skip


def judged(
    error: float,
    steps: int,
    precision: float,
    recall: float,
    reward_r2: float,
    max_error: float = _MAX_ERROR,
) -> Trust:
    """Decide whether a world with such errors is trusted."""
    ends = "" if np.isnan(recall) else f"terminations: recall {recall:.2f}"
    if ends and not np.isnan(precision):
        ends += f", precision {precision:.2f}"
    f1 = 2.0 * precision * recall / (precision + recall) if precision * recall > 0.0 else 0.0
    checks = [
        (error <= max_error, f"{steps} steps ahead it is off by {error:.2g} standard deviations"),
        (np.isnan(recall) or f1 >= _MIN_F1, ends),
        (reward_r2 >= _MIN_REWARD_R2, f"R² of rewards is {reward_r2:.2g}"),
    ]
    wrong = [reason for fine, reason in checks if not fine]
    return Trust(not wrong, "; ".join(wrong or [reason for _, reason in checks if reason]))


def _affected(
    learned: learning.Learned, seen: learning.CodedSteps, j: int, names: Sequence[str]
) -> tuple[str | None, float]:
    """Return what else depends on a component, or None; and how far rewards do, 2 for entirely."""
    rows = np.arange(len(seen.before))[:: max(len(seen.before) // _AFFECTING, 1)]
    before, codes = seen.before[rows], seen.codes[rows]
    mixed = before.copy()
    mixed[:, j] = np.roll(before[:, j], len(rows) // 2)
    world = without_noise(learned.arrays)
    (after, rewards, ended, _), others = (predict(world, one, codes) for one in (before, mixed))
    change, scale = seen.after[rows] - before, learned.at.scale
    moved = (((others[0] - after) / scale) ** 2).mean(axis=0)
    moved /= np.maximum((change / scale).var(axis=0), _TINY)
    moved[j], spread = 0.0, float(seen.rewards.var())
    share = float(((others[1] - rewards) ** 2).mean()) / spread if spread > 0.0 else 0.0
    others_too = ("the reward", share), ("the end of episodes", (others[2] != ended).mean())
    parts = (names[moved.argmax()], moved.max()), *others_too
    return next((name for name, part in parts if part > _LITTLE), None), share


def _law_rewards(
    world: WorldArrays, at: Coordinates, before: FloatArray, codes: FloatArray, after: FloatArray
) -> FloatArray:
    """Return the rewards of steps by their law, shape (n,)."""
    columns, n = codes, len(world.rewards)
    if world.hinges is not None and n > codes.shape[1]:
        columns = reward_features(at, world.hinges, before, codes, after, world.boxed, n)
    return np.asarray(np.clip(columns @ world.rewards, *world.bounds[:2]))


def _rewarding(learned: learning.Learned, seen: learning.CodedSteps) -> BoolArray:
    """Return which components the law of rewards depends on directly, shape (d,)."""
    rows = np.arange(len(seen.before))[:: max(len(seen.before) // _AFFECTING, 1)]
    parts, rewards = [seen.before[rows], seen.codes[rows], seen.after[rows]], []
    for j in [None, *range(seen.before.shape[1])]:
        before, codes, after = (part.copy() for part in parts)
        if j is not None:
            before[:, j], after[:, j] = np.roll((before[:, j], after[:, j]), len(rows) // 2, axis=1)
        rewards.append(_law_rewards(learned.arrays, learned.at, before, codes, after))
    errors = ((np.array(rewards[1:]) - rewards[0]) ** 2).mean(axis=1)
    return np.asarray(errors > _LITTLE * float(seen.rewards.var()))


def explained(values: FloatArray, left: FloatArray) -> float:
    """Return R² of values by their residuals; 1 or 0 for a constant."""
    spread, wrong = float(((values - values.mean()) ** 2).sum()), float((left**2).sum())
    if wrong <= _EXACT * float((values**2).sum()):
        return 1.0
    return 1.0 - wrong / spread if spread > 0.0 else 0.0


_NEWEST, _MIN_NEWEST = 0.13, 100  # share and minimum number of the newest steps
_STRETCH = 25  # steps in a row that are held out together
_FAR_WORSE = 1.0  # difference of mean logarithms of squared errors
_HARMLESS = float(np.log(1e-3))  # such errors matter to no rule
_HIDDEN = 0.03  # standard deviations of an error after a change: more is of a hidden state
_ENOUGH = 0.5  # share of the gain that decides how many old steps are kept
_COMPARED, _ALIKE = 20_000, 0.25  # old steps to compare with; share of pairs that are most alike
_TINY = 1e-12  # squared, of standardised observations


def outdated(learned: learning.Learned, seen: learning.CodedSteps, rng: np.random.Generator) -> int:
    """Return how many of the oldest steps are from before the world changed; 0 if it has not.

    ``learned`` is from before the newest steps, which have to follow a law almost exactly: where a
    state is hidden, as in a delay, laws differ with the rules that are played.
    """
    n = len(seen.before)
    newest = np.arange(n - min(max(_MIN_NEWEST, int(_NEWEST * n)), n // 2), n)
    expected = learned.chosen.least + _FAR_WORSE
    if len(newest) < _MIN_NEWEST or _error(learned, learned, seen, newest) < expected:
        return 0
    held = newest[newest // _STRETCH % 2 == 0]
    sizes = [n]
    while sizes[-1] // 2 >= _MIN_NEWEST:
        sizes.append(sizes[-1] // 2)
    motion = seen._replace(rewards=np.zeros(n), ended=np.zeros(n, dtype=np.bool_))
    laws = [
        refitted(learned, motion, np.setdiff1d(np.arange(n - size, n), held), rng) for size in sizes
    ]
    errors = np.array([_error(learned, law, seen, held) for law in laws])
    gain = errors[0] - errors.min()
    if gain < _FAR_WORSE:
        return 0
    best = int(np.argmax(errors <= errors[0] - _ENOUGH * gain))
    first = n - sizes[best]
    older = n - sizes[best - 1] or first // 2  # between these and the first it has changed
    compared = np.arange(older)[-_COMPARED:]
    places = np.concatenate([learned.at.standardised(seen.before), seen.codes], axis=1)
    old, new = _alike(places, compared, held)
    left = learning.residuals_of(without_noise(laws[best].arrays), learned.at, seen, new)
    if left.std(axis=0).max() > _HIDDEN:
        return 0
    own = float(learning.log_errors(left).mean())
    others = _error(learned, laws[0], seen, new), _error(learned, laws[best], seen, old)
    if min(others) < max(own + _FAR_WORSE, _HARMLESS):
        return 0
    some = compared[:: max(len(compared) // len(held), 1)]
    changes = learned.at.standardised(seen.after) - learned.at.standardised(seen.before)
    before = _steepness(places, changes, *_alike(places, compared, some))
    return first if _steepness(places, changes, old, new) > before else 0


def _error(
    learned: learning.Learned, law: learning.Learned, seen: learning.CodedSteps, rows: IntArray
) -> float:
    """Return the mean logarithm of a law's squared errors."""
    left = learning.residuals_of(without_noise(law.arrays), learned.at, seen, rows)
    return float(learning.log_errors(left).mean())


def _alike(places: FloatArray, old: IntArray, new: IntArray) -> tuple[IntArray, IntArray]:
    """Return the most similar pairs of old and new steps, of different stretches."""
    gaps = squared_gaps(places[new], places[old])
    gaps[np.abs(new[:, None] - old[None, :]) < _STRETCH] = np.inf
    nearest, least = gaps.argmin(axis=1), gaps.min(axis=1)
    close = least <= np.quantile(least, _ALIKE)
    return old[nearest[close]], new[close]


def _steepness(places: FloatArray, changes: FloatArray, old: IntArray, new: IntArray) -> float:
    """Return the mean log ratio of the squared distances after and before pairs of steps."""
    apart = ((places[old] - places[new]) ** 2).sum(axis=1)
    differ = ((changes[old] - changes[new]) ** 2).sum(axis=1)
    return float(np.log((differ + _TINY) / (apart + _TINY)).mean())
