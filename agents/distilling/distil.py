"""Distil any policy into a rule of a few cells."""

import math
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray
from oda_rl.agents.base.player import Player
from oda_rl.agents.base.progress import live_line
from oda_rl.agents.base.settings import checked_count
from oda_rl.agents.distilling.imitation import Imitation, Teacher, imitate, teacher_of, world_of
from oda_rl.agents.distilling.playing import BudgetedEnv
from oda_rl.agents.distilling.search import ascend, enough_steps, race
from oda_rl.agents.distilling.simplifying import (
    MAX_CONFIRMING_EPISODES,
    Confirming,
    smaller_rules,
    standard_error,
)
from oda_rl.agents.environments.making import spec_of
from oda_rl.agents.environments.spaces import ActionBox, Interface, spaces_of
from oda_rl.agents.policies.rules import RulePolicy, named_as, placed, reduced
from oda_rl.agents.worlds.world import World
from oda_rl.envs.dynamics import ActionChoices

SIZES = (2, 3, 4, 6, 8, 12, 16, 32)
STEPS = 200_000
_MIN_STEPS = 100
_IMITATING, _PRUNING, _CONFIRMING = 0.3, 0.08, 0.12  # shares of all steps
_MIN_CONFIRMING = 9  # episodes: three by the rule, by a smaller one and by the teacher
_PRUNING_AT_TOP, _CONFIRMING_AT_TOP = 0.25, 0.4  # shares of the rest where there is no climb

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Size:
    """A rule with at most ``n_cells`` cells."""

    n_cells: int
    policy: RulePolicy
    returns: FloatArray  # from the starts of the teacher's ``taught``


@dataclass(frozen=True)
class Distilled:
    """A rule and its returns; ``print`` it."""

    policy: RulePolicy
    interface: Interface
    env_id: str | None
    returns: FloatArray
    """Returns of the rule from fresh starts, which chose only how much to prune, shape (n,)."""
    taught: FloatArray  #: Returns of its teacher from the first of the same starts, shape (m,).
    steps: int  #: Steps taken in the environment.
    curve: tuple[Size, ...] = ()  #: Rules of other sizes, too, if no number of cells was given.

    @property
    def worse(self) -> bool | None:
        """Whether it returns less than its teacher, by more than a standard error.

        None if there were too few steps to tell.
        """
        change = _change(self.returns, self.taught)
        return None if len(change) < 2 else bool(change.mean() < -standard_error(change))

    def rules(self) -> str:
        """Return the rule in words, with the names of its teacher or environment."""
        return self.policy.rules()

    def __str__(self) -> str:
        return f"{self.rules()}\n{self.comparison}"

    @property
    def comparison(self) -> str:
        """Mean returns of rule and teacher, in a line."""
        change = _change(self.returns, self.taught)
        if len(change) < 2:
            return f"{self.steps} steps were too few to compare the rule with its teacher"
        ours, theirs = self.returns[: len(change)].mean(), self.taught[: len(change)].mean()
        return (
            f"the rule returns {ours:.4g} where its teacher returns {theirs:.4g} ({len(change)} "
            f"episodes, standard error of the difference {standard_error(change):.2g})"
        )


