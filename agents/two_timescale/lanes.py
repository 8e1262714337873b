"""The online agent's steps in several environments, which all teach the same table.

Each environment has a trajectory, traces and a part of the ring of its own.
"""

from oda_rl._compile import brief, compiled, inlined, integer
from oda_rl._state import Raw
from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.engine.contests import LONGEST_TRIAL
from oda_rl.agents.engine.memory import Trajectory
from oda_rl.agents.engine.state import EPISODE_END, load_point
from oda_rl.agents.partitions.schedule import INTERPRETED, schedule_of, shown
from oda_rl.agents.two_timescale.qlearning import (
    OBSERVE,
    RESHAPE,
    begin_at,
    choose,
    explore,
    lane_of,
    learn_from,
    opened,
    state_of,
)
from oda_rl.diagram import assign


@inlined
def outlasted(raw: Raw, lane: int, n: int) -> bool:
    """Whether most other episodes have been running for longer than this lane's, which ends.

    Of several episodes that began together those that fail are the first to end: they say little
    about a policy of which most others still go on.
    """
    longer = 0
    length = lane_of(raw, lane).episode_length + 1  # with the step that ends it
    for other in range(n):
        if other != lane and lane_of(raw, other).episode_length > length:
            longer += 1
    return bool(2 * longer >= n)


@brief
def place_lanes(diagram: FloatArray, raw: Raw, ring: FloatArray) -> None:
    """Find the cells, which are others now, that all environments are in."""
    n_cells, rows = state_of(raw, 0).n_cells, ring.shape[1]
    for i in range(ring.shape[0]):
        own = lane_of(raw, i)
        own.cell = assign(diagram, n_cells, ring[i, (own.last_row + own.fresh) % rows])


@compiled
def step_lanes(
    first: int,
    learned: bool,
    after: FloatArray,
    observations: FloatArray,
    rewards: FloatArray,
    terminated: BoolArray,
    truncated: BoolArray,
    learns: BoolArray,
    acts: BoolArray,
    begins: BoolArray,
    actions: IntArray,
    ended: FloatArray,
    counts: IntArray,
    diagrams: FloatArray,
    greedy: IntArray,
    cells: FloatArray,
    metric: FloatArray,
    schedule: Raw,
    som: Raw | None,
    diagram: FloatArray,
    table: FloatArray,
    raw: Raw,
    room: FloatArray,
    ring: FloatArray,
    ring_steps: FloatArray,
) -> tuple[int, int, int]:
    """Learn from a step of all environments, and choose the next actions, one lane after the other.

    Parameters
    ----------
    first, learned
        The lane to begin with, and whether that has learned already: so it goes on after events.
    after, observations, rewards, terminated, truncated, learns, acts, begins
        Of a :class:`oda_rl.agents.engine.lanes.VectorStep`.
    actions : ndarray, shape (n,)
        Written to.
    ended : ndarray, shape (n, 2)
        Return and length of an episode that ends are written here.
    counts, diagrams, greedy
        Of :class:`oda_rl.agents.engine.contests.Played`.
    ring, ring_steps : ndarray, shape (n, rows, d) and (n, rows, 3)
        A ring of transitions for each lane.

    Returns
    -------
    events, lane, n_ended
        Events to attend to, and in which lane; or 0 and n. How many episodes have ended.
    """
    agent, n = opened(diagram, table, raw, room), rewards.shape[0]
    state, point = agent.state, agent.room.point
    n_ended = integer(0)
    for i in range(first, n):
        lane = lane_of(raw, i)
        to = Trajectory(ring[i], ring_steps[i], lane)
        events = 0
        if learns[i] and not (i == first and learned):
            events = load_point(after[i], agent.room, diagram.shape[1] - 1)
            if events == 0:
                ends = terminated[i] or truncated[i]
                state.undecided = ends and outlasted(raw, i, n)
                next_cell = assign(diagram, state.n_cells, point)
                events = learn_from(agent, to, next_cell, rewards[i], terminated[i], truncated[i])
            if events & OBSERVE and schedule_of(schedule, 0).kind != INTERPRETED:
                events -= OBSERVE
                if shown(diagram, cells, metric, schedule, som, state.n_cells, room):
                    events |= RESHAPE
            if events & EPISODE_END:
                events -= EPISODE_END
                n_ended += 1
                ended[i, 0] = state.last_return
                ended[i, 1] = state.last_length
        if events == 0 and acts[i]:
            if begins[i] or (i == first and learned):  # events may have moved the cells
                event = begin_at(agent, to, observations[i])
                action = -event if event else choose(agent, lane)
            elif counts[i] == 0 or lane.episode_length > LONGEST_TRIAL:
                action = choose(agent, lane)
            else:
                best = greedy[i, assign(diagrams[i], counts[i], point)]
                action = explore(agent, lane, best)
            if action < 0:
                events = -action
            else:
                actions[i] = action
        if events:
            return events, i, n_ended
    return 0, n, n_ended
