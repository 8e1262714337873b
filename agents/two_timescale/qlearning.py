"""The fast timescale: Watkins' Q(λ) over cells, and an agent's bookkeeping, compiled.

The same functions run inside the fused loops and, called once a step, in the Python loop; that both
give the same bits rests on it. The state of an agent is a few arrays:

``table``, shape (3 + environments, capacity, actions)
    Layers: Q-values, number of updates, step size of the last update, and eligibility traces of
    each environment.
``clock``
    Integers that the kernels read and count, by the slots below. The first ones, and the episode's
    return, are those of one environment; with several, ``oda_rl.agents.engine.lanes`` exchanges
    them.
``vectors``, shape (6, at least max(capacity, d))
    The current point; the origin that is subtracted from observations; two rows of scratch for the
    learner; the settings, by the slots below; and random numbers for exploration, drawn in blocks
    because handing a Generator to compiled code costs more than a whole step.
``observations`` and ``steps``
    A ring of the latest transitions, from which the metric is learned: a memory as in
    :mod:`oda_rl.agents.engine.memory`, of points.

Few arrays, because each costs a call from Python some 45 ns.

What compiled code cannot do itself it reports as events, bits of one integer.

References
----------
C. J. C. H. Watkins, "Learning from delayed rewards", PhD thesis, Cambridge, 1989: Q(λ).
C. N. Mavridis, J. S. Baras, "Progressive learning and reinforcement learning by online
deterministic annealing", algorithm 2: with λ = 0.
"""

import math

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled, integer, internal, spliced
from oda_rl.agents.engine.memory import Observations, begin, remember
from oda_rl.diagram import assign

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Layers of the table.
VALUES, VISITS, STEP_SIZES, TRACES = range(4)

# Slots of the settings.
(
    DISCOUNT,
    TRACE_DECAY,
    STEP_EXPONENT,
    MIN_STEP_SIZE,
    EXPLORATION,
    EXPLORATION_DECAY,
    SOLVED_RETURN,
    EPISODE_RETURN,
    LAST_RETURN,
) = range(9)

# Slots of the clock: first those that each environment has of its own,
(
    CELL,
    ACTION,
    GREEDY_ACTION,
    EPISODE_LENGTH,
    HELD,  # steps for which the last action is still held, by agents that do so
) = range(2, 7)  # the first two are the memory's
N_OWN = 7
# then those of all.
(
    LANE,  # number of the environment, of several
    UNDECIDED,  # whether others that go on say more than an episode that falls short
    N_CELLS,
    STEPS,
    STEPS_SINCE_START,
    LAST_LENGTH,
    NEXT_UNIFORM,
    COUNTDOWN,
    OBSERVE_EVERY,
    LEARNER_ACTIVE,
    PHASE,
    STREAK,  # of solved episodes, or minus that of others
    SOLVED_EPISODES,
    RESTART_AFTER,
    WARMUP_STEPS,
) = range(N_OWN, N_OWN + 15)
N_CLOCK = N_OWN + 15

# Phases: random play to learn the scale, learning, and resting on a policy that solves the task.
WARMUP, LEARNING, FROZEN = range(3)

# Rows of the vectors.
POINT, ORIGIN, WEIGHTS, GRADIENT, SETTINGS, UNIFORM = range(6)
N_VECTORS = 6

# Events.
EPISODE_END = 1
OBSERVE = 2  # the slow timescale is due to see the current point
RESHAPE = 4  # and, having seen it, to split and merge its cells
RESTART = 8
WARM = 16  # the random play is over
UNIFORMS = 32  # the block of random numbers is used up
BAD_SHAPE = 64
NOT_FINITE = 128

SMALLEST_TRACE = 1e-3
LARGEST = 1e150  # of an observation's components, whose squares are summed


@spliced
def load_point(observation: Observations, vectors: FloatArray, d: int) -> int:
    """Make an observation, minus the origin, the current point; returns an event if it is bad."""
    if observation.shape[0] != d:
        return BAD_SHAPE
    event = integer(0)
    for j in range(d):
        value = observation[j] - vectors[ORIGIN, j]
        vectors[POINT, j] = value
        if not abs(value) <= LARGEST:  # NaN too
            event = NOT_FINITE
    return event


