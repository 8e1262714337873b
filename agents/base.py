"""What all agents share: training with progress, evaluation, files."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, SupportsFloat

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from oda_rl.agents.config import FittedQConfig, TwoTimescaleConfig
from oda_rl.agents.engine.history import Level
from oda_rl.agents.engine.loops import (
    Engine,
    Progress,
    last_episode,
    play,
    train_fused,
    train_stepwise,
)
from oda_rl.agents.engine.state import EPISODE_END
from oda_rl.agents.engine.training import EpisodeLog, Interrupt, deferred_interrupt, progress_line
from oda_rl.agents.engine.vector import train_vector
from oda_rl.agents.environments.adaptation import adapted, adapted_vector
from oda_rl.agents.environments.making import make_env, separate_env
from oda_rl.agents.environments.spaces import AnyEnv, Interface
from oda_rl.agents.environments.validation import action_index
from oda_rl.envs.dynamics import compiled_dynamics

if TYPE_CHECKING:
    from oda_rl.agents.policies.alternatives import Alternative
    from oda_rl.agents.policies.explaining import Explanation

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Agent(ABC):
    """Base of the agents: they differ in how they learn, and in what their policy is made of."""

    env: AnyEnv | None
    config: FittedQConfig | TwoTimescaleConfig
    env_id: str | None
    interface: Interface
    episodes: EpisodeLog
    training_seconds: float

    _cells_act_alone: bool
    """Whether a state's action is that of its cell, rather than of several cells."""

    _core: Engine
    _acted = False
    _env_rng: np.random.Generator
    _env_seeded = False

    @property
    @abstractmethod
    def n_cells(self) -> int:
        """Number of cells (aggregate states)."""

    @property
    @abstractmethod
    def q_values(self) -> FloatArray:
        """Value of each action in each cell, shape (n_cells, n_actions)."""

    @property
    @abstractmethod
    def visits(self) -> FloatArray:
        """How often it has learned from each action in each cell, shape (n_cells, n_actions)."""

    @property
    @abstractmethod
    def codevectors(self) -> FloatArray:
        """Codevectors of the cells in the observation's units, shape (n_cells, d)."""

    @property
    @abstractmethod
    def metric_(self) -> FloatArray | None:
        """The metric of the partition in the observation's units, shape (d, d), if it has one."""

    @property
    @abstractmethod
    def scale_(self) -> FloatArray | None:
        """Inverse standard deviation of each component of the observation, shape (d,)."""

    @property
    @abstractmethod
    def solved_return(self) -> float | None:
        """Return from which an episode counts as solved, if that is known."""

    @abstractmethod
    def cell(self, observation: npt.ArrayLike) -> Any:
        """Return the cell of one observation (int), or those of a batch, shape (n,)."""

    @property
    @abstractmethod
    def temperature(self) -> float:
        """Temperature of the current level."""

    @property
    def num_timesteps(self) -> int:
        """Environment steps learned from, random play and restarts included."""
        return int(self._core.state.steps)

    @property
    def history(self) -> list[Level]:
        """The cells at the beginning of each temperature level, or after each fit."""
        return self._core.history

    @abstractmethod
    def predict(
        self,
        observation: npt.ArrayLike,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        """Return the greedy action for one observation, or the actions for a batch."""

    @abstractmethod
    def _evaluate_fused(
        self, env: gym.Env[Any, Any], n_episodes: int, seed: int | None
    ) -> FloatArray | None:
        """Return what :meth:`evaluate` does, or None if ``env`` has no compiled dynamics."""

    @abstractmethod
    def _action_values(self, points: FloatArray) -> FloatArray:
        """Values of all actions, shape (n, n_actions), of observations, shape (n, d)."""

    @abstractmethod
    def _at_codevectors(self) -> tuple[FloatArray, IntArray]:
        """Values of all actions at the codevectors, and the best of the actions, from 0."""

    @abstractmethod
    def _alternative(self, point: FloatArray, action: int) -> "Alternative":
        """Find the nearest state that does not do what ``point`` does, ``action`` (from 0)."""

    def act(self, observation: npt.ArrayLike) -> Any:
        """Choose an action, exploring as training asks for.

        Parameters
        ----------
        observation : array_like
            One observation, in the shape of the observation space.

        Returns
        -------
        int, or ndarray where the action space is a Box
            An action of the environment's action space.

        Raises
        ------
        ValueError
            If the observation has another shape or is not finite.
        """
        self._core.leave_lanes()
        action = self._core.act(self.interface.flatten("observation", observation))
        self._acted = True
        return self._performed(action)

    def update(
        self,
        observation: npt.ArrayLike,
        action: Any,
        reward: SupportsFloat,
        next_observation: npt.ArrayLike,
        terminated: bool,
        truncated: bool,
    ) -> None:
        """Learn from one step of the environment.

        A terminated episode has no value after its last step; a truncated one goes on being worth
        what its last observation promises.

        Parameters
        ----------
        observation, next_observation : array_like
            Before and after the step, in the shape of the observation space.
        action : int, or ndarray where the action space is a Box
            The action taken, usually what :meth:`act` returned.
        reward : float
            The reward received; finite.
        terminated, truncated : bool
            As ``env.step`` returned them.

        Raises
        ------
        RuntimeError
            If :meth:`act` has not been called since the last update.
        ValueError
            For a wrong shape, an unknown action, or values that are not finite. Nothing has been
            learned then.
        """
        if not self._acted:
            raise RuntimeError("update was called before act: call act(observation) first")
        index = self._number_of(action)
        self._core.leave_lanes()
        core = self._core
        events = core.update(
            self.interface.flatten("observation", observation),
            index,
            float(reward),
            self.interface.flatten("next_observation", next_observation),
            bool(terminated),
            bool(truncated),
            *core.arrays,
        )
        if events:
            core.attend(events, "observation, next_observation or reward")
        self._acted = False
        if events & EPISODE_END:
            self.episodes.append(last_episode(core, self.training_seconds))

    def learn(
        self,
        total_timesteps: int,
        callback: Callable[[Self], bool | None] | None = None,
        progress_bar: bool = False,
    ) -> Self:
        """Train for ``total_timesteps`` more environment steps.

        The environment is reset first, so an episode that an earlier call left unfinished stays
        so. BartoCartPole and Gymnasium's CartPole, as ``gymnasium.make`` returns them, are trained
        in one compiled loop; all others, step by step. The results are the same. In a vector
        environment training ends with a step of all its environments, so there may be a few more.

        Parameters
        ----------
        total_timesteps : int
            At least 1.
        callback : callable, optional
            Called with the agent after each episode; ends the training by returning False.
        progress_bar : bool
            Show a live line.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If ``total_timesteps`` is below 1, or the environment returns an observation of another
            shape, or one or a reward that is not finite.
        KeyboardInterrupt
            After Ctrl-C, between two steps: the agent is whole, and can be saved or trained on.
        """
        total = checked_count("total_timesteps", total_timesteps)
        env = self._require_env()
        started = time.perf_counter()
        before = self.training_seconds
        with deferred_interrupt() as interrupt, progress_line(total, progress_bar) as report:
            for steps, finished in self._train(env, total, callback is not None, interrupt):
                now = before + time.perf_counter() - started
                if len(finished):
                    share = finished[:, 2] / finished[-1, 2]
                    finished[:, 2] = self.training_seconds + share * (now - self.training_seconds)
                    self.episodes.append(finished)
                    self.training_seconds = now
                report(self, steps)
                if interrupt.requested:
                    raise KeyboardInterrupt
                if len(finished) and callback is not None and callback(self) is False:
                    break
        self.training_seconds = before + time.perf_counter() - started
        return self

    def evaluate(
        self,
        n_episodes: int = 100,
        env: gym.Env[Any, Any] | None = None,
        seed: int | None = None,
    ) -> FloatArray:
        """Play greedily and return the returns, shape (n_episodes,); nothing is learned.

        Parameters
        ----------
        n_episodes : int
            At least 1.
        env : gymnasium.Env, optional
            Where to play. By default a new environment is made as the agent's own was.
        seed : int, optional
            Of the environment's first reset.
        """
        count = checked_count("n_episodes", n_episodes)
        place = self._place(env)
        fused = self._evaluate_fused(place, count, seed)
        if fused is not None:
            return fused
        returns: list[float] = []
        total = 0.0
        for _, reward, done in play(place, self._greedy, seed):
            total += reward
            if done:
                returns.append(total)
                total = 0.0
                if len(returns) == count:
                    break
        return np.array(returns)

    def visited_states(
        self, n_steps: int, env: gym.Env[Any, Any] | None = None, seed: int | None = None
    ) -> FloatArray:
        """Play greedily for ``n_steps`` and return the observations, shape (n_steps, d).

        ``env`` and ``seed`` are as in :meth:`evaluate`.
        """
        count = checked_count("n_steps", n_steps)
        place = self._place(env)
        steps = islice(play(place, self._greedy, seed), count)
        return np.array([np.ravel(observation) for observation, _, _ in steps], dtype=np.float64)

    def explain(
        self,
        observation: npt.ArrayLike,
        names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
    ) -> "Explanation":
        """Say what the agent does in a state, why, and what would have it act otherwise.

        The smallest change of the state that changes the action is measured in standard deviations
        of the observation's components (``scale_``), Euclidean; components that never varied are
        not changed. It is exact for the online agent; the fitted one, which blends neighbouring
        cells, finds a state that acts otherwise and bounds the distance from below.

        Parameters
        ----------
        observation : array_like
            One observation, in the shape of the observation space.
        names : sequence of str, optional
            Names of all components of the observation; by default those of known environments.
        action_names : sequence of str, optional
            Names of the actions, likewise.

        Returns
        -------
        oda_rl.agents.Explanation
            ``print`` it.

        Raises
        ------
        ValueError
            If the observation has another shape or is not finite, there are not as many names as
            there should be, or the agent has learned nothing yet.

        Examples
        --------
        >>> from oda_rl.agents import TwoTimescaleAgent
        >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(20_000)
        >>> explanation = agent.explain([0.0, 0.0, 0.1, 0.0])
        >>> bool(agent.predict(explanation.nearest_other)[0] == explanation.action)
        False
        """
        from oda_rl.agents.policies.explaining import explain

        return explain(self, observation, names, action_names)

    def save(self, path: str | Path) -> None:
        """Save to a file (``*.zip``), or else to a run folder.

        A run folder also holds the configuration (``config.json``) and the log of training
        episodes (``monitor.csv``, as Stable-Baselines3 reads it). Files are replaced as a whole.
        """
        from oda_rl.agents.files import save

        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, env: str | AnyEnv | None = None) -> Self:
        """Load from a file or a run folder.

        Parameters
        ----------
        path : str or Path
            What :meth:`save` was given.
        env : str, gymnasium.Env or gymnasium.vector.VectorEnv, optional
            To train or evaluate in. By default the environment is made from its id when needed.

        Raises
        ------
        FileNotFoundError
            If there is nothing.
        ValueError
            If the file is damaged, or not an agent of this class, or ``env`` has other spaces.
        """
        from oda_rl.agents.files import load

        return load(cls, Path(path), env)

    @abstractmethod
    def _to_file(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return metadata and arrays from which :meth:`_from_file` makes the agent anew."""

    @classmethod
    @abstractmethod
    def _from_file(cls, metadata: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Self:
        """Make an agent without an environment from what :meth:`_to_file` returned."""

    def _train(self, env: AnyEnv, total: int, one_by_one: bool, interrupt: Interrupt) -> Progress:
        """Begin with a reset of the environment and train for ``total`` steps."""
        self._core.begin_episode()
        self._acted = False
        if isinstance(env, VectorEnv):
            return train_vector(self._core, env, self._reset_env(env), total, interrupt)
        self._core.leave_lanes()
        dynamics = compiled_dynamics(env)
        observation = self._reset_env(env)
        if dynamics is None:
            return train_stepwise(self._core, env, observation, total, interrupt)
        return train_fused(self._core, dynamics, observation, total, one_by_one)

    def _performed(self, number: int) -> Any:
        """Return the environment's action for the one that was chosen, from 0."""
        return self.interface.first_action + number

    def _number_of(self, action: Any) -> int:
        """Return the number, from 0, of an action of the environment, or raise ValueError."""
        return action_index(action, self.interface)

    def _greedy_numbers(self, observations: npt.ArrayLike) -> IntArray:
        """Greedy actions as numbers from 0, shape (n,), of a batch of observations."""
        return np.asarray(self.predict(observations)[0] - self.interface.first_action)

    def _interface_of(self, env: AnyEnv) -> Interface:
        """Read the spaces of an environment that :meth:`_adapted` returned."""
        return Interface.of(env)

    def _greedy(self, observation: Any) -> Any:
        return self.predict(observation)[0]

    def _reset_env(self, env: AnyEnv) -> Any:
        """Reset, with a seed the first time, and return the observation."""
        seed = None if self._env_seeded else int(self._env_rng.integers(2**31))
        self._env_seeded = True
        return env.reset(seed=seed)[0]

    def _require_env(self) -> AnyEnv:
        if self.env is None:
            if self.env_id is None:
                raise ValueError("env is None: load the agent with load(path, env=...)")
            self.env = self._adapted(self.env_id)
        return self.env

    def _adapted(self, env: str | AnyEnv) -> AnyEnv:
        """Return an environment, or one with that id, with spaces that the agent works with."""
        if isinstance(env, VectorEnv):
            return adapted_vector(env, self.config.action_bins)
        made = make_env(env) if isinstance(env, str) else env
        return adapted(made, self.config.action_bins)

    def _place(self, env: gym.Env[Any, Any] | None) -> gym.Env[Any, Any]:
        """Return an environment to play in: the given one, or one like the agent's own."""
        made = separate_env(self._require_env()) if env is None else env
        if isinstance(made, VectorEnv):
            raise TypeError(
                f"env is {made}: it must be one environment; stable_baselines3's evaluate_policy "
                "plays in several"
            )
        place = self._adapted(made)
        assert isinstance(place, gym.Env)
        return place


def spawn_rngs(seed: int | None, names: Sequence[str]) -> dict[str, np.random.Generator]:
    """Independent generators from one seed; raise ValueError if it is not one."""
    if seed is not None and (int(seed) != seed or seed < 0):
        raise ValueError(f"seed is {seed!r}: it must be an integer of at least 0, or None")
    children = np.random.SeedSequence(seed).spawn(len(names))
    return {name: np.random.default_rng(child) for name, child in zip(names, children, strict=True)}


def checked_count(name: str, value: int) -> int:
    """Return ``value`` as an int; raise ValueError unless it is an integer of at least 1."""
    if int(value) != value or value < 1:
        raise ValueError(f"{name} is {value!r}: it must be an integer of at least 1")
    return int(value)
