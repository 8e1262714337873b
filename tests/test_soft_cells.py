"""Kernels of soft cells against slow and obvious ones."""

import numpy as np
import pytest

from oda_rl.agents import TwoTimescaleAgent
from oda_rl.agents.policies.contract import CUT, MIN_NORM, SLOPE_RATE
from oda_rl.agents.policies.joint import Codebook
from oda_rl.agents.two_timescale import cells
from oda_rl.agents.two_timescale import qlearning as ql
from oda_rl.agents.two_timescale.engine import HEATING, NEAREST, QUIET_ROUND

K, D, A = 40, 3, 4


class Named:
    """Parts of a policy by name; views of its arrays."""

    def __init__(self, policy, moments, traces):
        self.codevectors, self.slopes = policy.places.T, policy.models[:, :D]
        self.values, self.visits = np.split(policy.models[:, D:], 2, axis=1)
        self.transform, self.mean, self.head = policy.frame[:D], policy.frame[D], policy.head
        self.masses, _, self.born, _ = moments.statistics
        self.mixture, self.covariances = policy.mixture, moments.covariances
        self.traces = traces[:, :, cells.TRACE :]


def some_policy(rng, n_cells=20, temperature=0.5, curved=False):
    """Arrays of a policy, its moments and traces, and the same by name."""
    policy = Codebook(
        rng.normal(size=(D, K)), rng.normal(size=(K, D + 2 * A)), rng.normal(size=(D + 1, D)),
        np.array([n_cells, temperature]), rng.uniform(0.01, temperature, (1 + D * curved, K)),
    )  # fmt: skip
    policy.models[:, D + A :] = 0.0
    moments = cells.Moments(np.zeros((4, K)), np.zeros((K, D, D)))
    traces = np.zeros((2, K, 1 + D + A))
    moments.statistics[cells.MASS, :n_cells] = rng.uniform(0.5, 1.5, n_cells)
    traces[:, :, cells.LAST] = -1.0
    return (policy, moments, traces), Named(policy, moments, traces)


def no_blend():
    near, offsets = np.zeros(1 + NEAREST, dtype=np.int64), np.zeros((NEAREST, D))
    return cells.Blend(near, np.zeros(NEAREST), offsets, np.zeros(D), np.zeros(K))


def distances_of(policy, offsets):
    precisions = policy.mixture[1:, : len(offsets)].T
    squares = offsets**2 * precisions if precisions.size else offsets**2
    return squares.sum(axis=1) + policy.mixture[0, : len(offsets)]


def features(policy, observation):
    """Weights of all cells, offsets from them, and their features, by the formulas."""
    n, temperature = int(policy.head[0]), policy.head[1]
    x = policy.transform @ (observation - policy.mean)
    offsets = x - policy.codevectors[:n]
    distances = distances_of(policy, offsets)
    weights = np.exp((distances.min() - distances) / temperature)
    near = np.argsort(distances)[:NEAREST]
    weights[[k for k in range(n) if k not in near]] = 0.0
    weights[distances - distances.min() > CUT * temperature] = 0.0
    weights /= weights.sum()
    return weights, offsets, SLOPE_RATE / temperature * weights[:, None] * offsets


def q_of(policy, observation):
    n = int(policy.head[0])
    weights, offsets, _ = features(policy, observation)
    along = (policy.slopes[:n] * offsets).sum(axis=1)
    return weights @ (policy.values[:n] + along[:, None])


@pytest.mark.parametrize("n_cells", [1, 4, 6, 20])
@pytest.mark.parametrize("temperature", [0.05, 0.5, 50.0])
@pytest.mark.parametrize("curved", [False, True])
def test_values_are_blended_over_the_nearest_cells(n_cells, temperature, curved):
    rng = np.random.default_rng(0)
    (arrays, *_), policy = some_policy(rng, n_cells, temperature, curved)
    blend, values = no_blend(), np.zeros(A)
    for observation in rng.normal(size=(200, D)):
        nearest = cells.evaluate(arrays, observation, blend, values)
        np.testing.assert_allclose(values, q_of(policy, observation), atol=1e-12)
        weights, offsets, _ = features(policy, observation)
        n = blend.near[-1]
        assert n == (weights > 0.0).sum()
        np.testing.assert_allclose(blend.weights[:n], weights[blend.near[:n]])
        assert nearest == pytest.approx(distances_of(policy, offsets).min())


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
    policy.codevectors[0] = policy.slopes[0] = 0.0
    blend, values = no_blend(), np.zeros(A)
    points = rng.normal(size=(3000, D)) * (1.0, 0.5, 0.2) + (0.0, 1.0, 2.0)
    for t, x in enumerate(points):
        observation = np.linalg.solve(policy.transform, x) + policy.mean
        cells.evaluate(arrays, observation, blend, values)
        cells.observe(arrays, moments, blend, t, 1.0, 0.0)
    # The first codevector counts as one sample; covariances are about the moving codevector.
    np.testing.assert_allclose(policy.codevectors[0], points.sum(axis=0) / 3001, atol=1e-9)
    np.testing.assert_allclose(policy.covariances[0], np.cov(points.T), atol=0.02)


