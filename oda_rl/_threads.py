"""Linear algebra in one thread, and learning in one thread at a time.

The last bits of matrix products depend on the number of BLAS threads. Matrices here are small, so
threads gain little.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager
from threading import get_ident
from typing import Any

_LEARNING: dict[int, int] = {}  # thread in which an object learns, by the object's id
_USING: set[tuple[int, int]] = set()  # ids of objects, and threads in which they are used
_CHANGE = threading.Condition()  # of both
_LATE = ("scipy.linalg", "scipy.linalg._fblas")  # load another BLAS


class _OneThread(ContextDecorator):
    """A section, shared by the threads of a process, in which each BLAS uses one thread.

    It ends when the last thread leaves; threadpoolctl's limits end with the thread that set them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._limited: list[tuple[Any, int]] = []
        self._loaded: tuple[bool, ...] = ()
        self._libraries: list[Any] = []

    def __enter__(self) -> None:
        with self._lock:
            loaded = tuple(name in sys.modules for name in _LATE)
            if loaded != self._loaded or not self._libraries:
                from threadpoolctl import ThreadpoolController  # slow to import

                self._restore()
                self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
                self._loaded = loaded
            if not self._limited:
                counts = [(blas, blas.get_num_threads()) for blas in self._libraries]
                self._limited = [(blas, count) for blas, count in counts if count != 1]
                _set_threads([(blas, 1) for blas, _ in self._limited])
            self._depth += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._restore()

    def _restore(self) -> None:
        _set_threads(self._limited)
        self._limited = []

    def after_fork(self) -> None:
        """Replace locks, which a thread of the parent process may hold, and forget its threads."""
        global _CHANGE
        self._lock, _CHANGE = threading.Lock(), threading.Condition()
        _USING.clear()


def _set_threads(counts: list[tuple[Any, int]]) -> None:
    for blas, count in counts:
        if hasattr(blas, "clear_controlling_thread"):  # else OpenBLAS ignores other threads
            blas.clear_controlling_thread(force=True)
        blas.set_num_threads(count)


_SECTION = _OneThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SECTION.after_fork)


def one_thread() -> _OneThread:
    """Return the section, a context manager and decorator; sections may be nested."""
    return _SECTION


def check_thread(learner: object) -> None:
    """Raise RuntimeError if an estimator or agent learns in another thread."""
    if _LEARNING.get(id(learner), get_ident()) != get_ident():
        name = type(learner).__name__
        raise RuntimeError(
            f"another thread trains this {name}, which belongs to one thread at a time: load its "
            "file, or copy.deepcopy it, for another one"
        )


def learns(learner: object) -> bool:
    """Whether an estimator or agent learns at present."""
    return id(learner) in _LEARNING


@contextmanager
def using(learner: object, learns: bool = False) -> Iterator[None]:
    """Use an estimator or agent; to learn, wait for other threads to end, and refuse new ones."""
    own, thread = key = id(learner), get_ident()
    nested = key in _USING
    with _CHANGE:
        if learns or not nested:
            check_thread(learner)
        begins = learns and own not in _LEARNING
        if begins:
            _LEARNING[own] = thread
        _USING.add(key)
    try:
        if begins:
            with _CHANGE:
                _CHANGE.wait_for(lambda: all(i != own or t == thread for i, t in _USING))
        yield
    finally:
        with _CHANGE:
            if begins:
                del _LEARNING[own]
            if not nested:
                _USING.discard(key)
            _CHANGE.notify_all()
