"""The annealing engine against the papers' recursion, batch annealing and critical temperatures."""

import numba
import numpy as np
import oracles
import pytest

from oda_rl.annealing import cells as annealing
from oda_rl.annealing.cells import settle
from oda_rl.diagram import Codevectors
from oda_rl.divergences import quadratic_diagram


class Codebook:
    """Arrays for the engine."""

    def __init__(self, codevectors, metric=None, masses=None):
        n, d = np.shape(codevectors)
        self.n = n
        self.cells = np.zeros((2 * n, 1 + d))
        self.cells[:n, 0] = 1 / n if masses is None else masses
        self.cells[:n, 1:] = codevectors
        self.metric = np.eye(d) if metric is None else metric
        self.diagram = np.zeros_like(self.cells)
        self.arrays = Codevectors(
            self.diagram, self.cells, self.metric, np.zeros(2 * n), np.zeros(d)
        )
        self.diagram[:n] = quadratic_diagram(self.metric, self.codevectors)

    def observe(self, x, temperature, step_size):
        annealing.observe(self.arrays, self.n, x, temperature, step_size)

    @property
    def masses(self):
        return self.cells[: self.n, 0]

    @property
    def codevectors(self):
        return self.cells[: self.n, 1:]


@numba.njit
def observe_all(arrays, n, points, temperature, step_size):
    for i in range(len(points)):
        annealing.observe(arrays, n, points[i], temperature, step_size)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 2), (7, 3), (20, 5)])
def test_observe_is_the_papers_recursion(n, d):
    rng = np.random.default_rng(n)
    root = rng.normal(size=(d, d)) + 2 * np.eye(d)
    book = Codebook(rng.normal(size=(n, d)), root.T @ root, rng.dirichlet(np.ones(n)))
    masses, codevectors = book.masses.copy(), book.codevectors.copy()
    for m in range(300):
        x, step_size = rng.normal(size=d), 1 / (m + 2)
        book.observe(x, 1.5, step_size)
        masses, codevectors = oracles.oda_observe(
            masses, codevectors, book.metric, x, 1.5, step_size
        )
        np.testing.assert_allclose(book.masses, masses, rtol=1e-9)
        np.testing.assert_allclose(book.codevectors, codevectors, rtol=1e-8, atol=1e-10)
    assert book.masses.sum() == pytest.approx(1, abs=1e-12)


def test_the_diagram_keeps_in_step_with_the_codevectors():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    book = Codebook(rng.normal(size=(5, 3)), root.T @ root)
    for m in range(20_000):
        book.observe(rng.normal(size=3), 0.3, 1 / (m + 2))
    exact = quadratic_diagram(book.metric, book.codevectors)
    np.testing.assert_allclose(book.diagram[:5], exact, rtol=1e-9, atol=1e-9)


def test_far_samples_do_not_overflow():
    book = Codebook([[0.0], [1.0]])
    for x in (1e8, -1e8, 1e-300, 0.0):
        book.observe(np.array([x]), 1e-3, 0.1)
    assert np.isfinite(book.cells).all()
    assert book.masses.min() > 0


@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
def test_it_settles_where_batch_annealing_does(temperature):
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    points = np.concatenate([rng.normal(c, 0.6, size=(100, 2)) for c in centres])
    start = centres + rng.normal(0, 0.3, size=(3, 2))
    masses, codevectors = oracles.batch_annealing(points, start, temperature)
    book = Codebook(start)
    order = rng.integers(len(points), size=200_000)
    for m, i in enumerate(order):
        book.observe(points[i], temperature, 1 / (0.2 * m + 10))
    # Step sizes of 1/(0.2 m) average over some 100 samples' worth of noise less than 1e-2.
    np.testing.assert_allclose(book.codevectors, codevectors, atol=0.05)
    np.testing.assert_allclose(book.masses, masses, atol=0.02)


