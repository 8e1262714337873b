"""Memory and time of fit and transform for samples in single and in double precision.

ODAClusterer and ODAClassifier learn from normal data, labelled by the sign of the first feature,
with 40 codevectors, in float64 and the same rounded to float32. Memory is the most that numpy holds
at once (tracemalloc) beyond the samples themselves, in multiples of them in float64. Time is
processor time of a fit, the least of three; what it compiles is compiled before. Seeds are those
from 62 600 000 on, which chose nothing.

Run: python scripts/benchmark.py precision [--seeds 3]
Runs are kept in results/benchmark_precision.jsonl as they end, and not repeated; writes
results/benchmark_precision.csv.
"""

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from common.experiment import ALONE, Experiment, SharedOptions, say
from common.summaries import Column, Row, Rows, Table, among, of, the

from oda_rl import ODAClassifier, ODAClusterer
from oda_rl.runs.parallel import Execution

EXPERIMENT = Experiment("benchmark_precision")
KINDS = {"ODAClusterer": ODAClusterer, "ODAClassifier": ODAClassifier}
SIZES = ((20_000, 40), (200_000, 20))
CODEVECTORS, REPETITIONS = 40, 3


def peak(action: Callable[[], Any]) -> int:
    """Return the most bytes that a call holds at once."""
    tracemalloc.start()
    action()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def measure(kind: str, n: int, d: int, seed: int) -> list[Row]:
    """Fit to samples of both precisions."""
    samples = np.random.default_rng(seed).normal(size=(n, d))
    y = (samples[:, 0] > 0.0).astype(np.int64)
    rows: list[Row] = []
    for dtype in ("float64", "float32"):
        X = samples.astype(dtype)
        model = KINDS[kind](CODEVECTORS, random_state=seed)
        model.fit(X[:500], y[:500])
        times = []
        for _ in range(REPETITIONS):
            begun = time.process_time()
            model.fit(X, y)
            times.append(time.process_time() - begun)
        rows.append({
            "precision": dtype, "seconds": min(times),
            "fit": peak(partial(model.fit, X, y)) / samples.nbytes,
            "transform": peak(partial(model.transform, X)) / samples.nbytes,
            "same": bool(X.dtype == model.codevectors_.dtype == model.transform(X[:9]).dtype),
        })  # fmt: skip
    return rows


def tables(rows: Rows) -> dict[str, Table]:
    """Return medians over the seeds."""
    columns = [
        Column("", lambda own: f"`{own[0]['kind']}`"),
        Column("samples", the("n", ",")),
        Column("features", the("d")),
    ]
    for name, key, form in (
        ("memory of fit", "fit", ".2f"), ("of transform", "transform", ".2f"),
        ("seconds of fit", "seconds", ".2g"),
    ):  # fmt: skip
        for dtype in ("float64", "float32"):
            median = of(np.median, key, form)
            columns.append(Column(f"{name}, {dtype}", among(median, precision=dtype)))
    lines = [rows.where(kind=kind, n=n, d=d) for kind in KINDS for n, d in SIZES]
    lines = [own for own in lines if own]
    return {"precision": Table("Single and double precision", columns, lines)}


@dataclass(frozen=True)
class Options(SharedOptions):
    """How much to run, and where."""

    seeds: int = 3
    """Of each estimator and size."""
    largest: int = SIZES[-1][0]
    """Sizes beyond are left out."""
    execution: Execution = ALONE


def main(options: Options) -> None:
    """Measure both estimators at each size."""
    settings = [
        {"kind": kind, "n": n, "d": d, "seed": seed}
        for kind in KINDS
        for n, d in SIZES
        for seed in EXPERIMENT.seeds(options)
        if n <= options.largest
    ]
    rows = EXPERIMENT.run(measure, settings, options.execution)
    say(*tables(rows).values())
