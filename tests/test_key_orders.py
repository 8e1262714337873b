"""The order of a Dict space's keys changes nothing: learning, files, exports, explanations."""

import json
import zipfile
from collections import OrderedDict

import gymnasium as gym
import numpy as np
import pytest
from environments import Counted
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent, export_policy, load_agent

PARTS = [("speed", spaces.Box(-1.0, 1.0, (2,))), ("gear", spaces.Discrete(3))]
ARM = [("reach", spaces.Box(0.0, 1.0, ())), ("held", spaces.MultiBinary(1))]
NAMES = ["arm[0].held[0]", "arm[0].reach", "gear[0]", "gear[1]", "gear[2]", "speed[0]", "speed[1]"]


def keyed(order):
    """A Dict of Dicts with keys in an order; order 0 is the sorted one."""
    make = [
        lambda pairs: spaces.Dict(dict(pairs)),  # which Gymnasium sorts
        spaces.Dict,
        lambda pairs: spaces.Dict(OrderedDict(pairs[::-1])),
    ][order]
    return make([*PARTS, ("arm", spaces.Tuple([make(ARM)]))])


ORDERS = range(3)
REFUSED = "env has .* the agent was trained with"


class Keyed(Counted):
    """Rewards the action that is the sign of the first speed; draws do not depend on the order."""

    action_space = spaces.Discrete(2)

    def __init__(self, order=0, observation_space=None):
        self.observation_space = observation_space or keyed(order)

    def step(self, action):
        reward = float(action == (self.observation["speed"][0] > 0.0))
        self.t += 1
        return self._observe(), reward, self.t == 10, False, {}

    def _observe(self):
        rng = self.np_random
        self.observation = {
            "speed": rng.uniform(-1, 1, 2).astype(np.float32),
            "gear": int(rng.integers(3)),
            "arm": ({"reach": np.float32(rng.random()), "held": rng.integers(2, size=1)},),
        }
        return self.observation


def observations(n=200):
    env = Keyed()
    return [env.reset(seed=1000)[0], *(env.step(0)[0] for _ in range(n - 1))]


def actions(agent):
    return [int(agent.predict(one)[0]) for one in observations()]


def learned(kind, env):
    return kind(env, seed=0, gamma=0.1).learn(1000)


@pytest.fixture(scope="module", params=[TwoTimescaleAgent, FittedQAgent])
def agents(request):
    """Agents of a class, each trained in another order."""
    return [learned(request.param, Keyed(order)) for order in ORDERS]


def test_what_is_learned_is_the_same(agents):
    first = agents[0]
    decided = actions(first)
    assert 0.7 < np.mean(np.equal(decided, [o["speed"][0] > 0 for o in observations()])) < 1.01
    for agent in agents[1:]:
        np.testing.assert_array_equal(agent.codevectors, first.codevectors)
        np.testing.assert_array_equal(agent.q_values, first.q_values)
        assert actions(agent) == decided


def test_vector_environments_learn_the_same():
    several = [
        learned(TwoTimescaleAgent, SyncVectorEnv([lambda order=order: Keyed(order)] * 2))
        for order in (0, 1)
    ]
    np.testing.assert_array_equal(several[0].q_values, several[1].q_values)
    assert actions(several[0]) == actions(several[1])


def test_files_keep_the_policy(agents, tmp_path):
    decided = actions(agents[0])
    returns = agents[0].evaluate(5, env=Keyed(), seed=3).tolist()
    for order, agent in enumerate(agents):
        file = tmp_path / f"{order}.zip"
        agent.save(file)
        assert actions(load_agent(file)) == decided
        for other in ORDERS:
            loaded = load_agent(file, env=Keyed(other))
            assert actions(loaded) == decided
            assert agent.evaluate(5, env=Keyed(other), seed=3).tolist() == returns
    loaded = load_agent(file)
    loaded.env = Keyed(1)
    assert actions(loaded.learn(300)) == actions(load_agent(file, env=Keyed(2)).learn(300))


