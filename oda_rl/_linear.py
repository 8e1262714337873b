"""Linear algebra of small matrices inside compiled code: BLAS and LAPACK, as scipy brings them.

To the bits of numpy's, which asks the same of them in the same way. But numpy takes some 20 µs for
each operation where other code has been in the processor's caches before it.
"""

import functools
from collections.abc import Callable
from typing import Any, cast

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import get_cython_function_address, intrinsic
from numba.np.arrayobj import populate_array

from oda_rl._compile import F, brief_internal, integer, spliced
from oda_rl._types import FloatArray

IntegerArray = npt.NDArray[np.int32]

_numba: Any = cgutils  # of which numba does not tell the types
_address: Any = get_cython_function_address
_populate: Any = populate_array
_BYTES = ir.IntType(8).as_pointer()
_INT, _WORD = ir.IntType(32), ir.IntType(64)
_LEAST_SINGULAR = 1e-15  # of the greatest, as numpy has it

_routines: dict[str, str] = {}


@functools.cache
def _ready() -> None:
    """Tell LLVM where the routines are."""
    for name, module in _routines.items():
        llvm.add_symbol(_symbol(name), _address(f"scipy.linalg.{module}", name))


def calling(code: F) -> F:
    """Return a compiled function that calls routines, which are looked for first."""

    @functools.wraps(code)
    def called(*arguments: Any) -> Any:
        _ready()
        return code(*arguments)

    return cast(F, called)


def _symbol(name: str) -> str:
    return f"oda_rl_{name}"


def _pointer(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return where an argument is: of an array, its numbers; of a number, a copy on the stack."""
    if isinstance(kind, types.Array):
        place = context.make_array(kind)(context, builder, value).data
    else:
        of = types.float64 if isinstance(kind, types.Float) else types.int32
        place = _numba.alloca_once_value(builder, context.cast(builder, value, kind, of))
    return builder.bitcast(place, _BYTES)


def _routine(module: str, name: str, letters: str, reports: bool) -> Callable[[Any], int]:
    """Return a routine for compiled code, which takes a tuple of what follows its ``letters``.

    Matrices are as Fortran has them: numpy's, transposed. If it ``reports``, its last argument is
    not given, but returned: 0, or what went wrong.
    """
    _routines[name] = module

    @intrinsic
    def called(typing_context: Any, arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            report = _numba.alloca_once_value(builder, _INT(0))
            passed = [
                _numba.alloca_once_value(builder, ir.IntType(8)(ord(letter))) for letter in letters
            ]
            parts = zip(arguments, _numba.unpack_tuple(builder, values[0]), strict=True)
            passed += [_pointer(context, builder, kind, value) for kind, value in parts]
            if reports:
                passed.append(builder.bitcast(report, _BYTES))
            kind = ir.FunctionType(ir.VoidType(), [_BYTES] * len(passed))
            routine = _numba.get_or_insert_function(builder.module, kind, _symbol(name))
            builder.call(routine, passed)
            return builder.sext(builder.load(report), _WORD)

        return types.intp(arguments), generate

    return cast(Callable[[Any], int], called)


_gemv = _routine("cython_blas", "dgemv", "N", reports=False)
_gemv_transposed = _routine("cython_blas", "dgemv", "T", reports=False)
_gemm = _routine("cython_blas", "dgemm", "NN", reports=False)
_gemm_first = _routine("cython_blas", "dgemm", "NT", reports=False)
_gemm_second = _routine("cython_blas", "dgemm", "TN", reports=False)
_syrk = _routine("cython_blas", "dsyrk", "LN", reports=False)
_gesv = _routine("cython_lapack", "dgesv", "", reports=True)
_syevd = _routine("cython_lapack", "dsyevd", "VL", reports=True)
_gesdd = _routine("cython_lapack", "dgesdd", "S", reports=True)


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
def multiply(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """Write A B, shape (n, m); A has shape (n, k) and B (k, m)."""
    n, k, m = a.shape[0], a.shape[1], b.shape[1]
    if n == 1:
        _gemv((m, k, 1.0, b, m, a, 1, 0.0, out, 1))
    else:
        _gemm((m, n, k, 1.0, b, m, a, k, 0.0, out, m))


@spliced
def multiply_second(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """Write A Bᵀ, shape (n, m); A has shape (n, k) and B (m, k)."""
    n, k, m = a.shape[0], a.shape[1], b.shape[0]
    if n == 1:
        _gemv_transposed((k, m, 1.0, b, k, a, 1, 0.0, out, 1))
    else:
        _gemm_second((m, n, k, 1.0, b, k, a, k, 0.0, out, m))


@spliced
def multiply_first(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """Write Aᵀ B, shape (n, m); A has shape (k, n) and B (k, m)."""
    k, n, m = a.shape[0], a.shape[1], b.shape[1]
    _gemm_first((m, n, k, 1.0, b, m, a, n, 0.0, out, m))


@spliced
def square(a: FloatArray, out: FloatArray) -> None:
    """Write Aᵀ A on and above the diagonal, shape (n, n); A has shape (k, n)."""
    k, n = a.shape
    _syrk((n, k, 1.0, a, n, 0.0, out, n))


@spliced
def solve(a: FloatArray, b: FloatArray, whole: IntegerArray) -> int:
    """Write A⁻¹ b to ``b``, shape (n,); A, shape (n, n), must be symmetric, and is overwritten.

    Returns 0, or something else if A is singular.
    """
    n = a.shape[0]
    return _gesv((n, 1, a, n, whole, b, n))


@spliced
def eigenvectors(a: FloatArray, values: FloatArray, work: FloatArray, whole: IntegerArray) -> None:
    """Write eigenvalues, rising, and vectors, which are rows, of the transpose of ``a``."""
    n = a.shape[0]
    _syevd((n, a, n, values, work, work.shape[0], whole, whole.shape[0]))


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
    _gesdd((n, n, a, n, values, u, n, vt, n, rest, rest.shape[0], whole))
    least = _LEAST_SINGULAR * values[0]
    for i in range(n):
        share = 1.0 / values[i] if values[i] > least else 0.0
        for j in range(n):
            u[i, j] *= share
    multiply(vt, u, out)


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
