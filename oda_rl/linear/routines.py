"""Routines of BLAS and LAPACK for compiled code, as scipy brings them.

To the bits of numpy's, which asks the same of them in the same way. But numpy takes some 20 µs for
each operation where other code has been in the processor's caches before it.
"""

import functools
from collections.abc import Callable
from typing import Any, cast

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import get_cython_function_address, intrinsic

from oda_rl._compile import F
from oda_rl._threads import limit_what_is_new

_numba: Any = cgutils  # of which numba does not tell the types
_address: Any = get_cython_function_address
_BYTES = ir.IntType(8).as_pointer()
_INT, _WORD = ir.IntType(32), ir.IntType(64)

_routines: dict[str, str] = {}


@functools.cache
def _ready() -> None:
    """Tell LLVM where the routines are."""
    for name, module in _routines.items():
        llvm.add_symbol(_symbol(name), _address(f"scipy.linalg.{module}", name))
    limit_what_is_new()


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


def _routine(
    module: str, name: str, letters: str, reports: bool, number: bool = False
) -> Callable[[Any], int]:
    """Return a routine for compiled code, which takes a tuple of what follows its ``letters``.

    Matrices are as Fortran has them: numpy's, transposed. If it ``reports``, its last argument is
    not given, but returned: 0, or what went wrong. It may return a ``number`` itself.
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
            kind = ir.FunctionType(
                ir.DoubleType() if number else ir.VoidType(), [_BYTES] * len(passed)
            )
            routine = _numba.get_or_insert_function(builder.module, kind, _symbol(name))
            result = builder.call(routine, passed)
            return result if number else builder.sext(builder.load(report), _WORD)

        return (types.float64 if number else types.intp)(arguments), generate

    return cast(Callable[[Any], int], called)


copy = _routine("cython_blas", "dcopy", "", reports=False)
dot = cast(Callable[[Any], float], _routine("cython_blas", "ddot", "", reports=False, number=True))
gemv = _routine("cython_blas", "dgemv", "N", reports=False)
gemv_transposed = _routine("cython_blas", "dgemv", "T", reports=False)
gemm = _routine("cython_blas", "dgemm", "NN", reports=False)
gemm_first = _routine("cython_blas", "dgemm", "NT", reports=False)
gemm_second = _routine("cython_blas", "dgemm", "TN", reports=False)
syrk = _routine("cython_blas", "dsyrk", "LN", reports=False)
gesv = _routine("cython_lapack", "dgesv", "", reports=True)
syevd = _routine("cython_lapack", "dsyevd", "VL", reports=True)
gesdd = _routine("cython_lapack", "dgesdd", "S", reports=True)
