"""One assignment kernel, against the nearest codevector found the slow way."""

import numpy as np
import oracles
import pytest

from oda_rl.diagram import assign, assign_batch, smallest_of
from oda_rl.divergences import quadratic_diagram


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


@pytest.mark.parametrize("n", [1, 4, 7])
def test_the_smallest_value_is_found_at_every_place(n):
    for place in range(n):
        values = np.arange(2.0, 2.0 + n)
        values[place] = -1.0
        assert smallest_of(values) == -1.0


def test_a_tie_goes_to_the_first():
    diagram = np.zeros((3, 3))
    assert assign(diagram, 3, np.array([0.4, -2.0])) == 0
