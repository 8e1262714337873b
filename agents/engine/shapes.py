"""Arrays of a width that the compiler knows, so that loops along it are unrolled."""

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


@intrinsic
def _known(typing_context: Any, array: Any, width: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = context.make_array(array)(context, builder, arguments[0])
        shape = _numba.unpack_tuple(builder, found.shape)
        strides = _numba.unpack_tuple(builder, found.strides)
        item = context.get_abi_sizeof(context.get_data_type(array.dtype))
        shape[-1], strides[-1] = arguments[1], context.get_constant(types.intp, item)
        if array.ndim > 1:
            strides[-2] = builder.mul(strides[-1], shape[-1])
        found.shape = _numba.pack_array(builder, shape)
        found.strides = _numba.pack_array(builder, strides)
        return _borrowed(context, builder, array, found._getvalue())

    return array(array, types.intp), generate


_with_width = cast(Callable[[A, int], A], _known)


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
    return _with_width(array, width)
