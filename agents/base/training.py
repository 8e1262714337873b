"""What a training shows: a live line, with the seconds that it has taken."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from numba.core.event import Listener, install_listener

if TYPE_CHECKING:
    from oda_rl.agents.base.agent import Agent

_REDRAW_SECONDS = 0.1


Report = Callable[["Agent", int], None]


class Stopwatch(Listener):
    """Seconds that have passed, without those in which numba compiled.

    Parameters
    ----------
    told : callable
        Called when compiling begins.
    """

    def __init__(self, told: Callable[[], None]) -> None:
        self._told, self._begun = told, time.perf_counter()
        self._depth = 0
        self._since = self._compiling = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self._begun - self._compiling

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let what is done meanwhile take no time."""
        begun = time.perf_counter()
        yield
        self._begun += time.perf_counter() - begun

    def on_start(self, event: Any) -> None:
        """Stop."""
        if self._depth == 0:
            self._since = time.perf_counter()
            self._told()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """Go on."""
        self._depth -= 1
        if self._depth == 0:
            self._compiling += time.perf_counter() - self._since


@contextmanager
def stopwatch(told: Callable[[], None]) -> Iterator[Stopwatch]:
    """Give a stopwatch that knows when numba compiles."""
    watch = Stopwatch(told)
    with install_listener("numba:compile", watch):
        yield watch


@contextmanager
def episodes_line(total: int, visible: bool) -> Iterator[Callable[[Sequence[float]], None]]:
    """Show a live line: episodes that were played, and their mean return."""
    if not visible:
        yield lambda returns: None
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.completed}/{task.total} greedy episodes {task.fields[status]}"),
    )
    with Progress(*columns, refresh_per_second=10, transient=True) as progress:
        task = progress.add_task("evaluating", total=total, status="")

        def report(returns: Sequence[float]) -> None:
            mean = sum(returns) / len(returns)
            progress.update(task, completed=len(returns), status=f"return {mean:.1f}")

        yield report


@contextmanager
def progress_line(total: int, visible: bool, begun: int = 0) -> Iterator[tuple[Report, Stopwatch]]:
    """Show a live line: steps, steps/s, return of the last episodes, cells, temperature.

    ``begun`` are steps that have been taken before.
    """
    if not visible:
        with stopwatch(lambda: None) as watch:
            yield lambda agent, steps: None, watch
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps {task.fields[status]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, refresh_per_second=10) as progress:
        task = progress.add_task("training", total=total, completed=begun, status="getting ready")
        drawn = time.perf_counter()

        def compiling() -> None:
            progress.update(task, status="compiling, once", refresh=True)

        def report(agent: "Agent", steps: int) -> None:
            nonlocal drawn
            now = time.perf_counter()
            if now - drawn < _REDRAW_SECONDS and steps < total:
                return
            drawn = now
            progress.update(
                task,
                completed=steps,
                status=f"{(steps - begun) / max(watch.seconds, 1e-9):,.0f}/s "
                f"return {agent.episodes.recent_return():.1f} "
                f"{agent.n_cells} cells"
                + (f" T {agent.temperature:.3g}" if agent.temperature > 0.0 else ""),
            )

        with stopwatch(compiling) as watch:
            yield report, watch
