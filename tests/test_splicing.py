"""Functions that are spliced into others are what they are in Python."""

import io
import math
import operator
import re
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest
from numba import njit
from numba.core import analysis, ir, typed_passes, types
from numba.core.compiler import Compiler, Flags, run_frontend
from numba.core.registry import cpu_target
from numba.core.ssa import reconstruct_ssa
from numba.core.types import functions
from numba.extending import intrinsic

from oda_rl._compile import allocating, bound_copy, brief, compiled, integer, seldom, sized, spliced
from oda_rl._numba.assigning import assigned_once
from oda_rl._numba.brevity import Brief
from oda_rl._numba.flags import Changing
from oda_rl._numba.holding import held
from oda_rl._numba.registries import looked_through
from oda_rl._numba.replacing import replaced
from oda_rl._numba.seldom import Seldom
from oda_rl._numba.splicing import Splicing
from oda_rl.agents.two_timescale import qlearning
from oda_rl.annealing.placing import settle
from oda_rl.eights.three import three_within


@spliced
def _root(x):
    if x < 0.0:
        return 0.0
    return math.sqrt(x)


@spliced
def _largest(values, begin):
    place, most = integer(begin), values[begin]
    for k in range(begin, values.shape[0]):
        root = _root(values[k])  # a loop around what returns early
        if root > most:
            place, most = k, root
    return place, most


@spliced
def _scaled(x, scale):
    return x if scale is None else x * scale[0]


@compiled
def _walk(values, scale):
    total = 0.0
    for begin in range(values.shape[0]):
        k, most = _largest(values, begin)
        total += _scaled(most, scale) - _root(total) * k
    return total


@pytest.mark.parametrize("scale", [None, np.array([0.7])])
def test_nested_functions_and_branches_on_none_do_what_they_do_in_python(scale):
    values = np.random.default_rng(0).normal(size=20)
    expected = _walk.py_func(values, scale)
    assert _walk(values, scale) == expected  # scalar IEEE operations in the same order
    assert len(_walk.nopython_signatures) <= 2


def test_numbas_own_compiler_gives_the_same_bits():
    values = np.random.default_rng(1).normal(size=50)
    known = {"inline": "always", "error_model": "numpy"}
    names = {
        name: njit(**known)(globals()[name].py_func) for name in ("_root", "_largest", "_scaled")
    }
    plain = njit(error_model="numpy")(_rebound(_walk.py_func, _with_own_calls(names)))
    assert plain(values, None) == _walk(values, None)


def _with_own_calls(names):
    largest = _rebound(names["_largest"].py_func, {"_root": names["_root"]})
    return {**names, "_largest": njit(inline="always", error_model="numpy")(largest)}


def _rebound(function, names):
    return type(function)(function.__code__, {**function.__globals__, **names}, function.__name__)


def test_what_makes_arrays_may_hold_comprehensions_and_sums_of_arrays():
    @allocating
    def squares(n, add):
        found = np.array([_root(float(k)) for k in range(n)])
        return found + 2.0 * add

    add = np.arange(4.0)
    np.testing.assert_array_equal(squares(4, add), np.sqrt(add) + 2.0 * add)


def test_compiled_functions_may_hold_functions_of_their_own():
    @compiled
    def twice(x):
        def double(y):
            return 2.0 * y

        return double(x) + _root(x)

    assert twice(4.0) == 10.0


def _ways(values, n):
    total, last = 0.0, 0.0
    for i in range(n):
        if values[i] > 1.0:
            last = values[i]
            for j in range(i):
                if values[j] < last:
                    total += values[j]
                    continue
                last = total
                if last > 9.0:
                    break
        elif n > 3:
            total = last
        while total > 100.0:
            total /= 2.0
    i = n
    return total, last, i


FUNCTIONS = {
    "ways": _ways,
    "straight": lambda x: x + 1.0,
    "largest": _largest.py_func,
    "update_values": qlearning.update_values.py_func,
    "three_within": three_within.py_func,
    "settle": settle(n_features=2).py_func,
}


def _text(blocks):
    out = io.StringIO()
    for label, block in sorted(blocks.items()):
        print(label, file=out)
        block.dump(file=out)
    return out.getvalue()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_variables_are_assigned_once_as_numba_has_it(name):
    def read():
        return run_frontend(FUNCTIONS[name])

    found, expected = assigned_once(read().blocks), reconstruct_ssa(read()).blocks
    assert list(found) == list(expected)
    assert _text(found) == _text(expected)
    assert name == "straight" or "phi(" in _text(found)


