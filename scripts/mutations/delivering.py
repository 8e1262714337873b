"""Mistakes that someone might make in what agents deliver, in learned worlds and in files."""

from mutations import mistakes_in

DELIVERING = [
    # Export.
    *mistakes_in(
        "agents/policies/export_c.py",
        (
            "fixed point truncates instead of rounding",
            "(steps < 0.0f ? steps - 0.5f : steps + 0.5f)",
            "steps",
            "test_export.py::test_fixed_point_rounds_observations_to_the_nearest_step",
        ),
        (
            "slopes in fixed point forget their row's shift",
            "score *= (int64_t)1 << oda_shifts[k];",
            "",
            "test_export.py::test_c_in_fixed_point[online, 2 by 3]",
        ),
    ),
    *mistakes_in(
        "agents/policies/export_c_learning.py",
        (
            "in C the traces of a cell's other actions stay",
            "learner->traces[cell][a] = a == action ? 1.0f : 0.0f;",
            "learner->traces[cell][action] = 1.0f;",
            "test_export_learning.py::test_tables_are_those_of_single_precision[as it is]",
        ),
        (
            "in C an episode that is cut off is worth nothing afterwards",
            "oda_update(learner, terminated ? reward",
            "oda_update(learner, terminated || truncated ? reward",
            "test_export_learning.py::test_tables_are_those_of_single_precision[2 by 3]",
        ),
        (
            "in C learning starts again after it has rested",
            "const int was_learning = !learner->resting;",
            "const int was_learning = 1;",
            "test_export_learning.py::test_tables_are_those_of_single_precision[content at once]",
        ),
    ),
    *mistakes_in(
        "oda_rl/exporting/c_text.py",
        (
            "the farthest cell decides",
            "if (k == 0 || score < least) {",
            "if (k == 0 || score > least) {",
            "test_export.py::test_c[online, 2 by 3]",
        ),
        (
            "constants in C have six digits",
            "{value:.9g}",
            "{value:.6g}",
            "test_export.py::test_constants_in_c_are_those_of_single_precision",
        ),
    ),
    *mistakes_in(
        "agents/policies/export_tables.py",
        (
            "slopes are truncated to 16 bits, not rounded",
            "np.rint(np.ldexp(",
            "np.trunc(np.ldexp(",
            "test_export.py::test_sixteen_bits_hold_every_number_up_to_half_a_step",
        ),
        (
            "what is equal in Python is not in C",
            "tolerance = TIE * np.abs(values).max(axis=1)",
            "tolerance = 0.0 * np.abs(values).max(axis=1)",
            "test_export.py::test_values_that_python_takes_for_equal_are_equal",
        ),
    ),
    *mistakes_in(
        "agents/policies/export.py",
        (
            "values within a tenth of each other are equal, says JSON",
            '"tie": TIE',
            '"tie": 0.1',
            "test_export.py::test_json[fitted, 2 by 3]",
        ),
        (
            "JSON without the origin of the observations",
            '"origin": cells.origin.tolist()',
            '"origin": (0.0 * cells.origin).tolist()',
            "test_export.py::test_json[online, 2 by 3]",
        ),
    ),
    # Explanations.
    *mistakes_in(
        "agents/policies/boundaries.py",
        (
            "distances to boundaries are in units of their slopes",
            "gaps[~flat] / norms[~flat]",
            "gaps[~flat]",
            "test_explain.py::test_the_distance_is_that_of_a_general_solver",
        ),
        (
            "the search ends at the first neighbour",
            "if bounds[i] >= best:",
            "if best < np.inf:",
            "test_explain.py::test_the_distance_is_that_of_a_general_solver",
        ),
    ),
    *mistakes_in(
        "agents/policies/alternatives.py",
        (
            "room for one worse cell among three, not for two",
            "np.log(2.0 * -lead[n] / lead[ahead])",
            "np.log(-lead[n] / lead[ahead])",
            "test_explain.py::test_the_lower_bound_is_tight_where_two_equal_cells_outvote_one",
        ),
    ),
    *mistakes_in(
        "agents/policies/explaining.py",
        (
            "margins of negative values are over 0",
            "rest[rows, actions] = -np.inf",
            "rest[rows, actions] = 0.0",
            "test_explain.py::test_margins",
        ),
        (
            "visits of a cell are those of one action",
            "agent.visits.sum(axis=1)",
            "agent.visits.max(axis=1)",
            "test_explain.py::test_the_overview_is_about_every_cell",
        ),
    ),
    # The agent that learns the world, and rules.
    *mistakes_in(
        "agents/policies/deciding.py",
        (
            "of equal scores the last decides in compiled loops",
            "        if score > greatest:",
            "        if score >= greatest:",
            "test_rules.py::test_of_equal_scores_the_first_decides",
        ),
        (
            "continuous actions are not clipped in compiled loops",
            "        if unit < -1.0:",
            "        if unit < -9.0:",
            "test_rules.py::test_loops_do_what_it_does_in_a_box",
        ),
    ),
    *mistakes_in(
        "agents/policies/rules.py",
        (
            "continuous actions go beyond their box",
            "np.asarray(np.clip(units, -1.0, 1.0))",
            "np.asarray(units)",
            "test_rules.py::test_it_does_what_the_oracle_does",
        ),
        (
            "the middle of a box is said to be 0",
            "    own[:, :, 0] += 0.5 * (low + high)\n",
            "",
            "test_rules.py::test_in_box_they_are_what_the_box_makes_of_units",
        ),
    ),
    *mistakes_in(
        "agents/model/counting.py",
        (
            "standard errors do not shrink with visits",
            "math.sqrt(variance / n)",
            "math.sqrt(variance)",
            "test_model_tables.py::test_standard_errors_and_doubt_enter_values",
        ),
        (
            "every surprise counts as one at the first visit",
            "edges.news[1, visits] += 1.0",
            "edges.news[1, 0] += 1.0",
            "test_model_tables.py::test_surprises_are_counted_by_visits",
        ),
    ),
    *mistakes_in(
        "agents/model/grading.py",
        (
            "the nearest degree is not that of a parabola",
            "scores[..., :1] -= degrees**2",
            "scores[..., :1] -= degrees**2 / 2.0",
            "test_grading.py::test_the_nearest_degree_of_the_cell_is_done[3]",
        ),
        (
            "ways in the plane are taken for degrees",
            "_ON_A_LINE * (sizes**2).sum()",
            "0.5 * (sizes**2).sum()",
            "test_grading.py::test_ways_in_the_plane_are_no_degrees",
        ),
    ),
    *mistakes_in(
        "agents/model/selection.py",
        (
            "a rule's own real returns do not correct what is promised of it",
            "+ (own.sum() + _PRIOR_EPISODES * bias)",
            "+ (_PRIOR_EPISODES * bias)",
            "test_model_agent.py::test_promises_that_reality_did_not_keep_do_not_win",
        ),
    ),
    *mistakes_in(
        "agents/model/episodes.py",
        (
            "episodes count for ever",
            "max(n - self.latest, 0)",
            "0",
            "test_model_agent.py::test_of_a_rules_episodes_the_latest_twenty_count",
        ),
    ),
    *mistakes_in(
        "agents/model/engine.py",
        (
            "a rule is credited with what others did in its episode",
            "[[1.0], self.box.units(action)])\n        running.whole = False",
            "[[1.0], self.box.units(action)])",
            "test_model_agent.py::test_an_action_of_ones_own_is_learned_from_and_gives_the_rule_no_credit",
        ),
        (
            "a rule is given up before several environments have ended an episode",
            "max(_PATIENCE * self._needed, self.n_lanes * self._horizon)",
            "_PATIENCE * self._needed",
            "test_model_agent.py::test_several_environments_may_end_their_episodes",
        ),
    ),
    *mistakes_in(
        "agents/distilling/simplifying.py",
        (
            "a digit too many is kept",
            "(digits - 1 - np.floor",
            "(digits - np.floor",
            "test_model_agent.py::test_rounding_keeps_significant_digits",
        ),
    ),
    *mistakes_in(
        "agents/worlds/ends.py",
        (
            "an end begins at the last state that went on",
            "sign * (top + margin * gap)",
            "sign * top",
            "test_world.py::test_a_half_space_is_found",
        ),
    ),
    *mistakes_in(
        "agents/worlds/rewards.py",
        (
            "features of rewards are in raw units",
            "z = observations / at.scale",
            "z = observations",
            "test_world.py::test_features_of_rewards_are_those_of_the_oracle",
        ),
    ),
    *mistakes_in(
        "agents/distilling/races.py",
        (
            "an incumbent falls to whoever is no worse",
            "        > _ENOUGH",
            "        > -_ENOUGH",
            "test_distilling.py::test_an_incumbent_has_to_be_beaten",
        ),
    ),
    *mistakes_in(
        "agents/distilling/fit.py",
        (
            "the gradient forgets that shares sum to 1",
            "shares * (costs - expected[:, None])",
            "shares * costs",
            "test_distilling.py::test_the_gradient_is_that_of_finite_differences",
        ),
    ),
    *mistakes_in(
        "agents/distilling/coding.py",
        (
            "of a teacher's rule the offsets are forgotten",
            "        own[..., 0] += own[..., 1:] @ self.mean\n",
            "",
            "test_distilling.py::test_a_vector_stands_for_a_rule",
        ),
    ),
    *mistakes_in(
        "agents/distilling/dreaming.py",
        (
            "worlds are climbed in that are not believed",
            " or teacher.distrust is not None",
            "",
            "test_distilling.py::test_only_worlds_that_are_believed_are_climbed_in",
        ),
    ),
    *mistakes_in(
        "agents/distilling/imitation.py",
        (
            "rules that always do the same are not refused",
            "if not constant(rule, states)]",
            "if rule]",
            "test_distilling.py::test_fits_that_always_do_the_same_are_refused",
        ),
        (
            "a teacher that is a small rule is one of many",
            "incumbent = 0 if trusted else None",
            "incumbent = None",
            "test_distilling.py::test_a_teacher_that_is_a_small_rule_has_to_be_beaten",
        ),
    ),
    *mistakes_in(
        "agents/distilling/playing.py",
        (
            "more steps than are left are allowed",
            "min(self.steps + int(steps), self.most)",
            "self.steps + int(steps)",
            "test_distilling.py::test_an_episode_is_cut_where_steps_end",
        ),
    ),
    *mistakes_in(
        "agents/distilling/pruning.py",
        (
            "few episodes confirm that less is enough",
            "len(before) >= _LEAST_CONFIRMING",
            "len(before) >= 1",
            "test_distilling.py::test_pruning_has_to_be_confirmed_from_fresh_starts",
        ),
    ),
    *mistakes_in(
        "agents/distilling/distil.py",
        (
            "a rule is worse only if it is by nine standard errors",
            "bool(change.mean() < -standard_error(change))",
            "bool(change.mean() < -9.0 * standard_error(change))",
            "test_distilling.py::test_a_rule_is_worse_by_more_than_a_standard_error",
        ),
        (
            "the largest within a standard error is taken",
            "    for one in tried:\n        change = _change(one.returns, best.returns)",
            "    for one in tried[::-1]:\n        change = _change(one.returns, best.returns)",
            "test_distilling.py::test_the_smallest_within_a_standard_error_of_the_best_is_taken",
        ),
    ),
    # Interruption.
    *mistakes_in(
        "agents/training/loops.py",
        (
            "a resumed loop chooses again",
            "engine.chosen if course.chosen else engine.act",
            "engine.act",
            "test_checkpoints.py::test_after_ctrl_c_a_training_is_resumed",
        ),
        (
            "where a loop is in the midst of is not noted",
            "course.at(steps, own[3])",
            "course.at(steps, course.observation)",
            "test_run_folders.py::test_a_killed_training_is_resumed",
        ),
    ),
    *mistakes_in(
        "agents/training/player.py",
        (
            "the environment of a loaded agent begins anew",
            "            set_generator(env, state)\n",
            "",
            "test_checkpoints.py::test_learning_after_a_load_is_the_same_as_going_on",
        ),
    ),
    *mistakes_in(
        "agents/training/interrupts.py",
        (
            "a second Ctrl-C is noted, too",
            "if interrupt.requested:",
            "if False:",
            "test_checkpoints.py::test_a_second_ctrl_c_stops_also_where_the_shell_ignores_it",
        ),
        (
            "SIGHUP ends a training under nohup",
            "if signal.getsignal(one) is not signal.SIG_IGN",
            "if one",
            "test_checkpoints.py::test_under_nohup_a_closed_window_ends_nothing",
        ),
    ),
    *mistakes_in(
        "oda_rl/_lock.py",
        (
            "a child goes on holding a lock",
            "after_in_child=_close_in_child",
            "after_in_child=int",
            "test_checkpoints.py::test_a_lock_ends_with_its_process",
        ),
    ),
    *mistakes_in(
        "agents/training/files.py",
        (
            "what is of the agent before stays in a folder",
            "for name in OF_AGENT[1:]:",
            "for name in ():",
            "test_run_folders.py::test_a_save_removes_what_is_of_the_agent_before",
        ),
    ),
    *mistakes_in(
        "oda_rl/command/training.py",
        (
            "what fails takes what was learned with it",
            "        if agent.num_timesteps > 0:\n            _save",
            "        if False:\n            _save",
            "test_run_folders.py::test_when_the_environment_fails_the_agent_is_saved_first",
        ),
    ),
    # Files.
    *mistakes_in(
        "oda_rl/persistence.py",
        (
            "checksums are looked at too late",
            "while entry.read(_PART):",
            "while False:",
            "test_files.py::test_the_whole_file_is_checked_before_any_array_is_used",
        ),
        (
            "sizes in headers are believed",
            "require(size == info.file_size,",
            "require(size,",
            "test_files.py::test_zips_that_cannot_be_are_refused",
        ),
        (
            "objects are written",
            "np.asarray(array), allow_pickle=False",
            "np.asarray(array), allow_pickle=not False",
            "test_saving.py::test_objects_are_not_written",
        ),
        (
            "a failed save leaves its temporary file behind",
            "        os.unlink(name)\n",
            "",
            "test_saving.py::test_a_failed_save_leaves_the_old_file",
        ),
    ),
    *mistakes_in(
        "oda_rl/_schema.py",
        (
            "the end of a range belongs to it",
            "if self.closed[1] else values < high",
            "",
            "test_files.py::test_spans_say_what_belongs_to_them",
        ),
    ),
    *mistakes_in(
        "agents/training/files.py",
        (
            "files of another format are read",
            " or type(form) is not int or not _OLDEST <= form <= _FORMAT",
            "",
            "test_saving.py::test_missing_and_damaged_files",
        ),
    ),
    *mistakes_in(
        "oda_rl/filing/files.py",
        (
            "any class may come out of a file",
            "if classes.get(name) is type(value):",
            "if True:",
            "test_estimator_parts.py::test_files_hold_what_was_written_and_nothing_else",
        ),
    ),
    # Environments.
    *mistakes_in(
        "envs/cartpole.py",
        (
            "friction pushes the cart on",
            "- parameters[FRICTION_CART] * direction",
            "+ parameters[FRICTION_CART] * direction",
            "test_cartpole.py::test_dynamics_agree_with_the_oracle_at_random_states",
        ),
        (
            "the pole may fall",
            "| (abs(theta) > theta_limit)",
            "",
            "test_cartpole.py::test_dynamics_agree_with_the_oracle_over_random_play",
        ),
        (
            "standing still counts as moving left",
            "elif x_dot < 0.0:",
            "else:",
            "test_cartpole.py::test_dynamics_agree_with_the_oracle_at_random_states",
        ),
    ),
]
