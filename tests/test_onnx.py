"""Estimators in ONNX predict what they predict in Python."""

from functools import cache

import numpy as np
import onnxruntime
import pytest
from skl2onnx import to_onnx
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris, make_moons
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler

import oda_rl
import oda_rl.onnx
from oda_rl.divergences import BregmanDivergence, Mahalanobis
from oda_rl.exporting.c_header import whole_numbers
from oda_rl.exporting.onnx import _CONVERTERS

IRIS = load_iris().data
NAMES = np.array(["setosa", "versicolor", "virginica"])[load_iris().target]
NUMBERS = 5 * load_iris().target - 3
MOONS, SIDES = make_moons(300, noise=0.15, random_state=0)
DIGITS = load_digits().data[:300]
CUBES = BregmanDivergence(lambda x: (x**3).sum(axis=1), lambda x: 3.0 * x**2)


def skewed(d):
    root = np.random.default_rng(d).normal(size=(d, d))
    return Mahalanobis(root @ root.T)


CASES = {
    "annealing": (oda_rl.BatchDeterministicAnnealing(5, random_state=0), IRIS, None),
    "map": (oda_rl.SOM((3, 3), random_state=0), IRIS, None),
    "quantizer": (oda_rl.StochasticVQ(6, random_state=0), DIGITS, None),
    "LVQ": (oda_rl.LVQ(3, random_state=0), IRIS, NAMES),
    "clusters": (oda_rl.ODAClusterer(6, random_state=0), IRIS, None),
    "clusters, Mahalanobis": (
        oda_rl.ODAClusterer(6, divergence=skewed(64), random_state=0), DIGITS, None),
    "clusters, by sums": (oda_rl.DistributedODAClusterer(6, random_state=0), IRIS, None),
    "clusters, I": (oda_rl.ODAClusterer(6, divergence="i_divergence", random_state=1), IRIS, None),
    "classes": (oda_rl.ODAClassifier(12, random_state=0), MOONS, SIDES),
    "classes, by sums": (oda_rl.DistributedODAClassifier(9, random_state=0), IRIS, NAMES),
    "classes, numbers": (
        oda_rl.ODAClassifier(9, prediction="nearest", random_state=0), IRIS, NUMBERS),
    "classes, objects": (oda_rl.ODAClassifier(9, random_state=0), IRIS, NAMES.astype(object)),
    "classes, truths": (oda_rl.ODAClassifier(9, random_state=0), MOONS, SIDES > 0),
    "classes, Mahalanobis": (
        oda_rl.ODAClassifier(
            9, divergence=Mahalanobis(np.linalg.inv(np.cov(IRIS.T))), random_state=0),
        IRIS, NAMES),
    "classes, metric": (oda_rl.ODAClassifier(9, fine_tuning="mrslvq", random_state=0), IRIS, NAMES),
    "classes, cubes": (
        oda_rl.ODAClassifier(4, divergence=CUBES, fine_tuning=None, random_state=0), IRIS, NAMES),
    "regression": (oda_rl.ODARegressor(8, random_state=0), IRIS[:, 1:], IRIS[:, 0]),
    "regression, constants": (
        oda_rl.ODARegressor(8, local_model="constant"), IRIS[:, 1:], IRIS[:, 0]),
    "tree": (oda_rl.ODATreeClusterer(random_state=0), IRIS, None),
    "tree, a root": (oda_rl.ODATreeClusterer(min_samples_split=1000), IRIS, None),
    "tree, classes": (oda_rl.ODATreeClassifier(random_state=0), IRIS, NAMES),
    "tree, regression": (oda_rl.ODATreeRegressor(random_state=0), IRIS[:, 1:], IRIS[:, 0]),
    "tree, levels": (
        oda_rl.ODATreeClassifier(resolutions=[[2], [3, 0], range(4)], random_state=0),
        IRIS, NUMBERS),
    "tree, Itakura and Saito": (
        oda_rl.ODATreeClusterer(divergence="itakura_saito", random_state=0), IRIS, None),
    "mixture": (oda_rl.SGDGaussianMixture(4, tol=1e-2, random_state=0), MOONS, None),
    "mixture, full": (
        oda_rl.SGDGaussianMixture(4, covariance_type="full", tol=1e-2, random_state=0),
        MOONS, None),
    "mixture, spherical": (
        oda_rl.SGDGaussianMixture(4, covariance_type="tied_spherical", tol=1e-2, random_state=0),
        MOONS, None),
    "mixture, single": (
        oda_rl.SGDGaussianMixture(4, tol=1e-2, random_state=0), MOONS.astype(np.float32), None),
    "mixture, EM": (oda_rl.StochasticEMGaussianMixture(4, random_state=0), MOONS, None),
    "mixture, by sums": (
        oda_rl.DistributedGaussianMixture(3, covariance_type="full", random_state=0), IRIS, None),
    "exemplars": (oda_rl.INFEX(bandwidth=0.5, random_state=0), MOONS, None),
    "exemplars, finite": (
        oda_rl.INFEX(kernel="epanechnikov", bandwidth=0.5, random_state=0), MOONS, None),
    "exemplars, convex": (oda_rl.ConvexClustering(bandwidth=1.0), IRIS, None),
    "exemplars, balls": (oda_rl.KernelVectorQuantization(0.5), MOONS, None),
    "densities": (
        oda_rl.DensityClassifier(oda_rl.SGDGaussianMixture(4, tol=1e-2), random_state=0),
        MOONS, SIDES),
    "densities, cells": (
        oda_rl.DensityClassifier(oda_rl.ODAClusterer(4), random_state=0), MOONS, SIDES),
    "densities, exemplars": (
        oda_rl.DensityClassifier(
            oda_rl.INFEX(kernel="epanechnikov", bandwidth=0.5), random_state=0),
        MOONS, SIDES),
    "outliers": (
        oda_rl.DensityOutlierDetector(oda_rl.SGDGaussianMixture(4, tol=1e-2), random_state=0),
        MOONS, None),
    "outliers, cells": (
        oda_rl.DensityOutlierDetector(oda_rl.ODAClusterer(4, random_state=0)), MOONS, None),
    "outliers, balls": (
        oda_rl.DensityOutlierDetector(oda_rl.KernelVectorQuantization(0.5)), MOONS, None),
}  # fmt: skip


