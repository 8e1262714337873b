"""Memory of trajectories in two arrays, which compiled code writes and reads.

Row i of ``observations``, shape (capacity, d), and ``steps``, shape (capacity, 3), holds an
observation and the step taken from it, (action, reward, ``GOES_ON``); the next row holds the
observation after the step. The last row of a trajectory has no step, but the mark ``TERMINAL``,
with value 0, or ``CUT``, with a value to estimate. So each observation is stored once.

The :class:`~oda_rl.agents.base.state.EnvState` of the environment says which row was written last,
and whether the next one holds the start of a trajectory.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled, integer, spliced
from oda_rl._types import BoolArray, FloatArray
from oda_rl.agents.base.state import EnvState, Observations
from oda_rl.files.schema import Member, real, require

ACTION, REWARD, MARK, COMPONENTS = range(4)
UNUSED, GOES_ON, TERMINAL, CUT = 0.0, 1.0, 2.0, 3.0

SCHEMA: dict[str, Member] = {
    "memory_observations": real("rows, d"),
    "memory_steps": real("rows, 3+p"),
    "memory_keys": real("episodes_kept", "[0, 1)"),
    "memory_highest_key": real("", "(0, 1]"),
}  # members of a file; in single precision where the environment's observations are

_FIRST_CAPACITY = 1024
_MARGIN = 4  # free rows: an episode of one step takes two


class Trajectory(NamedTuple):
    """Arrays for compiled code to write the steps of one environment to."""

    observations: Observations
    steps: FloatArray
    env_state: EnvState


@spliced
def begin(to: Trajectory, vector: Observations) -> None:
    """Write the observation from which the next step starts, unless the last row holds it."""
    observations, last = to.observations, to.env_state.last_row
    if last >= 0 and to.steps[last, MARK] == CUT:
        differing = integer(0)
        for j in range(observations.shape[1]):
            if observations[last, j] != observations.dtype.type(vector[j]):
                differing += 1
        if differing == 0:
            to.env_state.fresh = False
            return
    for j in range(observations.shape[1]):
        observations[last + 1, j] = vector[j]
    to.env_state.fresh = True


@spliced
def remember(to: Trajectory, reward: float, vector: Observations, terminated: bool) -> None:
    """Write the last action and its outcome; ``vector`` is the observation after the step."""
    observations, steps, env_state = to.observations, to.steps, to.env_state
    row = env_state.last_row + env_state.fresh
    env_state.fresh = False
    steps[row, ACTION] = env_state.action
    steps[row, REWARD] = reward
    steps[row, MARK] = GOES_ON
    row += 1
    for j in range(observations.shape[1]):
        observations[row, j] = vector[j]
    steps[row, ACTION] = -1.0
    steps[row, REWARD] = 0.0
    steps[row, MARK] = TERMINAL if terminated else CUT
    env_state.last_row = row


def check_steps(name: str, steps: FloatArray, n_actions: int) -> None:
    """Raise InvalidFileError unless marks and actions, which compiled code trusts, are valid."""
    marks, actions = steps[:, MARK], steps[:, ACTION]
    require(np.isin(marks, (UNUSED, GOES_ON, TERMINAL, CUT)).all(), f"{name} has an unknown mark")
    lowest = np.where(marks == GOES_ON, 0.0, -1.0)
    right = (actions >= lowest) & (actions < n_actions) & (actions == np.floor(actions))
    require(right.all(), f"{name} has an action that there is not: from 0 to {n_actions - 1}")


@compiled
def discounted_returns(
    steps: FloatArray, gamma: float, after_cut: float
) -> tuple[float, float, float]:
    """Return the highest discounted return so far, and upper and lower bounds of all; or 0.

    Truncated trajectories go on with ``after_cut``; for the bounds, with the same steps again.
    """
    greatest, high, low = 0.0, 0.0, 0.0
    future, weight = 0.0, 0.0
    for i in range(steps.shape[0] - 1, -1, -1):
        mark = steps[i, MARK]
        if mark != GOES_ON:
            future, weight = 0.0, (1.0 if mark == CUT else 0.0)
            continue
        future = steps[i, REWARD] + gamma * future
        weight *= gamma
        greatest = max(greatest, future + weight * after_cut)
        high = max(high, future / (1.0 - weight))
        low = min(low, future / (1.0 - weight))
    return greatest, high, low


class Memory:
    """All trajectories, or a bounded uniform sample of complete ones.

    With ``max_steps``, each trajectory has a random key, and as many as fit are kept, by the lowest
    keys. Keys above one that was ever dropped are dropped, so that old and new trajectories are
    equally likely to be there. The latest always is. ``steps`` have ``n_components`` columns more
    for continuous actions, from ``COMPONENTS`` on.
    """

    def __init__(
        self,
        n_features: int,
        dtype: npt.DTypeLike,
        max_steps: int | None,
        rng: np.random.Generator,
        n_components: int = 0,
    ) -> None:
        self.observations: Observations = np.zeros((_FIRST_CAPACITY, n_features), dtype)
        self.steps: FloatArray = np.zeros((_FIRST_CAPACITY, COMPONENTS + n_components))
        self.max_steps = max_steps
        self._rng = rng
        self._keys: FloatArray = np.zeros(0)  # of finished trajectories, in their order
        self._highest_key = 1.0  # trajectories with higher keys are dropped

    def rows(self, env_state: EnvState) -> int:
        """Return the number of rows written."""
        return env_state.last_row + 1

    def make_room(self, env_state: EnvState, more: int = 0) -> bool:
        """Make room for ``more`` rows and a few; return whether the arrays were replaced."""
        capacity, needed = len(self.observations), self.rows(env_state) + more + _MARGIN
        if needed <= capacity:
            return False
        self._resize(max(capacity + capacity // 2, needed), self.observations, self.steps)
        return True

    def _resize(self, capacity: int, observations: Observations, steps: FloatArray) -> None:
        """Replace the arrays by larger ones that begin with these rows."""
        for name, rows in (("observations", observations), ("steps", steps)):
            old = getattr(self, name)
            new = np.zeros((capacity, *old.shape[1:]), old.dtype)
            new[: len(rows)] = rows
            setattr(self, name, new)

    def append(self, observations: Observations, steps: FloatArray, env_state: EnvState) -> None:
        """Append a trajectory from elsewhere, shape (n, d) and (n, 3)."""
        self.make_room(env_state, len(steps))
        begin = self.rows(env_state)
        self.observations[begin : begin + len(steps)] = observations
        self.steps[begin : begin + len(steps)] = steps
        env_state.last_row += len(steps)

    def thin_out(self, env_state: EnvState) -> BoolArray | None:
        """Drop complete trajectories if there are too many; return which rows stay, or None."""
        n = self.rows(env_state)
        if self.max_steps is None or n == 0:
            return None
        ends = np.flatnonzero(self.steps[: n - 1, MARK] != GOES_ON) + 1  # the last one may go on
        new = self._rng.random(len(ends) - len(self._keys))
        self._keys = np.concatenate([self._keys, new])
        lengths = np.diff(np.concatenate([[0], ends, [n]]))
        if n - len(lengths) <= self.max_steps and self._highest_key == 1.0:
            return None
        order = np.concatenate([[len(ends)], np.argsort(self._keys)])
        fits = np.cumsum(lengths[order] - 1) <= self.max_steps
        fits[1:] &= self._keys[order[1:]] < self._highest_key
        fits[0] = True
        kept = np.zeros(len(lengths), dtype=np.bool_)
        kept[order[fits]] = True
        dropped = self._keys[~kept[:-1]]
        self._highest_key = min(self._highest_key, float(dropped.min(initial=1.0)))
        self._keys = self._keys[kept[:-1]]
        rows = np.repeat(kept, lengths)
        m = int(rows.sum())
        for array in (self.observations, self.steps):
            start = array[n].copy()  # may hold the start of the next trajectory
            array[:m] = array[:n][rows]
            array[m] = start
        env_state.last_row = m - 1
        return rows

    def forget(self, max_steps: int, env_state: EnvState) -> tuple[int, int]:
        """Keep the latest trajectories, at most ``max_steps``; return their number and steps."""
        n = self.rows(env_state)
        ends = np.flatnonzero(self.steps[: n - 1, MARK] != GOES_ON) + 1  # the last one may go on
        begins = np.concatenate([[0], ends])
        steps = n - begins - np.arange(len(begins), 0, -1)  # from each on
        first = min(int(np.searchsorted(-steps, -max_steps)), len(ends))
        begin = int(begins[first])
        for array in (self.observations, self.steps):
            array[: n + 1 - begin] = array[begin : n + 1].copy()  # and the start of the next one
        env_state.last_row = n - 1 - begin
        self._keys = self._keys[first:] / self._highest_key  # as if none had been dropped
        self._highest_key = 1.0
        return len(begins) - first, int(steps[first])

    def state(self, env_state: EnvState) -> dict[str, Observations]:
        """Return all arrays to save."""
        n = self.rows(env_state) + 1  # with a start that may be written there
        return {
            "observations": self.observations[:n],
            "steps": self.steps[:n],
            "keys": self._keys,
            "highest_key": np.array(self._highest_key),
        }

    def restore(self, state: Mapping[str, Observations]) -> None:
        n = len(state["observations"])
        self._resize(max(_FIRST_CAPACITY, n + n // 2), state["observations"], state["steps"])
        self._keys = np.array(state["keys"])
        self._highest_key = float(state["highest_key"])
