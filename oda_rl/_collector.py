"""When Python's garbage collector has nothing to look for: a tenth of the time of a first call."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Pause:
    """Keeps the collector from searching. Pauses may overlap."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth, self._was_enabled = 0, False

    def begin(self) -> None:
        """Switch the collector off."""
        with self._lock:
            if self._depth == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._depth += 1

    def end(self) -> None:
        """Switch it on again, if it was on, at the end of the last pause."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._was_enabled:
                if gc.get_freeze_count() == 0:  # else what somebody has frozen would thaw
                    gc.freeze()
                    gc.unfreeze()  # what is new is old now, and not searched at once
                gc.enable()


pause = Pause()


@contextmanager
def importing() -> Iterator[None]:
    """Import modules with their hundred thousand objects, none of which is garbage."""
    pause.begin()
    try:
        yield
    finally:
        pause.end()
