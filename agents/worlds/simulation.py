"""Imagined steps in a learned world, compiled."""

import math

import numpy as np

from oda_rl._compile import inlined, integer, reordered, spliced
from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.worlds.coordinates import (
    HIGH,
    HINGES,
    LEVELS,
    LOW,
    MEAN,
    SCALE,
    Coordinates,
    Scratch,
    Single,
    WorldArrays,
    scratch_for,
)
from oda_rl.diagram import three_least


@inlined
def _decide(
    conditions: FloatArray, clauses: IntArray | None, clause_outputs: FloatArray,
    scores: FloatArray, outputs: FloatArray, s: FloatArray, code: FloatArray,
) -> None:  # fmt: skip
    """Write the code of the action by a rule (:mod:`oda_rl.agents.policies.rules`).

    ``outputs`` has the shape (K, C, 1) where actions are discrete, else (K, p, 1 + d).
    """
    n_features = s.shape[0]
    barred, one, row, said = np.int64(0), np.int64(1), integer(0), integer(0)  # barred: bits
    cell, chosen = integer(-1), outputs
    if clauses is not None:
        for i in range(clauses.shape[0]):
            holds = True
            while row < clauses[i, 0]:
                total = conditions[row, 0]
                for j in range(n_features):
                    total += conditions[row, 1 + j] * s[j]
                holds = holds and total > 0.0
                row += 1
            action = clauses[i, 1]
            if action >= 0:
                barred |= (one if holds else np.int64(0)) << action
                continue
            if holds and cell < 0 and (barred >> _action_of(clause_outputs, said)) & one == 0:
                cell, chosen = said, clause_outputs
            said += 1
    greatest = -np.inf if cell < 0 else np.inf
    for k in range(scores.shape[0]):
        score = scores[k, 0]
        for j in range(n_features):
            score += scores[k, 1 + j] * s[j]
        if score > greatest and (barred == 0 or (barred >> _action_of(outputs, k)) & one == 0):
            greatest = score
            cell = k
    if cell < 0:
        allowed = integer(0)
        while (barred >> allowed) & one != 0:
            allowed += 1
        for c in range(outputs.shape[1]):
            code[c] = 1.0 if c == allowed else 0.0
        return
    code[0] = 1.0
    first = code.shape[0] - chosen.shape[1]
    for c in range(chosen.shape[1]):
        value = chosen[cell, c, 0]
        for j in range(chosen.shape[2] - 1):
            value += chosen[cell, c, 1 + j] * s[j]
        code[first + c] = min(max(value, -1.0), 1.0)


@spliced
def _action_of(outputs: FloatArray, k: int) -> int:
    """Return the discrete action of an output; 0 where actions are continuous."""
    action = integer(0)
    while outputs.shape[2] == 1 and outputs[k, action, 0] <= 0.0:
        action += 1
    return action


_NEGLIGIBLE = 1e-3  # weight of a cell among the three nearest
_LONGEST_GAP = 4.0  # maximum novelty, relative to ``far``
_MULTIPLIER, _INCREMENT = np.uint64(6364136223846793005), np.uint64(1442695040888963407)  # Knuth
_HIGH_BITS = np.uint64(33)


@reordered
def _reward(
    weights: FloatArray, hinges: FloatArray | None, frame: FloatArray, circles: IntArray,
    code: FloatArray, boxed: bool, s: FloatArray, after: FloatArray, z: FloatArray,
) -> float:  # fmt: skip
    """Return the reward of a step (:func:`oda_rl.agents.worlds.laws.reward_features`)."""
    n_features = s.shape[0]
    total = 0.0
    f = code.shape[0]
    for c in range(f):
        total += weights[c] * code[c]
    if hinges is None:
        return total
    if boxed:
        for c in range(1, code.shape[0]):
            total += weights[f] * code[c] ** 2
            f += 1
    for j in range(n_features):
        z[j] = (s[j] - frame[MEAN, j]) / frame[SCALE, j]
        z[n_features + j] = (after[j] - frame[MEAN, j]) / frame[SCALE, j]
    n = 2 * n_features
    for c in range(1 if boxed else 0, code.shape[0]):
        if code[c] != 0.0:
            for j in range(n):
                total += weights[f + j] * code[c] * z[j]
        f += n
    for j in range(n):
        total += weights[f + j] * z[j] + weights[f + n + j] * z[j] * z[j]
    f += 2 * n
    for y in (s, after):
        for q in range(circles.shape[0]):
            angle = math.atan2(y[circles[q, 1]], y[circles[q, 0]])
            total += weights[f] * angle * angle  # type: ignore[assignment]
            f += 1
    n_rows = hinges.shape[0]
    if weights.shape[0] > f + n * HINGES + n_rows - HINGES:  # there are weights of products
        for j in range(n):
            for k in range(j + 1, n):
                total += weights[f] * z[j] * z[k]
                f += 1
    for j in range(n):
        for h in range(HINGES):
            total += weights[f] * abs(z[j] - hinges[h, j % n_features])
            f += 1
    for q in range(n_rows - HINGES):  # a distance before the step, and after it; oblique hinges
        row, first = HINGES + q // 2 * 2, q % 2 * n_features
        along, square = 0.0, 0.0
        for j in range(n_features):
            gap = hinges[row + 1, j] * (z[first + j] - hinges[row, j])
            along += gap
            square += gap * gap
        total += weights[f + q] * (math.sqrt(square) if q < 2 else abs(along))
    return total


