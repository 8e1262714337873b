"""The annealing engine against the papers' recursion, batch annealing and critical temperatures."""

import numpy as np
import oracles
import pytest
from test_divergences import CASES

from oda_rl.annealing import cells as annealing
from oda_rl.annealing.cells import settle
from oda_rl.annealing.kernels import Codevectors, Pace, learn
from oda_rl.divergences import SquaredEuclidean, quadratic_diagram


class Codebook:
    """Arrays for the engine."""

    def __init__(self, codevectors, masses=None):
        n, d = np.shape(codevectors)
        cells = np.empty((1 + d, n))
        cells[0] = 1 / n if masses is None else masses
        cells[1:] = np.transpose(codevectors)
        diagram = quadratic_diagram(np.eye(d), cells[1:].T).T.copy()
        self.arrays = annealing.Codevectors(diagram, cells, np.zeros(n), np.zeros(n, np.int64))

    def observe(self, x, temperature, step_size):
        annealing.observe(self.arrays, x, temperature, step_size)

    @property
    def masses(self):
        return self.arrays.cells[0]

    @property
    def codevectors(self):
        return self.arrays.cells[1:].T


@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 2), (7, 3), (20, 5)])
def test_observe_is_the_papers_recursion(n, d):
    rng = np.random.default_rng(n)
    book = Codebook(rng.normal(size=(n, d)), rng.dirichlet(np.ones(n)))
    masses, codevectors = book.masses.copy(), book.codevectors.copy()
    for m in range(300):
        x, step_size = rng.normal(size=d), 1 / (m + 2)
        book.observe(x, 1.5, step_size)
        masses, codevectors = oracles.oda_observe(masses, codevectors, np.eye(d), x, 1.5, step_size)
        np.testing.assert_allclose(book.masses, masses, rtol=1e-9)
        np.testing.assert_allclose(book.codevectors, codevectors, rtol=1e-8, atol=1e-10)
    assert book.masses.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("temperature", [0.3, 3.0])
def test_it_settles_where_batch_annealing_does(temperature):
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    points = np.concatenate([rng.normal(c, 0.6, size=(100, 2)) for c in centres])
    start = centres + rng.normal(0, 0.3, size=(3, 2))
    masses, codevectors = oracles.batch_annealing(points, start, temperature)
    book = Codebook(start)
    order = rng.integers(len(points), size=100_000)
    for m, i in enumerate(order):
        book.observe(points[i], temperature, 1 / (0.2 * m + 10))
    # Step sizes of 1/(0.2 m) average over some 100 samples' worth of noise less than 1e-2.
    np.testing.assert_allclose(book.codevectors, codevectors, atol=0.05)
    np.testing.assert_allclose(book.masses, masses, atol=0.02)


@pytest.mark.parametrize("n", [1, 2, 9, 140])
@pytest.mark.parametrize("d", [1, 3])
def test_pruning_and_merging_is_that_of_one_pair_after_the_other(n, d):
    rng = np.random.default_rng(n)
    for below in (0.0, 0.03, 0.3, 10.0):
        codevectors = rng.normal(size=(n, d))
        codevectors[n // 2 :] = codevectors[: n - n // 2] + 0.1 * rng.normal(size=(n - n // 2, d))
        cells = np.column_stack([rng.dirichlet(np.full(n, 0.5)), codevectors])
        expected = oracles.prune_and_merge(cells[:, 0].copy(), codevectors, np.eye(d), 0.01, below)
        into = annealing.prune_and_merge(cells, n, 0.01, below)
        masses, means, consist = expected
        np.testing.assert_allclose(cells[: len(masses), 0], masses, rtol=1e-12)
        np.testing.assert_allclose(cells[: len(masses), 1:], means, rtol=1e-9, atol=1e-12)
        places = np.full(n, -1)
        for k, own in enumerate(consist):
            places[own] = k
        np.testing.assert_array_equal(into, places)


@pytest.mark.parametrize(("n", "d", "m"), [(1, 1, 3), (7, 2, 40), (50, 5, 400)])
def test_settling_is_observing_one_by_one(n, d, m):
    rng = np.random.default_rng(n)
    points, order = rng.normal(size=(60, d)), rng.integers(60, size=m)
    masses = rng.dirichlet(np.ones(n))
    first = Codebook(rng.normal(size=(n, d)), masses=masses)
    second = Codebook(first.codevectors, masses=first.masses)
    settle(first.arrays, points, order, 0.1)
    for t, row in enumerate(order):
        second.observe(points[row], 0.1, max(1.0 / (t + 2.0), 2.0 / m))
    np.testing.assert_array_equal(first.arrays.cells, second.arrays.cells)
    np.testing.assert_array_equal(first.arrays.diagram, second.arrays.diagram)


@pytest.mark.parametrize(
    ("name", "forgetting"), [("euclidean", 0.3), ("i", 0.0), ("itakura-saito", 0.0), ("own", 0.0)]
)
def test_learn_is_the_papers_recursion_for_every_class(name, forgetting):
    divergence, formula = CASES[name]
    rng = np.random.default_rng(1)
    sizes, d = [5, 1, 3], 3
    points = rng.uniform(0.5, 3.0, size=(300, d + 1))
    classes, weights = rng.integers(3, size=300), rng.uniform(0.0, 2.0, size=300)
    start = rng.uniform(0.5, 3.0, size=(9, d))
    codevectors, masses = np.column_stack([start, np.zeros(9)]), 1.0 / np.repeat(sizes, sizes)
    seen = np.zeros(2)
    starts = np.cumsum([0, *sizes])
    learned = Codevectors(codevectors, masses, starts, np.zeros(3), seen)
    learn(divergence, d, points, classes, weights, learned, Pace(0.4, forgetting))
    expected = oracles.anneal_stream(
        formula, start, sizes, points, classes, weights, 0.4, forgetting
    )
    # What is below a millionth of the largest share is left out.
    np.testing.assert_allclose(masses, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(codevectors, expected[1], rtol=1e-4)
    assert seen[0] / seen[1] == pytest.approx(expected[2], rel=1e-4)


def test_far_samples_and_long_streams_stay_finite():
    codevectors, masses = np.array([[0.0], [1.0]]), np.full(2, 0.5)
    points = np.array([[1e8], [-1e8], [1e-300], [0.0]] * 500)
    n, starts = len(points), np.array([0, 2])
    learned = Codevectors(codevectors, masses, starts, np.zeros(1), np.zeros(2))
    classes, weights = np.zeros(n, int), np.ones(n)
    learn(SquaredEuclidean(), 1, points, classes, weights, learned, Pace(1e-3, 0.5))
    assert np.isfinite(codevectors).all()
    assert masses.sum() == pytest.approx(1.0, abs=1e-5)
