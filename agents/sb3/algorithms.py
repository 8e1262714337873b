"""The agents as algorithms of Stable-Baselines3, for its callbacks, loggers and environments."""

import io
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from oda_rl.agents import files as saving
from oda_rl.agents.base import Agent, checked_count
from oda_rl.agents.engine.lanes import VectorStep
from oda_rl.agents.engine.training import deferred_interrupt
from oda_rl.agents.engine.vector import first_step, matrix
from oda_rl.agents.environments.making import make_env
from oda_rl.agents.environments.spaces import Described, Interface
from oda_rl.agents.fitted.agent import FittedQAgent
from oda_rl.agents.two_timescale.agent import TwoTimescaleAgent

try:
    import torch
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.policies import BasePolicy
    from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, PyTorchObs
    from stable_baselines3.common.utils import (
        check_for_correct_spaces,
        get_system_info,
        safe_mean,
    )
    from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor
except ImportError as error:
    raise ImportError(
        "oda_rl.agents.sb3.algorithms needs Stable-Baselines3: pip install 'oda-rl[sb3]'"
    ) from error

_Path = str | Path | io.BufferedIOBase

_SETTINGS = {"verbose": 0, "tensorboard_log": None, "stats_window_size": 100}


class CellsPolicy(BasePolicy):
    """What Stable-Baselines3 calls a policy: here, the cells of an agent. There is no network.

    Parameters
    ----------
    observation_space, action_space : gymnasium.Space
        Of the environment.
    agent : Agent
        Decides.
    """

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], agent: Agent
    ) -> None:
        super().__init__(observation_space, action_space)
        self.agent = agent

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> torch.Tensor:
        assert isinstance(observation, torch.Tensor)
        actions, _ = self.agent.predict(observation.numpy(), deterministic=deterministic)
        return torch.as_tensor(actions)

    def save(self, path: str) -> NoReturn:
        """Raise NotImplementedError: the model is what is saved."""
        raise NotImplementedError("a policy of cells is saved with its model: model.save(path)")

    @classmethod
    def load(cls, path: str, device: torch.device | str = "auto") -> NoReturn:
        """Raise NotImplementedError: the model is what is loaded."""
        raise NotImplementedError(
            "a policy of cells is loaded with its model: TwoTimescale.load(path).policy, or "
            "FittedQ.load(path).policy"
        )