@inlined
def _follow(
    laws: FloatArray, waves: Single, codevectors: FloatArray, local_laws: FloatArray, width: float,
    residuals: FloatArray, drawn: int, frame: FloatArray, circles: IntArray, walls: FloatArray,
    terms: IntArray, hazards: FloatArray, first: int, last: int, room: Scratch, s: FloatArray,
    after: FloatArray,
) -> tuple[float, bool]:  # fmt: skip
    """Write the next state by one law of the ensemble, with a residual as noise.

    There is none where ``drawn`` is negative; codes are 0 outside of a range. Returns the state's
    squared distance from the nearest cell, and whether the episode ends. Apart from
    :func:`imagine`: its sums keep their order. One function, as numba takes long to join several.
    """
    n_features, n_waves, n_terms = s.shape[0], waves.shape[1], terms.shape[0]
    x, gaps, code, z, heights = room.x, room.gaps, room.code, room.z, room.waves
    for k in range(gaps.shape[0]):
        gaps[k] = 0.0
    for j in range(n_features):
        after[j] = 0.0
        for k in range(gaps.shape[0]):
            gaps[k] += (x[j] - codevectors[j, k]) ** 2

    # The change: a global law (rank 0), and the blended laws of the three nearest cells.
    near0, near1, near2, gap0, gap1, gap2 = three_least(gaps)
    share1, share2 = math.exp((gap0 - gap1) / width), math.exp((gap0 - gap2) / width)
    total = 1.0 + share1 + share2
    for rank in range(4 if local_laws.shape[0] > 0 else 1):
        k = near1 if rank == 2 else (near2 if rank == 3 else near0)
        law, share = laws, share1 if rank == 2 else (share2 if rank == 3 else 1.0)
        if rank > 0:
            law, share = local_laws[k], share / total
        if share < _NEGLIGIBLE:
            continue
        for i in range(n_features):
            z[i] = x[i] - codevectors[i, k] if rank > 0 else x[i]
        for c in range(first, last):
            weight = share * code[c]
            for j in range(n_features):
                after[j] += weight * law[c, 0, j]
            for i in range(n_features):
                value = weight * z[i]
                for j in range(n_features):
                    after[j] += law[c, 1 + i, j] * value
            if law.shape[1] > 1 + n_features:  # squares and products, in the global law alone
                f = 1 + n_features
                for i in range(n_features):
                    for q in range(i, n_features):
                        value = weight * x[i] * x[q]
                        for j in range(n_features):
                            after[j] += law[c, f, j] * value
                        f += 1

    # Sinusoids: frequencies, phases, weights, of shape (2 d + 1, S).
    for f in range(n_waves):
        heights[f] = waves[n_features, f] + np.float32(64.5)  # above 0: dropping decimals is floor
    for j in range(n_features if n_waves > 0 else 0):
        single = np.float32(x[j])
        for f in range(n_waves):
            heights[f] += waves[j, f] * single
    for f in range(n_waves):
        turn = heights[f] - np.float32(np.int32(heights[f])) - np.float32(0.5)
        # sin(2 pi turn), to 0.001: a parabola, corrected by its square (see `laws.sinusoids`).
        y = turn * (np.float32(8.0) - np.float32(16.0) * abs(turn))
        heights[f] = y * (np.float32(0.775) + np.float32(0.225) * abs(y))
    for j in range(n_features if n_waves > 0 else 0):
        height = np.float32(0.0)
        for f in range(n_waves):
            height += heights[f] * waves[n_features + 1 + j, f]
        after[j] += height

    # The state: turned on its circles, within its limits, on its levels.
    for j in range(n_features):
        x[j] = after[j] + residuals[drawn, j] if drawn >= 0 else after[j]
        after[j] = s[j] + x[j] * frame[SCALE, j]
    for q in range(circles.shape[0]):
        i, k = circles[q, 0], circles[q, 1]
        cosine, sine = math.cos(x[i]), math.sin(x[i])
        after[i] = s[i] * cosine - s[k] * sine
        after[k] = s[i] * sine + s[k] * cosine
    for j in range(n_features):
        value = min(max(after[j], frame[LOW, j]), frame[HIGH, j])
        nearest, found = np.inf, value
        for q in range(LEVELS, frame.shape[0]):
            gap_to_level = abs(frame[q, j] - value)
            if gap_to_level < nearest:
                nearest, found = gap_to_level, frame[q, j]
        after[j] = found
        x[j] = (found - frame[MEAN, j]) / frame[SCALE, j]

    # The end: beyond a wall, or where a hazard is positive.
    for q in range(walls.shape[0]):
        if walls[q, 1] * (x[integer(walls[q, 0])] - walls[q, 2]) > 0.0:
            return gap0, True
    hazard = -hazards[n_terms] if n_terms > 0 else 0.0
    for t in range(n_terms):
        value = hazards[t]
        if terms[t, 0] > 0:
            value *= x[terms[t, 0] - 1]
        if terms[t, 1] > 0:
            value *= x[terms[t, 1] - 1]
        hazard += value
    return gap0, bool(hazard > 0.0)


