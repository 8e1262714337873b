"""Distortion and time of ODAClusterer beside scikit-learn's KMeans, at 100 clusters.

For each seed both are fitted to the same points in one run, ODA first; times are of warm code (a
first fit, which compiles, is not counted). A ratio below 1 is in ODA's favour. The distortion is
that of the fitted points, which is what both minimise.

Both have as many threads as OMP_NUM_THREADS says, or else one for each core; the table says how
many. Where other programs want the cores, more than one makes both slower, KMeans more than ODA.
One run is made at a time unless --workers says otherwise.

Run: python scripts/benchmark_clustering.py --data FOLDER_WITH_THE_FILES
     OMP_NUM_THREADS=1 python scripts/benchmark_clustering.py [--workers 2]
Without --data it leaves out PIMA, Adult and USPS, whose files scikit-learn does not have.
Runs are kept as they end in results/benchmark_clustering.jsonl; writes
results/benchmark_clustering.csv (every fit) and results/benchmark_clustering.png.
"""

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from datasets import FloatArray, adult, gaussians, pima, usps
from rich.console import Console
from rich.table import Table
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from oda_rl import ODAClusterer
from oda_rl.experiments import Execution, failures, run_all, store_runs
from oda_rl.plotting import COLORS, new_axes
from oda_rl.report import save_figure

RESULTS = Path("results")
N_CLUSTERS = 100
N_GAUSSIANS, N_ADULT = 1500, 15_000
N_LARGE = 200_000, 16
TARGETS = {"distortion": 1.0, "time": 0.2}
LEFT_OUT = ("folder", "n_samples", "n_clusters")


def large(rng: np.random.Generator, n: int) -> FloatArray:
    """Draw from 60 unequal, correlated Gaussians."""
    d = N_LARGE[1]
    centres = rng.normal(scale=3.0, size=(60, d))
    roots = rng.normal(size=(60, d, d)) / np.sqrt(d)
    sizes = rng.multinomial(n, rng.dirichlet(np.ones(60)))
    parts = [
        centre + rng.normal(size=(size, d)) @ root
        for centre, root, size in zip(centres, roots, sizes, strict=True)
    ]
    return rng.permutation(np.concatenate(parts))


def load(
    data: str, folder: str | None, n_samples: int | None, rng: np.random.Generator
) -> FloatArray:
    """Return the points of a data set, standardised where its features have different units."""
    if folder is None:
        assert n_samples is not None
        return gaussians(n_samples, rng)[0] if data == "Gaussians" else large(rng, n_samples)
    if data == "USPS":
        return usps(Path(folder, "usps.train.gz"))[0]
    if data == "PIMA":
        points = pima(Path(folder, "pima.csv"))[0]
    else:
        assert n_samples is not None
        points = adult(Path(folder, "adult.csv.gz"), n_samples, rng)[0]
    return StandardScaler().fit_transform(points)