@spliced
def greedy_action(table: FloatArray, cell: int) -> int:
    """Return the action of largest Q-value in a cell; the first of equals."""
    best = integer(0)
    for action in range(1, table.shape[2]):
        if table[VALUES, cell, action] > table[VALUES, cell, best]:
            best = action
    return best


@spliced
def choose(table: FloatArray, clock: IntArray, vectors: FloatArray) -> int:
    """Epsilon-greedy action for the current cell, or minus the event that prevents it.

    One uniform decides both whether to explore and, rescaled, which action.
    """
    return explore(greedy_action(table, clock[CELL]), table.shape[2], clock, vectors)


@spliced
def explore(best: int, n_actions: int, clock: IntArray, vectors: FloatArray) -> int:
    """Choose an action with the random number that is due; ``best`` is the greedy one."""
    action = best
    if clock[PHASE] != FROZEN:
        i = clock[NEXT_UNIFORM]
        if i == vectors.shape[1]:
            return -UNIFORMS
        clock[NEXT_UNIFORM] = i + 1
        epsilon = 1.0
        if clock[PHASE] == LEARNING:
            epsilon = vectors[SETTINGS, EXPLORATION] / (
                1.0 + clock[STEPS_SINCE_START] / vectors[SETTINGS, EXPLORATION_DECAY]
            )
        uniform = vectors[UNIFORM, i]
        if uniform < epsilon:
            action = integer(uniform / epsilon * n_actions)
            if action == n_actions:  # rounded up
                action -= 1
    clock[GREEDY_ACTION] = best
    clock[ACTION] = action
    return action


@spliced
def update_values(
    table: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
    next_cell: int,
    reward: float,
    terminated: bool,
) -> None:
    """One step of Watkins' Q(λ) with replacing traces.

    The traces of the cell's other actions are cleared (Singh and Sutton 1996), and all traces if
    the action was not greedy. The value after a terminal step is 0.
    """
    settings = vectors[SETTINGS]
    n_cells, cell, action = clock[N_CELLS], clock[CELL], clock[ACTION]
    n_actions = table.shape[2]
    target = reward
    if not terminated:
        best = greedy_action(table, next_cell)
        target += settings[DISCOUNT] * table[VALUES, next_cell, best]
    error = target - table[VALUES, cell, action]
    visits = table[VISITS, cell, action] + 1.0
    table[VISITS, cell, action] = visits
    step_size = math.exp(-settings[STEP_EXPONENT] * math.log(visits))  # half the time of **
    if step_size < settings[MIN_STEP_SIZE]:
        step_size = settings[MIN_STEP_SIZE]
    table[STEP_SIZES, cell, action] = step_size
    if settings[TRACE_DECAY] == 0.0:
        table[VALUES, cell, action] += step_size * error
        return
    traces = TRACES + clock[LANE]
    if action != clock[GREEDY_ACTION]:
        clear_traces(table, n_cells, traces)
    for other in range(n_actions):
        table[traces, cell, other] = 0.0
    table[traces, cell, action] = 1.0
    decay = settings[DISCOUNT] * settings[TRACE_DECAY]
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


@internal
def learn_from(
    table: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
    observations: FloatArray,
    steps: FloatArray,
    point: FloatArray,
    next_cell: int,
    reward: float,
    terminated: bool,
    truncated: bool,
) -> int:
    """Learn from the step that led to ``point``, a view of its row of ``vectors``; returns events.

    Afterwards that point is the current one, and ``next_cell``, where it lies, the current cell.
    """
    if reward - reward != 0.0:
        return NOT_FINITE
    events = 0
    clock[STEPS] += 1
    clock[STEPS_SINCE_START] += 1
    clock[EPISODE_LENGTH] += 1
    vectors[SETTINGS, EPISODE_RETURN] += reward
    remember(observations, steps, clock, clock[ACTION], reward, point, terminated)
    phase = clock[PHASE]
    if phase == LEARNING:
        update_values(table, clock, vectors, next_cell, reward, terminated)
        if clock[LEARNER_ACTIVE]:
            countdown = clock[COUNTDOWN] - 1
            if countdown == 0:
                countdown = clock[OBSERVE_EVERY]
                events = OBSERVE
            clock[COUNTDOWN] = countdown
    elif phase == WARMUP and clock[STEPS_SINCE_START] >= clock[WARMUP_STEPS]:
        events = WARM
    clock[CELL] = next_cell
    if terminated or truncated:
        events |= _end_episode(table, clock, vectors)
    return events


