"""Learning in a loop of one's own: one step after the other."""

from typing import Any, SupportsFloat

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.agents.engine.engine import Engine
from oda_rl.agents.engine.episodes import EpisodeLog
from oda_rl.agents.engine.lanes import VectorStep
from oda_rl.agents.environments.validation import action_index, checked_reward
from oda_rl.agents.training.loops import add_to_returns, last_episode, update
from oda_rl.agents.training.player import Player
from oda_rl.agents.training.vector import first_step


class ByHand(Player):
    """An agent that somebody lets act, and learn from what came of it."""

    episodes: EpisodeLog
    training_seconds: float
    """Seconds of learning, without those in which numba compiled."""

    _engine: Engine
    _acted = False

    def act(self, observation: Any) -> Any:
        """Choose an action, exploring as training asks for.

        Parameters
        ----------
        observation
            One observation of the environment's observation space.

        Returns
        -------
        int, or ndarray where the action space is not Discrete
            An action of the environment's action space.

        Raises
        ------
        ValueError
            If the observation is not of the space, or not finite.
        """
        self._engine.leave_lanes()
        action = self._engine.act(self.interface.point("observation", observation))
        self._acted = True
        return self._performed(action)

    def update(
        self,
        observation: Any,
        action: Any,
        reward: SupportsFloat,
        next_observation: Any,
        terminated: bool,
        truncated: bool,
    ) -> None:
        """Learn from one step of the environment.

        A terminated episode has no value after its last step; a truncated one goes on being worth
        what its last observation promises.

        Parameters
        ----------
        observation, next_observation
            Before and after the step, of the environment's observation space.
        action : int, or ndarray where the action space is not Discrete
            The action taken, usually what :meth:`act` returned; where a grid of actions is offered,
            one of these.
        reward : float
            The reward received; finite.
        terminated, truncated : bool
            As ``env.step`` returned them.

        Raises
        ------
        RuntimeError
            If :meth:`act` has not been called since the last update.
        ValueError
            For a wrong shape, an unknown action, or values that are not finite. Nothing has been
            learned then.
        """
        if not self._acted:
            raise RuntimeError("update was called before act: call act(observation) first")
        index = self._number_of(action)
        self._engine.leave_lanes()
        ended = update(
            self._engine,
            self.interface.point("observation", observation),
            index,
            reward if type(reward) is float else checked_reward(reward),
            self.interface.point("next_observation", next_observation),
            bool(terminated),
            bool(truncated),
        )
        self._acted = False
        if ended:
            self.episodes.append(last_episode(self._engine, self.training_seconds))

    def begin_episode(self) -> None:
        """Forget episodes that were not finished; what was learned in them stays."""
        self._engine.begin_episode()
        self._acted = False

    def begin_in_all(self, observations: Any) -> npt.NDArray[Any]:
        """Begin episodes in several environments, and choose an action for each.

        Parameters
        ----------
        observations
            A batch, as :meth:`predict` takes it.

        Raises
        ------
        TypeError
            If the agent chooses continuous actions, which it does in one environment only.
        """
        if self.interface.box is not None:
            raise TypeError(
                f"{type(self).__name__} chooses continuous actions: it must be one environment; "
                "act and update learn in it, and FittedQAgent offers a grid of actions in several"
            )
        step = first_step(observations, self.interface)
        self._engine.set_lanes(len(step.after))
        return self.advance(step)

    def advance(self, step: VectorStep) -> npt.NDArray[Any]:
        """Learn from a step of several environments, and choose the next action for each."""
        actions, ended = self._engine.advance(step)
        if len(ended):
            moments = np.full((len(ended), 1), self.training_seconds)
            self.episodes.append(np.concatenate([ended, moments], axis=1))
        return self.interface.performed(actions)

    def add_to_returns(self, gains: FloatArray) -> None:
        """Add to the returns of running episodes, one each, what rewards to come leave out."""
        add_to_returns(self._engine, gains)

    def _performed(self, number: int) -> Any:
        """Return the environment's action for the one that was chosen, from 0."""
        if self.interface.native is not None:
            return self.interface.native.actions(np.array([number]))[0]
        return self.interface.first_action + number

    def _number_of(self, action: Any) -> int:
        """Return the number, from 0, of an action of the environment, or raise ValueError."""
        return action_index(action, self.interface)
