"""The three nearest cells of rows: against all distances, and lists of cells against no lists."""

import numpy as np
import oracles
import pytest

from oda_rl.agents.fitting.nearest import Search, assign_three

MANY = 10**6  # rows, for which lists of cells are made


def assigned(points, codevectors, width=0.3, n_rows=0):
    cells, weights = np.empty((len(points), 3), np.uint16), np.empty((len(points), 3), np.float32)
    search = Search.among(codevectors, width, n_rows)
    assign_three(points, search, cells, weights)
    return cells, weights, search.gaps.shape[1] > 0


def check_alike(points, codevectors, width=0.3):
    """The same cells and weights with lists of cells as without, whatever the order of rows."""
    cells, weights, listed = assigned(points, codevectors, width)
    assert not listed
    order = np.random.default_rng(1).permutation(len(points))
    for rows in (np.arange(len(points)), order):
        found_cells, found, listed = assigned(points[rows], codevectors, width, MANY)
        assert listed
        np.testing.assert_array_equal(found_cells, cells[rows])
        np.testing.assert_array_equal(found, weights[rows])
    return cells


def walk(n, d, step, seed=0):
    """States that follow each other: a walk that is drawn back to 0."""
    rng = np.random.default_rng(seed)
    points = np.zeros((n, d))
    for i in range(1, n):
        points[i] = 0.99 * points[i - 1] + step * rng.normal(size=d)
    return points


@pytest.mark.parametrize("n_rows", [0, MANY])
@pytest.mark.parametrize("d", [1, 3, 8, 16])
@pytest.mark.parametrize("n_cells", [1, 2, 3, 50, 150])
def test_three_nearest_cells_and_their_weights(n_cells, d, n_rows):
    rng = np.random.default_rng(0)
    points, codevectors = rng.normal(size=(500, d)), rng.normal(size=(n_cells, d))
    cells, weights, _ = assigned(points, codevectors, n_rows=n_rows)
    expected_cells, expected = oracles.assign_three(points, codevectors, 0.3)
    found = min(n_cells, 3)
    np.testing.assert_allclose(weights[:, :found], expected, rtol=1e-5)
    np.testing.assert_array_equal(weights[:, found:], 0)
    shown = expected > 0
    np.testing.assert_array_equal(cells[:, :found][shown], expected_cells[shown])
    assert (cells < n_cells).all()
    assert n_cells not in (3, 50) or d == 1 or (~shown).any()


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
@pytest.mark.parametrize(("d", "n_cells"), [(1, 128), (2, 700), (4, 300), (8, 2048)])
def test_lists_of_cells_change_nothing(d, n_cells, scale):
    points = walk(4000, d, 0.15)
    codevectors = points[np.random.default_rng(2).choice(4000, n_cells, replace=False)]
    check_alike(scale * points, scale * codevectors, 0.3 * scale**2)


def test_far_away_and_far_apart_lists_change_nothing():
    points = walk(4000, 2, 0.3)
    codevectors = np.random.default_rng(3).standard_cauchy(size=(300, 2))
    check_alike(points, codevectors)
    check_alike(points + 1e6, codevectors)
    check_alike(points + 1e6, codevectors + 1e6)


def test_cells_as_far_as_others_are_those_of_lower_numbers():
    grid = np.stack(np.meshgrid(np.arange(16.0), np.arange(16.0)), axis=-1).reshape(-1, 2)
    halves = np.random.default_rng(4).integers(0, 32, size=(3000, 2)) / 2.0  # often amid four
    cells = check_alike(halves, np.random.default_rng(5).permutation(grid))
    amid = (halves % 1.0 == 0.5).all(axis=1) & (halves < 15.0).all(axis=1)
    assert amid.sum() > 500
    assert (np.diff(cells[amid].astype(int), axis=1) > 0).all()


@pytest.mark.parametrize("n_alike", [3, 8, 9, 60, 200])
def test_cells_may_lie_in_the_same_place(n_alike):
    points = walk(2000, 2, 0.3)
    codevectors = np.random.default_rng(6).normal(size=(200, 2))
    codevectors[np.random.default_rng(7).choice(200, n_alike, replace=False)] = 0.1
    check_alike(points, codevectors)
    check_alike(np.full((50, 2), 0.1), codevectors)


def test_what_is_not_finite_ends_the_search():
    points = np.array([[0.0, 0.0], [np.nan, 1.0], [np.inf, 0.0], [1.0, 1.0]])
    codevectors = np.random.default_rng(8).normal(size=(200, 2))
    cells, _, listed = assigned(points, codevectors, n_rows=MANY)
    assert listed
    expected, _ = oracles.assign_three(points[[0, 3]], codevectors, 0.3)
    np.testing.assert_array_equal(cells[[0, 3]], expected)
    assert (cells < 200).all()
