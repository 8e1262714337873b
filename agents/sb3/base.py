"""The base of our agents as algorithms of Stable-Baselines3: training loop, log and files."""

import io
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from oda_rl._types import Array
from oda_rl.agents.base import files as saving
from oda_rl.agents.base.agent import Agent
from oda_rl.agents.base.engine import VectorStep
from oda_rl.agents.base.loops import matrix
from oda_rl.agents.base.progress import deferred_interrupt
from oda_rl.agents.base.settings import checked_count
from oda_rl.agents.environments.making import EnvFirst, given_env
from oda_rl.agents.environments.origins import Origin
from oda_rl.files.schema import conforms, reading, require

try:
    import torch
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.policies import BasePolicy
    from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, PyTorchObs
    from stable_baselines3.common.utils import get_system_info, safe_mean
    from stable_baselines3.common.vec_env import VecEnv

    from oda_rl.agents.sb3 import environments
    from oda_rl.agents.sb3.environments import described, item
except ImportError as error:
    raise ImportError(
        "oda_rl.agents.sb3 needs Stable-Baselines3: pip install 'oda-rl[sb3]'"
    ) from error

AnyPath = str | Path | io.BufferedIOBase

_SETTINGS = {"verbose": 0, "tensorboard_log": None, "stats_window_size": 100}
_SAVED: dict[str, Any] = {
    "seed": int | None, "verbose": int, "tensorboard_log": str | None, "stats_window_size": int,
    "num_timesteps": int, "episodes": int,
}  # fmt: skip


class CellsPolicy(BasePolicy):
    """The policy of an agent, without a network; spaces are those of the environment."""

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], agent: Agent
    ) -> None:
        super().__init__(observation_space, action_space)
        self.agent = agent

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> torch.Tensor:
        if isinstance(observation, torch.Tensor):
            array: Any = observation.numpy()
        else:
            array = {name: part.numpy() for name, part in observation.items()}
        return torch.as_tensor(self.agent.predict(array, deterministic=deterministic)[0])

    def forward(self, observation: PyTorchObs, deterministic: bool = False) -> torch.Tensor:
        return self._predict(observation, deterministic)

    def save(self, path: str) -> None:
        raise NotImplementedError("a policy has no file of its own: save the model: model.save")


