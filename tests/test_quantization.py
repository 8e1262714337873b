"""Stochastic VQ, LVQ and batch annealing: kernels against the papers, estimators against rules."""

import itertools
import pickle

import numpy as np
import oracles
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs, make_moons

from oda_rl.annealing import batch_annealing
from oda_rl.annealing.batch_annealing import BatchDeterministicAnnealing
from oda_rl.quantization import kernels as competition
from oda_rl.quantization.vq import LVQ, StochasticVQ

CLUSTERERS = [
    StochasticVQ(n_clusters=3, random_state=0),
    BatchDeterministicAnnealing(n_clusters=3, random_state=0),
]
KERNELS = ["lvq1", "glvq", "rslvq"]


def problem(n_codevectors=6, d=5, n=80, n_classes=3, seed=0):
    """Codevectors, labels, points, targets and order that mean nothing."""
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(n_codevectors, d)),
        np.arange(n_codevectors) % n_classes,
        rng.normal(size=(n, d)),
        rng.integers(0, n_classes, n),
        rng.integers(0, n, 2 * n),
    )


def run(kernel, codevectors, labels, points, targets, order, rate=0.2, temperature=2.0):
    """What a kernel, or the oracle of the same name, makes of the codevectors."""
    extra = (labels,)
    if kernel.__name__ == "rslvq":
        extra = (np.linspace(0.5, 1.5, len(labels)), labels, temperature)
    moved = codevectors.copy()
    returned = kernel(moved, *extra, points, targets, order, rate)
    return moved if returned is None else returned


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("d", [1, 3, 4, 9])
def test_kernels_are_the_obvious_loops(name, d):
    arguments = problem(d=d)
    np.testing.assert_allclose(
        run(getattr(competition, name), *arguments),
        run(getattr(oracles, name), *arguments),
        rtol=1e-4,
        atol=1e-5,  # pulls below a millionth of the step are left out
    )


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1.0, np.inf])
@pytest.mark.parametrize("unit", [0.0, 1e-200, 1e150, 1e200])
def test_kernels_keep_numbers_numbers(name, temperature, unit):
    codevectors, labels, points, *rest = problem()
    kernel, scaled = getattr(competition, name), (unit * codevectors, labels, unit * points, *rest)
    moved = run(kernel, *scaled, temperature=temperature)
    assert np.isfinite(moved).all()
    if unit in (0.0, 1e150):  # elsewhere squares under- or overflow
        usual = temperature if unit == 0.0 else temperature / unit**2
        expected = unit * run(kernel, codevectors, labels, points, *rest, temperature=usual)
        np.testing.assert_allclose(moved, expected, rtol=1e-6)


def test_rslvq_far_from_everything_does_not_underflow():
    # Every exp(-d/T) is 0 in double precision, and the own class is far behind the other.
    codevectors, labels = np.array([[0.0], [10.0]]), np.array([0, 1])
    points, targets = np.array([[1000.0]]), np.array([0])
    masses, order = np.ones(2), np.array([0])
    competition.rslvq(codevectors, masses, labels, 1.0, points, targets, order, 0.1)
    np.testing.assert_allclose(codevectors, [[100.0], [10.0 - 99.0]])


def test_one_pass_of_stochastic_vq_is_definition_1():
    points, _ = make_blobs(200, centers=4, random_state=0)
    start = points[:4]
    quantizer = StochasticVQ(4, init=start).partial_fit(points[:150]).partial_fit(points[150:])
    expected, total = oracles.compete(start, points, range(200))
    np.testing.assert_allclose(quantizer.codevectors_, expected)
    assert quantizer.history_[1][0] == 200
    assert 150 * quantizer.history_[0][1] + 50 * quantizer.history_[1][1] == pytest.approx(total)
    assert (quantizer.n_iter_, len(quantizer.labels_)) == (2, 50)


def test_stochastic_vq_approaches_k_means_from_the_same_start():
    points, _ = make_blobs(1000, centers=5, random_state=0)
    start = KMeans(5, n_init=1, max_iter=1, random_state=0).fit(points).cluster_centers_
    means = KMeans(5, init=start).fit(points)
    quantizer = StochasticVQ(5, init=start, random_state=0).fit(points)
    assert -quantizer.score(points) < 1.02 * means.inertia_ / len(points)
    assert [seen for seen, _ in quantizer.history_] == [1000 * n for n in range(1, 11)]


