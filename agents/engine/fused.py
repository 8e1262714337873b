"""Agent and learner, or agent and environment, in one compiled function."""

import numpy as np
import numpy.typing as npt

from oda_rl._compile import allocating, boolean, compiled, integer, spliced
from oda_rl.agents.engine.memory import Observations, begin
from oda_rl.agents.fitted import replay
from oda_rl.agents.partitions.schedule import INTERPRETED, KIND, observe_compiled
from oda_rl.agents.policies.cells import decide
from oda_rl.agents.two_timescale.qlearning import (
    CELL,
    EPISODE_END,
    EPISODE_LENGTH,
    GRADIENT,
    LARGEST,
    LAST_LENGTH,
    LAST_RETURN,
    N_CELLS,
    NOT_FINITE,
    OBSERVE,
    ORIGIN,
    POINT,
    RESHAPE,
    SETTINGS,
    UNIFORMS,
    WEIGHTS,
    act,
    choose,
    greedy_action,
    learn_from,
)
from oda_rl.diagram import assign
from oda_rl.envs.cartpole import cartpole_step

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@compiled
def observe_and_act(
    observation: FloatArray,
    cells: FloatArray,
    metric: FloatArray,
    schedule: FloatArray,
    som: FloatArray | None,
    diagram: FloatArray,
    table: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
    observations: FloatArray,
    steps: FloatArray,
) -> int:
    """Show a compiled learner the current point, then choose an action for the observation.

    Negative: minus the event to attend to first.
    """
    weights, gradient = vectors[WEIGHTS], vectors[GRADIENT]
    if observe_compiled(
        diagram, cells, metric, schedule, som, clock[N_CELLS], vectors[POINT], weights, gradient
    ):
        return -RESHAPE
    return act(observation, diagram, table, clock, vectors, observations, steps)


@spliced
def _look(state: FloatArray, origin: FloatArray, point: FloatArray) -> int:
    # The environment returns float32.
    event = integer(0)
    for j in range(4):
        value = np.float32(state[j]) - origin[j]
        point[j] = value
        if not abs(value) <= LARGEST:
            event = NOT_FINITE
    return event


@compiled
def train_cartpole(
    parameters: FloatArray,
    step_reward: float,
    failure_reward: float,
    max_episode_steps: int,
    state: FloatArray,
    resets: FloatArray,
    budget: int,
    episodes: FloatArray,
    cells: FloatArray,
    metric: FloatArray,
    schedule: FloatArray,
    som: FloatArray | None,
    diagram: FloatArray,
    table: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
    observations: FloatArray,
    steps: FloatArray,
) -> tuple[int, int, int]:
    """Train until the budget or the room for episodes is used up, or an event needs attention.

    ``state`` is the environment's and is advanced; ``resets``, shape (n ≤ room, 4), says where the
    next episodes begin; finished ones are written to ``episodes``, shape (room, 3), as (return,
    length, steps taken in this call).

    Returns
    -------
    events, steps taken, episodes written
    """
    point, origin = vectors[POINT], vectors[ORIGIN]
    taken, written = integer(0), integer(0)
    at_start = boolean(True)  # of this call, or of an episode
    terminated = boolean(False)
    while True:
        if not at_start:
            action = choose(table, clock, vectors)
            if action < 0:
                events = UNIFORMS
                break
            terminated = cartpole_step(parameters, state, action)
            taken += 1
        if _look(state, origin, point):
            events = NOT_FINITE
            break
        cell = assign(diagram, clock[N_CELLS], point)
        if at_start:
            begin(observations, steps, clock, point)
            clock[CELL] = cell
            at_start = False
            continue
        # Not a conditional expression: compiled, that takes half as long again.
        reward = step_reward
        if terminated:
            reward = failure_reward
        truncated = clock[EPISODE_LENGTH] + 1 >= max_episode_steps
        events = learn_from(
            table,
            clock,
            vectors,
            observations,
            steps,
            point,
            cell,
            reward,
            terminated,
            truncated,
        )
        if events & OBSERVE and schedule[KIND] != INTERPRETED:
            events -= OBSERVE
            if observe_compiled(
                diagram,
                cells,
                metric,
                schedule,
                som,
                clock[N_CELLS],
                point,
                vectors[WEIGHTS],
                vectors[GRADIENT],
            ):
                events |= RESHAPE
        if events & EPISODE_END:
            events -= EPISODE_END
            episodes[written, 0] = vectors[SETTINGS, LAST_RETURN]
            episodes[written, 1] = clock[LAST_LENGTH]
            episodes[written, 2] = taken
            for j in range(4):
                state[j] = resets[written, j]
            written += 1
            at_start = True
        if events or taken == budget or written == resets.shape[0]:
            break
    return events, taken, written


