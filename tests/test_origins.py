"""Files describe the environment: arguments, time limit, wrappers and their statistics."""

import copy
import itertools
import pickle
import sys
import threading

import gymnasium as gym
import numpy as np
import pytest
from environments import quick_rule
from gymnasium import wrappers
from gymnasium.wrappers import vector

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent, load_agent
from oda_rl.agents.environments.origins import separate_env

OWN = """
import gymnasium as gym

gym.register("Own-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=40)

class Thrice(gym.RewardWrapper):
    def reward(self, reward):
        return 3.0 * reward
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A user's module on the path, removed afterwards."""
    (tmp_path / "module_of_ones_own.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "module_of_ones_own"
    sys.modules.pop("module_of_ones_own", None)
    gym.registry.pop("Own-v0", None)


def brief(env):
    return wrappers.TimeLimit(env, 9)


def boxed(env):
    return wrappers.RescaleAction(env, np.float32(-1.0), np.ones(1, dtype=np.float32))


@pytest.mark.parametrize(
    "make",
    [
        lambda: gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=50),
        lambda: gym.make("FrozenLake-v1", desc=["SFF", "FHF", "FFG"]),
        lambda: brief(gym.make("CartPole-v1")),
        lambda: wrappers.TimeLimit(gym.make("CartPole-v1", max_episode_steps=20), 1000),
        lambda: gym.make("CartPole-v1", max_episode_steps=-1),
        lambda: wrappers.TimeAwareObservation(brief(gym.make("CartPole-v1"))),
        lambda: boxed(gym.make("Pendulum-v1")),
        lambda: wrappers.NormalizeObservation(gym.make("CartPole-v1")),
        lambda: wrappers.NormalizeReward(brief(gym.make("CartPole-v1")), gamma=0.9),
        lambda: wrappers.FrameStackObservation(
            wrappers.NormalizeObservation(gym.make("CartPole-v1")), 3
        ),
        lambda: gym.make_vec("CartPole-v1", 2, "sync", max_episode_steps=33, wrappers=[brief]),
        lambda: vector.DictInfoToList(
            vector.ClipReward(vector.NormalizeObservation(gym.make_vec("CartPole-v1", 2)), 0, 0.5)
        ),
    ],
)
def test_a_loaded_agent_plays_where_it_was_trained(make, tmp_path):
    agent = TwoTimescaleAgent(make(), seed=0).learn(700)
    agent.save(tmp_path / "a:run")
    expected = agent.evaluate(8, seed=3)
    loaded = load_agent(tmp_path / "a:run")
    np.testing.assert_array_equal(loaded.evaluate(8, seed=3), expected)
    loaded.save(tmp_path / "again.zip")  # without having made an environment
    again = load_agent(tmp_path / "again.zip").learn(30)
    assert str(again.env) == str(separate_env(agent.env))


def test_running_statistics_are_updated_in_training_only(tmp_path):
    env = wrappers.NormalizeObservation(gym.make("CartPole-v1"))
    agent = TwoTimescaleAgent(env, seed=0).learn(500)
    agent.save(tmp_path / "a.zip")
    mean, var, count = env.obs_rms.mean.copy(), env.obs_rms.var.copy(), env.obs_rms.count
    agent.evaluate(5)
    loaded = load_agent(tmp_path / "a.zip")
    made = loaded._require_env()
    for one, learning in ((env, True), (separate_env(env), False), (made, True)):
        assert (one.update_running_mean, one.obs_rms.count) == (learning, count)
        np.testing.assert_array_equal([one.obs_rms.mean, one.obs_rms.var], [mean, var])
    loaded.learn(100)
    assert made.obs_rms.count > count


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: wrappers.TransformReward(gym.make("CartPole-v1"), lambda reward: 2.0 * reward),
            "CartPole-v1 wrapped by TransformReward, whose argument func is of type function",
        ),
        (lambda: brief(gym.envs.classic_control.CartPoleEnv()), "CartPoleEnv, which is not regist"),
        (
            lambda: gym.make_vec("CartPole-v1", 2, "sync", wrappers=[wrappers.NormalizeReward]),
            "wrapped by NormalizeReward, whose running statistics differ",
        ),
        (
            lambda: vector.TransformReward(gym.make_vec("CartPole-v1", 2), lambda reward: reward),
            "wrapped by TransformReward, which wraps a vector environment",
        ),
    ],
)
def test_an_environment_that_no_file_holds_is_refused_by_name(make, said, tmp_path):
    TwoTimescaleAgent(make(), seed=0).learn(300).save(tmp_path / "a.zip")
    loaded = load_agent(tmp_path / "a.zip")
    for use in (lambda: loaded.learn(10), lambda: loaded.evaluate(1)):
        with pytest.raises(ValueError, match=f"trained in .*{said}.*give env="):
            use()
    assert len(loaded.evaluate(1, env=gym.make("CartPole-v1"))) == 1
    assert load_agent(tmp_path / "a.zip", env=make()).learn(10).num_timesteps >= 310


