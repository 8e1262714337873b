"""Distortion over samples observed, online annealing and others: the papers' figure 2.

Online deterministic annealing (without refinement), batch deterministic annealing, k-means and
stochastic vector quantization on standardised data. The annealing finds its numbers of clusters on
the way; the other two are run, as in the papers, one after another for each number that batch
annealing found, with their samples and their times added up. A sample counts each time that it is
looked at; those that k-means++ looks at to start are not counted.

Distortion is the mean squared distance of all points, which are those learned from, from the
nearest codevector: the lowest so far, with at most ``--clusters`` codevectors. Online annealing
has more of them for a while before it merges: these samples count, their distortion does not.
Times are those of fitting, with one thread.

Run: python scripts/reproduce_clustering.py --data FOLDER
Takes breast-cancer-wisconsin.data as wbcd.data, pima.csv, and adult.data as adult.csv.gz from the
folder; without it, the data sets that come with scikit-learn.
Writes results/reproduce_clustering.csv (every point of every curve) and
results/reproduce_clustering.png.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from datasets import FloatArray, adult, gaussians, pima, wbcd, write_rows
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from oda_rl import ODAClusterer
from oda_rl.batch_annealing import BatchDeterministicAnnealing
from oda_rl.plotting import COLORS
from oda_rl.quantization import StochasticVQ
from oda_rl.report import save_figure

GAUSSIAN_POINTS, ADULT_POINTS = 1500, 15_000
MARKED = (2, 4, 8, 16, np.inf)  # numbers of clusters in the figure; the last is the largest
RESULTS = Path("results")


class Reached(NamedTuple):
    """What a method had reached after some samples."""

    samples: int
    clusters: int
    distortion: float


class Curve(NamedTuple):
    """One run of one method."""

    reached: list[Reached]
    seconds: float


def data_sets(folder: Path | None) -> dict[str, Callable[[np.random.Generator], FloatArray]]:
    """Return the function that draws each set."""
    drawn: dict[str, Callable[[np.random.Generator], FloatArray]] = {
        "Gaussians": lambda rng: gaussians(GAUSSIAN_POINTS, rng)[0]
    }
    if folder is None:
        cancer, digits = load_breast_cancer().data, load_digits().data
        return drawn | {"WDBC": lambda rng: cancer, "digits": lambda rng: digits}
    marks, diabetes = wbcd(folder / "wbcd.data")[0], pima(folder / "pima.csv")[0]
    return drawn | {
        "WBCD": lambda rng: marks,
        "PIMA": lambda rng: diabetes,
        "Adult": lambda rng: adult(folder / "adult.csv.gz", ADULT_POINTS, rng)[0],
    }


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


def run(points: FloatArray, n_clusters: int, seed: int) -> dict[str, Curve]:
    """Run every method on the same points."""
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


def main(data: Path | None = None, seeds: int = 5, clusters: int = 30, first_seed: int = 0) -> None:
    """Print a table for each data set and write the files.

    Parameters
    ----------
    data : Path, optional
        Folder of the files; without it, the sets that come with scikit-learn are taken.
    seeds : int
        How many seeds; Gaussians and the rows of Adult are drawn anew for each.
    clusters : int
        Most codevectors.
    first_seed : int
        The others follow it.
    """
    console = Console(highlight=False, soft_wrap=True)
    if data is None:
        console.print("no --data: with the sets that come with scikit-learn, not the papers'")
    draws = data_sets(data)
    results: dict[str, list[dict[str, Curve]]] = {}
    with threadpool_limits(1), Progress(console=console) as progress:
        run(gaussians(100, np.random.default_rng(0))[0], 4, 0)  # compiles
        task = progress.add_task("runs", total=len(draws) * seeds)
        for name, draw in draws.items():
            results[name] = []
            for seed in range(first_seed, first_seed + seeds):
                points = StandardScaler().fit_transform(draw(np.random.default_rng(seed)))
                results[name].append(run(points, clusters, seed))
                progress.advance(task)
            console.print(result_table(name, results[name]), "")
    write_rows(RESULTS / "reproduce_clustering.csv", rows(results, first_seed))
    save_figure(figure(results), RESULTS / "reproduce_clustering.png")
    console.print(f"written to {RESULTS}: reproduce_clustering.csv, reproduce_clustering.png")


def rows(results: dict[str, list[dict[str, Curve]]], first_seed: int) -> list[dict[str, Any]]:
    """Every point of every curve, with the seconds of the whole run."""
    return [
        {"data": name, "method": method, "seed": first_seed + i, "seconds": curve.seconds}
        | entry._asdict()
        for name, runs in results.items()
        for i, curves in enumerate(runs)
        for method, curve in curves.items()
        for entry in curve.reached
    ]


if __name__ == "__main__":
    tyro.cli(main)
