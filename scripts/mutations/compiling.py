"""Mistakes that someone might make in how functions are compiled, and divided among threads."""

from mutations import mistakes_in

COMPILING = [
    *mistakes_in(
        "oda_rl/_numba/assigning.py",
        (
            "a block that only makes a variable is not looked at",
            "for var in statement.list_vars()}:",
            "for var in getattr(statement, 'value', statement).list_vars()}:",
            "test_splicing.py::test_variables_are_assigned_once_as_numba_has_it",
        ),
    ),
    *mistakes_in(
        "oda_rl/_numba/holding.py",
        (
            "a variable is held though there are ways past its assignment",
            " and assigned in dominators",
            "",
            "test_splicing.py::test_a_variable_is_held_if_whoever_reads_it_comes_after_its_assignment",
        ),
    ),
    *mistakes_in(
        "oda_rl/_numba/seldom.py",
        (
            "LLVM works on what Python calls seldom",
            'for attribute in ("optnone", "noinline"):',
            "for attribute in ():",
            "test_splicing.py::test_llvm_keeps_some_code_short_and_leaves_some_alone",
        ),
    ),
    *mistakes_in(
        "oda_rl/linear/matrices.py",
        (
            "the last of a sum's numbers is left out",
            "for j in range(whole, n):",
            "for j in range(whole, n - 1):",
            "test_linear.py::test_sums_are_numpys_to_the_last_bit",
        ),
        (
            "directions without extent are inverted",
            "if values[i] > least else 0.0",
            "if values[i] > 0.0 else 0.0",
            "test_linear.py::test_what_is_singular_has_a_pseudoinverse_and_no_solution",
        ),
    ),
    *mistakes_in(
        "agents/engine/guessing.py",
        (
            "the last number but one is guessed for the last",
            "        give(last)",
            "        give(last - 1)",
            "test_guessing.py::test_a_guessed_number_is_that_number",
        ),
    ),
    *mistakes_in(
        "oda_rl/metric.py",
        (
            "what varies by rounding has units",
            "return 1.0 / deviation if deviation > _NEGLIGIBLE * abs(mean) else 0.0",
            "return 1.0 / deviation if deviation > 0.0 else 0.0",
            "test_ring.py::test_all_rows_the_oldest_first_and_their_moments",
        ),
    ),
    *mistakes_in(
        "agents/two_timescale/ring.py",
        (
            "rings begin with their first row, not the oldest",
            "observations[i, latest:], room.points[n:]",
            "observations[i], room.points[n:]",
            "test_ring.py::test_all_rows_the_oldest_first_and_their_moments",
        ),
    ),
    *mistakes_in(
        "agents/two_timescale/placing.py",
        (
            "cells are scaled to a total variance of 1",
            "TOTAL_VARIANCE = 2.0",
            "TOTAL_VARIANCE = 1.0",
            "test_two_timescale.py::test_cells_are_scaled_to_a_total_variance_of_2_in_every_metric",
        ),
        (
            "power 1/2 of the learned metric instead of 1/4",
            "METRIC_POWER = 0.25",
            "METRIC_POWER = 0.5",
            "test_two_timescale.py::test_cells_are_measured_by_the_fourth_root_of_the_learned_metric",
        ),
        (
            "updates of cells that were split count for both",
            "if children == 1:",
            "if children >= 1:",
            "test_placing.py::test_levels_end_as_with_numpy",
        ),
        (
            "halves are shifted to the same side",
            "mean + shift, mean - shift",
            "mean + shift, mean + shift",
            "test_placing.py::test_levels_end_as_with_numpy",
        ),
    ),
    *mistakes_in(
        "oda_rl/_numba/registries.py",
        (
            "numba never imports its modules again",
            "            del context.load_additional_registries\n",
            "            pass\n",
            "test_splicing.py::test_what_is_registered_meanwhile_is_known_and_modules_are_imported_again_later",
        ),
        (
            "what is registered meanwhile is not looked through",
            "context.install_registry(registry)",
            "pass",
            "test_splicing.py::test_what_is_registered_meanwhile_is_known_and_modules_are_imported_again_later",
        ),
    ),
    *mistakes_in(
        "oda_rl/_numba/resolving.py",
        (
            "types of operations are found out anew",
            "        return known[key][0]",
            "        return known.pop(key)[0]",
            "test_splicing.py::test_types_of_an_operation_are_found_out_once",
        ),
    ),
    *mistakes_in(
        "oda_rl/_numba/lifetimes.py",
        (
            "where references are counted nobody says where they are given up",
            "if state.flags.nrt or state.func_ir.is_generator:",
            "if state.func_ir.is_generator:",
            "test_splicing.py::test_only_where_references_are_counted_they_are_given_up",
        ),
    ),
    *mistakes_in(
        "oda_rl/_numba/replacing.py",
        (
            "what has been replaced does not come back",
            "        setattr(owner, name, own)\n",
            "        pass\n",
            "test_splicing.py::test_what_has_been_replaced_comes_back",
        ),
    ),
    *mistakes_in(
        "oda_rl/_collector.py",
        (
            "what somebody has frozen thaws",
            "if gc.get_freeze_count() == 0:",
            "if True:",
            "test_collector.py::test_what_somebody_has_frozen_stays_so",
        ),
    ),
    *mistakes_in(
        "oda_rl/_numba/flags.py",
        (
            "options that may change are kept",
            "return Changing(self)",
            "return self",
            "test_splicing.py::test_options_that_are_settled_are_those_that_may_change",
        ),
    ),
    *mistakes_in(
        "oda_rl/_threads.py",
        (
            "what another thread raises is lost",
            "            raise thread.raised\n",
            "            pass\n",
            "test_threads.py::test_what_one_of_several_threads_raises_is_raised_when_all_have_ended",
        ),
        (
            "nobody waits for other threads",
            "            thread.join()\n",
            "            pass\n",
            "test_threads.py::test_what_one_of_several_threads_raises_is_raised_when_all_have_ended",
        ),
        (
            "rows for which no thread can begin are left out",
            "            own.append(part)\n",
            "            pass\n",
            "test_threads.py::test_where_no_thread_can_begin_all_is_done_in_this_one",
        ),
    ),
]
