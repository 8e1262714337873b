"""Distortion over samples observed, online annealing and others: the papers' figure 2.

Online deterministic annealing (without refinement), batch deterministic annealing, k-means and
stochastic vector quantization on standardised data. The annealing finds its numbers of clusters on
the way; the other two are run, as in the papers, one after another for each number that batch
annealing found, with their samples and their times added up. A sample counts each time that it is
looked at; those that k-means++ looks at to start are not counted.

Distortion is the mean squared distance of all points, which are those learned from, from the
nearest codevector: the lowest so far, with at most ``--clusters`` codevectors. Online annealing
has more of them for a while before it merges: these samples count, their distortion does not.
Times are those of fitting warm code with one thread; one run is made at a time unless
--workers says otherwise.

Run: python scripts/reproduce_clustering.py --data FOLDER
     python scripts/reproduce_clustering.py --backend dask --address tcp://...
Takes breast-cancer-wisconsin.data as wbcd.data, pima.csv, and adult.data as adult.csv.gz from the
folder; without it, the data sets that come with scikit-learn.
Runs are kept as they end in results/reproduce_clustering.jsonl; writes
results/reproduce_clustering.csv (every point of every curve) and
results/reproduce_clustering.png.
"""

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from datasets import FloatArray, adult, gaussians, pima, wbcd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from rich.console import Console
from rich.table import Table
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from oda_rl import ODAClusterer
from oda_rl.command.report import save_figure
from oda_rl.experiments import Execution, Run, failures, run_all, store_runs
from oda_rl.plotting.axes import COLORS
from oda_rl.quantization.batch_annealing import BatchDeterministicAnnealing
from oda_rl.quantization.estimators import StochasticVQ

GAUSSIAN_POINTS, ADULT_POINTS = 1500, 15_000
MARKED = (2, 4, 8, 16, np.inf)  # numbers of clusters in the figure; the last is the largest
RESULTS = Path("results")
LEFT_OUT = ("folder", "n_points", "max_clusters")


class Reached(NamedTuple):
    """What a method had reached after some samples."""

    samples: int
    clusters: int
    distortion: float


class Curve(NamedTuple):
    """One run of one method."""

    reached: list[Reached]
    seconds: float


def load(
    data: str, folder: str | None, n_points: int | None, rng: np.random.Generator
) -> FloatArray:
    """Return the points of a data set."""
    if data == "WDBC":
        return load_breast_cancer().data
    if data == "digits":
        return load_digits().data
    if folder is None:
        assert n_points is not None
        return gaussians(n_points, rng)[0]
    if data == "WBCD":
        return wbcd(Path(folder, "wbcd.data"))[0]
    if data == "PIMA":
        return pima(Path(folder, "pima.csv"))[0]
    assert n_points is not None
    return adult(Path(folder, "adult.csv.gz"), n_points, rng)[0]


def distortion(points: FloatArray, codevectors: FloatArray) -> float:
    """Mean squared distance from the nearest codevector."""
    nearest = pairwise_distances_argmin_min(points, codevectors, metric="sqeuclidean")[1]
    return float(nearest.mean())


def timed_fit(model: Any, points: FloatArray) -> float:
    """Fit; return the seconds."""
    start = time.perf_counter()
    model.fit(points)
    return time.perf_counter() - start


def one_after_another(models: list[Any], points: FloatArray) -> Curve:
    """Fit models of growing size; samples and seconds add up."""
    reached: list[Reached] = []
    seen, seconds = 0, 0.0
    for model in models:
        seconds += timed_fit(model, points)
        seen += model.n_iter_ * len(points)
        codevectors = model.cluster_centers_
        reached.append(Reached(seen, len(codevectors), distortion(points, codevectors)))
    return Curve(lowest_so_far(reached), seconds)


def lowest_so_far(reached: list[Reached]) -> list[Reached]:
    """Keep the best of what came before."""
    kept: list[Reached] = []
    for now in reached:
        best = min([*kept[-1:], now], key=lambda entry: entry.distortion)
        kept.append(best._replace(samples=now.samples))
    return kept


