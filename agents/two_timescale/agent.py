"""The online agent: fast learning of values over soft cells, slow annealing that places them."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from oda_rl._compile import plain
from oda_rl._types import FloatArray
from oda_rl.agents.base import files
from oda_rl.agents.base.agent import Agent
from oda_rl.agents.base.loops import Progress
from oda_rl.agents.base.settings import unknown_setting
from oda_rl.agents.base.training_run import TrainingRun
from oda_rl.agents.distilling.distil import Simplifiable
from oda_rl.agents.environments.adaptation import observed
from oda_rl.agents.environments.making import one_of
from oda_rl.agents.environments.spaces import AnyEnv, Interface, Spaces, described, spaces_of
from oda_rl.agents.partitions import PARTITIONS
from oda_rl.agents.partitions.base import BuiltIn, Partition
from oda_rl.agents.partitions.grid import MAX_CELLS, GridPartition
from oda_rl.agents.policies.cells import CellPolicy, MixturePolicy
from oda_rl.agents.policies.joint import N_CELLS, TEMPERATURE, JointPolicy, levels_of
from oda_rl.agents.two_timescale import paper
from oda_rl.agents.two_timescale import qlearning as ql
from oda_rl.agents.two_timescale.cells import COUNT
from oda_rl.agents.two_timescale.engine import SCHEMA, OnlineEngine
from oda_rl.agents.two_timescale.settings import TwoTimescaleConfig
from oda_rl.diagram import ordered
from oda_rl.envs.dynamics import ActionChoices, compiled_dynamics
from oda_rl.files.schema import Member, check_fields, require

_OF_AGENT = vars(TwoTimescaleConfig()).keys()
_OF_PARTITION = {name: vars(kind.Settings()).keys() for name, kind in PARTITIONS.items()}
_BINS = 5  # values of a component of a continuous action
_OF_ANNEALING = {"max_cells", "cooling", "slow_exponent", "min_slow_step", "observe_every", "paper"}


class TwoTimescaleAgent(Simplifiable, Agent):
    """Values over soft cells that online deterministic annealing places while it learns.

    Fast: true online Sarsa(λ). The value of an action is blended over the six nearest cells with
    the Gibbs weights of deterministic annealing, so that its temperature is the bandwidth of the
    function approximator. Slow: codevectors move to the states visited, cells split at their
    critical temperature, are born in states far from all, and merge where values agree; the metric
    is learned from the gradients of the values. With continuous actions, cells are in the space of
    states and actions, and the best action is searched near the state
    (:mod:`oda_rl.agents.policies.joint`). Now and then a snapshot plays a few episodes
    greedily; the best one so far is the delivered policy. Rewards may be multiplied by any factor:
    no reward threshold is needed.

    Parameters
    ----------
    env : str, gymnasium.Env or gymnasium.vector.VectorEnv
        With spaces as of :class:`FittedQAgent`; actions of a Box are not discretised.
    partition : {"oda", "gmm", "grid", "infex", "som"} or Partition
        How cells are placed: by annealing (Discrete observations have a cell each), at the means of
        a Gaussian mixture, on a uniform grid, at the exemplars of a mixture density, on a
        self-organising map, or by your own object; see :class:`oda_rl.agents.Partition`.
    seed, names, action_names
        As for :class:`FittedQAgent`.
    **config
        Settings of :class:`oda_rl.agents.TwoTimescaleConfig`, and of a named partition:
        ``partition="grid", bins=4`` is ``partition=GridPartition(bins=4)``.

    Attributes
    ----------
    partition : Partition or None
        Object that places the cells, by its own ``settings``; None for annealing.
    config, episodes, training_seconds, solved_return
        As for :class:`FittedQAgent`, like the errors that are raised.

    References
    ----------
    C. N. Mavridis, J. S. Baras, "Annealing optimization for progressive learning with stochastic
    approximation", IEEE Transactions on Automatic Control 68 (2023), algorithm 2: one-step
    Q-learning over annealed cells of state-action pairs. Blended values, births, merges by values,
    the learned metric, traces and the contest of snapshots are added here.
    H. van Seijen et al., "True online temporal-difference learning", JMLR 17 (2016).

    Examples
    --------
    >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(20_000)
    >>> action, _ = agent.predict(agent.env.reset(seed=1)[0])
    >>> agent.evaluate(10, seed=1).shape
    (10,)
    """

    config: TwoTimescaleConfig
    partition: Partition | None
    _engine: OnlineEngine
    _streams = ("explore", "partition", "env", "predict")
    _sized_by: ClassVar[dict[str, Member]] = {name: SCHEMA[name] for name in ("points", "models")}
    _cached: tuple[int, CellPolicy | JointPolicy] | None = None

    def __init__(
        self,
        env: str | AnyEnv | Spaces,
        seed: int | None = None,
        *,
        partition: str | Partition = "oda",
        names: Sequence[str] | None = None,
        action_names: Sequence[Any] | None = None,
        **config: Any,
    ) -> None:
        own = {name: config.pop(name) for name in _OF_AGENT & config.keys()}
        preset = paper.SETTINGS if own.get("paper") else {}
        self.config = TwoTimescaleConfig(**{**preset, **own})
        self.partition = _made(partition, config)
        if self.partition is not None and (foreign := sorted(_OF_ANNEALING & own.keys())):
            raise TypeError(f"{foreign[0]} is a setting of partition='oda': leave one of them out")
        made = self._enter(described(env))
        interface = self._interface(names, action_names)
        if interface.n_values > 0 and self.partition is None:  # a cell for each value
            if interface.n_values > MAX_CELLS:
                raise ValueError(
                    f"observation_space is {spaces_of(made)[0]}: this agent has a cell for each "
                    f"value, and at most {MAX_CELLS:,}; FittedQAgent and ModelAgent take more"
                )
            adapted = self._adapted(one_of(made))
            first = float(spaces_of(adapted)[0].low[0]) - 0.5  # type: ignore[attr-defined]
            ranges = ((first, first + interface.n_values),)
            self.partition = GridPartition(bins=interface.n_values, ranges=ranges)
            if "exploration_decay" not in own and not self.config.paper:
                self.config = replace(self.config, exploration_decay=20_000.0)
        if self.config.paper:
            if "metric" not in own:
                axes = tuple(map(tuple, np.eye(interface.n_features).tolist()))
                self.config = replace(self.config, metric=axes)
            self.partition = self.partition or paper.Annealed(self.config)
        annealed = isinstance(self.partition, paper.Annealed | None)
        if annealed and (ratio := self.timescale_ratio) >= 1.0:
            warnings.warn(
                f"the step size of codevectors tends to {ratio:.3g} times that of values, where "
                f"theory asks for 0: lower min_slow_step, or raise slow_exponent or min_step_size",
                stacklevel=2,
            )
        self._build(interface, self.config, seed)
        self._begin_in(made, env)

    def _make_engine(self) -> OnlineEngine:
        config, interface = self.config, self.interface
        d = interface.n_features + interface.n_components
        if not isinstance(config.metric, str) and len(config.metric) != d:
            raise ValueError(
                f"metric is a {len(config.metric)} by {len(config.metric)} matrix: it must have "
                f"{d} rows, one for each component of the observation"
                f"{' and of the action' if interface.box else ''}"
            )
        prepare = getattr(self.partition, "prepare", None)
        if prepare is not None:
            prepare(d, self._rngs["partition"])
        self._cached = None
        return OnlineEngine(interface, config, self.partition, self._rngs["explore"])

    def _joins(self, env: AnyEnv) -> bool:
        """Whether cells are of states and actions."""
        observations, actions = spaces_of(env)
        free = self.config.action_bins is None and self.partition is None and not self.config.paper
        boxed = isinstance(actions, spaces.Box) and np.issubdtype(actions.dtype, np.floating)
        return free and boxed and not isinstance(observations, spaces.Discrete)

    @property
    def _bins(self) -> int:
        return self.config.action_bins or _BINS

    def _adapted(self, env: AnyEnv) -> AnyEnv:
        if not self._joins(env):
            return super()._adapted(env)
        return env if isinstance(env, VectorEnv) else observed(env)

    def _interface_of(self, env: AnyEnv) -> Interface:
        if not isinstance(spaces_of(env)[1], spaces.Box):
            return Interface.of(env)
        return replace(Interface.of(env, 1), n_actions=1)  # one value a cell

    def _train(self, env: AnyEnv, run: TrainingRun) -> Progress:
        if self.interface.box is None or isinstance(env, VectorEnv):
            return super()._train(env, run)
        self._engine.leave_envs()
        levels = self.interface.box.actions(levels_of(self.interface.n_components))
        compiled_dynamics(ActionChoices(env, levels))  # compares them with its steps
        return super()._train(ActionChoices(env, self._engine.next_actions), run)

    @property
    def policy(self) -> CellPolicy | JointPolicy:
        """The policy that is delivered: the snapshot that has done best so far."""
        version = self._engine.contest.version
        if self._cached is None or self._cached[0] != version:
            self._cached = version, self._policy_of(ql.BEST)
        return self._cached[1]

    @property
    def learning_policy(self) -> CellPolicy | JointPolicy:
        """The policy that is learning, as it is now."""
        return self._policy_of(ql.LIVE)

    def _policy_of(self, which: int) -> CellPolicy | JointPolicy:
        engine, interface = self._engine, self.interface
        n, temperature = int(engine.heads[which, N_CELLS]), float(engine.heads[which, TEMPERATURE])
        placed, slopes = engine.places[which, :, :n].T, engine.slopes[which, :n]
        values, (origin, inverse_units) = engine.values[which, :n], engine.units
        if which == ql.LIVE:
            values = values + engine.mean_value
        centre = origin + engine.means[which] / inverse_units
        transform = engine.transforms[which] * inverse_units
        if interface.box is not None:
            return JointPolicy(
                centre[: interface.n_features], levels_of(interface.n_components), transform,
                placed.copy(), slopes.copy(), values[:, 0].copy(), temperature, engine.n_nearest,
            )  # fmt: skip
        # Σ P (x - m)² = Σ P x² + Σ P m² - 2 <P m, x>, and x = L (o - origin) is what cells share.
        biases, precisions = engine.mixtures[which, 0, :n], engine.mixtures[which, 1:, :n].T
        pulls = precisions * placed if engine.curved else placed
        squares = precisions @ transform**2 if engine.curved else precisions  # L is diagonal
        offsets = (pulls * placed).sum(axis=1) + biases
        diagram = ordered(np.column_stack([offsets, -2.0 * pulls @ transform, squares]))
        common = np.column_stack([-(slopes * placed).sum(axis=1), slopes @ transform])
        common = np.pad(common, ((0, 0), (0, squares.shape[1])))
        models = np.concatenate([common, values], axis=1)
        codevectors = engine._raw(engine.in_units(which))
        kind = MixturePolicy if engine.curved else CellPolicy
        return kind(centre, diagram, models, temperature, engine.n_nearest, codevectors)

    @property
    def visits(self) -> FloatArray:
        """Weights of the steps that each value was learned from, shape (n_cells, n_actions).

        Those of a cell of states and actions are at the level nearest to its action.
        """
        policy = self.policy
        visits = self._engine.visits[ql.BEST, : policy.n_cells]
        if isinstance(policy, CellPolicy):
            return visits
        return visits * np.eye(policy.n_actions)[policy.nearest_levels(policy.parts)]

    @property
    def action_codevectors(self) -> npt.NDArray[Any] | None:
        """Action parts of the codevectors, shape (n_cells, ...); None for discrete actions."""
        policy, box = self.policy, self.interface.box
        if box is None or not isinstance(policy, JointPolicy):
            return None
        return box.actions(policy.parts)

    @property
    def steps_since_change(self) -> int:
        """Steps since the world is known to have changed last: the schedules' time."""
        return self.num_timesteps - self._engine.state.changed

    @property
    def metric_(self) -> FloatArray | None:
        """The metric in the observation's units, shape (d, d); None during random play.

        A Mahalanobis matrix: distances of the cells are (x - y)ᵀ M (x - y), of cells of states and
        actions those with equal actions.
        """
        engine = self._engine
        if engine.state.phase == ql.WARMUP:
            return None
        transform = (engine.transforms[ql.BEST] * engine.units[1])[:, : self.interface.n_features]
        return np.asarray(transform.T @ transform)

    @property
    def _observations(self) -> FloatArray:
        return self._engine._raw(self._engine.latest)

    @property
    def temperature(self) -> float:
        """Temperature of annealing, in the metric's units; NaN for cells that do not anneal."""
        return self._engine.temperature

    @property
    def timescale_ratio(self) -> float:
        """Limit of b_n / a_t, slow over fast step size: 0 as the theory asks for, or more.

        Of a codevector that all samples move, between births and splits. Other partitions have
        step sizes of their own.
        """
        config, exponent = self.config, self.config.step_exponent
        fast = max(config.min_step_size, config.step_size if exponent == 0.0 else 0.0)
        slow = 1.0 if config.slow_exponent == 0.0 else config.min_slow_step
        if fast > 0.0:
            return slow / fast
        if slow == 0.0 and config.slow_exponent == exponent:  # then n grows as t
            per_step = config.observe_every / config.step_size_steps
            return math.pow(per_step, exponent) / config.step_size
        return 0.0 if slow == 0.0 and config.slow_exponent > exponent else math.inf

    def _facts(self) -> dict[str, str]:
        facts, contest = super()._facts(), self._engine.contest
        text = f"tends to {self.timescale_ratio:.3g}"
        if self.partition is None:
            n, config = self._engine.statistics[COUNT, : self._engine.n_cells], self.config
            slow = np.maximum((n + 1.0) ** -config.slow_exponent, config.min_slow_step)
            ratio = np.median(slow) / plain(ql.step_size_of)(self._engine.state)
            text = f"{ratio:.3g} in the median of cells, {text}"
        if isinstance(self.partition, paper.Annealed | None):
            facts["slow / fast step size"] = text
        if contest.delivered >= 0:
            action = self.action_names[contest.actions[contest.delivered]]
            facts["delivered"] = f"always {action}: no snapshot has returned more"
        return facts

    def _about(self) -> dict[str, Any]:
        names = [name for name, kind in PARTITIONS.items() if type(self.partition) is kind]
        annealed = isinstance(self.partition, paper.Annealed | None)
        own = "oda" if annealed else type(self.partition).__name__
        return {**super()._about(), "partition": names[0] if names else own}

    def _settings(self) -> dict[str, Any]:
        partition = self.partition
        own = vars(partition.settings) if isinstance(partition, BuiltIn) else {}
        return {**super()._settings(), **own}

    @classmethod
    def load(
        cls, path: str | Path, env: str | AnyEnv | None = None, partition: Partition | None = None
    ) -> Self:
        """Load from a file or a run folder, as :meth:`FittedQAgent.load`.

        An agent with your own partition needs ``partition``, an object like the one that it had,
        whose ``restore`` is given what the other's ``state`` returned; ValueError without it.
        """
        return files.restored(cls, *files.read(path), env, partition)

    @property
    def _parts(self) -> tuple[Any, ...]:
        known = isinstance(self.partition, BuiltIn | paper.Annealed | None)
        return () if known else (self.partition,)

    def _rebuild(self, metadata: dict[str, Any], *parts: Any) -> None:
        (partition,) = parts or (None,)
        name, settings = metadata["partition"], metadata["config"]
        require(isinstance(name, str), f"partition is {name!r}: it must be a name")
        known = {*_OF_AGENT, *chain(*_OF_PARTITION.values())}
        require(settings.keys() <= known, f"config has {sorted(settings.keys() - known)}")
        own = {key: settings[key] for key in _OF_AGENT & settings.keys()}
        if partition is None:
            of_partition = _OF_PARTITION.get(name, set()) & settings.keys()
            partition = _made(name, {key: settings[key] for key in of_partition})
        interface, config = Interface.from_json(metadata["interface"]), TwoTimescaleConfig(**own)
        check_fields(config)
        self.partition = partition or (paper.Annealed(config) if config.paper else None)
        check_fields(getattr(partition, "settings", config))
        self._build(interface, config, None)


_METHODS = "start", "observe"  # of a partition; those that are saved have two more


def _made(partition: str | Partition, settings: Mapping[str, Any]) -> Partition | None:
    """Return the partition of a name with settings of its own, or the one that it is already."""
    named = isinstance(partition, str)
    works = not isinstance(partition, type) and all(hasattr(partition, one) for one in _METHODS)
    if not (partition in ("oda", *PARTITIONS) if named else works):
        raise ValueError(
            f"partition is {partition!r}: it must be one of {sorted(['oda', *PARTITIONS])}, or an "
            "object with the methods of oda_rl.agents.Partition"
        )
    known = _OF_PARTITION.get(partition, set()) if isinstance(partition, str) else set()
    for name in settings:
        if name not in known:
            owners = [other for other, names in _OF_PARTITION.items() if name in names]
            if owners:
                raise TypeError(
                    f"{name} is a setting of partition={owners[0]!r}: it must be one of the agent "
                    "or its named partition"
                )
            raise unknown_setting("TwoTimescaleAgent", name, _OF_AGENT | known)
    if isinstance(partition, str):
        return None if partition == "oda" else PARTITIONS[partition](**settings)
    return partition
