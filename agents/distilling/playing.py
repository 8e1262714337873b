"""Episodes that are counted, and values fitted to the steps taken in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.base.compiled_loop import Played, play_from
from oda_rl.agents.distilling.teachers import Labelling
from oda_rl.agents.environments.adaptation import adapted, observed
from oda_rl.agents.environments.making import make_env
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.environments.validation import checked_batch
from oda_rl.agents.policies.contract import InLoops
from oda_rl.agents.policies.rules import RulePolicy, decide_in_box
from oda_rl.diagram import LARGEST
from oda_rl.envs.dynamics import Compiled, compiled_dynamics
from oda_rl.envs.wrappers import ActionChoices

_DISCOUNT = 0.99
_SINUSOIDS, _OWN = 160, 40  # of all actions, of each
_RIDGE, _OWN_RIDGE = 1e-4, 1e-2  # of the mean square of a feature
_MAX_QUADRATIC = 12  # components, with products of them


class Steps(NamedTuple):
    """Steps that were taken, n of them."""

    points: FloatArray
    """Before them, shape (n, d)."""
    actions: IntArray
    """Shape (n,)."""
    rewards: FloatArray
    after: FloatArray
    """Shape (n, d)."""
    ended: BoolArray
    """Whether the episode terminated."""


@dataclass(frozen=True)
class _Features:
    mean: FloatArray
    scale: FloatArray
    frequencies: FloatArray
    phases: FloatArray
    n_actions: int

    @classmethod
    def of(cls, states: FloatArray, n_actions: int, rng: np.random.Generator) -> "_Features":
        d, scale = states.shape[1], states.std(axis=0)
        scale = np.where(scale > 1e-9 * (1.0 + np.abs(states).max(axis=0)), scale, 1.0)
        frequencies = rng.standard_normal((d, _SINUSOIDS)) / np.sqrt(d)
        phases = rng.uniform(0.0, 2.0 * np.pi, _SINUSOIDS)
        return cls(states.mean(axis=0), scale, frequencies, phases, n_actions)

    def both(self, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what actions share, shape (n, p), and what each has of its own, (n, q)."""
        points = np.clip((states - self.mean) / self.scale, -10.0, 10.0)
        waves = np.cos(points @ self.frequencies + self.phases)
        ones, d = np.ones((len(points), 1)), points.shape[1]
        products = [waves]
        if d <= _MAX_QUADRATIC:
            i, j = np.triu_indices(d)
            products.append(points[:, i] * points[:, j])
        shared = np.concatenate([ones, points, *products], axis=1)
        return shared, np.concatenate([ones, points, waves[:, :_OWN]], axis=1)

    def rows(self, states: FloatArray, actions: IntArray) -> FloatArray:
        """Return all features, those of other actions 0."""
        shared, own = self.both(states)
        each = np.zeros((len(states), self.n_actions, own.shape[1]))
        each[np.arange(len(states)), actions] = own
        return np.concatenate([shared, each.reshape(len(states), -1)], axis=1)


def evaluated(
    seen: Steps,
    act: Callable[[FloatArray], npt.NDArray[Any]],
    n_actions: int,
    rng: np.random.Generator,
) -> Callable[[FloatArray], FloatArray]:
    """Fit the values of a policy's actions.

    Most steps were taken with the policy ``act``, some not.

    Returns
    -------
    callable
        Values, shape (n, A), of states, shape (n, d).
    """
    features = _Features.of(seen.points, n_actions, rng)
    before = features.rows(seen.points, seen.actions)
    after = features.rows(seen.after, np.asarray(act(seen.after), dtype=np.int64))
    after[seen.ended] = 0.0
    moments = before.T @ before
    sizes = np.diag(moments).copy()
    n_shared = before.shape[1] - n_actions * features.both(seen.points[:1])[1].shape[1]
    ridge = np.where(np.arange(len(sizes)) < n_shared, _RIDGE, _OWN_RIDGE)
    moments += np.diag(ridge * sizes.mean())
    weights = np.linalg.solve(moments - _DISCOUNT * before.T @ after, before.T @ seen.rewards)

    def values(states: FloatArray) -> FloatArray:
        shared, own = features.both(states)
        common = shared @ weights[:n_shared]
        return np.asarray(common[:, None] + own @ weights[n_shared:].reshape(n_actions, -1).T)

    return values