def run(
    *, data: str, folder: str | None, n_points: int | None, max_clusters: int, seed: int
) -> list[dict[str, Any]]:
    """Run every method on the same points; a row for every point of every curve."""
    drawn = load(data, folder, n_points, np.random.default_rng(seed))
    points = StandardScaler().fit_transform(drawn)
    with threadpool_limits(1):
        # Compiles; once is enough for a process, but no run knows whether it is the first.
        run_methods(gaussians(100, np.random.default_rng(0))[0], 4, 0)
        curves = run_methods(points, max_clusters, seed)
    return [
        {"method": method, "seconds": curve.seconds, **entry._asdict()}
        for method, curve in curves.items()
        for entry in curve.reached
    ]


def curves_of(run: Run) -> dict[str, Curve]:
    """Return the curves of which a run gave the points."""
    curves: dict[str, Curve] = {}
    for row in run.rows:
        curve = curves.setdefault(row["method"], Curve([], row["seconds"]))
        curve.reached.append(Reached(row["samples"], row["clusters"], row["distortion"]))
    return curves


def run_methods(points: FloatArray, n_clusters: int, seed: int) -> dict[str, Curve]:
    """Run every method once."""
    online = ODAClusterer(n_clusters, refine=False, random_state=seed)
    online_seconds = timed_fit(online, points)
    online_reached = [
        Reached(level.n_samples_seen, level.n_clusters, distortion(points, level.codevectors))
        for level in online.history_
        if level.n_clusters <= n_clusters
    ]
    batch = BatchDeterministicAnnealing(n_clusters, random_state=seed)
    batch_seconds = timed_fit(batch, points)
    batch_reached = [
        Reached(record.n_samples_seen, record.n_clusters, record.distortion)
        for record in batch.history_
    ]
    found = sorted({record.n_clusters for record in batch.history_})
    return {
        "ODA": Curve(lowest_so_far(online_reached), online_seconds),
        "batch DA": Curve(lowest_so_far(batch_reached), batch_seconds),
        "k-means": one_after_another(
            [KMeans(k, n_init=1, random_state=seed) for k in found], points
        ),
        "sVQ, 10 passes": one_after_another(
            [StochasticVQ(k, random_state=seed) for k in found], points
        ),
        "sVQ, 1 pass": one_after_another(
            [StochasticVQ(k, max_iter=1, random_state=seed) for k in found], points
        ),
    }


