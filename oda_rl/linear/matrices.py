"""Products, decompositions and sums of small matrices inside compiled code.

The bits are numpy's: sums are added up in its order, or by the routine that it calls. All numbers
have to be finite.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from oda_rl._compile import brief_internal, integer, spliced
from oda_rl._types import FloatArray
from oda_rl.linear import routines

IntegerArray = npt.NDArray[np.int32]

_numba: Any = cgutils  # of which numba does not tell the types
_populate: Any = populate_array
_WORD = ir.IntType(64)
_LEAST_SINGULAR = 1e-15  # of the greatest, as numpy has it


def room_for(n: int, n_matrices: int) -> tuple[FloatArray, IntegerArray]:
    """Return room for so many matrices of shape (n, n), and behind them for what works on them."""
    return np.zeros(n * (n * (n_matrices + 10) + 41) + 200), np.zeros(20 + 8 * n, dtype=np.int32)


@intrinsic
def _part(typing_context: Any, numbers: Any, i: Any, n: Any) -> Any:
    kind = types.Array(types.float64, 2, "C")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        whole = context.make_array(numbers)(context, builder, values[0])
        part = context.make_array(kind)(context, builder)
        _, i, n = values
        begin, item = builder.mul(i, builder.mul(n, n)), _WORD(8)
        _populate(
            part,
            data=builder.gep(whole.data, [begin], inbounds=True),
            shape=_numba.pack_array(builder, [n, n]),
            strides=_numba.pack_array(builder, [builder.mul(n, item), item]),
            itemsize=item,
            meminfo=None,
        )
        return part._getvalue()

    return kind(numbers, types.intp, types.intp), generate


matrix_of = cast(Callable[[FloatArray, int, int], FloatArray], _part)
"""``matrix_of(numbers, i, n)``: the i-th matrix of :func:`room_for`. For compiled code only."""


@spliced
def copy(n: int, source: FloatArray, to: FloatArray) -> None:
    """Write the first n numbers of an array to another."""
    routines.copy((n, source, 1, to, 1))


@spliced
def dot(n: int, a: FloatArray, b: FloatArray) -> float:
    """Return the product of the first n numbers of two arrays."""
    return routines.dot((n, a, 1, b, 1))


@spliced
def add_rows(k: int, weights: FloatArray, a: FloatArray, out: FloatArray) -> None:
    """Write a weighted sum of the first k rows of A, shape (m,)."""
    m = a.shape[1]
    routines.gemv((m, k, 1.0, a, m, weights, 1, 0.0, out, 1))


@spliced
def multiply(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """Write A B, shape (n, m); A has shape (n, k) and B (k, m)."""
    n, k, m = a.shape[0], a.shape[1], b.shape[1]
    if n == 1:
        add_rows(k, a, b, out)
    else:
        routines.gemm((m, n, k, 1.0, b, m, a, k, 0.0, out, m))


@spliced
def multiply_square(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """Write A B; all have shape (n, n). It is shorter than :func:`multiply`."""
    n = a.shape[0]
    routines.gemm((n, n, n, 1.0, b, n, a, n, 0.0, out, n))


@spliced
def multiply_second(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """Write A Bᵀ, shape (n, m); A has shape (n, k) and B (m, k)."""
    n, k, m = a.shape[0], a.shape[1], b.shape[0]
    if n == 1:
        routines.gemv_transposed((k, m, 1.0, b, k, a, 1, 0.0, out, 1))
    else:
        routines.gemm_second((m, n, k, 1.0, b, k, a, k, 0.0, out, m))


@spliced
def multiply_first(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """Write Aᵀ B, shape (n, m); A has shape (k, n) and B (k, m)."""
    k, n, m = a.shape[0], a.shape[1], b.shape[1]
    routines.gemm_first((m, n, k, 1.0, b, m, a, n, 0.0, out, m))


@spliced
def square(k: int, a: FloatArray, out: FloatArray) -> None:
    """Write Aᵀ A on and above the diagonal, shape (n, n), of the first k rows of A."""
    n = a.shape[1]
    routines.syrk((n, k, 1.0, a, n, 0.0, out, n))


@spliced
def solve(a: FloatArray, b: FloatArray, whole: IntegerArray) -> int:
    """Write A⁻¹ b to ``b``, shape (n,); A, shape (n, n), must be symmetric, and is overwritten.

    Returns 0, or something else if A is singular.
    """
    n = a.shape[0]
    return routines.gesv((n, 1, a, n, whole, b, n))


@spliced
def eigenvectors(a: FloatArray, values: FloatArray, work: FloatArray, whole: IntegerArray) -> None:
    """Write eigenvalues, rising, and vectors, which are rows, of the transpose of ``a``."""
    n = a.shape[0]
    routines.syevd((n, a, n, values, work, work.shape[0], whole, whole.shape[0]))


@spliced
def invert(
    a: FloatArray, u: FloatArray, vt: FloatArray, out: FloatArray, work: FloatArray,
    whole: IntegerArray,
) -> None:  # fmt: skip
    """Write the pseudoinverse of the transpose of ``a``; all have shape (n, n).

    ``a`` is overwritten, ``u`` and ``vt`` are scratch.
    """
    n, values = a.shape[0], work[: a.shape[0]]
    rest = work[n:]
    routines.gesdd((n, n, a, n, values, u, n, vt, n, rest, rest.shape[0], whole))
    least = _LEAST_SINGULAR * values[0]
    for i in range(n):
        share = 1.0 / values[i] if values[i] > least else 0.0
        for j in range(n):
            u[i, j] *= share
    multiply_square(vt, u, out)


@intrinsic
def _fused(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fma(*values)

    return types.float64(types.float64, types.float64, types.float64), generate


fused = cast(Callable[[float, float, float], float], _fused)
"""``fused(a, b, c)``: a b + c, rounded once. For compiled code only."""


@brief_internal
def _added(a: FloatArray, row: int, down: int) -> float:
    """Add up a row, or, going a row ``down`` each time, a diagonal, in the order of numpy's sum.

    Of at most 128 numbers: eight sums side by side are added up in pairs.
    """
    total, n = 0.0, a.shape[1]
    whole = n - n % 8
    for half in range(0, 8 if whole > 0 else 0, 4):
        four = 0.0
        for pair in range(half, half + 4, 2):
            two = 0.0
            for first in range(pair, pair + 2):
                one = 0.0
                for j in range(first, whole, 8):
                    one += a[row + down * j, j]
                two += one
            four += two
        total += four
    for j in range(whole, n):
        total += a[row + down * j, j]
    return total


@spliced
def trace(a: FloatArray) -> float:
    """Add up a diagonal."""
    return _added(a, integer(0), integer(1))


@spliced
def added(a: FloatArray, row: int) -> float:
    """Add up a row."""
    return _added(a, row, integer(0))
