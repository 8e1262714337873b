"""Linear algebra in compiled code against numpy's."""

import ast
import os
import subprocess
import sys

import numpy as np
import pytest

from oda_rl._compile import compiled
from oda_rl.linear.matrices import (
    added,
    copy,
    dot,
    eigenvectors,
    fused,
    invert,
    matrix_of,
    multiply,
    multiply_first,
    multiply_second,
    multiply_square,
    room_for,
    solve,
    square,
    trace,
)
from oda_rl.linear.routines import calling

SIZES = [1, 2, 3, 7, 8, 9, 20]


def drawn(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


@calling
@compiled
def _products(a, b, first, second, plain, other, third):
    multiply(a, b, plain)
    multiply_second(a, second, other)
    multiply_first(a, first, third)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("m", [1, 5])
def test_products(n, m):
    a, b, first, second = drawn(0, n, 4), drawn(1, 4, m), drawn(2, n, m), drawn(3, m, 4)
    plain, other, third = np.empty((n, m)), np.empty((n, m)), np.empty((4, m))

    _products(a, b, first, second, plain, other, third)
    # Of sums of up to 20 products of numbers around 1.
    for found, expected in ((plain, a @ b), (other, a @ second.T), (third, a.T @ first)):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@calling
@compiled
def _squares_product(a, b, out):
    multiply_square(a, b, out)


@pytest.mark.parametrize("n", SIZES)
def test_products_of_squares_are_those_of_others_to_the_last_bit(n):
    a, b, found, plain = drawn(0, n, n), drawn(1, n, n), np.empty((n, n)), np.empty((n, n))

    _squares_product(a, b, found)
    _products(a, b, b, a, plain, np.empty((n, n)), np.empty((n, n)))
    np.testing.assert_array_equal(found, plain)
    np.testing.assert_array_equal(found, a @ b)


@calling
@compiled
def _squared(a, out):
    square(len(a), a, out)


@calling
@compiled
def _solved(a, b, whole):
    return solve(a, b, whole)


@calling
@compiled
def _decomposed(a, values, numbers, whole):
    eigenvectors(a, values, numbers, whole)


@calling
@compiled
def _inverted(a, out, numbers, whole):
    n = a.shape[0]
    own, u, vt = matrix_of(numbers, 0, n), matrix_of(numbers, 1, n), matrix_of(numbers, 2, n)
    for i in range(n):
        for j in range(n):
            own[j, i] = a[i, j]
    invert(own, u, vt, out, numbers[3 * n * n :], whole)


@calling
@compiled
def _dotted(a, b, to):
    copy(a.shape[0], b, to)
    return dot(a.shape[0] - 1, a, b)


@pytest.mark.parametrize("n", SIZES)
def test_products_of_two_and_copies(n):
    a, b, to = drawn(0, n + 1), drawn(1, n + 1), np.zeros(n + 2)
    assert _dotted(a, b, to) == a[:-1] @ b[:-1]
    np.testing.assert_array_equal(to, [*b, 0.0])


@compiled
def _sums(a, row):
    return trace(a), added(a, row)


@compiled
def _rounded_once(a, b, c):
    return fused(a, b, c)


@pytest.mark.parametrize("n", SIZES)
def test_squares_systems_eigenvectors_and_inverses(n):
    a = drawn(n, n, n)
    found = np.zeros((n, n))
    _squared(a, found)
    whole = a.T @ a
    np.testing.assert_allclose(np.triu(found), np.triu(whole), rtol=1e-11, atol=1e-12)
    numbers, integers = room_for(n, 3)
    right, system = drawn(50 + n, n), whole + np.eye(n)
    expected = np.linalg.solve(system, right)
    assert _solved(system.copy(), right, integers) == 0
    np.testing.assert_allclose(right, expected, rtol=1e-9)  # of a condition of some 1e3
    vectors, values = whole.copy(), np.empty(n)
    _decomposed(vectors, values, numbers, integers)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(whole), rtol=1e-9, atol=1e-10)
    again = vectors.T @ np.diag(values) @ vectors
    np.testing.assert_allclose(again, whole, rtol=1e-9, atol=1e-10)
    inverse = np.empty((n, n))
    _inverted(a, inverse, numbers, integers)
    np.testing.assert_allclose(inverse, np.linalg.pinv(a), rtol=1e-7, atol=1e-9)


def test_what_is_singular_has_a_pseudoinverse_and_no_solution():
    a = drawn(0, 5, 5)
    a[:, 2] = 0.0
    inverse, (numbers, integers) = np.empty((5, 5)), room_for(5, 3)
    _inverted(a, inverse, numbers, integers)
    np.testing.assert_allclose(inverse, np.linalg.pinv(a), rtol=1e-9, atol=1e-11)
    assert _solved(np.zeros((3, 3)), np.ones(3), integers) != 0


@pytest.mark.parametrize("n", SIZES)
def test_sums_are_numpys_to_the_last_bit(n):
    a = drawn(n, n, n) * 10.0 ** drawn(99, n, n)
    for row in range(n):
        assert _sums(a, row) == (a.trace(), a[row].sum())


def test_a_library_that_comes_late_works_in_one_thread_like_the_others():
    code = """
import sys
import numpy as np
from threadpoolctl import threadpool_info
from oda_rl._threads import one_thread
from oda_rl.linear import routines

def threads():
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

with one_thread():
    before = len(threads())
    assert "scipy.linalg" not in sys.modules
    routines._ready()
    print(before, threads())
print(threads())
"""
    names = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | names, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    within, after = run.stdout.splitlines()
    before, counts = within.split(" ", 1)
    assert len(ast.literal_eval(counts)) >= int(before)
    assert set(ast.literal_eval(counts)) == {1}
    assert set(ast.literal_eval(after)) == {2}


def test_a_product_and_a_sum_are_rounded_once():
    tiny = 2.0**-30
    assert _rounded_once(1.0 + tiny, 1.0 + tiny, -1.0) == 2 * tiny + tiny**2
    assert (1.0 + tiny) * (1.0 + tiny) - 1.0 != 2 * tiny + tiny**2
