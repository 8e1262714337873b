"""A learned world: prediction, imagined episodes, and quality."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from oda_rl._threads import one_thread
from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.agents.base.settings import checked_count
from oda_rl.agents.environments.making import make_env, time_limit
from oda_rl.agents.environments.names import named, with_components
from oda_rl.agents.environments.spaces import AnyEnv, Interface, Spaces, described, spaces_of
from oda_rl.agents.environments.validation import action_index, checked_batch
from oda_rl.agents.offline import Transitions, read_steps
from oda_rl.agents.policies.contract import Policy
from oda_rl.agents.worlds.coordinates import Coordinates
from oda_rl.agents.worlds.learning import N_LAWS, CodedSteps, Learned, learn_world, trajectories
from oda_rl.agents.worlds.quality import Report, Trust, judge, refitted
from oda_rl.agents.worlds.simulation import one_law, predict, replay, starts_between, without_noise

_HORIZON = 1000

AnyPolicy = Policy | Callable[[Array], Any]


class Imagined(NamedTuple):
    """n imagined episodes, the longest of T steps; NaN beyond an episode's end."""

    observations: FloatArray  # flattened, shape (n, T + 1, d)
    actions: FloatArray
    """Actions of the environment, shape (n, T), or (n, T, ...) where they are continuous."""
    rewards: FloatArray  # shape (n, T)
    lengths: IntArray  # number of steps, shape (n,)
    ended: BoolArray  # whether the episode terminated, shape (n,)
    lost: BoolArray  # whether it stopped too far from all observations, shape (n,)

    @property
    def returns(self) -> FloatArray:
        """Sums of the rewards, shape (n,)."""
        return np.asarray(np.nansum(self.rewards, axis=1))