def result_table(name: str, runs: list[dict[str, Curve]]) -> Table:
    """Where each method ended: medians over the seeds, and quartiles of the distortion."""
    table = Table(title=f"{name}, {len(runs)} seeds", box=None, padding=(0, 1, 0, 0))
    table.add_column("method", no_wrap=True)
    for column in ("K", "distortion", "quartiles", "/ k-means", "samples", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    for method in runs[0]:
        ends = [curves[method].reached[-1] for curves in runs]
        distortions = np.array([end.distortion for end in ends])
        references = [curves["k-means"].reached[-1].distortion for curves in runs]
        low, middle, high = np.quantile(distortions, [0.25, 0.5, 0.75])
        table.add_row(
            method,
            f"{np.median([end.clusters for end in ends]):.0f}",
            f"{middle:.4g}",
            f"{low:.4g} to {high:.4g}",
            f"{np.median(distortions / references):.3f}",
            f"{np.median([end.samples for end in ends]):,.0f}",
            f"{np.median([curves[method].seconds for curves in runs]):.3f}",
        )
    return table


def draw_curves(ax: Axes, runs: list[dict[str, Curve]]) -> None:
    """Draw the median over the seeds, the quartiles, and the numbers of clusters."""
    for color, method in zip(COLORS, runs[0], strict=False):
        curves = [curves[method].reached for curves in runs]
        steps = [np.array([entry.samples for entry in curve]) for curve in curves]
        grid = np.unique(np.concatenate(steps))
        grid = grid[grid >= max(step[0] for step in steps)]
        rows = [np.searchsorted(step, grid, side="right") - 1 for step in steps]
        entries = [
            [curve[i] for i in row.tolist()] for curve, row in zip(curves, rows, strict=True)
        ]
        distortions = np.array([[entry.distortion for entry in row] for row in entries])
        clusters = np.median([[entry.clusters for entry in row] for row in entries], axis=0)
        low, middle, high = np.quantile(distortions, [0.25, 0.5, 0.75], axis=0)
        ax.step(grid, middle, where="post", color=color, label=method)
        ax.fill_between(grid, low, high, step="post", color=color, alpha=0.2, linewidth=0)
        for at in sorted({int(np.argmax(clusters >= min(k, clusters.max()))) for k in MARKED}):
            ax.plot(grid[at], middle[at], "o", color=color, markersize=3)
            ax.annotate(
                f"{clusters[at]:.0f}",
                (grid[at], middle[at]),
                xytext=(2, 2),
                textcoords="offset points",
                fontsize=7,
                color=color,
            )


def figure(results: dict[str, list[dict[str, Curve]]]) -> Axes:
    """Draw a panel for each data set."""
    n_columns = 2 if len(results) == 4 else len(results)
    n_rows = -(-len(results) // n_columns)
    whole = Figure(figsize=(5.5 * n_columns, 4.2 * n_rows), layout="constrained")
    axes = whole.subplots(n_rows, n_columns, squeeze=False)
    for ax, (name, runs) in zip(axes.flat, results.items(), strict=True):
        draw_curves(ax, runs)
        ax.set(xscale="log", yscale="log", title=f"{name} ({len(runs)} seeds)")
        ax.set(xlabel="samples observed", ylabel="lowest mean distortion")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    whole.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=len(labels),
        frameon=False,
        title="medians and quartiles; numbers are those of clusters",
    )
    return axes[0, 0]


@dataclasses.dataclass(frozen=True)
class Options:
    """What to compare, and where to run."""

    data: Path | None = None
    """Folder of the files; without it, the sets that come with scikit-learn are taken."""
    seeds: int = 5
    """How many seeds; Gaussians and the rows of Adult are drawn anew for each."""
    clusters: int = 30
    """Most codevectors."""
    first_seed: int = 0
    """The others follow it."""
    execution: Execution = dataclasses.field(default_factory=lambda: Execution(workers=1))
    """Where to run; by default nothing runs beside a fit that is timed."""


def settings(options: Options) -> list[dict[str, Any]]:
    """Arguments of :func:`run`; stops if a file is missing, which is no matter of one run."""
    folder = None if options.data is None else str(options.data.resolve())
    sets: list[tuple[str, str | None, int | None]] = [("Gaussians", None, GAUSSIAN_POINTS)]
    if folder is None:
        sets += [("WDBC", None, None), ("digits", None, None)]
    else:
        sets += [("WBCD", folder, None), ("PIMA", folder, None), ("Adult", folder, ADULT_POINTS)]
    for name, where, n_points in sets:
        if where is not None:
            load(name, where, n_points, np.random.default_rng(0))
    return [
        {
            "data": name, "folder": where, "n_points": n_points,
            "max_clusters": options.clusters, "seed": seed,
        }
        for name, where, n_points in sets
        for seed in range(options.first_seed, options.first_seed + options.seeds)
    ]  # fmt: skip


def main(options: Options) -> None:
    """Print a table for each data set and write the files."""
    console = Console(highlight=False, soft_wrap=True)
    if options.data is None:
        console.print("no --data: with the sets that come with scikit-learn, not the papers'")
    path = RESULTS / "reproduce_clustering.jsonl"
    runs = run_all(run, settings(options), path, options.execution)
    for line in failures(runs):
        console.print(line, markup=False)
    results: dict[str, list[dict[str, Curve]]] = {}
    for one in runs:
        if one.error is None:
            results.setdefault(one.setting["data"], []).append(curves_of(one))
    if not results:
        sys.exit("there is nothing to show: no run has succeeded")
    for name, curves in results.items():
        console.print(result_table(name, curves), "")
    store_runs(RESULTS / "reproduce_clustering.csv", runs, LEFT_OUT)
    save_figure(figure(results), RESULTS / "reproduce_clustering.png")
    console.print(f"written to {RESULTS}: reproduce_clustering.csv, reproduce_clustering.png")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__, config=(tyro.conf.OmitArgPrefixes,)))
