"""The changes that the contributors' guide shows do what it says, and open no other file."""

import re
import shutil
import subprocess
import sys
import types

import gymnasium as gym
import numpy as np
import pytest
from environments import play

from oda_rl.agents import export_policy

CHECKS = {
    "agents/two_timescale/qlearning.py": """
        import math, numpy as np
        from oda_rl.agents import TwoTimescaleAgent
        agent = TwoTimescaleAgent("CartPole-v1", seed=0)
        agent._engine.state.phase, agent._engine.state.steps = 1, 2500  # as if it had learned
        assert math.isclose(agent.epsilon, 0.2 * 0.5 ** (2500 / 5000.0))
        states = np.zeros((4000, 4))
        random = agent.predict(states, deterministic=False)[0] != agent.predict(states)[0]
        assert abs(np.mean(random) - agent.epsilon / 2.0) < 0.03
    """,
    "agents/fitting/advantages.py": """
        import numpy as np
        from oda_rl.agents.base.memory import CUT, GOES_ON
        from oda_rl.agents.fitting.advantages import Reach, go_back
        from oda_rl.agents.fitting.cells import Assigned
        n = 3  # the action taken in the middle is not the greedy one
        steps = np.array([[0.0, 1.0, GOES_ON], [1.0, 1.0, GOES_ON], [-1.0, 0.0, CUT]])
        cells, weights = np.zeros((n, 3), np.uint16), np.zeros((n, 3), np.float32)
        weights[:, 0] = 1.0
        points, labels = np.ones((n, 2), np.float32), np.repeat(steps[:, :1].astype(np.int16), 3, 1)
        rows = Assigned(points, cells, weights, labels, steps)
        models, targets = np.array([[5.0, 0.0]]), np.zeros(n)
        go_back(rows, cells, weights, models, np.zeros(n), False, Reach(1.0, 1.0, -9.0, 99.0),
                np.zeros(n), targets, np.zeros((1, 2)))
        assert targets[0] == 1.0 + 1.0 + 5.0, targets  # Watkins: 1 + 5
    """,
    "oda_rl/divergences.py": """
        import numpy as np
        from oda_rl import ODAClusterer
        X = np.random.default_rng(0).normal(size=(200, 2))
        model = ODAClusterer(4, divergence="exponential", random_state=0).fit(X)
        centers, own = model.cluster_centers_, model.predict(X)
        between = np.exp(X)[:, None] - np.exp(centers) - np.exp(centers) * (X[:, None] - centers)
        assert (between.sum(axis=2).argmin(axis=1) == own).mean() > 0.99
    """,
}


def diffs(root):
    text = (root / "docs" / "extend.md").read_text(encoding="utf-8")
    for diff in re.findall(r"```diff\n(.*?)```", text, re.S):
        (file,) = re.findall(r"^\+\+\+ b/(.*)$", diff, re.M)
        lines = diff.split("@@\n", 1)[1].splitlines()
        old, new = ([line[1:] for line in lines if line[0] == sign] for sign in "-+")
        yield file, "\n".join(old), "\n".join(new)


