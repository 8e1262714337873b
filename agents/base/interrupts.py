"""Ctrl-C, and the signals that end a process when a window closes or a machine shuts down."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_OTHERS = ("SIGTERM", "SIGHUP")  # of which Windows has not all


class Interrupt:
    """Whether Ctrl-C has been pressed."""

    requested = False


class Stopped(KeyboardInterrupt):
    """Ctrl-C has been pressed again: nothing more is to be done, be it half done."""


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
    found = [getattr(signal, name) for name in _OTHERS if hasattr(signal, name)]
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
