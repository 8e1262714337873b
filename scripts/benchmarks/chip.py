"""Learning in C: bytes of the learner, nanoseconds a step, and whether it solves the cart-pole.

An online agent with at most 32 cells learns BartoCartPole for 50,000 steps, and its cells are
exported as a C99 header that learns (``export_policy(agent, path, learn=True)``). Compiled with
gcc -O2 it learns the cart-pole in C for 50,000 steps, from nothing or from the exported values, and
then plays 100 greedy episodes; it is solved if they last 950 of 1000 steps on average. Time is
processor time of deciding and learning per step, the minimum of ten repetitions. Seeds, from
62,000,000 on, chose no setting. Needs gcc.
"""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from common.experiment import Experiment, SharedOptions
from common.summaries import Column, Row, Rows, Table, of, the

from benchmarks.export import BARTO, STEPS, bytes_of, export, program
from oda_rl.agents import TwoTimescaleAgent

EXPERIMENT = Experiment("benchmark_chip", timed=True)
STEPS_IN_C, MAX_CELLS = 50_000, 32
STARTS = ("nothing", "exported values")
SOLVED = 950.0


def measure(seed: int, steps: int, steps_in_c: int) -> list[Row]:
    agent = TwoTimescaleAgent(BARTO, seed=seed, max_cells=MAX_CELLS).learn(steps)
    rows = []
    with TemporaryDirectory() as place:
        folder = Path(place)
        size = export(agent, folder, learn=True)
        command = [program("learning.c", folder), str(seed), str(steps_in_c)]
        for learned, start in enumerate(STARTS):
            done = subprocess.run([*command, str(learned)], capture_output=True, check=True)
            state, nanoseconds, *lengths = map(float, done.stdout.split())
            rows.append({
                "start": start, "cells": agent.policy.n_cells, "table_bytes": size,
                "bytes": int(state), "ns": nanoseconds, "mean": float(np.mean(lengths)),
            })  # fmt: skip
    return rows


def solved(line: Rows) -> str:
    return f"{int((line.column('mean') >= SOLVED).sum())} of {len(line)}"


def tables(rows: Rows) -> dict[str, Table]:
    columns = [
        Column("starts from", the("start")),
        Column("cells", of(np.median, "cells", "g")),
        Column("bytes of state (max)", bytes_of),
        Column("of constant tables", of(np.median, "table_bytes", ",.0f")),
        Column("ns a step", of(np.median, "ns", ".3g")),
        Column("steps of 1000 afterwards (min)", Rows.mean_and_least),
        Column("solved", solved),
    ]
    return {"chip": Table("Learning BartoCartPole in C", columns, rows.groups("start"))}


def settings(options: SharedOptions) -> list[Row]:
    return [
        {"seed": seed, "steps": STEPS, "steps_in_c": STEPS_IN_C}
        for seed in EXPERIMENT.seeds(options)
    ]