@pytest.mark.parametrize("options", [{}, {"_nrt": False}])
def test_machine_code_is_that_of_numbas_own_passes(options):
    function = njit(error_model="numpy", **options)(_ways)
    own = njit(error_model="numpy", pipeline_class=Splicing, **options)(_ways)
    values = np.random.default_rng(2).exponential(size=30)
    assert own(values, 30) == function(values, 30) == _ways(values, 30)
    texts = []
    for compiled_one in (function, own):
        (text,) = compiled_one.inspect_asm().values()
        # Functions are numbered as they are compiled; names may have a digit more for that.
        text = re.sub(r"B\d+v\d+B|\bv\d+B", "", text)
        texts.append(re.sub(r'(\.size\s+"\.const\.missing.*), \d+', r"\1", text))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("counted", [False, True])
def test_only_where_references_are_counted_they_are_given_up(monkeypatch, counted):
    given_up, own = [], typed_passes.BaseNativeLowering.run_pass

    def watched(self, state):
        blocks = state.func_ir.blocks.values()
        given_up.append(sum(isinstance(one, ir.Del) for block in blocks for one in block.body))
        return own(self, state)

    monkeypatch.setattr(typed_passes.BaseNativeLowering, "run_pass", watched)
    plus = njit(pipeline_class=Splicing, _nrt=counted)(lambda values: values[0] + 1.0)
    assert plus(np.ones(2)) == 2.0
    assert (given_up[0] > 0) == counted


def _contexts():
    return cpu_target.typing_context, cpu_target.target_context


def test_modules_are_imported_once_for_a_function(monkeypatch):
    asked = []
    for kind in {type(context) for context in _contexts()}:
        own = kind.load_additional_registries
        monkeypatch.setattr(
            kind, "load_additional_registries",
            lambda context, own=own: (asked.append(type(context)), own(context))[1],
        )  # fmt: skip

    @njit(pipeline_class=Splicing)
    def total(values, factors):
        found = 0.0
        for i in range(values.shape[0]):
            found += values[i] * factors[i % 2, 0]
        return found

    total(np.ones(3), np.ones((2, 1)))
    # To set up the passes, and for them.
    assert sorted(map(str, asked)) == sorted(2 * [str(type(context)) for context in _contexts()])


def test_what_is_registered_meanwhile_is_known_and_modules_are_imported_again_later():
    @intrinsic
    def seven(typing_context):
        def generate(context, builder, signature, arguments):
            return context.get_constant(types.int64, 7)

        return types.int64(), generate

    def replaced():
        return ["load_additional_registries" in vars(context) for context in _contexts()]

    with looked_through():
        assert all(replaced())
        with looked_through():
            assert njit(lambda: seven() + 1)() == 8
        assert all(replaced())
    assert not any(replaced())
    assert njit(lambda: seven() - 1)() == 6


def test_modules_are_imported_again_after_what_has_failed():
    with suppress(ZeroDivisionError), looked_through():
        raise ZeroDivisionError
    assert not any("load_additional_registries" in vars(context) for context in _contexts())


@pytest.mark.parametrize("pipeline", [Splicing, Compiler])
def test_types_of_an_operation_are_found_out_once(monkeypatch, pipeline):
    asked, own = Counter(), functions.BaseFunction.get_call_type

    def watched(self, context, args, kws):
        asked[self.typing_key, args] += 1
        return own(self, context, args, kws)

    monkeypatch.setattr(functions.BaseFunction, "get_call_type", watched)

    @njit(pipeline_class=pipeline, _nrt=False)
    def total(x, y):
        return (x + y) * (y + x) + max(x, y) + max(y, x) + (x + y) * x

    assert total(2.0, 3.0) == 41.0
    floats = types.float64, types.float64
    assert (asked[operator.add, floats] == 1) == (pipeline is Splicing)
    assert asked[max, floats] > 1  # is no operator
    assert functions.BaseFunction.get_call_type is watched


def test_what_has_been_replaced_comes_back():
    class Owner:
        value = staticmethod(lambda: "own")

    def other(own):
        return lambda: f"not {own()}"

    with suppress(ZeroDivisionError), replaced(Owner, "value", other):
        with replaced(Owner, "value", other):
            assert Owner.value() == "not own"  # and not once more
        assert Owner.value() == "not own"
        raise ZeroDivisionError
    assert Owner.value() == "own"


def test_lifetimes_that_nobody_asks_for_are_left_out(monkeypatch):
    found = []
    own = analysis.compute_live_variables
    monkeypatch.setattr(
        analysis, "compute_live_variables", lambda *some: (found.append(1), own(*some))[1]
    )
    _root(4.0)
    for pipeline in (Splicing, Compiler):
        found.clear()
        twice = njit(pipeline_class=pipeline, _nrt=False)(lambda x: _root(x) + _root(x))
        assert twice(4.0) == 4.0
        assert bool(found) == (pipeline is Compiler)


