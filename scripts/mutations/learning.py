"""Mistakes that someone might make in the agent that learns online."""

from mutations import mistakes_in

LEARNING = [
    # The online agent.
    *mistakes_in(
        "agents/two_timescale/qlearning.py",
        (
            "traces are cut after greedy actions, not after others",
            "if action != lane.greedy_action:",
            "if action == lane.greedy_action:",
            "test_qlearning.py::test_q_lambda_is_watkins",
        ),
        (
            "no bootstrap where an episode is truncated",
            "update_values(agent, lane, next_cell, reward, terminated)",
            "update_values(agent, lane, next_cell, reward, terminated or truncated)",
            "test_qlearning.py::test_terminated_and_truncated_are_worth_different_things",
        ),
        (
            "a terminal state is worth what its cell is",
            "    if not terminated:\n        best",
            "    if True:\n        best",
            "test_qlearning.py::test_terminated_and_truncated_are_worth_different_things",
        ),
        (
            "the first step size is not 1",
            "math.log(visits)",
            "math.log(visits + 1.0)",
            "test_qlearning.py::test_q_lambda_is_watkins",
        ),
        (
            "traces outlive the episode",
            "clear_traces(table, state.n_cells, TRACES + lane.number)",
            "pass",
            "test_qlearning.py::test_q_lambda_is_watkins",
        ),
        (
            "exploration decays with all steps, not with those since a restart",
            "1.0 + state.steps_since_start /",
            "1.0 + state.steps /",
            "test_qlearning.py::test_exploration_halves_after_its_decay",
        ),
        (
            "one bad episode is enough for a restart",
            "streak <= -wanted",
            "streak <= -1",
            "test_qlearning.py::test_restart_after_as_many_bad_episodes_in_a_row_as_good_ones_are_asked_for",
        ),
        (
            "a restart soon after another, because all steps are counted",
            "after < state.steps_since_start",
            "after < state.steps",
            "test_qlearning.py::test_after_a_restart_as_many_steps_are_free_again",
        ),
        (
            "the agent rests one episode late",
            "FROZEN if streak >= wanted",
            "FROZEN if streak > wanted",
            "test_qlearning.py::test_good_episodes_freeze_and_a_short_one_sets_learning_again",
        ),
        (
            "merged cells average Q by their masses",
            "parents @ (visits * values)",
            "lineage @ (visits * values)",
            "test_qlearning.py::test_table_is_carried_along_a_lineage",
        ),
        (
            "children of a split keep the number of updates",
            "whole = parents.sum(axis=0) <= 1.0",
            "whole = parents.sum(axis=0) <= 2.0",
            "test_qlearning.py::test_table_is_carried_along_a_lineage",
        ),
    ),
    *mistakes_in(
        "agents/two_timescale/engine.py",
        (
            "the metric is learned from targets of one step",
            "_METRIC_TRACE_DECAY = 0.9",
            "_METRIC_TRACE_DECAY = 0.0",
            "test_two_timescale.py::test_the_metric_is_that_of_watkins_returns_of_the_latest_transitions",
        ),
    ),
    *mistakes_in(
        "agents/two_timescale/resting.py",
        (
            "steps at rest are not counted",
            "state.steps += taken",
            "state.steps += 0",
            "test_two_timescale.py::test_resting_is_the_same_in_both_loops_wherever_it_is_cut",
        ),
        (
            "values that are not finite are gone on from",
            "if not abs(value) <= LARGEST:  # NaN too",
            "if abs(value) > 1e300:",
            "test_two_timescale.py::test_a_rest_ends_where_values_are_not_finite",
        ),
    ),
    *mistakes_in(
        "agents/engine/columns.py",
        (
            "of cells that are as near in different blocks the last one is taken",
            'less = builder.fcmp_ordered("<", least, builder.load(smallest))',
            'less = builder.fcmp_ordered("<=", least, builder.load(smallest))',
            "test_columns.py::test_of_equals_the_first_whatever_they_are",
        ),
    ),
    *mistakes_in(
        "agents/partitions/oda.py",
        (
            "children inherit from the neighbour in the list",
            "np.concatenate([lineage, lineage])",
            "np.repeat(lineage, 2, axis=0)",
            "test_partitions.py::test_a_level_of_cells_is_the_papers_recursion_and_children_follow_their_parents",
        ),
        (
            "a split is by so much in raw units",
            "self.draw_shifts() @ self._inverse().T",
            "self.draw_shifts()",
            "test_partitions.py::test_split_cells_stand_apart_by_the_perturbation_in_scaled_units",
        ),
        (
            "cells split by the inverse of a metric before",
            "            self.inverted = False",
            "            pass",
            "test_partitions.py::test_split_cells_stand_apart_by_the_perturbation_in_scaled_units",
        ),
        (
            "the merge distance does not fall with the temperature",
            "self.settings.merge_threshold * schedule.temperature",
            "self.settings.merge_threshold",
            "test_partitions.py::test_cells_merge_within_a_share_of_the_temperature",
        ),
        (
            "the temperature rises from level to level",
            "schedule.temperature *= self.settings.cooling",
            "schedule.temperature /= self.settings.cooling",
            "test_partitions.py::test_a_level_of_cells_is_the_papers_recursion_and_children_follow_their_parents",
        ),
        (
            "children of a cell stand ten times as far apart",
            "perturbation: Annotated[float, POSITIVE] = 0.05",
            "perturbation: Annotated[float, POSITIVE] = 0.5",
            "test_partitions.py::test_split_cells_stand_apart_by_the_perturbation_in_scaled_units",
        ),
    ),
    *mistakes_in(
        "agents/two_timescale/hindsight.py",
        (
            "rows of all actions in a cell belong together",
            "group = cell * table.shape[2] + integer(steps[i, ACTION])",
            "group = cell * table.shape[2]",
            "test_hindsight.py::test_returns_and_groups_are_those_of_the_nearest_cells_and_their_greedy_actions",
        ),
    ),
    *mistakes_in(
        "agents/engine/memory.py",
        (
            "a return is cut by the action before, not by the step's own",
            "if greedy[cell] == steps[i, ACTION]:",
            "if greedy[cell] == steps[i - 1, ACTION]:",
            "test_memory.py::test_watkins_targets_are_mixed_n_step_returns",
        ),
        (
            "an episode that was cut goes on to the next one's beginning",
            "if observations[last, j] != observations.dtype.type(vector[j]):",
            "if observations[last, j] == observations.dtype.type(vector[j]):",
            "test_memory.py::test_rows_are_the_latest_of_all_trajectories",
        ),
        (
            "terminal states have values, and cut ones have none",
            "steps[row, MARK] = TERMINAL if terminated else CUT",
            "steps[row, MARK] = CUT if terminated else TERMINAL",
            "test_memory.py::test_a_step_from_where_the_last_one_led_goes_on_unless_that_was_the_end",
        ),
        (
            "new episodes are likelier to be remembered than old ones",
            "fits[1:] &= self._keys[order[1:]] < self._highest_key",
            "fits[1:] &= self._keys[order[1:]] < 1.0",
            "test_memory.py::test_new_trajectories_are_no_likelier_to_be_kept_where_long_ones_leave_room",
        ),
    ),
    # Dynamics, and copies of them.
    *mistakes_in(
        "agents/training/loops.py",
        (
            "compiled steps go on though the environment is another now",
            "if changed is None:",
            "if False:",
            "test_dynamics.py::test_what_a_callback_changes_of_the_environment_counts",
        ),
        (
            "what a callback has changed is not looked at",
            "if not course.one_by_one:",
            "if True:",
            "test_dynamics.py::test_what_a_callback_changes_of_the_environment_counts",
        ),
    ),
    *mistakes_in(
        "envs/classic_control.py",
        (
            "a square is a product",
            "square = math.pow(number, two)",
            "square = number * number",
            "test_dynamics.py::test_squares_are_numpys",
        ),
    ),
    *mistakes_in(
        "agents/engine/loop.py",
        (
            "of several environments, one is cut a step late",
            "truncated[i] = elapsed[i] >= limits[i]",
            "truncated[i] = elapsed[i] > limits[i]",
            "test_copies.py::test_compiled_steps_are_the_environments_own",
        ),
        (
            "all of several environments have the constants of the first",
            "advance(parameters[i], choices, position, actions[i])",
            "advance(parameters[0], choices, position, actions[i])",
            "test_copies.py::test_compiled_steps_are_the_environments_own",
        ),
    ),
    *mistakes_in(
        "agents/training/copies.py",
        (
            "an environment does not know where its episode has begun anew",
            "env.prev_done = self.over.copy()",
            "pass",
            "test_copies.py::test_compiled_steps_are_the_environments_own",
        ),
        (
            "a limit goes on counting after a reset",
            "self.elapsed[lanes] = 0",
            "pass",
            "test_copies.py::test_compiled_steps_are_the_environments_own",
        ),
        (
            "constants are those of the beginning, whatever a callback does",
            "same = np.array_equal(self._constants(), self._constant[0])",
            "same = True",
            "test_copies.py::test_what_a_callback_changes_of_the_environment_counts",
        ),
        (
            "an environment's own generator is tried out, too",
            "probe.np_random = np.random.default_rng(0)",
            "pass",
            "test_copies.py::test_trying_dynamics_leaves_the_environment_alone",
        ),
        (
            "dynamics are believed without a trial",
            "if kind not in _TRUSTED and _agree(env):",
            "if kind not in _TRUSTED:",
            "test_copies.py::test_dynamics_that_have_changed_are_found_out",
        ),
        (
            "an object that stands in several places is several environments",
            "len({id(own.env) for own in each}) == len(each)",
            "True",
            "test_copies.py::test_others_take_their_steps_themselves",
        ),
    ),
    # The fitted agent.
    *mistakes_in(
        "agents/engine/laws.py",
        (
            "what actions explain is not taken off",
            "moments[i, j] -= share * moments[j, c]",
            "moments[i, j] -= 0.0 * share * moments[j, c]",
            "test_laws.py::test_a_law_is_that_of_least_squares_of_what_actions_leave",
        ),
        (
            "a cause that is never there is divided by",
            "if own > _LEAST_CAUSE * moments[c, 0]:",
            "if own >= _LEAST_CAUSE * moments[c, 0]:",
            "test_laws.py::test_a_law_is_that_of_least_squares_of_what_actions_leave",
        ),
        (
            "what hardly holds counts as much as what holds exactly",
            "weight = share / (1.0 + _NOISE - share)",
            "weight = 1.0",
            "test_axes.py::test_densities_are_those_of_laws_learned_from_turned_points",
        ),
    ),
]
