"""Imagined steps, compiled: what a world model says comes next, and what it is worth.

A world is a few arrays (:class:`~oda_rl.agents.worlds.coordinates.WorldArrays`) that hold all that
is learned of it: the laws of motion, the rewards, the terminations. In the functions below
``n_features``, the number of components of an observation, is a constant: a copy is made for each
number, so that short loops are unrolled.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from oda_rl._compile import bound_copy, integer, reordered, spliced
from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.worlds.coordinates import (
    HIGH,
    LEVELS,
    LOW,
    MEAN,
    SCALE,
    Coordinates,
    Scratch,
    Single,
    WorldArrays,
)
from oda_rl.diagram import three_least

n_features = 0


def unbarred(*arguments: Any) -> Any:
    """Stand for :func:`decide_freely`, which takes its place in each copy."""
    raise NotImplementedError


def decide_freely(
    world: WorldArrays, scores: FloatArray, outputs: FloatArray, s: FloatArray, code: FloatArray
) -> int:
    """Write the code of the action by a rule (:mod:`oda_rl.agents.policies.rules`); its cell.

    ``outputs`` has the shape (K, C, 1) where actions are discrete, else (K, p, 1 + d).
    """
    cell = integer(0)
    greatest = -np.inf
    for k in range(scores.shape[0]):
        score = scores[k, 0]
        for j in range(n_features):
            score += scores[k, 1 + j] * s[j]
        if score > greatest:
            greatest = score
            cell = k
    if outputs.shape[2] == 1:
        for c in range(outputs.shape[1]):
            code[c] = outputs[cell, c, 0]
    else:
        code[0] = 1.0
        for c in range(outputs.shape[1]):
            value = outputs[cell, c, 0]
            for j in range(n_features):
                value += outputs[cell, c, 1 + j] * s[j]
            code[1 + c] = min(max(value, -1.0), 1.0)
    return cell


def decide_within(
    world: WorldArrays, scores: FloatArray, outputs: FloatArray, s: FloatArray, code: FloatArray
) -> int:
    """Do what :func:`decide_freely` does, within clauses; -1 - i where the i-th of them decides."""
    discrete = outputs.shape[2] == 1
    barred, one, row, said = np.int64(0), np.int64(1), integer(0), integer(0)  # barred: bits
    for i in range(world.clauses.shape[0]):
        holds = True
        while row < world.clauses[i, 0]:
            total = world.conditions[row, 0]
            for j in range(n_features):
                total += world.conditions[row, 1 + j] * s[j]
            holds = holds and total > 0.0
            row += 1
        action = world.clauses[i, 1]
        if action >= 0:
            barred |= (one if holds else np.int64(0)) << action
            continue
        own = integer(0)
        while discrete and world.said[said, own, 0] <= 0.0:
            own += 1
        if holds and (barred >> own) & one == 0:
            unbarred(world, scores[:1], world.said[said : said + 1], s, code)
            return -1 - i
        said += 1
    cell, greatest = integer(-1), -np.inf
    for k in range(scores.shape[0]):
        own = integer(0)
        while discrete and outputs[k, own, 0] <= 0.0:
            own += 1
        score = scores[k, 0]
        for j in range(n_features):
            score += scores[k, 1 + j] * s[j]
        if score > greatest and (barred >> own) & one == 0:
            greatest = score
            cell = k
    if cell >= 0:
        unbarred(world, scores[cell : cell + 1], outputs[cell : cell + 1], s, code)
        return cell
    own = integer(0)
    while (barred >> own) & one != 0:
        own += 1
    for c in range(outputs.shape[1]):
        code[c] = 1.0 if c == own else 0.0
    return cell


_BY_CHANCE = 5.0  # standard errors of a correlation that thousands of pairs do not reach
_MAX = 4_000  # steps to look at
_MIN = 100  # of which less is not told
_MAX_DEVIATIONS = 3.0  # to which columns are cut: their tails would reach farther by chance


def noise_among(
    at: Coordinates,
    before: FloatArray,
    codes: FloatArray,
    rewards: FloatArray,
    after: FloatArray,
    ended: BoolArray,
) -> BoolArray:
    """Say which components are noise, shape (d,).

    Parameters
    ----------
    at : Coordinates
    before : ndarray, shape (n, d)
        Observations before each step.
    codes : ndarray, shape (n, C)
        Of the actions.
    rewards : ndarray, shape (n,)
    after : ndarray, shape (n, d)
        Observations that they led to.
    ended : ndarray of bool, shape (n,)
        Whether the episode terminated there.

    Examples
    --------
    >>> from oda_rl.agents.worlds.coordinates import read
    >>> rng = np.random.default_rng(0)
    >>> seen = np.column_stack([np.sin(0.1 * np.arange(300)), rng.normal(size=300)])
    >>> steps = seen[:-1], np.ones((299, 1)), np.zeros(299), seen[1:], np.zeros(299, dtype=bool)
    >>> noise_among(read(seen[:-1], seen[1:])[0], *steps)
    array([False,  True])
    """
    n, d = before.shape
    nothing = np.zeros(d, dtype=np.bool_)
    if n < _MIN:
        return nothing
    rows = slice(-_MAX, None)
    x, y = _unit(before[rows]), _unit(after[rows])
    own = codes[rows]
    persists = _standard_errors((x * y).mean(axis=0), len(x)) >= _BY_CHANCE
    varies = (np.ptp(before, axis=0) > 0.0) & (np.ptp(after, axis=0) > 0.0)
    likely = np.flatnonzero(varies & ~persists)
    likely = np.setdiff1d(likely, at.circles)
    likely = likely[~_predicted(x, own, y[:, likely])]
    while len(likely):
        kept = np.setdiff1d(np.arange(d), likely)
        ends, gains = ended[rows].astype(np.float64), rewards[rows]
        rest = _rest(np.concatenate([x[:, kept], own], axis=1), y[:, kept])
        told = [_predicts(x, kept, j, own, rest) for j in likely.tolist()]
        both = _rest(
            np.concatenate([x[:, kept], y[:, kept], own], axis=1), np.column_stack([gains, ends])
        )
        told = [
            one or _predicts(x, kept, j, own, both) or _predicts(y, kept, j, own, both)
            for one, j in zip(told, likely.tolist(), strict=True)
        ]
        if not any(told):
            break
        likely = likely[~np.array(told)]
    nothing[likely] = True
    return nothing


def _unit(values: FloatArray) -> FloatArray:
    """Return columns of mean 0 and variance 1, or of 0 where they are constant."""
    centred = values - values.mean(axis=0)
    deviation = centred.std(axis=0)
    tiny = 1e-9 * np.abs(values).max(axis=0)
    return np.asarray(centred / np.where(deviation > tiny, deviation, np.inf))


def _standard_errors(correlations: FloatArray, n: int) -> FloatArray:
    return np.asarray(np.abs(correlations) * np.sqrt(n))


def _rest(columns: FloatArray, targets: FloatArray) -> FloatArray:
    """Return what an affine law leaves of targets, standardised."""
    with_one = np.column_stack([np.ones(len(columns)), columns])
    return _unit(targets - with_one @ np.linalg.lstsq(with_one, targets, rcond=None)[0])


def _reaches(columns: FloatArray, targets: FloatArray) -> BoolArray:
    """Say which targets are correlated with any of the columns."""
    if not targets.shape[1]:
        return np.zeros(0, dtype=np.bool_)
    cut = (
        np.clip(_unit(values), -_MAX_DEVIATIONS, _MAX_DEVIATIONS) for values in (columns, targets)
    )
    units = [_unit(values) for values in cut]
    found = units[0].T @ units[1] / len(targets)
    return np.asarray(_standard_errors(found, len(targets)).max(axis=0) >= _BY_CHANCE)


def _predicted(x: FloatArray, codes: FloatArray, targets: FloatArray) -> BoolArray:
    """Say which targets depend on actions, components, or products of any two of these."""
    found = _reaches(codes, targets)
    for j in range(x.shape[1]):
        columns = np.concatenate([x[:, j : j + 1], x[:, j : j + 1] * x[:, j:]], axis=1)
        found |= _reaches(np.concatenate([columns, x[:, j : j + 1] * codes], axis=1), targets)
    return found


def _predicts(
    x: FloatArray, kept: IntArray, j: int, codes: FloatArray, targets: FloatArray
) -> bool:
    """Say whether any target depends on a component, alone or with kept ones or actions."""
    own = x[:, j : j + 1]
    columns = [own, np.abs(own), own * own, own * x[:, kept], own * codes]
    return bool(_reaches(np.concatenate(columns, axis=1), targets).any())


_NEGLIGIBLE = 1e-3  # weight of a cell among the three nearest
_LONGEST_GAP = 4.0  # times ``far``: what novelty counts at most
_NOVELTY_DISCOUNT = 0.99
_MULTIPLIER, _INCREMENT = np.uint64(6364136223846793005), np.uint64(1442695040888963407)  # Knuth
_HIGH_BITS = np.uint64(33)


def _globally(laws: FloatArray, first: int, last: int, room: Scratch, out: FloatArray) -> None:
    """Write what a global law, shape (C, F, d), says of the change; codes are 0 but in a range."""
    x, code = room.x, room.code
    for j in range(n_features):
        out[j] = 0.0
    for c in range(first, last):
        weight = code[c]
        for j in range(n_features):
            out[j] += weight * laws[c, 0, j]
        for i in range(n_features):
            value = weight * x[i]
            for j in range(n_features):
                out[j] += laws[c, 1 + i, j] * value
        if laws.shape[1] > 1 + n_features:
            f = 1 + n_features
            for i in range(n_features):
                for k in range(i, n_features):
                    value = weight * x[i] * x[k]
                    for j in range(n_features):
                        out[j] += laws[c, f, j] * value
                    f += 1


def _in_waves(waves: Single, room: Scratch, out: FloatArray) -> None:
    """Add what sinusoids contribute; (frequencies, phases, shares), shape (2 d + 1, S)."""
    x, heights = room.x, room.waves
    n_waves = heights.shape[0]
    for f in range(n_waves):
        heights[f] = waves[n_features, f] + np.float32(64.5)  # above 0: dropping decimals is floor
    for j in range(n_features):
        value = np.float32(x[j])
        for f in range(n_waves):
            heights[f] += waves[j, f] * value
    for f in range(n_waves):
        turn = heights[f] - np.float32(np.int32(heights[f])) - np.float32(0.5)
        y = turn * (np.float32(8.0) - np.float32(16.0) * abs(turn))
        heights[f] = y * (np.float32(0.775) + np.float32(0.225) * abs(y))
    for j in range(n_features):
        total = np.float32(0.0)
        for f in range(n_waves):
            total += heights[f] * waves[n_features + 1 + j, f]
        out[j] += total


def _locally(
    codevectors: FloatArray, laws: FloatArray, width: float, first: int, last: int, room: Scratch,
    out: FloatArray,
) -> float:  # fmt: skip
    """Add what the laws of the three nearest cells say, weighted; returns the least squared gap.

    Laws, shape (K or 0, C, 1 + d, d), of cells with codevectors, shape (d, K).
    """
    x, gaps, code = room.x, room.gaps, room.code
    for k in range(gaps.shape[0]):
        gaps[k] = 0.0
    for j in range(n_features):
        for k in range(gaps.shape[0]):
            gaps[k] += (x[j] - codevectors[j, k]) ** 2
    if laws.shape[0] == 0:
        least = np.inf
        for k in range(gaps.shape[0]):
            least = min(least, gaps[k])
        return least
    near0, near1, near2, gap0, gap1, gap2 = three_least(gaps)
    share1, share2 = math.exp((gap0 - gap1) / width), math.exp((gap0 - gap2) / width)
    total = 1.0 + share1 + share2
    for rank in range(3):
        k = near0 if rank == 0 else (near1 if rank == 1 else near2)
        share = (1.0 if rank == 0 else (share1 if rank == 1 else share2)) / total
        if share < _NEGLIGIBLE:
            continue
        for c in range(first, last):
            weight = share * code[c]
            for j in range(n_features):
                out[j] += weight * laws[k, c, 0, j]
            for i in range(n_features):
                value = weight * (x[i] - codevectors[i, k])
                for j in range(n_features):
                    out[j] += laws[k, c, 1 + i, j] * value
    return gap0


def _near(codevectors: FloatArray, x: FloatArray, far: float, first: int) -> int:
    """Return the number of a cell whose squared gap is at most ``far``; minus 1 if there is none.

    Cells are codevectors, shape (d, K); number ``first`` is looked at first: episodes stay near.
    """
    k = first
    for _ in range(codevectors.shape[1]):
        gap = 0.0
        for j in range(n_features):
            gap += (x[j] - codevectors[j, k]) ** 2
        if gap <= far:
            return k
        k = k + 1 if k + 1 < codevectors.shape[1] else 0
    return -1


def _move(
    s: FloatArray, frame: FloatArray, circles: IntArray, room: Scratch, after: FloatArray
) -> None:
    """Turn the change of a state into the state after it, within bounds."""
    x = room.x
    for j in range(n_features):
        x[j] = after[j]
        after[j] = s[j] + x[j] * frame[SCALE, j]
    for q in range(circles.shape[0]):
        i, k = circles[q, 0], circles[q, 1]
        cosine, sine = math.cos(x[i]), math.sin(x[i])
        after[i] = s[i] * cosine - s[k] * sine
        after[k] = s[i] * sine + s[k] * cosine
    for j in range(n_features):
        value = min(max(after[j], frame[LOW, j]), frame[HIGH, j])
        if frame.shape[0] > LEVELS:
            nearest, found = np.inf, value
            for q in range(LEVELS, frame.shape[0]):
                gap = abs(frame[q, j] - value)
                if gap < nearest:
                    nearest, found = gap, frame[q, j]
            value = found
        after[j] = value
    for j in range(n_features):
        x[j] = (after[j] - frame[MEAN, j]) / frame[SCALE, j]


def _reward(
    weights: FloatArray, scale: FloatArray, circles: IntArray, code: FloatArray, boxed: bool,
    s: FloatArray, after: FloatArray,
) -> float:  # fmt: skip
    """Return the reward of a step (:func:`oda_rl.agents.worlds.rewards.features`)."""
    total = 0.0
    f = code.shape[0]
    for c in range(f):
        total += weights[c] * code[c]
    if weights.shape[0] == f:
        return total
    if boxed:
        for c in range(1, code.shape[0]):
            total += weights[f] * code[c] ** 2
            f += 1
    for half in range(2):
        y = s if half == 0 else after
        for j in range(n_features):
            value = y[j] / scale[j]
            total += weights[f] * value + weights[f + 1] * abs(value)
            f += 2
            for k in range(j, n_features):
                total += weights[f] * value * (y[k] / scale[k])
                f += 1
        for q in range(circles.shape[0]):
            angle = math.atan2(y[circles[q, 1]], y[circles[q, 0]])
            total += weights[f] * angle * angle  # type: ignore[assignment]
            f += 1
    return total


def _ends(walls: FloatArray, terms: IntArray, hazards: FloatArray, x: FloatArray) -> bool:
    """Whether an episode ends at a standardised observation."""
    for q in range(walls.shape[0]):
        if walls[q, 1] * (x[integer(walls[q, 0])] - walls[q, 2]) > 0.0:
            return True
    if terms.shape[0] == 0:
        return False
    total = -hazards[terms.shape[0]]
    for t in range(terms.shape[0]):
        value = hazards[t]
        if terms[t, 0] > 0:
            value *= x[terms[t, 0] - 1]
        if terms[t, 1] > 0:
            value *= x[terms[t, 1] - 1]
        total += value
    return bool(total > 0.0)


def _last_reward(remembered: FloatArray, x: FloatArray) -> float:
    """Return the reward at the remembered end, a row of ``remembered``, that is nearest."""
    nearest, reward = np.inf, 0.0
    for k in range(remembered.shape[0]):
        gap = 0.0
        for j in range(n_features):
            gap += (x[j] - remembered[k, j]) ** 2
        if gap < nearest:
            nearest, reward = gap, remembered[k, n_features]
    return reward


def _gained(
    world: WorldArrays, s: FloatArray, after: FloatArray, room: Scratch, over: bool
) -> float:
    """Return the reward of a step, after which the episode is over or goes on."""
    if over:
        last: float = last_reward(world.last, room.x)
        return last
    least, most = world.bounds[0], world.bounds[1]
    gain: float = reward(
        world.rewards, world.frame[SCALE], world.circles, room.code, world.boxed, s, after
    )
    gain = min(max(gain, least), most)
    return gain


def _disturb(residuals: FloatArray, noise: np.uint64, after: FloatArray) -> np.uint64:
    """Add one of the residuals to a change; returns what the next one is drawn by."""
    noise = noise * _MULTIPLIER + _INCREMENT
    drawn = np.int64(noise >> _HIGH_BITS) % residuals.shape[0]
    for j in range(n_features):
        after[j] += residuals[drawn, j]
    return noise


def _tell(after: FloatArray, over: bool, gap: float, gain: float, row: FloatArray) -> None:
    """Write what a step led to, as a row of what is reached."""
    for j in range(n_features):
        row[j] = after[j]
    row[n_features] = over
    row[n_features + 1] = gap
    row[n_features + 2] = gain


def _imagine(
    world: WorldArrays, scores: FloatArray, outputs: FloatArray, codes: FloatArray,
    starts: FloatArray, horizon: int, explore: bool, room: Scratch, returns: FloatArray,
    reached: FloatArray,
) -> int:  # fmt: skip
    """Write the return of each of P rules from each of n starts, shape (P, n).

    Start i is played in law i modulo E; all rules meet the same noise there. Where a state is too
    far from all that was seen, the model is not asked any further, and the return is no better than
    the least real one. With ``explore`` how far it gets from what was seen takes the place of the
    return. ``codes``, shape (n or 0, C), are those of the first actions, where they are given.
    ``reached``, shape (n or 0, d + 3), takes the last observation, whether the episode ended there,
    the squared gap from where the last step began, and the step's reward. Returns the steps taken.
    """
    n_laws, n_codes = world.laws.shape[0], world.laws.shape[1]
    least, worst, far = world.bounds[0], world.bounds[2], world.bounds[3]
    frame, x = world.frame, room.x
    taken = integer(0)
    s, after, code = room.s, room.after, room.code
    searching = not explore and reached.shape[0] == 0 and world.locals.shape[1] == 0
    cell = integer(0)
    for p in range(scores.shape[0]):
        for i in range(starts.shape[0]):
            for j in range(n_features):
                s[j] = starts[i, j]
            e = i % n_laws
            total, novelty, weight = 0.0, 0.0, 1.0
            noise = np.uint64(i + 1)
            for t in range(horizon):
                if t == 0 and codes.shape[0] > 0:
                    for c in range(n_codes):
                        code[c] = codes[i, c]
                else:
                    decide(world, scores[p], outputs[p], s, code)
                first, last = integer(0), n_codes
                if not world.boxed:
                    while code[first] == 0.0:
                        first += 1
                    last = first + 1
                for j in range(n_features):
                    x[j] = (s[j] - frame[MEAN, j]) / frame[SCALE, j]
                globally(world.laws[e], first, last, room, after)
                if world.waves.shape[2] > 0:
                    in_waves(world.waves[e], room, after)
                if searching:
                    gap, found = np.inf, near(world.codevectors[e], x, far, cell)
                    if found >= 0:
                        gap, cell = far, found
                else:
                    gap = locally(
                        world.codevectors[e], world.locals[e], world.widths[e], first, last, room,
                        after,
                    )  # fmt: skip
                if world.residuals.shape[0] > 0:
                    noise = disturb(world.residuals, noise, after)
                move(s, frame, world.circles, room, after)
                taken += 1
                if explore:
                    novelty += weight * min(gap, _LONGEST_GAP * far)
                    weight *= _NOVELTY_DISCOUNT
                elif gap > far and t > 0:
                    total = max(total + min(least, 0.0) * (horizon - t), min(worst, total))
                    break
                over = ends(world.walls, world.terms, world.hazards[e], x)
                gain = gained(world, s, after, room, over)
                total += gain
                if reached.shape[0] > 0:
                    tell(after, over, gap, gain, reached[i])
                if over:
                    break
                for j in range(n_features):
                    s[j] = after[j]
            returns[p, i] = novelty if explore else total
    return taken


def _unbound(*arguments: Any) -> Any:
    raise NotImplementedError


globally = in_waves = locally = near = move = reward = ends = last_reward = _unbound
gained = disturb = tell = decide = _unbound
_PARTS = {
    "globally": _globally,
    "in_waves": _in_waves,
    "locally": _locally,
    "near": _near,
    "move": _move,
    "reward": _reward,
    "ends": _ends,
    "last_reward": _last_reward,
    "disturb": _disturb,
    "tell": _tell,
    "decide": decide_freely,
}
# Where these are spliced, LLVM adds up their sums in another order: the bits would be others.
_APART = "decide", "reward"


@cache
def imagining(d: int, within: bool = False) -> Callable[..., int]:
    """Compile :func:`_imagine` for observations of d components; ``within`` clauses, or without."""
    label, size = f"_{d}", {"n_features": d}
    parts = {
        name: (reordered if name in _APART else spliced)(bound_copy(part, label, **size))
        for name, part in _PARTS.items()
    }
    paid = {name: parts[name] for name in ("reward", "last_reward")}
    parts["gained"] = spliced(bound_copy(_gained, label, **size, **paid))
    if within:
        label += "_within"
        size["unbarred"] = parts["decide"]
        parts["decide"] = reordered(bound_copy(decide_within, label, **size))
    found: Callable[..., int] = reordered(bound_copy(_imagine, label, **size, **parts))
    return found