def test_generators_are_compiled_too():
    @njit(pipeline_class=Splicing)
    def roots(values):
        for value in values:
            if value > 0.0:
                yield _root(value)

    assert list(roots(np.array([4.0, -1.0, 9.0]))) == [2.0, 3.0]


n_terms = 0


@sized
def _first(values):
    total = 0.0
    for i in range(n_terms):
        total += values[i]
    return total


def test_sizes_are_constants_of_a_function_for_each():
    values = np.array([1.0, 2.0, 4.0])
    assert [_first(n_terms=n)(values) for n in (1, 3, 2)] == [1.0, 7.0, 3.0]
    assert _first(n_terms=3) is _first(n_terms=3)


def test_options_that_are_settled_are_those_that_may_change():
    flags = Flags()
    flags.nrt = True
    changing = Changing(flags)
    settled = changing.copy()
    assert settled == flags
    assert hash(settled) == hash(flags)
    assert settled.get_mangle_string() == flags.get_mangle_string()
    changing.error_model = "numpy"
    assert settled != changing
    again = settled.copy()
    again.error_model = "numpy"
    assert again == changing
    assert settled == flags


def _meeting(values, n):
    """Variables whose ways meet, cross and end."""
    first, second, last, count = values[0], values[1], -1.0, integer(0)
    for i in range(n):
        kept = first
        first, second = second, kept + values[i]  # they change places
        if second > 1.0:
            only_here = second - 1.0
            if only_here > 2.0:
                first -= only_here
                continue
            last = only_here
        while count < i:
            count += 1
            before = count
            if before > 7:
                break
            last += before
    return first, second, last, count, kept


def test_variables_that_are_held_have_the_values_that_they_have_in_python():
    for seed in range(20):
        values = np.random.default_rng(seed).normal(size=12)
        assert compiled_meeting(values, 12) == _meeting(values, 12)


compiled_meeting = compiled(_meeting)


@pytest.mark.parametrize("name", ["ways", "largest", "update_values", "meeting"])
def test_a_variable_is_held_if_whoever_reads_it_comes_after_its_assignment(name):
    blocks = run_frontend({**FUNCTIONS, "meeting": _meeting}[name]).blocks
    begin, ways = min(blocks), analysis.compute_cfg_from_blocks(blocks)
    found = held(blocks)
    assigned, read = {}, {}
    for label, block in blocks.items():
        for place, statement in enumerate(block.body):
            target = statement.target.name if isinstance(statement, ir.Assign) else None
            if target is not None:
                assigned.setdefault(target, []).append((label, place))
            for var in statement.list_vars():
                if var.name != target:
                    read.setdefault(var.name, []).append((label, place))

    def reached_without(label, other):
        """Whether a way from the beginning to a block does not go through another."""
        seen, left = {other}, [begin] if begin != other else []
        while left:
            now = left.pop()
            if now not in seen:
                seen.add(now)
                left += [after for after, _ in ways.successors(now)]
        return label in seen and label != other

    for variable, places in assigned.items():
        (label, place), *others = places
        afterwards = all(
            now >= place if there == label else there > label and not reached_without(there, label)
            for there, now in read.get(variable, [])
        )
        assert (variable in found) == (not others and afterwards)
    assert 0 < len(found) < len(assigned)


def _doubled(values, out):
    found = 0.0
    for i in range(values.shape[0]):
        out[i] = 2.0 * values[i]
        found += values[i]
    return found


def attributes(code, name):
    """What LLVM is told of a function, and of what takes a call's arguments apart for it."""
    groups = dict(re.findall(r"^attributes (#\d+) = \{(.*)\}$", code, re.MULTILINE))
    lines = [line for line in code.splitlines() if line.startswith("define") and name in line]
    words = {"cpython" in line: line.split()[-2] for line in lines}
    return [groups.get(words[by_python], "").split() for by_python in (False, True)]


@pytest.mark.parametrize(
    ("made", "pipeline", "own", "called"),
    [
        (brief, Brief, {"optsize"}, {"optnone", "noinline"}),
        (seldom, Seldom, set(), {"optnone", "noinline"}),
        (compiled, Splicing, set(), set()),
    ],
)
def test_llvm_keeps_some_code_short_and_leaves_some_alone(made, pipeline, own, called):
    kept = made(bound_copy(_doubled, made.__name__))  # by its name
    total = njit(error_model="numpy", no_cfunc_wrapper=True, pipeline_class=pipeline)(_doubled)
    values, out = np.arange(9.0), np.empty(9)
    assert kept(values, out) == total(values, out) == 36.0
    np.testing.assert_array_equal(out, 2.0 * values)
    (code,) = total.inspect_llvm().values()  # of what comes from the cache there is none
    asked = {"optsize", "optnone", "noinline"}
    assert [asked.intersection(told) for told in attributes(code, "_doubled")] == [own, called]
    assert kept._compiler.pipeline_class is pipeline
