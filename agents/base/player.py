"""Who plays by a policy: answers, returns, and the environment to play in."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray
from oda_rl.agents.base.loop import play_compiled
from oda_rl.agents.base.loops import play
from oda_rl.agents.base.settings import Settings
from oda_rl.agents.base.training import episodes_line
from oda_rl.agents.environments.adaptation import adapted, adapted_vector
from oda_rl.agents.environments.making import generator_of, make_env, set_generator
from oda_rl.agents.environments.origins import Origin, origin_of, separate_env
from oda_rl.agents.environments.spaces import AnyEnv, Interface, spaces_of
from oda_rl.agents.environments.validation import checked_batch, checked_points
from oda_rl.agents.policies.contract import Policy
from oda_rl.envs.dynamics import compiled_dynamics


class Player(ABC):
    """Plays by its policy; what it learns from that is an agent's business."""

    config: Settings
    env_id: str | None
    named_by_file: bool = False
    """Whether a file says what its environment is, so that no module is imported for that."""
    interface: Interface

    _most_features = 1024  # beyond, steps cost more than in proportion
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

        One with other spaces than it was trained with is refused (ValueError).
        """
        return self._env

    @env.setter
    def env(self, env: AnyEnv | None) -> None:
        if env is not None:
            self._check_spaces(env)
        self._attach(env)

    def _attach(self, env: AnyEnv | None) -> None:
        """Take an environment for its own, whatever its spaces."""
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
            False explores as training does at present, but holds no action.

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
        n_episodes: int = 100,
        env: gym.Env[Any, Any] | None = None,
        seed: int | None = None,
        progress_bar: bool = False,
    ) -> FloatArray:
        """Play greedily and return the returns, shape (n_episodes,); nothing is learned.

        Parameters
        ----------
        n_episodes : int
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
        count = checked_count("n_episodes", n_episodes)
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
        """Draw as many random actions, in the form in which a policy has them."""
        return self._rngs["predict"].integers(self.interface.n_actions, size=len(acts))

    def _greedy(self, observation: Any) -> Any:
        """Return what the adapted environment takes for what it has returned."""
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
        if found.n_features > self._most_features:
            raise ValueError(
                f"observation_space is {spaces_of(self._env)[0]}: its {found.n_features:,} "
                f"components are too many for {type(self).__name__}, at most "
                f"{self._most_features:,}; gymnasium.wrappers.TransformObservation can make a few "
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
                own = copy.deepcopy(self._rngs["env"])
                env.unwrapped.reset(seed=int(own.integers(2**31)))
            set_generator(env, state)
            self._env_seeded = True

    def _env_generator(self) -> dict[str, Any] | None:
        """Return the state of its environment's generator, once it has learned there."""
        return generator_of(self._env) if self._env_seeded else self._env_rng

    def _require_env(self) -> AnyEnv:
        """Return the environment, made by now, with the spaces that engines work with."""
        if self._inside is None:
            self._attach(self._made_anew(learning=True))  # which has the same spaces
        assert self._inside is not None
        return self._inside

    def _made_anew(self, learning: bool, render_mode: str | None = None) -> gym.Env[Any, Any]:
        """Make an environment of what a file says about the one that the agent was trained in."""
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


def checked_count(name: str, value: int) -> int:
    """Return ``value`` as an int; raise ValueError unless it is an integer of at least 1."""
    if int(value) != value or value < 1:
        raise ValueError(f"{name} is {value!r}: it must be an integer of at least 1")
    return int(value)
