"""Baseline and advantages of the fitted agent against least squares, and where they matter."""

import numpy as np
import oracles
import pytest
from test_fitting import DISCOUNT, LEFT, RIGHT, best_value, corridor, small_problem

from oda_rl.agents import FittedQConfig
from oda_rl.agents.engine.memory import CUT, GOES_ON, MARK, REWARD, TERMINAL, discounted_returns
from oda_rl.agents.fitted import advantages, fitting
from oda_rl.annealing import placing


def fit(observations, steps, values=None, n_actions=2, seed=0, way=None, **config):
    settings = FittedQConfig(**{"discount": DISCOUNT, **config})
    seen = fitting.Experience(observations, steps, n_actions)
    way = way or advantages.fit_advantages
    return way(seen, values, None, settings, np.random.default_rng(seed))


def problem(seed=0):
    """Rows of a small problem whose labels are the actions of their steps."""
    (points, cells, weights, _, steps), codevectors, _, _, rng = small_problem(seed)
    labels = np.broadcast_to(steps[:, :1].astype(np.int16), (len(points), 3))
    rows = fitting.Assigned(points, cells, weights, labels, steps)
    at = fitting.Cells(np.zeros(3), np.ones(3), np.eye(3), codevectors, 0.8)
    return rows, at, rng


def test_values_are_the_baseline_and_the_greatest_advantage():
    rows, _, rng = problem()
    n, going = len(rows.points), rows.steps[:, MARK] == GOES_ON
    models, baseline, old = rng.normal(size=(6, 3)), rng.normal(size=n), rng.normal(size=n)
    values, greedy, taken = old.copy(), np.full(n, -1), np.full(n, np.nan)
    change = advantages.improve(
        rows.cells, rows.weights, rows.steps, models, baseline, -1.0, 1.5, values, greedy, taken
    )
    blended = np.einsum("nt,nta->na", rows.weights.astype(float), models[rows.cells])
    expected = np.clip(baseline + blended.max(axis=1), -1.0, 1.5)
    expected[rows.steps[:, MARK] == TERMINAL] = 0.0
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    on = rows.steps[:, MARK] != TERMINAL
    np.testing.assert_array_equal(greedy[on], blended.argmax(axis=1)[on])
    own = blended[going, rows.steps[going, 0].astype(int)]
    np.testing.assert_allclose(taken[going], own, rtol=1e-5, atol=1e-6)
    assert change == pytest.approx(np.abs(values - old)[on].sum(), rel=1e-6)
    assert {-1.0, 1.5} <= set(values)  # some were beyond the bounds


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_each_part_is_fitted_to_what_the_other_leaves(monkeypatch, rounds):
    rows, at, rng = problem(seed=1)
    finer, fine, _ = problem(seed=1)
    fine = fine._replace(codevectors=at.codevectors + 0.1)
    belief = fitting.Belief(-9.0, 9.0, 5.0, 0.4)
    config = FittedQConfig(discount=0.9, trace_decay=0.5, tolerance=0.0)
    seen = {"taken": [], "targets": [], "baseline": []}
    add_baseline, add_advantages = advantages.add_baseline, advantages.add_advantages

    def watch_baseline(points, cells, weights, steps, targets, taken, sums):
        seen["taken"].append(taken.copy())
        add_baseline(points, cells, weights, steps, targets, taken, sums)

    def watch_advantages(cells, weights, steps, targets, baseline, sums):
        seen["targets"].append(targets.copy())
        seen["baseline"].append(baseline.copy())
        add_advantages(cells, weights, steps, targets, baseline, sums)

    monkeypatch.setattr(advantages, "add_baseline", watch_baseline)
    monkeypatch.setattr(advantages, "add_advantages", watch_advantages)
    found = advantages.iterate_advantages(
        rows, at, finer, fine, rng.normal(size=len(rows.points)), belief, 3, rounds, config
    )
    targets, baseline, taken = seen["targets"][-1], seen["baseline"][-1], seen["taken"][-1]
    going = rows.steps[:, MARK] == GOES_ON
    assert np.ptp(baseline) > 0.0
    assert rounds == 1 or np.ptp(taken[going]) > 0.0

    def line(cells, weights, codevectors, left, k):
        """Level and slope of a cell, without regard to actions."""
        w = np.where(cells == k, weights, 0).sum(axis=1) * going
        own, none = w > 0, np.zeros(int((w > 0).sum()), dtype=int)
        return oracles.analysis_of_covariance(
            rows.points[own].astype(float), none, left[own], w[own], codevectors[k],
            1, 0.4, 5.0, 0.8,
        )  # fmt: skip

    lines = [
        line(finer.cells, finer.weights, fine.codevectors, targets - seen["taken"][-2], k)
        for k in range(6)
    ]
    expected = [
        sum(
            w * (lines[k][0][0] + lines[k][1] @ (x - fine.codevectors[k]))
            for k, w in zip(cells, weights, strict=True)
        )
        for x, cells, weights in zip(rows.points, finer.cells, finer.weights, strict=True)
    ]
    np.testing.assert_allclose(baseline, expected, rtol=1e-4, atol=1e-4)
    for k in range(6):
        w = np.where(rows.cells == k, rows.weights, 0).sum(axis=1) * going
        level, slope = line(rows.cells, rows.weights, at.codevectors, targets - taken, k)
        np.testing.assert_allclose(found.theta[k, 3:], slope, rtol=1e-4, atol=1e-4)
        for action in range(3):
            own = w * (rows.steps[:, 0] == action)
            advantage = (own * (targets - baseline)).sum() / (own.sum() + 5.0)
            assert found.theta[k, action] == pytest.approx(level[0] + advantage, abs=1e-4)