class _Algorithm(BaseAlgorithm):
    """What both algorithms share; the docstring of :class:`TwoTimescale` describes it."""

    agent: Agent
    """The plain agent, which does all the learning."""
    policy: CellsPolicy

    _agent_class: ClassVar[type[Agent]]
    _load_keywords: ClassVar[tuple[str, ...]] = ()
    _started = 0.0  # when training would have started, had it been in one go
    _chosen: npt.NDArray[np.int64] | None = None  # the next actions in several environments

    def __init__(
        self,
        env: GymEnv | str,
        *,
        seed: int | None = None,
        verbose: int = 0,
        tensorboard_log: str | None = None,
        stats_window_size: int = 100,
        monitor_wrapper: bool = True,
        **config: Any,
    ) -> None:
        self._set_up(env, seed, verbose, tensorboard_log, stats_window_size, monitor_wrapper)
        self._config = config
        self._setup_model()

    def _set_up(
        self,
        env: GymEnv | str | None,
        seed: int | None,
        verbose: int,
        tensorboard_log: str | None,
        stats_window_size: int,
        monitor_wrapper: bool = True,
    ) -> None:
        super().__init__(
            policy=CellsPolicy,
            env=make_env(env) if isinstance(env, str) else env,
            learning_rate=0.0,  # of no network
            stats_window_size=stats_window_size,
            tensorboard_log=None if tensorboard_log is None else str(tensorboard_log),
            verbose=verbose,
            device="cpu",
            support_multi_env=True,
            monitor_wrapper=monitor_wrapper,
            seed=seed,
        )

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        if isinstance(env, gym.vector.VectorEnv):
            raise ValueError(
                "env is a vector environment of Gymnasium: it must be an environment, or a vector "
                "environment of Stable-Baselines3 (make_vec_env); oda_rl.agents take Gymnasium's"
            )
        return BaseAlgorithm._wrap_env(env, verbose, monitor_wrapper)

    def _setup_model(self) -> None:
        if self.env is None:
            raise ValueError("env is None: it must be an environment, or the id of one")
        place = _described(self.env)
        Interface.of(place)  # what the plain agent would wrap, the vector environment would not
        agent = self._agent_class(place, seed=self.seed, **self._config)  # type: ignore[call-arg]
        self._take_over(agent)

    def _take_over(self, agent: Agent) -> None:
        self.agent = agent
        self.policy = CellsPolicy(self.observation_space, self.action_space, agent)
        self._enter()

    def _enter(self) -> None:
        """Let the agent know of the environment, and seed that as its own ``learn`` does."""
        if self.env is None:
            return
        env = _inner_env(self.env)
        self.agent.env = env
        self.agent.env_id = env.spec.id if env is not None and env.spec is not None else None
        if self.seed is not None:
            self.set_random_seed(int(self.agent._env_rng.integers(2**31)))

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train for ``total_timesteps`` more environment steps.

        To a callback, a rollout is an episode. It is called when the agent has learned from the
        step, so what it saves or evaluates is what ``num_timesteps`` says.

        Parameters
        ----------
        total_timesteps : int
            At least 1.
        callback : callable, BaseCallback or list of BaseCallback, optional
            Called after each step; ends the training by returning False.
        log_interval : int or None
            Episodes between two entries of the log; None writes none.
        tb_log_name : str, optional
            Of the run in TensorBoard; by default the name of the class.
        reset_num_timesteps : bool
            True counts steps anew and begins with a reset of the environment, False goes on where
            the last call stopped. What the agent has learned it keeps in any case.
        progress_bar : bool
            Show the one of Stable-Baselines3, which needs tqdm and rich.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If ``total_timesteps`` is below 1, or there is no environment, or it returns an
            observation of another shape, or one or a reward that is not finite.
        KeyboardInterrupt
            After Ctrl-C, between two steps: the model is whole, and can be saved or trained on.
        """
        checked_count("total_timesteps", total_timesteps)
        if self.env is None:
            raise ValueError("env is None: call set_env(env), or load the model with an env")
        if reset_num_timesteps or self._last_obs is None:
            self.agent._core.begin_episode()
            self._chosen = None
        total_timesteps, callback = self._setup_learn(
            total_timesteps,
            callback,
            reset_num_timesteps,
            tb_log_name or type(self).__name__,
            progress_bar,
        )
        self._started = time.perf_counter() - self.agent.training_seconds
        callback.on_training_start(locals(), globals())
        with deferred_interrupt() as interrupt:
            go_on = True
            while go_on and self.num_timesteps < total_timesteps:
                callback.on_rollout_start()
                ended = False
                before = self._episode_num
                while go_on and not ended and self.num_timesteps < total_timesteps:
                    ended, go_on = self._step(self.env, callback)
                    if interrupt.requested:
                        raise KeyboardInterrupt
                callback.on_rollout_end()
                if log_interval and before // log_interval < self._episode_num // log_interval:
                    self.dump_logs()
        self.agent.training_seconds = time.perf_counter() - self._started
        callback.on_training_end()
        return self

    def _step(self, env: VecEnv, callback: BaseCallback) -> tuple[bool, bool]:
        """Act and learn; return whether an episode has ended, and whether to go on."""
        last_obs = self._last_obs
        assert isinstance(last_obs, np.ndarray)
        actions = self._next_actions(env, last_obs)
        self._last_obs = self._chosen = None  # if the step fails, learning goes on with a reset
        new_obs, rewards, dones, infos = env.step(actions)
        assert isinstance(new_obs, np.ndarray)
        after, truncated = _last_observations(new_obs, dones, infos)
        if dones.any():
            self.agent.training_seconds = time.perf_counter() - self._started
        if env.num_envs == 1:
            self._learn_from(last_obs[0], actions[0], rewards[0], after[0], dones[0], truncated[0])
        else:
            self._learn_from_all(rewards, after, new_obs, dones, truncated)
        self.num_timesteps += env.num_envs
        self._episode_num += int(dones.sum())
        self._last_obs, self._last_episode_starts = new_obs, dones
        self._update_info_buffer(infos, dones)
        callback.update_locals(locals())
        return bool(dones.any()), callback.on_step()

    def _next_actions(self, env: VecEnv, observations: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return an action for each environment, as the environments number them."""
        agent, core = self.agent, self.agent._core
        if env.num_envs == 1:
            return np.array([agent.act(observations[0])])
        if self._chosen is None or core.n_lanes != env.num_envs:
            core.set_lanes(env.num_envs)
            self._chosen, _ = core.advance(first_step(observations, agent.interface))
        return agent.interface.first_action + self._chosen

    def _learn_from(
        self,
        observation: npt.NDArray[Any],
        action: int,
        reward: np.float32,
        after: npt.NDArray[Any],
        ended: bool,
        truncated: bool,
    ) -> None:
        """Learn from a step of the only environment."""
        gain = self._denied(np.array([reward]))
        if gain is not None:
            self.agent._core.lanes[0].episode_return += float(gain[0])
        terminated = bool(ended and not truncated)
        self.agent.update(observation, action, float(reward), after, terminated, bool(truncated))

    def _learn_from_all(
        self,
        rewards: npt.NDArray[Any],
        after: npt.NDArray[Any],
        observations: npt.NDArray[Any],
        ended: npt.NDArray[Any],
        truncated: npt.NDArray[np.bool_],
    ) -> None:
        """Learn from a step of several environments, and choose the next actions."""
        agent, core = self.agent, self.agent._core
        gains = self._denied(rewards)
        if gains is not None:
            for lane, gain in zip(core.lanes, gains.tolist(), strict=True):
                lane.episode_return += gain
        made = np.ones(len(rewards), dtype=np.bool_)
        over = ended.astype(np.bool_)
        step = VectorStep(
            matrix(after, agent.interface),
            matrix(observations, agent.interface),
            rewards.astype(np.float64),
            over & ~truncated,
            truncated,
            learns=made,
            acts=made,
            begins=over,
        )
        self._chosen, episodes = core.advance(step)
        if len(episodes):
            moments = np.full((len(episodes), 1), agent.training_seconds)
            agent.episodes.append(np.concatenate([episodes, moments], axis=1))

    def _denied(self, rewards: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
        """Return what VecNormalize took from rewards: an episode counts as it was rewarded."""
        normalize = self._vec_normalize_env
        if normalize is None or not normalize.norm_reward:
            return None
        return np.asarray(normalize.get_original_reward() - rewards, dtype=np.float64)

    def dump_logs(self) -> None:
        """Write an entry of the log."""
        seconds = max((time.time_ns() - self.start_time) / 1e9, sys.float_info.epsilon)
        steps = self.num_timesteps - self._num_timesteps_at_start
        if self.ep_info_buffer:
            for name, key in (("ep_rew_mean", "r"), ("ep_len_mean", "l")):
                mean = safe_mean([episode[key] for episode in self.ep_info_buffer])
                self.logger.record(f"rollout/{name}", mean)
        if self.ep_success_buffer:
            self.logger.record("rollout/success_rate", safe_mean(self.ep_success_buffer))
        self.logger.record("rollout/exploration_rate", self.agent._core.epsilon)
        self.logger.record("time/episodes", self._episode_num, exclude="tensorboard")
        self.logger.record("time/fps", int(steps / seconds))
        self.logger.record("time/time_elapsed", int(seconds), exclude="tensorboard")
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.record("train/cells", self.agent.n_cells)
        if not np.isnan(self.agent.temperature):
            self.logger.record("train/temperature", self.agent.temperature)
        self.logger.dump(step=self.num_timesteps)

    def set_env(self, env: GymEnv, force_reset: bool = True) -> None:
        """Go on in another environment.

        Parameters
        ----------
        env : gymnasium.Env or VecEnv
            With the spaces of the present one.
        force_reset : bool
            Begin with a reset, whatever :meth:`learn` is told.

        Raises
        ------
        ValueError
            If the spaces are others, or ``env`` has another number of environments.
        """
        wrapped = self._wrap_env(env, self.verbose)
        if wrapped.num_envs != self.n_envs:
            raise ValueError(
                f"env has {wrapped.num_envs} environments: it must have as many as the model, "
                f"{self.n_envs}; {type(self).__name__}.load(path, env=env) takes any number"
            )
        super().set_env(wrapped, force_reset)
        self._enter()

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed the environment's next reset and its action space; None does nothing.

        The agent has generators of its own, which only the constructor seeds, and uses none that
        are global.
        """
        if seed is None:
            return
        self.action_space.seed(seed)
        if self.env is not None:
            self.env.seed(seed)

    def save(
        self,
        path: _Path,
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        """Save the agent and the model's counters: arrays and JSON in a zip, nothing pickled.

        The agent's own class loads the file, too, and so do ``load_agent`` and ``oda-rl``.

        Parameters
        ----------
        path : str, Path or file
            ``.zip`` is added to a name without a suffix.
        exclude, include
            Ignored: nothing of what is saved is large or private.
        """
        if not isinstance(path, io.BufferedIOBase):
            file = Path(path)
            self._write(file if file.suffix else Path(f"{file}.zip"))
            return
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "model.zip")
            self._write(file)
            path.write(file.read_bytes())

    def _write(self, file: Path) -> None:
        fields = {
            "seed": None if self.seed is None else int(self.seed),
            "verbose": self.verbose,
            "tensorboard_log": self.tensorboard_log,
            "stats_window_size": self._stats_window_size,
            "num_timesteps": self.num_timesteps,
            "episodes": self._episode_num,
        }
        arrays = {}
        if isinstance(self.observation_space, spaces.Box):
            arrays = {
                "sb3_low": self.observation_space.low,
                "sb3_high": self.observation_space.high,
            }
        saving.save_file(self.agent, file, {"sb3": fields}, arrays)

    @classmethod
    def load(
        cls,
        path: _Path,
        env: GymEnv | str | None = None,
        device: torch.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Load from a file, of this class or of the plain agent's.

        Parameters
        ----------
        path : str, Path or file
            What :meth:`save` was given; or a run folder.
        env : str, gymnasium.Env or VecEnv, optional
            To learn in; ``predict`` does without.
        device, custom_objects, force_reset
            Ignored: there is no network, nothing pickled, and learning begins with a reset.
        print_system_info : bool
            Print what the system is like.
        **kwargs
            ``verbose``, ``tensorboard_log`` and ``stats_window_size`` take the place of those that
            were saved. ``partition`` is as in :meth:`oda_rl.agents.TwoTimescaleAgent.load`.

        Raises
        ------
        FileNotFoundError
            If there is nothing.
        ValueError
            If the file is damaged, or not of this algorithm, or ``env`` has other spaces.
        TypeError
            For other keywords.
        """
        if print_system_info:
            get_system_info()
        with _as_file(path) as name:
            file, metadata, arrays = saving.read(name)
        saved = metadata.get("sb3", {})
        unknown = sorted(set(kwargs) - {*_SETTINGS, *cls._load_keywords})
        if unknown:
            takes = ", ".join((*_SETTINGS, *cls._load_keywords))
            raise TypeError(f"load was given {', '.join(unknown)}: beside env it takes {takes}")
        model = cls.__new__(cls)
        verbose, log, window = (
            kwargs.pop(name, saved.get(name, default)) for name, default in _SETTINGS.items()
        )
        model._set_up(env, saved.get("seed"), verbose, log, window)
        place = None if model.env is None else _described(model.env)
        agent = saving.restored(cls._agent_class, file, metadata, arrays, place, *kwargs.values())
        model._adopt_spaces(agent, arrays)
        model.num_timesteps = saved.get("num_timesteps", agent.num_timesteps)
        model._episode_num = saved.get("episodes", len(agent.episodes.rows))
        model._take_over(agent)
        return model

    def _adopt_spaces(self, agent: Agent, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Take over the spaces of a saved model, or raise ValueError if the environment's differ.

        A plain agent has not saved the bounds of observations.
        """
        face = agent.interface
        actions = spaces.Discrete(face.n_actions, start=face.first_action)
        if "sb3_low" in arrays:
            low, high = arrays["sb3_low"], arrays["sb3_high"]
            observations = spaces.Box(low, high, dtype=low.dtype.type)
            if self.env is not None:
                check_for_correct_spaces(self.env, observations, actions)
        else:
            shape, dtype = face.observation_shape, np.dtype(face.dtype).type
            observations = spaces.Box(-np.inf, np.inf, shape, dtype)
        if self.env is None:
            self.observation_space, self.action_space, self.n_envs = observations, actions, 1

    def set_parameters(
        self,
        load_path_or_dict: str | dict[str, Any],
        exact_match: bool = True,
        device: torch.device | str = "auto",
    ) -> NoReturn:
        """Raise NotImplementedError: there is no network that could be given parameters."""
        raise NotImplementedError(
            f"cells have no parameters to set: load the model with {type(self).__name__}.load(path)"
        )


class TwoTimescale(_Algorithm):
    """:class:`oda_rl.agents.TwoTimescaleAgent` as an algorithm of Stable-Baselines3.

    There is no policy to choose: what Stable-Baselines3 does with a network is done by cells.
    Callbacks, loggers, ``Monitor``, ``VecNormalize`` and ``evaluate_policy`` work as with its own
    algorithms. With the same environment and seed it learns what the plain agent learns, bit by
    bit, if rewards fit into single precision, which is what ``DummyVecEnv`` has for them, and
    observations are of the type that their space declares.

    Parameters
    ----------
    env : str, gymnasium.Env or VecEnv
        An environment, the id of one, or a vector environment. Observations: Box of any shape;
        actions: Discrete.
    seed : int or None
        Of all the agent's randomness and of the environment's. None leaves the environment as it
        was seeded.
    verbose : int
        1 writes the log to the standard output.
    tensorboard_log : str, optional
        Folder of a log for TensorBoard, which must be installed.
    stats_window_size : int
        Episodes over which the log takes means.
    monitor_wrapper : bool
        Wrap an environment that is no vector environment in a ``Monitor``.
    **config
        Settings of :class:`oda_rl.agents.TwoTimescaleConfig`, and ``partition``.

    Attributes
    ----------
    agent : TwoTimescaleAgent
        The plain agent: ``agent.q_values``, ``agent.codevectors``, ``agent.evaluate``. Its
        ``env`` is None where Stable-Baselines3 changes what the environment returns, or runs it in
        another process.
    policy : CellsPolicy
        What ``predict`` asks.
    num_timesteps : int
        Steps since they were last counted anew; ``agent.num_timesteps`` counts all.

    Raises
    ------
    ValueError
        For settings out of range, or an unknown environment id or partition.
    TypeError
        For unknown settings, or spaces that are not supported.

    Notes
    -----
    The agents find the scale of observations by themselves and need no ``VecNormalize``. It rather
    hinders them, for what they remember keeps the scale that it had at the time. They learn from
    the normalized rewards then, but an episode's return, which says whether it was solved, is that
    of the original ones.

    Examples
    --------
    >>> from stable_baselines3.common.evaluation import evaluate_policy
    >>> model = TwoTimescale("CartPole-v1", seed=0).learn(20_000)
    >>> mean, deviation = evaluate_policy(model, model.get_env(), n_eval_episodes=5)
    >>> bool(mean == 500), model.agent.q_values.shape[1]
    (True, 2)
    """

    agent: TwoTimescaleAgent

    _agent_class = TwoTimescaleAgent
    _load_keywords = ("partition",)


class FittedQ(_Algorithm):
    """:class:`oda_rl.agents.FittedQAgent` as an algorithm of Stable-Baselines3.

    As :class:`TwoTimescale`, whose parameters and errors it has.

    Parameters
    ----------
    env : str, gymnasium.Env or VecEnv
        An environment, the id of one, or a vector environment. Observations: Box of any shape;
        actions: Discrete.
    seed, verbose, tensorboard_log, stats_window_size, monitor_wrapper
        As of :class:`TwoTimescale`.
    **config
        Settings of :class:`oda_rl.agents.FittedQConfig`.

    Attributes
    ----------
    agent : FittedQAgent
        The plain agent. ``predict``, and so ``EvalCallback``, asks the policy that it delivers,
        which is seldom the newest.

    Examples
    --------
    >>> from stable_baselines3.common.evaluation import evaluate_policy
    >>> model = FittedQ("CartPole-v1", seed=0).learn(5_000)
    >>> mean, deviation = evaluate_policy(model, model.get_env(), n_eval_episodes=5)
    >>> bool(mean > 400)
    True
    """

    agent: FittedQAgent

    _agent_class = FittedQAgent


def _described(env: VecEnv) -> Described:
    """Return what an agent asks of an environment when it is made."""
    return Described(env.observation_space, env.action_space, _spec(env))


def _last_observations(
    observations: npt.NDArray[Any], dones: npt.NDArray[Any], infos: list[dict[str, Any]]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return what a step led to where an episode has begun since, and which were truncated."""
    truncated = np.zeros(len(dones), dtype=np.bool_)
    ended = dones.nonzero()[0].tolist()
    if ended:
        observations = observations.copy()
        for i in ended:
            observations[i] = infos[i]["terminal_observation"]
            truncated[i] = infos[i].get("TimeLimit.truncated", False)
    return observations, truncated


def _spec(env: VecEnv) -> EnvSpec | None:
    if isinstance(env.unwrapped, DummyVecEnv):
        spec: EnvSpec | None = env.get_attr("spec")[0]
        return spec
    # The spec of an environment in another process can't be sent if a wrapper holds a lambda. Its
    # text always can, and ends in the id: <TimeLimit<CartPoleEnv<CartPole-v1>>>.
    found = re.search(r"<([^<>]+)>+$", str(env.env_method("__str__")[0]))
    return gym.registry.get(found[1]) if found else None


def _inner_env(env: VecEnv) -> gym.Env[Any, Any] | None:
    """Return the environment that the agent sees, if it sees it as it is."""
    while isinstance(env, VecMonitor):
        env = env.venv
    if not isinstance(env, DummyVecEnv):
        return None
    inner = env.envs[0]
    while isinstance(inner, Monitor):
        inner = inner.env
    return inner


@contextmanager
def _as_file(path: _Path) -> Iterator[Path]:
    """Give the name of a file that may have been left without its suffix, or is open already."""
    if isinstance(path, io.BufferedIOBase):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "model.zip")
            file.write_bytes(path.read())
            yield file
        return
    file, zipped = Path(path), Path(f"{path}.zip")
    yield zipped if zipped.exists() and not file.exists() else file
