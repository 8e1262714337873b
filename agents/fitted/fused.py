"""The fitted agent and its environment in one compiled function."""

import numpy as np
import numpy.typing as npt

from oda_rl._compile import allocating, boolean, compiled, integer
from oda_rl._state import Raw
from oda_rl.agents.engine.memory import Trajectory, begin
from oda_rl.agents.engine.state import EPISODE_END, UNIFORMS, Observations
from oda_rl.agents.environments.validation import NOT_FINITE
from oda_rl.agents.fitted.replay import choose, lane_of, opened, record
from oda_rl.agents.policies.cells import decide
from oda_rl.envs.cartpole import cartpole_step, look

FloatArray = npt.NDArray[np.float64]


@compiled
def collect_cartpole(
    parameters: FloatArray,
    step_reward: float,
    failure_reward: float,
    max_episode_steps: int,
    position: FloatArray,
    resets: FloatArray,
    budget: int,
    episodes: FloatArray,
    observations: Observations,
    steps: FloatArray,
    diagram: FloatArray,
    models: FloatArray,
    raw: Raw,
    room: FloatArray,
) -> tuple[int, int, int]:
    """Do for a fitted agent what ``train_cartpole`` does for an online one."""
    agent, lane = opened(diagram, models, raw, room), lane_of(raw, 0)
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
        if at_start:
            begin(to, position)
            at_start = False
            continue
        reward = step_reward
        if terminated:
            reward = failure_reward
        truncated = lane.episode_length + 1 >= max_episode_steps
        events = record(state, to, position, reward, terminated, truncated)
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
def evaluate_policy_on_cartpole(
    parameters: FloatArray,
    step_reward: float,
    failure_reward: float,
    max_episode_steps: int,
    position: FloatArray,
    resets: FloatArray,
    diagram: FloatArray,
    models: FloatArray,
    width: float,
    origin: FloatArray,
    returns: FloatArray,
) -> None:
    """Do for a fitted policy what ``evaluate_cartpole`` does for a table."""
    point = np.empty(4)
    values = np.empty(models.shape[1] - diagram.shape[1])
    for episode in range(returns.shape[0]):
        if episode > 0:
            for j in range(4):
                position[j] = resets[episode - 1, j]
        total = 0.0
        length = 0
        terminated = False
        while not terminated and length < max_episode_steps:
            look(position, origin, point)
            action = decide(diagram, models, width, point, values, 0.0)[1]
            terminated = cartpole_step(parameters, position, action)
            length += 1
            total += failure_reward if terminated else step_reward
        returns[episode] = total
