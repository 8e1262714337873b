"""Cells side by side, against one after the other."""

import numpy as np
import oracles
import pytest
from numba import njit

from oda_rl.agents.engine.columns import assign_in_columns, fill_columns, new_columns
from oda_rl.diagram import assign
from oda_rl.divergences import quadratic_diagram


@njit
def cells_of(columns, diagram, n_cells, points):
    fill_columns(columns, diagram, n_cells)
    found = np.empty(len(points), dtype=np.int64)
    for i in range(len(points)):
        found[i] = assign_in_columns(columns, n_cells, points[i])
    return found


def both(diagram, n_cells, points):
    columns = new_columns(len(diagram), points.shape[1])
    columns[:] = -1e300  # what was there before must not matter
    found = cells_of(columns, diagram, n_cells, points).tolist()
    assert found == [assign(diagram, n_cells, point) for point in points]
    return found


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 16, 40])
@pytest.mark.parametrize("d", [1, 4, 9])
def test_they_are_the_nearest(n, d):
    rng = np.random.default_rng(n * 10 + d)
    codevectors, root = rng.normal(size=(n, d)), rng.normal(size=(d, d))
    metric = root.T @ root
    diagram = np.full((n + 3, 1 + d), np.nan)  # rows beyond n_cells must not matter
    diagram[:n] = quadratic_diagram(metric, codevectors)
    points = rng.normal(size=(200, d))
    assert both(diagram, n, points) == [oracles.nearest(codevectors, metric, x) for x in points]


def test_the_last_bit_of_a_score_decides():
    rng = np.random.default_rng(0)
    diagram = np.repeat(rng.normal(size=(1, 5)), 20, axis=0)
    diagram[:, 0] += rng.integers(-2, 3, size=20) * np.spacing(diagram[:, 0])
    both(diagram, 20, rng.normal(size=(500, 4)))


@pytest.mark.parametrize("odd", [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0])
def test_of_equals_the_first_whatever_they_are(odd):
    rng = np.random.default_rng(1)
    diagram = rng.integers(-1, 2, size=(300, 20, 3)).astype(np.float64)
    diagram[rng.random((300, 20, 3)) < 0.3] = odd
    points = rng.integers(-1, 2, size=(4, 2)).astype(np.float64)
    for one in diagram:
        for n_cells in (1, 5, 8, 19):
            both(one, n_cells, points)


def test_a_row_is_in_one_cache_line():
    assert all(new_columns(n, 3).ctypes.data % 64 == 0 for n in (1, 8, 9, 100))
