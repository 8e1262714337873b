"""The online agent and its learner, or its environment, in one compiled function."""

import numpy as np
import numpy.typing as npt

from oda_rl._compile import allocating, boolean, compiled, integer
from oda_rl._state import Raw
from oda_rl.agents.engine.memory import Trajectory, begin
from oda_rl.agents.engine.state import EPISODE_END, UNIFORMS
from oda_rl.agents.environments.validation import NOT_FINITE
from oda_rl.agents.partitions.schedule import INTERPRETED, KIND, observe_compiled
from oda_rl.agents.two_timescale.qlearning import (
    OBSERVE,
    RESHAPE,
    begin_at,
    choose,
    greedy_action,
    lane_of,
    learn_from,
    opened,
)
from oda_rl.diagram import assign
from oda_rl.envs.cartpole import cartpole_step, look

FloatArray = npt.NDArray[np.float64]


@compiled
def observe_and_act(
    observation: FloatArray,
    cells: FloatArray,
    metric: FloatArray,
    schedule: FloatArray,
    som: FloatArray | None,
    diagram: FloatArray,
    table: FloatArray,
    raw: Raw,
    room: FloatArray,
    observations: FloatArray,
    steps: FloatArray,
) -> int:
    """Show a compiled learner the current point, then choose an action for the observation.

    Negative: minus the event to attend to first.
    """
    agent, lane = opened(diagram, table, raw, room), lane_of(raw, 0)
    if observe_compiled(diagram, cells, metric, schedule, som, agent.state.n_cells, room):
        return -RESHAPE
    event = begin_at(agent, Trajectory(observations, steps, lane), observation)
    return -event if event else choose(agent, lane)


@compiled
def train_cartpole(
    parameters: FloatArray,
    step_reward: float,
    failure_reward: float,
    max_episode_steps: int,
    position: FloatArray,
    resets: FloatArray,
    budget: int,
    episodes: FloatArray,
    cells: FloatArray,
    metric: FloatArray,
    schedule: FloatArray,
    som: FloatArray | None,
    diagram: FloatArray,
    table: FloatArray,
    raw: Raw,
    room: FloatArray,
    observations: FloatArray,
    steps: FloatArray,
) -> tuple[int, int, int]:
    """Train until the budget or the room for episodes is used up, or an event needs attention.

    ``position`` is the environment's state and is advanced; ``resets``, shape (n ≤ room, 4), says
    where the next episodes begin; finished ones are written to ``episodes``, shape (room, 3), as
    (return, length, steps taken in this call).

    Returns
    -------
    events, steps taken, episodes written
    """
    agent, lane = opened(diagram, table, raw, room), lane_of(raw, 0)
    to, state, point = Trajectory(observations, steps, lane), agent.state, agent.room.point
    taken, written = integer(0), integer(0)
    at_start = boolean(True)  # of this call, or of an episode
    terminated = boolean(False)
    while True:
        if not at_start:
            action = choose(agent, lane)
            if action < 0:
                events = UNIFORMS
                break
            terminated = cartpole_step(parameters, position, action)
            taken += 1
        if look(position, agent.room.origin, point):
            events = NOT_FINITE
            break
        cell = assign(diagram, state.n_cells, point)
        if at_start:
            begin(to, point)
            lane.cell = cell
            at_start = False
            continue
        # Not a conditional expression: compiled, that takes half as long again.
        reward = step_reward
        if terminated:
            reward = failure_reward
        truncated = lane.episode_length + 1 >= max_episode_steps
        events = learn_from(agent, to, cell, reward, terminated, truncated)
        if events & OBSERVE and schedule[KIND] != INTERPRETED:
            events -= OBSERVE
            if observe_compiled(diagram, cells, metric, schedule, som, state.n_cells, room):
                events |= RESHAPE
        if events & EPISODE_END:
            events -= EPISODE_END
            episodes[written, 0] = state.last_return
            episodes[written, 1] = state.last_length
            episodes[written, 2] = taken
            for j in range(4):
                position[j] = resets[written, j]
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
    position: FloatArray,
    resets: FloatArray,
    diagram: FloatArray,
    n_cells: int,
    table: FloatArray,
    origin: FloatArray,
    returns: FloatArray,
) -> None:
    """Play greedily from ``position`` for as many episodes as ``returns`` has room.

    ``resets`` says where all episodes but the first begin. Nothing is learned.
    """
    point = np.empty(4)
    for episode in range(returns.shape[0]):
        if episode > 0:
            for j in range(4):
                position[j] = resets[episode - 1, j]
        total = 0.0
        length = 0
        terminated = False
        while not terminated and length < max_episode_steps:
            look(position, origin, point)
            action = greedy_action(table, assign(diagram, n_cells, point))
            terminated = cartpole_step(parameters, position, action)
            length += 1
            total += failure_reward if terminated else step_reward
        returns[episode] = total