_LONGEST_HOLD = 8
_NOTED = 1000  # starts
_BINS = 2  # of MultiDiscrete and the like all combinations are offered, whatever the bins


class Deciding(Protocol):
    """Whoever plays: a policy, or a teacher."""

    def act(self, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return numbers of actions, shape (n,), or units of continuous ones, shape (n, p)."""

    @property
    def in_loops(self) -> InLoops | None:
        """How compiled loops decide by it; None if they cannot."""


class BudgetedEnv:
    """Where episodes are played, from seeded starts; in compiled code where there is some.

    Parameters
    ----------
    env : str or gymnasium.Env
        Its spaces are those that agents take, and it is played in itself.
    n_cells : int
        Of rules for continuous actions.
    steps : int
        Taken in all, at most.
    told : callable
        Is told now and then how many have been.

    Attributes
    ----------
    steps : int
        Taken so far.
    most : int
        Taken in all, at most.
    """

    def __init__(
        self,
        env: str | gym.Env[Any, Any],
        n_cells: int,
        steps: int,
        told: Callable[[int], None] = lambda steps: None,
    ) -> None:
        made = make_env(env) if isinstance(env, str) else env
        if isinstance(made, VectorEnv) or not isinstance(made, gym.Env):
            raise TypeError(f"env is {env!r}: it must be one environment, or the id of one")
        boxed = isinstance(made.action_space, spaces.Box)
        self.env = observed(made) if boxed else adapted(made, _BINS)
        self.interface = Interface.of(self.env, n_cells if boxed else None).of_user(made, _BINS)
        self._compiled = _compiled(self.env, self.interface)
        self._starts: dict[int, FloatArray] = {}
        self._begun: dict[int, FloatArray] = {}
        self.steps, self.most, self.told = 0, steps, told
        self._until = steps
        self._greatest = -np.inf  # reward

    @property
    def left(self) -> int:
        """Steps that may still be taken, of those that were allowed last."""
        return self._until - self.steps

    @property
    def starts(self) -> FloatArray:
        """Observations in which the first thousand episodes have begun, shape (m, d)."""
        return np.array([*self._begun.values()]).reshape(-1, self.interface.n_features)

    def allow(self, steps: float) -> None:
        """Allow so many steps from now on, if there are as many left of all."""
        self._until = min(self.steps + int(steps), self.most)

    def play(
        self,
        player: Deciding,
        seeds: Sequence[int],
        seen: FloatArray | None = None,
        floor: float = -np.inf,
    ) -> FloatArray:
        """Play an episode from each of the starts that seeds stand for.

        Returns the returns of those that ended within what is allowed: the first ones. Observations
        that are acted on are written to ``seen``, shape (m, d), as far as there is room. While no
        reward was ever positive, an episode that has fallen below ``floor`` cannot rise again: it
        is given up, and its return is minus infinity.
        """
        if len(seeds) == 0:
            return np.empty(0)
        floor = floor if -np.inf < self._greatest <= 0.0 else -np.inf
        in_loops = self._in_loops(player)
        if self._compiled is not None and in_loops is not None:
            starts = np.concatenate([self._start(seed) for seed in seeds])
            played = play_from(self._compiled, in_loops, starts, self.left, seen, floor)
            begun = starts[: len(played.returns) + 1, -self.interface.n_features :]
            for seed, start in zip(seeds, begun, strict=False):
                self._begin(seed, start)
        else:
            played = self._step_by_step(player, seeds, seen, floor)
        self.steps += played.steps
        self._greatest = max(self._greatest, played.greatest)
        self.told(self.steps)
        return played.returns

    def record(self, player: Deciding, rng: np.random.Generator, share: float) -> Steps:
        """Play with the steps that are allowed, some of them at random; return them all.

        As in training, random actions are held: for 1/U steps, U uniform, but not for long.
        ``share`` is that of random decisions. Actions must be numbers.
        """
        env, interface, rows = self.env, self.interface, []
        while self.left > 0:
            observation, _ = env.reset(seed=draw_seeds(rng, 1)[0])
            held, over, point = 0, False, self._point(observation)
            while not over and self.left > 0:
                if held == 0 and rng.random() < share:
                    held = int(1.0 / max(rng.random(), 1.0 / _LONGEST_HOLD))
                    choice = int(rng.integers(interface.n_actions))
                held -= held > 0
                act = choice if held else int(player.act(point[None])[0])
                observation, reward, terminated, truncated, _ = env.step(
                    interface.first_action + act
                )
                before, point = point, self._point(observation)
                rows.append((before, act, float(reward), point, bool(terminated)))
                self.steps += 1
                over = bool(terminated or truncated)
            self.told(self.steps)
        return Steps(*(np.array(column) for column in zip(*rows, strict=True)))

    def _in_loops(self, player: Deciding) -> InLoops | None:
        """Return how compiled loops decide as a player does; None if they cannot."""
        rule = player.rule if isinstance(player, Labelling) else player
        box, compiled = self.interface.box, self._compiled
        if box is None or not isinstance(rule, RulePolicy):
            return player.in_loops
        if compiled is None or compiled.choices is None or rule.clauses is not None:
            return None
        room = compiled.choices.reshape(1, -1)
        arrays = (rule.scores, rule.outputs, *box.bounds, room)
        return InLoops("rule_in_box", decide_in_box, arrays)

    def _start(self, seed: int) -> FloatArray:
        """Return where a reset with that seed leads to, shape (1, n_state + d)."""
        assert self._compiled is not None
        if seed not in self._starts:
            if len(self._starts) >= _NOTED:
                self._starts.clear()
            self._starts[seed] = self._compiled.starts(np.random.default_rng(seed), 1)
        return self._starts[seed]

    def _begin(self, seed: int, observed: FloatArray) -> None:
        """Note where an episode begins."""
        if len(self._begun) < _NOTED:
            self._begun[seed] = observed

    def _point(self, observation: Any) -> FloatArray:
        """Return one observation as a vector of float64, or raise ValueError."""
        point: FloatArray = np.asarray(observation, dtype=np.float64).ravel()
        if len(point) == self.interface.n_features and abs(point.dot(point)) <= LARGEST:
            return point
        checked: FloatArray = checked_batch(observation, self.interface)[0][0]
        return checked

    def _action(self, act: npt.NDArray[Any]) -> Any:
        """Return the environment's action for what a player does."""
        if self.interface.box is None:
            return self.interface.first_action + int(act)
        return self.interface.actions(act[None])[0]

    def _step_by_step(
        self, player: Deciding, seeds: Sequence[int], seen: FloatArray | None, floor: float
    ) -> Played:
        env = self.env
        returns: list[float] = []
        taken, greatest, room = 0, -np.inf, 0 if seen is None else len(seen)
        act = (
            player.act_in
            if isinstance(player, RulePolicy)
            else lambda one: player.act(one[None])[0]
        )
        for seed in seeds:
            if taken == self.left:
                break
            observation, _ = env.reset(seed=int(seed))
            self._begin(seed, self._point(observation))
            total, over = 0.0, False
            while not over and taken < self.left:
                point = self._point(observation)
                if seen is not None and taken < room:
                    seen[taken] = point
                action = self._action(act(point))
                observation, reward, terminated, truncated, _ = env.step(action)
                taken += 1
                total += float(reward)
                greatest = max(greatest, float(reward))
                over = bool(terminated or truncated)
                if total < floor:
                    total, over = -np.inf, True
            if over:
                returns.append(total)
        return Played(np.array(returns), taken, greatest)


def _compiled(env: gym.Env[Any, Any], interface: Interface) -> Compiled | None:
    """Return compiled dynamics whose episodes end.

    Of continuous actions they choose among one, which whoever decides has written before.
    """
    box = interface.box
    if box is None:
        found = compiled_dynamics(env)
    else:
        ends = box.actions(np.outer([-1.0, 1.0], np.ones(interface.n_components)))
        found = compiled_dynamics(ActionChoices(env, ends))
        found = found and replace(found, choices=ends[:1].copy())
    return None if found is None or found.time_limit is None else found


def draw_seeds(rng: np.random.Generator, n: int) -> list[int]:
    """Draw seeds of n starts."""
    seeds: list[int] = rng.integers(2**31, size=n).tolist()
    return seeds
