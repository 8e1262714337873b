"""Mistakes that someone might make in estimators and in what they share."""

from mutations import mistakes_in

ESTIMATORS = [
    # Annealing.
    *mistakes_in(
        "agents/partitions/schedule.py",
        (
            "the first sample of a level has step size 1",
            "1.0 / (samples + 1.0)",
            "1.0 / samples",
            "test_partitions.py::test_a_level_of_cells_is_the_papers_recursion_and_children_follow_their_parents",
        ),
    ),
    *mistakes_in(
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
            "the first cell always remains, not the heaviest",
            "living[heaviest] = True",
            "living[0] = True",
            "test_annealing.py::test_prune_drops_light_cells_but_not_the_last",
        ),
        (
            "merged cells meet nearer to the lighter one",
            "share = cells[second, 0] / mass",
            "share = cells[first, 0] / mass",
            "test_annealing.py::test_merge_takes_the_weighted_mean",
        ),
        (
            "both halves of a split have the whole mass",
            "cells[:n_cells, 0] *= 0.5",
            "cells[:n_cells, 0] *= 1.0",
            "test_annealing.py::test_split_halves_mass_and_keeps_the_mean",
        ),
    ),
    *mistakes_in(
        "oda_rl/annealing/placing.py",
        (
            "nothing of a level's samples is forgotten",
            "1.0 / (t + 2.0) if 2 * t + 4 < m else 2.0 / m",
            "1.0 / (t + 2.0)",
            "test_annealing.py::test_settling_forgets_the_first_half",
        ),
    ),
    *mistakes_in(
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
    *mistakes_in(
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
    *mistakes_in(
        "oda_rl/quantization/batch_annealing.py",
        (
            "split codevectors stand ten times as far apart",
            "_SHIFT = 0.1",
            "_SHIFT = 1.0",
            "test_quantization.py::test_batch_annealing_splits_by_a_tenth_of_the_root_of_the_temperature",
        ),
    ),
    *mistakes_in(
        "oda_rl/annealing/merging.py",
        (
            "Ward's cost without the masses",
            "1.0 / (1.0 / masses[:, None] + 1.0 / masses)",
            "1.0",
            "test_refinement.py::test_ward_is_brute_force",
        ),
    ),
    *mistakes_in(
        "oda_rl/quantization/kernels.py",
        (
            "LVQ1 attracts the wrong class",
            "if labels[winner] != targets[i]:",
            "if labels[winner] == targets[i]:",
            "test_quantization.py::test_kernels_are_the_obvious_loops",
        ),
    ),
    # Divergences and the metric.
    *mistakes_in(
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
    *mistakes_in(
        "oda_rl/metric.py",
        (
            "what was learned in whitened units is taken for one in deviations",
            "self.whitening.T @ found @ self.whitening",
            "found",
            "test_axes.py::test_distances_in_whitened_units_are_those_of_any_linear_map",
        ),
        (
            "gradients from half as many points",
            "counts[group] >= 2 * (d + 1)",
            "counts[group] >= d + 1",
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
            "counts[group] * right[i]",
            "right[i]",
            "test_metric.py::test_outer_product_is_that_of_a_ridge_regression_in_each_group",
        ),
    ),
    # Mixtures.
    *mistakes_in(
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
    *mistakes_in(
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
    *mistakes_in(
        "oda_rl/mixtures/missing.py",
        (
            "what is missing is expected on the other side of the mean",
            "gaps[places[a]] -= roots[b, a] * total",
            "gaps[places[a]] += roots[b, a] * total",
            "test_missing.py::test_a_step_of_em_takes_in_what_is_expected[1-full]",
        ),
    ),
    *mistakes_in(
        "oda_rl/distributed/expectations.py",
        (
            "what is missing of a diagonal covariance has no variance",
            "square = variances[k, j]",
            "square = 0.0",
            "test_distributed_mixtures.py::test_sums_are_those_of_an_obvious_loop[diag-True-1.0]",
        ),
    ),
    *mistakes_in(
        "oda_rl/distributed/maximization.py",
        (
            "covariances are about where means were",
            "- steps[:, :, None] * steps[:, None, :]",
            "+ 0.0 * steps[:, :, None] * steps[:, None, :]",
            "test_distributed_mixtures.py::test_a_climb_is_the_obvious_em[full-False]",
        ),
    ),
    *mistakes_in(
        "oda_rl/annealing/missing.py",
        (
            "a codevector has one mass for all features",
            "columns[j, k] += gain / known[j, k] * (x - columns[j, k])",
            "columns[j, k] += gain / masses[k] * (x - columns[j, k])",
            "test_missing.py::test_annealing_is_by_what_is_observed_and_keeps_its_mean",
        ),
    ),
    *mistakes_in(
        "oda_rl/samples/turned.py",
        (
            "of a sample with holes as much is known as of a whole one",
            "known[k, a, b] += share * points.vectors[slot, j, b]",
            "known[k, a, b] += weights[i] * (a == b) / d",
            "test_turned.py::test_codevectors_are_where_the_sum_of_distances_is_least",
        ),
    ),
    *mistakes_in(
        "oda_rl/trees/nodes.py",
        (
            "ways down forget how far codevectors are from one another",
            "score += g * (x - values[centre + j]) + 0.25 * g * g",
            "score += g * (x - values[centre + j])",
            "test_holed_trees.py::test_ways_down_are_by_what_is_observed",
        ),
    ),
    *mistakes_in(
        "oda_rl/mixtures/updates.py",
        (
            "the smoothed loss never becomes stationary",
            "increase < rules.delta * max(since_start, 0.0)",
            "increase < -rules.delta * max(since_start, 0.0)",
            "test_mixtures.py::test_the_neighbourhood_narrows_when_a_period_brings_little",
        ),
    ),
    *mistakes_in(
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
    *mistakes_in(
        "oda_rl/mixtures/distances.py",
        (
            "the determinant in place of its root",
            "0.5 * (total + math.log(product))",
            "(total + math.log(product))",
            "test_mixtures.py::test_densities_are_those_of_scipy",
        ),
    ),
    # Exemplars.
    *mistakes_in(
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
    *mistakes_in(
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
    *mistakes_in(
        "oda_rl/exemplars/budget.py",
        (
            "the gap of a bounded number leaves out what could be gained beyond",
            "found.value + found.gap - value",
            "found.gap",
            "test_infex.py::test_the_gap_of_one_exemplar_for_two_places_is_what_two_would_gain",
        ),
        (
            "the gap of a bounded mixture is halved",
            "max(self._mean(density) + float(worth[0]) - value, 0.0)",
            "max(self._mean(density) + float(worth[0]) - value, 0.0) / 2.0",
            "test_infex.py::test_one_exemplar_between_two_places_misses_its_whole_gap",
        ),
    ),
    *mistakes_in(
        "oda_rl/exemplars/weights.py",
        (
            "the price of spread has the wrong sign",
            "1.0 - 2.0 * penalty * (combined - average(combined, masses))",
            "1.0 + 2.0 * penalty * (combined - average(combined, masses))",
            "test_infex.py::test_weights_are_those_of_clarabel[60-20-mean_variance]",
        ),
        (
            "masses count for nothing in the gradient",
            "-average(scaled, masses), _products",
            "-average(scaled, None), _products",
            "test_weights.py::test_masses_are_repetitions_in_the_best_proportions[log_likelihood]",
        ),
        (
            "prices are not divided by the number of samples",
            "1.0 / (n * combined), 1.0",
            "1.0 / combined, 1.0",
            "test_infex.py::test_the_gap_of_convex_clustering_is_that_of_the_dearest_sample",
        ),
    ),
    *mistakes_in(
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
    *mistakes_in(
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
    *mistakes_in(
        "oda_rl/quantization/neighbourhood.py",
        (
            "the map's neighbourhood is √2 times as narrow",
            "(2.0 * width * width)",
            "(width * width)",
            "test_som.py::test_pulls_are_those_of_the_formula",
        ),
    ),
    *mistakes_in(
        "oda_rl/exporting/c_header.py",
        (
            "in C the class of the farthest cells decides",
            "expf(least - scores[k])",
            "expf(scores[k] - least)",
            "test_export_c.py::test_predictions_are_those_of_python[classes]",
        ),
    ),
    *mistakes_in(
        "oda_rl/exporting/c_learning.py",
        (
            "in C steps do not shorten",
            "learner->clocks[c] += 1.0f;",
            "learner->clocks[c] += 0.0f;",
            "test_export_c_learning.py::test_learning_is_that_of_the_formula[0.0]",
        ),
        (
            "in C all classes are as frequent",
            "density *= learner->counts[i];",
            "density *= 1.0f;",
            "test_export_c_learning.py::test_decisions_are_those_of_python[names]",
        ),
    ),
    *mistakes_in(
        "oda_rl/exporting/onnx_codebooks.py",
        (
            "classes are in the order in which they were seen, says ONNX",
            "order = np.argsort(np.array(model._seen))",
            "order = np.arange(len(model._seen))",
            "test_onnx.py::test_streams_that_are_still_annealing",
        ),
    ),
]
