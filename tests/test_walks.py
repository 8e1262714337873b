"""The guide's changes fit the code, and its agent of one's own does what other agents do."""

import re
import sys
import types

import gymnasium as gym
import numpy as np
import pytest


def diffs(root):
    text = (root / "docs" / "extend.md").read_text(encoding="utf-8")
    for diff in re.findall(r"```diff\n(.*?)```", text, re.S):
        (file,) = re.findall(r"^\+\+\+ b/(.*)$", diff, re.M)
        lines = diff.split("@@\n", 1)[1].splitlines()
        old, new = ([line[1:] for line in lines if line[0] == sign] for sign in "-+")
        yield file, "\n".join(old), "\n".join(new)


def test_changes_of_the_guide_fit_the_code(root):
    changes = list(diffs(root))
    assert len(changes) >= 3
    for file, old, new in changes:
        text = (root / file).read_text(encoding="utf-8")
        assert text.count(old) == 1
        compile(text.replace(old, new), file, "exec")


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
