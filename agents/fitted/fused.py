"""The fitted agent inside compiled loops with its environment."""

from typing import Any, NamedTuple

from oda_rl._compile import spliced
from oda_rl._sizes import of_width
from oda_rl._types import FloatArray
from oda_rl.agents.engine.loop import Rule, never_rest
from oda_rl.agents.engine.memory import Trajectory, begin
from oda_rl.agents.engine.state import Workspace
from oda_rl.agents.environments.validation import LARGEST_REWARD, NOT_FINITE
from oda_rl.agents.fitted import replay
from oda_rl.agents.fitted.replay import Fitted, FittedState


class _Collecting(NamedTuple):
    """A fitted agent in the loop."""

    state: FittedState
    to: Trajectory
    room: Workspace
    fitted: Fitted


@spliced
def _opened(arrays: tuple[Any, ...], n_features: int, n_actions: int) -> _Collecting:
    observations, steps, columns, models, raw, room = arrays
    fitted = replay.opened(columns, models, raw, room)
    to = Trajectory(of_width(observations, n_features), steps, replay.lane_of(raw, 0))
    return _Collecting(fitted.state, to, fitted.room, fitted)


@spliced
def _start(agent: _Collecting, observation: FloatArray) -> None:
    begin(agent.to, observation)


@spliced
def _choose(agent: _Collecting) -> int:
    return replay.choose(agent.fitted, agent.to.lane)


@spliced
def _learn(
    agent: _Collecting, observation: FloatArray, reward: float, terminated: bool, truncated: bool
) -> int:
    if not abs(reward) <= LARGEST_REWARD:  # NaN too
        return NOT_FINITE
    return replay.record(agent.state, agent.to, observation, reward, terminated, truncated)


RULE = Rule("fitted", _opened, _start, _choose, _learn, never_rest)
