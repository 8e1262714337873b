"""The guide's changes fit the code, and its agent of one's own learns."""

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
        one for one in re.findall(r"```python\n(.*?)```", text, re.S) if "class ClusterAgent" in one
    )
    module = sys.modules["clusters"] = types.ModuleType("clusters")
    exec(example.split("\nagent =")[0], vars(module))
    yield module.ClusterAgent
    del sys.modules["clusters"]


def test_an_agent_of_ones_own_learns_and_is_saved(own, reloaded):
    agent = own("CartPole-v1", seed=0, n_clusters=90).learn(5_000)
    assert (agent.newest.n_cells, agent.num_timesteps) == (90, 5_000)
    assert agent.evaluate(10, seed=0).mean() > 100.0  # of random play: 22
    loaded = reloaded(agent, env="CartPole-v1")
    for one in (agent, loaded):
        one.learn(1_000)
    np.testing.assert_array_equal(loaded.newest.q_values, agent.newest.q_values)
    several = own(gym.make_vec("CartPole-v1", 3), seed=0).learn(2_000)
    assert several.num_timesteps >= 2_000
    assert len(several.newest.codevectors) == 100
    with pytest.raises(ValueError, match="n_clusters is 0"):
        own("CartPole-v1", n_clusters=0)
