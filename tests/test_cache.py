"""Compiled code on disk: of many processes at once, and never of other sources."""

import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from numba import float64, int64

from oda_rl._cache import CodeFiles, sources
from oda_rl._compile import compiled

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


FUNCTIONS = [compiled(bound_copy(added, str(i))) for i in range(20)]
"""
KINDS = "float64", "int64", "float32", "int16"


def run(folder, code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


def results(processes):
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [json.loads(one) for one in printed]


@pytest.mark.slow
def test_processes_compile_at_once(tmp_path):
    # With numba's list of files, one of them often is nonsense for another kind of numbers.
    (tmp_path / "added.py").write_text(ADDED)
    begin = str(time.time() + 5.0)
    assert results([run(tmp_path, MANY, kind, begin) for kind in KINDS]) == [[28.0] * 20] * 4
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")}
    assert len(files) == 80
    assert results([run(tmp_path, MANY, kind, "0") for kind in KINDS]) == [[28.0] * 20] * 4
    # Nothing was lost: nothing has been compiled again.
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")} == files


def key(kind):
    return (kind,), ("machine",), ("code", "cells")


def test_saving_in_between_loses_nothing(tmp_path):
    # Two processes hold a list of the files before either has saved, if there is a list.
    one, other = (CodeFiles(tmp_path, "f-1.py311", "file") for _ in range(2))
    assert one.load(key(float64)) is other.load(key(int64)) is None
    one.save(key(float64), "of floats")
    other.save(key(int64), "of integers")
    for files in (one, other):
        assert files.load(key(float64)) == "of floats"
        assert files.load(key(int64)) == "of integers"
    one.flush()
    assert other.load(key(int64)) is None
    assert list(tmp_path.iterdir()) == []


def test_code_of_other_sources_is_stale_and_goes(tmp_path, monkeypatch):
    old, new = (CodeFiles(tmp_path, "f-1.py311", own) for own in ("before", "after"))
    another = CodeFiles(tmp_path, "f-1.py311_4", "before")
    for files in (old, another):
        files.save(key(float64), "old")
    assert new.load(key(float64)) is None
    new.save(key(int64), "new")
    assert old.load(key(float64)) is None
    assert another.load(key(float64)) == "old"
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr("oda_rl._cache.sources", lambda: "changed")
    assert new.load(key(int64)) is None


def test_names_that_meet_by_chance_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("oda_rl._cache._digest", lambda content: "same")
    files = CodeFiles(tmp_path, "f-1.py311", "file")
    files.save(key(float64), "of floats")
    assert files.load(key(int64)) is None
    assert files.load(key(float64)) == "of floats"


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    files = CodeFiles(tmp_path, "f-1.py311", "file")
    with pytest.raises(TypeError, match="pickle"):
        files.save(key(float64), (line for line in "code"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inside", [False, True], ids=["checkout", "installed"])
def test_sources_are_all_of_the_package(root, tmp_path, monkeypatch, inside):
    own = tmp_path / "oda_rl"
    for name in ("oda_rl", "agents", "envs"):
        place = own / name if inside and name != "oda_rl" else tmp_path / name
        shutil.copytree(root / name, place, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("oda_rl._cache._HERE", own)
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


def test_a_function_may_be_compiled_anew():
    @compiled
    def twice(x):
        return 2.0 * x

    assert twice(1.5) == 3.0
    twice.recompile()
    assert twice(np.float64(2.5)) == 5.0


PUCK = """
import sys
import gymnasium as gym
import numba
import numpy as np
{looking}
from oda_rl.agents import TwoTimescaleAgent
from oda_rl.envs import Dynamics


@numba.njit
def push(parameters, state, action):
    state[1] += parameters[0] * (2 * action - 1)
    state[0] += state[1]
    return 1.0, abs(state[0]) > 1.0


class Puck(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)
    force = np.array([0.02])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-0.3, 0.3, size=2)
        return self.seen(), {{}}

    def step(self, action):
        reward, terminated = push(self.force, self.state, action)
        return self.seen(), reward, terminated, False, {{}}

    def seen(self):
        observation = np.zeros(2)
        look(self.force, self.state, observation)
        return observation

    def dynamics(self):
        return Dynamics(push, look, lambda rng, n: rng.uniform(-0.3, 0.3, size=(n, 2)), self.force)


agent = TwoTimescaleAgent(gym.wrappers.TimeLimit(Puck(), 50), seed=0).learn(500)
print(float(agent.extent[0][0]))
"""
LOOK = """
import numba


@numba.njit
def look(parameters, state, observation):
    observation[0], observation[1] = state[0], state[1]
"""


def test_a_users_functions_are_compiled_anew_when_one_has_changed(tmp_path):
    code = PUCK.format(looking="from looking import look")
    file = tmp_path / "looking.py"
    least = []
    for text in (LOOK, LOOK.replace("= state[0], state[1]", "= state[0] - 100.0, state[1]")):
        file.write_text(text)
        least += results([run(tmp_path, code)])
    assert least[0] > -2.0
    assert least[1] < -100.0


def test_functions_without_a_file_are_compiled(tmp_path):
    code = PUCK.format(looking=LOOK)
    assert -2.0 < results([run(tmp_path, code)])[0] < 0.0
    moved = code.replace("= state[0], state[1]", "= state[0] - 100.0, state[1]")
    assert results([run(tmp_path, moved)])[0] < -100.0
