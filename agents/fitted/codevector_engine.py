"""A fitted agent's engine for continuous actions: it chooses among codevectors of them.

Compiled code chooses a number j, as among discrete actions; :meth:`CodevectorEngine.perform` says
what that is in the state: the blended action codevectors, or, while exploring, any action of the
box. What was performed is remembered, and the next fit places codevectors by it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.agents.base.memory import COMPONENTS
from oda_rl.agents.environments.spaces import ActionBox, Interface
from oda_rl.agents.environments.validation import BAD_SHAPE, NOT_FINITE
from oda_rl.agents.fitted import replay
from oda_rl.agents.fitted.engine import FittedEngine
from oda_rl.agents.fitting.action_codevectors import WIDENED, TakenActions
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.agents.policies.cells import CodevectorPolicy, blend
from oda_rl.annealing.cells import anneal
from oda_rl.files.schema import Member, check, real

_SAMPLE = 3000  # actions that codevectors are annealed on
_LLOYD_ITERATIONS = 100  # annealing leaves them unevenly where it drops the lightest
_BAD = BAD_SHAPE | NOT_FINITE


SCHEMA: dict[str, Member] = {"common_codevectors": real("A, p"), "performed": real("1, p")}
"""What a file has beside that of a fitted agent."""


def random_actions(n: int, n_components: int, rng: np.random.Generator) -> FloatArray:
    """Draw actions for exploration, in units, shape (n, p): uniform in the widened box."""
    return rng.uniform(-WIDENED, WIDENED, size=(n, n_components))


def common_codevectors(n: int, n_components: int, rng: np.random.Generator) -> FloatArray:
    """Anneal n action codevectors among random actions, shape (n, p), in the order of the first.

    >>> common_codevectors(5, 1, np.random.default_rng(0)).ravel().round(1)
    array([-1. , -0.5,  0. ,  0.5,  1. ])
    """
    from scipy.cluster.vq import kmeans2  # takes a while, and no other agent needs it

    sample = random_actions(_SAMPLE, n_components, rng)
    found, _ = kmeans2(sample, anneal(sample, n, rng), iter=_LLOYD_ITERATIONS, minit="matrix")
    return np.ascontiguousarray(found[np.argsort(found[:, 0], kind="stable")])


class CodevectorEngine(FittedEngine):
    """A :class:`FittedEngine` whose policies act by action codevectors.

    Parameters
    ----------
    interface : Interface
        Of the environment, with a box of actions.
    config, explore, fitting, reservoir
        As there.
    """

    def __init__(
        self,
        interface: Interface,
        config: FittedQConfig,
        explore: np.random.Generator,
        fitting: np.random.Generator,
        reservoir: np.random.Generator,
    ) -> None:
        p = interface.n_components
        self._common = common_codevectors(interface.n_actions, p, fitting)
        self._performed: FloatArray = np.zeros((1, p))
        super().__init__(interface, config, explore, fitting, reservoir)

    @property
    def box(self) -> ActionBox:
        """The box of actions."""
        assert self.interface.box is not None
        return self.interface.box

    def perform(self, number: int) -> npt.NDArray[Any]:
        """Return what the chosen codevector is in the current state, and remember that it is done.

        Parameters
        ----------
        number : int
            Of the codevector, as compiled code chose it.

        Returns
        -------
        ndarray
            An action of the environment.
        """
        state, lane = self.state, self.lane
        if not state.drew:
            pass  # an action is held
        elif state.explored:
            self._performed = random_actions(1, self.interface.n_components, self._explore)
        else:
            point, numbers = self._workspace.point[None], np.array([number])
            diagram = self._playing.policy.diagram
            blend(diagram, self._parts, state.width, point, numbers, self._performed)
        self._note(lane.last_row + lane.fresh)
        return np.asarray(self.box.actions(self._performed)[0])

    def replace(self, action: npt.ArrayLike) -> None:
        """Take note that another action is done than :meth:`perform` returned.

        Raises
        ------
        ValueError
            If it is not in the box of actions.
        """
        units = self.box.units(action)
        if not np.array_equal(self.box.actions(self._performed)[0], action):
            self._performed = units[None]

    def update(self, *transition: Any) -> int:
        """Remember one transition with the action performed; returns events."""
        events = replay.update(*transition)
        if not events & _BAD:
            self._note(self.lane.last_row - 1)
        return events

    def _note(self, row: int) -> None:
        self.memory.steps[row, COMPONENTS:] = self._performed[0]

    def _blank(self) -> CodevectorPolicy:
        policy = super()._blank()
        return CodevectorPolicy(**vars(policy), parts=self._common[None])

    def _taken(self, n: int) -> TakenActions:
        actions = np.ascontiguousarray(self.memory.steps[:n, COMPONENTS:])
        return TakenActions(actions, self._common)

    def _open(self) -> None:
        super()._open()
        policy = self._confirming.policy if self._confirming else self.newest
        assert isinstance(policy, CodevectorPolicy)
        self._parts = policy.parts

    def state_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays that have to be saved, the history apart."""
        own = {"common_codevectors": self._common, "performed": self._performed}
        return {**super().state_arrays(), **own}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take over what :meth:`state_arrays` returned, or raise InvalidFileError."""
        sizes = {"A": self.interface.n_actions, "p": self.interface.n_components}
        check({name: arrays[name] for name in SCHEMA if name in arrays}, SCHEMA, sizes)
        self._common, self._performed = arrays["common_codevectors"], arrays["performed"].copy()
        super().restore({name: arrays[name] for name in arrays if name not in SCHEMA})
