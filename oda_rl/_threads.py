"""Linear algebra in one thread, so that sums are added up in the same order everywhere.

Products of matrices and decompositions add up in another order where they are divided among other
numbers of threads, and their last bits differ. The matrices here are small: threads gain little.
What is worked out of each row by itself is the same in any number of threads, and may be divided.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from functools import partial
from typing import Any

import numpy as np

from oda_rl._types import IntArray

_LATE = ("scipy.linalg", "scipy.linalg._fblas")  # bring linear algebra of their own


class _Limit:
    """Libraries, and the numbers of threads that they had before a limit."""

    def __init__(self, libraries: list[Any]) -> None:
        self._setters = [
            # Of OpenBLAS, threadpoolctl sets the number for one thread of the process only, though
            # it is the same for all.
            (library.get_num_threads,
             getattr(library, "_real_set_num_threads", library.set_num_threads))
            for library in libraries
        ]  # fmt: skip
        self._before: list[int] = []

    def begin(self) -> None:
        """Let each library work in one thread."""
        self._before = [count() for count, _ in self._setters]
        for threads, (_, setter) in zip(self._before, self._setters, strict=True):
            if threads != 1:
                setter(1)

    def end(self) -> None:
        """Let each library work in as many threads as before."""
        for threads, (_, setter) in zip(self._before, self._setters, strict=False):
            if threads != 1:
                setter(threads)
        self._before = []


class _Own(threading.local):
    """What each thread has of its own."""

    depth = 0
    """Of nested sections."""
    limit: _Limit | None = None
    """Of libraries whose number of threads is each thread's own."""


class _Shared:
    """What all threads of a process share, as most libraries' numbers of threads are shared."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0  # threads that are in a section
        self.known: tuple[bool, ...] | None = None
        self.limit = _Limit([])
        self.others: list[Any] = []  # libraries whose number is each thread's own

    def enter(self) -> None:
        """Limit the libraries if this is the first thread to come."""
        with self.lock:
            self.inside += 1
            late = tuple(name in sys.modules for name in _LATE)
            if late != self.known:
                self.limit.end()
                found, self.known = _found("blas"), late
                self.others = [one for one in found if _is_of_each_thread(one)]
                self.limit = _Limit([one for one in found if not _is_of_each_thread(one)])
                self.limit.begin()
            elif self.inside == 1:
                self.limit.begin()
        _own.limit = _Limit(self.others) if self.others else None
        if _own.limit is not None:
            _own.limit.begin()

    def leave(self) -> None:
        """Give them back their threads if this is the last one to go."""
        if _own.limit is not None:
            _own.limit.end()
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.limit.end()

    def forked(self) -> None:
        """Be of the only thread that there is in a new process."""
        self.lock = threading.Lock()
        self.inside = int(_own.depth > 0)
        if self.inside == 0:
            self.limit.end()


_own, _shared = _Own(), _Shared()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.forked)


def _is_of_each_thread(library: Any) -> bool:
    return bool(library.internal_api == "openblas" and library.threading_layer == "openmp")


class _OneThread(ContextDecorator):
    """A section in which the libraries work in one thread; there may be others within it."""

    def __enter__(self) -> None:
        if _own.depth == 0:
            _shared.enter()
        _own.depth += 1

    def __exit__(self, *raised: object) -> None:
        _own.depth -= 1
        if _own.depth == 0:
            _shared.leave()


_SECTION = _OneThread()  # which keeps nothing itself


def one_thread() -> _OneThread:
    """Let products of matrices and decompositions work in one thread; also a decorator.

    The libraries get back their threads when the last thread of the process leaves such a section:
    what others compute meanwhile is slower, but no different.

    Examples
    --------
    >>> import numpy as np
    >>> with one_thread():
    ...     total = np.ones(1000) @ np.ones(1000)
    """
    return _SECTION


@contextmanager
def one_thread_of_openmp() -> Iterator[None]:
    """Let loops of OpenMP, which k-means of scikit-learn has, work in one thread, likewise.

    The number is each thread's own, and takes longer to set.
    """
    limit = _Limit(_found("openmp"))
    limit.begin()
    try:
        yield
    finally:
        limit.end()


def _found(kind: str) -> list[Any]:
    """Return the libraries of a kind that have been loaded."""
    from threadpoolctl import ThreadpoolController  # takes a while

    controllers = ThreadpoolController().lib_controllers
    return [library for library in controllers if library.user_api == kind]


def in_parts(work: Callable[[IntArray], None], rows: IntArray, least: int) -> None:
    """Do something to rows, in a thread for each ``least`` of them, as far as there are processors.

    Of these there are as many as ``OMP_NUM_THREADS`` says, as for other libraries, or the process
    may use. The first part is this thread's. The others are made anew: those of a pool would not be
    there after a fork. All have ended when this returns, or raises what one of them has raised.
    Where no thread can begin, as at the end of a process, its part is this one's, too.

    Examples
    --------
    >>> squares = np.zeros(1000)
    >>> def square(some):
    ...     squares[some] = some**2
    >>> in_parts(square, np.arange(1000), least=100)
    >>> squares[[0, 1, 999]]
    array([0.00000e+00, 1.00000e+00, 9.98001e+05])
    """
    count = min(_processors(), len(rows) // least)
    if count <= 1:
        work(rows)
        return
    first, *others = np.array_split(rows, count)
    own, threads = [first], []
    for part in others:
        try:
            threads.append(_Thread(partial(work, part)))
        except RuntimeError:
            own.append(part)
    try:
        for part in own:
            work(part)
    finally:
        for thread in threads:
            thread.join()
    for thread in threads:
        if thread.raised is not None:
            raise thread.raised


class _Thread(threading.Thread):
    """Does something from now on, and keeps what it raises; an executor takes twice as long."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self._work = work
        self.raised: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Do it."""
        try:
            self._work()
        except BaseException as raised:
            self.raised = raised


def _processors() -> int:
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    own = getattr(os, "sched_getaffinity", None)  # which not all systems have
    return len(own(0)) if own else os.cpu_count() or 1
