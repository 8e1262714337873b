"""Compiled steps of the fitted agent: choose an action by its policy, remember the outcome.

Its arrays: named state (:class:`FittedState`) with that of its environment, a workspace
(:mod:`oda_rl.agents.base.state`), a memory (:mod:`oda_rl.agents.base.memory`), a policy
(:mod:`oda_rl.agents.policies.cells`), and scratch for the numbers of its nearest cells.
"""

from typing import Annotated, Any, NamedTuple

from oda_rl._compile import compiled, integer, spliced
from oda_rl._state import reader
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.compiled_loop import Rule
from oda_rl.agents.base.engine import VectorStep
from oda_rl.agents.base.memory import Trajectory, begin, remember
from oda_rl.agents.base.state import (
    EPISODE_END,
    UNIFORMS,
    Counters,
    EnvState,
    Observations,
    Workspace,
    end_episode,
    load_point,
    workspace,
)
from oda_rl.agents.environments.validation import LARGEST_REWARD, NOT_FINITE
from oda_rl.agents.fitting.cells import N_NEAREST
from oda_rl.agents.policies.cells import decide
from oda_rl.diagram import LARGEST
from oda_rl.files.schema import COUNT, Span

# Further events.
REFIT = 256
ROOM = 512  # the memory is nearly full
NEXT_SCHEME = 1024  # the next episode may be explored in another way

FREE_ROWS = 4  # that a memory must have before a step


class FittedState(Counters):
    """Counts of a fitted agent, and parameters of its choices."""

    longest_hold: Annotated[int, Span("[1, inf)")]  # maximum steps of a random action
    drew: bool  # whether the last choice used a random number
    explored: bool  # whether the last choice was random
    new_steps: Annotated[int, Span(COUNT)]  # steps since the last fit
    needed: Annotated[int, Span("[1, inf)")]  # new steps for a refit at an episode's end
    latest: Annotated[int, Span("[1, inf)")]  # new steps for a refit at once
    epsilon: Annotated[float, Span("[0, 1]")]  # probability of a random decision
    width: Annotated[float, Span("(0, inf)")]  # width of the present policy


class Fitted(NamedTuple):
    """A fitted agent inside compiled code."""

    state: FittedState
    trajectory: Trajectory
    diagram: FloatArray
    models: FloatArray
    room: Workspace
    near: IntArray


state_of = reader(FittedState)
env_state_of = reader(EnvState, FittedState.size)
running_env_state = reader(EnvState)


@spliced
def opened(arrays: tuple[Any, ...], env: int) -> Fitted:
    """Name the arrays of an agent."""
    observations, steps, diagram, models, raw, room, near = arrays
    trajectory = Trajectory(observations, steps, env_state_of(raw, env))
    return Fitted(state_of(raw, 0), trajectory, diagram, models, workspace(room), near)


@spliced
def load(observation: Observations, to: Observations, room: Workspace) -> int:
    """Make an observation the current point; one beyond the memory's precision is bad, too."""
    event = load_point(observation, room, to.shape[1])
    if event == 0:
        for j in range(to.shape[1]):
            if not abs(to.dtype.type(observation[j])) <= LARGEST:
                event = NOT_FINITE
    return event


@spliced
def start(agent: Fitted, observation: Observations) -> int:
    """Begin or continue a trajectory at an observation; returns events."""
    event = load(observation, agent.trajectory.observations, agent.room)
    if event == 0:
        begin(agent.trajectory, observation)
    return event


@spliced
def choose(agent: Fitted) -> int:
    """Choose an action for the current point; or return minus the event that prevents it.

    One uniform number decides whether to explore, which action, for how many steps, and among
    equals. Without exploration the first of equals is chosen.
    """
    state, room, env_state = agent.state, agent.room, agent.trajectory.env_state
    state.drew = False
    action: int = env_state.action
    if env_state.held > 0:
        env_state.held -= 1
        return action
    i = state.next_uniform
    if i == room.uniforms.shape[0]:
        return -UNIFORMS
    state.next_uniform = i + 1
    state.drew = True
    uniform, epsilon = room.uniforms[i], state.epsilon
    state.explored = uniform < epsilon
    if uniform < epsilon:
        n_actions = agent.models.shape[1] - agent.diagram.shape[1]
        scaled = uniform / epsilon * n_actions
        action = integer(scaled)
        if action == n_actions:  # rounded up
            action -= 1
        share, least = scaled - action, 1.0 / state.longest_hold
        env_state.held = integer(1.0 / (share if share > least else least)) - 1
    else:
        among = (uniform - epsilon) / (1.0 - epsilon) if epsilon > 0.0 else 0.0
        policy, weights = (agent.diagram, agent.models, state.width), room.gradient[:N_NEAREST]
        action = decide(*policy, room.point, agent.near, weights, room.weights, among)[1]
    env_state.action = action
    return action


