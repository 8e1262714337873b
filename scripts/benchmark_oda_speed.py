"""Microseconds a sample of the annealing kernel, beside MiniBatchKMeans.partial_fit in one run.

Both learn from the same stream with the same codevectors: KMeans' own, on a mixture of 50
Gaussians, in blocks of 1024 and, for MiniBatchKMeans, one by one, too. The kernel is measured as it
is when annealing has ended, and at the temperature at which a codebook of that size is filled,
where a sample moves many codevectors; and at 1000 codevectors with and without the segments that
let it pass over those far away. ODAClusterer.partial_fit is the kernel with validation around it.

Columns: kernel (annealing has ended), hot, plain (without segments), partial_fit of ODAClusterer in
blocks of 1024, MBK 1024 and MBK 1 for MiniBatchKMeans in blocks and one by one. Times are minima of
repetitions, which alternate between the competitors: the machine may be shared.

Run: python scripts/benchmark_oda_speed.py
Writes results/benchmark_oda_speed.csv and results/benchmark_oda_speed.png.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.cluster import MiniBatchKMeans

from oda_rl import ODAClusterer
from oda_rl.annealing import codebook
from oda_rl.command.report import save_figure
from oda_rl.plotting.axes import COLORS, new_axes
from oda_rl.results import markdown_table, read_rows, store_rows

FloatArray = npt.NDArray[np.float64]

RESULTS = Path("results")
SIZES = (10, 50, 100, 200, 1000)
DIMENSIONS = (2, 8, 30, 256)
BLOCK = 1024
SINGLE = 200
TARGETS = {(100, 2): 0.6, (100, 8): 0.8, (100, 30): 1.2, (100, 256): 4.0}  # µs
SEGMENTS_TARGET = 3.0  # times faster than without, at 1000 codevectors, up to 30 dimensions


def stream(d: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw from a mixture of 50 overlapping Gaussians."""
    centres = 2.0 * rng.normal(size=(50, d))
    return centres[rng.integers(50, size=n)] + rng.normal(size=(n, d))


def trained(size: int, start: FloatArray, points: FloatArray, temperature: float) -> ODAClusterer:
    """Make a clusterer whose annealing has ended, with given codevectors and temperature."""
    model = ODAClusterer(size, max_samples=200, random_state=0)
    model.partial_fit(points[:200])
    annealer = model._annealer
    annealer.active, annealer.temperature = False, temperature
    annealer.labels = np.zeros(size, dtype=np.int64)
    annealer._parents = np.zeros((size, 0))
    annealer.replace(start.copy(), np.full(size, 1.0 / size))
    return model


def seconds(action: Callable[[], Any]) -> float:
    """Time of one call."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def measure(size: int, d: int, repetitions: int, n: int) -> dict[str, Any]:
    """All times for one size and dimension, in µs a sample."""
    rng = np.random.default_rng([size, d])
    points = stream(d, n, rng)
    start = MiniBatchKMeans(size, n_init=1, max_iter=5, random_state=0).fit(points)
    codevectors = start.cluster_centers_
    distortion = -start.score(points) / n
    full = 2.0 * distortion / d  # about the critical temperature of the cells

    def blocks(model: Any, width: int, most: int) -> Callable[[], Any]:
        def run() -> None:
            for begin in range(0, most, width):
                model.partial_fit(points[begin : begin + width])

        return run

    def kernel(temperature: float, segmented: bool) -> Callable[[], Any]:
        least = codebook.GROUPED
        codebook.GROUPED = least if segmented else size + 1
        model = trained(size, codevectors, points, temperature)
        codebook.GROUPED = least
        annealer = model._annealer
        classes, ones = np.zeros(n, dtype=np.int64), np.ones(n)
        # The model is kept to read the distortion of its stream from afterwards.
        run: Any = lambda: annealer.observe(points, classes, ones)  # noqa: E731
        kept[temperature, segmented] = annealer
        return run  # type: ignore[no-any-return]

    kept: dict[tuple[float, bool], Any] = {}
    batch = MiniBatchKMeans(size, init=codevectors, n_init=1, batch_size=BLOCK)
    single = MiniBatchKMeans(size, init=codevectors, n_init=1, batch_size=1)
    for model in (batch, single):
        model.partial_fit(points[: max(size, BLOCK)])
    cold = 0.01 * full
    contests = {
        "kernel": (kernel(cold, True), n),
        "hot": (kernel(full, True), n),
        "plain": (kernel(cold, False), n),
        "partial_fit": (
            blocks(trained(size, codevectors, points, cold), BLOCK, n),
            n,
        ),
        "MBK 1024": (blocks(batch, BLOCK, n), n),
        "MBK 1": (blocks(single, 1, SINGLE), SINGLE),
    }
    times = dict.fromkeys(contests, np.inf)
    for _ in range(repetitions):
        for name, (action, count) in contests.items():
            times[name] = min(times[name], 1e6 * seconds(action) / count)
    ends = [kept[cold, segmented].distortion() for segmented in (True, False)]
    return {"K": size, "d": d, **times, "distortion": ends[0], "distortion, plain": ends[1]}


def report(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print the table, and every target that is missed."""
    names = [name for name in rows[0] if name not in ("K", "d")]
    table = Table("K", "d", *names, title="µs a sample, and distortion")
    for row in rows:
        shown = [
            f"{row[name]:.5g}" if "distortion" in name else f"{row[name]:.2f}" for name in names
        ]
        table.add_row(str(row["K"]), str(row["d"]), *shown)
    console.print(table)
    for row in rows:
        target = TARGETS.get((row["K"], row["d"]), np.inf)
        for name in ("kernel", "hot"):
            if row[name] > target:
                console.print(f"K={row['K']}, d={row['d']}: {name} {row[name]:.2f} µs > {target}")
        gain = row["plain"] / row["kernel"]
        if row["K"] == 1000:
            console.print(f"K=1000, d={row['d']}: segments are {gain:.1f} times as fast as none")
            if row["d"] <= 30 and gain < SEGMENTS_TARGET:
                console.print(f"  below the target of {SEGMENTS_TARGET}")


