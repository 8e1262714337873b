"""The batch part of the fitted agent against least squares, and on a corridor we understand."""

import numpy as np
import oracles
import pytest

from oda_rl.agents import FittedQConfig
from oda_rl.agents.base.memory import CUT, GOES_ON, MARK, TERMINAL
from oda_rl.agents.fitting import regression
from oda_rl.agents.fitting.cells import Assigned, Cells, Experience, n_cells
from oda_rl.agents.fitting.regression import Belief, Reach, Regression, hopes_of, moments_of

DISCOUNT = 0.8
LEFT, RIGHT = 0, 1


def corridor(n_episodes=400, seed=0, unit=1.0):
    """Random play in [0, 1], steps of about .1: leaving it pays .3 on the left, 1 on the right."""
    rng = np.random.default_rng(seed)
    observations, steps = [], []
    for _ in range(n_episodes):
        x, t = rng.uniform(), 0
        while True:
            observations.append([x])
            if not 0 <= x <= 1 or t == 30:
                steps.append((-1, 0.0, CUT if t == 30 else TERMINAL))
                break
            action, t = int(rng.integers(2)), t + 1
            x += (0.1 if action == RIGHT else -0.1) + rng.uniform(-0.02, 0.02)
            steps.append((action, unit * (0.3 if x < 0 else float(x > 1)), GOES_ON))
    return np.array(observations), np.array(steps)


def best_value(x):
    """Without noise: the k-th step leaves."""
    return np.maximum(0.3 * DISCOUNT ** np.floor(x / 0.1), DISCOUNT ** np.floor((1 - x) / 0.1))


def fit(observations, steps, values=None, learned=None, n_actions=2, seed=0, **config):
    settings = FittedQConfig(**{"gamma": DISCOUNT, **config})
    rng = np.random.default_rng(seed)
    seen = Experience(observations, steps, n_actions)
    return regression.fit(seen, values, learned, settings, rng)


def small_problem(seed=0, n=300, d=3, n_actions=3, k=6):
    """Rows, three weighed cells and labels for each, and models, all random."""
    rng = np.random.default_rng(seed)
    points, codevectors = np.ones((n, 1 + d), np.float32), rng.normal(size=(k, d))
    points[:, 1 : 1 + d] = rng.normal(size=(n, d))
    cells, weights = oracles.assign_three(points[:, 1 : 1 + d].astype(float), codevectors, 0.8)
    labels = rng.integers(n_actions, size=(n, 3)).astype(np.int16)
    steps = np.column_stack([labels[:, 0], rng.normal(size=n), np.ones(n)])
    ends = rng.random(n) < 0.1
    ends[-1] = True
    steps[ends, :2] = (-1, 0)
    steps[ends, MARK] = rng.choice([TERMINAL, CUT], size=ends.sum())
    theta, offsets = rng.normal(size=(k, n_actions + d)), rng.normal(size=k)
    typed = points, cells.astype(np.uint16), weights.astype(np.float32), labels, steps
    return typed, codevectors, theta, offsets, rng


