"""Distortion and time of ODAClusterer beside scikit-learn's KMeans, at 100 clusters.

For each seed all are fitted to the same points in one run: ODA, KMeans with ten starts, and KMeans
with one. A first fit of each, not counted, compiles or loads all code. A ratio below 1 is in ODA's
favour. The distortion is that of the fitted points, which all methods minimise.

Every fit has one thread, and runs are made one at a time unless --workers says otherwise.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common.datasets import load, sets
from common.experiment import Experiment, Selection, seconds
from common.summaries import Column, Row, Rows, Table, Text, among, of
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from oda_rl import ODAClusterer
from oda_rl._types import FloatArray

EXPERIMENT = Experiment("benchmark_clustering", ("folder", "n_samples", "n_clusters"), timed=True)
N_CLUSTERS = 100
N_GAUSSIANS, N_ADULT = 1500, 15_000
N_LARGE = 200_000, 16
NAMES = {
    "Gaussians": f"Gaussians, {N_GAUSSIANS} x 2", "PIMA": "PIMA, 768 x 8",
    "Adult": f"Adult, {N_ADULT:,} x 6", "USPS": "USPS, 7291 x 256",
    f"{N_LARGE[0]} x {N_LARGE[1]}": f"Gaussians, {N_LARGE[0]:,} x {N_LARGE[1]}",
}  # fmt: skip
STARTS = (10, 1)  # of KMeans


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


def points_of(
    data: str, folder: str | None, n_samples: int | None, rng: np.random.Generator
) -> FloatArray:
    if data.endswith(f" x {N_LARGE[1]}"):
        assert n_samples is not None
        return large(rng, n_samples)
    points = load(data, folder, n_samples, rng)[0]
    return StandardScaler().fit_transform(points) if data in ("PIMA", "Adult") else points


def measure(
    *, data: str, folder: str | None, n_samples: int | None, n_clusters: int, seed: int
) -> list[Row]:
    """Fit all once, when they are warm: in larger codebooks other compiled code learns."""
    points = points_of(data, folder, n_samples, np.random.default_rng(seed))
    with threadpool_limits(1):
        for first in (ODAClusterer(n_clusters, random_state=seed), KMeans(n_clusters, n_init=1)):
            first.fit(points)
        return fit_all(points, n_clusters, seed)


def fit_all(points: FloatArray, n_clusters: int, seed: int) -> list[Row]:
    """Seconds and distortion of ODA, and its ratios to KMeans' with each number of starts."""
    oda_seconds, distortion = fit(ODAClusterer(n_clusters, random_state=seed), points)
    rows = []
    for starts in STARTS:
        other = fit(KMeans(n_clusters, n_init=starts, random_state=seed), points)
        rows.append({
            "starts": starts, "seconds": oda_seconds, "kmeans_seconds": other[0],
            "time": oda_seconds / other[0], "distortion": distortion / other[1],
        })  # fmt: skip
    return rows


def fit(estimator: ODAClusterer | KMeans, points: FloatArray) -> tuple[float, float]:
    taken = seconds(lambda: estimator.fit(points))
    return taken, float(estimator.inertia_) / len(points)


def ratio(key: str, starts: int) -> Text:
    def text(line: Rows) -> str:
        ratios = line.column(key)
        return f"{np.median(ratios):.3g} ({ratios.min():.3g} to {ratios.max():.3g})"

    return among(text, starts=starts)


def tables(rows: Rows) -> dict[str, Table]:
    order = [*NAMES, *rows.values("data")]
    lines = sorted(rows.groups("data"), key=lambda line: order.index(line[0]["data"]))
    columns = [
        Column("", lambda line: str(NAMES.get(line[0]["data"], line[0]["data"]))),
        Column("distortion / KMeans", ratio("distortion", 10)),
        Column("time / KMeans", ratio("time", 10)),
        Column("distortion / one start", ratio("distortion", 1)),
        Column("time / one start", ratio("time", 1)),
        Column("seconds", of(np.median, "seconds", ".2g")),
    ]
    return {"clustering": Table("medians and ranges, one thread", columns, lines)}


@dataclass(frozen=True)
class Options(Selection):
    seeds: int = 10
    """Fits of each method on each set."""
    data: Path | None = None
    """Folder with pima.csv, adult.csv.gz and usps.train.gz."""


def settings(options: Options) -> list[Row]:
    sizes = {
        "Gaussians": N_GAUSSIANS, f"{N_LARGE[0]} x {N_LARGE[1]}": N_LARGE[0],
        "PIMA": None, "Adult": N_ADULT, "USPS": None,
    }  # fmt: skip
    return [
        {**one, "n_clusters": N_CLUSTERS, "seed": seed}
        for one in sets(sizes, options.data, options.only)
        for seed in EXPERIMENT.seeds(options)
    ]