@pytest.mark.parametrize("estimator", CLUSTERERS)
def test_clusterers_agree_with_themselves(estimator):
    points, _ = make_blobs(300, centers=3, random_state=1)
    fitted = clone(estimator).fit(points)
    divergences = ((points[:, None] - fitted.codevectors_) ** 2).sum(-1)
    np.testing.assert_allclose(fitted.transform(points), np.sqrt(divergences))
    assert fitted.inertia_ == pytest.approx(divergences.min(1).sum())
    np.testing.assert_array_equal(fitted.predict(points), divergences.argmin(1))
    np.testing.assert_array_equal(fitted.labels_, fitted.predict(points))
    np.testing.assert_array_equal(clone(estimator).fit_predict(points), fitted.labels_)
    assert fitted.score(points) == pytest.approx(-divergences.min(1).mean())
    assert fitted.cluster_centers_ is fitted.codevectors_
    names = fitted.set_output(transform="default").get_feature_names_out()
    assert names.tolist() == [f"{type(fitted).__name__.lower()}{k}" for k in range(3)]
    copied = pickle.loads(pickle.dumps(fitted))
    assert copied.history_ == fitted.history_


@pytest.mark.parametrize("algorithm", KERNELS)
def test_lvq_learns(algorithm):
    points, targets = make_moons(600, noise=0.1, random_state=0)
    names = np.array(["lower", "upper"])[targets]
    classifier = LVQ(5, algorithm=algorithm, random_state=0).fit(points[:300], names[:300])
    assert classifier.score(points[300:], names[300:]) > 0.95
    assert classifier.codevectors_.shape == (10, 2)
    assert classifier.codevector_labels_.tolist() == ["lower"] * 5 + ["upper"] * 5
    assert classifier.classes_.tolist() == ["lower", "upper"]


def test_lvq_decides_by_the_nearest_codevector_of_each_class():
    points, targets = make_blobs(90, centers=3, random_state=0)
    for n_classes in (2, 3):
        rows = targets < n_classes
        model = LVQ(random_state=0).fit(points[rows], targets[rows])
        assert len(model.codevectors_) == 8 * n_classes
        squares = ((points[rows, None] - model.codevectors_) ** 2).sum(axis=2)
        own = [squares[:, model.codevector_labels_ == c].min(axis=1) for c in range(n_classes)]
        found = model.decision_function(points[rows])
        wanted = own[0] - own[1] if n_classes == 2 else -np.column_stack(own)
        np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_lvq_starts_where_it_is_told_to():
    points, targets = make_blobs(300, centers=[[-3, 0], [3, 0]], random_state=0)
    start = np.array([[-1.0, 1.0], [1.0, 1.0]])
    before = start.copy()
    assert LVQ(1, init=start, random_state=0).fit(points, targets).score(points, targets) > 0.98
    np.testing.assert_array_equal(start, before)
    backwards = LVQ(1, init=start[::-1], rate=1e-9, random_state=0).fit(points, targets)
    np.testing.assert_allclose(backwards.codevectors_, start[::-1], atol=1e-4)
    assert backwards.score(points, targets) < 0.02


def test_a_rare_class_gets_as_many_prototypes_as_samples():
    points, targets = np.arange(12.0).reshape(-1, 1), np.array([0] * 10 + [1] * 2)
    classifier = LVQ(4, random_state=0).fit(points, targets)
    assert classifier.codevector_labels_.tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("temperature", [0.3, 2.0, 20.0])
def test_batch_annealing_settles_where_the_oracle_does(temperature, monkeypatch):
    monkeypatch.setattr(batch_annealing, "_BLOCK", 100)  # several blocks, the last one short
    points, _ = make_blobs(130, centers=4, random_state=0)
    start = points[:4]
    masses, codevectors, n_iter = batch_annealing._settle(
        points, np.full(130, 1 / 130), np.full(4, 0.25), start, temperature, 5000, 1e-12
    )
    expected_masses, expected = oracles.batch_annealing(points, start, temperature, 5000)
    np.testing.assert_allclose(masses, expected_masses, atol=1e-6)
    np.testing.assert_allclose(codevectors, expected, atol=1e-6)
    assert 1 < n_iter < 5000


