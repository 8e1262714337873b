"""Linear algebra in one thread, so that sums are added up in the same order everywhere.

Products of matrices and decompositions add up in another order where they are divided among other
numbers of threads, and their last bits differ. The matrices here are small: threads gain little.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LATE = ("scipy.linalg", "scipy.linalg._fblas")  # bring linear algebra of their own


class _Own(threading.local):
    depth = 0
    """Of nested sections of this thread."""


class _Shared:
    """What all threads of a process share, as the libraries' numbers of threads are shared, too."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0  # threads that are in a section
        self.known: tuple[bool, ...] | None = None
        self.libraries: list[Any] = []
        self.before: list[int] = []  # their numbers of threads

    def enter(self) -> None:
        """Limit the libraries if this is the first thread to come."""
        with self.lock:
            self.inside += 1
            late = tuple(name in sys.modules for name in _LATE)
            if late != self.known:
                self.restore()
                self.libraries, self.known = _found("blas"), late
                self.limit()
            elif self.inside == 1:
                self.limit()

    def leave(self) -> None:
        """Give them back their threads if this is the last one to go."""
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.restore()

    def limit(self) -> None:
        """Let each library work in one thread."""
        self.before = [library.get_num_threads() for library in self.libraries]
        for library, threads in zip(self.libraries, self.before, strict=True):
            if threads != 1:
                library.set_num_threads(1)

    def restore(self) -> None:
        """Let each library work in as many threads as before."""
        for library, threads in zip(self.libraries, self.before, strict=True):
            if threads != 1:
                library.set_num_threads(threads)
        self.before = [1] * len(self.libraries)

    def forked(self) -> None:
        """Be of the only thread that there is in a new process."""
        self.lock = threading.Lock()
        self.inside = int(_own.depth > 0)
        if self.inside == 0:
            self.restore()


_own, _shared = _Own(), _Shared()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.forked)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let products of matrices and decompositions work in one thread; also a decorator.

    The libraries get back their threads when the last thread of the process leaves such a section:
    what others compute meanwhile is slower, but no different.

    Examples
    --------
    >>> import numpy as np
    >>> with one_thread():
    ...     total = np.ones(1000) @ np.ones(1000)
    """
    if _own.depth == 0:
        _shared.enter()
    _own.depth += 1
    try:
        yield
    finally:
        _own.depth -= 1
        if _own.depth == 0:
            _shared.leave()


@contextmanager
def one_thread_of_openmp() -> Iterator[None]:
    """Let loops of OpenMP, which k-means of scikit-learn has, work in one thread, likewise.

    The number is each thread's own, and takes longer to set.
    """
    loops = [(library, library.get_num_threads()) for library in _found("openmp")]
    for library, _ in loops:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, threads in loops:
            library.set_num_threads(threads)


def _found(kind: str) -> list[Any]:
    """Return the libraries of a kind that have been loaded."""
    from threadpoolctl import ThreadpoolController  # takes a while

    controllers = ThreadpoolController().lib_controllers
    return [library for library in controllers if library.user_api == kind]
