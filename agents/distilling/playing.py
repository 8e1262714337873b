"""Episodes within a budget of steps, and values fitted to recorded steps."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from oda_rl._types import Array, BoolArray, FloatArray, IntArray
from oda_rl.agents.base.compiled_loop import Played, play_from
from oda_rl.agents.environments.adaptation import adapted, observed
from oda_rl.agents.environments.making import make_env
from oda_rl.agents.environments.names import named
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import checked_batch, checked_reset, checked_step
from oda_rl.agents.policies.contract import InLoops
from oda_rl.agents.policies.rules import RulePolicy, decide_in_box
from oda_rl.diagram import LARGEST
from oda_rl.envs.dynamics import ActionChoices, compiled_dynamics

_DISCOUNT = 0.99
_SINUSOIDS, _OWN = 160, 40  # of all actions, of each
_RIDGE, _OWN_RIDGE = 1e-4, 1e-2  # relative to the mean square of a feature


class Deciding(Protocol):
    """A policy, or a teacher."""

    def act(self, points: Array) -> Array:
        """Return numbers of actions, shape (n,), or units of continuous ones, shape (n, p)."""

    @property
    def in_loops(self) -> InLoops | None:
        """Function and arrays by which compiled loops decide; None if they cannot."""


class Steps(NamedTuple):
    """n recorded steps."""

    points: FloatArray  # observations, shape (n, d)
    actions: IntArray
    rewards: FloatArray
    after: FloatArray  # next observations, shape (n, d)
    ended: BoolArray  # whether the episode terminated


def evaluated(
    seen: Steps, act: Callable[[FloatArray], Array], n_actions: int, rng: np.random.Generator
) -> Callable[[FloatArray], FloatArray]:
    """Fit values of the policy ``act`` by LSTD; return a function of states, (n, d), to (n, A)."""
    d, mean, scale = seen.points.shape[1], seen.points.mean(axis=0), seen.points.std(axis=0)
    scale = np.where(scale > 1e-9 * (1.0 + np.abs(seen.points).max(axis=0)), scale, 1.0)
    frequencies = rng.standard_normal((d, _SINUSOIDS)) / np.sqrt(d)
    phases = rng.uniform(0.0, 2.0 * np.pi, _SINUSOIDS)

    def features(states: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return features that actions share, shape (n, p), and those of each, (n, q)."""
        points = np.clip((states - mean) / scale, -10.0, 10.0)
        waves = np.cos(points @ frequencies + phases)
        i, j = np.triu_indices(d if d <= 12 else 0)  # products of few components only
        one = np.column_stack([np.ones(len(points)), points])
        shared = np.concatenate([one, waves, points[:, i] * points[:, j]], axis=1)
        return shared, np.concatenate([one, waves[:, :_OWN]], axis=1)

    def rows(states: FloatArray, actions: IntArray) -> FloatArray:
        """Return all features; those of other actions are 0."""
        shared, own = features(states)
        each = np.zeros((len(states), n_actions, own.shape[1]))
        each[np.arange(len(states)), actions] = own
        return np.concatenate([shared, each.reshape(len(states), -1)], axis=1)

    before = rows(seen.points, seen.actions)
    after = rows(seen.after, np.asarray(act(seen.after), dtype=np.int64))
    after[seen.ended] = 0.0
    moments = before.T @ before
    sizes = np.diag(moments).copy()
    n_shared = features(seen.points[:1])[0].shape[1]
    ridge = np.where(np.arange(len(sizes)) < n_shared, _RIDGE, _OWN_RIDGE)
    moments += np.diag(ridge * sizes.mean())
    weights = np.linalg.solve(moments - _DISCOUNT * before.T @ after, before.T @ seen.rewards)

    def values(states: FloatArray) -> FloatArray:
        shared, own = features(states)
        common = shared @ weights[:n_shared]
        return np.asarray(common[:, None] + own @ weights[n_shared:].reshape(n_actions, -1).T)

    return values


_BINS = 2  # all combinations of MultiDiscrete and the like are offered, whatever the bins