def converted(model, points, **settings):
    last = model[-1] if hasattr(model, "steps") else model
    if hasattr(last, "classes_"):
        settings.setdefault("options", {id(last): {"zipmap": False}})
    return to_onnx(model, points[:1], **settings)


def run(graph, points):
    session = onnxruntime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"X": points})


def around(X, n=1500):
    """Return the data and uniform points around them, where the divergences are defined."""
    rng = np.random.default_rng(0)
    low, high = X.min(axis=0), X.max(axis=0)
    wide = rng.uniform(np.where(low < 0.0, 1.2 * low, low), 1.2 * high, (n, X.shape[1]))
    return np.vstack([X, wide])


def compare(model, points, tolerance, ties, **settings):
    """Check all outputs, allowing a share of ``ties`` among the labels."""
    graph = converted(model, points, **settings)
    label, *others = run(graph, points)
    expected = model.predict(points)
    if expected.dtype.kind == "f":
        assert label.shape == (len(points), 1)
        np.testing.assert_allclose(label[:, 0], expected, rtol=tolerance, atol=tolerance)
        return
    same = label == expected
    assert same.shape == expected.shape
    assert same.mean() >= 1.0 - ties
    if hasattr(model, "predict_proba") and others:
        np.testing.assert_allclose(
            others[0][same], model.predict_proba(points)[same], atol=tolerance
        )
    if hasattr(model, "decision_function"):
        decisions = model.decision_function(points).reshape(len(points), -1)
        finite = same & (decisions[:, 0] > -1e30)
        np.testing.assert_allclose(others[0][finite], decisions[finite], tolerance, tolerance)
        assert (others[0][decisions < -1e30] <= -1e37).all()


@pytest.fixture(scope="module")
def fitted():
    """Fitted models by the names of cases; each is fitted once."""

    @cache
    def get(name):
        model, X, y = CASES[name]
        return model.fit(X, y), around(X)

    return get


@pytest.mark.parametrize("name", CASES)
def test_single_and_double_precision(name, fitted):
    model, points = fitted(name)
    compare(model, points.astype(np.float32), tolerance=2e-4, ties=2e-3)
    tolerance, ties = (1e-4, 2e-3) if name == "mixture, single" else (1e-9, 0.0)
    compare(model, points, tolerance, ties)


def test_every_estimator_that_predicts_has_a_converter():
    kinds = {getattr(oda_rl, name) for name in oda_rl.__all__}
    assert {kind for kind in kinds if hasattr(kind, "predict")} == set(_CONVERTERS)
    assert {type(model) for model, _, _ in CASES.values()} == set(_CONVERTERS)


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("name", ["classes, numbers", "tree, classes", "exemplars, finite"])
def test_older_opsets(name, opset, fitted):
    model, points = fitted(name)
    compare(model, points.astype(np.float32), 1e-4, 2e-3, target_opset=opset)


