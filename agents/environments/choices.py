"""Which actions are offered where they are not numbers."""

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

_MOST_ACTIONS = 1000


def grid_of(space: spaces.Box, bins: int) -> list[npt.NDArray[Any]]:
    """Return the values of each component, from its least to its greatest.

    >>> grid_of(spaces.Box(-2.0, 2.0, (1,)), 3)
    [array([-2.,  0.,  2.], dtype=float32)]
    """
    low, high = space.low.ravel(), space.high.ravel()
    kind = space.dtype if np.issubdtype(space.dtype, np.floating) else None
    return [np.linspace(a, b, bins, dtype=kind) for a, b in zip(low, high, strict=True)]


def action_choices(space: spaces.Space[Any], bins: int) -> npt.NDArray[Any]:
    """Return the actions to choose among, in the order of their numbers.

    Parameters and errors are those of :func:`oda_rl.agents.environments.adaptation.adapted`.
    """
    if isinstance(space, spaces.Box):
        if not space.is_bounded():
            raise ValueError(
                f"action_space is {space}: a grid of it needs bounds; gymnasium.wrappers."
                "RescaleAction or TransformAction can give it some"
            )
        axes = grid_of(space, bins)
    elif isinstance(space, spaces.MultiDiscrete):
        axes = [
            start + np.arange(n)
            for start, n in zip(space.start.ravel(), space.nvec.ravel(), strict=True)
        ]
    elif isinstance(space, spaces.MultiBinary):
        axes = [np.arange(2)] * math.prod(space.shape)
    else:
        raise TypeError(
            f"action_space is {space}: it must be Discrete, MultiDiscrete, MultiBinary or Box; "
            "gymnasium.wrappers.TransformAction can offer a choice of a few others as one"
        )
    count = math.prod(len(axis) for axis in axes)
    if count > _MOST_ACTIONS:
        raise ValueError(
            f"action_space is {space}: {count:,} combinations of its components are too many (at "
            f"most {_MOST_ACTIONS}); take fewer action_bins, or offer a choice of them by "
            "gymnasium.wrappers.TransformAction"
        )
    combinations = np.array(list(itertools.product(*axes)), dtype=space.dtype)
    return combinations.reshape(count, *space.shape)
