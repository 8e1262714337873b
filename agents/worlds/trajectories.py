"""Trajectories in a learned world, imagined or replayed, and what they lead to in words."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.worlds.coordinates import Coordinates, WorldArrays, scratch_for
from oda_rl.agents.worlds.learning import predict
from oda_rl.agents.worlds.simulation import imagining

Decide = Callable[[FloatArray], FloatArray]
"""From observations, shape (m, d), to codes of actions, shape (m, C)."""


class Imagined(NamedTuple):
    """Imagined episodes, n of them, the longest of T steps; NaN beyond an episode's end."""

    observations: FloatArray
    """Flattened, shape (n, T + 1, d)."""
    actions: FloatArray
    """As the environment has them, shape (n, T), or (n, T, ...) where they are continuous."""
    rewards: FloatArray
    """Shape (n, T)."""
    lengths: IntArray
    """Steps of each, shape (n,)."""
    ended: BoolArray
    """Whether the episode terminated, shape (n,)."""
    lost: BoolArray
    """Whether it came too far from all that was seen for the model to go on, shape (n,)."""

    @property
    def returns(self) -> FloatArray:
        """Sums of the rewards, shape (n,)."""
        return np.asarray(np.nansum(self.rewards, axis=1))


def one_law(world: WorldArrays, law: int) -> WorldArrays:
    """Return a world that has one law of the ensemble alone, and no noise."""
    kept = {
        name: getattr(world, name)[law : law + 1]
        for name in ("laws", "waves", "codevectors", "locals", "widths", "hazards")
    }
    return without_noise(world._replace(**kept))


def without_noise(world: WorldArrays) -> WorldArrays:
    """Return a world in which nothing is drawn from residuals."""
    return world._replace(residuals=world.residuals[:0])


def starts_between(
    seen: FloatArray, at: Coordinates, n: int, rng: np.random.Generator
) -> FloatArray:
    """Draw states between those in which episodes have begun, shape (m, d); returns (n, d)."""
    i, k = rng.integers(len(seen), size=(2, n))
    share = rng.random((n, 1))
    between = seen[i] + share * (seen[k] - seen[i])
    few = ~np.isnan(at.levels).all(axis=1)
    between[:, few] = seen[i][:, few]
    return np.ascontiguousarray(at.on_circles(between))


def returned(
    world: WorldArrays,
    scores: FloatArray,
    outputs: FloatArray,
    starts: FloatArray,
    horizon: int,
    explore: bool = False,
) -> tuple[FloatArray, int]:
    """Return what P rules of K cells return from n starts, shape (P, n), and the steps imagined.

    Parameters
    ----------
    world : WorldArrays
    scores, outputs : ndarray, shape (P, K, 1 + d) and (P, K, ...)
        As :class:`~oda_rl.agents.policies.rules.RulePolicy` has them.
    starts : ndarray, shape (n, d)
        Number i is gone on from by law i modulo E.
    horizon : int
        Steps at most.
    explore : bool
        Count what is unlike all that was seen instead of rewards.
    """
    found = np.empty((len(scores), len(starts)))
    d, n_codes = starts.shape[1], world.laws.shape[1]
    steps = imagining(d, len(world.clauses) > 0)(
        world, scores, outputs, np.zeros((0, n_codes)), starts, horizon, explore,
        scratch_for(world), found, np.zeros((0, d + 3)),
    )  # fmt: skip
    return found, steps


def walk(
    world: WorldArrays,
    decide: Decide,
    act: Callable[[FloatArray], npt.NDArray[Any]],
    starts: FloatArray,
    horizon: int,
    rng: np.random.Generator,
) -> Imagined:
    """Imagine an episode from each start, shape (n, d): number i in law i modulo E.

    Parameters
    ----------
    world : WorldArrays
    decide : callable
        The policy: from observations to codes of actions.
    act : callable
        From codes to the environment's actions.
    starts : ndarray, shape (n, d)
    horizon : int
        Steps at most.
    rng : numpy.random.Generator
        Draws the noise, if the world has any.
    """
    n, n_codes, far = len(starts), world.laws.shape[1], world.bounds[3]
    points, codes = starts.copy(), np.zeros((n, n_codes))
    codes[:, 0] = 1.0
    goes_on, ended, lost = (np.full(n, value) for value in (True, False, False))
    lengths = np.zeros(n, dtype=np.int64)
    observations, actions, rewards = [points.copy()], [], []
    for t in range(horizon):
        codes[goes_on] = decide(points[goes_on])
        after, gains, over, gaps = predict(_with_new_noise(world, rng), points, codes)
        if t > 0:
            lost |= goes_on & (gaps > far)
            goes_on &= ~lost
        if not goes_on.any():
            break
        lengths += goes_on
        points[goes_on] = after[goes_on]
        observations.append(np.where(goes_on[:, None], after, np.nan))
        acts = act(codes).astype(np.float64)
        acts[~goes_on] = np.nan
        actions.append(acts)
        rewards.append(np.where(goes_on, gains, np.nan))
        ended |= goes_on & over
        goes_on &= ~over
        if not goes_on.any():
            break
    return Imagined(np.stack(observations, axis=1), np.stack(actions, axis=1),
                    np.stack(rewards, axis=1), lengths, ended, lost)  # fmt: skip


