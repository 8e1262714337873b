import re

import numpy as np
import oracles
import pytest
import river.datasets
from scipy.stats import multivariate_normal
from sklearn import datasets
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from oda_rl import (
    DensityOutlierDetector,
    DistributedGaussianMixture,
    SGDGaussianMixture,
    StochasticEMGaussianMixture,
)
from oda_rl.mixtures import kernels, learning
from oda_rl.mixtures.kernels import Progress
from oda_rl.plotting.estimators import plot_density

COVARIANCES = ["diag", "full", "tied_spherical"]


def mixture_at(means, covariance_type="diag", width=1.0, rate=0.05, released=False):
    mixture = learning.new_mixture(means.copy(), covariance_type, 100.0, width, rate)
    if released:
        Progress(mixture.progress).phase = kernels.RELEASED
    return mixture


def follow_em(points, mixture, steps, *, batch=1, max_precision=100.0):
    """Steps of stochastic EM."""
    steps = np.array(steps, dtype=float)
    kernels.follow_em(
        points, np.arange(len(points)), batch, steps, np.ones(len(steps)), max_precision, mixture,
        mixture, np.empty((batch + 1, len(mixture.weights))), kernels.Room.of(points, mixture),
    )  # fmt: skip


def rules(**changed):
    usual = kernels.Rules(0.05, 0.05, 100, 100.0, 10, 0, 0.0)
    return usual._replace(**changed)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (3, 4)])
def test_the_grid_is_a_periodic_gaussian(shape):
    out = np.empty((np.prod(shape), np.prod(shape)))
    learning.write_grid(*shape, 0.8, out)
    np.testing.assert_allclose(out, oracles.grid_neighbourhood(*shape, 0.8), rtol=1e-12)


@pytest.mark.parametrize("batch", [1, 20])  # annealing takes a batch one by one
def test_annealing_moves_means_by_natural_gradients(batch):
    # μ += ε g (x - μ) for the winner of the smoothed loss, with equal spherical covariances.
    rng = np.random.default_rng(0)
    means, points = rng.normal(size=(12, 3)), rng.normal(size=(20, 3))
    mixture = mixture_at(means, rate=0.05)
    grid = oracles.grid_neighbourhood(3, 4, 1.0)
    expected = means.copy()
    learning.learn(mixture, rules(), points, np.arange(20), batch, plain=False)
    for point in points:
        logs = -((point - expected) ** 2).sum(axis=1)
        _, winner = oracles.smoothed_loss(logs, grid)
        pull = grid[winner] * (grid[winner] > 1e-3 * grid[winner, winner])
        expected += 0.05 * pull[:, None] * (point - expected)
    np.testing.assert_allclose(mixture.means, expected, rtol=0, atol=1e-12)


