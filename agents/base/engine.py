"""What the engines of all agents share: named state, random numbers, and what is done at events."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from oda_rl import metric
from oda_rl._threads import one_thread
from oda_rl._types import BoolArray, FloatArray, IntArray
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
    with_env_states,
)
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import (
    BAD_SHAPE,
    BAD_STEP,
    LARGEST_REWARD,
    NOT_FINITE,
    refuse,
)
from oda_rl.agents.policies.contract import Extent
from oda_rl.diagram import LARGEST

_MAX_LEVELS = 1000
_BLOCK = 500  # random numbers drawn at a time; not 512: rows 4096 bytes apart share cache lines


class VectorStep(NamedTuple):
    """A step of n environments, not all of which need have made one."""

    after: npt.NDArray[Any]
    """What the step led to: shape (n, d), of float32 or float64, as are the observations."""
    observations: npt.NDArray[Any]
    """What to act on next: another where an episode has begun since. Shape (n, d)."""
    rewards: FloatArray
    """Shape (n,), as all of the following."""
    terminated: BoolArray
    truncated: BoolArray
    learns: BoolArray
    """Which environments have made a step."""
    acts: BoolArray
    """Which ones need an action."""
    begins: BoolArray
    """Which of those begin an episode."""


class Engine(ABC):
    """The state of an agent, which compiled code works on, and what that cannot do itself.

    Parameters
    ----------
    interface : Interface
        Of the environment.
    width : int
        Minimum length of a row of the workspace.
    explore : numpy.random.Generator
        Decides on exploration.
    """

    rule: ClassVar[Rule]
    """What it does in a compiled loop, if it ``fuses``."""
    fuses: ClassVar[bool] = True
    """Whether it learns in compiled loops, where the dynamics are compiled."""
    own_events: ClassVar[int] = UNIFORMS
    """Events in compiled loops that nobody else has to know of."""
    choose: ClassVar[Callable[..., int]]
    """Compiled: (observation, *arrays) to an action, or minus events to attend to."""
    step: ClassVar[Callable[..., int]]
    """Compiled: (next observation, reward, terminated, truncated, *arrays) to the next action, or
    minus events to attend to."""
    update: Callable[..., int]
    """Compiled: (observation, action, reward, next observation, terminated, truncated, *arrays) to
    events."""
    arrays: tuple[Any, ...]
    """What these take; others may take their place in :meth:`attend`."""
    state: Any
    """Named state, which begins with :class:`oda_rl.agents.base.state.Counters`."""

    def __init__(self, interface: Interface, width: int, explore: np.random.Generator) -> None:
        self.interface = interface
        self.history: list[Level] = []
        self._levels_dropped = 0
        self.room: FloatArray = np.zeros((len(Workspace._fields), max(width, _BLOCK)))
        self._workspace = Workspace(*self.room)
        self._explore = explore
        explore.random(out=self._workspace.uniforms)

    @property
    @abstractmethod
    def loop_arrays(self) -> tuple[Any, ...]:
        """The arrays that the rule opens in a compiled loop."""

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """Present probability of a random action."""

    @property
    @abstractmethod
    def scale(self) -> FloatArray | None:
        """Inverse standard deviations of the observation's components; None before learning."""

    @property
    @abstractmethod
    def n_envs(self) -> int:
        """Number of environments learned from at once; at most 1 along one trajectory."""

    @property
    @abstractmethod
    def env_states(self) -> list[EnvState]:
        """What belongs to each environment."""

    @abstractmethod
    def set_n_envs(self, count: int) -> None:
        """Prepare to learn from ``count`` environments at once, none of which has begun yet."""

    @abstractmethod
    def leave_envs(self) -> None:
        """Go back to learning along one trajectory."""

    @abstractmethod
    def advance(self, step: VectorStep) -> tuple[IntArray, FloatArray]:
        """Learn from a step of all environments and choose the next actions.

        Returns the actions (from 0), shape (n,), and the episodes that have ended, shape (m, 2), as
        (return, length).
        """

    @abstractmethod
    def begin_episode(self) -> None:
        """Forget episodes that were not finished."""

    @abstractmethod
    def withdraw_choice(self) -> None:
        """Take back the last choice of an action."""

    @abstractmethod
    def state_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays that have to be saved, the history apart."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take over what :meth:`state_arrays` returned."""

    @abstractmethod
    def _attend(self, events: int) -> None:
        """Do what compiled code could not, bad values and used up random numbers apart."""

    def act(self, vector: npt.NDArray[Any]) -> int:
        """Choose an action (from 0) for a flattened observation."""
        while True:
            code = type(self).choose(vector, *self.arrays)
            if code >= 0:
                return code
            self.attend(-code, "observation")

    def chosen(self, vector: npt.NDArray[Any]) -> int:
        """Return the action that was chosen for this observation before the agent was saved."""
        return self.env_states[0].action

    def attend(self, events: int, what: str) -> None:
        """Do what compiled code could not.

        Parameters
        ----------
        events : int
            Bits that it has returned.
        what : str
            What to name in the error if a value was bad.

        Raises
        ------
        ValueError
            If the shape of an observation was wrong, or it or the reward was not finite.
        """
        refuse(events, what, self.interface)
        if events & UNIFORMS:
            self._draw()
        if events != UNIFORMS:
            with one_thread():
                self._attend(events)

    @property
    def _n_levels(self) -> int:
        return len(self.history) + self._levels_dropped

    def note_level(self, level: Level) -> None:
        """Add to the history; of a very long one, only the later half is kept.

        Raises
        ------
        ValueError
            If a codevector is not finite.
        """
        if not np.isfinite(level.codevectors).all():
            raise ValueError(
                f"codevectors are not finite after {level.step:,} steps: bring the components of "
                "the observation to similar scales, as gymnasium.wrappers.NormalizeObservation does"
            )
        self.history.append(level)
        if len(self.history) > _MAX_LEVELS:
            del self.history[: _MAX_LEVELS // 2]
            self._levels_dropped += _MAX_LEVELS // 2
            self.history[0] = replace(self.history[0], lineage=None)

    @property
    def bytes_per_step(self) -> int:
        """Maximum growth of the agent's file in a step."""
        return 0

    def note_episodes(self, episodes: FloatArray) -> None:  # noqa: B027 (most have nothing to do)
        """Note episodes that ended in compiled code, shape (n, 3): return, length, and more."""

    def draw_seed(self) -> int:
        """Draw a seed for exploration elsewhere."""
        return int(self._explore.integers(2**63))

    def _draw(self) -> None:
        """Draw random numbers for exploration."""
        self._explore.random(out=self._workspace.uniforms)
        self.state.next_uniform = 0


class InterpretedEngine(Engine):
    """Base of engines that say in Python what they do (:meth:`decide`) and learn (:meth:`learn`).

    In several environments it goes from one to the next; where the dynamics are compiled, too, it
    learns step by step. It counts steps and episodes, and knows where the observations were.

    Parameters
    ----------
    interface : Interface
        Of the environment.
    explore : numpy.random.Generator
        Decides on exploration: ``self._explore``.
    """

    saved: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays, of a shape that does not change, that it learns."""
    epsilon: float = 0.0
    arrays = loop_arrays = ()
    fuses = False

    def __init__(self, interface: Interface, explore: np.random.Generator) -> None:
        super().__init__(interface, 1, explore)
        self.raw, self._env_states = with_env_states(Counters, 1)
        self.state = Counters(self.raw)
        self._acted_on = np.zeros((1, interface.n_features))  # in each environment
        self._moments = np.zeros((4, interface.n_features))  # mean, variance, minimum, maximum

    @abstractmethod
    def decide(self, point: FloatArray) -> int:
        """Choose an action, from 0, in a state, exploring as training asks for."""

    @abstractmethod
    def learn(
        self, point: FloatArray, action: int, reward: float, after: FloatArray, terminated: bool
    ) -> None:
        """Learn from one step; where it ``terminated``, nothing comes after it."""

    @property
    def extent(self) -> Extent:
        """Where the observations were that it learned from."""
        mean, _, low, high = self._moments
        return Extent(mean.copy(), np.maximum(high - mean, mean - low))

    @property
    def scale(self) -> FloatArray | None:
        mean, variance = self._moments[:2]
        return metric.scales(mean, np.diag(variance)) if self.state.steps else None

    @property
    def env_states(self) -> list[EnvState]:
        return self._env_states

    @property
    def n_envs(self) -> int:
        return len(self._env_states)

    def set_n_envs(self, count: int) -> None:
        self._env_states = new_env_states(np.zeros(count * EnvState.size, dtype=np.uint8))
        self._acted_on = np.zeros((count, self.interface.n_features))

    def leave_envs(self) -> None:
        if self.n_envs > 1:
            self.set_n_envs(1)

    def begin_episode(self) -> None:
        for env_state in self.env_states:
            env_state.assign({"episode_return": 0.0, "episode_length": 0})

    def withdraw_choice(self) -> None:
        """Keep the last choice: it cost nothing but random numbers."""

    def act(self, vector: npt.NDArray[Any]) -> int:
        return self._decide(self.env_states[0], vector, "observation")

    def step(
        self, vector: npt.NDArray[Any], reward: float, terminated: bool, truncated: bool
    ) -> int:
        """Learn from the last action's outcome; choose the next action, or return minus events."""
        events = self._learn(self.env_states[0], vector, reward, terminated, truncated)
        return -events if events else self._decide(self.env_states[0], vector, BAD_STEP)

    def update(
        self,
        vector: npt.NDArray[Any],
        action: int,
        reward: float,
        after: npt.NDArray[Any],
        terminated: bool,
        truncated: bool,
    ) -> int:
        """Learn from one transition; returns events."""
        events = badness(vector, self.interface)
        if not events:
            self._acted_on[0], self.env_states[0].action = vector, action
            events = self._learn(self.env_states[0], after, reward, terminated, truncated)
        return events

    def advance(self, step: VectorStep) -> tuple[IntArray, FloatArray]:
        actions, ended = np.zeros(self.n_envs, dtype=np.int64), [np.empty((0, 2))]
        outcomes = zip(*(column.tolist() for column in step[2:5]), strict=True)
        for i, (env_state, outcome) in enumerate(zip(self.env_states, outcomes, strict=True)):
            if step.learns[i]:
                events = self._learn(env_state, step.after[i], *outcome)
                refuse(events, BAD_STEP, self.interface)
                if events:
                    ended.append(np.array([[self.state.last_return, self.state.last_length]]))
            if step.acts[i]:
                actions[i] = self._decide(env_state, step.observations[i], BAD_STEP)
        return actions, np.concatenate(ended)

    def state_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "state": self.state.record,
            "env_states": np.concatenate([env_state.record for env_state in self.env_states]),
            **{name: getattr(self, name) for name in ("_acted_on", "_moments", *self.saved)},
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.set_n_envs(len(arrays["env_states"]))
        self.state.restore(arrays["state"])
        for i, env_state in enumerate(self.env_states):
            env_state.restore(arrays["env_states"][i : i + 1])
        for name in ("_acted_on", "_moments", *self.saved):
            getattr(self, name)[:] = arrays[name]

    def _attend(self, events: int) -> None:
        pass  # at the end of an episode nothing is left to do

    def _decide(self, env_state: EnvState, vector: npt.NDArray[Any], what: str) -> int:
        refuse(badness(vector, self.interface), what, self.interface)
        self._acted_on[env_state.number] = vector
        env_state.action = self.decide(self._acted_on[env_state.number])
        return env_state.action

    def _learn(
        self,
        env_state: EnvState,
        vector: npt.NDArray[Any],
        reward: float,
        terminated: bool,
        truncated: bool,
    ) -> int:
        """Learn from what the last action led to; returns events."""
        events = badness(vector, self.interface)
        if events or not abs(reward) <= LARGEST_REWARD:
            return events or NOT_FINITE
        point, after = self._acted_on[env_state.number], np.array(vector, dtype=np.float64)
        self._count(point)
        self.learn(point, env_state.action, reward, after, terminated)
        env_state.episode_return += reward
        env_state.episode_length += 1
        if not (terminated or truncated):
            return 0
        end_episode.py_func(self.state, env_state)  # type: ignore[attr-defined]
        return EPISODE_END

    def _count(self, point: FloatArray) -> None:
        """Count a step from there, and update mean and variance (Welford's recursion)."""
        self.state.steps += 1
        if self.state.steps == 1:
            self._moments[[0, 2, 3]] = point
        mean, variance, low, high = self._moments
        step, before = 1.0 / self.state.steps, point - mean
        mean += step * before
        variance += step * (before * (point - mean) - variance)
        np.minimum(low, point, out=low)
        np.maximum(high, point, out=high)


def badness(vector: npt.NDArray[Any], interface: Interface) -> int:
    """Return the event of an observation that is bad; 0 of a good one."""
    if vector.shape != (interface.n_features,):
        return BAD_SHAPE
    largest = np.abs(vector.astype(np.float64)).max()
    return 0 if largest <= LARGEST else NOT_FINITE


class Performer(Protocol):
    """An engine that knows what the number of an action stands for in the present state."""

    interface: Interface

    def perform(self, number: int) -> npt.NDArray[Any]:
        """Return the action of the environment, and remember that it is done."""


class Performed(gym.ActionWrapper[Any, Any, Any]):
    """An environment with a box of actions, in which training chooses them by numbers.

    Parameters
    ----------
    env : gymnasium.Env
        With a box of actions.
    performer : Performer
        Knows what the numbers stand for.
    """

    def __init__(self, env: gym.Env[Any, Any], performer: Performer) -> None:
        super().__init__(env)
        self.action_space = spaces.Discrete(performer.interface.n_actions)
        self._performer = performer

    def action(self, action: Any) -> npt.NDArray[Any]:
        """Return the action that a number stands for."""
        return self._performer.perform(int(action))
