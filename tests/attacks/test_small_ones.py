"""Small attacks of many kinds."""

import os
import subprocess
import sys
import threading
import warnings

import gymnasium as gym
import numpy as np
import pytest
from environments import Toy, quick_rule

from oda_rl import LVQ, InvalidFileError, ODATreeClusterer
from oda_rl.agents import TwoTimescaleAgent
from oda_rl.agents.environments.spaces import Interface, Native
from oda_rl.files.archive import load_archive, save_archive


def test_everything_works_uncompiled(root):
    code = (
        "import gymnasium as gym; from oda_rl.agents import TwoTimescaleAgent as T;"
        "print(T('CartPole-v1', partition='grid', seed=0).learn(30).num_timesteps)"
    )
    plain = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=plain, cwd=root, capture_output=True, text=True, check=False)
    assert run.stdout == "30\n", run.stderr


@pytest.fixture
def thread():
    """Start and end another thread, which waits where the function that it gets is called."""
    begun, over, others = threading.Event(), threading.Event(), []

    def wait(points):
        begun.set()
        assert over.wait(60.0)
        return points

    def start(learn):
        others.append(threading.Thread(target=lambda: learn(wait)))
        others[0].start()
        assert begun.wait(60.0)

    def end():
        over.set()
        others[0].join()

    yield start, end
    end()


def test_an_agent_belongs_to_one_thread_at_a_time(thread):
    agent, (start, end) = TwoTimescaleAgent(Toy(), seed=0), thread
    start(lambda wait: agent.learn(30, callback=lambda agent: wait(None)))
    for use, given in ((agent.learn, 10), (agent.act, np.zeros(2)), (agent.save, "never.zip")):
        with pytest.raises(RuntimeError, match="TwoTimescaleAgent, which belongs to one thread"):
            use(given)
    end()
    assert agent.learn(10).num_timesteps == 40


@pytest.fixture
def tree():
    """A tree on 60 points, and the function of the points that it calls."""
    points, views = np.random.default_rng(0).normal(size=(60, 2)), [np.asarray]
    tree = ODATreeClusterer(2, max_depth=1, resolutions=[lambda points: views[-1](points)])
    return tree.fit(points), points, views.append


def test_an_estimator_belongs_to_one_thread_while_it_learns(tree, thread):
    (tree, points, view), (start, end) = tree, thread
    start(lambda wait: (view(wait), tree.partial_fit(points)))
    for use, given in ((tree.fit, points), (tree.predict, points), (tree.save, "never.zip")):
        with pytest.raises(RuntimeError, match="ODATreeClusterer, which belongs to one thread"):
            use(given)
    end()
    assert len(tree.predict(points)) == 60


def test_an_estimator_learns_once_other_threads_have_read_it(tree, thread):
    (tree, points, view), (start, end) = tree, thread
    start(lambda wait: (view(wait), tree.predict(points)))
    view(np.asarray)
    learner = threading.Thread(target=lambda: tree.fit(points[:30]))
    learner.start()
    learner.join(0.05)
    assert learner.is_alive()
    assert len(tree.labels_) == 60
    end()
    learner.join()
    assert len(tree.labels_) == 30


def test_labels_outside_of_the_classes_are_refused(tmp_path):
    file, rng = tmp_path / "model.zip", np.random.default_rng(0)
    LVQ(2, random_state=0).fit(rng.normal(size=(40, 2)), np.arange(40) % 2).save(file)
    metadata, arrays = load_archive(file)
    name = next(n for n, a in arrays.items() if a.dtype.kind == "i" and a.size == 4)
    save_archive(file, metadata, {**arrays, name: arrays[name] + 1})
    with pytest.raises(InvalidFileError, match="has a label that is not in classes_"):
        LVQ.load(file)


def test_the_first_action_is_the_environments():
    native = Native(gym.spaces.Discrete(500), gym.spaces.Discrete(6), None)
    fields = Interface((1,), 6, 0, n_values=500, native=native).to_json()
    assert Interface.from_json(dict(fields)).first_action == 0
    with pytest.raises(InvalidFileError, match="first_action is 2: it must be 0"):
        Interface.from_json({**fields, "first_action": 2})


@pytest.mark.parametrize("size", [1e149, 1e-150])
def test_extreme_observations_do_not_overflow(size):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        usual, extreme = (
            quick_rule(Toy(lambda rng, unit=unit: unit * rng.normal(size=2)), seed=0).learn(200)
            for unit in (1.0, size)
        )
    np.testing.assert_allclose(extreme.codevectors / size, usual.codevectors, rtol=1e-9)
