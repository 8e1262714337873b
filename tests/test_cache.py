"""Compiled code on disk: of many processes at once, and never of other sources."""

import importlib
import json
import os
import resource
import shutil
import subprocess
import sys

import numba
import numpy as np
import pytest

from oda_rl import _cache
from oda_rl._cache import sources
from oda_rl.command.cli import main

# As many processes compile the same functions, each for numbers of another kind, at one time.
MANY = """
import json, pathlib, sys, time
import numpy as np
from added import FUNCTIONS

n_processes, *kinds = sys.argv[1:]
pathlib.Path(f"ready-{kinds[0]}").touch()
end = time.time() + 60.0
while len(list(pathlib.Path().glob("ready-*"))) < int(n_processes) and time.time() < end:
    time.sleep(0.001)
print(json.dumps([float(f(np.arange(8).astype(kind))) for kind in kinds for f in FUNCTIONS]))
"""
ADDED = """
from oda_rl._compile import bound_copy, compiled


def added(x):
    total = x[0]
    for i in range(x.size):
        total += x[i]
    return total


FUNCTIONS = [compiled(bound_copy(added, str(i))) for i in range(4)]
"""
KINDS = "float64", "int64", "float32"


def run(folder, code, *arguments, **environment):
    path = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Import the functions as a new process does, and return their results."""

    def results(*kinds, cache="cache"):
        monkeypatch.setattr(_cache, "FOLDER", tmp_path / cache)
        forget()
        functions = importlib.import_module("added").FUNCTIONS
        return [float(f(np.arange(8).astype(kind))) for kind in kinds for f in functions]

    def forget():
        sys.modules.pop("added", None)
        _cache._own_folder.cache_clear()
        _cache._warn.cache_clear()

    (tmp_path / "added.py").write_text(ADDED)
    monkeypatch.syspath_prepend(tmp_path)
    yield results
    forget()


def results(processes):
    printed = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), printed
    return [json.loads(out) for out, _ in printed]


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.nbc")}


@pytest.mark.slow
def test_processes_compile_at_once_and_what_is_damaged_is_compiled_anew(call, tmp_path, capsys):
    # With numba's list of files, one of them often is nonsense for another kind of numbers.
    kept = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    processes = [run(tmp_path, MANY, str(len(KINDS)), kind, **kept) for kind in KINDS]
    assert results(processes) == [[28.0] * 4] * 3
    files = times(tmp_path)
    assert len(files) == 12
    assert call(*KINDS) == [28.0] * 12
    assert times(tmp_path) == files  # nothing has been compiled again
    for i, path in enumerate(sorted(tmp_path.rglob("*.nb?"))):
        if i % 3 == 0:  # code, and lists of a function's code
            path.write_bytes(path.read_bytes()[:-9])
    assert call("float64") == [28.0] * 4
    files = times(tmp_path)
    assert len(files) == 12
    assert call("float64") == [28.0] * 4
    assert times(tmp_path) == files
    (tmp_path / "cache" / "another.nbc").touch()
    assert main(["warm", "--clear"]) == 0
    said = "".join(capsys.readouterr().out.split())  # in lines as wide as the terminal
    assert said == f"removedthecompiledcodein{tmp_path / 'cache'}"
    assert [path.name for path in tmp_path.rglob("*.nb*")] == ["another.nbc"]


def test_without_a_folder_to_write_nothing_is_kept(call, tmp_path):
    (tmp_path / "file").touch()
    message = r"compiled code cannot be kept in .* \(Not a directory\): .* set NUMBA_CACHE_DIR"
    with pytest.warns(RuntimeWarning, match=message) as warned:
        assert call("float64", cache="file/cache") == [28.0] * 4
    assert len(warned) == 1
    assert [*tmp_path.rglob("*.nb*")] == []


def test_links_are_not_followed(call, tmp_path):
    first, second, elsewhere = (tmp_path / name for name in ("first", "second", "elsewhere"))
    call("float64", cache="first")
    (place,) = {path.parent for path in first.rglob("*.nbi")}
    for path in place.iterdir():
        path.unlink()
    (place / "lock").symlink_to(elsewhere)
    with pytest.warns(RuntimeWarning, match=r"lock' is a symbolic link\)"):
        assert call("float64", cache="first") == [28.0] * 4
    assert not elsewhere.exists()
    second.mkdir()
    elsewhere.mkdir()
    (folder,) = first.iterdir()
    (second / folder.name).symlink_to(elsewhere)
    with pytest.warns(RuntimeWarning, match=rf"{folder.name}' is a symbolic link\)"):
        assert call("float64", cache="second") == [28.0] * 4
    assert [*tmp_path.rglob("*.nb*")] == []


def test_a_full_disk_costs_the_cache_and_not_the_call(call, tmp_path):
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, usual[1]))
    try:
        with pytest.warns(RuntimeWarning, match="compiled code cannot be kept in") as warned:
            assert call("float64") == [28.0] * 4
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert len(warned) == 1
    assert [*tmp_path.rglob("*.nb*")] == []


def test_code_of_earlier_sources_goes_and_that_of_other_places_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(_cache, "FOLDER", tmp_path)

    def made(sources, place):
        monkeypatch.setattr(_cache, "sources", lambda: sources)
        monkeypatch.setattr(_cache, "_HERE", tmp_path / place)
        return _cache._own_folder.__wrapped__()

    first, other = made("before", "here"), made("before", "there")
    assert made("before", "here") == first
    assert {*first.parent.iterdir()} == {first, other}
    second = made("after", "here")
    assert sorted(first.parent.iterdir()) == sorted([second, other])
    assert numba.__version__ in first.parent.name


@pytest.mark.parametrize("inside", [False, True], ids=["checkout", "installed"])
def test_sources_are_all_of_the_package(root, tmp_path, monkeypatch, inside):
    own = tmp_path / "oda_rl"
    for name in ("oda_rl", "agents", "envs"):
        place = own / name if inside and name != "oda_rl" else tmp_path / name
        shutil.copytree(root / name, place, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(_cache, "_HERE", own)
    files = sorted(tmp_path.rglob("*.py"))
    assert len(files) > 150
    known = {sources.__wrapped__()}
    for path in files[:: len(files) // 20]:
        times = path.stat()
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 1_000_000))
        known.add(sources.__wrapped__())
    files[0].write_text(files[0].read_text() + "\n")
    known.add(sources.__wrapped__())
    (own / "new.py").touch()
    known.add(sources.__wrapped__())
    assert len(known) == len(files[:: len(files) // 20]) + 3


PUCK = """
import gymnasium as gym
import numba
import numpy as np
{pushing}
from oda_rl.agents import TwoTimescaleAgent
from oda_rl.envs import Dynamics