def compare(
    *, data: str, folder: str | None, n_samples: int | None, n_clusters: int, threads: int,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Fit both once, when both are warm."""
    points = load(data, folder, n_samples, np.random.default_rng(seed))
    # Not what the worker has: that depends on how many there are, and on the backend.
    with threadpool_limits(threads):
        # Compiles; once is enough for a process, but no run knows whether it is the first.
        fit_both(np.random.default_rng(0).normal(size=(200, 2)), 2, 0)
        return fit_both(points, n_clusters, seed)


def fit_both(points: FloatArray, n_clusters: int, seed: int) -> dict[str, Any]:
    """Seconds and distortion of both, and their ratios."""
    row: dict[str, Any] = {"n": len(points), "d": points.shape[1]}
    estimators = {
        "oda": ODAClusterer(n_clusters, random_state=seed),
        "kmeans": KMeans(n_clusters, n_init=10, random_state=seed),
    }
    for label, estimator in estimators.items():
        begun = time.perf_counter()
        estimator.fit(points)
        row[f"{label}_seconds"] = time.perf_counter() - begun
        row[f"{label}_distortion"] = float(estimator.inertia_) / len(points)
    row["distortion"] = row["oda_distortion"] / row["kmeans_distortion"]
    row["time"] = row["oda_seconds"] / row["kmeans_seconds"]
    return row


def threads_here() -> int:
    """Threads that scikit-learn would use in this process: OMP_NUM_THREADS, or all cores."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "openmp"]
    return max((pool["num_threads"] for pool in pools), default=1)


def column(rows: list[dict[str, Any]], data: str, key: str) -> FloatArray:
    """One figure of all fits on a data set."""
    return np.array([row[key] for row in rows if row["data"] == data])


def report(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print medians and ranges of the ratios, and where a target is missed."""
    table = Table("data", "distortion / KMeans", "time / KMeans", "ODA, s", "KMeans, s")
    table.title = "threads: " + ", ".join(sorted({str(row["threads"]) for row in rows}))
    missed = []
    for data in dict.fromkeys(row["data"] for row in rows):
        cells = []
        for key in ("distortion", "time"):
            ratios = column(rows, data, key)
            middle = float(np.median(ratios))
            cells.append(f"{middle:.3f} ({ratios.min():.3f} to {ratios.max():.3f})")
            if middle > TARGETS[key]:
                missed.append(f"{data}: {key} is {middle:.3f} of KMeans', target {TARGETS[key]}")
        seconds = [np.median(column(rows, data, f"{name}_seconds")) for name in ("oda", "kmeans")]
        table.add_row(data, *cells, *(f"{value:.3f}" for value in seconds))
    console.print(table)
    for line in missed:
        console.print(line)


def draw(rows: list[dict[str, Any]]) -> Path:
    """Draw distortion against time, both as ratios, every fit a dot."""
    (ax,) = new_axes(6.8, 4.4)
    for color, data in zip(COLORS, dict.fromkeys(row["data"] for row in rows), strict=False):
        ax.plot(column(rows, data, "time"), column(rows, data, "distortion"), "o",
                color=color, alpha=0.7, label=data)  # fmt: skip
    ax.axhline(1.0, color="0.7", linewidth=1, zorder=0)
    ax.axvline(TARGETS["time"], color="0.7", linewidth=1, zorder=0)
    ax.set(xlabel="time / KMeans(n_init=10)", ylabel="distortion / KMeans(n_init=10)")
    ax.set_xscale("log")
    ax.set_xticks([0.02, 0.05, 0.1, 0.2, 0.5], ["0.02", "0.05", "0.1", "0.2", "0.5"], minor=False)
    ax.minorticks_off()
    ax.set_title(f"ODAClusterer, {N_CLUSTERS} clusters; grey: targets", loc="left")
    ax.legend(frameon=False, bbox_to_anchor=(1.0, 1.0), loc="upper left")
    ax.figure.subplots_adjust(right=0.74)
    ax.spines[["top", "right"]].set_visible(False)
    return save_figure(ax, RESULTS / "benchmark_clustering.png")


@dataclasses.dataclass(frozen=True)
class Options:
    """What to compare, and where to run."""

    data: Path | None = None
    """Folder with pima.csv, adult.csv.gz and usps.train.gz."""
    seeds: int = 10
    """Fits of each method on each set."""
    first_seed: int = 500
    """The first of them."""
    large_samples: int = N_LARGE[0]
    """Points of the largest set."""
    only: tuple[str, ...] = ()
    """Names of the data sets to do; all by default."""
    execution: Execution = dataclasses.field(default_factory=lambda: Execution(workers=1))
    """Where to run; by default nothing runs beside a fit that is timed."""


def settings(options: Options) -> list[dict[str, Any]]:
    """Arguments of :func:`compare`; stops if a file is missing, which is no matter of one run."""
    folder = None if options.data is None else str(options.data.resolve())
    sets: list[tuple[str, str | None, int | None]] = [
        ("Gaussians", None, N_GAUSSIANS),
        (f"{options.large_samples} x {N_LARGE[1]}", None, options.large_samples),
    ]
    if folder is not None:
        sets += [("PIMA", folder, None), ("Adult", folder, N_ADULT), ("USPS", folder, None)]
    chosen = [one for one in sets if not options.only or one[0] in options.only]
    for name, where, n_samples in chosen:
        if where is not None:
            load(name, where, n_samples, np.random.default_rng(0))
    threads = threads_here()
    return [
        {
            "data": name, "folder": where, "n_samples": n_samples, "n_clusters": N_CLUSTERS,
            "threads": threads, "seed": seed,
        }
        for name, where, n_samples in chosen
        for seed in range(options.first_seed, options.first_seed + options.seeds)
    ]  # fmt: skip


def main(options: Options) -> None:
    """Compare ODAClusterer with KMeans."""
    console = Console()
    path = RESULTS / "benchmark_clustering.jsonl"
    runs = run_all(compare, settings(options), path, options.execution, title="fits of both")
    for line in failures(runs):
        console.print(line, markup=False)
    if not any(run.rows for run in runs):
        sys.exit("there is nothing to show: no run has succeeded")
    rows = store_runs(RESULTS / "benchmark_clustering.csv", runs, LEFT_OUT)
    report(console, rows)
    console.print(f"written: {draw(rows)}, {RESULTS / 'benchmark_clustering.csv'}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__, config=(tyro.conf.OmitArgPrefixes,)))
