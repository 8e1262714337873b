"""Vector environments that compiled code steps: the same bits as by their own steps."""

import gymnasium as gym
import numpy as np
import pytest
import test_fitted
import test_model_agent
import test_two_timescale
from environments import BARTO, Plain, quick_rule, steps_for
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper
from test_dynamics import Puck, Pucks, limited

from oda_rl.agents import FittedQAgent, TwoTimescaleAgent
from oda_rl.agents.environments.adaptation import adapted_vector
from oda_rl.agents.training.copies import CartPoles, Own, Several, stepper

SAME = {
    TwoTimescaleAgent: test_two_timescale.same,
    FittedQAgent: test_fitted.same,
    quick_rule: test_model_agent.same,
}
kinds = pytest.mark.parametrize("kind", SAME, ids=lambda kind: kind.__name__)


def at_once(env_id, count=5, **more):
    return gym.make_vec(env_id, count, vectorization_mode="vector_entry_point", **more)


def one_by_one(env_id, count=5, **more):
    return gym.make_vec(env_id, count, vectorization_mode="sync", **more)


def all_unlike():
    """Gravity, force and the length of episodes are another in each."""
    made = [gym.make("CartPole-v1", max_episode_steps=20 + i) for i in range(3)]
    for i, env in enumerate(made):
        env.unwrapped.gravity, env.unwrapped.force_mag = 9.8 - i, 10.0 + i
    return SyncVectorEnv([lambda env=env: env for env in made])


class Table(Pucks):
    """Shows places and speeds one below the other."""

    def __init__(self):
        super().__init__()
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2, 3), np.float64)

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0].reshape(2, 3), {}

    def step(self, action):
        observation, *outcome = super().step(action)
        return observation.reshape(2, 3), *outcome


def semi_implicit():
    env = at_once("CartPole-v1")
    env.kinematics_integrator = "semi-implicit"
    return env


ENVIRONMENTS = {
    "cart-poles": lambda: at_once("CartPole-v1"),
    "semi-implicit cart-poles": semi_implicit,
    "short cart-poles": lambda: at_once("CartPole-v1", max_episode_steps=25),
    "cart-poles that fail": lambda: at_once("CartPole-v1", sutton_barto_reward=True),
    "cart-poles with friction": lambda: at_once(BARTO, max_episode_steps=30),
    "cart-poles one by one": lambda: one_by_one("CartPole-v1"),
    "mountain cars": lambda: one_by_one("MountainCar-v0"),
    "pendulums": lambda: one_by_one("Pendulum-v1"),
    "acrobots": lambda: one_by_one("Acrobot-v1", max_episode_steps=60),
    "unlike ones": all_unlike,
    "from outside": lambda: SyncVectorEnv([lambda: limited(Pucks())] * 4),
    "in tables": lambda: SyncVectorEnv([lambda: limited(Table())] * 4),
    "pushed by a choice": lambda: SyncVectorEnv([lambda: limited(Puck())] * 4),
}
everywhere = pytest.mark.parametrize("make", ENVIRONMENTS.values(), ids=ENVIRONMENTS)


def steps_itself(env):
    """Wrap an environment so that nobody else takes its steps."""
    return VectorWrapper(env)


@everywhere
def test_compiled_steps_are_the_environments_own(make):
    own, other = adapted_vector(make(), 3), adapted_vector(make(), 3)
    own.reset(seed=3)
    other.reset(seed=3)
    taker, rng = stepper(other, 0), np.random.default_rng(0)
    assert not isinstance(taker, Own)
    n, n_actions = own.num_envs, int(own.single_action_space.n)
    ends = 0
    for turn in range(400):
        actions = rng.integers(n_actions, size=n)
        right, found = own.step(actions), taker.step(actions)
        for one, another in zip(right[:4], found[:4], strict=True):
            np.testing.assert_array_equal(one, another)
        assert right[0].dtype == found[0].dtype
        ends += int((found[2] | found[3]).sum())
        if turn == 250:  # also in the midst of episodes, and where some are over
            taker.leave()
            for _ in range(3):
                for one, another in zip(own.step(actions), other.step(actions), strict=True):
                    np.testing.assert_equal(one, another)
            taker = stepper(other, 0)
    assert ends > n


