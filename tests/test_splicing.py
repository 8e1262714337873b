"""Functions that are spliced into others are what they are in Python."""

import math

import numpy as np
import pytest
from numba import njit

from oda_rl._compile import allocating, compiled, integer, spliced


@spliced
def _root(x):
    if x < 0.0:
        return 0.0
    return math.sqrt(x)


@spliced
def _largest(values, begin):
    place, most = integer(begin), values[begin]
    for k in range(begin, values.shape[0]):
        root = _root(values[k])  # a loop around what returns early
        if root > most:
            place, most = k, root
    return place, most


@spliced
def _scaled(x, scale):
    return x if scale is None else x * scale[0]


@compiled
def _walk(values, scale):
    total = 0.0
    for begin in range(values.shape[0]):
        k, most = _largest(values, begin)
        total += _scaled(most, scale) - _root(total) * k
    return total


@pytest.mark.parametrize("scale", [None, np.array([0.7])])
def test_nested_functions_and_branches_on_none_do_what_they_do_in_python(scale):
    values = np.random.default_rng(0).normal(size=20)
    expected = _walk.py_func(values, scale)
    assert _walk(values, scale) == expected  # scalar IEEE operations in the same order
    assert len(_walk.nopython_signatures) <= 2


def test_numbas_own_compiler_gives_the_same_bits():
    values = np.random.default_rng(1).normal(size=50)
    known = {"inline": "always", "error_model": "numpy"}
    names = {
        name: njit(**known)(globals()[name].py_func) for name in ("_root", "_largest", "_scaled")
    }
    plain = njit(error_model="numpy")(_rebound(_walk.py_func, _with_own_calls(names)))
    assert plain(values, None) == _walk(values, None)


def _with_own_calls(names):
    largest = _rebound(names["_largest"].py_func, {"_root": names["_root"]})
    return {**names, "_largest": njit(inline="always", error_model="numpy")(largest)}


def _rebound(function, names):
    return type(function)(function.__code__, {**function.__globals__, **names}, function.__name__)


def test_what_makes_arrays_may_hold_comprehensions_and_sums_of_arrays():
    @allocating
    def squares(n, add):
        found = np.array([_root(float(k)) for k in range(n)])
        return found + 2.0 * add

    add = np.arange(4.0)
    np.testing.assert_array_equal(squares(4, add), np.sqrt(add) + 2.0 * add)


def test_compiled_functions_may_hold_functions_of_their_own():
    @compiled
    def twice(x):
        def double(y):
            return 2.0 * y

        return double(x) + _root(x)

    assert twice(4.0) == 10.0