@pytest.mark.parametrize("variances", [(1.0,), (1.0, 0.25), (2.0, 0.5, 0.1)])
@pytest.mark.parametrize(("ratio", "expected"), [(1.3, 1), (1.1, 1), (0.9, 2), (0.7, 2)])
def test_a_gaussian_splits_just_below_its_critical_temperature(variances, ratio, expected):
    # A perturbed pair shrinks (T > T_c) or grows (T < T_c) by |1 - T_c/T| a unit of summed steps:
    # 1000 units here, so at 10 % from T_c by a factor of about e^100.
    rng = np.random.default_rng(5)
    d = len(variances)
    temperature = ratio * 2 * max(variances)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    points = (rng.normal(size=(500_000, d)) * np.sqrt(variances)) @ rotation.T
    shift = rng.normal(0, 0.05, size=d)
    book = Codebook([shift, -shift])
    observe_all(book.arrays, book.n, points, temperature, 0.002)
    lineage = annealing.prune_and_merge(book.cells, book.metric, 2, 1e-4, 1e-3 * temperature)
    assert len(lineage) == expected


def test_prune_drops_light_cells_but_not_the_last():
    book = Codebook([[0.0], [5.0], [9.0]], masses=[0.5, 1e-6, 0.5])
    lineage = annealing.prune_and_merge(book.cells, book.metric, 3, 1e-4, 0.0)
    np.testing.assert_array_equal(book.cells[:2, 1], [0.0, 9.0])
    np.testing.assert_array_equal(lineage > 0, [[1, 0, 0], [0, 0, 1]])
    assert book.cells[:2, 0].sum() == pytest.approx(1)
    light = Codebook([[0.0], [5.0]], masses=[1e-9, 2e-9])
    lineage = annealing.prune_and_merge(light.cells, light.metric, 2, 0.1, 0.0)
    np.testing.assert_array_equal(lineage > 0, [[0, 1]])
    np.testing.assert_array_equal(light.cells[0], [1.0, 5.0])


@pytest.mark.parametrize("n", [1, 2, 9, 40])
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("euclidean", [False, True])
def test_pruning_and_merging_is_that_of_one_pair_after_the_other(n, d, euclidean):
    rng = np.random.default_rng(n)
    root = np.eye(d) if euclidean else rng.normal(size=(d, d))
    for below in (0.0, 0.03, 0.3, 10.0):
        codevectors = rng.normal(size=(n, d))
        codevectors[n // 2 :] = codevectors[: n - n // 2] + 0.1 * rng.normal(size=(n - n // 2, d))
        book = Codebook(codevectors, root.T @ root, rng.dirichlet(np.full(n, 0.5)))
        expected = oracles.prune_and_merge(
            book.masses.copy(), codevectors, book.metric, 0.01, below
        )
        before = book.masses.copy()
        metric = None if euclidean else book.metric
        lineage = annealing.prune_and_merge(book.cells, metric, n, 0.01, below)
        masses, means, consist = expected
        np.testing.assert_allclose(book.cells[: len(masses), 0], masses, rtol=1e-12)
        np.testing.assert_allclose(book.cells[: len(masses), 1:], means, rtol=1e-9, atol=1e-12)
        rows = np.zeros((len(masses), n))
        for row, own in zip(rows, consist, strict=True):
            row[own] = before[own]
        np.testing.assert_array_equal(lineage, rows)


def test_split_halves_mass_and_keeps_the_mean():
    book = Codebook([[1.0, 2.0], [3.0, 4.0]], masses=[0.25, 0.75])
    shifts = np.array([[0.1, 0.2], [-0.3, 0.0]])
    annealing.split(book.cells, 2, shifts)
    np.testing.assert_allclose(book.cells[:, 0], [0.125, 0.375, 0.125, 0.375])
    np.testing.assert_allclose(book.cells[:2, 1:] + book.cells[2:, 1:], [[2, 4], [6, 8]])
    np.testing.assert_allclose(book.cells[:2, 1:] - book.cells[2:, 1:], 2 * shifts)


@pytest.mark.parametrize(("n", "d", "m"), [(1, 1, 3), (7, 2, 40), (50, 5, 400)])
def test_settling_is_observing_one_by_one(n, d, m):
    rng = np.random.default_rng(n)
    points, order = rng.normal(size=(60, d)), rng.integers(60, size=m)
    masses = rng.dirichlet(np.ones(n))
    first = Codebook(rng.normal(size=(n, d)), masses=masses)
    second = Codebook(first.codevectors, masses=first.masses)
    settle(first.arrays, n, points, order, 0.1)
    for t, row in enumerate(order):
        second.observe(points[row], 0.1, max(1.0 / (t + 2.0), 2.0 / m))
    np.testing.assert_array_equal(first.cells, second.cells)
    np.testing.assert_array_equal(first.diagram, second.diagram)
