"""What imagined steps lead to, in words."""

import math
import re
from collections.abc import Sequence

import numpy as np

from oda_rl._types import BoolArray, FloatArray
from oda_rl.agents.worlds.arrays import WorldArrays
from oda_rl.agents.worlds.coordinates import Coordinates
from oda_rl.agents.worlds.trajectories import Imagined

_MOST_TOLD = 4  # components
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
    chosen = sorted(told)[:_MOST_TOLD]
    state = ", ".join(f"{_plain(names[j])} is {quantity(end[j], names[j])}" for j in chosen)
    return f"{state}: the episode ends" if state else "the episode ends"


def _told(at: Coordinates, states: FloatArray, names: Sequence[str]) -> str:
    """Say how the components that change most have changed."""
    change = np.abs(states[-1] - states[0]) / at.scale
    order = np.argsort(-change, kind="stable")[:_MOST_TOLD]
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
