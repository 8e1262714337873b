"""Kernels of soft cells against slow and obvious ones."""

import numpy as np
import pytest

from oda_rl.agents.policies.contract import CUT, MIN_NORM, SLOPE_RATE
from oda_rl.agents.policies.joint import Codebook
from oda_rl.agents.two_timescale import cells
from oda_rl.agents.two_timescale.engine import NEAREST

K, D, A = 40, 3, 4


class Named:
    """Parts of a policy by name; views of its arrays."""

    def __init__(self, policy, moments, traces):
        self.codevectors, self.slopes = policy.places.T, policy.models[:, :D]
        self.values, self.visits = np.split(policy.models[:, D:], 2, axis=1)
        self.transform, self.mean, self.head = policy.frame[:D], policy.frame[D], policy.head
        self.masses = moments.statistics[cells.MASS]
        self.born = moments.statistics[cells.BORN]
        self.covariances = moments.covariances
        self.traces = traces[:, :, cells.TRACE :]


def some_policy(rng, n_cells=20, temperature=0.5):
    """Arrays of a policy, its moments and traces, and the same by name."""
    policy = Codebook(
        rng.normal(size=(D, K)), rng.normal(size=(K, D + 2 * A)), rng.normal(size=(D + 1, D)),
        np.array([n_cells, temperature]),
    )  # fmt: skip
    policy.models[:, D + A :] = 0.0
    moments = cells.Moments(np.zeros((4, K)), np.zeros((K, D, D)))
    traces = np.zeros((2, K, 1 + D + A))
    moments.statistics[cells.MASS, :n_cells] = rng.uniform(0.5, 1.5, n_cells)
    traces[:, :, cells.LAST] = -1.0
    return (policy, moments, traces), Named(policy, moments, traces)


def no_blend():
    n = NEAREST
    near, offsets = np.zeros(1 + n, dtype=np.int64), np.zeros((n, D))
    return cells.Blend(near, np.zeros(n), offsets, np.zeros(D), np.zeros(K))


def features(policy, observation):
    """Weights of all cells, offsets from them, and their features, by the formulas."""
    n, temperature = int(policy.head[0]), policy.head[1]
    x = policy.transform @ (observation - policy.mean)
    offsets = x - policy.codevectors[:n]
    distances = (offsets**2).sum(axis=1)
    weights = np.exp((distances.min() - distances) / temperature)
    near = np.argsort(distances)[:NEAREST]
    weights[[k for k in range(n) if k not in near]] = 0.0
    weights[distances - distances.min() > CUT * temperature] = 0.0
    weights /= weights.sum()
    rate = SLOPE_RATE / temperature
    return weights, offsets, rate * weights[:, None] * offsets


def q_of(policy, observation):
    n = int(policy.head[0])
    weights, offsets, _ = features(policy, observation)
    along = (policy.slopes[:n] * offsets).sum(axis=1)
    return weights @ (policy.values[:n] + along[:, None])


@pytest.mark.parametrize("n_cells", [1, 4, 6, 20])
@pytest.mark.parametrize("temperature", [0.05, 0.5, 50.0])
def test_values_are_blended_over_the_nearest_cells(n_cells, temperature):
    rng = np.random.default_rng(0)
    (arrays, *_), policy = some_policy(rng, n_cells, temperature)
    blend, values = no_blend(), np.zeros(A)
    for observation in rng.normal(size=(200, D)):
        nearest = cells.evaluate(arrays, observation, blend, values)
        np.testing.assert_allclose(values, q_of(policy, observation), atol=1e-12)
        weights, offsets, _ = features(policy, observation)
        n = blend.near[-1]
        assert n == (weights > 0.0).sum()
        np.testing.assert_allclose(blend.weights[:n], weights[blend.near[:n]])
        assert nearest == pytest.approx((offsets**2).sum(axis=1).min())


def test_values_are_updated_by_true_online_td():
    # van Seijen et al. 2016, algorithm 2, with one dense vector of parameters. What differs is
    # stated: the step size is divided by |φ|², where slopes count by their rate.
    rng = np.random.default_rng(1)
    (arrays, _, traces), policy = some_policy(rng)
    n, decay, alpha = 20, 0.8, 0.3
    parameters = np.concatenate([policy.values[:n].ravel(), policy.slopes[:n].ravel()])
    trace = np.zeros_like(parameters)
    blend, values = no_blend(), np.zeros(A)
    for step in range(60):
        observation, action = rng.normal(size=D), int(rng.integers(A))
        error, change = rng.normal(size=2)
        cells.evaluate(arrays, observation, blend, values)
        cells.update(
            arrays, traces[1], blend, action, error, change, alpha, SLOPE_RATE, decay, step
        )
        weights, offsets, slope_features = features(policy, observation)
        own = np.zeros((n, A))
        own[:, action] = weights
        phi = np.concatenate([own.ravel(), slope_features.ravel()])
        unit = np.concatenate([own.ravel(), (weights[:, None] * offsets).ravel()])
        rate = alpha / max(phi @ unit, MIN_NORM)
        trace = decay * trace + rate * phi * (1.0 - decay * trace @ unit)
        parameters += (error + change) * trace - rate * change * phi
        got = np.concatenate([policy.values[:n].ravel(), policy.slopes[:n].ravel()])
        np.testing.assert_allclose(got, parameters, atol=1e-3)  # old traces are dropped
    assert not policy.traces[0].any()
    assert policy.visits.sum() == pytest.approx(60)


