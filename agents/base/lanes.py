"""Several environments at once: what a step of them is, as compiled code takes it."""

from typing import Any, NamedTuple

import numpy.typing as npt

from oda_rl._types import BoolArray, FloatArray


class VectorStep(NamedTuple):
    """A step of n environments; not all of them need have made one."""

    after: npt.NDArray[Any]
    """What the step led to: shape (n, d), of float32 or float64, as are the observations."""
    observations: npt.NDArray[Any]
    """What to act on next: another where an episode has begun since. Shape (n, d)."""
    rewards: FloatArray
    """Shape (n,), as all of the following."""
    terminated: BoolArray
    truncated: BoolArray
    learns: BoolArray
    """Which environments have made a step."""
    acts: BoolArray
    """Which ones need an action."""
    begins: BoolArray
    """Which of those begin an episode."""
