"""Several environments of a fitted agent: their running episodes and policies.

An environment plays an episode to its end with the policy that was the newest when it began:
otherwise refits would leave no uninterrupted episode, by which policies are compared. Completed
trajectories are appended to the memory.
"""

from dataclasses import dataclass, replace

import numpy as np

from oda_rl._compile import compiled
from oda_rl._state import Raw, reader
from oda_rl._types import BoolArray, FloatArray
from oda_rl.agents.base.memory import COMPONENTS, Trajectory
from oda_rl.agents.base.state import EPISODE_END, EnvState, Observations, new_env_states, workspace
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import LARGEST_REWARD, NOT_FINITE
from oda_rl.agents.fitted.changes import Record
from oda_rl.agents.fitted.steps import Fitted, choose, load, record, start, state_of
from oda_rl.agents.policies.cells import CellPolicy

_FIRST_ROWS = 256

running_env_state = reader(EnvState)


@dataclass(frozen=True, eq=False)
class Playing:
    """How an episode is played."""

    policy: CellPolicy
    record: Record | None
    """Record of the returns; None if they are not those of this policy alone."""
    epsilon: float
    """Probability of a random decision."""
    longest_hold: int
    """Maximum number of steps for which one is held."""
    scheme: int
    """Scheme of exploration, or ``exploration.NONE``."""
    fits: int
    """Number of fits before."""


@compiled
def record_all(
    after: Observations,
    rewards: FloatArray,
    terminated: BoolArray,
    truncated: BoolArray,
    learns: BoolArray,
    ended: FloatArray,
    env_states_raw: Raw,
    observations: Observations,
    steps: FloatArray,
    raw: Raw,
    room: FloatArray,
) -> int:
    """Remember a step of all environments, unless a value is bad; return events.

    ``ended``, shape (n, 2), takes return and length of episodes that end.
    """
    state, space = state_of(raw, 0), workspace(room)
    for i in range(rewards.shape[0]):
        if learns[i]:
            event = load(after[i], observations[i], space)
            if not abs(rewards[i]) <= LARGEST_REWARD:  # NaN too
                event = NOT_FINITE
            if event:
                return event
    events = 0
    for i in range(rewards.shape[0]):
        if not learns[i]:
            continue
        to = Trajectory(observations[i], steps[i], running_env_state(env_states_raw, i))
        found = record(state, to, after[i], rewards[i], terminated[i], truncated[i])
        if found & EPISODE_END:
            ended[i, 0] = state.last_return
            ended[i, 1] = state.last_length
        events |= found
    return events


@compiled
def act_in(
    env: int,
    seen: Observations,
    diagram: FloatArray,
    models: FloatArray,
    origin: FloatArray,
    width: float,
    epsilon: float,
    longest_hold: int,
    env_states_raw: Raw,
    observations: Observations,
    steps: FloatArray,
    raw: Raw,
    room: FloatArray,
) -> int:
    """Choose an action in one of the environments; negative: minus the event that prevents it.

    ``seen``, shape (n, d), has the observations of all.
    """
    state, space = state_of(raw, 0), workspace(room)
    state.width, state.epsilon, state.longest_hold = width, epsilon, longest_hold
    for j in range(origin.shape[0]):
        space.origin[j] = origin[j]
    to = Trajectory(observations[env], steps[env], running_env_state(env_states_raw, env))
    agent = Fitted(state, to, diagram, models, space)
    event = start(agent, seen[env])
    if event:
        return -event
    return choose(agent)


class RunningEpisodes:
    """Running episodes of ``count`` environments, which all begin with ``playing``.

    Attributes
    ----------
    env_states : list of EnvState
        Counts of the running episodes.
    playing : list of Playing
        How each environment plays.
    arrays : tuple
        The bytes of ``env_states``, and a memory (:mod:`oda_rl.agents.base.memory`) for each
        environment.
    """

    def __init__(self, count: int, interface: Interface, playing: Playing) -> None:
        self.playing = [playing] * count
        env_states: Raw = np.zeros(count * EnvState.size, dtype=np.uint8)
        self.env_states = new_env_states(env_states)
        d, wide = interface.n_features, COMPONENTS + interface.n_components
        observations: Observations = np.zeros((count, _FIRST_ROWS, d), interface.dtype)
        steps: FloatArray = np.zeros((count, _FIRST_ROWS, wide))
        self.arrays = env_states, observations, steps

    def make_room(self) -> None:
        """Double the rows."""
        env_states, *memory = self.arrays
        observations, steps = (np.concatenate([a, np.zeros_like(a)], axis=1) for a in memory)
        self.arrays = env_states, observations, steps

    def rows(self, env: int) -> tuple[Observations, FloatArray]:
        """Return the observations and steps of a trajectory so far."""
        n = self.env_states[env].last_row + 1
        return self.arrays[1][env, :n], self.arrays[2][env, :n]

    def forget(self, env: int) -> None:
        """Begin a trajectory anew."""
        self.env_states[env].assign({"last_row": -1, "fresh": False, "held": 0})

    def give_no_credit(self) -> None:
        """Detach all running episodes from the records of policies."""
        self.playing = [replace(playing, record=None) for playing in self.playing]
