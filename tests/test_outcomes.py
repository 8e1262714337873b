"""Which returns a model agent compares: no novelty with them, and none of unequal lengths."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from environments import QUICK, Line, same
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.wrappers import TimeLimit, TransformReward

from oda_rl.agents import FittedQAgent, ModelAgent
from oda_rl.agents.comparison import greedy_returns
from oda_rl.agents.environments.making import time_limit
from oda_rl.agents.model.experience import Outcomes
from oda_rl.envs.sparse import TwoRooms

gym.register("Line-v0", Line, max_episode_steps=100)


class Ring(gym.Env):
    """Four states in a ring; each step pays 1, and episodes are truncated after 5 to 20."""

    observation_space = gym.spaces.Discrete(4)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.left = 0, int(self.np_random.integers(5, 21))
        return self.at, {}

    def step(self, action):
        self.at = (self.at + (1 if action else -1)) % 4
        self.left -= 1
        return self.at, 1.0, False, self.left == 0, {}


def push(observation):
    return 1 + int(np.sign(-observation[0]))


def pull(observation):
    return np.clip(-10.0 * observation, -1.0, 1.0)


@pytest.mark.parametrize(
    ("task", "steps", "by_hand", "nothing"),
    [({"power": 2}, 1200, push, lambda _: 1), ({"power": 1}, 1200, push, lambda _: 1),
     ({"n": 2}, 400, pull, lambda _: np.zeros(2))],
    ids=["square", "absolute", "plane"],
)  # fmt: skip
def test_where_rewards_are_never_positive_it_regulates_as_a_rule_by_hand(
    task, steps, by_hand, nothing
):
    envs = [gym.make("Line-v0", **task) for _ in range(10)]

    def returned(decide):
        return greedy_returns(lambda seen: [decide(one) for one in seen], envs, 0).mean()

    agent = ModelAgent(gym.make("Line-v0", **task), seed=48_000_000, plan_every=0.5).learn(steps)
    good, idle = returned(by_hand), returned(nothing)
    assert returned(lambda point: agent.predict(point)[0]) > good + 0.05 * (idle - good)


def test_a_rule_that_looks_for_novelty_promises_a_return():
    promised = []

    def note(agent):
        newest = agent._engine._newest
        if newest is not None:
            promised.append(newest.promised)

    agent = ModelAgent("MountainCar-v0", seed=3, **QUICK).learn(600, callback=note)
    assert len(promised) > 1
    assert agent.episodes.rows[0, 0] == -200.0  # no goal was seen: it had to look
    assert all(-200.0 <= value < 0.0 for value in promised)


@pytest.mark.parametrize(
    ("make", "limit"),
    [(lambda: gym.make("CartPole-v1"), 500),
     (lambda: gym.make("CartPole-v1", max_episode_steps=40), 40),
     (lambda: TransformReward(TimeLimit(CartPoleEnv(), 70), float), 70),
     (lambda: TimeLimit(TimeLimit(CartPoleEnv(), 30), 90), 30),
     (lambda: TimeLimit(gym.make("CartPole-v1"), 900), 500),
     (lambda: gym.vector.SyncVectorEnv([lambda: TimeLimit(CartPoleEnv(), 70)] * 2), 70),
     (lambda: gym.make_vec("CartPole-v1", 2), 500), (CartPoleEnv, None),
     (lambda: gym.vector.SyncVectorEnv([CartPoleEnv] * 2), None)],
)  # fmt: skip
def test_the_limit_is_that_of_the_spec_or_of_a_wrapper(make, limit):
    assert time_limit(make()) == limit
    assert ModelAgent(make(), seed=0).horizon == (limit or 200)


def test_the_limit_is_that_of_the_environment_it_learns_in():
    agent = ModelAgent(TimeLimit(Line(), 50), seed=0, **QUICK).learn(120)
    assert agent.horizon == 50
    agent.env = TimeLimit(Line(), 30)
    assert agent.learn(40).horizon == 30


def test_without_a_limit_episodes_say_how_many_steps_are_imagined():
    outcomes = Outcomes(guess=40)
    assert outcomes.horizon == 40
    outcomes.append(3.0, 30, terminated=True)
    assert outcomes.horizon == 60
    outcomes.append(3.0, 20_000, terminated=True)
    assert outcomes.horizon == 400
    outcomes = Outcomes(guess=40)
    for length in (10, 25, 15):
        outcomes.append(-float(length), length, terminated=False)
    outcomes.append(-5.0, 5, terminated=True)
    assert outcomes.horizon == 25
    assert outcomes.comparable == [-25.0, -5.0]
    outcomes.limit = 10
    assert outcomes.horizon == 10


@pytest.mark.parametrize("lengths", [(60, 60), (20, 60)])
def test_a_truncated_episode_is_imagined_as_far_as_it_went(lengths):
    # Of some seeds an episode begins so far from all others that it is not imagined to its end.
    agent = ModelAgent(Line(lengths=lengths), seed=1, **QUICK).learn(1000)
    assert agent.horizon == agent.episodes.rows[:, 1].max()
    tried = [one for one in agent._engine.planner.candidates if one.returns]
    assert tried
    for one in tried:
        np.testing.assert_allclose(one.imagined, one.returns, rtol=0.02, atol=0.02)


def test_a_truncated_episode_is_counted_as_far_as_it_went():
    agent = ModelAgent(Ring(), seed=0).learn(300)
    assert agent.horizon == agent.episodes.rows[:, 1].max()


@pytest.mark.parametrize(
    ("make", "steps"),
    [(partial(Line, lengths=(60, 60)), 90), (Line, 400), (Ring, 90), (partial(TwoRooms, 2), 400)],
)
def test_going_on_after_saving_gives_the_same_bits(make, steps, reloaded):
    agent = ModelAgent(make(), seed=1, **QUICK).learn(steps)
    other = reloaded(agent, env=make())
    assert other.horizon == agent.horizon
    for one in (agent, other):
        one.learn(400)
    same(agent, other)


@pytest.mark.parametrize(("kind", "far"), [(ModelAgent, 1e6), (FittedQAgent, -1e3)])
def test_rewards_may_be_far_from_0(kind, far):
    env = TransformReward(Line(lengths=(20, 20)), lambda reward: reward + far)
    agent = kind(env, seed=0).learn(400 if kind is ModelAgent else 2_000)
    # The best returns -0.64, random play -9.
    assert agent.evaluate(50, env=Line(lengths=(20, 20)), seed=1).mean() > -0.8
