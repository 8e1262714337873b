"""Where compiled code is kept: in the user's cache folder, never beside the package.

pip would leave numba's files behind in ``__pycache__``, and what is left imports as an empty
package. Each installation has a folder of its own, named by the versions of Python and numba, by
its place and by its sources, this package's version included: numba takes code for fresh as long as
the function's own file is, but the functions that it calls are part of its code, too. numba itself
tells processors apart.
"""

import gc
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
import platformdirs

from oda_rl._lock import locked
from oda_rl.files.archive import refuse_links

_config: Any = numba.config  # which has no types
_changing_config = threading.Lock()
_HERE = Path(__file__).parent
FOLDER = Path(_config.CACHE_DIR or platformdirs.user_cache_path("oda-rl", False)).absolute()


@cache
def sources() -> str:
    """Return a digest of the package's files (names, sizes, times) and of how they are compiled."""
    # In a source checkout two of its folders lie beside this one.
    checkout = not (_HERE / "agents").is_dir()
    beside = [_HERE.parent / "agents", _HERE.parent / "envs"] if checkout else []
    files = sorted(path for folder in (_HERE, *beside) for path in folder.rglob("*.py"))
    stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return _digest((_config.BOUNDSCHECK, stats))


def _digest(content: object) -> str:
    return hashlib.sha256(str(content).encode()).hexdigest()[:8]


def clear() -> None:
    """Remove all compiled code of this package."""
    for folder in FOLDER.glob("oda_rl-*"):
        shutil.rmtree(folder)


@cache
def _own_folder() -> Path | None:
    """Make the folder of this installation's code; None if nothing can be written there."""
    python, place = f"{sys.version_info[0]}.{sys.version_info[1]}", _digest(_HERE)
    versions = FOLDER / f"oda_rl-py{python}-numba{numba.__version__}"
    folder = versions / f"{place}-{sources()}"
    try:
        refuse_links(versions, folder)
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)  # another process may be faster
            for earlier in set(versions.glob(f"{place}-*")) - {folder}:
                shutil.rmtree(earlier, ignore_errors=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        _warn(str(error.strerror))
        return None
    return folder


@cache
def _warn(reason: str) -> None:
    """Warn once in a process; numba makes Python forget which warnings it has shown."""
    warnings.warn(
        f"compiled code cannot be kept in {FOLDER} ({reason}): each process compiles anew; "
        "set NUMBA_CACHE_DIR to a folder that can be written",
        RuntimeWarning,
        stacklevel=2,
    )


class _Cache:
    """numba's cache of a function, under a lock; an error costs the cache, not the call.

    numba has no public hook for either. It changes its list of a function's files without a lock:
    two processes that compile the function for different arguments at once may both write the same
    file, and the function returns nonsense from then on (numba issue 4807).
    """

    def __init__(self, own: Any) -> None:
        self._own = own
        self.cache_path, self.flush = own.cache_path, own.flush

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the code for a signature, or None."""
        code = None
        try:
            code = self._own.load_overload(signature, context)
        except Exception:  # whatever a damaged file raises
            with suppress(OSError):
                self.flush()
        if code is None:  # numba compiles now: a tenth of its time would go into collecting garbage
            gc.freeze()
        return code

    def save_overload(self, signature: Any, code: Any) -> None:
        """Write the code for a signature."""
        gc.unfreeze()
        try:
            os.makedirs(self.cache_path, exist_ok=True)
            refuse_links(self.cache_path)
            with locked(Path(self.cache_path, "lock"), "the cache", wait=True):
                self._own.save_overload(signature, code)
        except OSError as error:
            _warn(str(error.strerror))


def keep(dispatcher: Any) -> Any:
    """Let a function that was given to numba keep its compiled code."""
    folder = _own_folder()
    if folder is None:
        return dispatcher
    with _changing_config:
        before, _config.CACHE_DIR = _config.CACHE_DIR, str(folder)
        try:
            dispatcher.enable_caching()  # which reads it
        except RuntimeError:  # the function was not read from a file: nothing to keep it by
            return dispatcher
        finally:
            _config.CACHE_DIR = before
    if folder not in Path(dispatcher.stats.cache_path).parents:  # numba went elsewhere
        dispatcher._cache.disable()
    dispatcher._cache = _Cache(dispatcher._cache)
    return dispatcher