def test_gradient_steps_are_those_of_finite_differences():
    rng = np.random.default_rng(1)
    n, d, rate = 6, 3, 1e-6
    means, point = rng.normal(size=(n, d)), rng.normal(size=d)
    roots = rng.uniform(0.5, 2.0, (n, d))
    mixture = mixture_at(means, "diag", rate=rate, released=True)
    mixture.precisions[:] = roots**2
    mixture.half_log_dets[:] = np.log(roots).sum(axis=1)
    weights = rng.dirichlet(np.ones(n))
    mixture.weights[:] = weights
    grid = oracles.grid_neighbourhood(2, 3, 1.0)

    def loss(means, roots, logits):
        precisions = [np.diag(row) for row in roots**2]
        weights = np.exp(logits) / np.exp(logits).sum()
        return oracles.smoothed_loss(
            oracles.gaussian_logs(point, weights, means, precisions), grid
        )[0]

    def gradient(which, at):
        out = np.empty(at[which].shape)
        for index in np.ndindex(out.shape):
            high, low = ([a.copy() for a in at] for _ in range(2))
            high[which][index] += 1e-5
            low[which][index] -= 1e-5
            out[index] = (loss(*high) - loss(*low)) / 2e-5
        return out

    at = [means, roots, np.log(weights)]
    slopes = [gradient(which, at) for which in range(3)]
    learning.learn(mixture, rules(rate=rate), point[None], np.arange(1), 1, plain=True)
    # To second order in the step; shares below .001 are left out (of means and roots).
    for found, slope in [
        ((mixture.means - means) / rate, slopes[0]),
        ((np.sqrt(mixture.precisions) - roots) / rate, slopes[1]),
        (np.log(mixture.weights / weights) / rate, slopes[2] - (slopes[2] * weights).sum()),
    ]:
        np.testing.assert_allclose(found, slope, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
@pytest.mark.parametrize("size", [1, 5])
def test_absorbing_is_a_step_of_stochastic_em(covariance_type, size):
    rng = np.random.default_rng(3)
    means, block = rng.normal(size=(4, 3)), rng.normal(size=(size, 3))
    mixture = mixture_at(means, covariance_type, released=True)
    mixture.precisions[:] = 1.3
    mixture.half_log_dets[:] = 1.5 * np.log(1.3)
    covariances = np.tile(np.eye(3) / 1.3, (4, 1, 1))
    follow_em(block, mixture, [0.05], batch=size)
    weights, expected, full = oracles.stochastic_em_step(
        block, np.full(4, 0.25), means, covariances, 0.05
    )
    np.testing.assert_allclose(mixture.weights, weights, rtol=1e-9)
    np.testing.assert_allclose(mixture.means, expected, atol=1e-3)  # small shares are left out
    values, axes = learning.covariance_parts(mixture)
    if axes is None:
        np.testing.assert_allclose(1 / values, np.diagonal(full, axis1=1, axis2=2), rtol=2e-3)
    else:
        found = np.einsum("kui,ku,kuj->kij", axes, 1 / values, axes)
        np.testing.assert_allclose(found, full, atol=2e-3)
    np.testing.assert_allclose(mixture.half_log_dets, 0.5 * np.log(values).sum(axis=1))


def test_the_spectral_form_follows_a_covariance_through_many_steps():
    rng = np.random.default_rng(6)
    points = rng.normal(size=(300, 6)) @ (rng.normal(size=(6, 6)) * [3.0, 1.0, 1.0, 0.3, 0.1, 0.03])
    mixture = mixture_at(np.zeros((1, 6)), "full", released=True)
    mixture.precisions[:] = 1.0
    mean, covariance, steps = np.zeros(6), np.eye(6), 1.0 / np.arange(3.0, 303.0)
    follow_em(points, mixture, steps, max_precision=1e9)
    for point, step in zip(points, steps, strict=True):
        gap = point - mean
        mean = mean + step * gap
        covariance = (1.0 - step) * (covariance + step * np.outer(gap, gap))
    values, axes = learning.covariance_parts(mixture)
    np.testing.assert_allclose(mixture.means[0], mean)
    np.testing.assert_allclose(axes[0] @ axes[0].T, np.eye(6), atol=1e-4)
    found = axes[0].T @ np.diag(1.0 / values[0]) @ axes[0]
    np.testing.assert_allclose(found, covariance, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.sort(1.0 / values[0]), np.linalg.eigvalsh(covariance), rtol=1e-4)


@pytest.mark.parametrize(
    ("d", "apart", "beta", "dtype"),
    [(3, 1.0, 1.0, np.float32), (3, 1.0, 0.1, np.float64), (600, 1.0, 0.1, np.float64),
     (600, 0.01, 0.1, np.float32), (600, 0.01, 1.0, np.float64)],
)  # fmt: skip
def test_every_component_that_is_likely_is_measured(d, apart, beta, dtype):
    rng = np.random.default_rng(4)
    means = 10.0 + apart * rng.normal(size=(7, d))
    means[2:5] = means[1] + rng.normal(scale=0.02, size=(3, d))
    means[6] = 1e3
    points = (means[rng.integers(6, size=8)] + rng.normal(size=(8, d))).astype(dtype)
    mixture = mixture_at(means.astype(dtype), released=True)
    mixture.precisions[:] = rng.uniform(0.99, 1.01, (7, d))
    mixture.half_log_dets[:] = 0.5 * np.log(mixture.precisions.astype(float)).sum(axis=1)
    mixture.weights[:] = rng.dirichlet(np.ones(7))
    distances = mixture.precisions * (points[:, None] - mixture.means.astype(float)) ** 2
    expected = (
        np.log(mixture.weights)
        + mixture.half_log_dets
        - 0.5 * (distances.sum(axis=2) + d * np.log(2.0 * np.pi))
    )
    logs = np.empty((9, 7))
    room = kernels.Room.of(points, mixture)
    kernels.write_logs(points, np.arange(8), mixture, beta, logs, room)
    found = logs[:8] / beta - 0.5 * d * np.log(2.0 * np.pi)
    least = expected.max(axis=1, keepdims=True) - 25.0 / beta
    likely = expected > least
    assert likely.sum(axis=1).max() >= 4  # so that this says something
    tolerance = 0.2 if dtype == np.float32 else 1e-7
    np.testing.assert_allclose(found[likely], expected[likely], rtol=0, atol=tolerance)
    assert (found < least + tolerance)[~likely].all()


@pytest.mark.parametrize("n_features", [2, 64])
def test_tempering_does_not_merge_separate_clusters(n_features):
    points, _ = datasets.make_blobs(600, n_features=n_features, centers=8, random_state=3)
    model = SGDGaussianMixture(8, random_state=0).fit(points)
    theirs = GaussianMixture(8, covariance_type="diag", n_init=5, random_state=0).fit(points)
    assert model.score(points) > theirs.score(points) - 0.02


@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_densities_are_those_of_scipy(covariance_type):
    points = np.random.default_rng(0).normal(size=(400, 3)) * [1.0, 0.5, 2.0]
    model = SGDGaussianMixture(4, covariance_type=covariance_type, random_state=0).fit(points)
    one = 1.0 if covariance_type == "full" else np.eye(3)
    full = [one * covariance for covariance in model.covariances_]
    parts = zip(model.weights_, model.means_, full, strict=True)
    densities = [w * multivariate_normal(m, c).pdf(points) for w, m, c in parts]
    np.testing.assert_allclose(model.score_samples(points), np.log(sum(densities)), rtol=1e-9)
    shares = np.transpose(densities) / np.sum(densities, axis=0)[:, None]
    np.testing.assert_allclose(model.predict_proba(points), shares, atol=1e-9)
    np.testing.assert_array_equal(model.predict(points), shares.argmax(axis=1))
    drawn, labels = model.sample(20_000)
    np.testing.assert_allclose(np.bincount(labels) / 20_000, model.weights_, atol=0.02)
    spread = np.diag(np.cov(drawn.T)) - np.var(points, axis=0)
    assert abs(spread).max() < (0.5 if covariance_type == "tied_spherical" else 0.3)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_numbers_of_scikit_learns_own_class(covariance_type):
    points, _ = datasets.make_blobs(600, centers=3, cluster_std=0.7, random_state=1)
    model = SGDGaussianMixture(3, covariance_type=covariance_type, random_state=0).fit(points)
    theirs = GaussianMixture(3, covariance_type=covariance_type)
    for name in ("weights_", "means_", "covariances_", "precisions_"):
        setattr(theirs, name, getattr(model, name))
    root = np.sqrt if covariance_type == "diag" else np.linalg.cholesky
    theirs.precisions_cholesky_ = root(model.precisions_)
    assert model.score(points) == pytest.approx(theirs.score(points))
    assert model.aic(points) == pytest.approx(theirs.aic(points))
    assert model.bic(points) == pytest.approx(theirs.bic(points))
    best = GaussianMixture(3, covariance_type=covariance_type, n_init=5, random_state=0)
    assert model.score(points) > best.fit(points).score(points) - 0.02
    assert model.converged_
    assert model.lower_bound_ == pytest.approx(model.score(points), abs=0.05)  # of the last pass


@pytest.mark.parametrize(("dtype", "batch_size"), [(np.float32, 10), (np.float64, 1)])
@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_one_by_one_equals_blocks(dtype, batch_size, covariance_type):
    points = np.random.default_rng(0).normal(size=(600, 2)).astype(dtype)
    settings = {"batch_size": batch_size, "covariance_type": covariance_type, "random_state": 0}
    one, other = (SGDGaussianMixture(4, **settings) for _ in range(2))
    one.partial_fit(points)
    for point in points:
        other.partial_fit(point[None])
    assert one.means_.dtype == dtype
    for name in ("means_", "covariances_", "weights_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_on_digits_it_needs_no_k_means_and_annealing_matters():
    points = datasets.load_digits().data.astype(np.float32) / 16.0
    train, test = points[:1297], points[1297:]
    floor = 1.0 / 20.0  # P ≤ 20, as the paper has it
    natural = SGDGaussianMixture(64, random_state=0, batch_size=10, variance_floor=floor).fit(train)
    comparator = StochasticEMGaussianMixture(
        64, random_state=0, max_iter=20, variance_floor=floor
    ).fit(train)
    assert natural.score(test) > comparator.score(test) - 0.3
    assert len(np.unique(natural.predict(train))) >= 60
    plain = SGDGaussianMixture(64, update="sgd", max_iter=40, random_state=0).fit(train)
    annealed = plain.score(test)
    assert len(np.unique(plain.predict(train))) >= 50
    sparse = plain.set_params(width=0.01).fit(train)
    assert len(np.unique(sparse.predict(train))) < 30  # a sparse-component solution
    assert sparse.score(test) < annealed - 5.0


def test_a_drifting_stream_keeps_all_components():
    rng = np.random.default_rng(0)
    turn = 2.0 * np.pi * np.arange(20_000) / 4000.0  # round and round
    stream = np.column_stack([np.cos(turn), np.sin(turn)]) + rng.normal(size=(20_000, 2)) * 0.3
    model = SGDGaussianMixture(36, forgetting=0.005, random_state=0).partial_fit(stream)
    distances = ((stream[:, None] - model.means_) ** 2).sum(axis=2)
    assert len(np.unique(distances.argmin(axis=1))) == 36
    best = KMeans(36, n_init=1, random_state=0).fit(stream).inertia_ / len(stream)
    assert distances.min(axis=1).mean() < 1.25 * best
    assert np.ptp(model.covariances_) == 0.0


def test_single_precision_suffices_far_from_0():
    single = (datasets.make_moons(600, noise=0.15, random_state=0)[0] * 10.0 + 1e5).astype("f4")
    model = SGDGaussianMixture(4, covariance_type="full", random_state=0)
    scores = model.fit(single).score_samples(single)
    double = single.astype(np.float64)
    np.testing.assert_allclose(scores, model.fit(double).score_samples(double), atol=0.02)


def test_a_sample_far_outside_everything():
    points = np.random.default_rng(0).normal(size=(400, 2))
    model = SGDGaussianMixture(4, random_state=0).fit(points)
    far = np.array([[1e200, 0.0], [1e3, 1e3], [-1e308, 1e308]])
    assert np.isfinite(model.score_samples(far)).all()
    assert np.isfinite(model.predict_proba(far)).all()
    assert np.isfinite(model.score(np.repeat(far, 20, axis=0)))
    with pytest.raises(ValueError, match=r"X holds 1e\+200: its values must be from -1e\+140"):
        model.partial_fit(far[:1])
    assert model.score(points) > -4.0


def test_too_few_passes_are_warned_of():
    points = np.random.default_rng(0).normal(size=(300, 2))
    with pytest.warns(ConvergenceWarning, match="max_iter=1 passes over 300 samples were too few"):
        SGDGaussianMixture(2, max_iter=1, random_state=0).fit(points)


MIXTURES = [
    SGDGaussianMixture(6, random_state=0),
    SGDGaussianMixture(4, covariance_type="full", batch_size=20, random_state=0),
    SGDGaussianMixture(4, update="sgd", max_iter=3, random_state=0),
    SGDGaussianMixture(9, forgetting=0.01, max_iter=5, random_state=0),
    SGDGaussianMixture(5, covariance_type="tied_spherical", random_state=0),
    StochasticEMGaussianMixture(5, random_state=0),
    StochasticEMGaussianMixture(4, init="random", covariance_type="full", random_state=0),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("learner", MIXTURES)
@pytest.mark.parametrize(
    ("method", "factor"), [("fit", 2.0**-9), ("fit", 1e120), ("partial_fit", 1e-150)]
)
def test_rescaling_changes_nothing_but_the_constant(learner, method, factor):
    points, _ = datasets.make_blobs(400, n_features=3, centers=6, random_state=2)
    one, other = (getattr(clone(learner), method)(data) for data in (points, points * factor))
    np.testing.assert_array_equal(other.predict(points * factor), one.predict(points))
    np.testing.assert_allclose(other.weights_, one.weights_, rtol=1e-6)
    np.testing.assert_allclose(other.means_ / factor, one.means_, rtol=1e-6)
    shifted = other.score_samples(points * factor) + 3.0 * np.log(factor)
    np.testing.assert_allclose(shifted, one.score_samples(points), rtol=1e-6, atol=1e-6)
    if hasattr(one, "lower_bound_"):
        constant = 3.0 * np.log(factor)
        assert other.lower_bound_ + constant == pytest.approx(one.lower_bound_, abs=1e-6)
    if factor == 2.0**-9:
        np.testing.assert_array_equal(other.means_ / factor, one.means_)
        np.testing.assert_array_equal(other.covariances_ / factor**2, one.covariances_)
    if abs(np.log10(factor)) < 7:
        found, expected = other.covariances_ / factor**2, one.covariances_
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9)
        found, expected = other.precisions_ * factor**2, one.precisions_
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        if learner.covariance_type != "full":  # whose eigenvectors may point either way
            drawn = other.sample(50)[0] / factor
            np.testing.assert_allclose(drawn, one.sample(50)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "learner",
    [SGDGaussianMixture(64), SGDGaussianMixture(64, update="sgd", max_iter=30),
     SGDGaussianMixture(64, forgetting=0.01, max_iter=10), StochasticEMGaussianMixture(64),
     DistributedGaussianMixture(16), DensityOutlierDetector()],
)  # fmt: skip
def test_no_held_out_digit_lies_far_below_the_others(learner):
    points = np.random.default_rng(0).permutation(datasets.load_digits().data) / 16.0
    model = clone(learner).set_params(random_state=0).fit(points[:1297])
    scores = model.score_samples(points[1297:])
    low, median, high = np.percentile(scores, [25, 50, 75])
    assert scores.min() > median - 100.0 * (high - low)


def test_full_covariances_of_dependent_features_are_as_likely_as_scikit_learns():
    table = [list(x.values()) for x, _ in river.datasets.ImageSegments()]
    points = np.random.default_rng(0).permutation(StandardScaler().fit_transform(table))
    for train in (points[:1500], points[:500]):  # few samples do not vary in all directions
        theirs = GaussianMixture(7, random_state=0).fit(train).score(points[1500:])
        kinds = SGDGaussianMixture, DistributedGaussianMixture
        ours, other = (kind(7, covariance_type="full", random_state=0) for kind in kinds)
        stream = clone(ours).partial_fit(np.tile(train, (20, 1)))  # above 0 in six orders of rows
        for model in (stream, ours.fit(train), other.fit(train)):
            assert model.score(points[1500:]) > max(theirs, 0.0)


SHARES = [*[1e-3] * 6, 0.5, 1e-8, 1e-8]
FLOORED = [
    *MIXTURES[:1],
    *MIXTURES[3:6],
    SGDGaussianMixture(4, batch_size=20, random_state=0),
    DistributedGaussianMixture(4, random_state=0),
    MIXTURES[2],
    MIXTURES[6],
    DistributedGaussianMixture(4, covariance_type="full", random_state=0),
]


def collapsing(n=400):
    """Samples of which some stand at one place, so that variances fall to their floor."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(n, 3)) * [3.0, 1.0, 0.1]
    points[::3] = [20.0, 0.0, 1.0]
    return points


def variances_above(model):
    """Least eigenvalue of Σ less the diagonal matrix of floors, by the largest floor.

    0 stands for what is above, if covariances are spherical: they need not fall to the floor.
    """
    floors, found = model.variance_floor_, model.covariances_
    if model.covariance_type == "full":
        found = np.linalg.eigvalsh(found - np.diag(floors))
    else:
        found = found.reshape(len(found), -1) - floors
    least = found.min() / floors.max()
    return 0.0 if least > 0.0 and model._spherical() else least


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("learner", "share"), [*zip(FLOORED, SHARES, strict=True)])
def test_the_floor_is_a_share_of_the_mean_variance_of_features_that_vary(learner, share):
    points = collapsing()
    model = clone(learner).fit(points)
    wanted = np.full(3, share * points.var(axis=0).mean())
    np.testing.assert_allclose(model.variance_floor_, wanted)
    if learner.covariance_type != "full":  # to which a share of their mean is added
        assert variances_above(model) == pytest.approx(0.0, abs=1e-6)
    constant = np.column_stack([points, np.full((400, 50), 0.1)])
    model = clone(learner).fit(constant)
    np.testing.assert_allclose(model.variance_floor_, wanted[0])
    assert variances_above(model) > -1e-9
    if hasattr(learner, "partial_fit"):
        first = points[:100] if isinstance(learner, SGDGaussianMixture) else points
        model = clone(learner).partial_fit(points)
        np.testing.assert_allclose(model.variance_floor_, share * first.var(axis=0).mean())
        assert variances_above(model) > -1e-9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("learner", FLOORED)
def test_a_floor_may_be_given_for_all_features_or_for_each(learner, reloaded):
    scaled = clone(learner).set_params(variance_floor=0.5e-12).fit(1e-6 * collapsing())
    np.testing.assert_allclose(scaled.variance_floor_, 0.5e-12)
    assert variances_above(scaled) == pytest.approx(0.0, abs=1e-6)
    floors = 0.5 if learner._spherical() else np.array([0.5, 0.01, 0.2])
    learner = clone(learner).set_params(variance_floor=floors)
    model = clone(learner).fit(collapsing())
    np.testing.assert_allclose(model.variance_floor_, floors * np.ones(3))
    step = 1e-3 if getattr(model, "update", None) == "sgd" else 1e-6  # the last may lead upwards
    assert -1e-6 < variances_above(model) < step
    loaded = reloaded(model)
    np.testing.assert_array_equal(loaded.variance_floor_, model.variance_floor_)
    np.testing.assert_array_equal(loaded.variance_floor, floors)
    if hasattr(learner, "partial_fit"):
        for one in (model, loaded):
            one.partial_fit(collapsing()[:50])
        np.testing.assert_array_equal(loaded.covariances_, model.covariances_)
        assert variances_above(model) > -1e-6


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("learner", [MIXTURES[0], MIXTURES[5], FLOORED[5]])
def test_constant_features_change_nothing_else(learner):
    centres = [[-10.0, -10.0], [-10.0, 10.0], [10.0, -10.0], [10.0, 10.0]]
    points, labels = datasets.make_blobs(600, centers=centres, random_state=5)
    plain = clone(learner).set_params(n_components=4).fit(points)
    padded = np.column_stack([np.full((600, 20), 7.0), points])
    model = clone(plain).fit(padded)
    assert model.weights_ @ model.means_[:, 0] == pytest.approx(7.0, rel=0.01)
    constant = -10.0 * np.log(2.0 * np.pi * plain.variance_floor_[0])  # of a density at its top
    assert model.score(padded) == pytest.approx(plain.score(points) + constant, abs=1.0)
    for labels_of in (plain.predict(points), model.predict(padded)):
        assert len(set(zip(labels, labels_of, strict=True))) == 4  # one component for each cluster


@pytest.mark.parametrize(
    ("floor", "more", "message"),
    [(0.0, {}, "The 'variance_floor' parameter of"),
     (np.inf, {}, "The 'variance_floor' parameter of"),
     ([1.0, 2.0], {}, "variance_floor is [1.0, 2.0]: it must be above 0, of shape () or (3,)"),
     ([1.0, 0.0, 1.0], {}, "variance_floor is [1.0, 0.0, 1.0]: it must be above 0"),
     ([1.0, np.nan, 1.0], {}, "Input variance_floor contains NaN"),
     ([1.0] * 3, {"covariance_type": "tied_spherical"}, "it must be above 0, of shape ()"),
     (1e-40, {}, "variance_floor is 1e-40: it must be at least 1e-30 times the mean variance")],
)  # fmt: skip
@pytest.mark.parametrize(
    "kind", [SGDGaussianMixture, StochasticEMGaussianMixture, DistributedGaussianMixture]
)
def test_floors_that_cannot_be(kind, floor, more, message):
    model = kind(2, variance_floor=floor, **more)
    for method in ("fit", "partial_fit"):
        if hasattr(model, method):
            with pytest.raises(ValueError, match=re.escape(message)):
                getattr(model, method)(collapsing(30))
    if floor == [1.0] * 3 and kind is SGDGaussianMixture:  # forgetting has one variance, too
        with pytest.raises(ValueError, match=re.escape(message)):
            kind(2, variance_floor=floor, forgetting=0.1).partial_fit(collapsing(30))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("learner", MIXTURES[:2] + MIXTURES[4:])
def test_samples_that_are_all_the_same(learner):
    same = clone(learner).fit(np.full((20, 2), 0.3))
    np.testing.assert_allclose(same.weights_ @ same.means_, 0.3, rtol=0.05)
    assert np.isfinite(same.score(np.full((20, 2), 0.3)))


TABLES = {
    "moons": (datasets.make_moons(1500, noise=0.05, random_state=0)[0], 16),
    "iris": (datasets.load_iris().data, 3),
    "wine": (StandardScaler().fit_transform(datasets.load_wine().data), 4),
    "cancer": (StandardScaler().fit_transform(datasets.load_breast_cancer().data), 5),
    "rings": (datasets.make_circles(1000, noise=0.05, factor=0.5, random_state=0)[0], 12),
}


@pytest.mark.parametrize("name", TABLES)
def test_it_is_no_worse_than_em_from_k_means(name):
    points, n = TABLES[name]
    theirs = [GaussianMixture(n, covariance_type="diag", random_state=k) for k in range(3)]
    ours = [SGDGaussianMixture(n, tol=1e-3, random_state=k) for k in range(3)]
    scores = [[one.fit(points).score(points) for one in models] for models in (ours, theirs)]
    assert np.median(scores[0]) > np.median(scores[1]) - 0.02


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"n_components": 5}, "Expected n_samples >= n_components but got n_components = 5"),
     ({"means_init": [[0.0]], "n_components": 2}, "means_init has shape (1, 1)"),
     ({"learning_rate": 1.0}, "'learning_rate' parameter"),
     ({"forgetting": -0.1}, "'forgetting' parameter"),
     ({"covariance_type": "tied"}, "'covariance_type' parameter"),
     ({"batch_size": 0}, "'batch_size' parameter")],
)  # fmt: skip
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        SGDGaussianMixture(**parameters).fit([[0.0], [1.0], [2.0]])
    with pytest.raises(ValueError, match="n_samples is 0: it must be at least 1"):
        SGDGaussianMixture(2).partial_fit(np.zeros((3, 2))).sample(0)


@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_densities_are_drawn_with_an_ellipse_for_each_component(covariance_type):
    points = np.random.default_rng(0).normal(size=(300, 2)) * [3.0, 0.5]
    model = SGDGaussianMixture(3, covariance_type=covariance_type, random_state=0).fit(points)
    ax = plot_density(model, points)
    assert len(ax.patches) == 3
    turn = np.deg2rad(ax.patches[0].angle)
    axes = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    radii = np.array([ax.patches[0].width, ax.patches[0].height]) / 2.0
    expected = model.covariances_[0]
    expected = expected if expected.ndim == 2 else np.diag(np.broadcast_to(expected, 2))
    np.testing.assert_allclose(axes.T @ np.diag(radii**2) @ axes, expected, atol=1e-8)
    with pytest.raises(ValueError, match=r"must have 2 columns"):
        plot_density(model, np.zeros((5, 3)))
