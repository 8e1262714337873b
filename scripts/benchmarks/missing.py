"""What is learned where values are missing, beside whole data and imputed values.

Of every set two thirds are learned from, and a share of their values is left out completely at
random. Estimators of this package learn from them as they are ("holes"), after means have been put
in ("means"), or what regressions on the other features say (scikit-learn's ``IterativeImputer``:
"regressed"), and from the data without holes ("whole"). The rest of the set says how well: by the
mean log-likelihood of whole samples (mixtures), their mean squared distance from the nearest
codevector (codebooks), or the accuracy on samples of which as many values are missing (classifier).

Run: python scripts/benchmark.py missing
Runs are kept as they end in results/benchmark_missing.jsonl; writes results/benchmark_missing.csv.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from common.datasets import load
from common.experiment import Experiment, SharedOptions, chosen, say
from common.summaries import Column, Row, Rows, Table, Text, the
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from oda_rl import (
    SOM,
    ODAClassifier,
    ODAClusterer,
    SGDGaussianMixture,
    StochasticEMGaussianMixture,
)
from oda_rl._types import FloatArray, IntArray

EXPERIMENT = Experiment("benchmark_missing")
SHARES = (0.1, 0.25, 0.5)
SETS = ("correlated", "WDBC")
WAYS = ("whole", "holes", "means", "regressed")
CORRELATED = 900, 6, 5  # samples, components, features
LEARNERS: dict[str, Callable[[], BaseEstimator]] = {
    "SGD mixture, diagonal": lambda: SGDGaussianMixture(6),
    "stochastic EM, full": lambda: StochasticEMGaussianMixture(6, covariance_type="full"),
    "clusterer": lambda: ODAClusterer(10),
    "map": lambda: SOM((3, 4)),
    "classifier": lambda: ODAClassifier(12),
}
_FEW = 10  # features, of which few samples say enough for full covariances


def sample(data: str, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Return a data set, standardised."""
    if data == "correlated":
        n, n_components, d = CORRELATED
        labels = rng.integers(n_components, size=n)
        turn = rng.normal(size=(d, d)) / np.sqrt(d)
        points = rng.normal(scale=2.0, size=(n_components, d))[labels]
        return points + rng.normal(size=(n, d)) @ turn, labels
    points, labels = load(data, None, None, rng)
    return StandardScaler().fit_transform(points), labels


def with_holes(points: FloatArray, share: float, rng: np.random.Generator) -> FloatArray:
    """Leave out values, but not all of a sample, and not all of a feature."""
    holes = rng.random(points.shape) < share
    holes[np.arange(len(points)), rng.integers(points.shape[1], size=len(points))] = False
    holes[rng.integers(len(points), size=points.shape[1]), np.arange(points.shape[1])] = False
    return np.where(holes, np.nan, points)


def compare(*, data: str, share: float, seed: int) -> list[Row]:
    """Learn in every way, and measure."""
    rng = np.random.default_rng(seed)
    points, labels = sample(data, rng)
    train, test, own, wanted = train_test_split(
        points, labels, test_size=1 / 3, random_state=seed, stratify=labels
    )
    holed, hidden = with_holes(train, share, rng), with_holes(test, share, rng)
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for way in WAYS:
            seen, asked = prepared(way, train, test, holed, hidden)
            for name, make in LEARNERS.items():
                if name.endswith("full") and points.shape[1] > _FEW:
                    continue
                model = clone(make()).set_params(random_state=seed).fit(seen, own)
                score = model.score(asked, wanted) if name == "classifier" else model.score(test)
                rows.append({"learner": name, "way": way, "score": float(score)})
    return rows


def prepared(way: str, *parts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what is learned from, and what is to be classified."""
    train, test, holed, hidden = parts
    if way == "whole":
        return train, test
    if way == "holes":
        return holed, hidden
    imputer = SimpleImputer() if way == "means" else IterativeImputer(max_iter=5, random_state=0)
    return imputer.fit_transform(holed), imputer.transform(hidden)


def median(way: str) -> Text:
    """Make a text of the median of a way."""

    def text(own: Rows) -> str:
        factor = -1.0 if own[0]["learner"] in ("clusterer", "map") else 1.0
        return f"{factor * np.median(own.where(way=way).column('score')):.3g}"

    return text


def ahead(way: str) -> Text:
    """Make a text of how often learning from holes is no worse than a way."""

    def text(own: Rows) -> str:
        gaps = own.where(way="holes").column("score") - own.where(way=way).column("score")
        return f"{int((gaps >= 0.0).sum())} of {len(gaps)}"

    return text


def tables(rows: Rows) -> dict[str, Table]:
    """Return the medians, a line for each set, share and learner."""
    lines = [
        own
        for data in SETS
        for learner in LEARNERS
        for share in rows.values("share")
        if (own := rows.where(data=data, learner=learner, share=share))
    ]
    columns = [
        Column("data", the("data")),
        Column("learner", the("learner")),
        Column("missing", the("share", ".0%")),
        *(Column(way, median(way)) for way in WAYS),
        *(Column(f"≥ {way}", ahead(way)) for way in WAYS[2:]),
    ]
    return {"missing": Table("medians", columns, lines)}


@dataclass(frozen=True)
class Options(SharedOptions):
    """What to compare, and where to run."""

    only: tuple[str, ...] = ()
    """Names of the data sets to do; all by default."""
    shares: tuple[float, ...] = SHARES
    """Of the values that are left out."""


def main(options: Options) -> None:
    """Compare what is learned with holes, without them, and with imputed values."""
    settings: list[dict[str, Any]] = [
        {"data": data, "share": share, "seed": seed}
        for data in chosen(options.only, SETS)
        for share in options.shares
        for seed in EXPERIMENT.seeds(options)
    ]
    rows = EXPERIMENT.run(compare, settings, options.execution)
    say(*tables(rows).values())
