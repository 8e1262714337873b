"""The environment of 1983: specification, dynamics, rendering, errors."""

import warnings

import gymnasium as gym
import numpy as np
import oracles
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.utils.env_checker import check_env

from oda_rl.envs import BartoCartPoleEnv

ID = "oda_rl/BartoCartPole-v0"


@pytest.mark.parametrize("render_mode", [None, "rgb_array", "human"])
def test_env_checker_passes_without_a_warning(render_mode):
    env = gym.make(ID, render_mode=render_mode).unwrapped
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env)
    assert [str(warning.message) for warning in caught] == []
    env.close()


def test_registration():
    spec = gym.spec(ID)
    assert (spec.max_episode_steps, spec.reward_threshold) == (1000, 950)
    assert isinstance(gym.make(ID).unwrapped, BartoCartPoleEnv)
    assert gym.make_vec(ID, num_envs=3).observation_space.shape == (3, 4)


def test_dynamics_agree_with_the_oracle_at_random_states():
    env = BartoCartPoleEnv(friction_cart=0.3, friction_pole=0.01)
    env.reset(seed=0)
    rng = np.random.default_rng(1)
    for _ in range(2000):
        state = rng.uniform(-1, 1, 4) * (2.4, 3.0, 0.2, 3.0)
        state[rng.integers(4)] *= rng.integers(2)  # zeros too: sgn(0) = 0
        action = int(rng.integers(2))
        env.state, env.steps_beyond_terminated = state, None
        observation, reward, terminated, truncated, _ = env.step(action)
        expected, failed = oracles.cartpole_step(state, action, 0.3, 0.01)
        # Both do the same arithmetic in another order: a few units in the last place.
        np.testing.assert_allclose(env.state, expected, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(observation, env.state.astype(np.float32))
        assert (reward, terminated, truncated) == (1.0, failed, False)


@pytest.mark.parametrize("integrator", ["euler", "semi-implicit euler"])
def test_without_friction_it_is_gymnasiums_cartpole(integrator):
    ours, theirs = BartoCartPoleEnv(friction_cart=0, friction_pole=0), CartPoleEnv()
    ours.kinematics_integrator = theirs.kinematics_integrator = integrator
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(ours.reset(seed=7)[0], theirs.reset(seed=7)[0])
    for _ in range(3000):
        action = int(rng.integers(2))
        mine, other = ours.step(action), theirs.step(action)
        np.testing.assert_array_equal(mine[0], other[0])
        np.testing.assert_allclose(ours.state, theirs.state, rtol=0, atol=1e-12)
        assert mine[1:4] == other[1:4]
        if mine[2]:
            np.testing.assert_array_equal(ours.reset()[0], theirs.reset()[0])


def test_rendering_shows_the_pole():
    env = gym.make(ID, render_mode="rgb_array")
    env.reset(seed=0)
    upright = env.render()
    env.unwrapped.state = np.array([1.0, 0.0, 0.2, 0.0])
    moved = env.render()
    assert upright.shape == (400, 600, 3)
    assert (upright != moved).any()
    env.close()


@pytest.mark.parametrize("action", [2, -1, 0.5, None, "left"])
def test_bad_action(action):
    env = BartoCartPoleEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action is .*0 .left. or 1 .right"):
        env.step(action)


def test_bad_friction():
    for name, value in (
        ("friction_cart", -0.1), ("friction_pole", np.nan), ("friction_cart", np.inf)
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"{name} is .*at least 0"):
            BartoCartPoleEnv(**{name: value})


def test_steps_after_the_end_warn_and_earn_nothing():
    env = BartoCartPoleEnv()
    with pytest.raises(RuntimeError, match="reset"):
        env.step(0)
    env.reset(seed=0)
    while not env.step(1)[2]:
        pass
    with pytest.warns(UserWarning, match="reset"):
        assert env.step(1)[1] == 0.0
