import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from oda_rl import ODAClassifier, ODAClusterer, ODARegressor


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        ODAClusterer(),
        ODAClusterer(divergence="squared_euclidean", refine=False, forgetting=0.1),
        ODAClassifier(),
        ODAClassifier("auto", prediction="nearest", fine_tuning="glvq"),
        ODARegressor(),
        ODARegressor(local_model="constant"),
    ]
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)
