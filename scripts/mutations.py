"""Mistakes that someone might make, each with the tests that must notice it; see ``mutate.py``.

To add one, choose a short ``old`` that occurs once in its file, so that edits around it do not
matter, and the narrowest test that is about what is broken: if another test notices by accident,
that is a reason to write one. A change that changes nothing anyone could see is of no use here.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    """A small mistake on purpose."""

    file: str
    old: str
    """Occurs once in the file."""
    new: str
    tests: tuple[str, ...]
    """Each of them fails under the change."""
    about: str
    """In words, for the table."""


def _of(file: str, *changes: tuple[str, str, str, str]) -> list[Mutation]:
    """Return changes of one file, each as (words, old, new, test)."""
    return [
        Mutation(file, old, new, (f"tests/{test}",), about) for about, old, new, test in changes
    ]


MUTATIONS = [
    # The online agent.
    *_of(
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
            "test_qlearning.py::test_solved_episodes_freeze_and_a_short_one_sets_learning_again",
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
    *_of(
        "agents/two_timescale/engine.py",
        (
            "power 1/2 of the learned metric instead of 1/4",
            "_METRIC_POWER = 0.25",
            "_METRIC_POWER = 0.5",
            "test_two_timescale.py::test_cells_are_measured_by_the_fourth_root_of_the_learned_metric",
        ),
        (
            "the metric is learned from targets of one step",
            "_METRIC_TRACE_DECAY = 0.9",
            "_METRIC_TRACE_DECAY = 0.0",
            "test_two_timescale.py::test_the_metric_is_that_of_watkins_returns_of_the_latest_transitions",
        ),
        (
            "cells are scaled to a total variance of 1",
            "_TOTAL_VARIANCE = 2.0",
            "_TOTAL_VARIANCE = 1.0",
            "test_two_timescale.py::test_cells_are_scaled_to_a_total_variance_of_2_in_every_metric",
        ),
    ),
    *_of(
        "agents/partitions/oda.py",
        (
            "children inherit from the neighbour in the list",
            "np.concatenate([lineage, lineage])",
            "np.repeat(lineage, 2, axis=0)",
            "test_partitions.py::test_a_level_of_cells_is_the_papers_recursion_and_children_follow_their_parents",
        ),
        (
            "a split is by so much in raw units",
            "noise @ self._spread.T",
            "noise",
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
    *_of(
        "agents/engine/memory.py",
        (
            "a return is cut by the action before, not by the step's own",
            "if greedy[i] == steps[i, ACTION]:",
            "if greedy[i - 1] == steps[i - 1, ACTION]:",
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
    # The fitted agent.
    *_of(
        "agents/fitted/fitting.py",
        (
            "power 1/4 of the learned metric instead of 1/2",
            "_METRIC_POWER = 0.5",
            "_METRIC_POWER = 0.25",
            "test_fitting.py::test_cells_are_measured_by_the_learned_metric_itself",
        ),
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
        (
            "the prior of slopes does not know the dimension",
            "10.0 * at.width / d",
            "10.0 * at.width",
            "test_fitting.py::test_each_cells_model_minimises_the_objective",
        ),
        (
            "an action that was not tried is worth nothing",
            "self._prior = config.optimism * optimum",
            "self._prior = 0.0",
            "test_fitting.py::test_actions_that_were_not_tried_are_worth_the_best_return",
        ),
    ),
    *_of(
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
    *_of(
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
    *_of(
        "agents/fitted/engine.py",
        (
            "a refit comes after the lesser of 100 steps and a tenth of all",
            "max(self.config.least_refit, self.config.refit_every * n)",
            "min(self.config.least_refit, self.config.refit_every * n)",
            "test_fitted.py::test_it_fits_anew_after_a_tenth_more_steps_at_the_end_of_an_episode",
        ),
        (
            "so many random decisions a step, not an episode",
            "min(1.0, self.config.exploration / length)",
            "min(1.0, self.config.exploration)",
            "test_fitted.py::test_so_many_random_decisions_an_episode",
        ),
        (
            "an episode that a refit fell into counts for the new policy",
            "self._playing.record if whole else None",
            "self._playing.record",
            "test_fitted.py::test_an_episode_into_which_a_refit_fell_is_nobodys",
        ),
    ),
    *_of(
        "agents/fitted/replay.py",
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
    *_of(
        "agents/policies/table.py",
        (
            "the later of equal actions is greedy",
            "if values[cell, action] > values[cell, best]:",
            "if values[cell, action] >= values[cell, best]:",
            "test_qlearning.py::test_q_lambda_is_watkins",
        ),
    ),
    *_of(
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
    *_of(
        "agents/engine/vector.py",
        (
            "an episode's last observation is the next one's first",
            "after[lane] = self._interface",
            "points[lane] = self._interface",
            "test_vector.py::test_every_step_is_learned_from_once",
        ),
    ),
    *_of(
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
    # Annealing.
    *_of(
        "agents/partitions/schedule.py",
        (
            "the first sample of a level has step size 1",
            "1.0 / (samples + 1.0)",
            "1.0 / samples",
            "test_partitions.py::test_a_level_of_cells_is_the_papers_recursion_and_children_follow_their_parents",
        ),
    ),
    *_of(
        "oda_rl/annealing/cells.py",
        (
            "Gibbs weights at twice the temperature",
            "math.exp((smallest - weights[k]) / temperature)",
            "math.exp((smallest - weights[k]) / (2.0 * temperature))",
            "test_annealing.py::test_observe_is_the_papers_recursion",
        ),
        (
            "masses grow and never shrink",
            "cells[k, 0] * (1.0 - step_size) + share",
            "cells[k, 0] + share",
            "test_annealing.py::test_observe_is_the_papers_recursion",
        ),
        (
            "nothing of a level's samples is forgotten",
            "1.0 / (t + 2.0) if 2 * t + 4 < m else 2.0 / m",
            "1.0 / (t + 2.0)",
            "test_annealing.py::test_settling_forgets_the_first_half",
        ),
        (
            "the first cell always remains, not the heaviest",
            "alive[cells[:n_cells, 0].argmax()] = True",
            "alive[0] = True",
            "test_annealing.py::test_prune_drops_light_cells_but_not_the_last",
        ),
        (
            "merged cells meet nearer to the lighter one",
            "share = masses[second] / mass",
            "share = masses[first] / mass",
            "test_annealing.py::test_merge_takes_the_weighted_mean",
        ),
        (
            "both halves of a split have the whole mass",
            "cells[:n_cells, 0] *= 0.5",
            "cells[:n_cells, 0] *= 1.0",
            "test_annealing.py::test_split_halves_mass_and_keeps_the_mean",
        ),
    ),
    *_of(
        "oda_rl/annealing/annealer.py",
        (
            "split codevectors stand twice as far apart",
            "_SHIFT = 0.1",
            "_SHIFT = 0.2",
            "test_estimator_parts.py::test_split_codevectors_stand_apart_in_units_of_the_temperature",
        ),
        (
            "codevectors merge at a third of the distance",
            "_MERGE = 0.3",
            "_MERGE = 0.1",
            "test_estimator_parts.py::test_codevectors_closer_than_the_root_of_a_third_of_the_temperature_are_one",
        ),
        (
            "codevectors of a thousandth of the mass are dropped",
            "_MIN_MASS = 1e-5",
            "_MIN_MASS = 1e-3",
            "test_estimator_parts.py::test_codevectors_that_stand_for_next_to_nothing_are_dropped",
        ),
        (
            "the first temperature is the variance, not twice that",
            "2.0 * float(spreads.max())",
            "float(spreads.max())",
            "test_estimator_parts.py::test_levels_begin_at_twice_the_variance_and_cool_by_the_factor",
        ),
        (
            "the temperature of every level falls as that of a full codebook",
            "_FROZEN_COOLING if frozen else self.schedule.cooling",
            "_FROZEN_COOLING",
            "test_estimator_parts.py::test_levels_begin_at_twice_the_variance_and_cool_by_the_factor",
        ),
    ),
    *_of(
        "oda_rl/annealing/codebook.py",
        (
            "a sample moves the codevectors of all classes",
            "begin, end = layout.owners[c], layout.owners[c + 1]",
            "begin, end = layout.owners[0], layout.owners[-1]",
            "test_codebook.py::test_learn_is_the_papers_recursion_for_every_class",
        ),
        (
            "step sizes count samples, not their weights",
            "stage.clocks[c] += weight",
            "stage.clocks[c] += 1.0",
            "test_codebook.py::test_learn_is_the_papers_recursion_for_every_class",
        ),
        (
            "the Itakura-Saito diagram lacks its constant",
            "math.log(value) - 1.0",
            "math.log(value)",
            "test_codebook.py::test_the_diagram_keeps_in_step",
        ),
    ),
    *_of(
        "oda_rl/quantization/batch_annealing.py",
        (
            "split codevectors stand ten times as far apart",
            "_SHIFT = 0.1",
            "_SHIFT = 1.0",
            "test_quantization.py::test_batch_annealing_splits_by_a_tenth_of_the_root_of_the_temperature",
        ),
    ),
    *_of(
        "oda_rl/annealing/merging.py",
        (
            "Ward's cost without the masses",
            "1.0 / (1.0 / masses[:, None] + 1.0 / masses)",
            "1.0",
            "test_refinement.py::test_ward_is_brute_force",
        ),
    ),
    *_of(
        "oda_rl/quantization/kernels.py",
        (
            "LVQ1 attracts the wrong class",
            "if labels[winner] != targets[i]:",
            "if labels[winner] == targets[i]:",
            "test_quantization.py::test_kernels_are_the_obvious_loops",
        ),
    ),
    # Divergences and the metric.
    *_of(
        "oda_rl/divergences.py",
        (
            "the Mahalanobis distance with the factor's transpose",
            "points @ self._root",
            "points @ self._root.T",
            "test_divergences.py::test_between_and_rowwise_are_the_formula",
        ),
        (
            "the gradient of the Itakura-Saito potential has the wrong sign",
            "return -1.0 / np.maximum(points, TINY)",
            "return 1.0 / np.maximum(points, TINY)",
            "test_divergences.py::test_between_and_rowwise_are_the_formula",
        ),
    ),
    *_of(
        "oda_rl/metric.py",
        (
            "gradients from half as many points",
            "counts[:, 0] >= 2 * (d + 1)",
            "counts[:, 0] >= d + 1",
            "test_metric.py::test_small_and_negative_groups_are_left_out",
        ),
        (
            "the metric is a sum over all fits",
            "0.5 * (old + new)",
            "old + new",
            "test_metric.py::test_average_has_trace_d_and_remembers_half",
        ),
        (
            "the root of the root",
            "np.maximum(eigenvalues, 0.0) ** power",
            "np.maximum(eigenvalues, 0.0) ** (0.5 * power)",
            "test_metric.py::test_root_to_the_power_is_the_regularised_metric",
        ),
        (
            "gradients are not weighed by their number of points",
            "counts[large] * gradients",
            "gradients",
            "test_metric.py::test_outer_product_is_that_of_a_ridge_regression_in_each_group",
        ),
    ),
    # Mixtures.
    *_of(
        "oda_rl/mixtures/gradients.py",
        (
            "the gradient of a precision is linear in the distance",
            "(1.0 / root - root * gap * gap)",
            "(1.0 / root - root * gap)",
            "test_mixtures.py::test_gradient_steps_are_those_of_finite_differences",
        ),
        (
            "the gradient of the weights forgets their sum",
            "math.exp(each * (g - weights[k]))",
            "math.exp(each * g)",
            "test_mixtures.py::test_gradient_steps_are_those_of_finite_differences",
        ),
    ),
    *_of(
        "oda_rl/mixtures/em.py",
        (
            "precisions are not bounded",
            "min(max(p, low), high)",
            "max(p, low)",
            "test_mixtures.py::test_precisions_rise_to_their_bound_and_no_further",
        ),
        (
            "a covariance takes in all of a sample, not its share",
            "(one + a * p * (gap * gap))",
            "(one + p * (gap * gap))",
            "test_mixtures.py::test_absorbing_is_a_step_of_stochastic_em",
        ),
    ),
    *_of(
        "oda_rl/mixtures/updates.py",
        (
            "the smoothed loss never becomes stationary",
            "increase < rules.delta * max(since_start, 0.0)",
            "increase < -rules.delta * max(since_start, 0.0)",
            "test_mixtures.py::test_the_neighbourhood_narrows_when_a_period_brings_little",
        ),
    ),
    *_of(
        "oda_rl/mixtures/learning.py",
        (
            "the neighbourhood is √2 times as narrow",
            "np.exp(-0.5 *",
            "np.exp(-1.0 *",
            "test_mixtures.py::test_the_grid_is_a_periodic_gaussian",
        ),
        (
            "the neighbourhood ends at the grid's edge",
            "np.minimum(steps, n - steps)",
            "steps",
            "test_mixtures.py::test_the_grid_is_a_periodic_gaussian",
        ),
        (
            "tempering ends at once",
            "rules.tempered * rules.period",
            "rules.tempered",
            "test_mixtures.py::test_responsibilities_are_tempered_until_components_have_found_their_places",
        ),
    ),
    *_of(
        "oda_rl/mixtures/distances.py",
        (
            "the determinant in place of its root",
            "0.5 * (total + math.log(product))",
            "(total + math.log(product))",
            "test_mixtures.py::test_densities_are_those_of_scipy",
        ),
    ),
    # Exemplars.
    *_of(
        "oda_rl/exemplars/column_generation.py",
        (
            "the duality gap of the likelihood is halved",
            "math.log1p(excess)",
            "math.log1p(excess) / 2.0",
            "test_infex.py::test_the_gap_is_what_is_missed_where_the_bound_is_tight",
        ),
        (
            "the duality gap is that of twice the height",
            "max(height - found.bound, 0.0)",
            "max(2.0 * height - found.bound, 0.0)",
            "test_infex.py::test_the_gap_of_discs_is_what_a_disc_over_all_samples_adds",
        ),
    ),
    *_of(
        "oda_rl/exemplars/pricing.py",
        (
            "the volume of Epanechnikov's kernel",
            "math.log(2.0 / (d + 2.0))",
            "math.log(1.0 / (d + 2.0))",
            "test_infex.py::test_density_responses_and_samples_agree[epanechnikov]",
        ),
        (
            "exemplars are one within the root of the distance",
            "_lead(points, radius * radius, chosen)",
            "_lead(points, radius, chosen)",
            "test_infex.py::test_leaders_are_apart_and_all_are_near_one",
        ),
    ),
    *_of(
        "oda_rl/exemplars/budget.py",
        (
            "the gap of a bounded number leaves out what could be gained beyond",
            "found.value + found.gap - value",
            "found.gap",
            "test_infex.py::test_the_gap_of_one_exemplar_for_two_places_is_what_two_would_gain",
        ),
        (
            "the gap of a bounded mixture is halved",
            "max(float(density.mean() + worth[0]) - value, 0.0)",
            "max(float(density.mean() + worth[0]) - value, 0.0) / 2.0",
            "test_infex.py::test_one_exemplar_between_two_places_misses_its_whole_gap",
        ),
    ),
    *_of(
        "oda_rl/exemplars/weights.py",
        (
            "the price of spread has the wrong sign",
            "1.0 - 2.0 * penalty * (combined - combined.mean())",
            "1.0 + 2.0 * penalty * (combined - combined.mean())",
            "test_infex.py::test_weights_are_those_of_clarabel[60-20-mean_variance]",
        ),
        (
            "prices are not divided by the number of samples",
            "1.0 / (n * combined), 1.0",
            "1.0 / combined, 1.0",
            "test_infex.py::test_the_gap_of_convex_clustering_is_that_of_the_dearest_sample",
        ),
    ),
    *_of(
        "oda_rl/exemplars/base.py",
        (
            "the exponent of the bandwidth's rule",
            "-1.0 / (d + 4.0)",
            "-1.0 / (d + 2.0)",
            "test_infex.py::test_bandwidth_rules_have_scipys_factors",
        ),
        (
            "Silverman's factor",
            "n * (d + 2.0) / 4.0",
            "n * (d + 4.0) / 4.0",
            "test_infex.py::test_bandwidth_rules_have_scipys_factors",
        ),
    ),
    # Trees and maps.
    *_of(
        "oda_rl/trees/growth.py",
        (
            "a leaf's probabilities lean on themselves, not on the parent",
            "shares[self.parents[own]]",
            "shares[own]",
            "test_tree.py::test_leaf_probabilities_lean_on_the_parent",
        ),
        (
            "nodes of one class are divided",
            "and not pure",
            "",
            "test_tree.py::test_pure_and_small_cells_are_not_divided",
        ),
    ),
    *_of(
        "oda_rl/quantization/neighbourhood.py",
        (
            "the map's neighbourhood is √2 times as narrow",
            "(2.0 * width * width)",
            "(width * width)",
            "test_som.py::test_pulls_are_those_of_the_formula",
        ),
    ),
    # Export.
    *_of(
        "agents/policies/export_c.py",
        (
            "the farthest cell decides",
            "if (k == 0 || score < least) {",
            "if (k == 0 || score > least) {",
            "test_export.py::test_c[online, 2 by 3]",
        ),
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
    *_of(
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
    *_of(
        "agents/policies/export_c_text.py",
        (
            "constants in C have six digits",
            "{value:.9g}",
            "{value:.6g}",
            "test_export.py::test_constants_in_c_are_those_of_single_precision",
        ),
    ),
    *_of(
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
    *_of(
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
    *_of(
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
    *_of(
        "agents/policies/alternatives.py",
        (
            "room for one worse cell among three, not for two",
            "np.log(2.0 * -lead[n] / lead[ahead])",
            "np.log(-lead[n] / lead[ahead])",
            "test_explain.py::test_the_lower_bound_is_tight_where_two_equal_cells_outvote_one",
        ),
    ),
    *_of(
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
    *_of(
        "agents/policies/deciding.py",
        (
            "of equal scores the last decides in compiled loops",
            "        if score > greatest:",
            "        if score >= greatest:",
            "test_rules.py::test_of_equal_scores_the_first_decides",
        ),
    ),
    *_of(
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
    *_of(
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
    *_of(
        "agents/model/selection.py",
        (
            "a rule's own real returns do not correct what is promised of it",
            "+ (own.sum() + _PRIOR_EPISODES * bias)",
            "+ (_PRIOR_EPISODES * bias)",
            "test_model_agent.py::test_promises_that_reality_did_not_keep_do_not_win",
        ),
    ),
    *_of(
        "agents/model/episodes.py",
        (
            "episodes count for ever",
            "max(n - self.latest, 0)",
            "0",
            "test_model_agent.py::test_of_a_rules_episodes_the_latest_twenty_count",
        ),
    ),
    *_of(
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
    *_of(
        "agents/distilling/simplifying.py",
        (
            "a digit too many is kept",
            "(digits - 1 - np.floor",
            "(digits - np.floor",
            "test_model_agent.py::test_rounding_keeps_significant_digits",
        ),
    ),
    *_of(
        "agents/worlds/ends.py",
        (
            "an end begins at the last state that went on",
            "sign * (top + margin * gap)",
            "sign * top",
            "test_world.py::test_a_half_space_is_found",
        ),
    ),
    *_of(
        "agents/worlds/rewards.py",
        (
            "features of rewards are in raw units",
            "z = observations / at.scale",
            "z = observations",
            "test_world.py::test_features_of_rewards_are_those_of_the_oracle",
        ),
    ),
    *_of(
        "agents/distilling/races.py",
        (
            "an incumbent falls to whoever is no worse",
            "        > _ENOUGH",
            "        > -_ENOUGH",
            "test_distilling.py::test_an_incumbent_has_to_be_beaten",
        ),
    ),
    *_of(
        "agents/distilling/fit.py",
        (
            "the gradient forgets that shares sum to 1",
            "shares * (costs - expected[:, None])",
            "shares * costs",
            "test_distilling.py::test_the_gradient_is_that_of_finite_differences",
        ),
    ),
    # Files.
    *_of(
        "oda_rl/persistence.py",
        (
            "checksums are looked at too late",
            "self._zip.testzip()",
            "None",
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
    *_of(
        "oda_rl/_schema.py",
        (
            "the end of a range belongs to it",
            "if self.closed[1] else values < high",
            "",
            "test_files.py::test_spans_say_what_belongs_to_them",
        ),
    ),
    *_of(
        "agents/engine/files.py",
        (
            "files of another format are read",
            " or type(form) is not int or form not in (_FORMAT, _FORMAT - 1)",
            "",
            "test_saving.py::test_missing_and_damaged_files",
        ),
    ),
    *_of(
        "oda_rl/annealing/files.py",
        (
            "any class may come out of a file",
            "if classes.get(name) is type(value):",
            "if True:",
            "test_estimator_parts.py::test_files_hold_what_was_written_and_nothing_else",
        ),
    ),
    # Environments.
    *_of(
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
