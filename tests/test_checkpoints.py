"""Checkpoints: a killed and resumed training ends with the same bits."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import gymnasium as gym
import numpy as np
import pytest
from common.trainings import CASES, content
from environments import BARTO, QUICK, Exploring, Plain, Stopped, stopped_after

from oda_rl import InvalidFileError
from oda_rl._lock import LockedError, locked
from oda_rl.agents import ModelAgent, TwoTimescaleAgent
from oda_rl.agents.base.progress import deferred_interrupt, ending_as_interrupts
from oda_rl.agents.model import fallback
from oda_rl.agents.worlds.quality import Trust
from oda_rl.agents.worlds.world import World
from oda_rl.files.archive import load_archive, save_archive


def assert_same(one, other):
    assert one[0] == other[0]
    assert one[1].keys() == other[1].keys()
    assert [name for name in one[1] if one[1][name] != other[1][name]] == []


@pytest.mark.parametrize(
    "name",
    ["oda, fused", "gmm, fused", "infex, fused", "torques, in Python", "fitted, fused",
     "fitted, in Python", "codevectors", "model"],
)  # fmt: skip
def test_a_resumed_training_ends_with_the_same_bits(name, tmp_path):
    case, file, out = CASES[name], tmp_path / "checkpoint.zip", tmp_path / "agent.zip"
    whole = content(case.agent().learn(case.steps), out)
    seen = []
    for stops in (1, 3, 2, 5):
        with stopped_after(stops, seen), pytest.raises(Stopped):
            case.go_on(file)
    assert seen[0] == 0
    assert len(set(seen)) >= 7
    assert set(seen) <= {*range(0, case.steps, case.every)}
    assert_same(content(case.go_on(file), out), whole)
    assert_same(content(case.load(file), out), whole)  # the last checkpoint
    assert_same(content(case.load(file).resume(), out), whole)  # nothing was left


@pytest.mark.parametrize(
    "name",
    ["som, fused", "grid, in Python", "bounded, fused", "torques, fused", "codevectors", "model",
     "model of torques"],
)  # fmt: skip
def test_learning_after_a_load_is_the_same_as_going_on(name, tmp_path):
    case, out = CASES[name], tmp_path / "agent.zip"
    agent = case.agent().learn(case.steps // 2)
    agent.save(out)
    loaded = case.load(out)
    loaded.save(tmp_path / "again.zip")  # its environment has not been reset yet
    again = case.load(tmp_path / "again.zip")
    goes_on = content(agent.learn(case.steps // 3), out)
    for one in (loaded, again):
        assert_same(content(one.learn(case.steps // 3), out), goes_on)


@pytest.mark.parametrize(
    "make",
    [lambda: gym.make("FrozenLake-v1"), lambda: Exploring(gym.make(BARTO), 0.1),
     lambda: gym.make_vec(BARTO, 3)],
    ids=["no dynamics", "a wrapper that draws", "several"],
)  # fmt: skip
def test_environments_without_a_state_continue_from_a_reset(make, tmp_path):
    file = tmp_path / "checkpoint.zip"
    with stopped_after(4), pytest.raises(Stopped):
        TwoTimescaleAgent(make(), seed=0).learn(1500, checkpoint=file, checkpoint_every=200)
    agent = TwoTimescaleAgent.load(file, env=make())
    assert 600 <= agent.num_timesteps < 610
    agent.resume(checkpoint=file)
    assert 1500 <= agent.num_timesteps < 1510
    assert TwoTimescaleAgent.load(file, env=make())._paused.every == 200


def stop_and_go(file, agent, seen):
    for stops in (5, 4, *[1] * 4, 0):
        with suppress(Stopped), stopped_after(stops, seen):
            kept = {"checkpoint": file, "checkpoint_every": 300}
            if file.exists():
                ModelAgent.load(file, "CartPole-v1").resume(**kept)
            else:
                agent().learn(3000, **kept)


@pytest.mark.slow
def test_resuming_where_the_world_is_not_trusted(tmp_path, monkeypatch):
    # Learned from: the world, then values, of which a rule is made; the last has no checkpoints.
    monkeypatch.setattr(fallback, "_JUDGED_AGAIN", 1.0)
    monkeypatch.setattr(fallback, "_MIN_LEFT", 1000)
    monkeypatch.setattr(World, "trust", property(lambda self: Trust(False, "it is a test")))
    file, out, seen = tmp_path / "checkpoint.zip", tmp_path / "agent.zip", []

    def agent():
        return ModelAgent("CartPole-v1", seed=91_000, **QUICK)

    with pytest.warns(UserWarning, match="it is a test"):
        whole = content(agent().learn(3000), out)
    with pytest.warns(UserWarning, match="it is a test"):
        stop_and_go(file, agent, seen)
    found = ModelAgent.load(file, "CartPole-v1")
    assert_same(content(found, out), whole)
    assert len([steps for steps in seen if steps % 300 and steps < 3000]) >= 1  # before the rule


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"checkpoint": "a.zip"}, "checkpoint_every is None"),
        ({"checkpoint_every": 10}, "checkpoint is None"),
        ({"checkpoint": "a", "checkpoint_every": 10}, "ends in .zip"),
        ({"checkpoint": "a.zip", "checkpoint_every": 0}, "checkpoint_every is 0"),
        ({"checkpoint": "file/c.zip", "checkpoint_every": 10}, "file"),  # cannot be written
    ],
)
def test_bad_arguments(given, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    agent = TwoTimescaleAgent(BARTO, seed=0)
    with pytest.raises(OSError if message == "file" else ValueError, match=message):
        agent.learn(100, **given)
    assert agent.num_timesteps == 0


def test_only_a_valid_checkpoint_is_resumed(tmp_path):
    file = tmp_path / "checkpoint.zip"
    with stopped_after(2), pytest.raises(Stopped):
        TwoTimescaleAgent(BARTO, seed=0).learn(500, checkpoint=file, checkpoint_every=200)
    other = TwoTimescaleAgent.load(file).learn(10)
    other.save(tmp_path / "agent.zip")
    for agent in (TwoTimescaleAgent(BARTO), other, TwoTimescaleAgent.load(tmp_path / "agent.zip")):
        with pytest.raises(ValueError, match="no training to resume"):
            agent.resume()
    with pytest.raises(ValueError, match="trained with"):
        TwoTimescaleAgent.load(file, env="Acrobot-v1")
    metadata, arrays = load_archive(file)
    for change in (
        {"total": 0}, {"steps": 501}, {"steps": 1.5}, {"chosen": 1}, {"part": 300},
        {"every": 0}, {"seed": -1}, {"more": 1}, {"observation": ["a"]},
    ):  # fmt: skip
        save_archive(file, {**metadata, "training": metadata["training"] | change}, arrays)
        with pytest.raises(InvalidFileError, match="training"):
            TwoTimescaleAgent.load(file)


def test_a_checkpoint_belongs_to_one_training(tmp_path):
    file, left = tmp_path / "c.zip", tmp_path / ".c.zip.abcdefgh"
    left.write_text("of a process that was killed")

    def another(agent):
        with pytest.raises(LockedError, match=f"in use by process {os.getpid()}"):
            TwoTimescaleAgent(BARTO, seed=0).learn(10, checkpoint=file, checkpoint_every=5)
        return False

    TwoTimescaleAgent(BARTO, seed=0).learn(
        1000, callback=another, checkpoint=file, checkpoint_every=500
    )
    assert [path.name for path in tmp_path.iterdir()] == ["c.zip"]
    assert TwoTimescaleAgent.load(file).resume().num_timesteps < 1000  # a callback had ended it


def test_a_lock_ends_with_its_process(tmp_path):
    path = tmp_path / "lock"
    code = (
        "import sys, pathlib, os\nfrom oda_rl._lock import locked\n"
        "with locked(pathlib.Path(sys.argv[1]), 'it'):\n"
        "    if os.fork() == 0:\n        print('held', flush=True)\n"
        "        import time; time.sleep(60)\n"
        "    sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              start_new_session=True)  # fmt: skip
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=f"process {holder.pid}"), locked(path, "it"):
            pass
        holder.kill()
        holder.wait()
        with locked(path, "it"):  # though a child of it goes on
            assert path.read_text() == str(os.getpid())
        assert not path.exists()
        os.killpg(holder.pid, signal.SIGKILL)


@pytest.fixture
def usual_signals():
    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {one: signal.getsignal(one) for one in kinds}
    for one in kinds[1:]:
        signal.signal(one, signal.SIG_DFL)
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.mark.parametrize(
    ("kind", "handler"),
    [
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGINT, signal.SIG_IGN),  # as in the background of a shell
        (signal.SIGINT, signal.default_int_handler),
    ],
)
def test_the_first_signal_is_noted_and_ctrl_c_after_it_raises(kind, handler, usual_signals):
    signal.signal(kind, handler)
    with deferred_interrupt() as interrupt:
        os.kill(os.getpid(), kind)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(kind) is handler
    if kind is not signal.SIGINT:
        with ending_as_interrupts(), pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), kind)
        assert signal.getsignal(kind) is handler


def test_under_nohup_a_closed_window_ends_nothing(usual_signals):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with deferred_interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGHUP)
        assert not interrupt.requested


def test_after_ctrl_c_a_training_is_resumed(tmp_path, usual_signals):
    file, out = tmp_path / "checkpoint.zip", tmp_path / "agent.zip"
    kept = {"checkpoint": file, "checkpoint_every": 100_000}

    class Pressing(Plain):
        def step(self, action):
            if agent.num_timesteps in moments:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().step(action)

    moments = {1234}
    agent = TwoTimescaleAgent(Pressing(gym.make(BARTO)), seed=3)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(3000, **kept)
    assert agent.num_timesteps == 1235
    moments.clear()
    again = TwoTimescaleAgent.load(file, env=Pressing(gym.make(BARTO))).resume(**kept)
    whole = TwoTimescaleAgent(Pressing(gym.make(BARTO)), seed=3).learn(3000)
    assert_same(content(again, out), content(whole, out))
    np.testing.assert_array_equal(again.episodes.rows[:, :2], whole.episodes.rows[:, :2])
    assert (np.diff(again.episodes.rows[:, 2]) >= 0.0).all()