@allocating
def evaluate_cartpole(
    parameters: FloatArray,
    step_reward: float,
    failure_reward: float,
    max_episode_steps: int,
    state: FloatArray,
    resets: FloatArray,
    diagram: FloatArray,
    n_cells: int,
    table: FloatArray,
    origin: FloatArray,
    returns: FloatArray,
) -> None:
    """Play greedily from ``state`` for as many episodes as ``returns`` has room; learn nothing.

    ``resets`` says where all episodes but the first begin.
    """
    point = np.empty(4)
    for episode in range(returns.shape[0]):
        if episode > 0:
            for j in range(4):
                state[j] = resets[episode - 1, j]
        total = 0.0
        length = 0
        terminated = False
        while not terminated and length < max_episode_steps:
            _look(state, origin, point)
            action = greedy_action(table, assign(diagram, n_cells, point))
            terminated = cartpole_step(parameters, state, action)
            length += 1
            total += failure_reward if terminated else step_reward
        returns[episode] = total


@compiled
def collect_cartpole(
    parameters: FloatArray,
    step_reward: float,
    failure_reward: float,
    max_episode_steps: int,
    state: FloatArray,
    resets: FloatArray,
    budget: int,
    episodes: FloatArray,
    observations: Observations,
    steps: FloatArray,
    diagram: FloatArray,
    models: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
) -> tuple[int, int, int]:
    """Do for a fitted agent what :func:`train_cartpole` does for an online one."""
    point, origin = vectors[POINT], vectors[ORIGIN]
    taken, written = integer(0), integer(0)
    at_start = boolean(True)  # of this call, or of an episode
    terminated = boolean(False)
    while True:
        if not at_start:
            action = replay.choose(diagram, models, clock, vectors)
            if action < 0:
                events = UNIFORMS
                break
            terminated = cartpole_step(parameters, state, action)
            taken += 1
        if _look(state, origin, point):
            events = NOT_FINITE
            break
        if at_start:
            begin(observations, steps, clock, state)
            at_start = False
            continue
        reward = step_reward
        if terminated:
            reward = failure_reward
        truncated = clock[EPISODE_LENGTH] + 1 >= max_episode_steps
        events = replay.record(
            observations, steps, clock, vectors, state, reward, terminated, truncated
        )
        if events & EPISODE_END:
            events -= EPISODE_END
            episodes[written, 0] = vectors[SETTINGS, LAST_RETURN]
            episodes[written, 1] = clock[LAST_LENGTH]
            episodes[written, 2] = taken
            for j in range(4):
                state[j] = resets[written, j]
            written += 1
            at_start = True
        if events or taken == budget or written == resets.shape[0]:
            break
    return events, taken, written


@allocating
def evaluate_policy_on_cartpole(
    parameters: FloatArray,
    step_reward: float,
    failure_reward: float,
    max_episode_steps: int,
    state: FloatArray,
    resets: FloatArray,
    diagram: FloatArray,
    models: FloatArray,
    width: float,
    origin: FloatArray,
    returns: FloatArray,
) -> None:
    """Do for a fitted policy what :func:`evaluate_cartpole` does for a table."""
    point = np.empty(4)
    values = np.empty(models.shape[1] - diagram.shape[1])
    for episode in range(returns.shape[0]):
        if episode > 0:
            for j in range(4):
                state[j] = resets[episode - 1, j]
        total = 0.0
        length = 0
        terminated = False
        while not terminated and length < max_episode_steps:
            _look(state, origin, point)
            action = decide(diagram, models, width, point, values, 0.0)[1]
            terminated = cartpole_step(parameters, state, action)
            length += 1
            total += failure_reward if terminated else step_reward
        returns[episode] = total
