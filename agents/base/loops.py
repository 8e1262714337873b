"""Agent and environment, step after step: from Python, or in one compiled function.

Each training loop is a generator of pairs: steps taken so far, and the episodes that have ended
since the last pair, shape (n, 3), as (return, length, steps since the last pair).
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from numba import errors

from oda_rl._types import FloatArray
from oda_rl.agents.base.actors import Crew, Episode
from oda_rl.agents.base.compiled_loop import environment_arrays, train_loop
from oda_rl.agents.base.engine import Engine, VectorStep
from oda_rl.agents.base.state import EPISODE_END
from oda_rl.agents.base.training_run import TrainingRun
from oda_rl.agents.environments.spaces import Interface, plain
from oda_rl.agents.environments.validation import BAD_STEP, checked_reward
from oda_rl.envs.dynamics import Compiled, Resets, compiled_dynamics

Progress = Iterator[tuple[int, FloatArray]]

STEPS_PER_REPORT = 1000
_FUSED_STEPS = 50_000  # most steps in one call of compiled code
_FUSED_EPISODES = 1024
_NO_EPISODE = np.empty((0, 3))


def train_stepwise(engine: Engine, env: gym.Env[Any, Any], run: TrainingRun) -> Progress:
    """Train on any environment, from where the run is."""
    if run.over:
        return  # of a part that another learner takes
    observation, interrupt, total = run.observation, run.interrupt, run.total
    vector, first_action = engine.interface.vector, engine.interface.first_action
    step, arrays = engine.step, engine.arrays
    converting = vector(observation) is not observation
    choose = engine.chosen if run.chosen else engine.act
    action, code, last = choose(vector(observation)), 0, run.steps
    while not run.over:
        end = run.stop(STEPS_PER_REPORT)
        for steps in range(run.steps + 1, end + 1):
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
                run.at(steps, observation, code >= 0)
                yield steps, episode
            if code < 0 and steps < total:
                action = engine.act(vector(observation))
        if end == total and code >= 0:
            engine.withdraw_choice()  # the last step chose an action that nobody will take
        run.at(end, observation, chosen=end < total)
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
    engine: Engine, env: gym.Env[Any, Any], environment: Compiled, run: TrainingRun
) -> Progress:
    """Train in compiled code, from where the run is, in the ``environment`` within ``env``."""
    loop, resets = train_loop(engine.rule, environment), Resets(environment)
    own = environment_arrays(environment, run.observation)
    room = np.empty((1 if run.one_by_one else _FUSED_EPISODES, 3))
    steps = run.steps
    while not run.over:
        ahead, budget = resets.starts(len(room)), run.stop(_FUSED_STEPS) - steps
        go_on = partial(loop, own, environment.max_episode_steps)
        events, taken, written = _until_event(engine, go_on, ahead, budget, room)
        resets.pass_by(written)
        steps += taken
        engine.note_episodes(room[:written])
        if events:
            engine.attend(events, "the environment's state or reward")
        environment.write_state(own[2], engine.episode_length)
        run.at(steps, own[3])
        yield steps, room[:written].copy()
        if not run.one_by_one:
            continue
        # Who was told may have changed the environment.
        present = environment.constants
        if present is None or not np.array_equal(present, environment.dynamics.parameters):
            changed = compiled_dynamics(env)
            if changed is None:
                seen, space = own[3], env.observation_space
                run.observation = seen.astype(space.dtype).reshape(space.shape)
                yield from train_stepwise(engine, env, run)
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


_NO_ENDED = np.empty((0, 2))


class VectorResets:
    """Tells apart steps and resets of environments that are reset by themselves.

    Parameters
    ----------
    env : gymnasium.vector.VectorEnv
        With ``metadata["autoreset_mode"]``; without, it is taken to reset at the next step, as
        Gymnasium's own do.
    interface : Interface
        Of its environments.

    Raises
    ------
    ValueError
        If the mode is ``AutoresetMode.DISABLED``.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], interface: Interface) -> None:
        self._interface = interface
        mode = (env.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise ValueError(
                f"env has the autoreset mode {mode}: it must be AutoresetMode.NEXT_STEP or "
                "SAME_STEP, so that episodes begin by themselves"
            )
        self._same_step = mode == AutoresetMode.SAME_STEP
        self._over = np.zeros(env.num_envs, dtype=np.bool_)
        self._acted = ~self._over

    def step(
        self,
        observations: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        infos: dict[str, Any],
    ) -> VectorStep:
        """Return what ``env.step`` returned as compiled code takes it."""
        ends, cuts = np.asarray(terminated, dtype=np.bool_), np.asarray(truncated, dtype=np.bool_)
        points = after = matrix(observations, self._interface)
        over, made = ends | cuts, self._acted
        if self._same_step:
            if over.any():
                after = points.copy()
                for lane in np.flatnonzero(over):
                    final = infos["final_obs"][lane]
                    after[lane] = self._interface.flatten("final_obs", final)
            acts, begins = made, over
        else:
            begins, self._over = self._over, over
            acts = self._acted = ~over
        gains = np.asarray(rewards, dtype=np.float64)
        return VectorStep(after, points, gains, ends, cuts, made, acts, begins)


def first_step(observations: Any, interface: Interface) -> VectorStep:
    """Return the beginning of episodes in all environments as a step that none has made."""
    points = matrix(observations, interface)
    n = len(points)
    no = np.zeros(n, dtype=np.bool_)
    return VectorStep(points, points, np.zeros(n), no, no, learns=no, acts=~no, begins=~no)


def matrix(observations: Any, interface: Interface) -> npt.NDArray[Any]:
    """Return the observations of n environments, of float32 or float64, in shape (n, d)."""
    if interface.native is not None and not interface.native.sees_vectors:
        observations = interface.native.points(observations)[0]
    array = np.asarray(observations)
    if array.shape[1:] != interface.observation_shape or array.ndim == 0:
        raise ValueError(
            f"the environments' observations have shape {array.shape}: it must be (n, "
            f"{', '.join(map(str, interface.observation_shape))})"
        )
    return plain(array).reshape(len(array), -1)


def train_vector(engine: Engine, env: VectorEnv[Any, Any, Any], run: TrainingRun) -> Progress:
    """Train in several environments at once, from what their reset returned.

    In whole steps of them all, so that there may be some more than asked for; a reset is no step.
    """
    resets, begun = VectorResets(env, engine.interface), engine.state.steps - run.steps
    engine.set_lanes(env.num_envs)
    first_action = engine.interface.first_action
    actions, _ = engine.advance(first_step(run.observation, engine.interface))
    steps = last = run.steps
    total, interrupt = run.total, run.interrupt
    stop, blocks = run.stop(STEPS_PER_REPORT), [_NO_ENDED]
    moments: list[int] = []
    while steps < total:
        step = resets.step(*env.step(first_action + actions))
        if steps + np.count_nonzero(step.learns) >= total:
            step = step._replace(acts=np.zeros_like(step.acts))
        actions, ended = engine.advance(step)
        steps = engine.state.steps - begun
        if len(ended):
            blocks.append(ended)
            moments += [steps - last] * len(ended)
        if interrupt.requested or steps >= stop or (run.one_by_one and len(ended)):
            run.at(steps, None)
            yield steps, np.column_stack([np.concatenate(blocks), moments])
            blocks, moments = [_NO_ENDED], []
            last, stop = steps, run.stop(STEPS_PER_REPORT)


_LOOK = 0.1  # seconds from one look for Ctrl-C to the next


def train_by_actors(crew: Crew, run: TrainingRun) -> Progress:
    """Train from where the run is, in new episodes.

    They are learned from in the order in which they were asked for, and each is asked for when a
    certain other one has been learned from: what is learned depends on nobody's speed. What goes
    beyond the last step is left out.
    """
    head, client, count = crew.head, crew.client, crew.actors.workers
    head.begin(count)
    asked: deque[tuple[int, Any]] = deque()

    def ask(lane: int) -> None:
        errand = head.errand(lane, run.total - run.steps)
        asked.append((lane, client.submit(errand.play, pure=False)))

    for lane in range(count):
        ask(lane)
    while not run.over:
        lane, future = asked.popleft()
        while not _done(future):
            if run.interrupt.requested:
                yield run.steps, _NO_EPISODE
        episode = _result(future).cut(run.total - run.steps)
        head.learn(lane, episode)
        run.at(run.steps + episode.length, None)
        if not run.over:
            ask(lane)
        row = [episode.total, float(episode.length), float(episode.length)]
        yield run.steps, np.array([row]) if episode.over else _NO_EPISODE


def _done(future: Any) -> bool:
    """Wait a little; returns whether an episode has ended."""
    import distributed

    wait: Any = distributed.wait  # which has no types
    with suppress(distributed.CancelledError):
        try:
            wait(future, timeout=_LOOK)
        except TimeoutError:
            return False
    return True


def _result(future: Any) -> Episode:
    """Return an episode that has ended; what the environment raised is raised here."""
    from distributed import CancelledError, KilledWorker

    try:
        episode: Episode = future.result()
    except KilledWorker as death:
        raise ChildProcessError(
            f"workers: each of {death.allowed_failures + 1} actors that began the same episode "
            "died in it, so the environment ends its process, or needs more memory than there is"
        ) from death
    except CancelledError as loss:
        raise ConnectionError(f"address: the scheduler has been lost: {loss}") from loss
    return episode
