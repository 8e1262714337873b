"""Bregman divergences against their formulas, written out."""

import numpy as np
import pytest

from oda_rl.annealing.kernels import coincide
from oda_rl.divergences import (
    BregmanDivergence,
    IDivergence,
    ItakuraSaito,
    Mahalanobis,
    SquaredEuclidean,
    resolve,
)

MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])
CASES = {
    "euclidean": (SquaredEuclidean(), lambda x, y: ((x - y) ** 2).sum()),
    "mahalanobis": (Mahalanobis(MATRIX), lambda x, y: (x - y) @ MATRIX @ (x - y)),
    "i": (IDivergence(), lambda x, y: (x * np.log(x / y) - x + y).sum()),
    "itakura-saito": (ItakuraSaito(), lambda x, y: (x / y - np.log(x / y) - 1).sum()),
    "own": (
        BregmanDivergence(lambda x: np.exp(x).sum(axis=1), np.exp),
        lambda x, y: (np.exp(x) - np.exp(y) - np.exp(y) * (x - y)).sum(),
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    divergence, formula = CASES[request.param]
    rng = np.random.default_rng(0)
    return divergence, formula, rng.uniform(0.1, 4.0, (7, 2)), rng.uniform(0.1, 4.0, (5, 2))


def test_between_and_rowwise_are_the_formula(case):
    divergence, formula, points, codevectors = case
    expected = [[formula(x, y) for y in codevectors] for x in points]
    embedded, own = divergence.embed(points), divergence.embed(codevectors)
    np.testing.assert_allclose(divergence.between(embedded, own), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        divergence.rowwise(embedded[:5], own), np.diag(expected), rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(divergence.restore(embedded), points, rtol=1e-12)


def test_codevectors_that_coincide_merge_class_by_class(case):
    divergence, rng = case[0], np.random.default_rng(0)
    codevectors = divergence.embed(rng.uniform(1.0, 2.0, (30, 2)))
    labels, alive, owners = np.repeat([0, 1, 2], 10), rng.random(30) > 0.1, np.arange(30)
    left, close = alive.copy(), divergence.between(codevectors, codevectors) < 0.05
    for i, j in np.argwhere(close & (labels[:, None] == labels)):
        if i < j and left[i] and left[j]:
            owners[j], left[j] = i, False
    into = coincide(divergence, 2, codevectors, labels, alive, 0.05)
    np.testing.assert_array_equal(alive, left)
    assert into.tolist() == [left[:k].sum() if left[k] else -1 for k in owners]
    assert left.sum() < 25


@pytest.mark.parametrize("size", [1e-6, 1e-2])
def test_shifts_have_the_divergence_asked_for(case, size):
    divergence, _, _, codevectors = case
    own = divergence.embed(codevectors)
    shifts = divergence.shifts(own, size, np.random.default_rng(1))
    for shifted in (own + shifts, own - shifts):
        # To first order in the step: its third derivative is what is left out.
        np.testing.assert_allclose(divergence.rowwise(shifted, own), size, rtol=0.3)


def test_shifts_stay_in_the_domain_and_zeros_are_in_that_of_the_i_divergence():
    IDivergence().check(np.zeros((1, 2)))
    values = IDivergence().between(np.array([[0.0, 1.0]]), np.array([[0.0, 1.0], [2.0, 1.0]]))
    np.testing.assert_allclose(values, [[0.0, 2.0]])
    for divergence in (IDivergence(), ItakuraSaito()):
        own = np.array([[1e-9, 1.0], [5.0, 1e-3]])
        shifts = divergence.shifts(own, 50.0, np.random.default_rng(0))
        assert (own + shifts > 0).all()
        assert (own - shifts > 0).all()


def test_far_from_the_origin_euclidean_divergences_do_not_cancel():
    rng = np.random.default_rng(0)
    points, codevectors = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    near = SquaredEuclidean().between(points, codevectors)
    far = SquaredEuclidean().between(points + 1e7, codevectors + 1e7)
    np.testing.assert_allclose(far, near, rtol=1e-6)  # of which 1e-8 is lost in the addition


@pytest.mark.parametrize(
    ("divergence", "points", "message"),
    [(IDivergence(), [[1.0, -0.1]], "X >= 0, got -0.1"),
     (ItakuraSaito(), [[1.0, 0.0]], "X > 0, got 0.0"),
     (Mahalanobis(MATRIX), [[1.0, 2.0, 3.0]], "2 features, X has 3"),
     (CASES["own"][0], [[1.0, 1e4]], "row 0 of X"),
     (BregmanDivergence(lambda x: x, lambda x: x), [[1.0, 2.0]], "shape \\(1,\\)|shape")],
)  # fmt: skip
def test_points_outside_the_domain(divergence, points, message):
    with pytest.raises(ValueError, match=message):
        divergence.check(np.array(points))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [([[1.0, 2.0]], "square"), ([[np.nan]], "finite"), ([[1.0, 2.0], [0.0, 1.0]], "symmetric"),
     ([[1.0, 2.0], [2.0, 1.0]], "positive definite, got one with eigenvalue -1")],
)  # fmt: skip
def test_matrices_that_are_no_metric(matrix, message):
    with pytest.raises(ValueError, match=message):
        Mahalanobis(matrix)


def test_names():
    assert isinstance(resolve("itakura_saito"), ItakuraSaito)
    own = Mahalanobis(MATRIX)
    assert resolve(own) is own
    with pytest.raises(ValueError, match="'squared_euclidean'.*got 'cosine'"):
        resolve("cosine")