@dataclass(frozen=True, eq=False)
class World:
    """A learned world: an ensemble of laws of motion, rewards and terminations.

    ``agent.world`` is that of a :class:`~oda_rl.agents.model.agent.ModelAgent`; :meth:`fit` learns
    one from logged transitions alone.

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
    >>> steps = before, actions, np.zeros(400), after, off
    >>> world = World.fit(steps, env=table, seed=0, names=["place", "speed"])
    >>> following, reward, terminated = world.predict([0.5, 0.5], 1)
    >>> following.round(3), terminated
    (array([0.57, 0.7 ]), False)
    """

    learned: Learned  #: Arrays, and how they were learned.
    interface: Interface  #: Observations and actions.
    seen: CodedSteps  #: Steps that it was learned from.
    first: BoolArray | None = None  # whether each step began an episode
    horizon: int = _HORIZON  #: Maximum number of steps of an episode.

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
        names: Sequence[str] | None = None,
    ) -> Self:
        """Learn a world from logged transitions alone.

        A step belongs to the same episode as an earlier one if it begins where that one led to.

        Parameters
        ----------
        observations, next_observations : array_like, shape (n, ...)
            Before and after each step, oldest first, in the shape of the observation space. Or, in
            place of the first five, a data frame, a Minari dataset, or anything else that
            :meth:`oda_rl.agents.Transitions.of` reads.
        actions : array_like, shape (n,), or (n, ...) where the action space is a Box
            Actions of the environment.
        rewards : array_like, shape (n,)
        terminated : array_like of bool, shape (n,)
            Whether the episode terminated with the step; False where it was truncated.
        env : str, gymnasium.Env, or (observation_space, action_space)
            Defines the spaces; no step is taken in it.
        seed : int, optional
            Seed of the cells, the sinusoids and the ensemble.
        names : sequence of str, optional
            Names of the observation's components, with units in brackets at the end; by default
            those that the environment gives.

        Raises
        ------
        TypeError
            If the observation space is no Box, or the action space neither Discrete nor a Box.
        ValueError
            For wrong shapes, values that are not finite, or actions out of their space.
        """
        arrays = observations, actions, rewards, next_observations, terminated
        given = Transitions.of(observations if actions is None else arrays)
        place: AnyEnv = make_env(env) if isinstance(env, str) else described(env)
        if not hasattr(place, "action_space"):
            raise TypeError(
                f"env is {env!r}: it must be an environment, its id, or (observation_space, "
                "action_space)"
            )
        boxed = isinstance(spaces_of(place)[1], spaces.Box)
        interface = named(Interface.of(place, 1 if boxed else None), place)
        interface = with_components(interface, names)
        if len(given.observations) < 2:
            n = len(given.observations)
            raise ValueError(f"observations has {n} row: there must be at least 2 steps")
        steps = read_steps(given, interface)
        codes = codes_of_acts(steps.actions if boxed else steps.actions[:, 0], interface)
        seen = CodedSteps(steps.before, codes, steps.rewards, steps.after, steps.terminated)
        learned = learn_world(seen, -math.inf, boxed, N_LAWS, None, np.random.default_rng(seed))
        horizon = time_limit(place) or max(map(len, trajectories(seen)))
        return cls(learned, interface, seen, None, horizon)

    @property
    def n_laws(self) -> int:
        """Number of laws in the ensemble."""
        return len(self.learned.arrays.laws)

    @one_thread()
    def predict(
        self, observation: npt.ArrayLike, action: npt.ArrayLike, law: int | None = None
    ) -> tuple[FloatArray, Any, Any]:
        """Predict a step, without noise.

        Parameters
        ----------
        observation : array_like
            One observation, or a batch with one more leading dimension.
        action : array_like
            One action of the environment, or a batch of as many.
        law : int, optional
            Index of a law; by default the mean of all, and their majority on termination.

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
        points, one = checked_batch(observation, self.interface)
        actions: npt.ArrayLike = np.asarray(action)[None] if one else action
        codes = checked_codes("action", actions, len(points), self.interface)
        arrays, n_laws, at = self.learned.arrays, self.n_laws, self.learned.at
        if law is not None:
            if law not in range(n_laws):
                raise ValueError(f"law is {law!r}: it must be an integer from 0 to {n_laws - 1}")
            after, rewards, ended, _ = predict(one_law(arrays, int(law)), points, codes)
        else:
            each = np.repeat(points, n_laws, axis=0), np.repeat(codes, n_laws, axis=0)
            after, rewards, ended, _ = predict(without_noise(arrays), *each)
            mean = at.on_circles(after.reshape(-1, n_laws, after.shape[1]).mean(axis=1))
            after, rewards = _levelled(mean, at), rewards.reshape(-1, n_laws).mean(axis=1)
            ended = ended.reshape(-1, n_laws).mean(axis=1) > 0.5
        following = after.reshape(-1, *self.interface.observation_shape)
        if one:
            return following[0], float(rewards[0]), bool(ended[0])
        return following, rewards, ended

    @one_thread()
    def imagine(
        self, policy: AnyPolicy, n: int, horizon: int | None = None, seed: int | None = None
    ) -> Imagined:
        """Imagine episodes, from starts between the observed ones.

        Each follows one of the laws, with noise if the laws leave residuals. An episode too far
        from all observations is *lost*, and stops.

        Parameters
        ----------
        policy : Policy or callable
            A policy (``agent.policy``), or a function from an observation to an action.
        n : int
            Number of episodes.
        horizon : int, optional
            Maximum number of steps of each; by default the environment's limit.
        seed : int, optional
            Seed of the starts and of the noise.

        Returns
        -------
        Imagined

        Raises
        ------
        TypeError
            If the policy is neither a policy nor a function.
        ValueError
            If ``n`` or ``horizon`` is below 1, or a function returns what is no action.
        """
        steps = self.horizon if horizon is None else checked_count("horizon", horizon)
        count = checked_count("n", n)
        rng = np.random.default_rng(seed)
        starts = self.draw_starts(count, rng)
        arrays, decide = self.learned.arrays, self._decide(policy)
        points, codes = starts.copy(), np.eye(1, arrays.laws.shape[1]).repeat(count, axis=0)
        goes_on, ended, lost = (np.full(count, value) for value in (True, False, False))
        lengths = np.zeros(count, dtype=np.int64)
        observations, actions, rewards = [points.copy()], [], []
        for t in range(steps):
            codes[goes_on] = decide(points[goes_on])
            # of single steps compiled code draws the same row of the residuals
            mixed = rng.permutation(arrays.residuals) if len(arrays.residuals) else arrays.residuals
            after, gains, over, gaps = predict(arrays._replace(residuals=mixed), points, codes)
            if t > 0:
                lost |= goes_on & (gaps > arrays.bounds[3])
                goes_on &= ~lost
            if not goes_on.any():
                break
            lengths += goes_on
            points[goes_on] = after[goes_on]
            observations.append(np.where(goes_on[:, None], after, np.nan))
            acts = codes.argmax(axis=1) if self.interface.box is None else codes[:, 1:]
            done = self.interface.performed(acts).astype(np.float64)
            done[~goes_on] = np.nan
            actions.append(done)
            rewards.append(np.where(goes_on, gains, np.nan))
            ended |= goes_on & over
            goes_on &= ~over
            if not goes_on.any():
                break
        return Imagined(
            np.stack(observations, axis=1), np.stack(actions, axis=1), np.stack(rewards, axis=1),
            lengths, ended, lost,
        )  # fmt: skip

    @cached_property
    def _report(self) -> Report:
        return judge(self.learned, self.seen, self.first, self.names, np.random.default_rng(0))

    def report(self) -> Report:
        """Evaluate the world by cross-validation over stretches of steps.

        It takes about as long as learning the world; the result is cached.
        """
        return self._report

    @property
    def trust(self) -> Trust:
        """Whether the world is trusted, and why: the last line of :meth:`report`."""
        return self._report.trust

    @one_thread()
    def replayed(self) -> tuple[FloatArray, FloatArray]:
        """Replay the actions at the end of the longest episode in a model fitted without them.

        They are at most 100, and never more than a third of all.

        Returns
        -------
        real, imagined : ndarray, shape (T + 1, d)
        """
        seen, n = self.seen, min(100, len(self.seen.rewards) // 3)
        held = max(trajectories(seen, self.first), key=len)[-max(n, 1) :]
        rest = np.setdiff1d(np.arange(len(seen.rewards)), held)
        rng = np.random.default_rng(0)
        world = refitted(self.learned, seen, rest, rng).arrays
        imagined = replay(world, seen.before[held[:1]], seen.codes[held][None], rng)[0]
        return np.concatenate([seen.before[held], seen.after[held[-1:]]]), imagined

    def draw_starts(
        self, n: int, rng: np.random.Generator, others: FloatArray | None = None
    ) -> FloatArray:
        """Draw states between first observations of episodes, and others, shape (n, d)."""
        known = self._starts if others is None else np.concatenate([self._starts, others])
        return starts_between(known, self.learned.at, n, rng)

    @cached_property
    def _starts(self) -> FloatArray:
        if self.first is not None and self.first.any():
            return self.seen.before[self.first]
        return np.array([self.seen.before[rows[0]] for rows in trajectories(self.seen)])

    def _decide(self, policy: AnyPolicy) -> Callable[[FloatArray], FloatArray]:
        """Return the function from observations, shape (m, d), to codes of actions, (m, C)."""
        interface = self.interface
        player: Any = getattr(policy, "policy", policy)  # of an agent
        if hasattr(player, "act") and hasattr(player, "codevectors"):
            d = player.codevectors.shape[1]
            if d != interface.n_features:
                raise ValueError(
                    f"policy takes observations of {d} components: it must take "
                    f"{interface.n_features}"
                )
            return lambda points: codes_of_acts(player.act(points), interface)
        if not callable(player):
            raise TypeError(f"policy is {policy!r}: it must be a policy or a function")

        def decide(points: FloatArray) -> FloatArray:
            shaped = points.reshape(-1, *interface.observation_shape)
            actions = np.array([np.asarray(player(point)) for point in shaped])
            return checked_codes("policy(observation)", actions, len(points), interface)

        return decide

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the observation's components."""
        return self.interface.names


