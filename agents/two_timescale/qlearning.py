"""The fast timescale: Watkins' Q(λ) over cells, and an agent's bookkeeping, compiled.

A step of the environment is one call of :func:`learn` and one of :func:`choose`. The loop in Python
makes them through :func:`act`, :func:`update` and :func:`step`, the compiled loop directly
(:mod:`oda_rl.agents.base.compiled_loop`), several environments through :func:`step_together`: that
all of them give the same bits rests on it.

The state of an agent is a tuple of arrays:

``cells``, ``metric``, ``schedule``
    The arrays of the slow timescale, a :class:`~oda_rl.agents.partitions.base.Learner`.
``diagram``, shape (capacity, 1 + d)
    The cells; see :mod:`oda_rl.diagram`.
``table``, shape (3 + environments, capacity, actions)
    Layers: Q-values, number of updates, step size of the last update, and eligibility traces of
    each environment.
``raw``
    Named state: :class:`OnlineState`, and a :class:`~oda_rl.agents.base.state.EnvState` for each
    environment.
``room``, shape (5, at least max(capacity, d))
    Rows of a :class:`~oda_rl.agents.base.state.Workspace`.
``observations``, ``steps``, shape (environments, rows, d) and (environments, rows, 3)
    A ring of the latest transitions of each environment (:mod:`oda_rl.agents.base.memory`), from
    which the metric is learned; observations are points.

What compiled code cannot do itself it reports as events, bits of one integer.

No threshold says which return is good: an episode succeeds if it keeps 95 % of what the best
episode so far has gained over random play. That is the same whatever rewards are multiplied by.

References
----------
C. J. C. H. Watkins, "Learning from delayed rewards", PhD thesis, Cambridge, 1989: Q(λ).
C. N. Mavridis, J. S. Baras, "Annealing optimization for progressive learning with stochastic
approximation", algorithm 2: one-step Q-learning over annealed cells.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from oda_rl._compile import compiled, inlined, spliced
from oda_rl._state import Raw, reader
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.compiled_loop import Rule
from oda_rl.agents.base.memory import Trajectory, begin, remember
from oda_rl.agents.base.state import (
    EPISODE_END,
    UNIFORMS,
    Counters,
    EnvState,
    Workspace,
    end_episode,
    load_point,
    workspace,
)
from oda_rl.agents.environments.validation import LARGEST_REWARD, NOT_FINITE
from oda_rl.agents.partitions.base import INTERPRETED, Learner, observe, schedule_of
from oda_rl.agents.policies.contract import SETTLED_AFTER, SHORT, SMALLEST_TRACE
from oda_rl.agents.policies.table import greatest
from oda_rl.agents.two_timescale.trials import LONGEST_TRIAL
from oda_rl.diagram import assign
from oda_rl.files.schema import COUNT, FINITE, Span

# Layers of the table.
VALUES, VISITS, STEP_SIZES, TRACES = range(4)

# Phases: random play that gives the scale, learning, and a policy that succeeds and is kept.
WARMUP, LEARNING, FROZEN = range(3)

# Further events.
OBSERVE = 2  # the slow timescale, which is Python, is due to see the current point
RESHAPE = 4  # the slow timescale is due to split and merge its cells
RESTART = 8
WARM = 16  # random play is over


class OnlineState(Counters):
    """What an online agent counts, and its settings, which do not change."""

    n_cells: Annotated[int, Span("[1, capacity]")]
    """Present number of cells."""
    phase: Annotated[int, Span("[0, 2]")]
    """``WARMUP``, ``LEARNING`` or ``FROZEN``."""
    steps_since_start: Annotated[int, Span(COUNT)]
    """Steps since learning last began from nothing."""
    countdown: Annotated[int, Span(COUNT)]
    """Steps until the slow timescale sees a point."""
    learner_active: bool
    """Whether the slow timescale still learns."""
    streak: Annotated[int, Span("(-1000000000000000, 1000000000000000)")]
    """Episodes in a row that succeeded, or minus the number that fell short."""
    undecided: bool
    """Whether an episode that falls short now says little, because others go on for longer."""
    best_return: Annotated[float, Span("[-inf, inf)")]
    """Greatest return of an episode; minus infinity before the first."""
    best_at: Annotated[int, Span(COUNT)]
    """Steps when it was reached."""
    random_return: Annotated[float, Span(FINITE)]
    """Mean return of the episodes of random play, or the first return if none ended in it."""
    random_episodes: Annotated[int, Span(COUNT)]
    """Number of those episodes."""
    whitened: bool
    """Whether distances are whitened, because components are mixtures."""

    gamma: Annotated[float, Span("(0, 1]")]
    """Discount factor."""
    trace_decay: Annotated[float, Span("[0, 1]")]
    """λ."""
    step_exponent: Annotated[float, Span("[0, 1]")]
    """The n-th update has the step size n to minus this power."""
    min_step_size: Annotated[float, Span("(0, 1]")]
    """Lower bound of that step size."""
    exploration: Annotated[float, Span("[0, 1]")]
    """Probability of a random action at the start."""
    exploration_decay: Annotated[float, Span("(0, inf)")]
    """Steps after which it has halved."""
    observe_every: Annotated[int, Span("[1, inf)")]
    """Steps from one point that the slow timescale sees to the next."""
    solved_episodes: Annotated[int, Span(COUNT)]
    """Successes in a row that freeze the agent; 0: it never freezes."""
    restart_after: Annotated[int, Span(COUNT)]
    """Steps after which an agent that is stuck starts from nothing; 0: never."""
    warmup_steps: Annotated[int, Span(COUNT)]
    """Steps of random play."""


class Online(NamedTuple):
    """An online agent, and one of its environments, in compiled code."""

    state: OnlineState
    trajectory: Trajectory
    room: Workspace
    table: FloatArray
    diagram: FloatArray
    learner: Learner
    raw: Raw
    """Bytes of the state and of those of all environments."""


state_of = reader(OnlineState)
env_state_of = reader(EnvState, OnlineState.size)


@spliced
def unpack(arrays: tuple[Any, ...], env: int) -> Online:
    """Name the arrays of an agent, as one of its environments sees them."""
    cells, metric, schedule, diagram, table, raw, room, observations, steps = arrays
    trajectory = Trajectory(observations[env], steps[env], env_state_of(raw, env))
    learner = Learner(cells, metric, schedule)
    return Online(state_of(raw, 0), trajectory, workspace(room), table, diagram, learner, raw)


@spliced
def start(agent: Online, observation: FloatArray) -> int:
    """Go on from an observation, in whose cell the next action is taken; returns events."""
    event = load_point(observation, agent.room, agent.diagram.shape[1] - 1)
    if event == 0:
        begin(agent.trajectory, agent.room.point)
        agent.trajectory.env_state.cell = assign(
            agent.diagram, agent.state.n_cells, agent.room.point
        )
    return event


@spliced
def choose(agent: Online) -> int:
    """Epsilon-greedy action in the current cell, or minus the event that prevents it."""
    return explore(agent, greatest(agent.table[VALUES], agent.trajectory.env_state.cell))


@spliced
def explore(agent: Online, greedy_action: int) -> int:
    """Take an action at random, with the present probability, or else the greedy one.

    One uniform decides both whether to explore and, rescaled, which action.
    """
    state, env_state, uniforms = agent.state, agent.trajectory.env_state, agent.room.uniforms
    action = greedy_action
    if state.phase != FROZEN:
        i = state.next_uniform
        if i == uniforms.shape[0]:
            return -UNIFORMS
        state.next_uniform = i + 1
        uniform, epsilon = uniforms[i], epsilon_of(state)
        if uniform < epsilon:
            n_actions = agent.table.shape[2]
            action = int(uniform / epsilon * n_actions)
            if action == n_actions:  # rounded up
                action -= 1
    env_state.greedy_action = greedy_action
    env_state.action = action
    return action


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
def learn(
    agent: Online, observation: FloatArray, reward: float, terminated: bool, truncated: bool
) -> int:
    """Learn from what the last action led to; returns events.

    The observation is then the current point. A bad value changes nothing else.
    """
    state, env_state, point = agent.state, agent.trajectory.env_state, agent.room.point
    event = load_point(observation, agent.room, agent.diagram.shape[1] - 1)
    if event:
        return event
    if not abs(reward) <= LARGEST_REWARD:  # NaN too
        return NOT_FINITE
    state.steps += 1
    state.steps_since_start += 1
    env_state.episode_length += 1
    env_state.episode_return += reward
    remember(agent.trajectory, reward, point, terminated)
    next_cell = assign(agent.diagram, state.n_cells, point)
    events = 0
    if state.phase == LEARNING:
        update_values(agent, next_cell, reward, terminated)
        if state.learner_active:
            state.countdown -= 1
            if state.countdown == 0:
                state.countdown = state.observe_every
                events = show(agent)
                next_cell = assign(agent.diagram, state.n_cells, point)  # cells have moved
    elif state.phase == WARMUP and state.steps_since_start >= state.warmup_steps:
        events = WARM
    env_state.cell = next_cell
    if terminated or truncated:
        events |= judge_episode(agent)
    return events


@spliced
def update_values(agent: Online, next_cell: int, reward: float, terminated: bool) -> None:
    """Update the Q-values by one step of Watkins' Q(λ) with replacing traces.

    The traces of the cell's other actions are cleared (Singh and Sutton 1996), and all traces if
    the action was not greedy. The value after a terminal step is 0.
    """
    state, env_state, table = agent.state, agent.trajectory.env_state, agent.table
    cell, action = env_state.cell, env_state.action
    future = 0.0
    if not terminated:
        future = table[VALUES, next_cell, greatest(table[VALUES], next_cell)]
    error = reward + state.gamma * future - table[VALUES, cell, action]
    visits = table[VISITS, cell, action] + 1.0
    table[VISITS, cell, action] = visits
    step_size = max(visits**-state.step_exponent, state.min_step_size)
    table[STEP_SIZES, cell, action] = step_size
    if state.trace_decay == 0.0:
        table[VALUES, cell, action] += step_size * error
        return
    traces = table[TRACES + env_state.number]
    if action != env_state.greedy_action:
        traces[:] = 0.0
    traces[cell] = 0.0
    traces[cell, action] = 1.0
    decay = state.gamma * state.trace_decay
    values, step_sizes = table[VALUES].reshape(-1), table[STEP_SIZES].reshape(-1)
    flat_traces = traces.reshape(-1)
    # Each entry moves by the step size of its own last update: it falls with that entry's visits.
    for k in range(state.n_cells * table.shape[2]):
        values[k] += step_sizes[k] * flat_traces[k] * error
        trace = decay * flat_traces[k]
        flat_traces[k] = trace if trace > SMALLEST_TRACE else 0.0


@spliced
def show(agent: Online) -> int:
    """Show the current point to the slow timescale; returns events."""
    learner, room = agent.learner, agent.room
    if schedule_of(learner.schedule, 0).kind == INTERPRETED:
        return OBSERVE
    n_cells = agent.state.n_cells
    due = observe(agent.diagram, learner, n_cells, room.point, room.weights, room.gradient)
    return RESHAPE if due else 0


@spliced
def succeeds(state: OnlineState, episode_return: float) -> bool:
    """Whether a return is about as good as the best, as measured from random play."""
    best, gained = state.best_return, state.best_return - state.random_return
    return gained > 0.0 and episode_return >= best - SHORT * gained


@spliced
def judge_episode(agent: Online) -> int:
    """Compare the episode that ends with others, and freeze or learn by that; returns events."""
    state, env_state, table = agent.state, agent.trajectory.env_state, agent.table
    episode_return, events = env_state.episode_return, EPISODE_END
    if state.phase == WARMUP or state.random_episodes == 0:
        state.random_episodes += 1
        state.random_return += (episode_return - state.random_return) / state.random_episodes
    if episode_return > state.best_return:
        state.best_return = episode_return
        state.best_at = state.steps
    if state.phase != WARMUP:
        streak, wanted = state.streak, state.solved_episodes
        if succeeds(state, episode_return):
            streak = max(streak, 0) + 1
        elif not state.undecided:
            streak = min(streak, 0) - 1
            stuck = streak <= -wanted and 0 < state.restart_after < state.steps_since_start
            if stuck and state.phase == LEARNING:
                events |= RESTART
        state.streak = streak
        if wanted > 0 and table.shape[0] == TRACES + 1:  # several environments have their trials
            settled = state.phase == FROZEN or state.steps - state.best_at >= SETTLED_AFTER
            state.phase = FROZEN if streak >= wanted and settled else LEARNING
        table[TRACES + env_state.number] = 0.0
    end_episode(state, env_state)
    return events


RULE = Rule("online", unpack, start, choose, learn)


@compiled
def act(observation: FloatArray, arrays: tuple[Any, ...]) -> int:
    """Choose an action for an observation; negative: minus the event that prevents it."""
    agent = unpack(arrays, 0)
    event = start(agent, observation)
    return -event if event else choose(agent)


@compiled
def update(
    observation: FloatArray,
    action: int,
    reward: float,
    next_observation: FloatArray,
    terminated: bool,
    truncated: bool,
    arrays: tuple[Any, ...],
) -> int:
    """Learn from one transition; returns events."""
    agent = unpack(arrays, 0)
    event = start(agent, observation)
    if event:
        return event
    env_state = agent.trajectory.env_state
    env_state.action, env_state.greedy_action = (
        action,
        greatest(agent.table[VALUES], env_state.cell),
    )
    return learn(agent, next_observation, reward, terminated, truncated)


@compiled
def step(
    next_observation: FloatArray,
    reward: float,
    terminated: bool,
    truncated: bool,
    arrays: tuple[Any, ...],
) -> int:
    """Learn from the last action's outcome and choose the next action in one call.

    Negative: minus the events to attend to first; then :func:`act` chooses.
    """
    agent = unpack(arrays, 0)
    events = learn(agent, next_observation, reward, terminated, truncated)
    return -events if events else choose(agent)


@inlined
def outlasted(raw: Raw, env: int, n: int) -> bool:
    """Whether most other running episodes are longer than the one that ends in an environment.

    Of several episodes that began together those that fail are the first to end: they say little
    about a policy of which most others still go on.
    """
    longer = 0
    length = env_state_of(raw, env).episode_length + 1  # with the step that ends it
    for other in range(n):
        if other != env and env_state_of(raw, other).episode_length > length:
            longer += 1
    return 2 * longer >= n


@compiled
def step_together(
    first: int,
    learned: bool,
    taken: tuple[Any, ...],
    played: tuple[Any, ...],
    actions: IntArray,
    ended: FloatArray,
    arrays: tuple[Any, ...],
) -> tuple[int, int, int]:
    """Learn from a step of all environments, and choose the next actions, one after the other.

    Parameters
    ----------
    first, learned
        The environment to begin with, and whether its step has been learned from already: so it
        goes on after events.
    taken, played
        A :class:`~oda_rl.agents.base.engine.VectorStep`, and the policies that environments play:
        a :class:`~oda_rl.agents.two_timescale.trials.Played`.
    actions : ndarray, shape (n,)
        Written to.
    ended : ndarray, shape (n, 2)
        Return and length of an episode that ends are written here.

    Returns
    -------
    events, env, n_ended
        Events to attend to, and in which environment; or 0 and n. How many episodes have ended.
    """
    after, observations, rewards, terminated, truncated, learns, acts, begins = taken
    counts, diagrams, greedy = played
    n, n_ended = rewards.shape[0], 0
    for i in range(first, n):
        agent, resumed, events = unpack(arrays, i), learned and i == first, 0
        state = agent.state
        if learns[i] and not resumed:
            ends = terminated[i] or truncated[i]
            state.undecided = ends and outlasted(agent.raw, i, n)
            events = learn(agent, after[i], rewards[i], terminated[i], truncated[i])
            if events & EPISODE_END:
                events -= EPISODE_END
                n_ended += 1
                ended[i, 0], ended[i, 1] = state.last_return, state.last_length
        if events == 0 and acts[i]:
            if begins[i] or resumed:  # events may have moved the cells
                events = start(agent, observations[i])
            if events == 0:
                trial = counts[i] > 0 and agent.trajectory.env_state.episode_length <= LONGEST_TRIAL
                if trial and not begins[i]:
                    cell = assign(diagrams[i], counts[i], agent.room.point)
                    action = explore(agent, greedy[i, cell])
                else:
                    action = choose(agent)
                if action < 0:
                    events = -action
                else:
                    actions[i] = action
        if events:
            return events, i, n_ended
    return 0, n, n_ended


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
