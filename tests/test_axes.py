"""Whether components of observations are axes: against explicit sums, and in environments."""

import gymnasium as gym
import numpy as np
import pytest

import oda_rl.envs  # noqa: F401  registers BartoCartPole
from oda_rl.agents import FittedQAgent
from oda_rl.agents.base import axes
from oda_rl.agents.base.memory import CUT, GOES_ON, TERMINAL

WORLDS = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0",
          "MountainCarContinuous-v0", "oda_rl/BartoCartPole-v0"]  # fmt: skip


def random_play(name, n=1500, seed=0):
    """Rows of a memory: random actions of minimum or maximum force, each repeated."""
    env = gym.make(name)
    rng = np.random.default_rng(seed)
    box = isinstance(env.action_space, gym.spaces.Box)
    observations, steps = [env.reset(seed=seed)[0]], []
    held = action = 0
    while len(steps) < n:
        if held == 0:
            action, held = int(rng.integers(2 if box else env.action_space.n)), rng.integers(1, 9)
        held -= 1
        done = np.where(action, env.action_space.high, env.action_space.low) if box else action
        observation, reward, terminated, truncated, _ = env.step(done)
        observations.append(observation)
        steps.append((action, reward, GOES_ON))
        if terminated or truncated:
            steps.append((-1.0, 0.0, TERMINAL if terminated else CUT))
            observations.append(env.reset()[0])
            held = 0
    steps.append((-1.0, 0.0, CUT))
    return np.array(observations, dtype=np.float64), np.array(steps[: len(observations)])


def turned(observations, seed=0, condition=1.0):
    """Observations in standard deviations, mapped linearly."""
    rng = np.random.default_rng(seed)
    deviations = observations.std(axis=0)
    d = len(deviations)
    one, other = np.linalg.qr(rng.normal(size=(2, d, d)))[0]
    mixed = (one * condition ** -np.linspace(0.0, 1.0, d)) @ other
    return observations / np.where(deviations > 0.0, deviations, 1.0) @ mixed.T


@pytest.mark.parametrize("name", WORLDS)
def test_components_of_gymnasiums_worlds_are_axes(name):
    # Of two components a turned law may be sparse, too; in the swing of an acrobot's first 1500
    # steps it is dense by nature now and then.
    assert sum(axes.informative(*random_play(name, seed=seed)) for seed in range(4)) >= 3


@pytest.mark.parametrize("condition", [1.0, 100.0])
@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1"])
def test_linear_maps_of_them_are_not(name, condition):
    observations, steps = random_play(name)
    found = [axes.informative(turned(observations, i, condition), steps) for i in range(10)]
    assert sum(found) <= 1  # that lie near the axes by chance


def test_units_and_further_components_change_nothing():
    observations, steps = random_play("CartPole-v1")
    noise = np.random.default_rng(0).normal(size=(len(steps), 16))
    constant, mixed = np.full(len(steps), 7.0), turned(observations, 1)
    assert axes.informative(observations * [1e3, 1e-3, 1e3, 1e-3] + 100.0, steps)
    for more in (noise, observations, constant):
        assert axes.informative(np.column_stack([observations, more]), steps)
    assert not axes.informative(mixed, steps)
    assert not axes.informative(np.column_stack([mixed, constant]), steps)
    # Of too few steps, or components that vary, nothing is decided.
    for n in (0, 1, 20):
        few = steps[:n].copy()
        few[n - 1 :, 2] = CUT
        assert axes.informative(turned(observations)[:n], few)
    assert axes.informative(observations[:, :1], steps)
    assert axes.informative(np.zeros_like(observations), steps)


@pytest.mark.parametrize("continuous", [False, True])
def test_changes_are_cleared_of_the_actions(continuous):
    # Four speeds that fade, and a brake that depends on all of them: without it they are dense.
    rng = np.random.default_rng(0)
    n, gains = 2000, np.array([1.0, -1.0, 1.0, -1.0])
    observations, force = np.zeros((n + 1, 4)), np.zeros(n)
    for i in range(n):
        wanted = -gains @ observations[i]
        force[i] = wanted + rng.normal() if continuous else np.sign(wanted + rng.normal())
        own = 0.7 * observations[i] + 0.3 * rng.normal(size=4)
        observations[i + 1] = own + 0.2 * gains * force[i]
    parts = np.append(force, 0.0)
    numbers = np.append(np.zeros(n), -1.0) if continuous else np.where(parts > 0.0, 1.0, 0.0)
    steps = np.column_stack([numbers, np.zeros(n + 1), np.full(n + 1, GOES_ON)])
    steps[-1, 2] = CUT
    if continuous:
        assert not axes.informative(observations, np.where(steps == -1.0, 0.0, steps))
        steps = np.column_stack([steps, parts])
    assert axes.informative(observations, steps)


def mapped_cartpole(seed):
    """A cart-pole whose observations are mapped by a matrix of condition 100."""
    rng = np.random.default_rng(seed)
    deviations = random_play("CartPole-v1")[0].std(axis=0)
    one, other = np.linalg.qr(rng.normal(size=(2, 4, 4)))[0]
    matrix = one * np.logspace(0.0, -2.0, 4) @ other / deviations
    box = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
    return gym.wrappers.TransformObservation(gym.make("CartPole-v1"), lambda x: matrix @ x, box)


def test_the_fitted_agent_learns_from_mapped_observations():
    # Of 20 other seeds .90 return 475 after as many steps; .5 if distances are never whitened.
    agents = (FittedQAgent(mapped_cartpole(seed), seed=seed).learn(20_000) for seed in (4, 5))
    assert any(agent.evaluate(20, seed=100).mean() >= 475.0 for agent in agents)
