"""The kernel of large codebooks against the papers' recursion, class by class."""

import numpy as np
import oracles
import pytest

from oda_rl.annealing import codebook
from oda_rl.divergences import (
    BregmanDivergence,
    IDivergence,
    ItakuraSaito,
    SquaredEuclidean,
)


class Arrays:
    """Arrays for the kernel; classes of the given sizes, each with a segment or several."""

    def __init__(self, divergence, codevectors, sizes, segments=None, averages=0):
        n, d = codevectors.shape
        self.divergence, self.d = divergence, d
        segments = np.repeat(np.arange(len(sizes)), sizes) if segments is None else segments
        order = np.argsort(segments, kind="stable")
        own = codevectors[order]
        self.columns = np.ascontiguousarray(np.column_stack([own, np.zeros((n, averages))]).T)
        rows = divergence.diagram(own)
        self.gradients = np.ascontiguousarray(rows[:, 1:].T)
        self.offsets = rows[:, 0].copy()
        self.masses = np.concatenate([np.full(size, 1 / size) for size in sizes])
        self.scales, self.sizes = np.ones(len(sizes)), sizes
        self.clocks, self.raw = np.zeros(len(sizes)), np.zeros(codebook.Seen.size, np.uint8)
        count = segments.max() + 1
        self.starts = np.searchsorted(segments[order], np.arange(count + 1)).astype(np.uint64)
        one_class = len(sizes) == 1
        self.owners = np.array([0, count] if one_class else range(count + 1), dtype=np.uint64)
        self.centres = np.array([own[segments[order] == s].mean(0) for s in range(count)]).T.copy()
        self.radii = np.array(
            [
                np.sqrt(((own[segments[order] == s] - self.centres[:, s]) ** 2).sum(1)).max()
                for s in range(count)
            ]
        )

    def learn(self, points, classes, weights, temperature, forgetting=0.0):
        divergence = self.divergence
        potentials = divergence.potential(points[:, : self.d])
        if divergence.kernel == 0:
            potentials = np.zeros(len(points))
        samples = codebook.Block(self.d, points, classes, weights, potentials)
        layout = codebook.Layout(
            self.columns, self.gradients, self.offsets, self.masses, self.starts, self.owners
        )
        stage = codebook.Stage(temperature, forgetting, self.scales, self.clocks, self.raw)
        if isinstance(divergence, BregmanDivergence):
            codebook.learn_called(divergence, samples, layout, stage)
        else:
            n_segments = len(self.radii)
            several = n_segments > len(self.sizes)
            balls = codebook.Balls(self.centres, self.radii, np.empty(n_segments))
            scratch = codebook.Scratch(
                np.empty(self.columns.shape[1]), np.empty(n_segments, np.uint64)
            )
            kernel = divergence.kernel or None
            balls = balls if several else None
            codebook.learn(*samples, *layout, *stage, *scratch, kernel, balls)

    def true_masses(self):
        return self.masses * np.repeat(self.scales, self.sizes)


DIVERGENCES = {
    "euclidean": (SquaredEuclidean(), lambda x, y: ((x - y) ** 2).sum()),
    "i": (IDivergence(), lambda x, y: (x * np.log(x / y) - x + y).sum()),
    "itakura-saito": (ItakuraSaito(), lambda x, y: (x / y - np.log(x / y) - 1).sum()),
    "own": (
        BregmanDivergence(lambda x: np.exp(x).sum(axis=1), np.exp),
        lambda x, y: (np.exp(x) - np.exp(y) - np.exp(y) * (x - y)).sum(),
    ),
}


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("forgetting", [0.0, 0.3])
def test_learn_is_the_papers_recursion_for_every_class(name, forgetting):
    divergence, formula = DIVERGENCES[name]
    rng = np.random.default_rng(1)
    sizes, d = [5, 1, 3], 3
    points = rng.uniform(0.5, 3.0, size=(300, d + 1))
    classes, weights = rng.integers(3, size=300), rng.uniform(0.0, 2.0, size=300)
    start = rng.uniform(0.5, 3.0, size=(9, d))
    arrays = Arrays(divergence, start, sizes, averages=1)
    arrays.learn(points, classes, weights, 0.4, forgetting)
    masses, codevectors, distortion = oracles.anneal_stream(
        formula, start, sizes, points, classes, weights, 0.4, forgetting
    )
    # What is below a millionth of the largest share is left out.
    np.testing.assert_allclose(arrays.true_masses(), masses, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(arrays.columns.T, codevectors, rtol=1e-4)
    seen = codebook.Seen(arrays.raw)
    assert seen.distortion / seen.weight == pytest.approx(distortion, rel=1e-4)


@pytest.mark.parametrize("name", ["i", "itakura-saito"])
def test_the_diagram_keeps_in_step(name):
    divergence = DIVERGENCES[name][0]
    rng = np.random.default_rng(0)
    arrays = Arrays(divergence, rng.uniform(1, 2, size=(4, 2)), [4])
    arrays.learn(rng.uniform(1, 2, size=(2000, 2)), np.zeros(2000, int), np.ones(2000), 0.01)
    rows = divergence.diagram(arrays.columns.T)
    np.testing.assert_allclose(arrays.gradients.T, rows[:, 1:], rtol=1e-12)
    np.testing.assert_allclose(arrays.offsets, rows[:, 0], atol=1e-12)


@pytest.mark.parametrize("temperature", [1e-3, 0.05, 0.5])
@pytest.mark.parametrize("d", [1, 3, 9])
def test_segments_change_no_bit(temperature, d):
    rng = np.random.default_rng(d)
    start = rng.normal(size=(300, d))
    segments = codebook.segments(start)
    assert 10 < segments.max() + 1 <= 2 * 17
    points = rng.normal(size=(3000, d))
    whole = Arrays(SquaredEuclidean(), start[np.argsort(segments, kind="stable")], [300])
    parted = Arrays(SquaredEuclidean(), start, [300], segments)
    for arrays in (whole, parted):
        arrays.learn(points, np.zeros(3000, int), np.ones(3000), temperature)
    np.testing.assert_array_equal(parted.columns, whole.columns)
    np.testing.assert_array_equal(parted.masses, whole.masses)


def test_segments_are_passed_over():
    rng = np.random.default_rng(0)
    centres = 100.0 * rng.normal(size=(30, 2))
    start = (centres[:, None] + rng.normal(size=(30, 10, 2))).reshape(-1, 2)
    arrays = Arrays(SquaredEuclidean(), start, [300], codebook.segments(start))
    # Poison: a codevector in a segment that must not be looked at would spoil the rest.
    far = int(arrays.starts[np.argmax(((arrays.centres.T - centres[0]) ** 2).sum(1))])
    arrays.columns[:, far] = np.nan
    arrays.learn(np.tile(centres[0], (5, 1)), np.zeros(5, int), np.ones(5), 1.0)
    assert np.isnan(arrays.columns).sum() == 2
    assert np.isfinite(arrays.masses).all()


def test_few_codevectors_are_one_segment():
    assert (codebook.segments(np.random.default_rng(0).normal(size=(255, 2))) == 0).all()


def test_far_samples_and_long_streams_stay_finite():
    arrays = Arrays(SquaredEuclidean(), np.array([[0.0], [1.0]]), [2])
    points = np.array([[1e8], [-1e8], [1e-300], [0.0]] * 5000)
    arrays.learn(points, np.zeros(len(points), int), np.ones(len(points)), 1e-3, forgetting=0.5)
    assert np.isfinite(arrays.columns).all()
    assert arrays.true_masses().sum() == pytest.approx(1.0, abs=1e-5)
