"""The world that an agent has learned, to be asked: what comes next, what would come, how sure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from oda_rl._threads import one_thread
from oda_rl._types import BoolArray, FloatArray
from oda_rl.agents.base.settings import checked_count
from oda_rl.agents.environments.making import make_env, spec_of, time_limit
from oda_rl.agents.environments.spaces import (
    AnyEnv,
    Interface,
    Spaces,
    described,
    matching_names,
    spaces_of,
)
from oda_rl.agents.environments.validation import checked_batch, checked_points
from oda_rl.agents.offline.transitions import Transitions
from oda_rl.agents.policies.contract import Policy
from oda_rl.agents.worlds import learning
from oda_rl.agents.worlds.coordinates import Coordinates
from oda_rl.agents.worlds.learning import Learned, learn_world, predict
from oda_rl.agents.worlds.logs import (
    actions_of,
    checked_codes,
    checked_log,
    codes_of_acts,
    trajectories,
)
from oda_rl.agents.worlds.quality import Replayed, Report, Trust, judge, replay_held_out
from oda_rl.agents.worlds.trajectories import (
    Decide,
    Imagined,
    forecast_text,
    one_law,
    starts_between,
    walk,
    without_noise,
)

_LAWS = 4
_HORIZON = 1000

AnyPolicy = Policy | Callable[[npt.NDArray[Any]], Any]


@dataclass(frozen=True, eq=False)
class World:
    """A learned world: laws of motion, rewards and ends.

    ``agent.world`` is that of a :class:`~oda_rl.agents.model.agent.ModelAgent`; :meth:`fit` learns
    one from logged transitions alone. It has several laws of equal right, an ensemble.

    Examples
    --------
    A puck on ice, pushed to the left or to the right, until it is off the table:

    >>> rng = np.random.default_rng(0)
    >>> before = rng.uniform(-1.0, 1.0, size=(400, 2))
    >>> actions = rng.integers(2, size=400)
    >>> speed = before[:, 1] + 0.2 * (2 * actions - 1)
    >>> after = np.column_stack([before[:, 0] + 0.1 * speed, speed])
    >>> off = np.abs(after[:, 0]) > 0.9
    >>> table = spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(2)
    >>> world = World.fit(before, actions, np.zeros(400), after, off, env=table, seed=0)
    >>> following, reward, terminated = world.predict([0.5, 0.5], 1)
    >>> following.round(3), terminated
    (array([0.57, 0.7 ]), False)
    >>> print(world.forecast([0.6, 0.2], names=["place", "speed"], policy=lambda state: 1))
    in 5 steps place passes 0.9: the episode ends
    """

    learned: Learned
    """Its arrays, and how they were learned."""
    interface: Interface
    """What observations and actions are."""
    seen: learning.CodedSteps
    """The steps it was learned from."""
    first: BoolArray | None = None
    """Which of them began an episode, if that is known, shape (n,)."""
    horizon: int = _HORIZON
    """Steps of an episode, at most."""
    policy: Policy | None = None
    """What :meth:`forecast` plays."""
    names: tuple[str, ...] | None = None
    """Of the observation's components."""
    step_seconds: float | None = None
    """Duration of a step."""

    @classmethod
    @one_thread()
    def fit(
        cls,
        observations: Any,
        actions: Any = None,
        rewards: Any = None,
        next_observations: Any = None,
        terminated: Any = None,
        *,
        env: str | AnyEnv | Spaces,
        seed: int | None = None,
    ) -> Self:
        """Learn a world from logged transitions alone.

        A step belongs to the same episode as an earlier one if it begins where that one led to.

        Parameters
        ----------
        observations, next_observations : array_like, shape (n, ...)
            Before and after each step, in the shape of the observation space; in the order in which
            they were made. Or one thing that has all of it, in place of the first five: a data
            frame, a Minari dataset, or what else :meth:`oda_rl.agents.Transitions.of` reads.
        actions : array_like, shape (n,), or (n, ...) where the action space is a Box
            As the environment has them.
        rewards : array_like, shape (n,)
        terminated : array_like of bool, shape (n,)
            Whether the episode terminated with the step; not where it was only cut off.
        env : str, gymnasium.Env, or (observation_space, action_space)
            Says what is observed and done; it is not played in.
        seed : int, optional
            Of the cells, the sinusoids and the ensemble.

        Raises
        ------
        TypeError
            If the observation space is no Box, or the action space neither Discrete nor a Box.
        ValueError
            For wrong shapes, values that are not finite, or actions out of their space.
        """
        arrays = observations, actions, rewards, next_observations, terminated
        given = Transitions.of(observations if actions is None else arrays)
        place = _place(env)
        boxed = isinstance(spaces_of(place)[1], spaces.Box)
        interface = Interface.of(place, 1 if boxed else None)
        seen = checked_log(given, interface)
        rng = np.random.default_rng(_checked_seed(seed))
        learned = learn_world(seen, -math.inf, boxed, _LAWS, None, rng)
        spec = spec_of(place)
        horizon = time_limit(place) or max(map(len, trajectories(seen)))
        names = matching_names(None if spec is None else spec.id, interface)[0]
        return cls(learned, interface, seen, None, horizon, None,
                   None if names is None else tuple(names), seconds_of(place))  # fmt: skip

    @property
    def n_laws(self) -> int:
        """Members of the ensemble."""
        return len(self.learned.arrays.laws)

    @one_thread()
    def predict(
        self, observation: npt.ArrayLike, action: npt.ArrayLike, law: int | None = None
    ) -> tuple[FloatArray, Any, Any]:
        """Say what a step leads to: the expected one, without noise.

        Parameters
        ----------
        observation : array_like
            One observation, or a batch with one more leading dimension.
        action : array_like
            One action of the environment, or a batch of as many.
        law : int, optional
            Number of the law that is asked; by default the mean of all is taken, and of ends the
            majority.

        Returns
        -------
        next_observation : ndarray, shape (...) or (n, ...)
        reward : float, or ndarray of shape (n,)
        terminated : bool, or ndarray of shape (n,)

        Raises
        ------
        ValueError
            If an observation has another shape or is not finite, or an action is not in its space.
        """
        points = checked_batch(observation, self.interface)
        one = self.interface.is_one(observation)
        if one:
            codes = checked_codes("action", np.asarray(action)[None], 1, self.interface)
        else:
            codes = checked_codes("action", action, len(points), self.interface)
        after, rewards, terminated = self._expected(points, codes, law)
        following = after.reshape(-1, *self.interface.observation_shape)
        if one:
            return following[0], float(rewards[0]), bool(terminated[0])
        return following, rewards, terminated

    @one_thread()
    def imagine(
        self,
        policy: AnyPolicy,
        n: int,
        horizon: int | None = None,
        seed: int | None = None,
    ) -> Imagined:
        """Imagine episodes from starts between those that have been seen.

        Each is played by one of the laws, with noise where the laws have left some. Where it comes
        too far from all that has been seen it is *lost*, and goes no further.

        Parameters
        ----------
        policy : Policy or callable
            A policy (``agent.policy``), or a function from an observation to an action.
        n : int
            Number of episodes.
        horizon : int, optional
            Steps of each, at most; by default the environment's limit.
        seed : int, optional
            Of the starts, and of the noise.

        Returns
        -------
        Imagined
            ``observations`` (n, T + 1, d), ``actions``, ``rewards``, ``lengths``, ``ended``,
            ``lost``; NaN beyond an episode's end.

        Raises
        ------
        TypeError
            If the policy is neither a policy nor a function.
        ValueError
            If ``n`` or ``horizon`` is below 1, or a function returns what is no action.
        """
        steps = self.horizon if horizon is None else checked_count("horizon", horizon)
        count = checked_count("n", n)
        rng = np.random.default_rng(_checked_seed(seed))
        starts = self.draw_starts(count, rng)
        return self._walk(self.learned.arrays, policy, starts, steps, rng)

    @one_thread()
    def forecast(
        self,
        observation: npt.ArrayLike,
        horizon: int = 50,
        names: Sequence[str] | None = None,
        policy: AnyPolicy | None = None,
    ) -> str:
        """Say what will happen from a state, if the policy is played.

        Parameters
        ----------
        observation : array_like
            One observation.
        horizon : int
            Steps to look ahead.
        names : sequence of str, optional
            Names of all components of the observation; by default those of known environments.
            What stands in brackets at the end of a name is a unit.
        policy : Policy or callable, optional
            As in :meth:`imagine`; by default the one that the agent delivers.

        Raises
        ------
        ValueError
            If the observation has another shape or is not finite, or there is no policy.
        """
        played = self.policy if policy is None else policy
        if played is None:
            raise ValueError(
                "policy is None, and no agent has passed its own: give a policy, or a function "
                "from an observation to an action"
            )
        start = checked_points(self.interface.point("observation", observation), self.interface)
        known, steps = self.checked_names(names), checked_count("horizon", horizon)
        arrays = without_noise(self.learned.arrays)
        starts = np.repeat(start, self.n_laws, axis=0)
        imagined = self._walk(arrays, played, starts, steps, np.random.default_rng(0))
        return forecast_text(arrays, self.learned.at, imagined, known, self.step_seconds)

    @cached_property
    def _report(self) -> Report:
        names = self.checked_names(None)
        return judge(self.learned, self.seen, self.first, names, np.random.default_rng(0))

    def report(self) -> Report:
        """Say how good it is, by models that are fitted without the stretches they are asked about.

        It takes about as long as to learn the world; the second time it is at hand.
        """
        return self._report

    @property
    def trust(self) -> Trust:
        """Whether it is to be believed, and why: the last line of :meth:`report`."""
        return self._report.trust

    @one_thread()
    def replayed(self, steps: int = 100, seed: int | None = 0) -> Replayed:
        """Do the actions at the end of the longest episode again, in a model without them.

        Parameters
        ----------
        steps : int
            How many, at most; and never more than a third of all.
        seed : int, optional
            Of that model.
        """
        count = checked_count("steps", steps)
        rng = np.random.default_rng(_checked_seed(seed))
        return replay_held_out(self.learned, self.seen, self.first, count, rng)

    def draw_starts(
        self, n: int, rng: np.random.Generator, others: FloatArray | None = None
    ) -> FloatArray:
        """Draw states between those in which episodes have begun, and others, shape (n, d)."""
        known = self._starts if others is None else np.concatenate([self._starts, others])
        return starts_between(known, self.learned.at, n, rng)

    @cached_property
    def _starts(self) -> FloatArray:
        if self.first is not None and self.first.any():
            return self.seen.before[self.first]
        return np.array([self.seen.before[rows[0]] for rows in trajectories(self.seen)])

    def _expected(
        self, points: FloatArray, codes: FloatArray, law: int | None
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        arrays, n_laws, at = self.learned.arrays, self.n_laws, self.learned.at
        if law is not None:
            if int(law) != law or not 0 <= law < n_laws:
                raise ValueError(f"law is {law!r}: it must be an integer from 0 to {n_laws - 1}")
            return predict(one_law(arrays, int(law)), points, codes)[:3]
        each = np.repeat(points, n_laws, axis=0), np.repeat(codes, n_laws, axis=0)
        after, rewards, ended, _ = predict(without_noise(arrays), *each)
        mean = at.on_circles(after.reshape(-1, n_laws, after.shape[1]).mean(axis=1))
        share = ended.reshape(-1, n_laws).mean(axis=1)
        return _levelled(mean, at), rewards.reshape(-1, n_laws).mean(axis=1), share > 0.5

    def _walk(
        self,
        arrays: Any,
        policy: AnyPolicy,
        starts: FloatArray,
        steps: int,
        rng: np.random.Generator,
    ) -> Imagined:
        def act(codes: FloatArray) -> npt.NDArray[Any]:
            return actions_of(codes, self.interface)

        return walk(arrays, self._decide(policy), act, starts, steps, rng)

    def _decide(self, policy: AnyPolicy) -> Decide:
        interface = self.interface
        delivered: Any = getattr(policy, "policy", policy)  # that of an agent
        if hasattr(delivered, "act") and hasattr(delivered, "codevectors"):
            d = delivered.codevectors.shape[1]
            if d != interface.n_features:
                raise ValueError(
                    f"policy takes observations of {d} components: it must take "
                    f"{interface.n_features}"
                )
            return lambda points: codes_of_acts(delivered.act(points), interface)
        if not callable(delivered):
            raise TypeError(f"policy is {policy!r}: it must be a policy or a function")

        def decide(points: FloatArray) -> FloatArray:
            shaped = points.reshape(-1, *interface.observation_shape)
            actions = np.array([np.asarray(delivered(point)) for point in shaped])
            return checked_codes("policy(observation)", actions, len(points), interface)

        return decide

    def checked_names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """Return names of the components: those given, those known, or numbers."""
        d = self.interface.n_features
        if names is None:
            return self.names or tuple(f"observation[{j}]" for j in range(d))
        if isinstance(names, str) or len(names) != d:
            raise ValueError(
                f"names is {names!r}: it must be a sequence of {d}, one for each component of the "
                "observation"
            )
        return tuple(map(str, names))


def seconds_of(env: AnyEnv | None) -> float | None:
    """Return how long a step takes, where the environment says so as ``tau`` or ``dt``.

    >>> seconds_of(make_env("CartPole-v1")), seconds_of(make_env("MountainCar-v0"))
    (0.02, None)
    """
    for name in ("tau", "dt"):
        value = getattr(getattr(env, "unwrapped", None), name, None)
        if isinstance(value, float) and 0.0 < value < math.inf:
            return value
    return None


def _place(env: str | AnyEnv | Spaces) -> AnyEnv:
    if isinstance(env, str):
        return make_env(env)
    place: Any = described(env)
    if not hasattr(place, "action_space"):
        raise TypeError(
            f"env is {env!r}: it must be an environment, its id, or (observation_space, "
            "action_space)"
        )
    found: AnyEnv = place
    return found


def _checked_seed(seed: int | None) -> int | None:
    if seed is not None and (int(seed) != seed or seed < 0):
        raise ValueError(f"seed is {seed!r}: it must be an integer of at least 0, or None")
    return seed


def _levelled(observations: FloatArray, at: Coordinates) -> FloatArray:
    """Return observations whose components of few values have the nearest of these."""
    out = observations.copy()
    for j, levels in enumerate(at.levels):
        values = levels[~np.isnan(levels)]
        if len(values):
            out[:, j] = values[np.abs(out[:, j, None] - values).argmin(axis=1)]
    return out
