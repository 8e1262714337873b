"""Whether components of observations are axes: against explicit sums, and in environments."""

import gymnasium as gym
import numpy as np
import oracles
import pytest

import oda_rl.envs  # noqa: F401  registers BartoCartPole
from oda_rl import metric
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
    found = [axes.informative(turned(observations, i, condition), steps) for i in range(20)]
    assert sum(found) <= 2  # that lie near the axes by chance


def test_units_and_further_components_change_nothing():
    observations, steps = random_play("CartPole-v1")
    noise = np.random.default_rng(0).normal(size=(len(steps), 16))
    constant, mixed = np.full(len(steps), 7.0), turned(observations, 1)
    assert axes.informative(observations * [1e3, 1e-3, 1e3, 1e-3] + 100.0, steps)
    for more in (noise, observations, constant):
        assert axes.informative(np.column_stack([observations, more]), steps)
    assert not axes.informative(mixed, steps)
    assert not axes.informative(np.column_stack([mixed, constant]), steps)


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


def test_too_few_steps_or_varying_components_are_undecided():
    observations, steps = random_play("CartPole-v1")
    for n in (0, 1, 20):
        few = steps[:n].copy()
        few[n - 1 :, 2] = CUT
        assert axes.informative(turned(observations)[:n], few)
    assert axes.informative(observations[:, :1], steps)
    assert axes.informative(np.zeros_like(observations), steps)


@pytest.mark.parametrize(("d", "expected"), [(20, False), (40, True)])
def test_more_than_32_components_are_undecided(d, expected):
    # Each component changes by all others, so that the law is dense in any axes.
    rng = np.random.default_rng(0)
    law = 0.9 * np.linalg.qr(rng.normal(size=(d, d)))[0]
    observations = np.zeros((3000, d))
    for i in range(2999):
        observations[i + 1] = law @ observations[i] + 0.1 * rng.normal(size=d)
    steps = np.tile([0.0, 0.0, GOES_ON], (3000, 1))
    steps[-1, 2] = CUT
    assert axes.informative(observations, steps) == expected


def wander(n, d, causes, rng):
    """Points that change by a law, by actions, and by chance."""
    law, gains = 0.3 * rng.normal(size=(d, d)), rng.normal(size=(causes.shape[1], d))
    points = rng.normal(size=(n + 1, d)) * 10.0 ** rng.uniform(-2, 2, size=d) + 50.0
    points[1:] = points[:-1] + (points[:-1] - 50.0) @ law + causes @ gains
    points[1:] += 0.1 * points.std(axis=0) * rng.normal(size=(n, d))
    return points


def law_of(points, actions, components=()):
    n = len(actions)
    steps = np.column_stack([actions, np.zeros(n), np.full(n, GOES_ON), *components])
    return axes.law_of_changes(points, np.vstack([steps, steps[:1]]), np.arange(n))