@pytest.mark.parametrize(("d", "n_actions"), [(1, 1), (1, 4), (3, 2), (5, 3)])
def test_each_cells_model_minimises_the_objective(d, n_actions):
    rows, codevectors, theta, offsets, rng = small_problem(d=d, n_actions=n_actions)
    points, cells, weights, labels, steps = rows
    optimism, optimum, width = 0.4, 5.0, 0.8
    belief = Belief(-99.0, 99.0, optimum, optimism)
    at = Cells(np.zeros(d), np.ones(d), np.eye(d), codevectors, width)
    solver = Regression(moments_of(Assigned(*rows), at, n_actions), at, belief)
    sums, targets = np.zeros_like(theta), np.full(len(points), np.nan)
    values = rng.normal(size=len(points))
    regression.sweep(
        Assigned(*rows), theta, offsets, np.zeros((0, n_actions)), True,
        Reach(0.9, 0.5, -99.0, 99.0), values, targets, sums,
    )  # fmt: skip
    solver.solve(sums)
    goes_on = steps[:, MARK] == GOES_ON
    for k, codevector in enumerate(codevectors):
        w = np.where(cells == k, weights, 0).sum(axis=1) * goes_on
        action = np.where(cells == k, labels, 0).sum(axis=1)
        own = w > 0
        q, slope = oracles.analysis_of_covariance(
            points[own, 1 : 1 + d].astype(float), action[own], targets[own], w[own],
            codevector, n_actions, optimism, optimum, width,
        )  # fmt: skip
        np.testing.assert_allclose(solver.theta[k, :n_actions], q, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(solver.theta[k, n_actions:], slope, rtol=1e-5, atol=1e-5)
        assert solver.offsets[k] == pytest.approx(-slope @ codevector, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("trace_decay", [0.0, 0.7, 1.0])
@pytest.mark.parametrize(("first", "bars"), [(True, False), (False, False), (False, True)])
def test_one_sweep_is_values_then_watkins_returns_then_sums(first, bars, trace_decay):
    rows, _, theta, offsets, rng = small_problem(seed=2)
    points, cells, weights, labels, steps = rows
    old, decay, bounds = rng.normal(size=len(points)), (0.9, trace_decay), (-1.0, 1.5)
    values, sums = old.copy(), np.zeros_like(theta)
    targets = np.full(len(points), np.nan)
    barred = rng.uniform(0.0, 3.0, size=(len(theta) if bars else 0, theta.shape[1] - 3))
    change = regression.sweep(
        Assigned(*rows), theta, offsets, barred, first, Reach(*decay, *bounds), values, targets,
        sums,
    )  # fmt: skip
    expected, returns, changes = oracles.fitted_sweep(
        points[:, 1:4], cells, weights, steps, theta, offsets, barred, old, first, decay, bounds
    )
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(targets, returns, rtol=1e-5, atol=1e-5)
    assert change == pytest.approx(changes, rel=1e-5)
    assert first or {-1.0, 1.5} <= set(values)  # some were beyond the bounds
    added = np.zeros_like(theta)
    for i in np.flatnonzero(steps[:, MARK] == GOES_ON):
        for k, w, action in zip(cells[i], weights[i], labels[i], strict=True):
            added[k, action] += w * returns[i]
            added[k, 3:] += w * returns[i] * points[i, 1:4]
    np.testing.assert_allclose(sums, added, rtol=1e-4, atol=1e-3)


def test_later_fits_begin_where_the_last_one_ended(monkeypatch):
    observations, steps = corridor()
    first = fit(observations, steps)
    second = fit(observations, steps, first.values.copy(), first.metric, seed=1)
    monkeypatch.setattr(regression, "SWEEPS", 1)
    again = fit(observations, steps, second.values.copy(), second.metric, seed=2)
    inside = steps[:, MARK] == GOES_ON
    for later in (second, again):
        assert np.abs(later.values - first.values)[inside].mean() < 0.05
    np.testing.assert_allclose(first.metric, [[1.0]])
    np.testing.assert_allclose(first.scale, 1 / observations[inside].std(axis=0), rtol=0.05)


def test_actions_that_were_not_tried_are_worth_the_best_return():
    observations, steps = corridor()
    found = fit(observations, steps, n_actions=3)
    best = hopes_of(steps, FittedQConfig(gamma=DISCOUNT)).prior
    assert best == pytest.approx(1.12, abs=0.01)  # truncated just before a way out
    np.testing.assert_allclose(found.policy.q_values[:, 2], best, rtol=1e-6)
    assert (found.policy.q_values[:, :2] < best).all()


def test_an_untried_action_is_hoped_to_return_more_than_the_best_policy_so_far():
    steps = np.array([*[(0, 0.0, GOES_ON)] * 9, (0, 1.0, GOES_ON), (-1, 0.0, CUT)])
    seen, settings = (
        Experience(np.zeros((11, 1)), steps, 2, numbered=True),
        FittedQConfig(gamma=0.8),
    )
    for values, learned, hoped in (
        (None, None, 1.0 + 0.8 * 0.1 / 0.2),  # beyond the truncation, 0.1 in each step
        (np.full(11, 3.0), np.eye(1), 1.0 + 0.8 * 3.0),
        (np.full(11, 9.0), np.eye(1), 1.0 / 0.2),  # the best reward for ever
    ):
        found = regression.fit(seen, values, learned, settings, np.random.default_rng(0))
        assert found.policy.q_values[0, 1] == pytest.approx(hoped)


@pytest.mark.parametrize(("unit", "origin"), [(1e-9, 0.0), (1e9, 0.0), (1e-7, 5.0)])
def test_units_and_origins_of_observations_change_nothing_but_rounding(unit, origin):
    observations, steps = corridor(n_episodes=100)
    wide = np.column_stack([observations, np.random.default_rng(0).normal(size=len(steps))])
    units = np.array([unit, 1.0])
    learned = np.diag([1.5, 0.5])
    usual = fit(wide, steps, None, learned)
    moved = wide * units + origin
    other = fit(moved, steps, None, learned)
    np.testing.assert_allclose(other.scale * units, usual.scale, rtol=1e-6)
    np.testing.assert_allclose(other.metric, usual.metric, rtol=1e-3, atol=1e-3)
    codevectors = (other.policy.codevectors - origin) / units
    np.testing.assert_allclose(codevectors, usual.policy.codevectors, rtol=1e-5, atol=1e-6)
    values = [one.policy.evaluate(seen)[2] for one, seen in ((usual, wide), (other, moved))]
    np.testing.assert_allclose(*values, rtol=1e-3, atol=1e-3)


def test_the_metric_finds_the_component_that_matters():
    observations, steps = corridor()
    noise = np.random.default_rng(0).normal(size=(len(steps), 3))
    wide, values, learned = np.column_stack([noise, observations]), None, None
    for seed in range(3):
        found = fit(wide, steps, values, learned, seed=seed)
        values, learned = found.values, found.metric
    assert learned.trace() == pytest.approx(4)
    assert learned[3, 3] > 3.5
    std = fit(wide, steps, values.copy(), learned, metric="std")
    none = fit(wide, steps, values.copy(), None)
    np.testing.assert_array_equal(std.policy.codevectors, none.policy.codevectors)
    spread = [one.policy.codevectors.std(axis=0) / wide.std(axis=0) for one in (found, std)]
    assert spread[0][:3].max() < spread[1][:3].min()


def test_number_of_cells_grows_as_the_root_of_the_rows_and_with_dimensions_from_four_to_eight():
    for n_rows, expected in ((1, 4), (100, 4), (10_000, 40), (10**6, 256)):
        assert n_cells(n_rows, 4, FittedQConfig()) == expected
    for n_features, expected in ((1, 40), (4, 40), (6, 60), (8, 80), (100, 80)):
        assert n_cells(10_000, n_features, FittedQConfig()) == expected
    assert n_cells(10_000, 4, FittedQConfig(cells_per_root=0.7)) == 70
    assert n_cells(10_000, 4, FittedQConfig(max_cells=30)) == 30
    assert n_cells(100, 4, FittedQConfig(max_cells=2)) == 2


@pytest.mark.parametrize("max_cells", [1, 2, 3, 7])
def test_no_more_cells_than_are_allowed(max_cells):
    policy = fit(*corridor(n_episodes=100), max_cells=max_cells).policy
    assert (n := policy.n_cells) <= max_cells
    assert (policy.q_values.shape, policy.codevectors.shape) == ((n, 2), (n, 1))


def test_codevectors_are_in_the_observations_units():
    observations, steps = corridor(n_episodes=100)
    wide = np.column_stack([1e6 * observations, np.full(len(steps), 7.0), 5 + observations])
    learned = np.array([[1.0, 0.0, 0.5], [0.0, 0.5, 0.0], [0.5, 0.0, 1.5]])
    policy = fit(wide, steps, None, learned).policy
    assert policy.n_cells > 3
    np.testing.assert_allclose(policy.codevectors[:, 1], 7.0)
    # Splitting shifts cells off the line of the points, which then attract them again.
    twice = policy.codevectors[:, 2] - 5, policy.codevectors[:, 0] / 1e6
    np.testing.assert_allclose(*twice, atol=1e-3)
    low, high = wide.min(axis=0), wide.max(axis=0)
    slack = 1e-9 * high  # for rounding in the constant component
    assert ((policy.codevectors >= low - slack) & (policy.codevectors <= high + slack)).all()
    cells = policy.evaluate(policy.codevectors)[0]
    np.testing.assert_array_equal(cells, np.arange(policy.n_cells))