def _levelled(observations: FloatArray, at: Coordinates) -> FloatArray:
    """Round components of few values to the nearest of these."""
    out = observations.copy()
    for j, levels in enumerate(at.levels):
        values = levels[~np.isnan(levels)]
        if len(values):
            out[:, j] = values[np.abs(out[:, j, None] - values).argmin(axis=1)]
    return out


def codes_of_acts(acts: Array, interface: Interface) -> FloatArray:
    """Return the codes, shape (n, C), of action numbers, (n,), or units, (n, p)."""
    if interface.box is None:
        return np.eye(interface.n_actions)[np.asarray(acts, dtype=np.int64)]
    return np.concatenate([np.ones((len(acts), 1)), acts], axis=1)


def checked_codes(name: str, actions: npt.ArrayLike, n: int, interface: Interface) -> FloatArray:
    """Return the codes, shape (n, C), of n actions of the environment, or raise ValueError."""
    array, box, acts = np.asarray(actions), interface.box, []
    if array.shape[:1] != (n,):
        raise ValueError(
            f"{name} has shape {array.shape}: it must be ({n},), an action for each observation"
        )
    for k, action in enumerate(array.tolist()):
        try:
            acts.append(action_index(action, interface) if box is None else box.units(action))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}[{k}] {str(error).removeprefix('action ')}") from error
    return codes_of_acts(np.array(acts), interface)
