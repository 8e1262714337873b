"""The arrays of an online agent, and what is done when compiled code reports an event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from oda_rl import metric
from oda_rl._types import FloatArray, IntArray
from oda_rl.agents.base.axes import informative
from oda_rl.agents.base.engine import Engine, VectorStep
from oda_rl.agents.base.history import Level
from oda_rl.agents.base.memory import (
    ACTION,
    CUT,
    GOES_ON,
    MARK,
    UNUSED,
    check_steps,
    watkins_targets,
)
from oda_rl.agents.base.state import ROOM, UNIFORMS, EnvState, with_env_states
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import BAD_STEP
from oda_rl.agents.partitions.base import Lineage, Partition, Scaling
from oda_rl.agents.policies.contract import SETTLED_AFTER
from oda_rl.agents.two_timescale import qlearning as ql
from oda_rl.agents.two_timescale.settings import TwoTimescaleConfig
from oda_rl.agents.two_timescale.trials import Trial, Trials
from oda_rl.diagram import assign, assign_batch
from oda_rl.files.schema import Member, check, real, require, within

_SETTLED_AFTER_EACH = 100  # steps of each of several environments without a better best return
_NO_EPISODE = np.empty((0, 2))
_METRIC_TRACE_DECAY = 0.9
_METRIC_POWER = 0.25  # cells are measured by the learned metric to it: ½ would be the metric itself
_TOTAL_VARIANCE = 2.0  # of scaled points: in that unit temperatures are
_MAX_ROWS = 2000  # latest transitions that the metric is learned from, of all environments
_MIN_ROWS = 100  # of each environment
_SETTINGS = ("gamma", "trace_decay", "step_exponent", "min_step_size", "exploration",
             "exploration_decay", "observe_every", "solved_episodes", "restart_after",
             "warmup_steps")  # fmt: skip

SCHEMA: dict[str, Member] = {
    "table": real("3+env_states, K, A"),
    "room": real("5, width", "[-inf, inf] or nan"),
    "state": Member(ql.OnlineState, "1"),
    "env_states": Member(EnvState, "env_states"),
    "observations": real("env_states, rows, d"),
    "steps": real("env_states, rows, 3"),
    "metric": real("m, m"),
}
"""What a file has of an online agent, the partition, whose names begin with that, apart."""


@dataclass(frozen=True, eq=False)
class Latest:
    """The latest transitions, each environment's oldest first."""

    points: FloatArray
    """Shape (n, d)."""
    steps: FloatArray
    """Shape (n, 3), as in :mod:`oda_rl.agents.base.memory`."""

    @classmethod
    def of(
        cls, observations: FloatArray, steps: FloatArray, env_states: Sequence[EnvState]
    ) -> Self:
        """Read rings of shape (environments, rows, d) and (environments, rows, 3).

        The oldest row may have been the second of two: a step leads on to the row after it all the
        same.
        """
        parts = []
        for env_state, points, taken in zip(env_states, observations, steps, strict=True):
            end = env_state.last_row + 1
            if taken[-1, MARK] != UNUSED:  # it has gone round
                parts.append((points[end:], taken[end:]))
            parts.append((points[:end], taken[:end]))
        return cls(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    @cached_property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean, shape (d,), and covariance, shape (d, d), of the points, if there are any."""
        return metric.covariance(self.points)

    def units(self, whitened: bool) -> metric.Units:
        """Return the units of distances; ``whitened``: not along the axes."""
        return metric.Units.of(*self.moments, axes=not whitened)


class OnlineEngine(Engine):
    """The state of an online agent: the arrays of ``qlearning``, and its cells.

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

    state: ql.OnlineState
    rule = ql.RULE
    own_events = UNIFORMS | ql.WARM | ql.RESTART | ql.OBSERVE | ql.RESHAPE
    choose = staticmethod(ql.act)
    step = staticmethod(ql.step)
    update = staticmethod(ql.update)

    def __init__(
        self,
        interface: Interface,
        config: TwoTimescaleConfig,
        partition: Partition,
        rng: np.random.Generator,
    ) -> None:
        d, capacity = interface.n_features, partition.diagram.shape[0]
        super().__init__(interface, max(capacity, d), rng)
        self.config = config
        self.partition = partition
        self.table: FloatArray = np.zeros((ql.TRACES + 1, capacity, interface.n_actions))
        self.origin, self._point = self._workspace.origin[:d], self._workspace.point[:d]
        self.metric: FloatArray | None = None
        self.observations: FloatArray = np.zeros((1, _rows_for(1), d))
        self.steps: FloatArray = np.zeros((1, _rows_for(1), 3))
        self._make_state(1)
        self.state.assign(_first_state(config))
        self._open()

    def _make_state(self, count: int) -> None:
        """Make named state for so many environments, in none of which anything has happened."""
        self.raw, self._env_states = with_env_states(ql.OnlineState, count)
        self.state = ql.OnlineState(self.raw)

    def _open(self) -> None:
        """Let compiled code work on the present arrays, which it takes as one tuple."""
        own = self.table, self.raw, self.room, self.observations, self.steps
        self.arrays = ((*self.partition.learner, self.partition.diagram, *own),)

    @property
    def _has_trials(self) -> bool:
        """Whether policies are tried: of several environments, if it may ever rest."""
        return self.config.solved_episodes > 0 and self.n_envs > 1

    @property
    def env_states(self) -> list[EnvState]:
        """What belongs to each environment."""
        return self._env_states

    @property
    def _records(self) -> npt.NDArray[np.void]:
        """The same as one structured array, shape (n_envs,)."""
        return self.raw[ql.OnlineState.size :].view(EnvState.dtype)

    @property
    def n_envs(self) -> int:
        """Number of environments learned from at once."""
        return len(self.observations)

    def set_n_envs(self, count: int) -> None:
        """Get ready to learn from so many environments at once, none of which has begun yet.

        What the ring holds is kept as far as there is room.
        """
        kept = self._trial() if self.state.phase == ql.FROZEN else None
        self.trials = Trials(count, self.table.shape[1], self.interface.n_features, kept)
        if count != self.n_envs:
            latest, before = self._latest(), self.state
            self._make_state(count)
            self.state.record[:] = before.record
            self.table = np.concatenate([
                self.table[: ql.TRACES], np.zeros((count, *self.table.shape[1:]))
            ])  # fmt: skip
            self._spread(latest)
            self._open()

    def _spread(self, latest: Latest) -> None:
        """Spread transitions, as far as there is room, over new rings of all environments."""
        count, rows = len(self.env_states), _rows_for(len(self.env_states))
        self.observations = np.zeros((count, rows, latest.points.shape[1]))
        self.steps = np.zeros((count, rows, latest.steps.shape[1]))
        for env, begin in enumerate(range(0, min(len(latest.points), count * rows), rows)):
            own = latest.steps[begin : begin + rows]
            last = self.env_states[env].last_row = len(own) - 1
            self.observations[env, : last + 1] = latest.points[begin : begin + rows]
            self.steps[env, : last + 1] = own
            if own[last, MARK] == GOES_ON:
                self.steps[env, last] = -1.0, 0.0, CUT

    def leave_envs(self) -> None:
        """Go back to learning along one trajectory."""
        if self.n_envs > 1:
            self.set_n_envs(1)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.state.n_cells

    @property
    def codevectors(self) -> FloatArray:
        """Codevectors in the observation's units, shape (n_cells, d)."""
        return self.partition.codevectors + self.origin

    @property
    def epsilon(self) -> float:
        """Present probability of a random action."""
        return float(ql.epsilon_of.py_func(self.state))  # type: ignore[attr-defined]

    def start(self) -> None:
        """Learn from nothing: first cells, Q = 0."""
        latest = self._latest()
        learned = self.config.metric == "learned"
        self.state.whitened = learned and not informative(latest.points, latest.steps)
        self.table[:] = 0.0
        self.partition.start(self._scaling(latest))
        self.state.phase = ql.LEARNING
        self.state.streak = self.state.steps_since_start = 0
        self.state.countdown = self.config.observe_every
        self._take_over(None)

    def begin_episode(self) -> None:
        """Forget episodes that were not finished."""
        for env_state in self.env_states:
            env_state.episode_return, env_state.episode_length = 0.0, 0
        self.table[ql.TRACES :] = 0.0

    def advance(self, step: VectorStep) -> tuple[IntArray, FloatArray]:
        """Learn from a step of all environments and choose the next actions.

        Returns the actions (from 0), shape (n,), and the episodes that have ended, shape (m, 2), as
        (return, length).
        """
        n = len(step.rewards)
        assert n == self.n_envs  # else compiled code would write past the ends of arrays
        actions, ended = np.zeros(n, dtype=np.int64), np.zeros((n, 2))
        taken, played = tuple(step), tuple(self.trials.played)  # numba is slow to name named ones
        env, learned, n_ended, best = 0, False, 0, self.state.best_return
        while env < n:
            events, env, more = ql.step_together(
                env, learned, taken, played, actions, ended, *self.arrays
            )
            n_ended += more
            if events:
                self.attend(events, BAD_STEP)
                learned = True
        if self._has_trials and self.state.phase != ql.WARMUP:
            if n_ended:
                self._judge(best, ended)
            self._hand_out(step.begins.nonzero()[0])
        return actions, ended[ended[:, 1] > 0.0] if n_ended else _NO_EPISODE

    def _judge(self, best: float, ended: FloatArray) -> None:
        """Keep the policies that solve their episodes; ``best`` was the best return before."""
        succeeds = ql.succeeds.py_func  # type: ignore[attr-defined]
        if not succeeds(self.state, best):
            self.trials.forget()
        patience = max(SETTLED_AFTER, _SETTLED_AFTER_EACH * self.n_envs)
        settled = self.state.steps - self.state.best_at >= patience
        for env in ended[:, 1].nonzero()[0].tolist():
            episode_return, length = ended[env].tolist()
            solved = succeeds(self.state, episode_return)
            changes = self.trials.note(env, solved, int(length))
            if changes and (self.trials.kept is not None or settled):
                self._rest_on(self.trials.keep_next())

    def _hand_out(self, begins: IntArray) -> None:
        """Let environments where an episode begins play the policy that is tried."""
        if len(begins):
            trial = self.trials.kept or self._trial()
            greedy = self.table[ql.VALUES, : self.n_cells].argmax(axis=1)
            self.trials.begin(begins, trial, self.partition.diagram, greedy)

    def _trial(self) -> Trial:
        """Return the present policy."""
        state = {name: np.array(array) for name, array in self.partition.state().items()}
        return Trial(state, self.table[: ql.TRACES, : self.n_cells].copy())

    def _rest_on(self, trial: Trial | None) -> None:
        """Go back to an earlier policy and stop learning, or without one go on learning."""
        self.state.streak = 0
        self.state.phase = ql.LEARNING if trial is None else ql.FROZEN
        if trial is not None:
            self.partition.restore(trial.partition)
            self.table[: ql.TRACES, : trial.table.shape[1]] = trial.table
            self.table[ql.TRACES :] = 0.0
            self._take_over(None)

    @property
    def loop_arrays(self) -> tuple[Any, ...]:
        """The arrays that the rule opens in a compiled loop."""
        arrays: tuple[Any, ...] = self.arrays[0]
        return arrays

    def withdraw_choice(self) -> None:
        """Give back the random number of the last choice."""
        if self.state.phase != ql.FROZEN:
            self.state.next_uniform -= 1

    def _attend(self, events: int) -> None:
        if events & ql.WARM:
            self._centre()
        if events & (ql.WARM | ql.RESTART):
            self.start()
        elif events & (ql.OBSERVE | ql.RESHAPE):
            self._reshape(events)

    def _reshape(self, events: int) -> None:
        """Let the slow timescale reshape its cells, and move metric and table along with them."""
        before = self.partition.diagram.copy()  # of the cells that the table is about
        if events & ql.RESHAPE:
            lineage: Lineage | None = self.partition.reshape()
        else:
            lineage = self.partition.observe(self._point)
        if lineage is not None:
            latest = self._latest()
            self._learn_metric(before, latest)
            ql.carry_table(self.table, lineage)
            self.partition.rescale(self._scaling(latest))
            self._take_over(lineage)

    def _centre(self) -> None:
        """Make the mean of the points seen the origin."""
        mean, _ = self._latest().moments
        self.origin += mean
        self.observations -= mean

    def _latest(self) -> Latest:
        """Return what all environments' rings hold."""
        return Latest.of(self.observations, self.steps, self.env_states)

    def _learn_metric(self, diagram: FloatArray, latest: Latest) -> None:
        """Average the metric with that of the present Q, on the latest transitions.

        A gradient is one of Watkins' λ-returns, among the steps of a cell with one action.
        """
        if self.config.metric != "learned":
            return
        points, steps, config = latest.points, latest.steps, self.config
        cells, targets = np.empty(len(points), dtype=np.int64), np.empty(len(points))
        assign_batch(diagram, self.n_cells, points, cells)
        q_values = self.table[ql.VALUES, : self.n_cells]
        best, greedy = q_values.max(axis=1), q_values.argmax(axis=1)
        watkins_targets(steps, cells, best, greedy, config.gamma, _METRIC_TRACE_DECAY, targets)
        groups = cells * q_values.shape[1] + steps[:, ACTION].astype(np.int64)
        groups[steps[:, MARK] != GOES_ON] = -1
        units = latest.units(self.state.whitened)
        self.metric = units.average(self.metric, units.outer(points, groups, targets))

    def _take_over(self, lineage: Lineage | None) -> None:
        self.state.n_cells = self.partition.n_cells
        for env_state, ring in zip(self.env_states, self.observations, strict=True):
            point = ring[(env_state.last_row + env_state.fresh) % len(ring)]
            env_state.cell = assign(self.partition.diagram, self.n_cells, point)
        self.state.learner_active = self.partition.active
        step, temperature = self.state.steps, self.partition.temperature
        self.note_level(Level(step, temperature, self.codevectors, lineage))

    @property
    def scale(self) -> FloatArray | None:
        """Inverse standard deviations of the ring's points, shape (d,); None during random play."""
        if self.state.phase == ql.WARMUP:
            return None
        return self._latest().units(False).scale

    @property
    def mahalanobis(self) -> FloatArray | None:
        """The metric that was given or learned, in the observation's units.

        None at first, and for good if the cells rest before one has been learned.
        """
        never = self.config.metric == "learned" and not (
            self.metric is not None or self.partition.active
        )
        if self.state.phase == ql.WARMUP or never:
            return None
        if not isinstance(self.config.metric, str):
            return np.array(self.config.metric, dtype=np.float64)
        return self._latest().units(self.state.whitened).metric(self.metric)

    def _scaling(self, latest: Latest) -> Scaling:
        """Return the root of the metric, scaled so that the total variance of points is 2."""
        if isinstance(self.config.metric, str):
            transform = latest.units(self.state.whitened).transform(self.metric, _METRIC_POWER)
        else:
            transform = metric.root(np.array(self.config.metric, dtype=np.float64), 0.5, 0.0)
        _, covariance = latest.moments
        variance = float((transform @ covariance @ transform.T).trace())
        if variance > 0.0:
            transform = transform * np.sqrt(_TOTAL_VARIANCE / variance)
        return Scaling(transform, self.origin, np.sqrt(covariance.diagonal()))

    def state_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays that have to be saved, the history apart."""
        return {
            "table": self.table[:, : self.n_cells],
            "room": self.room,
            "state": self.state.record,
            "env_states": self._records.copy(),
            "observations": self.observations,
            "steps": self.steps,
            "metric": np.zeros((0, 0)) if self.metric is None else self.metric,
            **{f"partition_{name}": array for name, array in self.partition.state().items()},
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take over what :meth:`state_arrays` returned."""
        own = {name: arrays[name] for name in arrays if not name.startswith("partition_")}
        count = arrays["env_states"].shape[0]
        self._check(own, count)
        self.partition.restore(within(arrays, "partition_"))
        n = self.partition.n_cells
        held = own["table"].shape[1], int(own["state"]["n_cells"][0])
        learning = own["state"]["phase"][0] != ql.WARMUP
        right = held == (n, n) or (held == (1, 1) and not learning)  # one cell until it begins
        require(right, f"table and state have {held} cells: the partition has {n}")
        active = bool(self.partition.active) if learning else False
        require(bool(own["state"]["learner_active"][0]) == active, "learner_active is wrong")
        self.set_n_envs(count)
        self.table[:, : arrays["table"].shape[1]] = arrays["table"]
        self.state.restore(arrays["state"])
        for i, env_state in enumerate(self.env_states):
            env_state.restore(arrays["env_states"][i : i + 1])
        for name in ("room", "observations", "steps"):
            getattr(self, name)[:] = arrays[name]
        self.metric = arrays["metric"] if len(arrays["metric"]) else None

    def _check(self, arrays: Mapping[str, npt.NDArray[Any]], count: int) -> None:
        """Raise InvalidFileError unless arrays, the partition's apart, are those of an agent."""
        capacity, n_actions = self.table.shape[1:]
        require(count >= 1, "env_states is empty")
        sizes = {
            "env_states": count, "A": n_actions, "actions": n_actions,
            "d": self.interface.n_features,
            "width": self.room.shape[1], "uniforms": self.room.shape[1], "capacity": capacity,
            "rows": _rows_for(count), "cells": arrays["table"].shape[1],
        }  # fmt: skip
        check(arrays, SCHEMA, sizes)
        for member, row in zip(ROOM.items(), arrays["room"], strict=True):
            member[1].check(f"room, row {member[0]}", row, sizes)
        _, visits, step_sizes, traces = np.split(arrays["table"], [1, 2, 3])
        require((visits >= 0.0).all(), "table has negative numbers of visits")
        for what, layer in (("step sizes", step_sizes), ("traces", traces)):
            require(((layer >= 0.0) & (layer <= 1.0)).all(), f"table has {what} out of [0, 1]")
        require(sizes["m"] in (0, sizes["d"]), f"metric has {sizes['m']} rows")
        check_steps("steps", arrays["steps"].reshape(-1, 3), n_actions)
        state, env_states = arrays["state"][0], arrays["env_states"]
        for name in _SETTINGS:
            value = getattr(self.config, name)
            require(state[name] == value, f"state.{name} is {state[name]}: the setting is {value}")
        least = int(state["phase"] != ql.WARMUP)
        right = least <= state["countdown"] <= state["observe_every"]
        require(right, f"state.countdown is {state['countdown']}")
        require(
            (env_states["number"] == np.arange(count)).all(), "env_states are not numbered from 0"
        )
        seen = (env_states["last_row"] >= 0).any() or (arrays["steps"][:, -1, MARK] != UNUSED).any()
        require(seen or least == 0, "steps holds none, though learning has begun")


def _first_state(config: TwoTimescaleConfig) -> dict[str, float]:
    """Return what the state is not 0 in."""
    return {
        **{name: getattr(config, name) for name in _SETTINGS},
        "best_return": -np.inf,
        "n_cells": 1,
        "phase": ql.WARMUP,
    }


def _rows_for(count: int) -> int:
    """Return how many rows the ring of each of so many environments has."""
    return max(_MAX_ROWS // count, _MIN_ROWS)
