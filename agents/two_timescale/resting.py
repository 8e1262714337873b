"""The online agent's steps while it rests on a policy, which are most of a long training's.

They do what the loop does with the functions of :mod:`oda_rl.agents.two_timescale.qlearning` when
nothing is learned, in fewer instructions, with all that changes in registers.
"""

from typing import Any

from oda_rl._compile import boolean, integer
from oda_rl._sizes import held, put
from oda_rl.agents.engine.columns import assign_in_columns, fill_columns
from oda_rl.agents.engine.guessing import guessed
from oda_rl.agents.engine.loop import advance, foresee, look, n_actions, n_features, n_state
from oda_rl.agents.engine.memory import ACTION, CUT, GOES_ON, MARK, REWARD
from oda_rl.agents.environments.validation import LARGEST_REWARD
from oda_rl.agents.two_timescale.qlearning import FROZEN, greedy_action
from oda_rl.diagram import LARGEST


def rest(agent: Any, environment: tuple[Any, ...], most: int) -> int:
    """Take steps with a policy that rests, up to one that the loop has to look at itself.

    That is one that ends the episode, or that leads to values that are not finite: it is not taken
    here. The arguments are those of :class:`oda_rl.agents.engine.loop.Rule`.
    """
    state, table, columns = agent.state, agent.online.table, agent.columns
    if state.phase != FROZEN or most <= 0:
        return 0
    parameters, choices, position, observation = environment
    points, steps, lane = agent.to
    n_cells, gained = state.n_cells, lane.episode_return
    fill_columns(columns, agent.online.diagram, n_cells)
    here, after = held(position, n_state), held(position, n_state)
    shown, seen = held(observation, n_features), held(observation, n_features)
    point, next_point = held(agent.room.point, n_features), held(agent.room.point, n_features)
    origin = held(agent.room.origin, n_features)
    capacity, row = points.shape[0], lane.last_row + lane.fresh
    if row == capacity:
        row = integer(0)
    taken, action = integer(0), lane.action
    while True:
        put(here, after, n_state)
        foresee(parameters, choices, after, 0)  # what needs no action is computed before the cell
        cell = assign_in_columns(columns, n_cells, point)
        if taken == most:
            break
        best = guessed(greedy_action(table, cell), n_actions)
        put(here, after, n_state)
        reward, terminated = advance(parameters, choices, after, best)
        look(parameters, after, seen)
        fine = boolean(not terminated and abs(reward) <= LARGEST_REWARD)
        for j in range(n_features):
            value = seen[j] - origin[j]
            next_point[j] = value
            if not abs(value) <= LARGEST:  # NaN too
                fine = False
        if not fine:
            break
        put(after, here, n_state)
        put(seen, shown, n_features)
        put(next_point, point, n_features)
        action = best
        gained += reward
        taken += 1
        steps[row, ACTION], steps[row, REWARD], steps[row, MARK] = action, reward, GOES_ON
        row += 1
        if row == capacity:
            row = integer(0)
        for j in range(n_features):
            points[row, j] = point[j]
    if taken > 0:
        put(here, position, n_state)
        put(shown, observation, n_features)
        put(point, agent.room.point, n_features)
        steps[row, ACTION], steps[row, REWARD], steps[row, MARK] = -1.0, 0.0, CUT
        lane.last_row, lane.fresh = row, False
        lane.cell, lane.action, lane.greedy_action = cell, action, action
        lane.episode_length += taken
        lane.episode_return = gained
        state.steps += taken
        state.steps_since_start += taken
    return taken
