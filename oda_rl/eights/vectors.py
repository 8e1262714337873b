"""Vectors of eight numbers in LLVM's own terms, for loops that the compiler does not see through.

What is built here is code: arguments and results are LLVM values. Comparisons are ordered, so that
NaN is neither lesser nor greater: of two numbers the second is taken then.
"""

import ctypes
import math
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from oda_rl._types import FloatArray

WIDTH = 8

NUMBA: Any = cgutils  # of which numba does not tell the types
BITS, WORD, FLOAT = ir.IntType(32), ir.IntType(64), ir.DoubleType()
_BYTE = ctypes.c_char
VECTOR, _SINGLES = ir.VectorType(FLOAT, WIDTH), ir.VectorType(ir.FloatType(), WIDTH)


def constant(number: float) -> Any:
    """Return the vector of one number."""
    return ir.Constant(VECTOR, [FLOAT(number)] * WIDTH)


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
    nothing = ir.Constant(VECTOR, ir.Undefined)
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


def read(builder: Any, data: Any, block: Any) -> Any:
    """Return a block of eight numbers."""
    return builder.load(_place(builder, data, block, VECTOR), align=8)


def read_single(builder: Any, data: Any, block: Any) -> Any:
    """Return a block of eight numbers of single precision, in double precision."""
    return builder.fpext(builder.load(_place(builder, data, block, _SINGLES), align=4), VECTOR)


def write(builder: Any, vector: Any, data: Any, block: Any) -> None:
    """Write a block of eight numbers."""
    builder.store(vector, _place(builder, data, block, VECTOR), align=8)


def bits_of(builder: Any, flags: Any) -> Any:
    """Return flags as bits of a word, the first one the lowest."""
    return builder.zext(builder.bitcast(flags, ir.IntType(WIDTH)), WORD)


def lowest(builder: Any, bits: Any) -> Any:
    """Return which bit of a word is the lowest that is set."""
    return builder.cttz(bits, ir.IntType(1)(1))


def aligned(*shape: int) -> FloatArray:
    """Return zeros, of which no block of eight is in two cache lines."""
    size = math.prod(shape)
    room = np.zeros(size + WIDTH)
    address = ctypes.addressof(_BYTE.from_buffer(room.data))  # room.ctypes takes four times as long
    begin = -address // room.itemsize % WIDTH
    return room[begin : begin + size].reshape(shape)
