"""What all agents share: training with progress, explanations, files."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, SupportsFloat

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from oda_rl._schema import Member, check_fields, generator_state, header, number, require
from oda_rl._threads import one_thread
from oda_rl._types import FloatArray
from oda_rl.agents.engine import files
from oda_rl.agents.engine.engine import Engine
from oda_rl.agents.engine.episodes import EpisodeLog
from oda_rl.agents.engine.history import Level
from oda_rl.agents.engine.lanes import VectorStep
from oda_rl.agents.engine.loops import (
    Progress,
    add_to_returns,
    last_episode,
    steps_taken,
    train_fused,
    train_stepwise,
    update,
)
from oda_rl.agents.engine.player import Player, checked_count
from oda_rl.agents.engine.summary import as_html, as_text, in_a_line
from oda_rl.agents.engine.training import Interrupt, deferred_interrupt, progress_line
from oda_rl.agents.engine.vector import first_step, train_vector
from oda_rl.agents.environments.making import given_env, reward_threshold, spec_of
from oda_rl.agents.environments.spaces import AnyEnv, Described, Interface, Spaces, described
from oda_rl.agents.environments.validation import action_index, checked_reward
from oda_rl.agents.policies.contract import Extent
from oda_rl.agents.policies.explaining import Explanation, explain
from oda_rl.envs.dynamics import compiled_dynamics

_METADATA = ("config", "env_id", "env_spec", "format", "interface", "kind", "partition", "rngs",
             "sb3", "training_seconds", "versions")  # fmt: skip


class Agent(Player):
    """Base of the agents: they differ in how they learn, and in what their policy is made of.

    An agent of one's own names its settings and its sources of randomness, makes its engine, and
    says what the policy is, what was learned from, and where.
    """

    episodes: EpisodeLog
    training_seconds: float
    """Seconds of learning, without those in which numba compiled."""
    solved_return: float | None
    """Return from which an episode counts as solved; None if nobody said."""

    _engine: Engine
    _config_class: ClassVar[type[Any]]
    """Its settings, with defaults: a frozen dataclass (:class:`Checked`)."""
    _streams: ClassVar[tuple[str, ...]] = ("explore", "env", "predict")
    """Names of its generators in ``_rngs``; those of ``env`` and ``predict`` are needed."""
    _sized_by: ClassVar[dict[str, Member]] = {}
    """Members of a file that show how large arrays become."""
    _more_metadata: ClassVar[tuple[str, ...]] = ("solved_return",)
    """Of its class."""
    _acted = False
    _versions: dict[str, str] | None = None  # that a file tells

    def __init__(
        self, env: str | AnyEnv | Spaces, *, seed: int | None = None, **config: Any
    ) -> None:
        self.config = self._config_class(**config)
        made = self._enter(described(env))
        self._build(self._interface(), self.config, seed)
        self.solved_return = reward_threshold(made)
        if made is not env and isinstance(made, Described):
            self.env = None  # there are only its spaces

    def __repr__(self) -> str:
        return in_a_line(self)

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    @abstractmethod
    def _make_engine(self) -> Engine:
        """Make the engine, by ``interface``, ``config`` and ``_rngs``."""

    def _build(self, interface: Interface, config: Any, seed: int | None) -> None:
        """Make an agent that has learned nothing, without an environment."""
        self._rngs = spawn_rngs(seed, self._streams)
        self.interface, self.config = interface, config
        self.episodes = EpisodeLog()
        self.training_seconds = 0.0
        self._engine = self._make_engine()

    def _enter(self, env: str | AnyEnv) -> AnyEnv:
        """Take an environment, or one with that id, for the agent's own, and return it."""
        self.env = made = given_env(env)
        spec = spec_of(made)
        self.env_id = None if spec is None else spec.id
        self._env_module = env.rpartition(":")[0] or None if isinstance(env, str) else None
        return made

    @property
    def versions(self) -> dict[str, str]:
        """With which oda_rl, Python and libraries it was saved; if it never was, those of now.

        The same seed gives the same bits with the same versions, on the same machine.
        """
        return dict(self._versions or files.present_versions())

    @property
    @abstractmethod
    def visits(self) -> FloatArray:
        """How often it has learned from each action in each cell, shape (n_cells, n_actions)."""

    @property
    def metric_(self) -> FloatArray | None:
        """The metric of the partition in the observation's units, shape (d, d), if it has one."""
        return None

    @property
    @abstractmethod
    def extent(self) -> Extent:
        """Where the observations of training were, as far as they are remembered."""

    def _about(self) -> dict[str, Any]:
        """Return what :meth:`_rebuild` has to know beside interface and settings."""
        return {"partition": None, "solved_return": self.solved_return}

    def _rebuild(self, metadata: dict[str, Any], *parts: Any) -> None:
        """Do what the constructor does, without an environment, from what a file says."""
        interface = Interface.from_json(metadata["interface"])
        config = self._config_class(**metadata["config"])
        check_fields(config)
        self._build(interface, config, None)
        solved = metadata["solved_return"]
        self.solved_return = (
            None if solved is None else number(solved, "solved_return", "[-inf, inf]")
        )

    def _settings(self) -> dict[str, Any]:
        """Return all settings, as files have them."""
        return dict(vars(self.config))

    @property
    def scale_(self) -> FloatArray | None:
        """Inverse standard deviation of each component in what is remembered; 0 if constant."""
        return self._engine.scale

    @property
    def temperature(self) -> float:
        """Temperature of the current level; NaN where annealing begins and ends within a fit."""
        return float("nan")

    @property
    def num_timesteps(self) -> int:
        """Environment steps learned from, random play and restarts included."""
        return steps_taken(self._engine)

    @property
    def history(self) -> list[Level]:
        """The cells at the beginning of each temperature level, or after each fit."""
        return self._engine.history

    @property
    def epsilon(self) -> float:
        """Present probability of a random action, or random decision, in training."""
        return self._engine.epsilon

    @property
    def fuses(self) -> bool:
        """Whether it trains in one compiled loop with an environment that has compiled dynamics."""
        return self._engine.fuses

    @property
    def n_lanes(self) -> int:
        """Number of environments learned from at once; at most 1 along one trajectory."""
        return self._engine.n_lanes

    def act(self, observation: Any) -> Any:
        """Choose an action, exploring as training asks for.

        Parameters
        ----------
        observation
            One observation of the environment's observation space.

        Returns
        -------
        int, or ndarray where the action space is not Discrete
            An action of the environment's action space.

        Raises
        ------
        ValueError
            If the observation is not of the space, or not finite.
        """
        self._engine.leave_lanes()
        action = self._engine.act(self.interface.point("observation", observation))
        self._acted = True
        return self._performed(action)

    def update(
        self,
        observation: Any,
        action: Any,
        reward: SupportsFloat,
        next_observation: Any,
        terminated: bool,
        truncated: bool,
    ) -> None:
        """Learn from one step of the environment.

        A terminated episode has no value after its last step; a truncated one goes on being worth
        what its last observation promises.

        Parameters
        ----------
        observation, next_observation
            Before and after the step, of the environment's observation space.
        action : int, or ndarray where the action space is not Discrete
            The action taken, usually what :meth:`act` returned; where a grid of actions is offered,
            one of these.
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
        self._engine.leave_lanes()
        ended = update(
            self._engine,
            self.interface.point("observation", observation),
            index,
            reward if type(reward) is float else checked_reward(reward),
            self.interface.point("next_observation", next_observation),
            bool(terminated),
            bool(truncated),
        )
        self._acted = False
        if ended:
            self.episodes.append(last_episode(self._engine, self.training_seconds))

    def begin_episode(self) -> None:
        """Forget episodes that were not finished; what was learned in them stays."""
        self._engine.begin_episode()
        self._acted = False

    def begin_in_all(self, observations: Any) -> npt.NDArray[Any]:
        """Begin episodes in several environments, and choose an action for each.

        Parameters
        ----------
        observations
            A batch, as :meth:`predict` takes it.
        """
        step = first_step(observations, self.interface)
        self._engine.set_lanes(len(step.after))
        return self.advance(step)

    def advance(self, step: VectorStep) -> npt.NDArray[Any]:
        """Learn from a step of several environments, and choose the next action for each."""
        actions, ended = self._engine.advance(step)
        if len(ended):
            moments = np.full((len(ended), 1), self.training_seconds)
            self.episodes.append(np.concatenate([ended, moments], axis=1))
        return self.interface.performed(actions)

    def add_to_returns(self, gains: FloatArray) -> None:
        """Add to the returns of running episodes, one each, what rewards to come leave out."""
        add_to_returns(self._engine, gains)

    @one_thread()
    def learn(
        self,
        total_timesteps: int,
        callback: Callable[[Self], bool | None] | None = None,
        progress_bar: bool = False,
    ) -> Self:
        """Train for ``total_timesteps`` more environment steps.

        The environment is reset first, so an episode that an earlier call left unfinished stays
        so. BartoCartPole, Gymnasium's CartPole, MountainCar, Pendulum and Acrobot, as
        ``gymnasium.make`` returns them, and whatever offers its dynamics
        (:class:`oda_rl.envs.CompiledEnv`) are trained in one compiled loop; all others, step by
        step. The results are the same. In a vector environment training ends with a step of all
        its environments, so there may be a few more.

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
        TypeError
            If ``callback`` cannot be called.
        ValueError
            If ``total_timesteps`` is below 1, or the environment returns an observation of another
            shape, or one or a reward that is not finite.
        KeyboardInterrupt
            After Ctrl-C, between two steps: the agent is whole, and can be saved or trained on.
        """
        total = checked_count("total_timesteps", total_timesteps)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback is {callback!r}: it must be callable, or None")
        env = self._require_env()
        before = self.training_seconds
        with deferred_interrupt() as interrupt, progress_line(total, progress_bar) as line:
            report, watch = line
            for steps, finished in self._train(env, total, callback is not None, interrupt):
                now = before + watch.seconds
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
            self.training_seconds = before + watch.seconds
        return self

    @one_thread()
    def explain(
        self,
        observation: Any,
        names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
    ) -> Explanation:
        """Say what the agent does in a state, why, and what would have it act otherwise.

        The smallest change of the state that changes the action is measured in standard deviations
        of the observation's components (``scale_``), Euclidean; components that never varied are
        not changed. It is exact for the online agent; the fitted one, which blends neighbouring
        cells, finds a state that acts otherwise and bounds the distance from below. Where actions
        are continuous, to act otherwise is to act by another action codevector.

        Parameters
        ----------
        observation
            One observation of the environment's observation space.
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
            If the observation is not of the space or not finite, there are not as many names as
            there should be, or the agent has learned nothing yet.

        Examples
        --------
        >>> from oda_rl.agents import TwoTimescaleAgent
        >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(20_000)
        >>> explanation = agent.explain([0.0, 0.0, 0.1, 0.0])
        >>> bool(agent.predict(explanation.nearest_other)[0] == explanation.action)
        False
        """
        return explain(self, observation, names, action_names)

    def save(self, path: str | Path) -> None:
        """Save to a file (``*.zip``), or else to a run folder.

        A run folder also holds the configuration (``config.json``) and the log of training
        episodes (``monitor.csv``, as Stable-Baselines3 reads it). Files are replaced as a whole.
        """
        files.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, env: str | AnyEnv | None = None) -> Self:
        """Load from a file or a run folder.

        Parameters
        ----------
        path : str or Path
            What :meth:`save` was given.
        env : str, gymnasium.Env or gymnasium.vector.VectorEnv, optional
            To train or evaluate in. By default it is made anew when needed, as the file says: with
            the arguments, the limit of steps, the wrappers and their running statistics that it
            had. What no file can hold, such as a function in a wrapper, is refused then.

        Raises
        ------
        FileNotFoundError
            If there is nothing.
        ValueError
            If the file is damaged, or not an agent of this class, or ``env`` has other spaces.
        """
        return files.load(cls, Path(path), env)

    def _to_file(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return metadata and arrays from which :meth:`_from_file` makes the agent anew."""
        metadata = {
            **self._about(),
            "config": self._settings(),
            "rngs": {name: rng.bit_generator.state for name, rng in self._rngs.items()},
        }
        return metadata, self._engine.state_arrays()

    @classmethod
    def _from_file(
        cls, metadata: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]], *parts: Any
    ) -> Self:
        """Make an agent without an environment from what :meth:`_to_file` returned."""
        known = {*_METADATA, *cls._more_metadata}
        unknown = sorted(metadata.keys() - known)
        require(not unknown, f"{unknown[:1]} is in its metadata, which may hold {sorted(known)}")
        interface = Interface.from_json(metadata["interface"])
        sizes = {"d": interface.n_features, "A": interface.n_actions, "p": interface.n_components}
        for name, member in cls._sized_by.items():  # before arrays are made by these sizes
            fault = member.fits(*header(arrays, name), sizes)
            require(fault is None, f"{name} {fault}")
        agent = cls.__new__(cls)
        agent._rebuild(metadata, *parts)
        agent._engine.restore(arrays)
        states = metadata["rngs"]
        require(states.keys() == agent._rngs.keys(), f"rngs must be {sorted(agent._rngs)}")
        for name, rng in agent._rngs.items():
            rng.bit_generator.state = generator_state(states[name], f"rngs.{name}")
        return agent

    def _train(self, env: AnyEnv, total: int, one_by_one: bool, interrupt: Interrupt) -> Progress:
        """Begin with a reset of the environment and train for ``total`` steps."""
        self.begin_episode()
        if isinstance(env, VectorEnv):
            return train_vector(self._engine, env, self._reset_env(env), total, interrupt)
        self._engine.leave_lanes()
        dynamics = compiled_dynamics(env)
        observation = self._reset_env(env)
        if dynamics is None or not self.fuses:
            return train_stepwise(self._engine, env, observation, total, interrupt)
        return train_fused(self._engine, dynamics, observation, total, one_by_one)

    def _performed(self, number: int) -> Any:
        """Return the environment's action for the one that was chosen, from 0."""
        if self.interface.native is not None:
            return self.interface.native.actions(np.array([number]))[0]
        return self.interface.first_action + number

    def _number_of(self, action: Any) -> int:
        """Return the number, from 0, of an action of the environment, or raise ValueError."""
        return action_index(action, self.interface)


def spawn_rngs(seed: int | None, names: Sequence[str]) -> dict[str, np.random.Generator]:
    """Independent generators from one seed; raise ValueError if it is not one."""
    if seed is not None and (int(seed) != seed or seed < 0):
        raise ValueError(f"seed is {seed!r}: it must be an integer of at least 0, or None")
    children = np.random.SeedSequence(seed).spawn(len(names))
    return {name: np.random.default_rng(child) for name, child in zip(names, children, strict=True)}
