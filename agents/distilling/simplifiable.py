"""What an agent has learned, as a rule of a few cells: :meth:`Simplifiable.simplify`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym

from oda_rl.agents.distilling.distil import STEPS, Distilled, distill
from oda_rl.agents.environments.spaces import ActionBox, spaces_of
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.training.player import Player
from oda_rl.envs.wrappers import ActionChoices


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
        """Return a rule of a few cells that does what the agent does, or better; it stays as it is.

        :meth:`distilled` does the same, and tells more.

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
            For numbers out of range, or if no other environment can be made.

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
        place = self._other_env() if env is None else env
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