def test_batch_annealing_is_nearly_as_good_as_k_means_with_restarts():
    ratios = []
    for seed in range(10):
        points, _ = make_blobs(500, centers=6, random_state=seed)
        annealing = BatchDeterministicAnnealing(6, random_state=0).fit(points)
        means = KMeans(6, n_init=5, random_state=0).fit(points)
        ratios.append(-annealing.score(points) * len(points) / means.inertia_)
    assert np.median(ratios) < 1.005
    assert max(ratios) < 1.1


def test_batch_annealing_weighs_clusters_by_their_samples():
    points, _ = make_blobs([300, 100], centers=[[0, 0], [20, 0]], random_state=0)
    annealing = BatchDeterministicAnnealing(2, random_state=0).fit(points)
    np.testing.assert_allclose(np.sort(annealing.weights_), [0.25, 0.75])


def test_batch_annealing_records_every_temperature():
    points, _ = make_blobs(300, centers=9, cluster_std=0.1, random_state=0)  # for five clusters
    annealing = BatchDeterministicAnnealing(5, cooling=0.3, random_state=0).fit(points)
    total = points.var(axis=0).sum()
    first, *_, last = history = annealing.history_
    assert first.temperature == pytest.approx(2 * total)
    assert first.n_clusters == 1
    assert first.distortion == pytest.approx(total)
    assert last.temperature == pytest.approx(1e-3 * total)
    assert last.temperature == annealing.temperature_
    assert last.distortion == pytest.approx(-annealing.score(points))
    assert last.n_samples_seen == annealing.n_iter_ * 300
    ratios = [b.temperature / a.temperature for a, b in itertools.pairwise(history[:-1])]
    np.testing.assert_allclose(ratios, 0.3)
    sizes = [record.n_clusters for record in history]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 5


def test_the_first_split_comes_at_the_critical_temperature():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(3000, 2)) * [2.0, 0.3]
    critical = 2 * np.linalg.eigvalsh(np.cov(points.T)).max()
    annealing = BatchDeterministicAnnealing(2, cooling=0.9, max_iter=1000, random_state=0)
    pair = next(record for record in annealing.fit(points).history_ if record.n_clusters == 2)
    assert 0.85 * critical < pair.temperature < critical


def test_batch_annealing_finds_no_more_than_there_is():
    points = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], 10, axis=0)
    fitted = BatchDeterministicAnnealing(8, random_state=0).fit(points)
    assert len(fitted.codevectors_) == 3
    assert fitted.score(points) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [(StochasticVQ(2.5), r"'n_clusters' parameter .* Got 2.5 instead"),
     (StochasticVQ(21), r"n_samples=20 should be >= n_clusters=21 to begin\."),
     (StochasticVQ(2, init=np.zeros((3, 2))), r"initial codevectors \(3, 2\) .* \(2, 2\)"),
     (StochasticVQ(2, init=np.zeros((2, 3))), r"initial codevectors \(2, 3\) .* \(2, 2\)"),
     (StochasticVQ(1, init=[[np.nan, 0.0]]), r"Input init contains NaN"),
     (LVQ(algorithm="lvq4"), r"'algorithm' parameter .* Got 'lvq4' instead"),
     (LVQ(1, init=np.zeros((3, 2))), r"initial codevectors \(3, 2\) .* \(2, 2\)"),
     (BatchDeterministicAnnealing(cooling=1.0), r"'cooling' parameter .* Got 1.0 instead")],
)  # fmt: skip
def test_bad_arguments(estimator, message):
    points = np.arange(40.0).reshape(20, 2)
    with pytest.raises(ValueError, match=message):
        estimator.fit(points, np.arange(20) % 2)


def test_partial_fit_wants_enough_to_start_with_and_continues_a_fit():
    with pytest.raises(ValueError, match="n_samples=2 should be >= n_clusters=3"):
        StochasticVQ(3).partial_fit([[0.0], [1.0]])
    points, _ = make_blobs(100, centers=3, random_state=0)
    quantizer = StochasticVQ(3, max_iter=2, random_state=0).fit(points)
    before = quantizer.codevectors_.copy()
    quantizer.partial_fit(points[:1])
    assert [seen for seen, _ in quantizer.history_] == [100, 200, 201]
    assert (quantizer.codevectors_ != before).any(axis=1).sum() == 1
