"""Base classes of engines, which hold the state of an agent that compiled code works on."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from oda_rl import metric
from oda_rl._compile import plain
from oda_rl._threads import one_thread
from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.agents.base.compiled_loop import Rule
from oda_rl.agents.base.history import Level
from oda_rl.agents.base.state import (
    EPISODE_END,
    UNIFORMS,
    Counters,
    EnvState,
    Workspace,
    end_episode,
    new_env_states,
)
from oda_rl.agents.environments import validation
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.policies.contract import Extent
from oda_rl.diagram import LARGEST

_MAX_LEVELS = 1000
_BLOCK = 500  # random numbers drawn at a time; not 512: rows 4096 bytes apart share cache lines


class VectorStep(NamedTuple):
    """A step of n environments, some of which may have been reset instead."""

    after: Array  # observations after the step, shape (n, d), of float32 or float64
    observations: Array  # to act on, shape (n, d): others where an episode has begun since
    rewards: FloatArray  # shape (n,), as all of the following
    terminated: BoolArray
    truncated: BoolArray
    learns: BoolArray  # which environments have made a step
    acts: BoolArray  # which environments need an action
    begins: BoolArray  # which environments begin an episode


class Engine(ABC):
    """The state of an agent, and the work that compiled code leaves to Python at *events*."""

    rule: ClassVar[Rule]  # its functions for the compiled loop, if it ``fuses``
    fuses: ClassVar[bool] = True  # whether it learns in compiled loops of compiled dynamics
    steps_before_loop: ClassVar[int] = 0  # steps of this process before a loop is compiled
    acts_together: ClassVar[bool] = False  # continuous actions in several environments
    own_events: ClassVar[int] = UNIFORMS  # events in compiled loops for the engine only
    choose: ClassVar[Callable[..., int]]  # compiled: (observation, *arrays) to action or -events
    step: ClassVar[Callable[..., int]]
    """Compiled: (next observation, reward, terminated, truncated, *arrays) to the next action, or
    minus events."""
    update: Callable[..., int]
    """Compiled: (observation, action, reward, next observation, terminated, truncated, *arrays) to
    events."""
    arrays: tuple[Any, ...]  # arguments of these; :meth:`attend` may replace them
    state: Any  # named state, which begins with :class:`oda_rl.agents.base.state.Counters`

    def __init__(self, interface: Interface, width: int, explore: np.random.Generator) -> None:
        self.interface = interface
        self.history: list[Level] = []
        self._levels_dropped = 0
        self.room: FloatArray = np.zeros((len(Workspace._fields), max(width, _BLOCK)))
        self._workspace = Workspace(*self.room)  # its rows
        self._explore = explore
        explore.random(out=self._workspace.uniforms)

    @property
    @abstractmethod
    def loop_arrays(self) -> tuple[Any, ...]:
        """Arrays that ``rule.unpack`` takes."""

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """Current probability of a random action."""

    @property
    @abstractmethod
    def scale(self) -> FloatArray | None:
        """Inverse standard deviations of the observation's components; None before learning."""

    @property
    @abstractmethod
    def env_states(self) -> list[EnvState]:
        """State of each environment."""

    @property
    def n_envs(self) -> int:
        """Number of environments learned from at once; 0 or 1 along one trajectory."""
        return len(self.env_states)

    @abstractmethod
    def set_n_envs(self, count: int) -> None:
        """Prepare to learn from ``count`` environments at once, before their first step."""

    def leave_envs(self) -> None:
        """Go back to learning along one trajectory."""
        if self.n_envs > 1:
            self.set_n_envs(1)

    @abstractmethod
    def advance(self, step: VectorStep) -> tuple[IntArray, FloatArray]:
        """Learn from a step of all environments and choose the next actions.

        Returns the actions, from 0, shape (n,), and the return and length of episodes that have
        ended, shape (m, 2).
        """

    def perform(self, number: Any) -> Array:
        """Return the continuous action that was chosen; its number is what it was chosen by."""
        raise NotImplementedError

    def replace(self, action: Any) -> None:
        """Note that another action is performed; raise ValueError if it is not in the box."""
        raise NotImplementedError

    @abstractmethod
    def begin_episode(self) -> None:
        """Abandon unfinished episodes."""

    def withdraw_choice(self) -> None:  # noqa: B027 (by default learning continues with it)
        """Take back the last choice of an action, if it has changed more than random numbers."""

    @abstractmethod
    def state_arrays(self) -> dict[str, Array]:
        """Return all arrays to save, without the history."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that :meth:`state_arrays` returned."""

    @abstractmethod
    def _attend(self, events: int) -> None:
        """Attend to events other than bad values and used up random numbers."""

    def act(self, vector: Array) -> int:
        """Choose an action, from 0, for a flattened observation."""
        while True:
            code = type(self).choose(vector, *self.arrays)
            if code >= 0:
                return code
            self.attend(-code, "observation")

    def chosen(self, vector: Array) -> int:
        """Return the action that was chosen for an observation before the agent was saved."""
        return self.env_states[0].action

    def attend(self, events: int, what: str) -> None:
        """Attend to events, bits that compiled code has returned; ValueError for bad values."""
        validation.refuse(events, what, self.interface)
        if events & UNIFORMS:
            self._draw()
        if events != UNIFORMS:
            with one_thread():
                self._attend(events)

    def note_level(self, level: Level) -> None:
        """Add to the history, of which the earlier half is dropped when it is very long."""
        bad = np.flatnonzero(~np.isfinite(level.codevectors).all(axis=0))
        if len(bad):
            raise ValueError(
                f"codevectors are not finite after {level.step:,} steps, in component {bad[0]} of "
                "the observation: bring its components to similar scales, as "
                "gymnasium.wrappers.NormalizeObservation does"
            )
        self.history.append(level)
        if len(self.history) > _MAX_LEVELS:
            del self.history[: _MAX_LEVELS // 2]
            self._levels_dropped += _MAX_LEVELS // 2
            self.history[0] = replace(self.history[0], parents=None)

    @property
    def delivered_return(self) -> float:
        """Mean return of the policy that would be delivered now, as far as known; NaN if not."""
        return np.nan

    def note_episodes(self, episodes: FloatArray) -> None:  # noqa: B027 (most engines do nothing)
        """Note episodes that ended in compiled code, shape (n, 3): return, length, steps."""

    def draw_seed(self) -> int:
        """Draw a seed for exploration elsewhere."""
        return int(self._explore.integers(2**63))

    def _draw(self) -> None:
        self._explore.random(out=self._workspace.uniforms)
        self.state.next_uniform = 0


class InterpretedEngine(Engine):
    """Base of engines that :meth:`decide` and :meth:`learn` in plain Python, step by step.

    They go through several environments one by one, and track the range of observations.
    """

    saved: ClassVar[tuple[str, ...]] = ()  # learned arrays to save, of constant shapes
    epsilon: float = 0.0
    arrays = loop_arrays = ()
    fuses = False

    def __init__(self, interface: Interface, explore: np.random.Generator) -> None:
        super().__init__(interface, 1, explore)
        self.state = Counters(np.zeros(Counters.size, dtype=np.uint8))
        self._moments = np.zeros((4, interface.n_features))  # mean, variance, minimum, maximum
        self.set_n_envs(1)

    @abstractmethod
    def decide(self, point: FloatArray) -> int:
        """Choose an action, from 0, with exploration."""

    @abstractmethod
    def learn(
        self, point: FloatArray, action: int, reward: float, after: FloatArray, terminated: bool
    ) -> None:
        """Learn from one step; there is no next value if it ``terminated``."""

    @property
    def extent(self) -> Extent:
        """Mean of the observations, and their maximum distances from it."""
        mean, _, low, high = self._moments
        return Extent(mean.copy(), np.maximum(high - mean, mean - low))

    @property
    def scale(self) -> FloatArray | None:
        mean, variance = self._moments[:2]
        scale = metric.scales(mean, np.diag(variance), self.interface.dtype)
        return scale if self.state.steps else None

    @property
    def env_states(self) -> list[EnvState]:
        return self._env_states

    def set_n_envs(self, count: int) -> None:
        self._env_states = new_env_states(np.zeros(count * EnvState.size, dtype=np.uint8))
        self._acted_on = np.zeros((count, self.interface.n_features))

    def begin_episode(self) -> None:
        for env_state in self.env_states:
            env_state.assign({"episode_return": 0.0, "episode_length": 0})

    def act(self, vector: Array, what: str = "observation", i: int = 0) -> int:
        validation.refuse(badness(vector, self.interface), what, self.interface)
        self._acted_on[i] = vector
        self.env_states[i].action = self.decide(self._acted_on[i])
        return self.env_states[i].action

    def step(self, vector: Array, reward: float, *ends: bool) -> int:
        events = self._learn(0, vector, reward, *ends)
        return -events if events else self.act(vector, validation.BAD_STEP)

    def update(self, vector: Any, action: int, reward: float, after: Any, *ends: bool) -> int:
        events = badness(vector, self.interface)
        if not events:
            self._acted_on[0], self.env_states[0].action = vector, action
            events = self._learn(0, after, reward, *ends)
        return events

    def advance(self, step: VectorStep) -> tuple[IntArray, FloatArray]:
        actions, ended = np.zeros(self.n_envs, dtype=np.int64), [np.empty((0, 2))]
        outcomes = zip(*(column.tolist() for column in step[2:5]), strict=True)
        for i, outcome in enumerate(outcomes):
            if step.learns[i]:
                events = self._learn(i, step.after[i], *outcome)
                validation.refuse(events, validation.BAD_STEP, self.interface)
                if events:
                    ended.append(np.array([[self.state.last_return, self.state.last_length]]))
            if step.acts[i]:
                actions[i] = self.act(step.observations[i], validation.BAD_STEP, i)
        return actions, np.concatenate(ended)

    def state_arrays(self) -> dict[str, Array]:
        return {
            "state": self.state.record,
            "env_states": np.concatenate([env_state.record for env_state in self.env_states]),
            **{name: getattr(self, name) for name in ("_acted_on", "_moments", *self.saved)},
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        self.set_n_envs(len(arrays["env_states"]))
        self.state.restore(arrays["state"])
        for i, env_state in enumerate(self.env_states):
            env_state.restore(arrays["env_states"][i : i + 1])
        for name in ("_acted_on", "_moments", *self.saved):
            getattr(self, name)[:] = arrays[name]

    def _attend(self, events: int) -> None:
        pass

    def _learn(self, i: int, vector: Any, reward: float, terminated: bool, truncated: bool) -> int:
        """Learn from the outcome of the last action in an environment; return events."""
        events = badness(vector, self.interface)
        if events or not abs(reward) <= validation.LARGEST_REWARD:
            return events or validation.NOT_FINITE
        point, env_state = self._acted_on[i], self.env_states[i]
        self._count(point)
        self.learn(point, env_state.action, reward, vector.astype(np.float64), terminated)
        env_state.episode_return += reward
        env_state.episode_length += 1
        if not (terminated or truncated):
            return 0
        plain(end_episode)(self.state, env_state)
        return EPISODE_END

    def _count(self, point: FloatArray) -> None:
        """Count a step, and update mean, variance (Welford's recursion) and range."""
        self.state.steps += 1
        if self.state.steps == 1:
            self._moments[[0, 2, 3]] = point
        mean, variance, low, high = self._moments
        step, before = 1.0 / self.state.steps, point - mean
        mean += step * before
        variance += step * (before * (point - mean) - variance)
        np.minimum(low, point, out=low)
        np.maximum(high, point, out=high)


def badness(vector: Array, interface: Interface) -> int:
    """Return the event for a bad observation; 0 for a good one."""
    if vector.shape != (interface.n_features,):
        return validation.BAD_SHAPE
    largest = np.abs(vector.astype(np.float64)).max()
    return 0 if largest <= LARGEST else validation.NOT_FINITE


class Performed(gym.ActionWrapper[Any, Any, Any]):
    """An environment with actions by number, of which ``engine.perform(number)`` makes one."""

    def __init__(self, env: gym.Env[Any, Any], engine: Any) -> None:
        super().__init__(env)
        self.action_space = spaces.Discrete(engine.interface.n_actions)
        self._engine = engine

    def action(self, action: Any) -> Any:
        return self._engine.perform(int(action))