@inlined
def _last_reward(remembered: FloatArray, x: FloatArray) -> float:
    """Return the reward at the nearest of the ``remembered`` last observations."""
    n_features = x.shape[0]
    nearest, reward = np.inf, 0.0
    for k in range(remembered.shape[0]):
        gap = 0.0
        for j in range(n_features):
            gap += (x[j] - remembered[k, j]) ** 2
        if gap < nearest:
            nearest, reward = gap, remembered[k, n_features]
    return reward


@reordered
def imagine(
    world: WorldArrays, scores: FloatArray, outputs: FloatArray, codes: FloatArray,
    starts: FloatArray, horizon: int, explore: bool, room: Scratch, returns: FloatArray,
    reached: FloatArray,
) -> int:  # fmt: skip
    """Write the return of each of P rules from each of n starts, shape (P, n); return the steps.

    Start i is played in law i modulo E; all rules meet the same noise there. Where a state is too
    far from the observations the episode stops, with a return no better than the lowest real one;
    if noise has led there, the last step is repeated without it first.
    ``explore``: write novelty, the distance from the observations, instead of returns. ``codes``,
    shape (n or 0, C), are those of the first actions, if given. ``reached``, shape (n or 0, d + 3),
    takes the last observation, whether the episode ended there, the squared distance of the state
    before from the nearest cell, and the step's reward.
    """
    # Every use of a large tuple in a loop takes long to compile.
    boxed, frame, circles, laws, waves = (
        world.boxed, world.frame, world.circles, world.laws, world.waves,
    )  # fmt: skip
    codevectors, local_laws, widths, residuals, rewards, hinges = (
        world.codevectors, world.locals, world.widths, world.residuals, world.rewards, world.hinges,
    )  # fmt: skip
    walls, terms, hazards, remembered = world.walls, world.terms, world.hazards, world.last
    conditions, clauses, clause_outputs = world.conditions, world.clauses, world.said
    least, greatest, worst, far = (
        world.bounds[0], world.bounds[1], world.bounds[2], world.bounds[3],
    )  # fmt: skip
    n_laws, n_codes, n_features = laws.shape[0], laws.shape[1], starts.shape[1]
    taken = integer(0)
    s, before, x, after, code = room.s, room.before, room.x, room.after, room.code
    for p in range(scores.shape[0]):
        for i in range(starts.shape[0]):
            for j in range(n_features):
                s[j] = starts[i, j]
            e = i % n_laws
            total, novelty, weight = 0.0, 0.0, 1.0
            noise, drawn, gain = np.uint64(i + 1), integer(-1), 0.0
            calm, t = False, integer(0)  # calm: a step is repeated without noise
            while t < horizon:
                if t == 0 and codes.shape[0] > 0:
                    for c in range(n_codes):
                        code[c] = codes[i, c]
                else:
                    _decide(conditions, clauses, clause_outputs, scores[p], outputs[p], s, code)
                first, last = integer(0), n_codes
                if not boxed:
                    while code[first] == 0.0:
                        first += 1
                    last = first + 1
                for j in range(n_features):
                    x[j] = (s[j] - frame[MEAN, j]) / frame[SCALE, j]
                tossed, drawn = drawn >= 0, integer(-1)  # noise has led to s
                if residuals.shape[0] > 0 and not calm:
                    noise = noise * _MULTIPLIER + _INCREMENT
                    drawn = np.int64(noise >> _HIGH_BITS) % residuals.shape[0]
                gap, over = _follow(
                    laws[e], waves[e], codevectors[e], local_laws[e], widths[e], residuals, drawn,
                    frame, circles, walls, terms, hazards[e], first, last, room, s, after,
                )  # fmt: skip
                taken += 1
                if explore:
                    novelty += weight * min(gap, _LONGEST_GAP * far)
                    weight *= 0.99  # novelty counts less later
                elif gap > far and t > 0 and tossed:
                    for j in range(n_features):
                        s[j] = before[j]
                    total, t, calm = total - gain, t - 1, True
                    continue
                elif gap > far and t > 0:
                    lost = min(least, 0.0) * (horizon - t)
                    total = max(total + lost, min(worst, total))
                    break
                if over and remembered.shape[0] > 0:
                    gain = _last_reward(remembered, x)
                else:
                    gain = _reward(rewards, hinges, frame, circles, code, boxed, s, after, room.z)
                    gain = min(max(gain, least), greatest)
                total += gain
                if reached.shape[0] > 0:
                    for j in range(n_features):
                        reached[i, j] = after[j]
                    reached[i, n_features], reached[i, n_features + 1] = over, gap
                    reached[i, n_features + 2] = gain
                if over:
                    break
                calm, t = False, t + 1
                for j in range(n_features):
                    before[j] = s[j]
                    s[j] = after[j]
            returns[p, i] = novelty if explore else total
    return taken


