"""Agent and environment, step after step: from Python, or in one compiled function.

Each training loop is a generator of pairs: steps taken so far, and the episodes that have ended
since the last pair, shape (n, 3), as (return, length, steps since the last pair).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numba import errors

from oda_rl._types import FloatArray
from oda_rl.agents.base.course import Course
from oda_rl.agents.base.engine import Engine
from oda_rl.agents.base.loop import environment_arrays, train_loop
from oda_rl.agents.base.state import EPISODE_END
from oda_rl.agents.environments.validation import BAD_STEP, checked_reward
from oda_rl.envs.dynamics import Compiled, Resets, compiled_dynamics

Progress = Iterator[tuple[int, FloatArray]]

STEPS_PER_REPORT = 1000
_FUSED_STEPS = 50_000  # most steps in one call of compiled code
_FUSED_EPISODES = 1024
_NO_EPISODE = np.empty((0, 3))


def train_stepwise(engine: Engine, env: gym.Env[Any, Any], course: Course) -> Progress:
    """Train on any environment, from where the course is."""
    if course.over:
        return  # of a part that another learner takes
    observation, interrupt, total = course.observation, course.interrupt, course.total
    vector, first_action = engine.interface.vector, engine.interface.first_action
    step, arrays = engine.step, engine.arrays
    converting = vector(observation) is not observation
    choose = engine.chosen if course.chosen else engine.act
    action, code, last = choose(vector(observation)), 0, course.steps
    while not course.over:
        end = course.stop(STEPS_PER_REPORT)
        for steps in range(course.steps + 1, end + 1):
            observation, reward, terminated, truncated, _ = env.step(first_action + action)
            if converting:
                observation = vector(observation)
            if type(reward) is not float:
                reward = checked_reward(reward, steps)
            try:
                code = step(observation, reward, terminated, truncated, *arrays)
            except errors.NumbaError:  # an observation of another kind than the first
                vector(observation)
                raise
            if code >= 0 and not interrupt.requested:
                action = code
                continue
            episode = _NO_EPISODE
            if code < 0:
                engine.attend(-code, f"{BAD_STEP} at step {steps}")
                arrays = engine.arrays
                if -code & EPISODE_END:
                    episode = last_episode(engine, steps - last)
                    last = steps
                    observation, _ = env.reset()
            if len(episode) or interrupt.requested:
                course.at(steps, observation, code >= 0)
                yield steps, episode
            if code < 0 and steps < total:
                action = engine.act(vector(observation))
        if end == total and code >= 0:
            engine.withdraw_choice()  # the last step chose an action that nobody will take
        course.at(end, observation, chosen=end < total)
        yield end, _NO_EPISODE


def update(engine: Engine, *transition: Any) -> bool:
    """Learn from one transition, as ``update`` takes it; returns whether an episode ended."""
    events = engine.update(*transition, *engine.arrays)
    if events:
        engine.attend(events, "observation, next_observation or reward")
    return bool(events & EPISODE_END)


def steps_taken(engine: Engine) -> int:
    """Return how many environment steps have been learned from."""
    return int(engine.state.steps)


def add_to_returns(engine: Engine, gains: FloatArray) -> None:
    """Add to the returns of the running episodes, one for each environment."""
    for lane, gain in zip(engine.lanes, gains.tolist(), strict=True):
        lane.episode_return += gain


def train_fused(
    engine: Engine, env: gym.Env[Any, Any], environment: Compiled, course: Course
) -> Progress:
    """Train in compiled code, from where the course is, in the ``environment`` within ``env``."""
    loop, resets = train_loop(engine.rule, environment), Resets(environment)
    own = environment_arrays(environment, course.observation)
    room = np.empty((1 if course.one_by_one else _FUSED_EPISODES, 3))
    steps = course.steps
    while not course.over:
        ahead, budget = resets.starts(len(room)), course.stop(_FUSED_STEPS) - steps
        go_on = partial(loop, own, environment.max_episode_steps)
        events, taken, written = _until_event(engine, go_on, ahead, budget, room)
        resets.pass_by(written)
        steps += taken
        engine.note_episodes(room[:written])
        if events:
            engine.attend(events, "the environment's state or reward")
        environment.write_state(own[2], engine.episode_length)
        course.at(steps, own[3])
        yield steps, room[:written].copy()
        if not course.one_by_one:
            continue
        # Who was told may have changed the environment.
        present = environment.constants
        if present is None or not np.array_equal(present, environment.dynamics.parameters):
            changed = compiled_dynamics(env)
            if changed is None:
                seen, space = own[3], env.observation_space
                course.observation = seen.astype(space.dtype).reshape(space.shape)
                yield from train_stepwise(engine, env, course)
                return
            environment, resets = changed, Resets(changed)
        own = environment_arrays(environment, own[3])


def _until_event(
    engine: Engine,
    go_on: Callable[..., tuple[int, int, int]],
    ahead: FloatArray,
    budget: int,
    room: FloatArray,
) -> tuple[int, int, int]:
    """Train as the loop does, and go on after events that are the engine's own."""
    events, taken, written = go_on(ahead, budget, room, engine.loop_arrays)
    own_events = engine.own_events
    while events and not events & ~own_events and taken < budget and written < len(ahead):
        engine.attend(events, "")
        own = room[written:]
        events, more, ended = go_on(ahead[written:], budget - taken, own, engine.loop_arrays)
        own[:ended, 2] += taken
        taken, written = taken + more, written + ended
    return events, taken, written


def last_episode(engine: Engine, moment: float) -> FloatArray:
    """Return the episode that has just ended, shape (1, 3), with ``moment`` in the last column."""
    return np.array([[engine.state.last_return, float(engine.state.last_length), moment]])


def play(
    env: gym.Env[Any, Any], policy: Callable[[Any], Any], seed: int | None
) -> Iterator[tuple[Any, float, bool]]:
    """Play for ever; yields (observation acted on, reward, whether the episode has ended)."""
    observation, _ = env.reset(seed=seed)
    while True:
        before = observation
        observation, reward, terminated, truncated, _ = env.step(policy(before))
        done = bool(terminated or truncated)
        yield before, float(reward), done
        if done:
            observation, _ = env.reset()
