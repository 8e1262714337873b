"""Microseconds a sample of the annealing kernel, beside MiniBatchKMeans.partial_fit in one run.

Both learn from the same stream with the same codevectors: KMeans' own, on a mixture of 50
Gaussians, in blocks of 1024 and, for MiniBatchKMeans, one by one, too. The kernel is measured as it
is when annealing has ended, and at the temperature at which a codebook of that size is filled,
where a sample moves many codevectors; and at 1000 codevectors with and without the segments that
let it pass over those far away. ODAClusterer.partial_fit is the kernel with validation around it.

Columns: kernel (annealing has ended), hot, plain (without segments), partial_fit of ODAClusterer in
blocks of 1024, MBK 1024 and MBK 1 for MiniBatchKMeans in blocks and one by one. Times are minima of
repetitions, which alternate between the competitors: the machine may be shared.

Run: python scripts/benchmark.py oda_speed
Writes results/benchmark_oda_speed.csv and results/benchmark_oda_speed.png.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from common.experiment import CONSOLE, Experiment, say, seconds
from common.summaries import Column, Row, Rows, Table, Text, open_axes, the
from rich.progress import track
from sklearn.cluster import MiniBatchKMeans

from oda_rl import ODAClusterer
from oda_rl._types import FloatArray
from oda_rl.annealing import codebook
from oda_rl.plotting.axes import COLORS, new_axes

EXPERIMENT = Experiment("benchmark_oda_speed")
TIMES = ("kernel", "hot", "plain", "partial_fit", "MBK 1024", "MBK 1")
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


def measure(size: int, d: int, repetitions: int, n: int) -> Row:
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


def microseconds(name: str) -> Text:
    """Make a text of a time in two digits, or more before the point."""
    return lambda own: f"{own[0][name]:{'.2g' if own[0][name] < 10 else '.0f'}}"


def tables(rows: Rows) -> dict[str, Table]:
    """Return a line for each size and dimension."""
    labels = {
        "plain": "kernel without segments",
        "partial_fit": f"`partial_fit` in blocks of {BLOCK}",
        "MBK 1024": f"`MiniBatchKMeans` in blocks of {BLOCK}", "MBK 1": "one by one",
    }  # fmt: skip
    columns = [
        Column("codevectors, dimensions", lambda own: f"{own[0]['K']}, {own[0]['d']}"),
        *(Column(labels.get(name, name), microseconds(name)) for name in TIMES),
        *(Column(name, the(name, ".5g"), printed_only=True)
          for name in ("distortion", "distortion, plain")),
    ]  # fmt: skip
    table = Table(
        "µs a sample, and distortion", columns, rows.groups("K", "d"),
        on_page=lambda own: own[0]["K"] in (100, 1000),
    )  # fmt: skip
    return {"oda speed": table}


def missed(rows: Rows) -> list[str]:
    """Say where a target is missed, and what segments gain."""
    found = []
    for row in rows:
        target = TARGETS.get((row["K"], row["d"]), np.inf)
        for name in ("kernel", "hot"):
            if row[name] > target:
                found.append(f"K={row['K']}, d={row['d']}: {name} {row[name]:.2f} µs > {target}")
        gain = row["plain"] / row["kernel"]
        if row["K"] == 1000:
            found.append(f"K=1000, d={row['d']}: segments are {gain:.1f} times as fast as none")
            if row["d"] <= 30 and gain < SEGMENTS_TARGET:
                found.append(f"  below the target of {SEGMENTS_TARGET}")
    return found


def draw(rows: Rows) -> Any:
    """Draw µs a sample over the number of codevectors, a panel for each dimension."""
    dimensions = rows.values("d")
    panels = new_axes(3.4 * len(dimensions) + 1.6, 4.6, columns=len(dimensions))
    for ax, d in zip(panels, dimensions, strict=True):
        own = rows.where(d=d)
        for color, name in zip(COLORS, TIMES, strict=False):
            ax.plot(own.column("K"), own.column(name), "o-", color=color, markersize=4, label=name)
        ax.set(xscale="log", yscale="log", xlabel="codevectors", title=f"{d} dimensions")
    open_axes(*panels)
    panels[0].set_ylabel("µs a sample")
    figure = panels[0].figure
    figure.subplots_adjust(bottom=0.26)
    figure.legend(
        *panels[0].get_legend_handles_labels(), ncols=3, loc="lower center", frameon=False
    )
    return panels[0]


@dataclass(frozen=True)
class Options:
    """What to time."""

    sizes: tuple[int, ...] = SIZES
    """Numbers of codevectors."""
    dimensions: tuple[int, ...] = DIMENSIONS
    """Numbers of features."""
    repetitions: int = 7
    """Of each measurement."""
    samples: int = 16 * BLOCK
    """Of the stream."""


def main(options: Options) -> None:
    """Time the kernel beside MiniBatchKMeans."""
    cases = [(size, d) for d in options.dimensions for size in options.sizes]
    rows = Rows(
        measure(*case, options.repetitions, options.samples)
        for case in track(cases, console=CONSOLE)
    )
    EXPERIMENT.write(rows, ("K", "d"))
    say(*tables(rows).values(), *missed(rows))
    EXPERIMENT.save(draw(rows))
