"""What ``oda-rl warm`` compiles is all that later calls need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from oda_rl.command import warming
from oda_rl.command.cli import main

# What the README shows, in a few lines.
LATER = """
import warnings
import gymnasium as gym
import numpy as np
from sklearn.datasets import make_moons
from oda_rl import INFEX, SOM, ODAClassifier, ODAClusterer, ODARegressor, SGDGaussianMixture
from oda_rl.agents import CodevectorAgent, FittedQAgent, ModelAgent, TwoTimescaleAgent

warnings.simplefilter("ignore")
for kind in (FittedQAgent, TwoTimescaleAgent):
    agent = kind("CartPole-v1", seed=3).learn(10_000)
    agent.evaluate(2, seed=1)
    agent.explain([0.0, 0.0, 0.02, 0.0])
    kind("MountainCar-v0", seed=3).learn(2_000).evaluate(2, seed=1)
    agent = kind("Acrobot-v1", seed=3)
    observation, _ = agent.env.reset(seed=3)
    for _ in range(1_000):
        action = agent.act(observation)
        following, reward, terminated, truncated, _ = agent.env.step(action)
        agent.update(observation, action, reward, following, terminated, truncated)
        observation = agent.env.reset()[0] if terminated or truncated else following
    kind(gym.make_vec("CartPole-v1", 8), seed=0).learn(3_000)
CodevectorAgent("MountainCarContinuous-v0", seed=0).learn(2_000)
agent = ModelAgent("CartPole-v1", seed=3).learn(400)
edited = agent.edit().forbid("push left", where="cart position < -1").done()
agent.constrain(edited).learn(300).evaluate(2, seed=1)
agent = ModelAgent("Pendulum-v1", seed=3).learn(400)
edited = agent.edit().where("angular velocity > 7", -2.0).done()
agent.constrain(edited).learn(400).evaluate(2, seed=1)
X, y = make_moons(400, noise=0.15, random_state=0)
ODAClusterer(12, random_state=0).fit(X).score_samples(X[:1])
ODAClassifier(8, random_state=0).fit(X, y).predict(X)
ODARegressor(8, random_state=0).partial_fit(X[:50], X[:50, 0]).fit(X, X[:, 0])
SGDGaussianMixture(4, covariance_type="full", random_state=0).fit(X).score(X)
INFEX(bandwidth=0.25, random_state=0).fit(X).predict(X)
SOM(random_state=0).fit(X)
"""


# Of all that was called of the package: what, and with which types of arguments.
CALLED = """
import gc
import json
import sys
from numba.core.dispatcher import Dispatcher
functions = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
called = [(f.__module__, f.__qualname__, str(types)) for f in functions for types in f.overloads]
json.dump([one for one in called if one[0].startswith("oda_rl")], open(sys.argv[1], "w"))
"""


def called_by(code, file):
    """What runs compiled: with a warm cache only what Python calls, else what that calls, too."""
    alone = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    alone += "from conftest import save_one_at_a_time; save_one_at_a_time()\n"
    subprocess.run([sys.executable, "-c", alone + code + CALLED, str(file)], check=True)
    return {tuple(one) for one in json.loads(file.read_text())}


@pytest.mark.slow
def test_nothing_is_left_to_compile(tmp_path):
    warm = "from oda_rl.command.cli import main; assert main(['warm']) == 0\n"
    compiled = called_by(warm, tmp_path / "warm.json")
    assert len(compiled) > 50
    assert called_by(LATER, tmp_path / "later.json") <= compiled


def test_the_command_names_what_it_does(monkeypatch, capsys):
    done = []
    names = list(warming.WORK)
    monkeypatch.setattr(warming, "WORK", {name: lambda n=name: done.append(n) for name in names})
    warming.warm(names[:3], Console(quiet=True))
    assert done == names[:3]
    with pytest.raises(KeyError, match="nothing"):
        warming.warm(["nothing"], Console(quiet=True))
    assert main(["warm", "--nothing"]) == 2
    assert "nothing" in capsys.readouterr().err
