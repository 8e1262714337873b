"""The learned metric against group-wise ridge regression, and what units must not change."""

import numpy as np
import oracles
import pytest

from oda_rl import metric


def scaled_outer(points, groups, targets):
    scale = metric.scales(*metric.covariance(points))
    return metric.gradient_outer_product(points, scale, groups, targets)


def example(n=400, d=3, n_groups=6, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)
    groups = rng.integers(-1, n_groups, size=n)
    targets = np.sin(points[:, 0]) + points @ rng.normal(size=d) + groups
    return points, groups, targets


def test_scales_are_inverse_deviations_and_0_for_what_only_rounding_varies():
    rng = np.random.default_rng(0)
    points = np.column_stack([
        rng.normal(size=1000) * 1e-9,
        rng.normal(size=1000) * 1e9,
        np.full(1000, 0.1),
        np.zeros(1000),
        1e9 + rng.normal(size=1000),  # varies in its tenth digit, which float32 does not have
        np.full(1000, 0.3) * (1 + 1e-15 * rng.normal(size=1000)),
    ])  # fmt: skip
    scale = metric.scales(*metric.covariance(points))
    np.testing.assert_allclose(scale[:2], 1 / points[:, :2].std(axis=0))
    np.testing.assert_array_equal(scale[2:], 0)
    finer = metric.scales(*metric.covariance(points), np.float64)
    np.testing.assert_array_equal(finer > 0, [True, True, False, False, True, False])


