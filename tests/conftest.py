"""Fixtures, and code that is compiled once for two workers."""

import gc
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from oda_rl._cache import sources

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws without a screen
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of small matrices, threads only wait for each other
# Many tests start Python: whoever keeps it from writing bytecode, reading it halves the imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
gc.set_threshold(50_000)  # else a sixth of the time of compiling goes into the search for cycles

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
COMPILED = [ROOT / "tests" / "__pycache__" / f"compiled-{i}.json" for i in range(2)]


@pytest.fixture(scope="session", autouse=True)
def compiled_loops_from_the_first_step():
    """Test what trainings of some length run, with few steps."""
    from oda_rl.agents.two_timescale.engine import OnlineEngine

    OnlineEngine.steps_before_loop = 0


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
        return
    if config.getoption("numprocesses", None) and not all(map(read_called, COMPILED)):
        compile_in_two_processes()


def compile_in_two_processes() -> None:
    # Workers that all begin with nothing would compile the same. One process begins at the list's
    # front and the other at its end, as what lies far apart in it shares little.
    with tempfile.TemporaryDirectory() as claims:
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", f"import conftest as c; c.compile_from{step, claims, file}"],
                cwd=ROOT / "tests",
            )
            for step, file in zip((1, -1), map(str, COMPILED), strict=True)
        ]
        assert [process.wait() for process in processes] == [0, 0]


def compile_from(step: int, claims: str, file: str) -> None:
    """Compile pieces from one end of the list (``step`` 1 or -1) until the other process's."""
    from rich.console import Console

    from oda_rl.command.warming import WORK, warm

    with suppress(FileExistsError):
        for name in [*WORK][::step]:
            Path(claims, name).touch(exist_ok=False)
            warm([name], Console(quiet=True))
    write_called(file)


def write_called(file: str) -> None:
    """Write of which sources, which compiled functions were called here, and with which types.

    With a warm cache these are those that Python has called, else what those call, too.
    """
    from numba.core.dispatcher import Dispatcher

    functions = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
    called = [
        (f.__module__, f.__qualname__, str(types)) for f in functions for types in f.overloads
    ]
    own = [one for one in called if one[0].startswith("oda_rl")]
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(json.dumps([sources(), *own]), encoding="utf-8")


def read_called(file: Path) -> set[tuple[str, str, str]]:
    """Return what :func:`write_called` wrote, if that was with the sources of now."""
    written = json.loads(file.read_text(encoding="utf-8")) if file.exists() else [""]
    return {tuple(one) for one in written[1:]} if written[0] == sources() else set()


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def cluster():
    """Two Dask workers; one that is killed is started anew, and its tasks are run again once."""
    import dask
    from distributed import LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    allowed = dask.config.set({"distributed.scheduler.allowed-failures": 1})
    with allowed, LocalCluster(**options) as own:
        yield own


@pytest.fixture
def victim(cluster):
    """The process of one of the cluster's workers."""
    from distributed import Client

    with Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2)
        return next(iter(client.run(os.getpid).values()))


@pytest.fixture
def without_figures(monkeypatch):
    """Let the command train without the figures at the end, which take a second."""
    monkeypatch.setattr("oda_rl.command.training.write_figures", lambda *given, **more: [])


@pytest.fixture(scope="session")
def small_agent(tmp_path_factory):
    """A file of an online agent with few cells."""
    from oda_rl.agents import TwoTimescaleAgent

    path = tmp_path_factory.mktemp("small") / "agent.zip"
    agent = TwoTimescaleAgent("CartPole-v1", partition="som", map_shape=(1, 2), seed=0)
    agent.learn(300).save(path)
    return path


@pytest.fixture
def reloaded(tmp_path):
    """Save a model or an agent, and return what is loaded from the file."""

    def reload(model, *arguments, **options):
        model.save(tmp_path / "model.zip")
        return type(model).load(tmp_path / "model.zip", *arguments, **options)

    return reload


@pytest.fixture
def changed(tmp_path):
    """Write a file with other metadata or arrays, and valid checksums, and return its path."""

    def write(path, metadata=lambda metadata: None, arrays=lambda arrays: None):
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        meta = json.loads(members.pop("metadata.json"))
        numbers = {name: np.load(io.BytesIO(content)) for name, content in members.items()}
        metadata(meta)
        arrays(numbers)
        changed_path = tmp_path / "changed.zip"
        with zipfile.ZipFile(changed_path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("metadata.json", json.dumps(meta))
            for name, array in numbers.items():
                with archive.open(name, "w") as file:
                    np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
        return changed_path

    return write
