"""What is shown while a training goes on, how long it takes, and how Ctrl-C ends it."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oda_rl.agents.base.agent import Agent

_REDRAW_SECONDS = 0.1
_SIGNALS = ("SIGTERM", "SIGHUP")  # of which Windows has not all

Report = Callable[["Agent", int], None]


class Stopwatch:
    """Seconds since it was made, without those in which it was stopped."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds that have passed."""
        return time.perf_counter() - self._begun

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Pause the clock for the block."""
        begun = time.perf_counter()
        yield
        self._begun += time.perf_counter() - begun


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
        yield lambda agent, steps: None, Stopwatch()
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps {task.fields[status]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, refresh_per_second=10) as progress:
        task = progress.add_task(
            "training", total=total, completed=begun, status="compiling, in the first run"
        )
        drawn, started = 0.0, time.perf_counter()
        first: tuple[int, float] | None = None  # step and time of the first report

        def report(agent: "Agent", steps: int) -> None:
            nonlocal drawn, first
            now = time.perf_counter()
            # Compiling ends before the first report: later speeds are counted from there.
            since = first or (begun, started)
            first = first or (steps, now)
            if now - drawn < _REDRAW_SECONDS and steps < total:
                return
            drawn = now
            speed = (steps - since[0]) / max(now - since[1], 1e-9)
            progress.update(
                task,
                completed=steps,
                status=f"{speed:,.0f}/s return {agent.episodes.recent_return():.1f} "
                f"{agent.n_cells} cells"
                + (f" T {agent.temperature:.3g}" if agent.temperature > 0.0 else ""),
            )

        yield report, Stopwatch()


class Interrupt:
    """Whether Ctrl-C has been pressed."""

    requested = False


class Stopped(KeyboardInterrupt):
    """Ctrl-C has been pressed again: stop at once, whatever is left undone."""


Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """Note the first Ctrl-C instead of raising, so that no update is left half done.

    A second one raises :class:`Stopped` at once, whatever was to be done before. SIGTERM and
    SIGHUP are treated as Ctrl-C. Outside of the main thread nothing is changed.
    """
    interrupt = Interrupt()

    def note(signal_number: int, frame: FrameType | None) -> None:
        if interrupt.requested:
            raise Stopped
        interrupt.requested = True

    with _handled([signal.SIGINT, *_others()], note):
        yield interrupt


@contextmanager
def ending_as_interrupts() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does."""

    def stop(signal_number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(_others(), stop):
        yield


def _others() -> list[signal.Signals]:
    """Return those that are not ignored, as they are under nohup."""
    found = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    return [one for one in found if signal.getsignal(one) is not signal.SIG_IGN]


@contextmanager
def _handled(signals: list[signal.Signals], handler: Handler) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {one: signal.getsignal(one) for one in signals}
    try:
        for one in signals:
            signal.signal(one, handler)
        yield
    finally:
        for one, other in previous.items():
            signal.signal(one, signal.SIG_DFL if other is None else other)
