"""Base of everything that acts by a policy in an environment."""

import copy
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from oda_rl._threads import learns, one_thread
from oda_rl._types import FloatArray
from oda_rl.agents.base.compiled_loop import play_compiled
from oda_rl.agents.base.loops import Step, play
from oda_rl.agents.base.progress import episodes_line
from oda_rl.agents.base.settings import checked_count, checked_seed
from oda_rl.agents.environments import validation
from oda_rl.agents.environments.adaptation import WithOptions, adapted
from oda_rl.agents.environments.making import EnvFirst, generator_in, given_env, one_of
from oda_rl.agents.environments.names import named, with_actions, with_components
from oda_rl.agents.environments.origins import Origin, origin_of, separate_env
from oda_rl.agents.environments.spaces import AnyEnv, Interface, spaces_of
from oda_rl.agents.policies.contract import Policy
from oda_rl.envs.dynamics import compiled_dynamics

_MAX_DRAWN = 10_000  # steps of an episode that is looked at


@dataclass(frozen=True)
class Limits:
    """Limits of playing, in all, in an environment that a file names."""

    steps: int = 100_000_000
    seconds: float = 600.0

    def counted(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Yield the steps of playing; raise ValueError beyond the limits."""
        end = time.monotonic() + self.seconds
        for count, step in enumerate(steps, start=1):
            if count > self.steps or time.monotonic() > end:
                self.refuse()
            yield step

    def refuse(self) -> None:
        """Raise the ValueError."""
        raise ValueError(
            f"playing in the environment that the file names took more than {self.steps:,} steps "
            f"or {self.seconds:g} seconds: raise agent.limits, or --max-steps and --max-seconds of "
            "the command, if that is what you want"
        )


def returns_of(
    steps: Iterable[Step],
    count: int,
    report: Callable[[Sequence[float]], None] = lambda returns: None,
) -> FloatArray:
    """Return the returns of the first episodes of steps, shape (count,); report after each."""
    returns = [0.0]
    for _, reward, done in steps:
        returns[-1] += reward
        if done:
            report(returns)
            if len(returns) == count:
                break
            returns.append(0.0)
    return np.array(returns)


class Player(EnvFirst, ABC):
    """Base of everything that acts by a policy in an environment."""

    config: Any  # settings, ``action_bins`` among them
    env_id: str | None
    named_by_file: bool = False  # by which no module may be imported
    interface: Interface
    limits: Limits | None = None  # of playing in an environment that a file names

    _max_features = 256  # agents have a matrix of as many rows and columns for each cell
    _rngs: dict[str, np.random.Generator]
    _env_seeded = False
    _env_rng: dict[str, Any] | None = None  # generator state of the environment, from a file
    _env: AnyEnv | None = None
    _origin: Origin | None = None  # of an environment that has not been made
    _env_module: str | None = None  # module that registers the id
    _adapted_env: AnyEnv | None = None  # with the spaces that engines work with, unless several

    @property
    def env(self) -> AnyEnv | None:
        """Environment of training, as given or made from an id; None if there is none yet.

        Setting one with other spaces than it was trained with raises ValueError.
        """
        return self._env

    @env.setter
    def env(self, env: AnyEnv | None) -> None:
        if env is not None:
            self._check_spaces(env)
        self._origin = self.origin  # for None
        self._attach(env)
        self.limits = None

    def _attach(self, env: AnyEnv | None) -> None:
        self._env, self._adapted_env = env, None if env is None else self._adapted(env)

    def _check_spaces(self, env: AnyEnv) -> None:
        """Raise ValueError if an environment has other spaces than the agent was trained with."""
        interface = self._interface_of(self._adapted(one_of(env))).of_user(env, self._bins)
        if interface != self.interface:
            raise ValueError(f"env has {interface}: the agent was trained with {self.interface}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the observation's components; can be set."""
        return self.interface.names

    @names.setter
    def names(self, names: Sequence[str] | None) -> None:
        self.interface = with_components(self.interface, names)

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions, or of the components of a continuous one; can be set.

        For MultiDiscrete and MultiBinary actions, and a grid, a sequence with a name, or a list of
        names of its values, for each component gives the names of all combinations.
        """
        return self.interface.action_names

    @action_names.setter
    def action_names(self, names: Sequence[Any] | None) -> None:
        self.interface = with_actions(self.interface, names)

    @property
    def origin(self) -> Origin | None:
        """Description of its current environment; None if only its id is known."""
        return self._origin if self._env is None else origin_of(self._env, self._env_module)

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """Policy that the agent has learned; it needs nothing else to act."""

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
        """Current probability of a random action, or random decision, in training."""

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
            (of each part of a Dict or Tuple). Instead of Dicts and Tuples, vectors such as
            ``codevectors`` are accepted: parts of a Dict follow one another by sorted keys.
        state, episode_start
            Ignored; ``state`` is returned.
        deterministic : bool
            False explores as training does at present, but repeats no action.

        Returns
        -------
        action
            From the environment's action space: int64, or ndarray; for a batch, shape (n, ...).
        state

        Raises
        ------
        ValueError
            If the observation is not of the space, or not finite.
        """
        points, single = validation.checked_batch(observation, self.interface)
        acts = self.policy.act(points)
        if not deterministic:
            explore = self._rngs["predict"].random(len(acts)) < self.epsilon
            acts = np.where(explore.reshape(-1, *[1] * (acts.ndim - 1)), self._random(acts), acts)
        actions = self.interface.performed(acts)
        return (actions[0] if single else actions), state

    @one_thread()
    def cell(self, observation: Any) -> Any:
        """Return the cell, a row of ``codevectors``: an int, or for a batch an array, shape (n,).

        Parameters
        ----------
        observation
            As for :meth:`predict`, like the errors that are raised.
        """
        points, single = validation.checked_batch(observation, self.interface)
        cells = self.policy.cells(points)
        return int(cells[0]) if single else cells

    @one_thread()
    def evaluate(
        self,
        n_eval_episodes: int = 100,
        env: str | gym.Env[Any, Any] | None = None,
        seed: int | None = None,
        progress_bar: bool = False,
        max_episode_steps: int | None = None,
        reset_options: dict[str, Any] | None = None,
    ) -> FloatArray:
        """Play greedy episodes and return the returns, shape (n_eval_episodes,); learn nothing.

        Parameters
        ----------
        n_eval_episodes : int
            At least 1.
        env : str or gymnasium.Env, optional
            Where to play. By default an environment like the agent's is made, with the numbers,
            texts and arrays in its attributes that are constants, or its own is copied; running
            statistics of wrappers are those at present. If that is impossible, episodes are played
            in its own, with a warning: begin your next episode with a reset then.
        seed : int, optional
            Seed of the environment's first reset.
        progress_bar : bool
            Show progress, unless episodes are played in compiled code.
        max_episode_steps : int, optional
            Steps after which an episode that has not ended is cut off, with a warning. By default
            ten times the longest training episode, and at least 10,000.
        reset_options : dict, optional
            ``options`` of each reset.

        Raises
        ------
        ValueError
            If ``env`` has other spaces than the agent, or cannot be made while the agent learns in
            its own, or playing goes beyond ``limits``.
        """
        count, seed = checked_count("n_eval_episodes", n_eval_episodes), checked_seed(seed)
        limit = max(10_000, 10 * self._longest_episode)
        if max_episode_steps is not None:
            limit = checked_count("max_episode_steps", max_episode_steps)
        place = self._evaluation_env(env, reset_options)
        with place as made, episodes_line(count, progress_bar) as report:
            compiled, policy = compiled_dynamics(made), self.policy.in_loops
            ends = compiled is not None and compiled.max_episode_steps <= limit
            if compiled is not None and ends and policy is not None:
                first, _ = made.reset(seed=seed)
                limits = (self.limits if env is None else None) or Limits(steps=2**62)
                returns = play_compiled(compiled, policy, first, count, limits.steps)
                if len(returns) < count:
                    limits.refuse()
            else:
                steps = self._counted(env, play(made, self._greedy, seed, limit))
                returns = returns_of(steps, count, report)
        if env is None and reset_options is None:
            self._judge(returns, seed)
        return returns

    def _judge(self, returns: FloatArray, seed: int | None) -> None:
        """Look at the returns in its own kind of environment; only agents do."""

    def evaluate_random(self, n_eval_episodes: int = 20, seed: int | None = None) -> FloatArray:
        """Play episodes of uniformly random actions, which any policy should beat.

        Arguments and results are those of :meth:`evaluate`. The actions have a seed derived from
        ``seed``: with the same one they would follow the environment's own random numbers.
        """
        count, seed = checked_count("n_eval_episodes", n_eval_episodes), checked_seed(seed)
        limit = max(10_000, 10 * self._longest_episode)
        with self._evaluation_env(None) as made:
            made.action_space.seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
            steps = play(made, lambda observation: made.action_space.sample(), seed, limit)
            return returns_of(self._counted(None, steps), count)

    @one_thread()
    def visited_states(
        self, n_steps: int, env: str | gym.Env[Any, Any] | None = None, seed: int | None = None
    ) -> FloatArray:
        """Play greedily and return the observations, flattened, shape (n_steps, d).

        Parameters
        ----------
        n_steps : int
            At least 1.
        env, seed
            As in :meth:`evaluate`.
        """
        count, seed = checked_count("n_steps", n_steps), checked_seed(seed)
        with self._evaluation_env(env) as made:
            steps = islice(self._counted(env, play(made, self._greedy, seed)), count)
            states = [np.ravel(observation) for observation, _, _ in steps]
        return np.array(states, dtype=np.float64)

    @one_thread()
    def episode(self, seed: int | None = None) -> tuple[FloatArray, npt.NDArray[Any], FloatArray]:
        """Play a greedy episode, of at most 10,000 steps.

        Parameters
        ----------
        seed : int, optional
            As in :meth:`evaluate`.

        Returns
        -------
        observations : ndarray, shape (T, d)
        actions : ndarray, shape (T,), or (T, p)
            Numbers of the actions from 0, or the p components of continuous ones.
        rewards : ndarray, shape (T,)
        """
        states, rewards = [], []
        with self._evaluation_env(None) as made:
            steps = self._counted(None, play(made, self._greedy, checked_seed(seed)))
            for state, reward, done in islice(steps, _MAX_DRAWN):
                states.append(np.ravel(state))
                rewards.append(reward)
                if done:
                    break
        points = np.array(states, dtype=np.float64)
        acts = self.policy.act(points)
        if self.interface.box is not None:
            acts = self.interface.box.actions(acts).reshape(len(acts), -1)
        return points, acts, np.array(rewards)

    def _counted(self, env: Any, steps: Iterator[Step]) -> Iterator[Step]:
        """Limit the steps of playing unless ``env`` is given."""
        return steps if env is not None or self.limits is None else self.limits.counted(steps)

    @property
    def _longest_episode(self) -> int:
        return 0

    def draw_env_seed(self) -> int:
        """Draw a seed for the environment's reset."""
        return int(self._rngs["env"].integers(2**31))

    def _random(self, acts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Draw random actions in the form and shape of these actions of a policy."""
        if acts.ndim > 1:
            return self._rngs["predict"].uniform(-1.0, 1.0, acts.shape)
        return self._rngs["predict"].integers(self.interface.n_actions, size=len(acts))

    def _greedy(self, observation: Any) -> Any:
        """Return the greedy action, for the adapted environment, in its observation."""
        try:
            point = validation.checked_points(observation, self.interface)
        except ValueError:
            validation.check_values(observation, 0.0, self.interface)  # names the component
            raise
        return self.interface.actions(self.policy.act(point))[0]

    @property
    def _bins(self) -> int:
        """Number of values of each component of a continuous action in a grid of actions."""
        return int(self.config.action_bins)

    def _interface(
        self, names: Sequence[str] | None = None, action_names: Sequence[Any] | None = None
    ) -> Interface:
        """Read the spaces of its environment; with other names, if some are given."""
        assert self._env is not None
        interface = self._interface_of(self._adapted(one_of(self._env)))
        if interface.n_features > self._max_features:
            raise ValueError(
                f"observation_space is {spaces_of(self._env)[0]}: its {interface.n_features:,} "
                f"components are too many for {type(self).__name__}, at most "
                f"{self._max_features:,}; gymnasium.wrappers.TransformObservation can make a few "
                "features of them, ResizeObservation and GrayscaleObservation smaller images"
            )
        interface = named(interface.of_user(self._env, self._bins), self._env)
        return with_actions(with_components(interface, names), action_names)

    def _interface_of(self, env: AnyEnv) -> Interface:
        return Interface.of(env)

    def _reset_env(self, env: AnyEnv) -> Any:
        """Reset, with a seed the first time, and return the observation."""
        self._restore_env_rng(env)
        seed = None if self._env_seeded else self.draw_env_seed()
        self._env_seeded = True
        return validation.checked_reset(env, 0, seed)

    def _restore_env_rng(self, env: AnyEnv, reset: bool = True) -> None:
        """Continue the random numbers of the saved environment; a reset seeds other generators."""
        state, self._env_rng = self._env_rng, None
        if state is not None and isinstance(env, gym.Env):
            if reset:
                rng = copy.deepcopy(self._rngs["env"])
                env.unwrapped.reset(seed=int(rng.integers(2**31)))
            env.unwrapped.np_random = generator_in(state)
            self._env_seeded = True

    def _require_env(self) -> AnyEnv:
        """Return the adapted environment; make it if necessary."""
        if self._adapted_env is None:
            self._attach(self._remake_env(learning=True) if self._env is None else self._env)
        assert self._adapted_env is not None
        return self._adapted_env

    def _remake_env(self, learning: bool, render_mode: str | None = None) -> gym.Env[Any, Any]:
        """Make an environment as a file describes the one that the agent was trained in."""
        origin = self._origin
        if origin is None:
            raise ValueError(
                "env is None: set agent.env, or load the agent with load(path, env=...); evaluate "
                "takes env=, too"
            )
        if origin.obstacle is not None:
            raise ValueError(
                f"env is None, and the agent was trained in {origin.obstacle}: set agent.env, or "
                "give env= to load or evaluate"
            )
        if self.named_by_file:
            if module := origin.untrusted_module():
                raise ValueError(
                    f"env is None, and the file names {self.env_id!r}, for which the module "
                    f"{module!r} would be imported: load it with load(path, env=...), or "
                    "--trust-env in the command, if that is what you want"
                )
            origin.check_numbers(self.interface)
        made = origin.make(learning, render_mode)
        self._check_spaces(made)
        return made

    def make_separate_env(self, render_mode: str | None = None) -> gym.Env[Any, Any]:
        """Make another environment like its own, or like those in its vector environment."""
        if self._env is None:
            return self._remake_env(learning=False, render_mode=render_mode)
        try:
            return separate_env(self._env, render_mode)
        except ValueError as error:
            own = self._env
            if learns(self) or render_mode is not None or not isinstance(own, gym.Env):
                busy = ", or evaluate after learn, not in a callback" * learns(self)
                raise ValueError(f"{error}: give env= to evaluate{busy}") from error
            warnings.warn(
                f"{error}; episodes are played in the environment itself: begin your next episode "
                "with a reset",
                stacklevel=6,
            )
            return own

    def _adapted(self, env: AnyEnv) -> AnyEnv:
        """Wrap an environment so that it has the spaces that engines work with, or TypeError."""
        return env if isinstance(env, VectorEnv) else adapted(env, self._bins)

    @contextmanager
    def _evaluation_env(
        self, env: str | gym.Env[Any, Any] | None, reset_options: dict[str, Any] | None = None
    ) -> Iterator[gym.Env[Any, Any]]:
        """Give the adapted environment to play in: the given one, or a new one, closed after."""
        made = self.make_separate_env() if env is None else given_env(env)
        if isinstance(made, VectorEnv):
            raise TypeError(
                f"env is {made}: it must be one environment; stable_baselines3's evaluate_policy "
                "plays in several"
            )
        if env is not None:
            self._check_spaces(made)
        adapted_env = self._adapted(made)
        assert isinstance(adapted_env, gym.Env)
        try:
            yield adapted_env if reset_options is None else WithOptions(adapted_env, reset_options)
        finally:
            if made is not env and made is not self._env:
                adapted_env.close()
