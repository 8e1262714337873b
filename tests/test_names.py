"""Names of components and actions, from where they are known to where they are read."""

import gymnasium as gym
import numpy as np
import pytest
from environments import Toy
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from oda_rl.agents import FittedQAgent, ModelAgent, TwoTimescaleAgent, export_policy, load_agent
from oda_rl.command.cli import main
from oda_rl.plotting import plot_partition

HOUSE = {"temperature (°C)": spaces.Box(-3.0, 3.0, (1,)), "wind": spaces.Box(-1.0, 1.0, (2,))}


class House(gym.Env):
    """Two switches against the cold: a Dict of named components, and MultiDiscrete actions."""

    observation_space = spaces.Dict(HOUSE)
    action_space = spaces.MultiDiscrete([3, 2])

    def __init__(self, **metadata):
        self.metadata = metadata

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.at = 0, self.np_random.normal(size=3).astype(np.float32)
        return self._observation(), {}

    def step(self, action):
        self.t += 1
        self.at[0] += 0.3 * (action[0] - 1) + 0.1 * action[1] - 0.05
        return self._observation(), -abs(float(self.at[0])), False, self.t == 20, {}

    def _observation(self):
        return {"temperature (°C)": self.at[:1].copy(), "wind": self.at[1:].copy()}


COMPONENTS = ("temperature", "wind[0]", "wind[1]")
SWITCHES = {"action_names": [["cool", "rest", "heat"], ["open", "shut"]]}


@pytest.mark.parametrize(
    ("metadata", "names"),
    [({}, ("action (0, 0)", "action (2, 1)")),
     ({"action_names": ["heater", "window"]}, ("heater 0, window 0", "heater 2, window 1")),
     (SWITCHES, ("cool, open", "heat, shut")), ({"action_names": list("abcdef")}, ("a", "f"))],
)  # fmt: skip
def test_combinations_are_named_by_their_components(metadata, names):
    for env in (House(**metadata), SyncVectorEnv([lambda: House(**metadata)] * 2)):
        agent = FittedQAgent(env, seed=0)
        assert (agent.action_names[0], agent.action_names[-1]) == names
    given = FittedQAgent(House(), action_names=metadata.get("action_names"))
    assert given.action_names[-1] == names[-1]


def test_names_are_everywhere(tmp_path):
    house = gym.wrappers.TransformObservation(House(**SWITCHES), lambda o: o, None)
    agent = ModelAgent(house, seed=0, generations=2, population=8).learn(500)
    assert agent.names == ("temperature (°C)", "wind[0]", "wind[1]")
    agent.names = COMPONENTS
    told = str(agent.explain(house.reset(seed=0)[0]))
    assert all(name in told for name in (*COMPONENTS, "heat, shut"))
    said = agent.rules()
    assert "observation[" not in said
    assert "action" not in said
    edited = agent.edit().where("temperature > 1", do="cool, shut").done()
    for one in (edited, agent.policy, agent.constrain(edited)):
        assert "temperature from 2 to 3" in str(one.prove({"temperature": (2, 3)}))
        assert "observation[" not in one.rules()
    assert "cool, shut where temperature > 1" in edited.rules()
    assert edited.rules() == agent.rules()
    axes = plot_partition(agent, (0, 1))
    assert (axes.get_xlabel(), axes.get_ylabel()) == COMPONENTS[:2]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == list(agent.action_names)
    header = export_policy(agent, tmp_path / "policy.h").read_text(encoding="utf-8")
    assert "obs[0]  temperature" in header
    agent.save(tmp_path / "run")
    again = load_agent(tmp_path / "run")
    assert (again.names, again.action_names) == (agent.names, agent.action_names)
    assert str(again.prove({"temperature": (2, 3)})).startswith("where temperature from 2 to 3:")


@pytest.mark.parametrize(
    ("env_id", "actions"),
    [("Taxi-v4", "pick up"), ("FrozenLake8x8-v1", "down"), ("CliffWalking-v1", "up"),
     ("CartPole-v1", "push left"), ("Pendulum-v1", "torque -2")],
)  # fmt: skip
def test_known_environments_have_names(env_id, actions):
    agent = FittedQAgent(env_id)
    assert actions in agent.action_names
    assert not agent.names[0].startswith("observation")


def test_what_has_no_name_is_numbered():
    stacked = gym.wrappers.FrameStackObservation(gym.make("CartPole-v1"), 2)
    agent = TwoTimescaleAgent(stacked)
    assert agent.names == tuple(f"observation[{j}]" for j in range(8))
    assert agent.action_names == ("push left", "push right")
    assert FittedQAgent(Toy()).action_names == ("action 0", "action 1")
    for keys in ("a<b>", "a" * 81, ""):
        env = Toy()
        env.observation_space = spaces.Dict({keys: spaces.Box(-1.0, 1.0, (2,))})
        assert FittedQAgent(env).names == ("observation[0]", "observation[1]")


@pytest.mark.parametrize(
    ("make", "message"),
    [(lambda: FittedQAgent("CartPole-v1", names=list("abca")), "names has 'a' twice"),
     (lambda: FittedQAgent("CartPole-v1", names="abcd"), "names is 'abcd': .* sequence of 4"),
     (lambda: FittedQAgent("CartPole-v1", names=3), "names is 3: .* a sequence of 4"),
     (lambda: FittedQAgent("CartPole-v1", names=[1, 2, 3, 4]), "names has 1: .* a string"),
     (lambda: FittedQAgent("CartPole-v1", action_names=["a\n", "b"]), "printable characters"),
     (lambda: FittedQAgent(House(), action_names=list("abc")), "name for each of 2 components"),
     (lambda: FittedQAgent(House(action_names=list("abc"))), "metadata.'action_names'. is "),
     (lambda: FittedQAgent(House(component_names=["a"])), "metadata.'component_names'. is ")],
)  # fmt: skip
def test_bad_names_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.usefixtures("without_figures")
def test_the_command_takes_names_once(tmp_path, capsys):
    words = ["--names", *"abcd", "--action-names", "west", "east", "--total-timesteps", "250"]
    out = ["--out", str(tmp_path / "run")]
    few = ["--n-eval-episodes", "2", "--generations", "2"]
    assert main(["train", "--algo", "model", *words, *out, *few]) == 0
    assert "west" in capsys.readouterr().out
    assert main(["explain", str(tmp_path / "run"), "--steps", "100"]) == 0
    assert "east" in capsys.readouterr().out
