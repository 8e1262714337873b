"""Fixtures, and numba's cache: fresh where sources have changed, and shared by two workers."""

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws without a screen
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of small matrices, threads only wait for each other

ROOT = Path(__file__).parent.parent


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # of pytest-xdist; it starts when stale code is gone
        save_one_at_a_time()
    else:
        delete_stale_code()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # What compiles all goes first, so that the others load what it has compiled.
    items.sort(key=lambda item: item.name != "test_nothing_is_left_to_compile")


def delete_stale_code() -> None:
    # numba's cache of a function does not notice that a function it calls has changed in another
    # file: if any source is newer than any cached code, compile all anew.
    folders = [ROOT / name for name in ("oda_rl", "agents", "envs")]
    sources = [path.stat().st_mtime for folder in folders for path in folder.rglob("*.py")]
    cached = [path for folder in folders for path in folder.rglob("__pycache__/*.nb?")]
    if cached and min(path.stat().st_mtime for path in cached) < max(sources):
        for path in cached:
            path.unlink()


def save_one_at_a_time() -> None:
    # numba numbers the files of a function's signatures, and does not lock the list of them: two
    # processes that add one at once would give both the same file.
    from numba.core.caching import IndexDataCacheFile

    save = IndexDataCacheFile.save

    def save_alone(self: Any, key: Any, data: Any) -> None:
        with open(__file__) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            save(self, key, data)

    IndexDataCacheFile.save = save_alone


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT
