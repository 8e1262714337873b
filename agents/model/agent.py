"""The agent that learns the world, and delivers a rule."""

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from oda_rl._types import FloatArray
from oda_rl.agents.engine.agent import Agent, spawn_rngs
from oda_rl.agents.engine.loops import Progress
from oda_rl.agents.engine.performing import Performed
from oda_rl.agents.engine.training import EpisodeLog, Interrupt
from oda_rl.agents.environments.adaptation import adapted, adapted_vector, observed
from oda_rl.agents.environments.making import make_env, spec_of
from oda_rl.agents.environments.spaces import AnyEnv, Interface, spaces_of
from oda_rl.agents.model.engine import ModelEngine
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.policies.contract import Extent
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.policies.table import TablePolicy


class ModelAgent(Agent):
    """Learns how the world moves, searches a rule in imagination, and checks it in reality."""

    config: ModelConfig
    _engine: ModelEngine

    def __init__(self, env: str | AnyEnv, *, seed: int | None = None, **config: Any) -> None:
        self.config = ModelConfig(**config)
        made = self._adapted(env)
        self.env = made
        spec = spec_of(made)
        self.env_id = None if spec is None else spec.id
        self.solved_return = None if spec is None else spec.reward_threshold
        limit = None if spec is None else spec.max_episode_steps
        self._build(self._interface_of(made), self.config, limit or self.config.horizon, seed)

    def _build(
        self, interface: Interface, config: ModelConfig, horizon: int, seed: int | None
    ) -> None:
        self._rngs = spawn_rngs(seed, ("explore", "planning", "env", "predict"))
        self.interface, self.config, self.horizon = interface, config, horizon
        self.episodes = EpisodeLog()
        self.training_seconds = 0.0
        self._engine = ModelEngine(
            interface, config, horizon, self._rngs["explore"], self._rngs["planning"]
        )

    @property
    def policy(self) -> RulePolicy | TablePolicy:
        """The delivered rule, or table."""
        return self._engine.policy

    @property
    def visits(self) -> FloatArray:
        """Steps remembered from each cell with each action, shape (n_cells, n_actions)."""
        seen = self._engine.memory.transitions
        policy = self.policy
        counts = np.zeros((policy.n_cells, policy.n_actions))
        np.add.at(counts, policy.cells(seen.before), seen.codes)
        return counts

    @property
    def metric_(self) -> npt.NDArray[np.float64] | None:
        """None: cells of a rule have no metric."""
        return None

    @property
    def extent(self) -> Extent:
        """Where the observations were."""
        seen = self._engine.memory.transitions.before
        centre = seen[-2000:].mean(axis=0)
        return Extent(centre, np.abs(seen - centre).max(axis=0))

    def _performed(self, number: int) -> Any:
        if self.interface.box is not None:
            return self._engine.perform(number)
        return super()._performed(number)

    def _number_of(self, action: Any) -> int:
        if self.interface.box is None:
            return super()._number_of(action)
        self._engine.replace(action)
        return 0  # it is remembered by its components

    def _random(self, acts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.interface.box is None:
            return super()._random(acts)
        return self._rngs["predict"].uniform(-1.0, 1.0, acts.shape)

    def _train(self, env: AnyEnv, total: int, one_by_one: bool, interrupt: Interrupt) -> Progress:
        if self.interface.box is not None:
            assert isinstance(env, gym.Env)
            env = Performed(env, self._engine)
        return super()._train(env, total, one_by_one, interrupt)

    def _adapted(self, env: str | AnyEnv) -> AnyEnv:
        made = make_env(env) if isinstance(env, str) else env
        bins = self.config.action_bins
        boxed = isinstance(spaces_of(made)[1], spaces.Box) and bins is None
        if isinstance(made, VectorEnv):
            if boxed:
                raise TypeError(
                    f"env is {made}: with continuous actions it must be one environment; "
                    "action_bins=5 offers a few of them, in several"
                )
            return adapted_vector(made, bins or 2)
        return observed(made) if boxed else adapted(made, bins or 2)

    def _interface_of(self, env: AnyEnv) -> Interface:
        boxed = isinstance(spaces_of(env)[1], spaces.Box)
        return Interface.of(env, self.config.continuous_cells if boxed else None)

    def _about(self) -> dict[str, Any]:
        return {"partition": "rule", "solved_return": self.solved_return, "horizon": self.horizon}

    def _rebuild(self, metadata: dict[str, Any], *parts: Any) -> None:
        interface = Interface.from_json(metadata["interface"])
        self._build(interface, ModelConfig(**metadata["config"]), metadata["horizon"], None)
        self.solved_return = metadata["solved_return"]
