"""The replaying agent: cells and values fitted to all that was ever seen."""

from dataclasses import asdict
from typing import Any, Self

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from oda_rl.agents.base import Agent, spawn_rngs
from oda_rl.agents.config import FittedQConfig
from oda_rl.agents.engine.loop import play_compiled, play_loop
from oda_rl.agents.engine.memory import ACTION, GOES_ON, MARK
from oda_rl.agents.engine.training import EpisodeLog
from oda_rl.agents.environments.making import spec_of
from oda_rl.agents.environments.spaces import AnyEnv, Interface
from oda_rl.agents.environments.validation import checked_batch
from oda_rl.agents.fitted.engine import FittedCore
from oda_rl.agents.fitted.fused import decide_by_cells
from oda_rl.agents.policies.alternatives import Alternative, alternative_of_policy, values_at
from oda_rl.agents.policies.cells import CellPolicy
from oda_rl.diagram import assign_batch
from oda_rl.envs.dynamics import compiled_dynamics

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class FittedQAgent(Agent):
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
        actions: Discrete, MultiDiscrete, MultiBinary or Box. Where they are not Box and Discrete,
        ``agent.env`` is the environment inside wrappers that make them so: that is what a loop of
        one's own steps.
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
    _cells_act_alone = False
    _core_class = FittedCore

    def __init__(self, env: str | AnyEnv, *, seed: int | None = None, **config: Any) -> None:
        self.config = FittedQConfig(**config)
        made = self._adapted(env)
        self._build(self._interface_of(made), self.config, seed)
        self.env = made
        spec = spec_of(made)
        self.env_id = None if spec is None else spec.id
        self._solved_return = None if spec is None else spec.reward_threshold

    def _build(self, interface: Interface, config: FittedQConfig, seed: int | None) -> None:
        self._rngs = spawn_rngs(seed, ("explore", "fitting", "reservoir", "env", "predict"))
        self._env_rng = self._rngs["env"]
        self.interface, self.config = interface, config
        self.episodes = EpisodeLog()
        self.training_seconds = 0.0
        rngs = (self._rngs[name] for name in ("explore", "fitting", "reservoir"))
        self._core: FittedCore = self._core_class(interface, config, *rngs)

    @property
    def policy(self) -> CellPolicy:
        """The delivered policy."""
        return self._core.policy

    @property
    def newest(self) -> CellPolicy:
        """The policy of the latest fit."""
        return self._core.newest

    @property
    def n_cells(self) -> int:
        """Number of cells of the delivered policy."""
        return self.policy.n_cells

    @property
    def q_values(self) -> FloatArray:
        """Value of each action at each codevector, shape (n_cells, n_actions)."""
        return self.policy.q_values

    @property
    def visits(self) -> FloatArray:
        """Transitions remembered from each cell with each action, shape (n_cells, n_actions).

        Whichever policy took them; with ``max_transitions`` those of a sample of episodes.
        """
        memory, policy, n_actions = self._core.memory, self.policy, self.interface.n_actions
        n = memory.rows(self._core.lane)
        steps = memory.steps[:n][memory.steps[:n, MARK] == GOES_ON]
        points = memory.observations[:n][memory.steps[:n, MARK] == GOES_ON] - policy.origin
        cells = np.empty(len(points), dtype=np.int64)
        assign_batch(policy.diagram, policy.n_cells, points, cells)
        groups = cells * n_actions + steps[:, ACTION].astype(np.int64)
        counts = np.bincount(groups, minlength=policy.n_cells * n_actions)
        return counts.reshape(-1, n_actions).astype(np.float64)

    @property
    def codevectors(self) -> FloatArray:
        """Codevectors of the cells in the observation's units, shape (n_cells, d)."""
        return self.policy.codevectors

    @property
    def temperature(self) -> float:
        """NaN: annealing begins and ends within each fit."""
        return float("nan")

    @property
    def metric_(self) -> FloatArray | None:
        """The metric in the observation's units, shape (d, d); None before the first fit.

        A Mahalanobis matrix, of trace d in standard deviations of the observation: the next fit
        places cells by its square root.
        """
        metric, scale = self._core.metric, self.scale_
        if scale is None:
            return None
        matrix = np.eye(len(scale)) if metric is None else metric
        return np.asarray(matrix * np.outer(scale, scale))

    @property
    def scale_(self) -> FloatArray | None:
        """Inverse standard deviation of each component among the states visited; 0 if constant."""
        return self._core.scale

    @property
    def solved_return(self) -> float | None:
        """The environment's reward threshold, if it has one."""
        return self._solved_return

    def predict(
        self,
        observation: npt.ArrayLike,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        """Return the delivered policy's action for one observation, or the actions for a batch.

        The signature is that of Stable-Baselines3, whose ``evaluate_policy`` takes this agent.

        Parameters
        ----------
        observation : array_like
            One observation, or a batch with one more leading dimension.
        state, episode_start
            Ignored; ``state`` is returned.
        deterministic : bool
            False explores as training does at present, but holds no action.

        Returns
        -------
        action : numpy.int64 or ndarray of int64, shape (n,)
        state

        Raises
        ------
        ValueError
            If the observation has another shape or is not finite.
        """
        points = checked_batch(observation, self.interface)
        actions = self.policy.evaluate(points)[1]
        if not deterministic:
            rng = self._rngs["predict"]
            explore = rng.random(len(actions)) < self._core.epsilon
            draws = rng.integers(self.interface.n_actions, size=len(actions))
            actions = np.where(explore, draws, actions)
        actions = self.interface.first_action + actions
        single = np.shape(observation) == self.interface.observation_shape
        return (actions[0] if single else actions), state

    def cell(self, observation: npt.ArrayLike) -> Any:
        """Return the nearest cell of one observation (int), or those of a batch, shape (n,).

        Raises
        ------
        ValueError
            If the observation has another shape or is not finite.
        """
        cells = self.policy.evaluate(checked_batch(observation, self.interface))[0]
        single = np.shape(observation) == self.interface.observation_shape
        return int(cells[0]) if single else cells

    def _action_values(self, points: FloatArray) -> FloatArray:
        return values_at(self.policy, points)

    def _at_codevectors(self) -> tuple[FloatArray, IntArray]:
        policy = self.policy
        return values_at(policy, policy.codevectors), policy.evaluate(policy.codevectors)[1]

    def _alternative(self, point: FloatArray, action: int) -> Alternative:
        assert self.scale_ is not None
        return alternative_of_policy(self.policy, point, action, self.scale_)

    def _evaluate_fused(
        self, env: gym.Env[Any, Any], n_episodes: int, seed: int | None
    ) -> FloatArray | None:
        dynamics = compiled_dynamics(env)
        if dynamics is None or dynamics.time_limit is None:
            return None
        observation, _ = env.reset(seed=seed)
        returns = np.empty(n_episodes)
        policy = self.policy
        arrays = (
            policy.diagram,
            policy.models,
            policy.width,
            policy.origin,
            np.empty(self.interface.n_features),
            np.empty(policy.n_actions),
        )
        loop = play_loop("cells", decide_by_cells, dynamics)
        play_compiled(dynamics, loop, arrays, observation, returns)
        return returns

    def _to_file(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        metadata = {
            "partition": "oda",
            "solved_return": self._solved_return,
            "config": asdict(self.config),
            "rngs": {name: rng.bit_generator.state for name, rng in self._rngs.items()},
        }
        return metadata, self._core.state_arrays()

    @classmethod
    def _from_file(cls, metadata: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Self:
        agent = cls.__new__(cls)
        interface = Interface.from_json(metadata["interface"])
        agent._build(interface, FittedQConfig(**metadata["config"]), None)
        agent._solved_return = metadata["solved_return"]
        agent._core.restore(arrays)
        for name, rng in agent._rngs.items():
            rng.bit_generator.state = metadata["rngs"][name]
        return agent
