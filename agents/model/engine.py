"""The state of a model agent: what it has seen, what it plays, and when it plans."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.engine.engine import Engine
from oda_rl.agents.engine.history import Level
from oda_rl.agents.engine.lanes import VectorStep
from oda_rl.agents.engine.state import EPISODE_END, Counters, Lane, with_lanes
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import BAD_SHAPE, NOT_FINITE
from oda_rl.agents.model.memory import Memory
from oda_rl.agents.model.planning import Planner
from oda_rl.agents.model.search import Shape
from oda_rl.agents.model.selection import Candidate
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.diagram import LARGEST

_PLAN = 1024  # event: it is time to learn the world anew
_LONGEST_HOLD = 100
_AT_ONCE = 4  # episodes of the best rule, at most, before another is played
_PATIENCE = 10  # times as many steps as planning needs, without an episode's end


class ModelEngine(Engine):
    """What a model agent has seen and does, in Python: planning takes far longer than its steps.

    Parameters
    ----------
    interface : Interface
        Of the environment.
    config : ModelConfig
        Settings of the agent.
    horizon : int
        Steps of an episode, at most.
    explore, planning : numpy.random.Generator
        Decide on random actions; on fits and searches.
    """

    rule = None
    choose: ClassVar[Any] = staticmethod(lambda vector, own: own._choose(vector))
    step: ClassVar[Any] = staticmethod(lambda *arguments: arguments[-1]._step(*arguments[:-1]))
    update: Any = staticmethod(lambda *arguments: arguments[-1]._update(*arguments[:-1]))

    def __init__(
        self,
        interface: Interface,
        config: ModelConfig,
        horizon: int,
        explore: np.random.Generator,
        planning: np.random.Generator,
    ) -> None:
        super().__init__(interface, 1, explore)
        self.config = config
        d, n = interface.n_features, interface.n_actions
        self.raw, (self.lane,) = with_lanes(Counters, 1)
        self.state = Counters(self.raw)
        self.memory = Memory(d, n)
        shape = Shape.of(d, n, boxed=False)
        self.planner = Planner(self.memory, shape, horizon, config, planning)
        self.arrays = (self,)  # type: ignore[assignment]
        self._returns: list[float] = []
        self._before = np.zeros(d)
        self._start = np.zeros(d)
        self._played: Candidate | None = None  # at random
        self._newest: Candidate | None = None
        self._whole = True
        self._confirming = 0  # episodes in a row
        self._confirmed = 0  # steps
        self._new_steps, self._needed = 0, config.random_steps
        self._drawn: Any = None

    @property
    def loop_arrays(self) -> tuple[Any, ...]:
        """Nothing: it does not run in compiled loops."""
        return ()

    @property
    def epsilon(self) -> float:
        """Present probability of a random action."""
        return float(self._played is None)

    @property
    def scale(self) -> FloatArray | None:
        """Inverse standard deviations of the observation's components; None before learning."""
        if self.planner.learned is None:
            return None
        at = self.planner.learned.at
        return np.asarray(1.0 / at.scale)

    @property
    def policy(self) -> RulePolicy:
        """The best rule."""
        planner = self.planner
        best = planner.best() if planner.candidates else self._newest
        if best is None:
            d, shape = self.interface.n_features, planner.shape
            outputs = np.zeros((1, shape.n_outputs, 1))
            outputs[0, 0] = 1.0
            return RulePolicy(np.zeros((1, 1 + d)), outputs, np.zeros((1, d)))
        return self._delivered(best)

    def _delivered(self, candidate: Candidate) -> RulePolicy:
        """Return a rule with the means of the states seen in its cells, without idle cells."""
        points = self.memory.transitions.before[-2000:]
        d = points.shape[1]
        rule = RulePolicy(candidate.scores, candidate.outputs, np.zeros((len(candidate.scores), d)))
        cells = rule.cells(points)
        counts = np.bincount(cells, minlength=rule.n_cells)
        for k in range(rule.n_cells):
            own = points[cells == k] if counts[k] else points
            rule.codevectors[k] = own.mean(axis=0)
        return rule

    def _choose(self, vector: npt.NDArray[Any]) -> int:
        event = self._bad(vector)
        if event:
            return -event
        self._before = np.array(vector, dtype=np.float64)
        if self.lane.episode_length == 0:
            self._start = self._before
        lane = self.lane
        if self._played is not None:
            self._drawn = None
            scores = self._played.scores
            cell = int(np.argmax(scores[:, 0] + scores[:, 1:] @ self._before))
            lane.action = int(self._played.outputs[cell, :, 0].argmax())
            return lane.action
        self._drawn = None if lane.held > 0 else self._explore.bit_generator.state
        if lane.held > 0:
            lane.held -= 1
            return lane.action
        lane.action = int(self._explore.integers(self.interface.n_actions))
        lane.held = int(1.0 / max(self._explore.random(), 1.0 / _LONGEST_HOLD)) - 1
        return lane.action

    def _step(
        self, vector: npt.NDArray[Any], reward: float, terminated: bool, truncated: bool
    ) -> int:
        events = self._bad(vector) | (NOT_FINITE if reward - reward != 0.0 else 0)
        if events == 0:
            events = self._record(vector, reward, bool(terminated), bool(truncated))
        return -events if events else self._choose(vector)

    def _update(
        self,
        observation: npt.NDArray[Any],
        action: int,
        reward: float,
        vector: npt.NDArray[Any],
        terminated: bool,
        truncated: bool,
    ) -> int:
        events = self._bad(observation) | self._bad(vector)
        if reward - reward != 0.0:
            events |= NOT_FINITE
        if events:
            return events
        self._before = np.array(observation, dtype=np.float64)
        if self.lane.episode_length == 0:
            self._start = self._before
        if action != self.lane.action:
            self._whole = False
            self.lane.action = action
        return self._record(vector, reward, terminated, truncated)

    def _record(
        self, vector: npt.NDArray[Any], reward: float, terminated: bool, truncated: bool
    ) -> int:
        lane, state = self.lane, self.state
        code = np.zeros(self.interface.n_actions)
        code[lane.action] = 1.0
        first = lane.episode_length == 0
        self.memory.append(self._before, code, reward, vector, terminated, first)
        state.steps += 1
        self._new_steps += 1
        lane.episode_length += 1
        lane.episode_return += reward
        if terminated or truncated:
            state.last_return, state.last_length = lane.episode_return, lane.episode_length
            lane.assign({"episode_return": 0.0, "episode_length": 0, "held": 0})
            return EPISODE_END
        return _PLAN if self._new_steps >= _PATIENCE * self._needed else 0

    def _bad(self, vector: npt.NDArray[Any]) -> int:
        if vector.shape != (self.interface.n_features,):
            return BAD_SHAPE
        return 0 if (np.abs(vector.astype(np.float64)) <= LARGEST).all() else NOT_FINITE

    def _attend(self, events: int) -> None:
        if events & EPISODE_END:
            self._end_episode(self.state.last_return, self.state.last_length)
        elif events & _PLAN:
            self._plan()

    def _end_episode(self, episode_return: float, length: int) -> None:
        """Note an episode, and decide what is played next."""
        self._returns.append(episode_return)
        if self._played is not None and self._whole:
            self.planner.note(self._played, self._start, episode_return)
        self._whole = True
        if self._played is not self._newest:
            self._confirmed += length
            self._confirming += 1
            if not self._confirms():
                self._played = self._newest
                self._new_steps = 0
        elif self._new_steps >= self._needed:
            self._plan()

    def _plan(self) -> None:
        self._newest = self.planner.plan(self._returns)
        self._needed = max(
            self.config.least_steps, int(self.config.plan_every * self.state.steps)
        )
        self._new_steps = self._confirming = 0
        self._whole = self.lane.episode_length == 0
        self._played = self._newest
        self.lane.held = 0
        if self._confirms():
            self._played = self.planner.best()
        learned = self.planner.learned
        assert learned is not None
        codevectors = learned.arrays.codevectors[0].T.copy()
        self.history.append(Level(self.state.steps, np.nan, codevectors, None))

    def _confirms(self) -> bool:
        """Whether the best rule is to be played again before the newest one."""
        if not self.planner.candidates or self._confirming >= _AT_ONCE:
            return False
        spent = self._confirmed >= self.config.confirm_share * self.state.steps
        best = self.planner.best()
        enough = len(best.returns) >= self.config.confirm_episodes
        return not (spent or enough or best is self._newest)

    @property
    def n_lanes(self) -> int:
        """Number of environments learned from at once; 0 along one trajectory."""
        return 0

    @property
    def lanes(self) -> list[Lane]:
        """What the running episodes count."""
        return [self.lane]

    def set_lanes(self, count: int) -> None:
        """Get ready to learn from so many environments at once, none of which has begun yet."""
        raise NotImplementedError

    def leave_lanes(self) -> None:
        """Go back to learning along one trajectory."""

    def advance(self, step: VectorStep) -> tuple[IntArray, FloatArray]:
        """Learn from a step of all environments and choose the next actions."""
        raise NotImplementedError

    def begin_episode(self) -> None:
        """Forget episodes that were not finished; their steps are remembered."""
        self.lane.assign({"episode_return": 0.0, "episode_length": 0, "held": 0})
        self._whole = True

    def withdraw_choice(self) -> None:
        """Take back the last choice of an action."""
        if self._drawn is not None:
            self._explore.bit_generator.state = self._drawn
            self.lane.held = 0
        elif self._played is None:
            self.lane.held += 1

    def state_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays that have to be saved, the history apart."""
        raise NotImplementedError

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take over what :meth:`state_arrays` returned."""
        raise NotImplementedError
