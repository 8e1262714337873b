"""Distortion and time of ODAClusterer beside scikit-learn's KMeans, at 100 clusters.

For each seed all are fitted to the same points in one run: ODA, KMeans with ten starts and with
one, and with --papers batch annealing (DA), stochastic VQ and ODA as in the paper, not refined. A
first fit of each, not counted, compiles or loads all code. A ratio below 1 is in ODA's favour. The
distortion is that of the fitted points, which all methods minimise.

Every fit has one thread, and runs are made one at a time unless --workers says otherwise.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from common.datasets import load, sets
from common.experiment import DataSelection, Experiment, seconds
from common.summaries import Column, Row, Rows, Table, Text, among, of
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from oda_rl import BatchDeterministicAnnealing, ODAClusterer, StochasticVQ
from oda_rl._types import FloatArray

EXPERIMENT = Experiment("benchmark_clustering", ("folder", "n_samples", "n_clusters"), timed=True)
N_CLUSTERS = 100
N_GAUSSIANS, N_ADULT = 1500, 15_000
N_LARGE = 200_000, 16
NAMES = {
    "Gaussians": f"Gaussians, {N_GAUSSIANS} x 2", "WBCD": "WBCD, 683 x 9", "PIMA": "PIMA, 768 x 8",
    "Adult": f"Adult, {N_ADULT:,} x 6", "USPS": "USPS, 7291 x 256",
    f"{N_LARGE[0]} x {N_LARGE[1]}": f"Gaussians, {N_LARGE[0]:,} x {N_LARGE[1]}",
}  # fmt: skip


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
    *, data: str, folder: str | None, n_samples: int | None, n_clusters: int, seed: int,
    papers: bool,
) -> list[Row]:  # fmt: skip
    """Seconds and distortion of ODA, and ratios to those of the others."""
    points = points_of(data, folder, n_samples, np.random.default_rng(seed))
    settings = {"n_clusters": n_clusters, "random_state": seed}
    others: dict[int | str, Any] = {n: KMeans(n_init=n, **settings) for n in (10, 1)}
    if papers:
        others["ODA, not refined"] = ODAClusterer(refine=False, **settings)
        others["sVQ"] = StochasticVQ(**settings)
        others["DA"] = BatchDeterministicAnnealing(**settings)
    oda, rows = ODAClusterer(**settings), []
    with threadpool_limits(1):
        for model in (oda, *(others[name] for name in others.keys() - {10, "DA"})):
            model.fit(points)  # compiles, other code for large codebooks
        oda_seconds = seconds(lambda: oda.fit(points))
        for name, model in others.items():
            taken = seconds(lambda model=model: model.fit(points))
            rows.append({
                "other": name, "seconds": oda_seconds, "other_seconds": taken,
                "time": oda_seconds / taken, "distortion": oda.inertia_ / model.inertia_,
                "samples": getattr(model, "n_samples_seen_", 0) or model.n_iter_ * len(points),
            })  # fmt: skip
    return rows


def ratio(key: str, other: int | str) -> Text:
    def text(line: Rows) -> str:
        ratios = line.column(key)
        return f"{np.median(ratios):.3g} ({ratios.min():.3g} to {ratios.max():.3g})"

    return among(text, other=other)


def beside(line: Rows, name: int | str) -> str:
    """Return the distortion over that of one start of KMeans, samples and seconds."""
    usual = {row["seed"]: row["distortion"] for row in line.where(other=1)}
    found = line.where(other=name)
    distortion = np.median([usual[row["seed"]] / row["distortion"] for row in found])
    seen, taken = (np.median(found.column(key)) for key in ("samples", "other_seconds"))
    return f"{distortion:.3g} ({seen:,.0f}; {taken:.2g} s)"


def tables(rows: Rows) -> dict[str, Table]:
    order = [*NAMES, *rows.values("data")]
    paper = Rows(row for row in rows if row.get("papers"))
    ours = Rows(row for row in rows if not row.get("papers"))
    lines = sorted(ours.groups("data"), key=lambda line: order.index(line[0]["data"]))
    columns = [
        Column("", lambda line: str(NAMES.get(line[0]["data"], line[0]["data"]))),
        Column("distortion / KMeans", ratio("distortion", 10)),
        Column("time / KMeans", ratio("time", 10)),
        Column("distortion / one start", ratio("distortion", 1)),
        Column("time / one start", ratio("time", 1)),
        Column("seconds", of(np.median, "seconds", ".2g")),
    ]
    title, names = "medians, one thread", {"ODA, not refined": 0, "sVQ": 0, "DA": 0, "KMeans": 1}
    besides = {name: partial(beside, name=key or name) for name, key in names.items()}
    papers = [columns[0], *(Column(*column) for column in besides.items())]
    return {
        "clustering": Table(title, columns, lines),
        "clustering papers": Table(title, papers, paper.groups("data")),
    }


@dataclass(frozen=True)
class Options(DataSelection):
    seeds: int = 10  # Fits of each method on each set
    papers: bool = False  # Compare the paper's methods, too


def settings(options: Options) -> list[Row]:
    sizes = {
        "Gaussians": N_GAUSSIANS, f"{N_LARGE[0]} x {N_LARGE[1]}": N_LARGE[0],
        "WBCD": None, "PIMA": None, "Adult": N_ADULT, "USPS": None,
    }  # fmt: skip
    return [
        {**one, "n_clusters": N_CLUSTERS, "seed": seed, "papers": options.papers}
        for one in sets(sizes, options.data, options.only)
        for seed in EXPERIMENT.seeds(options)
    ]
