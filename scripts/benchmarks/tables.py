"""Small tables with untouched defaults: accuracy, log loss and R² beside scikit-learn's estimators.

For each seed a shuffled, stratified five-fold cross-validation, in which all methods have the same
folds and features as they are, without scaling. The log loss of a method without probabilities is
left out. R² is that of all folds together, as a fold may have four rows.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from common.experiment import Experiment, Selection, chosen, seconds
from common.summaries import Column, Row, Rows, Table, among, the
from river import datasets as streams
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from statsmodels import datasets as surveys

import oda_rl
from oda_rl._types import Array, FloatArray

EXPERIMENT = Experiment("benchmark_tables", timed=True)
CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "ODAClassifier": lambda seed: oda_rl.ODAClassifier(random_state=seed),
    "ODATreeClassifier": lambda seed: oda_rl.ODATreeClassifier(random_state=seed),
    "DensityClassifier": lambda seed: oda_rl.DensityClassifier(random_state=seed),
    "LVQ": lambda seed: oda_rl.LVQ(random_state=seed),
    "random forest": lambda seed: RandomForestClassifier(random_state=seed),
    "logistic regression": lambda seed: LogisticRegression(random_state=seed),
    "naive Bayes": lambda seed: GaussianNB(),
}
REGRESSORS: dict[str, Callable[[int], Any]] = {
    "ODARegressor": lambda seed: oda_rl.ODARegressor(random_state=seed),
    "ODATreeRegressor": lambda seed: oda_rl.ODATreeRegressor(random_state=seed),
    "random forest": lambda seed: RandomForestRegressor(random_state=seed),
    "linear regression": lambda seed: LinearRegression(),
}


SCIKIT_LEARN, RIVER, STATSMODELS = "scikit-learn", "river", "statsmodels"
CLASSES = {
    **dict.fromkeys(("iris", "wine", "breast_cancer", "digits"), SCIKIT_LEARN),
    **dict.fromkeys(("Phishing", "ImageSegments", "Bananas"), RIVER),
    **dict.fromkeys(("spector", "anes96", "modechoice"), STATSMODELS),
}
TARGETS = {
    **{"diabetes": SCIKIT_LEARN, "friedman": SCIKIT_LEARN, "TrumpApproval": RIVER},
    **dict.fromkeys(("cancer", "ccard", "committee", "copper", "engel"), STATSMODELS),
    **dict.fromkeys(("longley", "scotland", "stackloss", "statecrime"), STATSMODELS),
}


def load(name: str) -> tuple[FloatArray, Array]:
    """Return a set that comes with a library."""
    library = {**CLASSES, **TARGETS}[name]
    if name == "friedman":
        return datasets.make_friedman1(500, noise=1.0, random_state=0)
    if library == SCIKIT_LEARN:
        return getattr(datasets, f"load_{name}")(return_X_y=True)
    if library == RIVER:
        xs, ys = zip(*getattr(streams, name)(), strict=True)
        return np.array([list(x.values()) for x in xs], dtype=np.float64), np.array(ys)
    data = getattr(surveys, name).load_pandas()
    return data.exog.to_numpy(np.float64), data.endog.to_numpy(np.float64)


def measure(*, data: str, seed: int) -> list[Row]:
    """Score all methods in five folds."""
    X, y = load(data)
    classifies, rows = data in CLASSES, []
    methods = CLASSIFIERS if classifies else REGRESSORS
    splitter = (StratifiedKFold if classifies else KFold)(5, shuffle=True, random_state=seed)
    for fold, (train, test) in enumerate(splitter.split(X, y)):
        for name, make in methods.items():
            model = make(seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                taken = seconds(lambda model=model, train=train: model.fit(X[train], y[train]))
            loss, found, true = np.nan, model.predict(X[test]), y[test]
            if hasattr(model, "predict_proba"):
                loss = log_loss(true, model.predict_proba(X[test]), labels=model.classes_)
            error = np.mean(found != true) if classifies else np.mean((found - true) ** 2) / y.var()
            about = {"fold": fold, "method": name, "score": 1.0 - float(error)}
            rows.append({**about, "loss": loss, "seconds": taken})
    return rows


def tables(rows: Rows) -> dict[str, Table]:
    """Mean accuracy, or R², and log loss of each method on each set, and the time."""

    def means(group: Rows) -> str:
        score, loss = np.mean(group.column("score")), np.mean(group.column("loss"))
        return f"{score:.3f}" if np.isnan(loss) else f"{score:.3f}, {loss:.2f}"

    def time(group: Rows) -> str:
        method = group[0]["method"]  # the first is the default of the package
        own, forest = (group.where(method=name) for name in (method, "random forest"))
        return f"{np.median(own.column('seconds') / forest.column('seconds')):.1f}"

    found = {}
    for title, sets in (("tables_classes", CLASSES), ("tables_targets", TARGETS)):
        part = Rows(row for row in rows if row["data"] in sets)
        columns = [Column("", the("data"))]
        columns += [Column(name, among(means, method=name)) for name in part.values("method")]
        columns.append(Column("time / forest", time))
        about = f"means of five folds, {len(part.values('seed'))} times, defaults"
        found[title] = Table(about, columns, part.groups("data"))
    return found


@dataclass(frozen=True)
class Options(Selection):
    seeds: int = 5  # Cross-validations of each method on each set


def settings(options: Options) -> list[Row]:
    names = chosen(options.only, [*CLASSES, *TARGETS])
    return [{"data": name, "seed": seed} for name in names for seed in EXPERIMENT.seeds(options)]
