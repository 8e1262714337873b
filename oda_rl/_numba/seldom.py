"""What takes the arguments of a call from Python apart, as numba writes it: LLVM leaves it alone.

LLVM would save a call some ten nanoseconds for each array. Who waits for a first call waits a
twentieth longer for that.
"""

from typing import Any, ClassVar

from numba.core import typed_passes
from numba.core.compiler_machinery import register_pass

from oda_rl._numba.holding import Holding, HoldingLowering
from oda_rl._numba.splicing import Splicing


class _Alone:
    """Takes over modules for a library, with functions that LLVM leaves alone."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def add_ir_module(self, module: Any) -> None:
        """Take over a module."""
        for function in module.functions:
            if not function.is_declaration:
                for attribute in ("optnone", "noinline"):  # the first one asks for the second
                    function.attributes.add(attribute)
        self._library.add_ir_module(module)


class CalledSeldom(Holding):
    """Makes machine code of a function."""

    library: Any

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        """Make what Python calls."""
        own = self.library
        self.library = _Alone(own)
        try:
            super().create_cpython_wrapper(release_gil)
        finally:
            self.library = own


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _Lowering(HoldingLowering):
    """Makes machine code of a function."""

    _name = "oda_rl_seldom_lowering"
    maker = CalledSeldom


class Seldom(Splicing):
    """The same compiler, for what is called seldom."""

    own: ClassVar[dict[type, type]] = {**Splicing.own, typed_passes.NativeLowering: _Lowering}
