"""Numbers that the processor guesses are what they are."""

import numba
import numpy as np
import pytest

from oda_rl.agents.engine.guessing import guessed


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 500])
def test_a_guessed_number_is_that_number(count):
    @numba.njit
    def double(numbers, out):
        for i in range(len(numbers)):
            out[i] = 2 * guessed(numbers[i], count)

    numbers = np.random.default_rng(0).integers(count, size=1000)
    out = np.empty_like(numbers)
    double(numbers, out)
    np.testing.assert_array_equal(out, 2 * numbers)
