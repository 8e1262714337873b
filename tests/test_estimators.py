"""scikit-learn's own checks, of every estimator that the package exports."""

import inspect

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

import oda_rl

# Those whose fit or predict runs other code than that of the defaults.
OTHERS = [
    oda_rl.INFEX("mean_variance", tol=1e-4),
    oda_rl.LVQ(n_prototypes=2, algorithm="rslvq"),
    oda_rl.ODAClusterer(refine=False, forgetting=0.1),
    oda_rl.ODAClassifier(4, prediction="nearest", fine_tuning="mrslvq"),
    oda_rl.ODAClusterer("auto"),
    oda_rl.ODARegressor(60, local_model="constant"),
    oda_rl.SGDGaussianMixture(2, update="sgd", max_iter=5),
    oda_rl.SGDGaussianMixture(3, batch_size=7, covariance_type="full"),
    oda_rl.SOM(shape=2, periodic=True, init="random"),
]

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:bandwidth=.* is so small:UserWarning"),
]

EXPORTED = [getattr(oda_rl, name) for name in oda_rl.__all__]
ESTIMATORS = [kind for kind in EXPORTED if issubclass(kind, BaseEstimator)]


COUNTING = (
    oda_rl.ConvexClustering,
    oda_rl.INFEX,
    oda_rl.ODATreeClassifier,
    oda_rl.ODATreeClusterer,
    oda_rl.ODATreeRegressor,
)


def expected_to_fail(estimator):
    """Rules that have a number of samples: repetition raises it, a common factor does not."""
    reason = "the number of samples is the effective one, (Σw)²/Σw²"
    names = ["check_sample_weight_equivalence_on_dense_data"]
    counts = isinstance(estimator, COUNTING) or getattr(estimator, "n_clusters", 0) == "auto"
    return dict.fromkeys(names, reason) if counts else {}


@parametrize_with_checks(
    [estimator() for estimator in ESTIMATORS], expected_failed_checks=expected_to_fail
)
def test_with_defaults(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(OTHERS, expected_failed_checks=expected_to_fail)
def test_with_other_parameters(estimator, check):
    check(estimator)


def test_a_parameter_is_its_type_its_range_and_its_default():
    signature = inspect.signature(oda_rl.ODATreeClassifier)
    assert str(signature.parameters["cooling"]) == "cooling: float = 0.8"  # that of its base
    assert signature.parameters["min_samples_split"].default == 5
    assert signature.parameters["branching"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    for kind in ESTIMATORS:
        assert kind._parameter_constraints.keys() == kind().get_params().keys()
    with pytest.raises(ValueError, match=r"'cooling' .* range \(0.0, 1.0\)"):
        oda_rl.ODATreeClassifier(cooling=1.0).fit([[0.0], [1.0]], [0, 1])
