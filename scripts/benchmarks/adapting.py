"""A classifier that learns in C: bytes, nanoseconds a sample, decisions unlike Python's, accuracy.

An ODAClassifier is fitted to 2000 samples in four features, of three classes of two Gaussian clouds
each, and goes on with 100 000 more: of the same clouds, or of clouds that wander by four of their
standard deviations meanwhile, each its own way. It is written as a C99 header that learns
(``export_c(model, path, learn=True)``) and compiled with gcc -O2. Both predict each block of 100
samples, and then learn from it. Time in C is processor time of learning from all samples, and of
predicting them, one by one, the least of ten; in Python that of ``partial_fit`` in blocks. Seeds
are those from 62 500 000 on, which chose nothing. Needs gcc.

Run: python scripts/benchmark.py adapting [--seeds 20]
Runs are kept in results/benchmark_adapting.jsonl as they end, and not repeated; writes
results/benchmark_adapting.csv.
"""

import re
import subprocess
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from common.experiment import ALONE, Experiment, SharedOptions, say
from common.summaries import Column, Row, Rows, Table, of, the

from benchmarks.export import bytes_of, differing, program
from oda_rl import ODAClassifier
from oda_rl._types import Float32Array, IntArray
from oda_rl.exporting import export_c
from oda_rl.runs.parallel import Execution

EXPERIMENT = Experiment("benchmark_adapting")
CLASSES, CLOUDS, FEATURES, CODEVECTORS = 3, 2, 4, 8
BEFORE, SAMPLES, BLOCK = 2_000, 100_000, 100
SPREAD, SPEED, FORGETTING = 0.5, 2.0, 0.02
DATA = {"as before": (0.0, 0.0), "wandering": (SPEED, FORGETTING)}


def draw(n: int, speed: float, rng: np.random.Generator) -> tuple[Float32Array, IntArray]:
    """Return samples that begin at the clouds' first places, and their classes."""
    places, ways = rng.normal(size=(2, CLASSES, CLOUDS, FEATURES))
    classes, clouds = rng.integers(CLASSES, size=n), rng.integers(CLOUDS, size=n)
    ways /= np.linalg.norm(ways, axis=-1, keepdims=True)
    gone = speed * np.clip((np.arange(n) - BEFORE) / (n - BEFORE), 0.0, 1.0)
    points = places[classes, clouds] + gone[:, None] * ways[classes, clouds]
    points += SPREAD * rng.normal(size=points.shape)
    return points.astype(np.float32), classes


def learn_in_c(
    model: ODAClassifier, X: Float32Array, y: IntArray
) -> tuple[Row, npt.NDArray[np.int32]]:
    """Return sizes and times, and what was predicted of each block before it was learned from."""
    rows = np.zeros(len(X), dtype=[("obs", np.float32, FEATURES), ("label", np.int32)])
    rows["obs"], rows["label"] = X, y
    with TemporaryDirectory() as place:
        folder = Path(place)
        text = export_c(model, folder / "predict.h", learn=True).read_text()
        command = [program("adapting.c", folder), str(len(X)), str(BLOCK)]
        done = subprocess.run(command, input=rows.tobytes(), capture_output=True, check=True)
    size = re.search(r"Tables: (\d+) bytes", text)
    assert size is not None
    state, learning, predicting = done.stderr.split()
    found = {"bytes": int(state), "table_bytes": int(size[1]), "ns": float(learning),
             "predict_ns": float(predicting)}  # fmt: skip
    return found, np.frombuffer(done.stdout[-4 * len(X) :], dtype=np.int32)


def measure(data: str, seed: int, samples: int) -> Row:
    """Fit, and go on in C and in Python."""
    speed, forgetting = DATA[data]
    X, y = draw(BEFORE + samples, speed, np.random.default_rng(seed))
    model = ODAClassifier(CODEVECTORS, forgetting=forgetting, random_state=seed)
    model.fit(X[:BEFORE], y[:BEFORE])
    X, y = X[BEFORE:], y[BEFORE:]
    row, found = learn_in_c(model, X, y)
    still: npt.NDArray[Any] = model.predict(X)
    expected, taken = np.empty_like(y), 0.0
    for begin in range(0, samples, BLOCK):
        rows = slice(begin, begin + BLOCK)
        expected[rows] = model.predict(X[rows])
        begun = time.process_time()
        model.partial_fit(X[rows], y[rows])
        taken += time.process_time() - begun
    return {
        **row, "codevectors": len(model.codevectors_), "python_ns": 1e9 * taken / samples,
        "observations": samples, "same": int((found == expected).sum()),
        "still": float((still == y).mean()), "accuracy": float((found == y).mean()),
    }  # fmt: skip


def accuracy_of(key: str, own: Rows) -> str:
    """Mean accuracy, and that of the least seed."""
    return f"{np.mean(own.column(key)):.3f} ({min(own.column(key)):.3f})"


def tables(rows: Rows) -> dict[str, Table]:
    """Return what all seeds have come to."""
    columns = [
        Column("clouds", the("data")),
        Column("codevectors", of(np.median, "codevectors", "g")),
        Column("bytes of state (most)", bytes_of),
        Column("of constant tables", of(np.median, "table_bytes", ",.0f")),
        Column("ns to learn a sample", of(np.median, "ns", ".3g")),
        Column("to predict", of(np.median, "predict_ns", ".3g")),
        Column("`partial_fit` in blocks", of(np.median, "python_ns", ",.0f")),
        Column("decisions that differ", differing),
        Column("accuracy (least seed)", partial(accuracy_of, "accuracy")),
        Column("without learning", partial(accuracy_of, "still")),
    ]
    lines = [rows.where(data=data) for data in DATA]
    return {"adapting": Table("A classifier that learns in C", columns, lines)}


@dataclass(frozen=True)
class Options(SharedOptions):
    """How much to run, and where."""

    samples: int = SAMPLES
    """That are learned from after the fit."""
    execution: Execution = ALONE


def main(options: Options) -> None:
    """Learn in C and in Python with the same samples."""
    settings = [
        {"data": data, "seed": seed, "samples": options.samples}
        for seed in EXPERIMENT.seeds(options)
        for data in DATA
    ]
    rows = EXPERIMENT.run(measure, settings, options.execution)
    say(*tables(rows).values())
