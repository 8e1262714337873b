"""The fitted agent: cells and values fitted to all stored transitions."""

from typing import Any, ClassVar, Self

import numpy as np

from oda_rl._types import Array, FloatArray, IntArray
from oda_rl.agents.base.actors import Actors, require_copies
from oda_rl.agents.base.agent import Agent
from oda_rl.agents.base.memory import ACTION, GOES_ON, MARK
from oda_rl.agents.distilling.distil import Simplifiable
from oda_rl.agents.fitted.actors import ActorsLearner
from oda_rl.agents.fitted.engine import FittedEngine
from oda_rl.agents.fitted.offline import Estimate, estimate
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.agents.offline import Transitions, as_rows, read_steps, trajectories
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.files.schema import Member


class FittedQAgent(Simplifiable, Agent):
    """Fitted Q-iteration over annealed cells in a learned metric, without tuning.

    The agent stores every transition, and refits whenever their number has grown by a tenth:

    1. Online deterministic annealing places 0.4 √n cells among the n states visited, 0.8 √n in
       eight dimensions. Distances are in the learned metric: directions in which Q changes count.
    2. Twenty sweeps of fitted Q-iteration over all transitions, with Watkins' λ-returns: a baseline
       of the states, and advantages of the actions (:mod:`oda_rl.agents.fitting.advantages`). Where
       states are discrete, untried actions begin with the best return seen.
    3. The gradients of the new Q give the next metric (:mod:`oda_rl.metric`).

    Three schemes of exploration take turns, from 0.4 random decisions an episode, each repeated for
    up to 100 steps, to 20 of one step each; those with lower returns are drawn less often
    (:mod:`oda_rl.agents.fitted.exploration`). While all returns are equal, all decisions are
    random. With discrete states, one episode in thirty follows a novelty policy. States are
    discrete where the observation space is Discrete, or finite, with at most ``max_cells`` elements
    and 10,000 values of actions in them; each is a cell then.

    The delivered policy (``policy``, which ``predict`` and ``evaluate`` use) is the one with the
    best lower bound (mean minus standard error) of its own training returns; some of the steps
    re-evaluate it without exploration. Constant actions, policies of one cell, compete, too, in up
    to 5 % of the steps. Training continues with the latest policy, ``newest``.

    When returns fall far below the best, and the newest steps contradict older ones, the best
    policy is re-evaluated; if it fails, older steps are forgotten.

    If no episode has ended in 1,000 steps, the steps between two fits, at least 300, count as one.

    Parameters
    ----------
    env : str, gymnasium.Env, gymnasium.vector.VectorEnv, or a pair of spaces
        An environment, its id, or a vector environment, from all parts of which it learns; or
        (observation_space, action_space), which is enough for :meth:`fit`. Observations: Box of any
        shape, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple. Actions: Discrete,
        MultiDiscrete, MultiBinary or Box, from which it takes a grid. :meth:`act`, :meth:`update`
        and :meth:`predict` take and return the environment's own.
    seed : int or None
        Random seed of the agent and of its environment. The same seed gives the same bits.
    names, action_names : sequence of str, optional
        Names of the observation's components and of the actions, by default those that the
        environment gives; see :attr:`names` and :attr:`action_names`.
    **config
        Settings of :class:`oda_rl.agents.FittedQConfig`.

    Attributes
    ----------
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
    C. N. Mavridis, J. S. Baras, "Annealing optimization for progressive learning with stochastic
    approximation".

    Examples
    --------
    >>> agent = FittedQAgent("CartPole-v1", seed=0).learn(10_000)
    >>> action, _ = agent.predict(agent.env.reset(seed=1)[0])
    >>> agent.evaluate(10, seed=1).shape
    (10,)
    """

    config: FittedQConfig
    _engine: FittedEngine
    _engine_class: type[FittedEngine] = FittedEngine
    _config_class = FittedQConfig
    _streams = ("explore", "fitting", "reservoir", "env", "predict")
    _sized_by: ClassVar[dict[str, Member]] = {
        f"policy0_{name}": CellPolicy.SCHEMA[name] for name in ("origin", "diagram", "models")
    }

    def fit(self, transitions: Any = None) -> Self:
        """Fit to logged transitions alone, without an environment.

        Actions that were never taken in a cell, and states far from all, get the lowest possible
        value. The delivered policy is a clone of the behaviour policy, with its most frequent
        actions, unless the transitions show that another is better. If a world learned from them
        (:class:`oda_rl.agents.World`) predicts held-out steps, the other policy is learned there,
        in imagined steps that the transitions support; otherwise it is a less cautious fit, judged
        by :meth:`estimate_return`. ``agent.learn`` continues in the environment, with optimism.

        Parameters
        ----------
        transitions : optional
            As for :meth:`oda_rl.agents.Transitions.of`: the arrays (observations, actions,
            rewards, next_observations, terminated, truncated), a pandas frame, a Minari dataset, or
            :class:`oda_rl.agents.Transitions`. They are added to the memory; by default the fit
            uses the memory alone.

        Raises
        ------
        TypeError
            If ``transitions`` is of another type.
        ValueError
            For shapes that do not fit the spaces, values that are not finite, unknown actions,
            missing columns, or an empty memory. Continuous actions become the nearest of the
            agent's; those farther than half a step from all of them are refused.

        Examples
        --------
        A random walk on a line, whose right end is worth 1:

        >>> from gymnasium import spaces
        >>> rng = np.random.default_rng(0)
        >>> place = rng.uniform(0.0, 1.0, size=(500, 1))
        >>> actions = rng.integers(2, size=500)
        >>> after = place + 0.2 * (2 * actions[:, None] - 1)
        >>> won, lost = after[:, 0] > 1.0, after[:, 0] < 0.0
        >>> line = spaces.Box(-1.0, 2.0, (1,)), spaces.Discrete(2)
        >>> agent = FittedQAgent(line, seed=0).fit((place, actions, won, after, won | lost))
        >>> agent.predict(np.array([[0.3], [0.9]]))[0]
        array([1, 1])
        """
        if transitions is not None:
            self._remember(Transitions.of(transitions))
        if self.num_timesteps == 0:
            raise ValueError("transitions is None, and the memory is empty: give some")
        self.begin_episode()
        self._engine.fit_logged()
        return self

    def _remember(self, given: Transitions) -> None:
        steps = read_steps(given, self.interface)
        found = trajectories(steps.before, steps.after, steps.over)
        rows = as_rows(steps, found, self.interface.n_components)
        episodes = [(steps.rewards[i].sum().item(), len(i)) for i in found if steps.over[i[-1]]]
        self.begin_episode()
        self._engine.remember_logged(*rows, episodes)

    def estimate_return(self) -> Estimate:
        """Estimate the delivered policy's return from the memory alone.

        By fitted Q-evaluation on bootstrapped episodes. Where the policy's actions were not taken,
        the lower bound assumes the lowest value, and the upper one the highest.

        Returns
        -------
        Estimate
            ``mean``, ``low`` and ``high`` of the discounted return from where episodes began, two
            standard errors to either side, and the ``gamma``. Truncated episodes go on.

        Raises
        ------
        ValueError
            If the memory is empty.
        """
        if self.num_timesteps == 0:
            raise ValueError("the memory is empty: call fit or learn first")
        engine = self._engine
        rng = np.random.default_rng(0)
        return estimate(engine.seen, self.policy, engine.metric, self.config, rng)

    def _make_engine(self) -> FittedEngine:
        rngs = (self._rngs[name] for name in ("explore", "fitting", "reservoir"))
        return self._engine_class(self.interface, self.config, *rngs)

    def _actors_learner(self, actors: Actors) -> ActorsLearner:
        self._require_env()
        assert self.env is not None
        origin = require_copies(self.env, actors, self._env_module)
        return ActorsLearner(self._engine, origin, self.draw_env_seed)

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
        """Transitions in the memory from each cell with each action, shape (n_cells, n_actions)."""
        cells, steps = self._remembered()
        return self._counts(cells, steps[:, ACTION].astype(np.int64))

    def _remembered(self) -> tuple[IntArray, FloatArray]:
        """Return the cells, shape (n,), and rows of the steps in the memory."""
        memory, policy = self._engine.memory, self.policy
        n = memory.rows(self._engine.env_state)
        taken = memory.steps[:n, MARK] == GOES_ON
        return policy.cells(memory.observations[:n][taken]), memory.steps[:n][taken]

    def _counts(self, cells: IntArray, actions: IntArray) -> FloatArray:
        counts = np.zeros((self.n_cells, self.interface.n_actions))
        np.add.at(counts, (cells, actions), 1.0)
        return counts

    @property
    def metric_(self) -> FloatArray | None:
        """The metric in the observation's units, shape (d, d); None before the first fit.

        A Mahalanobis matrix, of trace d in standard deviations of the observation, or in whitened
        units; the next fit places cells by its square root.
        """
        metric, scale = self._engine.metric, self.scale_
        if scale is None:
            return None
        matrix = np.eye(len(scale)) if metric is None else metric
        return np.asarray(matrix * np.outer(scale, scale))

    @property
    def _observations(self) -> Array:
        memory = self._engine.memory
        return memory.observations[: memory.rows(self._engine.env_state)]

    def _about(self) -> dict[str, Any]:
        return {**super()._about(), "partition": "oda"}
