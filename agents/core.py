"""The arrays of an online agent, and what is done when compiled code reports an event."""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from oda_rl.agents import qlearning as ql
from oda_rl.agents.config import TwoTimescaleConfig
from oda_rl.agents.fused import observe_and_act
from oda_rl.agents.history import Level
from oda_rl.agents.partitions import INTERPRETED, KIND, Lineage, Partition
from oda_rl.agents.spaces import Interface

FloatArray = npt.NDArray[np.float64]

FINITE = f"it must hold neither NaN nor infinity, nor anything beyond {ql.LARGEST:g}"
_BLOCK = 500  # random numbers drawn at a time; not 512: rows 4096 bytes apart share cache lines


class Core:
    """The state of an online agent: the arrays of :mod:`oda_rl.agents.qlearning`, and its cells.

    Parameters
    ----------
    interface : Interface
        Of the environment.
    config : TwoTimescaleConfig
        Settings of the agent.
    partition : Partition
        The cells.
    rng : numpy.random.Generator
        Decides on exploration.
    """

    def __init__(
        self,
        interface: Interface,
        config: TwoTimescaleConfig,
        partition: Partition,
        rng: np.random.Generator,
    ) -> None:
        self.interface = interface
        self.config = config
        self.partition = partition
        self.history: list[Level] = []
        self._rng = rng
        d = interface.n_features
        capacity = partition.diagram.shape[0]
        self.table: FloatArray = np.zeros((4, capacity, interface.n_actions))
        self.vectors: FloatArray = np.zeros((ql.N_VECTORS, max(capacity, d, _BLOCK)))
        self.settings = self.vectors[ql.SETTINGS]
        rng.random(out=self.vectors[ql.UNIFORM])
        self.clock: npt.NDArray[np.int64] = np.zeros(ql.N_CLOCK, dtype=np.int64)
        self._write_settings(config)
        self.origin = self.vectors[ql.ORIGIN, :d]
        self.arrays = (partition.diagram, self.table, self.clock, self.vectors)
        self._point = self.vectors[ql.POINT, :d]

    def _write_settings(self, config: TwoTimescaleConfig) -> None:
        for slot, value in (
            (ql.DISCOUNT, config.discount),
            (ql.TRACE_DECAY, config.trace_decay),
            (ql.STEP_EXPONENT, config.step_exponent),
            (ql.MIN_STEP_SIZE, config.min_step_size),
            (ql.EXPLORATION, config.exploration),
            (ql.EXPLORATION_DECAY, config.exploration_decay),
            (ql.SOLVED_RETURN, np.inf if config.solved_return is None else config.solved_return),
        ):
            self.settings[slot] = value
        for slot, count in (
            (ql.N_CELLS, 1),
            (ql.OBSERVE_EVERY, config.observe_every),
            (ql.SOLVED_EPISODES, config.solved_episodes),
            # Without a return that counts as solved nobody can tell that learning is stuck.
            (ql.RESTART_AFTER, 0 if config.solved_return is None else config.restart_after),
            (ql.WARMUP_STEPS, config.warmup_steps if config.state_scale is None else 0),
            (ql.PHASE, ql.WARMUP),
        ):
            self.clock[slot] = count

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return int(self.clock[ql.N_CELLS])

    @property
    def codevectors(self) -> FloatArray:
        """Codevectors in the observation's units, shape (n_cells, d)."""
        return self.partition.codevectors + self.origin

    @property
    def epsilon(self) -> float:
        """Present probability of a random action."""
        phase = self.clock[ql.PHASE]
        if phase != ql.LEARNING:
            return 1.0 if phase == ql.WARMUP else 0.0
        elapsed = float(self.clock[ql.STEPS_SINCE_START])
        return self.config.exploration / (1.0 + elapsed / self.config.exploration_decay)

    def start(self) -> None:
        """Learn from nothing: first cells, Q = 0."""
        self.partition.start(self._transform())
        self.table[:] = 0.0
        self.clock[ql.PHASE] = ql.LEARNING
        self.clock[ql.STREAK] = self.clock[ql.STEPS_SINCE_START] = 0
        self.clock[ql.COUNTDOWN] = self.config.observe_every
        self._take_over(None)

    def begin_episode(self) -> None:
        """Forget an episode that was not finished."""
        ql.begin_episode(self.clock, self.vectors)
        ql.clear_traces(self.table, self.n_cells)

    def act(self, vector: npt.NDArray[Any]) -> int:
        """Choose an action (from 0) for a flattened observation."""
        while True:
            code = ql.act(vector, *self.arrays)
            if code >= 0:
                return code
            self.attend(-code, "observation")

    def withdraw_choice(self) -> None:
        """Give back the random number of the last choice."""
        if self.clock[ql.PHASE] != ql.FROZEN:
            self.clock[ql.NEXT_UNIFORM] -= 1

    def observe_and_act(self, vector: npt.NDArray[Any]) -> int:
        """Show the slow timescale the current point, then choose an action for ``vector``.

        Returns the action, or minus the event that prevents it.
        """
        cells, metric, schedule = self.partition.learner
        if schedule[KIND] != INTERPRETED:
            return observe_and_act(vector, cells, metric, schedule, *self.arrays)
        self.attend(ql.OBSERVE, "")
        return ql.act(vector, *self.arrays)

    def attend(self, events: int, what: str) -> None:
        """Do what compiled code could not.

        Parameters
        ----------
        events : int
            Bits of :mod:`oda_rl.agents.qlearning`.
        what : str
            What to name in the error if a value was bad.

        Raises
        ------
        ValueError
            If the shape of an observation was wrong, or it or the reward was not finite.
        """
        if events & (ql.BAD_SHAPE | ql.NOT_FINITE):
            self._refuse(events, what)
        if events & ql.UNIFORMS:
            self._rng.random(out=self.vectors[ql.UNIFORM])
            self.clock[ql.NEXT_UNIFORM] = 0
        if events & ql.WARM:
            self.vectors[ql.ORIGIN] = self.vectors[ql.MEAN]
        if events & (ql.WARM | ql.RESTART):
            self.start()
        elif events & ql.RESHAPE:
            self._carry(self.partition.reshape())
        elif events & ql.OBSERVE:
            lineage = self.partition.observe(self._point)
            if lineage is not None:
                self._carry(lineage)

    def _refuse(self, events: int, what: str) -> NoReturn:
        if events & ql.BAD_SHAPE:
            raise ValueError(
                f"{what} has another shape than the observation space: it must be "
                f"{self.interface.observation_shape}"
            )
        raise ValueError(f"{what} is not finite: {FINITE}")

    def _carry(self, lineage: Lineage) -> None:
        """Move the table along with the cells."""
        ql.carry_table(self.table, lineage)
        if self.config.state_scale is None:
            self.partition.rescale(self._transform())
        self._take_over(lineage)

    def _take_over(self, lineage: Lineage | None) -> None:
        self.clock[ql.N_CELLS] = self.partition.n_cells
        self.clock[ql.LEARNER_ACTIVE] = self.partition.active
        step, temperature = int(self.clock[ql.STEPS]), self.partition.temperature
        self.history.append(Level(step, temperature, self.codevectors.copy(), lineage))

    def _transform(self) -> FloatArray:
        """Scale observations by the configured divisors, or by running standard deviations.

        The latter give the scaled observations a total variance of 1.
        """
        if self.config.state_scale is not None:
            return np.diag(1.0 / np.array(self.config.state_scale))
        deviations = self.vectors[ql.DEVIATIONS, : self.interface.n_features]
        variance = deviations / self.clock[ql.SAMPLES_SEEN]
        varying = variance > 0.0
        scale = np.zeros_like(variance)
        scale[varying] = np.sqrt(1.0 / max(varying.sum(), 1) / variance[varying])
        return np.diag(scale)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays that have to be saved, the history apart."""
        return {
            "table": self.table[:, : self.n_cells],
            "vectors": self.vectors,
            "clock": self.clock,
            **{f"partition_{name}": array for name, array in self.partition.state().items()},
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take over what :meth:`state` returned."""
        prefix = "partition_"
        self.partition.restore(
            {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}
        )
        self.table[:, : arrays["table"].shape[1]] = arrays["table"]
        for name in ("vectors", "clock"):
            getattr(self, name)[:] = arrays[name]