def without_unused_hinges(world: WorldArrays) -> WorldArrays:
    """Return a world with None for hinges that its rewards do not have: less is compiled."""
    constant = len(world.rewards) == world.laws.shape[1]
    return world._replace(hinges=None) if constant else world


def predict(
    world: WorldArrays, observations: FloatArray, codes: FloatArray
) -> tuple[FloatArray, FloatArray, BoolArray, FloatArray]:
    """Predict steps by the laws, one after the other.

    Returns observations, rewards, terminations, and squared distances from the observed states.
    """
    n, d = observations.shape
    reached, starts = np.empty((n, d + 3)), np.ascontiguousarray(observations)
    rule = np.zeros((1, 1, 1 + d)), np.zeros((1, 1, codes.shape[1], 1))
    imagine(without_unused_hinges(world), *rule, np.ascontiguousarray(codes), starts, 1, False,
            scratch_for(world), np.empty((1, n)), reached)  # fmt: skip
    return reached[:, :d], reached[:, d + 2], reached[:, d] > 0.0, reached[:, d + 1]


def one_law(world: WorldArrays, law: int) -> WorldArrays:
    """Return a world with one law of the ensemble, and no noise."""
    kept = {
        name: getattr(world, name)[law : law + 1]
        for name in ("laws", "waves", "codevectors", "locals", "widths", "hazards")
    }
    return without_noise(world._replace(**kept))


def without_noise(world: WorldArrays) -> WorldArrays:
    """Return a world without noise."""
    return world._replace(residuals=world.residuals[:0])


def starts_between(
    seen: FloatArray, at: Coordinates, n: int, rng: np.random.Generator
) -> FloatArray:
    """Draw states between first observations of episodes, shape (m, d); returns (n, d)."""
    i, k = rng.integers(len(seen), size=(2, n))
    between = seen[i] + rng.random((n, 1)) * (seen[k] - seen[i])
    few = ~np.isnan(at.levels).all(axis=1)
    between[:, few] = seen[i][:, few]
    return np.ascontiguousarray(at.on_circles(between))


def replay(
    world: WorldArrays, starts: FloatArray, codes: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Return states, (n, T + 1, d), from starts, (n, d), by ``codes``, (n, T, C); nothing ends."""
    steps = [starts]
    for t in range(codes.shape[1]):
        mixed = world._replace(residuals=rng.permutation(world.residuals))  # one step draws one row
        steps.append(predict(mixed, steps[-1], codes[:, t])[0].copy())
    return np.stack(steps, axis=1)
