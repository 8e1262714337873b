"""Vectors of eight numbers in LLVM's own terms, for loops that the compiler does not see through.

What is built here is code: arguments and results are LLVM values. Comparisons are ordered, so that
NaN is neither lesser nor greater: of two numbers the second is taken then.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types

WIDTH = 8
_LINE = 64  # bytes of the cache

NUMBA: Any = cgutils  # of which numba does not tell the types
BITS, WORD, FLOAT = ir.IntType(32), ir.IntType(64), ir.DoubleType()
VECTOR, SINGLES = ir.VectorType(FLOAT, WIDTH), ir.VectorType(ir.FloatType(), WIDTH)
_BYTES = {VECTOR: 8, SINGLES: 4}  # of a number


def vector_of(array: Any) -> Any:
    """Return which vectors an array has, by numba's type of it."""
    return VECTOR if array.dtype == types.float64 else SINGLES


def constant(number: float, kind: Any = VECTOR) -> Any:
    """Return the vector of one number."""
    return ir.Constant(kind, [kind.element(number)] * WIDTH)


def picked(builder: Any, vector: Any, lanes: list[int]) -> Any:
    """Return the vector of some elements of another."""
    nothing = ir.Constant(vector.type, ir.Undefined)
    mask = ir.Constant(ir.VectorType(BITS, len(lanes)), [BITS(lane) for lane in lanes])
    return builder.shuffle_vector(vector, nothing, mask)


def halves(builder: Any, vector: Any) -> list[Any]:
    """Return the first and the second half of a vector."""
    width = vector.type.count // 2
    return [picked(builder, vector, list(range(i, i + width))) for i in (0, width)]


def everywhere(builder: Any, number: Any) -> Any:
    """Return the vector of one number that is not known before."""
    nothing = ir.Constant(ir.VectorType(number.type, WIDTH), ir.Undefined)
    return picked(builder, builder.insert_element(nothing, number, BITS(0)), [0] * WIDTH)


def lesser(builder: Any, one: Any, other: Any) -> Any:
    """Return the lesser of two numbers, or of each two of vectors."""
    return builder.select(builder.fcmp_ordered("<", one, other), one, other)


def greater(builder: Any, one: Any, other: Any) -> Any:
    """Return the greater of two numbers, or of each two of vectors."""
    return builder.select(builder.fcmp_ordered("<", one, other), other, one)


def least_of(builder: Any, vector: Any) -> Any:
    """Return the least number of a vector of eight."""
    for _ in range(3):
        vector = lesser(builder, *halves(builder, vector))
    return builder.extract_element(vector, BITS(0))


def _place(builder: Any, data: Any, block: Any, kind: Any) -> Any:
    first = builder.mul(block, WORD(WIDTH))
    return builder.bitcast(builder.gep(data, [first], inbounds=True), kind.as_pointer())


def read(builder: Any, data: Any, block: Any, kind: Any = VECTOR) -> Any:
    """Return a block of eight numbers."""
    return builder.load(_place(builder, data, block, kind), align=_BYTES[kind])


def read_single(builder: Any, data: Any, block: Any) -> Any:
    """Return a block of eight numbers of single precision, in double precision."""
    return builder.fpext(read(builder, data, block, SINGLES), VECTOR)


def write(builder: Any, vector: Any, data: Any, block: Any) -> None:
    """Write a block of eight numbers."""
    builder.store(vector, _place(builder, data, block, vector.type), align=_BYTES[vector.type])


def bits_of(builder: Any, flags: Any) -> Any:
    """Return flags as bits of a word, the first one the lowest."""
    return builder.zext(builder.bitcast(flags, ir.IntType(WIDTH)), WORD)


def lowest(builder: Any, bits: Any) -> Any:
    """Return which bit of a word is the lowest that is set."""
    return builder.cttz(bits, ir.IntType(1)(1))


def aligned(*shape: int, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """Return zeros, of which no block of eight is in two cache lines."""
    size, line = math.prod(shape), _LINE // np.dtype(dtype).itemsize
    room = np.zeros(size + line, dtype)
    begin = -room.ctypes.data // room.itemsize % line
    return room[begin : begin + size].reshape(shape)
