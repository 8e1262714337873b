"""The nearest cells of rows, and of a diagram, against all distances in order."""

import numpy as np
import oracles
import pytest

from oda_rl.agents.fitting.cells import Cells, assign_three
from oda_rl.diagram import assign, assign_batch
from oda_rl.divergences import quadratic_diagram


def assigned(points, codevectors, width=0.3):
    """Nearest cells and weights in the plain metric."""
    d = points.shape[1]
    return assign_three(points, Cells(np.zeros(d), None, np.eye(d), codevectors, width))[1:]


def check(points, codevectors):
    """Exactly the cells that are first by distance, then by number, whatever else there is."""
    cells, _ = assigned(points, codevectors)
    squares = np.zeros((len(points), len(codevectors)))
    for x, component in zip(points.T, codevectors.T, strict=True):
        squares += (x[:, None] - component) ** 2
    np.testing.assert_array_equal(cells, squares.argsort(axis=1, kind="stable")[:, :3])
    return cells


@pytest.mark.parametrize("d", [1, 3, 9, 16])
@pytest.mark.parametrize("n_cells", [1, 2, 3, 50])
def test_three_nearest_cells_and_their_weights(n_cells, d):
    rng = np.random.default_rng(0)
    points, codevectors = rng.normal(size=(500, d)), rng.normal(size=(n_cells, d))
    cells, weights = assigned(points, codevectors)
    expected_cells, expected = oracles.assign_three(points, codevectors, 0.3)
    found = min(n_cells, 3)
    np.testing.assert_allclose(weights[:, :found], expected, rtol=1e-5)
    np.testing.assert_array_equal(weights[:, found:], 0)
    shown = expected > 0
    np.testing.assert_array_equal(cells[:, :found][shown], expected_cells[shown])
    assert (cells < n_cells).all()
    assert n_cells < 3 or d == 1 or (~shown).any()


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
@pytest.mark.parametrize("n_cells", [3, 17, 700])
@pytest.mark.parametrize("d", [1, 5])
def test_cells_are_the_nearest_to_the_last_bit(n_cells, d, scale):
    rng = np.random.default_rng(n_cells)
    check(scale * rng.normal(size=(2000, d)), scale * rng.normal(size=(n_cells, d)))


def test_cells_as_near_as_others_are_those_of_lower_numbers():
    grid = np.stack(np.meshgrid(np.arange(16.0), np.arange(16.0)), axis=-1).reshape(-1, 2)
    halves = np.random.default_rng(4).integers(0, 32, size=(3000, 2)) / 2.0  # often amid four
    cells = check(halves, np.random.default_rng(5).permutation(grid))
    amid = (halves % 1.0 == 0.5).all(axis=1) & (halves < 15.0).all(axis=1)
    assert amid.sum() > 500
    assert (np.diff(cells[amid].astype(int), axis=1) > 0).all()
    check(np.full((3, 2), 0.1), np.full((60, 2), 0.1))


def test_what_is_not_finite_is_near_to_no_cell_and_nothing_else_changes():
    points = np.array([[0.0, 0.0], [np.nan, 1.0], [np.inf, 0.0], [1.0, 1.0]])
    codevectors = np.random.default_rng(8).normal(size=(20, 2))
    cells, _ = assigned(points, codevectors)
    expected, _ = oracles.assign_three(points[[0, 3]], codevectors, 0.3)
    np.testing.assert_array_equal(cells[[0, 3]], expected)
    np.testing.assert_array_equal(cells[[1, 2]], 0)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 1), (5, 3), (40, 2), (17, 9)])
def test_assignment_is_the_nearest_codevector(n, d):
    rng = np.random.default_rng(n * 10 + d)
    root, codevectors = rng.normal(size=(d, d)), rng.normal(size=(n, d))
    metric = root.T @ root
    diagram = np.full((n + 3, 1 + d), np.nan)  # rows beyond n_cells must not matter
    diagram[:n] = quadratic_diagram(metric, codevectors)
    points = rng.normal(size=(500, d))
    expected = [oracles.nearest(codevectors, metric, x) for x in points]
    assert [assign(diagram, n, x) for x in points] == expected
    batch = np.empty(500, dtype=np.int64)
    assign_batch(diagram, n, points, batch)
    assert batch.tolist() == expected
    assert assign(np.zeros((3, 3)), 3, np.array([0.4, -2.0])) == 0  # of equals it is the first
