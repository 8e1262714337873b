"""Variables that are assigned once, as numba's compiler wants them, for less.

Of each variable that is assigned in several places numba makes several, one variable after the
other, and looks at all statements of a function for each of them. Most are nowhere near it: here
only blocks that mention a variable are looked at. What is done there is numba's own. And how long
variables are needed, which numba finds out after most of its passes, is left to the one that goes
by it, except in generators.
"""

from collections import defaultdict
from typing import Any

from numba.core import ir, ssa, typed_passes, untyped_passes
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.compiler_machinery import register_pass
from numba.core.ir_utils import build_definitions

Blocks = dict[int, Any]

_ssa: Any = ssa  # of which numba does not tell the types
_compute_cfg: Any = compute_cfg_from_blocks
_build_definitions: Any = build_definitions


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class AssignOnce(untyped_passes.ReconstructSSA):
    """Makes variables that are assigned once."""

    _name = "oda_rl_assign_once"

    def run_pass(self, state: Any) -> bool:
        """Do so, and say what they are now."""
        function = state.func_ir
        if function.is_generator:
            return bool(super().run_pass(state))  # type: ignore[no-untyped-call]
        function.blocks = assigned_once(function.blocks)
        self._patch_locals(state)  # type: ignore[no-untyped-call]
        function._definitions = _build_definitions(function.blocks)
        return True


@register_pass(mutates_CFG=False, analysis_only=False)  # type: ignore[no-untyped-call]
class PartAgain(typed_passes.PreLowerStripPhis):
    """Puts assignments in several places again, where ways meet, as machine code has them."""

    _name = "oda_rl_part_again"

    def run_pass(self, state: Any) -> bool:
        """Do so, and say what they are now."""
        if state.func_ir.is_generator:
            return bool(super().run_pass(state))  # type: ignore[no-untyped-call]
        state.func_ir = self._strip_phi_nodes(state.func_ir)  # type: ignore[no-untyped-call]
        state.func_ir._definitions = _build_definitions(state.func_ir.blocks)
        return True


def assigned_once(blocks: Blocks) -> Blocks:
    """Return the blocks of a function, by their labels, with variables that are assigned once.

    References
    ----------
    J.-D. Choi, V. Sarkar, E. Schonberg, "Incremental computation of static single assignment form",
    CC 1996, 223-237: numba's algorithm.
    """
    graph = _compute_cfg(blocks)
    frontiers, lists = _ssa._iterated_domfronts(graph), _ssa._CacheListVars()
    where, scope = _mentions(blocks), next(iter(blocks.values())).scope
    blocks = {label: _copied(block) for label, block in blocks.items()}
    for name in _ssa._find_defs_violators(blocks, graph):
        own = {label: blocks[label] for label in where[name]}
        defined: dict[int, list[Any]] = defaultdict(list)
        state = {"scope": scope, "varname": name, "defmap": defined}
        own = _ssa._run_block_rewrite(own, state, _ssa._FreshVarHandler())
        joined: dict[int, list[Any]] = defaultdict(list)
        state |= {"cfg": graph, "phimap": joined}
        state["phi_locations"] = _ssa._compute_phi_locations(frontiers, defined)
        blocks |= _ssa._run_block_rewrite(own, state, _ssa._FixSSAVars(lists))
        for label, statements in joined.items():
            blocks[label].body = statements + blocks[label].body
    return blocks


def _mentions(blocks: Blocks) -> dict[str, list[int]]:
    """Return which blocks mention each variable, in their order."""
    found: dict[str, list[int]] = defaultdict(list)
    for label, block in blocks.items():
        for name in {var.name for statement in block.body for var in statement.list_vars()}:
            found[name].append(label)
    return found


def _copied(block: Any) -> Any:
    copy: Any = ir.Block(scope=block.scope, loc=block.loc)  # type: ignore[no-untyped-call]
    copy.body = list(block.body)
    return copy
