"""Whatever trains also explains, exports, reports and is saved: all spaces, agents and verbs."""

import copy

import gymnasium as gym
import numpy as np
import pytest
from environments import QUICK, Counted, play, same
from gymnasium import spaces

from oda_rl import agents
from oda_rl.reporting import page
from oda_rl.reporting.content import report_of

PLACE = spaces.Box(-1.0, 1.0, (1,))
OBSERVATIONS = {  # flattened, all have three components, for which code is compiled once
    "Box": spaces.Box(-1.0, 1.0, (3, 1)),
    "Dict": spaces.Dict(on=spaces.Dict(lamp=spaces.Discrete(2)), at=PLACE),
    "Tuple": spaces.Tuple([spaces.MultiBinary(1), spaces.MultiDiscrete([1]), PLACE]),
    "Discrete": spaces.Discrete(4, start=2),
}
ACTIONS = {
    "Discrete": spaces.Discrete(4, start=-1),
    "MultiDiscrete": spaces.MultiDiscrete([2, 2], start=[1, 0]),
    "MultiBinary": spaces.MultiBinary(2),
    "Box": spaces.Box(np.float32([-1, 0]), np.float32([1, 4])),
}
SETTINGS = {
    agents.TwoTimescaleAgent: {"warmup_steps": 50},
    agents.FittedQAgent: {"action_bins": 2},
    agents.ModelAgent: QUICK,
    agents.CodevectorAgent: {"action_bins": 2},
}


class Sampled(Counted):
    """Draws observations; pays for actions that are large."""

    def __init__(self, seen, done):
        self.observation_space = copy.deepcopy(OBSERVATIONS[seen])
        self.action_space = copy.deepcopy(ACTIONS[done])

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        return self.observation_space.sample(), float(np.sum(action)), False, self.t >= 10, {}


gym.register("Sampled-v0", Sampled)


PAIRS = {
    agents.TwoTimescaleAgent: [("Box", "Discrete"), ("Discrete", "Box"), ("Dict", "Box")],
    agents.FittedQAgent: [("Tuple", "MultiDiscrete"), ("Dict", "Box")],
    agents.ModelAgent: [("Box", "MultiBinary"), ("Discrete", "Box"), ("Dict", "Box")],
    agents.CodevectorAgent: [("Dict", "Box")],
}


@pytest.mark.parametrize(
    ("kind", "seen", "done"), [(kind, *pair) for kind, pairs in PAIRS.items() for pair in pairs]
)
def test_whatever_trains_can_do_everything_else(kind, seen, done, tmp_path, monkeypatch):
    for steps in ("_DRAWN_STEPS", "_VISITED_STEPS"):
        monkeypatch.setattr(page, steps, 200)
    env = gym.make("Sampled-v0", seen=seen, done=done)
    agent = kind(env, seed=0, **SETTINGS[kind]).learn(300)
    observation = env.reset(seed=1)[0]
    action = agent.predict(observation)[0]
    assert env.action_space.contains(agent.act(observation))
    assert env.action_space.contains(action)
    assert str(agent.explain(observation))
    for name in ("p.h", "p.json", "p.onnx"):
        assert agents.export_policy(agent, tmp_path / name).stat().st_size
    report = report_of(agent, episodes=2, seed=0)
    assert page.write_page(agent, report, tmp_path / "page.html").stat().st_size
    agent.save(tmp_path / "a.zip")
    loaded = agents.load_agent(tmp_path / "a.zip")
    np.testing.assert_array_equal(loaded.predict(observation)[0], action)
    np.testing.assert_array_equal(loaded.evaluate(2, seed=1), agent.evaluate(2, seed=1))


def test_integers_of_a_box_are_one_action_each():
    def made(low, high):
        space = spaces.Box(np.array(low), np.array(high), dtype=np.int64)
        env = gym.wrappers.TransformAction(gym.make("CartPole-v1"), lambda a: int(a[0] > 1), space)
        return agents.FittedQAgent(env, seed=0)

    assert made([0, 4], [7, 4]).interface.combinations[:, 0].tolist() == [0, 2, 4, 5, 7]
    learns, loops = made([0], [3]), made([0], [3])
    assert learns.interface.combinations.tolist() == [[0], [1], [2], [3]]
    same(learns.learn(400), play(loops, loops.env, 400, seed=loops.draw_env_seed()))
