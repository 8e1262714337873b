"""How numba puts one function into another, for less: a fifth of a first call.

numba leads each function that is put into another through all its passes, together with those that
are put into that one, then copies it twice, each block with all variables of the function. Here
functions are put into the outermost one as they are read, and what results goes through the passes
once. What else is done here in less time is in the files beside this one; the machine code is
numba's own.
"""

from typing import Any, ClassVar, Self, cast

from numba.core import ir, typed_passes, untyped_passes
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.inline_closurecall import InlineWorker, callee_ir_validator
from numba.core.transforms import canonicalize_cfg

from oda_rl._numba.assigning import AssignOnce, PartAgain
from oda_rl._numba.flags import Changing
from oda_rl._numba.holding import HoldingLowering
from oda_rl._numba.lifetimes import Uncounted, left_out
from oda_rl._numba.registries import looked_through
from oda_rl._numba.resolving import remembered

_PassManager = cast(Any, PassManager)  # of which numba does not tell the types
_builder = cast(Any, DefaultPassBuilder)
_canonical = cast(Any, canonicalize_cfg)


class _Unshared(ir.Block):
    """A block that nobody else holds, so that nobody needs a copy of it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _Tidy(untyped_passes.IRProcessing):
    """Does of numba's pass what comes before it asks how long variables are needed."""

    _name = "oda_rl_tidy"

    def run_pass(self, state: Any) -> bool:
        """Bring blocks into their common form."""
        state.func_ir.blocks = _canonical(state.func_ir.blocks)
        return True


def _reading(state: Any) -> Any:
    """Return the passes that read a function, and no others."""
    passes = _PassManager("reading")
    passes.add_pass(untyped_passes.TranslateByteCode)
    passes.add_pass(untyped_passes.FixupArgs)
    passes.add_pass(_Tidy)
    return passes


class _Inserter(InlineWorker):
    """Puts functions where they are called, as they are read."""

    def __init__(self, state: Any) -> None:
        parts = state.typingctx, state.targetctx, state.locals, state.pipeline, state.flags
        super().__init__(*parts, validator=callee_ir_validator)  # type: ignore[no-untyped-call]
        self._compiler_pipeline: Any = _reading

    def run_untyped_passes(self, func: Any, enable_ssa: bool = False) -> Any:
        """Read a function."""
        found = super().run_untyped_passes(func, enable_ssa)  # type: ignore[no-untyped-call]
        for block in found.blocks.values():
            block.__class__ = _Unshared
        return found

    def inline_ir(self, *arguments: Any, **keywords: Any) -> Any:
        """Put it where it is called; its calls are looked at next."""
        found = super().inline_ir(*arguments, **keywords)  # type: ignore[no-untyped-call]
        for _, block in found[3]:
            block.__class__ = ir.Block
        return found


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _Splice(untyped_passes.InlineInlinables):
    """Puts functions that are to be inlined where they are called, until none is left."""

    _name = "oda_rl_splice"

    def _do_work(
        self, state: Any, work_list: Any, block: Any, i: int, expr: Any, inline_worker: Any
    ) -> Any:
        own = _Inserter(state)
        return super()._do_work(state, work_list, block, i, expr, own)  # type: ignore[no-untyped-call]


class Splicing(CompilerBase):
    """numba's compiler, which splices first; give it to ``njit`` as ``pipeline_class``."""

    own: ClassVar[dict[type, type]] = {
        untyped_passes.ReconstructSSA: AssignOnce,
        typed_passes.PreLowerStripPhis: PartAgain,
        typed_passes.IRLegalization: Uncounted,
        typed_passes.NativeLowering: HoldingLowering,
    }
    """Passes that take the place of numba's."""

    def __init__(self, *parts: Any) -> None:
        *others, flags, variables = parts
        with looked_through():  # copies of numba's own, which are made here, look no further either
            super().__init__(*others, Changing(flags), variables)  # type: ignore[no-untyped-call,call-arg]

    def compile_extra(self, func: Any) -> Any:
        """Compile a function."""
        with looked_through(), remembered(), left_out():
            return super().compile_extra(func)  # type: ignore[no-untyped-call]

    def define_pipelines(self) -> list[Any]:
        """Return numba's passes; splicing comes after reading."""
        passes = _builder.define_nopython_pipeline(self.state)
        left_out: set[type] = {untyped_passes.InlineInlinables}
        if not self.state.flags.nrt:  # without arrays to make no comprehensions, no sums of arrays
            left_out |= {untyped_passes.InlineClosureLikes, typed_passes.NopythonRewrites}
        passes.passes = [known for known in passes.passes if known[0] not in left_out]
        passes.passes = [(self.own.get(known, known), why) for known, why in passes.passes]
        passes.add_pass_after(_Splice, untyped_passes.IRProcessing)
        passes.finalize()
        return [passes]
