"""A learned world: prediction, imagined episodes, forecasts in words, and quality."""

import math
import re
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
from oda_rl.agents.environments.making import make_env, time_limit
from oda_rl.agents.environments.names import named, with_components
from oda_rl.agents.environments.spaces import (
    AnyEnv,
    Interface,
    Spaces,
    described,
    spaces_of,
)
from oda_rl.agents.environments.validation import action_index, checked_batch, checked_points
from oda_rl.agents.offline import Transitions, read_steps
from oda_rl.agents.policies.contract import Policy
from oda_rl.agents.worlds.coordinates import Coordinates, WorldArrays
from oda_rl.agents.worlds.laws import codes_of
from oda_rl.agents.worlds.learning import CodedSteps, Learned, learn_world, trajectories
from oda_rl.agents.worlds.quality import Replayed, Report, Trust, judge, replay_held_out
from oda_rl.agents.worlds.simulation import (
    Decide,
    Imagined,
    one_law,
    predict,
    starts_between,
    walk,
    without_noise,
)

_N_LAWS = 4
_HORIZON = 1000

AnyPolicy = Policy | Callable[[npt.NDArray[Any]], Any]


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
    >>> print(world.forecast([0.6, 0.2], policy=lambda state: 1))
    in 5 steps place passes 0.9: the episode ends
    """

    learned: Learned
    """Arrays, and how they were learned."""
    interface: Interface
    """Observations and actions."""
    seen: CodedSteps
    """Steps that it was learned from."""
    first: BoolArray | None = None
    """Whether each step began an episode, if that is known, shape (n,)."""
    horizon: int = _HORIZON
    """Maximum number of steps of an episode."""
    policy: Policy | None = None
    """The policy of :meth:`forecast`."""
    step_seconds: float | None = None
    """Duration of a step (s)."""

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
        place = _place(env)
        boxed = isinstance(spaces_of(place)[1], spaces.Box)
        interface = named(Interface.of(place, 1 if boxed else None), place)
        interface = with_components(interface, names)
        if len(given.observations) < 2:
            n = len(given.observations)
            raise ValueError(f"observations has {n} row: there must be at least 2 steps")
        steps = read_steps(given, interface)
        acts = steps.actions if boxed else steps.actions[:, 0]
        codes = codes_of_acts(acts, interface)
        seen = CodedSteps(steps.before, codes, steps.rewards, steps.after, steps.terminated)
        rng = np.random.default_rng(_checked_seed(seed))
        learned = learn_world(seen, -math.inf, boxed, _N_LAWS, None, rng)
        horizon = time_limit(place) or max(map(len, trajectories(seen)))
        return cls(learned, interface, seen, None, horizon, None, seconds_of(place))

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
        """Imagine episodes from starts between those that have been observed.

        Each follows one of the laws, with noise where the laws leave some. An episode too far from
        all observations is *lost*, and stops.

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
        policy: AnyPolicy | None = None,
    ) -> str:
        """Forecast in words what happens from a state under a policy.

        Parameters
        ----------
        observation : array_like
            One observation.
        horizon : int
            Steps to look ahead.
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
                "policy is None, and this world has no policy of an agent: give a policy, or a "
                "function from an observation to an action"
            )
        start = checked_points(self.interface.point("observation", observation), self.interface)
        steps = checked_count("horizon", horizon)
        arrays = without_noise(self.learned.arrays)
        starts = np.repeat(start, self.n_laws, axis=0)
        imagined = self._walk(arrays, played, starts, steps, np.random.default_rng(0))
        return forecast_text(arrays, self.learned.at, imagined, self.names, self.step_seconds)

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
    def replayed(self, steps: int = 100, seed: int | None = 0) -> Replayed:
        """Replay the actions at the end of the longest episode in a model fitted without them.

        Parameters
        ----------
        steps : int
            Maximum number of steps, and never more than a third of all.
        seed : int, optional
            Seed of that model.
        """
        count = checked_count("steps", steps)
        rng = np.random.default_rng(_checked_seed(seed))
        return replay_held_out(self.learned, self.seen, self.first, count, rng)

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


def seconds_of(env: AnyEnv | None) -> float | None:
    """Return the duration of a step, the environment's ``tau`` or ``dt``, if it has one.

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
    place: AnyEnv = described(env)
    if not hasattr(place, "action_space"):
        raise TypeError(
            f"env is {env!r}: it must be an environment, its id, or (observation_space, "
            "action_space)"
        )
    return place


def _checked_seed(seed: int | None) -> int | None:
    if seed is not None and (int(seed) != seed or seed < 0):
        raise ValueError(f"seed is {seed!r}: it must be an integer of at least 0, or None")
    return seed


