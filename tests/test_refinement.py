"""Merging and refining codevectors against brute force and the conditions of an optimum."""

from itertools import combinations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from oda_rl.annealing import refinement
from oda_rl.annealing.cells import ward_merge
from oda_rl.annealing.refinement import refine


def squared_distances(points, codevectors):
    return ((points[:, None] - codevectors) ** 2).sum(axis=2)


def distortion(points, weights, codevectors):
    return weights @ squared_distances(points, codevectors).min(axis=1)


def lloyd(points, weights, start):
    means = KMeans(len(start), init=start, n_init=1, tol=0.0)
    return means.fit(points, sample_weight=weights).cluster_centers_


def within(points, weights, labels, n_cells):
    """Weighted squared error of a labelling, cell by cell from its definition."""
    total = 0.0
    for k in range(n_cells):
        members = labels == k
        if members.any():
            mean = np.average(points[members], axis=0, weights=weights[members])
            total += weights[members] @ ((points[members] - mean) ** 2).sum(axis=1)
    return total


def slow_ward(codevectors, masses, groups, n_clusters):
    cells = [[i] for i in range(len(masses))]
    while len(cells) > n_clusters:
        best = None
        for a, b in combinations(range(len(cells)), 2):
            m_a, m_b = masses[cells[a]].sum(), masses[cells[b]].sum()
            mu_a = masses[cells[a]] @ codevectors[cells[a]] / m_a
            mu_b = masses[cells[b]] @ codevectors[cells[b]] / m_b
            cost = m_a * m_b / (m_a + m_b) * ((mu_a - mu_b) ** 2).sum()
            if groups[cells[a][0]] == groups[cells[b][0]] and (best is None or cost < best[0]):
                best = cost, a, b
        if best is None:
            break
        _, a, b = best
        cells[a] += cells.pop(b)
    cells.sort(key=min)
    into = np.zeros(len(masses), dtype=int)
    for k, members in enumerate(cells):
        into[members] = k
    return into


def problem(seed, n=300, d=3, n_cells=12, weighted=True):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(7, d)) * 4
    points = centres[rng.integers(7, size=n)] + rng.normal(size=(n, d))
    weights = rng.integers(1, 6, size=n).astype(float) if weighted else np.ones(n)
    return points, weights, points[rng.choice(n, n_cells, replace=False)].copy(), rng


@pytest.mark.parametrize("seed", range(12))
def test_ward_is_brute_force(seed):
    rng = np.random.default_rng(seed)
    m, d = rng.integers(2, 24), rng.integers(1, 6)
    codevectors = rng.normal(size=(m, d))
    masses = rng.uniform(0.1, 3.0, m)
    groups = rng.integers(0, 3, m)
    for n_clusters in (1, 3, m // 2 + 1, m, m + 2):
        expected = slow_ward(codevectors, masses, groups, n_clusters)
        np.testing.assert_array_equal(ward_merge(codevectors, masses, groups, n_clusters), expected)


@pytest.mark.parametrize("effort", [0, 1, 6])
@pytest.mark.parametrize(("d", "n_cells"), [(1, 2), (2, 30), (3, 12), (5, 21), (18, 45)])
def test_no_move_of_a_single_point_is_an_improvement(effort, d, n_cells):
    points, weights, start, rng = problem(d, d=d, n_cells=n_cells, n=200)
    refined = refinement._refine_all(points, weights, start, rng, effort)
    labels = squared_distances(points, refined).argmin(axis=1)
    assert len(np.unique(labels)) == n_cells == len(refined)
    error = within(points, weights, labels, n_cells)
    assert distortion(points, weights, refined) == pytest.approx(error, rel=1e-9)
    masses = np.bincount(labels, weights, n_cells)
    squared = squared_distances(points, refined)
    for i, home in enumerate(labels):
        if (labels == home).sum() > 1:
            leaving = masses[home] / (masses[home] - weights[i]) * squared[i, home]
            arriving = np.delete(masses / (masses + weights[i]) * squared[i], home)
            assert leaving <= arriving.min() * (1 + 1e-9)
    # The same from the definition, for a few points.
    for i in rng.choice(200, 4):
        for k in range(n_cells):
            moved = np.where(np.arange(200) == i, k, labels)
            assert within(points, weights, moved, n_cells) >= error * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_distortion_never_rises(seed, monkeypatch):
    points, weights, start, rng = problem(seed)
    refined = refine(points, weights, start, rng)
    after = distortion(points, weights, refined)
    assert after < distortion(points, weights, start)
    again = refine(points, weights, refined, rng)
    assert distortion(points, weights, again) <= after * (1 + 1e-12)
    assert after <= distortion(points, weights, lloyd(points, weights, start))
    monkeypatch.setattr(refinement, "_MANY", 0)  # coarse bounds spare fewer distances
    np.testing.assert_array_equal(refine(*problem(seed)), refined)


def test_breathing_leaves_a_bad_optimum():
    # Two codevectors for one of three far clusters, one for the two others: no point moves.
    rng = np.random.default_rng(0)
    points = rng.normal(size=(120, 2))
    points[:, 0] += np.repeat([0.0, 100.0, 200.0], 40)
    start = np.array([[-1.0, 0.0], [1.0, 0.0], [150.0, 0.0]])
    stuck = refinement._refine_all(points, np.ones(120), start, rng, 0)
    free = refinement._refine_all(points, np.ones(120), start, rng, 5)
    assert distortion(points, np.ones(120), stuck) > 100_000
    assert distortion(points, np.ones(120), free) < 400


def test_points_without_weight_are_not_there():
    points, weights, start, _ = problem(4)
    more = np.concatenate([points, points + 100.0])
    less = np.concatenate([weights, np.zeros(len(points))])
    np.testing.assert_array_equal(
        refine(more, less, start, np.random.default_rng(0)),
        refine(points, weights, start, np.random.default_rng(0)),
    )
    np.testing.assert_array_equal(
        refine(points, 0 * weights, start, np.random.default_rng(0)), start
    )


def test_codevectors_without_points_get_some():
    points, weights, start, rng = problem(6, n_cells=20)
    for bad in (np.zeros_like(start), np.where(np.arange(20)[:, None] < 10, start, 1e9)):
        refined = refinement._refine_all(points, weights, bad, rng, 0)
        labels = squared_distances(points, refined).argmin(axis=1)
        assert len(np.unique(labels)) == 20


@pytest.mark.parametrize("n_cells", [5, 6, 7])
def test_as_many_cells_as_points(n_cells):
    points = np.arange(6.0)[:, None]
    refined = refine(points, np.ones(6), np.zeros((n_cells, 1)), np.random.default_rng(0))
    assert refined.shape == (n_cells, 1)
    labels = squared_distances(points, refined).argmin(axis=1)
    assert len(np.unique(labels)) == min(n_cells, 6)


def test_equal_points_and_constant_features():
    rng = np.random.default_rng(0)
    equal = np.full((50, 3), 2.5)
    refined = refine(equal, np.ones(50), rng.normal(size=(4, 3)), rng)
    assert refined.shape == (4, 3)
    assert distortion(equal, np.ones(50), refined) == 0.0
    points, weights, start, _ = problem(2)
    first = refine(points, weights, start, np.random.default_rng(1))
    with_constant = [np.insert(array, 1, 7.0, axis=1) for array in (points, start)]
    second = refine(with_constant[0], weights, with_constant[1], np.random.default_rng(1))
    np.testing.assert_array_equal(second[:, 1], 7.0)
    np.testing.assert_allclose(np.delete(second, 1, axis=1), first, rtol=1e-6)
