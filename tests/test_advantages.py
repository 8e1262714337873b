"""Baseline and advantages of the fitted agent against least squares, and where they matter."""

import numpy as np
import oracles
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import PolynomialFeatures
from test_fitting import DISCOUNT, LEFT, RIGHT, best_value, corridor, small_problem

from oda_rl.agents import FittedQConfig
from oda_rl.agents.base.memory import CUT, GOES_ON, MARK, REWARD, TERMINAL, discounted_returns
from oda_rl.agents.fitting import advantages, regression
from oda_rl.agents.fitting.advantages import Moments, Placed, Rows
from oda_rl.agents.fitting.cells import Assigned, Cells, Experience
from oda_rl.agents.fitting.regression import Belief, Reach, moments_of


def labels_of(steps):
    """Actions of steps in all three cells."""
    return np.repeat(steps[:, :1].astype(np.int16), 3, axis=1)


def fit(observations, steps, values=None, n_actions=2, seed=0, **config):
    settings = FittedQConfig(**{"gamma": DISCOUNT, **config})
    seen, rng = Experience(observations, steps, n_actions), np.random.default_rng(seed)
    at = seen, Placed.among(seen, None, settings, rng), len(steps) - 1
    found = advantages.fit_advantages(*at, values, None, settings, rng)
    return advantages.averaged(found, *at, settings, rng)


def fit_in_joint(observations, steps, values=None, seed=0, **config):
    settings = FittedQConfig(gamma=DISCOUNT, **config)
    seen = Experience(observations, steps, 2)
    return regression.fit(seen, values, None, settings, np.random.default_rng(seed))


def problem(seed=0, d=3):
    """Rows of a small problem by two partitions, where they lie, and what random numbers to use."""
    typed, codevectors, _, _, rng = small_problem(seed, d=d)
    own = Assigned(*typed)._replace(labels=labels_of(typed[-1]))
    at = Cells(np.zeros(d), np.ones(d), np.eye(d), codevectors, 0.8)
    fine = at._replace(codevectors=codevectors + 0.1)
    near, weights = oracles.assign_three(points_of(own, d), fine.codevectors, 0.8)
    near, weights = near.astype(np.uint16), weights.astype(np.float32)
    same = own._replace(labels=np.zeros_like(own.labels))
    split = same._replace(cells=near, weights=weights)
    moments = Moments(counts_of(own, 6, 3), moments_of(same, at, 1), moments_of(split, fine, 1))
    return Rows(own, near, weights, moments), Placed(at, fine, anew=True), rng


def points_of(own, d):
    return own.points[:, 1 : 1 + d].astype(float)


def counts_of(own, n_cells, n_actions):
    going, counts = own.steps[:, MARK] == GOES_ON, np.zeros((n_cells, n_actions))
    weights = own.weights[going].astype(float)
    np.add.at(counts, (own.cells[going], own.labels[going]), weights)
    return counts


def shrunken(sums, counts, codevectors):
    """Means of cells, shrunken towards a regression by its R² on cells left out."""
    z = PolynomialFeatures(interaction_only=True).fit_transform(codevectors)
    z = z if len(z) >= 2 * z.shape[1] else z[:, : 1 + codevectors.shape[1]]
    z /= np.sqrt((z**2).mean(axis=0))
    means, weights = sums / np.maximum(counts, 1e-9), 5.0 * counts / (counts + 5.0)

    def predicted(kept, shown):
        ridge, parts = Ridge(5.0, fit_intercept=False), (means[kept].T, weights[kept].T)
        each = [ridge.fit(z[kept], *own).predict(z[shown]) for own in zip(*parts, strict=True)]
        return np.column_stack(each)

    cells = np.arange(len(z))
    told = np.vstack([predicted(cells != k, [k]) for k in cells])
    r2 = 1.0 - (weights * (means - told) ** 2).sum() / (weights * means**2).sum()
    return (sums + 5.0 * max(r2, 0.0) * predicted(cells, cells)) / (counts + 5.0)


def taken_by(own, models):
    """What advantages, shape (K, A), are of the actions of all rows; shape (n,)."""
    return (own.weights.astype(float) * models[own.cells, own.labels]).sum(axis=1)