@spliced
def _end_episode(table: FloatArray, clock: IntArray, vectors: FloatArray) -> int:
    events = EPISODE_END
    settings, phase = vectors[SETTINGS], clock[PHASE]
    if phase != WARMUP:
        streak, wanted = clock[STREAK], clock[SOLVED_EPISODES]
        if settings[EPISODE_RETURN] >= settings[SOLVED_RETURN]:
            streak = 1 if streak < 0 else streak + 1
        elif not clock[UNDECIDED]:
            streak = -1 if streak > 0 else streak - 1
            after = clock[RESTART_AFTER]
            if phase == LEARNING and streak <= -wanted and 0 < after < clock[STEPS_SINCE_START]:
                events |= RESTART
        clock[STREAK] = streak
        if wanted > 0 and table.shape[0] == TRACES + 1:  # several environments have their trials
            clock[PHASE] = FROZEN if streak >= wanted else LEARNING
        clear_traces(table, clock[N_CELLS], TRACES + clock[LANE])
    settings[LAST_RETURN] = settings[EPISODE_RETURN]
    clock[LAST_LENGTH] = clock[EPISODE_LENGTH]
    settings[EPISODE_RETURN] = 0.0
    clock[EPISODE_LENGTH] = 0
    return events


@compiled
def act(
    observation: FloatArray,
    diagram: FloatArray,
    table: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
    observations: FloatArray,
    steps: FloatArray,
) -> int:
    """Choose an action for an observation; negative: minus the event that prevents it."""
    point = vectors[POINT]
    event = load_point(observation, vectors, diagram.shape[1] - 1)
    if event:
        return -event
    begin(observations, steps, clock, point)
    clock[CELL] = assign(diagram, clock[N_CELLS], point)
    return choose(table, clock, vectors)


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
    clock: IntArray,
    vectors: FloatArray,
    observations: FloatArray,
    steps: FloatArray,
) -> int:
    """Learn from one transition; returns events."""
    d = diagram.shape[1] - 1
    point = vectors[POINT]
    event = load_point(observation, vectors, d)
    if event:
        return event
    begin(observations, steps, clock, point)
    cell = assign(diagram, clock[N_CELLS], point)
    event = load_point(next_observation, vectors, d)
    if event:
        return event
    clock[CELL] = cell
    clock[ACTION] = action
    clock[GREEDY_ACTION] = greedy_action(table, cell)
    return learn_from(
        table,
        clock,
        vectors,
        observations,
        steps,
        point,
        assign(diagram, clock[N_CELLS], point),
        reward,
        terminated,
        truncated,
    )


@compiled
def step(
    next_observation: FloatArray,
    reward: float,
    terminated: bool,
    truncated: bool,
    diagram: FloatArray,
    table: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
    observations: FloatArray,
    steps: FloatArray,
) -> int:
    """Learn from the last action's outcome and choose the next action in one call.

    Negative: minus the events to attend to first; then :func:`act` chooses.
    """
    point = vectors[POINT]
    events = load_point(next_observation, vectors, diagram.shape[1] - 1)
    if events == 0:
        events = learn_from(
            table,
            clock,
            vectors,
            observations,
            steps,
            point,
            assign(diagram, clock[N_CELLS], point),
            reward,
            terminated,
            truncated,
        )
    if events:
        return -events
    return choose(table, clock, vectors)


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
    by_visits = (parents @ (visits * values)) / np.where(weights > 0.0, weights, 1.0)
    added = parents @ (visits * whole[:, None])
    table[VALUES, :n_new] = np.where(weights > 0.0, by_visits, averages)
    table[VISITS, :n_new] = added
    table[TRACES:] = 0.0
