"""Any policy as a rule of a few cells, and agents that offer it."""

import math
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np

from oda_rl._threads import one_thread
from oda_rl._types import FloatArray
from oda_rl.agents.base.player import Player
from oda_rl.agents.base.settings import checked_count
from oda_rl.agents.distilling.imitation import Imitation, imitate, world_of
from oda_rl.agents.distilling.playing import BudgetedEnv
from oda_rl.agents.distilling.search import Ascent, enough_steps, race
from oda_rl.agents.distilling.simplifying import Confirming, smaller_rules, standard_error
from oda_rl.agents.distilling.teachers import Teacher, Values, teacher_of
from oda_rl.agents.environments.making import spec_of
from oda_rl.agents.environments.spaces import (
    ActionBox,
    Interface,
    matching_names,
    matching_parts,
    spaces_of,
)
from oda_rl.agents.policies.rules import RulePolicy, placed
from oda_rl.agents.worlds.world import World
from oda_rl.envs.wrappers import ActionChoices

SIZES = (2, 3, 4, 6, 8, 12, 16, 32)
STEPS = 200_000
_MIN_STEPS = 100
_IMITATING, _PRUNING, _CONFIRMING = 0.3, 0.08, 0.12  # of all steps
_PRUNING_AT_TOP, _CONFIRMING_AT_TOP = 0.25, 0.4  # of what is left where there is no climb
_AT_TOP = 4  # rules that race once more then
_DECIDING = 0.2  # of those of the climb
_SLICES = 20  # of the climb, between which others have their turn

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Size:
    """A point of the curve: what a rule of so many cells returns."""

    n_cells: int
    """That it could have."""
    policy: RulePolicy
    returns: FloatArray
    """From fresh starts, those of the teacher's ``taught``."""