@spliced
def learn(
    agent: Fitted, observation: Observations, reward: float, terminated: bool, truncated: bool
) -> int:
    """Remember the outcome of the last action; return events."""
    event = load(observation, agent.trajectory.observations, agent.room)
    if event:
        return event
    if not abs(reward) <= LARGEST_REWARD:  # NaN too
        return NOT_FINITE
    return record(agent.state, agent.trajectory, observation, reward, terminated, truncated)


@spliced
def record(
    state: FittedState, to: Trajectory, vector: Observations, reward: float, terminated: bool,
    truncated: bool,
) -> int:  # fmt: skip
    """Do what :func:`learn` does, with values that have been checked."""
    env_state = to.env_state
    remember(to, reward, vector, terminated)
    state.steps += 1
    state.new_steps += 1
    env_state.episode_length += 1
    env_state.episode_return += reward
    events = 0
    if terminated or truncated:
        events = EPISODE_END | NEXT_SCHEME
        end_episode(state, env_state)
        env_state.held = 0
    if state.new_steps >= (state.needed if events else state.latest):
        events |= REFIT
    if env_state.last_row + FREE_ROWS >= to.observations.shape[0]:
        events |= ROOM
    return events


RULE = Rule("fitted", opened, start, choose, learn)


@compiled
def act(observation: Observations, *arrays: Any) -> int:
    """Choose an action for an observation; negative: minus the event that prevents it."""
    agent = opened(arrays, 0)
    event = start(agent, observation)
    return -event if event else choose(agent)


@compiled
def step(
    next_observation: Observations, reward: float, terminated: bool, truncated: bool, *arrays: Any
) -> int:
    """Remember the last action's outcome and choose the next one; or return minus events."""
    agent = opened(arrays, 0)
    events = learn(agent, next_observation, reward, terminated, truncated)
    return -events if events else choose(agent)


@compiled
def update(
    observation: Observations, action: int, reward: float, next_observation: Observations,
    terminated: bool, truncated: bool, *arrays: Any,
) -> int:  # fmt: skip
    """Remember one transition; returns events."""
    agent = opened(arrays, 0)
    event = start(agent, observation)
    if event:
        return event
    agent.trajectory.env_state.action = action
    return learn(agent, next_observation, reward, terminated, truncated)


@compiled
def record_all(taken: VectorStep, ended: FloatArray, arrays: tuple[Any, ...]) -> int:
    """Remember a step of all environments, unless a value is bad; return events.

    ``ended``, shape (n, 2), takes return and length of episodes that end; ``arrays`` are the states
    of the environments, their observations and steps, and state and workspace of the agent.
    """
    env_states_raw, observations, steps, raw, room = arrays
    state, space = state_of(raw, 0), workspace(room)
    after, rewards, learns = taken.after, taken.rewards, taken.learns
    terminated, truncated = taken.terminated, taken.truncated
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
    policy: tuple[FloatArray, FloatArray, FloatArray, float],
    how: tuple[float, int],
    arrays: tuple[Any, ...],
) -> int:
    """Choose an action in one of the environments; negative: minus the event that prevents it.

    ``policy`` is diagram, models, origin and width, ``how`` epsilon and the longest hold.
    """
    env_states_raw, observations, steps, raw, room, near = arrays
    diagram, models, origin, width = policy
    state, space = state_of(raw, 0), workspace(room)
    state.width, state.epsilon, state.longest_hold = width, how[0], how[1]
    for j in range(origin.shape[0]):
        space.origin[j] = origin[j]
    to = Trajectory(observations[env], steps[env], running_env_state(env_states_raw, env))
    agent = Fitted(state, to, diagram, models, space, near)
    event = start(agent, seen[env])
    return -event if event else choose(agent)
