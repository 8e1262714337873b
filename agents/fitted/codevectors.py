"""The fitted agent for continuous actions, with action codevectors in each cell.

Compiled code chooses a number j, as among discrete actions; :meth:`CodevectorEngine.perform` says
what that is in the state: the blended action codevectors, or, while exploring, any action of the
box. What was performed is remembered, and the next fit places codevectors by it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from oda_rl._types import Array, FloatArray
from oda_rl.agents.base.engine import Performed
from oda_rl.agents.base.loops import Progress
from oda_rl.agents.base.memory import COMPONENTS
from oda_rl.agents.base.training_run import TrainingRun
from oda_rl.agents.environments.adaptation import observed
from oda_rl.agents.environments.spaces import ActionBox, AnyEnv, Interface
from oda_rl.agents.environments.validation import BAD_SHAPE, NOT_FINITE
from oda_rl.agents.fitted import steps
from oda_rl.agents.fitted.agent import FittedQAgent
from oda_rl.agents.fitted.engine import FittedEngine
from oda_rl.agents.fitting.cells import WIDENED, TakenActions, label
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.agents.policies.cells import CodevectorPolicy
from oda_rl.annealing.cells import anneal
from oda_rl.files.schema import Member, check, real

_SAMPLE = 3000  # actions that codevectors are annealed on
_LLOYD_ITERATIONS = 100  # annealing leaves them unevenly where it drops the lightest

SCHEMA: dict[str, Member] = {"common_codevectors": real("A, p"), "performed": real("1, p")}
"""Arrays of a file beside those of a fitted agent."""


def random_actions(n: int, n_components: int, rng: np.random.Generator) -> FloatArray:
    """Draw actions for exploration, in units, shape (n, p): uniform in the widened box."""
    return rng.uniform(-WIDENED, WIDENED, size=(n, n_components))


def common_codevectors(n: int, n_components: int, rng: np.random.Generator) -> FloatArray:
    """Anneal n action codevectors among random actions, shape (n, p), in the order of the first."""
    from scipy.cluster.vq import kmeans2  # takes a while, and no other agent needs it

    sample = random_actions(_SAMPLE, n_components, rng)
    found, _ = kmeans2(sample, anneal(sample, n, rng), iter=_LLOYD_ITERATIONS, minit="matrix")
    return np.ascontiguousarray(found[np.argsort(found[:, 0], kind="stable")])


class CodevectorEngine(FittedEngine):
    """A :class:`FittedEngine` whose policies act by action codevectors, in a box of actions."""

    def __init__(
        self, interface: Interface, config: FittedQConfig, *rngs: np.random.Generator
    ) -> None:
        p = interface.n_components
        self._common = common_codevectors(interface.n_actions, p, rngs[1])
        self._performed: FloatArray = np.zeros((1, p))
        super().__init__(interface, config, *rngs)

    @property
    def box(self) -> ActionBox:
        """The box of actions."""
        assert self.interface.box is not None
        return self.interface.box

    def perform(self, number: int) -> Array:
        """Return the action of the chosen codevector in the current state, and remember it."""
        state, env_state = self.state, self.env_state
        if not state.drew:
            pass  # an action is held
        elif state.explored:
            self._performed = random_actions(1, self.interface.n_components, self._explore)
        else:
            policy = self._playing.policy
            assert isinstance(policy, CodevectorPolicy)
            point, numbers = self._workspace.point[None], np.array([number])
            self._performed = policy.play(point, numbers)
        self._note(env_state.last_row + env_state.fresh)
        return np.asarray(self.box.actions(self._performed)[0])

    def replace(self, action: npt.ArrayLike) -> None:
        units = self.box.units(action)
        if not np.array_equal(self.box.actions(self._performed)[0], action):
            self._performed, self._uninterrupted = units[None], False

    def update(self, observation: Any, action: int, *outcome: Any) -> int:
        """Remember one transition with the action performed; returns events."""
        events = steps.update(observation, action, *outcome)
        if not events & (BAD_SHAPE | NOT_FINITE):
            self._note(self.env_state.last_row - 1)
        return events

    def _note(self, row: int) -> None:
        self.memory.steps[row, COMPONENTS:] = self._performed[0]

    def _blank(self) -> CodevectorPolicy:
        return CodevectorPolicy(**vars(super()._blank()), parts=self._common[None])

    def _taken(self, n: int) -> TakenActions:
        actions = np.ascontiguousarray(self.memory.steps[:n, COMPONENTS:])
        return TakenActions(actions, self._common)

    def state_arrays(self) -> dict[str, Array]:
        own = {"common_codevectors": self._common, "performed": self._performed}
        return {**super().state_arrays(), **own}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        sizes = {"A": self.interface.n_actions, "p": self.interface.n_components}
        check({name: arrays[name] for name in SCHEMA if name in arrays}, SCHEMA, sizes)
        self._common, self._performed = arrays["common_codevectors"], arrays["performed"].copy()
        super().restore({name: arrays[name] for name in arrays if name not in SCHEMA})


class CodevectorAgent(FittedQAgent):
    """A :class:`FittedQAgent` with continuous actions: codevectors of states and actions.

    Each cell of states has action codevectors, which are drawn to the actions taken there (see
    :mod:`oda_rl.agents.fitting.cells`), and a value for each. A step belongs to the cell of the
    nearest state codevector and, there, of the nearest action codevector. The agent takes the best
    action codevector, blended over the three nearest cells like the values. It explores with
    actions uniform in the box, each of which may be held for many steps.

    ``q_values``, ``visits`` and ``explain`` number action codevectors instead of actions.

    Parameters are those of :class:`FittedQAgent`, but ``env`` is one environment, whose actions are
    a bounded Box of float32 or float64: others raise ValueError, a vector environment TypeError.
    ``action_bins`` is the number of action codevectors in each cell for each component of an
    action.

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
        policy = super().policy
        assert isinstance(policy, CodevectorPolicy)
        return policy

    @property
    def action_codevectors(self) -> Array:
        """Action codevectors of the cells, shape (n_cells, n, ...); within the box."""
        parts = self.policy.parts
        actions = self._box.actions(parts.reshape(-1, parts.shape[2]))
        return actions.reshape(*parts.shape[:2], *self._box.shape)

    @property
    def visits(self) -> FloatArray:
        """Transitions in the memory in each joint cell, shape (n_cells, action codevectors)."""
        cells, steps = self._remembered()
        labels = np.zeros((len(cells), 1), dtype=np.int16)
        actions = np.ascontiguousarray(steps[:, COMPONENTS:])
        label(actions, cells[:, None].astype(np.uint16), self.policy.parts, labels)
        return self._counts(cells, labels[:, 0].astype(np.int64))

    @property
    def _box(self) -> ActionBox:
        return self._engine.box

    def _random(self, acts: Array) -> Array:
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
