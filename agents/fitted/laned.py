"""What a fitted agent's engine does of several environments, each with an episode of its own."""

from abc import abstractmethod
from dataclasses import replace

import numpy as np

from oda_rl._state import Raw
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.engine import Engine, VectorStep
from oda_rl.agents.base.memory import Memory
from oda_rl.agents.base.state import Lane
from oda_rl.agents.environments.validation import BAD_STEP, refuse
from oda_rl.agents.fitted import replay
from oda_rl.agents.fitted.lanes import Playing, RunningTrajectories
from oda_rl.agents.fitted.records import Record
from oda_rl.agents.fitting.placed import NOWHERE

_NONE = np.empty(0, dtype=np.int64)
_STALE = 10  # fits after which an environment gives up an old policy


class LanedEngine(Engine):
    """An engine that remembers trajectories of several environments, or of one.

    Attributes
    ----------
    memory : Memory
        Of trajectories that are over; of the only one, if there is no other.
    lane : Lane
        What the running episode of the only environment counts.
    raw : ndarray
        Its state, and that of the engine.
    """

    memory: Memory
    lane: Lane
    raw: Raw
    _playing: Playing
    _running: RunningTrajectories | None = None  # of several environments
    _ended_since_fit = False

    @property
    def n_lanes(self) -> int:
        """Number of environments learned from at once; 0 along one trajectory."""
        return 0 if self._running is None else len(self._running.playing)

    @property
    def lanes(self) -> list[Lane]:
        """What the running episodes count."""
        return [self.lane] if self._running is None else self._running.lanes

    def set_lanes(self, count: int) -> None:
        """Get ready to learn from so many environments at once, none of which has begun yet.

        Running trajectories end.
        """
        self.leave_lanes()
        self._running = RunningTrajectories(count, self.interface, self._playing)

    def leave_lanes(self) -> None:
        """Go back to learning along one trajectory."""
        if self._running is not None:
            for lane in range(self.n_lanes):
                self._commit(lane)
            self._running = None
            self._open()

    def advance(self, step: VectorStep) -> tuple[IntArray, FloatArray]:
        """Learn from a step of all environments and choose the next actions.

        Returns the actions (from 0), shape (n,), and the episodes that have ended, shape (m, 2), as
        (return, length).
        """
        running = self._running
        assert running is not None
        n = self.n_lanes
        assert len(step.rewards) == n  # else compiled code would write past the ends
        ended, over = np.zeros((n, 2)), _NONE
        events = running.record(step, ended, self.raw, self.room)
        if events:
            refuse(events, BAD_STEP, self.interface)
            over = ended[:, 1].nonzero()[0]
            for lane in over.tolist():
                episode_return, length = ended[lane].tolist()
                self.credit(lane, episode_return, int(length))
                self._commit(lane)
            if events & replay.REFIT:
                self.refit_or_confirm()
            if events & replay.ROOM:
                running.make_room()
        for lane in step.begins.nonzero()[0].tolist():
            self.begin_lane(lane)
        actions, at = np.zeros(n, dtype=np.int64), 0
        while at < n:
            event, at = running.choose(at, step, actions, self.raw, self.room)
            if event:
                refuse(event, BAD_STEP, self.interface)
                self._draw()
        return actions, ended[over]

    def begin_lane(self, lane: int) -> Playing:
        """Say how the next episode of an environment is played."""
        assert self._running is not None
        self.take_turns()
        self._running.play(lane, self._playing)
        return self._playing

    def credit(self, lane: int, episode_return: float, length: int) -> None:
        """Note an episode of an environment."""
        assert self._running is not None
        playing = self._running.playing[lane]
        self._credit(episode_return, length, playing.record, playing.scheme)

    def _replace_stale(self, running: RunningTrajectories) -> None:
        """Let environments play the present policy if theirs is old, or no episode seems to end.

        Where that is at random, every other one goes on to its episode's end: a goal may be farther
        away than the steps of a first fit have taken each of many environments.
        """
        playing = replace(self._playing, record=None)
        for lane, other in enumerate(running.playing):
            waits = other.epsilon >= 1.0 and lane % 2 == 1
            endless = not self._ended_since_fit and not waits
            if endless or self._playing.fits - other.fits > _STALE:
                self._commit(lane)
                running.play(lane, playing)
        self._ended_since_fit = False

    def _commit(self, lane: int) -> None:
        """Take over an environment's trajectory, which is over."""
        assert self._running is not None
        observations, steps = self._running.rows(lane)
        self._running.moves.end(lane, len(steps), self.memory.rows(self.lane))
        self.memory.append(observations, steps, self.lane)
        self._running.forget(lane)

    def _append_running(self) -> int:
        """Put running trajectories behind the others; returns how many rows there were."""
        n = self.memory.rows(self.lane)
        if self._running is not None:
            self.memory.append(*self._running.all_rows(), self.lane)
        return n

    def _where_ended_were(self, begin: int) -> IntArray:
        """Return where the memory's rows from ``begin`` on were at the last fit."""
        end = self.memory.rows(self.lane)
        if self._running is None:
            return np.full(end - begin, NOWHERE)
        return self._running.moves.of_ended(begin, end)

    def _where_running_were(self, begin: int) -> IntArray:
        """Return where the rows of running trajectories were, that begin at a row in this fit."""
        if self._running is None:
            return _NONE
        return self._running.moves.of_running(begin, self._running.lengths)

    @abstractmethod
    def refit_or_confirm(self) -> None:
        """Fit anew, or first make sure of the policy that would be delivered."""

    @abstractmethod
    def take_turns(self) -> None:
        """Let perhaps another scheme of exploration have the next episode."""

    @abstractmethod
    def _credit(self, total: float, length: int, record: Record | None, scheme: int) -> None:
        """Note an episode, to the credit of a policy if it was played with that alone."""

    @abstractmethod
    def _open(self) -> None:
        """Let compiled code work on the present memory and policy."""
