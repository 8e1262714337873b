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

from oda_rl.agents import qlearning as ql
from oda_rl.agents import saving
from oda_rl.agents.base import Agent, checked_count
from oda_rl.agents.environments import make_env
from oda_rl.agents.fitted import FittedQAgent
from oda_rl.agents.spaces import Interface
from oda_rl.agents.training import deferred_interrupt
from oda_rl.agents.two_timescale import TwoTimescaleAgent

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
        "oda_rl.agents.sb3 needs Stable-Baselines3: pip install 'oda-rl[sb3]'"
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
            support_multi_env=True,  # refused below, with an explanation
            monitor_wrapper=monitor_wrapper,
            seed=seed,
        )
        if self.env is not None:
            self._refuse_many(self.env)

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        if isinstance(env, gym.vector.VectorEnv):
            raise ValueError(
                "env is a vector environment of Gymnasium: it must be an environment, or a vector "
                "environment of Stable-Baselines3 (make_vec_env with n_envs=1)"
            )
        return BaseAlgorithm._wrap_env(env, verbose, monitor_wrapper)

    def _setup_model(self) -> None:
        if self.env is None:
            raise ValueError("env is None: it must be an environment, or the id of one")
        place = _Described(self.env)
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

    def _refuse_many(self, env: VecEnv) -> None:
        if env.num_envs != 1:
            raise ValueError(
                f"env has {env.num_envs} environments: {type(self).__name__} learns along one "
                "trajectory, so it must have one (n_envs=1 of make_vec_env); predict and "
                "evaluate_policy take any number"
            )

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
                while go_on and not ended and self.num_timesteps < total_timesteps:
                    ended, go_on = self._step(self.env, callback)
                    if interrupt.requested:
                        raise KeyboardInterrupt
                callback.on_rollout_end()
                if ended and log_interval is not None and self._episode_num % log_interval == 0:
                    self.dump_logs()
        self.agent.training_seconds = time.perf_counter() - self._started
        callback.on_training_end()
        return self

    def _step(self, env: VecEnv, callback: BaseCallback) -> tuple[bool, bool]:
        """Act and learn; return whether the episode has ended, and whether to go on."""
        last_obs = self._last_obs
        assert isinstance(last_obs, np.ndarray)
        actions = np.array([self.agent.act(last_obs[0])])
        self._last_obs = None  # if the step fails, learning goes on with a reset
        new_obs, rewards, dones, infos = env.step(actions)
        assert isinstance(new_obs, np.ndarray)
        reward, ended = float(rewards[0]), bool(dones[0])
        self._learn_from(last_obs[0], int(actions[0]), reward, new_obs[0], ended, infos[0])
        self.num_timesteps += 1
        self._episode_num += ended
        self._last_obs, self._last_episode_starts = new_obs, dones
        self._update_info_buffer(infos, dones)
        callback.update_locals(locals())
        return ended, callback.on_step()

    def _learn_from(
        self,
        observation: npt.NDArray[Any],
        action: int,
        reward: float,
        after: npt.NDArray[Any],
        ended: bool,
        info: dict[str, Any],
    ) -> None:
        """Learn from a step; ``after`` an episode's end is the first observation of the next."""
        agent = self.agent
        truncated = ended and bool(info.get("TimeLimit.truncated", False))
        if ended:
            after = np.asarray(info["terminal_observation"], dtype=after.dtype)
            agent.training_seconds = time.perf_counter() - self._started
        normalize = self._vec_normalize_env
        if normalize is not None and normalize.norm_reward:  # an episode counts as it was rewarded
            original = float(normalize.get_original_reward()[0])
            agent._core.settings[ql.EPISODE_RETURN] += original - reward
        agent.update(observation, action, reward, after, ended and not truncated, truncated)

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
            If the spaces are others, or there is more than one environment in ``env``.
        """
        wrapped = self._wrap_env(env, self.verbose)
        self._refuse_many(wrapped)
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
            If the file is damaged, or not of this algorithm, or ``env`` has other spaces or more
            than one environment.
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
        place = None if model.env is None else _Described(model.env)
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
        An environment, the id of one, or a vector environment that holds one. Observations: Box of
        any shape; actions: Discrete.
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
        For settings out of range, an unknown environment id or partition, or a vector environment
        that holds more than one environment: there is one trajectory to learn along.
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
        An environment, the id of one, or a vector environment that holds one. Observations: Box of
        any shape; actions: Discrete.
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


class _Described(gym.Env[Any, Any]):
    """What an agent asks of an environment when it is made, of one in a vector environment."""

    def __init__(self, env: VecEnv) -> None:
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.spec = _spec(env)


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