@pytest.mark.parametrize("unit", [1e-149, 1e-140, 1e140, 1e149])
def test_metrics_are_finite_and_the_same_in_the_smallest_and_largest_units(unit):
    points = np.random.default_rng(0).normal(size=(500, 2)) @ [[1.0, 0.5], [0.0, 1.0]]
    groups, units = np.zeros(500, dtype=np.int64), np.array([unit, 1.0])
    for axes in (True, False):
        roots = []
        for own in (np.ones(2), units):
            at = metric.Units.of(*metric.covariance(points * own), axes)
            learned = at.average(None, at.outer(points * own, groups, points[:, 0]))
            roots.append(at.transform(learned, 0.25))
            assert np.isfinite(roots[-1].T @ roots[-1]).all()
            assert np.isfinite(at.metric(learned)).all()
        np.testing.assert_allclose(roots[1] * units, roots[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("deviation", [1e-151, 1e-156, 1e-162, 5e-324])
def test_what_varies_so_little_that_squares_of_its_inverse_are_infinite_is_constant(deviation):
    points = np.random.default_rng(0).normal(size=(500, 2)) * [deviation, 1.0]
    mean, covariance = metric.covariance(points)
    np.testing.assert_array_equal(metric.scales(mean, covariance) > 0.0, [False, True])
    matrix = metric.Units.of(mean, covariance, axes=False).metric(None)
    np.testing.assert_allclose(matrix, np.diag([0.0, 1.0 / covariance[1, 1]]))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_outer_product_is_that_of_a_ridge_regression_in_each_group(d):
    points, groups, targets = example(d=d, seed=d)
    scale = np.random.default_rng(1).uniform(0.5, 2.0, size=d)
    outer = metric.gradient_outer_product(points, scale, groups, targets)
    expected = oracles.gradient_outer_product(points * scale, groups, targets)
    np.testing.assert_allclose(outer, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(outer, outer.T)
    assert np.linalg.eigvalsh(outer)[0] >= -1e-9 * outer.trace()


def test_small_and_negative_groups_are_left_out():
    points, _, targets = example(n=100, d=3)
    large = np.zeros(100, dtype=np.int64)
    alone = metric.gradient_outer_product(points, np.ones(3), large, targets)
    groups, more = np.full(107, -1), np.concatenate([points, 1e3 * points[:7]])
    groups[:100] = 1
    values = np.concatenate([targets, 1e3 * targets[:7]])
    for number in (-1, 0, 2):  # seven points are fewer than 2 (3 + 1)
        groups[100:] = number
        outer = metric.gradient_outer_product(more, np.ones(3), groups, values)
        np.testing.assert_array_equal(outer, alone)
    eight = np.concatenate([groups, [2]])
    more, values = np.concatenate([more, points[7:8]]), np.append(values, 0.0)
    outer = metric.gradient_outer_product(more, np.ones(3), eight, values)
    assert outer.trace() > 1.01 * alone.trace()


def test_units_origins_and_offsets_of_groups_change_nothing_but_a_factor():
    points, groups, targets = example()
    usual = scaled_outer(points, groups, targets)
    tolerance = {"rtol": 1e-9, "atol": 1e-9 * usual.trace()}
    for units in ((1e-9, 1.0, 1e9), (1e9, 1e9, 1e9), (1e-9, 1e-9, 1e-9)):
        np.testing.assert_allclose(
            scaled_outer(points * units, groups, targets), usual, **tolerance
        )
    for unit in (1e-9, 1e9):
        other = scaled_outer(points, groups, unit * targets)
        np.testing.assert_allclose(other / unit**2, usual, **tolerance)
    offsets = np.random.default_rng(0).normal(size=7) * 10  # of six groups, and of none
    other = scaled_outer(points + 100, groups, targets + offsets[groups])
    np.testing.assert_allclose(other, usual, **tolerance)


def test_constant_and_duplicated_components():
    points, groups, targets = example(d=2)
    wide = np.column_stack([points, np.full(len(points), 3.0), points[:, 0]])
    outer = scaled_outer(wide, groups, targets)
    assert np.isfinite(outer).all()
    np.testing.assert_array_equal(outer[2], 0)
    np.testing.assert_array_equal(outer[:, 2], 0)
    # Duplicates share the gradient equally, and together say what one did but for the ridge.
    np.testing.assert_allclose(outer[3], outer[0], rtol=1e-6)
    np.testing.assert_allclose(outer[:, 3], outer[:, 0], rtol=1e-6)
    usual = scaled_outer(points, groups, targets)
    fold = np.array([[1, 0], [0, 1], [0, 0], [1, 0]])
    np.testing.assert_allclose(fold.T @ outer @ fold, usual, rtol=0.05, atol=0.02 * usual.trace())


def test_average_has_trace_d_and_remembers_half():
    rng = np.random.default_rng(0)
    first, second = (root @ root.T for root in rng.normal(size=(2, 3, 3)) * 100)
    new = metric.average(None, first)
    np.testing.assert_allclose(new, first * 3 / first.trace())
    both = metric.average(new, second)
    np.testing.assert_allclose(both, (new + second * 3 / second.trace()) / 2)
    assert both.trace() == pytest.approx(3)


@pytest.mark.parametrize(("power", "times"), [(0.5, 2), (0.25, 4), (1.0, 1)])
def test_root_to_the_power_is_the_regularised_metric(power, times):
    half = np.random.default_rng(0).normal(size=(4, 2))
    matrix = half @ half.T  # of rank 2
    root = metric.root(matrix, power)
    np.testing.assert_allclose(root, root.T, atol=1e-12)
    expected = matrix + 0.02 * np.eye(4)
    np.testing.assert_allclose(np.linalg.matrix_power(root, times), expected, atol=1e-12)
    exact = metric.root(matrix, power, 0.0)
    # Half of the eigenvalues are 0 up to rounding, whose root of fourth order is some 1e-4.
    np.testing.assert_allclose(np.linalg.matrix_power(exact, times), matrix, atol=1e-12)


def test_directions_are_eigenvectors_in_standard_deviations():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(4, 4))
    matrix, scale = half @ half.T, np.array([1e-9, 1.0, 1e9, 0.5])
    shares, vectors = metric.directions(matrix * np.outer(scale, scale), scale)
    assert shares.sum() == pytest.approx(1)
    assert (np.diff(shares) <= 0).all()
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(matrix @ vectors.T, vectors.T * shares * matrix.trace(), atol=1e-8)
    assert (vectors[np.arange(4), np.abs(vectors).argmax(axis=1)] > 0).all()
