"""Draws that see the distribution and not the table."""

import numpy as np
import pytest

from oda_rl.annealing.levels import Distribution
from oda_rl.samples import canonical_order


def drawn(points, classes, weights, n=200):
    data = Distribution(
        np.asarray(points, float), np.asarray(classes), np.asarray(weights, float),
        np.random.default_rng(5),
    )  # fmt: skip
    rows = np.concatenate([data.draw(c, n) for c in range(data.n_classes)])
    return data, data.points[rows]


def test_weights_are_repetitions_and_order_does_not_matter():
    rng = np.random.default_rng(0)
    points, classes = rng.normal(size=(30, 2)), rng.integers(2, size=30)
    weights = rng.integers(0, 4, size=30)
    repeated = np.repeat(np.arange(30), weights)
    _, first = drawn(points, classes, weights)
    _, second = drawn(points[repeated], classes[repeated], np.ones(len(repeated)))
    shuffled = rng.permutation(30)
    _, third = drawn(points[shuffled], classes[shuffled], weights[shuffled])
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)


def test_a_common_factor_changes_no_draw():
    rng = np.random.default_rng(0)
    points, classes = rng.normal(size=(50, 3)), np.zeros(50, int)
    _, plain = drawn(points, classes, np.ones(50))
    _, scaled = drawn(1e6 * points, classes, np.ones(50))
    np.testing.assert_allclose(scaled, 1e6 * plain)


def test_a_pass_shows_every_row_once():
    rng = np.random.default_rng(0)
    data, _ = drawn(rng.normal(size=(40, 2)), np.zeros(40, int), np.ones(40), n=40)
    assert sorted(data.draw(0, 40)) == list(range(40))
    assert sorted(np.concatenate([data.draw(0, 15), data.draw(0, 25)])) == list(range(40))


def test_rows_are_drawn_by_their_weights():
    data, _ = drawn([[0.0], [1.0], [2.0]], [0, 0, 0], [1, 3, 6], n=1)
    shares = np.bincount(data.draw(0, 30_000), minlength=3) / 30_000
    # Strata leave less noise than independent draws, of standard error .003.
    np.testing.assert_allclose(shares, [0.1, 0.3, 0.6], atol=0.01)
    np.testing.assert_allclose(np.bincount(data.spread(10)), [1, 3, 6])


def test_rows_of_equal_projection_are_told_apart():
    direction = np.random.default_rng(0).uniform(0.5, 1.0, size=2)
    points = np.array([[direction[1], 0.0], [0.0, direction[0]], [direction[1], 0.0]])
    order = canonical_order(points, np.zeros(3, int), 2)
    assert (np.diff(points[order, 0]) != 0).sum() == 1
    data, _ = drawn(points, np.zeros(3, int), np.ones(3))
    assert sorted(data.weights) == [1, 2]


def test_sizes_of_first_draws():
    data, _ = drawn(np.arange(10.0)[:, None], [0] * 7 + [1] * 3, np.ones(10))
    assert data.max_draw(5, None) == [5, 3]
    assert data.max_draw(5, 4) == [2, 2]
    assert data.class_weights == pytest.approx([7, 3])
