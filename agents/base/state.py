"""Named state that all agents share, and the events that compiled code leaves to Python.

Compiled code takes the state of an agent as a few flat arrays, because each adds about 45 ns to a
call from Python. Named state is one array of bytes: first the agent's (a declaration that begins
with :class:`Counters`), then a :class:`EnvState` for each environment.
"""

from typing import Annotated, NamedTuple, TypeVar

import numpy as np

from oda_rl._compile import integer, spliced
from oda_rl._state import Raw, State
from oda_rl._types import Array, FloatArray
from oda_rl.agents.environments.validation import BAD_SHAPE, NOT_FINITE
from oda_rl.diagram import LARGEST
from oda_rl.files.schema import COUNT, FINITE, Span, members_of, real

Observations = Array  # an array of float32 or float64

# Events of all agents; each may have more. Those of bad values are 64 and 128.
EPISODE_END = 1
UNIFORMS = 32  # the block of random numbers is used up


class Counters(State):
    """Counters that every agent has."""

    steps: Annotated[int, Span(COUNT)]  # environment steps learned from
    next_uniform: Annotated[int, Span("[0, uniforms]")]  # index of the next random number
    last_return: Annotated[float, Span(FINITE)]  # return of the last finished episode
    last_length: Annotated[int, Span(COUNT)]  # length of the last finished episode


class EnvState(State):
    """State of one environment."""

    last_row: Annotated[int, Span("[-1, rows)")]  # last row written in its memory, or -1
    fresh: bool  # whether the next row holds the start of a trajectory
    action: Annotated[int, Span("[0, actions)")]  # the last action, from 0
    episode_length: Annotated[int, Span(COUNT)]  # steps of the running episode
    held: Annotated[int, Span(COUNT)]  # further steps in which the last action is repeated
    episode_return: Annotated[float, Span(FINITE)]  # return of the running episode so far
    number: Annotated[int, Span("[0, env_states)")]  # index of the environment


C = TypeVar("C", bound=Counters)


def with_env_states(kind: type[C], count: int) -> tuple[Raw, list[EnvState]]:
    """Make an agent's state and that of ``count`` environments before their first step."""
    raw = np.zeros(kind.size + count * EnvState.size, dtype=np.uint8)
    return raw, new_env_states(raw, kind.size)


def new_env_states(raw: Raw, begin: int = 0) -> list[EnvState]:
    """Return numbered states of environments before their first step, from ``begin`` on."""
    env_states = EnvState.each(raw, begin)
    for number, env_state in enumerate(env_states):
        env_state.last_row, env_state.number = -1, number
    return env_states


_ANY = real("width", "[-inf, inf] or nan")  # of scratch


class Workspace(NamedTuple):
    """Scratch arrays for compiled code: rows of one array, of at least max(cells, d) numbers."""

    point: Annotated[FloatArray, _ANY]  # the current point: an observation minus the origin
    weights: Annotated[FloatArray, _ANY]  # scratch for learners and for the values of actions
    gradient: Annotated[FloatArray, _ANY]  # scratch for learners
    origin: Annotated[FloatArray, real("width")]  # subtracted from observations
    uniforms: Annotated[FloatArray, real("width", "[0, 1)")]
    """Random numbers for exploration, drawn in blocks: passing a Generator to compiled code takes
    longer than a step."""


ROOM = members_of(Workspace)  # its rows in a file


@spliced
def workspace(room: FloatArray) -> Workspace:
    """Name the rows of an array."""
    return Workspace(room[0], room[1], room[2], room[3], room[4])


@spliced
def load_point(observation: Observations, room: Workspace, d: int) -> int:
    """Write an observation minus the origin to the current point; return an event if it is bad."""
    if observation.shape[0] != d:
        return BAD_SHAPE
    event = integer(0)
    for j in range(d):
        value = observation[j] - room.origin[j]
        room.point[j] = value
        if not abs(value) <= LARGEST:  # NaN too
            event = NOT_FINITE
    return event


@spliced
def end_episode(counters: Counters, env_state: EnvState) -> None:
    """Record return and length of the episode that ends, and reset them."""
    counters.last_return = env_state.episode_return
    counters.last_length = env_state.episode_length
    env_state.episode_return = 0.0
    env_state.episode_length = 0