@one_thread()
def distill(
    policy: Any,
    env: str | gym.Env[Any, Any],
    n_cells: int | None = None,
    *,
    steps: int = STEPS,
    seed: int | None = None,
    callback: Callable[[int], None] = lambda steps: None,
) -> Distilled:
    """Make a rule of a few cells that does as well as a policy, or better.

    A third of the steps goes into imitation: cells are fitted to the teacher's actions in states
    that it visits and that its students visit, each mistake weighted by its cost. The fitted rules
    race with the best of random rules. Then CMA-ES improves the winner in real episodes; four of
    its rules race, the start among them. With many steps there are further climbs, each from the
    best rule so far. A teacher that is itself a rule of as few cells has to be beaten; if it has a
    trusted world, CMA-ES climbs there first, and its result has to be beaten instead. Last, cells,
    numbers and digits that do not matter are dropped, if fresh starts confirm it.

    Parameters
    ----------
    policy : agent, policy, model of Stable-Baselines3, or callable
        The teacher. The values of agents and policies
        (:class:`~oda_rl.agents.policies.contract.Policy`) are the costs of mistakes. For a model,
        or a function from an observation to an action, they are estimated from steps taken with it.
    env : str or gymnasium.Env
        Environment with spaces that agents take.
    n_cells : int, optional
        Maximum number of cells, at least 2. By default 2, 3, 4, 6, 8, 12, 16 and 32 are tried, each
        with an eighth of the steps, and each racing with the rule of fewer cells before it; the
        result is the smallest within a standard error of the best.
    steps : int
        Maximum number of steps in the environment, those of the teacher included.
    seed : int, optional
        The same seed gives the same bits.
    callback : callable, optional
        Called now and then with the number of steps so far.

    Returns
    -------
    Distilled
        ``policy`` is the rule.

    Warns
    -----
    UserWarning
        If the rule returned less than the teacher, by more than a standard error, from the same
        fresh starts; or if there were too few steps to tell. See :attr:`Distilled.worse`.

    Raises
    ------
    ValueError
        For numbers out of range, or a teacher from another environment.

    References
    ----------
    O. Bastani, Y. Pu, A. Solar-Lezama, "Verifiable reinforcement learning via policy extraction",
    NeurIPS 2018.

    Examples
    --------
    >>> found = distill(lambda x: int(6 * x[2] + x[3] > 0), "CartPole-v1", 2, steps=20_000, seed=0)
    >>> found.policy.n_cells, found.worse
    (2, False)
    """
    if n_cells is not None and checked_count("n_cells", n_cells) < 2:
        raise ValueError(f"n_cells is {n_cells!r}: it must be at least 2")
    sizes = SIZES if n_cells is None else (int(n_cells),)
    if checked_count("steps", steps) < _MIN_STEPS * len(sizes):
        raise ValueError(f"steps is {steps!r}: it must be at least {_MIN_STEPS * len(sizes)}")
    budgeted = BudgetedEnv(env, sizes[0], int(steps), callback)
    master, world = teacher_of(policy, budgeted.interface), world_of(policy)
    rng = np.random.default_rng(seed)
    confirming = Confirming(master, rng)
    interface = budgeted.interface.named_as(getattr(policy, "interface", None))
    tried: list[Size] = []
    for i, size in enumerate(sizes):
        share = (budgeted.most - budgeted.steps) // (len(sizes) - i)
        known = tried[-1].policy if tried else None
        making = small_rule(budgeted, master, size, share, rng, confirming, world, known)
        rule, returns = exhausted(making)
        tried.append(Size(size, named_as(rule, interface), returns))
    best = smallest(tried)
    spec = spec_of(budgeted.env)
    found = Distilled(
        best.policy, interface, None if spec is None else spec.id, best.returns,
        np.array(confirming.taught), budgeted.steps, tuple(tried) if n_cells is None else (),
    )  # fmt: skip
    if found.worse is not False:
        warnings.warn(f"{found.comparison}: more cells, or more steps, may do better", stacklevel=2)
    return found


