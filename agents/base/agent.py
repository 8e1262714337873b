"""Base class of agents: settings, training, explanations, files."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, SupportsFloat, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from oda_rl._threads import check_thread, one_thread, using
from oda_rl._types import Array, FloatArray
from oda_rl.agents.base import files
from oda_rl.agents.base.actors import Actors, train_by_actors
from oda_rl.agents.base.engine import Engine, VectorStep
from oda_rl.agents.base.history import RECENT, EpisodeLog, Level
from oda_rl.agents.base.loops import Progress, first_step, last_episode, train, train_vector
from oda_rl.agents.base.player import Player
from oda_rl.agents.base.progress import deferred_interrupt, progress_line
from oda_rl.agents.base.settings import checked_count, checked_seed, made_settings
from oda_rl.agents.base.state import EPISODE_END
from oda_rl.agents.base.training_run import Snapshot, TrainingRun
from oda_rl.agents.environments.adaptation import WithOptions
from oda_rl.agents.environments.making import given_env, reward_threshold, spec_of
from oda_rl.agents.environments.spaces import AnyEnv, Described, Interface, Spaces, described
from oda_rl.agents.environments.validation import action_index, checked_flag, checked_reward
from oda_rl.agents.policies.contract import Extent
from oda_rl.agents.policies.explaining import Explanation, explain
from oda_rl.files.schema import Member, check_fields, generator_state, number, require

_METADATA = {"config", "env_id", "env_rng", "env_spec", "format", "interface", "kind", "partition",
             "rngs", "sb3", "training", "training_seconds", "unused_steps", "versions"}  # fmt: skip
_MIN_JUDGED, _FIRST, _RANDOM_EPISODES = 10, 20, 20  # episodes that are compared
_MAX_NAMED = 6  # components that never changed
_LATEST = 2_000  # observations that say where decisions are made
_RECENT = 10_000  # that exports are compared on


class Agent(Player):
    """Base of the agents, which differ in their settings, their engine and their policy."""

    episodes: EpisodeLog
    training_seconds: float  #: Seconds of learning, without compilation.
    solved_return: float | None  #: Reward threshold of the environment, or None, for figures.

    _config_class: ClassVar[type[Any]]  # settings with their defaults, a :class:`Checked`
    if not TYPE_CHECKING:  # other attributes stay unknown to mypy

        def __getattr__(self, name: str) -> Any:
            if name in ("edit", "prove", "rules"):
                reason = "only a rule has it, that of a ModelAgent or of agent.simplify().policy"
                raise AttributeError(f"{type(self).__name__} has no {name}(): {reason}")
            return super().__getattribute__(name)  # raises the usual error

    _streams: ClassVar[tuple[str, ...]] = ("explore", "env", "predict")
    """Names of its generators in ``_rngs``; ``env`` and ``predict`` are required."""
    _sized_by: ClassVar[dict[str, Member]] = {}  # members of a file that arrays are sized by
    _more_metadata: ClassVar[tuple[str, ...]] = ("solved_return",)  # further keys of a file
    _engine: Engine
    _acted_on: tuple[Any, Array] | None = None  # observation since the last update; its numbers
    _last: tuple[Any, Array] | None = None  # where an episode of several steps terminated
    _doubt: str | None = None  # what to say of a policy that is not better than random play
    _seed: int | None = None
    _paused: Snapshot | None = None  # the training of the checkpoint it was loaded from
    _paused_at = 0  # num_timesteps then
    _unused_steps = 0  # that trainings were asked for, but a climb or a distillation did not take
    _versions: dict[str, str] | None = None  # from its file

    def __init__(
        self,
        env: str | AnyEnv | Spaces,
        seed: int | None = None,
        *,
        names: Sequence[str] | None = None,
        action_names: Sequence[Any] | None = None,
        **config: Any,
    ) -> None:
        self.config = made_settings(type(self).__name__, self._config_class, config)
        made = self._enter(described(env))
        self._build(self._interface(names, action_names), self.config, seed)
        self._begin_in(made, env)

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

    def _facts(self) -> dict[str, str]:
        """Return a short text for each fact that ``print`` shows."""
        where = self.env_id or ("no environment" if self.env is None else str(self.env))
        facts = {"environment": where, "steps": f"{self.num_timesteps:,}"}
        if self.episodes.count:
            facts["episodes"] = f"{self.episodes.count:,} in {self.training_seconds:.3g} s"
            best, recent = self.episodes.best_return, self.episodes.recent_return()
            cut = " (some were cut short)" * (not self.episodes.curve[-RECENT:, 3].all())
            said = f"{best:.6g} at best, lately {recent:.6g}{cut}"
            facts["returns in training"] = said.removeprefix("-inf at best, ")
        policy = self.policy
        size = sum(part.size for part in policy.parameters if part.any())  # a single cell's are 0
        counts = {"cell": policy.n_cells, policy.choice_name: policy.n_actions, "number": size}
        facts["policy"] = ", ".join(f"{n:,} {what}" + "s" * (n != 1) for what, n in counts.items())
        others = self.versions.items() - files.present_versions().items()
        if self._doubt is not None:
            facts["warning"] = self._doubt
        if others:
            facts["saved with"] = ", ".join(f"{name} {text}" for name, text in sorted(others))
        return facts

    @abstractmethod
    def _make_engine(self) -> Engine:
        """Make the engine from ``interface``, ``config`` and ``_rngs``."""

    def _build(self, interface: Interface, config: Any, seed: int | None) -> None:
        """Make an untrained agent without an environment."""
        self._seed = checked_seed(seed)
        children = np.random.SeedSequence(self._seed).spawn(len(self._streams))
        rngs = map(np.random.default_rng, children)
        self._rngs = dict(zip(self._streams, rngs, strict=True))
        self.interface, self.config = interface, config
        self.episodes = EpisodeLog()
        self.training_seconds = 0.0
        self._engine = self._make_engine()

    def _enter(self, env: str | AnyEnv) -> AnyEnv:
        """Attach an environment, or make one from its id, and return it."""
        made = given_env(env)
        self._attach(made)
        spec = spec_of(made)
        self.env_id = None if spec is None else spec.id
        self._env_module = env.rpartition(":")[0] or None if isinstance(env, str) else None
        return made

    def _begin_in(self, made: AnyEnv, given: Any) -> None:
        """Note the threshold; leave an environment of which only the spaces were given."""
        self.solved_return = reward_threshold(made)
        if made is not given and isinstance(made, Described):
            self._attach(None)

    @property
    @abstractmethod
    def visits(self) -> FloatArray:
        """Number of updates of each action in each cell, shape (n_cells, n_actions)."""

    @property
    def metric_(self) -> FloatArray | None:
        """Metric of the partition in the observation's units, shape (d, d); None without one."""
        return None

    @property
    def extent(self) -> Extent:
        """Mean of the latest remembered observations of training, and the range of all."""
        seen = self._observations
        centre = seen[-_LATEST:].mean(axis=0, dtype=np.float64)
        return Extent(centre, np.abs(seen - centre).max(axis=0))

    @property
    def recent(self) -> FloatArray:
        """Latest remembered observations of training, shape (n, d), at most 10,000."""
        return self._observations[-_RECENT:].astype(np.float64)

    @property
    def _observations(self) -> Array:
        """Observations of training that are remembered, shape (n, d)."""
        return np.empty((0, self.interface.n_features))

    @property
    def versions(self) -> dict[str, str]:
        """Versions of oda_rl, Python and libraries: now, or when its file was written.

        With the same versions, on the same machine, the same seed gives the same bits.
        """
        return dict(self._versions or files.present_versions())

    @property
    def scale_(self) -> FloatArray | None:
        """Inverse standard deviation of each component, shape (d,); 0 for constant components."""
        return self._engine.scale

    @property
    def temperature(self) -> float:
        """Temperature of the current level; NaN if a fit anneals the cells, or nothing does."""
        return float("nan")

    @property
    def _longest_episode(self) -> int:
        return int(self.episodes.rows[:, 1].max(initial=0.0))

    @property
    def num_timesteps(self) -> int:
        """Environment steps learned from, including random play and restarts."""
        return int(self._engine.state.steps)

    @property
    def history(self) -> list[Level]:
        """Cells at the beginning of each temperature level, or after each fit."""
        return self._engine.history

    @property
    def epsilon(self) -> float:
        return self._engine.epsilon

    @property
    def delivered_return(self) -> float:
        """Mean return of the policy that would be delivered now, in training; NaN if unknown."""
        return self._engine.delivered_return

    @property
    def n_envs(self) -> int:
        """Number of environments learned from at once; 0 or 1 along one trajectory."""
        return self._engine.n_envs

    def act(self, observation: Any) -> Any:
        """Choose an action for training, with exploration.

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
            If the observation is not of the space or not finite.
        """
        check_thread(self)
        self._engine.leave_envs()
        point = self.interface.point("observation", observation)
        last, self._last = self._last, None
        if last and _same_place(observation, last[0]) and np.array_equal(point, last[1]):
            warnings.warn(  # no error: a reset may return the same
                "observation is the last one of an episode that has ended: call env.reset() first, "
                "and act on what it returns",
                stacklevel=2,
            )
        action = self._engine.act(point)
        self._acted_on = observation, np.array(point)
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
            The action taken, usually from :meth:`act`; with a grid of actions, one of the grid.
        reward : float
            The reward received; finite.
        terminated, truncated : bool
            As ``env.step`` returned them.

        Raises
        ------
        RuntimeError
            If :meth:`act` has not been called since the last update, or another thread trains the
            agent.
        ValueError
            For a wrong shape, an unknown action, or values that are not finite; nothing is learned.
        """
        if self._acted_on is None:
            raise RuntimeError("update was called before act: call act(observation) first")
        check_thread(self)
        index, box = 0, self.interface.box  # actions of a box are remembered by their components
        if box is None:
            index = action_index(action, self.interface)
        else:
            self._engine.replace(action)
        engine, after = self._engine, self.interface.point("next_observation", next_observation)
        engine.leave_envs()
        seen, point = self._acted_on
        if not _same_place(observation, seen):  # the environment may have written over that
            point = self.interface.point("observation", observation)
        events = engine.update(
            point,
            index,
            reward if type(reward) is float else checked_reward(reward),
            after,
            terminated if type(terminated) is bool else checked_flag("terminated", terminated),
            truncated if type(truncated) is bool else checked_flag("truncated", truncated),
            *engine.arrays,
        )
        if events:
            engine.attend(events, "observation, next_observation or reward")
        self._acted_on = None
        if events & EPISODE_END:
            recurs = engine.state.last_length == 1 or (after == np.round(after)).all()
            if terminated and not recurs:
                self._last = next_observation, np.array(after)
            self.episodes.append(last_episode(engine, self.training_seconds))

    def begin_episode(self) -> None:
        """Abandon unfinished episodes; what was learned in them stays."""
        self._engine.begin_episode()
        self._acted_on = self._last = None

    def check_n_envs(self, count: int) -> None:
        """Raise TypeError if the agent cannot learn in ``count`` environments."""
        if count > 1 and self.interface.box is not None and not self._engine.acts_together:
            raise TypeError(
                f"env has {count} environments: with continuous actions {type(self).__name__} "
                "needs one; TwoTimescaleAgent, FittedQAgent and, with action_bins, ModelAgent take "
                "several"
            )

    def begin_in_all(self, observations: Any) -> Array:
        """Begin episodes in several environments, and choose an action for each observation."""
        step = first_step(observations, self.interface)
        self.check_n_envs(len(step.after))
        self._engine.set_n_envs(len(step.after))
        return self.advance(step)

    def advance(self, step: VectorStep) -> Array:
        """Learn from a step of several environments, and choose the next action in each."""
        actions, ended = self._engine.advance(step)
        if len(ended):
            moments = np.full((len(ended), 1), self.training_seconds)
            self.episodes.append(np.concatenate([ended, moments], axis=1))
        return np.asarray(self._performed(actions))

    def add_to_returns(self, gains: FloatArray) -> None:
        """Add to the returns of the running episodes, shape (n,)."""
        for env_state, gain in zip(self._engine.env_states, gains.tolist(), strict=True):
            env_state.episode_return += gain

    def _performed(self, numbers: Any) -> Any:
        """Return the environment's action, or actions, for numbers from 0."""
        if self.interface.box is not None:
            return self._engine.perform(numbers)
        return self.interface.performed(numbers)

    @one_thread()
    def learn(
        self,
        total_timesteps: int | float,
        callback: Callable[[Self], bool | None] | None = None,
        progress_bar: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_every: int | None = None,
        actors: Actors | None = None,
        reset_options: dict[str, Any] | None = None,
    ) -> Self:
        """Train for ``total_timesteps`` more environment steps.

        The environment is reset first: in many short calls no long episode is ever complete; look
        in a ``callback`` instead. BartoCartPole, Gymnasium's CartPole, MountainCar, Pendulum
        and Acrobot, as ``gymnasium.make`` returns them, and environments that offer their dynamics
        (:class:`oda_rl.envs.Dynamics`) are trained in one compiled loop; all others, step by step,
        with the same results. In a vector environment, training ends with a step of all its
        environments, so there may be a few more steps.

        Parameters
        ----------
        total_timesteps : int
            At least 1.
        callback : callable, optional
            Called with the agent after each episode, or each iteration of a climb. Training ends
            if it returns False, or anything false but None. It may change the environment's
            constants or state.
        progress_bar : bool
            Show progress.
        checkpoint : str or Path, optional
            File, ``*.zip``, for the agent and the state of its training, written at the beginning,
            every ``checkpoint_every`` steps, after Ctrl-C, and at the end; :meth:`resume` continues
            from it.
        checkpoint_every : int, optional
            Steps, at least 1; given together with ``checkpoint``.
        actors : Actors, optional
            Processes that play slow environments instead of the agent's own. For fitted agents.
        reset_options : dict, optional
            ``options`` of each reset; steps are not compiled then.

        Raises
        ------
        TypeError
            If ``callback`` is not callable or returns an array; if ``actors`` is no
            :class:`Actors`.
        ValueError
            If ``total_timesteps`` is below 1, only one of ``checkpoint`` and ``checkpoint_every``
            is given, the environment returns an observation of a wrong shape or a value that is not
            finite, or the agent or its environment does not support actors.
        OSError
            If a checkpoint cannot be written, or another training writes to the same file; if the
            scheduler does not answer, or an episode ends every process that plays it.
        ImportError
            If actors need Dask, or cannot import the environment.
        RuntimeError
            If another thread trains the agent.
        KeyboardInterrupt
            After Ctrl-C, SIGTERM or SIGHUP, between two steps: the agent can be saved or trained
            further. A second Ctrl-C raises at once.
        """
        run = TrainingRun(checked_count("total_timesteps", total_timesteps))
        run.reset_options = reset_options
        return self._run(run, callback, progress_bar, checkpoint, checkpoint_every, actors)

    @one_thread()
    def resume(
        self,
        callback: Callable[[Self], bool | None] | None = None,
        progress_bar: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_every: int | None = None,
        actors: Actors | None = None,
    ) -> Self:
        """Continue the training of a checkpoint up to its ``total_timesteps``.

        The result is bit for bit that of uninterrupted training in one environment that offers
        ``get_state()`` and ``set_state(state)`` (numbers, arrays and containers of them), or has
        nothing but these, generators and constants in its attributes. Other environments, and
        vector environments, continue from a reset, and actors with new episodes.

        Arguments are those of :meth:`learn`; ``checkpoint_every`` is by default as before.

        Raises
        ------
        ValueError
            If the agent has not been loaded from a checkpoint, or has been used since; otherwise
            as :meth:`learn`, like all other errors.

        Examples
        --------
        >>> import tempfile
        >>> from oda_rl.agents import TwoTimescaleAgent
        >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = f"{folder}/checkpoint.zip"
        ...     agent = agent.learn(2_000, checkpoint=file, checkpoint_every=500)
        ...     TwoTimescaleAgent.load(file).resume().num_timesteps  # it had ended
        2000
        """
        paused = self._paused
        if paused is None or self._acted_on is not None or self.num_timesteps != self._paused_at:
            raise ValueError(
                "there is no training to resume: load the file that learn(checkpoint=...) wrote, "
                "and resume before anything else"
            )
        if checkpoint is not None and checkpoint_every is None:
            checkpoint_every = paused.every
        run = TrainingRun(paused.total, steps=paused.steps, part=paused.part)
        env = self._require_env()
        if isinstance(env, gym.Env) and actors is None and not run.over:
            observation = paused.enter(env, cast(Any, self.env))
            if observation is not None:
                self._restore_env_rng(env, reset=False)
                run.observation, run.chosen, run.resumed = observation, paused.chosen, True
        return self._run(run, callback, progress_bar, checkpoint, checkpoint_every, actors)

    def _run(
        self, run: TrainingRun, callback: Callable[[Self], bool | None] | None, progress_bar: bool,
        checkpoint: str | Path | None, checkpoint_every: int | None, actors: Actors | None,
    ) -> Self:  # fmt: skip
        """Check the arguments and train until the run is over, ended or interrupted."""
        if not isinstance(actors, Actors | None):
            raise TypeError(f"actors is {actors!r}: it must be Actors, or None")
        learner: Any = None if actors is None else self._actors_learner(actors)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback is {callback!r}: it must be callable, or None")
        checkpoints = files.Checkpoints.of(checkpoint, checkpoint_every)
        run.every = None if checkpoints is None else checkpoints.every
        self._doubt = None
        run.one_by_one = callback is not None
        run.schedule()
        self._paused = None
        if run.over:
            return self
        with using(self, learns=True), ExitStack() as stack:
            if actors is not None:
                client = stack.enter_context(actors.at_work(learner.modules))
                run.actors = learner, client, actors.workers
            env, before = self._require_env(), self.training_seconds
            if run.reset_options is not None:
                if isinstance(env, VectorEnv) or actors is not None:
                    raise ValueError(
                        "reset_options is for one environment: it must be None in a vector "
                        "environment, or with actors"
                    )
                env = WithOptions(env, run.reset_options)
            run.interrupt = stack.enter_context(deferred_interrupt())
            if checkpoints is not None:
                stack.enter_context(checkpoints.locked())
            line = progress_line(run.total, progress_bar, run.steps)
            report, watch = stack.enter_context(line)

            def save() -> None:
                if checkpoints is not None:
                    self.training_seconds = before + watch.seconds
                    with watch.stopped():
                        checkpoints.write(self, run, self._seed)

            training, steps = self._train(env, run), run.steps
            if not run.resumed:
                save()  # if that fails, it fails before the training
            for steps, ended in training:
                now = before + watch.seconds
                if len(ended):
                    share = ended[:, 2] / ended[-1, 2]
                    ended[:, 2] = self.training_seconds + share * (now - self.training_seconds)
                    self.episodes.append(ended)
                    self.training_seconds = now
                report(self, steps)
                if not run.over and (run.due or (run.interrupt.requested and run.can_stop)):
                    save()
                if run.interrupt.requested and not run.over:
                    raise KeyboardInterrupt
                if len(ended) and callback is not None and _ends_training(callback(self)):
                    run.total = run.steps
                    break
            self.training_seconds = before + watch.seconds
            self._unused_steps += run.total - steps
            run.at(run.total, run.observation)
            save()
            if run.interrupt.requested:
                raise KeyboardInterrupt
        return self

    def _train(self, env: AnyEnv, run: TrainingRun) -> Progress:
        """Reset the environment, unless the run is resumed in it, and train."""
        if not run.resumed:
            self.begin_episode()
        if run.actors is not None:
            return train_by_actors(*run.actors, run)
        if isinstance(env, VectorEnv):
            run.observation = self._reset_env(env)
            return train_vector(self._engine, env, run, self._performed)
        if not run.resumed:
            self._engine.leave_envs()
            run.observation, run.chosen = self._reset_env(env), False
        return train(self._engine, env, run)

    def _judge(self, returns: FloatArray, seed: int | None) -> None:
        """Warn if returns are no better than those of the first episodes and of random play."""
        if len(returns) < _MIN_JUDGED:
            return
        self._doubt = None
        curve = self.episodes.curve
        first = curve[curve[:, 3] > 0.0][:_FIRST, 0]  # returns of shorter ones do not compare
        if len(first) and not better(returns, first) and (said := self.doubt(returns, seed)):
            warnings.warn(said, stacklevel=4)  # of evaluate's caller

    def doubt(self, returns: FloatArray, seed: int | None = None) -> str | None:
        """Play random episodes, and return a warning if the policy is no better, else None.

        ``print(agent)`` shows the warning until the agent learns again. :meth:`evaluate` calls this
        where ten returns or more are no better than the first ones of training, and warns.
        """
        random = self.evaluate_random(_RANDOM_EPISODES, seed=seed)
        self._doubt = None
        if better(returns, random):
            return None
        others = [name for name in ("FittedQAgent", "ModelAgent") if name != type(self).__name__]
        said = (
            f"The policy is not better than random play: mean return {returns.mean():.4g} against "
            f"{random.mean():.4g}. Try more steps, {' or '.join(others)}, or rewards that rise on "
            "the way to the goal."
        )
        if self.episodes.count and np.ptp(self.episodes.curve[:, 0]) == 0.0:
            said += " All episodes of training returned the same."
        scale = () if self.scale_ is None else self.scale_
        rows = zip(self.names, scale, self.interface.of_boxes, strict=False)
        if constant := [name for name, inverse, of_box in rows if of_box and inverse == 0.0]:
            said += f" Components that never changed: {', '.join(constant[:_MAX_NAMED])}."
        self._doubt = said
        return said

    def _actors_learner(self, actors: Actors) -> Any:
        """Return the learner for :func:`train_by_actors`, with its ``modules``, or ValueError."""
        raise ValueError(
            f"workers is {actors.workers}: {type(self).__name__} has no actors; FittedQAgent and "
            "CodevectorAgent have, and a ModelAgent of continuous actions"
        )

    @one_thread()
    def explain(self, observation: Any) -> Explanation:
        """Explain the action in a state, and the nearest state with another action: ``print`` it.

        The distance is Euclidean, in standard deviations of the components (``scale_``); constant
        components are not changed. It is exact for rules and tables; for agents that blend
        neighbouring cells the state has another action, and a lower bound of the distance is given
        (0 for cells of states and actions). With continuous actions, it is the nearest
        state with another action codevector, level or cell of a rule.

        Parameters
        ----------
        observation
            One observation of the environment's observation space.

        Raises
        ------
        ValueError
            If the observation is not of the space or not finite, or the agent has learned nothing
            yet.

        Examples
        --------
        >>> from oda_rl.agents import TwoTimescaleAgent
        >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(20_000)
        >>> explanation = agent.explain([0.0, 0.0, 0.1, 0.0])
        >>> bool(agent.predict(explanation.nearest_other)[0] == explanation.action)
        False
        """
        return explain(self, observation)

    def save(self, path: str | Path) -> None:
        """Save to a file or a run folder.

        A run folder also holds the configuration (``config.json``) and the training episodes
        (``monitor.csv``, as Stable-Baselines3 reads it); figures and exported policies of an
        earlier agent are removed from it.

        Parameters
        ----------
        path : str or Path
            A file if it ends in ``.zip``, else a folder, which is made if necessary.

        Raises
        ------
        ValueError
            If a file of the folder would be replaced that is not of an earlier agent there.
        """
        if not str(path):
            raise ValueError("path is '': it must be a folder, or a file that ends in .zip")
        with using(self):
            files.refuse_foreign(Path(path))
            files.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, env: str | AnyEnv | None = None) -> Self:
        """Load from a file or a run folder.

        Parameters
        ----------
        path : str or Path
            Path given to :meth:`save`.
        env : str, gymnasium.Env or gymnasium.vector.VectorEnv, optional
            Environment to train or evaluate in. By default it is made anew when needed, with the
            arguments, time limit, wrappers and running statistics from the file, but not with
            attributes set later. ValueError is raised then if the file cannot hold one of these,
            such as a function in a wrapper.

        Raises
        ------
        FileNotFoundError
            If there is no file.
        ValueError
            If the file is damaged, or holds no agent of this class, or ``env`` has other spaces.
        """
        return files.restored(cls, *files.read(path), env)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as files do, with what no file holds, and a choice without update."""
        return files.pickled(self)

    @property
    def _parts(self) -> tuple[Any, ...]:
        """Arguments of :meth:`_rebuild` that a file does not hold."""
        return ()

    def _about(self) -> dict[str, Any]:
        """Return metadata for :meth:`_rebuild` beside interface and settings."""
        return {"partition": None, "solved_return": self.solved_return}

    def _settings(self) -> dict[str, Any]:
        return dict(vars(self.config))

    def _rebuild(self, metadata: dict[str, Any], *parts: Any) -> None:
        """Construct the agent from a file's metadata, without an environment."""
        interface = Interface.from_json(metadata["interface"])
        config = self._config_class(**metadata["config"])
        check_fields(config)
        self._build(interface, config, None)

    def _to_file(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return metadata and arrays for :meth:`_from_file`."""
        metadata = {
            **self._about(),
            "config": self._settings(),
            "rngs": {name: rng.bit_generator.state for name, rng in self._rngs.items()},
        }
        return metadata, self._engine.state_arrays()

    @classmethod
    def _from_file(cls, metadata: dict[str, Any], arrays: Mapping[str, Array], *parts: Any) -> Self:
        """Make an agent without an environment from metadata and arrays of a file."""
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
        agent.solved_return = threshold = metadata["solved_return"]
        if threshold is not None:
            agent.solved_return = number(threshold, "solved_return", "[-inf, inf]")
        agent._engine.restore(arrays)
        states = metadata["rngs"]
        require(states.keys() == agent._rngs.keys(), f"rngs must be {sorted(agent._rngs)}")
        for name, rng in agent._rngs.items():
            rng.bit_generator.state = generator_state(states[name], f"rngs.{name}")
        return agent


def better(returns: FloatArray, others: FloatArray) -> bool:
    """Whether a mean return is greater, by more than two standard errors of the difference."""
    error = np.sqrt(returns.var() / len(returns) + others.var() / len(others))
    return bool(returns.mean() > others.mean() + 2.0 * error)


def _same_place(one: Any, other: Any) -> bool:
    """Whether two observations are one object, or arrays at one place in memory."""
    arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return bool(one is other or (arrays and one.__array_interface__ == other.__array_interface__))


def _ends_training(answer: Any) -> bool:
    """Whether a callback returned something false other than None."""
    try:
        return answer is not None and not answer
    except ValueError as error:  # of an array
        raise TypeError(
            f"callback returned {answer!r:.80}: it must return None or True to go on, or False to "
            "end the training"
        ) from error
