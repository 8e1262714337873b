"""Decorators for compiled code: numba's options, in one place."""

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np

from oda_rl._cache import keep

F = TypeVar("F", bound=Callable[..., Any])

_njit: Any = numba.njit  # whose type does not know all of its options
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}
_NO_ALLOCATION: dict[str, Any] = {**_OPTIONS, "_nrt": False}
_FAST = {"reassoc", "contract", "nsz"}


# In place of int(x), which numba compiles as a separate function, and for variables that a loop
# changes: if these start from a literal, numba infers all types of the function once more.
integer = cast(Callable[[float], int], np.int64)
boolean = cast(Callable[[bool], bool], np.bool_)


def _made(function: F, **options: Any) -> F:
    made = _njit(**options)(function)
    return cast(F, made if made is function else keep(made))  # the same under NUMBA_DISABLE_JIT


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the Python function of a compiled one: its sine is that of the C library, too."""
    return cast(Callable[..., Any], getattr(function, "py_func", function))


def compiled(function: F) -> F:
    """Compile a function over arrays and scalars, cached on disk.

    It cannot allocate arrays (:func:`allocating` can): without reference counts, which are atomic
    operations, an agent's step takes half the time. No ``fastmath``, which reorders sums: compiled
    loops must give the same bits as Python's. Division follows IEEE 754 instead of raising.
    """
    return _made(function, **_NO_ALLOCATION)


def allocating(function: F) -> F:
    """Compile a function that allocates arrays."""
    return _made(function, **_OPTIONS)


def inlined(function: F) -> F:
    """Compile a small function that LLVM inlines: a call passes an array as seven arguments.

    It has no wrapper, so that a call from Python crashes; call :func:`plain` of it.
    """
    return _made(function, forceinline=True, no_cpython_wrapper=True, **_NO_ALLOCATION)


def spliced(function: F) -> F:
    """Compile a function that numba inlines.

    For few callers: LLVM compiles it anew in each of them, and in theirs. Not for code that depends
    on whether an argument is None.
    """
    return _made(function, inline="always", **_NO_ALLOCATION)


def reordered(function: F) -> F:
    """Compile a function that LLVM inlines, and whose sums it may reorder for vector instructions.

    Bits may differ between machines, but not on one.
    """
    return _made(function, forceinline=True, fastmath=_FAST, **_NO_ALLOCATION)


def bound_copy(function: Any, label: str, **names: Any) -> Any:
    """Return a copy of a function, not yet compiled, with other globals.

    Sizes become constants, and names other functions. ``label`` extends the name, by which numba
    caches compiled code.
    """
    scope = {**function.__globals__, **names}
    copy = FunctionType(function.__code__, scope, function.__name__ + label)
    copy.__qualname__ = copy.__name__
    return copy
