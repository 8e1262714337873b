"""The kernel of large codebooks against the papers' recursion, class by class."""

import numpy as np
import oracles
import pytest

from oda_rl.annealing.kernels import learn
from oda_rl.divergences import BregmanDivergence, IDivergence, ItakuraSaito, SquaredEuclidean

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
    codevectors, masses = np.column_stack([start, np.zeros(9)]), 1.0 / np.repeat(sizes, sizes)
    seen = np.zeros(2)
    learn(
        divergence, d, points, classes, weights, codevectors, masses, None,
        np.cumsum([0, *sizes]), 0.4, forgetting, np.zeros(3), seen,
    )  # fmt: skip
    expected = oracles.anneal_stream(
        formula, start, sizes, points, classes, weights, 0.4, forgetting
    )
    # What is below a millionth of the largest share is left out.
    np.testing.assert_allclose(masses, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(codevectors, expected[1], rtol=1e-4)
    assert seen[0] / seen[1] == pytest.approx(expected[2], rel=1e-4)


def test_far_samples_and_long_streams_stay_finite():
    codevectors, masses = np.array([[0.0], [1.0]]), np.full(2, 0.5)
    points = np.array([[1e8], [-1e8], [1e-300], [0.0]] * 5000)
    n, starts = len(points), np.array([0, 2])
    learn(
        SquaredEuclidean(), 1, points, np.zeros(n, int), np.ones(n), codevectors, masses, None,
        starts, 1e-3, 0.5, np.zeros(1), np.zeros(2),
    )  # fmt: skip
    assert np.isfinite(codevectors).all()
    assert masses.sum() == pytest.approx(1.0, abs=1e-5)
