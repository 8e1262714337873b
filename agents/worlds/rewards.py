"""Rewards: a linear law of simple features of a step."""

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.worlds.coordinates import Coordinates
from oda_rl.agents.worlds.laws import solve

_RIDGE = 1e-7
_CONSTANT = 1e-9  # relative spread of rewards that are all equal
_UNEXPLAINED = 0.1  # share of the rewards' variance that states may account for
_MAX = 8_000  # steps to learn from


def features(
    at: Coordinates, before: FloatArray, codes: FloatArray, after: FloatArray, boxed: bool
) -> FloatArray:
    """Return the features of steps, shape (n, ·), in the order of compiled code.

    The action's code, squares of continuous actions; of the observations before and after the step,
    in standard deviations, each component, its absolute value, all products; squared angles.
    """
    columns = [codes]
    if boxed:
        columns.append(codes[:, 1:] ** 2)
    for observations in (before, after):
        z = observations / at.scale
        for j in range(z.shape[1]):
            columns += [z[:, j : j + 1], np.abs(z[:, j : j + 1]), z[:, j : j + 1] * z[:, j:]]
        columns += [
            np.arctan2(observations[:, k], observations[:, i])[:, None] ** 2 for i, k in at.circles
        ]
    return np.concatenate(columns, axis=1)


def is_constant(rewards: FloatArray) -> bool:
    """Whether rewards are all equal, but for rounding."""
    return len(rewards) == 0 or bool(np.ptp(rewards) <= _CONSTANT * np.abs(rewards).max())


def depends_on_actions_alone(codes: FloatArray, rewards: FloatArray) -> bool:
    """Whether actions explain rewards without the states in which they are taken.

    >>> codes = np.column_stack([np.ones(5), np.linspace(-1.0, 1.0, 5)])
    >>> [depends_on_actions_alone(codes, y) for y in (-(codes[:, 1] ** 2), np.arange(5.0) % 2)]
    [True, False]
    """
    columns = np.column_stack([codes, codes**2])
    left = rewards - columns @ np.linalg.lstsq(columns, rewards)[0]
    return bool(left.var() <= _UNEXPLAINED * rewards.var())


def fit_rewards(
    at: Coordinates,
    before: FloatArray,
    codes: FloatArray,
    after: FloatArray,
    rewards: FloatArray,
    boxed: bool,
    rng: np.random.Generator,
) -> FloatArray:
    """Return the weights of the features; of the code alone where all rewards are equal.

    Parameters
    ----------
    at : Coordinates
    before, after : ndarray, shape (n, d)
        Observations of steps after which the episode went on.
    codes : ndarray, shape (n, C)
    rewards : ndarray, shape (n,)
    boxed : bool
        Whether actions are continuous.
    rng : numpy.random.Generator
        Draws a sample of too many steps.
    """
    if is_constant(rewards):
        constant = float(rewards.mean()) if len(rewards) else 0.0
        return np.array([constant, *[0.0 if boxed else constant] * (codes.shape[1] - 1)])
    rows = np.arange(len(rewards))
    if len(rows) > _MAX:
        rows = rng.choice(rows, _MAX, replace=False)
    columns = features(at, before[rows], codes[rows], after[rows], boxed)
    return solve(columns.T @ columns, columns.T @ rewards[rows], _RIDGE)