@pytest.mark.parametrize(
    ("d", "first", "trace_decay"),
    [(3, True, 0.7), (3, False, 0.0), (8, False, 0.7), (3, False, 1.0)],
)
def test_a_sweep_is_values_then_watkins_returns_then_what_advantages_leave(first, trace_decay, d):
    (own, near, weights, _), _, rng = problem(d=d)
    n, going = len(own.points), own.steps[:, MARK] == GOES_ON
    models, baseline, old = rng.normal(size=(6, 3)), rng.normal(size=n), rng.normal(size=n)
    values, targets, sums = old.copy(), np.full(n, np.nan), np.zeros((6, 1 + d))
    reach = Reach(0.9, trace_decay, -1.0, 1.5)
    parts = models, baseline, first, reach, values, targets, sums
    change = advantages.go_back(own, near, weights, *parts)
    blended = np.einsum("nt,nta->na", own.weights.astype(float), models[own.cells])
    expected = old if first else np.clip(baseline + blended.max(axis=1), -1.0, 1.5)
    ended = own.steps[:, MARK] == TERMINAL
    expected = np.where(ended, 0.0, expected)
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert change == pytest.approx(0.0 if first else np.abs(values - old)[~ended].sum(), rel=1e-6)
    assert first or {-1.0, 1.5} <= set(values)  # some were beyond the bounds
    greedy, decay = blended.argmax(axis=1), (0.9, 0.0 if first else trace_decay)
    for i in np.flatnonzero(going):
        told = oracles.watkins_return(own.steps, values, greedy, *decay, i)
        assert targets[i] == pytest.approx(told, rel=1e-6)
    left, added = targets - taken_by(own, models), np.zeros((6, 1 + d))
    for i in np.flatnonzero(going):
        for k, w in zip(near[i], weights[i].astype(float), strict=True):
            added[k] += w * left[i] * np.array([1.0, *points_of(own, d)[i]])
    np.testing.assert_allclose(sums, added, rtol=1e-5, atol=1e-5)


def test_an_action_that_is_as_good_as_the_best_is_greedy_whatever_its_number():
    steps = np.array([[0.0, 1.0, GOES_ON], [1.0, 1.0, GOES_ON], [-1.0, 0.0, CUT]])
    cells, weights = np.zeros((3, 3), np.uint16), np.zeros((3, 3), np.float32)
    weights[:, 0] = 1.0
    own = Assigned(np.ones((3, 2), np.float32), cells, weights, labels_of(steps), steps)
    targets, reach, room = np.zeros(3), Reach(1.0, 1.0, -9.0, 99.0), np.zeros((1, 2))
    for models, expected in (([[5.0, 5.0]], 1.0 + 1.0 + 5.0), ([[5.0, 4.0]], 1.0 + 5.0)):
        parts = np.array(models), np.zeros(3)
        advantages.go_back(own, cells, weights, *parts, False, reach, np.zeros(3), targets, room)
        assert targets[0] == expected


@pytest.mark.parametrize(("rounds", "d"), [(1, 3), (2, 3), (7, 3), (2, 9)])
def test_each_part_is_fitted_to_what_the_other_leaves(monkeypatch, rounds, d):
    rows, placed, rng = problem(seed=1, d=d)
    own, near, weights, _ = rows
    belief = Belief(-9.0, 9.0, 5.0, 0.4)
    config = FittedQConfig(gamma=0.9, trace_decay=0.5)
    monkeypatch.setattr(advantages, "_TOLERANCE", 0.0)
    seen = []
    go_on = advantages.go_on

    def watched(own, near, weights, models, targets, baseline, sums):
        go_on(own, near, weights, models, targets, baseline, sums)
        models = shrunken(sums, rows.moments.counts, placed.at.codevectors)
        seen.append((targets.copy(), baseline.copy(), models))

    monkeypatch.setattr(advantages, "go_on", watched)
    values = rng.normal(size=len(own.points))
    found = advantages.iterate(rows, placed, values, belief, rounds, config)
    assert len(seen) == rounds
    targets, baseline, models = seen[-1]
    before = seen[-2][2] if rounds > 1 else np.zeros((6, 3))
    going = own.steps[:, MARK] == GOES_ON
    assert np.ptp(baseline) > 0.0
    assert np.ptp(models) > 0.0

    def line(cells, weights, codevectors, left, k):
        """Level and slope of a cell, without regard to actions."""
        w = np.where(cells == k, weights, 0).sum(axis=1) * going
        here = w > 0
        return oracles.analysis_of_covariance(
            points_of(own, d)[here], np.zeros(int(here.sum()), dtype=int), left[here],
            w[here], codevectors[k], 1, 0.4, 5.0, 0.8,
        )  # fmt: skip

    fine = placed.fine.codevectors
    lines = [line(near, weights, fine, targets - taken_by(own, before), k) for k in range(6)]
    expected = [
        sum(
            w * (lines[k][0][0] + lines[k][1] @ (x - fine[k])) for k, w in zip(*at_row, strict=True)
        )
        for x, *at_row in zip(points_of(own, d), near, weights, strict=True)
    ]
    np.testing.assert_allclose(baseline, expected, rtol=1e-4, atol=1e-4)
    left, sums = targets - taken_by(own, models), np.zeros((6, 3))
    for t in range(3):
        shares = own.weights[going, t] * (targets - baseline)[going]
        np.add.at(sums, (own.cells[going, t], own.labels[going, t]), shares)
    told = shrunken(sums, counts_of(own, 6, 3), placed.at.codevectors)
    np.testing.assert_allclose(models, told, atol=1e-4)
    for k in range(6):
        level, slope = line(own.cells, own.weights, placed.at.codevectors, left, k)
        np.testing.assert_allclose(found.theta[k, 3:], slope, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.theta[k, :3], level[0] + told[k], atol=1e-4)


