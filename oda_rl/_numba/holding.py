"""Variables that are assigned once are values in machine code, without a place on the stack.

numba has them so where nothing but the block that assigns a variable reads it; of all others LLVM
finds out, number by number of what is written to the stack and read from it, of a tuple of arrays
some hundred. Here it is enough that whoever reads a variable comes after its assignment on all
ways. Numba's own rule is kept where references to arrays are counted, and where LLVM may add up in
another order: in which one depends on how it is given the sums.
"""

from collections import defaultdict
from typing import Any, ClassVar, cast

from numba.core import ir, lowering, typed_passes
from numba.core.analysis import compute_cfg_from_blocks, must_use_alloca
from numba.core.compiler_machinery import register_pass

_Lower = cast(Any, lowering.Lower)  # of which numba does not tell the types
_compute_cfg: Any = compute_cfg_from_blocks
_must_use_alloca: Any = must_use_alloca


def held(blocks: dict[int, Any]) -> set[str]:
    """Return the variables of a function, by its blocks, that need no place on the stack."""
    assigned: dict[str, list[int]] = defaultdict(list)
    read: dict[str, set[tuple[int, bool]]] = defaultdict(set)
    for label, block in blocks.items():
        for statement in block.body:
            target = statement.target.name if isinstance(statement, ir.Assign) else None
            for var in statement.list_vars():
                if var.name != target:
                    # Before its own assignment: from where no way comes.
                    early = label not in assigned[var.name]
                    read[var.name].add((label, early))
            if target is not None:
                assigned[target].append(label)
    dominators, excluded = _compute_cfg(blocks).dominators(), _must_use_alloca(blocks)
    return {
        name
        for name, places in assigned.items()
        if len(places) == 1
        and name not in excluded
        and all(_after(label, early, places[0], dominators[label]) for label, early in read[name])
    }


def _after(label: int, early: bool, assigned: int, dominators: set[int]) -> bool:
    """Whether it has been assigned when a block reads it; they are made in their labels' order."""
    return not early if label == assigned else label > assigned and assigned in dominators


class Holding(_Lower):  # type: ignore[misc,valid-type]
    """Makes machine code of a function so."""

    def _find_singly_assigned_variable(self) -> None:
        if self.flags.nrt or self.flags.fastmath or self.func_ir.is_generator:
            super()._find_singly_assigned_variable()
            return
        self._singly_assigned_vars = held(self.blocks)
        self._blk_local_varmap: dict[str, Any] = {}


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class HoldingLowering(typed_passes.NativeLowering):
    """Makes machine code of a function."""

    _name = "oda_rl_holding_lowering"
    maker: ClassVar[type] = Holding

    @property
    def lowering_class(self) -> Any:
        """Who makes it."""
        return self.maker
