"""The replaying agent with continuous actions: codevectors of states and actions."""

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from oda_rl._types import FloatArray
from oda_rl.agents.base.engine import Performed
from oda_rl.agents.base.loops import Progress
from oda_rl.agents.base.memory import COMPONENTS
from oda_rl.agents.base.training_run import TrainingRun
from oda_rl.agents.environments.adaptation import observed
from oda_rl.agents.environments.spaces import ActionBox, AnyEnv, Interface
from oda_rl.agents.fitted.agent import FittedQAgent
from oda_rl.agents.fitted.codevector_engine import SCHEMA, CodevectorEngine, random_actions
from oda_rl.agents.fitting.action_codevectors import label
from oda_rl.agents.policies.cells import CodevectorPolicy
from oda_rl.files.schema import Member


class CodevectorAgent(FittedQAgent):
    """A :class:`FittedQAgent` whose continuous actions are not those of a grid.

    Its codevectors are joint ones of states and actions: in each cell of states, codevectors of
    actions, which are drawn to the actions taken there (see ``action_codevectors``).
    Each of them has a value; a step belongs to the cell of the nearest state codevector and, there,
    of the nearest action codevector. The agent takes the action that the best of them is near the
    state, blended from the three nearest cells like the values. It explores with actions uniform in
    the box, each of which may be held for many steps. All else is as there.

    Where others number actions, as in ``q_values``, ``visits`` and ``explain``, it numbers action
    codevectors.

    Parameters
    ----------
    env : str or gymnasium.Env
        An environment, or the id of one. Observations as in :class:`FittedQAgent`; actions: a
        bounded Box of floats.
    seed : int or None
        Of all the agent's randomness and of the environment's. The same seed gives the same bits.
    **config
        Settings of :class:`oda_rl.agents.FittedQConfig`. ``action_bins``: so many action
        codevectors in each cell for each component of an action.

    Raises
    ------
    ValueError
        For settings out of range, an unknown environment id, or other actions.
    TypeError
        For unknown settings, observations that are not supported, or a vector environment.

    References
    ----------
    C. N. Mavridis, J. S. Baras, "Annealing optimization for progressive learning with stochastic
    approximation": codevectors of states and actions.

    Examples
    --------
    >>> agent = CodevectorAgent("Pendulum-v1", seed=0).learn(2_000)
    >>> action, _ = agent.predict(agent.env.reset(seed=1)[0])
    >>> agent.env.action_space.contains(action)
    True
    >>> agent.action_codevectors.shape == (agent.n_cells, 5, 1)
    True
    """

    _engine: CodevectorEngine
    _engine_class = CodevectorEngine
    _sized_by: ClassVar[dict[str, Member]] = SCHEMA

    @property
    def policy(self) -> CodevectorPolicy:
        """The delivered policy."""
        policy = super().policy
        assert isinstance(policy, CodevectorPolicy)
        return policy

    @property
    def action_codevectors(self) -> npt.NDArray[Any]:
        """Action codevectors of the cells, shape (n_cells, n, ...); within the box."""
        parts = self.policy.parts
        actions = self._box.actions(parts.reshape(-1, parts.shape[2]))
        return actions.reshape(*parts.shape[:2], *self._box.shape)

    @property
    def visits(self) -> FloatArray:
        """Transitions remembered in each joint cell, shape (n_cells, action codevectors).

        Whichever policy took them; with ``max_transitions`` those of a sample of episodes.
        """
        cells, steps = self._remembered()
        labels = np.zeros((len(cells), 1), dtype=np.int16)
        actions = np.ascontiguousarray(steps[:, COMPONENTS:])
        label(actions, cells[:, None].astype(np.uint16), self.policy.parts, labels)
        return self._counts(cells, labels[:, 0].astype(np.int64))

    @property
    def _box(self) -> ActionBox:
        return self._engine.box

    def _performed(self, number: int) -> Any:
        return self._engine.perform(number)

    def _number_of(self, action: Any) -> int:
        self._engine.replace(action)
        return 0  # it is remembered by its components

    def _random(self, acts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return random_actions(len(acts), acts.shape[1], self._rngs["predict"])

    def _train(self, env: AnyEnv, run: TrainingRun) -> Progress:
        assert isinstance(env, gym.Env)
        return super()._train(Performed(env, self._engine), run)

    def _adapted(self, env: AnyEnv) -> gym.Env[Any, Any]:
        if isinstance(env, VectorEnv):
            raise TypeError(
                f"env has {env.num_envs} environments: it must be one environment; FittedQAgent, "
                "which offers a grid of actions, learns in several"
            )
        return observed(env)

    def _interface_of(self, env: AnyEnv) -> Interface:
        return Interface.of(env, self.config.action_bins)