@pytest.mark.parametrize(("slope", "share", "n"), [(0.0, 1.0, 60), (1.0, 0.6, 60), (1.0, 0.8, 7)])
def test_cells_of_few_steps_follow_products_that_predict_other_cells(slope, share, n):
    rng = np.random.default_rng(0)
    codevectors, counts = rng.normal(size=(n, 2)), rng.exponential(4.0, size=(n, 3))
    bent = 0.5 * codevectors.prod(axis=1, keepdims=True)
    truth = slope * (1.0 + bent + codevectors @ rng.normal(size=(2, 3)))
    sums = counts * truth + np.sqrt(counts) * rng.normal(size=(n, 3))
    found = advantages.Shrinkage(counts, codevectors).advantages(sums)
    np.testing.assert_allclose(found, shrunken(sums, counts, codevectors), rtol=1e-9)
    gaps = [np.abs(own - truth).mean() for own in (found, sums / (counts + 5.0))]
    assert gaps[0] == gaps[1] if slope == 0.0 else gaps[0] < share * gaps[1]


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
    for way in (fit, fit_in_joint):
        found = way(observations, steps, max_cells=6).policy
        right.append((found.evaluate(grid)[1] == 1).mean())
    assert right[0] > 0.98
    assert right[1] < 0.6  # where cos 4 pi x is curved within a cell


def test_it_finds_the_best_way_out_of_a_corridor():
    observations, steps = corridor()
    inside, grid = steps[:, MARK] == GOES_ON, np.linspace(0.01, 0.99, 99)[:, None]
    for way in (fit, fit_in_joint):
        found = way(observations, steps)
        _, actions, values = found.policy.evaluate(grid)
        # 0.3 in k steps is better than 1 in 10 - k where 0.8 ** (9 - 2 k) < 0.3: k < 2, equal at 2.
        assert (actions[grid[:, 0] < 0.16] == LEFT).all()
        assert (actions[grid[:, 0] > 0.32] == RIGHT).all()
        np.testing.assert_allclose(values, best_value(grid[:, 0]), atol=0.15)
        assert np.abs(found.values - best_value(observations[:, 0]))[inside].mean() < 0.05
        later = way(observations, steps, found.values.copy(), seed=1)
        assert np.abs(later.values - found.values)[inside].mean() < 0.05


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_values_lie_between_the_returns(sign):
    observations, steps = corridor(n_episodes=60)
    inside = steps[:, MARK] == GOES_ON
    assert (steps[:, MARK] == CUT).any()
    steps[inside, REWARD] = sign * np.random.default_rng(0).exponential(size=inside.sum())
    _, most, least = discounted_returns(steps, DISCOUNT, 0.0)
    for found in (fit(observations, steps), fit_in_joint(observations, steps, optimism=5.0)):
        assert found.values.max() <= most
        assert found.values.min() >= least - 0.25 * (most - least)
        assert found.values.min() >= min(0.0, steps[:, REWARD].min() / (1 - DISCOUNT))
        np.testing.assert_array_equal(found.values[steps[:, MARK] == TERMINAL], 0)


@pytest.mark.parametrize(
    ("way", "unit"), [(fit, 2.0**40), (fit, 1e-9), (fit_in_joint, 2.0**-40), (fit_in_joint, 1e9)]
)
def test_the_unit_of_rewards_is_a_factor_and_changes_no_action(unit, way):
    usual, other = (way(*corridor(n_episodes=100, unit=factor)) for factor in (1.0, unit))
    grid = np.linspace(0, 1, 1001)[:, None]
    (_, actions, values), changed = (one.policy.evaluate(grid) for one in (usual, other))
    np.testing.assert_array_equal(changed[1], actions)
    np.testing.assert_allclose(changed[2] / unit, values, rtol=1e-3)
    np.testing.assert_allclose(other.metric, usual.metric)


