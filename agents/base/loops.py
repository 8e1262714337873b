"""Training loops: step by step, in compiled code, in vector environments; and greedy play.

Each training loop yields the steps taken so far and the episodes that have ended since it last
yielded, shape (n, 3), as (return, length, steps since then).
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.agents.base.compiled_loop import environment_arrays, is_compiled, train_loop
from oda_rl.agents.base.engine import Engine, VectorStep
from oda_rl.agents.base.state import EPISODE_END
from oda_rl.agents.base.training_run import TrainingRun
from oda_rl.agents.environments import validation
from oda_rl.agents.environments.adaptation import final_observation
from oda_rl.agents.environments.spaces import AnyEnv, Interface
from oda_rl.envs.dynamics import Compiled, Resets, compiled_dynamics

Progress = Iterator[tuple[int, FloatArray]]
Step = tuple[Any, float, bool]  # observation acted on, reward, and whether the episode ended

NO_EPISODE = np.empty((0, 3))
_STEPS_PER_REPORT = 1000


def train(engine: Engine, env: gym.Env[Any, Any], run: TrainingRun) -> Progress:
    """Train from where the run is, in compiled code where there is some."""
    while not run.over:
        compiled = compiled_dynamics(env) if engine.fuses else None
        if compiled is None:
            yield from train_stepwise(engine, env, run, run.total)
        elif engine.steps_before_loop > 0 and not is_compiled(train_loop(engine.rule, compiled)):
            before = run.steps
            yield from train_stepwise(engine, env, run, before + engine.steps_before_loop)
            type(engine).steps_before_loop -= run.steps - before
        else:
            yield from train_compiled(engine, compiled, run)


def train_stepwise(
    engine: Engine, env: gym.Env[Any, Any], run: TrainingRun, until: int
) -> Progress:
    """Train in any environment, from where the run is to a step, or to its end."""
    observation, interrupt, total = run.observation, run.interrupt, run.total
    interface, step, arrays = engine.interface, engine.step, engine.arrays
    vector, first_action = interface.vector, interface.first_action
    _check_values(observation, 0.0, engine, env, run.steps)
    choose = engine.chosen if run.chosen else engine.act
    action, code, last = choose(vector(observation)), 0, run.steps
    kind = vector(observation).dtype
    while run.steps < min(until, total):
        end = min(run.stop(_STEPS_PER_REPORT), until)
        for steps in range(run.steps + 1, end + 1):
            outcome = validation.checked_step(env, first_action + action, steps)
            observation, reward, terminated, truncated = outcome
            point = observation
            if type(point) is not np.ndarray or point.dtype is not kind or point.ndim != 1:
                try:
                    point = vector(point)
                except ValueError as error:
                    raise validation.named(error, env, steps) from error
            code = step(point, reward, terminated, truncated, *arrays)
            if code >= 0 and not interrupt.requested:
                action = code
                continue
            episode = NO_EPISODE
            if code < 0:
                if -code & validation.BAD_VALUE:
                    _check_values(observation, reward, engine, env, steps)
                engine.attend(-code, f"{validation.BAD_STEP} at step {steps}")
                arrays = engine.arrays
                if -code & EPISODE_END:
                    episode = last_episode(engine, steps - last)
                    last = steps
                    observation = validation.checked_reset(env, steps)
                    _check_values(observation, 0.0, engine, env, steps)
            if len(episode) or interrupt.requested:
                run.at(steps, observation, code >= 0)
                yield steps, episode
            if code < 0 and steps < total:
                action = engine.act(vector(observation))
        if end == total and code >= 0:
            engine.withdraw_choice()  # the last chosen action will not be taken
        run.at(end, observation, chosen=end < total)
        yield end, NO_EPISODE


def _check_values(observation: Any, reward: float, engine: Engine, env: AnyEnv, steps: int) -> None:
    try:
        validation.check_values(observation, reward, engine.interface)
    except ValueError as error:
        raise validation.named(error, env, steps) from error


def last_episode(engine: Engine, moment: float) -> FloatArray:
    """Return the last finished episode, shape (1, 3), with ``moment`` in the last column."""
    return np.array([[engine.state.last_return, float(engine.state.last_length), moment]])


def train_compiled(engine: Engine, compiled: Compiled, run: TrainingRun) -> Progress:
    """Train in compiled code, from where the run is, unless a callback changes the environment."""
    loop, resets = train_loop(engine.rule, compiled), Resets(compiled)
    arrays = environment_arrays(compiled, run.observation)
    room = np.empty((1 if run.one_by_one else 1024, 3))  # episodes in one call
    steps = run.steps
    while not run.over:
        starts, budget = resets.starts(len(room)), run.stop(50_000) - steps  # in one call
        events = taken = written = 0
        while True:  # until an event is not only the engine's
            where = compiled.max_episode_steps, starts[written:], budget - taken, room[written:]
            events, more, ended = loop(arrays, *where, engine.loop_arrays)
            room[written : written + ended, 2] += taken
            taken, written = taken + more, written + ended
            if not events or events & ~engine.own_events or taken >= budget or written == len(room):
                break
            engine.attend(events, "")
        resets.pass_by(written)
        steps += taken
        engine.note_episodes(room[:written])
        if events:
            engine.attend(events, "the environment's state or reward")
        compiled.write_state(arrays[2], engine.env_states[0].episode_length)
        run.at(steps, arrays[3])
        yield steps, room[:written].copy()
        if not run.one_by_one:
            continue
        present = compiled.constants
        if present is None or not np.array_equal(present, compiled.dynamics.parameters):
            space = compiled.env.observation_space
            run.observation = arrays[3].astype(space.dtype).reshape(space.shape)
            return
        arrays = environment_arrays(compiled, arrays[3])


def play(
    env: gym.Env[Any, Any],
    policy: Callable[[Any], Any],
    seed: int | None,
    max_episode_steps: int = 2**62,
) -> Iterator[Step]:
    """Play forever; cut an episode off after ``max_episode_steps``, with one warning."""
    observation = validation.checked_reset(env, 0, seed)
    length, warned = 0, False
    while True:
        try:
            action = policy(observation)
            before = np.array(observation)  # the environment may write over it
        except ValueError as error:
            raise validation.named(error, env, length) from error
        length += 1
        observation, reward, terminated, truncated = validation.checked_step(env, action, length)
        done = terminated or truncated
        if not done and length == max_episode_steps:
            done = True
            if not warned:
                warned = True
                warnings.warn(
                    f"an episode was cut off after {length:,} steps: the policy may never end one; "
                    "evaluate(max_episode_steps=...) sets another limit",
                    stacklevel=2,
                )
        yield before, reward, done
        if done:
            observation = validation.checked_reset(env, length)
            length = 0


def _vector_step(
    outcome: Any, interface: Interface, before: BoolArray, same_step: bool
) -> VectorStep:
    """Convert the outcome of a ``step``; ``before``: which episodes had ended before."""
    observations, rewards, terminated, truncated, infos = validation.five(outcome)
    ends, cuts = _flags("terminated", terminated), _flags("truncated", truncated)
    points = after = matrix(observations, interface)
    over = ends | cuts
    if same_step and over.any():
        after = points.copy()
        for i in np.flatnonzero(over).tolist():
            last = final_observation(infos, i)
            if last is None:
                raise ValueError(
                    f"infos of environment {i} has no 'final_obs': an environment that resets at "
                    "the same step must tell there how the episode ended, as "
                    "gymnasium.vector.SyncVectorEnv does"
                )
            after[i] = interface.batch("final_obs", last)[0]
    if np.asarray(rewards).dtype.kind not in "biuf":
        raise ValueError(f"rewards are {rewards!r:.80}: they must be real numbers")
    rewards = np.asarray(rewards, dtype=np.float64)
    every = np.ones_like(over)
    moves = (every, every, over) if same_step else (~before, ~over, before)
    return VectorStep(after, points, rewards, ends, cuts, *moves)


def _flags(name: str, values: Any) -> BoolArray:
    flags = np.asarray(values)
    if flags.dtype.kind != "b":
        raise ValueError(f"{name} is {values!r:.80}: it must hold True and False")
    return flags


def first_step(observations: Any, interface: Interface) -> VectorStep:
    """Return the first observations of all environments as a step that none has made."""
    points = matrix(observations, interface)
    n = len(points)
    no = np.zeros(n, dtype=np.bool_)
    return VectorStep(points, points, np.zeros(n), no, no, learns=no, acts=~no, begins=~no)


def matrix(observations: Any, interface: Interface) -> Array:
    """Return the observations of n environments as float32 or float64, shape (n, d)."""
    points, single = interface.batch("the environments' observations", observations)
    if single:
        raise ValueError(f"observations is {observations!r:.80}: it must hold one of each env")
    return points


def train_vector(
    engine: Engine,
    env: VectorEnv[Any, Any, Any],
    run: TrainingRun,
    perform: Callable[[IntArray], Any],
) -> Progress:
    """Train in several environments at once, from their reset.

    All step together, so there may be a few more steps. ``perform`` makes actions of numbers.
    """
    mode = (env.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP)
    if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        raise ValueError(
            f"env has the autoreset mode {mode}: it must be AutoresetMode.NEXT_STEP or SAME_STEP, "
            "so that episodes begin by themselves"
        )
    interface, begun = engine.interface, engine.state.steps - run.steps
    engine.set_n_envs(env.num_envs)
    over = np.zeros(env.num_envs, dtype=np.bool_)
    actions, _ = engine.advance(first_step(run.observation, interface))
    steps = last = run.steps
    total, interrupt = run.total, run.interrupt
    stop, blocks = run.stop(_STEPS_PER_REPORT), [NO_EPISODE[:, :2]]
    moments: list[int] = []
    while steps < total:
        try:
            outcome = env.step(perform(actions))
            step = _vector_step(outcome, interface, over, mode == AutoresetMode.SAME_STEP)
        except ValueError as error:
            raise validation.named(error, env, steps) from error
        over = step.terminated | step.truncated
        if steps + np.count_nonzero(step.learns) >= total:
            step = step._replace(acts=np.zeros_like(step.acts))
        try:
            actions, ended = engine.advance(step)
        except ValueError:
            for i in np.flatnonzero(step.learns):
                check = step.after[i].reshape(interface.observation_shape)
                _check_values(check, step.rewards[i], engine, env, steps)
            raise
        steps = engine.state.steps - begun
        if len(ended):
            blocks.append(ended)
            moments += [steps - last] * len(ended)
        if interrupt.requested or steps >= stop or (run.one_by_one and len(ended)):
            run.at(steps, None)
            yield steps, np.column_stack([np.concatenate(blocks), moments])
            blocks, moments = [NO_EPISODE[:, :2]], []
            last, stop = steps, run.stop(_STEPS_PER_REPORT)
