"""How this package compiles: numba's flags, in one place."""

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core import event

from oda_rl._cache import keep
from oda_rl._collector import pause
from oda_rl._numba.brevity import Brief
from oda_rl._numba.seldom import Seldom
from oda_rl._numba.splicing import Splicing

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
N = TypeVar("N", int, float)

_njit: Any = numba.njit  # whose type does not know all of its options
_OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "pipeline_class": Splicing,
}
_NO_ALLOCATION: dict[str, Any] = {**_OPTIONS, "_nrt": False}
_SELDOM: dict[str, Any] = {**_NO_ALLOCATION, "pipeline_class": Seldom}
_BRIEF: dict[str, Any] = {**_NO_ALLOCATION, "pipeline_class": Brief}
_FAST = {"reassoc", "contract", "nsz"}


# For int(x), which numba compiles as a function of its own, and for what a loop changes: if that
# starts from a literal integer or flag, numba infers the types of the whole function once more.
integer = cast(Callable[[float], int], np.int64)
boolean = cast(Callable[[bool], bool], np.bool_)
# For what indexes an array in a hot loop, and cannot be negative: nothing asks whether it is then.
unsigned = cast(Callable[[int], int], np.uint64)


class _Uncollected(event.Listener):
    """Pauses garbage collection while numba loads from its cache, or compiles."""

    def on_start(self, event: Any) -> None:
        """Numba takes its lock."""
        pause.begin()

    def on_end(self, event: Any) -> None:
        """Numba gives it back."""
        pause.end()


event.register("numba:compiler_lock", _Uncollected())  # type: ignore[no-untyped-call]


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


def seldom(function: F) -> F:
    """Compile as :func:`compiled` does what works for long whenever Python calls it.

    Its arguments are taken apart as numba writes it, in a tenth of a microsecond more for seven
    arrays, and in less time to compile.
    """
    return _made(function, **_SELDOM)


def brief(function: F) -> F:
    """Compile as :func:`seldom` does, to short machine code, in half the time.

    For what is called seldom, and for loops that are vectors as they are written: what LLVM makes
    of loops takes long, and only shows in those that go on for long.
    """
    return _made(function, **_BRIEF)


def brief_internal(function: F) -> F:
    """Compile as :func:`brief` does, for compiled callers only."""
    return _made(function, no_cpython_wrapper=True, **_BRIEF)


def unlocked(function: F) -> F:
    """Compile likewise what takes milliseconds: other threads of Python go on meanwhile."""
    return _made(function, nogil=True, **_SELDOM)


def allocating(function: F) -> F:
    """Compile likewise a function that makes arrays."""
    return _made(function, **_OPTIONS)


def inlined(function: F) -> F:
    """Compile as :func:`compiled` does, and let LLVM put the code in place of each call.

    For small functions inside hot loops: a call passes every array as seven arguments.
    """
    return _made(function, forceinline=True, **_NO_ALLOCATION)


def internal(function: F) -> F:
    """Compile as :func:`inlined` does, for compiled callers only: Python cannot call it.

    Saves the time to compile what takes a tuple of arrays apart.
    """
    return _made(function, forceinline=True, no_cpython_wrapper=True, **_NO_ALLOCATION)


def spliced(function: F) -> F:
    """Compile as :func:`compiled` does; numba puts the code in place of each compiled call.

    For what has few such callers: LLVM works on a function anew in all that call it, and in all
    that call those. Not for code that depends on whether an argument is None.
    """
    return _made(function, inline="always", **_NO_ALLOCATION)


@spliced
def larger(a: N, b: N) -> N:
    """Return the larger one, as ``max`` does, which numba compiles anew in every function."""
    return b if b > a else a


@spliced
def smaller(a: N, b: N) -> N:
    """Return the smaller one, as ``min`` does."""
    return b if b < a else a


def reordered(function: F) -> F:
    """Compile as :func:`internal` does, and let LLVM reorder sums, for vector instructions.

    For sums over many features. The same machine still gives the same bits; another may not.
    """
    options = {"no_cpython_wrapper": True, "forceinline": True, "fastmath": _FAST}
    return _made(function, **options, **_NO_ALLOCATION)


def reordering(function: F) -> F:
    """Compile as :func:`compiled` does, and let LLVM reorder sums, as :func:`reordered` does."""
    return _made(function, fastmath=_FAST, **_NO_ALLOCATION)


def bound_copy(function: Any, label: str, **names: Any) -> Any:
    """Return a copy of a function, not yet compiled, in which names stand for other things.

    Sizes become constants so, and functions take the place of names. numba keeps compiled code by
    the name of a function: ``label`` makes it another one.
    """
    known = {**function.__globals__, **names}
    copy = FunctionType(function.__code__, known, function.__name__ + label)
    copy.__qualname__ = copy.__name__
    return copy


def sized(
    function: Callable[P, R], made: Callable[[Any], Any] = compiled
) -> Callable[..., Callable[P, R]]:
    """Return what gives a compiled function for sizes, which stand in its code as names.

    For loops over few numbers, in functions that are called with the same sizes for long: with
    ``n = 0`` beside it, for the linter, a function may say ``for i in range(n)``; ``function(n=4)``
    is compiled, and kept, for four.
    """

    @functools.cache
    def of(**sizes: int) -> Callable[P, R]:
        label = "".join(f"_{size}" for size in sizes.values())
        return cast(Callable[P, R], made(bound_copy(function, label, **sizes)))

    return of
