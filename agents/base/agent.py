"""What all agents share: settings, training with progress, answers, explanations, files."""

import copy
import html
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self, SupportsFloat

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray
from oda_rl.agents.base import files
from oda_rl.agents.base.actors import Actors, train_by_actors
from oda_rl.agents.base.compiled_loop import play_compiled
from oda_rl.agents.base.engine import Engine, VectorStep
from oda_rl.agents.base.history import EpisodeLog, Level
from oda_rl.agents.base.loops import (
    Progress,
    first_step,
    last_episode,
    play,
    train_compiled,
    train_stepwise,
    train_vector,
)
from oda_rl.agents.base.progress import deferred_interrupt, episodes_line, progress_line
from oda_rl.agents.base.settings import Settings, checked_count
from oda_rl.agents.base.state import EPISODE_END
from oda_rl.agents.base.training_run import Snapshot, TrainingRun
from oda_rl.agents.environments.adaptation import adapted, adapted_vector
from oda_rl.agents.environments.making import (
    generator_of,
    given_env,
    make_env,
    reward_threshold,
    set_generator,
    spec_of,
)
from oda_rl.agents.environments.origins import Origin, origin_of, separate_env
from oda_rl.agents.environments.spaces import (
    AnyEnv,
    Described,
    Interface,
    Spaces,
    described,
    spaces_of,
)
from oda_rl.agents.environments.validation import (
    action_index,
    checked_batch,
    checked_points,
    checked_reward,
)
from oda_rl.agents.policies.contract import Extent, Policy
from oda_rl.agents.policies.explaining import Explanation, explain
from oda_rl.envs.dynamics import compiled_dynamics
from oda_rl.files.schema import Member, check_fields, generator_state, number, require

_METADATA = {"config", "env_id", "env_rng", "env_spec", "format", "interface", "kind", "partition",
             "rngs", "sb3", "training", "training_seconds", "versions"}  # fmt: skip

_LOG_BYTES, _SURPLUS_BYTES = 2, 1 << 20  # of episodes, for each step; of all that does not grow


