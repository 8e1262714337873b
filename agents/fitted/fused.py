"""The fitted agent inside compiled loops with its environment."""

from typing import Any, NamedTuple

from oda_rl._compile import spliced
from oda_rl._types import FloatArray
from oda_rl.agents.base.compiled_loop import Rule
from oda_rl.agents.base.memory import Trajectory, begin
from oda_rl.agents.environments.validation import LARGEST_REWARD, NOT_FINITE
from oda_rl.agents.fitted import replay
from oda_rl.agents.fitted.replay import Fitted, FittedState


class _Collecting(NamedTuple):
    """A fitted agent in the loop."""

    state: FittedState
    trajectory: Trajectory
    fitted: Fitted


@spliced
def _unpack(arrays: tuple[Any, ...], env: int) -> _Collecting:
    observations, steps, diagram, models, raw, room = arrays
    fitted = replay.opened(diagram, models, raw, room)
    trajectory = Trajectory(observations, steps, replay.lane_of(raw, env))
    return _Collecting(fitted.state, trajectory, fitted)


@spliced
def _start(agent: _Collecting, observation: FloatArray) -> int:
    event = replay.load(observation, agent.trajectory.observations, agent.fitted.room)
    if event == 0:
        begin(agent.trajectory, observation)
    return event


@spliced
def _choose(agent: _Collecting) -> int:
    return replay.choose(agent.fitted, agent.trajectory.lane)


@spliced
def _learn(
    agent: _Collecting, observation: FloatArray, reward: float, terminated: bool, truncated: bool
) -> int:
    event = replay.load(observation, agent.trajectory.observations, agent.fitted.room)
    if event:
        return event
    if not abs(reward) <= LARGEST_REWARD:  # NaN too
        return NOT_FINITE
    return replay.record(agent.state, agent.trajectory, observation, reward, terminated, truncated)


RULE = Rule("fitted", _unpack, _start, _choose, _learn)
