"""Classifiers beside a random forest, on sets that were used to choose no setting.

Four sets of scikit-learn and six that are drawn here, each hard in a way of its own: labels that
only a few features matter to, uneven classes, a label that depends on one pair of features here and
on another there. Five folds a seed, with other folds (and samples, where they are drawn) for each.
Features are standardised with the training set's moments. ``ODAClassifier("auto")`` chooses within
the training set; of the forest's settings none matters as much as the number of trees, which is
500, where scikit-learn's default is 100. The third is a density a class, of two Gaussians with full
covariances, where features are few enough for these.

Accuracy, and for the uneven classes balanced accuracy.

Run: python scripts/compare_forests.py --seeds 4
Runs are kept as they end in results/compare_forests.jsonl; writes results/compare_forests.csv.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from common.datasets import Sample
from common.experiment import Experiment, SharedOptions, chosen, say, seconds, start
from common.summaries import Column, Row, Rows, Table, among, of, the
from sklearn.base import ClassifierMixin
from sklearn.datasets import (
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
    make_friedman1,
    make_gaussian_quantiles,
    make_hastie_10_2,
)
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from oda_rl import DensityClassifier, ODAClassifier, StochasticEMGaussianMixture

EXPERIMENT = Experiment("compare_forests")
N_FOLDS = 5
N_TREES = 500
UNEVEN = "uneven classes"
_N = 1500
_FEW = 30  # features


def diabetes(seed: int) -> Sample:
    """Return whether a disease went on faster than in half of the patients."""
    points, progress = load_diabetes(return_X_y=True)
    return points, (progress > np.median(progress)).astype(np.int64)


def friedman(seed: int) -> Sample:
    """Return thirds of a smooth function of five features in ten."""
    points, values = make_friedman1(_N, noise=1.0, random_state=seed)
    return points, np.digitize(values, np.quantile(values, (1 / 3, 2 / 3)))


def switching(seed: int) -> Sample:
    """Return a label that the signs of one pair of features, or of another, decide."""
    points = np.random.default_rng(seed).normal(size=(_N, 8))
    here = points[:, 0] > 0.0
    first, second = points[:, 1] * points[:, 2], points[:, 3] + points[:, 4]
    return points, (np.where(here, first, second) > 0.0).astype(np.int64)


SETS: dict[str, Callable[[int], Sample]] = {
    "iris": lambda seed: load_iris(return_X_y=True),
    "wine": lambda seed: load_wine(return_X_y=True),
    "digits": lambda seed: load_digits(return_X_y=True),
    "diabetes": diabetes,
    "few informative": lambda seed: make_classification(
        _N, 20, n_informative=5, n_redundant=5, n_clusters_per_class=3, random_state=seed
    ),
    UNEVEN: lambda seed: make_classification(
        2 * _N, 12, n_informative=6, weights=[0.93], class_sep=1.2, flip_y=0.0, random_state=seed
    ),
    "quantiles": lambda seed: make_gaussian_quantiles(
        n_samples=_N, n_features=6, n_classes=3, random_state=seed
    ),
    "sum of squares": lambda seed: make_hastie_10_2(2 * _N, random_state=seed),
    "Friedman": friedman,
    "switching": switching,
}
DENSITY = "a density a class"
METHODS: dict[str, Callable[[int], ClassifierMixin]] = {
    "ODA": lambda seed: ODAClassifier("auto", random_state=seed),
    DENSITY: lambda seed: DensityClassifier(
        StochasticEMGaussianMixture(2, covariance_type="full"), random_state=seed
    ),
    "random forest": lambda seed: RandomForestClassifier(N_TREES, random_state=seed),
}


def compare(*, data: str, seed: int) -> list[Row]:
    """Fit each to five folds, and score them on the rest."""
    points, classes = SETS[data](seed)
    score = balanced_accuracy_score if data == UNEVEN else accuracy_score
    rows = []
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed).split(points, classes)
    for fold, (train, test) in enumerate(folds):
        scaler = StandardScaler().fit(points[train])
        shown, hidden = scaler.transform(points[train]), scaler.transform(points[test])
        for method, make in METHODS.items():
            if method == DENSITY and points.shape[1] > _FEW:
                continue
            model = make(seed)
            with threadpool_limits(1):
                taken = seconds(lambda: model.fit(shown, classes[train]))  # noqa: B023
                found = float(score(classes[test], model.predict(hidden)))
            rows.append({"method": method, "fold": fold, "score": found, "seconds": taken})
    return rows


def tables(rows: Rows) -> dict[str, Table]:
    """Return the means of the folds."""
    scores, times = of(np.mean, "score", ".3f"), of(np.mean, "seconds", ".2f")
    columns = [
        Column("", the("data")),
        Column("folds", lambda own: str(len(own.groups("seed", "fold")))),
        *(Column(name, among(scores, method=name)) for name in METHODS),
        *(Column(f"{name}, s", among(times, method=name), printed_only=True) for name in METHODS),
    ]
    return {"forests": Table("unseen sets", columns, rows.groups("data"))}


@dataclass(frozen=True)
class Options(SharedOptions):
    """What to compare, and where to run."""

    only: tuple[str, ...] = ()
    """Names of the data sets to do; all by default."""


def main(options: Options) -> None:
    """Compare classifiers."""
    settings: list[dict[str, Any]] = [
        {"data": data, "seed": seed}
        for data in chosen(options.only, SETS)
        for seed in EXPERIMENT.seeds(options)
    ]
    say(*tables(EXPERIMENT.run(compare, settings, options.execution)).values())


if __name__ == "__main__":
    start(main, Options, __doc__)