HOLED = IRIS + np.random.default_rng(1).normal(scale=1e-3, size=IRIS.shape)  # without ties
HOLED[np.random.default_rng(0).random(IRIS.shape) < 0.2] = np.nan
HOLED[np.isnan(HOLED).all(axis=1), 0] = 5.0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("model", "y"),
    [(oda_rl.SOM((2, 3), random_state=0), None), (oda_rl.ODAClusterer(5, random_state=0), None),
     (oda_rl.ODAClassifier(6, random_state=0), NAMES),
     (oda_rl.ODAClassifier(6, prediction="nearest", random_state=0), NAMES),
     (oda_rl.ODAClassifier(random_state=0), NAMES),
     (oda_rl.ODARegressor(5, random_state=0), IRIS[:, 0]),
     (oda_rl.ODATreeClusterer(resolutions=[[2], [0, 1], range(4)], random_state=0), None),
     (oda_rl.ODATreeClassifier(random_state=0), NAMES),
     (oda_rl.ODATreeRegressor(random_state=0), IRIS[:, 0]),
     (oda_rl.SGDGaussianMixture(3, random_state=0), None),
     (oda_rl.SGDGaussianMixture(3, covariance_type="tied_spherical", random_state=0), None),
     (oda_rl.DensityOutlierDetector(random_state=0), None),
     (oda_rl.DensityClassifier(random_state=0), NAMES)],
)  # fmt: skip
def test_missing_values_count_as_in_python(model, y):
    compare(model.fit(HOLED, y), HOLED, 1e-9, 0.0)


def test_full_covariances_of_missing_values_are_refused():
    mixture = oda_rl.SGDGaussianMixture(2, covariance_type="full", random_state=0).fit(HOLED)
    with pytest.raises(ValueError, match="has learned full covariances from missing values"):
        to_onnx(mixture, IRIS[:1])


@pytest.mark.parametrize(
    "name", ["clusters", "clusters, Mahalanobis", "tree", "mixture", "exemplars", "outliers"]
)
def test_log_densities_are_an_output_on_demand(name, fitted):
    model, points = fitted(name)
    graph = to_onnx(model, points[:1], options={type(model): {"score_samples": True}})
    found, wanted = run(graph, points)[-1][:, 0], model.score_samples(points)
    np.testing.assert_allclose(found, np.maximum(wanted, -1e300), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float64, 1e-9)])
@pytest.mark.parametrize("settings", [{}, {"divergence": skewed(2)}])
def test_distances_go_to_the_next_step_of_a_pipeline(settings, dtype, tolerance):
    kinds = (oda_rl.ODAClusterer, oda_rl.ODATreeClusterer)
    clusters = [kind(random_state=0, **settings) for kind in kinds]
    steps = make_union(StandardScaler(), oda_rl.SOM(random_state=0), *clusters)
    model = make_pipeline(steps, LogisticRegression()).fit(MOONS, SIDES)
    options = {kind: {"transform": True} for kind in (oda_rl.SOM, *kinds)}
    points = MOONS.astype(dtype)
    graph = to_onnx(model, points[:1], options={**options, LogisticRegression: {"zipmap": False}})
    np.testing.assert_allclose(run(graph, points)[1], model.predict_proba(points), atol=tolerance)


def test_in_a_pipeline_with_names_of_classes():
    steps = StandardScaler(), oda_rl.ODAClassifier(9, random_state=0)
    model = make_pipeline(*steps).fit(IRIS, NAMES)
    for dtype, tolerance in ((np.float32, 1e-4), (np.float64, 1e-9)):
        compare(model, IRIS.astype(dtype), tolerance, ties=0.0)
    points = IRIS.astype(np.float32)
    label, shares = run(to_onnx(model, points[:1]), points)  # as skl2onnx does it by default
    assert label.tolist() == model.predict(points).tolist()
    assert shares[0].keys() == set(NAMES)
    columns = to_onnx(model, points[:1], options={oda_rl.ODAClassifier: {"zipmap": "columns"}})
    np.testing.assert_array_equal(run(columns, points)[1], [row["setosa"] for row in shares])
    numbered = {oda_rl.ODAClassifier: {"zipmap": False, "nocl": True}}
    label, _ = run(to_onnx(model, points[:1], options=numbered), points)
    np.testing.assert_array_equal(model.classes_[label], model.predict(points))


