"""The state that all agents share, by name, and the events by which compiled code asks for help.

Compiled code takes the state of an agent as a few flat arrays, because each costs a call from
Python some 45 ns. Its named state is one array of bytes: first the agent's own (a declaration
that begins with :class:`Counters`), then a :class:`EnvState` for each environment.
"""

from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from oda_rl._compile import integer, spliced
from oda_rl._state import Raw, State
from oda_rl._types import FloatArray
from oda_rl.agents.environments.validation import BAD_SHAPE, NOT_FINITE
from oda_rl.diagram import LARGEST
from oda_rl.files.schema import COUNT, FINITE, Member, Span, real

Observations = npt.NDArray[Any]
"""Of float32 or float64."""

# Events that all agents have; each may have more. Those of bad values are 64 and 128.
EPISODE_END = 1
UNIFORMS = 32  # the block of random numbers is used up


class Counters(State):
    """What an agent counts, whatever its rule."""

    steps: Annotated[int, Span(COUNT)]
    """Environment steps learned from."""
    next_uniform: Annotated[int, Span("[0, uniforms]")]
    """Which of the random numbers is due."""
    last_return: Annotated[float, Span(FINITE)]
    """Return of the last episode that ended."""
    last_length: Annotated[int, Span(COUNT)]
    """Its length."""


class EnvState(State):
    """What belongs to one environment."""

    last_row: Annotated[int, Span("[-1, rows)")]
    """Row of its memory that was written last; -1 before the first."""
    fresh: bool
    """Whether the row after that holds an observation from which a trajectory may begin."""
    cell: Annotated[int, Span("[0, cells)")]
    """Cell of the current point."""
    action: Annotated[int, Span("[0, actions)")]
    """The last action, from 0."""
    greedy_action: Annotated[int, Span("[0, actions)")]
    """What the greedy policy would have done."""
    episode_length: Annotated[int, Span(COUNT)]
    """Steps of the running episode."""
    held: Annotated[int, Span(COUNT)]
    """Steps for which the last action is still held, by agents that do so."""
    episode_return: Annotated[float, Span(FINITE)]
    """Return of the running episode so far."""
    number: Annotated[int, Span("[0, env_states)")]
    """Which of the environments it is."""


C = TypeVar("C", bound=Counters)


def with_env_states(kind: type[C], count: int) -> tuple[Raw, list[EnvState]]:
    """Make the bytes of an agent's state and of ``count`` environments before their first step."""
    raw = np.zeros(kind.size + count * EnvState.size, dtype=np.uint8)
    return raw, new_env_states(raw, kind.size)


def new_env_states(raw: Raw, begin: int = 0) -> list[EnvState]:
    """Return the consecutive states of environments, numbered, before their first step."""
    env_states = EnvState.each(raw, begin)
    for number, env_state in enumerate(env_states):
        env_state.last_row, env_state.number = -1, number
    return env_states


ROOM: dict[str, Member] = {
    "point": real("width", "[-inf, inf] or nan"),
    "weights": real("width", "[-inf, inf] or nan"),
    "gradient": real("width", "[-inf, inf] or nan"),
    "origin": real("width"),
    "uniforms": real("width", "[0, 1)"),
}
"""What a file may say of the rows of a :class:`Workspace`."""


class Workspace(NamedTuple):
    """Room for compiled code, rows of one array, each of at least max(cells, d) numbers."""

    point: FloatArray
    """The current point: an observation minus the origin."""
    weights: FloatArray
    """Scratch of learners, and for the values of actions."""
    gradient: FloatArray
    """Scratch of learners."""
    origin: FloatArray
    """Subtracted from observations."""
    uniforms: FloatArray
    """Random numbers for exploration, drawn in blocks: to hand a Generator to compiled code costs
    more than a whole step."""


@spliced
def workspace(room: FloatArray) -> Workspace:
    """Name the rows of the array."""
    return Workspace(room[0], room[1], room[2], room[3], room[4])


@spliced
def load_point(observation: Observations, room: Workspace, d: int) -> int:
    """Make an observation, minus the origin, the current point; returns an event if it is bad."""
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
    """Note return and length of the episode that ends, and begin to count the next one's."""
    counters.last_return = env_state.episode_return
    counters.last_length = env_state.episode_length
    env_state.episode_return = 0.0
    env_state.episode_length = 0
