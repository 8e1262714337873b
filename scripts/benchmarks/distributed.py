"""Annealing by sums over Dask's blocks, beside annealing on one machine.

Two questions. Is the distortion that of ``ODAClusterer``? Data that fit are learned in eight blocks
and on one machine, with the same number of clusters. And what does it cost as data grow along with
workers? As many times 2,500,000 rows of 16 features, in single precision, as there are workers are
made where they lie, by processes of a Dask cluster of this machine; ``ODAClusterer`` learns from a
million of them at most, and both are measured on all rows.

A third: is a mixture by sums as likely as the best that ``GaussianMixture`` of scikit-learn finds
from five starts? Covariances are full, on the first eight principal components.

Run: python scripts/benchmark.py distributed
Runs are kept as they end in results/benchmark_distributed.jsonl; writes
results/benchmark_distributed.csv.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from common.datasets import load
from common.experiment import ALONE, Experiment, SharedOptions, say, seconds
from common.summaries import Column, Row, Rows, Table, the
from distributed import Client, LocalCluster
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from oda_rl import DistributedGaussianMixture, DistributedODAClusterer, ODAClusterer
from oda_rl._types import Float32Array, FloatArray
from oda_rl.runs.parallel import Execution

EXPERIMENT = Experiment("benchmark_distributed")
SETS = {"WDBC": 20, "digits": 50, "Gaussians": 50}  # clusters
MIXTURES = {"WDBC": 4, "digits": 10, "Gaussians": 10}  # components
SMALL, BLOCKS = 20_000, 8
MIXED = ", mixture"
AXES, STARTS, MARGIN = 8, 5, 0.02  # of mixtures
WORKERS = (1, 2, 4)
PER_WORKER, BLOCK = 2_500_000, 250_000
N_COMPONENTS, N_FEATURES, N_CLUSTERS = 100, 16, 32
MOST_ALONE = 1_000_000


def gaussians(seed: int, block: int, rows: int) -> Float32Array:
    """Return a block of a mixture, the same whoever makes it."""
    centres = np.random.default_rng(seed).normal(scale=2.0, size=(N_COMPONENTS, N_FEATURES))
    rng = np.random.default_rng([seed, block])
    own = centres.astype(np.float32)[rng.integers(N_COMPONENTS, size=rows)]
    return own + rng.standard_normal((rows, N_FEATURES), dtype=np.float32)


def compare(*, data: str, workers: int, seed: int) -> Row:
    """Learn by sums and on one machine; without workers here, and with them in processes."""
    if workers > 0:
        return apart(workers, seed)
    if data.endswith(MIXED):
        return compare_mixtures(data.removesuffix(MIXED), seed)
    points = small(data, seed)
    array = in_blocks(points)
    with dask.config.set(scheduler="synchronous"):
        many = DistributedODAClusterer(SETS[data], random_state=seed)
        taken = seconds(lambda: many.fit(array))
    one = ODAClusterer(SETS[data], random_state=seed)
    alone = seconds(lambda: one.fit(points))
    return {
        "rows": len(points), "clusters": SETS[data], "seconds": taken,
        "distortion": many.inertia_ / len(points), "rows_alone": len(points),
        "seconds_alone": alone, "distortion_alone": one.inertia_ / len(points),
    }  # fmt: skip


def small(data: str, seed: int) -> FloatArray:
    """Return data that fit; those of files in standard deviations."""
    if data == "Gaussians":
        return gaussians(seed, 0, SMALL).astype(np.float64)
    points = load(data, None, None, np.random.default_rng(seed))[0]
    return np.asarray(StandardScaler().fit_transform(points))


def in_blocks(points: FloatArray) -> da.Array:
    """Return them in eight blocks."""
    return da.from_array(points, chunks=(-(-len(points) // BLOCKS), points.shape[1]))


def compare_mixtures(data: str, seed: int) -> Row:
    """Fit a mixture by sums, and the best of several that begin with k-means."""
    points, n = PCA(AXES).fit_transform(small(data, seed)), MIXTURES[data]
    array = in_blocks(points)
    with dask.config.set(scheduler="synchronous"):
        many = DistributedGaussianMixture(n, covariance_type="full", random_state=seed)
        taken = seconds(lambda: many.fit(array))
    one = GaussianMixture(n, tol=1e-4, max_iter=500, n_init=STARTS, random_state=seed)
    alone = seconds(lambda: one.fit(points))
    return {
        "rows": len(points), "clusters": n, "seconds": taken, "likelihood": many.score(points),
        "rows_alone": len(points), "seconds_alone": alone, "likelihood_alone": one.score(points),
    }  # fmt: skip


def apart(workers: int, seed: int) -> Row:
    """Call :func:`grow` in a process that is nobody's worker, and so may have some."""
    code = "import json; from benchmarks.distributed import grow; "
    code += f"print(json.dumps(grow({workers}, {seed})))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True)
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def grow(workers: int, seed: int) -> Row:
    """Learn from as much data as there are workers, which make it and keep it."""
    n_blocks = workers * PER_WORKER // BLOCK
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        made = [
            da.from_delayed(
                dask.delayed(gaussians)(seed, i, BLOCK), (BLOCK, N_FEATURES), dtype=np.float32
            )
            for i in range(n_blocks)
        ]
        array = client.persist(da.concatenate(made))
        client.gather(client.map(_warm, range(workers), pure=False))
        many = DistributedODAClusterer(N_CLUSTERS, random_state=seed)
        array.sum().compute()
        taken = seconds(lambda: many.fit(array))
        every = n_blocks * BLOCK // MOST_ALONE
        here = array[:: max(every, 1)][:MOST_ALONE].compute()
        one = ODAClusterer(N_CLUSTERS, random_state=seed)
        alone = seconds(lambda: one.fit(here))
        nearest = array.map_blocks(_squares, one.cluster_centers_, drop_axis=1, dtype=np.float64)
        distortion_alone = float(nearest.mean().compute())
    return {
        "rows": n_blocks * BLOCK, "clusters": N_CLUSTERS, "seconds": taken,
        "distortion": many.inertia_ / (n_blocks * BLOCK), "rows_alone": len(here),
        "seconds_alone": alone, "distortion_alone": distortion_alone,
        "rounds_of_rows": many.n_samples_seen_ / (n_blocks * BLOCK), "cores": os.cpu_count(),
    }  # fmt: skip


