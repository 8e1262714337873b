"""What the engines of all agents share: named state, random numbers, and what is done at events."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.history import Level
from oda_rl.agents.base.lanes import VectorStep
from oda_rl.agents.base.loop import Rule
from oda_rl.agents.base.state import UNIFORMS, Lane, Workspace
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import refuse

_MOST_LEVELS = 1000
_BLOCK = 500  # random numbers drawn at a time; not 512: rows 4096 bytes apart share cache lines


class Engine(ABC):
    """The state of an agent, which compiled code works on, and what that cannot do itself.

    Parameters
    ----------
    interface : Interface
        Of the environment.
    width : int
        Numbers that a row of the workspace has room for, at least.
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
        self._levels_dropped = 0  # levels that are no longer there
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
    def n_lanes(self) -> int:
        """Number of environments learned from at once; at most 1 along one trajectory."""

    @property
    @abstractmethod
    def lanes(self) -> list[Lane]:
        """What belongs to each environment."""

    @abstractmethod
    def set_lanes(self, count: int) -> None:
        """Get ready to learn from so many environments at once, none of which has begun yet."""

    @abstractmethod
    def leave_lanes(self) -> None:
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
        """Return the action that was chosen last, for this observation, before it was saved."""
        return self.lanes[0].action

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
        """How many levels have been noted."""
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
        if len(self.history) > _MOST_LEVELS:
            del self.history[: _MOST_LEVELS // 2]
            self._levels_dropped += _MOST_LEVELS // 2
            self.history[0] = replace(self.history[0], lineage=None)

    def note_episodes(self, episodes: FloatArray) -> None:  # noqa: B027 (seldom is there more)
        """Note episodes that ended in compiled code, shape (n, 3): return, length, and more."""

    @property
    def bytes_per_step(self) -> int:
        """What each step adds to a file, at most."""
        return 0

    @property
    def episode_length(self) -> int:
        """Steps of the only environment's running episode."""
        return self.lanes[0].episode_length

    def draw_seed(self) -> int:
        """Draw a seed for exploration elsewhere."""
        return int(self._explore.integers(2**63))

    def _draw(self) -> None:
        """Draw random numbers for exploration."""
        self._explore.random(out=self._workspace.uniforms)
        self.state.next_uniform = 0
