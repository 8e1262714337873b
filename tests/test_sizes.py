"""Arrays of sizes that the compiler knows are the same arrays, or there is an error."""

import numpy as np
import pytest

from oda_rl._compile import compiled
from oda_rl._sizes import of_sizes, of_width


@compiled
def _weighted(array, weights):
    """Changes what it is given: each number, by what is where it is in the others."""
    known, total = of_width(array, 3), 0.0
    for i in range(known.shape[0]):
        for j in range(known.shape[1]):
            known[i, j] *= weights[i, j]
            total += known[i, j]
    return total, known.shape[0], known.shape[1], known.size


@compiled
def _transposed(blocks, to):
    known = of_sizes(blocks, 2, 3)
    for k in range(known.shape[0]):
        for i in range(known.shape[1]):
            for j in range(known.shape[2]):
                to[k, j, i] = known[k, i, j]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_numbers_of_a_known_width_are_where_they_were(n, dtype):
    array = np.arange(3 * n).reshape(n, 3).astype(dtype)
    weights = np.random.default_rng(n).integers(1, 9, size=(n, 3)).astype(dtype)
    expected = array * weights
    total, *sizes = _weighted(array, weights)
    np.testing.assert_array_equal(array, expected)
    assert total == expected.sum()
    assert sizes == [n, 3, 3 * n]


def test_both_of_two_sizes_are_known_whatever_is_before_them():
    blocks, to = np.random.default_rng(0).normal(size=(4, 2, 3)), np.zeros((4, 3, 2))
    _transposed(blocks, to)
    np.testing.assert_array_equal(to, blocks.transpose(0, 2, 1))


@pytest.mark.parametrize("shape", [(2, 4), (3, 2)])
def test_another_width_is_refused(shape):
    with pytest.raises(AssertionError):
        _weighted(np.zeros(shape), np.zeros(shape))


@pytest.mark.parametrize("shape", [(4, 3, 3), (4, 2, 2)])
def test_other_sizes_are_refused(shape):
    with pytest.raises(AssertionError):
        _transposed(np.zeros(shape), np.zeros((4, 3, 2)))


def test_what_does_not_lie_row_by_row_is_refused():
    for array in (np.zeros((4, 3), order="F"), np.zeros((4, 6))[:, ::2]):
        with pytest.raises(AssertionError):
            _weighted(array, np.zeros((4, 3)))
