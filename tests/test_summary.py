"""What an agent says of itself, and of what it cannot take."""

import gymnasium as gym
import numpy as np
import pytest
from environments import Broken, Toy

from oda_rl.agents import CodevectorAgent, FittedQAgent, ModelAgent, TwoTimescaleAgent
from oda_rl.agents.base.history import EpisodeLog

KINDS = [TwoTimescaleAgent, FittedQAgent, ModelAgent]


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_in_a_line_and_in_lines(kind):
    agent = kind("CartPole-v1", seed=0)
    assert repr(agent).startswith(f"<{kind.__name__} of CartPole-v1, 0 steps, ")
    assert "returns" not in str(agent)
    agent.learn(400)
    text, best = str(agent), agent.episodes.rows[:, 0].max()
    assert text.startswith(f"{kind.__name__}\n")
    assert "400" in text
    assert f"{best:.6g} at best" in text
    size = sum(part.size for part in agent.policy.parameters if part.any())
    assert f"{agent.n_cells:,} cell" in text
    assert f"{size:,} number" in text
    assert "codevector" in str(CodevectorAgent("Pendulum-v1", seed=0))


def test_made_of_spaces_it_has_no_environment():
    agent = FittedQAgent((gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Discrete(2)))
    assert "no environment" in str(agent)
    assert "no environment" in repr(agent)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_environment_or_callback(kind):
    for wrong in (3, None, gym.make, ["CartPole-v1"]):
        with pytest.raises(TypeError, match="env is .*: it must be an environment or a vector"):
            kind(wrong)
    with pytest.raises(TypeError, match="callback is 5: it must be callable"):
        kind("CartPole-v1").learn(10, callback=5)
    with pytest.raises(TypeError, match=r"callback returned array.*must return None or True to"):
        kind("CartPole-v1").learn(600, callback=lambda agent: np.zeros(2))
    assert kind("CartPole-v1", seed=0).learn(600, callback=lambda _: np.False_).num_timesteps < 600


def test_common_mistakes_have_a_message_of_their_own():
    env = gym.make("CartPole-v1")
    agent = FittedQAgent(env, seed=0)
    for ask in (agent.act, agent.predict):
        with pytest.raises(ValueError, match=r"is \(observation, info\), as env.reset\(\) returns"):
            ask(env.reset())
    for wrong in ("0.9", None, [0.9]):
        with pytest.raises(ValueError, match=r"gamma is .*: it must be in \(0, 1\)"):
            FittedQAgent(env, gamma=wrong)
    for kind in (FittedQAgent, TwoTimescaleAgent):
        with pytest.raises(ValueError, match="env is 'MlpPolicy': the environment comes first"):
            kind("MlpPolicy", env, seed=0)
        spaces = kind((env.observation_space, env.action_space), seed=0)
        assert (spaces.env, spaces.act(env.reset(seed=0)[0]) in (0, 1)) == (None, True)
    for steps in ("many", "10", None, 2.5, 0, np.inf):
        with pytest.raises(ValueError, match="total_timesteps is .*: it must be an integer of at"):
            agent.learn(steps)
    observation = env.reset(seed=0)[0]
    agent.act(observation)
    for action in ([1], "1", None):
        with pytest.raises(ValueError, match="action is .*: it must be an integer from 0 to 1"):
            agent.update(observation, action, 1.0, observation, False, False)
    last = observation + np.float32(0.125)
    begun = [(last, True), (last, False), (last, True), (last.copy(), False), (last, True)]
    for first, terminated in begun:  # the same context again, and equal numbers after a reset
        agent.act(first)
        agent.update(first, 1, 1.0, last, terminated, False)
    with pytest.warns(UserWarning, match="the last one of an episode that has ended: call env.re"):
        agent.act(last)
    with pytest.raises(ValueError, match=r"env has float32 observations of shape \(2,\) and 3 act"):
        agent.env = gym.make("MountainCar-v0")
    with pytest.raises(ValueError, match="there is no rule yet: the agent has learned nothing"):
        ModelAgent(env).rules()


def test_a_policy_that_is_no_better_than_random_play_is_doubted():
    agent = FittedQAgent("MountainCar-v0", seed=0).learn(300)
    groups = [[1, -900, -np.inf, 50, 0], [1, -200, -200, 200, 0]]  # the first was cut short
    agent.episodes = EpisodeLog(np.array(groups, dtype=float))
    with pytest.warns(UserWarning, match="not better than random play: mean return -200 against"):
        agent.evaluate(10, seed=0)
    assert "warning " in str(agent)
    assert "ModelAgent" in str(agent)
    agent.learn(10)
    assert "warning " not in str(agent)


def test_random_actions_do_not_follow_the_random_numbers_of_the_environment():
    class Colours(Toy):
        def step(self, action):
            observation, _, *ends = super().step(action)
            return observation, float(action == self.np_random.integers(4)), *ends

    agent = FittedQAgent(Colours(lambda rng: np.zeros(2), n_actions=4, length=50), seed=0)
    assert 10.0 < agent.evaluate_random(20, seed=5).mean() < 15.0


def test_a_doubt_names_constant_components_of_boxes_and_says_if_all_returns_were_equal():
    space = gym.spaces.Dict(at=gym.spaces.Discrete(5), wind=gym.spaces.Box(0.0, 1.0, (1,)))
    seen = {"at": 1, "wind": np.ones(1, np.float32)}
    env = gym.wrappers.TransformObservation(Toy(), lambda _: seen, space)
    agent = FittedQAgent(env, seed=0).learn(100)
    said = agent.doubt(agent.evaluate(5))
    assert said.endswith("returned the same. Components that never changed: wind.")


def test_a_threshold_counts_for_the_rewards_it_is_meant_for():
    def plain():
        return gym.make("CartPole-v1")

    wrappers = gym.wrappers
    same_rewards = (
        plain(),
        gym.Wrapper(plain()),
        wrappers.RecordEpisodeStatistics(plain()),
        wrappers.NormalizeObservation(plain()),
        gym.make_vec("CartPole-v1", 2),
    )
    for same in same_rewards:
        assert TwoTimescaleAgent(same).solved_return == 475.0
        assert FittedQAgent(same).solved_return == 475.0
    for other in (wrappers.TransformReward(plain(), lambda reward: 1000.0 * reward),
                  wrappers.NormalizeReward(plain()), gym.Wrapper(Broken(plain(), None)),
                  gym.make_vec("CartPole-v1", 2, wrappers=[wrappers.NormalizeReward],
                               vectorization_mode="sync")):  # fmt: skip
        assert TwoTimescaleAgent(other).solved_return is None
        assert FittedQAgent(other).solved_return is None


def test_rewards_times_a_thousand_do_not_stop_the_learning():
    env = gym.wrappers.TransformReward(gym.make("CartPole-v1"), lambda reward: 1000.0 * reward)
    agent = TwoTimescaleAgent(env, seed=0).learn(10_000)
    assert agent.evaluate(20, env=gym.make("CartPole-v1"), seed=1).mean() > 100.0
