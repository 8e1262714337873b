"""scikit-learn's own checks, of every estimator that the package exports."""

import inspect

import numpy as np
import pytest
from sklearn.base import is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_checks as checks
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_estimator_files import KINDS

import oda_rl

TREES = oda_rl.ODATreeClassifier, oda_rl.ODATreeClusterer, oda_rl.ODATreeRegressor
SMALL = {  # "auto" is among the others
    oda_rl.BatchDeterministicAnnealing: {"n_clusters": 4},
    oda_rl.DensityClassifier: {"estimator": oda_rl.StochasticEMGaussianMixture(init="random")},
    oda_rl.DistributedODAClassifier: {"n_clusters": 4},
    oda_rl.DistributedODAClusterer: {"n_clusters": 4},
    oda_rl.INFEX: {"bandwidth": "scott", "tol": 1e-3},
    oda_rl.ODAClassifier: {"n_clusters": 4},
    oda_rl.ODAClusterer: {"n_clusters": 4},
    oda_rl.ODARegressor: {"n_clusters": 4},
    **{kind: {"max_depth": 2} for kind in TREES},
}
# Those whose fit or predict runs other code than that of the defaults.
OTHERS = [
    oda_rl.INFEX(),
    oda_rl.INFEX("mean_variance", tol=1e-4),
    oda_rl.LVQ(n_prototypes=2, algorithm="rslvq"),
    oda_rl.ODAClusterer(refine=False, forgetting=0.1),
    oda_rl.ODAClassifier(4, prediction="nearest", fine_tuning="mrslvq"),
    oda_rl.ODAClassifier("auto"),
    oda_rl.ODAClusterer("auto"),
    oda_rl.ODARegressor("auto", local_model="constant"),
    oda_rl.SGDGaussianMixture(2, update="sgd", max_iter=5),
    oda_rl.SGDGaussianMixture(3, batch_size=7, covariance_type="full"),
    oda_rl.SOM(shape=2, periodic=True, init="random"),
]

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:bandwidth=.* is so small:UserWarning"),
]

COUNTING = oda_rl.ConvexClustering, oda_rl.INFEX, *TREES


NUMERICAL = [  # the other checks are about the class, whatever its parameters
    checks.check_fit2d_1feature,
    checks.check_fit2d_1sample,
    checks.check_methods_subset_invariance,
    checks.check_sample_weight_equivalence_on_dense_data,
]


def expected_to_fail(estimator):
    """Rules that have a number of samples: repetition raises it, a common factor does not."""
    reason = "the number of samples is the effective one, (Σw)²/Σw²"
    names = ["check_sample_weight_equivalence_on_dense_data"]
    chooses = getattr(estimator, "n_clusters", 0) == "auto"
    counts = isinstance(estimator, COUNTING) or (chooses and not is_regressor(estimator))
    return dict.fromkeys(names, reason) if counts else {}


@parametrize_with_checks(
    [kind(**SMALL.get(kind, {})) for kind in KINDS], expected_failed_checks=expected_to_fail
)
def test_with_defaults(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", OTHERS, ids=str)
@pytest.mark.parametrize("check", NUMERICAL, ids=lambda check: check.__name__)
def test_with_other_parameters(estimator, check):
    if check.__name__ not in expected_to_fail(estimator):
        check(type(estimator).__name__, estimator)


@pytest.mark.parametrize("kind", KINDS)
def test_methods_before_fit_say_so(kind):
    model, data = kind(), (np.ones((4, 2)), np.arange(4) % 2)
    for name, method in inspect.getmembers(model, inspect.ismethod):
        if not name.startswith(("_", "fit", "get_", "load", "partial_fit", "save", "set_")):
            defaults = [given.default for given in inspect.signature(method).parameters.values()]
            with pytest.raises(NotFittedError):
                method(*data[: defaults.count(inspect.Parameter.empty)])


def test_a_parameter_is_its_type_its_range_and_its_default():
    signature = inspect.signature(oda_rl.ODATreeClassifier)
    assert str(signature.parameters["cooling"]) == "cooling: float = 0.8"  # that of its base
    assert signature.parameters["min_samples_split"].default == 5
    assert signature.parameters["branching"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    for kind in KINDS:
        assert kind._parameter_constraints.keys() == kind().get_params().keys()
    with pytest.raises(ValueError, match=r"'cooling' .* range \(0.0, 1.0\)"):
        oda_rl.ODATreeClassifier(cooling=1.0).fit([[0.0], [1.0]], [0, 1])