def test_the_slow_timescale_averages_what_cells_see():
    # One cell, harmonic steps: codevector and covariance are those of the samples.
    rng = np.random.default_rng(2)
    (arrays, moments, _), policy = some_policy(rng, n_cells=1)
    policy.codevectors[0] = 0.0
    policy.slopes[0] = 0.0
    blend, values = no_blend(), np.zeros(A)
    points = rng.normal(size=(3000, D)) * (1.0, 0.5, 0.2) + (0.0, 1.0, 2.0)
    inverse = np.linalg.inv(policy.transform)
    for t, x in enumerate(points):
        cells.evaluate(arrays, inverse @ x + policy.mean, blend, values)
        cells.observe(arrays, moments, blend, t, 1.0, 0.0)
    # The first codevector counts as one sample; covariances are about the moving codevector.
    np.testing.assert_allclose(policy.codevectors[0], points.sum(axis=0) / 3001, atol=1e-9)
    np.testing.assert_allclose(policy.covariances[0], np.cov(points.T), atol=0.02)


def test_values_follow_their_codevector_up_the_slope():
    rng = np.random.default_rng(3)
    (arrays, moments, _), _ = some_policy(rng, n_cells=1)
    observation, blend, values = rng.normal(size=D), no_blend(), np.zeros(A)
    probe, before = rng.normal(size=D), np.zeros(A)
    cells.evaluate(arrays, probe, blend, before)
    cells.evaluate(arrays, observation, blend, values)
    cells.observe(arrays, moments, blend, 0, 1.0, 0.0)
    cells.evaluate(arrays, probe, blend, values)
    np.testing.assert_allclose(values, before)


def test_a_merged_cell_has_the_mean_plane():
    rng = np.random.default_rng(4)
    arrays, policy = some_policy(rng, n_cells=2)
    policy.traces[:] = rng.normal(size=(2, K, D + A))
    masses = policy.masses[:2].copy()
    codevectors, slopes = policy.codevectors[:2].copy(), policy.slopes[:2].copy()
    values, summed = policy.values[:2].copy(), policy.traces[:, :2].sum(axis=1)
    cells.merge(*arrays, 1, 0)
    shares = masses / masses.sum()
    assert policy.head[0] == 1
    np.testing.assert_allclose(policy.codevectors[0], shares @ codevectors)
    np.testing.assert_allclose(policy.slopes[0], shares @ slopes)
    planes = values + ((policy.codevectors[0] - codevectors) * slopes).sum(axis=1)[:, None]
    np.testing.assert_allclose(policy.values[0], shares @ planes)
    assert policy.masses[0] == pytest.approx(masses.sum())
    np.testing.assert_allclose(policy.traces[:, 0], summed)


def test_cells_whose_values_disagree_are_far_apart():
    rng = np.random.default_rng(5)
    (arrays, *_), policy = some_policy(rng)
    n, squared_error = 20, 0.3
    best = (np.inf, 0, 0)
    for k in range(n):
        for other in range(k):
            gap = policy.codevectors[k] - policy.codevectors[other]
            along = 0.5 * (policy.slopes[k] + policy.slopes[other]) @ gap
            disagreement = ((policy.values[k] - policy.values[other] - along) ** 2).mean()
            cost = gap @ gap / policy.head[1] * (1.0 + disagreement / squared_error)
            best = min(best, (cost, k, other))
    first, second, cost = cells.cheapest_pair(arrays, squared_error, np.zeros(K))
    assert (first, second) == best[1:]
    assert cost == pytest.approx(best[0])


def test_a_cell_is_born_with_the_values_there_or_heats_the_others():
    rng = np.random.default_rng(6)
    arrays, policy = some_policy(rng)
    observation, blend, values = np.full(D, 5.0), no_blend(), np.zeros(A)
    cells.evaluate(arrays[0], observation, blend, values)
    assert cells.give_birth(*arrays, blend, values, 1.0, 7)
    assert policy.head[0] == 21
    x = policy.transform @ (observation - policy.mean)
    np.testing.assert_allclose(policy.codevectors[20], x)
    np.testing.assert_array_equal(policy.values[20], values)
    assert policy.born[20] == 7
    # Without room, and with no pair that is cheap: the temperature rises.
    policy.head[:] = K, 1e-6
    assert not cells.give_birth(*arrays, blend, values, 1.0, 8)
    assert policy.head[1] == pytest.approx(1e-6 * cells.HEATING)
    # With one, that is merged.
    policy.codevectors[3] = policy.codevectors[11]
    policy.values[3], policy.slopes[3] = policy.values[11], policy.slopes[11]
    assert cells.give_birth(*arrays, blend, values, 1.0, 9)
    assert policy.head[0] == K
    np.testing.assert_allclose(policy.codevectors[K - 1], blend.point)
