"""Fixtures, and numba's cache: fresh where sources have changed, and shared by two workers."""

import fcntl
import gc
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws without a screen
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of small matrices, threads only wait for each other

ROOT = Path(__file__).parent.parent
FOLDERS = [ROOT / name for name in ("oda_rl", "agents", "envs")]
COMPILED = [ROOT / "tests" / "__pycache__" / f"compiled-{i}.json" for i in range(2)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-case-in",
        type=int,
        default=1,
        metavar="N",
        help="of the cases of each file, run the first and every Nth after it",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    cases: Counter[str] = Counter()
    kept, left = [], []
    for item in items:
        file = item.nodeid.split("::")[0]
        (left if cases[file] % config.getoption("one_case_in") else kept).append(item)
        cases[file] += 1
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # of pytest-xdist; it starts when all is compiled
        save_one_at_a_time()
        return
    delete_stale_code()
    if config.getoption("numprocesses", None) and not cached():
        compile_in_two_processes()


def cached() -> list[Path]:
    """Files that numba has written."""
    return [path for folder in FOLDERS for path in folder.rglob("__pycache__/*.nb?")]


def compile_in_two_processes() -> None:
    # Workers that all begin with nothing would compile the same. What either process does shares
    # little with the other's: agents that learn values; the others, and estimators.
    from oda_rl.command.warming import WORK

    names = list(WORK)
    values = names.index("ModelAgent")
    code = (
        "import conftest, oda_rl.command.warming as w; conftest.save_one_at_a_time(); "
        "w.warm({names}); conftest.write_called({file!r})"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code.format(names=own, file=str(file))], cwd=ROOT / "tests"
        )
        for own, file in zip((names[:values], names[values:]), COMPILED, strict=True)
    ]
    assert [process.wait() for process in processes] == [0, 0]


def write_called(file: str) -> None:
    """Write which compiled functions of the package were called here, and with which types.

    With a warm cache these are those that Python has called, else what those call, too.
    """
    from numba.core.dispatcher import Dispatcher

    functions = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
    called = [
        (f.__module__, f.__qualname__, str(types)) for f in functions for types in f.overloads
    ]
    own = [one for one in called if one[0].startswith("oda_rl")]
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(json.dumps(own), encoding="utf-8")


def delete_stale_code() -> None:
    # numba's cache of a function does not notice that a function it calls has changed in another
    # file: if any source is newer than any cached code, compile all anew.
    sources = [path.stat().st_mtime for folder in FOLDERS for path in folder.rglob("*.py")]
    if cached() and min(path.stat().st_mtime for path in cached()) < max(sources):
        for path in (*cached(), *COMPILED):
            path.unlink(missing_ok=True)


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
