"""How this package compiles: numba's options, in one place."""

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np

from oda_rl._cache import keep

F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N", int, float)

_njit: Any = numba.njit  # whose type does not know all of its options
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}
_NO_ALLOCATION: dict[str, Any] = {**_OPTIONS, "_nrt": False}
_FAST = {"reassoc", "contract", "nsz"}


# For int(x), which numba compiles as a function of its own, and for what a loop changes: if that
# starts from a literal integer or flag, numba infers the types of the whole function once more.
integer = cast(Callable[[float], int], np.int64)
boolean = cast(Callable[[bool], bool], np.bool_)


def _made(function: F, **options: Any) -> F:
    return cast(F, keep(_njit(**options)(function)))


def compiled(function: F) -> F:
    """Compile a function over arrays and scalars to machine code, cached on disk.

    It cannot make arrays (:func:`allocating` can), and so does not count references to those that
    it is given: atomic operations that took half the time of an agent's step.

    No ``fastmath``: it reorders sums, and the fused loops must give the same bits as the Python
    loops. Division follows IEEE 754 (``error_model="numpy"``) instead of raising.
    """
    return _made(function, **_NO_ALLOCATION)


def allocating(function: F) -> F:
    """Compile likewise a function that makes arrays."""
    return _made(function, **_OPTIONS)


def unlocked(function: F) -> F:
    """Compile likewise what takes milliseconds: other threads of Python go on meanwhile."""
    return _made(function, nogil=True, **_NO_ALLOCATION)


def inlined(function: F) -> F:
    """Compile as :func:`compiled` does, and let LLVM put the code in place of each call.

    For small functions inside hot loops: a call passes every array as seven arguments.
    """
    return _made(function, forceinline=True, **_NO_ALLOCATION)


def spliced(function: F) -> F:
    """Compile as :func:`compiled` does; numba puts the code in place of each compiled call.

    For what has few such callers: LLVM works on a function anew in all that call it, and in all
    that call those. Not for code that depends on whether an argument is None.
    """
    return _made(function, inline="always", **_NO_ALLOCATION)


def reordered(function: F) -> F:
    """Compile as :func:`inlined` does, and let LLVM reorder sums, for vector instructions.

    For sums over many features. The same machine still gives the same bits; another may not.
    """
    return _made(function, forceinline=True, fastmath=_FAST, **_NO_ALLOCATION)


@spliced
def larger(a: N, b: N) -> N:
    """Return the larger one, as ``max`` does, which numba compiles anew in every function."""
    return b if b > a else a


@spliced
def smaller(a: N, b: N) -> N:
    """Return the smaller one, as ``min`` does."""
    return b if b < a else a


def bound_copy(function: Any, label: str, **names: Any) -> Any:
    """Return a copy of a function, not yet compiled, in which names stand for other things.

    Sizes become constants so, and functions take the place of names. numba keeps compiled code by
    the name of a function: ``label`` makes it another one.
    """
    known = {**function.__globals__, **names}
    copy = FunctionType(function.__code__, known, function.__name__ + label)
    copy.__qualname__ = copy.__name__
    return copy
