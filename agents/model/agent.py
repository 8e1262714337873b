"""The agent that learns the world, and delivers a rule."""

from typing import Any

import numpy as np
import numpy.typing as npt

from oda_rl._types import FloatArray
from oda_rl.agents.engine.agent import Agent, spawn_rngs
from oda_rl.agents.engine.training import EpisodeLog
from oda_rl.agents.environments.making import spec_of
from oda_rl.agents.environments.spaces import AnyEnv, Interface
from oda_rl.agents.model.engine import ModelEngine
from oda_rl.agents.model.settings import ModelConfig
from oda_rl.agents.policies.contract import Extent
from oda_rl.agents.policies.rules import RulePolicy


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
    def policy(self) -> RulePolicy:
        """The delivered rule."""
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

    def _about(self) -> dict[str, Any]:
        return {"partition": "rule", "solved_return": self.solved_return, "horizon": self.horizon}

    def _rebuild(self, metadata: dict[str, Any], *parts: Any) -> None:
        interface = Interface.from_json(metadata["interface"])
        self._build(interface, ModelConfig(**metadata["config"]), metadata["horizon"], None)
        self.solved_return = metadata["solved_return"]
