"""Exemplars anywhere: estimators, masters, pricing, certificates."""

import re
import warnings

import numba
import numpy as np
import oracles
import pytest
from scipy.stats import gaussian_kde
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KernelDensity

from oda_rl import INFEX, ConvexClustering, KernelVectorQuantization
from oda_rl.exemplars.base import scott
from oda_rl.exemplars.column_generation import Problem, Search
from oda_rl.exemplars.pricing import KERNELS, Samples, radial_kernel
from oda_rl.exemplars.weights import OBJECTIVES, best_proportions, objective_value
from oda_rl.plotting.estimators import plot_density

KERNEL_NAMES = ("gaussian", "epanechnikov", "disc")


def blobs(n, d, seed, spread=2.0):
    rng = np.random.default_rng(seed)
    centres = spread * rng.normal(size=(5, d))
    return centres[rng.integers(5, size=n)] + rng.normal(size=(n, d))


def fitted(model, points):
    """Fit, and take what there is if it does not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(points)


# Master problems.


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("n", "m"), [(60, 20), (50, 70)])
def test_weights_are_those_of_clarabel(objective, n, m):
    rng = np.random.default_rng(n)
    points, exemplars = rng.normal(size=(n, 3)), rng.normal(size=(m, 3))
    responses = np.exp(-((points[:, None] - exemplars) ** 2).sum(axis=2))
    for penalty in (0.5, 30.0):
        found = best_proportions(responses, objective, penalty=penalty)
        assert found.weights.min() >= 0.0
        assert found.weights.sum() == pytest.approx(1.0)
        gamma = responses @ found.weights
        expected = oracles.exemplar_objective(objective, gamma.tolist(), penalty)
        assert found.value == pytest.approx(expected, abs=1e-12)
        reference = oracles.best_proportions(responses, objective, penalty)
        assert found.value == pytest.approx(reference, abs=2e-7)
        # No column is worth more than the bound: the certificate of the finite problem.
        assert (found.prices @ responses).max() - found.bound < 1e-7
        if not objective.endswith("variance"):
            assert found.prices.min() >= 0.0
        elif penalty > 1.0:
            assert found.prices.min() < 0.0


# Pricing.


# What the estimators find.


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_exemplars_without_weight_join_the_master_problem_where_they_improve_it(objective):
    search = Search(blobs(80, 2, 3), Problem(objective), np.random.default_rng(0), 1e-6)
    search.begin(search.samples.points + search.samples.origin)
    expected = best_proportions(search.responses, objective)
    search.weights[5:] = 0.0
    search._weigh(1e-10)
    value = objective_value(objective, search.responses @ search.weights, 1.0)
    assert value == pytest.approx(expected.value, abs=1e-8)


def test_it_is_a_weighted_kernel_density_estimate():
    points = blobs(200, 3, 0)
    model = INFEX(bandwidth=1.1, random_state=0).fit(points)
    reference = KernelDensity(bandwidth=1.1).fit(model.exemplars_, sample_weight=model.weights_)
    held = blobs(50, 3, 1)
    np.testing.assert_allclose(model.score_samples(held), reference.score_samples(held), rtol=1e-9)
    assert model.score(held) == pytest.approx(reference.score(held) / 50)
    far = np.full((1, 3), 1e4)  # where responses underflow
    assert np.isfinite(model.score_samples(far)).all()
    assert model.predict_proba(far).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("kernel", KERNEL_NAMES)
def test_density_responses_and_samples_agree(kernel):
    points = blobs(60, 2, 4)
    model = fitted(INFEX(kernel=kernel, bandwidth=2.5, tol=1e-2, random_state=0), points)
    weighted = [
        [w * oracles.exemplar_response(kernel, x, z, 2.5)
         for z, w in zip(model.exemplars_, model.weights_, strict=True)]
        for x in points
    ]  # fmt: skip
    shares = np.array(weighted) / np.sum(weighted, axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(points), shares, atol=1e-9)
    np.testing.assert_array_equal(model.predict(points), shares.argmax(axis=1))
    np.testing.assert_array_equal(model.labels_, shares.argmax(axis=1))
    drawn, labels = model.sample(20_000, random_state=0)
    np.testing.assert_allclose(
        np.bincount(labels, minlength=len(model.weights_)) / 20_000, model.weights_, atol=0.02
    )
    offsets = (drawn - model.exemplars_[labels]) / 2.5
    # E r² in the plane: 2 of a Gaussian, d/(d + 4) of Epanechnikov's, d/(d + 2) of the disc.
    expected = {"gaussian": 2.0, "epanechnikov": 1 / 3, "disc": 0.5}[kernel]
    assert (offsets**2).sum(axis=1).mean() == pytest.approx(expected, rel=0.03)
    rays = 2.5 * offsets / np.linalg.norm(offsets, axis=1, keepdims=True)
    rim = model.exemplars_[labels] + (1.0 - 1e-10) * rays
    for one in (drawn, rim, rim.astype(np.float32)):  # which is beyond the rim in half of the cases
        assert np.isfinite(model.score_samples(one)).all()
    # A uniform draw over their box integrates to 1 within its error.
    low, high = drawn.min(axis=0), drawn.max(axis=0)
    box = np.random.default_rng(1).uniform(low, high, size=(40_000, 2))
    mass = np.exp(model.score_samples(box)).mean() * np.prod(high - low)
    assert mass == pytest.approx(1.0, abs=0.03)


def test_the_likelihood_is_certified():
    points = blobs(150, 2, 5)
    model = INFEX(bandwidth=0.8, random_state=0).fit(points)
    assert model.duality_gap_ <= 1e-6
    assert model.certificate_ == "all samples"
    # Whatever weights of whatever exemplars: here a grid far finer than the bandwidth.
    axis = np.linspace(-7.0, 7.0, 36)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    dense = ConvexClustering(0.8, candidates=grid).fit(points)
    assert dense.objective_value_ <= model.objective_value_ + model.duality_gap_
    assert dense.objective_value_ == pytest.approx(model.objective_value_, abs=5e-3)
    values = [entry.objective for entry in model.history_]
    assert (np.diff(values) >= -1e-9).all()
    assert model.history_[-1].gap == model.duality_gap_


@pytest.mark.parametrize(
    ("objective", "kernel"),
    [
        *((objective, "epanechnikov") for objective in OBJECTIVES),
        *((objective, "gaussian") for objective in OBJECTIVES[1:]),  # EM slides those of the first
    ],
)
@pytest.mark.parametrize("sizes", [(10,), (30, 10)])
@pytest.mark.filterwarnings("ignore:bandwidth=.* is so small:UserWarning")
def test_the_gap_is_what_is_missed_where_the_bound_is_tight(objective, kernel, sizes):
    # Equal samples in one or two places, and an exemplar beside each: all responses are the same
    # share of what they would be with the exemplars in place, and so is every price.
    places = np.array([[0.0, 0.0], [100.0, 0.0]])[: len(sizes)]
    points = np.repeat(places, sizes, axis=0)
    settings = {"kernel": kernel, "bandwidth": 1.5, "C": 2.0, "random_state": 0}
    beside = places + np.array([0.6, 0.0])
    early = fitted(INFEX(objective, init=beside, max_rounds=1, **settings), points)
    best = INFEX(objective, **settings).fit(points)
    missed = best.objective_value_ - early.objective_value_
    share = oracles.exemplar_response(kernel, places[0], beside[0], 1.5)
    if objective == "log_likelihood":
        assert missed == pytest.approx(-np.log(share), abs=1e-8)
    elif objective != "mean_variance":
        assert missed == pytest.approx((1.0 - share) / len(sizes), abs=1e-8)
    assert early.duality_gap_ == pytest.approx(missed, rel=1e-6)
    assert early.history_[-1].gap == pytest.approx(early.duality_gap_, rel=1e-12)


@pytest.mark.parametrize(("bandwidth", "rounds"), [(0.4, 1), (0.7, 2), (1.0, 1)])
def test_the_gap_of_the_likelihood_is_the_logarithm_of_the_dearest_price(bandwidth, rounds):
    points = blobs(30, 2, 3)
    model = INFEX(bandwidth=bandwidth, init=points[:2], max_rounds=rounds, random_state=0)
    model = fitted(model, points)
    samples, exemplars = points / bandwidth, model.exemplars_ / bandwidth
    gamma = [
        sum(
            q * oracles.exemplar_response("gaussian", x, z, 1.0)
            for q, z in zip(model.weights_, exemplars, strict=True)
        )
        for x in samples
    ]
    tops = [oracles.mean_shift(samples, 1.0 / np.array(gamma), x) for x in samples]
    expected = oracles.exemplar_gap(samples, exemplars, model.weights_, tops)
    assert expected > 1e-4
    # While the gap is large, climbs stop a little below the tops.
    assert model.duality_gap_ == pytest.approx(expected, rel=0.01)
    best = INFEX(bandwidth=bandwidth, random_state=0).fit(points)
    assert best.objective_value_ - model.objective_value_ <= expected


@pytest.mark.parametrize("tolerance", [0.5, 0.01])
def test_the_gap_of_convex_clustering_is_that_of_the_dearest_sample(tolerance):
    points = blobs(60, 2, 3)
    model = ConvexClustering(1.0, tol=tolerance).fit(points)
    expected = oracles.exemplar_gap(points, model.exemplars_, model.weights_, points)
    assert model.duality_gap_ == pytest.approx(expected, rel=1e-6)
    responses = np.exp(-0.5 * ((points[:, None] - points) ** 2).sum(axis=2))
    best = oracles.best_proportions(responses, "log_likelihood", 1.0)
    assert model.objective_value_ <= best + 1e-7 <= model.objective_value_ + model.duality_gap_


def test_the_gap_of_discs_is_what_a_disc_over_all_samples_adds():
    # Discs at both ends hold two of three samples each, and that in the middle all.
    points = np.array([[0.0], [1.0], [2.0]])
    settings = {"kernel": "disc", "bandwidth": 1.0, "random_state": 0}
    ends = fitted(INFEX("margin", init=points[::2], max_rounds=1, **settings), points)
    assert ends.objective_value_ == pytest.approx(0.5)
    assert ends.duality_gap_ == pytest.approx(0.5)
    fixed = KernelVectorQuantization(max_distortion=1.0, candidates=points[::2]).fit(points)
    assert fixed.objective_value_ == pytest.approx(0.5)
    assert fixed.duality_gap_ == pytest.approx(0.0, abs=1e-8)  # of these two candidates


@pytest.mark.parametrize("kernel", KERNEL_NAMES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_is_never_worse_than_the_exemplars_it_began_with(objective, kernel):
    # Theorem 2, on random sets that hold the samples or not.
    for seed in range(3):
        points = blobs(20, 3, seed)
        rng = np.random.default_rng(seed)
        start = points[rng.permutation(20)[:10]] if seed % 2 else points
        start = start + (0.2 * rng.normal(size=start.shape) if seed == 2 else 0.0)
        bandwidth, penalty = 3.5, 2.0
        samples = Samples(points / bandwidth, KERNELS[kernel])
        responses = samples.responses(start / bandwidth - samples.origin)
        if responses.max(axis=1).min() <= 0.0:
            continue  # these alone are infeasible
        fixed = best_proportions(responses, objective, penalty=penalty)
        model = INFEX(
            objective, kernel=kernel, bandwidth=bandwidth, C=penalty, init=start, tol=1e-3,
            max_rounds=5, random_state=0,
        )  # fmt: skip
        model = fitted(model, points)
        assert model.objective_value_ >= fixed.value - 1e-8
        gamma = samples.responses(model.exemplars_ / bandwidth - samples.origin)
        own = objective_value(objective, gamma @ model.weights_, penalty)
        assert model.objective_value_ == pytest.approx(own, abs=1e-9)


@pytest.mark.parametrize("objective", ["margin", "margin_variance", "mean_variance"])
def test_other_objectives_converge_too(objective):
    points = blobs(60, 2, 6)
    model = INFEX(objective, bandwidth=1.0, C=5.0, tol=1e-4, random_state=0).fit(points)
    assert model.duality_gap_ <= 1e-4
    assert model.certificate_ == ("all samples" if objective == "margin" else "local")
    axis = np.linspace(-7.0, 7.0, 30)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    samples = Samples(points, KERNELS["gaussian"])
    responses = samples.responses(grid - samples.origin)
    fixed = best_proportions(responses, objective, penalty=5.0)
    assert fixed.value <= model.objective_value_ + model.duality_gap_ + 1e-9


def test_free_codevectors_cover_better_than_samples():
    # Opposite corners of squares: a ball around the middle covers what no ball around a corner can.
    corners = np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    points = np.concatenate([corners, corners, corners + 10.0])
    with pytest.warns(UserWarning, match="max_distortion|every sample"):
        fixed = KernelVectorQuantization(max_distortion=1.5).fit(points)
    assert fixed.objective_value_ == pytest.approx(1 / 8)
    model = INFEX("margin", kernel="disc", bandwidth=1.5, random_state=0).fit(points)
    assert model.objective_value_ == pytest.approx(1 / 2)
    np.testing.assert_allclose(np.sort(model.exemplars_[:, 0]), [0.0, 10.0], atol=0.07)
    assert model.certificate_ == "local"


def test_quantization_covers_with_few_samples():
    points = np.random.default_rng(0).random((150, 2))
    model = KernelVectorQuantization(max_distortion=0.25).fit(points)
    distances = np.linalg.norm(points[:, None] - model.exemplars_, axis=2)
    assert distances.min(axis=1).max() <= 0.25
    covered = (distances <= 0.25 * (1 + 1e-9)) @ model.weights_
    assert covered.min() == pytest.approx(model.objective_value_, abs=1e-9)
    assert model.duality_gap_ < 1e-8
    assert model.certificate_ == "exact"
    assert len(model.weights_) < 40


def test_convex_clustering_is_lashkari_and_gollands_fixed_point():
    points = blobs(80, 2, 7)
    model = ConvexClustering(bandwidth=1.0).fit(points)
    responses = np.exp(-0.5 * ((points[:, None] - points) ** 2).sum(axis=2))
    weights = np.full(80, 1 / 80)
    for _ in range(5000):  # their multiplicative update
        weights = weights * (responses.T @ (1.0 / (responses @ weights))) / 80
    value = np.log(responses @ weights).mean()
    assert model.objective_value_ == pytest.approx(value, abs=1e-4)
    assert model.objective_value_ >= value - 1e-9
    better = INFEX(bandwidth=1.0, random_state=0).fit(points)
    assert better.objective_value_ > model.objective_value_


def test_a_kernel_of_ones_own_is_that_of_its_formula():
    points, settings = blobs(80, 2, 3), {"bandwidth": 2.5, "random_state": 0}
    own = radial_kernel(numba.njit(lambda y: np.maximum(1.0 - y, 0.0)), 1.0)
    one, other = (INFEX(kernel=k, **settings).fit(points) for k in ("epanechnikov", own))
    assert other.duality_gap_ < 1e-6
    assert other.objective_value_ == pytest.approx(one.objective_value_, abs=2e-6)
    np.testing.assert_allclose(other.score_samples(points), one.score_samples(points), atol=1e-3)
    drawn = [
        np.abs(model.sample(4000, random_state=0)[0] - points.mean(axis=0)).mean()
        for model in (one, other)
    ]
    assert drawn[1] == pytest.approx(drawn[0], rel=0.05)  # 5 standard errors


def test_a_stream_is_learned_from_a_pool_of_its_samples():
    points, settings = blobs(3000, 2, 4), {"bandwidth": 1.0, "tol": 1e-3, "random_state": 0}
    first = INFEX(**settings).partial_fit(points[:300]).partial_fit(points[300:900])
    whole = INFEX(**settings).fit(points[:900])  # the pool has room for all of these
    assert first.objective_value_ == pytest.approx(whole.objective_value_, abs=2e-3)
    later = first.partial_fit(points[900:])
    assert [len(part) for part in later._pool] == [1000] * 3
    # 1,000 of 3,000 samples are thinner by a standard error of about 1/sqrt(1000).
    assert later.score(points) > INFEX(**settings).fit(points).score(points) - 0.03
    # Samples that weigh ten times as much have ten times the mass.
    heavy = points[:, 0] > 0.0
    apart, weights = points + 20.0 * heavy[:, None], np.where(heavy, 10.0, 1.0)
    model = INFEX(**settings).partial_fit(apart, sample_weight=weights)
    found = model.weights_[model.exemplars_[:, 0] > 10.0].sum()
    assert found == pytest.approx(weights[heavy].sum() / weights.sum(), abs=0.05)


def test_scale_and_place_do_not_matter():
    points = blobs(100, 2, 9)
    one = INFEX(bandwidth=1.0, random_state=0).fit(points)
    other = INFEX(bandwidth=1e6, random_state=0).fit(1e6 * points + 1e9)
    np.testing.assert_allclose(other.exemplars_ / 1e6 - 1e3, one.exemplars_, atol=1e-3)
    assert other.objective_value_ == pytest.approx(one.objective_value_, abs=1e-5)


@pytest.mark.parametrize("shape", [(50, 1), (300, 2), (80, 7)])
def test_scotts_rule_has_scipys_factor(shape):
    points = np.random.default_rng(0).normal(size=shape) * np.arange(1.0, 1.0 + shape[1])
    deviation = np.sqrt(points.var(axis=0).mean())
    expected = gaussian_kde(points.T).scotts_factor() * deviation
    assert INFEX(bandwidth="scott", tol=0.1).fit(points).bandwidth_ == pytest.approx(expected)


@pytest.mark.parametrize(("n", "d", "spread"), [(100, 1, 0.0), (100, 2, 4.0), (60, 5, 0.0)])
def test_held_out_samples_choose_the_bandwidth(n, d, spread):
    points, held = np.split(blobs(1000, d, 10, spread), [n])
    model, again = INFEX(tol=1e-3, random_state=0).fit(points), INFEX(tol=1e-3, random_state=0)
    estimate = KernelDensity(bandwidth=scott(points)).fit(points)
    assert model.score(held) > estimate.score_samples(held).mean() - 0.02
    # Repetition and an outlier matter little, constants do not, and a stream chooses anew.
    for other in (np.repeat(points, 2, axis=0), np.append(points, [[100.0] * d], axis=0)):
        assert again.fit(other).score(held) > model.score(held) - 0.05
    assert again.fit(np.pad(points, ((0, 0), (0, 1)))).bandwidth_ == model.bandwidth_
    stream = INFEX(tol=1e-3, random_state=0).partial_fit(points[:20]).partial_fit(points[20:])
    assert stream.bandwidth_ == model.bandwidth_


# Bad input.


@pytest.mark.parametrize(
    ("kernel", "bandwidth"), [("gaussian", 1e-9), ("epanechnikov", 1e-3), ("disc", 1e-60)]
)
def test_a_bandwidth_may_be_tiny(bandwidth, kernel):
    points = blobs(40, 2, 11)
    with pytest.warns(UserWarning, match="every sample is its own exemplar"):
        model = INFEX(kernel=kernel, bandwidth=bandwidth).fit(points)
    np.testing.assert_allclose(model.weights_, 1 / 40)
    np.testing.assert_array_equal(np.sort(model.labels_), np.arange(40))
    assert model.duality_gap_ <= 1e-6
    with pytest.raises(ValueError, match="bandwidth is 1e-200: it must be at least"):
        INFEX(kernel=kernel, bandwidth=1e-200).fit(points)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("kernel", KERNEL_NAMES)
def test_one_sample_and_equal_samples(objective, kernel):
    for n in (1, 7):
        model = INFEX(objective, kernel=kernel).fit([[3.0, 4.0]] * n)
        np.testing.assert_allclose(model.exemplars_, [[3.0, 4.0]], atol=1e-6)
        assert model.weights_.tolist() == [1.0]
        best = 0.0 if objective == "log_likelihood" else 1.0
        assert model.objective_value_ == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize(
    ("model", "alone", "farthest"),
    [(KernelVectorQuantization(1.0, candidates=[[0.0], [1.0]]), 2, "4"),
     (ConvexClustering(1.0, kernel="epanechnikov", candidates=[[0.0], [1.0]]), 2, "4"),
     (ConvexClustering(0.01, candidates=[[0.0], [1.0]]), 2, "4")],
)  # fmt: skip
def test_uncovered_samples_are_named(model, alone, farthest):
    message = f"{alone} samples, the first in row 2, have no candidate .* farthest is at {farthest}"
    with pytest.raises(ValueError, match=message):
        model.fit([[0.0], [1.0], [3.0], [5.0]])


@pytest.mark.parametrize("kernel", ["epanechnikov", "disc"])
def test_samples_out_of_reach_of_the_start_are_taken(kernel):
    points = np.array([[0.0], [0.1], [9.0]])
    model = fitted(INFEX("margin", kernel=kernel, bandwidth=1.0, init=[[0.0]]), points)
    assert model.exemplars_.min() < 1.0 < 8.0 < model.exemplars_.max()
    assert np.isneginf(model.score_samples([[5.0]])).all()
    assert model.predict([[5.0]]) == model.exemplars_[:, 0].argmax()  # the nearest
    assert model.predict_proba([[5.0]]).max() == 1.0


def test_what_did_not_converge_is_said_and_bounded():
    points = blobs(100, 2, 12)
    model = INFEX(bandwidth=0.4, max_rounds=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_rounds=1 rounds, above tol=1e"):
        model.fit(points)
    best = INFEX(bandwidth=0.4, random_state=0).fit(points)
    assert model.objective_value_ <= best.objective_value_ + 1e-9
    assert best.objective_value_ <= model.objective_value_ + model.duality_gap_ + 1e-9
    assert model.score_samples(points).shape == (100,)


@pytest.mark.parametrize(
    ("model", "message"),
    [(INFEX(init=[[0.0, 1.0]]), "init has 2 features: it must have 1"),
     (INFEX(init=[[np.nan]]), "init contains NaN"),
     (ConvexClustering(candidates=[[0.0, 1.0]]), "candidates has 2 features"),
     (INFEX("likelihood"), "'objective' parameter"), (INFEX(kernel="box"), "'kernel' parameter"),
     (INFEX(bandwidth=0.0), "'bandwidth' parameter"),
     (ConvexClustering(bandwidth="wide"), "'bandwidth' parameter"),
     (KernelVectorQuantization(0.0), "'max_distortion' parameter")],
)  # fmt: skip
def test_bad_parameters(model, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        model.fit([[0.0], [1.0]])
    with pytest.raises(ValueError, match="n_samples is 0: it must be at least 1"):
        INFEX(bandwidth=9.0).fit([[0.0], [1.0]]).sample(0)


# Figures.


def test_figures_can_be_drawn(tmp_path):
    points = blobs(80, 2, 14)
    model = INFEX(bandwidth=1.0, random_state=0).fit(points)
    plot_density(model, points).figure.savefig(tmp_path / "density.png")
    with pytest.raises(ValueError, match=r"must have 2 columns"):
        plot_density(model, points[:, :1])