def residuals(numbers, causes):
    return numbers - causes @ np.linalg.lstsq(causes, numbers, rcond=None)[0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("d", [2, 5])
def test_a_law_is_that_of_least_squares_on_residuals(d, continuous, dtype):
    rng = np.random.default_rng(d)
    n = 600
    if continuous:
        forces = rng.normal(size=(n, 2))
        causes = np.column_stack([np.ones(n), forces])
        done = np.zeros(n), forces.T
    else:
        actions = rng.choice([0, 2, 3], size=n, p=[0.5, 0.4, 0.1])  # 1 is never taken
        causes, done = np.eye(4)[actions], (actions,)
    points = wander(n, d, causes, rng).astype(dtype)
    law, moments, changes = law_of(points, *done)
    own = points.astype(np.float64)
    before, after = (residuals(part, causes) for part in (own[:-1], np.diff(own, axis=0)))
    deviations = own[:-1].std(axis=0)
    before, after = before / deviations, after / deviations
    # Moments of points lose some digits to their mean, which is up to 1e4 deviations off.
    np.testing.assert_allclose(moments, before.T @ before / n, atol=1e-9)
    np.testing.assert_allclose(changes, after.T @ after / n, atol=1e-9 * np.abs(changes).max())
    expected = np.linalg.lstsq(before, after, rcond=None)[0].T
    np.testing.assert_allclose(law, expected, atol=1e-8 * np.abs(expected).max())
    dense = axes.density(law, moments, changes.diagonal())
    assert dense == pytest.approx(oracles.density(before, after), rel=1e-7)


def test_redundant_actions_change_nothing():
    rng = np.random.default_rng(0)
    forces, none = rng.normal(size=(2, 600)), np.zeros(600)
    points = wander(600, 3, forces.T, rng)
    more = [*forces, 2.0 * forces[0] - forces[1], np.full(600, 3.0), none]
    for one, other in zip(law_of(points, none, forces), law_of(points, none, more), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8 * np.abs(one).max())


def test_densities_of_rotated_laws_are_those_of_rotated_points():
    rng = np.random.default_rng(0)
    d, n = 4, 400
    points = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    changes = points @ rng.normal(size=(d, d)) + rng.normal(size=(n, d))
    law = np.linalg.lstsq(points, changes, rcond=None)[0].T
    for turn in (np.eye(d), *axes._rotations(d)[:5]):
        x, y = points @ turn.T, changes @ turn.T
        found = axes.density(turn @ law @ turn.T, x.T @ x / n, (y**2).mean(axis=0))
        assert found == pytest.approx(oracles.density(x, y), rel=1e-9)
    assert axes.density(np.eye(d), np.eye(d), np.ones(d)) == 0.0
    assert axes.density(np.ones((d, d)), np.eye(d), np.ones(d)) == pytest.approx(1.0)


def whitened_units(points):
    return metric.Units.of(*metric.covariance(points), axes=False)


@pytest.mark.parametrize("seed", range(3))
def test_distances_in_whitened_units_are_those_of_any_linear_map(seed):
    rng = np.random.default_rng(seed)
    d = 4
    points = rng.normal(size=(500, d)) @ rng.normal(size=(d, d))
    targets = np.sin(points[:, 0]) + points[:, 1]
    groups = np.zeros(500, dtype=np.int64)
    matrix = rng.normal(size=(d, d)) * 10.0 ** rng.uniform(-3, 3, size=d)
    shown = [points - points.mean(axis=0)]
    shown.append(shown[0] @ matrix.T)
    for power, n_fits in ((0.5, 0), (0.5, 2), (0.25, 2)):
        gaps = []
        for own in shown:
            units, learned = whitened_units(own), None
            for _ in range(n_fits):
                learned = units.average(learned, units.outer(own, groups, targets))
            transform = units.transform(learned, power)
            gaps.append(np.linalg.norm((own[:250] - own[250:]) @ transform.T, axis=1))
        np.testing.assert_allclose(*gaps, rtol=1e-5)


def test_the_metric_of_whitened_units_is_the_inverse_covariance_until_one_is_learned():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3))
    covariance = np.cov(points, rowvar=False, bias=True)
    np.testing.assert_allclose(whitened_units(points).metric(None), np.linalg.inv(covariance))


def test_whitening_leaves_out_constant_directions():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(300, 3)) @ [[1, 0, 1, 0], [0, 1, 1, 0], [0.5, 0, 0.5, 0]]
    units = whitened_units(points)
    moments = np.cov(points @ units.transform(None, 0.5).T, rowvar=False, bias=True)
    np.testing.assert_allclose(np.linalg.eigvalsh(moments), [0, 0, 1, 1], atol=1e-9)
    learned = units.average(None, units.outer(points, np.zeros(300, np.int64), points[:, 0]))
    assert np.isfinite(units.transform(learned, 0.5)).all()
    assert units.average(None, np.zeros((4, 4))) is None


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
    means = []
    for seed in range(4, 6):
        agent = FittedQAgent(mapped_cartpole(seed), seed=seed).learn(20_000)
        means.append(agent.evaluate(20, seed=100).mean())
    assert max(means) >= 475.0
