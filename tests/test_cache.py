"""Compiled code on disk: of many processes at once, and never of other sources."""

import json
import os
import shutil
import subprocess
import sys
import time

import numba
import pytest

from oda_rl import _cache
from oda_rl._cache import sources

# As many processes compile the same functions, each for numbers of another kind, at one time.
MANY = """
import json, sys, time
import numpy as np
from added import FUNCTIONS

kind, begin = sys.argv[1:]
values = np.arange(8).astype(kind)
while time.time() < float(begin):
    pass
print(json.dumps([float(f(values)) for f in FUNCTIONS]))
"""
ADDED = """
from oda_rl._compile import bound_copy, compiled


def added(x):
    total = x[0]
    for i in range(x.size):
        total += x[i]
    return total


FUNCTIONS = [compiled(bound_copy(added, str(i))) for i in range(6)]
"""
KINDS = "float64", "int64", "float32"


def run(folder, code, *arguments, cache=None):
    path = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))
    own = {"PYTHONPATH": path} | ({"NUMBA_CACHE_DIR": str(cache)} if cache else {})
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_many(folder, kind="float64", begin="0", cache="cache", first=""):
    (folder / "added.py").write_text(ADDED)
    return run(folder, first + MANY, kind, begin, cache=folder / cache)


def results(processes):
    printed = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), printed
    return [json.loads(out) for out, _ in printed]


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.nbc")}


@pytest.mark.slow
def test_processes_compile_at_once(tmp_path):
    # With numba's list of files, one of them often is nonsense for another kind of numbers.
    begin = str(time.time() + 5.0)
    processes = [run_many(tmp_path, kind, begin) for kind in KINDS]
    assert results(processes) == [[28.0] * 6] * 3
    files = times(tmp_path)
    assert len(files) == 18
    assert results([run_many(tmp_path, kind) for kind in KINDS]) == [[28.0] * 6] * 3
    # Nothing was lost: nothing has been compiled again.
    assert times(tmp_path) == files


def test_what_is_damaged_is_compiled_anew(tmp_path):
    results([run_many(tmp_path)])
    for i, path in enumerate(sorted(tmp_path.rglob("*.nb?"))):
        if i % 3 == 0:  # of a function the code, the list of its code, or neither
            path.write_bytes(path.read_bytes()[:-9])
    assert results([run_many(tmp_path)]) == [[28.0] * 6]
    files = times(tmp_path)
    assert len(files) == 6
    assert results([run_many(tmp_path)]) == [[28.0] * 6]
    assert times(tmp_path) == files


def test_without_a_folder_to_write_nothing_is_kept(tmp_path):
    (tmp_path / "file").touch()
    out, warned = run_many(tmp_path, cache="file/cache").communicate()
    assert json.loads(out) == [28.0] * 6
    assert warned.count("compiled code cannot be kept in") == 1
    assert "(Not a directory)" in warned
    assert "set NUMBA_CACHE_DIR" in warned
    assert [*tmp_path.rglob("*.nb*")] == []


def test_a_full_disk_costs_the_cache_and_not_the_call(tmp_path):
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n"
    out, warned = run_many(tmp_path, first=full).communicate()
    assert json.loads(out) == [28.0] * 6
    assert warned.count("compiled code cannot be kept in") == 1
    assert [*tmp_path.rglob("*.nb*")] == []
    assert results([run_many(tmp_path)]) == [[28.0] * 6]
    assert len(times(tmp_path)) == 6


def test_code_of_earlier_sources_goes_and_that_of_other_places_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(_cache, "FOLDER", tmp_path)

    def made(sources, place):
        monkeypatch.setattr(_cache, "sources", lambda: sources)
        monkeypatch.setattr(_cache, "_HERE", tmp_path / place)
        return _cache._own_folder.__wrapped__()

    first, other = made("before", "here"), made("before", "there")
    assert made("before", "here") == first
    assert first.is_dir()
    assert other.is_dir()
    second = made("after", "here")
    assert sorted(first.parent.iterdir()) == sorted([second, other])
    assert numba.__version__ in first.parent.name


def test_the_command_removes_what_was_compiled(tmp_path):
    results([run_many(tmp_path)])
    (tmp_path / "cache" / "another.nbc").touch()
    clear = "from oda_rl.command.cli import main; raise SystemExit(main(['warm', '--clear']))"
    process = run(tmp_path, clear, cache=tmp_path / "cache")
    said, _ = process.communicate()
    assert process.returncode == 0
    assert said == f"removed the compiled code in {tmp_path / 'cache'}\n"
    assert [path.name for path in tmp_path.rglob("*.nb*")] == ["another.nbc"]


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
print(float(agent.evaluate(1, seed=0)[0]))
"""
PUSH = """
import numba


@numba.njit
def push(parameters, state, action):
    state[1] += parameters[0] * (2 * action - 1)
    state[0] += state[1]
    return 1.0, abs(state[0]) > 1.0
"""


@pytest.mark.parametrize("pushing", ["from pushing import push", ""], ids=["a module", "no file"])
def test_a_users_functions_are_compiled_anew_when_one_has_changed(pushing, tmp_path):
    returns = []
    for text in (PUSH, PUSH.replace("return 1.0", "return 20.0")):
        (tmp_path / "pushing.py").write_text(text)
        returns += results([run(tmp_path, PUCK.format(pushing=pushing or text))])
    assert returns[1] == 20.0 * returns[0] > 0.0