def tables(results: Path) -> dict[str, str]:
    """Return the table of the README."""
    rows = read_rows(results / "benchmark_oda_speed.csv")
    shown = ("kernel", "hot", "plain", "partial_fit", "MBK 1024", "MBK 1")
    lines = [
        [
            f"{row['K']}, {row['d']}",
            *(f"{row[n]:.2g}" if row[n] < 10 else f"{row[n]:.0f}" for n in shown),
        ]
        for row in rows
        if row["K"] in (100, 1000)
    ]
    labels = {
        "plain": "kernel without segments",
        "partial_fit": f"`partial_fit` in blocks of {BLOCK}",
        "MBK 1024": f"`MiniBatchKMeans` in blocks of {BLOCK}", "MBK 1": "one by one",
    }  # fmt: skip
    heads = ["codevectors, dimensions", *(labels.get(name, name) for name in shown)]
    return {"oda speed": markdown_table(heads, lines)}


def draw(rows: list[dict[str, Any]]) -> Path:
    """Draw µs a sample over the number of codevectors, a panel for each dimension."""
    dimensions = list(dict.fromkeys(row["d"] for row in rows))
    names = [name for name in rows[0] if name not in ("K", "d") and "distortion" not in name]
    panels = new_axes(3.4 * len(dimensions) + 1.6, 4.6, columns=len(dimensions))
    for ax, d in zip(panels, dimensions, strict=True):
        own = [row for row in rows if row["d"] == d]
        for color, name in zip(COLORS, names, strict=False):
            ax.plot([row["K"] for row in own], [row[name] for row in own], "o-",
                    color=color, markersize=4, label=name)  # fmt: skip
        ax.set(xscale="log", yscale="log", xlabel="codevectors", title=f"{d} dimensions")
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("µs a sample")
    figure = panels[0].figure
    figure.subplots_adjust(bottom=0.26)
    figure.legend(
        *panels[0].get_legend_handles_labels(), ncols=3, loc="lower center", frameon=False
    )
    return save_figure(panels[0], RESULTS / "benchmark_oda_speed.png")


def main(
    sizes: tuple[int, ...] = SIZES,
    dimensions: tuple[int, ...] = DIMENSIONS,
    repetitions: int = 7,
    samples: int = 16 * BLOCK,
) -> None:
    """Time the kernel beside MiniBatchKMeans.

    Parameters
    ----------
    sizes
        Numbers of codevectors.
    dimensions
        Numbers of features.
    repetitions
        Of each measurement.
    samples
        Of the stream.
    """
    console = Console()
    cases = [(size, d) for d in dimensions for size in sizes]
    rows = [measure(*case, repetitions, samples) for case in track(cases, console=console)]
    store_rows(RESULTS / "benchmark_oda_speed.csv", rows, ("K", "d"))
    report(console, rows)
    console.print(f"written: {draw(rows)}, {RESULTS / 'benchmark_oda_speed.csv'}")


if __name__ == "__main__":
    tyro.cli(main)
