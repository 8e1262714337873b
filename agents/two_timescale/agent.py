"""The online agent: fast Q-learning over a few cells, slow annealing that places them."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from oda_rl.agents.base import Agent, spawn_rngs
from oda_rl.agents.config import TwoTimescaleConfig
from oda_rl.agents.engine.loop import play_compiled, play_loop
from oda_rl.agents.engine.training import EpisodeLog
from oda_rl.agents.environments.making import spec_of
from oda_rl.agents.environments.spaces import AnyEnv, Interface, spaces_of
from oda_rl.agents.environments.validation import checked_batch
from oda_rl.agents.partitions.contract import Partition
from oda_rl.agents.partitions.gmm import GMMPartition
from oda_rl.agents.partitions.grid import GridPartition
from oda_rl.agents.partitions.infex import InfexPartition
from oda_rl.agents.partitions.oda import ODAPartition
from oda_rl.agents.partitions.som import SOMPartition
from oda_rl.agents.policies.alternatives import Alternative, alternative_of_cells
from oda_rl.agents.two_timescale import qlearning as ql
from oda_rl.agents.two_timescale.engine import Core
from oda_rl.agents.two_timescale.fused import decide_by_table
from oda_rl.diagram import assign, assign_batch
from oda_rl.envs.dynamics import compiled_dynamics

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

PARTITIONS: dict[str, Callable[[int, TwoTimescaleConfig, np.random.Generator], Partition]] = {
    "gmm": GMMPartition,
    "grid": GridPartition,
    "infex": InfexPartition,
    "oda": ODAPartition,
    "som": SOMPartition,
}


class TwoTimescaleAgent(Agent):
    """Q(λ) over aggregate states that online deterministic annealing places while it learns.

    Fast: Watkins' Q(λ) on a table with one row a cell. Slow: every few steps the observation also
    moves the codevectors of the cells; at each new, lower temperature they split where the visited
    states ask for it, and children inherit their parent's row. Two solved episodes in a row freeze
    the agent, an unsolved one sets it learning again, and if it is stuck (5000 steps, and two
    unsolved episodes in a row) it starts from nothing.

    Parameters
    ----------
    env : str, gymnasium.Env or gymnasium.vector.VectorEnv
        An environment, or the id of one, or a vector environment, whose environments all teach the
        agent. Observations: Box of any shape, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple;
        actions: Discrete, MultiDiscrete, MultiBinary or Box. Where they are not Box and Discrete,
        ``agent.env`` is the environment inside wrappers that make them so: that is what a loop of
        one's own steps.
    partition : {"oda", "gmm", "grid", "infex", "som"} or Partition
        How observations are aggregated: cells by annealing (of Discrete observations, a cell for
        each), the components of a Gaussian mixture, a uniform grid, the exemplars of a mixture
        density, a self-organising map, or an
        object of one's own; see :class:`oda_rl.agents.Partition`.
    seed : int or None
        Of all the agent's randomness and of the environment's. The same seed gives the same bits.
    **config
        Settings of :class:`oda_rl.agents.TwoTimescaleConfig`.

    Attributes
    ----------
    env : gymnasium.Env, gymnasium.vector.VectorEnv or None
        None for a loaded agent until its environment is needed.
    config : TwoTimescaleConfig
        The settings in force.
    episodes : EpisodeLog
        Return, length and time of every training episode.
    training_seconds : float
        Spent in :meth:`learn`.

    Raises
    ------
    ValueError
        For settings out of range, or an unknown environment id or partition.
    TypeError
        For unknown settings, or spaces that are not supported.

    References
    ----------
    C. N. Mavridis, J. S. Baras, "Progressive learning and reinforcement learning by online
    deterministic annealing", algorithm 2.

    Examples
    --------
    >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(20_000)
    >>> action, _ = agent.predict(agent.env.reset(seed=1)[0])
    >>> agent.evaluate(10, seed=1).shape
    (10,)
    """

    config: TwoTimescaleConfig
    _cells_act_alone = True

    def __init__(
        self,
        env: str | AnyEnv,
        *,
        partition: str | Partition = "oda",
        seed: int | None = None,
        **config: Any,
    ) -> None:
        self.config = TwoTimescaleConfig(**config)
        made = self._adapted(env)
        spec = spec_of(made)
        if self.config.solved_return is None and spec is not None:
            self.config = replace(self.config, solved_return=spec.reward_threshold)
        interface = Interface.of(made)
        if interface.n_values > 0 and partition == "oda":  # a cell for each value
            first = float(spaces_of(made)[0].low[0]) - 0.5  # type: ignore[attr-defined]
            ranges = ((first, first + interface.n_values),)
            self.config = replace(self.config, bins=interface.n_values, ranges=ranges)
            partition = "grid"
        self._build(interface, self.config, partition, seed)
        self.env = made
        self.env_id = None if spec is None else spec.id

    def _build(
        self,
        interface: Interface,
        config: TwoTimescaleConfig,
        partition: str | Partition,
        seed: int | None,
    ) -> None:
        d = interface.n_features
        if not isinstance(config.metric, str) and len(config.metric) != d:
            raise ValueError(
                f"metric is a {len(config.metric)} by {len(config.metric)} matrix: it must have "
                f"{d} rows, one for each component of the observation"
            )
        self._rngs = spawn_rngs(seed, ("explore", "partition", "env", "predict"))
        self._env_rng = self._rngs["env"]
        if isinstance(partition, str):
            if partition not in PARTITIONS:
                raise ValueError(
                    f"partition is {partition!r}: it must be one of {sorted(PARTITIONS)}, or an "
                    "object with the methods of oda_rl.agents.Partition"
                )
            partition = PARTITIONS[partition](d, config, self._rngs["partition"])
        self.interface = interface
        self.config = config
        self.partition: Partition = partition
        self.episodes = EpisodeLog()
        self.training_seconds = 0.0
        self._core: Core = Core(interface, config, partition, self._rngs["explore"])

    @property
    def n_cells(self) -> int:
        """Number of cells (aggregate states)."""
        return self._core.n_cells

    @property
    def q_values(self) -> FloatArray:
        """The Q-table, shape (n_cells, n_actions); a view."""
        return self._core.table[ql.VALUES, : self.n_cells]

    @property
    def visits(self) -> FloatArray:
        """Updates of each entry of the Q-table since its cell was born, same shape; a view."""
        return self._core.table[ql.VISITS, : self.n_cells]

    @property
    def codevectors(self) -> FloatArray:
        """Codevectors of the cells in the observation's units, shape (n_cells, d)."""
        return self._core.codevectors

    @property
    def metric_(self) -> FloatArray | None:
        """The metric in the observation's units, shape (d, d); None if none is learned (yet).

        A Mahalanobis matrix, up to a factor: distances of the cells are (x - y)ᵀ M (x - y).
        """
        return self._core.mahalanobis

    @property
    def scale_(self) -> FloatArray | None:
        """Inverse standard deviation of each component in the latest transitions; 0 if constant."""
        return self._core.scale

    @property
    def solved_return(self) -> float | None:
        """Return from which an episode counts as solved; None if nobody said."""
        return self.config.solved_return

    @property
    def temperature(self) -> float:
        """Temperature of the current level."""
        return self.partition.temperature

    @property
    def frozen(self) -> bool:
        """Whether the last episodes were solved and the agent therefore rests."""
        return bool(self._core.state.phase == ql.FROZEN)

    def predict(
        self,
        observation: npt.ArrayLike,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        """Return the greedy action for one observation, or the actions for a batch.

        The signature is that of Stable-Baselines3, whose ``evaluate_policy`` takes this agent.

        Parameters
        ----------
        observation : array_like
            One observation, or a batch with one more leading dimension.
        state, episode_start
            Ignored; ``state`` is returned.
        deterministic : bool
            False explores as training does at present.

        Returns
        -------
        action : numpy.int64 or ndarray of int64, shape (n,)
        state

        Raises
        ------
        ValueError
            If the observation has another shape or is not finite.
        """
        cells = self.cell(observation)
        actions = self.q_values.argmax(axis=1)[cells]
        if not deterministic:
            rng = self._rngs["predict"]
            explore = rng.random(np.shape(cells)) < self._core.epsilon
            draws = rng.integers(self.interface.n_actions, size=np.shape(cells))
            actions = np.where(explore, draws, actions)
        return self.interface.first_action + np.int64(actions), state

    def cell(self, observation: npt.ArrayLike) -> Any:
        """Return the cell of one observation (int), or those of a batch, shape (n,).

        Raises
        ------
        ValueError
            If the observation has another shape or is not finite.
        """
        points = checked_batch(observation, self.interface) - self._core.origin
        if np.shape(observation) == self.interface.observation_shape:
            return assign(self.partition.diagram, self.n_cells, points[0])
        cells = np.empty(len(points), dtype=np.int64)
        assign_batch(self.partition.diagram, self.n_cells, points, cells)
        return cells

    def _action_values(self, points: FloatArray) -> FloatArray:
        cells = self.cell(points.reshape(-1, *self.interface.observation_shape))
        return np.asarray(self.q_values[cells])

    def _at_codevectors(self) -> tuple[FloatArray, IntArray]:
        return self.q_values.copy(), self.q_values.argmax(axis=1)

    def _alternative(self, point: FloatArray, action: int) -> Alternative:
        origin, scale = self._core.origin, self.scale_
        assert scale is not None
        actions = self.q_values.argmax(axis=1)
        diagram = self.partition.diagram[: self.n_cells]
        found = alternative_of_cells(diagram, actions, point - origin, action, scale)
        other = None if found.point is None else found.point + origin
        return replace(found, point=other)

    def _evaluate_fused(
        self, env: gym.Env[Any, Any], n_episodes: int, seed: int | None
    ) -> FloatArray | None:
        dynamics = compiled_dynamics(env)
        if dynamics is None or dynamics.time_limit is None:
            return None
        observation, _ = env.reset(seed=seed)
        returns = np.empty(n_episodes)
        arrays = (
            self.partition.diagram,
            self.n_cells,
            self._core.table,
            self._core.origin,
            np.empty(self.interface.n_features),
        )
        loop = play_loop("table", decide_by_table, dynamics)
        play_compiled(dynamics, loop, arrays, observation, returns)
        return returns

    def _to_file(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        names = [name for name, kind in PARTITIONS.items() if type(self.partition) is kind]
        metadata = {
            "partition": names[0] if names else type(self.partition).__name__,
            "config": asdict(self.config),
            "rngs": {name: rng.bit_generator.state for name, rng in self._rngs.items()},
        }
        return metadata, self._core.state_arrays()

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: str | AnyEnv | None = None,
        partition: Partition | None = None,
    ) -> Self:
        """Load from a file or a run folder.

        Parameters
        ----------
        path : str or Path
            What :meth:`save` was given.
        env : str, gymnasium.Env or gymnasium.vector.VectorEnv, optional
            To train or evaluate in. By default the environment is made from its id when needed.
        partition : Partition, optional
            For an agent with a partition of one's own: an object like the one that it had, whose
            ``restore`` is given what the other's ``state`` returned.

        Raises
        ------
        FileNotFoundError
            If there is nothing.
        ValueError
            If the file is damaged, or not an agent of this class, or ``env`` has other spaces, or
            ``partition`` is missing.
        """
        from oda_rl.agents.files import load

        return load(cls, Path(path), env, partition)

    @classmethod
    def _from_file(
        cls,
        metadata: dict[str, Any],
        arrays: dict[str, npt.NDArray[Any]],
        partition: Partition | None = None,
    ) -> Self:
        agent = cls.__new__(cls)
        config = TwoTimescaleConfig(**metadata["config"])
        interface = Interface.from_json(metadata["interface"])
        agent._build(interface, config, partition or metadata["partition"], None)
        agent._core.restore(arrays)
        for name, rng in agent._rngs.items():
            rng.bit_generator.state = metadata["rngs"][name]
        return agent
