"""Distortion and time of ODAClusterer beside scikit-learn's KMeans, at 100 clusters.

For each seed all are fitted to the same points in one run, ODA first, then KMeans with ten starts
and with one; times are of warm code (a first fit, which compiles, is not counted). A ratio below 1
is in ODA's favour. The distortion is that of the fitted points, which is what all minimise.

Every fit has one thread, and one run is made at a time unless --workers says otherwise.

Run: python scripts/benchmark_clustering.py --data FOLDER_WITH_THE_FILES
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
from threadpoolctl import threadpool_limits

from oda_rl import ODAClusterer
from oda_rl.command.report import save_figure
from oda_rl.experiments import Execution, failures, run_all, store_runs
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.results import markdown_table, read_rows

RESULTS = Path("results")
N_CLUSTERS = 100
N_GAUSSIANS, N_ADULT = 1500, 15_000
N_LARGE = 200_000, 16
NAMES = {
    "Gaussians": f"Gaussians, {N_GAUSSIANS} x 2", "PIMA": "PIMA, 768 x 8",
    "Adult": f"Adult, {N_ADULT:,} x 6", "USPS": "USPS, 7291 x 256",
    f"{N_LARGE[0]} x {N_LARGE[1]}": f"Gaussians, {N_LARGE[0]:,} x {N_LARGE[1]}",
}  # fmt: skip
TARGETS = {("distortion", 10): 1.0, ("time", 10): 0.2}
STARTS = (10, 1)  # of KMeans
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
    *, data: str, folder: str | None, n_samples: int | None, n_clusters: int, seed: int
) -> list[dict[str, Any]]:
    """Fit all once, when they are warm."""
    points = load(data, folder, n_samples, np.random.default_rng(seed))
    with threadpool_limits(1):
        # Compiles; once is enough for a process, but no run knows whether it is the first.
        fit_all(np.random.default_rng(0).normal(size=(1000, 2)), n_clusters, 0)
        return fit_all(points, n_clusters, seed)


def fit_all(points: FloatArray, n_clusters: int, seed: int) -> list[dict[str, Any]]:
    """Seconds and distortion of ODA, and its ratios to KMeans' with each number of starts."""
    seconds, distortion = fit(ODAClusterer(n_clusters, random_state=seed), points)
    rows = []
    for starts in STARTS:
        other = fit(KMeans(n_clusters, n_init=starts, random_state=seed), points)
        rows.append({
            "starts": starts, "seconds": seconds, "kmeans_seconds": other[0],
            "time": seconds / other[0], "distortion": distortion / other[1],
        })  # fmt: skip
    return rows


def fit(estimator: ODAClusterer | KMeans, points: FloatArray) -> tuple[float, float]:
    """Seconds and distortion of one fit."""
    begun = time.perf_counter()
    estimator.fit(points)
    return time.perf_counter() - begun, float(estimator.inertia_) / len(points)


def column(rows: list[dict[str, Any]], data: str, key: str, starts: int) -> FloatArray:
    """One figure of all fits on a data set, beside KMeans with so many starts."""
    return np.array([row[key] for row in rows if (row["data"], row["starts"]) == (data, starts)])


def spread(ratios: FloatArray) -> str:
    """Median and range."""
    return f"{np.median(ratios):.3g} ({ratios.min():.3g} to {ratios.max():.3g})"


def report(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print medians and ranges of the ratios, and where a target is missed."""
    heads = [f"{key} / KMeans({n})" for n in STARTS for key in ("distortion", "time")]
    table = Table("data", *heads, "ODA, s", title="medians and ranges, one thread")
    missed = []
    for data in dict.fromkeys(row["data"] for row in rows):
        ratios = {
            (key, n): column(rows, data, key, n) for n in STARTS for key in ("distortion", "time")
        }
        seconds = np.median(column(rows, data, "seconds", 1))
        table.add_row(data, *map(spread, ratios.values()), f"{seconds:.3f}")
        for (key, n), target in TARGETS.items():
            middle = np.median(ratios[key, n])
            if middle > target:
                missed.append(f"{data}: {key} is {middle:.3f} of KMeans({n})', target {target}")
    console.print(table)
    for line in missed:
        console.print(line)


def tables(results: Path) -> dict[str, str]:
    """Return the table of the README."""
    rows = read_rows(results / "benchmark_clustering.csv")
    lines = []
    for data, name in NAMES.items():
        ratios = [column(rows, data, key, n) for n in STARTS for key in ("distortion", "time")]
        seconds = np.median(column(rows, data, "seconds", 1))
        lines.append([name, *map(spread, ratios), f"{seconds:.2g}"])
    heads = ["", "distortion / KMeans", "time / KMeans", "distortion / one start",
             "time / one start", "seconds"]  # fmt: skip
    return {"clustering": markdown_table(heads, lines)}


def draw(rows: list[dict[str, Any]]) -> Path:
    """Draw distortion against time, both as ratios, every fit a dot."""
    (ax,) = new_axes(6.8, 4.4)
    for color, data in zip(COLORS, dict.fromkeys(row["data"] for row in rows), strict=False):
        for starts, marker in zip(STARTS, "o^", strict=True):
            at = [column(rows, data, key, starts) for key in ("time", "distortion")]
            label = f"{data}, {starts} start{'s' if starts > 1 else ''}"
            ax.plot(*at, marker, color=color, alpha=0.7, markersize=4, label=label)
    ax.axhline(1.0, color="0.7", linewidth=1, zorder=0)
    ax.axvline(1.0, color="0.7", linewidth=1, zorder=0)
    ax.set(xlabel="time / KMeans", ylabel="distortion / KMeans", xscale="log")
    ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_title(f"ODAClusterer, {N_CLUSTERS} clusters, by KMeans' starts", loc="left")
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
    return [
        {
            "data": name, "folder": where, "n_samples": n_samples, "n_clusters": N_CLUSTERS,
            "seed": seed,
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
