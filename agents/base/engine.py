"""Base classes of engines, which hold the state of an agent that compiled code works on."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformAction

from oda_rl._threads import one_thread
from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.agents.base.compiled_loop import Rule
from oda_rl.agents.base.history import Level
from oda_rl.agents.base.state import UNIFORMS, EnvState, Workspace
from oda_rl.agents.environments import validation
from oda_rl.agents.environments.spaces import Interface
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


def badness(vector: Array, interface: Interface) -> int:
    """Return the event for a bad observation; 0 for a good one."""
    if vector.shape != (interface.n_features,):
        return validation.BAD_SHAPE
    largest = np.abs(vector.astype(np.float64)).max()
    return 0 if largest <= LARGEST else validation.NOT_FINITE


class Performed(TransformAction[Any, Any, Any]):
    """An environment with actions by number, of which ``engine.perform(number)`` makes one."""

    def __init__(self, env: gym.Env[Any, Any], engine: Any) -> None:
        numbers = spaces.Discrete(engine.interface.n_actions)
        super().__init__(env, lambda number: engine.perform(int(number)), numbers)
