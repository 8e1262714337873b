"""Mistakes that someone might make in agents that learn by fits, and in what all agents share."""

from mutations import mistakes_in

FITTING = [
    *mistakes_in(
        "agents/fitting/placement.py",
        (
            "power 1/4 of the learned metric instead of 1/2",
            "_METRIC_POWER = 0.5",
            "_METRIC_POWER = 0.25",
            "test_fitting.py::test_cells_are_measured_by_the_learned_metric_itself",
        ),
        (
            "a level further where there are too few rows for it",
            "(1 + d) * _ROWS_PER_NUMBER > n",
            "(1 + d) > n",
            "test_advantages.py::test_the_baseline_has_more_levels_in_many_dimensions_if_there_are_rows_enough",
        ),
        (
            "threads write scores to the same columns",
            "own = [(search.copy(), cells, weights) for",
            "own = [(search, cells, weights) for",
            "test_advantages.py::test_rows_that_are_divided_among_threads_are_assigned_to_the_same_bits",
        ),
        (
            "more levels in few dimensions, too",
            "many = d > _FEW_DIMENSIONS",
            "many = d > 1",
            "test_advantages.py::test_the_baseline_has_more_levels_in_many_dimensions_if_there_are_rows_enough",
        ),
    ),
    *mistakes_in(
        "oda_rl/eights/three.py",
        (
            "a cell that is just within the bound does not count",
            'fcmp_ordered("<=", found',
            'fcmp_ordered("<", found',
            "test_nearest.py::test_cells_are_the_nearest_to_the_last_bit",
        ),
    ),
    *mistakes_in(
        "agents/fitting/blending.py",
        (
            "the last number of a row counts for nothing",
            "add(WORD(whole), others + 1)",
            "add(WORD(whole), others)",
            "test_advantages.py::test_each_part_is_fitted_to_what_the_other_leaves",
        ),
    ),
    *mistakes_in(
        "agents/fitting/placed.py",
        (
            "the last row is taken for one that stays what it is",
            "self._settled, self._n = moments, settled, n",
            "self._settled, self._n = moments, n, n",
            "test_advantages.py::test_rows_that_are_known_are_not_assigned_again_and_the_bits_are_the_same",
        ),
        (
            "rows that may change are added for good",
            "moments = Moments(*(one.copy() for one in moments))",
            "moments = Moments(*moments)",
            "test_advantages.py::test_rows_that_are_known_are_not_assigned_again_and_the_bits_are_the_same",
        ),
    ),
    *mistakes_in(
        "agents/fitting/one_piece.py",
        (
            "λ and 1 - λ are exchanged in the targets",
            "(1.0 - trace_decay) * next_value + trace_decay * next_return",
            "trace_decay * next_value + (1.0 - trace_decay) * next_return",
            "test_fitting.py::test_one_sweep_is_values_then_watkins_returns_then_sums",
        ),
        (
            "returns go on through actions that were not greedy",
            "best == labels[i, 0]",
            "best >= 0",
            "test_fitting.py::test_one_sweep_is_values_then_watkins_returns_then_sums",
        ),
        (
            "values are not clipped from above",
            "elif value > high:",
            "elif value > 1e9:",
            "test_fitting.py::test_one_sweep_is_values_then_watkins_returns_then_sums",
        ),
    ),
    *mistakes_in(
        "agents/fitting/regression.py",
        (
            "the prior of slopes does not know the dimension",
            "10.0 * at.width / d",
            "10.0 * at.width",
            "test_fitting.py::test_each_cells_model_minimises_the_objective",
        ),
        (
            "an action that was not tried is worth nothing",
            "self._prior = belief.weight * belief.prior",
            "self._prior = 0.0",
            "test_fitting.py::test_actions_that_were_not_tried_are_worth_the_best_return",
        ),
    ),
    *mistakes_in(
        "agents/fitting/advantages.py",
        (
            "the baseline is fitted to all of the returns",
            "near_weights, i, target - taken, sums)",
            "near_weights, i, target, sums)",
            "test_advantages.py::test_each_part_is_fitted_to_what_the_other_leaves",
        ),
        (
            "advantages are fitted to all of the returns",
            "left, action = targets[i] - value, unsigned",
            "left, action = targets[i], unsigned",
            "test_advantages.py::test_what_a_state_explains_is_not_taken_for_an_action",
        ),
        (
            "returns go on through actions that were not greedy",
            "future = beyond if taken == largest else value",
            "future = beyond",
            "test_advantages.py::test_a_sweep_is_values_then_watkins_returns_then_what_advantages_leave",
        ),
        (
            "advantages are not shrunken",
            "_SHRINKAGE = 5.0",
            "_SHRINKAGE = 1e-9",
            "test_advantages.py::test_each_part_is_fitted_to_what_the_other_leaves",
        ),
        (
            "values leave out the baseline",
            "baseline[i] + largest, reach.low",
            "largest, reach.low",
            "test_advantages.py::test_a_sweep_is_values_then_watkins_returns_then_what_advantages_leave",
        ),
        (
            "what a state is worth has no slope in a cell of the policy",
            "theta = np.column_stack([level.theta[:, :1] + advantages, level.theta[:, 1:]])",
            "theta = np.column_stack([level.theta[:, :1] + advantages, 0.0 * level.theta[:, 1:]])",
            "test_advantages.py::test_each_part_is_fitted_to_what_the_other_leaves",
        ),
    ),
    *mistakes_in(
        "oda_rl/annealing/placing.py",
        (
            "split cells stand twice as far apart",
            "_SHIFT = 0.05",
            "_SHIFT = 0.1",
            "test_fitting.py::test_split_cells_stand_apart_in_units_of_what_is_left_of_the_variance",
        ),
        (
            "the temperature begins at the variance, not at twice that",
            "temperature, coldest = 2.0 * variance,",
            "temperature, coldest = variance,",
            "test_fitting.py::test_split_cells_stand_apart_in_units_of_what_is_left_of_the_variance",
        ),
    ),
    *mistakes_in(
        "agents/engine/contests.py",
        (
            "the policy with the best mean is delivered, however few its episodes",
            "self.mean - spread / math.sqrt(self.n)",
            "self.mean",
            "test_fitted.py::test_a_policy_of_one_episode_has_to_be_better_by_the_difference_of_the_errors",
        ),
        (
            "running episodes say nothing about a policy",
            "trial.solved + trial.failed + running",
            "trial.solved + trial.failed",
            "test_vector.py::test_the_policy_that_solves_first_is_kept_until_too_many_fail",
        ),
    ),
    *mistakes_in(
        "agents/fitted/schemes.py",
        (
            "so many random decisions a step, not an episode",
            "decisions / self.mean_length",
            "decisions",
            "test_fitted.py::test_so_many_random_decisions_an_episode",
        ),
        (
            "schemes are compared by all episodes, also those of none",
            "if played[i] not in (NONE, NOVELTY))",
            "if played[i] != NOVELTY)",
            "test_schemes.py::test_only_ranks_of_explored_episodes_count",
        ),
        (
            "the best scheme by its mean rank, without chance",
            "_DEVIATION / math.sqrt(count)",
            "0.0 / math.sqrt(count)",
            "test_schemes.py::test_schemes_that_cost_nothing_take_turns_alike",
        ),
        (
            "no episode looks for what is new",
            "rng.random() < _NOVEL",
            "rng.random() < 0.0",
            "test_schemes.py::test_what_every_step_towards_costs_is_found",
        ),
        (
            "what was done often is as new as what was not",
            "1.0 / np.sqrt(visits[done[going]])",
            "1.0",
            "test_schemes.py::test_novelty_leads_where_least_was_done",
        ),
    ),
    *mistakes_in(
        "agents/fitted/timing.py",
        (
            "fits are as frequent in many environments as in one",
            "most = self._share(self.config.refit_every)",
            "most = self.config.refit_every * self.steps",
            "test_vector.py::test_fits_are_rarer_where_many_environments_have_taken_many_steps",
        ),
        (
            "cells are placed as often in many environments as in one",
            ">= self._share(_PLACED_ANEW)",
            ">= _PLACED_ANEW * self.steps",
            "test_vector.py::test_fits_are_rarer_where_many_environments_have_taken_many_steps",
        ),
        (
            "sweeps go as far in many environments as in one",
            "if self._many < _ROUGH_FROM or",
            "if self._many >= 0.0 or",
            "test_vector.py::test_sweeps_end_sooner_where_many_environments_have_taken_many_steps",
        ),
        (
            "a refit comes after the lesser of 100 steps and a tenth of all",
            "max(self.config.least_refit, played)",
            "min(self.config.least_refit, played)",
            "test_fitted.py::test_it_fits_anew_after_a_tenth_more_steps_or_half_of_that_in_five_episodes",
        ),
        (
            "a refit comes no sooner where episodes are short",
            "_SOONER * most",
            "most",
            "test_fitted.py::test_it_fits_anew_after_a_tenth_more_steps_or_half_of_that_in_five_episodes",
        ),
    ),
    *mistakes_in(
        "agents/fitted/engine.py",
        (
            "what is known of rows is kept when rows are dropped",
            "ended = ended[:0]",
            "pass",
            "test_moves.py::test_what_is_known_of_rows_is_what_would_be_found_out[60]",
        ),
        (
            "what is known of rows is kept when steps are forgotten",
            "            self._running.moves.forget()",
            "            pass",
            "test_moves.py::test_what_is_known_of_rows_is_what_would_be_found_out[None]",
        ),
        (
            "sweeps go as far as one is told, also after many steps",
            "self._placed_among(seen), self._timing.settings",
            "self._placed_among(seen), self.config",
            "test_vector.py::test_64_environments_end_sweeps_sooner_from_25_000_steps_on",
        ),
        (
            "rows of running episodes are settled where no other ones are",
            "Since(max(n - 1, 0), ",
            "Since(len(seen.steps) - 1, ",
            "test_vector.py::test_at_the_first_fit_no_row_need_be_settled",
        ),
        (
            "an episode that a refit fell into counts for the new policy",
            "(self._playing.record, self._playing.scheme) if whole else (None, schemes.NONE)",
            "(self._playing.record, self._playing.scheme)",
            "test_fitted.py::test_an_episode_into_which_a_refit_fell_is_nobodys",
        ),
        (
            "an episode that looks for what is new counts for the newest policy",
            "policy, record = self._curious, None",
            "policy = self._curious",
            "test_schemes.py::test_episodes_of_novelty_count_for_no_policy_and_are_saved",
        ),
    ),
    *mistakes_in(
        "agents/fitted/changes.py",
        (
            "what is kept after a change begins before it",
            "            return sizes[max(i - 1, 0)]",
            "            return sizes[i]",
            "test_forgetting.py::test_steps_from_before_a_change_are_told_and_others_are_not",
        ),
        (
            "means are compared by the standard error of one of them",
            "math.sqrt(1.0 / now.n + 1.0 / before.n)",
            "math.sqrt(1.0 / now.n)",
            "test_forgetting.py::test_returns_are_compared_by_what_they_scatter",
        ),
        (
            "old steps of a stretch are counted from its beginning",
            "among = begin + np.flatnonzero(actions == action)",
            "among = np.flatnonzero(actions == action)",
            "test_forgetting.py::test_nearest_steps_are_those_of_the_oracle",
        ),
        (
            "new steps are compared with those of their own trajectory",
            "barred |= np.equal.outer(",
            "barred &= np.equal.outer(",
            "test_forgetting.py::test_nearest_steps_are_those_of_the_oracle",
        ),
    ),
    *mistakes_in(
        "oda_rl/eights/distances.py",
        (
            "of the nearest one it is forgotten in which eight it is",
            "which[i] = WIDTH * block + first_of(found)",
            "which[i] = first_of(found)",
            "test_nearest.py::test_the_nearest_one_to_the_last_bit",
        ),
    ),
    *mistakes_in(
        "agents/fitted/lanes.py",
        (
            "after a draw it goes on with the environment of that number",
            "            return event, t",
            "            return event, i",
            "test_played.py::test_environments_choose_in_the_order_of_their_policies",
        ),
    ),
    *mistakes_in(
        "agents/fitted/moves.py",
        (
            "an episode that has ended is not found again",
            "self._ended.append((first, min(known, n_rows), to))",
            "self._ended.append((first, 0, to))",
            "test_moves.py::test_rows_are_found_where_they_were",
        ),
        (
            "rows after those that were known are taken for known ones",
            "within < known.repeat(sizes)",
            "within < sizes.repeat(sizes)",
            "test_moves.py::test_rows_are_found_where_they_were",
        ),
        (
            "after its end a trajectory is known in the next one",
            "        self._at[lane] = 0",
            "        pass",
            "test_moves.py::test_rows_are_found_where_they_were",
        ),
    ),
    *mistakes_in(
        "agents/fitted/played.py",
        (
            "environments choose one after the other, whatever they play",
            "            self._set_order()\n        epsilons",
            "        epsilons",
            "test_played.py::test_environments_choose_in_the_order_of_their_policies",
        ),
        (
            "a policy takes the place of one that is played",
            ".difference(self.turns.places.tolist())",
            "",
            "test_played.py::test_tables_have_the_policies_that_environments_play",
        ),
        (
            "a larger policy is written where there is no room",
            "if place < count and policy.n_cells <= cells:",
            "if place < count:",
            "test_played.py::test_tables_have_the_policies_that_environments_play",
        ),
    ),
    *mistakes_in(
        "agents/fitted/replay.py",
        (
            "lots are drawn among equals without exploration, too",
            "(1.0 - epsilon) if epsilon > 0.0 else 0.0",
            "(1.0 - epsilon)",
            "test_fitted.py::test_equals_are_drawn_by_lot_only_while_the_agent_explores",
        ),
        (
            "a random action is held once more than 1/U steps",
            "if share > least else least)) - 1",
            "if share > least else least))",
            "test_fitted.py::test_random_actions_are_held_for_one_over_a_uniform_number_of_steps",
        ),
        (
            "an action is held beyond the end of an episode",
            "        lane.held = 0\n",
            "",
            "test_fitted.py::test_no_action_is_held_beyond_the_end_of_an_episode",
        ),
    ),
    *mistakes_in(
        "agents/policies/table.py",
        (
            "the later of equal actions is greedy",
            "if values[cell, action] > values[cell, best]:",
            "if values[cell, action] >= values[cell, best]:",
            "test_qlearning.py::test_q_lambda_is_watkins",
        ),
    ),
    *mistakes_in(
        "agents/policies/cells.py",
        (
            "the third cell's weight is relative to the second",
            "far = math.exp((a - c) / width)",
            "far = math.exp((b - c) / width)",
            "test_cell_policy.py::test_values_are_those_of_the_three_nearest_cells",
        ),
        (
            "the first of equal actions is always taken",
            "chosen = integer(uniform * equals)",
            "chosen = 0",
            "test_cell_policy.py::test_ties_are_broken_evenly_by_the_number_that_is_given",
        ),
    ),
    # Several environments.
    *mistakes_in(
        "agents/training/vector.py",
        (
            "an episode's last observation is the next one's first",
            "after[lane] = self._interface",
            "points[lane] = self._interface",
            "test_vector.py::test_every_step_is_learned_from_once",
        ),
    ),
    *mistakes_in(
        "agents/two_timescale/lanes.py",
        (
            "the first to fail of many says as much as the others",
            "return bool(2 * longer >= n)",
            "return False",
            "test_vector.py::test_the_first_to_end_says_little",
        ),
        (
            "environments share one return",
            "lane = lane_of(raw, i)",
            "lane = lane_of(raw, 0)",
            "test_vector.py::test_every_step_is_learned_from_once",
        ),
    ),
    *mistakes_in(
        "agents/fitted/laned.py",
        (
            "no environment waits for the end of a random episode",
            "waits = other.epsilon >= 1.0 and lane % 2 == 1",
            "waits = False",
            "test_vector.py::test_many_environments_find_a_goal_that_is_far_away",
        ),
    ),
]
