"""Distortion and time of ODAClusterer beside scikit-learn's KMeans, at 100 clusters.

For each seed both are fitted to the same points in one run, ODA first; times are of warm code (the
first fit, which compiles, is not counted). A ratio below 1 is in ODA's favour. The distortion is
that of the fitted points, which is what both minimise.

Run: python scripts/benchmark_clustering.py --data FOLDER_WITH_THE_FILES
Writes results/benchmark_clustering.csv (every fit) and results/benchmark_clustering.png.
Without --data it leaves out PIMA, Adult and USPS, whose files scikit-learn does not have.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tyro
from datasets import adult, gaussians, pima, usps, write_rows
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler

from oda_rl import ODAClusterer
from oda_rl.plotting import COLORS, new_axes
from oda_rl.report import save_figure

FloatArray = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator], FloatArray]

RESULTS = Path("results")
N_CLUSTERS = 100
N_ADULT = 15_000
N_LARGE = 200_000, 16
TARGETS = {"distortion": 1.0, "time": 0.2}


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


def samples(
    data: Path | None, n_large: int
) -> dict[str, Callable[[np.random.Generator], FloatArray]]:
    """How to get each data set, standardised where its features have different units."""
    found: dict[str, Callable[[np.random.Generator], FloatArray]] = {
        "Gaussians": lambda rng: gaussians(1500, rng)[0],
        f"{n_large} x 16": lambda rng: large(rng, n_large),
    }
    if data is not None:
        scaled = StandardScaler().fit_transform
        found["PIMA"] = lambda rng: scaled(pima(data / "pima.csv")[0])
        found["Adult"] = lambda rng: scaled(adult(data / "adult.csv.gz", N_ADULT, rng)[0])
        found["USPS"] = lambda rng: usps(data / "usps.train.gz")[0]
    return found


def compare(name: str, points: FloatArray, seed: int) -> dict[str, Any]:
    """Fit both once."""
    row: dict[str, Any] = {"data": name, "seed": seed, "n": len(points), "d": points.shape[1]}
    estimators = {
        "oda": ODAClusterer(N_CLUSTERS, random_state=seed),
        "kmeans": KMeans(N_CLUSTERS, n_init=10, random_state=seed),
    }
    for label, estimator in estimators.items():
        begun = time.perf_counter()
        estimator.fit(points)
        row[f"{label}_seconds"] = time.perf_counter() - begun
        row[f"{label}_distortion"] = estimator.inertia_ / len(points)
    row["distortion"] = row["oda_distortion"] / row["kmeans_distortion"]
    row["time"] = row["oda_seconds"] / row["kmeans_seconds"]
    return row


def column(rows: list[dict[str, Any]], data: str, key: str) -> FloatArray:
    """One figure of all fits on a data set."""
    return np.array([row[key] for row in rows if row["data"] == data])


def report(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print medians and ranges of the ratios, and where a target is missed."""
    table = Table("data", "distortion / KMeans", "time / KMeans", "ODA, s", "KMeans, s")
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


def main(
    data: Path | None = None,
    seeds: int = 10,
    first_seed: int = 500,
    large_samples: int = N_LARGE[0],
    only: tuple[str, ...] = (),
) -> None:
    """Compare ODAClusterer with KMeans.

    Parameters
    ----------
    data
        Folder with pima.csv, adult.csv.gz and usps.train.gz.
    seeds
        Fits of each method on each set.
    first_seed
        The first of them.
    large_samples
        Points of the largest set.
    only
        Names of the data sets to do; all by default.
    """
    console = Console()
    ODAClusterer(2, random_state=0).fit(np.random.default_rng(0).normal(size=(200, 2)))  # compiles
    rows: list[dict[str, Any]] = []
    for name, sample in samples(data, large_samples).items():
        if only and name not in only:
            continue
        for seed in track(range(first_seed, first_seed + seeds), name, console=console):
            rows.append(compare(name, sample(np.random.default_rng(seed)), seed))
    write_rows(RESULTS / "benchmark_clustering.csv", rows)
    report(console, rows)
    console.print(f"written: {draw(rows)}, {RESULTS / 'benchmark_clustering.csv'}")


if __name__ == "__main__":
    tyro.cli(main)
