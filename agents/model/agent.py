"""The agent that learns the world, and delivers a rule."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from oda_rl._types import Array, FloatArray
from oda_rl.agents.base.actors import Actors, require_copies
from oda_rl.agents.base.agent import Agent
from oda_rl.agents.base.engine import Performed
from oda_rl.agents.base.loops import Progress
from oda_rl.agents.base.training_run import TrainingRun
from oda_rl.agents.distilling.distil import Simplifiable
from oda_rl.agents.environments.adaptation import observed
from oda_rl.agents.environments.making import LONGEST, one_of, time_limit
from oda_rl.agents.environments.spaces import AnyEnv, Interface, spaces_of
from oda_rl.agents.model.climbing import ClimbActors
from oda_rl.agents.model.engine import SCHEMA, ModelEngine
from oda_rl.agents.model.fallback import Fallback
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.policies.cells import CellPolicy, CodevectorPolicy, TablePolicy
from oda_rl.agents.policies.rules import RulePolicy, named_as
from oda_rl.agents.rules.editing import Editor
from oda_rl.agents.rules.proofs import Proof
from oda_rl.agents.worlds.world import World
from oda_rl.files.schema import Member, prefixed, real, require, within


class ModelAgent(Simplifiable, Agent):
    """Learns a model of the world, searches for a rule in it, confirms it in real episodes.

    After a few hundred random steps, and then whenever steps have grown by a seventh, or later if a
    search takes long:

    1. It learns laws of motion: affine and quadratic ones, with laws of annealed cells or shared
       sinusoids for the residuals, whichever predicts held-out stretches best; an ensemble of four,
       each fitted to other stretches. It detects angles, bounds and components with few values;
       one that no law predicts, such as a road's slope, is assumed constant. Rewards are a linear
       law, terminations half-spaces or a sparse quadratic classifier.
    2. It searches for a rule in imagined episodes: K affine scores of the observation, of which the
       highest chooses the action; CMA-ES from the best of random, known and, for continuous
       actions, linear-quadratic rules. Cells, numbers and digits that do not matter are dropped.
       While all returns are equal, or a rule avoids all cost of actions, it searches for novelty.
    3. It plays the rule in complete episodes, from which the next world is learned.

    It delivers the rule with the best bound: the model's mean return over many starts, corrected by
    the difference between real episodes and imagined ones from the same starts. Where states are
    discrete, or distinct observations few, the world is a table of counts instead, and the best
    policy in it is delivered. Some steps re-evaluate the best rule or policy.

    Where the world is not trusted (``agent.world.trust``), or real returns fall short of imagined
    ones, judged after 3,000 steps or a fifth of all and whenever they have doubled, it warns and
    continues without a model: it fits values to all steps, as :class:`FittedQAgent` does, or
    :class:`CodevectorAgent` for continuous actions. With discrete actions, it does so from 500
    steps on where R² of rewards is below 0.99, or a table has random outcomes and few visits: of
    fewer than 20,000 steps, half of those are enough. If 20,000 are left in one environment, values
    are distilled into a rule of at most 16 cells, improved in real episodes
    (:func:`oda_rl.agents.distill`); else they are means over five partitions, with γ = 0.985 and
    six random decisions an episode, or 6 % of its steps if fewer, and real returns decide between
    them and the rules. With discrete actions in one environment, rules of affine advantages, for
    each value of components that have few, are fitted to the same steps after half of these (six
    tenths of many). They go on being fitted and played while one of them returns most.

    If continuous actions have 20,000 steps left, or more than three components, random search in
    real episodes improves one affine rule instead, without values; or one in each cell of the goals
    of episodes. Fresh episodes from common starts decide between the rules on its way; numbers and
    digits that do not matter are dropped. A checkpoint resumes with the same bits where a seeded
    reset restarts everything in the environment. Where episodes end at a goal or in a crash, values
    are fitted to a grid of actions, three of each component, instead.

    Where the dynamics are far from deterministic, as with hidden state or long contacts, use
    :class:`FittedQAgent`.

    Parameters
    ----------
    env : str, gymnasium.Env or gymnasium.vector.VectorEnv
        With spaces as of :class:`FittedQAgent`. Continuous actions are not discretised unless
        ``action_bins`` is given, which vector environments with such actions need.
    seed, names, action_names
        As for :class:`FittedQAgent`.
    **config
        Settings of :class:`oda_rl.agents.ModelConfig`.

    Attributes
    ----------
    env, config, episodes, training_seconds, solved_return
        As for :class:`FittedQAgent`, like the errors that are raised.

    References
    ----------
    M. P. Deisenroth, C. E. Rasmussen, "PILCO: a model-based and data-efficient approach to policy
    search", ICML 2011.
    H. Mania, A. Guy, B. Recht, "Simple random search of static linear policies is competitive for
    reinforcement learning", NeurIPS 2018.
    N. Hansen, "The CMA evolution strategy: a tutorial", arXiv 1604.00772 (2016).

    Examples
    --------
    >>> agent = ModelAgent("CartPole-v1", seed=0).learn(500)
    >>> float(agent.evaluate(10, seed=1).mean())
    500.0
    >>> "push right" in agent.rules() and "push left" in agent.rules()
    True
    """

    config: ModelConfig
    _engine: ModelEngine

    _config_class = ModelConfig
    _streams = ("explore", "planning", "env", "predict")
    _more_metadata = ("solved_return", "horizon", "real")
    _sized_by: ClassVar[dict[str, Member]] = {"start": SCHEMA["start"], "code": real("C")}
    _limit: int | None = None  # of the environment, or of a file
    _real: Fallback
    _latest: tuple[RulePolicy | None, Interface | None, RulePolicy | None] = (None, None, None)
    # the rule delivered latest, an interface, and the rule with its names

    def _make_engine(self) -> ModelEngine:
        self._real = Fallback()
        if self._env is not None:
            self._limit = self._limit or time_limit(self._env)
        rngs = self._rngs["explore"], self._rngs["planning"]
        return ModelEngine(self.interface, self.config, self._limit, *rngs)

    @property
    def horizon(self) -> int:
        """Maximum number of steps of an imagined episode: the time limit, as far as it is known."""
        return self._engine.outcomes.horizon

    @property
    def policy(self) -> RulePolicy | TablePolicy | CellPolicy:
        """The delivered rule, or table; or values, where the world is not trusted."""
        policy, (plain, interface, named) = self._real.policy(self._engine), self._latest
        if not isinstance(policy, RulePolicy):
            return policy
        if named is None or plain is not policy or interface is not self.interface:
            named = named_as(policy, self.interface)
            self._latest = policy, self.interface, named
        return named

    @property
    def delivered_return(self) -> float:
        """Mean return of the policy that would be delivered now, in training; NaN if unknown.

        Where no real episode has been played with a rule, it is the return in the model.
        """
        return self._real.delivered_return(self._engine)

    def rules(self) -> str:
        """Return the delivered rule in words; or say that it is a table, or values in cells.

        Raises
        ------
        ValueError
            If the agent has learned nothing yet.
        """
        if self.scale_ is None and self._engine.planner.clauses is None:
            raise ValueError(
                f"there is no rule yet: the agent has learned nothing after {self.num_timesteps:,} "
                f"steps; it begins after {self.config.random_steps:,}, when an episode ends"
            )
        policy = self.policy
        if isinstance(policy, TablePolicy):
            return f"a table of {policy.n_cells} states has an action for each"
        if isinstance(policy, CellPolicy):
            return f"values in {policy.n_cells} cells decide: the learned world is not trusted"
        return policy.rules()

    def edit(self) -> Editor:
        """Edit the delivered rule, as :meth:`RulePolicy.edit`, for :meth:`constrain`.

        Raises
        ------
        ValueError
            If the agent delivers a table.
        """
        return self._rule("edit").edit()

    def constrain(self, policy: RulePolicy) -> Self:
        """Deliver an edited rule, and learn within its clauses from now on.

        Exploration obeys them, too. It may be called before :meth:`learn`. A policy without clauses
        removes them.

        Parameters
        ----------
        policy : RulePolicy
            The result of :meth:`edit` or :meth:`RulePolicy.edit`.

        Raises
        ------
        ValueError
            If it is not a rule for this environment, or the agent has a table.

        Examples
        --------
        >>> agent = ModelAgent("CartPole-v1", seed=0)
        >>> edited = agent.edit().forbid("push left", where="cart position < -1").done()
        >>> agent = agent.constrain(edited).learn(500)
        >>> print(agent.rules().splitlines()[0])
        never push left where cart position < -1
        """
        self._rule("constrain")
        if self._real.reason is not None:
            raise ValueError(
                "constrain: the agent does not trust its world, and improves rules in the real "
                "environment, where clauses are not supported"
            )
        box, d = self.interface.box, self.interface.n_features
        n = self.interface.n_actions if box is None else self.interface.n_components
        shape = (n, 1 if box is None else 1 + d)
        if not isinstance(policy, RulePolicy) or policy.outputs.shape[1:] != shape:
            raise ValueError(
                f"policy is of type {type(policy).__name__}: it must be a RulePolicy with outputs "
                f"of shape (K, {n}, {shape[1]}), as agent.edit().done() returns it"
            )
        self._engine.constrain(policy)
        return self

    def prove(self, box: Mapping[str | int, tuple[float, float]]) -> Proof:
        """Prove which actions the delivered rule takes somewhere in a box, and which never.

        Where actions are continuous, it says the range of each of their components. Components of
        the observation that are not named have the bounds of its space; none if the agent was
        loaded, and its environment is not known.

        Parameters
        ----------
        box : dict
            Lower and upper bound of some components, by name or number.

        Raises
        ------
        ValueError
            If the agent delivers a table, or for unknown components.

        Examples
        --------
        >>> agent = ModelAgent("CartPole-v1", seed=0).learn(500)
        >>> found = agent.prove({"pole angle": (0.15, 0.2), "pole angular velocity": (1, 2),
        ...                      "cart position": (0, 1), "cart velocity": (0, 1)})
        >>> found.occurs, str(found).splitlines()[-1]
        ((1,), '  push left: never')
        """
        space = None
        with suppress(ValueError):  # a file may name no environment that can be made
            space = spaces_of(self._adapted(one_of(self._require_env())))[0]
        ends = (space.low.ravel(), space.high.ravel()) if isinstance(space, spaces.Box) else None
        return self._rule("prove").prove(box, ends)

    def _rule(self, what: str) -> RulePolicy:
        """Return the delivered rule; raise ValueError if it is a table, or has values."""
        policy = self.policy
        if isinstance(policy, CellPolicy):
            raise ValueError(f"{what}: the agent has values in cells; simplify() makes a rule")
        numbered = self.interface.n_values > 0 and self.interface.box is None
        if isinstance(policy, TablePolicy) or numbered:
            raise ValueError(f"{what}: the agent has a table of states; it must have a rule")
        return policy

    @property
    def distrust(self) -> str | None:
        """Why the agent does not trust its model, or learns without it; None if it trusts it."""
        return self._real.reason or self._real.doubt

    @property
    def models_laws(self) -> bool:
        """Whether there is a :attr:`world`: laws have been learned, not a table."""
        return self._engine.planner.learned is not None

    @property
    def world(self) -> World:
        """The world learned last.

        Raises
        ------
        ValueError
            If nothing has been learned yet, or the world is a table of discrete states.
        """
        learned, memory = self._engine.planner.learned, self._engine.memory
        if learned is None:
            nothing = (
                f"the agent has learned nothing yet after {self.num_timesteps} steps; it begins "
                f"after {self.config.random_steps} of them, when an episode ends"
            )
            if n_states := self._engine.tables.n_states:
                nothing = f"the world is a table of {n_states:,} states"
            raise ValueError(f"agent.world is None: {self.distrust or nothing}")
        return World(learned, self.interface, memory.present, memory.present_first, self.horizon)

    @property
    def visits(self) -> FloatArray:
        """Steps remembered from each cell with each action, shape (n_cells, n_actions).

        Where actions are continuous a choice is a cell: on the diagonal.
        """
        seen, policy = self._observations, self.policy
        if isinstance(policy, CodevectorPolicy):
            assert self._real.fitted is not None
            return self._real.fitted.visits
        cells = policy.cells(seen)
        codes = self._engine.memory.codes[: len(seen)]
        if self.interface.box is not None:
            codes = np.eye(policy.n_cells)[cells]
        counts = np.zeros((policy.n_cells, policy.n_actions))
        np.add.at(counts, cells, codes)
        return counts

    @property
    def scale_(self) -> FloatArray | None:
        """Inverse standard deviations of the components, shape (d,); 0 for constant ones."""
        climb = self._real.climb
        return self._engine.scale if climb is None else climb.scale

    @property
    def _observations(self) -> FloatArray:
        climb = self._real.climb
        return self._engine.memory.transitions.before if climb is None else climb.latest

    def _train(self, env: AnyEnv, run: TrainingRun) -> Progress:
        self._engine.outcomes.limit = time_limit(env) or self._engine.outcomes.limit
        if self.interface.box is not None:
            assert isinstance(env, gym.Env)
            env = Performed(env, self._engine)
        actors, run.actors = run.actors, None  # which play a climb's directions only
        training = super()._train(env, run)
        run.actors = actors
        if self._engine.constrained:
            return training
        return self._real.train(self, training, run, self._rngs["planning"])

    def _actors_learner(self, actors: Actors) -> ClimbActors:
        if self.interface.box is None:
            super()._actors_learner(actors)
        self._require_env()
        assert self.env is not None
        return ClimbActors(require_copies(self.env, actors, self._env_module))

    def _interface_of(self, env: AnyEnv) -> Interface:
        boxed = isinstance(spaces_of(env)[1], spaces.Box)
        return Interface.of(env, self.config.continuous_cells if boxed else None)

    @property
    def _bins(self) -> int:
        return self.config.action_bins or 2  # of MultiDiscrete all combinations are offered

    def _adapted(self, env: AnyEnv) -> AnyEnv:
        if not isinstance(spaces_of(env)[1], spaces.Box) or self.config.action_bins is not None:
            return super()._adapted(env)
        if isinstance(env, VectorEnv):
            raise TypeError(
                f"env has {env.num_envs} environments: with continuous actions it must be one "
                "environment; action_bins=5 offers a few of them, in several"
            )
        return observed(env)

    def _about(self) -> dict[str, Any]:
        return {**super()._about(), "partition": "rule", "horizon": self._engine.outcomes.limit}

    def _to_file(self) -> tuple[dict[str, Any], dict[str, Array]]:
        metadata, arrays = super()._to_file()
        about, more = self._real.to_file()
        return {**metadata, "real": about}, {**arrays, **prefixed("real_", more)}

    @classmethod
    def _from_file(cls, metadata: dict[str, Any], arrays: Mapping[str, Array], *parts: Any) -> Self:
        own = {name: array for name, array in arrays.items() if not name.startswith("real_")}
        agent, real = super()._from_file(metadata, own), within(arrays, "real_")
        agent._real = Fallback.from_file(metadata.get("real"), real, agent.interface)
        return agent

    def _rebuild(self, metadata: dict[str, Any], *parts: Any) -> None:
        self._limit = limit = metadata["horizon"]
        right = limit is None or (type(limit) is int and 1 <= limit <= LONGEST)
        require(right, f"horizon is {limit!r}: it must be an integer from 1 to {LONGEST}, or null")
        super()._rebuild(metadata, *parts)
