"""Short machine code: LLVM neither unrolls loops nor makes second versions of them for vectors.

What it does of that takes a third to a half of the time to compile, and serves loops that go on for
long.
"""

from typing import Any, ClassVar

from numba.core import typed_passes
from numba.core.compiler_machinery import register_pass

from oda_rl._numba.holding import HoldingLowering
from oda_rl._numba.seldom import CalledSeldom
from oda_rl._numba.splicing import Splicing


class _Brief(CalledSeldom):
    """Makes code of a function."""

    def setup_function(self, fndesc: Any) -> None:
        """Begin with it."""
        super().setup_function(fndesc)
        self.function.attributes.add("optsize")


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _Lowering(HoldingLowering):
    """Makes short code of a function."""

    _name = "oda_rl_brief_lowering"
    maker = _Brief


class Brief(Splicing):
    """The same compiler, for short machine code."""

    own: ClassVar[dict[type, type]] = {**Splicing.own, typed_passes.NativeLowering: _Lowering}