def _squares(points: Float32Array, codevectors: FloatArray) -> FloatArray:
    """Squared distance of each row from the nearest codevector."""
    gaps = [((points - own) ** 2).sum(axis=1, dtype=np.float64) for own in codevectors]
    return np.asarray(np.min(gaps, axis=0))


def _warm(worker: int) -> None:
    """Load what is compiled."""
    DistributedODAClusterer(2, random_state=worker).fit(gaussians(worker, 0, 1000))


def ratio(own: Rows) -> str:
    """Distortion over that of one machine: median and range."""
    ratios = own.column("distortion") / own.column("distortion_alone")
    if len(ratios) == 1:
        return f"{ratios[0]:.4f}"
    return f"{np.median(ratios):.4f} ({ratios.min():.4f} to {ratios.max():.4f})"


def within(own: Rows) -> str:
    """How often the distortion is at most 1 % more."""
    ratios = own.column("distortion") / own.column("distortion_alone")
    return f"{int((ratios <= 1.01).sum())} of {len(ratios)}"


def gap(own: Rows) -> str:
    """Mean log-likelihood less that of the best start: median and range."""
    gaps = own.column("likelihood") - own.column("likelihood_alone")
    return f"{np.median(gaps):.4f} ({gaps.min():.4f} to {gaps.max():.4f})"


def likely(own: Rows) -> str:
    """How often it is at most .02 less."""
    gaps = own.column("likelihood") - own.column("likelihood_alone")
    return f"{int((gaps >= -MARGIN).sum())} of {len(gaps)}"


def middle(key: str) -> Any:
    """Make a text of the median of a column."""

    def text(own: Rows) -> str:
        return f"{np.median(own.column(key)):.3g}"

    return text


def tables(rows: Rows) -> dict[str, Table]:
    """Return a line for each set learned here, and one for each number of workers."""
    lines = [
        own
        for workers in (0, *WORKERS)
        for data in SETS
        if (own := rows.where(data=data, workers=workers))
    ]
    columns = [
        Column("data", the("data")),
        Column("rows", the("rows", ",")),
        Column("workers", lambda own: str(own[0]["workers"] or "none, 8 blocks")),
        Column("seeds", lambda own: str(len(own))),
        Column("distortion / one machine", ratio),
        Column("≤ 1.01", within),
        Column("seconds", middle("seconds")),
        Column("rows on one machine", the("rows_alone", ",")),
        Column("its seconds", middle("seconds_alone")),
    ]
    mixed = [own for data in MIXTURES if (own := rows.where(data=data + MIXED, workers=0))]
    of_mixtures = [
        Column("data", lambda own: own[0]["data"].removesuffix(MIXED)),
        Column("rows", the("rows", ",")),
        Column("components", the("clusters")),
        Column("seeds", lambda own: str(len(own))),
        Column("log-likelihood less that of the best start", gap),
        Column("at most .02 less", likely),
        Column("seconds", middle("seconds")),
        Column("seconds of five starts", middle("seconds_alone")),
    ]
    return {
        "distributed": Table("medians", columns, lines),
        "distributed_mixtures": Table("mixtures, medians", of_mixtures, mixed),
    }


@dataclass(frozen=True)
class Options(SharedOptions):
    """How much to run, and where."""

    growing: tuple[int, ...] = WORKERS
    """Workers of the clusters whose data grow along."""
    growing_seeds: int = 1
    """Runs of each of these."""
    mixture_seeds: int = 3
    """And of each mixture."""
    execution: Execution = ALONE


def main(options: Options) -> None:
    """Compare learning by sums with one machine, and let data grow along with workers."""
    seeds = EXPERIMENT.seeds(options)
    settings = [
        *({"data": data, "workers": 0, "seed": seed} for data in SETS for seed in seeds),
        *(
            {"data": data + MIXED, "workers": 0, "seed": seed}
            for data in MIXTURES
            for seed in range(seeds.start, seeds.start + options.mixture_seeds)
        ),
        *(
            {"data": "Gaussians", "workers": workers, "seed": seed}
            for workers in options.growing
            for seed in seeds[: options.growing_seeds]
        ),
    ]
    rows = EXPERIMENT.run(compare, settings, options.execution)
    say(*tables(rows).values())
