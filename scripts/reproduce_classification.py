"""The papers' comparison of classifiers, with nested selection and the same budget for all.

Five folds; within each training set every method chooses among 18 candidates by five
inner folds, and is fitted anew with its choice. Features are standardised, with the training set's
moments, where they have different units. Accuracy, but F1 for the set with a rare class: .6 % of
10 000 samples.

Every fit has one thread. Its seconds are those beside the other runs: --workers 1 makes
one run at a time.

Run: python scripts/reproduce_classification.py --data FOLDER_WITH_THE_FILES
     python scripts/reproduce_classification.py --backend dask --address tcp://...
Without --data it leaves out WBCD and PIMA, whose files scikit-learn does not have.
Runs are kept as they end in results/reproduce_classification.jsonl; writes
results/reproduce_classification.csv (every fold) and results/reproduce_classification.png.
"""

import dataclasses
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from datasets import Sample, gaussians, pima, wbcd
from rich.console import Console
from rich.table import Table
from sklearn.base import ClassifierMixin
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    make_circles,
    make_classification,
    make_moons,
)
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from oda_rl import ODAClassifier
from oda_rl.command.report import save_figure
from oda_rl.experiments import Execution, failures, run_all, store_runs
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.results import markdown_table, read_rows

RESULTS = Path("results")
N_FOLDS = 5
N_SAMPLES = 1500  # of each set that is drawn here
N_RARE = 10_000
RARE = "rare class (F1)"
STANDARDISED = ("PIMA", "WDBC", RARE)
LEFT_OUT = ("folder", "n_samples", "n_folds")

# What the papers print for their own method (table I); they have no figure for the other sets.
PUBLISHED = {"Gaussians": 0.989, "WBCD": 0.907, "PIMA": 0.705}


def load(data: str, folder: str | None, n_samples: int | None, seed: int) -> Sample:
    """Return a data set."""
    if folder is not None:
        path = Path(folder)
        return wbcd(path / "wbcd.data") if data == "WBCD" else pima(path / "pima.csv")
    if data == "WDBC":
        return load_breast_cancer(return_X_y=True)
    if data == "digits":
        return load_digits(return_X_y=True)
    assert n_samples is not None
    if data == "Gaussians":
        return gaussians(n_samples, np.random.default_rng(seed))
    if data == "circles":
        return make_circles(n_samples, noise=0.1, factor=0.5, random_state=seed)
    if data == "moons":
        return make_moons(n_samples, noise=0.15, random_state=seed)
    return make_classification(
        n_samples, 10, n_informative=5, weights=[0.994], class_sep=1.5, flip_y=0, random_state=seed
    )


def contestants(seed: int) -> dict[str, ClassifierMixin]:
    """Classifiers that choose among 18 candidates of their own when they are fitted."""
    inner = StratifiedKFold(5, shuffle=True, random_state=seed)
    network = MLPClassifier(early_stopping=True, max_iter=300, random_state=seed)
    layers = {
        "hidden_layer_sizes": [(10,), (30,), (100,)],
        "alpha": [1e-4, 1e-2, 1.0],
        "learning_rate_init": [1e-3, 1e-2],
    }
    forest = RandomForestClassifier(random_state=seed)
    trees = {
        "n_estimators": [30, 100],
        "max_features": [0.2, "sqrt", 0.7],
        "min_samples_leaf": [1, 3, 10],
    }
    machine = LinearSVC(dual="auto", max_iter=2000, random_state=seed)
    return {
        "ODA": ODAClassifier("auto", random_state=seed),
        "linear SVM": GridSearchCV(machine, {"C": np.logspace(-4, 2, 18)}, cv=inner),
        "NN": GridSearchCV(network, layers, cv=inner),
        "random forest": GridSearchCV(forest, trees, cv=inner),
    }


def measure(
    *, data: str, folder: str | None, n_samples: int | None, method: str, seed: int, fold: int,
    n_folds: int,
) -> dict[str, Any]:  # fmt: skip
    """Fit one method to the training set of one fold, and score it on the rest."""
    points, classes = load(data, folder, n_samples, seed)
    splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    train, test = list(splitter.split(points, classes))[fold]
    standardise = data in STANDARDISED
    scaler = StandardScaler(with_mean=standardise, with_std=standardise)
    shown, hidden = scaler.fit_transform(points[train]), scaler.transform(points[test])
    model = contestants(seed)[method]
    # One thread, for the same sums wherever it is run; and some candidates don't converge.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if method == "ODA":  # compiles, if this process has not yet, which is no part of the time
            ODAClassifier(4, random_state=0).fit(*make_moons(100, random_state=0))
        begun = time.perf_counter()
        model.fit(shown, classes[train])
        seconds = time.perf_counter() - begun
        measured = f1_score if data == RARE else accuracy_score
        score = measured(classes[test], model.predict(hidden))
    return {"score": float(score), "seconds": seconds, "chosen": str(model.best_params_)}


def mean(rows: list[dict[str, Any]], data: str, method: str, key: str = "score") -> float:
    """Mean of one method's folds on one data set; not a number if there are none."""
    own = [row[key] for row in rows if row["data"] == data and row["method"] == method]
    return float(np.mean(own)) if own else np.nan


