"""Numbers that the processor guesses instead of waiting for them."""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic

_MOST = 8  # numbers: of more none is guessed
_WORD = ir.IntType(64)
# Takes a number and gives it back, so that LLVM does not see that it is the same.
_OPAQUE = ir.InlineAsm(ir.FunctionType(_WORD, [_WORD]), "", "=r,0", side_effect=True)


@intrinsic
def _guessed(typing_context: Any, number: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        last = arguments[1].constant - 1
        if last >= _MOST:
            return arguments[0]
        end, found = builder.append_basic_block(), []

        def give(i: int) -> None:
            found.append((builder.call(_OPAQUE, [_WORD(i)]), builder.block))
            builder.branch(end)

        for i in range(last):
            here, beyond = builder.append_basic_block(), builder.append_basic_block()
            builder.cbranch(builder.icmp_signed("==", arguments[0], _WORD(i)), here, beyond)
            builder.position_at_end(here)
            give(i)
            builder.position_at_end(beyond)
        give(last)
        builder.position_at_end(end)
        number = builder.phi(_WORD)
        for value, block in found:
            number.add_incoming(value, block)
        return number

    return types.intp(types.intp, types.intp), generate


guessed = cast(Callable[[int, int], int], _guessed)
"""``guessed(number, count)``: the same number, from 0 to ``count`` less 1, which is a constant.

There is a branch for each, and processors guess which way branches go: what follows begins before
the number is known, and begins anew if the guess was wrong. For what takes long to find, decides
what comes next, and is often the same as before. For compiled code only.
"""
