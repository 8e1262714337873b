"""What a first call costs: processor seconds of whole processes, cold and with code in the cache.

For each piece of work two processes are started one after the other with a cache folder of their
own, empty at first: the first one compiles, the second one loads. Counted are all processor seconds
of the process (user and system), the start of Python and imports included. Beside them stands what
a process takes that imports Stable-Baselines3 and lets PPO learn one rollout; it compiles nothing.

Run: python scripts/benchmark_first_call.py [--only FittedQAgent ...] [--repetitions 5]
Writes results/benchmark_first_call.csv.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from oda_rl.results import markdown_table, read_rows, store_rows

RESULTS = Path("results")
TARGET = 3.0  # seconds, cold
_POINTS = "import numpy as np; X = np.random.default_rng(0).normal(size=(1000, 4)); "
_AGENT = "from oda_rl.agents import {0}; {0}('{1}', seed=0).learn({2})"
_ESTIMATOR = _POINTS + "from oda_rl import {0}; {0}({1}random_state=0).fit(X{2})"
WORK = {
    "TwoTimescaleAgent, CartPole-v1": _AGENT.format("TwoTimescaleAgent", "CartPole-v1", 20_000),
    "FittedQAgent, CartPole-v1": _AGENT.format("FittedQAgent", "CartPole-v1", 5_000),
    "TwoTimescaleAgent, MountainCar-v0":
        _AGENT.format("TwoTimescaleAgent", "MountainCar-v0", 5_000),
    "FittedQAgent, MountainCar-v0": _AGENT.format("FittedQAgent", "MountainCar-v0", 5_000),
    "ODAClusterer": _ESTIMATOR.format("ODAClusterer", "10, ", ""),
    "ODAClassifier": _ESTIMATOR.format("ODAClassifier", "10, ", ", X[:, 0] > 0"),
    "SGDGaussianMixture": _ESTIMATOR.format("SGDGaussianMixture", "16, ", ""),
    "INFEX": _ESTIMATOR.format("INFEX", "", ""),
}  # fmt: skip
DEFAULTS = (*list(WORK)[:2], "ODAClusterer", "SGDGaussianMixture")  # what the target is for
PPO = "PPO of Stable-Baselines3, CartPole-v1"
COMPETITOR = "from stable_baselines3 import PPO; PPO('MlpPolicy', 'CartPole-v1').learn(2048)"

Row = dict[str, Any]


def seconds(code: str, cache: str) -> float:
    """Processor seconds of a process."""
    one = {"NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code], env={**os.environ, **one}
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, code)
    return usage.ru_utime + usage.ru_stime


def measure(work: str, repetition: int) -> Row:
    """Run a piece of work twice, with a cache that is empty at first."""
    code = COMPETITOR if work == PPO else WORK[work]
    with TemporaryDirectory() as cache:
        cold = seconds(code, cache)
        return {"work": work, "repetition": repetition, "cold": cold,
                "cached": seconds(code, cache)}  # fmt: skip


def lines(rows: list[Row]) -> list[list[str]]:
    """Median and most of each piece of work."""
    found = []
    for work in dict.fromkeys(row["work"] for row in rows):
        own = [row for row in rows if row["work"] == work]
        cells = [
            f"{np.median(times):.2f} ({max(times):.2f})"
            for times in ([row[key] for row in own] for key in ("cold", "cached"))
        ]
        name, _, env_id = work.partition(", ")
        shown = f"`{name}`" if work != PPO else name
        found.append([f"{shown}, {env_id}" if env_id else shown, *cells])
    return found


HEADS = ["", "first call on a machine (most)", "later ones (most)"]


def tables(results: Path) -> dict[str, str]:
    """Return the table of the README."""
    rows = read_rows(results / "benchmark_first_call.csv")
    return {"first call": markdown_table(HEADS, lines(rows))}


def main(only: tuple[str, ...] = (), repetitions: int = 5) -> None:
    """Measure first calls.

    Parameters
    ----------
    only
        Names of the work to do; all by default.
    repetitions
        Of each, in turns.
    """
    console = Console(highlight=False)
    names = [name for name in (*WORK, PPO) if not only or name in only]
    turns = [(name, turn) for turn in range(repetitions) for name in names]
    rows = [measure(*turn) for turn in track(turns, "processes", console=console)]
    stored = store_rows(RESULTS / "benchmark_first_call.csv", rows, ("work",))
    table = Table(*HEADS, title=f"processor seconds, median of {repetitions}")
    for line in lines(stored):
        table.add_row(*line)
    console.print(table)
    for name in DEFAULTS:
        cold = np.median([row["cold"] for row in stored if row["work"] == name])
        if cold > TARGET:
            console.print(f"{name}: {cold:.2f} s cold > {TARGET}")
    console.print(f"written: {RESULTS / 'benchmark_first_call.csv'}")


if __name__ == "__main__":
    tyro.cli(main)