@kinds
@everywhere
def test_agents_learn_the_same_from_compiled_steps(kind, make):
    agents = [kind(env, seed=1, action_bins=3) for env in (make(), steps_itself(make()))]
    for steps in (steps_for(kind, 1500, 200), 1, 300):
        for agent in agents:
            agent.learn(steps)
    SAME[kind](*agents)
    actions = agents[0].env.action_space.sample()
    stepped = [agent.env.step(actions) for agent in agents]
    np.testing.assert_equal(*stepped)


def heavier(env):
    for one in getattr(env, "envs", [env]):
        one.unwrapped.gravity = 12.0


def elsewhere(env):
    env.state = 0.5 * env.state


def shorter(env):
    env.max_episode_steps = 15


@pytest.mark.parametrize(
    ("make", "change"),
    [(at_once, heavier), (one_by_one, heavier), (at_once, elsewhere), (at_once, shorter)],
    ids=["heavier at once", "heavier one by one", "elsewhere", "shorter"],
)
def test_what_a_callback_changes_of_the_environment_counts(make, change):
    agents = []
    for wrap in (lambda env: env, steps_itself):
        env = make("CartPole-v1")

        def noted(agent, env=env):
            if 400 < agent.num_timesteps < 800:
                change(env)

        agents.append(TwoTimescaleAgent(wrap(env), seed=0).learn(2000, callback=noted))
    test_two_timescale.same(*agents)
    unchanged = TwoTimescaleAgent(make("CartPole-v1"), seed=0).learn(2000)
    assert not np.array_equal(agents[0].episodes.rows[:, :2], unchanged.episodes.rows[:, :2])


def test_what_was_returned_does_not_change():
    env = at_once("CartPole-v1")
    env.reset(seed=0)
    taker = stepper(env, 0)
    first = taker.step(np.ones(5, dtype=np.int64))[:4]
    kept = [array.copy() for array in first]
    for _ in range(30):
        taker.step(np.ones(5, dtype=np.int64))
    for one, other in zip(first, kept, strict=True):
        np.testing.assert_array_equal(one, other)


class Windy(CartPoleVectorEnv):
    def step(self, action):
        return super().step(1 - action)


def one_thrice():
    env = gym.make("CartPole-v1")
    return SyncVectorEnv([lambda: env] * 3)


def replaced():
    env = one_by_one("CartPole-v1")
    env.step = env.step
    return env


@pytest.mark.parametrize(
    "make",
    [
        lambda: Windy(5),
        lambda: steps_itself(at_once("CartPole-v1")),
        lambda: SyncVectorEnv(
            [lambda: gym.make("CartPole-v1")] * 3, autoreset_mode=AutoresetMode.SAME_STEP
        ),
        lambda: SyncVectorEnv([lambda: Plain(gym.make("CartPole-v1"))] * 3),
        lambda: SyncVectorEnv([lambda: gym.make("FrozenLake-v1")] * 3),
        one_thrice,
        replaced,
    ],
    ids=["subclass", "wrapped", "same step", "wrapped within", "unknown", "one thrice", "replaced"],
)
def test_others_take_their_steps_themselves(make):
    env = adapted_vector(make(), 3)
    env.reset(seed=0)
    assert isinstance(stepper(env, 0), Own)


def test_dynamics_that_have_changed_are_found_out(monkeypatch):
    def heavier(self, action):
        self.gravity = 1.0 + self.gravity
        return step(self, action)

    step = CartPoleVectorEnv.step
    monkeypatch.setattr(CartPoleVectorEnv, "step", heavier)
    env = at_once("CartPole-v1", 7)  # as many as no other test has, of which it would be known
    env.reset(seed=0)
    assert isinstance(stepper(env, 0), Own)


def test_trying_dynamics_leaves_the_environment_alone():
    pair = at_once("CartPole-v1", 9), at_once("CartPole-v1", 9)
    for env in pair:
        env.reset(seed=5)
    assert isinstance(stepper(pair[0], 0), CartPoles)
    for _ in range(40):
        np.testing.assert_equal(*(env.step(np.zeros(9, dtype=np.int64)) for env in pair))


def test_actions_are_numbered_from_zero():
    env = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    env.reset(seed=0)
    taker = stepper(env, 0)
    assert isinstance(taker, Several)
    before = taker.states.copy()
    taker.step(np.array([0, 1]))
    assert taker.states[0, 1] < before[0, 1]  # pushed to the left
    assert taker.states[1, 1] > before[1, 1]
