"""Where compiled code is kept: a file for each function and signature, named by what it is made of.

numba keeps a list of a function's files, and does not lock it: two processes that compile the
function for different arguments at once may give both the same file, and it returns nonsense from
then on. Here the name of a file follows from what is in it, so that there is no list.

numba also takes code for fresh as long as the function's own file is. What it calls is part of the
code, too: here it is fresh as long as no file of this package has changed.
"""

import glob
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config
from numba.core.caching import IndexDataCacheFile

from oda_rl._numba.registries import Cache

_numba: Any = config  # of which numba does not tell the types
_HERE = Path(__file__).parent


@cache
def sources() -> str:
    """Return a digest of the package's files (names, sizes, times) and of how they are compiled."""
    # In a source checkout two of its folders lie beside this one.
    folders = [_HERE, *(_HERE.parent / part for part in ("agents", "envs"))]
    found = [
        (os.path.relpath(file.path, _HERE), file.stat().st_size, file.stat().st_mtime_ns)
        for folder in folders
        for file in _python_files(folder)
    ]
    return _digest((numba.__version__, _numba.BOUNDSCHECK, sorted(found)))


def _python_files(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _python_files(entry.path)


def _digest(content: object) -> str:
    return hashlib.sha256(str(content).encode()).hexdigest()[:12]


class CodeFiles(IndexDataCacheFile):
    """The compiled code of one function on disk, without numba's list of its files."""

    def __init__(self, folder: str, name: str, own: object) -> None:
        super().__init__(folder, name, own)  # type: ignore[no-untyped-call]
        self._folder, self._name, self._own = Path(folder), name, own

    def _stamp(self) -> str:
        """Return what all signatures of the function have in common."""
        return _digest((self._own, sources()))

    def _file(self, key: tuple[Any, ...]) -> str:
        return f"{self._name}.{self._stamp()}.{_digest(key)}.nbc"

    def _files(self) -> Iterator[Path]:
        return self._folder.glob(f"{glob.escape(self._name)}.*.nbc")

    def load(self, key: tuple[Any, ...]) -> Any:
        """Return the code for a signature and machine, or None."""
        try:
            kept, code = self._load_data(self._file(key))  # type: ignore[no-untyped-call]
        except OSError:
            return None
        return code if kept == key else None

    def save(self, key: tuple[Any, ...], code: Any) -> None:
        """Write code; what was made of other sources goes."""
        for path in self._files():
            if f".{self._stamp()}." not in path.name:
                _remove(path)
        self._save_data(self._file(key), (key, code))  # type: ignore[no-untyped-call]

    def flush(self) -> None:
        """Remove all code of the function; numba asks for it when it compiles anew."""
        for path in self._files():
            _remove(path)


def _remove(path: Path) -> None:
    with suppress(OSError):  # another process may have removed it, or be reading it
        path.unlink()


def keep(dispatcher: Any) -> Any:
    """Let a function that was given to numba keep its compiled code here."""
    kept = dispatcher._cache
    kept.__class__ = Cache
    own = kept._impl.locator.get_source_stamp()
    kept._cache_file = CodeFiles(kept.cache_path, kept._impl.filename_base, own)
    return dispatcher
