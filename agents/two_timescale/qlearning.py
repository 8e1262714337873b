"""The fast timescale: Watkins' Q(λ) over cells, and an agent's bookkeeping, compiled.

The same functions run inside the fused loops and, called once a step, in the Python loop; that both
give the same bits rests on it. The state of an agent is a few arrays:

``raw``
    Its named state, :class:`OnlineState`, and a lane for each environment
    (:mod:`oda_rl.agents.engine.state`).
``table``, shape (3 + environments, capacity, actions)
    Layers: Q-values, number of updates, step size of the last update, and eligibility traces of
    each environment.
``room``, shape (5, at least max(capacity, d))
    Rows of a :class:`~oda_rl.agents.engine.state.Workspace`.
``observations`` and ``steps``
    A ring of the latest transitions, from which the metric is learned: a memory as in
    :mod:`oda_rl.agents.engine.memory`, of points.

What compiled code cannot do itself it reports as events, bits of one integer.

Nobody says which return is good: an episode succeeds if it keeps what the best one so far has
gained over random play, but for a share of 5 %. That means the same whatever rewards are multiplied
with.

References
----------
C. J. C. H. Watkins, "Learning from delayed rewards", PhD thesis, Cambridge, 1989: Q(λ).
C. N. Mavridis, J. S. Baras, "Annealing optimization for progressive learning with stochastic
approximation", algorithm 2: one-step Q-learning over annealed cells.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from oda_rl._compile import compiled, integer, spliced
from oda_rl._schema import COUNT, FINITE, Span
from oda_rl._state import Raw, reader
from oda_rl._types import FloatArray
from oda_rl.agents.engine.memory import Trajectory, begin, remember
from oda_rl.agents.engine.state import (
    EPISODE_END,
    UNIFORMS,
    Counters,
    Lane,
    Workspace,
    end_episode,
    load_point,
    workspace,
)
from oda_rl.agents.environments.validation import LARGEST_REWARD, NOT_FINITE
from oda_rl.agents.policies.contract import SETTLED_AFTER, SHORT, SMALLEST_TRACE
from oda_rl.agents.policies.table import greatest
from oda_rl.diagram import assign

# Layers of the table.
VALUES, VISITS, STEP_SIZES, TRACES = range(4)

# Phases: random play to learn the scale, learning, and resting on a policy that succeeds.
WARMUP, LEARNING, FROZEN = range(3)

# Further events.
OBSERVE = 2  # the slow timescale is due to see the current point
RESHAPE = 4  # and, having seen it, to split and merge its cells
RESTART = 8
WARM = 16  # the random play is over


class OnlineState(Counters):
    """What an online agent counts, and its settings, which do not change."""

    n_cells: Annotated[int, Span("[1, capacity]")]
    """Cells that there are at present."""
    phase: Annotated[int, Span("[0, 2]")]
    """``WARMUP``, ``LEARNING`` or ``FROZEN``."""
    steps_since_start: Annotated[int, Span(COUNT)]
    """Steps since learning began, the last time from nothing."""
    countdown: Annotated[int, Span(COUNT)]
    """Steps until the slow timescale sees a point."""
    learner_active: bool
    """Whether it still wants to."""
    streak: Annotated[int, Span("(-1000000000000000, 1000000000000000)")]
    """Of episodes that succeed, or minus that of others."""
    undecided: bool
    """Whether others that go on say more than an episode that falls short."""
    best_return: Annotated[float, Span("[-inf, inf)")]
    """Greatest return of an episode; minus infinity before the first."""
    best_at: Annotated[int, Span(COUNT)]
    """Steps after which there was none greater."""
    random_return: Annotated[float, Span(FINITE)]
    """Mean return of random play: of the episodes that ended in it, or of the first one."""
    random_episodes: Annotated[int, Span(COUNT)]
    """How many these are."""
    whitened: bool
    """Whether components are no axes of the world, so that distances are whitened."""

    discount: Annotated[float, Span("(0, 1]")]
    """Discount factor."""
    trace_decay: Annotated[float, Span("[0, 1]")]
    """λ."""
    step_exponent: Annotated[float, Span("[0, 1]")]
    """The n-th update has the step size n to minus this power."""
    min_step_size: Annotated[float, Span("(0, 1]")]
    """But at least this one."""
    exploration: Annotated[float, Span("[0, 1]")]
    """Probability of a random action at the start."""
    exploration_decay: Annotated[float, Span("(0, inf)")]
    """Steps after which it has halved."""
    observe_every: Annotated[int, Span("[1, inf)")]
    """Steps from one point that the slow timescale sees to the next."""
    solved_episodes: Annotated[int, Span(COUNT)]
    """So many in a row let learning rest."""
    restart_after: Annotated[int, Span(COUNT)]
    """Steps after which an agent that is stuck starts from nothing; 0: never."""
    warmup_steps: Annotated[int, Span(COUNT)]
    """Steps of random play."""


class Online(NamedTuple):
    """An online agent inside compiled code."""

    state: OnlineState
    table: FloatArray
    diagram: FloatArray
    room: Workspace


state_of = reader(OnlineState)
lane_of = reader(Lane, OnlineState.size)


@spliced
def opened(diagram: FloatArray, table: FloatArray, raw: Raw, room: FloatArray) -> Online:
    """Name the arrays of an agent."""
    return Online(state_of(raw, 0), table, diagram, workspace(room))


@spliced
def greedy_action(table: FloatArray, cell: int) -> int:
    """Return the action of largest Q-value in a cell; the first of equals."""
    return greatest(table[VALUES], cell)


@spliced
def choose(agent: Online, lane: Lane) -> int:
    """Epsilon-greedy action for the current cell, or minus the event that prevents it."""
    return explore(agent, lane, greedy_action(agent.table, lane.cell))


@spliced
def epsilon_of(state: OnlineState) -> float:
    """Return the present probability of a random action."""
    epsilon = 0.0
    if state.phase == WARMUP:
        epsilon = 1.0
    elif state.phase == LEARNING:
        epsilon = state.exploration / (1.0 + state.steps_since_start / state.exploration_decay)
    return epsilon


@spliced
def explore(agent: Online, lane: Lane, best: int) -> int:
    """Choose an action with the random number that is due; ``best`` is the greedy one.

    One uniform decides both whether to explore and, rescaled, which action.
    """
    state, uniforms, n_actions = agent.state, agent.room.uniforms, agent.table.shape[2]
    action = best
    if state.phase != FROZEN:
        i = state.next_uniform
        if i == uniforms.shape[0]:
            return -UNIFORMS
        state.next_uniform = i + 1
        uniform, epsilon = uniforms[i], epsilon_of(state)
        if uniform < epsilon:
            action = integer(uniform / epsilon * n_actions)
            if action == n_actions:  # rounded up
                action -= 1
    lane.greedy_action = best
    lane.action = action
    return action


@spliced
def update_values(
    agent: Online, lane: Lane, next_cell: int, reward: float, terminated: bool
) -> None:
    """One step of Watkins' Q(λ) with replacing traces.

    The traces of the cell's other actions are cleared (Singh and Sutton 1996), and all traces if
    the action was not greedy. The value after a terminal step is 0.
    """
    state, table = agent.state, agent.table
    n_cells, cell, action = state.n_cells, lane.cell, lane.action
    n_actions = table.shape[2]
    target = reward
    if not terminated:
        best = greedy_action(table, next_cell)
        target += state.discount * table[VALUES, next_cell, best]
    error = target - table[VALUES, cell, action]
    visits = table[VISITS, cell, action] + 1.0
    table[VISITS, cell, action] = visits
    step_size = math.exp(-state.step_exponent * math.log(visits))  # half the time of **
    if step_size < state.min_step_size:
        step_size = state.min_step_size
    table[STEP_SIZES, cell, action] = step_size
    if state.trace_decay == 0.0:
        table[VALUES, cell, action] += step_size * error
        return
    traces = TRACES + lane.number
    if action != lane.greedy_action:
        clear_traces(table, n_cells, traces)
    for other in range(n_actions):
        table[traces, cell, other] = 0.0
    table[traces, cell, action] = 1.0
    decay = state.discount * state.trace_decay
    for k in range(n_cells):
        for b in range(n_actions):
            trace = table[traces, k, b]
            table[VALUES, k, b] += table[STEP_SIZES, k, b] * trace * error
            trace *= decay
            table[traces, k, b] = trace if trace > SMALLEST_TRACE else 0.0


@spliced
def clear_traces(table: FloatArray, n_cells: int, layer: int) -> None:
    """Forget which state-action pairs led here in the environment with that layer of traces."""
    for k in range(n_cells):
        for b in range(table.shape[2]):
            table[layer, k, b] = 0.0


@spliced
def learn_from(
    agent: Online,
    to: Trajectory,
    next_cell: int,
    reward: float,
    terminated: bool,
    truncated: bool,
) -> int:
    """Learn from the step that led to the current point, in ``next_cell``; returns events.

    Afterwards that is the current cell.
    """
    if not abs(reward) <= LARGEST_REWARD:  # NaN too
        return NOT_FINITE
    events = 0
    state, lane = agent.state, to.lane
    state.steps += 1
    state.steps_since_start += 1
    lane.episode_length += 1
    lane.episode_return += reward
    remember(to, reward, agent.room.point, terminated)
    phase = state.phase
    if phase == LEARNING:
        update_values(agent, lane, next_cell, reward, terminated)
        if state.learner_active:
            countdown = state.countdown - 1
            if countdown == 0:
                countdown = state.observe_every
                events = OBSERVE
            state.countdown = countdown
    elif phase == WARMUP and state.steps_since_start >= state.warmup_steps:
        events = WARM
    lane.cell = next_cell
    if terminated or truncated:
        events |= _end_episode(agent, lane)
    return events


@spliced
def succeeds(state: OnlineState, episode_return: float) -> bool:
    """Whether a return is about as good as the best, as measured from random play."""
    best, gained = state.best_return, state.best_return - state.random_return
    return gained > 0.0 and episode_return >= best - SHORT * gained


@spliced
def _compare(state: OnlineState, episode_return: float) -> None:
    """Note the return of an episode among those that others are judged by."""
    if state.phase == WARMUP or state.random_episodes == 0:
        state.random_episodes += 1
        more = episode_return - state.random_return
        state.random_return += more / state.random_episodes
    if episode_return > state.best_return:
        state.best_return = episode_return
        state.best_at = state.steps


@spliced
def _end_episode(agent: Online, lane: Lane) -> int:
    events = EPISODE_END
    state, table, phase = agent.state, agent.table, agent.state.phase
    _compare(state, lane.episode_return)
    if phase != WARMUP:
        streak, wanted = state.streak, state.solved_episodes
        if succeeds(state, lane.episode_return):
            streak = 1 if streak < 0 else streak + 1
        elif not state.undecided:
            streak = -1 if streak > 0 else streak - 1
            after = state.restart_after
            if phase == LEARNING and streak <= -wanted and 0 < after < state.steps_since_start:
                events |= RESTART
        state.streak = streak
        if wanted > 0 and table.shape[0] == TRACES + 1:  # several environments have their trials
            settled = phase == FROZEN or state.steps - state.best_at >= SETTLED_AFTER
            state.phase = FROZEN if streak >= wanted and settled else LEARNING
        clear_traces(table, state.n_cells, TRACES + lane.number)
    end_episode(state, lane)
    return events


@spliced
def begin_at(agent: Online, to: Trajectory, observation: FloatArray) -> int:
    """Make an observation the current point and find its cell; returns an event if it is bad."""
    event = load_point(observation, agent.room, agent.diagram.shape[1] - 1)
    if event == 0:
        begin(to, agent.room.point)
        to.lane.cell = assign(agent.diagram, agent.state.n_cells, agent.room.point)
    return event


@compiled
def act(
    observation: FloatArray,
    diagram: FloatArray,
    table: FloatArray,
    raw: Raw,
    room: FloatArray,
    observations: FloatArray,
    steps: FloatArray,
) -> int:
    """Choose an action for an observation; negative: minus the event that prevents it."""
    agent, lane = opened(diagram, table, raw, room), lane_of(raw, 0)
    event = begin_at(agent, Trajectory(observations, steps, lane), observation)
    return -event if event else choose(agent, lane)


@compiled
def update(
    observation: FloatArray,
    action: int,
    reward: float,
    next_observation: FloatArray,
    terminated: bool,
    truncated: bool,
    diagram: FloatArray,
    table: FloatArray,
    raw: Raw,
    room: FloatArray,
    observations: FloatArray,
    steps: FloatArray,
) -> int:
    """Learn from one transition; returns events."""
    agent, lane = opened(diagram, table, raw, room), lane_of(raw, 0)
    to = Trajectory(observations, steps, lane)
    event = begin_at(agent, to, observation)
    if event:
        return event
    event = load_point(next_observation, agent.room, diagram.shape[1] - 1)
    if event:
        return event
    lane.action = action
    lane.greedy_action = greedy_action(table, lane.cell)
    next_cell = assign(diagram, agent.state.n_cells, agent.room.point)
    return learn_from(agent, to, next_cell, reward, terminated, truncated)


@compiled
def step(
    next_observation: FloatArray,
    reward: float,
    terminated: bool,
    truncated: bool,
    diagram: FloatArray,
    table: FloatArray,
    raw: Raw,
    room: FloatArray,
    observations: FloatArray,
    steps: FloatArray,
) -> int:
    """Learn from the last action's outcome and choose the next action in one call.

    Negative: minus the events to attend to first; then :func:`act` chooses.
    """
    agent, lane = opened(diagram, table, raw, room), lane_of(raw, 0)
    events = load_point(next_observation, agent.room, diagram.shape[1] - 1)
    if events == 0:
        to = Trajectory(observations, steps, lane)
        next_cell = assign(diagram, agent.state.n_cells, agent.room.point)
        events = learn_from(agent, to, next_cell, reward, terminated, truncated)
    return -events if events else choose(agent, lane)


def carry_table(table: FloatArray, lineage: FloatArray) -> None:
    """Move the table along a lineage, shape (new cells, old cells).

    A new cell's Q-value is the average of those of the cells it comes from, by their updates (by
    the lineage's weights where there were none). Updates are added up, but start again from 0
    where a cell was split; all traces are cleared. Step sizes are set by the next updates.
    """
    n_new, n_old = lineage.shape
    values, visits = table[VALUES, :n_old], table[VISITS, :n_old]
    parents = (lineage > 0.0).astype(np.float64)
    whole = parents.sum(axis=0) <= 1.0
    weights = parents @ visits
    averages = (lineage @ values) / lineage.sum(axis=1, keepdims=True)
    np.divide(parents @ (visits * values), weights, out=averages, where=weights > 0.0)
    added = parents @ (visits * whole[:, None])
    table[VALUES, :n_new] = averages
    table[VISITS, :n_new] = added
    table[TRACES:] = 0.0