@pytest.fixture
def engine():
    """An engine with 20 cells at random."""
    rng = np.random.default_rng(4)
    engine = TwoTimescaleAgent("CartPole-v1", seed=0, max_cells=K)._engine
    engine.live.head[:] = 20, 0.5
    for rows in engine._rows:
        rows[:20] = rng.uniform(0.5, 1.5, size=rows[:20].shape)
    return engine


def test_a_merged_cell_has_the_mean_plane(engine):
    codevectors, slopes, values = engine.live.places.T, engine.slopes[0], engine.values[0]
    before = [array[[3, 19]].copy() for array in (codevectors, slopes, values)]
    masses = engine.statistics[cells.MASS, [3, 19]].copy()
    traces, last = engine.traces[0, [3, 19], cells.TRACE :].sum(axis=0), codevectors[18].copy()
    engine._merge(np.array([3]), np.array([19]))
    assert engine.n_cells == 19
    shares = masses / masses.sum()
    centre, slope = shares @ before[0], shares @ before[1]
    np.testing.assert_allclose(codevectors[3], centre)  # the last cell takes the number
    np.testing.assert_allclose(slopes[3], slope)
    planes = before[2] + ((centre - before[0]) * before[1]).sum(axis=1)[:, None]
    np.testing.assert_allclose(values[3], shares @ planes)
    assert engine.statistics[cells.MASS, 3] == pytest.approx(masses.sum())
    np.testing.assert_allclose(engine.traces[0, 3, cells.TRACE :], traces)
    np.testing.assert_array_equal(codevectors[18], last)
    assert not any(rows[19:, cells.TRACE :].any() for rows in engine._rows)


def test_cells_whose_values_disagree_are_far_apart(engine):
    engine.state.squared_error = 0.3
    codevectors, slopes, values = engine.live.places.T, engine.slopes[0], engine.values[0]
    costs = {}
    for k in range(20):
        for other in range(k):
            gap = codevectors[k] - codevectors[other]
            along = 0.5 * (slopes[k] + slopes[other]) @ gap
            disagreement = ((values[k] - values[other] - along) ** 2).mean()
            costs[k, other] = gap @ gap / engine.temperature * (1.0 + disagreement / 0.3)
    cheap = sorted((cost, pair) for pair, cost in costs.items() if cost < cells.BIRTH)
    assert 0 < len(cheap) < 190
    assert engine._cheap_pairs().tolist() == [[*pair] for _, pair in cheap]
    assert not engine._neighbours_differ()  # no action was tried often
    engine.visits[ql.LIVE], engine.state.squared_error = 4.0, 0.01
    assert engine._neighbours_differ()


def test_slow_steps_make_room_for_births(engine):
    engine.live.head[:] = K, 0.5
    for rows in engine._rows:
        rows[:] = np.random.default_rng(5).normal(size=rows.shape)
    engine.statistics[:] = 1.0
    placed, values = engine.live.places.T, engine.values[0]
    placed *= 100.0  # no pair is cheap
    engine.state.refused = 2
    engine._prune()
    assert (engine.n_cells, engine.live.head[1]) == (K, pytest.approx(0.5 * HEATING**2))
    placed[[3, 20]] = placed[[11, 30]] + 0.2  # two are
    values[[3, 20]] = values[[11, 30]]
    engine.slopes[0, [3, 20]] = engine.slopes[0, [11, 30]] = 0.0
    engine.state.refused, engine.state.phase = 1, ql.LEARNING
    engine._note(None)
    for _ in range(2):  # nothing asks for more after the first
        engine._slow_step()
    assert (engine.n_cells, engine.state.next_slow) == (K - 1, QUIET_ROUND)
    engine.live.head[0] = K
    engine.act(np.full(4, 1e3))  # a birth has no room
    assert engine.state.next_slow == ql.ROUND


def test_a_cell_is_born_with_the_values_there():
    (arrays, moments, _), policy = some_policy(np.random.default_rng(6))
    observation, blend, values = np.full(D, 5.0), no_blend(), np.zeros(A)
    cells.evaluate(arrays, observation, blend, values)
    cells.give_birth(arrays, moments, blend, values, 7)
    assert policy.head[0] == 21
    x = policy.transform @ (observation - policy.mean)
    np.testing.assert_allclose(policy.codevectors[20], x)
    np.testing.assert_array_equal(policy.values[20], values)
    assert policy.born[20] == 7