def test_every_change_of_the_guide_is_looked_at(root):
    assert {file for file, _, _ in diffs(root)} == set(CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("file", CHECKS)
def test_a_change_does_what_it_says(root, tmp_path, file):
    ignored = shutil.ignore_patterns("*.pyc")
    place = tmp_path / "oda_rl"  # laid out as it is installed
    shutil.copytree(root / "oda_rl", place, ignore=ignored)
    for part in ("agents", "envs"):
        shutil.copytree(root / part, place / part, ignore=ignored)
    ((old, new),) = [change for name, *change in diffs(root) if name == file]
    path = tmp_path / "oda_rl" / file.removeprefix("oda_rl/")
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    code = "\n".join(line[8:] for line in CHECKS[file].splitlines())
    script = tmp_path / "check.py"
    script.write_text(
        f"import oda_rl\nassert oda_rl.__file__.startswith({str(tmp_path)!r})\n{code}"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def own(root):
    """The guide's agent of one's own, as a module that has been imported."""
    text = (root / "docs" / "extend.md").read_text(encoding="utf-8")
    (example,) = (
        one for one in re.findall(r"```python\n(.*?)```", text, re.S) if "class SarsaAgent" in one
    )
    module = sys.modules["sarsa"] = types.ModuleType("sarsa")
    exec(example.split("\nagent =")[0], vars(module))
    yield module.SarsaAgent
    del sys.modules["sarsa"]


def learned(agent):
    return [agent.q_values, agent.visits, agent.scale_, *agent.extent]


def same(one, other):
    for mine, its in zip(learned(one), learned(other), strict=True):
        np.testing.assert_array_equal(mine, its)


@pytest.fixture(scope="module")
def walked(own):
    return own("CartPole-v1", seed=0, exploration=0.1).learn(12_000)


def test_an_agent_of_ones_own_learns(own, walked):
    assert walked.config.exploration == walked.epsilon == 0.1
    assert walked.num_timesteps == walked.visits.sum() == 12_000
    assert walked.episodes.rows[:, 1].sum() <= 12_000
    assert walked.evaluate(10, seed=0).mean() > 40.0  # of random play: 22
    same(walked, own("CartPole-v1", seed=0, exploration=0.1).learn(12_000))
    with pytest.raises(ValueError, match="step_size is 0"):
        own("CartPole-v1", step_size=0.0)


def test_it_answers_as_other_agents_do(walked):
    states = np.random.default_rng(0).normal(size=(50, 4)) * [1.0, 1.0, 0.1, 1.0]
    actions, _ = walked.predict(states)
    np.testing.assert_array_equal(actions, walked.q_values[walked.cell(states)].argmax(axis=1))
    assert (walked.predict(states, deterministic=False)[0] != actions).any()
    explanation = walked.explain(states[0])
    assert explanation.action == actions[0]
    assert walked.predict(explanation.nearest_other)[0] != actions[0]
    centre, reach = walked.extent
    assert (reach > 0.0).all()
    assert (np.abs(centre) < reach).all()


@pytest.mark.parametrize("suffix", [".json", ".c"])
def test_it_is_exported(walked, tmp_path, suffix):
    export_policy(walked, tmp_path / f"policy{suffix}")
    assert (tmp_path / f"policy{suffix}").stat().st_size > 1000


@pytest.mark.parametrize("name", ["agent.zip", "run"])
def test_it_is_saved_and_learns_on_in_the_same_way(own, walked, tmp_path, name):
    walked.save(tmp_path / name)
    agents = [own.load(tmp_path / name, env="CartPole-v1") for _ in range(2)]
    assert agents[0].solved_return == 475.0
    for agent in agents:
        same(agent, walked)
        np.testing.assert_array_equal(agent.evaluate(5, seed=1), walked.evaluate(5, seed=1))
        agent.learn(500)
    same(*agents)
    assert agents[0].num_timesteps == 12_500


def test_several_environments_teach_it(own):
    agent = own(gym.make_vec("CartPole-v1", 3), seed=0).learn(3_000)
    assert agent.n_envs == 3
    assert agent.visits.sum() == agent.num_timesteps >= 3_000
    assert len(agent.episodes.rows) > 20
    assert agent.learn(30).num_timesteps >= 3_030


def test_its_own_loop_is_that_of_learn(own):
    env, agent = gym.make("CartPole-v1"), own("CartPole-v1", seed=2)
    agent.begin_episode()
    play(agent, env, 700, seed=agent.draw_env_seed())
    observation, _ = env.reset()
    same(agent, own("CartPole-v1", seed=2).learn(700))
    with pytest.raises(ValueError, match="not finite"):
        agent.act([np.nan, 0.0, 0.0, 0.0])
    agent.act(observation)
    with pytest.raises(ValueError, match="not finite"):
        agent.update(observation, 0, np.inf, observation, False, False)
    assert agent.num_timesteps == 700


def test_one_step_is_that_of_the_formula(own):
    agent = own("CartPole-v1", seed=0, exploration=0.2, step_size=0.5, gamma=0.9)
    engine, here, there = agent._engine, np.full(4, 0.05), np.full(4, -0.05)
    engine.values[agent.cell(there)] = 1.0, 3.0
    engine.learn(here, 1, 2.0, there, False)
    expected = 0.8 * 3.0 + 0.2 * 2.0
    np.testing.assert_allclose(engine.values[agent.cell(here)], [0.0, 0.5 * (2.0 + 0.9 * expected)])
