"""The cost of long runs: memory and speed from stretch to stretch, and whether learning continues.

Each run is a hundred stretches of one learner in its own process: an online agent, a fitted one
with its bound, and a clusterer and a mixture that forget. Rows have the memory of the process, the
processor time per step, and the state of the schedule. At the end the streams' samples move, and
the last column is the share of the shift that the learners follow in one more stretch.

Run: python scripts/soak.py
"""

import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common.experiment import Experiment, Selection, chosen, say, start
from common.summaries import Column, Row, Rows, Table, the
from rich.progress import track

from oda_rl import ODAClusterer, SGDGaussianMixture
from oda_rl.agents import FittedQAgent, TwoTimescaleAgent

EXPERIMENT = Experiment("soak", leave_out=("stretches",), timed=True)
BARTO = "oda_rl/BartoCartPole-v0"
STRETCHES = 100
WARM = 20  # stretches, which are left out
BLOCK = 100_000  # samples that are shown at once
PLACES = np.array([[-6.0, 0.0], [-2.0, 4.0], [2.0, -4.0], [6.0, 0.0]])  # of the samples
SHIFT = 1.0


class Learner(NamedTuple):
    """A learner in a long run."""

    show: Callable[[int], Any]  # Learn from a number of steps or samples
    state: Callable[[], Row]
    follow: Callable[[int], float] = lambda _: math.nan
    """Return the share of a shift of the samples that is followed in one stretch."""


def agent(made: Any) -> Learner:
    def state() -> Row:
        return {"temperature": made.temperature, "cells": made.n_cells,
                "episodes": made.episodes.count, "log": len(made.episodes.rows)}  # fmt: skip

    return Learner(made.learn, state)


def stream(made: Any, centres: str) -> Learner:
    """Show an estimator samples around four places, drawn once and shown again and again."""
    rng = np.random.default_rng(0)
    samples = PLACES[rng.integers(4, size=BLOCK)] + rng.normal(scale=0.5, size=(BLOCK, 2))

    def show(n: int, moved: float = 0.0) -> None:
        for begin in range(0, n, BLOCK):
            made.partial_fit(samples[: min(BLOCK, n - begin)] + moved)

    def follow(n: int) -> float:
        before = getattr(made, centres).mean(axis=0)
        show(n, SHIFT)
        return float((getattr(made, centres).mean(axis=0) - before).mean() / SHIFT)

    def state() -> Row:
        temperature = getattr(made, "temperature_", math.nan)  # a mixture has none
        return {"temperature": temperature, "cells": len(getattr(made, centres))}

    return Learner(show, state, follow)


KINDS: dict[str, tuple[int, Callable[[], Learner]]] = {
    "online agent": (10**9, lambda: agent(TwoTimescaleAgent(BARTO, seed=0))),
    "clusterer": (10**9, lambda: stream(
        ODAClusterer(4, forgetting=1e-4, random_state=0), "codevectors_")),
    "mixture": (10**8, lambda: stream(
        SGDGaussianMixture(4, forgetting=1e-3, random_state=0), "means_")),
    "fitted agent": (10**7, lambda: agent(FittedQAgent(BARTO, seed=0))),
}  # fmt: skip


def megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


def measure(**arguments: Any) -> list[Row]:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:  # whose memory is the run's
        return process.submit(run, **arguments).result()


def run(kind: str, steps: int, stretches: int) -> list[Row]:
    learner = KINDS[kind][1]()
    rows: list[Row] = []
    each = max(steps // stretches, 1)
    for i in track(range(stretches), description=kind):
        begun = time.process_time()
        learner.show(each)
        used = time.process_time() - begun
        state = {name: value for name, value in learner.state().items() if not math.isnan(value)}
        cost = {"ns_per_step": 1e9 * used / each, "megabytes": megabytes()}
        rows.append({"kind": kind, "steps": (i + 1) * each, "stretch": i, **cost, **state})
    followed = learner.follow(each)
    if not math.isnan(followed):
        rows[-1]["followed"] = followed
    return rows


def _warm(line: Rows) -> Rows:
    return Rows(row for row in line if row["stretch"] >= len(line) * WARM / STRETCHES)


def speeds(line: Rows) -> tuple[float, float]:
    """Least time of a step, in ns, in the first and in the last quarter after the warm-up.

    Other processes make steps longer, not shorter.
    """
    times = _warm(line).column("ns_per_step")
    n = max(len(times) // 4, 1)
    return float(times[:n].min()), float(times[-n:].min())


def _last(line: Rows, key: str, form: str) -> str:
    value = line[-1].get(key)
    return "" if value in (None, "") else f"{value:{form}}"


def tables(rows: Rows) -> dict[str, Table]:
    columns = [
        Column("run", the("kind")),
        Column("steps", partial(_last, key="steps", form=",")),
        Column("MB after the warm-up", lambda line: f"{_warm(line)[0]['megabytes']:.0f}"),
        Column("± MB since", lambda line: f"{np.ptp(_warm(line).column('megabytes')) / 2.0:.2f}"),
        Column("ns a step, first", lambda line: f"{speeds(line)[0]:,.0f}"),
        Column("last", lambda line: f"{speeds(line)[1]:,.0f}"),
        Column("temperature at the end", partial(_last, key="temperature", form=".3g")),
        Column("cells", partial(_last, key="cells", form=".0f")),
        Column("share of a shift followed", partial(_last, key="followed", form=".2f")),
    ]
    return {"soak": Table("of long runs", columns, rows.groups("kind"))}


def main(options: Selection) -> None:
    names = chosen(options.only, KINDS)
    settings = [{"kind": k, "steps": KINDS[k][0], "stretches": STRETCHES} for k in names]
    rows = EXPERIMENT.run(measure, settings, options)
    say(*tables(rows).values())


if __name__ == "__main__":
    start(main, Selection, __doc__)
