"""Rows that are blends of three cells: what models say of them, and what they add to cells' sums.

A row is a 1, its point, and zeros, so that its numbers are whole vectors of eight; models and sums
have rows of the same width. Level and slopes of a cell are then treated alike, eight at a time.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from numba.core import types
from numba.extending import intrinsic

from oda_rl._compile import sized, spliced
from oda_rl._sizes import of_sizes, of_width
from oda_rl._types import FloatArray
from oda_rl.agents.engine.memory import GOES_ON, MARK
from oda_rl.agents.fitting.action_codevectors import Near, Weights
from oda_rl.eights.vectors import (
    BITS,
    FLOAT,
    NUMBA,
    WIDTH,
    WORD,
    aligned,
    everywhere,
    read,
    read_single,
    write,
)

Points = npt.NDArray[np.float32]
"""Shape (n, 8 m): 1, the d components of a point, and zeros."""

_Three = tuple[float, float, float]

width = n_terms = 0  # of rows, and that is not 0 of them: constants in loops that are sized


def width_for(n_features: int) -> int:
    """Return how wide rows are."""
    return WIDTH * -(-(1 + n_features) // WIDTH)


def new_points(n: int, n_features: int) -> Points:
    """Return n rows of points that are 0."""
    points = np.zeros((n, width_for(n_features)), dtype=np.float32)
    points[:, 0] = 1.0
    return points


def wide(points: FloatArray) -> FloatArray:
    """Return points, shape (K, d), in rows of that width that begin with 0, in double precision."""
    n, d = points.shape
    rows = aligned(n, width_for(d))
    rows[:, 1 : 1 + d] = points
    return rows


def _opened(context: Any, builder: Any, kinds: Any, arguments: Any) -> tuple[Any, Any, Any, Any]:
    """Return two arrays, and cells and factors, of (points, i, cells, factors, rows of cells)."""
    points, row, cells, factors, own = arguments
    assert kinds[0].layout == kinds[4].layout == "C"
    arrays = (context.make_array(kinds[0]), points), (context.make_array(kinds[4]), own)
    numbers = (everywhere(builder, one) for one in NUMBA.unpack_tuple(builder, factors))
    pairs = zip(NUMBA.unpack_tuple(builder, cells), numbers, strict=True)
    return *(make(context, builder, array) for make, array in arrays), row, list(pairs)


def _blocks(builder: Any, array: Any) -> Any:
    return builder.udiv(NUMBA.unpack_tuple(builder, array.shape)[1], WORD(WIDTH))


def _typed(kind: Any, points: Any, models: Any, *others: Any) -> Any:
    three: Any = types.Tuple  # whose type is not known
    whole, real = three((types.intp,) * 3), three((types.float64,) * 3)
    return kind(points, types.intp, whole, real, models, *others)


@intrinsic
def _three(typing_context: Any, rows: Any, i: Any) -> Any:
    assert rows.layout == "C"
    real = isinstance(rows.dtype, types.Float)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(rows)(context, builder, arguments[0]).data
        first = builder.mul(arguments[1], WORD(3))
        places = (builder.gep(data, [builder.add(first, WORD(t))], inbounds=True) for t in range(3))
        wider, kind = (builder.fpext, FLOAT) if real else (builder.zext, WORD)
        return NUMBA.pack_array(builder, [wider(builder.load(place), kind) for place in places])

    three: Any = types.UniTuple  # whose type is not known
    return three(types.float64 if real else types.intp, 3)(rows, types.intp), generate


cells_of = cast(Callable[[Near, int], tuple[int, int, int]], _three)
"""``cells_of(near, i)``: the three cells of a row, shape (n, 3). For compiled code only."""

shares_of = cast(Callable[[Weights, int], _Three], _three)
"""``shares_of(weights, i)``: how much of each it is, likewise."""


@intrinsic
def _added(context: Any, points: Any, i: Any, cells: Any, factors: Any, sums: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, to, row, pairs = _opened(context, builder, signature.args, arguments)
        count = _blocks(builder, to)
        with NUMBA.for_range(builder, count) as loop:
            here = builder.add(builder.mul(row, count), loop.index)
            numbers = read_single(builder, rows.data, here)
            for cell, factor in pairs:
                there = builder.add(builder.mul(cell, count), loop.index)
                more = builder.fmul(factor, numbers)
                sum_of_both = builder.fadd(read(builder, to.data, there), more)
                write(builder, sum_of_both, to.data, there)
        return context.get_dummy_value()

    return _typed(types.void, points, sums), generate


@intrinsic
def _valued(
    context: Any, points: Any, i: Any, cells: Any, weights: Any, models: Any, terms: Any
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *arguments, terms = arguments
        rows, table, row, pairs = _opened(context, builder, signature.args, arguments)
        count = _blocks(builder, table)
        total = NUMBA.alloca_once(builder, FLOAT)
        builder.store(FLOAT(0.0), total)

        def add(block: Any, lanes: int) -> None:
            there = (builder.add(builder.mul(cell, count), block) for cell, _ in pairs)
            own = [read(builder, table.data, one) for one in there]
            parts = [builder.fmul(pair[1], one) for pair, one in zip(pairs, own, strict=True)]
            model = builder.fadd(builder.fadd(parts[0], parts[1]), parts[2])
            here = builder.add(builder.mul(row, count), block)
            products = builder.fmul(model, read_single(builder, rows.data, here))
            value = builder.load(total)
            for lane in range(lanes):
                value = builder.fadd(value, builder.extract_element(products, BITS(lane)))
            builder.store(value, total)

        whole, others = divmod(terms.constant - 1, WIDTH)
        with NUMBA.for_range(builder, WORD(whole)) as loop:
            add(loop.index, WIDTH)
        add(WORD(whole), others + 1)
        return builder.load(total)

    return _typed(types.float64, points, models, types.intp), generate


@intrinsic
def _squared(
    context: Any, points: Any, i: Any, cell: Any, weight: Any, origins: Any, moments: Any, room: Any
) -> Any:
    kinds = points, origins, moments, room
    assert all(kind.layout == "C" for kind in kinds)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        own, row, cell, weight, *others = arguments
        rows, centres, to, scratch = (
            context.make_array(kind)(context, builder, array)
            for kind, array in zip(kinds, (own, *others), strict=True)
        )
        count, factor = _blocks(builder, rows), everywhere(builder, weight)
        n_rows = NUMBA.unpack_tuple(builder, to.shape)[1]
        first = builder.mul(builder.mul(cell, n_rows), count)
        with NUMBA.for_range(builder, count) as block:
            here = builder.add(builder.mul(row, count), block.index)
            there = builder.add(builder.mul(cell, count), block.index)
            centre = read(builder, centres.data, there)
            numbers = builder.fsub(read_single(builder, rows.data, here), centre)
            write(builder, numbers, scratch.data, block.index)
            weighted = builder.fmul(factor, numbers)
            write(builder, weighted, scratch.data, builder.add(count, block.index))
        with NUMBA.for_range(builder, n_rows) as line:
            number = builder.load(builder.gep(scratch.data, [line.index], inbounds=True))
            number = everywhere(builder, number)
            begin = builder.add(first, builder.mul(line.index, count))
            with NUMBA.for_range(builder, count) as block:
                weighted = read(builder, scratch.data, builder.add(count, block.index))
                there = builder.add(begin, block.index)
                more = builder.fmul(weighted, number)
                write(builder, builder.fadd(read(builder, to.data, there), more), to.data, there)
        return context.get_dummy_value()

    whole, real = types.intp, types.float64
    return types.void(points, whole, whole, real, origins, moments, room), generate


_add_square = cast(
    Callable[[Points, int, int, float, FloatArray, FloatArray, FloatArray], None], _squared
)
_add = cast(Callable[[Points, int, tuple[int, int, int], _Three, FloatArray], None], _added)
_value = cast(
    Callable[[Points, int, tuple[int, int, int], _Three, FloatArray, int], float], _valued
)


@sized
def add_squares(
    points: Points,
    near: Near,
    weights: Weights,
    steps: FloatArray,
    origins: FloatArray,
    moments: FloatArray,
    room: FloatArray,
) -> None:
    """Add w z zᵀ of all steps to the moments of their cells, shape (K, 1 + d, 8 m).

    z is the row less the origin of the cell, shape (K, 8 m), which begins with 0. ``room`` has the
    shape (2, 8 m).
    """
    points, origins = of_width(points, width), of_width(origins, width)
    moments, room = of_sizes(moments, n_terms, width), of_width(room, width)
    for i in range(points.shape[0]):
        if steps[i, MARK] == GOES_ON:
            cells, shares = cells_of(near, i), shares_of(weights, i)
            for t in range(3):
                _add_square(points, i, cells[t], shares[t], origins, moments, room)


@spliced
def add_row(
    points: Points, near: Near, weights: Weights, i: int, left: float, sums: FloatArray
) -> None:
    """Add w r and w r y of row i to the sums of its cells, shape (K, 8 m)."""
    u, v, w = shares_of(weights, i)
    _add(points, i, cells_of(near, i), (u * left, v * left, w * left), sums)


@spliced
def value_of(
    points: Points, near: Near, weights: Weights, i: int, models: FloatArray, n_terms: int
) -> float:
    """Return what the blended models of row i's cells, shape (K, 8 m), make of it.

    Row and models are 0 but for so many numbers, which is a constant.
    """
    return _value(points, i, cells_of(near, i), shares_of(weights, i), models, n_terms)
