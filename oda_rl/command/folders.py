"""A run folder while a training writes to it: tried, locked, swept, and then of one agent."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from oda_rl._lock import LockedError, locked
from oda_rl.agents.base.files import OF_AGENT
from oda_rl.command.logs import LOGS
from oda_rl.files.archive import open_unlinked, refuse_links, sweep

CHECKPOINT_FILE = "checkpoint.zip"
_RESERVE, _LOCK = ".reserve", ".lock"
_WRITTEN = (*OF_AGENT, CHECKPOINT_FILE, *LOGS.values(), _RESERVE, _LOCK)


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Make a run folder and keep it for this process; remove what one that was killed left behind.

    Raises
    ------
    OSError
        If it cannot be written to, something that would be written there is a symbolic link, or
        another training writes to it: the message names the link, or the process.
    """
    refuse_links(*(folder / name for name in _WRITTEN))
    made = not folder.exists()
    try:
        with ExitStack() as stack:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(folder / _LOCK, f"out {str(folder)!r}"))
            except LockedError:
                raise
            except OSError as error:
                raise OSError(
                    f"out is {str(folder)!r}, which cannot be written to: {error.strerror}"
                ) from error
            sweep(folder, [*OF_AGENT, CHECKPOINT_FILE])
            yield
    finally:
        if made:
            with suppress(OSError):
                folder.rmdir()  # if it is empty


@contextmanager
def reserved(folder: Path, size: int) -> Iterator[Callable[[], None]]:
    """Hold so many bytes of the disk, so that an agent can be saved when it is full.

    Gives a function that frees them.

    Raises
    ------
    OSError
        If there are not so many.
    """
    path = folder / _RESERVE

    def free() -> None:
        path.unlink(missing_ok=True)

    try:
        try:
            _allocate(path, size)
        except OSError as error:
            raise OSError(
                f"out is {str(folder)!r}, where no {size / 1e6:,.0f} MB can be written, which the "
                f"agent and its checkpoint may have: {error.strerror}"
            ) from error
        yield free
    finally:
        free()


def _allocate(path: Path, size: int) -> None:
    with open(path, "wb", opener=open_unlinked) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        elif shutil.disk_usage(path.parent).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def forget_others(folder: Path, log: str | None, checkpoint: bool) -> None:
    """Remove logs and a checkpoint of an earlier training, unless this one writes them, too."""
    for kind, name in LOGS.items():
        if kind != log:
            remove(folder / name)
    if not checkpoint:
        remove(folder / CHECKPOINT_FILE)


def remove(path: Path) -> None:
    """Remove a file, or a folder and what is in it, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