def confounded(n=20_000, seed=0):
    """Episodes of one step: action 1 adds .1 to cos 4 pi x, and is taken where that is little."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=n)
    worth = np.cos(4.0 * np.pi * x)
    action = (rng.random(n) < np.where(worth < 0.0, 0.9, 0.1)).astype(int)
    steps = np.zeros((2 * n, 3))
    steps[0::2] = np.column_stack([action, worth + 0.1 * action, np.full(n, GOES_ON)])
    steps[1::2, 0], steps[1::2, MARK] = -1, TERMINAL
    return np.repeat(x, 2)[:, None], steps


def test_what_a_state_explains_is_not_taken_for_an_action():
    observations, steps = confounded()
    grid = np.linspace(0.005, 0.995, 1000)[:, None]
    right = []
    for way in (advantages.fit_advantages, fitting.fit):
        found = fit(observations, steps, way=way, max_cells=6).policy
        right.append((found.evaluate(grid)[1] == 1).mean())
    assert right[0] > 0.98
    assert right[1] < 0.6  # where cos 4 pi x is curved within a cell


def test_the_finer_cells_are_those_of_one_level_further():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(3000, 2))
    coarse = placing.anneal(points, 12, rng)
    widths = [fitting.width_of(points, coarse)]
    for _ in range(2):
        finer = placing.anneal_further(coarse, points, widths[-1], rng)
        assert len(coarse) < len(finer) <= 2 * len(coarse)
        widths.append(fitting.width_of(points, finer))
        coarse = finer
    assert widths[0] > 1.4 * widths[1] > 1.96 * widths[2]
    alone = placing.anneal_further(np.ones((1, 2)), np.ones((50, 2)), 1e-12, rng)
    np.testing.assert_allclose(alone, 1.0, atol=1e-5)


def test_it_finds_the_best_way_out_of_a_corridor():
    observations, steps = corridor()
    found = fit(observations, steps)
    grid = np.linspace(0.01, 0.99, 99)[:, None]
    _, actions, values = found.policy.evaluate(grid)
    assert (actions[grid[:, 0] < 0.16] == LEFT).all()
    assert (actions[grid[:, 0] > 0.32] == RIGHT).all()
    np.testing.assert_allclose(values, best_value(grid[:, 0]), atol=0.15)
    inside = steps[:, MARK] == GOES_ON
    assert np.abs(found.values - best_value(observations[:, 0]))[inside].mean() < 0.05
    later = fit(observations, steps, found.values.copy(), seed=1)
    assert np.abs(later.values - found.values)[inside].mean() < 0.05


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_values_lie_between_the_returns(sign):
    observations, steps = corridor(n_episodes=60)
    inside = steps[:, MARK] == GOES_ON
    steps[inside, REWARD] = sign * np.random.default_rng(0).exponential(size=inside.sum())
    found = fit(observations, steps)
    most, least = discounted_returns(steps, DISCOUNT)
    assert found.values.max() <= most
    assert found.values.min() >= least - 0.25 * (most - least)
    np.testing.assert_array_equal(found.values[steps[:, MARK] == TERMINAL], 0)
    assert (steps[:, MARK] == CUT).any()


@pytest.mark.parametrize("unit", [2.0**40, 2.0**-40, 1e150, 1e-150])
def test_the_unit_of_rewards_is_a_factor_and_changes_no_action(unit):
    usual, other = (fit(*corridor(n_episodes=100, unit=factor)) for factor in (1.0, unit))
    grid = np.linspace(0, 1, 1001)[:, None]
    (_, actions, values), changed = (one.policy.evaluate(grid) for one in (usual, other))
    np.testing.assert_array_equal(changed[1], actions)
    np.testing.assert_allclose(changed[2] / unit, values, rtol=1e-3)


def test_an_action_that_was_not_tried_has_no_advantage():
    found = fit(*corridor(), n_actions=3)
    values = found.policy.q_values
    level = values.mean(axis=1) - values[:, :2].sum(axis=1) / 3.0
    assert np.isfinite(level).all()
    assert (values[:, 2] < values.max(axis=1)).mean() > 0.8