@dataclass(frozen=True)
class Distilled:
    """A rule, and what is known of it. ``print`` it."""

    policy: RulePolicy
    interface: Interface
    """Of the environment."""
    env_id: str | None
    returns: FloatArray
    """What the rule returned, from starts by which nothing was chosen but how much may be pruned,
    shape (n,)."""
    taught: FloatArray
    """What its teacher returned from the first of the same starts, shape (m,)."""
    steps: int
    """Taken in the environment."""
    curve: tuple[Size, ...] = ()
    """Of other numbers of cells, too, if none was given."""

    @property
    def worse(self) -> bool | None:
        """Whether it returns less than its teacher, by more than a standard error.

        None if there were too few steps to tell.
        """
        change = _change(self.returns, self.taught)
        return None if len(change) < 2 else bool(change.mean() < -standard_error(change))

    def rules(
        self, names: Sequence[str] | None = None, action_names: Sequence[str] | None = None
    ) -> str:
        """Say the rule in words, as :meth:`RulePolicy.rules`; names are those of known ones."""
        known, known_actions = matching_names(self.env_id, self.interface)
        box = self.interface.box
        if box is not None:
            known_actions = matching_parts(self.env_id, self.interface)
        return self.policy.rules(
            known if names is None else names,
            known_actions if action_names is None else action_names,
            None if box is None else box.bounds,
        )

    def __str__(self) -> str:
        return f"{self.rules()}\n{self.comparison}"

    @property
    def comparison(self) -> str:
        """What rule and teacher return, in a line."""
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
    values: Values | None = None,
    *,
    steps: int = STEPS,
    seed: int | None = None,
    told: Callable[[int], None] = lambda steps: None,
) -> Distilled:
    """Make a rule of a few cells that does what a policy does, or better.

    A third of the steps goes into imitation: cells are fitted to what the teacher does where it
    goes and where its students go, each mistake as bad as what it costs. What was fitted races with
    the best of random rules. Then CMA-ES climbs on real episodes, from the winner; four rules are
    played against each other, of which the first is that where the climb began. Where there are
    many steps there are further climbs, each from the best rule so far. A teacher that is a rule of
    so few cells has to be beaten; and one that has learned a world, and believes it, lends it to
    climbs that take no real step, whose winner has to be beaten in its place. Last, cells,
    numbers and digits are dropped that do not matter: many fresh starts have to confirm that.

    Parameters
    ----------
    policy : agent, policy, model of Stable-Baselines3, or callable
        The teacher. Of agents and policies (:class:`~oda_rl.agents.policies.contract.Policy`) the
        values say what a mistake costs. Of a model, or of a function that returns an action for an
        observation, they are estimated from steps taken with it.
    env : str or gymnasium.Env
        Where to play, with spaces as the agents take them.
    n_cells : int, optional
        Of the rule, at most; at least 2. By default 2, 3, 4, 6, 8, 12, 16 and 32 are tried, each
        with an eighth of the steps, and each racing with the rule of fewer cells before it. It is
        the smallest within a standard error of the best.
    values : callable, optional
        What all actions are worth, shape (n, A), in states, shape (n, d), if it is known better.
    steps : int
        In the environment, at most: every one counts, also those of the teacher.
    seed : int, optional
        The same seed gives the same bits.
    told : callable, optional
        Is told now and then how many steps have been taken.

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
        For numbers out of range, or a teacher of another environment.
    TypeError
        If it is no teacher, or no environment.

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
    budgeted = BudgetedEnv(env, sizes[0], int(steps), told)
    master, world = teacher_of(policy, budgeted.interface, values), world_of(policy)
    rng = np.random.default_rng(seed)
    confirming = Confirming.of(master, rng)
    tried: list[Size] = []
    for i, size in enumerate(sizes):
        share = (budgeted.most - budgeted.steps) // (len(sizes) - i)
        known = tried[-1].policy if tried else None
        making = small_rule(budgeted, master, size, share, rng, confirming, world, known)
        rule, returns = exhausted(making)
        tried.append(Size(size, rule, returns))
    best = smallest(tried)
    spec = spec_of(budgeted.env)
    found = Distilled(
        best.policy, budgeted.interface, None if spec is None else spec.id, best.returns,
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
    """Go all the way with so many steps, and return a rule, and its returns from fresh starts.

    A rule that is ``known`` races with those that imitate. A generator, so that whoever asks for it
    can show progress, or stop.
    """
    end = env.steps + steps
    found = imitate(env, teacher, n_cells, int(_IMITATING * steps), rng, world, known)
    yield
    if found.at_top:
        left = end - env.steps
        pruning, confirm = _PRUNING_AT_TOP * left, _CONFIRMING_AT_TOP * left
        env.allow(left - pruning - confirm)
        best = found.vectors[: len(found.raced.last)][:_AT_TOP]
        raced = race(env, [found.coding.rule(one) for one in best], rng)
        vector, seeds = best[raced.best], raced.seeds
    else:
        pruning = _PRUNING * steps
        confirm = min(_CONFIRMING * steps, Confirming.max_steps(found.length))
        share = end - env.steps - pruning - confirm
        vector, seeds = yield from _climbed(env, found, share, rng)
    yield
    env.allow(pruning)
    rule = found.coding.rule(vector)
    rules = smaller_rules(env, rule, found.states, seeds, found.length, rng)
    yield
    env.allow(end - env.steps)
    best_rule, returns = confirming.confirmed(env, rules, found.length)
    return placed(best_rule, found.states), returns


def _climbed(
    env: BudgetedEnv, found: Imitation, steps: float, rng: np.random.Generator
) -> Generator[None, None, tuple[FloatArray, list[int]]]:
    """Climb, and again from what was found as long as steps last for that.

    Returns the best vector, and seeds of starts from which it was the best.
    """
    end = env.steps + steps
    vector, seeds = found.vectors[0], found.raced.seeds
    enough = enough_steps(found.coding, found.length) / (1.0 - _DECIDING)
    n_climbs = max(1, int(steps / enough))
    for i in range(n_climbs):
        share = (end - env.steps) / (n_climbs - i)
        until = env.steps + (1.0 - _DECIDING) * share
        ascent = Ascent(env, found.coding, vector, until - env.steps, found.enough, rng)
        each = (until - env.steps) * n_climbs / _SLICES
        going = True
        while going and until - env.steps >= 1.0:
            before = env.steps
            going = ascent.climb(min(max(each, 1.0), until - env.steps))
            going = going and env.steps > before
            yield
        decided = ascent.decide(min(end - env.steps, _DECIDING * share))
        if decided is not None:
            vector, seeds = decided[0], decided[1].seeds
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
    """Return the smallest within a standard error of the best, from common starts.

    References
    ----------
    L. Breiman, J. Friedman, R. Olshen, C. Stone, "Classification and regression trees" (1984).
    """
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
        env: gym.Env[Any, Any] | None = None,
        progress_bar: bool = False,
    ) -> RulePolicy:
        """Return a rule of a few cells that does what the agent does, or better.

        The agent stays as it is. :meth:`distilled` does the same, and tells more.

        Parameters
        ----------
        n_cells : int, optional
            Of the rule, at most; at least 2. By default 2, 3, 4, 6, 8, 12, 16 and 32 are tried, and
            it is the smallest within a standard error of the best.
        steps : int
            In the environment, at most.
        seed : int, optional
            The same seed gives the same bits.
        env : gymnasium.Env, optional
            Where to play. By default a new environment is made as the agent's own was.
        progress_bar : bool
            Show a live line.

        Warns
        -----
        UserWarning
            If the rule returned less than the agent, by more than a standard error.

        Raises
        ------
        ValueError
            For numbers out of range, if ``env`` has other spaces than the agent was trained with,
            or if no other environment can be made.

        Examples
        --------
        >>> from oda_rl.agents import FittedQAgent
        >>> agent = FittedQAgent("CartPole-v1", seed=0).learn(10_000)
        >>> agent.simplify(n_cells=2, steps=40_000, seed=0).n_cells
        2
        """
        return self.distilled(n_cells, steps, seed, env, progress_bar).policy

    def distilled(
        self,
        n_cells: int | None = None,
        steps: int = STEPS,
        seed: int | None = None,
        env: gym.Env[Any, Any] | None = None,
        progress_bar: bool = False,
    ) -> Distilled:
        """Return the rule of :meth:`simplify`, what it returned, and the curve over its cells."""
        if env is not None:
            self._check_spaces(env)
        place = self.make_separate_env() if env is None else env
        if isinstance(place, ActionChoices) and _boxed(place.env):
            place = place.env
        with _line(steps, progress_bar) as told:
            return distill(self, place, n_cells, steps=steps, seed=seed, told=told)


def _boxed(env: gym.Env[Any, Any]) -> bool:
    """Whether rules for the actions themselves are at hand, of which a grid is offered."""
    try:
        ActionBox.of(spaces_of(env)[1])
    except (TypeError, ValueError):
        return False
    return True


@contextmanager
def _line(total: int, visible: bool) -> Iterator[Callable[[int], None]]:
    """Show a live line of steps."""
    if not visible:
        yield lambda steps: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, refresh_per_second=10) as progress:
        task = progress.add_task("simplifying", total=total)
        yield lambda steps: progress.update(task, completed=steps)