class BudgetedEnv:
    """Plays episodes from seeded starts within a budget; compiled where that is possible.

    ``n_cells`` are those of rules for continuous actions. ``callback`` is called now and then with
    the number of ``steps`` so far, of which there are at most ``most``.
    """

    def __init__(
        self,
        env: str | gym.Env[Any, Any],
        n_cells: int,
        steps: int,
        callback: Callable[[int], None] = lambda steps: None,
    ) -> None:
        made = make_env(env) if isinstance(env, str) else env
        if isinstance(made, VectorEnv) or not isinstance(made, gym.Env):
            raise TypeError(f"env is {env!r}: it must be one environment, or the id of one")
        boxed = isinstance(made.action_space, spaces.Box)
        self.env = observed(made) if boxed else adapted(made, _BINS)
        interface = Interface.of(self.env, n_cells if boxed else None).of_user(made, _BINS)
        self.interface = named(interface, made)
        if self.interface.box is None:
            found = compiled_dynamics(self.env)
        else:  # continuous actions are one choice, which is written before each step
            p = self.interface.n_components
            ends = self.interface.box.actions(np.outer([-1.0, 1.0], np.ones(p)))
            found = compiled_dynamics(ActionChoices(self.env, ends))
            found = found and replace(found, choices=ends[:1].copy())
        self._compiled = None if found is None or found.time_limit is None else found
        self.steps, self.most, self._callback = 0, steps, callback
        self._until = steps
        self._greatest = -np.inf  # reward

    @property
    def left(self) -> int:
        """Steps left of those that were allowed last."""
        return self._until - self.steps

    def draw_starts(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return first observations of n episodes, shape (n, d); that takes no step."""
        return np.array([self._point(self.env.reset(seed=seed)[0]) for seed in draw_seeds(rng, n)])

    def allow(self, steps: float) -> None:
        """Allow ``steps`` steps from now on, within the budget."""
        self._until = min(self.steps + int(steps), self.most)

    def play(
        self,
        player: Deciding,
        seeds: Sequence[int],
        seen: FloatArray | None = None,
        floor: float = -np.inf,
    ) -> FloatArray:
        """Play an episode from the start of each seed.

        Returns the returns of the first episodes, which ended within the allowed steps. Their
        observations are written to ``seen``, shape (m, d), as far as there is room. While no reward
        was ever positive, an episode below ``floor`` cannot recover: it is given up, and its return
        is minus infinity.
        """
        if len(seeds) == 0:
            return np.empty(0)
        floor = floor if -np.inf < self._greatest <= 0.0 else -np.inf
        in_loops = self._in_loops(player)
        if self._compiled is not None and in_loops is not None:
            each = [self._compiled.starts(np.random.default_rng(seed), 1) for seed in seeds]
            starts = np.concatenate(each)
            played = play_from(self._compiled, in_loops, starts, self.left, seen, floor)
        else:
            played = self._step_by_step(player, seeds, seen, floor)
        self.steps += played.steps
        self._greatest = max(self._greatest, played.greatest)
        self._callback(self.steps)
        return played.returns

    def record(self, player: Deciding, rng: np.random.Generator, share: float) -> Steps:
        """Play the allowed steps, with a ``share`` of random decisions among discrete actions."""
        episodes = []
        while self.left > 0:
            episodes.append(self.record_episode(player, rng, share)[0])
        return Steps(*map(np.concatenate, zip(*episodes, strict=True)))

    def record_episode(
        self, player: Deciding, rng: np.random.Generator, share: float = 0.0
    ) -> tuple[Steps, bool]:
        """Play an episode, or its allowed steps; also return whether it has come to its end."""
        env, interface, rows = self.env, self.interface, []
        observation = checked_reset(env, self.steps, draw_seeds(rng, 1)[0])
        held, over, point = 0, False, self._point(observation)
        while not over and self.left > 0:
            if held == 0 and rng.random() < share:
                held = int(1.0 / max(rng.random(), 1.0 / 8))  # 1/U, U uniform, at most 8
                choice = int(rng.integers(interface.n_actions))
            held -= held > 0
            act = choice if held else int(player.act(point[None])[0])
            self.steps += 1
            outcome = checked_step(env, interface.first_action + act, self.steps)
            observation, reward, terminated, truncated = outcome
            before, point = point, self._point(observation)
            rows.append((before, act, reward, point, terminated))
            over = terminated or truncated
        self._callback(self.steps)
        return Steps(*(np.array(column) for column in zip(*rows, strict=True))), over

    def _in_loops(self, player: Deciding) -> InLoops | None:
        """Return the function by which compiled loops decide; None if they cannot."""
        rule = getattr(player, "rule", player)  # of a teacher that is one
        box, compiled = self.interface.box, self._compiled
        if box is None or not isinstance(rule, RulePolicy):
            return player.in_loops
        if compiled is None or compiled.choices is None or rule.clauses is not None:
            return None
        arrays = (rule.scores, rule.outputs, *box.bounds, compiled.choices.reshape(1, -1))
        return InLoops("rule_in_box", decide_in_box, arrays)

    def _point(self, observation: Any) -> FloatArray:
        point: FloatArray = np.array(observation, dtype=np.float64).ravel()  # which it may reuse
        if len(point) == self.interface.n_features and abs(point.dot(point)) <= LARGEST:
            return point
        return np.asarray(checked_batch(observation, self.interface)[0][0])

    def _step_by_step(
        self, player: Deciding, seeds: Sequence[int], seen: FloatArray | None, floor: float
    ) -> Played:
        env, interface = self.env, self.interface
        returns: list[float] = []
        taken, greatest, room = 0, -np.inf, 0 if seen is None else len(seen)
        act = getattr(player, "act_in", lambda one: player.act(one[None])[0])
        for seed in seeds:
            if taken == self.left:
                break
            observation = checked_reset(env, self.steps + taken, int(seed))
            total, over = 0.0, False
            while not over and taken < self.left:
                point = self._point(observation)
                if seen is not None and taken < room:
                    seen[taken] = point
                choice, boxed = act(point), interface.box is not None
                first = interface.first_action
                action = interface.actions(choice[None])[0] if boxed else first + int(choice)
                taken += 1
                outcome = checked_step(env, action, self.steps + taken)
                observation, reward, terminated, truncated = outcome
                total += reward
                greatest = max(greatest, reward)
                over = terminated or truncated
                if total < floor:
                    total, over = -np.inf, True
            if over:
                returns.append(total)
        return Played(np.array(returns), taken, greatest)


def draw_seeds(rng: np.random.Generator, n: int) -> list[int]:
    """Draw seeds of n starts."""
    return list(rng.integers(2**31, size=n).tolist())
