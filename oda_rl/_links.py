"""What is written is written where it seems to be: symbolic links are refused, not followed."""

import errno
import os
from typing import Any


class LinkError(OSError):
    """A file or folder that is to be written is a symbolic link; the message says which."""

    def __init__(self, path: Any) -> None:
        super().__init__(errno.ELOOP, "it is a symbolic link", os.fspath(path))

    def __str__(self) -> str:
        return (
            f"{self.filename!r} is a symbolic link, through which another file would be "
            "overwritten: remove it, or write elsewhere"
        )


def refuse_links(*paths: str | os.PathLike[str]) -> None:
    """Raise LinkError if one of the files or folders that are to be written is a symbolic link."""
    for path in paths:
        if os.path.islink(path):
            raise LinkError(path)


def open_unlinked(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file as ``os.open`` does, but no symbolic link; an ``opener`` for ``open``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +ELLIPSIS
    ...     os.symlink("/etc/hosts", f"{folder}/log")
    ...     open(f"{folder}/log", "w", opener=open_unlinked)
    Traceback (most recent call last):
    oda_rl._links.LinkError: '...log' is a symbolic link, through which another file would be ...
    """
    refuse_links(path)
    # O_NOFOLLOW, where there is one, covers a link that is made between these two lines.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