def _levelled(observations: FloatArray, at: Coordinates) -> FloatArray:
    """Round components of few values to the nearest of these."""
    out = observations.copy()
    for j, levels in enumerate(at.levels):
        values = levels[~np.isnan(levels)]
        if len(values):
            out[:, j] = values[np.abs(out[:, j, None] - values).argmin(axis=1)]
    return out


def codes_of_acts(acts: npt.NDArray[Any], interface: Interface) -> FloatArray:
    """Return the codes, shape (n, C), of action numbers, (n,), or units, (n, p)."""
    if interface.box is None:
        return codes_of(np.asarray(acts, dtype=np.int64), interface.n_actions)
    return np.concatenate([np.ones((len(acts), 1)), acts], axis=1)


def actions_of(codes: FloatArray, interface: Interface) -> npt.NDArray[Any]:
    """Return the environment's actions, shape (n, ...), of codes."""
    acts = codes.argmax(axis=1) if interface.box is None else codes[:, 1:]
    return interface.performed(acts)


def checked_codes(name: str, actions: npt.ArrayLike, n: int, interface: Interface) -> FloatArray:
    """Return the codes, shape (n, C), of n actions of the environment, or raise ValueError.

    >>> checked_codes("actions", [2, 1], 2, Interface((3,), n_actions=2, first_action=1))
    array([[0., 1.],
           [1., 0.]])
    """
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


_MAX_SHOWN = 4  # components of a forecast
_MIN_CHANGE = 0.5  # standard deviations by which they have to change


def forecast_text(
    world: WorldArrays,
    at: Coordinates,
    imagined: Imagined,
    names: Sequence[str],
    step_seconds: float | None,
) -> str:
    """Return in words what most laws agree on; ``imagined`` has one episode in each law."""
    most = len(imagined.lengths) / 2
    ends, loses = imagined.ended.sum() > most, imagined.lost.sum() > most
    alike = imagined.ended if ends else imagined.lost
    rows = np.flatnonzero(alike if ends or loses else ~imagined.ended & ~imagined.lost)
    lengths = imagined.lengths[rows]
    k = rows[np.argsort(lengths, kind="stable")[len(rows) // 2]]  # of median length
    steps = int(imagined.lengths[k])
    states = imagined.observations[k, : steps + 1]
    when = f"in {steps} step{'s' * (steps != 1)}"
    if step_seconds is not None:
        when += f" ({steps * step_seconds:.3g} s)"
    if ends:
        if lengths.max() > lengths.min():
            when += f" (the laws say {lengths.min()} to {lengths.max()})"
        return f"{when} {_reason(world, at, states[-1], names)}"
    what = "the episode still goes on"
    if loses:
        what = "it is too far from all that was seen to be predicted"
    return f"{when} {what}: {_changes_text(at, states, names)}"


def _reason(world: WorldArrays, at: Coordinates, end: FloatArray, names: Sequence[str]) -> str:
    x = at.standardised(end)
    for component, sign, threshold in world.walls.tolist():
        j = int(component)
        if sign * (x[j] - threshold) > 0.0:
            passed = at.mean[j] + at.scale[j] * threshold
            inward = "falls below" if sign < 0.0 else "rises above"
            word = "passes" if sign * passed >= 0.0 else inward
            return f"{_plain(names[j])} {word} {quantity(passed, names[j])}: the episode ends"
    used = {int(i) - 1 for i in world.terms.ravel() if i > 0}
    chosen = sorted(used)[:_MAX_SHOWN]
    state = ", ".join(f"{_plain(names[j])} is {quantity(end[j], names[j])}" for j in chosen)
    return f"{state}: the episode ends" if state else "the episode ends"


def _changes_text(at: Coordinates, states: FloatArray, names: Sequence[str]) -> str:
    """Return in words how the components that change most have changed."""
    change = np.abs(states[-1] - states[0]) / at.scale
    order = np.argsort(-change, kind="stable")[:_MAX_SHOWN]
    chosen = [j for j in order.tolist() if change[j] > _MIN_CHANGE] or order[:1].tolist()
    return ", ".join(
        f"{_plain(names[j])} goes from {quantity(states[0, j], names[j])} to "
        f"{quantity(states[-1, j], names[j])}"
        for j in sorted(chosen)
    )


def quantity(value: float, name: str) -> str:
    """Format a value with the unit that its component's name has in brackets.

    >>> quantity(0.20944, "pole angle (rad)"), quantity(-2.0, "speed")
    ('0.209 rad (12 degrees)', '-2')
    """
    unit = re.search(r"\(([^()]*)\)$", name)
    text = f"{value + 0.0:.3g}"
    if unit is None:
        return text
    if unit[1] == "rad":
        return f"{text} rad ({math.degrees(value):.3g} degrees)"
    return f"{text} {unit[1]}"


def _plain(name: str) -> str:
    """Return a name without its unit."""
    return re.sub(r" \([^()]*\)$", "", name)
