"""The online agent inside compiled loops: with its learner, and with an environment."""

from typing import Any, NamedTuple

from oda_rl._compile import compiled, spliced
from oda_rl._sizes import of_width
from oda_rl._state import Raw
from oda_rl._types import FloatArray
from oda_rl.agents.engine.loop import Rule
from oda_rl.agents.engine.memory import COMPONENTS, Trajectory, begin
from oda_rl.agents.engine.state import Workspace
from oda_rl.agents.partitions.schedule import INTERPRETED, schedule_of, shown
from oda_rl.agents.two_timescale import qlearning as ql
from oda_rl.agents.two_timescale.qlearning import OBSERVE, RESHAPE, Online, OnlineState
from oda_rl.agents.two_timescale.resting import rest
from oda_rl.diagram import assign


@compiled
def observe_and_act(
    observation: FloatArray,
    cells: FloatArray,
    metric: FloatArray,
    schedule: Raw,
    som: Raw | None,
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
    agent, lane = ql.opened(diagram, table, raw, room), ql.lane_of(raw, 0)
    if shown(diagram, cells, metric, schedule, som, agent.state.n_cells, room):
        return -RESHAPE
    event = ql.begin_at(agent, Trajectory(observations, steps, lane), observation)
    return -event if event else ql.choose(agent, lane)


class _Learning(NamedTuple):
    """An online agent in the loop, with the arrays of its learner."""

    state: OnlineState
    to: Trajectory
    room: Workspace
    online: Online
    arrays: tuple[Any, ...]
    columns: FloatArray


@spliced
def _opened(arrays: tuple[Any, ...], n_features: int, n_actions: int) -> _Learning:
    raw = arrays[6]
    diagram, table = of_width(arrays[4], 1 + n_features), of_width(arrays[5], n_actions)
    online = ql.opened(diagram, table, raw, arrays[7])
    ring, steps = of_width(arrays[8], n_features), of_width(arrays[9], COMPONENTS)
    to = Trajectory(ring, steps, ql.lane_of(raw, 0))
    return _Learning(online.state, to, online.room, online, arrays, arrays[10])


@spliced
def _cell(online: Online) -> int:
    return assign(online.diagram, online.state.n_cells, online.room.point)


@spliced
def _start(agent: _Learning, observation: FloatArray) -> None:
    begin(agent.to, agent.online.room.point)
    agent.to.lane.cell = _cell(agent.online)


@spliced
def _choose(agent: _Learning) -> int:
    return ql.choose(agent.online, agent.to.lane)


@spliced
def _learn(
    agent: _Learning, observation: FloatArray, reward: float, terminated: bool, truncated: bool
) -> int:
    online, arrays = agent.online, agent.arrays
    events = ql.learn_from(online, agent.to, _cell(online), reward, terminated, truncated)
    if events & OBSERVE and schedule_of(arrays[2], 0).kind != INTERPRETED:
        events -= OBSERVE
        if shown(
            arrays[4], arrays[0], arrays[1], arrays[2], arrays[3], agent.state.n_cells, arrays[7]
        ):
            events |= RESHAPE
    return events


RULE = Rule("online", _opened, _start, _choose, _learn, rest)
