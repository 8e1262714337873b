"""Agents, policies and adapters go through pickle, copy and cloudpickle, and learn on as before."""

import copy
import pickle

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from environments import Grid

from oda_rl.agents import CodevectorAgent, FittedQAgent, ModelAgent, TwoTimescaleAgent

WAYS = {
    "pickle": lambda agent: pickle.loads(pickle.dumps(agent)),
    "deepcopy": copy.deepcopy,
    "cloudpickle": lambda agent: cloudpickle.loads(cloudpickle.dumps(agent)),
}
KINDS = {
    "online": lambda: TwoTimescaleAgent("CartPole-v1", seed=0),
    "grid": lambda: TwoTimescaleAgent("CartPole-v1", seed=0, partition="grid"),
    "fitted": lambda: FittedQAgent("CartPole-v1", seed=0),
    "model": lambda: ModelAgent("CartPole-v1", seed=0),
    "codevectors": lambda: CodevectorAgent("Pendulum-v1", seed=0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_decides_and_learns_as_the_agent_does(kind):
    agent = KINDS[kind]().learn(600)
    copies = [way(agent) for way in WAYS.values()]
    points = agent.recent[:50] if len(agent.recent) else agent.codevectors
    actions, units = agent.predict(points)[0], agent.policy.act(points)
    values = agent.learn(400).q_values
    for other, way in zip(copies, WAYS.values(), strict=True):
        assert type(other) is type(agent)
        np.testing.assert_array_equal(other.predict(points)[0], actions)
        np.testing.assert_array_equal(way(other.policy).act(points), units)
        np.testing.assert_array_equal(other.learn(400).q_values, values)
        assert other.num_timesteps == 1000


def test_an_environment_that_cannot_be_made_anew_goes_along():
    agent = TwoTimescaleAgent(Grid(), seed=0, warmup_steps=50).learn(500)
    other = copy.deepcopy(agent)
    assert other.env is not agent.env
    np.testing.assert_array_equal(agent.learn(300).q_values, other.learn(300).q_values)


def test_algorithms_for_stable_baselines3_can_be_copied():
    from oda_rl.agents.sb3 import TwoTimescale

    model = TwoTimescale("CartPole-v1", seed=0).learn(1500)
    other = copy.deepcopy(model)
    assert other.predict(np.zeros((1, 4)))[0] == model.predict(np.zeros((1, 4)))[0]
    assert other.num_timesteps == 1500


def test_a_wrapped_environment_is_made_anew():
    agent = FittedQAgent(gym.wrappers.RescaleAction(gym.make("Pendulum-v1"), -1, 1), seed=0)
    other = pickle.loads(pickle.dumps(agent.learn(300)))
    assert isinstance(other.learn(100).env, gym.wrappers.RescaleAction)
    twice = gym.wrappers.TransformReward(gym.make("CartPole-v1"), lambda reward: 2.0 * reward)
    copied = copy.deepcopy(FittedQAgent(twice, seed=0).learn(300))  # no file holds the function
    assert isinstance(copied.learn(100).env, gym.wrappers.TransformReward)