def report(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print the table, and say where a target is missed and by how much."""
    sets, names = (list(dict.fromkeys(row[key] for row in rows)) for key in ("data", "method"))
    table = Table("data", *names, "ODA as published", "fits: ODA, forest")
    for data in sets:
        scores = [mean(rows, data, name) for name in names]
        cells = [f"[bold]{s:.3f}[/]" if s == np.nanmax(scores) else f"{s:.3f}" for s in scores]
        times = [mean(rows, data, name, "seconds") for name in ("ODA", "random forest")]
        published = f"{PUBLISHED[data]:.3f}" if data in PUBLISHED else "-"
        table.add_row(data, *cells, published, "{:.1f} s, {:.1f} s".format(*times))
    console.print(table)
    for data in sets:
        oda, forest = mean(rows, data, "ODA"), mean(rows, data, "random forest")
        wanted = max(forest - (0.005 if data == "WBCD" else 0.0), PUBLISHED.get(data, 0.0))
        if oda < wanted:
            console.print(f"{data}: ODA is {wanted - oda:.4f} below what it should reach")


def tables(results: Path) -> dict[str, str]:
    """Return the table of the README: means of the folds, and how many there are."""
    rows = read_rows(results / "reproduce_classification.csv")
    names = list(dict.fromkeys(row["method"] for row in rows))
    lines = []
    for data in dict.fromkeys(row["data"] for row in rows):
        folds = {(row["seed"], row["fold"]) for row in rows if row["data"] == data}
        scores = [mean(rows, data, name) for name in names]
        published = f"{PUBLISHED[data]:.3f}" if data in PUBLISHED else ""
        lines.append([data, str(len(folds)), *(f"{score:.3f}" for score in scores), published])
    heads = ["", "folds", *names, "ODA as published"]
    return {"classification": markdown_table(heads, lines)}


def draw(rows: list[dict[str, Any]]) -> Path:
    """Draw the scores of all folds, with their means, side by side."""
    sets, names = (list(dict.fromkeys(row[key] for row in rows)) for key in ("data", "method"))
    (ax,) = new_axes(max(1.35 * len(sets) + 1.5, 7.0), 4.6)
    for m, name in enumerate(names):
        at = np.arange(len(sets)) + 0.18 * (m - (len(names) - 1) / 2)
        means = [mean(rows, data, name) for data in sets]
        for x, data in zip(at, sets, strict=True):
            own = [row["score"] for row in rows if (row["data"], row["method"]) == (data, name)]
            ax.plot(np.full(len(own), x), own, "o", color=COLORS[m], alpha=0.35, markersize=3)
        ax.plot(at, means, "_", color=COLORS[m], markersize=13, markeredgewidth=2.5, label=name)
    ax.set_xticks(range(len(sets)), sets)
    ax.set_xlim(-0.6, len(sets) - 0.4)
    ax.set(ylabel="accuracy (F1 for the rare class)", ylim=(None, 1.01))
    ax.set_title("Folds (dots) and their mean, nested selection", loc="left")
    ax.legend(frameon=False, ncols=len(names), loc="upper center", bbox_to_anchor=(0.5, -0.08))
    ax.spines[["top", "right"]].set_visible(False)
    return save_figure(ax, RESULTS / "reproduce_classification.png")


@dataclasses.dataclass(frozen=True)
class Options:
    """What to compare, and where to run."""

    data: Path | None = None
    """Folder with wbcd.data and pima.csv."""
    seeds: tuple[int, ...] = (11,)
    """Of the drawn data, the folds and the methods: five folds for each."""
    folds: int = N_FOLDS
    """How many of the five folds to do."""
    only: tuple[str, ...] = ()
    """Names of the data sets to do; all by default."""
    methods: tuple[str, ...] = ()
    """Names of the methods to compare, ODA and random forest among them; all by default."""
    execution: Execution = dataclasses.field(default_factory=Execution)
    """Where to run."""


def settings(options: Options) -> list[dict[str, Any]]:
    """Arguments of :func:`measure`; stops if a file is missing, which is no matter of one run."""
    folder = None if options.data is None else str(options.data.resolve())
    sets: list[tuple[str, str | None, int | None]] = [
        ("Gaussians", None, N_SAMPLES), ("circles", None, N_SAMPLES), ("moons", None, N_SAMPLES)
    ]  # fmt: skip
    if folder is not None:
        sets += [("WBCD", folder, None), ("PIMA", folder, None)]
    sets += [("WDBC", None, None), ("digits", None, None), (RARE, None, N_RARE)]
    chosen = [one for one in sets if not options.only or one[0] in options.only]
    for name, where, n_samples in chosen:
        if where is not None:
            load(name, where, n_samples, 0)
    return [
        {
            "data": name, "folder": where, "n_samples": n_samples, "method": method,
            "seed": seed, "fold": fold, "n_folds": N_FOLDS,
        }
        for seed in options.seeds
        for name, where, n_samples in chosen
        for fold in range(min(options.folds, N_FOLDS))
        for method in contestants(seed)
        if not options.methods or method in options.methods
    ]  # fmt: skip


def main(options: Options) -> None:
    """Compare ODA with a linear SVM, a neural network and a random forest."""
    console = Console()
    path = RESULTS / "reproduce_classification.jsonl"
    runs = run_all(measure, settings(options), path, options.execution, title="folds")
    for line in failures(runs):
        console.print(line, markup=False)
    if not any(run.rows for run in runs):
        sys.exit("there is nothing to show: no run has succeeded")
    rows = store_runs(RESULTS / "reproduce_classification.csv", runs, LEFT_OUT)
    report(console, rows)
    console.print(f"written: {draw(rows)}, {RESULTS / 'reproduce_classification.csv'}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__, config=(tyro.conf.OmitArgPrefixes,)))