def test_averaged_fits_depend_less_on_where_cells_were_placed():
    observations, steps = corridor(n_episodes=100)
    inside, grid = steps[:, MARK] == GOES_ON, np.linspace(0.05, 0.95, 91)[:, None]
    steps[inside, REWARD] += np.random.default_rng(0).normal(0.0, 0.3, size=inside.sum())
    alone, averaged = (
        np.array([
            fit(observations, steps, seed=seed, **own).policy.values(grid) @ [-1.0, 1.0]
            for seed in range(8)
        ])
        for own in ({"n_fits": 1, "cells_per_root": 0.8}, {"n_fits": 5})  # of as many cells
    )  # fmt: skip
    # Means of five that are independent would have 0.45 of the deviation; memory is common to all.
    assert averaged.std(axis=0).mean() < 0.75 * alone.std(axis=0).mean()
    assert np.abs((averaged - alone).mean(axis=0)).mean() < alone.std(axis=0).mean()


def test_partitions_are_averaged_where_rewards_differ_within_episodes_of_few_components():
    constant, seen = (Experience(*corridor(n_episodes=100), 2) for _ in range(2))  # paid at the end
    seen.steps[0, REWARD] = -1.0
    wide = seen._replace(observations=np.repeat(seen.observations, 7, axis=1))
    cases = constant, seen, wide, seen._replace(numbered=True)
    found = [[advantages.n_fits(own, FittedQConfig(n_fits=n)) for own in cases] for n in (None, 2)]
    assert found == [[1, 5, 1, 1], [2, 2, 2, 1]]


def test_an_action_that_was_not_tried_has_no_advantage():
    found = fit(*corridor(), n_actions=3)
    values = found.policy.q_values
    level = values.mean(axis=1) - values[:, :2].sum(axis=1) / 3.0
    assert np.isfinite(level).all()
    assert (values[:, 2] < values.max(axis=1)).mean() > 0.8


def walk(n=4000, seed=0):
    """Rows of a random walk in the plane, of some 40 steps an episode."""
    rng = np.random.default_rng(seed)
    steps = np.column_stack([rng.integers(3, size=n), rng.normal(size=n), np.ones(n)])
    ends = np.append(rng.random(n - 1) < 1 / 40, True)
    steps[ends] = np.column_stack([-np.ones(ends.sum()), np.zeros(ends.sum()),
                                   rng.choice([TERMINAL, CUT], size=ends.sum())])  # fmt: skip
    return rng.normal(size=(n, 2)).cumsum(axis=0).astype(np.float32), steps


def test_rows_that_are_known_are_not_assigned_again_and_the_bits_are_the_same():
    observations, steps = walk()
    rng, config = np.random.default_rng(1), FittedQConfig()
    placed = Placed.among(Experience(observations, steps, 3), None, config, rng)
    anew = Placed.from_arrays(placed.arrays)
    for n in (1000, 1001, 1800, 2900):
        then = steps[:n].copy()
        then[-1] = (-1, 0.0, CUT)  # it goes on later, by an action that is not known yet
        placed.assign(Experience(observations[:n], then, 3), n - 1)
    running = placed.assign(Experience(observations, steps, 3), 3500)
    whole = placed.assign(Experience(observations, steps, 3), 3999)
    expected = anew.assign(Experience(observations, steps, 3), 3999)
    for found in (running, whole):
        for one, other in zip(found.coarse, expected.coarse, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(found.near, expected.near)
        np.testing.assert_array_equal(found.weights, expected.weights)
        for one, other in zip(found.moments, expected.moments, strict=True):
            np.testing.assert_array_equal(one, other)
    own = expected.coarse
    points = (observations - placed.at.origin) @ placed.at.transform.T
    d = points.shape[1]
    np.testing.assert_allclose(points_of(own, d), points, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(own.points[:, 0], 1.0)
    for at, near, weights in (
        (placed.at, own.cells, own.weights),
        (placed.fine, expected.near, expected.weights),
    ):
        nearest, shares = oracles.assign_three(points, at.codevectors, at.width)
        shown = shares > 0
        np.testing.assert_array_equal(near[shown], nearest[shown])
        np.testing.assert_allclose(weights, shares, rtol=1e-4, atol=1e-6)
    counts = counts_of(own, len(placed.at.codevectors), 3)
    np.testing.assert_allclose(expected.moments.counts, counts, rtol=1e-9)
    same = own._replace(labels=np.zeros_like(own.labels))
    split = same._replace(cells=expected.near, weights=expected.weights)
    np.testing.assert_array_equal(expected.moments.coarse, moments_of(same, placed.at, 1))
    np.testing.assert_array_equal(expected.moments.fine, moments_of(split, placed.fine, 1))