class Player(ABC):
    """Base of all that plays by a policy."""

    config: Settings
    env_id: str | None
    named_by_file: bool = False
    """Whether a file says what its environment is, so that no module is imported for that."""
    interface: Interface

    _max_features = 1024  # beyond, steps cost more than in proportion
    _rngs: dict[str, np.random.Generator]
    _env_seeded = False
    _env_rng: dict[str, Any] | None = None  # of the environment that a file is about
    _env: AnyEnv | None = None
    _origin: Origin | None = None  # of an environment that there is not yet, or not at hand
    _env_module: str | None = None  # imported for the id
    _inside: AnyEnv | None = None  # the same with spaces that engines work with

    @property
    def env(self) -> AnyEnv | None:
        """Where it learns: as it was given, or made from an id; None if there is none yet.

        Setting one with other spaces than it was trained with raises ValueError.
        """
        return self._env

    @env.setter
    def env(self, env: AnyEnv | None) -> None:
        if env is not None:
            self._check_spaces(env)
        self._attach(env)

    def _attach(self, env: AnyEnv | None) -> None:
        self._env, self._inside = env, None if env is None else self._adapted(env)

    def _check_spaces(self, env: AnyEnv) -> None:
        """Raise ValueError if an environment has other spaces than the agent was trained with."""
        found = self._interface_of(self._adapted(env)).of_user(env, self._bins)
        if found != self.interface:
            raise ValueError(f"env has {found}: the agent was trained with {self.interface}")

    @property
    def origin(self) -> Origin | None:
        """What its environment is made of, as of now; None if all that is known is its id."""
        return self._origin if self._env is None else origin_of(self._env, self._env_module)

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """What the agent delivers: it decides, and knows of nothing else."""

    @property
    def n_cells(self) -> int:
        """Number of cells (aggregate states) of the policy."""
        return self.policy.n_cells

    @property
    def q_values(self) -> FloatArray:
        """Value of each action at each codevector, shape (n_cells, n_actions)."""
        return self.policy.q_values

    @property
    def codevectors(self) -> FloatArray:
        """Codevectors of the cells in the observation's units, shape (n_cells, d)."""
        return self.policy.codevectors

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """Present probability of a random action, or random decision, in training."""

    @one_thread()
    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        """Return the policy's action for one observation, or the actions for a batch.

        The signature is that of Stable-Baselines3, whose ``evaluate_policy`` takes this agent.

        Parameters
        ----------
        observation
            One observation of the environment's space, or a batch with one more leading dimension
            (of each part of a Dict or Tuple). Vectors, as ``codevectors`` are, may stand for
            composite ones: the parts of a Dict follow one another by sorted keys.
        state, episode_start
            Ignored; ``state`` is returned.
        deterministic : bool
            False explores as training does at present, but repeats no action.

        Returns
        -------
        action
            Of the environment's action space: numpy.int64, or ndarray; of a batch, shape (n, ...).
        state

        Raises
        ------
        ValueError
            If the observation is not of the space, or not finite.
        """
        points = checked_batch(observation, self.interface)
        acts = self.policy.act(points)
        if not deterministic:
            explore = self._rngs["predict"].random(len(acts)) < self.epsilon
            acts = np.where(explore.reshape(-1, *[1] * (acts.ndim - 1)), self._random(acts), acts)
        actions = self.interface.performed(acts)
        return (actions[0] if self.interface.is_one(observation) else actions), state

    @one_thread()
    def cell(self, observation: Any) -> Any:
        """Return the (nearest) cell of one observation (int), or those of a batch, shape (n,).

        Raises
        ------
        ValueError
            If the observation is not of the space, or not finite.
        """
        cells = self.policy.cells(checked_batch(observation, self.interface))
        return int(cells[0]) if self.interface.is_one(observation) else cells

    @one_thread()
    def evaluate(
        self,
        n_eval_episodes: int = 100,
        env: gym.Env[Any, Any] | None = None,
        seed: int | None = None,
        progress_bar: bool = False,
    ) -> FloatArray:
        """Play greedily and return the returns, shape (n_eval_episodes,); nothing is learned.

        Parameters
        ----------
        n_eval_episodes : int
            At least 1.
        env : gymnasium.Env, optional
            Where to play. By default a new environment is made as the agent's own was, with the
            running statistics that wrappers have by now, and closed afterwards.
        seed : int, optional
            Of the environment's first reset.
        progress_bar : bool
            Show a live line, where episodes are not compiled.

        Raises
        ------
        ValueError
            If ``env`` has other spaces than the agent was trained with, or is not given and no
            other environment can be made.
        """
        count = checked_count("n_eval_episodes", n_eval_episodes)
        with self._place(env) as place, episodes_line(count, progress_bar) as report:
            compiled, policy = compiled_dynamics(place), self.policy.in_loops
            if compiled is not None and compiled.time_limit is not None and policy is not None:
                return play_compiled(compiled, policy, place.reset(seed=seed)[0], count)
            returns: list[float] = []
            total = 0.0
            for _, reward, done in play(place, self._greedy, seed):
                total += reward
                if done:
                    returns.append(total)
                    total = 0.0
                    report(returns)
                    if len(returns) == count:
                        break
        return np.array(returns)

    @one_thread()
    def visited_states(
        self, n_steps: int, env: gym.Env[Any, Any] | None = None, seed: int | None = None
    ) -> FloatArray:
        """Play greedily for ``n_steps`` and return the observations, shape (n_steps, d).

        ``env`` and ``seed`` are as in :meth:`evaluate`.
        """
        count = checked_count("n_steps", n_steps)
        with self._place(env) as place:
            steps = islice(play(place, self._greedy, seed), count)
            seen = [np.ravel(observation) for observation, _, _ in steps]
        return np.array(seen, dtype=np.float64)

    def filmable_env(self) -> gym.Env[Any, Any]:
        """Make another environment like its own that renders pictures (``rgb_array``)."""
        return self._other_env("rgb_array")

    def draw_env_seed(self) -> int:
        """Draw a seed for the environment's reset."""
        return int(self._rngs["env"].integers(2**31))

    def _random(self, acts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Draw random actions in place of these, in the form in which a policy has them."""
        return self._rngs["predict"].integers(self.interface.n_actions, size=len(acts))

    def _greedy(self, observation: Any) -> Any:
        """Return the adapted environment's action for an observation that it has returned."""
        point = checked_points(observation, self.interface)
        return self.interface.actions(self.policy.act(point))[0]

    @property
    def _bins(self) -> int:
        """Values of each component of a continuous action, where a grid of them is offered."""
        return self.config.action_bins

    def _interface(self) -> Interface:
        """Read the spaces of its environment."""
        assert self._env is not None
        assert self._inside is not None
        found = self._interface_of(self._inside)
        if found.n_features > self._max_features:
            raise ValueError(
                f"observation_space is {spaces_of(self._env)[0]}: its {found.n_features:,} "
                f"components are too many for {type(self).__name__}, at most "
                f"{self._max_features:,}; gymnasium.wrappers.TransformObservation can make a few "
                "features of them, ResizeObservation and GrayscaleObservation smaller images"
            )
        return found.of_user(self._env, self._bins)

    def _interface_of(self, env: AnyEnv) -> Interface:
        """Read the spaces of an environment that :meth:`_adapted` returned."""
        return Interface.of(env)

    def _reset_env(self, env: AnyEnv) -> Any:
        """Reset, with a seed the first time, and return the observation."""
        self._take_up_randomness(env)
        seed = None if self._env_seeded else self.draw_env_seed()
        self._env_seeded = True
        return env.reset(seed=seed)[0]

    def _take_up_randomness(self, env: AnyEnv, reset: bool = True) -> None:
        """Let the environment of a loaded agent draw what that of the saved one would have.

        A reset with a seed is for what else an environment may draw from.
        """
        state, self._env_rng = self._env_rng, None
        if state is not None and isinstance(env, gym.Env):
            if reset:
                rng = copy.deepcopy(self._rngs["env"])
                env.unwrapped.reset(seed=int(rng.integers(2**31)))
            set_generator(env, state)
            self._env_seeded = True

    def _env_generator(self) -> dict[str, Any] | None:
        """Return the state of its environment's generator, once it has learned there."""
        return generator_of(self._env) if self._env_seeded else self._env_rng

    def _require_env(self) -> AnyEnv:
        """Return the environment with the spaces that engines work with; make it if need be."""
        if self._inside is None:
            self._attach(self._made_anew(learning=True))  # which has the same spaces
        assert self._inside is not None
        return self._inside

    def _made_anew(self, learning: bool, render_mode: str | None = None) -> gym.Env[Any, Any]:
        """Make an environment as a file describes the one that the agent was trained in."""
        origin, env_id = self._origin, self.env_id
        obstacle = None if origin is None else origin.obstacle
        if obstacle is not None:
            raise ValueError(
                f"env is None, and the agent was trained in {obstacle}: give env= to load, or to "
                "evaluate"
            )
        if origin is None and env_id is None:
            raise ValueError(
                "env is None: set agent.env, or load the agent with load(path, env=...); evaluate "
                "takes env=, too"
            )
        module = str(env_id).rpartition(":")[0] if origin is None else origin.foreign()
        if module and self.named_by_file:
            raise ValueError(
                f"env is None, and the file names {env_id!r}, for which the module {module!r} "
                "would be imported: load it with load(path, env=...), or --trust-env in the "
                "command, if that is what you want"
            )
        drawn: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
        if origin is None:
            made = make_env(str(env_id), **drawn)
        else:
            made = origin.beside(**drawn).make(learning)
        self._check_spaces(made)
        return made

    def _other_env(self, render_mode: str | None = None) -> gym.Env[Any, Any]:
        """Make another environment like its own, or like those in it."""
        if self._env is None:
            return self._made_anew(learning=False, render_mode=render_mode)
        return separate_env(self._env, render_mode)

    def _adapted(self, env: AnyEnv) -> AnyEnv:
        """Return an environment with the spaces that engines work with."""
        if isinstance(env, VectorEnv):
            return adapted_vector(env, self._bins)
        return adapted(env, self._bins)

    @contextmanager
    def _place(self, env: gym.Env[Any, Any] | None) -> Iterator[gym.Env[Any, Any]]:
        """Give an environment to play in: the given one, or one like the agent's own, to close."""
        made = self._other_env() if env is None else env
        if isinstance(made, VectorEnv):
            raise TypeError(
                f"env is {made}: it must be one environment; stable_baselines3's evaluate_policy "
                "plays in several"
            )
        if env is not None:
            self._check_spaces(env)
        place = self._adapted(made)
        assert isinstance(place, gym.Env)
        try:
            yield place
        finally:
            if env is None:
                place.close()


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
    _versions: dict[str, str] | None = None  # as its file says

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
        facts = self._facts()
        cells = facts["policy"].partition(",")[0]
        where, steps = facts["environment"], facts["steps"]
        return f"<{type(self).__name__} of {where}, {steps} steps, {cells}>"

    def __str__(self) -> str:
        facts = self._facts()
        width = max(map(len, facts))
        lines = [f"  {name:{width}}  {text}" for name, text in facts.items()]
        return "\n".join([type(self).__name__, *lines])

    def _repr_html_(self) -> str:
        head, cell = '<th style="text-align:left">', '<td style="text-align:left">'
        rows = "".join(
            f"<tr>{head}{html.escape(name)}</th>{cell}{html.escape(text)}</td></tr>"
            for name, text in self._facts().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"

    def _facts(self) -> dict[str, str]:
        """Return what there is to say, by what it is about."""
        where = self.env_id or ("no environment" if self.env is None else str(self.env))
        facts = {"environment": where, "steps": f"{self.num_timesteps:,}"}
        if self.episodes.count:
            facts["episodes"] = f"{self.episodes.count:,} in {self.training_seconds:.3g} s"
            best, recent = self.episodes.best_return, self.episodes.recent_return()
            facts["returns in training"] = f"{best:.6g} at best, lately {recent:.6g}"
        policy = self.policy
        size = sum(part.size for part in policy.parameters)
        counts = (policy.n_cells, "cell"), (policy.n_actions, policy.choice_name), (size, "number")
        facts["policy"] = ", ".join(f"{n:,} {what}" + "s" * (n != 1) for n, what in counts)
        others = self.versions.items() - files.present_versions().items()
        if others:
            facts["saved with"] = ", ".join(f"{name} {text}" for name, text in sorted(others))
        return facts

    @abstractmethod
    def _make_engine(self) -> Engine:
        """Make the engine, by ``interface``, ``config`` and ``_rngs``."""

    def _build(self, interface: Interface, config: Any, seed: int | None) -> None:
        """Make an agent that has learned nothing, without an environment."""
        if seed is not None and (int(seed) != seed or seed < 0):
            raise ValueError(f"seed is {seed!r}: it must be an integer of at least 0, or None")
        children = np.random.SeedSequence(seed).spawn(len(self._streams))
        rngs = map(np.random.default_rng, children)
        self._rngs = dict(zip(self._streams, rngs, strict=True))
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
        """Versions of oda_rl, Python and libraries: at present, or when its file was written.

        The same seed gives the same bits with the same versions, on the same machine.
        """
        return dict(self._versions or files.present_versions())

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
        return int(self._engine.state.steps)

    @property
    def history(self) -> list[Level]:
        """The cells at the beginning of each temperature level, or after each fit."""
        return self._engine.history

    @property
    def epsilon(self) -> float:
        return self._engine.epsilon

    @property
    def fuses(self) -> bool:
        """Whether it trains in one compiled loop with an environment that has compiled dynamics."""
        return self._engine.fuses

    def max_bytes(self, steps: int) -> int:
        """Return about how many bytes its file may have, at most, after ``steps`` more steps."""
        metadata, arrays = self._to_file()
        known = len(str(metadata)) + sum(array.nbytes for array in arrays.values())
        return _SURPLUS_BYTES + known + steps * (_LOG_BYTES + self._engine.bytes_per_step)

    @property
    def n_envs(self) -> int:
        """Number of environments learned from at once; at most 1 along one trajectory."""
        return self._engine.n_envs

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
        self._engine.leave_envs()
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

        A terminated episode has no value after its last step; a truncated one keeps the value of
        its last observation.

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
        engine = self._engine
        engine.leave_envs()
        events = engine.update(
            self.interface.point("observation", observation),
            index,
            reward if type(reward) is float else checked_reward(reward),
            self.interface.point("next_observation", next_observation),
            bool(terminated),
            bool(truncated),
            *engine.arrays,
        )
        if events:
            engine.attend(events, "observation, next_observation or reward")
        self._acted = False
        if events & EPISODE_END:
            self.episodes.append(last_episode(engine, self.training_seconds))

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
        self._engine.set_n_envs(len(step.after))
        return self.advance(step)

    def advance(self, step: VectorStep) -> npt.NDArray[Any]:
        """Learn from a step of several environments, and choose the next action for each."""
        actions, ended = self._engine.advance(step)
        if len(ended):
            moments = np.full((len(ended), 1), self.training_seconds)
            self.episodes.append(np.concatenate([ended, moments], axis=1))
        return self.interface.performed(actions)

    def add_to_returns(self, gains: FloatArray) -> None:
        """Add to the returns of running episodes what later rewards leave out, shape (n,)."""
        for env_state, gain in zip(self._engine.env_states, gains.tolist(), strict=True):
            env_state.episode_return += gain

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
        ``gymnasium.make`` returns them, and environments that offer their dynamics
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
            File, ``*.zip``, to which the agent and the state of its training are written: at the
            beginning, every ``checkpoint_every`` steps, after Ctrl-C, and at the end. If the
            process is killed, :meth:`resume` goes on from there.
        checkpoint_every : int, optional
            At least 1; given together with ``checkpoint``.
        actors : Actors, optional
            Processes that play, for environments that are slow: the agent learns from their
            episodes, and its own environment is not stepped. Of fitted agents only.

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
            After Ctrl-C, SIGTERM or SIGHUP, between two steps: the agent can be saved or trained
            on. A second Ctrl-C raises at once.
        """
        run = TrainingRun(checked_count("total_timesteps", total_timesteps))
        return self._go(run, callback, progress_bar, checkpoint, checkpoint_every, actors)

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
        agent ends with the same bits as an uninterrupted one. Others, and vector environments, go
        on from a reset, and actors with new episodes: what is left of the running ones is lost.

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
        run = TrainingRun(paused.total, steps=paused.steps, part=paused.part)
        env = self._require_env()
        if isinstance(env, gym.Env) and actors is None and not run.over:
            observation = paused.enter(env)
            if observation is not None:
                self._take_up_randomness(env, reset=False)
                run.observation, run.chosen, run.resumed = observation, paused.chosen, True
        return self._go(run, callback, progress_bar, checkpoint, checkpoint_every, actors)

    def _go(
        self,
        run: TrainingRun,
        callback: Callable[[Self], bool | None] | None,
        progress_bar: bool,
        checkpoint: str | Path | None,
        checkpoint_every: int | None,
        actors: Actors | None,
    ) -> Self:
        """Check the arguments, call the actors together, and train as far as the run goes."""
        if not isinstance(actors, Actors | None):
            raise TypeError(f"actors is {actors!r}: it must be Actors, or None")
        learner: Any = None if actors is None else self._actors_learner(actors)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback is {callback!r}: it must be callable, or None")
        checkpoints = files.Checkpoints.of(checkpoint, checkpoint_every)
        run.every = None if checkpoints is None else checkpoints.every
        run.schedule()
        self._paused = None
        if run.over:
            return self
        if actors is None:
            self._train_with_log(run, callback, progress_bar, checkpoints)
        else:
            with actors.at_work(learner.modules) as client:
                run.actors = learner, client, actors.workers
                self._train_with_log(run, callback, progress_bar, checkpoints)
        return self

    def _train_with_log(
        self,
        run: TrainingRun,
        callback: Callable[[Self], bool | None] | None,
        progress_bar: bool,
        checkpoints: files.Checkpoints | None,
    ) -> None:
        """Train until the run is over, a callback ends it, or Ctrl-C has been pressed."""
        env = self._require_env()
        before = self.training_seconds
        run.one_by_one = callback is not None
        kept: Any = nullcontext() if checkpoints is None else checkpoints.kept()
        line = progress_line(run.total, progress_bar, run.steps)
        with deferred_interrupt() as run.interrupt, kept, line as (report, watch):

            def save() -> None:
                if checkpoints is not None:
                    self.training_seconds = before + watch.seconds
                    with watch.stopped():
                        checkpoints.write(self, run, self._seed)

            training = self._train(env, run)
            if not run.resumed:
                save()  # if that fails, it fails before the training
            for steps, finished in training:
                now = before + watch.seconds
                if len(finished):
                    share = finished[:, 2] / finished[-1, 2]
                    finished[:, 2] = self.training_seconds + share * (now - self.training_seconds)
                    self.episodes.append(finished)
                    self.training_seconds = now
                report(self, steps)
                if run.interrupt.requested and not run.over:
                    if run.can_stop:
                        save()
                    raise KeyboardInterrupt
                if run.due and not run.over:
                    save()
                if len(finished) and callback is not None and callback(self) is False:
                    run.total = run.steps
                    break
            self.training_seconds = before + watch.seconds
            run.at(run.total, run.observation)
            save()
            if run.interrupt.requested:
                raise KeyboardInterrupt

    def _train(self, env: AnyEnv, run: TrainingRun) -> Progress:
        """Begin with a reset of the environment, or go on where it is, and train."""
        if not run.resumed:
            self.begin_episode()
        if run.actors is not None:
            return train_by_actors(*run.actors, run)
        if isinstance(env, VectorEnv):
            run.observation = self._reset_env(env)
            return train_vector(self._engine, env, run)
        dynamics = compiled_dynamics(env)
        if not run.resumed:
            self._engine.leave_envs()
            run.observation, run.chosen = self._reset_env(env), False
        if dynamics is None or not self.fuses:
            return train_stepwise(self._engine, env, run)
        return train_compiled(self._engine, env, dynamics, run)

    def _actors_learner(self, actors: Actors) -> Any:
        """Return what learns from the actors' episodes (see :func:`train_by_actors`).

        It has the ``modules`` that an actor imports, too. Raises ValueError if there can be none.
        """
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

    def _about(self) -> dict[str, Any]:
        """Return what :meth:`_rebuild` has to know beside interface and settings."""
        return {"partition": None, "solved_return": self.solved_return}

    def _settings(self) -> dict[str, Any]:
        """Return all settings, as files have them."""
        return dict(vars(self.config))

    @property
    def _can_be_rebuilt(self) -> bool:
        """Whether a file is all that :meth:`_rebuild` needs."""
        return True

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
        known = _METADATA.union(cls._more_metadata)
        unknown = sorted(metadata.keys() - known)
        require(not unknown, f"{unknown[:1]} is in its metadata, which may hold {sorted(known)}")
        interface = Interface.from_json(metadata["interface"])
        sizes = {"d": interface.n_features, "A": interface.n_actions, "p": interface.n_components}
        for name, member in cls._sized_by.items():  # before arrays are made by these sizes
            fault = member.fits(arrays[name], sizes)
            require(fault is None, f"{name} {fault}")
        agent = cls.__new__(cls)
        agent._rebuild(metadata, *parts)
        agent._engine.restore(arrays)
        states = metadata["rngs"]
        require(states.keys() == agent._rngs.keys(), f"rngs must be {sorted(agent._rngs)}")
        for name, rng in agent._rngs.items():
            rng.bit_generator.state = generator_state(states[name], f"rngs.{name}")
        return agent
