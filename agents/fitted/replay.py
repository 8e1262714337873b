"""Steps of the fitted agent, compiled: choose an action by its policy, remember what came of it.

The clock and the vectors are those of :mod:`oda_rl.agents.two_timescale.qlearning` as far as both
agents count the same; further slots are below. The arrays of a memory and of a policy are described
in :mod:`oda_rl.agents.engine.memory` and :mod:`oda_rl.agents.policies.cells`.
"""

import numpy as np
import numpy.typing as npt

from oda_rl._compile import compiled, integer, spliced
from oda_rl.agents.engine.memory import LAST_ROW, Observations, begin, remember
from oda_rl.agents.policies.cells import decide
from oda_rl.agents.two_timescale import qlearning as ql
from oda_rl.agents.two_timescale.qlearning import load_point

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Further slots of the clock.
(
    LONGEST_HOLD,
    DREW,  # whether the last choice used a random number
    NEW_STEPS,  # since the last fit
    NEEDED,  # so many of them, and an episode's end,
    LATEST,  # or so many, make a refit due
) = range(ql.N_CLOCK, ql.N_CLOCK + 5)
N_CLOCK = ql.N_CLOCK + 5

# Further slots of the settings.
EPSILON, WIDTH = range(ql.LAST_RETURN + 1, ql.LAST_RETURN + 3)

# Further events.
REFIT = 256
ROOM = 512  # the memory is nearly full

FREE_ROWS = 4  # that a memory must have before a step

# Slots that compiled code reads by these names.
ACTION, HELD, NEXT_UNIFORM = ql.ACTION, ql.HELD, ql.NEXT_UNIFORM
POINT, WEIGHTS, SETTINGS, UNIFORM = ql.POINT, ql.WEIGHTS, ql.SETTINGS, ql.UNIFORM
STEPS, EPISODE_LENGTH, LAST_LENGTH = ql.STEPS, ql.EPISODE_LENGTH, ql.LAST_LENGTH
EPISODE_RETURN, LAST_RETURN = ql.EPISODE_RETURN, ql.LAST_RETURN
EPISODE_END, UNIFORMS, NOT_FINITE = ql.EPISODE_END, ql.UNIFORMS, ql.NOT_FINITE


@spliced
def load(
    observation: Observations, observations: Observations, vectors: FloatArray, n_features: int
) -> int:
    """Make an observation the current point; one that cannot be remembered is bad, too."""
    event = load_point(observation, vectors, n_features)
    if event == 0:
        for j in range(n_features):
            if not abs(observations.dtype.type(observation[j])) <= ql.LARGEST:
                event = NOT_FINITE
    return event


@spliced
def choose(diagram: FloatArray, models: FloatArray, clock: IntArray, vectors: FloatArray) -> int:
    """Choose an action for the current point; or return minus the event that prevents it.

    One uniform decides whether to explore, which action, for how many steps, and between equals.
    """
    clock[DREW] = 0
    action: int = clock[ACTION]
    if clock[HELD] > 0:
        clock[HELD] -= 1
        return action
    i = clock[NEXT_UNIFORM]
    if i == vectors.shape[1]:
        return -UNIFORMS
    clock[NEXT_UNIFORM] = i + 1
    clock[DREW] = 1
    n_actions = models.shape[1] - diagram.shape[1]
    uniform, epsilon = vectors[UNIFORM, i], vectors[SETTINGS, EPSILON]
    if uniform < epsilon:
        scaled = uniform / epsilon * n_actions
        action = integer(scaled)
        if action == n_actions:  # rounded up
            action -= 1
        share, least = scaled - action, 1.0 / clock[LONGEST_HOLD]
        clock[HELD] = integer(1.0 / (share if share > least else least)) - 1
    else:
        width, among = vectors[SETTINGS, WIDTH], (uniform - epsilon) / (1.0 - epsilon)
        action = decide(diagram, models, width, vectors[POINT], vectors[WEIGHTS], among)[1]
    clock[ACTION] = action
    return action


@spliced
def record(
    observations: Observations,
    steps: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
    vector: Observations,
    reward: float,
    terminated: bool,
    truncated: bool,
) -> int:
    """Remember the step of the last action; returns events."""
    remember(observations, steps, clock, clock[ACTION], reward, vector, terminated)
    clock[STEPS] += 1
    clock[NEW_STEPS] += 1
    clock[EPISODE_LENGTH] += 1
    vectors[SETTINGS, EPISODE_RETURN] += reward
    events = 0
    if terminated or truncated:
        events = EPISODE_END
        vectors[SETTINGS, LAST_RETURN] = vectors[SETTINGS, EPISODE_RETURN]
        vectors[SETTINGS, EPISODE_RETURN] = 0.0
        clock[LAST_LENGTH] = clock[EPISODE_LENGTH]
        clock[EPISODE_LENGTH] = 0
        clock[HELD] = 0
    if clock[NEW_STEPS] >= clock[NEEDED if events else LATEST]:
        events |= REFIT
    if clock[LAST_ROW] + FREE_ROWS >= observations.shape[0]:
        events |= ROOM
    return events


@compiled
def act(
    observation: Observations,
    observations: Observations,
    steps: FloatArray,
    diagram: FloatArray,
    models: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
) -> int:
    """Choose an action for an observation; negative: minus the event that prevents it."""
    event = load(observation, observations, vectors, diagram.shape[1] - 1)
    if event:
        return -event
    begin(observations, steps, clock, observation)
    return choose(diagram, models, clock, vectors)


@compiled
def step(
    next_observation: Observations,
    reward: float,
    terminated: bool,
    truncated: bool,
    observations: Observations,
    steps: FloatArray,
    diagram: FloatArray,
    models: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
) -> int:
    """Remember the last action's outcome and choose the next action in one call.

    Negative: minus the events to attend to first; then :func:`act` chooses.
    """
    events = load(next_observation, observations, vectors, diagram.shape[1] - 1)
    if reward - reward != 0.0:
        events = NOT_FINITE
    if events == 0:
        events = record(
            observations, steps, clock, vectors, next_observation, reward, terminated, truncated
        )
    if events:
        return -events
    return choose(diagram, models, clock, vectors)


@compiled
def update(
    observation: Observations,
    action: int,
    reward: float,
    next_observation: Observations,
    terminated: bool,
    truncated: bool,
    observations: Observations,
    steps: FloatArray,
    diagram: FloatArray,
    models: FloatArray,
    clock: IntArray,
    vectors: FloatArray,
) -> int:
    """Remember one transition; returns events."""
    d = diagram.shape[1] - 1
    event = load(observation, observations, vectors, d)
    if event == 0:
        event = load(next_observation, observations, vectors, d)
    if reward - reward != 0.0:
        event = NOT_FINITE
    if event:
        return event
    begin(observations, steps, clock, observation)
    clock[ACTION] = action
    return record(
        observations, steps, clock, vectors, next_observation, reward, terminated, truncated
    )
