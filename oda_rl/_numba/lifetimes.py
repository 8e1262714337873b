"""How long variables are needed: found out where somebody goes by it, for less.

numba finds it out after most of its passes. Who goes by it is the last one, which says where a
variable gives back what it holds, and what generators keep. In a function of arrays where no
references are counted nothing is given back: nobody has to know.
"""

from contextlib import AbstractContextManager
from typing import Any

from numba.core import postproc, typed_passes
from numba.core.compiler_machinery import register_pass
from numba.core.ir_utils import enforce_no_dels, enforce_no_phis
from numba.core.transforms import canonicalize_cfg

from oda_rl._numba.replacing import replaced

_postproc: Any = postproc  # of which numba does not tell the types
_canonical: Any = canonicalize_cfg
_no_dels: Any = enforce_no_dels
_no_phis: Any = enforce_no_phis


@register_pass(mutates_CFG=False, analysis_only=True)  # type: ignore[no-untyped-call]
class Uncounted(typed_passes.IRLegalization):
    """Asks whether machine code can be made, without saying where variables are given up."""

    _name = "oda_rl_uncounted"

    def run_pass(self, state: Any) -> bool:
        """Ask so, where references to arrays are not counted."""
        if state.flags.nrt or state.func_ir.is_generator:
            return bool(super().run_pass(state))  # type: ignore[no-untyped-call]
        _no_phis(state.func_ir)
        _no_dels(state.func_ir)
        return True


def left_out() -> AbstractContextManager[None]:
    """Leave it out meanwhile wherever it is not asked for; under numba's lock."""
    return replaced(_postproc.PostProcessor, "run", _brief)


def _brief(run: Any) -> Any:
    def brief(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        function = self.func_ir
        if emit_dels or function.is_generator:
            run(self, emit_dels, extend_lifetimes)
            return
        function.blocks = _canonical(function.blocks)
        # Works out what it is asked for.
        function.variable_lifetime = _postproc.VariableLifetime(function.blocks)
        function.generator_info = None

    return brief
