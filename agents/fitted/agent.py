"""The replaying agent: cells and values fitted to all that was ever seen."""

from typing import Any, ClassVar

import numpy as np

from oda_rl._schema import Member
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.distilling.simplifiable import Simplifiable
from oda_rl.agents.engine.agent import Agent
from oda_rl.agents.engine.memory import ACTION, GOES_ON, MARK
from oda_rl.agents.fitted.engine import FittedEngine
from oda_rl.agents.fitted.settings import FittedQConfig
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.agents.policies.contract import Extent
from oda_rl.diagram import assign_batch

_LATEST = 2_000  # observations that say where decisions are made


class FittedQAgent(Simplifiable, Agent):
    """Fitted Q-iteration over annealed cells, in a metric that is learned along: no knobs.

    The agent plays, remembers every transition, and fits anew whenever they have grown by a tenth:

    1. Online deterministic annealing places .4 √n cells among the states visited. Distances are in
       the learned metric: along the directions in which Q changes, they count.
    2. Twenty sweeps of fitted Q-iteration over all transitions, with Watkins' λ-returns. In a cell
       the actions share one slope and differ by an intercept, as in the analysis of covariance:
       within a cell actions were taken at different places, so constants alone would confuse the
       action with the place, and a slope for each action would be too variable. The slope cancels
       when actions are compared. An action that was not tried in a cell is believed to be worth the
       best return seen.
    3. The gradients of the new Q make the next metric (:mod:`oda_rl.metric`).

    It explores with some .4 random decisions an episode, each of which may be held for many steps;
    while all returns are equal it does nothing else.

    Delivered is not the newest policy, which may be far worse, but the one with the best lower
    bound (mean minus standard error) of its own training returns; a part of the steps goes into
    playing it again, without exploration, to be surer. ``predict``, ``evaluate`` and ``policy`` use
    that one. The newest, with which training goes on, is ``newest``.

    Parameters
    ----------
    env : str, gymnasium.Env or gymnasium.vector.VectorEnv
        An environment, or the id of one, or a vector environment, whose environments all teach the
        agent. Observations: Box of any shape, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple;
        actions: Discrete, MultiDiscrete, MultiBinary or Box, of which a grid is offered. What is
        taken and returned by :meth:`act`, :meth:`update` and :meth:`predict` is the environment's.
    seed : int or None
        Of all the agent's randomness and of the environment's. The same seed gives the same bits.
    **config
        Settings of :class:`oda_rl.agents.FittedQConfig`.

    Attributes
    ----------
    env : gymnasium.Env, gymnasium.vector.VectorEnv or None
        None for a loaded agent until its environment is needed.
    config : FittedQConfig
        The settings in force.
    episodes : EpisodeLog
        Return, length and time of every training episode.
    training_seconds : float
        Spent in :meth:`learn`.
    solved_return : float or None
        The environment's reward threshold, if it has one.

    Raises
    ------
    ValueError
        For settings out of range, or an unknown environment id.
    TypeError
        For unknown settings, or spaces that are not supported.

    References
    ----------
    D. Ernst, P. Geurts, L. Wehenkel, "Tree-based batch mode reinforcement learning", JMLR 6 (2005).
    C. N. Mavridis, J. S. Baras, "Progressive learning and reinforcement learning by online
    deterministic annealing".

    Examples
    --------
    >>> agent = FittedQAgent("CartPole-v1", seed=0).learn(10_000)
    >>> action, _ = agent.predict(agent.env.reset(seed=1)[0])
    >>> agent.evaluate(10, seed=1).shape
    (10,)
    """

    config: FittedQConfig
    _engine: FittedEngine
    _most_features = 256  # a fit inverts a matrix of so many rows for each cell
    _engine_class: type[FittedEngine] = FittedEngine
    _config_class = FittedQConfig
    _streams = ("explore", "fitting", "reservoir", "env", "predict")
    _sized_by: ClassVar[dict[str, Member]] = {
        f"policy0_{name}": CellPolicy.SCHEMA[name] for name in ("origin", "diagram", "models")
    }

    def _make_engine(self) -> FittedEngine:
        rngs = (self._rngs[name] for name in ("explore", "fitting", "reservoir"))
        return self._engine_class(self.interface, self.config, *rngs)

    @property
    def policy(self) -> CellPolicy:
        """The delivered policy."""
        return self._engine.policy

    @property
    def newest(self) -> CellPolicy:
        """The policy of the latest fit."""
        return self._engine.newest

    @property
    def visits(self) -> FloatArray:
        """Transitions remembered from each cell with each action, shape (n_cells, n_actions).

        Whichever policy took them; with ``max_transitions`` those of a sample of episodes.
        """
        cells, steps = self._remembered()
        return self._counts(cells, steps[:, ACTION].astype(np.int64))

    def _remembered(self) -> tuple[IntArray, FloatArray]:
        """Cells of the steps that are remembered, shape (n,), and what the memory says of them."""
        memory, policy = self._engine.memory, self.policy
        n = memory.rows(self._engine.lane)
        taken = memory.steps[:n, MARK] == GOES_ON
        points = memory.observations[:n][taken] - policy.origin
        cells = np.empty(len(points), dtype=np.int64)
        assign_batch(policy.diagram, policy.n_cells, points, cells)
        return cells, memory.steps[:n][taken]

    def _counts(self, cells: IntArray, actions: IntArray) -> FloatArray:
        counts = np.zeros((self.n_cells, self.interface.n_actions))
        np.add.at(counts, (cells, actions), 1.0)
        return counts

    @property
    def metric_(self) -> FloatArray | None:
        """The metric in the observation's units, shape (d, d); None before the first fit.

        A Mahalanobis matrix, of trace d in standard deviations of the observation: the next fit
        places cells by its square root.
        """
        metric, scale = self._engine.metric, self.scale_
        if scale is None:
            return None
        matrix = np.eye(len(scale)) if metric is None else metric
        return np.asarray(matrix * np.outer(scale, scale))

    @property
    def extent(self) -> Extent:
        """Where the observations that are remembered were."""
        seen = self._engine.memory.observations[: self._engine.memory.rows(self._engine.lane)]
        centre = seen[-_LATEST:].mean(axis=0, dtype=np.float64)
        return Extent(centre, np.abs(seen - centre).max(axis=0))

    def _about(self) -> dict[str, Any]:
        return {**super()._about(), "partition": "oda"}
