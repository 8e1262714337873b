"""Arrays of a width that the compiler knows: it unrolls loops, and keeps copies in registers."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

from oda_rl._compile import spliced
from oda_rl._types import Array

A = TypeVar("A", bound=Array)

_FEW = 32

_numba: Any = cgutils  # of which numba does not tell the types
_borrowed: Any = impl_ret_borrowed


def _bytes_of(context: Any, array: Any) -> int:
    """Return how many bytes an element has."""
    return int(context.get_abi_sizeof(context.get_data_type(array.dtype)))


@intrinsic
def _known(typing_context: Any, array: Any, sizes: Any) -> Any:
    assert array.layout == "C"

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = context.make_array(array)(context, builder, arguments[0])
        shape = _numba.unpack_tuple(builder, found.shape)
        strides = _numba.unpack_tuple(builder, found.strides)
        step = context.get_constant(types.intp, _bytes_of(context, array))
        for k, size in enumerate(reversed(_numba.unpack_tuple(builder, arguments[1]))):
            shape[-1 - k], strides[-1 - k] = size, step
            step = builder.mul(step, size)
        if array.ndim > sizes.count:
            strides[-1 - sizes.count] = step
        found.shape = _numba.pack_array(builder, shape)
        found.strides = _numba.pack_array(builder, strides)
        return _borrowed(context, builder, array, found._getvalue())

    return array(array, sizes), generate


_with_sizes = cast(Callable[[A, tuple[int, ...]], A], _known)


@spliced
def of_width(array: A, width: int) -> A:
    """Return the same array, contiguous; its last dimension, which must be so long, is a constant.

    A condition alone would not do: LLVM draws its conclusions after it has unrolled loops.

    Examples
    --------
    >>> import numpy as np
    >>> from numba import njit
    >>> @njit
    ... def total(array):
    ...     return of_width(array, 2)[1].sum()
    >>> total(np.array([[1.0, 2.0], [3.0, 4.0]]))
    7.0
    """
    assert array.shape[array.ndim - 1] == width
    return _with_sizes(array, (width,))


@spliced
def of_sizes(array: A, rows: int, width: int) -> A:
    """Return the same array likewise; both its last dimensions are constants."""
    assert array.shape[array.ndim - 2] == rows
    assert array.shape[array.ndim - 1] == width
    return _with_sizes(array, (rows, width))


def _write(builder: Any, source: Any, target: Any, count: int) -> None:
    """Write numbers, a few of them one by one: the compiler learns more of that than of a loop."""

    def write(place: Any) -> None:
        number = builder.load(builder.gep(source, [place], inbounds=True))
        builder.store(number, builder.gep(target, [place], inbounds=True))

    word = ir.IntType(64)
    if count > _FEW:
        with _numba.for_range(builder, word(count)) as loop:
            write(loop.index)
    else:
        for i in range(count):
            write(word(i))


@intrinsic
def _copied(typing_context: Any, array: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        copy = context.make_array(array)(context, builder, arguments[0])
        kind, size = context.get_data_type(array.dtype), arguments[1]
        item = context.get_constant(types.intp, _bytes_of(context, array))
        stack = _numba.alloca_once(builder, ir.ArrayType(kind, size.constant))
        place = builder.bitcast(stack, kind.as_pointer())
        _write(builder, copy.data, place, size.constant)
        copy.data, copy.nitems = place, size
        copy.shape, copy.strides = (_numba.pack_array(builder, [one]) for one in (size, item))
        return _borrowed(context, builder, array, copy._getvalue())

    return array(array, types.intp), generate


@intrinsic
def _assigned(typing_context: Any, array: Any, to: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        here, there = (context.make_array(array)(context, builder, one) for one in arguments[:2])
        _write(builder, here.data, there.data, arguments[2].constant)
        return context.get_dummy_value()

    return types.void(array, to, types.intp), generate


held = cast(Callable[[A, int], A], _copied)
"""``held(array, count)``: a copy of a vector's first numbers on the stack; the count is a constant.

Nothing else can lie there. So the compiler need not read again what has been written, and keeps it
in registers. For compiled code only.
"""

put = cast(Callable[[A, A, int], None], _assigned)
"""``put(array, to, count)`` writes a vector's first numbers to another; the count is a constant.

For compiled code only.
"""