@numba.njit
def look(parameters, state, observation):
    observation[0], observation[1] = state[0], state[1]


class Puck(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)
    force = np.array([0.02])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-0.3, 0.3, size=2)
        return self.state.copy(), {{}}

    def step(self, action):
        reward, terminated = push(self.force, self.state, action)
        return self.state.copy(), reward, terminated, False, {{}}

    def dynamics(self):
        return Dynamics(push, look, lambda rng, n: rng.uniform(-0.3, 0.3, size=(n, 2)), self.force)


agent = TwoTimescaleAgent(gym.wrappers.TimeLimit(Puck(), 50), seed=0)
returns = [*globals().get("returns", ()), float(agent.evaluate(1, seed=0)[0])]
"""
PUSH = """
import numba


@numba.njit
def push(parameters, state, action):
    state[1] += parameters[0] * (2 * action - 1)
    state[0] += state[1]
    return {reward}, abs(state[0]) > 1.0
"""


def test_a_users_functions_are_compiled_anew_when_one_has_changed(tmp_path):
    returns = []
    for reward in (1.0, 20.0):  # in a module, and in no file
        (tmp_path / "pushing.py").write_text(PUSH.format(reward=reward))
        pushing = "from pushing import push", PUSH.format(reward=7.0 * reward)
        code = "".join(PUCK.format(pushing=one) for one in pushing)
        returns += results([run(tmp_path, f"{code}\nprint(returns)")])
    first, second = returns
    assert 0.0 < first[0] < first[1]
    assert second == [20.0 * first[0], 20.0 * first[1]]