@pytest.mark.parametrize(("size", "offset"), [(1e-30, 0.0), (1e30, 0.0), (1e-3, -30.0)])
@pytest.mark.parametrize("name", ["clusters", "classes", "tree", "mixture", "exemplars"])
def test_scale_and_offset_do_not_matter(name, size, offset):
    kind, X, y = CASES[name]
    model, X = type(kind)(**kind.get_params()), (MOONS * size + offset)
    if name == "exemplars":
        model.set_params(bandwidth=0.5 * size)
    model.fit(X, None if y is None else SIDES)
    points = X.astype(np.float32)
    label, shares, *_ = [*run(converted(model, points), points), None]
    assert (label == model.predict(points)).mean() > 0.99
    if shares is not None:
        assert np.isfinite(shares).all()


@pytest.mark.parametrize("classes", [SIDES, np.arange(300) // 100])
def test_scores_of_lvq_are_calibrated(classes):
    model = CalibratedClassifierCV(oda_rl.LVQ(3, random_state=0), cv=2).fit(MOONS, classes)
    compare(model, MOONS, 1e-6, 0.0)


def test_integer_input():
    model = oda_rl.ODAClusterer(6, random_state=0).fit(DIGITS)
    points = DIGITS.astype(np.int64)
    np.testing.assert_array_equal(run(to_onnx(model, points[:1]), points)[0], model.predict(points))


def test_models_that_are_still_annealing():
    mixture = oda_rl.SGDGaussianMixture(4, random_state=0).partial_fit(MOONS)
    compare(mixture, MOONS, 1e-9, 0.0)
    tree = oda_rl.ODATreeClassifier(random_state=0)
    for rows in np.split(np.arange(300), 3):
        tree.partial_fit(MOONS[rows], SIDES[rows])
    compare(tree, MOONS, 1e-9, 0.0)
    classes = oda_rl.ODAClassifier(8, random_state=0)
    for label in (1, 0):  # the order in which they are seen is not that of their labels
        classes.partial_fit(MOONS[label == SIDES], SIDES[label == SIDES])
    compare(classes, MOONS, 1e-9, 0.0)


def test_responsibilities_far_outside_are_finite():
    model = oda_rl.SGDGaussianMixture(4, tol=1e-2, random_state=0).fit(MOONS)
    far = np.array([[1e30, 0.0], [-3e38, 3e38]], dtype=np.float32)
    _, shares = run(to_onnx(model, far), far)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-6)


def test_errors_of_unsupported_models():
    def refused(model, match, points=MOONS, **settings):
        with pytest.raises(ValueError, match=match):
            to_onnx(model, points[:1], **settings)

    tree = oda_rl.ODATreeClusterer(resolutions=[lambda x: x[:, :1]], random_state=0).fit(MOONS)
    refused(tree, r"resolutions\[0\] is a function: to be exported it must be a sequence")
    foreign = oda_rl.DensityOutlierDetector(GaussianMixture(2)).fit(MOONS)
    refused(foreign, "a density is of GaussianMixture: to be exported it must be")
    clusters = oda_rl.ODAClusterer(3, random_state=0).fit(MOONS)
    refused(clusters, "target_opset is 12: it must be at least 13", target_opset=12)
    refused(clusters, "the input of ODAClusterer has 4 columns: it must have 2", IRIS)
    huge = oda_rl.ODAClusterer(3, random_state=0).fit(1e100 * MOONS)
    refused(huge, "beyond the range of single precision", MOONS.astype(np.float32))
    other = oda_rl.ODAClusterer(3, divergence="i_divergence", random_state=0).fit(IRIS)
    options = {oda_rl.ODAClusterer: {"transform": True}}
    refused(other, "with transform=True it must be squared Euclidean", IRIS, options=options)
    for ensemble in (BaggingClassifier, OneVsRestClassifier):
        model = ensemble(make_pipeline(StandardScaler(), oda_rl.LVQ(3))).fit(MOONS, SIDES)
        refused(model, f"LVQ in a {ensemble.__name__} cannot be exported")
    for kind in (oda_rl.ODAClusterer, oda_rl.ODAClassifier, oda_rl.ODARegressor):
        refused(make_union(kind(4)).fit(MOONS, SIDES), f"{kind.__name__} comes before another step")
    with pytest.raises(ValueError, match="they must be strings or integers"):
        whole_numbers(np.array([0.5, 1.0]))


def test_where_no_density_reaches_probabilities_still_sum_to_one(fitted):
    model, _ = fitted("densities, cells")
    np.testing.assert_allclose(model.predict_proba([[90.0, 90.0]]), [[0.5, 0.5]])
