"""The three least of many numbers that are worked out eight at a time.

The least of each of the eight lanes are numbers of eight places, of which the third is a bound: few
others are within it, and only those are compared one by one.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from oda_rl._compile import integer, spliced
from oda_rl._types import FloatArray
from oda_rl.eights.vectors import (
    BITS,
    NUMBA,
    WIDTH,
    bits_of,
    constant,
    everywhere,
    greater,
    halves,
    lesser,
    lowest,
    read,
    write,
)


def work_out(builder: Any, columns: Any, number: Callable[[Any, Any], Any]) -> Any:
    """Generate code that writes the numbers of all blocks to their room.

    ``number(first, count)`` generates a vector of eight of the block that begins there and has so
    many rows but for the room. The least of each lane are returned; NaN never is.
    """
    blocks, rows, _ = NUMBA.unpack_tuple(builder, columns.shape)
    count = builder.sub(rows, rows.type(1))
    least = NUMBA.alloca_once(builder, constant(np.inf).type)
    builder.store(constant(np.inf), least)
    with NUMBA.for_range(builder, blocks) as block:
        first = builder.mul(block.index, rows)
        found = number(first, count)
        builder.store(lesser(builder, found, builder.load(least)), least)
        write(builder, found, columns.data, builder.add(first, count))
    return builder.load(least)


def third_of(builder: Any, least: Any) -> Any:
    """Return the third least number of a vector of eight, which three of all numbers are within.

    Both halves of what is left have their first two, or three, in order, and are merged.
    """
    low, high = halves(builder, least)
    one, two = lesser(builder, low, high), greater(builder, low, high)
    (a, b), (c, d) = halves(builder, one), halves(builder, two)
    first, second = lesser(builder, a, b), lesser(builder, greater(builder, a, b), c)
    second = lesser(builder, second, d)
    third = lesser(builder, greater(builder, a, d), greater(builder, b, c))
    (a, b), (c, d), (e, f) = (halves(builder, each) for each in (first, second, third))
    third = lesser(builder, greater(builder, a, d), greater(builder, b, c))
    third = lesser(builder, third, lesser(builder, e, f))
    return builder.extract_element(third, BITS(0))


@intrinsic
def _compared(typing_context: Any, columns: Any, block: Any, bound: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table = context.make_array(columns)(context, builder, arguments[0])
        rows = NUMBA.unpack_tuple(builder, table.shape)[1]
        room = builder.mul(builder.add(arguments[1], rows.type(1)), rows)
        found = read(builder, table.data, builder.sub(room, rows.type(1)))
        within = builder.fcmp_ordered("<=", found, everywhere(builder, arguments[2]))
        return bits_of(builder, within)

    return types.int64(columns, types.intp, types.float64), generate


@intrinsic
def _lowest(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return lowest(builder, arguments[0])

    return types.intp(types.int64), generate


within = cast(Callable[[FloatArray, int, float], int], _compared)
"""``within(columns, block, bound)``: which numbers of a block are within a bound, as bits."""

first_of = cast(Callable[[int], int], _lowest)
"""``first_of(bits)``: the lowest that is set; ``bits &= bits - 1`` clears it."""


@spliced
def three_within(columns: FloatArray, bound: float) -> tuple[int, int, int, float, float, float]:
    """Return where the three least numbers within a bound are, and what; else inf, at 0.

    Of equal ones those that come first.
    """
    first, second, third = integer(0), integer(0), integer(0)
    a, b, c = np.inf, np.inf, np.inf
    room = columns.shape[1] - 1
    for block in range(columns.shape[0]):
        left = within(columns, block, bound)
        while left != 0:
            lane = first_of(left)
            left &= left - 1
            value, k = columns[block, room, lane], WIDTH * block + lane
            if value < c:
                if value < b:
                    third, c = second, b
                    if value < a:
                        second, b = first, a
                        first, a = k, value
                    else:
                        second, b = k, value
                else:
                    third, c = k, value
    return first, second, third, a, b, c
