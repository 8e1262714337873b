"""What all agents share: training with progress, explanations, files."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self, SupportsFloat

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from oda_rl._schema import Member, check_fields, generator_state, header, number, require
from oda_rl._threads import one_thread
from oda_rl._types import FloatArray
from oda_rl.agents.base import files
from oda_rl.agents.base.actors import Actors, Crew, Head
from oda_rl.agents.base.by_actors import train_by_actors
from oda_rl.agents.base.checkpoints import Checkpoints
from oda_rl.agents.base.course import Course, Snapshot
from oda_rl.agents.base.engine import Engine
from oda_rl.agents.base.episodes import EpisodeLog
from oda_rl.agents.base.history import Level
from oda_rl.agents.base.interrupts import deferred_interrupt
from oda_rl.agents.base.lanes import VectorStep
from oda_rl.agents.base.loops import (
    Progress,
    add_to_returns,
    last_episode,
    steps_taken,
    train_fused,
    train_stepwise,
    update,
)
from oda_rl.agents.base.player import Player, checked_count
from oda_rl.agents.base.summary import as_html, as_text, in_a_line
from oda_rl.agents.base.training import progress_line
from oda_rl.agents.base.vector import first_step, train_vector
from oda_rl.agents.environments.making import given_env, reward_threshold, spec_of
from oda_rl.agents.environments.spaces import AnyEnv, Described, Interface, Spaces, described
from oda_rl.agents.environments.validation import action_index, checked_reward
from oda_rl.agents.policies.contract import Extent
from oda_rl.agents.policies.explaining import Explanation, explain
from oda_rl.envs.dynamics import compiled_dynamics

_METADATA = ("config", "env_id", "env_rng", "env_spec", "format", "interface", "kind", "partition",
             "rngs", "sb3", "training", "training_seconds", "versions")  # fmt: skip

_LOG_BYTES, _SURPLUS_BYTES = 2, 1 << 20  # of episodes, for each step; of all that does not grow


class Agent(Player):
    """Base of the agents: they differ in how they learn, and in what their policy is made of.

    An agent of one's own names its settings and its sources of randomness, makes its engine, and
    says what the policy is, what was learned from, and where.
    """

    episodes: EpisodeLog
    training_seconds: float
    """Seconds of learning, without those in which numba compiled."""
    solved_return: float | None
    """The reward threshold of the environment, for figures; None if it has none."""

    _config_class: ClassVar[type[Any]]
    """Its settings, with defaults: a frozen dataclass (:class:`Checked`)."""
    _streams: ClassVar[tuple[str, ...]] = ("explore", "env", "predict")
    """Names of its generators in ``_rngs``; those of ``env`` and ``predict`` are needed."""
    _sized_by: ClassVar[dict[str, Member]] = {}
    """Members of a file that show how large arrays become."""
    _more_metadata: ClassVar[tuple[str, ...]] = ("solved_return",)
    """Of its class."""
    _engine: Engine
    _acted = False  # since the last update
    _seed: int | None = None
    _paused: Snapshot | None = None
    """The training that a checkpoint is of, until another is begun."""
    _paused_at = 0  # of its steps
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
        self._seed = None if seed is None else int(seed)
        self.interface, self.config = interface, config
        self.episodes = EpisodeLog()
        self.training_seconds = 0.0
        self._engine = self._make_engine()

    def _enter(self, env: str | AnyEnv) -> AnyEnv:
        """Take an environment, or one with that id, for the agent's own, and return it."""
        made = given_env(env)
        self._attach(made)
        spec = spec_of(made)
        self.env_id = None if spec is None else spec.id
        self._env_module = env.rpartition(":")[0] or None if isinstance(env, str) else None
        return made

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

    @property
    def recent(self) -> FloatArray:
        """Latest observations of training, shape (n, d), as far as they are remembered."""
        return np.empty((0, self.interface.n_features))

    @property
    def versions(self) -> dict[str, str]:
        """With which oda_rl, Python and libraries it was saved; if it never was, those of now.

        The same seed gives the same bits with the same versions, on the same machine.
        """
        return dict(self._versions or files.present_versions())

    def _about(self) -> dict[str, Any]:
        """Return what :meth:`_rebuild` has to know beside interface and settings."""
        return {"partition": None, "solved_return": self.solved_return}

    def _parts(self) -> tuple[Any, ...] | None:
        """Return what :meth:`_rebuild` has to be given beside a file, for another agent.

        None if there can be no other one.
        """
        return ()

    def _rebuild(self, metadata: dict[str, Any], *parts: Any) -> None:
        """Do what the constructor does, without an environment, from what a file says."""
        interface = Interface.from_json(metadata["interface"])
        config = self._config_class(**metadata["config"])
        check_fields(config)
        self._build(interface, config, None)
        self._note_threshold(metadata)

    def _note_threshold(self, metadata: dict[str, Any]) -> None:
        """Take over the reward threshold that a file tells."""
        told = metadata["solved_return"]
        self.solved_return = None if told is None else number(told, "solved_return", "[-inf, inf]")

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

    def most_bytes(self, steps: int) -> int:
        """Return about how many bytes its file may have, at most, after so many more steps."""
        metadata, arrays = self._to_file()
        known = len(str(metadata)) + sum(array.nbytes for array in arrays.values())
        return _SURPLUS_BYTES + known + steps * (_LOG_BYTES + self._engine.bytes_per_step)

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

        Raises
        ------
        TypeError
            If the agent chooses continuous actions, which it does in one environment only.
        """
        if self.interface.box is not None:
            raise TypeError(
                f"{type(self).__name__} chooses continuous actions: it must be one environment; "
                "act and update learn in it, and FittedQAgent offers a grid of actions in several"
            )
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

    def _performed(self, number: int) -> Any:
        """Return the environment's action for the one that was chosen, from 0."""
        if self.interface.native is not None:
            return self.interface.native.actions(np.array([number]))[0]
        return self.interface.first_action + number

    def _number_of(self, action: Any) -> int:
        """Return the number, from 0, of an action of the environment, or raise ValueError."""
        return action_index(action, self.interface)

    @one_thread()
    def learn(
        self,
        total_timesteps: int,
        callback: Callable[[Self], bool | None] | None = None,
        progress_bar: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_every: int | None = None,
        actors: Actors | None = None,
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
            Called with the agent after each episode; ends the training by returning False. What it
            changes of the environment's constants, or of its state, counts from then on.
        progress_bar : bool
            Show a live line.
        checkpoint : str or Path, optional
            File, ``*.zip``, that the agent and where its training is are written to, at the
            beginning, every ``checkpoint_every`` steps, after Ctrl-C, and at the end. If the
            process is killed, :meth:`resume` goes on from there.
        checkpoint_every : int, optional
            At least 1; given together with ``checkpoint``.
        actors : Actors, optional
            Who plays, for environments that are slow: the agent learns from their episodes, and its
            own environment is not stepped. Of fitted agents only.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If ``callback`` cannot be called, or ``actors`` is something else.
        ValueError
            If ``total_timesteps`` is below 1, one of ``checkpoint`` and ``checkpoint_every`` is
            missing, or the environment returns an observation of another shape, or one or a reward
            that is not finite; or if there can be no actors: the agent is another, or its
            environment cannot be made anew.
        OSError
            If a checkpoint cannot be written, or another training writes to the same file; if no
            scheduler answers, or one episode ends every process that begins it.
        ImportError
            If there are to be actors, and Dask is not installed, or one of them cannot import the
            environment.
        KeyboardInterrupt
            After Ctrl-C, SIGTERM or SIGHUP, between two steps: the agent is whole, and can be saved
            or trained on. A second Ctrl-C raises at once.
        """
        total = checked_count("total_timesteps", total_timesteps)
        return self._go(Course(total), callback, progress_bar, checkpoint, checkpoint_every, actors)

    @one_thread()
    def resume(
        self,
        callback: Callable[[Self], bool | None] | None = None,
        progress_bar: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_every: int | None = None,
        actors: Actors | None = None,
    ) -> Self:
        """Go on with the training that a checkpoint is of, to the steps that it was to have.

        In one environment with compiled dynamics, whether compiled code takes the steps or not, the
        agent ends with the same bits as if nothing had happened. Others, and vector environments,
        go on from a reset, and actors with new episodes: what is left of the running ones is lost.

        Parameters
        ----------
        callback, progress_bar, checkpoint, checkpoint_every, actors
            As in :meth:`learn`; checkpoints are as many steps apart as they were, by default.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the agent has not been loaded from a checkpoint, or has done something else since;
            and as in :meth:`learn`.
        OSError, TypeError, KeyboardInterrupt, ImportError
            As in :meth:`learn`.

        Examples
        --------
        >>> import tempfile
        >>> from oda_rl.agents import TwoTimescaleAgent
        >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = f"{folder}/checkpoint.zip"
        ...     agent = agent.learn(2_000, checkpoint=file, checkpoint_every=500)
        ...     TwoTimescaleAgent.load(file).resume().num_timesteps  # nothing was left to do
        2000
        """
        paused = self._paused
        if paused is None or self._acted or self.num_timesteps != self._paused_at:
            raise ValueError(
                "there is no training to resume: load the file that learn(checkpoint=...) wrote, "
                "and resume before anything else"
            )
        if checkpoint is not None and checkpoint_every is None:
            checkpoint_every = paused.every
        course = Course(paused.total, steps=paused.steps, part=paused.part)
        env = self._require_env()
        if isinstance(env, gym.Env) and actors is None and not course.over:
            observation = paused.enter(env)
            if observation is not None:
                self._take_up_randomness(env, reset=False)
                course.observation, course.chosen, course.resumed = observation, paused.chosen, True
        return self._go(course, callback, progress_bar, checkpoint, checkpoint_every, actors)

    def _go(
        self,
        course: Course,
        callback: Callable[[Self], bool | None] | None,
        progress_bar: bool,
        checkpoint: str | Path | None,
        checkpoint_every: int | None,
        actors: Actors | None,
    ) -> Self:
        """Train as far as the course goes."""
        if not isinstance(actors, Actors | None):
            raise TypeError(f"actors is {actors!r}: it must be Actors, or None")
        head = None if actors is None else self._head(actors)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback is {callback!r}: it must be callable, or None")
        checkpoints = Checkpoints.of(checkpoint, checkpoint_every)
        course.keep(None if checkpoints is None else checkpoints.every)
        self._paused = None
        if course.over:
            return self
        if actors is None or head is None:
            self._train_with_log(course, callback, progress_bar, checkpoints)
            return self
        with actors.at_work(head.modules) as client:
            course.crew = Crew(head, actors, client)
            self._train_with_log(course, callback, progress_bar, checkpoints)
        return self

    def _train_with_log(
        self,
        course: Course,
        callback: Callable[[Self], bool | None] | None,
        progress_bar: bool,
        checkpoints: Checkpoints | None,
    ) -> None:
        """Train until the course is over, a callback ends it, or Ctrl-C has been pressed."""
        env = self._require_env()
        before = self.training_seconds
        course.one_by_one = callback is not None
        kept: Any = nullcontext() if checkpoints is None else checkpoints.kept()
        line = progress_line(course.total, progress_bar, course.steps)
        with deferred_interrupt() as course.interrupt, kept, line as (report, watch):

            def save() -> None:
                if checkpoints is not None:
                    self.training_seconds = before + watch.seconds
                    with watch.stopped():
                        checkpoints.write(self, course, self._seed)

            training = self._train(env, course)
            if not course.resumed:
                save()  # if that cannot be, nobody has to wait to be told
            for steps, finished in training:
                now = before + watch.seconds
                if len(finished):
                    share = finished[:, 2] / finished[-1, 2]
                    finished[:, 2] = self.training_seconds + share * (now - self.training_seconds)
                    self.episodes.append(finished)
                    self.training_seconds = now
                report(self, steps)
                if course.interrupt.requested and not course.over:
                    if course.can_stop:
                        save()
                    raise KeyboardInterrupt
                if course.due and not course.over:
                    save()
                if len(finished) and callback is not None and callback(self) is False:
                    course.total = course.steps
                    break
            self.training_seconds = before + watch.seconds
            course.at(course.total, course.observation)
            save()
            if course.interrupt.requested:
                raise KeyboardInterrupt

    def _head(self, actors: Actors) -> Head:
        """Return who learns from what actors play; raise ValueError if there can be none."""
        raise ValueError(
            f"workers is {actors.workers}: {type(self).__name__} plays itself; FittedQAgent and "
            "CodevectorAgent learn from episodes that others play"
        )

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
        episodes (``monitor.csv``, as Stable-Baselines3 reads it). Files are replaced as a whole;
        figures and exported policies that the folder has of the agent before are removed.
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

    def _train(self, env: AnyEnv, course: Course) -> Progress:
        """Begin with a reset of the environment, or go on where it is, and train."""
        if not course.resumed:
            self.begin_episode()
        if course.crew is not None:
            return train_by_actors(course.crew, course)
        if isinstance(env, VectorEnv):
            course.observation = self._reset_env(env)
            return train_vector(self._engine, env, course)
        dynamics = compiled_dynamics(env)
        if not course.resumed:
            self._engine.leave_lanes()
            course.observation, course.chosen = self._reset_env(env), False
        if dynamics is None or not self.fuses:
            return train_stepwise(self._engine, env, course)
        return train_fused(self._engine, env, dynamics, course)


def spawn_rngs(seed: int | None, names: Sequence[str]) -> dict[str, np.random.Generator]:
    """Independent generators from one seed; raise ValueError if it is not one."""
    if seed is not None and (int(seed) != seed or seed < 0):
        raise ValueError(f"seed is {seed!r}: it must be an integer of at least 0, or None")
    children = np.random.SeedSequence(seed).spawn(len(names))
    return {name: np.random.default_rng(child) for name, child in zip(names, children, strict=True)}
