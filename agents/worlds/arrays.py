"""A learned world as arrays, and the room that compiled code needs beside them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray, IntArray

Single = npt.NDArray[np.float32]


class WorldArrays(NamedTuple):
    """A world for compiled code: E laws of equal right, d components, C codes of an action.

    Actions have codes: a discrete one is a one among zeros; a continuous one is (1, its units). An
    affine function of an action is then a linear one of its code.
    """

    boxed: bool
    """Whether actions are continuous."""
    frame: FloatArray
    """Rows that say for each component its mean (0 on a circle), standard deviation, least and
    greatest value that may be predicted, and then, of those that have only a few values, these
    (NaN beyond them), shape (4 + L, d)."""
    circles: IntArray
    """Pairs of components that are cosine and sine of an angle, shape (m, 2)."""
    laws: FloatArray
    """Global laws on (1, x, x xᵀ) or (1, x), shape (E, C, F, d)."""
    waves: Single
    """Sinusoids that all actions share: d frequencies, a phase, and d shares in the change of each,
    shape (E, 2 d + 1, S)."""
    codevectors: FloatArray
    """Cells of the states seen, shape (E, d, K)."""
    locals: FloatArray
    """What laws of the cells add, on (1, x - codevector), shape (E, K or 0, C, 1 + d, d)."""
    widths: FloatArray
    """Of the blending of cells, shape (E,)."""
    residuals: FloatArray
    """What the laws left unexplained, to be drawn from, shape (n or 0, d)."""
    rewards: FloatArray
    """Weights of the reward's features, shape (n,)."""
    bounds: FloatArray
    """Least and greatest reward seen, the least return seen, and the squared distance from the
    nearest cell that is too far to be believed, shape (4,)."""
    walls: FloatArray
    """Half-spaces in which an episode ends: rows (component, sign, threshold), shape (n, 3)."""
    terms: IntArray
    """Products of two components on which an end depends further, 0 standing for 1 and 1 + j for
    component j, shape (n, 2)."""
    hazards: FloatArray
    """Their weights, and the threshold, for each law, shape (E, n + 1)."""
    last: FloatArray
    """Remembered ends, standardised, and what was received there, shape (n, d + 1)."""
    conditions: FloatArray = np.zeros((0, 1))
    """Rows of clauses (:mod:`oda_rl.agents.rules.editing`), shape (R, 1 + d),"""
    clauses: IntArray = np.zeros((0, 2), dtype=np.int64)
    """up to which row each goes, and the action that it forbids, or -1, shape (n, 2),"""
    said: FloatArray = np.zeros((0, 1, 1))
    """and what those do that forbid nothing, as outputs of a rule."""


MEAN, SCALE, LOW, HIGH, LEVELS = range(5)  # rows of the frame


class Scratch(NamedTuple):
    """Room of compiled code."""

    s: FloatArray
    x: FloatArray
    after: FloatArray
    gaps: FloatArray
    code: FloatArray
    waves: Single


def scratch_for(world: WorldArrays) -> Scratch:
    """Make room for imagining in a world."""
    d = world.frame.shape[1]
    waves = np.empty(world.waves.shape[2], np.float32)
    return Scratch(
        np.zeros(d),
        np.zeros(d),
        np.zeros(d),
        np.zeros(world.codevectors.shape[2]),
        np.zeros(world.laws.shape[1]),
        waves,
    )
