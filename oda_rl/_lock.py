"""Lock files, which the operating system frees when their process ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oda_rl.files.archive import open_unlinked

try:
    import fcntl
except ImportError:  # Windows: a file that is open there is not removed
    fcntl = None  # type: ignore[assignment]

_HELD: set[int] = set()  # descriptors


class LockedError(OSError):
    """Another process holds a lock."""


@contextmanager
def locked(path: Path, what: str, wait: bool = False) -> Iterator[None]:
    """Hold a lock, a file with the number of this process, and remove it afterwards.

    ``what`` names it in messages. A file left behind by a process that was killed is taken over.

    Raises
    ------
    LockedError
        If another process holds it, and ``wait`` is False.
    LinkError
        If the file is a symbolic link.
    """
    descriptor = _held(path, what, wait)
    _HELD.add(descriptor)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        _HELD.discard(descriptor)
        with suppress(OSError):
            path.unlink()  # while it is held, so that waiting processes notice
        os.close(descriptor)


def _held(path: Path, what: str, wait: bool) -> int:
    while True:
        descriptor = open_unlinked(path, os.O_RDWR | os.O_CREAT)
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        except BlockingIOError:
            holder = os.read(descriptor, 100).decode(errors="replace").strip()  # bytes
            os.close(descriptor)
            raise LockedError(f"{what} is in use by process {holder or '(starting)'}") from None
        except FileNotFoundError:  # removed by its holder meanwhile
            pass
        os.close(descriptor)


def _close_in_child() -> None:
    """Leave locks to the parent: a child that outlives it would still hold them."""
    for descriptor in _HELD:
        os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