def small_rule(
    env: BudgetedEnv,
    teacher: Teacher,
    n_cells: int,
    steps: int,
    rng: np.random.Generator,
    confirming: Confirming,
    world: World | None = None,
    known: RulePolicy | None = None,
) -> Generator[None, None, tuple[RulePolicy, FloatArray]]:
    """Imitate, climb, prune and confirm; return a rule, and its returns from fresh starts.

    A ``known`` rule races with those that imitate. A generator, so that the caller can show
    progress, or stop.
    """
    end = env.steps + steps
    found = imitate(env, teacher, n_cells, int(_IMITATING * steps), rng, world, known)
    yield
    if found.at_top:
        left = end - env.steps
        pruning, confirm = _PRUNING_AT_TOP * left, _CONFIRMING_AT_TOP * left
        env.allow(left - pruning - confirm)
        best = found.vectors[: len(found.raced.last)][:4]  # which race once more
        raced = race(env, [found.coding.rule(one) for one in best], rng)
        vector, seeds = best[raced.best], raced.seeds
    else:
        pruning = _PRUNING * steps
        confirm = min(max(_CONFIRMING * steps, _MIN_CONFIRMING * found.length), 0.3 * steps)
        confirm = min(confirm, MAX_CONFIRMING_EPISODES * found.length)
        vector, seeds = yield from _climbed(env, found, end - env.steps - pruning - confirm, rng)
    yield
    env.allow(pruning)
    rules = smaller_rules(env, found.coding.rule(vector), found.states, seeds, found.length, rng)
    yield
    env.allow(end - env.steps)
    best_rule, returns, seen = confirming.confirmed(env, rules, found.length)
    return placed(reduced(best_rule, np.concatenate([found.states, seen])), found.states), returns


def _climbed(
    env: BudgetedEnv, found: Imitation, steps: float, rng: np.random.Generator
) -> Generator[None, None, tuple[FloatArray, list[int]]]:
    """Climb, and again from the best, while steps last; return the best vector and its seeds."""
    end = env.steps + steps
    vector, seeds = found.vectors[0], found.raced.seeds
    n_climbs = max(1, int(steps / enough_steps(found.coding, found.length)))
    for i in range(n_climbs):
        share = (end - env.steps) / (n_climbs - i)
        decided = yield from ascend(env, found.coding, vector, share, found.enough, rng)
        if decided is not None:
            vector, seeds = decided
    return vector, seeds


def exhausted(generator: Generator[None, None, _Result]) -> _Result:
    """Run a generator to its end, and return what it returns."""
    while True:
        try:
            next(generator)
        except StopIteration as stop:
            result: _Result = stop.value
            return result


def smallest(tried: Sequence[Size]) -> Size:
    """Return the smallest within a standard error of the best (Breiman et al., 1984)."""
    best = max(tried, key=lambda one: float(one.returns.mean()) if len(one.returns) else -math.inf)
    for one in tried:
        change = _change(one.returns, best.returns)
        if len(change) > 1 and change.mean() >= -standard_error(change):
            return one
    return best


def _change(ours: FloatArray, theirs: FloatArray) -> FloatArray:
    n = min(len(ours), len(theirs))
    return np.asarray(ours[:n] - theirs[:n])


class Simplifiable(Player):
    """An agent whose policy can be made a rule of a few cells."""

    def simplify(
        self,
        n_cells: int | None = None,
        steps: int = STEPS,
        seed: int | None = None,
        progress_bar: bool = False,
    ) -> Distilled:
        """Make a rule of a few cells that does as well as the agent, or better.

        The agent is not changed.

        Parameters
        ----------
        n_cells, steps, seed
            As for :func:`distill`, which also says when it warns.
        progress_bar : bool
            Show a progress bar.

        Returns
        -------
        Distilled
            ``policy`` is the rule; ``print`` it for the returns of both.

        Raises
        ------
        ValueError
            As :func:`distill`, or if no other environment can be made: that function takes one.

        Examples
        --------
        >>> from oda_rl.agents import FittedQAgent
        >>> agent = FittedQAgent("CartPole-v1", seed=0).learn(10_000)
        >>> agent.simplify(n_cells=2, steps=40_000, seed=0).policy.n_cells
        2
        """
        place = self.make_separate_env()
        if isinstance(place, ActionChoices):
            with suppress(ValueError):  # which says that actions are not those of a box
                ActionBox.of(spaces_of(place.env)[1])
                place = place.env
        text = "simplifying: {task.completed:,.0f}/{task.total:,.0f} steps"
        with live_line(text, steps, progress_bar) as update:
            return distill(
                self, place, n_cells, steps=steps, seed=seed, callback=lambda done: update(done, "")
            )
