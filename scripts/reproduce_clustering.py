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

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common.datasets import gaussians, load, sets
from common.experiment import ALONE, Experiment, SharedOptions, say, seconds, start
from common.summaries import Column, Row, Rows, Table, of, open_axes, the
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from oda_rl import ODAClusterer
from oda_rl._types import FloatArray
from oda_rl.plotting.axes import COLORS
from oda_rl.quantization.batch_annealing import BatchDeterministicAnnealing
from oda_rl.quantization.estimators import StochasticVQ
from oda_rl.runs.parallel import Execution

EXPERIMENT = Experiment("reproduce_clustering", ("folder", "n_samples", "max_clusters"))
GAUSSIAN_POINTS, ADULT_POINTS = 1500, 15_000
MARKED = (2, 4, 8, 16, np.inf)  # numbers of clusters in the figure; the last is the largest


class Reached(NamedTuple):
    """What a method had reached after some samples."""

    samples: int
    clusters: int
    distortion: float


class Curve(NamedTuple):
    """One run of one method."""

    reached: list[Reached]
    seconds: float


def distortion(points: FloatArray, codevectors: FloatArray) -> float:
    """Mean squared distance from the nearest codevector."""
    nearest = pairwise_distances_argmin_min(points, codevectors, metric="sqeuclidean")[1]
    return float(nearest.mean())


def one_after_another(models: list[Any], points: FloatArray) -> Curve:
    """Fit models of growing size; samples and seconds add up."""
    reached: list[Reached] = []
    seen, taken = 0, 0.0
    for model in models:
        taken += seconds(partial(model.fit, points))
        seen += model.n_iter_ * len(points)
        codevectors = model.cluster_centers_
        reached.append(Reached(seen, len(codevectors), distortion(points, codevectors)))
    return Curve(lowest_so_far(reached), taken)


def lowest_so_far(reached: list[Reached]) -> list[Reached]:
    """Keep the best of what came before."""
    kept: list[Reached] = []
    for now in reached:
        best = min([*kept[-1:], now], key=lambda entry: entry.distortion)
        kept.append(best._replace(samples=now.samples))
    return kept


def run(
    *, data: str, folder: str | None, n_samples: int | None, max_clusters: int, seed: int
) -> list[Row]:
    """Run every method on the same points; a row for every point of every curve."""
    drawn = load(data, folder, n_samples, np.random.default_rng(seed))[0]
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


def run_methods(points: FloatArray, n_clusters: int, seed: int) -> dict[str, Curve]:
    """Run every method once."""
    online = ODAClusterer(n_clusters, refine=False, random_state=seed)
    online_seconds = seconds(lambda: online.fit(points))
    online_reached = [
        Reached(level.n_samples_seen, level.n_clusters, distortion(points, level.codevectors))
        for level in online.history_
        if level.n_clusters <= n_clusters
    ]
    batch = BatchDeterministicAnnealing(n_clusters, random_state=seed)
    batch_seconds = seconds(lambda: batch.fit(points))
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


def table(rows: Rows) -> Table:
    """Where each method ended on a data set."""
    ends = Rows(own[-1] for own in rows.groups("method", "seed"))
    references = {row["seed"]: row["distortion"] for row in ends.where(method="k-means")}
    ends = Rows({**row, "ratio": row["distortion"] / references[row["seed"]]} for row in ends)
    columns = [
        Column("method", the("method")),
        Column("K", of(np.median, "clusters", ".0f")),
        Column("distortion", of(np.median, "distortion", ".4g")),
        Column("quartiles", quartiles),
        Column("/ k-means", of(np.median, "ratio", ".3f")),
        Column("samples", of(np.median, "samples", ",.0f")),
        Column("seconds", of(np.median, "seconds", ".3f")),
    ]
    title = f"{rows[0]['data']}, medians of {len(references)} seeds"
    return Table(title, columns, ends.groups("method"))


def quartiles(own: Rows) -> str:
    """Return those of the distortion."""
    return "{:.4g} to {:.4g}".format(*np.quantile(own.column("distortion"), [0.25, 0.75]))


def draw_curves(ax: Axes, rows: Rows) -> None:
    """Draw the median over the seeds, the quartiles, and the numbers of clusters."""
    for color, method in zip(COLORS, rows.values("method"), strict=False):
        curves = rows.where(method=method).groups("seed")
        steps = [curve.column("samples") for curve in curves]
        grid = np.unique(np.concatenate(steps))
        grid = grid[grid >= max(step[0] for step in steps)]
        at = [np.searchsorted(step, grid, side="right") - 1 for step in steps]
        distortions, all_clusters = (
            [curve.column(key)[i] for curve, i in zip(curves, at, strict=True)]
            for key in ("distortion", "clusters")
        )
        clusters = np.median(all_clusters, axis=0)
        low, middle, high = np.quantile(distortions, [0.25, 0.5, 0.75], axis=0)
        ax.step(grid, middle, where="post", color=color, label=method)
        ax.fill_between(grid, low, high, step="post", color=color, alpha=0.2, linewidth=0)
        for i in sorted({int(np.argmax(clusters >= min(k, clusters.max()))) for k in MARKED}):
            ax.plot(grid[i], middle[i], "o", color=color, markersize=3)
            ax.annotate(f"{clusters[i]:.0f}", (grid[i], middle[i]), xytext=(2, 2),
                        textcoords="offset points", fontsize=7, color=color)  # fmt: skip


def draw(rows: Rows) -> Axes:
    """Draw a panel for each data set."""
    data_sets = rows.groups("data")
    n_columns = 2 if len(data_sets) == 4 else len(data_sets)
    n_rows = -(-len(data_sets) // n_columns)
    whole = Figure(figsize=(5.5 * n_columns, 4.2 * n_rows), layout="constrained")
    axes = whole.subplots(n_rows, n_columns, squeeze=False)
    for ax, own in zip(axes.flat, data_sets, strict=True):
        draw_curves(ax, own)
        title = f"{own[0]['data']} ({len(own.values('seed'))} seeds)"
        ax.set(xscale="log", yscale="log", title=title)
        ax.set(xlabel="samples observed", ylabel="lowest mean distortion")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.yaxis.set_minor_locator(NullLocator())
        open_axes(ax)
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


@dataclass(frozen=True)
class Options(SharedOptions):
    """What to compare, and where to run."""

    seeds: int = 5
    """How many seeds; Gaussians and the rows of Adult are drawn anew for each."""
    data: Path | None = None
    """Folder of the files; without it, the sets that come with scikit-learn are taken."""
    clusters: int = 30
    """Most codevectors."""
    execution: Execution = ALONE


def settings(options: Options) -> list[Row]:
    """Arguments of :func:`run`."""
    sizes: dict[str, int | None] = {"Gaussians": GAUSSIAN_POINTS, "WDBC": None, "digits": None}
    if options.data is not None:
        sizes = {"Gaussians": GAUSSIAN_POINTS, "WBCD": None, "PIMA": None, "Adult": ADULT_POINTS}
    return [
        {**one, "max_clusters": options.clusters, "seed": seed}
        for one in sets(sizes, options.data)
        for seed in EXPERIMENT.seeds(options)
    ]


def main(options: Options) -> None:
    """Print a table for each data set and write the files."""
    if options.data is None:
        say("no --data: with the sets that come with scikit-learn, not the papers'")
    rows = EXPERIMENT.run(run, settings(options), options.execution)
    say(*map(table, rows.groups("data")))
    EXPERIMENT.save(draw(rows))


if __name__ == "__main__":
    start(main, Options, __doc__)
