"""What ``oda-rl warm`` compiles is all that later calls need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COMPILED, read_called
from rich.console import Console

from oda_rl.agents.two_timescale.engine import OnlineEngine
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
    agent = kind("CartPole-v1", seed=3).learn(2_000)
    agent.evaluate(2, seed=1)
    agent.explain([0.0, 0.0, 0.02, 0.0])
    kind("MountainCar-v0", seed=3).learn(1_000).evaluate(2, seed=1)
    agent = kind("Acrobot-v1", seed=3)
    observation, _ = agent.env.reset(seed=3)
    for _ in range(700):
        action = agent.act(observation)
        following, reward, terminated, truncated, _ = agent.env.step(action)
        agent.update(observation, action, reward, following, terminated, truncated)
        observation = agent.env.reset()[0] if terminated or truncated else following
    kind(gym.make_vec("CartPole-v1", 8), seed=0).learn(1_500)
CodevectorAgent("MountainCarContinuous-v0", seed=0).learn(1_000)
agent = ModelAgent("CartPole-v1", seed=3, generations=2).learn(300)
edited = agent.edit().forbid("push left", where="cart position < -1").done()
agent.constrain(edited).learn(100).evaluate(2, seed=1)
agent = ModelAgent("Pendulum-v1", seed=3, generations=2).learn(300)
edited = agent.edit().where("angular velocity > 7", -2.0).done()
agent.constrain(edited).learn(200).evaluate(2, seed=1)
X, y = make_moons(200, noise=0.15, random_state=0)
ODAClusterer(12, random_state=0).fit(X).score_samples(X[:1])
ODAClassifier(8, random_state=0).fit(X, y).predict(X)
ODARegressor(8, random_state=0).partial_fit(X[:50], X[:50, 0]).fit(X, X[:, 0])
SGDGaussianMixture(4, covariance_type="full", random_state=0).fit(X).score(X)
INFEX(bandwidth=0.25, random_state=0).fit(X).predict(X)
SOM(random_state=0).fit(X)
"""


def called_by(code, file, **environment):
    """What runs compiled."""
    alone = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import conftest\n"
    written = f"\nconftest.write_called({str(file)!r})"
    command = [sys.executable, "-c", alone + code + written]
    subprocess.run(command, check=True, env={**os.environ, **environment})
    return read_called(file)


@pytest.mark.slow
def test_nothing_is_left_to_compile(tmp_path):
    if all(map(read_called, COMPILED)):  # before the tests, with nothing in the cache
        compiled = set.union(*map(read_called, COMPILED))
    else:
        warm = "from oda_rl.command.cli import main; assert main(['warm']) == 0"
        compiled = called_by(warm, tmp_path / "warm.json", NUMBA_CACHE_DIR=str(tmp_path / "cold"))
    assert len(compiled) > 50
    assert called_by(LATER, tmp_path / "later.json") <= compiled


def test_the_command_names_what_it_does(monkeypatch, capsys):
    done, names = [], list(warming.WORK)
    monkeypatch.setattr(OnlineEngine, "steps_before_loop", 777)
    monkeypatch.setattr(warming, "WORK", {name: lambda n=name: done.append(n) for name in names})
    warming.warm(names[:3], Console(quiet=True))
    assert done == names[:3]
    assert OnlineEngine.steps_before_loop == 0
    with pytest.raises(KeyError, match="nothing"):
        warming.warm(["nothing"], Console(quiet=True))
    assert main(["warm", "--nothing"]) == 2
    assert "nothing" in capsys.readouterr().err
