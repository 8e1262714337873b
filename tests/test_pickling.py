"""Agents, policies and adapters go through pickle, copy and cloudpickle, and learn on as before."""

import copy
import multiprocessing
import pickle
import threading

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from environments import Grid
from test_origins import Own

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
    points = agent.recent[:50] if len(agent.recent) else agent.codevectors
    action = agent.act(points[0])
    copies = [way(agent) for way in WAYS.values()]
    for one in (agent, *copies):
        one.update(points[0], action, 1.0, points[-1], False, False)
    actions, units = agent.predict(points)[0], agent.policy.act(points)
    values = agent.learn(400).q_values
    for other, way in zip(copies, WAYS.values(), strict=True):
        assert type(other) is type(agent)
        np.testing.assert_array_equal(other.predict(points)[0], actions)
        np.testing.assert_array_equal(way(other.policy).act(points), units)
        np.testing.assert_array_equal(other.learn(400).q_values, values)
        assert other.num_timesteps == 1001


def test_an_environment_that_cannot_be_made_anew_goes_along():
    env = gym.wrappers.TransformReward(Grid(), lambda reward: 2.0 * reward)
    agent = TwoTimescaleAgent(env, seed=0, warmup_steps=50).learn(500)
    copies = [way(agent) for way in WAYS.values()]
    agent.learn(300)
    for other in copies:
        assert other.env is not env
        np.testing.assert_array_equal(agent.q_values, other.learn(300).q_values)


@pytest.mark.parametrize(
    "make", [lambda: Own(threading.Lock()), lambda: Own(multiprocessing.Pipe()),
             lambda: gym.vector.AsyncVectorEnv([Own] * 2)],
)  # fmt: skip
def test_an_environment_that_cannot_be_copied_is_left_out_and_left_alone(make):
    env = make()
    agent = FittedQAgent(env, seed=0).learn(50)
    for way in WAYS.values():
        with pytest.warns(UserWarning, match="without its environment .*set env of the copy to tr"):
            other = way(agent)
        with pytest.raises(ValueError, match=r"env is None.*set agent\.env"):
            other.learn(50)
        other.env = Own()
        assert other.learn(50).num_timesteps == 100
    assert agent.learn(50).num_timesteps == 100
    env.close()


def test_algorithms_for_stable_baselines3_can_be_copied():
    from oda_rl.agents.sb3 import TwoTimescale

    model = TwoTimescale("CartPole-v1", seed=0).learn(1500)
    other = copy.deepcopy(model)
    assert other.predict(np.zeros((1, 4)))[0] == model.predict(np.zeros((1, 4)))[0]
    assert other.num_timesteps == 1500