@pytest.mark.parametrize("thrice", [True, False])
def test_a_wrapper_of_a_users_module_and_an_id_that_it_registers(thrice, own, tmp_path):
    wrapped = __import__(own).Thrice(gym.make("CartPole-v1"))
    agent = TwoTimescaleAgent(wrapped if thrice else f"{own}:Own-v0", seed=0).learn(300)
    agent.save(tmp_path / "a.zip")
    expected = agent.evaluate(3, seed=0)
    del sys.modules[own], gym.registry["Own-v0"]  # as in another process
    loaded = load_agent(tmp_path / "a.zip")
    with pytest.raises(ValueError, match=f"the module '{own}' would be imported"):
        loaded.evaluate(1)
    assert own not in sys.modules
    loaded.named_by_file = False
    np.testing.assert_array_equal(loaded.evaluate(3, seed=0), expected)


class Own(gym.Env):
    """Nobody has registered it; it begins where it is told to, and may hold what no copy can."""

    observation_space = gym.spaces.Box(-9.0, 9.0, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, hardware=None):
        self.hardware, self.resets, self.begun = hardware, 0, set()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = float((options or {}).get("x", 0.0)), 0
        self.resets += 1
        self.begun.add(self.x)
        return [self.x], {}  # a list, not an array

    def step(self, action):
        self.x += 2.0 * action - 1.0
        self.t += 1
        seen = [self.x] if self.t % 3 else np.array([self.x], dtype=np.float32)
        return seen, self.x, False, self.t == 5, {}


@pytest.mark.parametrize("kind", [TwoTimescaleAgent, FittedQAgent, quick_rule])
def test_environments_of_ones_own_are_copied_to_evaluate_in(kind):
    env = Own()
    agent = kind(env, seed=0).learn(300, reset_options={"x": 2.0})
    assert env.begun == {2.0}
    resets = env.resets
    assert agent.evaluate(3, seed=0, reset_options={"x": -3.0}).max() <= 0.0
    assert len(agent.evaluate(3)) == 3
    assert (env.resets, env.begun) == (resets, {2.0})


def test_what_cannot_be_copied_is_played_in_with_a_word_but_not_while_it_is_learned_in():
    env = Own(threading.Lock())
    agent = TwoTimescaleAgent(env, seed=0)
    with pytest.raises(ValueError, match="Own, which is not registered.*give env=.*after learn"):
        agent.learn(100, callback=lambda agent: agent.evaluate(1))
    with pytest.warns(UserWarning, match="played in the environment itself"):
        assert len(agent.evaluate(2)) == 2
    assert agent.learn(50).num_timesteps > 50
    with pytest.raises(ValueError, match="reset_options is for one environment"):
        TwoTimescaleAgent(gym.make_vec("CartPole-v1", 2), seed=0).learn(9, reset_options={"x": 0})


class Numbered(gym.RewardWrapper):
    """Has the number of a simulator, which no other has, a state, and a constant."""

    numbers = itertools.count()

    def __init__(self, env):
        super().__init__(env)
        self.number, self.moved, self.factor = next(self.numbers), False, 1.0

    def reward(self, reward):
        self.moved = True
        return self.factor * reward


@pytest.mark.parametrize(
    ("make", "change"),
    [(lambda: gym.make("CartPole-v1"), lambda env: setattr(env.unwrapped, "force_mag", 0.5)),
     (lambda: brief(gym.make("Pendulum-v1")), lambda env: setattr(env.unwrapped, "g", 1.0)),
     (lambda: Numbered(gym.make("CartPole-v1")), lambda env: setattr(env, "factor", 2.0)),
     (lambda: gym.make_vec("CartPole-v1", 2, "sync"), lambda env: env.set_attr("length", 9.0))],
)  # fmt: skip
def test_constants_that_were_changed_are_kept_and_no_state(make, change):
    env = make()
    agent = FittedQAgent(env, seed=0).learn(300)
    before = agent.evaluate(5, seed=1)
    change(env)
    changed = agent.evaluate(5, seed=1)
    assert not np.array_equal(changed, before)
    for other in (agent, copy.deepcopy(agent), pickle.loads(pickle.dumps(agent))):
        np.testing.assert_array_equal(other.evaluate(5, seed=1), changed)
    if isinstance(env, Numbered):
        made = separate_env(env)
        assert (env.moved, made.moved, made.number > env.number) == (True, False, True)


class Shortened(gym.Wrapper):
    """Makes its own environment: what it takes is a number of steps."""

    def __init__(self, steps=7):
        super().__init__(gym.make("CartPole-v1", max_episode_steps=steps))


def test_a_wrapper_that_makes_its_own_environment_is_copied():
    agent = TwoTimescaleAgent(Shortened(), seed=0).learn(50)
    assert agent.origin.obstacle.endswith("Shortened, which does not record its arguments")
    assert agent.evaluate(3, seed=0).tolist() == [7.0] * 3
