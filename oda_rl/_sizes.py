"""Arrays of a width that the compiler knows: it unrolls loops over them."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

from oda_rl._compile import spliced
from oda_rl._types import Array

A = TypeVar("A", bound=Array)

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