def test_exports_and_explanations_are_the_same(agents, tmp_path):
    seen = observations()[7]
    texts = {
        (
            *(export_policy(agent, tmp_path / "out", kind).read_bytes()
              for kind in ("c", "json", "onnx")),
            str(agent.explain(seen)),
        )
        for agent in agents
    }  # fmt: skip
    assert len(texts) == 1
    header, text, onnx, explanation = texts.pop()
    document = json.loads(text)
    assert document["observation"]["names"] == NAMES
    lines = "\n".join(f" *     obs[{j}]  {name}" for j, name in enumerate(NAMES))
    assert lines in header.decode()
    assert json.dumps(NAMES).encode() in onnx
    assert all(name in explanation for name in NAMES)
    points = np.array([by_name(one) for one in observations()])
    decided = agents[0].policy.act(points)
    assert decided.tolist() == actions(agents[0])


def by_name(observation):
    """The vector of an observation, read by the names of its components."""
    arm, gear, speed = observation["arm"][0], observation["gear"], observation["speed"]
    return [*arm["held"], arm["reach"], gear == 0, gear == 1, gear == 2, *speed]


def test_logs_may_have_their_keys_in_any_order():
    seen = observations()
    arms = [one["arm"][0] for one in seen]
    rows = {
        "speed": np.array([one["speed"] for one in seen]),
        "gear": np.array([one["gear"] for one in seen]),
        "arm": ({name: np.array([arm[name] for arm in arms]) for name in ("reach", "held")},),
    }
    backwards = {"arm": rows["arm"], "gear": rows["gear"], "speed": rows["speed"]}
    decided = np.arange(len(seen)) % 2
    gains = (decided == (rows["speed"][:, 0] > 0)).astype(float)
    after = {key: next_rows(part) for key, part in rows.items()}
    over = np.arange(len(seen)) % 10 == 9
    policies = set()
    for order, log in ((0, rows), (1, backwards)):
        agent = FittedQAgent((keyed(order), spaces.Discrete(2)), seed=0, gamma=0.1)
        policies.add(tuple(actions(agent.fit((log, decided, gains, after, over)))))
    assert len(policies) == 1


def next_rows(part):
    if isinstance(part, tuple):
        return ({key: next_rows(one) for key, one in part[0].items()},)
    return np.roll(part, -1, axis=0)


DIFFERENT = [
    Keyed(observation_space=spaces.Dict([*PARTS, ("leg", spaces.Tuple([spaces.Dict(ARM)]))])),
    Keyed(observation_space=spaces.Dict([("speed", PARTS[0][1]), ("gear", spaces.Discrete(5))])),
    gym.wrappers.FlattenObservation(Keyed()),
]


@pytest.mark.parametrize("other", DIFFERENT)
def test_other_spaces_are_refused_wherever_an_environment_is_given(agents, other, tmp_path):
    agent = agents[1]
    agent.save(tmp_path / "agent.zip")
    own, decided = agent.env, actions(agent)
    for use in (
        lambda: load_agent(tmp_path / "agent.zip", env=other), lambda: agent.evaluate(1, env=other),
        lambda: agent.visited_states(1, env=other), lambda: setattr(agent, "env", other)
    ):  # fmt: skip
        with pytest.raises(ValueError, match=REFUSED):
            use()
    assert agent.env is own
    assert actions(agent) == decided


def test_a_file_with_vectors_in_another_order_is_refused(tmp_path):
    file = tmp_path / "old.zip"
    TwoTimescaleAgent(Keyed(), seed=0).learn(100).save(file)
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    metadata = json.loads(members["metadata.json"])
    space = metadata["interface"]["native"]["observation_space"]
    space["Dict"] = dict(reversed(space["Dict"].items()))
    members["metadata.json"] = json.dumps(metadata).encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"\['speed', 'gear', 'arm'\]: they must be sorted"):
        load_agent(file)


def test_keys_that_are_no_strings():
    with pytest.raises(TypeError, match="keys of a Dict must be strings"):
        TwoTimescaleAgent(Keyed(observation_space=spaces.Dict([(1, PARTS[0][1])])))