class Algorithm(EnvFirst, BaseAlgorithm):
    """Base of our algorithms; see ``TwoTimescale``."""

    agent: Agent  #: The plain agent, which learns.
    policy: CellsPolicy

    _agent_class: ClassVar[type[Agent]]
    _load_keywords: ClassVar[tuple[str, ...]] = ()
    _started = 0.0  # start of the training, had it been without breaks
    _next: Array | None = None  # next actions in several environments

    def __init__(
        self,
        env: GymEnv | str,
        seed: int | None = None,
        *,
        verbose: int = 0,
        tensorboard_log: str | None = None,
        stats_window_size: int = 100,
        monitor_wrapper: bool = True,
        **config: Any,
    ) -> None:
        self._set_up(
            env, seed, verbose=verbose, tensorboard_log=tensorboard_log,
            stats_window_size=stats_window_size, monitor_wrapper=monitor_wrapper,
        )  # fmt: skip
        self._config = config
        self._setup_model()

    def _set_up(self, env: GymEnv | str | None, seed: int | None, **settings: Any) -> None:
        log = settings.pop("tensorboard_log")
        made: Any = given_env(env) if isinstance(env, str) else env
        super().__init__(
            policy=CellsPolicy,
            env=made,
            learning_rate=0.0,  # there is no network
            tensorboard_log=None if log is None else str(log),
            device="cpu",
            support_multi_env=True,
            seed=seed,
            **settings,
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
            raise ValueError("env is None: it must be an environment or its id")
        self._use(self._agent_class(described(self.env), seed=self.seed, **self._config))

    def _use(self, agent: Agent) -> None:
        agent.check_n_envs(self.n_envs)
        self.agent = agent
        self.policy = CellsPolicy(self.observation_space, self.action_space, agent)
        self._connect_env()

    def _connect_env(self) -> None:
        """Give the environment to the agent, and seed it as the agent's ``learn`` would."""
        if self.env is None:
            return
        env = environments.inner_env(self.env)
        self.agent.env = env
        self.agent.env_id = env.spec.id if env is not None and env.spec is not None else None
        if env is None:
            self.agent._origin = Origin(None, type(self.env).__name__, fault="which no file holds")
        if self.seed is not None:
            self.set_random_seed(self.agent.draw_env_seed())

    def learn(
        self,
        total_timesteps: int | float,
        callback: MaybeCallback = None,
        log_interval: int | None = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train for ``total_timesteps`` more environment steps.

        A rollout is an episode. Callbacks are called after the agent has learned from the step.

        Parameters
        ----------
        total_timesteps : int
            At least 1.
        callback : callable, BaseCallback or list of BaseCallback, optional
            Called after each step; returning False stops training.
        log_interval : int or None
            Episodes between two entries of the log; None writes none.
        tb_log_name : str, optional
            Name of the run in TensorBoard; by default that of the class.
        reset_num_timesteps : bool
            True resets the step counter and the environment; False continues the last call. The
            agent keeps what it has learned.
        progress_bar : bool
            Show Stable-Baselines3's progress bar, which needs tqdm and rich.

        Raises
        ------
        ValueError
            If there is no environment; other errors are those of :meth:`oda_rl.agents.Agent.learn`.
        """
        total_timesteps = checked_count("total_timesteps", total_timesteps)
        if self.env is None:
            raise ValueError("env is None: call set_env(env), or load the model with an env")
        if reset_num_timesteps or self._last_obs is None:
            self.agent.begin_episode()
            self._next = None
        name = tb_log_name or type(self).__name__
        total_timesteps, callback = self._setup_learn(
            total_timesteps, callback, reset_num_timesteps, name, progress_bar
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
        """Act and learn; return whether an episode has ended, and whether to continue."""
        last_obs = self._last_obs
        assert last_obs is not None
        before = item(last_obs, 0)
        if env.num_envs == 1:
            actions = np.array([self.agent.act(before)])
        elif self._next is None or self.agent.n_envs != env.num_envs:
            actions = self.agent.begin_in_all(last_obs)
        else:
            actions = self._next
        self._last_obs = self._next = None  # if the step fails, learning continues with a reset
        new_obs, rewards, dones, infos = env.step(actions)
        assert not isinstance(new_obs, tuple)
        next_obs, truncated = environments.next_observations(last_obs, new_obs, dones, infos)
        if dones.any():
            self.agent.training_seconds = time.perf_counter() - self._started
        normalize = self._vec_normalize_env
        if normalize is not None and normalize.norm_reward:  # returns are of the original rewards
            gains = normalize.get_original_reward() - rewards
            self.agent.add_to_returns(np.asarray(gains, dtype=np.float64))
        if env.num_envs == 1:
            after = item(next_obs, 0)
            ends = bool(dones[0] and not truncated[0]), bool(truncated[0])
            self.agent.update(before, actions[0], float(rewards[0]), after, *ends)
        else:
            interface, every = self.agent.interface, np.ones(len(rewards), dtype=np.bool_)
            ended = dones.astype(np.bool_)
            step = VectorStep(
                matrix(next_obs, interface),
                matrix(new_obs, interface),
                rewards.astype(np.float64),
                ended & ~truncated,
                truncated,
                learns=every,
                acts=every,
                begins=ended,
            )
            self._next = self.agent.advance(step)
        self.num_timesteps += env.num_envs
        self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)
        self._episode_num += int(dones.sum())
        self._last_obs, self._last_episode_starts = new_obs, dones
        self._update_info_buffer(infos, dones)
        callback.update_locals(locals())
        return bool(dones.any()), callback.on_step()

    @property
    def gamma(self) -> float:
        """Discount factor of the agent; 1 if it maximises returns without discount."""
        return float(getattr(self.agent.config, "gamma", 1.0))

    def dump_logs(self) -> None:
        seconds = max((time.time_ns() - self.start_time) / 1e9, sys.float_info.epsilon)
        steps = self.num_timesteps - self._num_timesteps_at_start
        if self.ep_info_buffer:
            for name, key in (("ep_rew_mean", "r"), ("ep_len_mean", "l")):
                mean = safe_mean([episode[key] for episode in self.ep_info_buffer])
                self.logger.record(f"rollout/{name}", mean)
        if self.ep_success_buffer:
            self.logger.record("rollout/success_rate", safe_mean(self.ep_success_buffer))
        self.logger.record("rollout/exploration_rate", self.agent.epsilon)
        self.logger.record("time/episodes", self._episode_num, exclude="tensorboard")
        self.logger.record("time/fps", int(steps / seconds))
        self.logger.record("time/time_elapsed", int(seconds), exclude="tensorboard")
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.record("train/cells", self.agent.n_cells)
        if not np.isnan(self.agent.temperature):
            self.logger.record("train/temperature", self.agent.temperature)
        self.logger.dump(step=self.num_timesteps)

    def set_env(self, env: GymEnv, force_reset: bool = True) -> None:
        """Continue in another environment.

        Parameters
        ----------
        env : gymnasium.Env or VecEnv
            An environment with the same spaces.
        force_reset : bool
            Begin with a reset in any case.

        Raises
        ------
        ValueError
            If the spaces or the number of environments differ.
        """
        wrapped = self._wrap_env(env, self.verbose)
        if wrapped.num_envs != self.n_envs:
            raise ValueError(
                f"env has {wrapped.num_envs} environments: it must have as many as the model, "
                f"{self.n_envs}; {type(self).__name__}.load(path, env=env) takes any number"
            )
        if self.env is None:  # the observation space of a saved model has no bounds
            self.agent._check_spaces(described(wrapped))
            self.observation_space = wrapped.observation_space
        super().set_env(wrapped, force_reset)
        self._connect_env()

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed the environment's next reset and its action space, unless ``seed`` is None.

        The agent's own generators are seeded by the constructor only.
        """
        if seed is not None:
            self.action_space.seed(seed)
            if self.env is not None:
                self.env.seed(seed)

    def save(
        self,
        path: AnyPath,
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        """Save the agent and the model's counters: arrays and JSON in a zip, nothing pickled.

        The agent's own class, ``load_agent`` and ``oda-rl`` load the file, too.

        Parameters
        ----------
        path : str, Path or file
            ``.zip`` is added to a name without a suffix.
        exclude, include
            Ignored.
        """
        if isinstance(path, io.BufferedIOBase):
            with tempfile.TemporaryDirectory() as folder:
                self.save(Path(folder, "model.zip"))
                path.write(Path(folder, "model.zip").read_bytes())
            return
        fields = {
            "seed": None if self.seed is None else int(self.seed),
            "verbose": self.verbose,
            "tensorboard_log": self.tensorboard_log,
            "stats_window_size": self._stats_window_size,
            "num_timesteps": self.num_timesteps,
            "episodes": self._episode_num,
        }
        file = Path(path)
        saving.save_file(self.agent, file if file.suffix else Path(f"{file}.zip"), sb3=fields)

    @classmethod
    def load(
        cls,
        path: AnyPath,
        env: GymEnv | str | None = None,
        device: torch.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Load a model that this class, or the plain agent's, has saved.

        Parameters
        ----------
        path : str, Path or file
            As for :meth:`save`; or a run folder.
        env : str, gymnasium.Env or VecEnv, optional
            Environment to learn in; ``predict`` needs none.
        device, custom_objects, force_reset
            Ignored: there is no network, nothing pickled, and learning begins with a reset.
        print_system_info : bool
            Print versions of the system.
        **kwargs
            ``verbose``, ``tensorboard_log`` and ``stats_window_size`` replace the saved values;
            ``partition`` as in :meth:`oda_rl.agents.TwoTimescaleAgent.load`.

        Raises
        ------
        TypeError
            For other keywords; other errors are those of :meth:`oda_rl.agents.Agent.load`.
        """
        if print_system_info:
            get_system_info()
        with _as_file(path) as name:
            file, metadata, arrays = saving.read(name)
        saved = metadata.get("sb3", {})
        with reading(file):
            _check_saved(saved)
        known = (*_SETTINGS, *cls._load_keywords)
        if unknown := sorted(set(kwargs) - set(known)):
            raise TypeError(
                f"load has unknown arguments {', '.join(unknown)}: it takes env, {', '.join(known)}"
            )
        model = cls.__new__(cls)
        settings = {
            name: kwargs.pop(name, saved.get(name, default)) for name, default in _SETTINGS.items()
        }
        model._set_up(env, saved.get("seed"), **settings)
        place = None if model.env is None else described(model.env)
        agent = saving.restored(cls._agent_class, file, metadata, arrays, place, *kwargs.values())
        if model.env is None:
            model.observation_space, model.action_space = environments.saved_spaces(agent.interface)
            model.n_envs = 1
        model.num_timesteps = saved.get("num_timesteps", agent.num_timesteps)
        model._episode_num = saved.get("episodes", agent.episodes.count)
        model._use(agent)
        return model


def _check_saved(saved: Any) -> None:
    """Raise InvalidFileError unless the part of a file that a model adds to its agent is valid."""
    require(isinstance(saved, dict) and saved.keys() <= _SAVED.keys(), f"sb3 is {saved!r:.80}")
    for name, value in saved.items():
        valid = conforms(value, _SAVED[name]) and (type(value) is not int or value >= 0)
        require(valid, f"sb3.{name} is {value!r}")
    require(saved.get("stats_window_size", 1) >= 1, "sb3.stats_window_size is 0")
    require((saved.get("seed") or 0) < 2**32, f"sb3.seed is {saved.get('seed')}")


@contextmanager
def _as_file(path: AnyPath) -> Iterator[Path]:
    """Yield the path of a file that may be open, or named without its suffix."""
    if isinstance(path, io.BufferedIOBase):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "model.zip")
            if path.seekable():
                path.seek(0)  # it may just have been written
            file.write_bytes(path.read())
            yield file
        return
    file, zipped = Path(path), Path(f"{path}.zip")
    yield zipped if zipped.exists() and not file.exists() else file