def _with_new_noise(world: WorldArrays, rng: np.random.Generator) -> WorldArrays:
    """Return the world with its residuals in a new order.

    Compiled code, when it makes one step only, always draws the same row of them for an episode.
    """
    if len(world.residuals) == 0:
        return world
    return world._replace(residuals=rng.permutation(world.residuals))


def replay(world: WorldArrays, starts: FloatArray, codes: FloatArray) -> FloatArray:
    """Return where actions lead from each start, shape (n, T + 1, d), whatever ends on the way.

    Parameters
    ----------
    world : WorldArrays
    starts : ndarray, shape (n, d)
    codes : ndarray, shape (n, T, C)
    """
    steps = [starts]
    for t in range(codes.shape[1]):
        steps.append(predict(without_noise(world), steps[-1], codes[:, t])[0].copy())
    return np.stack(steps, axis=1)


_MAX_TOLD = 4  # components
_TOLD = 0.5  # standard deviations that a component has to change by, to be told first


def forecast_text(
    world: WorldArrays,
    at: Coordinates,
    imagined: Imagined,
    names: Sequence[str],
    step_seconds: float | None,
) -> str:
    """Say what the laws, each in its own episode from the same state, agree on.

    Parameters
    ----------
    world : WorldArrays
    at : Coordinates
    imagined : Imagined
        An episode in each law.
    names : sequence of str
        Of the components.
    step_seconds : float, optional
        Duration of a step.
    """
    most = len(imagined.lengths) / 2
    if imagined.ended.sum() > most:
        k = _middle(imagined, imagined.ended)
        end = imagined.observations[k, imagined.lengths[k]]
        lengths = imagined.lengths[imagined.ended]
        when = _when(int(imagined.lengths[k]), step_seconds)
        spread = ""
        if lengths.max() > lengths.min():
            spread = f" (the laws say {lengths.min()} to {lengths.max()})"
        return f"in {when}{spread} {_reason(world, at, end, names)}"
    if imagined.lost.sum() > most:
        k = _middle(imagined, imagined.lost)
        told = _told(at, imagined.observations[k, : imagined.lengths[k] + 1], names)
        when = _when(int(imagined.lengths[k]), step_seconds)
        return f"in {when} it is farther than the model is to be believed: {told}"
    k = _middle(imagined, ~imagined.ended & ~imagined.lost)
    told = _told(at, imagined.observations[k, : imagined.lengths[k] + 1], names)
    return f"in {_when(int(imagined.lengths[k]), step_seconds)} the episode still goes on: {told}"


def _middle(imagined: Imagined, wanted: BoolArray) -> int:
    """Return the episode of median length among those wanted."""
    rows = np.flatnonzero(wanted)
    return int(rows[np.argsort(imagined.lengths[rows], kind="stable")[len(rows) // 2]])


def _when(steps: int, step_seconds: float | None) -> str:
    said = f"{steps} step{'s' * (steps != 1)}"
    return said if step_seconds is None else f"{said} ({steps * step_seconds:.3g} s)"


def _reason(world: WorldArrays, at: Coordinates, end: FloatArray, names: Sequence[str]) -> str:
    x = at.standardised(end)
    for component, sign, threshold in world.walls.tolist():
        j = int(component)
        if sign * (x[j] - threshold) > 0.0:
            passed = at.mean[j] + at.scale[j] * threshold
            inward = "falls below" if sign < 0.0 else "rises above"
            word = "passes" if sign * passed >= 0.0 else inward
            return f"{_plain(names[j])} {word} {quantity(passed, names[j])}: the episode ends"
    told = {int(i) - 1 for i in world.terms.ravel() if i > 0}
    chosen = sorted(told)[:_MAX_TOLD]
    state = ", ".join(f"{_plain(names[j])} is {quantity(end[j], names[j])}" for j in chosen)
    return f"{state}: the episode ends" if state else "the episode ends"


def _told(at: Coordinates, states: FloatArray, names: Sequence[str]) -> str:
    """Say how the components that change most have changed."""
    change = np.abs(states[-1] - states[0]) / at.scale
    order = np.argsort(-change, kind="stable")[:_MAX_TOLD]
    chosen = [j for j in order.tolist() if change[j] > _TOLD] or order[:1].tolist()
    return ", ".join(
        f"{_plain(names[j])} goes from {quantity(states[0, j], names[j])} to "
        f"{quantity(states[-1, j], names[j])}"
        for j in sorted(chosen)
    )


def quantity(value: float, name: str) -> str:
    """Return a value with the unit that its component's name has in brackets.

    >>> quantity(0.20944, "pole angle (rad)"), quantity(-2.0, "speed")
    ('0.209 rad (12 degrees)', '-2')
    """
    unit = re.search(r"\(([^()]*)\)$", name)
    text = f"{value + 0.0:.3g}"
    if unit is None:
        return text
    if unit[1] == "rad":
        return f"{text} rad ({math.degrees(value):.3g} degrees)"
    return f"{text} {unit[1]}"


def _plain(name: str) -> str:
    """Return a name without its unit."""
    return re.sub(r" \([^()]*\)$", "", name)
