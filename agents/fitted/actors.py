"""Actors of a fitted agent: their tasks, and how they play.

An actor has an engine of its own, which remembers one episode and never fits. The agent's engine
treats running episodes like those of several environments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import gymnasium as gym
import numpy as np

from oda_rl._threads import one_thread
from oda_rl.agents.base.actors import Episode, kept_here, modules_of
from oda_rl.agents.base.engine import Performed
from oda_rl.agents.base.state import EPISODE_END
from oda_rl.agents.environments.adaptation import adapted, observed
from oda_rl.agents.environments.origins import Origin
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import BAD_STEP, checked_reset, checked_step
from oda_rl.agents.fitted.engine import FittedEngine
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.agents.policies.cells import CellPolicy


@dataclass(frozen=True)
class Stage:
    """Specification of an actor's environment and engine."""

    name: str  # unique name of the training
    origin: Origin
    kind: type[FittedEngine]
    interface: Interface
    config: FittedQConfig

    def make_engine(self) -> FittedEngine:
        return self.kind(self.interface, self.config, *(np.random.default_rng(0) for _ in range(3)))

    def set_up(self) -> tuple[gym.Env[Any, Any], FittedEngine]:
        """Make environment and engine."""
        engine, env = self.make_engine(), self.origin.make(learning=True)
        if self.interface.box is None:
            return adapted(env, self.config.action_bins), engine
        performer: Any = engine  # a CodevectorEngine, whose module imports this one
        return Performed(observed(env), performer), engine


@dataclass(frozen=True)
class FittedTask:
    """An episode to play."""

    stage: Stage
    policy: CellPolicy
    epsilon: float
    scheme: int  # scheme of exploration, or ``exploration.NONE``
    seeds: tuple[int, int]  # seeds of the environment's reset and of exploration
    max_steps: int

    @one_thread()
    def play(self) -> Episode:
        """Play the episode; the environment stays for the next one."""
        env, engine = kept_here(self.stage.name, self.stage.set_up)
        # What Dask hands over is read-only, which numba would compile apart.
        own: dict[str, Any] = {
            name: np.array(value) if isinstance(value, np.ndarray) else value
            for name, value in vars(self.policy).items()
        }
        policy, explore = type(self.policy)(**own), np.random.default_rng(self.seeds[1])
        engine.play_by(policy, self.epsilon, self.scheme, explore)
        vector, first_action = engine.interface.vector, engine.interface.first_action
        observation = checked_reset(env, 0, self.seeds[0])
        action, over = engine.act(vector(observation)), False
        for steps in range(1, self.max_steps + 1):
            outcome = checked_step(env, first_action + action, steps)
            observation, reward, terminated, truncated = outcome
            point = vector(observation)
            code = engine.step(point, reward, terminated, truncated, *engine.arrays)
            over = bool(code < 0 and -code & EPISODE_END)
            if code < 0:
                engine.attend(-code, f"{BAD_STEP} at step {steps} of an episode")
            if over:
                break
            action = code if code >= 0 else engine.act(point)
        n = engine.memory.rows(engine.env_state)
        memory = engine.memory
        return Episode(memory.observations[:n].copy(), memory.steps[:n].copy(), over)


class ActorsLearner:
    """A fitted agent's engine, which learns from the episodes of actors."""

    def __init__(self, engine: FittedEngine, origin: Origin, draw_seed: Callable[[], int]) -> None:
        self._engine, self._draw_seed = engine, draw_seed
        self._stage = Stage(uuid4().hex, origin, type(engine), engine.interface, engine.config)

    @property
    def modules(self) -> list[str]:
        """Modules that a worker has to import."""
        return [__name__, *modules_of(self._stage.origin)]

    def begin(self, count: int) -> None:
        """Prepare for ``count`` episodes; compile here first, not in processes at once."""
        self._engine.set_n_envs(count)
        engine = self._stage.make_engine()
        point = np.zeros(engine.interface.n_features, engine.interface.dtype)
        engine.act(point)
        engine.step(point, 0.0, False, False, *engine.arrays)

    def task(self, env: int, max_steps: int) -> FittedTask:
        """Return the next episode to play; without a time limit it is cut when a refit is due."""
        engine = self._engine
        playing = engine.begin_env(env)
        if self._stage.origin.max_episode_steps is None:
            max_steps = min(max_steps, engine.state.latest)
        seeds = self._draw_seed(), engine.draw_seed()
        how = playing.policy, playing.epsilon, playing.scheme
        return FittedTask(self._stage, *how, seeds, max_steps)

    def learn(self, env: int, episode: Episode) -> None:
        """Learn from the episode of a task."""
        engine = self._engine
        engine.remember(episode.observations, episode.steps)
        state = engine.state
        state.new_steps += episode.length
        if episode.over:
            engine.credit(env, episode.total, episode.length)
        if state.new_steps >= (state.needed if episode.over else state.latest):
            engine.refit_or_confirm()
