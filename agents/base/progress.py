"""Progress lines, the stopwatch, and Ctrl-C during training."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from oda_rl.agents.base.agent import Agent


Report = Callable[["Agent", int], None]
_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def report_work(what: str) -> None:
    """Show what is done between two steps, if there is a progress line: one call for each part."""
    listen = _listener.get()
    if listen is not None:
        listen(what)


class Stopwatch:
    """Seconds since it was made, without pauses."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._begun

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Pause the clock for the block."""
        begun = time.perf_counter()
        yield
        self._begun += time.perf_counter() - begun


@contextmanager
def live_line(
    text: str, total: int, visible: bool, begun: int = 0, status: str = "", transient: bool = False
) -> Iterator[Callable[[int, str], None]]:
    """Show a live bar, and give a function to update what is completed, and its status."""
    if not visible:
        yield lambda completed, status: None
        return
    from rich import progress
    from rich.table import Column

    # The seconds go on while a fit or a search takes its time; a narrow terminal shortens the bar.
    elapsed = progress.TimeElapsedColumn(table_column=Column(no_wrap=True))
    left = progress.TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True))
    columns = progress.BarColumn(bar_width=20), progress.TextColumn(text), elapsed, left
    with progress.Progress(*columns, refresh_per_second=10, transient=transient) as line:
        task = line.add_task("", total=total, completed=begun, status=status)
        yield lambda completed, status: line.update(task, completed=completed, status=status)


@contextmanager
def episodes_line(total: int, visible: bool) -> Iterator[Callable[[Sequence[float]], None]]:
    """Show a live line with the number of greedy episodes and their mean return."""
    text = "{task.completed}/{task.total} greedy episodes {task.fields[status]}"
    with live_line(text, total, visible, transient=True) as update:
        yield lambda returns: update(len(returns), f"return {sum(returns) / len(returns):.1f}")


@contextmanager
def progress_line(total: int, visible: bool, begun: int = 0) -> Iterator[tuple[Report, Stopwatch]]:
    """Show a live line: steps (``begun``: taken before), steps/s, return, cells, temperature."""
    text = "{task.completed:,.0f}/{task.total:,.0f} steps {task.fields[status]}"
    status, taken = "starting (a first run compiles)", begun
    with live_line(text, total, visible, begun, status) as update:
        drawn, started = 0.0, time.perf_counter()
        first: tuple[int, float] | None = None  # steps and time of the first report

        def report(agent: "Agent", steps: int) -> None:
            nonlocal drawn, first, taken
            taken = steps
            now = time.perf_counter()
            # Compiling ends before the first report: later speeds are counted from there.
            since = first or (begun, started)
            first = first or (steps, now)
            if not visible or (now - drawn < 0.1 and steps < total):  # seconds
                return
            drawn = now
            speed = (steps - since[0]) / max(now - since[1], 1e-9)
            what, value = "delivers", agent.delivered_return
            if not np.isfinite(value):
                what, value = "return", agent.episodes.recent_return()
            n = agent.n_cells
            status = f"{speed:,.0f}/s {what} {value:.1f} {n} cell{'s' * (n != 1)}"
            if agent.temperature > 0.0:
                status += f" T {agent.temperature:.3g}"
            update(steps, status)

        token = _listener.set(lambda what: update(taken, what))
        try:
            yield report, Stopwatch()
        finally:
            _listener.reset(token)


class Interrupt:
    """Whether Ctrl-C has been pressed."""

    requested = False


class Stopped(KeyboardInterrupt):
    """Ctrl-C has been pressed again: stop at once."""


@contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """Note the first Ctrl-C, SIGTERM or SIGHUP, so that no update is interrupted.

    A second one raises :class:`Stopped` at once. Outside of the main thread nothing changes.
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
    """Return SIGTERM and SIGHUP, unless they are ignored, as under nohup."""
    existing = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return [one for one in existing if signal.getsignal(one) is not signal.SIG_IGN]


@contextmanager
def _handled(
    signals: list[signal.Signals], handler: Callable[[int, FrameType | None], Any]
) -> Iterator[None]:
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
